//! Moving memory of a test out and in. The one place where tests and benchmarks answer for it.
//!
//! A move is refused, with nothing changed, while a thread cannot be stopped: one of another test, say, that
//! waits for the disk or, on a busy machine, for a processor. So it is asked again.

use sbmalloc::ArenaSet;
use sbmalloc::pager::{Moved, PagerError};

/// What the methods of a set do that are unsafe.
#[allow(dead_code, reason = "shared; no test needs all of it")]
pub trait Moves {
    /// [`ArenaSet::evict`]; refused at the first thread that cannot be stopped.
    fn page_out_at_once(self) -> Result<Moved, PagerError>;
    /// [`ArenaSet::restore`], likewise.
    fn page_in_at_once(self) -> Result<Moved, PagerError>;
    /// [`ArenaSet::unpack`]
    fn unpacked(self) -> Result<Moved, PagerError>;
    /// [`ArenaSet::verify_touched`]
    fn verified(self) -> Result<(), PagerError>;
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

/// How often it is asked; each time it is tried for up to three seconds.
const TRIES: u32 = 20;

fn patiently<T>(mut ask: impl FnMut() -> Result<T, PagerError>) -> Result<T, PagerError> {
    for _ in 1..TRIES {
        match ask() {
            Err(PagerError::ThreadsBusy { .. }) => std::thread::sleep(std::time::Duration::from_millis(20)),
            answer => return answer,
        }
    }
    ask()
}

// SAFETY (of all): only threads of the test write to memory of its arenas. No test begins a transfer that no
// thread waits for, shares its address space with a process, or has its stack in an arena; and what is told
// of progress is kept in memory of the system's allocator, or on the stack.
impl Moves for &'static ArenaSet {
    fn page_out_at_once(self) -> Result<Moved, PagerError> {
        // SAFETY: see above.
        unsafe { self.evict() }
    }

    fn page_in_at_once(self) -> Result<Moved, PagerError> {
        // SAFETY: see above.
        unsafe { self.restore() }
    }

    fn unpacked(self) -> Result<Moved, PagerError> {
        patiently(|| self.unpack())
    }

    fn verified(self) -> Result<(), PagerError> {
        patiently(|| self.verify_touched())
    }

    fn page_out(self) -> Result<Moved, PagerError> {
        patiently(|| self.page_out_at_once())
    }

    fn page_out_to(
        self,
        target: usize,
        site: u64,
        progress: &mut dyn FnMut(usize),
    ) -> Result<Moved, PagerError> {
        // SAFETY: see above.
        patiently(|| unsafe { self.evict_to(target, site, progress) })
    }

    fn page_in(self) -> Result<Moved, PagerError> {
        patiently(|| self.page_in_at_once())
    }

    fn page_in_for(
        self,
        site: u64,
        limit: &mut dyn FnMut(usize) -> usize,
    ) -> Result<(Moved, bool), PagerError> {
        // SAFETY: see above.
        patiently(|| unsafe { self.restore_for(site, limit) })
    }
}
