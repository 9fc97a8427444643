//! The transfers of a restore: stored blocks are read into memory beside, verified, and moved over in groups.
//!
//! Where the store allows it, several pieces are read at a time, and those that have arrived are verified
//! meanwhile. Two groups are on their way: the reads of the next go on while one is moved over.

use super::damage::{self, Wrong};
use super::images::{self, Images};
use super::own::{Buffers, Session, piece_end};
use super::pagemap::{Pagemap, Window};
use super::plan::{self, BATCH_BLOCKS, Group, PIECE_BLOCKS};
use super::{Moved, PagerError};
use crate::arena::{HOLE, Inner, STALE, STORED};
use crate::checksum;
use crate::config;
use crate::staging::Staging;
use crate::store::{Direction, Landed, Queue, Store, Transfer};
use crate::sys::{CHUNK, Errno, GRANULE, PAGE};
use std::ops::Range;
use std::sync::atomic::Ordering;

const GRANULE_BLOCKS: usize = GRANULE / CHUNK;

/// How far a restore may go, and how far it is.
pub(super) struct Room<'a> {
    /// Committed bytes in RAM, with those of groups on their way.
    pub ram: usize,
    /// How much that may become; asked before each group.
    pub limit: &'a mut dyn FnMut(usize) -> usize,
    /// The number of the phase that begins when all is there.
    pub phase: u8,
    /// Something was wanted for which there was no room.
    pub ended: bool,
    pub moved: Moved,
}

impl Session {
    /// Restores the granules of an arena that are wanted, all of them out, in ascending order, while there is
    /// room.
    pub fn bring_in(
        &mut self,
        arena: &Inner,
        room: &mut Room,
        want: impl Fn(usize) -> bool,
    ) -> Result<(), PagerError> {
        let before = room.moved;
        let brought = self.bring_in_uncounted(arena, room, want);
        arena.totals.restored(before, room.moved);
        brought
    }

    fn bring_in_uncounted(
        &mut self,
        arena: &Inner,
        room: &mut Room,
        want: impl Fn(usize) -> bool,
    ) -> Result<(), PagerError> {
        let granules = arena.granules();
        let Some(mut at) = (0..granules).find(|&g| want(g)) else { return Ok(()) };
        let store = arena.store().ok_or(PagerError::io("find the scratch file", at, Errno(libc::EBADF)))?;
        let beside = self.beside(store, (at..granules).filter(|&g| want(g)).count() * GRANULE);
        let Self { pagemap, buffers, .. } = self;
        let Buffers { window, queue, block, images } = &mut **buffers;
        images.reset();
        let copy = &mut block.0;
        let (stages, moved, phase) = ([None, None], &mut room.moved, room.phase);
        let mut reader = Reader { arena, store, beside, queue, copy, images, stages, moved, phase };
        loop {
            while reader.stages[1].is_none() && !room.ended {
                let group = next_group(arena, &mut at, &want, room.ram, room.limit, &mut room.ended);
                if group.is_empty() {
                    break;
                }
                room.ram += group.granules().map(|g| arena.away(g)).sum::<usize>();
                reader.stage(group)?;
            }
            if reader.stages[0].is_none() {
                break;
            }
            reader.fill()?;
            reader.publish(pagemap, window)?;
        }
        drop(reader);
        store.drop_cache();
        Ok(())
    }
}

/// The next granules that are wanted, as many as fit into a group, of one policy for huge pages, and into
/// RAM.
fn next_group(
    arena: &Inner,
    at: &mut usize,
    want: &impl Fn(usize) -> bool,
    ram: usize,
    limit: &mut dyn FnMut(usize) -> usize,
    ended: &mut bool,
) -> Group {
    let mut group = Group::EMPTY;
    let Some(first) = (*at..arena.granules()).find(|&g| want(g)) else { return group };
    let huge = arena.is_huge(first);
    let mut free = limit(ram).saturating_sub(ram);
    *at = first;
    while *at < arena.granules() && !group.is_full() {
        if want(*at) {
            if arena.is_huge(*at) != huge {
                break;
            }
            let takes = arena.away(*at);
            if takes > free {
                *ended = group.is_empty();
                break;
            }
            free -= takes;
            group.push(*at);
        }
        *at += 1;
    }
    group
}

