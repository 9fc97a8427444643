//! Identical super-k-mers merged: each distinct one once, in the smaller of its two directions, with the set
//! of the sources that have it. Six of ten are repeats where genomes are related.

use super::text::{Text, Texts};
use crate::graph::Record;
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

/// All of one virtual partition.
pub struct Distinct<W: Texts> {
    k: usize,
    /// Their texts.
    pub texts: Vec<W::Text>,
    /// The rest.
    pub metas: Vec<Meta>,
    /// Numbers of the texts plus one, by hash; a power of two, at most half full.
    table: Vec<u32>,
}

impl<W: Texts> Distinct<W> {
    pub fn new(k: usize) -> Self {
        Self { k, texts: Vec::new(), metas: Vec::new(), table: vec![0; 64] }
    }

    /// Forget all, keep the room.
    pub fn clear(&mut self) {
        self.texts.clear();
        self.metas.clear();
        self.table.fill(0);
    }

    /// Add a super-k-mer of a source. Sources come in ascending order.
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
        let mask = self.table.len() - 1;
        let mut at = (text.hash() ^ u64::from(kmers)) as usize & mask;
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
