//! Sequences at two bits per base, four bases to a byte, the first in the highest bits.

use std::ops::Range;

use crate::sequence::word::Word;

/// Bytes for `bases` bases.
#[inline]
pub fn bytes_for(bases: usize) -> usize {
    bases.div_ceil(4)
}

/// Pack codes (all below 4), appended to `out` on a byte boundary.
pub fn pack(codes: &[u8], out: &mut Vec<u8>) {
    let (fours, rest) = codes.as_chunks::<4>();
    out.extend(fours.iter().map(|c| {
        // Each code to its place in the highest byte: 24 + {6, 4, 2, 0}.
        (u32::from_le_bytes(*c).wrapping_mul(0x4010_0401) >> 24) as u8
    }));
    if !rest.is_empty() {
        out.push(rest.iter().enumerate().fold(0, |byte, (i, &c)| byte | (c << (6 - 2 * i))));
    }
}

/// The base at `at`.
#[inline]
pub fn get(packed: &[u8], at: usize) -> u8 {
    (packed[at / 4] >> (6 - 2 * (at % 4))) & 3
}

/// Up to 32 or 64 bases from `at` on, at least one, right-aligned in a word. Past the end of `packed` bases
/// read as A.
#[inline]
pub fn word<W: Word>(packed: &[u8], at: usize, len: usize) -> W {
    let (byte, shift) = (at / 4, 2 * (at % 4));
    // A 64-bit word touches nine bytes, a 128-bit word seventeen.
    let most = W::BITS / 8;
    let (high, next) = match packed.get(byte..byte + most + 1) {
        Some(all) => (W::from_be(&all[..most]), all[most]),
        None => {
            let mut bytes = [0u8; 16];
            let have = packed.len().saturating_sub(byte).min(most);
            bytes[..have].copy_from_slice(&packed[byte..byte + have]);
            (W::from_be(&bytes[..most]), 0)
        }
    };
    let next = W::from(next) >> (8 - shift);
    ((high << shift) | next) >> (W::BITS - 2 * len)
}

/// `len` bases from `at` on, packed anew on a byte boundary and appended to `out`. Unused bits are zero.
#[inline]
pub fn copy(packed: &[u8], at: usize, len: usize, out: &mut Vec<u8>) {
    let bytes = bytes_for(len);
    let end = out.len() + bytes;
    let mut done = 0;
    while done + 32 <= len {
        out.extend_from_slice(&word::<u64>(packed, at + done, 32).to_be_bytes());
        done += 32;
    }
    if done < len {
        let rest = len - done;
        let last = word::<u64>(packed, at + done, rest) << (64 - 2 * rest);
        out.extend_from_slice(&last.to_be_bytes());
        out.truncate(end);
    }
}

/// Codes of `len` bases from `at` on, appended to `out`.
pub fn unpack(packed: &[u8], at: usize, len: usize, out: &mut Vec<u8>) {
    let mut done = 0;
    while done < len {
        let n = (len - done).min(32);
        let w: u64 = word(packed, at + done, n);
        out.extend((0..n).rev().map(|i| (w >> (2 * i)) as u8 & 3));
        done += n;
    }
}

/// From each place of a range on the bases that follow, at least [`FOLLOWING`] and at most 32, left-aligned.
/// Past the end of `packed` bases read as A.
#[inline]
pub fn words_from(packed: &[u8], range: Range<usize>, out: &mut Vec<u64>) {
    out.clear();
    out.extend(range.clone().step_by(4).flat_map(|at| {
        let word = word::<u64>(packed, at, 32);
        [word, word << 2, word << 4, word << 6]
    }));
    out.truncate(range.len());
}

/// See [`words_from`].
pub const FOLLOWING: usize = 29;

/// The bases of a range, one after another.
#[inline]
pub fn bases(packed: &[u8], range: Range<usize>) -> impl Iterator<Item = u8> {
    let chunks = range.len().div_ceil(32);
    (0..chunks).flat_map(move |chunk| {
        let begin = range.start + 32 * chunk;
        let count = (range.end - begin).min(32);
        let word = word::<u64>(packed, begin, count) << (64 - 2 * count);
        (0..count).map(move |i| (word << (2 * i) >> 62) as u8)
    })
}

/// Codes turned into those of the other strand, in place.
pub fn reverse_complement(codes: &mut [u8]) {
    codes.reverse();
    for c in codes {
        *c = 3 - *c;
    }
}

