//! Identical super-k-mers merged: each distinct one once, in the smaller of its two directions, with the set
//! of the sources that have it. Six of ten are repeats where genomes are related.

use super::text::{Text, Texts};
use crate::graph::Record;
use crate::lookup::prefetch;
use crate::sets::{EMPTY, Sets};
use crate::superkmer::cut::{LEFT_FOREIGN, LEFT_OWNED, RIGHT_FOREIGN, RIGHT_OWNED};

/// The first k-mer's left junction lies in another partition.
pub const FOREIGN: u8 = 1;
/// The first k-mer, at a foreign junction, is owned here nevertheless.
pub const KEPT: u8 = 2;
/// Flags of the left end are these, those of the right end so many bits higher.
pub const RIGHT: u8 = 2;

/// What is known of a distinct super-k-mer beside its text.
#[derive(Clone, Copy)]
pub struct Meta {
    /// Its k-mers.
    pub kmers: u8,
    /// [`FOREIGN`] and [`KEPT`] of both ends.
    pub flags: u8,
    /// Its sources.
    pub set: u32,
}

impl Meta {
    /// Flags of one end.
    #[inline]
    pub fn end(self, right: bool) -> u8 {
        (self.flags >> if right { RIGHT } else { 0 }) & (FOREIGN | KEPT)
    }

    /// Is the k-mer at one end owned by another partition?
    #[inline]
    pub fn is_ghost(self, right: bool) -> bool {
        self.end(right) == FOREIGN
    }
}

/// So many super-k-mers are on their way: half of them until what is at their place is read, half until it is
/// compared with them, so that both have come near by then.
const AHEAD: usize = 16;

/// A super-k-mer on its way.
struct Coming<W: Texts> {
    text: W::Text,
    hash: u64,
    source: u32,
    kmers: u8,
    flags: u8,
}

/// All of one virtual partition.
pub struct Distinct<W: Texts> {
    k: usize,
    /// Their texts.
    pub texts: Vec<W::Text>,
    /// The rest.
    pub metas: Vec<Meta>,
    /// Numbers of the texts plus one, by hash; a power of two, at most half full.
    table: Vec<u32>,
    /// The last that were added, going round.
    coming: Vec<Coming<W>>,
    added: usize,
}

impl<W: Texts> Distinct<W> {
    pub fn new(k: usize) -> Self {
        let coming = Vec::with_capacity(AHEAD);
        Self { k, texts: Vec::new(), metas: Vec::new(), table: vec![0; 64], coming, added: 0 }
    }

    /// Forget all, keep the room.
    pub fn clear(&mut self) {
        self.texts.clear();
        self.metas.clear();
        self.table.fill(0);
        self.coming.clear();
        self.added = 0;
    }

    /// Add a super-k-mer of a source. Sources come in ascending order. It is there after
    /// [`complete`](Self::complete).
    #[inline]
    pub fn add(&mut self, record: Record<'_>, source: u32, sets: &mut Sets) {
        let most = W::Text::CAPACITY + 1 - self.k;
        let flag = |wire: u16, flag: u8| if record.flags & wire != 0 { flag } else { 0 };
        let left = flag(LEFT_FOREIGN, FOREIGN) | flag(LEFT_OWNED, KEPT);
        let right = flag(RIGHT_FOREIGN, FOREIGN) | flag(RIGHT_OWNED, KEPT);
        // Longer ones in parts: at the seam a part ends like a sequence, and the junction there sees both
        // k-mers.
        let mut first = 0;
        while first < record.kmers {
            let kmers = (record.kmers - first).min(most);
            let text = W::Text::unpack(record.bases, first, kmers + self.k - 1);
            let left = if first == 0 { left } else { 0 };
            first += kmers;
            let right = if first == record.kmers { right } else { 0 };
            self.insert(text, kmers, left, right, source, sets);
        }
    }

    #[inline]
    fn insert(&mut self, text: W::Text, kmers: usize, left: u8, right: u8, source: u32, sets: &mut Sets) {
        let turned = text.revcomp(kmers + self.k - 1);
        let (text, flags) =
            if turned < text { (turned, left << RIGHT | right) } else { (text, right << RIGHT | left) };
        let kmers = kmers as u8;
        let hash = text.hash() ^ u64::from(kmers);
        let coming = Coming { text, hash, source, kmers, flags };
        prefetch::read(&self.table, hash as usize & (self.table.len() - 1));
        let at = self.added % AHEAD;
        self.added += 1;
        if self.coming.len() < AHEAD {
            self.coming.push(coming);
            return;
        }
        let half = self.coming[(at + AHEAD / 2) % AHEAD].hash;
        let there = self.table[half as usize & (self.table.len() - 1)] as usize;
        prefetch::read(&self.texts, there.wrapping_sub(1));
        prefetch::read(&self.metas, there.wrapping_sub(1));
        let first = std::mem::replace(&mut self.coming[at], coming);
        self.take(first, sets);
    }

    /// All have been added.
    pub fn complete(&mut self, sets: &mut Sets) {
        let begin = self.added % self.coming.len().max(1);
        let mut coming = std::mem::take(&mut self.coming);
        coming.rotate_left(begin);
        coming.drain(..).for_each(|coming| self.take(coming, sets));
        self.coming = coming;
    }

    #[inline]
    fn take(&mut self, coming: Coming<W>, sets: &mut Sets) {
        let Coming { text, hash, source, kmers, flags } = coming;
        let mask = self.table.len() - 1;
        let mut at = hash as usize & mask;
        loop {
            let slot = self.table[at];
            if slot == 0 {
                break;
            }
            let number = slot as usize - 1;
            let meta = &mut self.metas[number];
            if self.texts[number] == text && meta.kmers == kmers && meta.flags == flags {
                meta.set = sets.with(meta.set, source);
                return;
            }
            at = (at + 1) & mask;
        }
        self.texts.push(text);
        self.metas.push(Meta { kmers, flags, set: sets.with(EMPTY, source) });
        self.table[at] = self.texts.len() as u32;
        if 2 * self.texts.len() > self.table.len() {
            self.grow();
        }
    }

    #[cold]
    fn grow(&mut self) {
        let len = 2 * self.table.len();
        self.table.clear();
        self.table.resize(len, 0);
        for (number, (text, meta)) in self.texts.iter().zip(&self.metas).enumerate() {
            let mut at = (text.hash() ^ u64::from(meta.kmers)) as usize & (len - 1);
            while self.table[at] != 0 {
                at = (at + 1) & (len - 1);
            }
            self.table[at] = number as u32 + 1;
        }
    }
}
