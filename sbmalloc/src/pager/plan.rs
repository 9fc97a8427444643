//! What to write, punch and move: decisions only, no system calls.

use crate::arena::{HOLE, STORED};
use crate::sys::{CHUNK, GRANULE};
use std::ops::Range;

/// Blocks of a write or read that is made alone: large enough for the device's full rate.
pub(super) const BATCH_BLOCKS: usize = (8 << 20) / CHUNK;
/// Blocks of one that is made beside others: together they are as large, and each is soon ready to be
/// verified, or to start while the next is hashed.
pub(super) const PIECE_BLOCKS: usize = (1 << 20) / CHUNK;
/// Bytes to look through from which on transfers are made beside: in two granules there may be a dozen small
/// pieces, which go together.
pub(super) const BESIDE_FROM: usize = 2 * GRANULE;
/// Bytes of zeros at the end of a block from which on they are passed over, which takes a transfer more: in
/// that time about as many are moved.
pub(super) const GAP_FROM: usize = 16 << 10;
/// Granules staged and moved at a time, 64 MiB: 2 MiB pieces would leave 512 mappings per GiB, more would
/// only take RAM.
pub(super) const GROUP: usize = (64 << 20) / GRANULE;

/// A stretch of pages that came in by itself took as long as so many pages more, of those that are brought in
/// with all of their granule.
const STRETCH: u32 = 3;

/// Whether a granule of `held` pages that is out, of which so many pages in so many stretches are there, was
/// used so much that to bring it in as a whole costs less than to let come in what is touched. A process that
/// touches a few pages in each of its granules is so not moved as a whole at each of its waits.
pub(super) fn is_worth_bringing(held: u16, there: u16, stretches: u16) -> bool {
    there > 0 && u32::from(there) + STRETCH * u32::from(stretches) >= u32::from(held)
}

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
    /// Bytes at the end of the last block that are zero, in the file too.
    pub unused: usize,
}

impl Batch {
    pub const EMPTY: Self = Self { fate: Fate::Keep, first: 0, count: 0, unused: 0 };

    /// Whether block `i` of `fate` can be added without carrying out what was gathered first. A write has at
    /// most `limit` blocks.
    pub fn takes(&self, i: usize, fate: Fate, limit: usize) -> bool {
        self.count == 0
            || (self.fate == fate
                && self.unused < GAP_FROM
                && i == self.first + self.count
                && (fate != Fate::Write || self.count < limit))
    }

    /// Adds a block that [`takes`](Self::takes) allowed, the last bytes of which are `unused`.
    pub fn add(&mut self, i: usize, fate: Fate, unused: usize) {
        if self.count == 0 {
            *self = Self { fate, first: i, count: 0, unused: 0 };
        }
        self.count += 1;
        self.unused = unused;
    }
}

/// Granules that are moved together, ascending.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Group {
    granules: [u32; GROUP],
    count: usize,
}

impl Group {
    pub const EMPTY: Self = Self { granules: [0; GROUP], count: 0 };

    pub fn is_full(&self) -> bool {
        self.count == GROUP
    }

    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    pub fn push(&mut self, g: usize) {
        debug_assert!(self.granules().last().is_none_or(|last| last < g));
        self.granules[self.count] = g as u32;
        self.count += 1;
    }

    pub fn granules(&self) -> impl DoubleEndedIterator<Item = usize> {
        self.granules[..self.count].iter().map(|&g| g as usize)
    }

    pub fn len_bytes(&self) -> usize {
        self.count * GRANULE
    }

    /// Whether byte `offset` of the arena lies in it.
    pub fn holds(&self, offset: usize) -> bool {
        self.granules[..self.count].binary_search(&((offset / GRANULE) as u32)).is_ok()
    }

    /// The next stretch of adjacent granules from position `k` on, at most `most` of them: the position
    /// behind it, and its bytes in the arena. At position `k` lie byte `k * GRANULE` and those that follow of
    /// the group packed.
    pub fn stretch(&self, k: usize, most: usize) -> Option<(usize, Range<usize>)> {
        let granules = &self.granules[k..self.count];
        let first = *granules.first()? as usize;
        let count = (0..granules.len().min(most)).take_while(|&n| granules[n] as usize == first + n).count();
        Some((k + count, first * GRANULE..(first + count) * GRANULE))
    }
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

/// As many of these adjacent blocks, all stored, as are read in one go, and how many bytes at the end of the
/// last one need not be; `unused` tells how many zeros a block has at its end.
pub(super) fn without_gaps(blocks: Range<usize>, unused: impl Fn(usize) -> usize) -> (Range<usize>, usize) {
    let last = blocks.clone().find(|&i| unused(i) >= GAP_FROM).unwrap_or(blocks.end - 1);
    (blocks.start..last + 1, unused(last))
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
        batch.add(5, Fate::Write, 0);
        assert!(batch.takes(6, Fate::Write, 9));
        assert!(!batch.takes(7, Fate::Write, 9) && !batch.takes(6, Fate::Punch, 9));
        for i in 6..5 + 9 {
            assert!(batch.takes(i, Fate::Write, 9));
            batch.add(i, Fate::Write, 0);
        }
        assert!(!batch.takes(5 + 9, Fate::Write, 9));
        // Few zeros are written with what follows, many are passed over.
        batch.add(14, Fate::Write, GAP_FROM - 1);
        assert!(batch.takes(15, Fate::Write, 99));
        batch.add(15, Fate::Write, GAP_FROM);
        assert!(!batch.takes(16, Fate::Write, 99));
    }

    #[test]
    fn a_group_is_covered_by_its_stretches() {
        let mut group = Group::EMPTY;
        let granules = [0, 1, 2, 5, 7, 8, 9, 10, 40];
        granules.iter().for_each(|&g| group.push(g));
        for most in [1, 2, 8] {
            let (mut k, mut seen) = (0, vec![]);
            while let Some((next, bytes)) = group.stretch(k, most) {
                assert!(next > k && next - k <= most && bytes.len() == (next - k) * GRANULE);
                seen.extend(bytes.step_by(GRANULE).map(|at| at / GRANULE));
                k = next;
            }
            assert_eq!(seen, granules);
        }
        assert!(group.holds(8 * GRANULE + 5) && !group.holds(6 * GRANULE));
        (41..).take(GROUP - granules.len()).for_each(|g| group.push(g));
        assert!(group.is_full());
    }

    #[test]
    fn a_read_ends_at_a_gap() {
        let unused = [0, GAP_FROM - 1, 0, GAP_FROM, 0, 5];
        assert_eq!(without_gaps(0..6, |i| unused[i]), (0..4, GAP_FROM));
        assert_eq!(without_gaps(0..2, |i| unused[i]), (0..2, GAP_FROM - 1));
        assert_eq!(without_gaps(4..6, |i| unused[i]), (4..6, 5));
        assert_eq!(without_gaps(0..1, |i| unused[i]), (0..1, 0));
    }

    #[test]
    fn little_use_of_a_granule_is_not_worth_all_of_it() {
        assert!(!is_worth_bringing(512, 0, 0) && !is_worth_bringing(1, 0, 0));
        // Gone through from end to end, or nearly; a quarter of its pages, each for itself; a stretch in the
        // middle.
        assert!(is_worth_bringing(512, 512, 1) && is_worth_bringing(512, 509, 1));
        assert!(is_worth_bringing(512, 128, 128) && !is_worth_bringing(512, 127, 127));
        assert!(!is_worth_bringing(512, 256, 1));
        // It holds little.
        assert!(is_worth_bringing(4, 1, 1));
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
