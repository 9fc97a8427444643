//! How missing pages are served, by the thread that does nothing else (`shared`).
//!
//! The order of things. The kernel hands over faults before events, so a fault may be read before the move of
//! the range it lies in; and events of several threads not in the order in which they happened. But from
//! before a change of an address space until its event was read, pages placed there are refused (`EAGAIN`);
//! so a fault is served, and events are applied (`faults`), only when all events were read, and these in an
//! order that is possible (`changes`).
//!
//! # What the table promises
//! **Each page that holds anything is in RAM, or in exactly one block of the table, and never leaves it but
//! for one of these reasons:** the kernel said that it has placed this very page; or it told, by an event,
//! that the program gave it up, unmapped it or moved it; or the address space is gone. Blocks of the same
//! addresses may have different pages out (what was left behind when a part came back, what `mremap` put
//! there), so nothing is ever concluded for a page from its address, its block, or what was asked for.
//!
//! | the kernel's answer to `UFFDIO_COPY` | what is known | what is done |
//! |---|---|---|
//! | so many bytes | these pages are there | they, and no others, are not out any more |
//! | `EEXIST` | this page is there, and is what the rank sees | it is not out any more |
//! | `EAGAIN` | an event is to be read; nothing placed | all stays out; again when it was read |
//! | `EAGAIN` for a page that the thread's own `mremap` adds to locked memory | no event comes before the page is there | the kernel makes it (`lets_grow`) |
//! | `ENOMEM` | nothing placed | all stays out; again when parts have left |
//! | `ENOENT`, `EINVAL` for several pages | they lie in several mappings | page by page |
//! | `ENOENT` for one | an event that says why is to be read | it stays out; if no event comes in 10 s the rank ends |
//! | `ESRCH` | the address space is gone | so is its table |
//! | anything else, for a page that is waited for | it cannot be put back | the rank ends, named; it never sees zeros |
//! | anything, for what was only brought along | as above | it stays out until it is missed itself |
//!
//! `UFFDIO_ZEROPAGE` concerns pages that are nowhere, so no answer to it changes the table. `REMOVE` of
//! ranges that we drop ourselves (`dropping`) says nothing new: nothing else of the rank runs then, and it is
//! told from others by its range. A drop that the kernel refuses may have dropped what lies before the
//! mapping it refused: which pages are still there is looked up, page by page, before any fault in the range
//! is served.
//!
//! *Proof that nothing is lost.* A page enters the table in `Parts::evict`, written and verified to be on its
//! way, while all threads stand and before it is dropped; from then on a fault in it waits (`is_leaving`)
//! until the drop has been answered. It leaves only as above. The answers that carry no news leave table and
//! memory as they were, so asking again is right. Tests: `sbmalloc/tests/parts` runs random programs
//! (`tests/model`) and compares every byte, also with each of these answers thrown in
//! (`whatever_the_kernel_answers`); `table` has a property test against a model of single pages.

use super::actors::grows;
use super::state::{Served, State};
use super::uffd::Fault;
use crate::checksum;
use crate::pager::other::error::OtherError;
use crate::pager::transfer::pump::{BUFFER, pieces};
use crate::pager::transfer::table::{Copied, blocks};
use crate::sys::{Errno, PAGE};
use std::ops::Range;
use std::time::Duration;

/// Bytes brought at most for one fault: as much for adjacent faults, one behind the other.
pub(super) const WINDOW: u64 = BUFFER as u64;
/// So many new pages at least are made at once: what is never written costs nothing.
const NEW: u64 = 64 << 10;

/// So many faults at most are served at the same time.
const AT_ONCE: usize = 4;

/// Pages on their way, and the buffer for them.
struct Coming {
    list: Vec<(u64, Copied)>,
    buffer: usize,
}

/// How serving a fault has begun.
enum Begun {
    Ended(Outcome),
    Coming(Coming),
}

/// How a fault ended.
enum Outcome {
    Served,
    /// With another, if that is served.
    Comes,
    /// The address space is just changing.
    Again,
    /// The range is just leaving.
    Later,
    /// The system has no memory for it now.
    Starved,
    /// The address space is gone.
    Gone,
}

