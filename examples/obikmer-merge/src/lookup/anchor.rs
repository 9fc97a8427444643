//! Anchors: the minimizers by which k-mers are looked up within a partition.
//!
//! A k-mer's *anchor* is its canonical word of [`len`] bases with the lowest [`hash`]. It is another
//! minimizer than that which chooses the partition: longer, so that few places of a partition share one.
//! Consecutive k-mers mostly share the occurrence of their anchor, so that one entry stands for about four
//! k-mers.
//!
//! Only the hash counts: different words of one hash are the same anchor. If a k-mer has its lowest hash at
//! several places, a text has entries for the first and for the last of them; whoever looks for the first in
//! his direction finds it, whichever direction the text has.

use std::ops::Range;

use crate::sequence::kmer::Oriented;
use crate::sequence::word::Word;

/// No anchor is longer.
pub const MOST: usize = 21;

/// Length of the anchors: odd, so that none is its own reverse complement, and no longer than makes them rare
/// in large genomes, since shorter ones are shared by more k-mers.
pub const fn len(k: usize) -> usize {
    // About 3/5 of k.
    let len = (3 * k / 5) | 1;
    if len > MOST {
        MOST
    } else if len >= k {
        k - 2
    } else {
        len
    }
}

/// The hash of a word and its reverse complement.
#[inline(always)]
pub fn hash(forward: u64, reverse: u64) -> u32 {
    let y = (forward.min(reverse) ^ 0x9e37_79b9_7f4a_7c15).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    ((y ^ (y >> 32)).wrapping_mul(0x94d0_49bb_1331_11eb) >> 32) as u32
}

/// Where a k-mer has its anchor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Anchor {
    /// The hash.
    pub hash: u32,
    /// Bases before it, in the direction of the k-mer given.
    pub offset: u32,
}

/// The first anchor of a k-mer in the direction of `kmer.forward`.
#[inline]
pub fn of_kmer<W: Word>(kmer: Oriented<W>, k: usize) -> Anchor {
    let m = len(k);
    let bits = u64::mask(m);
    let mut lowest = u64::MAX;
    for i in 0..=k - m {
        let forward = (kmer.forward >> (2 * (k - m - i))).low() & bits;
        let reverse = (kmer.reverse >> (2 * i)).low() & bits;
        lowest = lowest.min(u64::from(hash(forward, reverse)) << 32 | i as u64);
    }
    Anchor { hash: (lowest >> 32) as u32, offset: lowest as u32 }
}

/// Append the hash of every word of `m` bases of a sequence: its first m − 1 bases as a word, then the
/// others.
#[inline]
pub fn hashes(first: u64, others: impl Iterator<Item = u8>, m: usize, out: &mut Vec<u32>) {
    let (bits, top) = (u64::mask(m), 2 * (m - 1));
    let mut forward = first;
    let mut reverse = if m > 1 { first.revcomp(m - 1) << 2 } else { 0 };
    others.for_each(|base| {
        forward = (forward << 2 | u64::from(base)) & bits;
        reverse = reverse >> 2 | u64::from(3 - base) << top;
        out.push(hash(forward, reverse));
    });
}

/// Runs of consecutive windows of `width` hashes (`hashes` has at least as many) whose first lowest hash is
/// the same one: calls `each` with its place and the windows. Tells whether a window may have its lowest hash
/// twice.
#[inline]
pub fn for_each_run(hashes: &[u32], width: usize, mut each: impl FnMut(usize, Range<usize>)) -> bool {
    let mut tied = false;
    let first_of = |window: usize| {
        let (mut lowest, mut at, mut twice) = (hashes[window], window, false);
        for (i, &h) in hashes[window..window + width].iter().enumerate().skip(1) {
            twice = (twice | (h == lowest)) & (h >= lowest);
            at = if h < lowest { window + i } else { at };
            lowest = lowest.min(h);
        }
        (lowest, at, twice)
    };
    let (mut lowest, mut at, twice) = first_of(0);
    tied |= twice;
    let mut begin = 0;
    for (window, &new) in hashes[width..].iter().enumerate() {
        let window = window + 1;
        if at >= window && new >= lowest {
            tied |= new == lowest;
            continue;
        }
        each(at, begin..window);
        begin = window;
        if new < lowest {
            (lowest, at) = (new, window + width - 1);
        } else {
            let twice;
            (lowest, at, twice) = first_of(window);
            tied |= twice;
        }
    }
    each(at, begin..hashes.len() + 1 - width);
    tied
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sequence::minimizer::order;

    #[test]
    fn lengths_are_odd_and_fit() {
        for k in (3..64).step_by(2) {
            assert!(len(k) % 2 == 1 && len(k) < k, "{k}");
        }
        assert_eq!((len(3), len(31), len(63)), (1, 19, 21));
    }

    #[test]
    fn runs_are_those_of_the_windows() {
        for i in 0..3000u64 {
            let (width, values) = (1 + (order(i) % 9) as usize, 1 + order(i + 5000) % 30);
            let count = width + (order(i + 9000) % 40) as usize;
            let hashes: Vec<u32> = (0..count as u64).map(|j| (order(i << 20 | j) % values) as u32).collect();
            let mut found = Vec::new();
            let tied = for_each_run(&hashes, width, |at, windows| {
                assert!(!windows.is_empty());
                found.extend(windows.map(|_| at));
            });
            let windows: Vec<&[u32]> = hashes.windows(width).collect();
            let lowest = |w: &[u32]| w.iter().copied().min().expect("not empty");
            let expected: Vec<usize> = windows
                .iter()
                .enumerate()
                .map(|(i, w)| i + w.iter().position(|&h| h == lowest(w)).expect("there"))
                .collect();
            assert_eq!(found, expected);
            let twice = windows.iter().any(|w| w.iter().filter(|&&h| h == lowest(w)).count() > 1);
            assert!(tied || !twice);
        }
    }

    #[test]
    fn of_a_kmer_as_along_a_sequence() {
        fn check<W: Word>(k: usize) {
            let codes: Vec<u8> = (0..300u64).map(|i| order(i * 70 + k as u64) as u8 & 3).collect();
            let mut along = Vec::new();
            let m = len(k);
            hashes(u64::from_codes(&codes[..m - 1]), codes[m - 1..].iter().copied(), m, &mut along);
            assert_eq!(along.len(), 301 - len(k));
            for_each_run(&along, k + 1 - len(k), |at, windows| {
                for window in windows {
                    let kmer = Oriented::new(W::from_codes(&codes[window..window + k]), k);
                    let anchor = of_kmer(kmer, k);
                    assert_eq!((anchor.hash, anchor.offset as usize), (along[at], at - window));
                    assert_eq!(of_kmer(Oriented::new(kmer.reverse, k), k).hash, anchor.hash);
                }
            });
        }
        (3..32).step_by(2).for_each(check::<u64>);
        (33..64).step_by(2).for_each(check::<u128>);
    }
}
