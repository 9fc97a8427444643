//! Pages of the mail file in which no payload lies any more, kept for the next one: to give a page back to
//! the kernel and get a fresh one costs more than to copy what is in it. They stay paid for, so only few are
//! kept, and only while most of the budget is free ([`crate::pool::Pool::may_keep`]); whoever does not find
//! memory gives them back first ([`crate::mail::Mail::give_spares_back`]).

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

/// Fewest pages of a range that may be split. Smaller ones are used again for payloads of just as many pages,
/// or of all that is kept soon only crumbs would be left.
const FEWEST: u64 = 16;
/// Most of each such number of pages.
const SMALL_SLOTS: usize = 64;

const PAGES_BITS: u32 = 24;
const SLOTS: usize = 1023;

/// The bag of spare ranges; lies in the segment.
#[repr(C, align(4096))]
pub(crate) struct Spares {
    /// Pages kept. Never less than what lies in the slots.
    pages: AtomicU64,
    /// First page and number of pages of a range, or 0. Whoever takes the word has the range.
    slots: [AtomicU64; SLOTS],
    /// The same of 1, 2, … pages, fewer than those above.
    small: Small,
}

#[repr(C, align(4096))]
struct Small {
    pages: AtomicU64,
    slots: [[AtomicU64; SMALL_SLOTS]; FEWEST as usize - 1],
}

/// Pages of the mail file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Range {
    pub first: u64,
    pub pages: u64,
}

impl Range {
    fn to_word(self) -> Option<u64> {
        let fits = self.pages > 0 && self.pages < 1 << PAGES_BITS && self.first < 1 << (64 - PAGES_BITS);
        fits.then_some(self.first << PAGES_BITS | self.pages)
    }

    fn from_word(word: u64) -> Self {
        Self { first: word >> PAGES_BITS, pages: word & ((1 << PAGES_BITS) - 1) }
    }
}

impl Spares {
    /// Pages that are kept.
    pub fn pages(&self) -> u64 {
        self.pages.load(SeqCst).saturating_add(self.small.pages.load(SeqCst))
    }

    /// Where ranges of so many pages lie, and how many pages do there.
    fn of(&self, pages: u64) -> (&[AtomicU64], &AtomicU64) {
        match self.small.slots.get((pages as usize).wrapping_sub(1)) {
            Some(slots) => (slots, &self.small.pages),
            None => (&self.slots, &self.pages),
        }
    }

    /// Keep a range. `false`: it is too large, or there are too many.
    pub fn keep(&self, range: Range) -> bool {
        let Some(word) = range.to_word() else { return false };
        let (slots, pages) = self.of(range.pages);
        pages.fetch_add(range.pages, SeqCst);
        let kept =
            slots.iter().any(|s| s.load(SeqCst) == 0 && s.compare_exchange(0, word, SeqCst, SeqCst).is_ok());
        if !kept {
            pages.fetch_sub(range.pages, SeqCst);
        }
        kept
    }

    /// Take the smallest range of at least so many pages, or of just so many.
    pub fn take(&self, pages: u64) -> Option<Range> {
        let (slots, kept) = self.of(pages);
        if pages == 0 || kept.load(SeqCst) < pages {
            return None;
        }
        let is_small = pages < FEWEST;
        let fits = |range: Range| if is_small { range.pages == pages } else { range.pages >= pages };
        loop {
            // No more lie there than are counted: behind them nothing is looked for.
            let mut left = kept.load(SeqCst);
            let words = slots.iter().map_while(|slot| {
                let word = if left > 0 { slot.load(SeqCst) } else { return None };
                left = left.saturating_sub(Range::from_word(word).pages);
                Some((slot, word))
            });
            let mut words = words.filter(|&(_, word)| word != 0 && fits(Range::from_word(word)));
            let (slot, word) = match is_small {
                true => words.next()?,
                false => words.min_by_key(|&(_, word)| Range::from_word(word).pages)?,
            };
            if slot.compare_exchange(word, 0, SeqCst, SeqCst).is_ok() {
                let range = Range::from_word(word);
                kept.fetch_sub(range.pages, SeqCst);
                return Some(range);
            }
        }
    }

    /// Take all, one after the other.
    pub fn take_all(&self) -> impl Iterator<Item = Range> {
        fn all<'a>(slots: &'a [AtomicU64], pages: &AtomicU64) -> &'a [AtomicU64] {
            if pages.load(SeqCst) == 0 { &[] } else { slots }
        }
        let large = all(&self.slots[..], &self.pages).iter().map(|slot| (slot, &self.pages));
        let small = all(self.small.slots.as_flattened(), &self.small.pages);
        let small = small.iter().map(|slot| (slot, &self.small.pages));
        large.chain(small).filter_map(|(slot, pages)| match slot.swap(0, SeqCst) {
            0 => None,
            word => {
                let range = Range::from_word(word);
                pages.fetch_sub(range.pages, SeqCst);
                Some(range)
            }
        })
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::segment::Segment;

    fn range(first: u64, pages: u64) -> Range {
        Range { first, pages }
    }

    #[test]
    fn small_ones_are_used_again_as_they_are_and_large_ones_are_split() {
        let segment = Segment::create(2, 1 << 30, 1 << 20, 2).unwrap();
        let spares = segment.spares();
        for (first, pages) in [(0, 1), (1, 3), (10, 3), (100, 16), (200, 40)] {
            assert!(spares.keep(range(first, pages)));
        }
        assert_eq!(spares.pages(), 63);
        assert!(!spares.keep(range(300, 0)) && !spares.keep(range(300, 1 << PAGES_BITS)));
        assert_eq!((spares.take(0), spares.take(2), spares.take(15)), (None, None, None));
        assert_eq!((spares.take(3), spares.take(1)), (Some(range(1, 3)), Some(range(0, 1))));
        assert_eq!((spares.take(1), spares.take(41)), (None, None));
        assert_eq!((spares.take(16), spares.take(16)), (Some(range(100, 16)), Some(range(200, 40))));
        assert_eq!((spares.take(16), spares.pages()), (None, 3));
        assert!(spares.keep(range(7, 20)));
        assert_eq!(spares.take_all().collect::<Vec<_>>(), [range(7, 20), range(10, 3)]);
        assert_eq!((spares.take_all().count(), spares.pages()), (0, 0));
    }

    #[test]
    fn so_many_of_a_size_are_kept() {
        let segment = Segment::create(2, 1 << 30, 1 << 20, 2).unwrap();
        let spares = segment.spares();
        let kept = (0..200).filter(|&nth| spares.keep(range(2 * nth, 2))).count();
        assert_eq!((kept, spares.pages()), (SMALL_SLOTS, 2 * SMALL_SLOTS as u64));
        assert_eq!(spares.take_all().map(|range| range.pages).sum::<u64>(), 2 * SMALL_SLOTS as u64);
    }

    /// Whatever another process wrote there.
    #[test]
    fn a_damaged_word_is_no_range_of_another_size() {
        let segment = Segment::create(2, 1 << 30, 1 << 20, 2).unwrap();
        let spares = segment.spares();
        assert!(spares.keep(range(4, 2)));
        spares.small.slots[1][0].store(9 << PAGES_BITS | 1, SeqCst);
        assert_eq!(spares.take(2), None);
    }
}
