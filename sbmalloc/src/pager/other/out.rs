//! Out: pages are copied into a buffer, a full buffer is checked off by its checksum and written while the next is filled, and what
//! has been written is dropped.
//!
//! A *group* is what the pages of some chunks were copied from. It is dropped when all of its chunks are on the disk,
//! and only then is it part of the image: what goes wrong before leaves the groups in front out, and the rest as it was.

use super::Moved;
use super::error::OtherError;
use super::image::{Buffers, CHUNK, FORCED, HUGE, Image, Run};
use super::inject::Session;
use super::proc::{self, Vma};
use super::space::{Kind, RANGES, Space};
use super::stop::Threads;
use crate::checksum;
use crate::store::{Direction, Landed, Transfer};
use crate::sys::{Errno, GRANULE, PAGE};
use std::ops::Range;

/// Chunks of a group. Dropping takes long for small pages, and the disk is not to run dry meanwhile.
const GROUP: usize = 8;
/// The same where nothing is written beside, and each group is flushed.
const GROUP_BUFFERED: usize = 64;

/// A range of a mapping to be dropped: pages that were copied, and such as hold nothing.
struct Drop {
    space: usize,
    range: Range<u64>,
    pages: u64,
}

/// What was copied into some chunks.
#[derive(Default)]
struct Group {
    drops: Vec<Drop>,
    /// The chunks and runs of the image with it.
    chunks: usize,
    runs: Range<usize>,
}

/// A group being dropped, range by range, while the next is copied.
struct Dropping {
    group: Group,
    /// The range that the session's call is about.
    at: usize,
    session: Session,
}

impl Dropping {
    fn start(&mut self) -> Result<(), OtherError> {
        let Range { start, end } = self.group.drops[self.at].range;
        self.session.start(libc::SYS_madvise, [start, end - start, libc::MADV_DONTNEED as u64])
    }
}

/// A stretch about to be copied.
struct Piece {
    range: Range<u64>,
    flags: u64,
    /// What it is to be dropped with.
    drop: usize,
}

/// Where a mapping is being copied from.
struct Place {
    space: usize,
    /// The mapping is to be read and written by means that disregard protection.
    forced: bool,
    /// The pages from here on to where the next is found hold nothing, and may be dropped with it.
    joined: bool,
    /// Where the last stretch begins, if it is of huge pages.
    huge: Option<u64>,
}

pub(super) struct Outgoing<'a> {
    threads: &'a Threads,
    spaces: &'a [Space],
    image: &'a mut Image,
    buffers: Buffers,
    beside: bool,
    /// The chunk being filled: its buffer, and the bytes in it.
    slot: Option<usize>,
    filled: usize,
    /// Pages to be copied to the rest of the buffer, and their bytes.
    pieces: Vec<Piece>,
    wanted: usize,
    place: Place,
    /// Chunks under way.
    flying: Vec<usize>,
    open: Group,
    closed: Option<Group>,
    dropping: Option<Dropping>,
    /// Chunks and runs of the image whose memory was dropped.
    done: (usize, usize),
    failed: Option<(u64, Errno)>,
    moved: Moved,
    freed: u64,
    progress: &'a mut dyn FnMut(u64),
}

impl<'a> Outgoing<'a> {
    pub fn new(
        threads: &'a Threads,
        spaces: &'a [Space],
        image: &'a mut Image,
        progress: &'a mut dyn FnMut(u64),
    ) -> Result<Self, OtherError> {
        let mut buffers = Buffers::new().map_err(|e| image.failed("make buffers for", None, e))?;
        let beside = image.store().async_fd(0).is_some() && buffers.queue().is_ready();
        image.rank = threads.leader();
        Ok(Self {
            threads,
            spaces,
            image,
            buffers,
            beside,
            slot: None,
            filled: 0,
            pieces: vec![],
            wanted: 0,
            place: Place { space: 0, forced: false, joined: false, huge: None },
            flying: vec![],
            open: Group::default(),
            closed: None,
            dropping: None,
            done: (0, 0),
            failed: None,
            moved: Moved::default(),
            freed: 0,
            progress,
        })
    }