impl State {
    /// Reads what there is to be told of an address space, and serves who waits.
    pub fn attend(&mut self, number: usize) {
        let mut faults: Vec<Fault> = vec![];
        self.waiting.retain(|&(n, fault)| {
            n != number || {
                faults.push(fault);
                false
            }
        });
        let mut tries = 0;
        loop {
            let is_settled = self.listen(number, &mut faults);
            if !is_settled {
                for fault in faults.clone() {
                    if self.lets_grow(number, fault, &mut faults) {
                        faults.retain(|other| *other != fault);
                    }
                }
            }
            if self.failed.is_some() {
                // Nobody goes on with what is not its memory.
                return;
            }
            if self.is_full() {
                return self.wait_for(number, &faults);
            }
            if faults.is_empty() {
                return;
            }
            let (mut again, mut later) = (!is_settled, false);
            let group = faults.split_off(if is_settled {
                faults.len().saturating_sub(AT_ONCE)
            } else {
                faults.len()
            });
            for (fault, outcome) in self.serve_group(number, &group) {
                match outcome {
                    Ok(Outcome::Served) => self.moved.faults += 1,
                    Ok(Outcome::Gone) => return self.close(number),
                    Ok(Outcome::Comes) => faults.insert(0, fault),
                    Ok(Outcome::Again) if self.lets_grow(number, fault, &mut faults) => {
                        self.moved.faults += 1
                    }
                    Ok(outcome) => {
                        faults.insert(0, fault);
                        again = true;
                        self.starved |= matches!(outcome, Outcome::Starved);
                        later |= matches!(outcome, Outcome::Later);
                    }
                    Err(error) => {
                        self.failed.get_or_insert(error);
                    }
                }
            }
            if self.failed.is_some() {
                // Nobody goes on with what is not its memory.
                return;
            }
            if again {
                tries += 1;
                if tries > 20 || self.starved || later {
                    // Whoever is to change that may need what is locked.
                    return self.wait_for(number, &faults);
                }
                std::thread::sleep(Duration::from_micros(20));
            }
        }
    }

    /// Of locked memory that is moved and grows the kernel makes the new pages before it tells that it was
    /// moved, and until that was read nothing is placed: neither would ever be. Such a page is the kernel's
    /// to make. Whether this was one: its thread waits within such a call, or on its way back from it, where
    /// the kernel touches what is the thread's own and known; and when all is read, what it waits for is what
    /// it missed last. (It may have missed another before, which somebody else brought.)
    fn lets_grow(&mut self, number: usize, fault: Fault, faults: &mut Vec<Fault>) -> bool {
        if !self.served[number].as_ref().is_some_and(|served| grows(served.pid, fault.by)) {
            return false;
        }
        self.hear(number, faults);
        let page = fault.at..fault.at + PAGE as u64;
        self.served[number].as_ref().is_some_and(|served| {
            let is_new = served.missing.is_last(fault) && !served.may_hold(fault.at);
            is_new && served.uffd.unregister(&page).is_ok()
        })
    }

    /// Serves several faults, whose pages the disk looks for at the same time. How each of them ended.
    fn serve_group(&mut self, number: usize, group: &[Fault]) -> Vec<(Fault, Result<Outcome, OtherError>)> {
        let (mut ended, mut begun): (Vec<_>, Vec<(Fault, Coming)>) = (vec![], vec![]);
        for &fault in group.iter().rev() {
            if begun.iter().any(|(_, coming)| coming.list.iter().any(|page| page.0 == fault.at)) {
                ended.push((fault, Ok(Outcome::Comes)));
                continue;
            }
            match self.begin(number, fault, group.len() == 1) {
                Ok(Begun::Ended(outcome)) => ended.push((fault, Ok(outcome))),
                Ok(Begun::Coming(coming)) => begun.push((fault, coming)),
                Err(error) => ended.push((fault, Err(error))),
            }
        }
        for (fault, coming) in begun {
            let outcome = self.finish(number, fault, &coming);
            self.pump.give(coming.buffer);
            ended.push((fault, outcome));
        }
        ended
    }

    fn begin(&mut self, number: usize, fault: Fault, alone: bool) -> Result<Begun, OtherError> {
        let at = fault.at;
        let Some(served) = &mut self.served[number] else { return Ok(Begun::Ended(Outcome::Gone)) };
        let window = served.window(at);
        match served.table.find(at) {
            Some(_) => self.bring(number, at, window, alone),
            None if served.is_doubtful(&(at..at + PAGE as u64)) => {
                Err(OtherError::Unordered { pid: served.pid.unwrap_or(fault.by as i32) })
            }
            None => {
                let room = (window.end - window.start).max(NEW);
                Ok(Begun::Ended(self.make_zeros(number, fault, room)))
            }
        }
    }

