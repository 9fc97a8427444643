//! The side tables of an arena, in a mapping of their own that fills in only where it is used.

use super::Inner;
use crate::pager::SLOTS;
use crate::sys::{self, CHUNK, Errno, GRANULE, PAGE};
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64};

/// Pages of a chunk.
const PAGES: usize = CHUNK / PAGE;

/// Addresses of the tables; all start as zeros.
pub(super) struct Tables {
    at: usize,
    len: usize,
    chunks: usize,
    map: usize,
    run_pages: usize,
    blocks: usize,
    stored: usize,
    advice: usize,
    tracks: usize,
    sums: usize,
    forms: usize,
    packed: usize,
    notes: usize,
    held: usize,
    away: usize,
    checked: usize,
    history: usize,
    pages: usize,
}

impl Tables {
    /// Maps tables for `chunks` chunks, with room for the arena's own structure in front.
    pub fn map(chunks: usize) -> Result<Self, Errno> {
        let (mut len, count) = (sys::round_up(size_of::<Inner>(), PAGE), (chunks * CHUNK).div_ceil(GRANULE));
        let mut table = |bytes: usize| {
            let at = len;
            len += sys::round_up(bytes, PAGE);
            at
        };
        // What is written to before anything is evicted lies close together: each 2 MiB apart take a page of
        // page table.
        let map = table(chunks.div_ceil(64) * 8);
        let held = table(count * 2);
        let away = table(count * 2);
        let notes = table(count);
        let advice = table(count);
        let tracks = table(count * 8);
        let forms = table(count);
        let checked = table(count * 4);
        let pages = table((chunks * PAGES).div_ceil(64) * 8);
        let run_pages = table(chunks * 4);
        let blocks = table(chunks);
        let stored = table(chunks);
        let history = table(SLOTS * sys::round_up(count, PAGE));
        let packed = table(chunks * 4);
        let sums = table(chunks * 16);
        let at = sys::map_anon_aligned(len, PAGE)?;
        Ok(Self {
            at,
            len,
            chunks,
            map: at + map,
            run_pages: at + run_pages,
            blocks: at + blocks,
            stored: at + stored,
            advice: at + advice,
            tracks: at + tracks,
            sums: at + sums,
            forms: at + forms,
            packed: at + packed,
            notes: at + notes,
            held: at + held,
            away: at + away,
            checked: at + checked,
            history: at + history,
            pages: at + pages,
        })
    }

    /// Where the arena's structure goes.
    pub fn home(&self) -> *mut Inner {
        self.at as *mut Inner
    }

    /// The mapping, to be unmapped last.
    pub fn mapping(&self) -> (usize, usize) {
        (self.at, self.len)
    }

    pub fn map_word(&self, i: usize) -> &AtomicU64 {
        assert!(i < self.chunks.div_ceil(64));
        // SAFETY: in bounds of a zero-initialised table that lives as long as `self`.
        unsafe { &*(self.map as *const AtomicU64).add(i) }
    }

    /// Word `i` of the bitmap of pages.
    pub fn page_word(&self, i: usize) -> &AtomicU64 {
        assert!(i < (self.chunks * PAGES).div_ceil(64));
        // SAFETY: as above.
        unsafe { &*(self.pages as *const AtomicU64).add(i) }
    }

    pub fn run_pages(&self, i: usize) -> &AtomicU32 {
        assert!(i < self.chunks);
        // SAFETY: as above.
        unsafe { &*(self.run_pages as *const AtomicU32).add(i) }
    }

    pub fn block(&self, i: usize) -> &AtomicU8 {
        assert!(i < self.chunks);
        // SAFETY: as above.
        unsafe { &*(self.blocks as *const AtomicU8).add(i) }
    }

    /// Pages that the file has of block `i`.
    pub fn stored(&self, i: usize) -> &AtomicU8 {
        assert!(i < self.chunks);
        // SAFETY: as above.
        unsafe { &*(self.stored as *const AtomicU8).add(i) }
    }

    fn granules(&self) -> usize {
        (self.chunks * CHUNK).div_ceil(GRANULE)
    }

    /// The pager's notes on granule `i`.
    pub fn note(&self, i: usize) -> &AtomicU8 {
        assert!(i < self.granules());
        // SAFETY: as above.
        unsafe { &*(self.notes as *const AtomicU8).add(i) }
    }

    /// How the file has granule `i`.
    pub fn form(&self, i: usize) -> &AtomicU8 {
        assert!(i < self.granules());
        // SAFETY: as above.
        unsafe { &*(self.forms as *const AtomicU8).add(i) }
    }

    /// What block `i` takes of its packed granule.
    pub fn packed(&self, i: usize) -> &AtomicU32 {
        assert!(i < self.chunks);
        // SAFETY: as above.
        unsafe { &*(self.packed as *const AtomicU32).add(i) }
    }

    /// Pages committed in granule `i`.
    pub fn held(&self, i: usize) -> &AtomicU16 {
        assert!(i < self.granules());
        // SAFETY: as above.
        unsafe { &*(self.held as *const AtomicU16).add(i) }
    }

    /// Of those, the ones not in RAM when the pager last looked.
    pub fn away(&self, i: usize) -> &AtomicU16 {
        assert!(i < self.granules());
        // SAFETY: as above.
        unsafe { &*(self.away as *const AtomicU16).add(i) }
    }

    /// The blocks of granule `i` that were verified since it was mapped from the file, a bit each.
    pub fn checked(&self, i: usize) -> &AtomicU32 {
        assert!(i < self.granules());
        // SAFETY: as above.
        unsafe { &*(self.checked as *const AtomicU32).add(i) }
    }

    /// What is remembered of granule `i` at a slot. By slots, so that those not in use take no memory.
    pub fn history(&self, slot: usize, i: usize) -> &AtomicU8 {
        assert!(slot < SLOTS && i < self.granules());
        let table = self.history + slot * sys::round_up(self.granules(), PAGE);
        // SAFETY: as above.
        unsafe { &*(table as *const AtomicU8).add(i) }
    }

    pub fn advice(&self, i: usize) -> &AtomicU8 {
        assert!(i < self.granules());
        // SAFETY: as above.
        unsafe { &*(self.advice as *const AtomicU8).add(i) }
    }

    pub fn track(&self, i: usize) -> &AtomicU64 {
        assert!(i < self.granules());
        // SAFETY: as above.
        unsafe { &*(self.tracks as *const AtomicU64).add(i) }
    }

    pub fn sum(&self, i: usize) -> *mut u128 {
        assert!(i < self.chunks);
        (self.sums as *mut u128).wrapping_add(i)
    }
}
