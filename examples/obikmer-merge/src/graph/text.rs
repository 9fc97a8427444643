//! The text of a super-k-mer in registers: left-aligned, so that a base's place does not depend on the
//! length.

use std::fmt::Debug;

use crate::sequence::packed;
use crate::sequence::word::Word;

/// A word with the texts that go with it: twice as many bases as the word has, so that a text holds several
/// k-mers.
pub trait Texts: Word {
    /// Holds `2 × BITS / 2` bases.
    type Text: Text<Self>;
}

/// A short text. Bits behind its end are zero.
pub trait Text<W: Word>: Copy + Ord + Debug + Send {
    /// Most bases.
    const CAPACITY: usize;
    /// `len` bases of a packed sequence from `at` on; at least one, at most [`CAPACITY`](Self::CAPACITY).
    fn unpack(packed: &[u8], at: usize, len: usize) -> Self;
    /// Reverse complement, the text being `len` bases long, at least one.
    fn revcomp(self, len: usize) -> Self;
    /// `len` bases from `at` on, at least one.
    fn part(self, at: usize, len: usize) -> Self;
    /// A word of `len` bases from `at` on, at least one.
    fn word(self, at: usize, len: usize) -> W;
    /// What follows its first `bases`, of which it may have fewer.
    fn behind(self, bases: usize) -> Self;
    /// Its first base; 0 of nothing.
    fn first(self) -> u8;
    /// For tables.
    fn hash(self) -> u64;
    /// Bytes, the first four bases in the first.
    fn bytes(self, each: impl FnOnce(&[u8]));

    /// The base at `at`.
    #[inline]
    fn base(self, at: usize) -> u8 {
        self.word(at, 1).last()
    }
}

impl Texts for u64 {
    type Text = u128;
}

impl Text<u64> for u128 {
    const CAPACITY: usize = 64;

    #[inline]
    fn unpack(packed: &[u8], at: usize, len: usize) -> Self {
        packed::word::<u128>(packed, at, len) << (128 - 2 * len)
    }

    #[inline]
    fn revcomp(self, len: usize) -> Self {
        Word::revcomp(self, 64) << (128 - 2 * len)
    }

    #[inline]
    fn part(self, at: usize, len: usize) -> Self {
        (self << (2 * at)) >> (128 - 2 * len) << (128 - 2 * len)
    }

    #[inline]
    fn word(self, at: usize, len: usize) -> u64 {
        ((self << (2 * at)) >> (128 - 2 * len)) as u64
    }

    #[inline]
    fn behind(self, bases: usize) -> Self {
        if bases < 64 { self << (2 * bases) } else { 0 }
    }

    #[inline]
    fn first(self) -> u8 {
        (self >> 126) as u8
    }

    #[inline]
    fn hash(self) -> u64 {
        super::mixer::mix(self.fold())
    }

    #[inline]
    fn base(self, at: usize) -> u8 {
        (self >> (126 - 2 * at)) as u8 & 3
    }

    #[inline]
    fn bytes(self, each: impl FnOnce(&[u8])) {
        each(&self.to_be_bytes());
    }
}

/// Up to 128 bases.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Wide {
    high: u128,
    low: u128,
}

impl Wide {
    fn shifted(self, bits: usize) -> Self {
        match bits {
            0 => self,
            128.. => Self { high: self.low.checked_shl(bits as u32 - 128).unwrap_or(0), low: 0 },
            _ => Self { high: self.high << bits | self.low >> (128 - bits), low: self.low << bits },
        }
    }

    fn cut(self, len: usize) -> Self {
        let keep = |bits: usize| if bits == 0 { 0 } else { !0u128 << (128 - bits) };
        Self {
            high: self.high & keep((2 * len).min(128)),
            low: self.low & keep((2 * len).saturating_sub(128)),
        }
    }
}

impl Texts for u128 {
    type Text = Wide;
}

impl Text<u128> for Wide {
    const CAPACITY: usize = 128;

    fn unpack(packed: &[u8], at: usize, len: usize) -> Self {
        let head = len.min(64);
        let high = packed::word::<u128>(packed, at, head) << (128 - 2 * head);
        let rest = len - head;
        let low = if rest == 0 { 0 } else { packed::word::<u128>(packed, at + 64, rest) << (128 - 2 * rest) };
        Self { high, low }
    }

    fn revcomp(self, len: usize) -> Self {
        let whole = Self { high: Word::revcomp(self.low, 64), low: Word::revcomp(self.high, 64) };
        whole.shifted(256 - 2 * len)
    }

    fn part(self, at: usize, len: usize) -> Self {
        self.shifted(2 * at).cut(len)
    }

    fn word(self, at: usize, len: usize) -> u128 {
        self.shifted(2 * at).high >> (128 - 2 * len)
    }

    fn behind(self, bases: usize) -> Self {
        self.shifted(2 * bases)
    }

    #[inline]
    fn first(self) -> u8 {
        (self.high >> 126) as u8
    }

    fn hash(self) -> u64 {
        super::mixer::mix(self.high.fold() ^ super::mixer::mix(self.low.fold()))
    }

    fn bytes(self, each: impl FnOnce(&[u8])) {
        let mut bytes = [0; 32];
        bytes[..16].copy_from_slice(&self.high.to_be_bytes());
        bytes[16..].copy_from_slice(&self.low.to_be_bytes());
        each(&bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn agrees<W: Texts>() {
        let codes: Vec<u8> =
            (0..300u64).map(|i| crate::sequence::minimizer::order(i * 3 + 1) as u8 & 3).collect();
        let mut packed = Vec::new();
        packed::pack(&codes, &mut packed);
        let most = W::Text::CAPACITY;
        for len in [1, 2, 31, 32, 33, 63, 64, 65, 127, 128].into_iter().filter(|&l| l <= most) {
            for at in [0, 1, 2, 3, 64, 101, 300 - len] {
                let text = W::Text::unpack(&packed, at, len);
                let expected = &codes[at..at + len];
                let of = |text: W::Text, len: usize| (0..len).map(|i| text.base(i)).collect::<Vec<_>>();
                assert_eq!(of(text, len), expected);
                let mut turned = expected.to_vec();
                packed::reverse_complement(&mut turned);
                assert_eq!(of(text.revcomp(len), len), turned, "{len}");
                assert_eq!(text.revcomp(len).revcomp(len), text);
                let (from, part) = (len / 3, len - len / 3 - len / 5);
                assert_eq!(of(text.part(from, part), part), expected[from..from + part]);
                assert_eq!(text.part(from, part).part(0, part), text.part(from, part));
                let word = part.min(W::BITS / 2 - 1);
                assert_eq!(text.word(from, word), W::from_codes(&expected[from..from + word]));
                for at in [0, 1, part, len - 1].into_iter().filter(|&at| at < len) {
                    assert_eq!(text.behind(at).first(), expected[at]);
                }
                assert_eq!(text.behind(len).first(), 0);
                let mut out = Vec::new();
                packed::pack(expected, &mut out);
                text.bytes(|bytes| assert_eq!(bytes[..out.len()], out));
            }
        }
    }

    #[test]
    fn texts_are_sequences() {
        agrees::<u64>();
        agrees::<u128>();
    }
}
