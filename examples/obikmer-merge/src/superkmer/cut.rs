//! Cutting sequences into super-k-mers by the minimizers of their junctions.
//!
//! Consecutive junctions of one virtual partition make a super-k-mer, extended by one base on each side where
//! the sequence goes on: so the partition sees every k-mer at every one of its junctions. The k-mer at such
//! an extended end lies in two partitions; the one of its own minimizer, the lower of its two junctions',
//! owns it.
//!
//! A super-k-mer on the wire: a little-endian `u16` (low 12 bits: number of k-mers; then the four bits
//! below), and its bases, packed.

use crate::sequence::kmer::{BREAK, Lengths};
use crate::sequence::minimizer::{Partitions, Windows};
use crate::sequence::packed;
use crate::sequence::simd::{self, Level};

/// The first k-mer's left junction lies in another partition.
pub const LEFT_FOREIGN: u16 = 1 << 12;
/// The first k-mer, at a foreign junction, is owned here nevertheless.
pub const LEFT_OWNED: u16 = 1 << 13;
/// The last k-mer's right junction lies in another partition.
pub const RIGHT_FOREIGN: u16 = 1 << 14;
/// The last k-mer, at a foreign junction, is owned here nevertheless.
pub const RIGHT_OWNED: u16 = 1 << 15;
/// Most k-mers in one super-k-mer.
pub const MAX_KMERS: usize = (1 << 12) - 1;

/// Letters handled at a time: few enough for all that is made of them on the way to stay in the cache.
const SLICE: usize = 4096;

/// Bytes of a super-k-mer of `kmers` k-mers, header included.
#[inline]
pub fn encoded_len(kmers: usize, k: usize) -> usize {
    2 + packed::bytes_for(kmers + k - 1)
}

/// Where the super-k-mers go.
pub trait Sink {
    /// Its error.
    type Error;
    /// The codes, none a break, that the following super-k-mers are cut from.
    fn run(&mut self, codes: &[u8]);
    /// A super-k-mer for a virtual partition: where it begins in the run, and its header.
    fn super_kmer(&mut self, virtual_partition: usize, first: usize, header: u16);
    /// After each slice: a good moment to send what has gathered.
    fn slice_done(&mut self) -> Result<(), Self::Error>;
}

/// What has been cut.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cut {
    /// Letters that break k-mers.
    pub breaks: u64,
    /// Stretches between them that have a k-mer.
    pub runs: u64,
    /// K-mers, repeats included.
    pub kmers: u64,
}

/// Cuts sequences; keeps its buffers.
pub struct Cutter {
    lengths: Lengths,
    partitions: Partitions,
    level: Level,
    /// Codes to be cut, breaks among them: at first the last k − 1 or fewer of the slice before.
    codes: Vec<u8>,
    windows: Windows,
    changes: Vec<u64>,
    /// The codes begin with the end of a run that has been counted.
    goes_on: bool,
    cut: Cut,
}

impl Cutter {
    /// For these partitions.
    pub fn new(lengths: Lengths, partitions: Partitions) -> Self {
        Self {
            lengths,
            partitions,
            level: Level::widest(),
            codes: Vec::new(),
            windows: Windows::default(),
            changes: Vec::new(),
            goes_on: false,
            cut: Cut::default(),
        }
    }

    /// What has been cut since this was asked last. Sequences that have not ended are not wholly in it.
    pub fn take_cut(&mut self) -> Cut {
        std::mem::take(&mut self.cut)
    }

    /// Letters of a sequence, which goes on with the next call. Letters other than ACGT break it.
    pub fn letters<S: Sink>(&mut self, letters: &[u8], sink: &mut S) -> Result<(), S::Error> {
        let level = self.level;
        self.gather(letters, sink, |letters, codes| {
            let at = codes.len();
            codes.resize(at + letters.len(), 0);
            simd::codes(level, letters, &mut codes[at..]);
        })
    }

    /// Codes of a sequence, which goes on with the next call.
    pub fn codes<S: Sink>(&mut self, codes: &[u8], sink: &mut S) -> Result<(), S::Error> {
        self.gather(codes, sink, |codes, all| all.extend_from_slice(codes))
    }

