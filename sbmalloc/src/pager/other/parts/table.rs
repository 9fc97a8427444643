//! Where the pages of an address space are that are out while it is in use. Pure.
//!
//! Pages go out by *blocks* of 64 KiB, each to a slot of that size in the scratch file. A block that has come back keeps
//! its slot: if it leaves again as it was, nothing is written. Blocks lie at multiples of their size when they leave, but
//! `mremap` may move them anywhere, and in pieces, so that they may overlap: then no page is out in two of them.

use crate::sys::PAGE;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// Bytes of a block, and of a slot.
pub(super) const BLOCK: u64 = 64 << 10;
const PAGES: u64 = BLOCK / PAGE as u64;

/// A set of pages of a block.
pub(super) type Pages = u16;

/// Free slots that follow each other are worth being used rather than new ones.
const RUN: u32 = 16;

/// The slots of the scratch file; several tables may refer to one after a fork.
///
/// What leaves together lies together, so that it can be read together: small holes are left alone until they are half of the
/// file.
#[derive(Debug, Default)]
pub(super) struct Slots {
    users: Vec<u32>,
    free: BTreeSet<u32>,
    last: u32,
}

impl Slots {
    /// A slot of nobody's, if possible that behind the one taken last.
    pub fn take(&mut self) -> u32 {
        let (next, end) = (self.last + 1, self.users.len() as u32);
        let crowded = self.free.len() * 2 > self.users.len();
        let run = |&&slot: &&u32| self.free.range(slot..slot + RUN).count() == RUN as usize;
        let slot = match () {
            () if self.free.contains(&next) => Some(next),
            () if crowded => self.free.first().copied(),
            () if next == end => None,
            () => self.free.iter().step_by(RUN as usize).take(64).find(run).copied(),
        };
        let slot = slot.unwrap_or(end);
        if slot == end {
            self.users.push(1);
        } else {
            self.free.remove(&slot);
            self.users[slot as usize] = 1;
        }
        self.last = slot;
        slot
    }

    pub fn share(&mut self, slot: u32) {
        self.users[slot as usize] += 1;
    }

    pub fn give(&mut self, slot: u32) {
        let users = &mut self.users[slot as usize];
        *users -= 1;
        if *users == 0 {
            self.free.insert(slot);
        }
    }

    pub fn is_shared(&self, slot: u32) -> bool {
        self.users[slot as usize] > 1
    }
}

/// A block whose content is in a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Block {
    pub at: u64,
    pub slot: u32,
    /// The pages that are out.
    pub out: Pages,
    /// The checksum of the slot.
    pub sum: u128,
}

impl Block {
    /// The pages of it in a range.
    fn within(&self, range: &Range<u64>) -> Pages {
        (0..PAGES).filter(|i| range.contains(&(self.at + i * PAGE as u64))).fold(0, |pages, i| pages | 1 << i)
    }
}

/// What of an address space is out.
#[derive(Debug, Default)]
pub(super) struct Table {
    blocks: BTreeMap<(u64, u32), (Pages, u128)>,
    pages: u64,
}

impl Table {
    /// Pages that are out.
    pub fn pages(&self) -> u64 {
        self.pages
    }

    fn between(&self, from: u64, to: u64) -> impl Iterator<Item = Block> {
        self.blocks.range((from, 0)..(to, 0)).map(|(&(at, slot), &(out, sum))| Block { at, slot, out, sum })
    }

    /// The blocks that lie in a range, also in part.
    fn overlapping(&self, range: &Range<u64>) -> Vec<Block> {
        self.between((range.start + PAGE as u64).saturating_sub(BLOCK), range.end).collect()
    }

    /// The block with a page that is out.
    pub fn find(&self, page: u64) -> Option<Block> {
        self.overlapping(&(page..page + PAGE as u64))
            .into_iter()
            .find(|block| block.out & 1 << ((page - block.at) / PAGE as u64) != 0)
    }

