//! Back: pages are read ahead into buffers, verified, and written to where they were.
//!
//! Where pages were parts of huge ones, and at least half of a huge one comes back, it is made anew first:
//! one of its pages is touched, and if that was not enough the kernel is asked to collapse it.

use super::Moved;
use super::error::OtherError;
use super::image::{Image, Known, granule};
use super::inject::Session;
use super::proc;
use super::space::{RANGES, Space};
use super::stop::Threads;
use crate::checksum;
use crate::pager::transfer::pump::{BUFFER, Pump, pieces};
use crate::pager::transfer::table::{Copied, EVERYTHING};
use crate::sys::{Errno, GRANULE, PAGE};
use std::collections::VecDeque;
use std::iter::Peekable;
use std::ops::Range;

/// Told of what has come back each time so much has.
const TELL: u64 = 16 << 20;
/// So many bytes are made by one call, ahead; for less it does not pay.
const AHEAD: u64 = 256 << 10;
/// At most so many, as each call costs a few switches between this thread and the one that makes it.
const AT_ONCE: u64 = 4 << 20;

/// Pages of an address space, one behind the other in a buffer.
struct Chunk {
    number: usize,
    buffer: usize,
    pages: Vec<(u64, Copied)>,
}

struct Incoming<'a> {
    threads: &'a Threads,
    spaces: &'a [Space],
    image: &'a Image,
    pump: Pump,
    /// What was asked for.
    chunks: VecDeque<Chunk>,
    /// Ranges of each address space that can only be written by force.
    forced: Vec<Vec<Range<u64>>>,
    /// The huge page made last, of an address space.
    huge: (usize, u64),
    session: Option<(Session, usize)>,
    /// Up to here pages were made ahead, or are being made, of an address space.
    made: (usize, u64),
    moved: Moved,
}

/// Brings back all that is out. The image is as it was, and lies ready for the next time, when that has been
/// noted.
pub(super) fn restore(
    threads: &Threads,
    spaces: &[Space],
    image: &mut Image,
    progress: &mut dyn FnMut(u64),
) -> Result<Moved, OtherError> {
    let known = image.known_of(threads.leader(), spaces);
    let pump = Pump::new().map_err(|e| image.no_buffers(e));
    let result = pump.and_then(|pump| {
        let incoming = Incoming {
            threads,
            spaces,
            image,
            pump,
            chunks: VecDeque::new(),
            forced: vec![],
            huge: (0, 0),
            session: None,
            made: (0, 0),
            moved: Moved::default(),
        };
        incoming.run(&known, progress)
    });
    image.known = known;
    if result.is_ok() {
        image.known.iter_mut().for_each(|known| known.table.is_there(&EVERYTHING));
    }
    result
}

type Pages<'p> = Peekable<Box<dyn Iterator<Item = (usize, u64, Copied)> + 'p>>;

