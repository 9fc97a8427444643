//! Words that hold a k-mer: 64 bits for k up to 31, 128 bits for k up to 63.

use std::fmt::Debug;
use std::hash::Hash;
use std::ops::{BitAnd, BitOr, BitXor, Not, Shl, Shr};

/// Two bits per base, the first base in the highest bits, so that the order of the numbers is the order of
/// the texts.
pub trait Word:
    Copy
    + Ord
    + Hash
    + Debug
    + Default
    + Send
    + Sync
    + 'static
    + bytemuck::Pod
    + BitAnd<Output = Self>
    + BitOr<Output = Self>
    + BitXor<Output = Self>
    + Not<Output = Self>
    + Shl<usize, Output = Self>
    + Shr<usize, Output = Self>
    + From<u8>
    + From<u64>
{
    /// Bits of a word.
    const BITS: usize;
    /// The longest k-mer it is used for.
    const MAX_K: usize = Self::BITS / 2 - 1;
    /// The lowest 64 bits.
    fn low(self) -> u64;
    /// All bits in 64, for hashing: bijective for 64-bit words.
    fn fold(self) -> u64;
    /// Reverse complement of a word of `len` bases, at least one.
    fn revcomp(self, len: usize) -> Self;
    /// From as many bytes as it has, big-endian.
    fn from_be(bytes: &[u8]) -> Self;

    /// The bits of a word of `len` bases.
    #[inline]
    fn mask(len: usize) -> Self {
        if 2 * len >= Self::BITS { !Self::default() } else { !(!Self::default() << (2 * len)) }
    }

    /// The last base.
    #[inline]
    fn last(self) -> u8 {
        self.low() as u8 & 3
    }

    /// One base more on the right.
    #[inline]
    fn push(self, code: u8) -> Self {
        self << 2 | Self::from(code)
    }

    /// From codes, the first in the highest bits.
    #[inline]
    fn from_codes(codes: &[u8]) -> Self {
        codes.iter().fold(Self::default(), |word, &code| word.push(code))
    }
}

/// Pairs of bits within each byte in the opposite order.
macro_rules! reverse_pairs {
    ($x:expr, $t:ty) => {{
        const NIBBLES: $t = <$t>::from_ne_bytes([0x0f; size_of::<$t>()]);
        const PAIRS: $t = <$t>::from_ne_bytes([0x33; size_of::<$t>()]);
        let x = $x;
        let x = ((x & NIBBLES) << 4) | ((x >> 4) & NIBBLES);
        ((x & PAIRS) << 2) | ((x >> 2) & PAIRS)
    }};
}

impl Word for u64 {
    const BITS: usize = 64;

    #[inline]
    fn low(self) -> u64 {
        self
    }

    #[inline]
    fn fold(self) -> u64 {
        self
    }

    #[inline]
    fn revcomp(self, len: usize) -> Self {
        reverse_pairs!((!self).swap_bytes(), u64) >> (64 - 2 * len)
    }

    #[inline]
    fn from_be(bytes: &[u8]) -> Self {
        let mut own = [0; 8];
        own.copy_from_slice(bytes);
        Self::from_be_bytes(own)
    }
}

impl Word for u128 {
    const BITS: usize = 128;

    #[inline]
    fn low(self) -> u64 {
        self as u64
    }

    #[inline]
    fn fold(self) -> u64 {
        self as u64 ^ ((self >> 64) as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29)
    }

    #[inline]
    fn revcomp(self, len: usize) -> Self {
        reverse_pairs!((!self).swap_bytes(), u128) >> (128 - 2 * len)
    }

    #[inline]
    fn from_be(bytes: &[u8]) -> Self {
        let mut own = [0; 16];
        own.copy_from_slice(bytes);
        Self::from_be_bytes(own)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Codes of a word.
    fn codes<W: Word>(word: W, len: usize) -> Vec<u8> {
        (0..len).rev().map(|i| (word >> (2 * i)).last()).collect()
    }

    fn reverse_complement_by_definition<W: Word>() {
        for len in 1..=W::BITS / 2 {
            let text: Vec<u8> =
                (0..len as u64).map(|i| crate::sequence::minimizer::order(i + 7) as u8 & 3).collect();
            let word = W::from_codes(&text);
            assert_eq!(codes(word, len), text);
            assert_eq!(word & W::mask(len), word);
            let expected: Vec<u8> = text.iter().rev().map(|c| 3 - c).collect();
            assert_eq!(codes(word.revcomp(len), len), expected, "{len}");
        }
    }

    #[test]
    fn reverse_complement() {
        reverse_complement_by_definition::<u64>();
        reverse_complement_by_definition::<u128>();
    }
}