    /// Pages that hold nothing yet, as many as follow each other.
    fn make_zeros(&mut self, number: usize, Fault { at, by }: Fault, window: u64) -> Outcome {
        let Some(served) = &mut self.served[number] else { return Outcome::Gone };
        let (page, limit) = (PAGE as u64, at + window);
        let known = served.armed.within(&(at..limit)).first().filter(|r| r.start == at).map(|r| r.end);
        let end = known.unwrap_or(at + page);
        let mut end = served.table.first_out(&(at..end)).unwrap_or(end);
        end = served.doubtful.within(&(at..end)).first().map_or(end, |range| range.start);
        let (mut next, mut is_woken) = (at, false);
        while next < end {
            match served.uffd.zero(&(next..end), &mut self.interference) {
                (done, Ok(())) if done > 0 => {
                    is_woken |= next == at;
                    next += done;
                }
                (_, Err(Errno(libc::EEXIST))) => next += page,
                (_, Err(Errno(libc::EAGAIN))) if next == at => return Outcome::Again,
                (_, Err(Errno(libc::ENOMEM))) if next == at => return Outcome::Starved,
                (_, Err(Errno(libc::ESRCH))) => return Outcome::Gone,
                // Only what lies in one mapping is filled at once.
                (_, Err(_)) if next == at && end > at + page => end = at + page,
                // Not memory any more: whoever waits there is to look again.
                _ => break,
            }
        }
        if !is_woken {
            let _ = served.uffd.wake(&(at..at + page));
        }
        served.brought(next.max(at + page));
        // They become memory as they are written.
        self.resident += next - at;
        self.keep_recent();
        self.have_come(number, &(at..next.max(at + page)), by);
        Outcome::Served
    }

    /// Begins to bring a page back, and what is out behind it.
    fn bring(
        &mut self,
        number: usize,
        at: u64,
        window: Range<u64>,
        alone: bool,
    ) -> Result<Begun, OtherError> {
        if self.is_leaving(number, &(at..at + PAGE as u64)) {
            // It is still there, or about to be gone: nobody that still runs waits for it.
            return Ok(Begun::Ended(Outcome::Later));
        }
        let Some(served) = &self.served[number] else { return Ok(Begun::Ended(Outcome::Gone)) };
        let stays = |&(page, _): &(u64, Copied)| !self.is_leaving(number, &(page..page + PAGE as u64));
        // From the one that is waited for on; before it, only what does not keep it waiting.
        let from = served.table.out_in(&(window.start..at)).filter(|page| !stays(page)).last();
        let from = from.map_or(window.start, |(page, _)| page + PAGE as u64);
        let mut list: Vec<(u64, Copied)> =
            served.table.out_in(&(from..window.end)).take_while(stays).collect();
        let is_recent = |&(_, copied): &(u64, Copied)| self.recent.find(copied.slot).is_some();
        let is_here = list.iter().any(|page| page.0 == at && is_recent(page));
        if is_here {
            list.retain(is_recent);
        }
        let Self { image, pump, recent, .. } = self;
        let buffer = pump.take(image.store()).map_err(|e| image.failed_to_read(e))?;
        if is_here {
            // It was evicted a moment ago: the disk is not needed.
            for ((_, copied), page) in list.iter().zip(pump.bytes(buffer).chunks_mut(PAGE)) {
                page.copy_from_slice(recent.find(copied.slot).unwrap_or(&[0; PAGE]));
            }
            return Ok(Begun::Coming(Coming { list, buffer }));
        }
        let pieces = pieces(list.iter().map(|(_, copied)| copied.slot));
        if alone {
            let read = pump.read_now(image.store(), buffer, &pieces);
            if let Err(failed) = read {
                pump.give(buffer);
                return Err(image.failed_to_read(failed));
            }
        } else {
            pump.read(image.store(), buffer, &pieces);
        }
        self.moved.read += (list.len() * PAGE) as u64;
        Ok(Begun::Coming(Coming { list, buffer }))
    }

    /// Waits for what comes, verifies it, and puts it back. The buffer is to be given back afterwards.
    fn finish(
        &mut self,
        number: usize,
        fault: Fault,
        Coming { list, buffer }: &Coming,
    ) -> Result<Outcome, OtherError> {
        let Self { image, pump, .. } = self;
        pump.arrived(image.store(), *buffer).map_err(|e| image.failed_to_read(e))?;
        let mut pages = list.iter().zip(pump.bytes(*buffer).chunks(PAGE));
        if let Some(((_, copied), _)) =
            pages.find(|((_, copied), page)| checksum::of_page(page) != copied.sum)
        {
            return Err(image.damaged(copied.slot));
        }
        self.choice.missed(fault.by);
        self.place_all(number, fault, list, *buffer)
    }

