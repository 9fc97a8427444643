//! Minimizers: which partition a junction or a k-mer belongs to.
//!
//! The minimizer of a word is its m-mer (canonical) of the lowest hash. The partition is a second hash of
//! that hash, scaled to the number of partitions. All of it is fixed here and part of the index format:
//!
//! ```text
//! fold(x)       = low 32 bits of x ^ (high 32 bits of x) * 0x9e3779b1 (mod 2^32; x itself up to m = 16)
//! order(x)      = let y = fold(x) ^ 0xd5f9efc4;  y ^= y >> 16;  y *= 0x7feb352d;  y ^= y >> 15;
//!                 y *= 0x846ca68b;  y ^ (y >> 16)                               (mod 2^32)
//! scramble(h)   = let y = h ^ (h >> 16);  y *= 0x85ebca6b;  y ^= y >> 13;
//!                 y *= 0xc2b2ae35;  y ^ (y >> 16)                               (mod 2^32)
//! partition(h)  = (scramble(h) * number of partitions) >> 32                    (64 bits)
//! ```
//!
//! Up to m = 16 `order` is a bijection, and that of poly-A is the highest of all. A k-mer's minimizer is the
//! lower of those of its two junctions, so that a k-mer whose junctions lie in different partitions is owned
//! by one of the two: the partition follows from the hash, so their hashes differ.

use crate::sequence::kmer::Lengths;
use crate::sequence::simd::{self, Level};
use crate::sequence::word::Word;

/// Virtual partitions of a job, at least: so that each has few enough k-mers for its tables to fit into the
/// cache.
const VIRTUAL: usize = 2048;

/// A hash of 64-bit numbers for everything but minimizers.
#[inline]
pub fn order(x: u64) -> u64 {
    let y = (x ^ 0x9e37_79b9_7f4a_7c15).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let y = (y ^ (y >> 29)).wrapping_mul(0x94d0_49bb_1331_11eb);
    y ^ (y >> 32)
}

/// An m-mer of up to 31 bases as 32 bits, themselves up to 16 bases.
#[inline]
fn fold(x: u64) -> u32 {
    x as u32 ^ ((x >> 32) as u32).wrapping_mul(0x9e37_79b1)
}

/// The hash that orders m-mers, of a folded one.
#[inline(always)]
pub(crate) fn order32(x: u32) -> u32 {
    let y = x ^ 0xd5f9_efc4;
    let y = (y ^ (y >> 16)).wrapping_mul(0x7feb_352d);
    let y = (y ^ (y >> 15)).wrapping_mul(0x846c_a68b);
    y ^ (y >> 16)
}

#[inline]
fn scramble(hash: u32) -> u32 {
    let y = (hash ^ (hash >> 16)).wrapping_mul(0x85eb_ca6b);
    let y = (y ^ (y >> 13)).wrapping_mul(0xc2b2_ae35);
    y ^ (y >> 16)
}

/// The partition, of `count`, of a minimizer whose hash is `hash`.
#[inline]
pub fn partition(hash: u32, count: usize) -> usize {
    ((u64::from(scramble(hash)) * count as u64) >> 32) as usize
}

/// Partitions of ranks, and those of each rank cut into *virtual* ones: consecutive, equally many for each
/// rank, so that a minimizer's rank is that of its virtual partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Partitions {
    ranks: usize,
    subs: usize,
}

impl Partitions {
    /// For so many ranks, with enough virtual partitions.
    pub fn new(ranks: usize) -> Self {
        Self::with_subs(ranks, VIRTUAL.div_ceil(ranks))
    }

    /// With so many virtual partitions in each rank's, at most 65,536.
    pub fn with_subs(ranks: usize, subs: usize) -> Self {
        Self { ranks, subs }
    }

    /// Number of ranks.
    pub fn ranks(self) -> usize {
        self.ranks
    }

    /// Virtual partitions of each rank.
    pub fn subs(self) -> usize {
        self.subs
    }

    /// Virtual partitions of all ranks.
    pub fn count(self) -> usize {
        self.ranks * self.subs
    }

    /// The virtual partition of a minimizer's hash.
    #[inline]
    pub fn virtual_of(self, hash: u32) -> usize {
        partition(hash, self.count())
    }

    /// The rank of a virtual partition.
    #[inline]
    pub fn rank_of(self, virtual_partition: usize) -> usize {
        virtual_partition / self.subs
    }

