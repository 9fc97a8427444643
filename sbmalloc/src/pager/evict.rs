//! The transfers of an evict: blocks are looked at in file order, what changed is written, what became zero
//! punched, and the file mapped over what is in step with it.
//!
//! Granules go in groups. While the writes of one are under way the next is looked at and hashed; a group is
//! mapped, and its RAM counted as given back, as soon as all of its writes have landed. So a disk that fills
//! up leaves the groups before out, and the rest resident.

use super::damage::Wrong;
use super::history::Past;
use super::images::{self, Images};
use super::look::{BLOCK_PAGES, WINDOW_GRANULES, read_block};
use super::own::{Buffers, Session, block_bytes, lengthen, no_space_or, open, piece_end};
use super::pack::{Packed, Packing};
use super::pagemap::{Page, Pagemap, Window};
use super::plan::{self, BATCH_BLOCKS, Batch, Fate, Group, PIECE_BLOCKS};
use super::{Moved, PagerError};
use crate::arena::{HOLE, Inner, STALE, STORED};
use crate::checksum;
use crate::store::{Direction, Landed, Queue, Store, Transfer, write_all};
use crate::sys::{self, CHUNK, Errno, GRANULE, PAGE};
use std::ops::Range;
use std::sync::atomic::Ordering;

const GRANULE_BLOCKS: usize = GRANULE / CHUNK;

/// How far an evict is to go, and how far it is.
pub(super) struct Goal<'a> {
    /// Committed bytes to leave in RAM. With 0 everything goes, also what counts nothing.
    pub target: usize,
    /// Committed bytes in RAM.
    pub left: usize,
    /// Is told of every change of `left`.
    pub progress: &'a mut dyn FnMut(usize),
    /// The phase that what is found out about granules belongs to.
    pub past: Past,
    /// Of so many blocks that were brought in for it, so many have changed.
    pub brought: usize,
    pub changed: usize,
    /// Whether and how granules may be packed.
    pub pack: Option<Packing>,
    pub moved: Moved,
}

impl Goal<'_> {
    pub fn is_reached(&self) -> bool {
        self.target > 0 && self.left <= self.target
    }
}

impl Session {
    /// Evicts the granules of an arena that are selected, in ascending order, until the goal is reached.
    /// Those that are out already have what was written to them written to the file, and are mapped anew.
    pub fn sweep(
        &mut self,
        arena: &Inner,
        goal: &mut Goal,
        select: impl Fn(usize) -> bool,
    ) -> Result<(), PagerError> {
        let before = goal.moved;
        let swept = self.sweep_uncounted(arena, goal, select);
        arena.totals.evicted(before, goal.moved);
        swept
    }

    fn sweep_uncounted(
        &mut self,
        arena: &Inner,
        goal: &mut Goal,
        select: impl Fn(usize) -> bool,
    ) -> Result<(), PagerError> {
        let granules = arena.granules();
        let Some(mut at) = (0..granules).find(|&g| select(g)).filter(|_| !goal.is_reached()) else {
            return Ok(());
        };
        // Before looking at block states: in a forked child they speak of the parent's file.
        let store = open(arena)?;
        lengthen(arena, store)?;
        // A thread parked in a discard does it again, whatever becomes of the blocks here.
        arena.epoch.fetch_add(1, Ordering::AcqRel);
        let beside = self.beside(store, (at..granules).filter(|&g| select(g)).count() * GRANULE);
        let Self { pagemap, buffers, .. } = self;
        let Buffers { window, queue, block, images } = &mut **buffers;
        images.reset();
        let mut planned = goal.left;
        let mut writer = Writer {
            arena,
            store,
            beside,
            queue,
            batch: Batch::EMPTY,
            copy: &mut block.0,
            images,
            groups: [None; 2],
            goal,
            failed: None,
        };
        loop {
            let mut group = Group::EMPTY;
            while at < granules
                && !group.is_full()
                && (writer.goal.target == 0 || planned > writer.goal.target)
            {
                if select(at) {
                    planned = planned.saturating_sub(arena.ram(at));
                    group.push(at);
                }
                at += 1;
            }
            if group.is_empty() {
                return writer.finish();
            }
            writer.admit(group)?;
            writer.look_through(pagemap, window, group)?;
        }
    }
}