/// A stretch of packed bases, read in one direction or the other.
#[derive(Clone, Copy, Debug)]
pub struct Text<'a> {
    bytes: &'a [u8],
    at: usize,
    len: usize,
    reverse: bool,
}

impl<'a> Text<'a> {
    /// `len` bases from `at` on.
    #[inline]
    pub fn new(bytes: &'a [u8], at: usize, len: usize) -> Self {
        Self { bytes, at, len, reverse: false }
    }

    /// Number of bases.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Has it none?
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The other strand.
    #[inline]
    pub fn flipped(self) -> Self {
        Self { reverse: !self.reverse, ..self }
    }

    /// `len` bases of it from `from` on.
    #[inline]
    pub fn cut(self, from: usize, len: usize) -> Self {
        let skip = if self.reverse { self.len - from - len } else { from };
        Self { at: self.at + skip, len, ..self }
    }

    /// One to 32 bases from `from` on, right-aligned.
    #[inline]
    pub fn word(&self, from: usize, len: usize) -> u64 {
        if self.reverse {
            word::<u64>(self.bytes, self.at + self.len - from - len, len).revcomp(len)
        } else {
            word(self.bytes, self.at + from, len)
        }
    }

    /// Is the other strand not smaller?
    pub fn is_canonical(self) -> bool {
        let other = self.flipped();
        for from in (0..self.len).step_by(32) {
            let n = (self.len - from).min(32);
            match self.word(from, n).cmp(&other.word(from, n)) {
                std::cmp::Ordering::Equal => {}
                order => return order.is_lt(),
            }
        }
        true
    }

    /// Its bases from the beginning of `out` on, which has [`words_for`] them.
    #[inline]
    pub fn write(self, out: &mut [u32]) {
        for (two, from) in out.chunks_mut(2).zip((0..self.len).step_by(32)) {
            let n = (self.len - from).min(32);
            let bytes = (self.word(from, n) << (64 - 2 * n)).to_be_bytes();
            let out: &mut [u8] = bytemuck::cast_slice_mut(two);
            out.copy_from_slice(&bytes[..out.len()]);
        }
    }

    /// Its codes, appended to `out`.
    pub fn unpack(self, out: &mut Vec<u8>) {
        let begin = out.len();
        unpack(self.bytes, self.at, self.len, out);
        if self.reverse {
            reverse_complement(&mut out[begin..]);
        }
    }
}

/// Words of 32 bits for `bases` bases.
#[inline]
pub fn words_for(bases: usize) -> usize {
    bases.div_ceil(16)
}

/// A growing packed sequence without gaps.
#[derive(Default, Clone)]
pub struct Packed {
    bytes: Vec<u8>,
    bases: usize,
}

impl Packed {
    /// Room for `bases` bases at once.
    pub fn with_capacity(bases: usize) -> Self {
        Self { bytes: Vec::with_capacity(bytes_for(bases)), bases: 0 }
    }

    /// Number of bases.
    pub fn len(&self) -> usize {
        self.bases
    }

    /// Has it no bases?
    pub fn is_empty(&self) -> bool {
        self.bases == 0
    }