    /// A virtual partition's place among those of its rank.
    #[inline]
    pub fn sub_of(self, virtual_partition: usize) -> usize {
        virtual_partition % self.subs
    }
}

/// The hash of a canonical m-mer.
#[inline]
pub fn of_mmer(x: u64) -> u32 {
    order32(fold(x))
}

/// The lowest hash among the m-mers of a word of `len` bases.
pub fn of_word<W: Word>(word: W, len: usize, m: usize) -> u32 {
    let reverse = word.revcomp(len);
    let bits = u64::mask(m);
    (0..=len - m)
        .map(|i| {
            let forward = (word >> (2 * (len - m - i))).low() & bits;
            order32(fold(forward.min((reverse >> (2 * i)).low() & bits)))
        })
        .min()
        .unwrap_or(0)
}

/// [`of_word`] for many, all of the same length, into `out`.
pub fn of_words<W: Word>(words: &[W], len: usize, m: usize, out: &mut Vec<u32>) {
    of_words_at(Level::widest(), words, len, m, out);
}

fn of_words_at<W: Word>(level: Level, words: &[W], len: usize, m: usize, out: &mut Vec<u32>) {
    out.clear();
    if W::BITS == 64 && m <= 16 {
        out.resize(words.len(), 0);
        simd::lowest_of_words(level, bytemuck::cast_slice(words), len, m, out);
    } else {
        out.extend(words.iter().map(|&word| of_word(word, len, m)));
    }
}

/// Minimizers of all words of `len` bases along a sequence; keeps its buffers between calls.
pub struct Windows {
    level: Level,
    f4: Vec<u8>,
    r4: Vec<u8>,
    f8: Vec<u16>,
    r8: Vec<u16>,
    other: Vec<u32>,
    /// The lowest hash of each word, in order.
    pub lowest: Vec<u32>,
}

impl Default for Windows {
    fn default() -> Self {
        Self::at(Level::widest())
    }
}

impl Windows {
    fn at(level: Level) -> Self {
        let (f4, r4, f8, r8, other, lowest) = Default::default();
        Self { level, f4, r4, f8, r8, other, lowest }
    }

    /// Minimizers of the words of `len` bases of `codes` (all codes below 4, at least `len` of them).
    pub fn fill(&mut self, codes: &[u8], len: usize, m: usize) {
        self.hash(codes, m);
        self.slide(len - m + 1);
    }

    /// The hash of every m-mer, into `lowest`. From 4 to 16 bases an m-mer is two overlapping words of four
    /// or eight of its bases, and all places are done at once; otherwise it is rolled along.
    fn hash(&mut self, codes: &[u8], m: usize) {
        let places = codes.len() + 1 - m;
        self.lowest.resize(places, 0);
        if (4..=16).contains(&m) {
            let fours = codes.len() - 3;
            self.f4.resize(fours, 0);
            self.r4.resize(fours, 0);
            simd::fours(self.level, codes, &mut self.f4, &mut self.r4);
            if m < 8 {
                return simd::hashes_of_fours(self.level, &self.f4, &self.r4, m, &mut self.lowest);
            }
            self.f8.resize(fours - 4, 0);
            self.r8.resize(fours - 4, 0);
            simd::eights(self.level, &self.f4, &self.r4, &mut self.f8, &mut self.r8);
            return simd::hashes_of_eights(self.level, &self.f8, &self.r8, m, &mut self.lowest);
        }
        let (bits, top) = (u64::mask(m), 2 * (m - 1));
        let (mut forward, mut reverse) = (0u64, 0u64);
        let mut push = |c: u8| {
            forward = ((forward << 2) | u64::from(c)) & bits;
            reverse = (reverse >> 2) | (u64::from(3 - c) << top);
            fold(forward.min(reverse))
        };
        for &c in &codes[..m - 1] {
            push(c);
        }
        for (hash, &c) in self.lowest.iter_mut().zip(&codes[m - 1..]) {
            *hash = push(c);
        }
        simd::hashes(self.level, &mut self.lowest);
    }

    /// The lowest of each `width` hashes: of overlapping windows of 1, 4, 16, … and then of what is left of
    /// the width, each pass over all places at once, without a branch.
    fn slide(&mut self, width: usize) {
        let mut done = 1;
        while done < width {
            let fours = 4 * done <= width;
            let next = if fours { 4 * done } else { (2 * done).min(width) };
            self.other.resize(self.lowest.len() - (next - done), 0);
            if fours {
                simd::lowest_of_four(self.level, &self.lowest, done, &mut self.other);
            } else {
                simd::lower_of_two(self.level, &self.lowest, next - done, &mut self.other);
            }
            std::mem::swap(&mut self.lowest, &mut self.other);
            done = next;
        }
    }
}