/// A group on its way out.
#[derive(Clone, Copy)]
struct Leaving {
    group: Group,
    /// Writes under way.
    flying: usize,
}

/// Carries out what was decided. Nothing is under way once it is dropped.
pub(super) struct Writer<'a, 'g> {
    pub(super) arena: &'a Inner,
    store: &'a dyn Store,
    /// Whether to write beside.
    beside: bool,
    queue: &'a mut Queue,
    /// What was decided and not carried out yet.
    batch: Batch,
    /// For blocks put together from the file's bytes and written pages.
    copy: &'a mut [u8; CHUNK],
    pub(super) images: &'a mut Images,
    /// The groups on their way, the older first.
    groups: [Option<Leaving>; 2],
    pub(super) goal: &'a mut Goal<'g>,
    /// The first byte that could not be written.
    failed: Option<(u64, Errno)>,
}

impl Writer<'_, '_> {
    /// Makes room for a group.
    fn admit(&mut self, group: Group) -> Result<(), PagerError> {
        while self.groups[0].is_some_and(|l| l.flying == 0) || self.groups[1].is_some() {
            self.retire_one()?;
        }
        let free = self.groups[0].is_some() as usize;
        self.groups[free] = Some(Leaving { group, flying: 0 });
        Ok(())
    }

    /// Waits for the writes of the oldest group and gives its RAM back.
    fn retire_one(&mut self) -> Result<(), PagerError> {
        while self.groups[0].is_some_and(|l| l.flying > 0) {
            self.wait();
            self.verdict()?;
        }
        if let Some(Leaving { group, .. }) = self.groups[0].take() {
            self.groups[0] = self.groups[1].take();
            self.map(group)?;
        }
        Ok(())
    }