    /// Moves all that can be moved. What was moved is told, also if not all could be.
    pub fn run(mut self) -> (Moved, Result<(), OtherError>) {
        let mut result = self.all_spaces();
        while self.wait() {}
        result = result.and(self.drop_on(true));
        if result.is_err() {
            // What was written but not dropped is not out.
            let (chunks, runs) = self.done;
            self.image.runs.truncate(runs);
            if chunks < self.image.sums.len() {
                self.image.sums.truncate(chunks);
                self.image.last = if chunks > 0 { CHUNK / PAGE } else { 0 };
            }
            if matches!(result, Err(OtherError::Gone)) || !self.threads.is_alive() {
                result = Err(OtherError::Gone);
            }
        }
        self.moved.freed = self.freed;
        self.moved.bytes = self.image.bytes();
        (self.moved, result)
    }

    fn all_spaces(&mut self) -> Result<(), OtherError> {
        let spaces = self.spaces;
        for (i, space) in spaces.iter().enumerate() {
            let result = self.space(i);
            if result.is_err() && self.threads.has_lost(space) {
                // A child was killed: what was to be copied of it is nobody's any more.
                self.pieces.clear();
                self.wanted = 0;
                self.place.joined = false;
                self.place.huge = None;
            } else {
                result?;
            }
        }
        self.write_chunk()?;
        // Nothing follows that anything could wait for.
        self.place.huge = None;
        self.close_group()?;
        self.drop_closed()?;
        self.drop_on(true)
    }

    fn space(&mut self, number: usize) -> Result<(), OtherError> {
        let alone = self.spaces.len() > 1;
        let mut vmas: Vec<Vma> = vec![];
        let mut unmanaged = 0;
        self.spaces[number].each_vma(&mut |vma| match vma.is_pageable() {
            true if vma.anonymous > 0 => vmas.push(vma),
            true => {}
            false => unmanaged += vma.anonymous,
        })?;
        self.moved.unmanaged += unmanaged;
        for vma in &vmas {
            self.mapping(number, vma, alone)?;
        }
        self.copy()
    }

    fn mapping(&mut self, number: usize, vma: &Vma, alone: bool) -> Result<(), OtherError> {
        let space = &self.spaces[number];
        // Pages of different mappings are copied together, but by one way, and from one address space.
        let forced = !vma.readable || !vma.writable;
        if number != self.place.space || forced != self.place.forced {
            self.copy()?;
        }
        if forced && !is_writable_by_force(space, vma, alone)? {
            self.moved.unmanaged += vma.anonymous;
            return Ok(());
        }
        self.place = Place { space: number, forced, joined: false, huge: None };
        let line = (vma.name == "[stack]").then(|| proc::command_line(space.via)).flatten();
        let end = line.map_or(vma.to, |line| (line & !(PAGE as u64 - 1)).clamp(vma.from, vma.to));
        space.each_region(vma.from..end, alone, &mut |range, kind| match kind {
            Kind::Stays => {
                self.place.joined = false;
                self.moved.unmanaged += range.end - range.start;
                Ok(())
            }
            Kind::Small => self.region(range, 0),
            Kind::Huge => self.region(range, HUGE),
        })
    }

    /// Takes alike pages up into chunks.
    fn region(&mut self, mut range: Range<u64>, flags: u64) -> Result<(), OtherError> {
        self.place.huge = (flags & HUGE != 0).then_some(range.start);
        let flags = flags | if self.place.forced { FORCED } else { 0 };
        while range.start < range.end {
            if self.filled + self.wanted == CHUNK || self.pieces.len() == RANGES {
                self.copy()?;
            }
            if self.filled == CHUNK {
                self.write_chunk()?;
            }
            let room = (CHUNK - self.filled - self.wanted) as u64;
            let end = range.end.min(range.start + room);
            let drop = self.join(range.start..end);
            self.wanted += (end - range.start) as usize;
            self.pieces.push(Piece { range: range.start..end, flags, drop });
            range.start = end;
        }
        Ok(())
    }

