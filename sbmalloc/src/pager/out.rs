//! The transfers of an evict: blocks are looked at in file order, what changed is written, what became zero punched.
//!
//! Where the store allows it, pieces are written beside the looking at and hashing of those that follow.

use super::own::{Buffers, Session, block_bytes, no_space_or, piece_end};
use super::pagemap::WINDOW;
use super::plan::{self, BATCH_BLOCKS, Batch, Fate, PIECE_BLOCKS};
use super::{Moved, PagerError};
use crate::arena::{HOLE, Inner, STALE, STORED};
use crate::store::{Direction, Landed, Queue, Store, Transfer};
use crate::sys::{CHUNK, Errno, GRANULE, PAGE};
use std::ops::Range;
use std::sync::atomic::Ordering;
use xxhash_rust::xxh3::xxh3_128;

/// Pages of a block.
const BLOCK_PAGES: usize = CHUNK / PAGE;

fn is_zero(bytes: &[u8]) -> bool {
    let (words, _) = bytes.as_chunks::<64>();
    words.iter().all(|w| w.iter().fold(0, |a, b| a | b) == 0)
}

impl Session {
    /// Brings the file in step with the resident bytes `part`, which stay resident.
    pub fn write_out(
        &mut self,
        arena: &Inner,
        store: &dyn Store,
        beside: bool,
        part: Range<usize>,
    ) -> Result<Moved, PagerError> {
        let Self { pagemap, buffers, .. } = self;
        let Buffers { window, queue } = &mut **buffers;
        let limit = if beside { PIECE_BLOCKS } else { BATCH_BLOCKS };
        let moved = Moved::default();
        let mut writer = Writer { arena, store, beside, queue, end: part.end, moved, failed: None };
        let tracker = arena.tracker.tracker();
        let mut batch = Batch::EMPTY;
        let mut at = part.start;
        while at < part.end {
            let len = (part.end - at).min(WINDOW * PAGE);
            let page = pagemap.read(window, arena.base + at, len)?;
            for i in at / CHUNK..(at + len) / CHUNK {
                let pages = (i * CHUNK - at) / PAGE..(i * CHUNK - at) / PAGE + BLOCK_PAGES;
                writer.moved.freed_or_filled +=
                    PAGE as u64 * pages.clone().filter(|&p| page(p).is_in_ram()).count() as u64;
                if !tracker.may_be_dirty(arena, i * CHUNK / GRANULE) {
                    continue;
                }
                let state = arena.block(i).load(Ordering::Acquire);
                let there = pages.into_iter().any(|p| page(p).is_there());
                let bytes = if there { block_bytes(arena, i) } else { &[] };
                let content = (there && !is_zero(bytes)).then(|| (xxh3_128(bytes), arena.sum(i)));
                writer.moved.scanned += bytes.len() as u64;
                let fate = plan::fate(state, content);
                if fate == Fate::Keep {
                    continue;
                }
                if !batch.takes(i, fate, limit) {
                    writer.carry_out(batch)?;
                    batch = Batch::EMPTY;
                }
                batch.add(i, fate);
                // Until carried out, what the file holds there is neither the old nor the new.
                arena.block(i).store(STALE, Ordering::Release);
                if let Some((sum, _)) = content {
                    arena.set_sum(i, sum);
                }
            }
            at += len;
        }
        writer.carry_out(batch)?;
        writer.finish()
    }
}

/// Carries out what was decided for a part of an arena. Nothing is under way once it is dropped.
struct Writer<'a> {
    arena: &'a Inner,
    store: &'a dyn Store,
    /// Whether to write beside.
    beside: bool,
    queue: &'a mut Queue,
    /// Bounds what may follow, for the report of a full disk.
    end: usize,
    moved: Moved,
    /// The first byte that could not be written.
    failed: Option<(u64, Errno)>,
}

impl Writer<'_> {
    fn set(&self, blocks: Range<usize>, state: u8) {
        blocks.for_each(|i| self.arena.block(i).store(state, Ordering::Release));
    }

    /// Writes or punches the gathered blocks, which are stale and have their checksums.
    fn carry_out(&mut self, batch: Batch) -> Result<(), PagerError> {
        let blocks = batch.first..batch.first + batch.count;
        if batch.fate == Fate::Punch {
            let (offset, len) = ((batch.first * CHUNK) as u64, (batch.count * CHUNK) as u64);
            if self.store.punch(offset, len).is_ok() {
                self.set(blocks, HOLE);
                self.moved.punched += len;
                return Ok(());
            }
            // A file system without holes has its zeros written.
            for i in blocks.clone() {
                self.arena.set_sum(i, xxh3_128(block_bytes(self.arena, i)));
            }
        }
        let most = if self.beside { PIECE_BLOCKS } else { BATCH_BLOCKS };
        let mut first = blocks.start;
        while first < blocks.end {
            let end = blocks.end.min(first + most).min(piece_end(self.store, first * CHUNK) / CHUNK);
            self.write(first..end)?;
            first = end;
        }
        Ok(())
    }

    fn write(&mut self, blocks: Range<usize>) -> Result<(), PagerError> {
        let (offset, len) = (blocks.start * CHUNK, blocks.len() * CHUNK);
        let transfer = Transfer { direction: Direction::Write, offset, at: self.arena.base + offset, len };
        if self.beside {
            if self.queue.is_full() {
                self.wait();
            }
            if self.failed.is_none() {
                // SAFETY: the blocks lie in the arena, are readable, and nobody writes or unmaps them while
                // `self` lives, which does not end before the transfer has.
                unsafe { self.queue.start(self.store, transfer) };
            }
        } else {
            // SAFETY: as above.
            let landed = unsafe { transfer.by_calls(self.store, 0) };
            self.land(landed);
        }
        self.verdict()
    }

    /// Takes one transfer off the queue; false if there is none.
    fn wait(&mut self) -> bool {
        match self.queue.wait(self.store) {
            Some(landed) => self.land(landed),
            None => return false,
        }
        true
    }

    fn land(&mut self, landed: Landed) {
        let Transfer { offset, len, .. } = landed.transfer;
        match landed.result {
            Ok(()) => {
                self.moved.bytes += len as u64;
                self.set(offset / CHUNK..(offset + len) / CHUNK, STORED);
            }
            Err(e) => {
                if self.failed.is_none_or(|first| e.0 < first.0) {
                    self.failed = Some(e);
                }
            }
        }
    }

    /// The error to report, if anything has failed, after all that is under way.
    fn verdict(&mut self) -> Result<(), PagerError> {
        if self.failed.is_some() {
            while self.wait() {}
        }
        match self.failed {
            Some((at, e)) => {
                let (at, op) = (at as usize, "write the scratch file");
                Err(no_space_or(self.store, e, op, Some(at), self.end - at))
            }
            None => Ok(()),
        }
    }

    fn finish(mut self) -> Result<Moved, PagerError> {
        while self.wait() {}
        self.verdict().map(|()| self.moved)
    }
}

impl Drop for Writer<'_> {
    fn drop(&mut self) {
        while self.wait() {}
    }
}