    /// Decides what becomes of the blocks of a group, and starts on it.
    fn look_through(
        &mut self,
        pagemap: &Pagemap,
        window: &mut Window,
        group: Group,
    ) -> Result<(), PagerError> {
        let (arena, tracker) = (self.arena, self.arena.tracker.tracker());
        let limit = self.most();
        let mut k = 0;
        while let Some((next, bytes)) = group.stretch(k, WINDOW_GRANULES) {
            k = next;
            if !arena.is_out(bytes.start / GRANULE) {
                tracker.collect(arena, bytes.clone());
            }
            let page = pagemap.read(window, arena.base + bytes.start, bytes.len())?;
            for g in bytes.start / GRANULE..bytes.end / GRANULE {
                let out = arena.is_out(g);
                let pages = (g * GRANULE - bytes.start) / PAGE;
                let packed = if out { Packed::No } else { self.pack(g, |p| page(pages + p))? };
                let may_be_dirty = out || tracker.may_be_dirty(arena, g);
                let mut changed = packed == Packed::Yes { changed: true };
                let mut changed_blocks = 0;
                let blocks = if packed == Packed::No { GRANULE_BLOCKS } else { 0 };
                for i in g * GRANULE_BLOCKS..g * GRANULE_BLOCKS + blocks {
                    let first = (i * CHUNK - bytes.start) / PAGE;
                    let page = |p: usize| page(first + p);
                    let count = |f: fn(Page) -> bool| (0..BLOCK_PAGES).filter(|&p| f(page(p))).count();
                    self.goal.moved.freed_or_filled += (PAGE * count(Page::is_in_ram)) as u64;
                    if !may_be_dirty || !(out || tracker.block_may_be_dirty(arena, i)) {
                        continue;
                    }
                    let state = arena.block(i).load(Ordering::Acquire);
                    if out {
                        let private = count(Page::is_private);
                        changed |= private > 0;
                        if private == 0 && state != STALE {
                            continue; // the file has it
                        }
                        if private < BLOCK_PAGES {
                            let there = count(Page::is_there) == BLOCK_PAGES;
                            self.put_together(i, state, there, |p| page(p).is_private())?;
                            continue;
                        }
                    }
                    // What is absent, or not in use, is zeros, and not looked at, which would bring it into
                    // the page table.
                    let mut used = (0..arena.pages_in_use(i)).rev();
                    let used = used.find(|&p| page(p).is_there()).map_or(0, |p| p + 1);
                    let bytes = &block_bytes(arena, i)[..used * PAGE];
                    self.goal.moved.scanned += bytes.len() as u64;
                    let bytes = checksum::content(bytes);
                    let content = (!bytes.is_empty()).then(|| (checksum::of(bytes), arena.sum(i)));
                    let fate = plan::fate(state, content);
                    if fate == Fate::Keep {
                        continue;
                    }
                    changed = true;
                    changed_blocks += 1;
                    if !self.batch.takes(i, fate, limit) {
                        self.carry_out()?;
                    }
                    // As far as the file has anything but zeros, before or after.
                    let pages = bytes.len() / PAGE;
                    let written = match state {
                        HOLE => pages,
                        STORED => pages.max(arena.stored_pages(i)),
                        _ => BLOCK_PAGES,
                    };
                    let unused = if fate == Fate::Write { CHUNK - written * PAGE } else { 0 };
                    self.batch.add(i, fate, unused);
                    arena.set_stored_pages(i, pages);
                    // Until carried out, what the file holds there is neither the old nor the new.
                    arena.block(i).store(STALE, Ordering::Release);
                    if let Some((sum, _)) = content {
                        arena.set_sum(i, sum);
                    }
                }
                let past = self.goal.past;
                if !out && arena.held(g) > 0 && arena.is_of_phase(g, past.number()) {
                    let held = (arena.held(g) as usize).div_ceil(BLOCK_PAGES);
                    self.goal.brought += held;
                    self.goal.changed += if packed == Packed::No { changed_blocks } else { held };
                    for (slot, byte) in past.resident(changed, |slot| arena.history(slot, g)) {
                        arena.set_history(slot, g, byte);
                    }
                }
            }
        }
        self.carry_out()
    }

    /// Blocks of a write.
    fn most(&self) -> usize {
        if self.beside { PIECE_BLOCKS } else { BATCH_BLOCKS }
    }

    fn set(&self, blocks: Range<usize>, state: u8) {
        blocks.for_each(|i| self.arena.block(i).store(state, Ordering::Release));
    }

    /// Writes or punches the gathered blocks, which are stale and have their checksums.
    fn carry_out(&mut self) -> Result<(), PagerError> {
        let batch = std::mem::replace(&mut self.batch, Batch::EMPTY);
        let blocks = batch.first..batch.first + batch.count;
        if batch.fate == Fate::Punch {
            let (offset, len) = ((batch.first * CHUNK) as u64, (batch.count * CHUNK) as u64);
            if self.store.punch(offset, len).is_ok() {
                self.set(blocks, HOLE);
                self.goal.moved.punched += len;
                return Ok(());
            }
            // A file system without holes has its zeros written.
            for i in blocks.clone() {
                self.arena.set_sum(i, checksum::of_block(block_bytes(self.arena, i)));
                self.arena.set_stored_pages(i, BLOCK_PAGES);
            }
        }
        let (most, mut first) = (self.most(), blocks.start);
        while first < blocks.end {
            let end = blocks.end.min(first + most).min(piece_end(self.store, first * CHUNK) / CHUNK);
            self.write(first..end, if end == blocks.end { batch.unused } else { 0 })?;
            first = end;
        }
        Ok(())
    }

    /// Writes blocks, but for the last `unused` bytes.
    fn write(&mut self, blocks: Range<usize>, unused: usize) -> Result<(), PagerError> {
        let (offset, len) = (blocks.start * CHUNK, blocks.len() * CHUNK - unused);
        self.transfer(Transfer { direction: Direction::Write, offset, at: self.arena.base + offset, len })
    }

