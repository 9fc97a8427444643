//! The side tables of an arena, in a mapping of their own that fills in only where it is used.

use super::Inner;
use crate::sys::{self, CHUNK, Errno, GRANULE, PAGE};
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64};

/// Addresses of the tables; all start as zeros.
pub(super) struct Tables {
    at: usize,
    len: usize,
    chunks: usize,
    map: usize,
    run_pages: usize,
    blocks: usize,
    granules: usize,
    tracks: usize,
    sums: usize,
}

impl Tables {
    /// Maps tables for `chunks` chunks, with room for the arena's own structure in front.
    pub fn map(chunks: usize) -> Result<Self, Errno> {
        let page = |n| sys::round_up(n, PAGE);
        let map = page(size_of::<Inner>());
        let run_pages = map + page(chunks.div_ceil(64) * 8);
        let blocks = run_pages + page(chunks * 4);
        let granules = blocks + page(chunks);
        let tracks = granules + page((chunks * CHUNK).div_ceil(GRANULE));
        let sums = tracks + page((chunks * CHUNK).div_ceil(GRANULE) * 8);
        let len = sums + page(chunks * 16);
        let at = sys::map_anon_aligned(len, PAGE)?;
        Ok(Self {
            at,
            len,
            chunks,
            map: at + map,
            run_pages: at + run_pages,
            blocks: at + blocks,
            granules: at + granules,
            tracks: at + tracks,
            sums: at + sums,
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

    pub fn granule(&self, i: usize) -> &AtomicU8 {
        assert!(i < (self.chunks * CHUNK).div_ceil(GRANULE));
        // SAFETY: as above.
        unsafe { &*(self.granules as *const AtomicU8).add(i) }
    }

    pub fn track(&self, i: usize) -> &AtomicU64 {
        assert!(i < (self.chunks * CHUNK).div_ceil(GRANULE));
        // SAFETY: as above.
        unsafe { &*(self.tracks as *const AtomicU64).add(i) }
    }

    pub fn sum(&self, i: usize) -> *mut u128 {
        assert!(i < self.chunks);
        (self.sums as *mut u128).wrapping_add(i)
    }
}
