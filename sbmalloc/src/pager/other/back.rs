//! Back: chunks are read ahead into buffers, verified, and written to where their pages were.
//!
//! Where pages were parts of huge ones, and at least half of a huge one comes back, it is made anew first: one of its
//! pages is touched, and if that was not enough the kernel is asked to collapse it.

use super::Moved;
use super::error::OtherError;
use super::image::{Buffers, CHUNK, FORCED, HUGE, Image, KEPT, Run};
use super::inject::Session;
use super::space::{RANGES, Space};
use super::stop::Threads;
use crate::checksum;
use crate::store::{Direction, Transfer};
use crate::sys::{Errno, GRANULE, PAGE};
use std::ops::Range;

/// Told of what has come back each time so much has.
const TELL: u64 = 16 << 20;
/// So many pages are made by one call, ahead; for less it does not pay.
const AHEAD: u32 = 64;
/// At most so many, as each call costs a few switches between this thread and the one that makes it.
const AT_ONCE: usize = (4 << 20) / PAGE;

pub(super) struct Incoming<'a> {
    threads: &'a Threads,
    spaces: &'a [Space],
    image: &'a Image,
    buffers: Buffers,
    beside: bool,
    /// The next chunk to be read.
    next: usize,
    /// The buffers of the chunks that were asked for, and whether they are there.
    asked: Vec<(usize, usize, bool)>,
    failed: Option<(u64, Errno)>,
    /// The next page of the stream belongs to this run, after so many of its pages.
    run: usize,
    pages: u32,
    /// The huge page made last, of an address space.
    huge: (u32, u64),
    session: Option<(Session, usize)>,
    /// Up to here pages were made ahead, or are being made, of an address space.
    made: (u32, u64),
    moved: Moved,
}

impl<'a> Incoming<'a> {
    pub fn new(threads: &'a Threads, spaces: &'a [Space], image: &'a Image) -> Result<Self, OtherError> {
        let mut buffers = Buffers::new().map_err(|e| image.failed("make buffers for", None, e))?;
        let beside = image.store().async_fd(0).is_some() && buffers.queue().is_ready();
        Ok(Self {
            threads,
            spaces,
            image,
            buffers,
            beside,
            next: 0,
            asked: vec![],
            failed: None,
            run: 0,
            pages: 0,
            huge: (0, 0),
            session: None,
            made: (0, 0),
            moved: Moved::default(),
        })
    }

    pub fn run(mut self, progress: &mut dyn FnMut(u64)) -> Result<Moved, OtherError> {
        let mut result = self.all(progress);
        while self.wait() {}
        if let Some((session, space)) = self.session.take() {
            let parked = session.park(&self.spaces[space]);
            result = result.and(self.unless_lost(space, parked));
        }
        // Whether or not a call was under way when the page that it lies in was copied.
        for (i, space) in self.spaces.iter().enumerate() {
            result = result.and_then(|()| self.unless_lost(i, space.put_rseq_back()));
        }
        if result.is_err() && !self.threads.is_alive() {
            return Err(OtherError::Gone);
        }
        result.map(|()| self.moved)
    }

    /// What goes wrong with an address space of which all were killed is of no matter: it needs nothing any more.
    fn unless_lost(&self, space: usize, result: Result<(), OtherError>) -> Result<(), OtherError> {
        match result {
            Err(_) if self.threads.has_lost(&self.spaces[space]) => Ok(()),
            result => result,
        }
    }

    fn all(&mut self, progress: &mut dyn FnMut(u64)) -> Result<(), OtherError> {
        let mut told = 0;
        for chunk in 0..self.image.sums.len() {
            self.read_ahead();
            let slot = self.arrived(chunk)?;
            let len = self.image.chunk_len(chunk);
            if checksum::of(&self.buffers.bytes(slot)[..len]) != self.image.sums[chunk] {
                return Err(self.image.corrupt(chunk));
            }
            self.put_back(slot, len)?;
            self.buffers.give(slot);
            self.moved.bytes += len as u64;
            if self.moved.freed >= told + TELL {
                told = self.moved.freed;
                progress(told);
            }
        }
        progress(self.moved.freed);
        Ok(())
    }

    /// Asks for as many chunks as there are buffers.
    fn read_ahead(&mut self) {
        while self.next < self.image.sums.len()
            && let Some(slot) = self.buffers.take()
        {
            let (chunk, at) = (self.next, self.buffers.address(slot));
            let len = self.image.chunk_len(chunk);
            let transfer = Transfer { direction: Direction::Read, offset: chunk * CHUNK, at, len };
            self.next += 1;
            self.asked.push((chunk, slot, !self.beside));
            if self.beside {
                // SAFETY: the buffer is taken, and nobody looks at it before its transfer has ended: `run` waits for all.
                unsafe { self.buffers.queue().start(self.image.store(), transfer) };
            } else {
                // SAFETY: as above.
                let landed = unsafe { transfer.by_calls(self.image.store(), 0) };
                self.failed = self.failed.or(landed.result.err());
                return;
            }
        }
    }

    /// Waits for a chunk that was asked for. Its buffer.
    fn arrived(&mut self, chunk: usize) -> Result<usize, OtherError> {
        loop {
            if let Some((at, e)) = self.failed {
                return Err(self.image.failed("read", Some(at), e));
            }
            let place = self.asked.iter().position(|&(c, _, there)| c == chunk && there);
            if let Some(i) = place {
                return Ok(self.asked.swap_remove(i).1);
            }
            if !self.wait() {
                return Err(self.image.failed("read", Some((chunk * CHUNK) as u64), Errno(libc::EIO)));
            }
        }
    }

