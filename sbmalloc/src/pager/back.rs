//! The transfers of a restore: stored blocks are read into memory beside, verified, and moved over in runs.
//!
//! Where the store allows it, several pieces are read at a time, and those that have arrived are verified
//! meanwhile.

use super::own::{Buffers, Session, piece_end};
use super::pagemap::{Pagemap, WINDOW, Window};
use super::plan::{self, BATCH_BLOCKS, PIECE_BLOCKS};
use super::{Moved, PagerError};
use crate::arena::{Inner, STALE, STORED};
use crate::config;
use crate::frames::FrameSource;
use crate::store::{Direction, Landed, Queue, Store, Transfer};
use crate::sys::{CHUNK, Errno, GRANULE, PAGE};
use std::ops::Range;
use std::sync::atomic::Ordering;
use xxhash_rust::xxh3::xxh3_128;

/// In a granule's word while its run is restored: pages written while it was out were merged in.
const MERGED: u8 = 0x80;

impl Session {
    pub fn restore_arena(&mut self, arena: &Inner) -> Result<Moved, PagerError> {
        if !arena.is_evicted() {
            return Ok(Moved::default());
        }
        let (lo, hi) = (arena.lo.load(Ordering::Relaxed), arena.hi.load(Ordering::Relaxed));
        let store = arena.store().ok_or(PagerError::io("find the scratch file", lo, Errno(libc::EBADF)))?;
        let beside = self.beside(store, hi - lo);
        let Self { pagemap, buffers, .. } = self;
        let Buffers { window, queue } = &mut **buffers;
        let frames = arena.frames.source();
        let (stage, moved) = (None, Moved::default());
        let mut reader = Reader { arena, store, beside, queue, frames, hi, stage, moved };
        let mut at = lo;
        while at < hi {
            let (staged, run) = reader.fill(at)?;
            private_pages(pagemap, window, arena, run.clone(), |offset| {
                let (from, to) = (arena.base + offset, staged + offset - run.start);
                // SAFETY: a present page of the arena and its place in the staging; nobody writes either.
                unsafe { std::ptr::copy_nonoverlapping(from as *const u8, to as *mut u8, PAGE) };
                if arena.block(offset / CHUNK).load(Ordering::Acquire) != STORED {
                    reader.moved.freed_or_filled += PAGE as u64;
                }
                // The block now differs from its checksum; a tracker has to be told, see arm().
                arena.granule(offset / GRANULE).fetch_or(MERGED, Ordering::AcqRel);
            })?;
            frames
                .publish(staged, arena.base + run.start, run.len())
                .map_err(|e| PagerError::io("move restored memory into place", run.start, e))?;
            reader.published();
            at = run.end;
            arena.lo.store(at, Ordering::Release);
            arena.epoch.fetch_add(1, Ordering::AcqRel);
            arm(arena, run);
        }
        arena.hi.store(0, Ordering::Release);
        arena.lo.store(0, Ordering::Release);
        arena.set_out(false);
        store.drop_cache();
        Ok(reader.moved)
    }
}

/// A run on its way in.
struct Stage {
    run: Range<usize>,
    /// Where it is filled.
    staged: usize,
    /// Blocks in front were asked for, or are not stored.
    next: usize,
    /// Reads under way.
    reading: usize,
    failed: Option<PagerError>,
}

impl Stage {
    fn end(&self) -> usize {
        self.run.end / CHUNK
    }
}

/// Reads the runs of an arena in turn. Nothing is under way, or staged, once it is dropped.
struct Reader<'a> {
    arena: &'a Inner,
    store: &'a dyn Store,
    /// Whether to read beside.
    beside: bool,
    queue: &'a mut Queue,
    frames: &'static dyn FrameSource,
    /// Where the evicted bytes end.
    hi: usize,
    /// The run that is filled. Only one: reading the next ahead as well gained nothing measurable.
    stage: Option<Stage>,
    moved: Moved,
}

