//! Pages of the mail file in which no payload lies any more, kept for the next one: to give a page back to
//! the kernel and get a fresh one costs more than to copy what is in it. They stay paid for, so only few are
//! kept, and only while most of the budget is free ([`crate::pool::Pool::may_keep`]); whoever does not find
//! memory gives them back first ([`crate::mail::Mail::give_spares_back`]).

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

/// Fewest pages that are worth keeping.
pub(crate) const FEWEST: u64 = 16;

const PAGES_BITS: u32 = 24;
const SLOTS: usize = 1023;

/// The bag of spare ranges; lies in the segment.
#[repr(C, align(4096))]
pub(crate) struct Spares {
    /// Pages kept. Never less than what lies in the slots.
    pages: AtomicU64,
    /// First page and number of pages of a range, or 0. Whoever takes the word has the range.
    slots: [AtomicU64; SLOTS],
}

/// Pages of the mail file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Range {
    pub first: u64,
    pub pages: u64,
}

impl Range {
    fn to_word(self) -> Option<u64> {
        let fits =
            self.pages >= FEWEST && self.pages < 1 << PAGES_BITS && self.first < 1 << (64 - PAGES_BITS);
        fits.then_some(self.first << PAGES_BITS | self.pages)
    }

    fn from_word(word: u64) -> Self {
        Self { first: word >> PAGES_BITS, pages: word & ((1 << PAGES_BITS) - 1) }
    }
}

impl Spares {
    /// Pages that are kept.
    pub fn pages(&self) -> u64 {
        self.pages.load(SeqCst)
    }

    /// Keep a range. `false`: it is too small or too large, or there are too many.
    pub fn keep(&self, range: Range) -> bool {
        let Some(word) = range.to_word() else { return false };
        self.pages.fetch_add(range.pages, SeqCst);
        let empty = self
            .slots
            .iter()
            .any(|s| s.load(SeqCst) == 0 && s.compare_exchange(0, word, SeqCst, SeqCst).is_ok());
        if !empty {
            self.pages.fetch_sub(range.pages, SeqCst);
        }
        empty
    }

    /// Take the smallest range of at least so many pages.
    pub fn take(&self, pages: u64) -> Option<Range> {
        if pages < FEWEST || self.pages() < pages {
            return None;
        }
        loop {
            // No more lie there than are counted: behind them nothing is looked for.
            let mut left = self.pages();
            let words = self.slots.iter().map_while(|slot| {
                let word = if left > 0 { slot.load(SeqCst) } else { return None };
                left = left.saturating_sub(Range::from_word(word).pages);
                Some((slot, word))
            });
            let words = words.filter(|&(_, word)| word != 0);
            let fits = words.filter(|&(_, word)| Range::from_word(word).pages >= pages);
            let (slot, word) = fits.min_by_key(|&(_, word)| Range::from_word(word).pages)?;
            if slot.compare_exchange(word, 0, SeqCst, SeqCst).is_ok() {
                let range = Range::from_word(word);
                self.pages.fetch_sub(range.pages, SeqCst);
                return Some(range);
            }
        }
    }

    /// Take all, one after the other.
    pub fn take_all(&self) -> impl Iterator<Item = Range> {
        let slots = if self.pages() == 0 { &self.slots[..0] } else { &self.slots[..] };
        slots.iter().filter_map(|slot| match slot.swap(0, SeqCst) {
            0 => None,
            word => {
                let range = Range::from_word(word);
                self.pages.fetch_sub(range.pages, SeqCst);
                Some(range)
            }
        })
    }
}
