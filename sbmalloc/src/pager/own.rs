//! The executor for the own process: the calling thread moves the memory, all others are parked.

use super::pagemap::{Pagemap, WINDOW, Window};
use super::plan::{self, BATCH_BLOCKS, Batch, Fate};
use super::{Moved, PagerError};
use crate::arena::{HOLE, Inner, STALE, STORED};
use crate::config;
use crate::lock::{Guard, Lock};
use crate::set::ArenaSet;
use crate::store::{self, Store};
use crate::sys::{self, CHUNK, Errno, GRANULE, PAGE};
use crate::threads::{self, Masked, Parked};
use std::ops::Range;
use std::sync::atomic::Ordering;
use xxhash_rust::xxh3::xxh3_128;

/// Pages of a block.
const BLOCK_PAGES: usize = CHUNK / PAGE;

/// What a session works with, in static memory.
pub(crate) struct Buffers {
    window: Window,
    sums: [u128; BATCH_BLOCKS],
}

impl Buffers {
    pub const fn new() -> Self {
        Self { window: [0; WINDOW], sums: [0; BATCH_BLOCKS] }
    }
}

/// The right to move memory: other threads are parked and signals held back while it lives.
/// The fields are dropped in this order.
pub(super) struct Session {
    pagemap: Pagemap,
    _parked: Parked,
    _masked: Masked,
    buffers: Guard<'static, Buffers>,
}

fn block_bytes(arena: &Inner, i: usize) -> &[u8] {
    // SAFETY: the block is inside the arena's reservation and readable; other threads are parked, so nobody
    // writes it while the slice lives.
    unsafe { std::slice::from_raw_parts((arena.base + i * CHUNK) as *const u8, CHUNK) }
}