impl Incoming<'_> {
    fn run(mut self, known: &[Known], progress: &mut dyn FnMut(u64)) -> Result<Moved, OtherError> {
        let mut result = self.all(known, progress);
        // The buffers are the kernel's until then.
        let _ = self.pump.drain(self.image.store());
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

    /// What goes wrong with an address space of which all were killed is of no matter: it needs nothing any
    /// more.
    fn unless_lost(&self, space: usize, result: Result<(), OtherError>) -> Result<(), OtherError> {
        match result {
            Err(OtherError::Busy) => result,
            Err(ref error) if self.threads.has_lost(&self.spaces[space], error) => Ok(()),
            result => result,
        }
    }

    fn all(&mut self, known: &[Known], progress: &mut dyn FnMut(u64)) -> Result<(), OtherError> {
        for number in 0..self.spaces.len() {
            let forced = forced(&self.spaces[number]);
            let failed = forced.as_ref().err().cloned().map_or(Ok(()), Err);
            self.unless_lost(number, failed)?;
            self.forced.push(forced.unwrap_or_default());
        }
        let all = known.iter().enumerate().flat_map(|(number, known)| {
            known.table.out_in(&EVERYTHING).map(move |(at, copied)| (number, at, copied))
        });
        let mut pages: Pages<'_> = (Box::new(all) as Box<dyn Iterator<Item = _>>).peekable();
        let mut told = 0;
        loop {
            self.read_ahead(&mut pages)?;
            let Some(chunk) = self.chunks.pop_front() else { break };
            let arrived = self.pump.arrived(self.image.store(), chunk.buffer);
            arrived.map_err(|e| self.image.failed_to_read(e))?;
            let bytes = self.pump.bytes(chunk.buffer).chunks(PAGE);
            let mut verified = chunk.pages.iter().zip(bytes);
            if let Some(((_, damaged), _)) = verified.find(|((_, c), page)| checksum::of_page(page) != c.sum)
            {
                return Err(self.image.damaged(damaged.slot));
            }
            self.moved.bytes += (chunk.pages.len() * PAGE) as u64;
            let put = self.put_back(&known[chunk.number], &chunk);
            self.unless_lost(chunk.number, put)?;
            self.pump.give(chunk.buffer);
            if self.moved.freed >= told + TELL {
                told = self.moved.freed;
                progress(told);
            }
        }
        progress(self.moved.freed);
        Ok(())
    }

    /// Asks for as many chunks as there are buffers.
    fn read_ahead(&mut self, pages: &mut Pages<'_>) -> Result<(), OtherError> {
        while let Some(&(number, ..)) = pages.peek()
            && (self.chunks.is_empty() || self.pump.has_free())
        {
            let store = self.image.store();
            let buffer = self.pump.take(store).map_err(|e| self.image.failed_to_read(e))?;
            let mut chunk = Chunk { number, buffer, pages: Vec::with_capacity(BUFFER / PAGE) };
            while chunk.pages.len() < BUFFER / PAGE
                && let Some((_, at, copied)) = pages.next_if(|page| page.0 == number)
            {
                chunk.pages.push((at, copied));
            }
            let pieces = pieces(chunk.pages.iter().map(|(_, copied)| copied.slot));
            self.pump.read(store, buffer, &pieces);
            self.chunks.push_back(chunk);
        }
        Ok(())
    }

    /// Writes the pages of a chunk to where they were.
    fn put_back(&mut self, known: &Known, chunk: &Chunk) -> Result<(), OtherError> {
        let spaces = self.spaces;
        let space = &spaces[chunk.number];
        let mut done = 0;
        let mut ranges = ranges(&chunk.pages).peekable();
        while ranges.peek().is_some() {
            // Stretches that are written in one way.
            let (mut list, mut bytes, mut forced) = (vec![], 0, false);
            while let Some(range) = ranges.peek().filter(|_| list.len() < RANGES) {
                let how = self.is_forced(chunk.number, range.start);
                if !list.is_empty() && how != forced {
                    break;
                }
                forced = how;
                self.make_huge(known, chunk.number, range)?;
                bytes += (range.end - range.start) as usize;
                list.extend(ranges.next());
            }
            self.make_ahead(chunk, list.last().map_or(0, |range: &Range<u64>| range.end))?;
            let buffer = &self.pump.bytes(chunk.buffer)[done..done + bytes];
            write(space, &list, buffer, forced).map_err(|e| space.failed("write the memory of", e))?;
            done += bytes;
            self.moved.freed += bytes as u64;
        }
        Ok(())
    }

    fn is_forced(&self, number: usize, at: u64) -> bool {
        let forced = &self.forced[number];
        let i = forced.partition_point(|range| range.end <= at);
        forced.get(i).is_some_and(|range| range.contains(&at))
    }

    /// Makes the huge pages in which a range lies, before anything of them is written.
    fn make_huge(&mut self, known: &Known, number: usize, range: &Range<u64>) -> Result<(), OtherError> {
        if known.huge.is_empty() {
            return Ok(());
        }
        for unit in (granule(range.start)..range.end).step_by(GRANULE) {
            if self.huge == (number, unit) || !known.huge.contains(&unit) {
                continue;
            }
            self.huge = (number, unit);
            let back = known.table.out_in(&(unit..unit + GRANULE as u64)).count() * PAGE;
            let (space, touched) = (&self.spaces[number], unit.max(range.start));
            if back >= GRANULE / 2 && space.touch(touched) && !space.is_huge(touched) {
                // Where it fails there will be small pages.
                let arguments = [unit, GRANULE as u64, libc::MADV_COLLAPSE as u64];
                self.session(number)?.call(libc::SYS_madvise, arguments)?;
            }
        }
        Ok(())
    }

    /// Has the rank make the pages that are filled next, while these are: those that follow, of the next
    /// chunks.
    fn make_ahead(&mut self, chunk: &Chunk, from: u64) -> Result<(), OtherError> {
        let number = chunk.number;
        let next = chunk.pages.iter().skip_while(|page| page.0 < from);
        let more = self.chunks.iter().filter(|chunk| chunk.number == number).flat_map(|chunk| &chunk.pages);
        let mut next = next.chain(more).map(|page| page.0).peekable();
        let Some(&begin) = next.peek() else { return Ok(()) };
        if self.made.0 == number && begin < self.made.1 || self.is_forced(number, begin) {
            return Ok(());
        }
        let mut end = begin;
        while next.next_if_eq(&end).is_some() && end - begin < AT_ONCE {
            end += PAGE as u64;
        }
        if end - begin < AHEAD {
            return Ok(());
        }
        self.made = (number, end);
        // Where the kernel cannot (before 5.14) they are made one by one as they are filled.
        let arguments = [begin, end - begin, libc::MADV_POPULATE_WRITE as u64];
        self.session(number)?.start(libc::SYS_madvise, arguments)
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
}

/// Adjacent pages as ranges.
fn ranges(pages: &[(u64, Copied)]) -> impl Iterator<Item = Range<u64>> {
    let adjacent = pages.chunk_by(|a, b| a.0 + PAGE as u64 == b.0);
    adjacent.map(|pages| pages[0].0..pages[0].0 + (pages.len() * PAGE) as u64)
}

/// The mappings that cannot be read and written by calls that heed protection, ascending.
fn forced(space: &Space) -> Result<Vec<Range<u64>>, OtherError> {
    let mut list = vec![];
    let listed = proc::each_range(space.via(), &mut |vma| {
        if vma.is_forced() {
            list.push(vma.from..vma.to);
        }
    });
    listed.map_err(|e| space.not_listed(Errno::from(&e)))?;
    Ok(list)
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