    /// The first page of a range that is out.
    pub fn first_out(&self, range: &Range<u64>) -> Option<u64> {
        let pages = |block: &Block| block.out & block.within(range);
        let blocks = self.overlapping(range);
        let first = |block: Block| {
            let pages = pages(&block);
            (pages != 0).then(|| block.at + u64::from(pages.trailing_zeros()) * PAGE as u64)
        };
        blocks.into_iter().filter_map(first).min()
    }

    /// What is left of a range without the pages that are out.
    pub fn without_out(&self, range: &Range<u64>) -> Ranges {
        let mut left = Ranges::default();
        left.add(range.clone());
        for block in self.overlapping(range) {
            for i in (0..PAGES).filter(|i| block.out & 1 << i != 0) {
                let at = block.at + i * PAGE as u64;
                left.remove(&(at..at + PAGE as u64));
            }
        }
        left
    }

    /// A block that lies here, all of which has come back, and whose slot is nobody else's: taken out of the table, the slot
    /// is the caller's.
    pub fn take_clean(&mut self, at: u64, slots: &mut Slots) -> Option<Block> {
        let clean: Vec<Block> = self.between(at, at + 1).filter(|block| block.out == 0).collect();
        let mut found = None;
        for block in clean {
            self.blocks.remove(&(block.at, block.slot));
            if found.is_none() && !slots.is_shared(block.slot) {
                found = Some(block);
            } else {
                slots.give(block.slot);
            }
        }
        found
    }

    /// Adds a block; its slot is the table's from now on. Parts of a block that were moved one after the other may meet again: then
    /// they are one.
    pub fn add(&mut self, block: Block, slots: &mut Slots) {
        match self.blocks.entry((block.at, block.slot)) {
            Entry::Vacant(free) => {
                free.insert((block.out, block.sum));
                self.pages += u64::from(block.out.count_ones());
            }
            Entry::Occupied(mut known) => {
                let (out, _) = known.get_mut();
                self.pages += u64::from((block.out & !*out).count_ones());
                *out |= block.out;
                slots.give(block.slot);
            }
        }
    }

    /// These pages of a block are there again. It stays known, for when it leaves as it was.
    pub fn placed(&mut self, block: &Block, pages: Pages) {
        if let Some((out, _)) = self.blocks.get_mut(&(block.at, block.slot)) {
            self.pages -= u64::from((*out & pages).count_ones());
            *out &= !pages;
        }
    }

    /// What is in the range was not dropped after all.
    pub fn is_there(&mut self, range: &Range<u64>) {
        for block in self.overlapping(range) {
            self.placed(&block, block.within(range));
        }
    }

    fn remove(&mut self, block: &Block) {
        if let Some((out, _)) = self.blocks.remove(&(block.at, block.slot)) {
            self.pages -= u64::from(out.count_ones());
        }
    }

    /// What is in the range is not wanted any more.
    pub fn forget(&mut self, range: &Range<u64>, slots: &mut Slots) {
        for block in self.overlapping(range) {
            self.remove(&block);
            match block.out & !block.within(range) {
                0 => slots.give(block.slot),
                out => self.add(Block { out, ..block }, slots),
            }
        }
    }

    /// What is in the range lies elsewhere now.
    pub fn shift(&mut self, from: u64, to: u64, len: u64, slots: &mut Slots) {
        let range = from..from + len;
        let mut moved = vec![];
        for block in self.overlapping(&range) {
            let inside = block.out & block.within(&range);
            let (stays, at) = (block.out & !inside, to.wrapping_add(block.at.wrapping_sub(from)));
            self.remove(&block);
            if stays != 0 {
                slots.share(block.slot);
                self.add(Block { out: stays, ..block }, slots);
            }
            match inside {
                0 => slots.give(block.slot),
                out => moved.push(Block { at, out, ..block }),
            }
        }
        // Nothing that was there before is there now.
        self.forget(&(to..to + len), slots);
        moved.into_iter().for_each(|block| self.add(block, slots));
    }

