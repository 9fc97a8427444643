//! The arenas that are evicted and restored together.

use crate::arena::Inner;
use crate::lock::Lock;
use crate::pager::{self, Buffers, Moved, PagerError, Sites};
use crate::sys::Errno;
use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};

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
    /// Of those, the ones that must be restored before they are touched.
    packed: AtomicUsize,
    /// See [`expect_restores`](Self::expect_restores).
    restores_expected: AtomicBool,
    /// Where the process waited; reached with the pager's lock held only.
    sites: UnsafeCell<Sites>,
    /// The set listed before this one, see [`all`].
    next: AtomicPtr<ArenaSet>,
    listed: AtomicBool,
}

// SAFETY: the rest is atomics, and `sites` is reached under the pager's lock only, see `sites()`.
unsafe impl Sync for ArenaSet {}

/// The set listed last.
static SETS: AtomicPtr<ArenaSet> = AtomicPtr::new(std::ptr::null_mut());

/// Held while an arena enters a set.
static LISTING: Lock<()> = Lock::new(());

/// Takes or lets go of the lock under which arenas enter sets, over a fork.
///
/// # Safety
/// As for the lock.
pub(crate) unsafe fn hold(hold: bool) {
    // SAFETY: the caller's.
    unsafe { LISTING.hold_or_let_go(hold) };
}

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
            out: AtomicUsize::new(0),
            packed: AtomicUsize::new(0),
            restores_expected: AtomicBool::new(false),
            sites: UnsafeCell::new(Sites::new()),
        }
    }

    /// [`pager::evict`] for this set.
    ///
    /// # Errors
    /// See [`PagerError`]; what was not given back is resident and intact then.
    ///
    /// # Safety
    /// As for [`pager::evict`], of the arenas of this set.
    ///
    /// ```compile_fail,E0133
    /// sbmalloc::PROCESS.evict().unwrap();
    /// ```
    pub unsafe fn evict(&'static self) -> Result<Moved, PagerError> {
        // SAFETY: the caller's.
        unsafe { pager::evict_set(self) }
    }

    /// [`pager::restore`] for this set.
    ///
    /// # Errors
    /// See [`PagerError`]; what could not be restored is still evicted then, and legal to touch.
    ///
    /// # Safety
    /// As for [`pager::restore`], of the arenas of this set.
    ///
    /// ```compile_fail,E0133
    /// sbmalloc::PROCESS.restore().unwrap();
    /// ```
    pub unsafe fn restore(&'static self) -> Result<Moved, PagerError> {
        // SAFETY: the caller's.
        unsafe { pager::restore_set(self) }
    }

    /// Whether any arena of the set is out, wholly or in part.
    pub fn is_evicted(&self) -> bool {
        self.out.load(Ordering::Acquire) > 0
    }

    /// What [`is_evicted`](Self::is_evicted) looks at: more than 0 while anything is out.
    pub fn out(&self) -> &AtomicUsize {
        &self.out
    }

    /// From now on nobody touches memory of the set between an [`evict_to`](Self::evict_to) and the end of a
    /// restore after which [`is_packed`](Self::is_packed) is false: neither this thread, nor another, nor a
    /// signal's handler, nor the kernel. So what is likely to be used after the wait may be compressed on its
    /// way out, if the [configuration](crate::Config) says so; it cannot be mapped from the file then.
    /// Whoever touches it nevertheless ends the process, with a message.
    pub fn expect_restores(&'static self) {
        self.restores_expected.store(true, Ordering::Release);
    }

    pub(crate) fn are_restores_expected(&self) -> bool {
        self.restores_expected.load(Ordering::Acquire)
    }

    /// Whether anything of the set is out compressed: it must be restored before anything is touched.
    pub fn is_packed(&self) -> bool {
        self.packed.load(Ordering::Acquire) > 0
    }

    /// [`pager::unpack`] for this set.
    ///
    /// # Errors
    /// See [`PagerError`]; what could not be restored must still not be touched.
    pub fn unpack(&'static self) -> Result<Moved, PagerError> {
        pager::unpack_set(self)
    }

    /// [`pager::evict_to`] for this set.
    ///
    /// # Errors
    /// See [`PagerError`]; what was not given back is resident and intact then.
    ///
    /// # Safety
    /// As for [`pager::evict_to`], of the arenas of this set.
    ///
    /// ```compile_fail,E0133
    /// sbmalloc::PROCESS.evict_to(0, 1, &mut |_| {}).unwrap();
    /// ```
    pub unsafe fn evict_to(
        &'static self,
        target: usize,
        site: u64,
        progress: &mut dyn FnMut(usize),
    ) -> Result<Moved, PagerError> {
        // SAFETY: the caller's.
        unsafe { pager::evict_set_to(self, target, Some(site), progress) }
    }

    /// [`pager::restore_for`] for this set.
    ///
    /// # Errors
    /// See [`PagerError`]; what could not be restored is still out then, and legal to touch.
    ///
    /// # Safety
    /// As for [`pager::restore_for`], of the arenas of this set.
    ///
    /// ```compile_fail,E0133
    /// sbmalloc::PROCESS.restore_for(1, &mut |_| usize::MAX).unwrap();
    /// ```
    pub unsafe fn restore_for(
        &'static self,
        site: u64,
        limit: &mut dyn FnMut(usize) -> usize,
    ) -> Result<(Moved, bool), PagerError> {
        // SAFETY: the caller's.
        unsafe { pager::restore_set_for(self, Some(site), limit) }
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

    /// Counts packed granules that went out or came in.
    pub(crate) fn count_packed(&self, by: isize) {
        self.packed.fetch_add(by as usize, Ordering::AcqRel);
    }

    /// Where the process waited.
    pub(crate) fn sites<'a>(&'a self, _pager: &'a mut Buffers) -> &'a mut Sites {
        // SAFETY: there is one `Buffers`, behind the pager's lock, and it stays borrowed as long as the
        // result.
        unsafe { &mut *self.sites.get() }
    }

    fn list(&'static self) {
        if !self.listed.swap(true, Ordering::Relaxed) {
            self.next.store(SETS.load(Ordering::Relaxed), Ordering::Relaxed);
            SETS.store(std::ptr::from_ref(self).cast_mut(), Ordering::Release);
        }
    }

    /// Enters a complete arena; an arena leaves under the pager's lock only.
    pub(crate) fn enter(&'static self, arena: *const Inner) -> Result<usize, Errno> {
        // Over a fork the arenas stay those that they are.
        let _listing = LISTING.lock();
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

    pub(crate) fn arenas(&self) -> impl DoubleEndedIterator<Item = &Inner> {
        let used = self.used.load(Ordering::Acquire);
        (0..used).filter_map(|slot| self.arena(slot))
    }
}

impl Default for ArenaSet {
    fn default() -> Self {
        Self::new()
    }
}
