//! What the `uffd` tracker knows of a granule, in one word, and whether tracking it pays: decisions only.

use super::Costs;
use crate::sys::{CHUNK, GRANULE, PAGE};
use std::ops::Range;

/// Blocks of a granule.
pub(super) const BLOCKS: usize = GRANULE / CHUNK;
const ARMED: u64 = 1 << 32;
const LEVEL: u32 = 33; // 3 bits
const TURNS: u32 = 36; // 6 bits
const PAGES: u32 = 42; // 10 bits
/// Highest level: 63 turns without tracking between two tries.
const MOST: u64 = 6;

/// Blocks that may have been written, whether that is known at all, and how it went before. A granule that
/// was written so much that tracking it did not pay is left alone for a while, twice as long each time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Word(pub u64);

impl Word {
    fn field(self, shift: u32, bits: u32) -> u64 {
        self.0 >> shift & ((1 << bits) - 1)
    }

    fn with(self, shift: u32, bits: u32, value: u64) -> Self {
        let mask = ((1 << bits) - 1) << shift;
        Self(self.0 & !mask | value << shift & mask)
    }

    pub fn is_armed(self) -> bool {
        self.0 & ARMED != 0
    }

    /// Whether block `i` of the granule may be dirty.
    pub fn may_be_dirty(self, i: usize) -> bool {
        !self.is_armed() || self.0 >> i & 1 == 1
    }

    /// Whether any block may be dirty.
    pub fn any_dirty(self) -> bool {
        !self.is_armed() || self.0 as u32 != 0
    }

    /// To be counted anew: the kernel tells everything written since the granule was armed each time.
    pub fn uncounted(self) -> Self {
        self.with(PAGES, 10, 0)
    }

    /// Nothing is known any more.
    pub fn unarmed(self) -> Self {
        Self(self.0 & !ARMED)
    }

    /// In step with the file, and written pages will be told.
    pub fn armed(self) -> Self {
        Self(self.0 & !u64::from(u32::MAX) | ARMED).uncounted()
    }

    /// `pages`, counted from the granule's first, may have been written.
    pub fn written(self, pages: Range<usize>) -> Self {
        let per = CHUNK / PAGE;
        let count = (self.field(PAGES, 10) + pages.len() as u64).min((GRANULE / PAGE) as u64);
        Self(self.0 | bits(pages.start / per..pages.end.div_ceil(per))).with(PAGES, 10, count)
    }

    /// Before the granule is armed again: whether to, by what was seen since it was last, and the new word.
    pub fn decide(self, costs: &Costs) -> (bool, Self) {
        if self.is_armed() {
            let untouched = BLOCKS as u64 - u64::from((self.0 as u32).count_ones());
            let pages = self.field(PAGES, 10);
            let level = match costs.pays(untouched, pages) {
                true => 0,
                false => (self.field(LEVEL, 3) + 1).min(MOST),
            };
            let turns = (1 << level) - 1;
            return (turns == 0, self.with(LEVEL, 3, level).with(TURNS, 6, turns).unarmed());
        }
        match self.field(TURNS, 6) {
            0 => (true, self),
            turns => (turns == 1, self.with(TURNS, 6, turns - 1)),
        }
    }
}

/// Bits of the blocks in a granule.
pub(super) fn bits(blocks: Range<usize>) -> u64 {
    ((1u64 << blocks.end) - 1) & !((1u64 << blocks.start) - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const COSTS: Costs = Costs { hash_block: 2500, fault: 800, granule: 5000 };

    #[test]
    fn written_pages_make_their_blocks_dirty() {
        let word = Word(0).armed();
        assert!(!word.any_dirty() && word.unarmed().any_dirty() && word.written(3..4).any_dirty());
        assert!((0..BLOCKS).all(|i| !word.may_be_dirty(i) && word.unarmed().may_be_dirty(i)));
        let word = word.written(0..1).written(31..33).written(511..512);
        let dirty: Vec<_> = (0..BLOCKS).filter(|&i| word.may_be_dirty(i)).collect();
        assert_eq!(dirty, [0, 1, 2, 31]);
        assert_eq!(word.field(PAGES, 10), 4);
        assert!((0..BLOCKS).all(|i| Word(0).armed().written(0..512).written(0..512).may_be_dirty(i)));
        assert!((0..BLOCKS).all(|i| !word.armed().may_be_dirty(i)));
    }

    #[test]
    fn a_granule_written_all_over_is_tried_less_and_less() {
        let (mut word, mut tries) = (Word(0), vec![]);
        for turn in 0..300 {
            let (arm, next) = word.decide(&COSTS);
            word = next;
            if arm {
                tries.push(turn);
                word = word.armed().written(0..512);
            }
        }
        assert_eq!(tries[..6], [0, 1 + 1, 2 + 4, 6 + 8, 14 + 16, 30 + 32]);
        assert_eq!(tries[6..], [62 + 64, 126 + 64, 190 + 64]);
    }

    #[test]
    fn a_granule_written_little_is_always_tracked() {
        let mut word = Word(0);
        for turn in 0..100 {
            let (arm, next) = word.decide(&COSTS);
            assert!(arm, "{turn}");
            word = next.armed().written(turn..turn + 20);
        }
        // It was busy for a while, and is calm again.
        for _ in 0..3 {
            while !word.is_armed() {
                let (arm, next) = word.decide(&COSTS);
                word = if arm { next.armed() } else { next };
            }
            word = word.written(0..512).decide(&COSTS).1;
        }
        assert!(word.field(TURNS, 6) > 0);
        while word.field(TURNS, 6) > 0 {
            word = word.decide(&COSTS).1;
        }
        let (arm, next) = word.armed().decide(&COSTS);
        assert!(arm && next.field(LEVEL, 3) == 0);
    }
}
