//! The executor for the own process: the calling thread moves the memory, all others are parked.

use super::pagemap::{Pagemap, WINDOW, Window};
use super::{Moved, PagerError, plan};
use crate::arena::{Inner, STALE, STORED};
use crate::config;
use crate::lock::{Guard, Lock};
use crate::protection::Lifted;
use crate::set::ArenaSet;
use crate::store::{Queue, Store};
use crate::sys::{self, CHUNK, Errno, GRANULE};
use crate::threads::{self, Masked, Parked};
use std::ops::Range;
use std::sync::atomic::Ordering;

/// What a session works with, in static memory.
pub(crate) struct Buffers {
    pub window: Window,
    pub queue: Queue,
}

impl Buffers {
    pub const fn new() -> Self {
        Self { window: [0; WINDOW], queue: Queue::new() }
    }
}

/// The right to move memory: other threads are parked and signals held back while it lives.
/// The fields are dropped in this order.
pub(super) struct Session {
    _lifted: Lifted,
    pub pagemap: Pagemap,
    _parked: Parked,
    _masked: Masked,
    pub buffers: Guard<'static, Buffers>,
}

pub(super) fn block_bytes(arena: &Inner, i: usize) -> &[u8] {
    // SAFETY: the block is inside the arena's reservation and readable; other threads are parked, so nobody
    // writes it while the slice lives.
    unsafe { std::slice::from_raw_parts((arena.base + i * CHUNK) as *const u8, CHUNK) }
}

impl Session {
    pub fn begin(pager: &'static Lock<Buffers>) -> Result<Self, PagerError> {
        // The lock first: whoever waits for it must still take the parking signal.
        let buffers = pager.lock();
        let masked = Masked::new();
        let parked = threads::park_others()?;
        let pagemap = Pagemap::open()?;
        Ok(Self { _lifted: Lifted::new(), pagemap, _parked: parked, _masked: masked, buffers })
    }

    /// Writes everything out first and maps the files then, so that a full disk changes nothing.
    pub fn evict(mut self, set: &ArenaSet) -> Result<Moved, PagerError> {
        let mut moved = Moved::default();
        for arena in set.arenas() {
            if resident_parts(arena).all(|part| part.is_empty()) {
                continue;
            }
            // Before looking at block states: in a forked child they speak of the parent's file.
            let store = open(arena)?;
            let beside = self.beside(store, resident_parts(arena).map(|part| part.len()).sum());
            if beside.is_some() {
                // Writes that lengthen the file are made one after the other.
                lengthen(arena, store)?;
            }
            for part in resident_parts(arena) {
                moved += self.write_out(arena, store, beside, part)?;
            }
            store.settle().map_err(|e| {
                // Which of the writes was lost is not known, so none of them counts.
                for i in resident_parts(arena).flat_map(|part| part.start / CHUNK..part.end / CHUNK) {
                    let block = arena.block(i);
                    let _ = block.compare_exchange(STORED, STALE, Ordering::AcqRel, Ordering::Relaxed);
                }
                no_space_or(e, "flush the scratch file", 0, moved.bytes as usize)
            })?;
        }
        for arena in set.arenas() {
            if let Err(e) = self.map_file(arena) {
                // Some parts are mapped and others not: bring them back. What even that cannot restore
                // is still mapped from the file, and right.
                for arena in set.arenas() {
                    let _ = self.restore_arena(arena);
                }
                return Err(e);
            }
        }
        Ok(moved)
    }

    pub fn restore(mut self, set: &ArenaSet) -> Result<Moved, PagerError> {
        let mut moved = Moved::default();
        for arena in set.arenas() {
            moved += self.restore_arena(arena)?;
        }
        Ok(moved)
    }

    /// Maps the file over what is resident. The file must be in step with it.
    fn map_file(&mut self, arena: &Inner) -> Result<(), PagerError> {
        if resident_parts(arena).all(|p| p.is_empty()) {
            return Ok(());
        }
        let store = open(arena)?;
        lengthen(arena, store)?;
        for part in resident_parts(arena) {
            if part.is_empty() {
                continue;
            }
            let mapped = sys::map_file_over(
                arena.base + part.start,
                part.len(),
                store.mapping_fd(),
                part.start as u64,
            );
            mapped.map_err(|e| PagerError::io("map the scratch file", part.start, e))?;
            // Keep `[lo, hi)` true after each step: the part in front is mapped first, then the one behind.
            if part.start < arena.lo.load(Ordering::Relaxed) || !arena.is_evicted() {
                arena.lo.store(part.start, Ordering::Release);
            }
            arena.hi.fetch_max(part.end, Ordering::AcqRel);
            arena.epoch.fetch_add(1, Ordering::AcqRel);
        }
        arena.set_out(true);
        Ok(())
    }

    /// The descriptor for transfers of the store made beside the work on `bytes` bytes, if it pays and is possible.
    pub fn beside(&mut self, store: &dyn Store, bytes: usize) -> Option<i32> {
        let fd = store.async_fd().filter(|_| bytes >= plan::BESIDE_FROM)?;
        self.buffers.queue.is_ready().then_some(fd)
    }
}

/// The bytes of an arena not mapped from its file: in front of what is, and behind it.
fn resident_parts(arena: &Inner) -> impl Iterator<Item = Range<usize>> + use<> {
    let (lo, hi, extent) =
        (arena.lo.load(Ordering::Acquire), arena.hi.load(Ordering::Acquire), arena.extent());
    let parts = if lo < hi { [0..lo, hi..extent.max(hi)] } else { [0..0, 0..extent] };
    parts.into_iter()
}

fn open(arena: &Inner) -> Result<&dyn Store, PagerError> {
    arena.open_store().map_err(|e| PagerError::io("open a scratch file", 0, e))
}

/// With a gap behind, so that nothing that grows ever runs past the end of the file.
fn lengthen(arena: &Inner, store: &dyn Store) -> Result<(), PagerError> {
    let extent = arena.extent();
    let made = store.ensure_len((extent + GRANULE) as u64);
    made.map_err(|e| no_space_or(e, "lengthen the scratch file", extent, 0))
}

pub(super) fn no_space_or(errno: Errno, op: &'static str, offset: usize, needed: usize) -> PagerError {
    match errno.0 {
        libc::ENOSPC | libc::EDQUOT => PagerError::NoSpace {
            needed: needed as u64,
            dir: config::scratch_dir().to_str().unwrap_or("(name is not UTF-8)"),
        },
        _ => PagerError::io(op, offset, errno),
    }
}