/// A group on its way in.
struct Stage {
    group: Group,
    /// Where it is filled, packed.
    staged: Staging,
    /// Positions of the group in front were moved over.
    published: usize,
    /// The stretch of the group that is asked for, as the position behind it, its bytes, and where it is
    /// filled.
    stretch: (usize, Range<usize>, usize),
    /// Blocks in front were asked for, or are not stored.
    next: usize,
    /// Positions in front are not packed, or their images were asked for.
    unpacked: usize,
    /// Reads under way.
    reading: usize,
    failed: Option<PagerError>,
}

impl Stage {
    /// Whether nothing is left to be asked for.
    fn is_asked(&self) -> bool {
        let count = self.group.granules().count();
        self.next == self.stretch.1.end / CHUNK && self.stretch.0 == count && self.unpacked == count
    }

    /// The next packed granule whose image is to be asked for.
    fn next_packed(&mut self, arena: &Inner) -> Option<usize> {
        let mut rest = self.group.granules().skip(self.unpacked);
        let found = rest.position(|g| arena.has_packed_form(g) && images::image_len(arena, g) > 0);
        self.unpacked = found.map_or(self.group.granules().count(), |n| self.unpacked + n);
        self.group.granules().nth(self.unpacked)
    }
}

/// Reads the groups of an arena in turn. Nothing is under way, or staged, once it is dropped.
struct Reader<'a> {
    arena: &'a Inner,
    store: &'a dyn Store,
    /// Whether to read beside.
    beside: bool,
    queue: &'a mut Queue,
    /// For blocks that are read again.
    copy: &'a mut [u8; CHUNK],
    images: &'a mut Images,
    /// The groups that are filled, the older first.
    stages: [Option<Stage>; 2],
    moved: &'a mut Moved,
    phase: u8,
}