    /// The bytes; the last may be filled only in part.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// All of it.
    #[inline]
    pub fn text(&self) -> Text<'_> {
        Text::new(&self.bytes, 0, self.bases)
    }

    /// Empty again, the room kept.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.bases = 0;
    }

    /// Take whole bytes away, from the beginning: what is left are the bases of the last byte if it is not
    /// full.
    pub fn take_full(&mut self, mut take: impl FnMut(&[u8])) {
        let (full, rest) = self.bytes.split_at(self.bases / 4);
        take(full);
        let rest = rest.first().copied();
        self.bytes.clear();
        self.bytes.extend(rest);
        self.bases %= 4;
    }

    /// Append a text: the last byte is filled up, then 32 bases go at a time.
    #[inline]
    pub fn append(&mut self, text: Text<'_>) {
        let have = self.bases % 4;
        let mut from = 0;
        if let Some(last) = self.bytes.last_mut().filter(|_| have > 0 && !text.is_empty()) {
            from = (4 - have).min(text.len);
            *last |= (text.word(0, from) << (8 - 2 * (have + from))) as u8;
        }
        let end = self.bytes.len() + bytes_for(text.len - from);
        self.bytes.reserve(end + size_of::<u64>() - self.bytes.len());
        while from + 32 <= text.len {
            self.bytes.extend_from_slice(&text.word(from, 32).to_be_bytes());
            from += 32;
        }
        if from < text.len {
            let rest = text.len - from;
            self.bytes.extend_from_slice(&(text.word(from, rest) << (64 - 2 * rest)).to_be_bytes());
            self.bytes.truncate(end);
        }
        self.bases += text.len;
    }

    /// Append codes.
    pub fn push(&mut self, codes: &[u8]) {
        let fill = (4 - self.bases % 4) % 4;
        let (head, tail) = codes.split_at(fill.min(codes.len()));
        for &c in head {
            if let Some(last) = self.bytes.last_mut() {
                *last |= c << (6 - 2 * (self.bases % 4));
            }
            self.bases += 1;
        }
        pack(tail, &mut self.bytes);
        self.bases += tail.len();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packs_and_reads_at_every_offset() {
        let codes: Vec<u8> = (0..300u64).map(|i| (crate::sequence::minimizer::order(i) & 3) as u8).collect();
        let mut packed = Packed::default();
        for part in codes.chunks(7) {
            packed.push(part);
        }
        assert_eq!(packed.len(), 300);
        for at in (0..100).chain(230..240) {
            let most = 300 - at;
            for len in [1, 3, 4, 31, 32, 33, 63, 64, 100, 200].map(|len| len.min(most)) {
                let mut copied = Vec::new();
                copy(packed.bytes(), at, len, &mut copied);
                let mut expected = Vec::new();
                pack(&codes[at..at + len], &mut expected);
                assert_eq!(copied, expected);
                let mut out = Vec::new();
                unpack(packed.bytes(), at, len, &mut out);
                assert_eq!(out, codes[at..at + len]);
                assert_eq!(bases(packed.bytes(), at..at + len).collect::<Vec<u8>>(), out);
                let mut words = Vec::new();
                words_from(packed.bytes(), at..at + len, &mut words);
                assert_eq!(words.len(), len);
                for (place, from_there) in words.into_iter().enumerate() {
                    let of = |base: usize| codes.get(at + place + base).copied().unwrap_or(0);
                    let expected: Vec<u8> = (0..FOLLOWING).map(of).collect();
                    assert_eq!(from_there >> (64 - 2 * FOLLOWING), u64::from_codes(&expected));
                }
                if len <= 32 {
                    assert_eq!(word::<u64>(packed.bytes(), at, len), u64::from_codes(&out));
                }
                if len <= 64 {
                    assert_eq!(word::<u128>(packed.bytes(), at, len), u128::from_codes(&out));
                }
                assert_eq!(get(packed.bytes(), at), codes[at]);
            }
        }
    }

    #[test]
    fn texts_are_cut_turned_appended_and_written() {
        let codes: Vec<u8> = (0..300u64).map(|i| (crate::sequence::minimizer::order(i) & 3) as u8).collect();
        let mut packed = Packed::default();
        packed.push(&codes);
        let (mut grown, mut expected, mut taken) = (Packed::default(), Vec::new(), Vec::new());
        for i in 0..2000u64 {
            let random =
                |j: u64, n: usize| (crate::sequence::minimizer::order(i * 8 + j) % n as u64) as usize;
            let at = random(0, 150);
            let len = [1, 9, 31, 32, 33, 70, 150][random(1, 7)] - random(2, 2);
            let mut text = Text::new(packed.bytes(), at, len);
            let mut naive = codes[at..at + len].to_vec();
            for step in 3..5 {
                if random(step, 2) == 0 {
                    text = text.flipped();
                    reverse_complement(&mut naive);
                }
                let from = random(step + 2, naive.len() + 1);
                let rest = naive.len() - from;
                text = text.cut(from, rest);
                naive.drain(..from);
            }
            assert_eq!(text.len(), naive.len());
            let mut other = naive.clone();
            reverse_complement(&mut other);
            assert_eq!(text.is_canonical(), naive <= other);
            let mut out = Vec::new();
            text.unpack(&mut out);
            assert_eq!(out, naive);
            let mut words = vec![u32::MAX; words_for(naive.len())];
            text.write(&mut words);
            let again = Text::new(bytemuck::cast_slice(&words), 0, naive.len());
            out.clear();
            again.unpack(&mut out);
            assert_eq!(out, naive);
            grown.append(again);
            expected.extend(naive);
            if random(7, 10) == 0 {
                grown.take_full(|bytes| taken.extend_from_slice(bytes));
            }
        }
        taken.extend_from_slice(grown.bytes());
        let mut packed = Vec::new();
        pack(&expected, &mut packed);
        assert_eq!(taken, packed);
    }
}
