//! Committing and decommitting spans of pages that somebody else hands out: the heap of small blocks.
//!
//! Such an arena has no runs. A bitmap says which pages are committed, so that each is counted once however
//! often, and in whatever pieces, its range is committed and decommitted.

use super::{HUGE_FROM, Inner};
use crate::sys::{CHUNK, GRANULE, PAGE};
use std::ops::Range;
use std::sync::atomic::Ordering;

impl Inner {
    /// Widens a range of pages by the granules at its ends of which nothing is committed yet, if they are to
    /// be huge pages: the first touch takes them whole.
    fn widen(&self, pages: Range<usize>) -> Range<usize> {
        const EACH: usize = GRANULE / PAGE;
        let Range { start: mut from, end: mut to } = pages;
        let (low, high) = (from / EACH * EACH, to.next_multiple_of(EACH));
        let huge = self.huge_end.load(Ordering::Relaxed) / PAGE;
        let all = self.committed.load(Ordering::Relaxed) > HUGE_FROM;
        if (all || low < huge) && self.count(low..low + EACH) == 0 {
            from = low;
        }
        if (all || high <= huge) && self.count(high - EACH..high) == 0 {
            to = high;
        }
        from..to
    }

    /// Commits the pages that `[start, start+len)` touches, if `pay` pays for those that were not committed
    /// before. The caller owns the granules concerned. False if it does not pay.
    pub fn commit_span(&self, start: usize, len: usize, pay: impl Fn(usize) -> bool) -> bool {
        let exact = start / PAGE..(start + len).div_ceil(PAGE);
        if self.count(exact.clone()) == exact.len() {
            return true;
        }
        let wide = self.widen(exact.clone());
        self.take(wide.clone(), &pay) || (wide != exact && self.take(exact, &pay))
    }

    fn take(&self, pages: Range<usize>, pay: &impl Fn(usize) -> bool) -> bool {
        let bytes = (pages.len() - self.count(pages.clone())) * PAGE;
        if !pay(bytes) {
            return false;
        }
        let chunks = (pages.end * PAGE).div_ceil(CHUNK);
        self.mark(pages, true);
        let now = self.committed.load(Ordering::Relaxed);
        let top = self.top.load(Ordering::Relaxed);
        if chunks > top {
            let _space = self.space.lock();
            self.raise_top(chunks, now);
        } else if now > HUGE_FROM && self.huge_end.load(Ordering::Relaxed) + GRANULE <= top * CHUNK {
            // It has become worth it below the high-water mark.
            let _space = self.space.lock();
            self.grow_huge(self.top.load(Ordering::Relaxed) * CHUNK, now);
        }
        true
    }

    /// Discards `[start, start+len)`, of whole chunks, and returns how many bytes of it were committed. The
    /// caller uncharges them. Nobody uses the range.
    pub fn decommit_span(&self, start: usize, len: usize) -> usize {
        let pages = start / PAGE..(start + len) / PAGE;
        let bytes = self.count(pages.clone()) * PAGE;
        if bytes > 0 {
            self.discard(start, len);
            self.mark(pages, false);
            let now = self.committed.load(Ordering::Relaxed);
            if now < HUGE_FROM / 4 && self.huge_end.load(Ordering::Relaxed) > 0 {
                let _space = self.space.lock();
                self.shrink_huge(now);
            }
        }
        bytes
    }

    /// The words of the bitmap that `pages` lie in, each with the bits that are meant.
    fn words(pages: Range<usize>) -> impl Iterator<Item = (usize, u64)> {
        let end = if pages.is_empty() { 0 } else { pages.end.div_ceil(64) };
        (pages.start / 64..end).map(move |w| {
            let (from, to) = (pages.start.max(w * 64) - w * 64, pages.end.min(w * 64 + 64) - w * 64);
            (w, (u64::MAX >> (64 - (to - from))) << from)
        })
    }

    /// Pages of block `i`, from its start, behind which nothing has been committed since all of it was
    /// discarded last, so that they read as zeros. All of them in arenas that are not committed by spans.
    pub fn pages_in_use(&self, i: usize) -> usize {
        const EACH: usize = CHUNK / PAGE;
        let word = self.tables.page_word(i * EACH / 64).load(Ordering::Relaxed);
        let bits = (word >> (i * EACH % 64)) as u16;
        if bits == 0 { EACH } else { EACH - bits.leading_zeros() as usize }
    }

    /// How many of the pages are committed.
    fn count(&self, pages: Range<usize>) -> usize {
        Self::words(pages)
            .map(|(w, bits)| (self.tables.page_word(w).load(Ordering::Relaxed) & bits).count_ones() as usize)
            .sum()
    }