    /// Notes that a range is to be dropped, with what is between it and the last if that holds nothing.
    fn join(&mut self, range: Range<u64>) -> usize {
        let drops = &mut self.open.drops;
        let pages = (range.end - range.start) / PAGE as u64;
        match drops.last_mut() {
            Some(last) if self.place.joined => {
                last.range.end = range.end;
                last.pages += pages;
            }
            _ => drops.push(Drop { space: self.place.space, range, pages }),
        }
        self.place.joined = true;
        drops.len() - 1
    }

    /// Copies what is wanted into the buffer, but for pages of zeros.
    fn copy(&mut self) -> Result<(), OtherError> {
        let pieces = std::mem::take(&mut self.pieces);
        self.wanted = 0;
        if pieces.is_empty() {
            return Ok(());
        }
        let slot = self.take_slot()?;
        let space = &self.spaces[self.place.space];
        let ranges: Vec<Range<u64>> = pieces.iter().map(|p| p.range.clone()).collect();
        let total: usize = ranges.iter().map(|r| (r.end - r.start) as usize).sum();
        let from = self.filled;
        let buffer = &mut self.buffers.bytes(slot)[from..from + total];
        let mut copied = 0;
        if !self.place.forced {
            copied = space.copy_out(&ranges, buffer).map_err(|e| space.failed("read the memory of", e))?;
        }
        let mut at = 0;
        for piece in &pieces {
            let len = (piece.range.end - piece.range.start) as usize;
            if at + len > copied {
                space
                    .peek(piece.range.start, &mut buffer[at..at + len])
                    .map_err(|e| space.failed("read the memory of", e))?;
            }
            at += len;
        }
        // Close up over pages of zeros.
        let (mut at, mut to) = (from, from);
        let number = self.place.space;
        for piece in &pieces {
            for address in piece.range.clone().step_by(PAGE) {
                let bytes = self.buffers.bytes(slot);
                let zero = checksum::content(&bytes[at..at + PAGE]).is_empty();
                if zero {
                    self.moved.zeros += PAGE as u64;
                } else {
                    if at != to {
                        bytes.copy_within(at..at + PAGE, to);
                    }
                    to += PAGE;
                    self.note(number, piece, address);
                }
                at += PAGE;
            }
        }
        self.filled = to;
        Ok(())
    }

    /// Notes where a page comes from.
    fn note(&mut self, space: usize, piece: &Piece, address: u64) {
        let runs = &mut self.image.runs;
        let fresh = runs.len() == self.open.runs.start;
        // A run lies in one range to be dropped.
        let same = runs.last().is_some_and(|run| {
            run.end() == address
                && run.space as usize == space
                && (run.is(HUGE), run.is(FORCED)) == (piece.flags & HUGE != 0, piece.flags & FORCED != 0)
                && self.open.drops[piece.drop].range.contains(&run.at())
        });
        if fresh || !same {
            runs.push(Run::new(space, address, piece.flags));
        }
        if let Some(run) = runs.last_mut() {
            run.pages += 1;
        }
    }

    /// The buffer being filled.
    fn take_slot(&mut self) -> Result<usize, OtherError> {
        if let Some(slot) = self.slot {
            return Ok(slot);
        }
        loop {
            if let Some(slot) = self.buffers.take() {
                self.slot = Some(slot);
                return Ok(slot);
            }
            self.wait();
            self.verdict()?;
        }
    }

