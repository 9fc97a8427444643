//! k-mers as [words](crate::sequence::word): two bits per base (A = 0, C = 1, G = 2, T = 3).

use crate::error::{Error, Result};
use crate::sequence::word::Word;

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
    /// Length of a k-mer; odd, 3 to 63.
    pub k: usize,
    /// Length of a minimizer, 1 to k − 1 and at most 31.
    pub m: usize,
}

impl Lengths {
    /// Check both lengths.
    pub fn new(k: usize, m: usize) -> Result<Self> {
        if !(3..=u128::MAX_K).contains(&k) {
            return Err(Error::Usage(format!(
                "-k {k}: k must be from 3 to 63 (a k-mer is held in 128 bits)"
            )));
        }
        if k.is_multiple_of(2) {
            return Err(Error::Usage(format!(
                "-k {k}: k must be odd (with an even k a k-mer may be its own reverse complement)"
            )));
        }
        let longest = (k - 1).min(u64::MAX_K);
        if m == 0 || m > longest {
            return Err(Error::Usage(format!("-m {m}: m must be from 1 to {longest}")));
        }
        Ok(Self { k, m })
    }

    /// Does a k-mer need 128 bits?
    pub fn is_wide(self) -> bool {
        self.k > u64::MAX_K
    }
}

/// A k-mer read in one direction, with its reverse complement beside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Oriented<W> {
    /// As read.
    pub forward: W,
    /// Its reverse complement.
    pub reverse: W,
}

impl<W: Word> Oriented<W> {
    /// From the k-mer as read.
    #[inline]
    pub fn new(forward: W, k: usize) -> Self {
        Self { forward, reverse: forward.revcomp(k) }
    }

    /// The canonical k-mer.
    #[inline]
    pub fn canonical(self) -> W {
        self.forward.min(self.reverse)
    }

    /// The k-mer one base to the right, that base being `base`.
    #[inline]
    pub fn right(self, base: u8, k: usize) -> Self {
        Self {
            forward: self.forward.push(base) & W::mask(k),
            reverse: (self.reverse >> 2) | (W::from(3 - base) << (2 * (k - 1))),
        }
    }
}

/// The text of a word of `len` bases, appended to `out`.
pub fn push_text<W: Word>(word: W, len: usize, out: &mut Vec<u8>) {
    out.extend((0..len).rev().map(|i| LETTER[usize::from((word >> (2 * i)).last())]));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_checked() {
        assert!(Lengths::new(31, 11).is_ok() && Lengths::new(3, 2).is_ok() && Lengths::new(63, 31).is_ok());
        for (k, m) in [(30, 11), (65, 11), (1, 1), (31, 31), (31, 0), (63, 32)] {
            assert!(Lengths::new(k, m).is_err(), "{k} {m}");
        }
    }
}
