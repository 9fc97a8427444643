//! The executor for the own process: the calling thread moves the memory, all others are parked.

use super::pagemap::{Pagemap, WINDOW, Window};
use super::{Moved, PagerError, plan};
use crate::arena::{Inner, STALE, STORED};
use crate::lock::{Guard, Lock};
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
        Ok(Self { pagemap: Pagemap::open()?, _parked: parked, _masked: masked, buffers })
    }

    /// Writes everything out first and maps the files then, so that a full disk changes nothing.
    pub fn evict(mut self, set: &ArenaSet) -> Result<Moved, PagerError> {
        let mut moved = Moved::default();
        for arena in set.arenas() {
            if resident_parts(arena).iter().all(|part| part.is_empty()) {
                continue;
            }
            // Before looking at block states: in a forked child they speak of the parent's file.
            let store = open(arena)?;
            let beside = self.beside(store, resident_parts(arena).iter().map(|part| part.len()).sum());
            if beside {
                // Writes that lengthen the file are made one after the other.
                lengthen(arena, store)?;
            }
            for part in resident_parts(arena) {
                moved += self.write_out(arena, store, beside, part)?;
            }
            store.settle().map_err(|e| {
                // Which of the writes was lost is not known, so none of them counts.
                for i in
                    resident_parts(arena).into_iter().flat_map(|part| part.start / CHUNK..part.end / CHUNK)
                {
                    let block = arena.block(i);
                    let _ = block.compare_exchange(STORED, STALE, Ordering::AcqRel, Ordering::Relaxed);
                }
                no_space_or(store, e, "flush the scratch file", None, moved.bytes as usize)
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
        if resident_parts(arena).iter().all(|p| p.is_empty()) {
            return Ok(());
        }
        let store = open(arena)?;
        lengthen(arena, store)?;
        let [front, behind] = resident_parts(arena);
        // `[lo, hi)` stays true after each step: in front it grows downwards, behind upwards.
        let mut at = front.end;
        while at > front.start {
            let mut from = front.start;
            while piece_end(store, from) < at {
                from = piece_end(store, from);
            }
            map_piece(arena, store, from..at)?;
            arena.lo.store(from, Ordering::Release);
            at = from;
        }
        at = behind.start;
        while at < behind.end {
            let to = behind.end.min(piece_end(store, at));
            map_piece(arena, store, at..to)?;
            if !arena.is_evicted() {
                arena.lo.store(at, Ordering::Release);
            }
            arena.hi.store(to, Ordering::Release);
            at = to;
        }
        arena.set_out(true);
        Ok(())
    }

    /// Whether transfers of the store are made beside the work on `bytes` bytes: if it pays and is possible.
    pub fn beside(&mut self, store: &dyn Store, bytes: usize) -> bool {
        bytes >= plan::BESIDE_FROM && store.async_fd(0).is_some() && self.buffers.queue.is_ready()
    }
}

/// The bytes of an arena not mapped from its file: in front of what is, and behind it.
fn resident_parts(arena: &Inner) -> [Range<usize>; 2] {
    let (lo, hi, extent) =
        (arena.lo.load(Ordering::Acquire), arena.hi.load(Ordering::Acquire), arena.extent());
    if lo < hi { [0..lo, hi..extent.max(hi)] } else { [0..0, 0..extent] }
}

fn open(arena: &Inner) -> Result<&dyn Store, PagerError> {
    arena.open_store().map_err(|e| PagerError::io("open a scratch file", 0, e))
}

/// With a gap behind, so that nothing that grows ever runs past the end of the file.
fn lengthen(arena: &Inner, store: &dyn Store) -> Result<(), PagerError> {
    let extent = arena.extent();
    let made = store.ensure_len((extent + GRANULE) as u64);
    made.map_err(|e| no_space_or(store, e, "lengthen the scratch file", None, 0))
}

/// Where the file that holds byte `offset` is followed by another.
pub(super) fn piece_end(store: &dyn Store, offset: usize) -> usize {
    usize::try_from(store.piece_end(offset as u64)).unwrap_or(usize::MAX)
}

/// Maps `piece`, which one file holds, from it.
fn map_piece(arena: &Inner, store: &dyn Store, piece: Range<usize>) -> Result<(), PagerError> {
    let offset = piece.start as u64;
    sys::map_file_over(arena.base + piece.start, piece.len(), store.mapping_fd(offset), offset)
        .map_err(|e| PagerError::io("map the scratch file", piece.start, e))?;
    arena.epoch.fetch_add(1, Ordering::AcqRel);
    Ok(())
}

/// The error of a call on the store, at an offset if that is known.
pub(super) fn no_space_or(
    store: &dyn Store,
    errno: Errno,
    op: &'static str,
    offset: Option<usize>,
    needed: usize,
) -> PagerError {
    match errno.0 {
        libc::ENOSPC | libc::EDQUOT => PagerError::NoSpace {
            needed: needed as u64,
            dir: store
                .directory(offset.map(|offset| offset as u64))
                .to_str()
                .unwrap_or("(name is not UTF-8)"),
        },
        _ => PagerError::io(op, offset.unwrap_or(0), errno),
    }
}