impl Reader<'_> {
    fn stage(&self, at: usize) -> Result<Stage, PagerError> {
        let huge_end = self.arena.huge_end.load(Ordering::Relaxed);
        let run = plan::next_run(at, self.hi, huge_end);
        let staged = self
            .frames
            .stage(run.len(), run.start < huge_end)
            .map_err(|e| PagerError::io("get memory to restore into", at, e))?;
        let next = run.start / CHUNK;
        Ok(Stage { run, staged, next, reading: 0, failed: None })
    }

    /// Fills the run that begins at `at` with its stored blocks, verified; returns where it is staged, and the run.
    fn fill(&mut self, at: usize) -> Result<(usize, Range<usize>), PagerError> {
        self.stage = Some(self.stage(at)?);
        loop {
            self.feed();
            match &self.stage {
                Some(Stage { failed: Some(e), .. }) => return Err(*e),
                Some(s) if s.reading == 0 && s.next == s.end() => return Ok((s.staged, s.run.clone())),
                _ => {}
            }
            if let Some(landed) = self.queue.wait(self.store) {
                self.feed(); // before verifying, so that the disk is not kept waiting
                self.land(landed);
            }
        }
    }

    /// Starts reads until the queue is full or all is asked for; without a queue makes one read.
    fn feed(&mut self) {
        let most = if self.beside { PIECE_BLOCKS } else { BATCH_BLOCKS };
        let Some(stage) = &mut self.stage else { return };
        while stage.next < stage.end() {
            if self.queue.is_full() {
                return;
            }
            let state = |i: usize| self.arena.block(i).load(Ordering::Acquire);
            let Some(mut blocks) = plan::next_stored(stage.next..stage.end(), most, state) else {
                stage.next = stage.end();
                break;
            };
            blocks.end = blocks.end.min(piece_end(self.store, blocks.start * CHUNK) / CHUNK);
            stage.next = blocks.end;
            stage.reading += 1;
            let (offset, len) = (blocks.start * CHUNK, blocks.len() * CHUNK);
            let at = stage.staged + offset - stage.run.start;
            let transfer = Transfer { direction: Direction::Read, offset, at, len };
            if !self.beside {
                // SAFETY: the blocks lie inside the run, so the target lies inside the staging of its length.
                let landed = unsafe { transfer.by_calls(self.store, 0) };
                return self.land(landed);
            }
            // SAFETY: as above; the staging outlives the transfer.
            unsafe { self.queue.start(self.store, transfer) };
        }
    }

    /// Verifies what was read.
    fn land(&mut self, landed: Landed) {
        let Transfer { offset, at, len, .. } = landed.transfer;
        let Some(stage) = &mut self.stage else { return };
        stage.reading -= 1;
        if let Err((at, errno)) = landed.result {
            let e = PagerError::Io { op: "read the scratch file", offset: at, errno };
            stage.failed.get_or_insert(e);
            return;
        }
        self.moved.bytes += len as u64;
        self.moved.freed_or_filled += len as u64;
        if config::verify() {
            for i in offset / CHUNK..(offset + len) / CHUNK {
                let from = (at + i * CHUNK - offset) as *const u8;
                // SAFETY: just filled, and known to nobody else.
                let bytes = unsafe { std::slice::from_raw_parts(from, CHUNK) };
                if xxh3_128(bytes) != self.arena.sum(i) {
                    stage.failed.get_or_insert(PagerError::Corrupt { offset: (i * CHUNK) as u64 });
                    return;
                }
            }
            self.moved.scanned += len as u64;
        }
    }

    /// The staging of the run just filled now belongs to the arena.
    fn published(&mut self) {
        self.stage = None;
    }
}

impl Drop for Reader<'_> {
    fn drop(&mut self) {
        // The kernel still writes to what is under way.
        while self.queue.wait(self.store).is_some() {}
        if let Some(stage) = &self.stage {
            self.frames.abandon(stage.staged, stage.run.len());
        }
    }
}

/// Calls `f` with the offset of each page of the run that is a private copy.
fn private_pages(
    pagemap: &Pagemap,
    window: &mut Window,
    arena: &Inner,
    run: Range<usize>,
    mut f: impl FnMut(usize),
) -> Result<(), PagerError> {
    let mut at = run.start;
    while at < run.end {
        let len = (run.end - at).min(WINDOW * PAGE);
        let page = pagemap.read(window, arena.base + at, len)?;
        for p in (0..len / PAGE).filter(|&p| page(p).is_private()) {
            f(at + p * PAGE);
        }
        at += len;
    }
    Ok(())
}

/// Tells the tracker that the run is in step with the file, but for the granules that got merged pages
/// and those with blocks that are not what the file holds.
fn arm(arena: &Inner, run: Range<usize>) {
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
}
