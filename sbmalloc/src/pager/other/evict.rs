//! Out: pages are copied into a buffer, a full buffer is written while the next is filled, and what has been
//! written is dropped while more is copied.
//!
//! What is dropped together is a *batch*. It is dropped when all of it is on the disk, and only then is it
//! part of the image: what goes wrong before leaves the batches in front out, and the rest as it was.

use super::Moved;
use super::error::OtherError;
use super::image::{Image, Known, granule};
use super::proc::{self, Vma};
use super::space::{Kind, Space};
use super::stop::Threads;
use super::together::Dropping;
use super::writer::{Closed, Drop, From, Tables, Writer};
use crate::pager::transfer::pump::Pump;
use crate::pager::transfer::table::Table;
use crate::sys::{GRANULE, PAGE};
use std::ops::Range;

/// Bytes of a batch: dropping takes long for small pages, and the disk is not to run dry meanwhile.
const BATCH: u64 = 8 << 20;
/// The same where nothing is written beside, and each batch is flushed.
const BATCH_BUFFERED: u64 = 64 << 20;

pub(super) struct Outgoing<'a> {
    threads: &'a Threads,
    spaces: &'a [Space],
    /// Of each of them.
    known: Vec<Known>,
    writer: Writer<'a>,
    batch: u64,
    /// On its way to the disk.
    closed: Option<Closed>,
    /// What is left of the batch that is being dropped: of address spaces, and the one at work.
    left: Vec<Drop>,
    dropping: Option<(usize, Dropping)>,
    moved: Moved,
    progress: &'a mut dyn FnMut(u64),
}

/// Moves what can be moved to the image, of which nothing is out. What was given back in any case, and how it
/// went.
pub(super) fn evict(
    threads: &Threads,
    spaces: &[Space],
    image: &mut Image,
    progress: &mut dyn FnMut(u64),
) -> Result<(Moved, Result<(), OtherError>), OtherError> {
    let mut pump = Pump::new().map_err(|e| image.no_buffers(e))?;
    let mut known = image.known_of(threads.leader(), spaces);
    known.iter_mut().for_each(|known| known.huge.clear());
    let batch = if image.store().async_fd(0).is_some() { BATCH } else { BATCH_BUFFERED };
    let mut outgoing = Outgoing {
        threads,
        spaces,
        known,
        writer: Writer::new(image, &mut pump),
        batch,
        closed: None,
        left: vec![],
        dropping: None,
        moved: Moved::default(),
        progress,
    };
    let result = outgoing.run();
    let Outgoing { known, writer, closed, moved, .. } = outgoing;
    if let Some(closed) = closed {
        closed.0.take_back(writer.image);
    }
    let result = result.and(writer.end());
    image.known = known;
    Ok((moved, result))
}

