//! k-mers as 64-bit words: two bits per base (A = 0, C = 1, G = 2, T = 3), the first base in the highest bits, so
//! that the order of the numbers is the order of the texts.

use crate::error::{Error, Result};

/// The code of a letter that breaks every k-mer.
pub const BREAK: u8 = 4;

/// Letter to code, either case; [`BREAK`] for everything but ACGT.
pub static CODE: [u8; 256] = {
    let mut table = [BREAK; 256];
    let letters = *b"ACGT";
    let mut i = 0;
    while i < 4 {
        table[letters[i] as usize] = i as u8;
        table[letters[i].to_ascii_lowercase() as usize] = i as u8;
        i += 1;
    }
    table
};

/// Code to letter.
pub const LETTER: [u8; 4] = *b"ACGT";

/// Length of k-mers and of minimizers, checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Lengths {
    /// Length of a k-mer; odd, 3 to 31.
    pub k: usize,
    /// Length of a minimizer, 1 to k − 1.
    pub m: usize,
}

impl Lengths {
    /// Check both lengths.
    pub fn new(k: usize, m: usize) -> Result<Self> {
        if !(3..=31).contains(&k) {
            return Err(Error::Usage(format!("-k {k}: k must be from 3 to 31 (a k-mer is held in 64 bits)")));
        }
        if k.is_multiple_of(2) {
            return Err(Error::Usage(format!(
                "-k {k}: k must be odd (with an even k a k-mer may be its own reverse complement)"
            )));
        }
        if m == 0 || m >= k {
            return Err(Error::Usage(format!("-m {m}: m must be from 1 to k - 1 = {}", k - 1)));
        }
        Ok(Self { k, m })
    }

    /// The bits of a k-mer.
    #[inline]
    pub fn mask(self) -> u64 {
        mask(self.k)
    }
}

/// The bits of a word of `len` bases.
#[inline]
pub fn mask(len: usize) -> u64 {
    if len >= 32 { u64::MAX } else { (1 << (2 * len)) - 1 }
}

/// Reverse complement of a word of `len` bases.
#[inline]
pub fn revcomp(word: u64, len: usize) -> u64 {
    let x = (!word).swap_bytes();
    let x = ((x & 0x0f0f_0f0f_0f0f_0f0f) << 4) | ((x >> 4) & 0x0f0f_0f0f_0f0f_0f0f);
    let x = ((x & 0x3333_3333_3333_3333) << 2) | ((x >> 2) & 0x3333_3333_3333_3333);
    x >> (64 - 2 * len)
}

/// A k-mer read in one direction, with its reverse complement beside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Oriented {
    /// As read.
    pub forward: u64,
    /// Its reverse complement.
    pub reverse: u64,
}

impl Oriented {
    /// From the k-mer as read.
    #[inline]
    pub fn new(forward: u64, k: usize) -> Self {
        Self { forward, reverse: revcomp(forward, k) }
    }

    /// The canonical k-mer.
    #[inline]
    pub fn canonical(self) -> u64 {
        self.forward.min(self.reverse)
    }

    /// Read in the direction of its canonical text?
    #[inline]
    pub fn is_canonical(self) -> bool {
        self.forward < self.reverse
    }

    /// Read in the other direction.
    #[inline]
    pub fn flipped(self) -> Self {
        Self { forward: self.reverse, reverse: self.forward }
    }

    /// The k-mer one base to the right, that base being `base`.
    #[inline]
    pub fn right(self, base: u64, k: usize) -> Self {
        Self {
            forward: ((self.forward << 2) | base) & mask(k),
            reverse: (self.reverse >> 2) | ((3 - base) << (2 * (k - 1))),
        }
    }

    /// Is the junction on the right (its last k − 1 bases) its own reverse complement?
    #[inline]
    pub fn right_is_palindrome(self, k: usize) -> bool {
        self.forward & mask(k - 1) == self.reverse >> 2
    }
}

/// The text of a word of `len` bases, appended to `out`.
pub fn push_text(word: u64, len: usize, out: &mut Vec<u8>) {
    out.extend((0..len).rev().map(|i| LETTER[(word >> (2 * i)) as usize & 3]));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reverse_complement_by_definition() {
        for (text, expected) in [("ACG", "CGT"), ("AAAAA", "TTTTT"), ("ACGTT", "AACGT"), ("G", "C")] {
            let word = text.bytes().fold(0, |w, b| (w << 2) | u64::from(CODE[b as usize]));
            let mut out = Vec::new();
            push_text(revcomp(word, text.len()), text.len(), &mut out);
            assert_eq!(out, expected.as_bytes());
        }
    }

    #[test]
    fn lengths_are_checked() {
        assert!(Lengths::new(31, 11).is_ok() && Lengths::new(3, 2).is_ok());
        for (k, m) in [(30, 11), (33, 11), (1, 1), (31, 31), (31, 0)] {
            assert!(Lengths::new(k, m).is_err(), "{k} {m}");
        }
    }
}
