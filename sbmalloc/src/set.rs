//! The arenas that are evicted and restored together.

use crate::arena::Inner;
use crate::lock::Lock;
use crate::pager::{self, Moved, PagerError};
use crate::sys::Errno;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};

/// Arenas a set may hold at a time.
pub const MAX_ARENAS: usize = 512;

/// A group of arenas that move together. A process has one, [`PROCESS`], that holds the heap and every arena
/// not made for another; more are of use to tests, and to programs that page parts of themselves.
pub struct ArenaSet {
    slots: [AtomicPtr<Inner>; MAX_ARENAS],
    /// Slots below are or were in use.
    used: AtomicUsize,
    /// The set listed before this one, see [`all`].
    next: AtomicPtr<ArenaSet>,
    listed: AtomicBool,
}

/// The set listed last.
static SETS: AtomicPtr<ArenaSet> = AtomicPtr::new(std::ptr::null_mut());

/// Every set that an arena was ever entered into.
pub(crate) fn all() -> impl Iterator<Item = &'static ArenaSet> {
    // SAFETY: only sets that live for ever are listed, and none is ever taken off.
    let at = |next: &AtomicPtr<ArenaSet>| unsafe { next.load(Ordering::Acquire).as_ref() };
    std::iter::successors(at(&SETS), move |set| at(&set.next))
}

/// The arenas of the process: what [`pager::evict`] moves.
pub static PROCESS: ArenaSet = ArenaSet::new();

impl ArenaSet {
    /// An empty set.
    pub const fn new() -> Self {
        Self {
            slots: [const { AtomicPtr::new(std::ptr::null_mut()) }; MAX_ARENAS],
            used: AtomicUsize::new(0),
            next: AtomicPtr::new(std::ptr::null_mut()),
            listed: AtomicBool::new(false),
        }
    }

    /// [`pager::evict`] for this set.
    ///
    /// # Errors
    /// See [`PagerError`]; everything is resident and intact then.
    pub fn evict(&'static self) -> Result<Moved, PagerError> {
        pager::evict_set(self)
    }

    /// [`pager::restore`] for this set.
    ///
    /// # Errors
    /// See [`PagerError`]; what could not be restored is still evicted then, and legal to touch.
    pub fn restore(&'static self) -> Result<Moved, PagerError> {
        pager::restore_set(self)
    }

    /// Whether any arena of the set is out, wholly or in part.
    pub fn is_evicted(&self) -> bool {
        let _pager = pager::exclude();
        self.arenas().any(|a| a.is_evicted())
    }

    fn list(&'static self) {
        static LISTING: Lock<()> = Lock::new(());
        let _listing = LISTING.lock();
        if !self.listed.swap(true, Ordering::Relaxed) {
            self.next.store(SETS.load(Ordering::Relaxed), Ordering::Relaxed);
            SETS.store(std::ptr::from_ref(self).cast_mut(), Ordering::Release);
        }
    }

    /// Enters a complete arena; an arena leaves under the pager's lock only.
    pub(crate) fn enter(&'static self, arena: *const Inner) -> Result<usize, Errno> {
        self.list();
        for (i, slot) in self.slots.iter().enumerate() {
            let arena = arena.cast_mut();
            if slot.compare_exchange(std::ptr::null_mut(), arena, Ordering::AcqRel, Ordering::Relaxed).is_ok()
            {
                self.used.fetch_max(i + 1, Ordering::Release);
                return Ok(i);
            }
        }
        Err(Errno(libc::EMFILE))
    }

    pub(crate) fn leave(&self, slot: usize) {
        self.slots[slot].store(std::ptr::null_mut(), Ordering::Release);
    }

    /// The arena in a slot, as for [`arenas`](Self::arenas).
    pub(crate) fn arena(&self, slot: usize) -> Option<&Inner> {
        // SAFETY: entered arenas are complete, and they are unmapped only after leaving under the
        // pager's lock, which every caller holds.
        unsafe { self.slots[slot].load(Ordering::Acquire).as_ref() }
    }

    pub(crate) fn arenas(&self) -> impl Iterator<Item = &Inner> {
        let used = self.used.load(Ordering::Acquire);
        (0..used).filter_map(|slot| self.arena(slot))
    }
}

impl Default for ArenaSet {
    fn default() -> Self {
        Self::new()
    }
}
