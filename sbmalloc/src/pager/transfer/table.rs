//! Where the pages of an address space are that are not, or not only, in RAM. Pure.
//!
//! Each page that is out has a slot of the scratch file, and a checksum. One that has come back keeps both:
//! if it leaves again as it was, nothing is written. Pages are kept by *blocks* of 64 KiB of addresses, 216
//! bytes for each of which anything is known: a three-hundredth of the memory.

use super::slots::Slots;
use crate::sys::PAGE;
use std::collections::BTreeMap;
use std::ops::Range;

/// Bytes of addresses that are kept together.
pub(in crate::pager) const BLOCK: u64 = 64 << 10;
const PAGES: u64 = BLOCK / PAGE as u64;

/// All addresses that a process can have.
pub(in crate::pager) const EVERYTHING: Range<u64> = 0..1 << 63;

/// A set of pages of a block.
pub(in crate::pager) type Pages = u16;

/// What was written of a page: where, and what.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::pager) struct Copied {
    pub slot: u32,
    /// The checksum of the page: 64 bits of it, so that of 10^12 pages that changed one is taken for
    /// unchanged once in 10^7 runs.
    pub sum: u64,
}

#[derive(Debug)]
struct Block {
    /// These are out.
    out: Pages,
    /// These have a slot and are in RAM, for when they leave as they were.
    kept: Pages,
    slots: [u32; PAGES as usize],
    sums: [u64; PAGES as usize],
}

impl Block {
    fn copied(&self, page: usize) -> Copied {
        Copied { slot: self.slots[page], sum: self.sums[page] }
    }
}

/// What is known of an address space.
#[derive(Debug, Default)]
pub(in crate::pager) struct Table {
    blocks: BTreeMap<u64, Box<Block>>,
    pages: u64,
}

/// The block in which an address lies, and the number of the page there.
pub(in crate::pager) fn block_of(at: u64) -> (u64, u32) {
    (at & !(BLOCK - 1), (at % BLOCK / PAGE as u64) as u32)
}

/// The blocks of which pages lie in a range, and which.
pub(in crate::pager) fn blocks(range: &Range<u64>) -> impl Iterator<Item = (u64, Pages)> + use<> {
    let Range { start, end } = range.clone();
    let of = move |i| {
        let at = i * BLOCK;
        let from = start.saturating_sub(at) / PAGE as u64;
        let to = (end - at).min(BLOCK) / PAGE as u64;
        (at, ((1_u32 << to) - (1 << from)) as Pages)
    };
    (start / BLOCK..end.div_ceil(BLOCK)).map(of).filter(|&(_, pages)| pages != 0)
}

/// The pages of a block in a range.
fn inside(at: u64, range: &Range<u64>) -> Pages {
    blocks(&(range.start.max(at)..range.end.min(at + BLOCK))).next().map_or(0, |(_, pages)| pages)
}

/// Adjacent pages of a block, as ranges of addresses.
pub(in crate::pager) fn stretches(at: u64, mut pages: Pages) -> impl Iterator<Item = Range<u64>> {
    std::iter::from_fn(move || {
        if pages == 0 {
            return None;
        }
        let from = pages.trailing_zeros();
        let count = (pages >> from).trailing_ones();
        pages &= !(((1_u32 << count) - 1) << from) as Pages;
        let page = |i: u32| at + u64::from(i) * PAGE as u64;
        Some(page(from)..page(from + count))
    })
}

impl Table {
    /// Pages that are out.
    pub fn pages(&self) -> u64 {
        self.pages
    }

    /// Where a page is that is out.
    pub fn find(&self, at: u64) -> Option<Copied> {
        let (at, page) = block_of(at);
        let block = self.blocks.get(&at)?;
        (block.out & 1 << page != 0).then(|| block.copied(page as usize))
    }

    /// What was written of a page that is in RAM, when it last left.
    pub fn kept(&self, at: u64) -> Option<Copied> {
        let (at, page) = block_of(at);
        let block = self.blocks.get(&at)?;
        (block.kept & 1 << page != 0).then(|| block.copied(page as usize))
    }

