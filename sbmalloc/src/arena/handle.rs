//! Making, sharing and ending arenas.

use super::tables::Tables;
use super::{Inner, runs};
use crate::config;
use crate::lock::Lock;
use crate::pager;
use crate::set::{ArenaSet, PROCESS};
use crate::store::StoreKind;
use crate::sys::{self, CHUNK, Errno, GRANULE};
use crate::tracker::TrackerKind;
use std::cell::UnsafeCell;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicUsize, Ordering, fence};

/// Address space an arena reserves unless told otherwise. It costs nothing until used.
pub const DEFAULT_RESERVE: usize = 64 << 30;
/// Less than this is not worth having; reserving gives up below it.
const LEAST_RESERVE: usize = 64 << 20;

/// Why an arena could not be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ArenaError {
    /// Not even a small range of addresses was granted (`RLIMIT_AS`, strict overcommit).
    #[error("no address space for an arena: {0}")]
    NoAddressSpace(Errno),
    /// The tracker could not be set up.
    #[error("cannot set up the tracker: {0}")]
    Tracker(Errno),
    /// The set holds [`MAX_ARENAS`](crate::MAX_ARENAS) already.
    #[error("too many arenas")]
    TooMany,
}

/// When an arena asks for huge pages.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum HugePolicy {
    /// For whole 2 MiB granules, once the arena has grown beyond 8 MiB.
    #[default]
    Auto,
    /// For whole granules from the first.
    Always,
    /// Not at all.
    Never,
}

/// How to make an [`Arena`].
#[derive(Debug, Clone, Copy)]
pub struct ArenaOptions {
    /// Bytes of address space; halved and retried while the kernel refuses.
    pub reserve: usize,
    /// How writes are noticed; `None` for what [`configure`](crate::configure) said.
    pub tracker: Option<TrackerKind>,
    /// Where evicted blocks go; `None` for what [`configure`](crate::configure) said.
    pub store: Option<StoreKind>,
    /// Huge pages.
    pub huge: HugePolicy,
}

impl Default for ArenaOptions {
    fn default() -> Self {
        Self { reserve: DEFAULT_RESERVE, tracker: None, store: None, huge: HugePolicy::Auto }
    }
}

impl Inner {
    /// Reserves an arena and enters it into `set`. Uses no heap.
    pub(crate) fn create(
        options: &ArenaOptions,
        set: &'static ArenaSet,
    ) -> Result<NonNull<Self>, ArenaError> {
        let mut len = sys::round_up(options.reserve.max(GRANULE), GRANULE);
        let (base, tables) = loop {
            let made = sys::map_anon_aligned(len, GRANULE).and_then(|base| {
                Tables::map(len / CHUNK).map(|t| (base, t)).inspect_err(|_| sys::unmap(base, len))
            });
            match made {
                Ok(made) => break made,
                Err(e) if len / 2 < LEAST_RESERVE => return Err(ArenaError::NoAddressSpace(e)),
                Err(_) => len = sys::round_up(len / 2, GRANULE),
            }
        };
        // Done when the crate was loaded, but where a linker left that out.
        crate::fork::install();
        // A heap of idle arenas under "always" huge pages would cost 2 MiB each at the first touch.
        let _ = sys::advise(base, len, libc::MADV_NOHUGEPAGE);
        let home = tables.home();
        let tracker = options.tracker.unwrap_or_else(config::default_tracker);
        let inner = Self {
            base,
            chunks: len / CHUNK,
            tables,
            space: Lock::new(runs::Space::new()),
            top: AtomicUsize::new(0),
            committed: AtomicUsize::new(0),
            out: AtomicUsize::new(0),
            out_granules: AtomicUsize::new(0),
            packed_out: AtomicUsize::new(0),
            epoch: AtomicU32::new(0),
            huge_end: AtomicUsize::new(0),
            huge: options.huge,
            tracker,
            store_kind: options.store.unwrap_or_else(config::default_store),
            store: UnsafeCell::new(None),
            owner: AtomicI32::new(0),
            totals: Default::default(),
            set,
            slot: AtomicUsize::new(0),
            refs: AtomicUsize::new(1),
        };
        // SAFETY: `home` is the start of a fresh mapping with room for it.
        let inner = unsafe {
            home.write(inner);
            &*home
        };
        let entered = tracker
            .tracker()
            .attach(inner)
            .map_err(ArenaError::Tracker)
            .and_then(|()| set.enter(home).map_err(|_| ArenaError::TooMany));
        match entered {
            Ok(slot) => inner.slot.store(slot, Ordering::Relaxed),
            Err(e) => {
                // SAFETY: nobody else knows of it yet.
                unsafe { Self::unmap(home) };
                return Err(e);
            }
        }
        Ok(NonNull::from(inner))
    }