impl Outgoing<'_> {
    fn run(&mut self) -> Result<(), OtherError> {
        let mut result = self.all();
        if result.is_err() {
            // What was begun is still dropped: it is in the image. If that fails a thread is not parked,
            // which is worse than what went wrong before.
            result = self.drop_on(true).and(result);
        }
        if result.is_err() && !self.threads.is_alive() {
            return Err(OtherError::Gone);
        }
        result
    }

    fn all(&mut self) -> Result<(), OtherError> {
        for number in 0..self.spaces.len() {
            match self.space(number) {
                // It is only not listed just now.
                Err(OtherError::Busy) => return Err(OtherError::Busy),
                // All of its memory is nobody's any more.
                Err(ref error) if self.threads.has_lost(&self.spaces[number], error) => {
                    self.writer.pass_over()
                }
                done => done?,
            }
        }
        self.close()?;
        self.drop_closed()?;
        self.drop_on(true)
    }

    fn space(&mut self, number: usize) -> Result<(), OtherError> {
        let alone = self.spaces.len() > 1;
        let mut vmas: Vec<Vma> = vec![];
        let mut unmanaged = 0;
        let space = &self.spaces[number];
        space.each_vma(&mut |vma| match vma.is_pageable(space.has_own_pager) {
            true if vma.anonymous > 0 => vmas.push(vma),
            true => {}
            false => unmanaged += vma.anonymous,
        })?;
        self.moved.unmanaged += unmanaged;
        vmas.iter().try_for_each(|vma| self.mapping(number, vma, alone))
    }

    fn mapping(&mut self, number: usize, vma: &Vma, alone: bool) -> Result<(), OtherError> {
        let spaces = self.spaces;
        let space = &spaces[number];
        let forced = vma.is_forced();
        if forced && !is_writable_by_force(space, vma, alone)? {
            self.moved.unmanaged += vma.anonymous;
            return Ok(());
        }
        let line = (vma.name == "[stack]").then(|| proc::command_line(space.via)).flatten();
        let end = line.map_or(vma.to, |line| (line & !(PAGE as u64 - 1)).clamp(vma.from, vma.to));
        // Where the last page lies that is there.
        let mut there = None;
        space.each_region(vma.from..end, alone, &mut |range, kind| {
            let before = there.replace(range.end);
            match kind {
                Kind::Stays => self.moved.unmanaged += range.end - range.start,
                Kind::Small => self.region(number, range, before, forced)?,
                Kind::Huge => {
                    let huge = (granule(range.start)..range.end).step_by(GRANULE);
                    self.known[number].huge.extend(huge);
                    self.region(number, range, before, forced)?;
                }
            }
            Ok(())
        })?;
        // Pages of different mappings may be protected differently.
        self.writer.copy(From { number, space, table: &self.known[number].table, forced, unit: PAGE as u64 })
    }

    /// Takes adjacent pages up.
    fn region(
        &mut self,
        number: usize,
        mut range: Range<u64>,
        mut before: Option<u64>,
        forced: bool,
    ) -> Result<(), OtherError> {
        while !range.is_empty() {
            // Up to where a huge page ends: where a part is dropped first the rest becomes small pages, and
            // the whole does not easily become a huge one again.
            let end = range.end.min(granule(range.start) + GRANULE as u64);
            let from = From {
                number,
                space: &self.spaces[number],
                table: &self.known[number].table,
                forced,
                unit: PAGE as u64,
            };
            self.writer.take(range.start..end, before.take(), from)?;
            range.start = end;
            if self.writer.batch.bytes >= self.batch && (range.is_empty() || end == granule(end)) {
                self.writer.copy(from)?;
                self.close()?;
            }
        }
        self.drop_on(false)
    }

    /// What was copied so far is dropped together.
    fn close(&mut self) -> Result<(), OtherError> {
        self.drop_closed()?;
        self.closed = Some(self.writer.close()?);
        Ok(())
    }

    /// Waits for what was closed and begins to drop it.
    fn drop_closed(&mut self) -> Result<(), OtherError> {
        let Some(closed) = self.closed.take() else { return Ok(()) };
        let mut batch = self.writer.settle(closed)?;
        if let Err(error) = self.drop_on(true) {
            batch.take_back(self.writer.image);
            return Err(error);
        }
        // From here on the image holds memory that may not be anywhere else.
        batch.commit(self.writer.image, &mut self.known);
        self.moved.zeros += batch.zeros;
        self.moved.bytes += batch.written;
        self.left = batch.drops;
        self.drop_on(false)
    }

    /// Goes on with the ranges of a batch. With `wait` until all are dropped.
    fn drop_on(&mut self, wait: bool) -> Result<(), OtherError> {
        loop {
            let (number, mut dropping) = match self.dropping.take() {
                Some(dropping) => dropping,
                None if self.left.is_empty() => return Ok(()),
                None => {
                    let number = self.left[0].number;
                    let same = self.left.iter().take_while(|drop| drop.number == number).count();
                    let ranges = self.left.drain(..same).collect();
                    match Dropping::begin(self.threads, &self.spaces[number], ranges) {
                        Ok(dropping) => (number, dropping),
                        Err(ref error) if self.threads.has_lost(&self.spaces[number], error) => continue,
                        Err(error) => return Err(error),
                    }
                }
            };
            if !wait && !dropping.has_news() {
                self.dropping = Some((number, dropping));
                return Ok(());
            }
            let space = &self.spaces[number];
            let (known, moved) = (&mut self.known[number], &mut self.moved);
            let on = dropping.on(space, &mut |drops, is_dropped| {
                moved.freed += drops.iter().map(|drop| drop.bytes).sum::<u64>();
                drops
                    .iter()
                    .filter(|_| !is_dropped)
                    .try_for_each(|drop| kept(space, known, &drop.range, moved))
            });
            let done = match on {
                Ok(true) => {
                    self.dropping = Some((number, dropping));
                    continue;
                }
                Ok(false) => dropping.park(space),
                Err(error) => Err(error),
            };
            match done {
                Err(ref error) if self.threads.has_lost(&self.spaces[number], error) => {}
                done => done?,
            }
            (self.progress)(self.moved.freed);
        }
    }
}

impl Tables for Vec<Known> {
    fn table(&mut self, number: usize) -> Option<&mut Table> {
        self.get_mut(number).map(|known| &mut known.table)
    }
}

/// What the kernel did not drop of a range is still there.
fn kept(space: &Space, known: &mut Known, range: &Range<u64>, moved: &mut Moved) -> Result<(), OtherError> {
    space.each_region(range.clone(), false, &mut |region, _| {
        known.table.is_there(&region);
        moved.freed -= region.end - region.start;
        moved.unmanaged += region.end - region.start;
        Ok(())
    })
}

/// Whether what is to be dropped of a protected mapping can be put back: tried by writing what is there over
/// the first page that is to move.
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