    /// Puts pages back that lie one behind the other in a buffer, first of all the one that is waited for.
    fn place_all(
        &mut self,
        number: usize,
        Fault { at, by }: Fault,
        list: &[(u64, Copied)],
        buffer: usize,
    ) -> Result<Outcome, OtherError> {
        let first = list.partition_point(|page| page.0 < at);
        let (along, waited) = list.split_at(first);
        let answer = self.place_runs(number, by, waited, (buffer, first));
        if let Err(errno) = answer {
            let Some(served) = &mut self.served[number] else { return Ok(Outcome::Gone) };
            match errno.0 {
                libc::ESRCH => return Ok(Outcome::Gone),
                // What follows was only brought along: it stays out until it is missed itself.
                _ if served.table.find(at).is_none() => {}
                libc::ENOMEM => return Ok(Outcome::Starved),
                libc::EAGAIN => return Ok(Outcome::Again),
                // An event that tells why is still to be read.
                libc::ENOENT if served.is_patient(at) => return Ok(Outcome::Again),
                _ => {
                    let pid = served.pid.unwrap_or_default();
                    return Err(OtherError::Rank { op: "put back a page of", pid, errno });
                }
            }
        } else if self.place_runs(number, by, along, (buffer, 0)) == Err(Errno(libc::ESRCH)) {
            return Ok(Outcome::Gone);
        }
        if let Some(served) = &mut self.served[number] {
            served.brought(list.last().map_or(at, |(last, _)| *last) + PAGE as u64);
        }
        Ok(Outcome::Served)
    }

    /// Puts pages back that lie in the buffer one behind the other, as the first of them does at so many
    /// pages.
    fn place_runs(
        &mut self,
        number: usize,
        by: u32,
        list: &[(u64, Copied)],
        (buffer, mut first): (usize, usize),
    ) -> Result<(), Errno> {
        for pages in list.chunk_by(|a, b| a.0 + PAGE as u64 == b.0) {
            let range = pages[0].0..pages[0].0 + (pages.len() * PAGE) as u64;
            self.place(number, by, &range, (buffer, first * PAGE))?;
            first += pages.len();
        }
        Ok(())
    }

    /// Puts adjacent pages back, which lie in the buffer from an offset on. What the kernel says it has
    /// placed is out no more, and nothing else: see the table above.
    fn place(
        &mut self,
        number: usize,
        by: u32,
        range: &Range<u64>,
        (buffer, offset): (usize, usize),
    ) -> Result<(), Errno> {
        let page = PAGE as u64;
        let (mut from, mut most) = (range.start, u64::MAX);
        while from < range.end {
            let Some(served) = &mut self.served[number] else { return Err(Errno(libc::ESRCH)) };
            let to = range.end.min(from.saturating_add(most));
            let at = offset + (from - range.start) as usize;
            let bytes = &self.pump.bytes(buffer)[at..at + (to - from) as usize];
            let (done, result) = served.uffd.copy(from, bytes, &mut self.interference);
            let there = match result {
                Ok(()) => done,
                // Somebody put it there: it is what the rank sees. Placing wakes who waits for it; so does
                // this.
                Err(Errno(libc::EEXIST)) => {
                    let _ = served.uffd.wake(&(from..from + page));
                    page
                }
                // Only what lies in one mapping is filled at once.
                Err(Errno(libc::ENOENT | libc::EINVAL)) if to > from + page => {
                    most = page;
                    continue;
                }
                Err(errno) => return Err(errno),
            };
            let placed = from..from + there;
            served.table.is_there(&placed);
            self.have_come(number, &placed, by);
            from = placed.end;
            self.moved.filled += done;
            self.resident += done;
            self.keep_recent();
        }
        Ok(())
    }

    /// Pages are there since now, for a thread.
    fn have_come(&mut self, number: usize, range: &Range<u64>, by: u32) {
        let by_sweep = self.served[number].as_ref().is_some_and(Served::sweeps);
        blocks(range).for_each(|(block, pages)| self.choice.came((number, block), pages, by_sweep, by));
    }
}