    /// That of a copy of the address space.
    pub fn copy(&self, slots: &mut Slots) -> Self {
        let blocks = self.blocks.iter().filter(|(_, (out, _))| *out != 0);
        let copy = Self { blocks: blocks.map(|(&k, &v)| (k, v)).collect(), pages: self.pages };
        copy.blocks.keys().for_each(|&(_, slot)| slots.share(slot));
        copy
    }

    /// The address space is no more.
    pub fn clear(&mut self, slots: &mut Slots) {
        std::mem::take(&mut self.blocks).keys().for_each(|&(_, slot)| slots.give(slot));
        self.pages = 0;
    }
}

/// Ranges that do not overlap.
#[derive(Debug, Default, Clone)]
pub(super) struct Ranges(BTreeMap<u64, u64>);

impl Ranges {
    pub fn add(&mut self, range: Range<u64>) {
        self.remove(&range);
        self.0.insert(range.start, range.end);
    }

    pub fn remove(&mut self, range: &Range<u64>) {
        for cut in self.within(range) {
            let end = self.0.range(..=cut.start).next_back().map(|(&start, &end)| (start, end));
            let Some((start, end)) = end else { continue };
            self.0.remove(&start);
            if start < cut.start {
                self.0.insert(start, cut.start);
            }
            if cut.end < end {
                self.0.insert(cut.end, end);
            }
        }
    }

    /// The parts of them in a range.
    pub fn within(&self, range: &Range<u64>) -> Vec<Range<u64>> {
        let first = self.0.range(..=range.start).next_back().map_or(range.start, |(&start, _)| start);
        self.0
            .range(first..range.end)
            .map(|(&start, &end)| start.max(range.start)..end.min(range.end))
            .filter(|part| part.start < part.end)
            .collect()
    }

