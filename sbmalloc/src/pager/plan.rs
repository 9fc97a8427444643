//! What to write, punch and move: decisions only, no system calls.

use crate::arena::{HOLE, STORED};
use crate::sys::{CHUNK, GRANULE};
use std::ops::Range;

/// Blocks of a write or read that is made alone: large enough for the device's full rate.
pub(super) const BATCH_BLOCKS: usize = (8 << 20) / CHUNK;
/// Blocks of one that is made beside others: together they are as large, and each is soon ready to be
/// verified, or to start while the next is hashed.
pub(super) const PIECE_BLOCKS: usize = (1 << 20) / CHUNK;
/// Bytes to look through from which on transfers are made beside: less is one batch, and nothing to overlap.
pub(super) const BESIDE_FROM: usize = 8 << 20;
/// Bytes staged and moved at a time: 2 MiB pieces would leave 512 mappings per GiB, more would only take RAM.
pub(super) const RUN: usize = 64 << 20;

/// What becomes of a block at an evict.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    /// The file has it already, or it is a hole and reads as zeros.
    Keep,
    /// It reads as zeros now and the file's bytes must go.
    Punch,
    /// It is written.
    Write,
}

/// The fate of a block from the state of its file block and its content: `None` if it reads as zeros,
/// else its checksum and the one stored.
pub(super) fn fate(state: u8, content: Option<(u128, u128)>) -> Fate {
    match content {
        None if state == HOLE => Fate::Keep,
        None => Fate::Punch,
        Some((now, stored)) if state == STORED && now == stored => Fate::Keep,
        Some(_) => Fate::Write,
    }
}

/// Gathers adjacent blocks of one fate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Batch {
    pub fate: Fate,
    pub first: usize,
    pub count: usize,
}

impl Batch {
    pub const EMPTY: Self = Self { fate: Fate::Keep, first: 0, count: 0 };

    /// Whether block `i` of `fate` can be added without carrying out what was gathered first. A write has at
    /// most `limit` blocks.
    pub fn takes(&self, i: usize, fate: Fate, limit: usize) -> bool {
        self.count == 0
            || (self.fate == fate
                && i == self.first + self.count
                && (fate != Fate::Write || self.count < limit))
    }

    /// Adds a block that [`takes`](Self::takes) allowed.
    pub fn add(&mut self, i: usize, fate: Fate) {
        if self.count == 0 {
            *self = Self { fate, first: i, count: 0 };
        }
        self.count += 1;
    }
}

/// The next bytes of `[lo, hi)` to stage and move together: a run, or less where huge pages end, because
/// one mapping has one policy.
pub(super) fn next_run(lo: usize, hi: usize, huge_end: usize) -> Range<usize> {
    let mut end = hi.min(lo + RUN);
    if hi - end < RUN / 2 {
        end = hi; // no small remainder
    }
    if lo < huge_end && huge_end < end {
        end = huge_end;
    }
    debug_assert!(lo.is_multiple_of(GRANULE) && end.is_multiple_of(GRANULE) && lo < end);
    lo..end
}

/// The next stretch of adjacent blocks that are stored, at most `most` of them.
pub(super) fn next_stored(
    blocks: Range<usize>,
    most: usize,
    state: impl Fn(usize) -> u8,
) -> Option<Range<usize>> {
    let first = blocks.clone().find(|&i| state(i) == STORED)?;
    let limit = blocks.end.min(first + most);
    let end = (first..limit).find(|&i| state(i) != STORED).unwrap_or(limit);
    Some(first..end)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arena::STALE;

    #[test]
    fn zero_blocks_are_punched_never_skipped() {
        assert_eq!(fate(HOLE, None), Fate::Keep);
        assert_eq!(fate(STORED, None), Fate::Punch);
        assert_eq!(fate(STALE, None), Fate::Punch);
        assert_eq!(fate(STORED, Some((7, 7))), Fate::Keep);
        assert_eq!(fate(STORED, Some((7, 8))), Fate::Write);
        // Equal checksums say nothing about a file block that is not what they describe.
        assert_eq!(fate(STALE, Some((7, 7))), Fate::Write);
        assert_eq!(fate(HOLE, Some((7, 7))), Fate::Write);
    }

    #[test]
    fn batches_are_adjacent_alike_and_bounded() {
        let mut batch = Batch::EMPTY;
        assert!(batch.takes(5, Fate::Write, 9));
        batch.add(5, Fate::Write);
        assert!(batch.takes(6, Fate::Write, 9));
        assert!(!batch.takes(7, Fate::Write, 9) && !batch.takes(6, Fate::Punch, 9));
        for i in 6..5 + 9 {
            assert!(batch.takes(i, Fate::Write, 9));
            batch.add(i, Fate::Write);
        }
        assert!(!batch.takes(5 + 9, Fate::Write, 9));
    }

    #[test]
    fn runs_cover_everything_once() {
        for (hi, huge) in [(1, 0), (33, 7), (47, 47), (48, 40), (200, 133), (96, 500)] {
            let (hi, huge) = (hi * GRANULE, huge * GRANULE);
            let mut lo = 0;
            while lo < hi {
                let run = next_run(lo, hi, huge);
                assert!(run.start == lo && run.end > lo && run.end <= hi && run.len() < 2 * RUN);
                assert!(run.end <= huge || run.start >= huge);
                lo = run.end;
            }
        }
    }

    #[test]
    fn stored_stretches_skip_what_is_not() {
        let states = [HOLE, STORED, STORED, STALE, STORED, HOLE];
        let state = |i: usize| states[i];
        assert_eq!(next_stored(0..6, 99, state), Some(1..3));
        assert_eq!(next_stored(3..6, 99, state), Some(4..5));
        assert_eq!(next_stored(5..6, 99, state), None);
        assert_eq!(next_stored(0..1000, 99, |_| STORED), Some(0..99));
    }
}