    /// Sends the chunk on its way, if there is anything in it.
    fn write_chunk(&mut self) -> Result<(), OtherError> {
        let len = std::mem::take(&mut self.filled);
        let Some(slot) = self.slot.take() else { return Ok(()) };
        if len == 0 {
            self.buffers.give(slot);
            return Ok(());
        }
        let chunk = self.image.sums.len();
        let offset = chunk * CHUNK;
        self.image.lengthen((offset + CHUNK) as u64)?;
        self.image.sums.push(checksum::of(&self.buffers.bytes(slot)[..len]));
        self.image.last = len / PAGE;
        let at = self.buffers.address(slot);
        let transfer = Transfer { direction: Direction::Write, offset, at, len };
        if self.beside {
            self.flying.push(chunk);
            // SAFETY: the buffer is taken, and nobody touches it until its transfer has ended: `run` waits for all.
            unsafe { self.buffers.queue().start(self.image.store(), transfer) };
        } else {
            // SAFETY: as above.
            let landed = unsafe { transfer.by_calls(self.image.store(), 0) };
            self.ended(landed);
        }
        self.verdict()?;
        let group = if self.beside { GROUP } else { GROUP_BUFFERED };
        if self.image.sums.len() >= self.done.0.max(self.closed.as_ref().map_or(0, |g| g.chunks)) + group {
            self.close_group()?;
        }
        let first = self.flying.iter().min().copied().unwrap_or(usize::MAX);
        if self.closed.as_ref().is_some_and(|g| g.chunks <= first) {
            self.drop_closed()?;
        }
        self.drop_on(false)
    }

    /// What was copied so far is dropped together.
    fn close_group(&mut self) -> Result<(), OtherError> {
        self.drop_closed()?;
        let (chunks, runs) = (self.image.sums.len(), self.image.runs.len());
        let left = self.begun_huge_page();
        let next = Group { runs: runs..runs, drops: left.into_iter().collect(), ..Group::default() };
        let mut group = std::mem::replace(&mut self.open, next);
        group.chunks = chunks;
        group.runs.end = runs;
        self.closed = Some(group);
        // What follows may be dropped with that.
        self.place.joined &= !self.open.drops.is_empty();
        Ok(())
    }

    /// Takes the beginning of a huge page off what is dropped, as it is better dropped whole, with the next group: where a part goes first the
    /// rest becomes small pages, and the whole does not easily become a huge one again.
    fn begun_huge_page(&mut self) -> Option<Drop> {
        let from = self.place.huge.filter(|_| self.place.joined)?;
        let last = self.open.drops.last_mut()?;
        let end = last.range.end;
        let cut = (end & !(GRANULE as u64 - 1)).max(from).max(last.range.start);
        if cut == end {
            return None;
        }
        let pages = (end - cut) / PAGE as u64;
        last.range.end = cut;
        last.pages -= pages;
        let space = last.space;
        if last.range.is_empty() {
            self.open.drops.pop();
        }
        Some(Drop { space, range: cut..end, pages })
    }

    /// Waits for the chunks of the closed group and drops what they were copied from.
    fn drop_closed(&mut self) -> Result<(), OtherError> {
        let Some(group) = self.closed.take() else { return Ok(()) };
        while self.flying.iter().any(|&chunk| chunk < group.chunks) {
            self.wait();
            self.verdict()?;
        }
        self.image.store().settle().map_err(|e| self.image.failed("flush", None, e))?;
        self.drop_on(true)?;
        // From here on the image holds memory that may not be anywhere else.
        self.done = (group.chunks, group.runs.end);
        self.begin_drops(group, 0)
    }