    /// Writes blocks, or the image of a granule.
    pub(super) fn transfer(&mut self, transfer: Transfer) -> Result<(), PagerError> {
        let offset = transfer.offset;
        if self.beside && self.queue.is_full() {
            self.wait();
        }
        if !self.images.holds(transfer.at) {
            self.images.begin(!self.beside || self.queue.is_idle());
        }
        if self.beside {
            if self.failed.is_none() {
                if let Some(leaving) = self.leaving(offset) {
                    leaving.flying += 1;
                }
                // SAFETY: the blocks lie in the arena, are readable, and nobody writes or unmaps them before
                // the transfer has ended: a group is mapped after that, and `self` does not end before. An
                // image lies in a place that is taken until then.
                unsafe { self.queue.start(self.store, transfer) };
            }
            self.verdict()?;
            // The older group may have landed meanwhile: its RAM is wanted.
            if self.groups[1].is_some() && self.groups[0].is_some_and(|l| l.flying == 0) {
                self.retire_one()?;
            }
            return Ok(());
        }
        // SAFETY: as above.
        let landed = unsafe { transfer.by_calls(self.store, 0) };
        self.ended(landed);
        self.verdict()
    }

    /// A transfer has ended.
    fn ended(&mut self, Landed { transfer, result }: Landed) {
        let Transfer { offset, at, len, .. } = transfer;
        let is_image = self.images.holds(at);
        if is_image {
            self.images.give(at);
        } else if result.is_ok() {
            self.images.ended(len, self.queue.is_idle());
        }
        match result {
            Ok(()) if is_image => {
                self.goal.moved.bytes += len as u64;
                images::stored(self.arena, offset / GRANULE);
            }
            Ok(()) => self.landed(offset, len),
            Err(e) => self.fail(e),
        }
    }

    /// A block of a granule that is out of which some pages, or none, have been written: puts it together
    /// with the rest, which is the file's or zero, and brings the file in step.
    fn put_together(
        &mut self,
        i: usize,
        state: u8,
        there: bool,
        is_private: impl Fn(usize) -> bool,
    ) -> Result<(), PagerError> {
        let arena = self.arena;
        if state == STORED && there {
            // All of it is in memory, and verified.
            self.copy.copy_from_slice(block_bytes(arena, i));
        } else if state == STORED {
            read_block(arena, self.copy, i)?;
            if checksum::of_block(self.copy) != arena.sum(i) {
                Wrong::new(i, self.copy).read_again(arena, self.copy)?;
            }
        } else {
            self.copy.fill(0);
        }
        let own = block_bytes(arena, i);
        for p in (0..BLOCK_PAGES).filter(|&p| is_private(p)) {
            self.copy[p * PAGE..(p + 1) * PAGE].copy_from_slice(&own[p * PAGE..(p + 1) * PAGE]);
        }
        self.goal.moved.scanned += CHUNK as u64;
        let pages = checksum::content(self.copy).len() / PAGE;
        let sum = checksum::of_block(self.copy);
        let content = (pages > 0).then(|| (sum, arena.sum(i)));
        match plan::fate(state, content) {
            Fate::Keep => return Ok(()),
            Fate::Punch if self.store.punch((i * CHUNK) as u64, CHUNK as u64).is_ok() => {
                self.set(i..i + 1, HOLE);
                self.goal.moved.punched += CHUNK as u64;
                return Ok(());
            }
            _ => {}
        }
        // SAFETY: the buffer has the block's size.
        match unsafe { write_all(self.store, (i * CHUNK) as u64, self.copy.as_ptr(), CHUNK) } {
            Ok(()) => {
                arena.set_sum(i, sum);
                arena.set_stored_pages(i, if pages > 0 { pages } else { BLOCK_PAGES });
                self.landed(i * CHUNK, CHUNK);
            }
            Err(e) => {
                // What the file holds there now is not known: make the whole block a private copy.
                let to = (arena.base + i * CHUNK) as *mut u8;
                // SAFETY: a block of the arena; other threads are parked, and `own` is not used again.
                unsafe { std::ptr::copy_nonoverlapping(self.copy.as_ptr(), to, CHUNK) };
                self.set(i..i + 1, STALE);
                self.fail(e);
            }
        }
        self.verdict()
    }