    /// Marks the pages as committed or not, and counts those that were not so before.
    fn mark(&self, pages: Range<usize>, committed: bool) {
        for (w, bits) in Self::words(pages) {
            let word = self.tables.page_word(w);
            let mut changed = match committed {
                true => bits & !word.fetch_or(bits, Ordering::Relaxed),
                false => bits & word.fetch_and(!bits, Ordering::Relaxed),
            };
            while changed != 0 {
                let first = changed.trailing_zeros();
                let count = (changed >> first).trailing_ones();
                let (start, bytes) = ((w * 64 + first as usize) * PAGE, count as usize * PAGE);
                match committed {
                    true => self.commit(start, bytes),
                    false => self.forget(start, bytes),
                }
                changed &= u64::MAX.checked_shl(first + count).unwrap_or(0);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pager::PagerError;
    use crate::{Arena, ArenaOptions, ArenaSet};
    use proptest::prelude::*;
    use std::time::{Duration, Instant};

    #[derive(Debug, Clone)]
    enum Step {
        /// Commit pages of a block, and write to those that are new or leave them.
        Commit(usize, Range<usize>, bool),
        Decommit(usize),
        Write(usize, usize),
        Evict,
        Restore,
    }

    fn step() -> impl Strategy<Value = Step> {
        let block = 0usize..2;
        prop_oneof![
            3 => (block.clone(), 0usize..16, 1usize..17, any::<bool>())
                .prop_map(|(i, from, n, write)| Step::Commit(i, from..(from + n).min(16), write)),
            2 => block.clone().prop_map(Step::Decommit),
            2 => (block, 0usize..16).prop_map(|(i, p)| Step::Write(i, p)),
            2 => Just(Step::Evict),
            2 => Just(Step::Restore),
        ]
    }

    /// Other tests' threads block their signals for a moment, where they start a program on a busy machine
    /// for longer than the pager waits for them.
    fn patiently<T>(move_it: impl Fn() -> Result<T, PagerError>) -> T {
        let begin = Instant::now();
        loop {
            match move_it() {
                Err(PagerError::ThreadsBusy { .. }) if begin.elapsed() < Duration::from_secs(60) => {}
                moved => return moved.unwrap(),
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

        /// What is committed anew reads as zeros, and what was written as what was written, however far the
        /// blocks were in use before, here and in the file.
        #[test]
        fn spans_hold_what_was_written(steps in prop::collection::vec(step(), 1..60)) {
            let set: &'static ArenaSet = Box::leak(Box::new(ArenaSet::new()));
            let arena = Arena::new_in(&ArenaOptions { reserve: 8 << 20, ..ArenaOptions::default() }, set).unwrap();
            let inner = arena.inner();
            // The first byte of each page, if it is committed.
            let mut model = [[None::<u8>; 16]; 2];
            let at = |i: usize, p: usize| (inner.base + i * CHUNK + p * PAGE) as *mut u8;
            let mut stamp = 0u8;
            let mut put = |byte: &mut Option<u8>, i, p| {
                if let Some(byte) = byte {
                    stamp = stamp.wrapping_add(1).max(1);
                    *byte = stamp;
                    // SAFETY: a committed page of the arena.
                    unsafe { at(i, p).write_volatile(stamp) };
                }
            };
            for step in steps {
                match step {
                    Step::Commit(i, pages, write) => {
                        let (start, len) = (i * CHUNK + pages.start * PAGE, pages.len() * PAGE);
                        prop_assert!(inner.commit_span(start, len, |_| true));
                        for p in pages.filter(|&p| model[i][p].is_none()).collect::<Vec<_>>() {
                            model[i][p] = Some(0);
                            if write {
                                put(&mut model[i][p], i, p);
                            }
                        }
                    }
                    Step::Decommit(i) => {
                        inner.decommit_span(i * CHUNK, CHUNK);
                        model[i] = [None; 16];
                    }
                    Step::Write(i, p) => put(&mut model[i][p], i, p),
                    // SAFETY: only this thread has this memory.
                    Step::Evict => drop(patiently(|| unsafe { set.evict() })),
                    // SAFETY: as above.
                    Step::Restore => drop(patiently(|| unsafe { set.restore() })),
                }
                for (i, pages) in model.iter().enumerate() {
                    for (p, byte) in pages.iter().enumerate() {
                        // SAFETY: a page of the arena.
                        let is = unsafe { at(i, p).read_volatile() };
                        prop_assert!(byte.is_none_or(|byte| byte == is), "page {p} of block {i}: {is}, not {byte:?}");
                    }
                }
            }
            // SAFETY: as above.
            patiently(|| unsafe { set.restore() });
        }
    }

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