    /// Begins to drop ranges of a group, from one on, in the address space of that. Those of one that is gone are passed over.
    fn begin_drops(&mut self, group: Group, mut at: usize) -> Result<(), OtherError> {
        while let Some(first) = group.drops.get(at) {
            let space = &self.spaces[first.space];
            let begun = Session::begin(self.threads, space).and_then(|mut session| {
                let Drop { range, .. } = first;
                let arguments = [range.start, range.end - range.start, libc::MADV_DONTNEED as u64];
                session.start(libc::SYS_madvise, arguments).map(|()| session)
            });
            match begun {
                Ok(session) => {
                    self.dropping = Some(Dropping { group, at, session });
                    return Ok(());
                }
                Err(_) if self.threads.has_lost(space) => at = behind(&group, at),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Takes note of ranges that were dropped, and goes on with the next. With `wait` until all of the group is.
    fn drop_on(&mut self, wait: bool) -> Result<(), OtherError> {
        while let Some(mut dropping) = self.dropping.take() {
            if !wait && !dropping.session.has_news() {
                self.dropping = Some(dropping);
                return Ok(());
            }
            let result = match dropping.session.finish() {
                Ok(result) => result,
                Err(error) => {
                    let Dropping { group, at, .. } = dropping;
                    if !self.threads.has_lost(&self.spaces[group.drops[at].space]) {
                        return Err(error);
                    }
                    let next = behind(&group, at);
                    self.begin_drops(group, next)?;
                    continue;
                }
            };
            let drop = &dropping.group.drops[dropping.at];
            if result == Some(0) {
                self.freed += drop.pages * PAGE as u64;
            } else {
                self.moved.unmanaged += drop.pages * PAGE as u64;
                for run in &mut self.image.runs[dropping.group.runs.clone()] {
                    if run.space as usize == drop.space && drop.range.contains(&run.at()) {
                        run.keep();
                    }
                }
            }
            let space = drop.space;
            dropping.at += 1;
            let next = dropping.group.drops.get(dropping.at).map(|next| next.space);
            if next == Some(space) && dropping.start().is_ok() {
                self.dropping = Some(dropping);
                continue;
            }
            let Dropping { group, at, session } = dropping;
            if let Err(error) = session.park(&self.spaces[space])
                && !self.threads.has_lost(&self.spaces[space])
            {
                return Err(error);
            }
            if next.is_none() {
                (self.progress)(self.freed);
                return Ok(());
            }
            self.begin_drops(group, at)?;
        }
        Ok(())
    }

    /// Takes one transfer off the queue; false if none is under way.
    fn wait(&mut self) -> bool {
        match self.buffers.queue().wait(self.image.store()) {
            Some(landed) => {
                self.flying.retain(|&chunk| chunk * CHUNK != landed.transfer.offset);
                self.ended(landed);
                true
            }
            None => false,
        }
    }

    fn ended(&mut self, Landed { transfer, result }: Landed) {
        let slot = self.buffers.slot_of(transfer.at);
        self.buffers.give(slot);
        if let Err(e) = result
            && self.failed.is_none_or(|first| e.0 < first.0)
        {
            self.failed = Some(e);
        }
    }

    fn verdict(&self) -> Result<(), OtherError> {
        self.failed.map_or(Ok(()), |(at, e)| Err(self.image.failed("write", Some(at), e)))
    }
}

/// The first range behind one that lies in another address space.
fn behind(group: &Group, at: usize) -> usize {
    let space = group.drops[at].space;
    group.drops[at..].iter().position(|drop| drop.space != space).map_or(group.drops.len(), |n| at + n)
}

/// Whether what is to be dropped of a protected mapping can be put back: tried by writing what is there over the first page that is to
/// move.
fn is_writable_by_force(space: &Space, vma: &Vma, alone: bool) -> Result<bool, OtherError> {
    let mut first = None;
    space.each_region(vma.from..vma.to, alone, &mut |range, kind| {
        if kind != Kind::Stays && first.is_none() {
            first = Some(range.start);
        }
        Ok(())
    })?;
    let Some(at) = first else { return Ok(true) };
    let mut page = [0; PAGE];
    Ok(space.peek(at, &mut page).is_ok() && space.poke(at, &page).is_ok())
}
