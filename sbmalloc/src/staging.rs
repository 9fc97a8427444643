//! Memory that is filled beside and then moved over its place in one step, so that whoever reads the place
//! meanwhile sees the file's bytes or the new ones, never zeros.

use crate::arena::Inner;
use crate::sys::{self, Errno, GRANULE};

/// Private anonymous memory of some granules, not in use yet.
#[derive(Clone, Copy)]
pub(crate) struct Staging {
    base: usize,
    count: usize,
}

impl Staging {
    /// Memory for `count` granules; huge pages if asked.
    pub fn new(count: usize, huge: bool) -> Result<Self, Errno> {
        // The arena's base is a multiple of 2 MiB too: only at the same phase does mremap keep huge pages.
        let base = sys::map_anon_aligned(count * GRANULE, GRANULE)?;
        let advice = if huge { libc::MADV_HUGEPAGE } else { libc::MADV_NOHUGEPAGE };
        // A kernel without huge pages says EINVAL; small ones do.
        let _ = sys::advise(base, count * GRANULE, advice);
        Ok(Self { base, count })
    }

    /// Where granule `k` of it lies.
    pub fn at(&self, k: usize) -> usize {
        self.base + k * GRANULE
    }

    /// Moves granules `first..first + count` of it over those of the arena from `g` on. On failure both are
    /// as before.
    pub fn publish(&self, first: usize, arena: &Inner, g: usize, count: usize) -> Result<(), Errno> {
        sys::move_over(self.at(first), arena.base + g * GRANULE, count * GRANULE)
    }

    /// Gives the granules from `first` on back unused.
    pub fn abandon(&self, first: usize) {
        sys::unmap(self.at(first), (self.count - first) * GRANULE);
    }
}
