//! Committing and decommitting spans of chunks that somebody else hands out: the heap of small blocks.
//!
//! Such an arena has no runs. The bitmap says which chunks are committed, so that each is counted once however
//! often, and in whatever pieces, its range is committed and decommitted.

use super::Inner;
use crate::sys::{CHUNK, GRANULE};
use std::ops::Range;
use std::sync::atomic::Ordering;

/// Bytes committed in spans from which on the arena gets huge pages, and is committed by whole granules. More than
/// for runs, because what is charged ahead is up to two granules.
pub(crate) const GRANULES_FROM: usize = 32 << 20;

impl Inner {
    /// The chunks of `[start, start+len)`. With huge pages about, a granule at either end of which nothing is
    /// committed yet is taken whole, because the first touch takes it whole.
    fn span(&self, start: usize, len: usize) -> Range<usize> {
        const EACH: usize = GRANULE / CHUNK;
        let (mut from, mut to) = (start / CHUNK, (start + len).div_ceil(CHUNK));
        if self.committed.load(Ordering::Relaxed) > GRANULES_FROM {
            let (low, high) = (from / EACH * EACH, to.next_multiple_of(EACH).min(self.chunks));
            if self.count(low..low + EACH) == 0 {
                from = low;
            }
            if self.count(high - EACH..high) == 0 {
                to = high;
            }
        }
        from..to
    }

    /// Commits `[start, start+len)`, of whole chunks, if `pay` pays for those bytes that were not committed
    /// before. The caller owns the granules concerned. False if it does not pay.
    pub fn commit_span(&self, start: usize, len: usize, pay: impl Fn(usize) -> bool) -> bool {
        let exact = start / CHUNK..(start + len).div_ceil(CHUNK);
        let wide = self.span(start, len);
        for chunks in [wide, exact] {
            let fresh = chunks.len() - self.count(chunks.clone());
            if fresh > 0 && !pay(fresh * CHUNK) {
                continue;
            }
            if fresh > 0 {
                self.mark(chunks.clone(), true);
                let now = self.committed.fetch_add(fresh * CHUNK, Ordering::Relaxed) + fresh * CHUNK;
                if chunks.end > self.top.load(Ordering::Relaxed) {
                    let _space = self.space.lock();
                    self.raise_top(chunks.end, if now > GRANULES_FROM { now } else { 0 });
                }
            }
            return true;
        }
        false
    }

    /// Discards `[start, start+len)`, of whole chunks, and returns how many bytes of it were committed. The
    /// caller uncharges them. Nobody uses the range.
    pub fn decommit_span(&self, start: usize, len: usize) -> usize {
        let chunks = start / CHUNK..(start + len) / CHUNK;
        let bytes = self.count(chunks.clone()) * CHUNK;
        if bytes > 0 {
            self.discard(start, len);
            self.mark(chunks, false);
            self.forget(bytes);
        }
        bytes
    }

    /// The words of the bitmap that `chunks` lie in, each with the bits that are meant.
    fn words(chunks: Range<usize>) -> impl Iterator<Item = (usize, u64)> {
        let end = if chunks.is_empty() { 0 } else { chunks.end.div_ceil(64) };
        (chunks.start / 64..end).map(move |w| {
            let (from, to) = (chunks.start.max(w * 64) - w * 64, chunks.end.min(w * 64 + 64) - w * 64);
            (w, (u64::MAX >> (64 - (to - from))) << from)
        })
    }

    /// How many of the chunks are committed.
    fn count(&self, chunks: Range<usize>) -> usize {
        Self::words(chunks)
            .map(|(w, bits)| (self.tables.map_word(w).load(Ordering::Relaxed) & bits).count_ones() as usize)
            .sum()
    }

    fn mark(&self, chunks: Range<usize>, committed: bool) {
        for (w, bits) in Self::words(chunks) {
            let word = self.tables.map_word(w);
            match committed {
                true => word.fetch_or(bits, Ordering::Relaxed),
                false => word.fetch_and(!bits, Ordering::Relaxed),
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_cover_every_chunk_once() {
        for from in [0, 1, 63, 64, 65, 130] {
            for n in [0, 1, 2, 63, 64, 65, 200] {
                let mut seen = vec![];
                for (w, bits) in Inner::words(from..from + n) {
                    seen.extend((0..64).filter(|b| bits >> b & 1 == 1).map(|b| w * 64 + b));
                }
                assert_eq!(seen, (from..from + n).collect::<Vec<_>>());
            }
        }
    }
}
