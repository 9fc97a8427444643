//! Arenas: one large range of addresses each, with a scratch file beside it.
//!
//! Page *i* of an arena always belongs to page *i* of its file. Space is handed out in runs of 64 KiB chunks,
//! charged by the 4 KiB page. **A free chunk always reads as zeros**, so a fresh run needs no clearing; what
//! is freed is discarded at once ([`discard`]), or under the evicted mapping punched out of the file.
//!
//! What belongs to whom: `map`, `hint` and `run_pages` to allocation, under `space`; `blocks`, `sums`,
//! `store` and what says where a granule is (`residency`) to the pager, with other threads parked. The pager
//! reads `top` and nothing else of the allocator's, so a thread may be parked in the middle of an allocation.
//! The one word that allocation writes into the pager's tables is a block's state, by compare-and-swap, in
//! [`discard`].

mod discard;
mod handle;
mod pages;
mod residency;
mod runs;
mod spans;
mod stats;
mod tables;

pub use handle::{Arena, ArenaError, ArenaOptions, DEFAULT_RESERVE, HugePolicy};
pub use stats::ArenaStats;

use crate::lock::Lock;
use crate::set::ArenaSet;
use crate::store::{Backing, Store, StoreKind};
use crate::sys::{self, CHUNK, Errno, GRANULE, PAGE};
use crate::tracker::TrackerKind;
use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicI32, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use tables::Tables;

/// The file's block is a hole; content, when not present, is zero.
pub(crate) const HOLE: u8 = 0;
/// The file's block holds what `sums` says.
pub(crate) const STORED: u8 = 1;
/// The file's block holds bytes that mean nothing any more; content, when not present, is zero.
pub(crate) const STALE: u8 = 2;

/// Bytes in use from which on an arena asks for huge pages, so that an idle process stays small.
const HUGE_FROM: usize = 8 << 20;

pub(crate) use residency::out_bytes;

/// What an arena is made of; lies in a mapping of its own, outside every arena.
pub(crate) struct Inner {
    pub base: usize,
    /// Chunks reserved.
    pub chunks: usize,
    tables: Tables,
    space: Lock<runs::Space>,
    /// Chunks below were handed out at some time.
    pub top: AtomicUsize,
    /// Bytes committed in this arena.
    pub committed: AtomicUsize,
    /// Of `committed`, what was not in RAM when the pager last looked, and has not been freed since.
    out: AtomicUsize,
    /// Granules mapped from the file.
    out_granules: AtomicUsize,
    /// Of those, the packed ones.
    packed_out: AtomicUsize,
    /// Counts changes of the mapping, see [`discard`].
    pub epoch: AtomicU32,
    /// Bytes below are marked for huge pages.
    pub huge_end: AtomicUsize,
    huge: HugePolicy,
    pub tracker: TrackerKind,
    store_kind: StoreKind,
    store: UnsafeCell<Option<Backing>>,
    /// The process whose scratch file it is; a child of fork must not write its parent's.
    owner: AtomicI32,
    /// What moving it has cost. Written by the pager only.
    pub totals: stats::Totals,
    set: &'static ArenaSet,
    slot: AtomicUsize,
    refs: AtomicUsize,
}

impl Inner {
    pub fn len(&self) -> usize {
        self.chunks * CHUNK
    }

    /// Bytes from the base that may hold anything, in whole granules.
    pub fn extent(&self) -> usize {
        sys::round_up(self.top.load(Ordering::Acquire) * CHUNK, GRANULE)
    }

    pub fn holds(&self, address: usize) -> bool {
        address.wrapping_sub(self.base) < self.len()
    }

    /// The state of file block `i`.
    pub fn block(&self, i: usize) -> &AtomicU8 {
        self.tables.block(i)
    }

    /// Pages of block `i`, from its start, behind which the file has zeros, while it is [`STORED`]. Pager
    /// only.
    pub fn stored_pages(&self, i: usize) -> usize {
        self.tables.stored(i).load(Ordering::Relaxed) as usize
    }

    pub fn set_stored_pages(&self, i: usize, pages: usize) {
        self.tables.stored(i).store(pages as u8, Ordering::Relaxed);
    }

    /// What the program said of granule `g`, see [`advised`](Self::advised).
    pub fn advice(&self, g: usize) -> &AtomicU8 {
        self.tables.advice(g)
    }

    /// What the tracker knows of the blocks of granule `g`.
    pub fn track(&self, g: usize) -> &AtomicU64 {
        self.tables.track(g)
    }

