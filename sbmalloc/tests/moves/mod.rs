//! Moving memory of a test out and in. The one place where tests and benchmarks answer for it.

use sbmalloc::ArenaSet;
use sbmalloc::pager::{Moved, PagerError};

/// What the methods of a set do that are unsafe.
#[allow(dead_code, reason = "shared; no test needs all of it")]
pub trait Moves {
    /// [`ArenaSet::evict`]
    fn page_out(self) -> Result<Moved, PagerError>;
    /// [`ArenaSet::evict_to`]
    fn page_out_to(
        self,
        target: usize,
        site: u64,
        progress: &mut dyn FnMut(usize),
    ) -> Result<Moved, PagerError>;
    /// [`ArenaSet::restore`]
    fn page_in(self) -> Result<Moved, PagerError>;
    /// [`ArenaSet::restore_for`]
    fn page_in_for(
        self,
        site: u64,
        limit: &mut dyn FnMut(usize) -> usize,
    ) -> Result<(Moved, bool), PagerError>;
}

// SAFETY (of all four): only threads of the test write to memory of its arenas. No test begins a transfer that no thread waits for, shares
// its address space with a process, or has its stack in an arena; and what is told of progress is kept in memory of the system's
// allocator, or on the stack.
impl Moves for &'static ArenaSet {
    fn page_out(self) -> Result<Moved, PagerError> {
        // SAFETY: see above.
        unsafe { self.evict() }
    }

    fn page_out_to(
        self,
        target: usize,
        site: u64,
        progress: &mut dyn FnMut(usize),
    ) -> Result<Moved, PagerError> {
        // SAFETY: see above.
        unsafe { self.evict_to(target, site, progress) }
    }

    fn page_in(self) -> Result<Moved, PagerError> {
        // SAFETY: see above.
        unsafe { self.restore() }
    }

    fn page_in_for(
        self,
        site: u64,
        limit: &mut dyn FnMut(usize) -> usize,
    ) -> Result<(Moved, bool), PagerError> {
        // SAFETY: see above.
        unsafe { self.restore_for(site, limit) }
    }
}