fn is_zero(bytes: &[u8]) -> bool {
    let (words, _) = bytes.as_chunks::<64>();
    words.iter().all(|w| w.iter().fold(0, |a, b| a | b) == 0)
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
            if resident_parts(arena).all(|part| part.is_empty()) {
                continue;
            }
            // Before looking at block states: in a forked child they speak of the parent's file.
            let store = open(arena)?;
            for part in resident_parts(arena) {
                moved += self.write_out(arena, part)?;
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

    /// Brings the file in step with the resident bytes `part`, which stay resident.
    fn write_out(&mut self, arena: &Inner, part: Range<usize>) -> Result<Moved, PagerError> {
        let mut moved = Moved::default();
        let tracker = arena.tracker.tracker();
        let mut batch = Batch::EMPTY;
        let mut at = part.start;
        while at < part.end {
            let len = (part.end - at).min(WINDOW * PAGE);
            let Buffers { window, sums } = &mut *self.buffers;
            let page = self.pagemap.read(window, arena.base + at, len)?;
            for i in at / CHUNK..(at + len) / CHUNK {
                let pages = (i * CHUNK - at) / PAGE..(i * CHUNK - at) / PAGE + BLOCK_PAGES;
                moved.freed_or_filled +=
                    PAGE as u64 * pages.clone().filter(|&p| page(p).is_in_ram()).count() as u64;
                if !tracker.may_be_dirty(arena, i * CHUNK / GRANULE) {
                    continue;
                }
                let state = arena.block(i).load(Ordering::Acquire);
                let there = pages.into_iter().any(|p| page(p).is_there());
                let bytes = if there { block_bytes(arena, i) } else { &[] };
                let mut sum = 0;
                let content = (there && !is_zero(bytes)).then(|| {
                    sum = xxh3_128(bytes);
                    (sum, arena.sum(i))
                });
                moved.scanned += bytes.len() as u64;
                let fate = plan::fate(state, content);
                if fate == Fate::Keep {
                    continue;
                }
                if !batch.takes(i, fate) {
                    carry_out(arena, batch, sums, &mut moved, part.end)?;
                    batch = Batch::EMPTY;
                }
                batch.add(i, fate);
                if fate == Fate::Write {
                    sums[batch.count - 1] = sum;
                }
            }
            at += len;
        }
        carry_out(arena, batch, &self.buffers.sums, &mut moved, part.end)?;
        Ok(moved)
    }

    /// Maps the file over what is resident. The file must be in step with it.
    fn map_file(&mut self, arena: &Inner) -> Result<(), PagerError> {
        let extent = arena.extent();
        if resident_parts(arena).all(|p| p.is_empty()) {
            return Ok(());
        }
        let store = open(arena)?;
        // With a gap behind, so that nothing that grows ever runs past the end of the file.
        store
            .ensure_len((extent + GRANULE) as u64)
            .map_err(|e| no_space_or(e, "lengthen the scratch file", extent, 0))?;
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

    fn restore_arena(&mut self, arena: &Inner) -> Result<Moved, PagerError> {
        let mut moved = Moved::default();
        while arena.is_evicted() {
            let lo = arena.lo.load(Ordering::Relaxed);
            let hi = arena.hi.load(Ordering::Relaxed);
            let run = plan::next_run(lo, hi, arena.huge_end.load(Ordering::Relaxed));
            let huge = run.start < arena.huge_end.load(Ordering::Relaxed);
            let frames = arena.frames.source();
            let staged = frames
                .stage(run.len(), huge)
                .map_err(|e| PagerError::io("get memory to restore into", run.start, e))?;
            let filled = self.fill(arena, staged, run.clone(), &mut moved).and_then(|()| {
                frames
                    .publish(staged, arena.base + run.start, run.len())
                    .map_err(|e| PagerError::io("move restored memory into place", run.start, e))
            });
            if let Err(e) = filled {
                frames.abandon(staged, run.len());
                return Err(e);
            }
            arena.lo.store(run.end, Ordering::Release);
            arena.epoch.fetch_add(1, Ordering::AcqRel);
            self.arm(arena, run)?;
        }
        if arena.lo.load(Ordering::Relaxed) > 0 {
            arena.hi.store(0, Ordering::Release);
            arena.lo.store(0, Ordering::Release);
            arena.set_out(false);
            if let Some(store) = arena.store() {
                store.drop_cache();
            }
        }
        Ok(moved)
    }

    /// Puts into the staging what the run is to hold: stored blocks from the file, verified, then the pages
    /// that somebody wrote while it was out.
    fn fill(
        &mut self,
        arena: &Inner,
        staged: usize,
        run: Range<usize>,
        moved: &mut Moved,
    ) -> Result<(), PagerError> {
        let store =
            arena.store().ok_or(PagerError::io("find the scratch file", run.start, Errno(libc::EBADF)))?;
        let mut blocks = run.start / CHUNK..run.end / CHUNK;
        while let Some(stored) = plan::next_stored(blocks.clone(), |i| arena.block(i).load(Ordering::Acquire))
        {
            let (offset, len) = (stored.start * CHUNK, stored.len() * CHUNK);
            let to = staged + offset - run.start;
            // SAFETY: the blocks lie inside the run, so the target lies inside the staging of its length.
            unsafe { store::read_all(store, offset as u64, to as *mut u8, len) }
                .map_err(|(at, e)| PagerError::Io { op: "read the scratch file", offset: at, errno: e })?;
            moved.bytes += len as u64;
            moved.freed_or_filled += len as u64;
            if config::verify() {
                for i in stored.clone() {
                    // SAFETY: just filled, and known to nobody else.
                    let bytes = unsafe {
                        std::slice::from_raw_parts((staged + i * CHUNK - run.start) as *const u8, CHUNK)
                    };
                    if xxh3_128(bytes) != arena.sum(i) {
                        return Err(PagerError::Corrupt { offset: (i * CHUNK) as u64 });
                    }
                }
                moved.scanned += len as u64;
            }
            blocks.start = stored.end;
        }
        self.private_pages(arena, run.clone(), |offset| {
            let (from, to) = (arena.base + offset, staged + offset - run.start);
            // SAFETY: a present page of the arena and its place in the staging; nobody writes either.
            unsafe { std::ptr::copy_nonoverlapping(from as *const u8, to as *mut u8, PAGE) };
            if arena.block(offset / CHUNK).load(Ordering::Acquire) != STORED {
                moved.freed_or_filled += PAGE as u64;
            }
            // The block now differs from its checksum; a tracker has to be told, see arm().
            arena.granule(offset / GRANULE).fetch_or(MERGED, Ordering::AcqRel);
        })
    }

    /// Calls `f` with the offset of each page of the run that is a private copy.
    fn private_pages(
        &mut self,
        arena: &Inner,
        run: Range<usize>,
        mut f: impl FnMut(usize),
    ) -> Result<(), PagerError> {
        let mut at = run.start;
        while at < run.end {
            let len = (run.end - at).min(WINDOW * PAGE);
            let page = self.pagemap.read(&mut self.buffers.window, arena.base + at, len)?;
            for p in (0..len / PAGE).filter(|&p| page(p).is_private()) {
                f(at + p * PAGE);
            }
            at += len;
        }
        Ok(())
    }

    /// Tells the tracker that the run is in step with the file, but for the granules that got merged pages
    /// and those with blocks that are not what the file holds.
    fn arm(&mut self, arena: &Inner, run: Range<usize>) -> Result<(), PagerError> {
        let tracker = arena.tracker.tracker();
        let granules = run.start / GRANULE..run.end / GRANULE;
        let is_merged = |g: usize| arena.granule(g).fetch_and(!MERGED, Ordering::AcqRel) & MERGED != 0;
        let has_stale = |g: usize| {
            (g * GRANULE / CHUNK..(g + 1) * GRANULE / CHUNK)
                .any(|i| arena.block(i).load(Ordering::Acquire) == STALE)
        };
        let mut clean = granules.start;
        for g in granules.clone() {
            let dirty = is_merged(g) | has_stale(g);
            if dirty || g + 1 == granules.end {
                let end = if dirty { g } else { g + 1 };
                if clean < end {
                    // A tracker that cannot be armed only costs time.
                    let _ = tracker.arm(arena, clean * GRANULE, (end - clean) * GRANULE);
                }
                if dirty {
                    tracker.note(arena, g * GRANULE, GRANULE);
                }
                clean = g + 1;
            }
        }
        Ok(())
    }
}

/// In a granule's word while its run is restored: pages written while it was out were merged in.
const MERGED: u8 = 0x80;

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

fn no_space_or(errno: Errno, op: &'static str, offset: usize, needed: usize) -> PagerError {
    match errno.0 {
        libc::ENOSPC | libc::EDQUOT => PagerError::NoSpace {
            needed: needed as u64,
            dir: config::scratch_dir().to_str().unwrap_or("(name is not UTF-8)"),
        },
        _ => PagerError::io(op, offset, errno),
    }
}

/// Writes or punches the gathered blocks. `end` bounds what may follow, for the report of a full disk.
fn carry_out(
    arena: &Inner,
    batch: Batch,
    sums: &[u128; BATCH_BLOCKS],
    moved: &mut Moved,
    end: usize,
) -> Result<(), PagerError> {
    if batch.count == 0 {
        return Ok(());
    }
    let store = open(arena)?;
    let blocks = batch.first..batch.first + batch.count;
    let (offset, len) = (batch.first * CHUNK, batch.count * CHUNK);
    // Until done, what the file holds there is neither the old nor the new.
    let set = |state| blocks.clone().for_each(|i| arena.block(i).store(state, Ordering::Release));
    set(STALE);
    if batch.fate == Fate::Punch && store.punch(offset as u64, len as u64).is_ok() {
        set(HOLE);
        moved.punched += len as u64;
        return Ok(());
    }
    // A file system without holes has its zeros written, in the same pieces as anything else.
    let from = (arena.base + offset) as *const u8;
    // SAFETY: the blocks lie in the arena, are readable, and nobody writes them.
    unsafe { store::write_all(store, offset as u64, from, len) }
        .map_err(|(at, e)| no_space_or(e, "write the scratch file", at as usize, end - at as usize))?;
    moved.bytes += len as u64;
    for (n, i) in blocks.clone().enumerate() {
        let sum = if batch.fate == Fate::Write { sums[n] } else { xxh3_128(block_bytes(arena, i)) };
        arena.set_sum(i, sum);
    }
    set(STORED);
    Ok(())
}
