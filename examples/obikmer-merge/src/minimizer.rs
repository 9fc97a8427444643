//! Minimizers: which partition a junction or a k-mer belongs to.
//!
//! The minimizer of a word is its m-mer (canonical) of the lowest hash. The partition is a second hash of that hash,
//! scaled to the number of partitions. Both hashes are fixed here and part of the index format:
//!
//! ```text
//! order(x)      = let y = (x ^ 0x9e3779b97f4a7c15) * 0xbf58476d1ce4e5b9;  y ^= y >> 29;
//!                 y *= 0x94d049bb133111eb;  y ^ (y >> 32)                       (mod 2^64)
//! partition(h)  = high 64 bits of (order(h) * number of partitions)
//! ```
//!
//! A k-mer's minimizer is the lower of those of its two junctions, so that a k-mer whose junctions lie in different
//! partitions is owned by one of the two.

use crate::kmer::Lengths;
use crate::word::Word;

/// The hash that orders m-mers.
#[inline]
pub fn order(x: u64) -> u64 {
    let y = (x ^ 0x9e37_79b9_7f4a_7c15).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let y = (y ^ (y >> 29)).wrapping_mul(0x94d0_49bb_1331_11eb);
    y ^ (y >> 32)
}

/// The partition, of `count`, of a minimizer whose hash is `hash`.
#[inline]
pub fn partition(hash: u64, count: usize) -> usize {
    ((u128::from(order(hash)) * count as u128) >> 64) as usize
}

/// The lowest hash among the m-mers of a word of `len` bases.
pub fn of_word<W: Word>(word: W, len: usize, m: usize) -> u64 {
    let reverse = word.revcomp(len);
    let bits = u64::mask(m);
    (0..=len - m)
        .map(|i| {
            let forward = (word >> (2 * (len - m - i))).low() & bits;
            order(forward.min((reverse >> (2 * i)).low() & bits))
        })
        .min()
        .unwrap_or(0)
}

/// Minimizers of all words of `len` bases along a sequence; keeps its buffers between calls.
#[derive(Default)]
pub struct Windows {
    hashes: Vec<u64>,
    suffix: Vec<u64>,
    /// The lowest hash of each word, in order.
    pub lowest: Vec<u64>,
}

impl Windows {
    /// Minimizers of the words of `len` bases of `codes` (all codes below 4, at least `len` of them).
    ///
    /// The sliding minimum is taken in blocks of a window's length (van Herk): the minimum of a window is that of
    /// the end of one block and of the beginning of the next; three passes without a branch that is hard to predict.
    pub fn fill(&mut self, codes: &[u8], len: usize, m: usize) {
        let bits = u64::mask(m);
        let top = 2 * (m - 1);
        let (mut forward, mut reverse) = (0u64, 0u64);
        for &c in &codes[..m - 1] {
            forward = (forward << 2) | u64::from(c);
            reverse = (reverse >> 2) | (u64::from(3 - c) << top);
        }
        self.hashes.clear();
        self.hashes.extend(codes[m - 1..].iter().map(|&c| {
            forward = ((forward << 2) | u64::from(c)) & bits;
            reverse = (reverse >> 2) | (u64::from(3 - c) << top);
            order(forward.min(reverse))
        }));
        let width = len - m + 1;
        let hashes = &self.hashes[..];
        self.suffix.clear();
        self.suffix.extend_from_slice(hashes);
        for block in self.suffix.chunks_mut(width) {
            let mut low = u64::MAX;
            for h in block.iter_mut().rev() {
                low = low.min(*h);
                *h = low;
            }
        }
        let count = hashes.len() + 1 - width;
        self.lowest.clear();
        self.lowest.reserve(count);
        // Window i covers i .. i + width: the suffix of its block from i, and the next block up to i + width − 1.
        let mut begin = 0;
        while begin < count {
            self.lowest.push(self.suffix[begin]);
            let mut prefix = u64::MAX;
            let end = (begin + width).min(count);
            let next = &hashes[begin + width..];
            for (suffix, &h) in self.suffix[begin + 1..end].iter().zip(next) {
                prefix = prefix.min(h);
                self.lowest.push(prefix.min(*suffix));
            }
            begin += width;
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
    fn sliding_minimum_equals_word_by_word() {
        let codes: Vec<u8> = (0..500u64).map(|i| (order(i) & 3) as u8).collect();
        for (len, m) in [(2, 1), (2, 2), (4, 2), (30, 11), (20, 19), (30, 1), (31, 30)] {
            let mut windows = Windows::default();
            for n in [len, len + 1, len + 7, 100, 500] {
                windows.fill(&codes[..n], len, m);
                let naive: Vec<u64> =
                    codes[..n].windows(len).map(|w| of_word(u64::from_codes(w), len, m)).collect();
                assert_eq!(windows.lowest, naive, "{len} {m} {n}");
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
}