impl Reader<'_> {
    fn stage(&mut self, group: Group) -> Result<(), PagerError> {
        let Some((_, bytes)) = group.stretch(0, 1) else { return Ok(()) };
        let huge = self.arena.is_huge(bytes.start / GRANULE);
        let staged = Staging::new(group.len_bytes() / GRANULE, huge)
            .map_err(|e| PagerError::io("get memory to restore into", bytes.start, e))?;
        let Some((end, bytes)) = group.stretch(0, usize::MAX) else { return Ok(()) };
        let (next, stretch) = (bytes.start / CHUNK, (end, bytes, staged.at(0)));
        let free = self.stages[0].is_some() as usize;
        let stage =
            Stage { group, staged, published: 0, stretch, next, unpacked: 0, reading: 0, failed: None };
        self.stages[free] = Some(stage);
        self.feed();
        Ok(())
    }

    /// Fills the oldest group with its stored blocks, verified, and goes on with the other meanwhile.
    fn fill(&mut self) -> Result<(), PagerError> {
        loop {
            self.feed();
            match &self.stages[0] {
                Some(Stage { failed: Some(e), .. }) => return Err(*e),
                Some(s) if s.reading > 0 || !s.is_asked() => {}
                _ => return Ok(()),
            }
            if let Some(landed) = self.queue.wait(self.store) {
                self.feed(); // before verifying, so that the disk is not kept waiting
                self.land(landed);
            }
        }
    }

    /// Starts reads until the queue is full or all is asked for; without a queue makes one read, of the
    /// oldest.
    fn feed(&mut self) {
        self.ask();
        self.queue.submit(self.store);
    }

    fn ask(&mut self) {
        let most = if self.beside { PIECE_BLOCKS } else { BATCH_BLOCKS };
        for k in 0..2 {
            while let Some(stage) = &mut self.stages[k] {
                if self.queue.is_full() || stage.is_asked() {
                    break;
                }
                if let Some(g) = stage.next_packed(self.arena) {
                    let at = match self.images.take() {
                        Ok(Some(at)) => at,
                        Ok(None) => return, // until one has landed
                        Err(e) => {
                            let e = PagerError::io("get memory to unpack in", g * GRANULE, e);
                            stage.failed.get_or_insert(e);
                            return;
                        }
                    };
                    stage.unpacked += 1;
                    stage.reading += 1;
                    let len = images::image_len(self.arena, g);
                    let transfer = Transfer { direction: Direction::Read, offset: g * GRANULE, at, len };
                    if !self.beside {
                        // SAFETY: a place that was taken.
                        let landed = unsafe { transfer.by_calls(self.store, 0) };
                        return self.land(landed);
                    }
                    // SAFETY: as above; it is given back once the transfer has landed.
                    unsafe { self.queue.start(self.store, transfer) };
                    continue;
                }
                let end = stage.stretch.1.end / CHUNK;
                let state = |i: usize| match self.arena.has_packed_form(i / GRANULE_BLOCKS) {
                    true => HOLE,
                    false => self.arena.block(i).load(Ordering::Acquire),
                };
                let Some(mut blocks) = plan::next_stored(stage.next..end, most, state) else {
                    stage.next = end;
                    let at = stage.stretch.0;
                    if let Some((next, bytes)) = stage.group.stretch(at, usize::MAX) {
                        stage.next = bytes.start / CHUNK;
                        stage.stretch = (next, bytes, stage.staged.at(at));
                    }
                    continue;
                };
                blocks.end = blocks.end.min(piece_end(self.store, blocks.start * CHUNK) / CHUNK);
                let (blocks, unused) = plan::without_gaps(blocks, |i| unused_bytes(self.arena, i));
                stage.next = blocks.end;
                stage.reading += 1;
                let (offset, len) = (blocks.start * CHUNK, blocks.len() * CHUNK - unused);
                let at = stage.stretch.2 + offset - stage.stretch.1.start;
                let transfer = Transfer { direction: Direction::Read, offset, at, len };
                if !self.beside {
                    // SAFETY: the blocks lie inside the stretch, so the target lies inside its place in the
                    // staging.
                    let landed = unsafe { transfer.by_calls(self.store, 0) };
                    return self.land(landed);
                }
                // SAFETY: as above; the staging outlives the transfer.
                unsafe { self.queue.start(self.store, transfer) };
            }
            if !self.beside {
                return;
            }
        }
    }

    /// Verifies what was read.
    fn land(&mut self, landed: Landed) {
        let Transfer { offset, at, len, .. } = landed.transfer;
        let Some(stage) = self.stages.iter_mut().flatten().find(|s| s.group.holds(offset)) else { return };
        stage.reading -= 1;
        let is_image = self.images.holds(at);
        if is_image {
            self.images.give(at); // and not taken again before the end of this
        }
        if let Err((at, errno)) = landed.result {
            let e = PagerError::Io { op: "read the scratch file", offset: at, errno };
            stage.failed.get_or_insert(e);
            return;
        }
        self.moved.bytes += len as u64;
        if is_image {
            let g = offset / GRANULE;
            let Some(k) = stage.group.granules().position(|other| other == g) else { return };
            let to = stage.staged.at(k);
            // SAFETY: the image was read there, and the staging is known to nobody else.
            let take_apart = || unsafe { images::take_apart(self.arena, g, at, to) };
            let done = take_apart().or_else(|wrong| {
                damage::read_image_again(g, wrong, || {
                    // SAFETY: the place is not taken again before the end of this.
                    let landed = unsafe { landed.transfer.by_calls(self.store, 0) };
                    landed.result.is_ok().then(take_apart)
                })
            });
            match done {
                Ok(bytes) => {
                    self.moved.freed_or_filled += bytes as u64;
                    self.moved.scanned += if config::verify() { bytes as u64 } else { 0 };
                }
                Err(e) => drop(stage.failed.get_or_insert(e)),
            }
            return;
        }
        self.moved.freed_or_filled += len as u64;
        if config::verify() {
            for i in offset / CHUNK..(offset + len).div_ceil(CHUNK) {
                let from = (at + i * CHUNK - offset) as *mut u8;
                // SAFETY: just filled, and known to nobody else.
                let bytes =
                    unsafe { std::slice::from_raw_parts_mut(from, self.arena.stored_pages(i) * PAGE) };
                if checksum::of_block(bytes) == self.arena.sum(i) {
                    continue;
                }
                if let Err(e) = Wrong::new(i, bytes).read_again(self.arena, self.copy) {
                    stage.failed.get_or_insert(e);
                    return;
                }
                bytes.copy_from_slice(&self.copy[..bytes.len()]);
            }
            self.moved.scanned += len as u64;
        }
    }

    /// Moves the oldest group, which is filled, to its place.
    fn publish(&mut self, pagemap: &Pagemap, window: &mut Window) -> Result<(), PagerError> {
        let Self { arena, stages, moved, phase, .. } = self;
        let Some(stage) = &mut stages[0] else { return Ok(()) };
        while let Some((next, bytes)) = stage.group.stretch(stage.published, usize::MAX) {
            let staged = stage.staged.at(stage.published);
            pagemap.each(window, arena.base + bytes.start, bytes.len(), &mut |pages, private| {
                for from in pages.step_by(PAGE).filter(|_| private) {
                    let offset = from - arena.base;
                    let to = staged + offset - bytes.start;
                    // SAFETY: a present page of the arena and its place in the staging; nobody writes either.
                    unsafe { std::ptr::copy_nonoverlapping(from as *const u8, to as *mut u8, PAGE) };
                    let i = offset / CHUNK;
                    let is_stored = arena.block(i).load(Ordering::Acquire) == STORED;
                    if !is_stored || offset % CHUNK >= arena.stored_pages(i) * PAGE {
                        moved.freed_or_filled += PAGE as u64;
                    }
                    // The block now differs from its checksum; a tracker has to be told, see arm().
                    arena.set_merged(offset / GRANULE);
                }
                Ok(())
            })?;
            let (at, g, count) = (stage.published, bytes.start / GRANULE, bytes.len() / GRANULE);
            let published = stage.staged.publish(at, arena, g, count);
            published.map_err(|e| PagerError::io("move restored memory into place", bytes.start, e))?;
            stage.published = next;
            arm(arena, bytes.start / GRANULE..bytes.end / GRANULE, *phase);
            arena.epoch.fetch_add(1, Ordering::AcqRel);
        }
        stages[0] = stages[1].take();
        Ok(())
    }
}

impl Drop for Reader<'_> {
    fn drop(&mut self) {
        // The kernel still writes to what is under way.
        while self.queue.wait(self.store).is_some() {}
        for stage in self.stages.iter().flatten() {
            stage.staged.abandon(stage.published);
        }
    }
}

/// Zeros at the end of block `i`, which is stored, in the file.
fn unused_bytes(arena: &Inner, i: usize) -> usize {
    CHUNK - arena.stored_pages(i) * PAGE
}

/// Notes the granules as resident, and tells the tracker that they are in step with the file, but for those
/// that got merged pages and those with blocks that are not what the file holds.
fn arm(arena: &Inner, granules: Range<usize>, phase: u8) {
    let tracker = arena.tracker.tracker();
    let has_stale = |g: usize| {
        (g * GRANULE / CHUNK..(g + 1) * GRANULE / CHUNK)
            .any(|i| arena.block(i).load(Ordering::Acquire) == STALE)
    };
    let mut clean = granules.start;
    for g in granules.clone() {
        let dirty = arena.take_merged(g) | has_stale(g);
        arena.set_in(g, phase);
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