    /// The checksum of what the file holds at block `i`, valid while it is [`STORED`]. Pager only.
    pub fn sum(&self, i: usize) -> u128 {
        // SAFETY: only the thread that holds the pager's lock touches checksums.
        unsafe { *self.tables.sum(i) }
    }

    pub fn set_sum(&self, i: usize, sum: u128) {
        // SAFETY: only the thread that holds the pager's lock touches checksums.
        unsafe { *self.tables.sum(i) = sum };
    }

    /// The store, if one was opened. It stays until the arena goes, or until the pager of a forked child
    /// drops it.
    pub fn store(&self) -> Option<&dyn Store> {
        // SAFETY: written by the pager with other threads parked, and before anything is noted as out;
        // other threads look only when something is.
        unsafe { (*self.store.get()).as_ref() }.map(Backing::as_store)
    }

    /// Opens the scratch file at the first evict. Pager only.
    pub fn open_store(&self) -> Result<&dyn Store, Errno> {
        // SAFETY: getpid has no preconditions.
        let me = unsafe { libc::getpid() };
        if self.store().is_none() || self.owner.load(Ordering::Relaxed) != me {
            if self.is_evicted() {
                // A child of a process that forked while evicted: its only copy is the parent's file.
                return Err(Errno(libc::ECHILD));
            }
            let fresh = Backing::open(self.store_kind)?;
            for i in 0..self.extent() / CHUNK {
                // Nothing of the old file, if there was one, is of use: no writes to untouched table pages.
                if self.block(i).load(Ordering::Relaxed) != HOLE {
                    self.block(i).store(HOLE, Ordering::Relaxed);
                }
            }
            (0..self.granules()).for_each(|g| self.set_packed_form(g, false));
            // What was in step with the old file is not with this one.
            self.tracker.tracker().note(self, 0, self.extent());
            // SAFETY: other threads are parked and nothing is mapped from the old store.
            unsafe { *self.store.get() = Some(fresh) };
            self.owner.store(me, Ordering::Relaxed);
        }
        self.store().ok_or(Errno(libc::EBADF))
    }

    /// The range for huge pages grows with the arena, once `in_use` bytes are worth it; called before new
    /// memory is touched.
    fn grow_huge(&self, top_bytes: usize, in_use: usize) {
        let from = match self.huge {
            HugePolicy::Never => return,
            HugePolicy::Always => 0,
            HugePolicy::Auto => HUGE_FROM,
        };
        let end = top_bytes / GRANULE * GRANULE;
        let start = self.huge_end.load(Ordering::Relaxed);
        if end > start && in_use > from {
            // A kernel without huge pages refuses; small ones do.
            let _ = sys::advise(self.base + start, end - start, libc::MADV_HUGEPAGE);
            self.huge_end.store(end, Ordering::Relaxed);
        }
    }

    /// Small again after all: what is touched from now on is not taken in huge pages. Those that are there
    /// stay.
    fn shrink_huge(&self, in_use: usize) {
        let end = self.huge_end.load(Ordering::Relaxed);
        if end > 0 && in_use < HUGE_FROM / 4 && self.huge == HugePolicy::Auto {
            let _ = sys::advise(self.base, end, libc::MADV_NOHUGEPAGE);
            self.huge_end.store(0, Ordering::Relaxed);
        }
    }

    /// Whether granule `g` is to come back as a huge page: where much of it is not in use, that would take
    /// RAM that nobody has counted.
    pub fn is_huge(&self, g: usize) -> bool {
        const MOST: usize = GRANULE / 8 * 7;
        (g + 1) * GRANULE <= self.huge_end.load(Ordering::Relaxed) && self.held(g) as usize * PAGE >= MOST
    }

    /// Raises the high-water mark to `chunk`, before anything below it is touched. Under the lock of `space`.
    fn raise_top(&self, chunk: usize, in_use: usize) {
        if chunk > self.top.load(Ordering::Relaxed) {
            self.grow_huge(chunk * CHUNK, in_use);
            self.top.store(chunk, Ordering::Release);
        }
    }

    /// Takes or lets go of the lock of allocation around a fork, so that no other thread holds it then.
    ///
    /// # Safety
    /// Let go only by the thread that took it, or in its child.
    pub unsafe fn hold_space(&self, hold: bool) {
        // SAFETY: the caller's.
        unsafe { self.space.hold_or_let_go(hold) };
    }
}

/// Pages that `bytes` take, as bytes.
pub(crate) fn charged(bytes: usize) -> usize {
    sys::round_up(bytes, PAGE)
}