    pub fn iter(&self) -> impl Iterator<Item = Range<u64>> {
        self.0.iter().map(|(&start, &end)| start..end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const P: u64 = PAGE as u64;
    const ALL: Pages = Pages::MAX;

    fn filled(slots: &mut Slots, count: u64) -> Table {
        let mut table = Table::default();
        for i in 0..count {
            let slot = slots.take();
            table.add(Block { at: BLOCK * (10 + i), slot, out: ALL, sum: i.into() }, slots);
        }
        table
    }

    #[test]
    fn what_is_removed_is_not_found() {
        let mut slots = Slots::default();
        let mut table = filled(&mut slots, 3);
        let begin = 10 * BLOCK;
        table.forget(&(begin + 4 * P..begin + BLOCK + 2 * P), &mut slots);
        assert_eq!(table.pages(), 4 + 14 + 16);
        assert!(table.find(begin + 3 * P).is_some() && table.find(begin + 4 * P).is_none());
        assert_eq!(table.find(begin + BLOCK + 2 * P).map(|b| b.sum), Some(1));
        assert_eq!(table.first_out(&(begin + 4 * P..begin + 3 * BLOCK)), Some(begin + BLOCK + 2 * P));
        let left: Vec<_> = table.without_out(&(begin..begin + 4 * BLOCK)).iter().collect();
        assert_eq!(left, [begin + 4 * P..begin + BLOCK + 2 * P, begin + 3 * BLOCK..begin + 4 * BLOCK]);
        table.forget(&(begin..begin + 3 * BLOCK), &mut slots);
        assert_eq!((table.pages(), slots.take()), (0, 0), "slots are free again");
    }

    #[test]
    fn what_moves_is_found_there_wherever_it_lies() {
        let mut slots = Slots::default();
        let mut table = filled(&mut slots, 2);
        let begin = 10 * BLOCK;
        // By half a block and a page, from within the first to within the second.
        let (from, to) = (begin + 5 * P, 100 * BLOCK + 9 * P);
        table.shift(from, to, BLOCK, &mut slots);
        assert_eq!(table.pages(), 32);
        for i in 0..16 {
            let block = table.find(to + i * P).expect("moved");
            let page = (to + i * P - block.at) / P;
            assert_eq!((block.sum as u64 * 16 + page), 5 + i, "the same page of the same slot");
            assert_eq!(table.find(from + i * P), None);
        }
        assert_eq!(
            (table.find(begin).map(|b| b.sum), table.find(begin + BLOCK + 5 * P).map(|b| b.sum)),
            (Some(0), Some(1))
        );
        // Back onto itself, overlapping.
        table.shift(to, to + P, BLOCK, &mut slots);
        assert_eq!((table.pages(), table.find(to), table.find(to + P).map(|b| b.sum)), (32, None, Some(0)));
        table.clear(&mut slots);
        assert_eq!((slots.take(), slots.take(), slots.take()), (0, 1, 2));
    }

    #[test]
    fn a_copy_keeps_what_the_original_forgets() {
        let mut slots = Slots::default();
        let mut table = filled(&mut slots, 2);
        let mut copy = table.copy(&mut slots);
        let whole = 0..100 * BLOCK;
        table.forget(&whole, &mut slots);
        assert_eq!((table.pages(), copy.pages()), (0, 32));
        assert_eq!(slots.take(), 2, "the slots are still the copy's");
        copy.forget(&whole, &mut slots);
        assert_eq!(slots.take(), 0);
    }

    #[test]
    fn a_block_that_came_back_keeps_its_slot() {
        let mut slots = Slots::default();
        let mut table = filled(&mut slots, 1);
        let at = 10 * BLOCK;
        assert_eq!(table.take_clean(at, &mut slots), None, "it is out");
        let block = table.find(at).expect("out");
        table.placed(&block, 0x00ff);
        assert_eq!(
            (table.pages(), table.find(at), table.take_clean(at, &mut slots)),
            (8, None, None),
            "half of it"
        );
        assert_eq!(table.find(at + 8 * P).map(|b| b.out), Some(0xff00));
        table.placed(&block, ALL);
        assert_eq!((table.pages(), table.find(at)), (0, None));
        assert_eq!(table.take_clean(at, &mut slots).map(|b| b.slot), Some(0));
        assert_eq!(slots.take(), 1);
    }

    #[test]
    fn halves_of_a_block_that_move_one_after_the_other_are_both_there() {
        let mut slots = Slots::default();
        let mut table = filled(&mut slots, 1);
        let (from, to) = (10 * BLOCK, 50 * BLOCK);
        table.shift(from, to, BLOCK / 2, &mut slots);
        table.shift(from + BLOCK / 2, to + BLOCK / 2, BLOCK / 2, &mut slots);
        assert_eq!((table.pages(), table.find(to).map(|b| b.out)), (16, Some(ALL)));
        table.clear(&mut slots);
        assert_eq!(slots.take(), 0, "the slot has no users left");
    }

    /// Two blocks of the same addresses, each with other pages out: what is placed of one says nothing about the other.
    #[test]
    fn what_is_placed_of_a_block_is_not_of_another() {
        let mut slots = Slots::default();
        let mut table = Table::default();
        let at = 10 * BLOCK;
        let low = Block { at, slot: slots.take(), out: 0x00ff, sum: 1 };
        let high = Block { at, slot: slots.take(), out: 0xff00, sum: 2 };
        table.add(low, &mut slots);
        table.add(high, &mut slots);
        table.placed(&low, ALL);
        assert_eq!((table.pages(), table.find(at + 9 * P), table.find(at)), (8, Some(high), None));
    }

    /// Against a model that knows for each page which page of which slot it is.
    mod model {
        use super::*;
        use proptest::prelude::*;
        use std::collections::HashMap;

        /// Far from zero, so that no block begins before it.
        const BASE: u64 = 1000 * BLOCK;

        #[derive(Debug, Clone)]
        enum Op {
            Leave(u64, Pages),
            Place(u64, Pages),
            Forget(u64, u64),
            Shift(u64, u64, u64),
            Clean(u64),
        }

        fn op() -> impl Strategy<Value = Op> {
            // Three blocks of pages, so that everything meets.
            let page = 0..48u64;
            prop_oneof![
                (0..3u64, any::<Pages>()).prop_map(|(b, p)| Op::Leave(b, p)),
                (page.clone(), any::<Pages>()).prop_map(|(at, p)| Op::Place(at, p)),
                (page.clone(), 1..20u64).prop_map(|(at, n)| Op::Forget(at, n)),
                (page.clone(), page, 1..20u64).prop_map(|(a, b, n)| Op::Shift(a, b, n)),
                (0..3u64).prop_map(Op::Clean),
            ]
        }

        proptest! {
            #[test]
            fn each_page_is_where_it_should_be(ops in proptest::collection::vec(op(), 1..60)) {
                let (mut slots, mut table) = (Slots::default(), Table::default());
                let mut model: HashMap<u64, (u32, u64)> = HashMap::new();
                for op in ops {
                    match op {
                        Op::Leave(block, pages) => {
                            // As when a block leaves: only what is there does.
                            let at = BASE + block * BLOCK;
                            let there = (0..PAGES).filter(|i| pages & 1 << i != 0 && !model.contains_key(&(at + i * P)));
                            let out = there.fold(0, |out: Pages, i| out | 1 << i);
                            if out == 0 {
                                continue;
                            }
                            let slot = table.take_clean(at, &mut slots).map_or_else(|| slots.take(), |b| b.slot);
                            table.add(Block { at, slot, out, sum: 0 }, &mut slots);
                            (0..PAGES).filter(|i| out & 1 << i != 0).for_each(|i| {
                                model.insert(at + i * P, (slot, i));
                            });
                        }
                        Op::Place(page, pages) => {
                            let Some(block) = table.find(BASE + page * P) else { continue };
                            table.placed(&block, pages);
                            (0..PAGES).filter(|i| block.out & pages & 1 << i != 0).for_each(|i| {
                                model.remove(&(block.at + i * P));
                            });
                        }
                        Op::Forget(page, count) => {
                            table.forget(&(BASE + page * P..BASE + (page + count) * P), &mut slots);
                            (page..page + count).for_each(|page| {
                                model.remove(&(BASE + page * P));
                            });
                        }
                        Op::Shift(from, to, count) => {
                            if from < to + count && to < from + count {
                                continue; // the kernel moves nothing onto itself
                            }
                            let (from, to) = (BASE + from * P, BASE + to * P);
                            table.shift(from, to, count * P, &mut slots);
                            for i in 0..count {
                                match model.remove(&(from + i * P)) {
                                    Some(place) => model.insert(to + i * P, place),
                                    None => model.remove(&(to + i * P)),
                                };
                            }
                        }
                        Op::Clean(block) => {
                            if let Some(clean) = table.take_clean(BASE + block * BLOCK, &mut slots) {
                                prop_assert!(model.values().all(|(slot, _)| *slot != clean.slot), "it is in use");
                                slots.give(clean.slot);
                            }
                        }
                    }
                    prop_assert_eq!(table.pages(), model.len() as u64);
                    for page in 0..80 {
                        let at = BASE + page * P;
                        let found = table.find(at).map(|b| (b.slot, (at - b.at) / P));
                        prop_assert_eq!(found, model.get(&at).copied(), "page {}", page);
                    }
                }
                table.clear(&mut slots);
                prop_assert!(slots.users.iter().all(|&users| users == 0));
            }
        }
    }

    #[test]
    fn ranges_are_cut() {
        let mut ranges = Ranges::default();
        ranges.add(10..20);
        ranges.add(30..40);
        ranges.remove(&(15..32));
        assert_eq!(ranges.iter().collect::<Vec<_>>(), [10..15, 32..40]);
        ranges.add(12..34);
        assert_eq!(ranges.iter().collect::<Vec<_>>(), [10..12, 12..34, 34..40]);
        assert_eq!(ranges.within(&(11..35)), [11..12, 12..34, 34..35]);
        ranges.remove(&(13..14));
        assert_eq!(ranges.within(&(0..100)), [10..12, 12..13, 14..34, 34..40]);
    }
}