    /// Unmaps the arena and its tables.
    ///
    /// # Safety
    /// Nobody refers to either, and no set knows the arena.
    unsafe fn unmap(this: *mut Self) {
        // SAFETY: this function's contract; the tables, which hold `this`, go last.
        unsafe {
            let (base, len) = ((*this).base, (*this).len());
            let tables = (*this).tables.mapping();
            std::ptr::drop_in_place(this);
            sys::unmap(base, len);
            sys::unmap(tables.0, tables.1);
        }
    }
}

/// An explicit arena: runs of memory with their own tracker, store and scratch file.
///
/// A handle: clones refer to the same arena, which goes with the last of them. Everything allocated takes
/// whole 64 KiB chunks of address space and is charged by the 4 KiB page: for large things, not small ones.
///
/// ```
/// use sbmalloc::{Arena, ArenaOptions, SbVec, TrackerKind};
/// // All of it is written between two moves: checksums are the cheapest tracker then.
/// let options = ArenaOptions { tracker: Some(TrackerKind::Hash), ..ArenaOptions::default() };
/// let arena = Arena::new(&options)?;
/// let mut table = SbVec::new_in(&arena);
/// table.resize(1 << 20, 0u64);
/// assert_eq!(arena.held_bytes(), 8 << 20);
/// # Ok::<(), sbmalloc::ArenaError>(())
/// ```
pub struct Arena(NonNull<Inner>);

// SAFETY: an arena's state is atomics, locks, and fields the pager alone changes with other threads parked.
unsafe impl Send for Arena {}
// SAFETY: as above.
unsafe impl Sync for Arena {}

impl Arena {
    /// Makes an arena that moves with the process.
    ///
    /// # Errors
    /// See [`ArenaError`].
    pub fn new(options: &ArenaOptions) -> Result<Self, ArenaError> {
        Self::new_in(options, &PROCESS)
    }

    /// Makes an arena that moves with `set`.
    ///
    /// # Errors
    /// See [`ArenaError`].
    pub fn new_in(options: &ArenaOptions, set: &'static ArenaSet) -> Result<Self, ArenaError> {
        Inner::create(options, set).map(Self)
    }

    pub(crate) fn inner(&self) -> &Inner {
        // SAFETY: the handle keeps it alive.
        unsafe { self.0.as_ref() }
    }

    /// Memory for `bytes` bytes at a multiple of `align`, reading as zeros; `None` if the account or the
    /// reservation refuses.
    pub fn alloc(&self, bytes: usize, align: usize) -> Option<NonNull<u8>> {
        self.inner().alloc_run(bytes, align).and_then(|at| NonNull::new(at as *mut u8))
    }

    /// Gives back what [`alloc`](Self::alloc) returned.
    ///
    /// # Safety
    /// `at` came from this arena, was not freed before, and nothing refers to it.
    pub unsafe fn free(&self, at: NonNull<u8>) {
        self.inner().free_run(at.as_ptr() as usize);
    }

    /// Makes what [`alloc`](Self::alloc) returned `bytes` long where it lies; false, with nothing changed,
    /// if that cannot be.
    ///
    /// # Safety
    /// `at` came from this arena and was not freed; nothing refers to what is cut off.
    pub unsafe fn resize(&self, at: NonNull<u8>, bytes: usize) -> bool {
        self.inner().resize_run(at.as_ptr() as usize, bytes)
    }

    /// Bytes committed in this arena, in RAM or out.
    pub fn held_bytes(&self) -> usize {
        self.inner().committed.load(Ordering::Relaxed)
    }

    /// Bytes of address space reserved.
    pub fn reserved_bytes(&self) -> usize {
        self.inner().len()
    }

    /// Whether an address lies in this arena.
    pub fn contains(&self, address: *const u8) -> bool {
        self.inner().holds(address as usize)
    }
}

impl Clone for Arena {
    fn clone(&self) -> Self {
        self.inner().refs.fetch_add(1, Ordering::Relaxed);
        Self(self.0)
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        if self.inner().refs.fetch_sub(1, Ordering::Release) != 1 {
            return;
        }
        fence(Ordering::Acquire);
        let inner = self.inner();
        let left = inner.committed.load(Ordering::Relaxed);
        {
            // A pager at work in another thread has this arena in hand.
            let _pager = pager::exclude();
            inner.set.leave(inner.slot.load(Ordering::Relaxed));
        }
        inner.leave_out();
        // SAFETY: this was the last handle, and the set does not know it any more.
        unsafe { Inner::unmap(self.0.as_ptr()) };
        // What was leaked in it goes with it.
        crate::account::uncharge(left);
    }
}