    /// The blocks of a range of which anything is out, with these pages.
    fn out_of_blocks(&self, range: &Range<u64>) -> impl Iterator<Item = (u64, Pages, &Block)> + use<'_> {
        let Range { start, end } = range.clone();
        self.blocks.range(start & !(BLOCK - 1)..end).filter_map(move |(&at, block)| {
            let out = block.out & inside(at, &(start..end));
            (out != 0).then_some((at, out, &**block))
        })
    }

    /// The pages of a range that are out, ascending.
    pub fn out_in(&self, range: &Range<u64>) -> impl Iterator<Item = (u64, Copied)> + use<'_> {
        self.out_of_blocks(range).flat_map(|(at, out, block)| {
            let pages = (0..PAGES).filter(move |i| out & 1 << i != 0);
            pages.map(move |i| (at + i * PAGE as u64, block.copied(i as usize)))
        })
    }

    /// The first page of a range that is out.
    pub fn first_out(&self, range: &Range<u64>) -> Option<u64> {
        let (at, out, _) = self.out_of_blocks(range).next()?;
        Some(at + u64::from(out.trailing_zeros()) * PAGE as u64)
    }

    /// The first page of a range that is not out.
    pub fn first_not_out(&self, range: &Range<u64>) -> Option<u64> {
        let mut first = range.start;
        for (at, out, _) in self.out_of_blocks(range) {
            // In front of it lies a block of which nothing is out.
            if first < at.max(range.start) {
                break;
            }
            let not_out = inside(at, range) & !out;
            if not_out != 0 {
                first = at + u64::from(not_out.trailing_zeros()) * PAGE as u64;
                break;
            }
            first = at + BLOCK;
        }
        (first < range.end).then_some(first)
    }

    /// A page is out, and lies there.
    pub fn put(&mut self, at: u64, copy: Copied, slots: &mut Slots) {
        let (at, page) = block_of(at);
        let fresh =
            || Box::new(Block { out: 0, kept: 0, slots: [0; PAGES as usize], sums: [0; PAGES as usize] });
        let block = self.blocks.entry(at).or_insert_with(fresh);
        let (bit, page) = (1 << page, page as usize);
        if (block.out | block.kept) & bit != 0 {
            slots.give(block.slots[page]);
        }
        (block.slots[page], block.sums[page]) = (copy.slot, copy.sum);
        self.pages += u64::from(block.out & bit == 0);
        block.kept &= !bit;
        block.out |= bit;
    }

    /// A page is out as it was the last time.
    pub fn again(&mut self, at: u64) {
        let (at, page) = block_of(at);
        if let Some(block) = self.blocks.get_mut(&at)
            && block.kept & 1 << page != 0
        {
            block.kept &= !(1 << page);
            block.out |= 1 << page;
            self.pages += 1;
        }
    }

    /// The pages of a range are in RAM, as far as they were out. What was written of them stays known, for
    /// when they leave as they were.
    pub fn is_there(&mut self, range: &Range<u64>) {
        for (&at, block) in self.blocks.range_mut(range.start & !(BLOCK - 1)..range.end) {
            let back = block.out & inside(at, range);
            self.pages -= u64::from(back.count_ones());
            block.out &= !back;
            block.kept |= back;
        }
    }

    /// What is in the range is not wanted any more.
    pub fn forget(&mut self, range: &Range<u64>, slots: &mut Slots) {
        self.take(range, &mut |_, copy, _| slots.give(copy.slot));
    }

    /// Takes out what is known of a range: each page, what was written of it, and whether it is out.
    fn take(&mut self, range: &Range<u64>, f: &mut dyn FnMut(u64, Copied, bool)) {
        let mut empty = vec![];
        for (&key, block) in self.blocks.range_mut(range.start & !(BLOCK - 1)..range.end) {
            let inside = inside(key, range);
            let known = (block.out | block.kept) & inside;
            for page in (0..PAGES).filter(|i| known & 1 << i != 0) {
                f(key + page * PAGE as u64, block.copied(page as usize), block.out & 1 << page != 0);
            }
            self.pages -= u64::from((block.out & inside).count_ones());
            (block.out, block.kept) = (block.out & !inside, block.kept & !inside);
            if block.out | block.kept == 0 {
                empty.push(key);
            }
        }
        for key in empty {
            self.blocks.remove(&key);
        }
    }

    /// What is in the range lies elsewhere now.
    pub fn shift(&mut self, from: u64, to: u64, len: u64, slots: &mut Slots) {
        let mut moved = vec![];
        self.take(&(from..from + len), &mut |at, copy, is_out| moved.push((at - from + to, copy, is_out)));
        // Nothing that was there before is there now.
        self.forget(&(to..to + len), slots);
        for (at, copy, is_out) in moved {
            self.put(at, copy, slots);
            if !is_out {
                self.is_there(&(at..at + PAGE as u64));
            }
        }
    }

    /// That of a copy of the address space.
    pub fn copy(&self, slots: &mut Slots) -> Self {
        let mut copy = Self::default();
        for (at, found) in self.out_in(&EVERYTHING) {
            slots.share(found.slot);
            copy.put(at, found, slots);
        }
        copy
    }

    /// The address space is no more.
    pub fn clear(&mut self, slots: &mut Slots) {
        self.forget(&EVERYTHING, slots);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    const P: u64 = PAGE as u64;
    const BASE: u64 = 1000 * BLOCK;

    #[test]
    fn pages_of_a_range() {
        let of = |from: u64, to: u64| blocks(&(from * P..to * P)).collect::<Vec<_>>();
        assert_eq!(of(16, 32), [(BLOCK, 0xffff)]);
        assert_eq!(of(18, 20), [(BLOCK, 0b1100)]);
        assert_eq!(of(30, 33), [(BLOCK, 0xc000), (2 * BLOCK, 1)]);
        assert_eq!(of(3, 3), []);
        let list: Vec<_> = stretches(0, 0b1000_0000_0000_0110).collect();
        assert_eq!(list, [P..3 * P, 15 * P..16 * P]);
        assert!(stretches(BLOCK, 0xffff).eq(std::iter::once(BLOCK..2 * BLOCK)));
    }

    #[test]
    fn a_copy_keeps_what_the_original_forgets() {
        let (mut slots, mut table) = (Slots::default(), Table::default());
        for page in 0..20 {
            let copy = Copied { slot: slots.take(), sum: page };
            table.put(BASE + page * P, copy, &mut slots);
        }
        let mut copy = table.copy(&mut slots);
        table.clear(&mut slots);
        assert_eq!((table.pages(), copy.pages(), slots.used()), (0, 20, 20));
        copy.forget(&(BASE..BASE + 5 * P), &mut slots);
        assert_eq!(
            (copy.pages(), slots.used(), copy.first_out(&(0..u64::MAX))),
            (15, 15, Some(BASE + 5 * P))
        );
        copy.clear(&mut slots);
        assert_eq!(slots.used(), 0);
    }

    /// Against a model that knows of each page where it is.
    #[derive(Debug, Clone)]
    enum Op {
        Leave(u64, u64),
        Place(u64, u64),
        Forget(u64, u64),
        Shift(u64, u64, u64),
        Fork,
    }

    fn op() -> impl Strategy<Value = Op> {
        // Three blocks of pages, so that everything meets.
        let (page, count) = (0..48u64, 1..20u64);
        prop_oneof![
            3 => (page.clone(), count.clone()).prop_map(|(at, n)| Op::Leave(at, n)),
            3 => (page.clone(), count.clone()).prop_map(|(at, n)| Op::Place(at, n)),
            1 => (page.clone(), count.clone()).prop_map(|(at, n)| Op::Forget(at, n)),
            1 => (page.clone(), page, count).prop_map(|(a, b, n)| Op::Shift(a, b, n)),
            1 => Just(Op::Fork),
        ]
    }

    proptest! {
        #[test]
        fn each_page_is_where_it_should_be(ops in proptest::collection::vec(op(), 1..80)) {
            let (mut slots, mut table) = (Slots::default(), Table::default());
            let mut child = Table::default();
            let mut model: HashMap<u64, (Copied, bool)> = HashMap::new();
            let mut serial = 0;
            for op in ops {
                let pages = |at: u64, n: u64| (at..at + n).map(|page| BASE + page * P);
                match op {
                    Op::Leave(at, n) => for at in pages(at, n) {
                        serial += 1;
                        match model.get(&at).copied() {
                            Some((_, true)) => {}
                            Some((copy, false)) if serial % 2 == 0 => {
                                prop_assert_eq!(table.kept(at), Some(copy));
                                table.again(at);
                                model.insert(at, (copy, true));
                            }
                            _ => {
                                let copy = Copied { slot: slots.take(), sum: serial };
                                table.put(at, copy, &mut slots);
                                model.insert(at, (copy, true));
                            }
                        }
                    },
                    Op::Place(at, n) => {
                        table.is_there(&(BASE + at * P..BASE + (at + n) * P));
                        pages(at, n).for_each(|at| {
                            model.entry(at).and_modify(|known| known.1 = false);
                        });
                    }
                    Op::Forget(at, n) => {
                        table.forget(&(BASE + at * P..BASE + (at + n) * P), &mut slots);
                        pages(at, n).for_each(|at| {
                            model.remove(&at);
                        });
                    }
                    Op::Shift(from, to, n) => {
                        if from < to + n && to < from + n {
                            continue; // the kernel moves nothing onto itself
                        }
                        table.shift(BASE + from * P, BASE + to * P, n * P, &mut slots);
                        for i in 0..n {
                            let to = BASE + (to + i) * P;
                            match model.remove(&(BASE + (from + i) * P)) {
                                Some(known) => model.insert(to, known),
                                None => model.remove(&to),
                            };
                        }
                    }
                    Op::Fork => {
                        child.clear(&mut slots);
                        child = table.copy(&mut slots);
                        prop_assert!(child.out_in(&(0..BASE * 2)).eq(table.out_in(&(0..BASE * 2))));
                    }
                }
                let out: HashMap<u64, Copied> =
                    model.iter().filter(|(_, known)| known.1).map(|(&at, known)| (at, known.0)).collect();
                prop_assert_eq!(table.pages(), out.len() as u64);
                for page in 0..80 {
                    let at = BASE + page * P;
                    prop_assert_eq!(table.find(at), out.get(&at).copied(), "page {}", page);
                    let kept = model.get(&at).filter(|known| !known.1).map(|known| known.0);
                    prop_assert_eq!(table.kept(at), kept, "page {}", page);
                }
                let range = BASE + 7 * P..BASE + 40 * P;
                let listed: Vec<_> = table.out_in(&range).collect();
                let mut not_out = range.clone().step_by(PAGE).filter(|at| !out.contains_key(at));
                prop_assert_eq!(table.first_not_out(&range), not_out.next());
                let mut expected: Vec<_> = out.into_iter().filter(|(at, _)| range.contains(at)).collect();
                expected.sort_unstable_by_key(|found| found.0);
                prop_assert_eq!(table.first_out(&range), expected.first().map(|found| found.0));
                prop_assert_eq!(listed, expected);
                let mut users: Vec<u32> = model.values().map(|known| known.0.slot).collect();
                users.extend(child.out_in(&(0..BASE * 2)).map(|found| found.1.slot));
                users.sort_unstable();
                users.dedup();
                prop_assert_eq!(slots.used(), users.len());
            }
            table.clear(&mut slots);
            child.clear(&mut slots);
            prop_assert_eq!((slots.used(), table.blocks.len(), table.pages()), (0, 0, 0));
        }
    }
}
