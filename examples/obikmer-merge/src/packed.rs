//! Sequences at two bits per base, four bases to a byte, the first in the highest bits.

use std::ops::Range;

use crate::word::Word;

/// Bytes for `bases` bases.
#[inline]
pub fn bytes_for(bases: usize) -> usize {
    bases.div_ceil(4)
}

/// Pack codes (all below 4), appended to `out` on a byte boundary.
pub fn pack(codes: &[u8], out: &mut Vec<u8>) {
    let mut fours = codes.chunks_exact(4);
    out.extend(fours.by_ref().map(|c| {
        let word = u32::from_le_bytes([c[0], c[1], c[2], c[3]]);
        // Each code to its place in the highest byte: 24 + {6, 4, 2, 0}.
        (word.wrapping_mul(0x4010_0401) >> 24) as u8
    }));
    let rest = fours.remainder();
    if !rest.is_empty() {
        out.push(rest.iter().enumerate().fold(0, |byte, (i, &c)| byte | (c << (6 - 2 * i))));
    }
}

/// The base at `at`.
#[inline]
pub fn get(packed: &[u8], at: usize) -> u8 {
    (packed[at / 4] >> (6 - 2 * (at % 4))) & 3
}

/// Up to 32 or 64 bases from `at` on, at least one, right-aligned in a word. Past the end of `packed` bases read as A.
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
        let codes: Vec<u8> = (0..300u64).map(|i| (crate::minimizer::order(i) & 3) as u8).collect();
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
}
