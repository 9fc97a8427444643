//! Cutting sequences into super-k-mers by the minimizers of their junctions.
//!
//! Consecutive junctions of one partition make a super-k-mer, extended by one base on each side where the sequence
//! goes on: so the partition sees every k-mer at every one of its junctions. The k-mer at such an extended end lies
//! in two partitions; the one of its own minimizer, the lower of its two junctions', owns it.
//!
//! A super-k-mer on the wire: a little-endian `u16` (low 12 bits: number of k-mers; then the four bits below), and
//! its bases, packed.

use crate::kmer::{BREAK, CODE, Lengths};
use crate::minimizer::{Windows, partition};
use crate::packed;

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

/// Windows handled at a time: long sequences go in slices, so that no buffer grows with them and a full window of
/// messages is noticed in time.
const SLICE: usize = 16 * 1024;

/// Bytes of a super-k-mer of `kmers` k-mers, header included.
#[inline]
pub fn encoded_len(kmers: usize, k: usize) -> usize {
    2 + packed::bytes_for(kmers + k - 1)
}

/// Where the super-k-mers go.
pub trait Sink {
    /// Its error.
    type Error;
    /// Room for a super-k-mer of partition `to`.
    fn buffer(&mut self, to: usize) -> &mut Vec<u8>;
    /// After each slice: a good moment to send what has gathered.
    fn slice_done(&mut self) -> Result<(), Self::Error>;
}

/// Cuts sequences; keeps its buffers.
pub struct Cutter {
    lengths: Lengths,
    partitions: usize,
    codes: Vec<u8>,
    packed: Vec<u8>,
    windows: Windows,
}

impl Cutter {
    /// For so many partitions.
    pub fn new(lengths: Lengths, partitions: usize) -> Self {
        Self { lengths, partitions, codes: Vec::new(), packed: Vec::new(), windows: Windows::default() }
    }

    /// Cut a sequence of letters. Letters other than ACGT break it. The number of its k-mers.
    pub fn letters<S: Sink>(&mut self, letters: &[u8], sink: &mut S) -> Result<u64, S::Error> {
        let mut codes = std::mem::take(&mut self.codes);
        let result = self.overlapping(letters.len(), |this, from, to| {
            codes.clear();
            codes.extend(letters[from..to].iter().map(|&b| CODE[b as usize]));
            let k = this.lengths.k;
            let mut kmers = 0;
            for run in codes.split(|&c| c == BREAK).filter(|run| run.len() >= k) {
                this.run(run, sink);
                kmers += (run.len() + 1 - k) as u64;
            }
            sink.slice_done()?;
            Ok(kmers)
        });
        self.codes = codes;
        result
    }

    /// Cut a sequence of codes without breaks. The number of its k-mers.
    pub fn codes<S: Sink>(&mut self, codes: &[u8], sink: &mut S) -> Result<u64, S::Error> {
        self.overlapping(codes.len(), |this, from, to| {
            this.run(&codes[from..to], sink);
            sink.slice_done()?;
            Ok((to - from + 1 - this.lengths.k) as u64)
        })
    }

    /// Slices that share k − 1 letters, so that each window lies in exactly one.
    fn overlapping<E>(
        &mut self,
        len: usize,
        mut each: impl FnMut(&mut Self, usize, usize) -> Result<u64, E>,
    ) -> Result<u64, E> {
        let overlap = self.lengths.k - 1;
        let (mut kmers, mut from) = (0, 0);
        while from + overlap < len {
            let to = (from + SLICE + overlap).min(len);
            kmers += each(self, from, to)?;
            from += SLICE;
        }
        Ok(kmers)
    }

    /// One run of codes without breaks, at least k long.
    fn run<S: Sink>(&mut self, run: &[u8], sink: &mut S) {
        let Lengths { k, m } = self.lengths;
        self.windows.fill(run, k - 1, m);
        self.packed.clear();
        packed::pack(run, &mut self.packed);
        let lowest = &self.windows.lowest[..];
        let junctions = lowest.len();
        let mut begin = 0;
        let mut home = partition(lowest[0], self.partitions);
        while begin < junctions {
            // The end of the group that begins here, and the partition after it.
            let mut end = begin + 1;
            let mut next = home;
            while end < junctions {
                if lowest[end] != lowest[end - 1] {
                    next = partition(lowest[end], self.partitions);
                    if next != home {
                        break;
                    }
                }
                end += 1;
            }
            // K-mer i has junctions i and i + 1.
            let (first, after) = (begin.saturating_sub(1), end.min(junctions - 1));
            let mut flags = 0;
            if begin > 0 {
                flags |= LEFT_FOREIGN;
                flags |= if lowest[begin] < lowest[begin - 1] { LEFT_OWNED } else { 0 };
            }
            if end < junctions {
                flags |= RIGHT_FOREIGN;
                flags |= if lowest[end - 1] < lowest[end] { RIGHT_OWNED } else { 0 };
            }
            emit(&self.packed, first, after, k, flags, sink.buffer(home));
            begin = end;
            home = next;
        }
    }
}

/// K-mers `first..end` of a packed run, as one super-k-mer or, beyond [`MAX_KMERS`], several.
fn emit(packed: &[u8], mut first: usize, end: usize, k: usize, flags: u16, out: &mut Vec<u8>) {
    const LEFT: u16 = LEFT_FOREIGN | LEFT_OWNED;
    const RIGHT: u16 = RIGHT_FOREIGN | RIGHT_OWNED;
    let mut left = flags & LEFT;
    while first < end {
        let kmers = (end - first).min(MAX_KMERS);
        let right = if first + kmers == end { flags & RIGHT } else { 0 };
        out.extend_from_slice(&(kmers as u16 | left | right).to_le_bytes());
        packed::copy(packed, first, kmers + k - 1, out);
        first += kmers;
        left = 0;
    }
}