    /// The sequence is at its end.
    pub fn end<S: Sink>(&mut self, sink: &mut S) -> Result<(), S::Error> {
        self.slice(sink)?;
        self.codes.clear();
        self.goes_on = false;
        Ok(())
    }

    fn gather<S: Sink>(
        &mut self,
        mut more: &[u8],
        sink: &mut S,
        append: impl Fn(&[u8], &mut Vec<u8>),
    ) -> Result<(), S::Error> {
        let full = SLICE + self.lengths.k - 1;
        while !more.is_empty() {
            let (now, later) = more.split_at(more.len().min(full - self.codes.len()));
            append(now, &mut self.codes);
            if self.codes.len() == full {
                self.slice(sink)?;
            }
            more = later;
        }
        Ok(())
    }

    /// Cut what has gathered. Its last k − 1 codes, or those behind the last break, begin the next slice, so
    /// that each k-mer lies in exactly one.
    fn slice<S: Sink>(&mut self, sink: &mut S) -> Result<(), S::Error> {
        let codes = std::mem::take(&mut self.codes);
        let k = self.lengths.k;
        let mut begin = 0;
        for at in memchr::memchr_iter(BREAK, &codes) {
            if at - begin >= k {
                self.run(&codes[begin..at], sink);
            }
            self.goes_on = false;
            self.cut.breaks += 1;
            begin = at + 1;
        }
        if codes.len() - begin >= k {
            self.run(&codes[begin..], sink);
            self.goes_on = true;
        }
        let keep = begin.max(codes.len().saturating_sub(k - 1));
        self.codes = codes;
        self.codes.copy_within(keep.., 0);
        self.codes.truncate(self.codes.len() - keep);
        sink.slice_done()
    }

    /// One run of codes without breaks, at least k long.
    fn run<S: Sink>(&mut self, run: &[u8], sink: &mut S) {
        let Lengths { k, m } = self.lengths;
        self.cut.kmers += (run.len() + 1 - k) as u64;
        self.cut.runs += u64::from(!self.goes_on);
        self.windows.fill(run, k - 1, m);
        sink.run(run);
        let lowest = &self.windows.lowest[..];
        let last = lowest.len() - 1;
        simd::changes(self.level, lowest, &mut self.changes);
        // The group of junctions that is open, and what its first k-mer is to it.
        let (mut first, mut left) = (0, 0);
        let mut home = self.partitions.virtual_of(lowest[0]);
        for (block, &bits) in self.changes.iter().enumerate() {
            let mut bits = bits;
            while bits != 0 {
                let at = 64 * block + bits.trailing_zeros() as usize;
                bits &= bits - 1;
                let next = self.partitions.virtual_of(lowest[at]);
                if next == home {
                    continue;
                }
                // The k-mer between junctions at − 1 and at belongs to both groups, and is owned by one of
                // them.
                let before = lowest[at - 1] < lowest[at];
                let right = RIGHT_FOREIGN | if before { RIGHT_OWNED } else { 0 };
                emit(home, first, at, left | right, sink);
                (first, home) = (at - 1, next);
                left = LEFT_FOREIGN | if before { 0 } else { LEFT_OWNED };
            }
        }
        emit(home, first, last, left, sink);
    }
}

/// K-mers `first..end` of a run, as one super-k-mer or, beyond [`MAX_KMERS`], several.
#[inline]
fn emit<S: Sink>(to: usize, mut first: usize, end: usize, flags: u16, sink: &mut S) {
    const LEFT: u16 = LEFT_FOREIGN | LEFT_OWNED;
    const RIGHT: u16 = RIGHT_FOREIGN | RIGHT_OWNED;
    let mut left = flags & LEFT;
    while end - first > MAX_KMERS {
        sink.super_kmer(to, first, MAX_KMERS as u16 | left);
        first += MAX_KMERS;
        left = 0;
    }
    if first < end {
        sink.super_kmer(to, first, (end - first) as u16 | left | flags & RIGHT);
    }
}
