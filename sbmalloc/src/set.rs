//! The arenas that are evicted and restored together.

use crate::arena::Inner;
use crate::pager::{self, Buffers, Moved, PagerError, Sites};
use crate::sys::Errno;
use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

/// Arenas a set may hold at a time.
pub const MAX_ARENAS: usize = 512;

/// A group of arenas that move together. A process has one, [`PROCESS`], that holds the heap and every arena
/// not made for another; more are of use to tests, and to programs that page parts of themselves.
pub struct ArenaSet {
    slots: [AtomicPtr<Inner>; MAX_ARENAS],
    /// Slots below are or were in use.
    used: AtomicUsize,
    /// Granules of its arenas that are out.
    out: AtomicUsize,
    /// Where the process waited; reached with the pager's lock held only.
    sites: UnsafeCell<Sites>,
}

// SAFETY: the rest is atomics, and `sites` is reached under the pager's lock only, see `sites()`.
unsafe impl Sync for ArenaSet {}

/// The arenas of the process: what [`pager::evict`] moves.
pub static PROCESS: ArenaSet = ArenaSet::new();

impl ArenaSet {
    /// An empty set.
    pub const fn new() -> Self {
        Self {
            slots: [const { AtomicPtr::new(std::ptr::null_mut()) }; MAX_ARENAS],
            used: AtomicUsize::new(0),
            out: AtomicUsize::new(0),
            sites: UnsafeCell::new(Sites::new()),
        }
    }

    /// [`pager::evict`] for this set.
    ///
    /// # Errors
    /// See [`PagerError`]; what was not given back is resident and intact then.
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
        self.out.load(Ordering::Acquire) > 0
    }

    /// [`pager::evict_to`] for this set.
    ///
    /// # Errors
    /// See [`PagerError`]; what was not given back is resident and intact then.
    pub fn evict_to(
        &'static self,
        target: usize,
        site: u64,
        progress: &mut dyn FnMut(usize),
    ) -> Result<Moved, PagerError> {
        pager::evict_set_to(self, target, Some(site), progress)
    }

    /// [`pager::restore_for`] for this set.
    ///
    /// # Errors
    /// See [`PagerError`]; what could not be restored is still out then, and legal to touch.
    pub fn restore_for(
        &'static self,
        site: u64,
        limit: &mut dyn FnMut(usize) -> usize,
    ) -> Result<(Moved, bool), PagerError> {
        pager::restore_set_for(self, Some(site), limit)
    }

    /// [`pager::in_ram`] for this set.
    pub fn in_ram(&'static self) -> usize {
        let _pager = pager::exclude();
        self.ram()
    }

    /// [`pager::likely`] for this set.
    pub fn likely(&'static self, site: u64) -> usize {
        pager::likely_in_set(self, site)
    }

    /// [`pager::begin_phase`] for this set.
    pub fn begin_phase(&'static self, site: u64) {
        pager::begin_phase_of_set(self, site);
    }

    /// [`pager::verify_touched`] for this set.
    ///
    /// # Errors
    /// See [`PagerError`].
    pub fn verify_touched(&'static self) -> Result<(), PagerError> {
        pager::verify_set(self)
    }

    /// Committed bytes in RAM; the caller holds the pager's lock.
    pub(crate) fn ram(&self) -> usize {
        self.arenas().map(Inner::in_ram).sum()
    }

    /// Committed bytes; the caller holds the pager's lock.
    pub(crate) fn committed(&self) -> usize {
        self.arenas().map(|a| a.committed.load(Ordering::Relaxed)).sum()
    }

    /// Counts granules that went out or came in.
    pub(crate) fn count_out(&self, by: isize) {
        self.out.fetch_add(by as usize, Ordering::AcqRel);
    }

    /// Where the process waited.
    pub(crate) fn sites<'a>(&'a self, _pager: &'a mut Buffers) -> &'a mut Sites {
        // SAFETY: there is one `Buffers`, behind the pager's lock, and it stays borrowed as long as the result.
        unsafe { &mut *self.sites.get() }
    }

    /// Enters a complete arena; an arena leaves under the pager's lock only.
    pub(crate) fn enter(&self, arena: *const Inner) -> Result<usize, Errno> {
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

    pub(crate) fn arenas(&self) -> impl DoubleEndedIterator<Item = &Inner> {
        let used = self.used.load(Ordering::Acquire);
        self.slots[..used].iter().filter_map(|slot| {
            // SAFETY: entered arenas are complete, and they are unmapped only after leaving under the
            // pager's lock, which every caller holds.
            unsafe { slot.load(Ordering::Acquire).as_ref() }
        })
    }
}

impl Default for ArenaSet {
    fn default() -> Self {
        Self::new()
    }
}