    fn leaving(&mut self, offset: usize) -> Option<&mut Leaving> {
        self.groups.iter_mut().flatten().find(|l| l.group.holds(offset))
    }

    /// Takes one transfer off the queue; false if there is none.
    pub(super) fn wait(&mut self) -> bool {
        let Some(landed) = self.queue.wait(self.store) else { return false };
        if let Some(leaving) = self.leaving(landed.transfer.offset) {
            leaving.flying -= 1;
        }
        self.ended(landed);
        true
    }

    fn landed(&mut self, offset: usize, len: usize) {
        self.goal.moved.bytes += len as u64;
        self.set(offset / CHUNK..(offset + len).div_ceil(CHUNK), STORED);
    }

    fn fail(&mut self, e: (u64, Errno)) {
        if self.failed.is_none_or(|first| e.0 < first.0) {
            self.failed = Some(e);
        }
    }

    /// The error to report, if anything has failed, after all that is under way.
    pub(super) fn verdict(&mut self) -> Result<(), PagerError> {
        if self.failed.is_some() {
            while self.wait() {}
        }
        match self.failed {
            Some((at, e)) => {
                let needed = self.arena.extent().saturating_sub(at as usize);
                Err(no_space_or(self.store, e, "write the scratch file", Some(at as usize), needed))
            }
            None => Ok(()),
        }
    }

    /// Maps the file over a group that is in step with it.
    fn map(&mut self, group: Group) -> Result<(), PagerError> {
        let arena = self.arena;
        self.store.settle().map_err(|e| {
            // Which of the writes was lost is not known, so none of them counts. (What is out has the file's
            // bytes in any case; if they are wrong, their checksums tell.)
            for g in group.granules().filter(|&g| !arena.is_out(g)) {
                for i in g * GRANULE_BLOCKS..(g + 1) * GRANULE_BLOCKS {
                    let block = arena.block(i);
                    let _ = block.compare_exchange(STORED, STALE, Ordering::AcqRel, Ordering::Relaxed);
                }
                // What was clean is not any more.
                arena.tracker.tracker().note(arena, g * GRANULE, GRANULE);
            }
            no_space_or(self.store, e, "flush the scratch file", None, group.len_bytes())
        })?;
        let mut k = 0;
        while let Some((next, bytes)) = group.stretch(k, usize::MAX) {
            k = next;
            let mut from = bytes.start;
            while from < bytes.end {
                let packed = arena.has_packed_form(from / GRANULE);
                let most = bytes.end.min(piece_end(self.store, from)) / GRANULE;
                let other = |&g: &usize| arena.has_packed_form(g) != packed;
                let end = (from / GRANULE + 1..most).find(other).unwrap_or(most) * GRANULE;
                let fd = self.store.mapping_fd(from as u64);
                match packed {
                    true => sys::map_none_over(arena.base + from, end - from),
                    false => sys::map_file_over(arena.base + from, end - from, fd, from as u64),
                }
                .map_err(|e| PagerError::io("map the scratch file", from, e))?;
                for g in from / GRANULE..end / GRANULE {
                    self.goal.left = self.goal.left.saturating_sub(arena.ram(g));
                    arena.set_out(g);
                }
                from = end;
            }
            arena.epoch.fetch_add(1, Ordering::AcqRel);
        }
        (self.goal.progress)(self.goal.left);
        Ok(())
    }

    fn finish(mut self) -> Result<(), PagerError> {
        while self.groups[0].is_some() {
            self.retire_one()?;
        }
        Ok(())
    }
}

impl Drop for Writer<'_, '_> {
    fn drop(&mut self) {
        while self.wait() {}
    }
}
