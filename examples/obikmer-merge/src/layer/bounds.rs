//! Where pieces begin in a text of pieces back to back: half a byte for every `span` bases.
//!
//! A span is no longer than the shortest piece, so that at most one piece begins in it: half a byte holds
//! where, or that none does. That costs 0.27 bits per base (a bit per base would cost one, a `u32` per piece
//! of 39 bases 0.82), can be read in order, and tells with one word whether a window of k bases lies within
//! one piece.

use std::ops::Range;

/// No piece begins in this span.
const NONE: u8 = 15;

/// Bases that share half a byte.
#[inline]
fn span(k: usize) -> usize {
    k.min(15)
}

/// Which span a base belongs to, and its place there.
#[inline]
fn split(at: usize, k: usize) -> (usize, usize) {
    // Division by a constant is much faster.
    if k >= 15 { (at / 15, at % 15) } else { (at / k, at % k) }
}

/// Encode where pieces of at least k bases begin: the first at 0; the last of `starts` is where the text
/// ends.
pub fn encode(starts: &[u32], k: usize) -> Vec<u8> {
    let Some((&end, starts)) = starts.split_last() else { return Vec::new() };
    let mut bytes = vec![NONE << 4 | NONE; (end as usize).div_ceil(span(k)).div_ceil(2)];
    for &start in starts {
        let (number, place) = split(start as usize, k);
        let shift = 4 * (number % 2);
        bytes[number / 2] = bytes[number / 2] & !(15 << shift) | (place as u8) << shift;
    }
    bytes
}

/// Where pieces begin, as stored. Damaged bytes give wrong answers, but no panic.
#[derive(Clone, Copy)]
pub struct Bounds<'a> {
    bytes: &'a [u8],
    k: usize,
    /// Bases of the text.
    bases: usize,
}

impl<'a> Bounds<'a> {
    /// Of a text of so many bases; `None` if there are too few bytes for it.
    pub fn new(bytes: &'a [u8], k: usize, bases: usize) -> Option<Self> {
        (bytes.len() == bases.div_ceil(span(k)).div_ceil(2)).then_some(Self { bytes, k, bases })
    }

    #[inline]
    fn place(&self, number: usize) -> u8 {
        self.bytes.get(number / 2).map_or(NONE, |byte| byte >> (4 * (number % 2)) & 15)
    }

    /// Does no piece begin at any of these bases, and does the text go on beyond them?
    #[inline]
    pub fn none_in(&self, bases: Range<usize>) -> bool {
        if bases.end > self.bases {
            return false;
        }
        if bases.is_empty() {
            return true;
        }
        let ((first, low), (last, high)) = (split(bases.start, self.k), split(bases.end - 1, self.k));
        (first..=last).all(|number| {
            let place = usize::from(self.place(number));
            place == usize::from(NONE) || number == first && place < low || number == last && place > high
        })
    }

    /// Have the bytes for a base brought near.
    #[inline]
    pub fn prefetch(&self, at: usize) {
        crate::lookup::prefetch::read(self.bytes, split(at, self.k).0 / 2);
    }

    /// Every piece as its range of bases, in order.
    pub fn pieces(self) -> impl Iterator<Item = Range<usize>> + 'a {
        let span = span(self.k);
        let spans = self.bases.div_ceil(span);
        let starts = (0..spans).filter_map(move |number| {
            let place = self.place(number);
            (place != NONE).then_some(number * span + usize::from(place))
        });
        let ends = starts.clone().skip(1).chain(std::iter::once(self.bases));
        starts.zip(ends).map(|(start, end)| start..end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sequence::minimizer::order;

    #[test]
    fn bounds_are_those_of_the_pieces() {
        for k in (3..64).step_by(2) {
            for count in [0, 1, 2, 50] {
                let mut starts = vec![0u32];
                for i in 0..count {
                    // Pieces of exactly k bases, a few more, and many.
                    let more = order(i * 64 + k as u64) % [1, 3, 200][i as usize % 3];
                    starts.push(starts[i as usize] + k as u32 + more as u32);
                }
                let bases = starts[count as usize] as usize;
                let bytes = encode(&starts, k);
                let bounds = Bounds::new(&bytes, k, bases).expect("as many bytes as needed");
                let pieces: Vec<_> = starts.windows(2).map(|w| w[0] as usize..w[1] as usize).collect();
                assert_eq!(bounds.pieces().collect::<Vec<_>>(), pieces);
                for at in 0..bases + 2 {
                    for len in [0, 1, 2, k - 1, k] {
                        let free = starts.iter().take(count as usize);
                        let free = free.clone().all(|&s| !(at..at + len).contains(&(s as usize)));
                        assert_eq!(bounds.none_in(at..at + len), free && at + len <= bases, "{k} {at} {len}");
                    }
                }
                assert!(Bounds::new(&bytes, k, bases + 200).is_none());
            }
        }
    }
}