/// The partition that owns a canonical k-mer.
pub fn owner<W: Word>(kmer: W, lengths: Lengths, count: usize) -> usize {
    partition(of_word(kmer, lengths.k, lengths.m), count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sliding_minimum_equals_word_by_word_at_every_level() {
        let codes: Vec<u8> = (0..500u64).map(|i| (order(i) & 3) as u8).collect();
        let pairs = (1..=31).flat_map(|m| [m, m + 1, m + 3, m + 19, m + 24].map(|len| (len, m)));
        for (len, m) in pairs.chain([(62, 1), (62, 11), (62, 31)]) {
            for level in Level::available() {
                let mut windows = Windows::at(level);
                for n in [len, len + 1, len + 7, 100, 500] {
                    windows.fill(&codes[..n], len, m);
                    let naive: Vec<u32> =
                        codes[..n].windows(len).map(|w| of_word(u128::from_codes(w), len, m)).collect();
                    assert_eq!(windows.lowest, naive, "{len} {m} {n} {level:?}");
                }
            }
        }
    }

    #[test]
    fn both_strands_have_one_minimizer() {
        for i in 0..1000 {
            let word = order(i) & u64::mask(30);
            assert_eq!(of_word(word, 30, 11), of_word(word.revcomp(30), 30, 11));
        }
    }

    #[test]
    fn poly_a_is_the_highest_and_no_two_short_words_are_equal() {
        assert_eq!(order32(0), u32::MAX);
        let mut all: Vec<u32> = (0..1 << 16).map(order32).collect();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 1 << 16);
        // Longer ones differ in their high bits too.
        assert_ne!(fold(5), fold(5 | 1 << 40));
    }

    #[test]
    fn the_rank_is_that_of_the_virtual_partition() {
        for ranks in [1, 2, 3, 7, 16, 255, 256, 1000, 2048, 5000] {
            for partitions in [Partitions::new(ranks), Partitions::with_subs(ranks, 5)] {
                assert!(partitions.subs() > 0 && partitions.count() >= ranks);
                let extremes = [0, 1, u32::MAX];
                for hash in (0..5000).map(|i| order(i) as u32).chain(extremes) {
                    let virtual_partition = partitions.virtual_of(hash);
                    assert!(virtual_partition < partitions.count());
                    assert_eq!(partitions.rank_of(virtual_partition), partition(hash, ranks));
                    assert!(partitions.sub_of(virtual_partition) < partitions.subs());
                }
            }
        }
        assert!(Partitions::new(1).count() >= 2048 && Partitions::new(300).count() >= 2048);
    }

    /// The hashes of the minimizers are low: the partitions must be even all the same.
    #[test]
    fn partitions_are_even() {
        let codes: Vec<u8> = (0..400_000u64).map(|i| (order(i) & 3) as u8).collect();
        let mut windows = Windows::default();
        windows.fill(&codes, 30, 11);
        let mut counts = [0usize; 64];
        windows.lowest.dedup();
        for &hash in &windows.lowest {
            counts[partition(hash, 64)] += 1;
        }
        let mean = windows.lowest.len() / 64;
        assert!(counts.iter().all(|&c| c > mean * 3 / 4 && c < mean * 5 / 4), "{counts:?}");
    }

    #[test]
    fn many_words_have_the_minimizers_of_each() {
        for (len, m) in [(2, 1), (30, 11), (30, 16), (30, 17), (31, 31), (16, 16)] {
            let words: Vec<u64> = (0..70).map(|i| order(i * 7 + 5) & u64::mask(len)).collect();
            for n in [0, 1, 15, 16, 17, 70] {
                let expected: Vec<u32> = words[..n].iter().map(|&word| of_word(word, len, m)).collect();
                for level in Level::available() {
                    let mut found = vec![1];
                    of_words_at(level, &words[..n], len, m, &mut found);
                    assert_eq!(found, expected, "{level:?} {len} {m}");
                    let wide: Vec<u128> = words[..n].iter().map(|&word| word.into()).collect();
                    of_words_at(level, &wide, len, m, &mut found);
                    assert_eq!(found, expected);
                }
            }
        }
    }
}