    fn wait(&mut self) -> bool {
        let Some(landed) = self.buffers.queue().wait(self.image.store()) else { return false };
        let chunk = landed.transfer.offset / CHUNK;
        self.asked.iter_mut().filter(|a| a.0 == chunk).for_each(|a| a.2 = true);
        self.failed = self.failed.or(landed.result.err());
        true
    }

    /// Writes the pages of a chunk to where they were.
    fn put_back(&mut self, slot: usize, len: usize) -> Result<(), OtherError> {
        let mut at = 0;
        while at < len {
            // Stretches of one address space, written in one way.
            let first = self.image.runs[self.run];
            let kind = |run: &Run| (run.space, run.is(FORCED), run.is(KEPT));
            let mut ranges: Vec<Range<u64>> = vec![];
            let mut bytes = 0;
            while at + bytes < len && ranges.len() < RANGES {
                let Some(run) = self.image.runs.get(self.run).filter(|run| kind(run) == kind(&first)) else {
                    break;
                };
                let from = run.at() + u64::from(self.pages) * PAGE as u64;
                let count = (run.pages - self.pages).min(((len - at - bytes) / PAGE) as u32);
                let to = from + u64::from(count) * PAGE as u64;
                if run.is(HUGE) && !run.is(KEPT) {
                    let made = self.make_huge(self.run, from..to);
                    self.unless_lost(run.space as usize, made)?;
                }
                ranges.push(from..to);
                bytes += count as usize * PAGE;
                self.pages += count;
                if self.pages == run.pages {
                    (self.run, self.pages) = (self.run + 1, 0);
                }
            }
            let made = self.make_ahead();
            if let Some(run) = self.image.runs.get(self.run) {
                self.unless_lost(run.space as usize, made)?;
            }
            let space = &self.spaces[first.space as usize];
            if !first.is(KEPT) {
                let buffer = &self.buffers.bytes(slot)[at..at + bytes];
                let written = write(space, &ranges, buffer, first.is(FORCED))
                    .map_err(|e| space.failed("write the memory of", e));
                self.unless_lost(first.space as usize, written)?;
                self.moved.freed += bytes as u64;
            }
            at += bytes;
        }
        Ok(())
    }

    /// Makes the huge pages in which a part of a run lies, before anything of them is written.
    fn make_huge(&mut self, run: usize, range: Range<u64>) -> Result<(), OtherError> {
        let size = GRANULE as u64;
        let space = self.image.runs[run].space;
        let number = space as usize;
        let mut unit = range.start & !(size - 1);
        while unit < range.end {
            if self.huge != (space, unit) {
                self.huge = (space, unit);
                let touched = unit.max(range.start);
                if self.is_mostly_back(run, unit..unit + size)
                    && self.spaces[number].touch(touched)
                    && !self.spaces[number].is_huge(touched)
                {
                    self.collapse(number, unit)?;
                }
            }
            unit += size;
        }
        Ok(())
    }

    /// Whether at least half of a huge page comes back, counting from a run on.
    fn is_mostly_back(&self, run: usize, unit: Range<u64>) -> bool {
        let inside = self.image.runs[run..]
            .iter()
            .take_while(|r| {
                r.space == self.image.runs[run].space && r.at() < unit.end && r.end() > unit.start
            })
            .filter(|r| r.is(HUGE) && !r.is(KEPT));
        let bytes: u64 = inside.map(|r| r.end().min(unit.end) - r.at().max(unit.start)).sum();
        bytes >= GRANULE as u64 / 2
    }

    /// Has the rank make the pages that are filled next, while these are.
    fn make_ahead(&mut self) -> Result<(), OtherError> {
        let Some(&run) = self.image.runs.get(self.run) else { return Ok(()) };
        let pages = (run.pages - self.pages).min(AT_ONCE as u32);
        let from = run.at() + u64::from(self.pages) * PAGE as u64;
        if self.made.0 == run.space && (run.at()..self.made.1).contains(&from) {
            return Ok(());
        }
        if pages < AHEAD || run.is(FORCED) || run.is(KEPT) {
            return Ok(());
        }
        self.made = (run.space, from + u64::from(pages) * PAGE as u64);
        let arguments = [from, u64::from(pages) * PAGE as u64, libc::MADV_POPULATE_WRITE as u64];
        // Where the kernel cannot (before 5.14) they are made one by one as they are filled.
        self.session(run.space as usize)?.start(libc::SYS_madvise, arguments)
    }

    /// A thread that makes calls in an address space.
    fn session(&mut self, number: usize) -> Result<&mut Session, OtherError> {
        if let Some((session, space)) = self.session.take_if(|(_, space)| *space != number) {
            let parked = session.park(&self.spaces[space]);
            self.unless_lost(space, parked)?;
        }
        match &mut self.session {
            Some((session, _)) => Ok(session),
            none => {
                let session = Session::begin(self.threads, &self.spaces[number])?;
                Ok(&mut none.insert((session, number)).0)
            }
        }
    }

    fn collapse(&mut self, number: usize, unit: u64) -> Result<(), OtherError> {
        let arguments = [unit, GRANULE as u64, libc::MADV_COLLAPSE as u64];
        // Where it fails there will be small pages.
        self.session(number)?.call(libc::SYS_madvise, arguments).map(drop)
    }
}

/// Writes bytes to ranges that follow each other.
fn write(space: &Space, ranges: &[Range<u64>], bytes: &[u8], forced: bool) -> Result<(), Errno> {
    let copied = if forced { 0 } else { space.copy_in(ranges, bytes)? };
    let mut at = 0;
    for range in ranges {
        let len = (range.end - range.start) as usize;
        if at + len > copied {
            space.poke(range.start, &bytes[at..at + len])?;
        }
        at += len;
    }
    Ok(())
}
