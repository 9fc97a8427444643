//! The thread that serves missing pages, and what it shares with the thread that traces.
//!
//! The order of things. The kernel hands over faults before events, so a fault may be read before the move of the range it lies
//! in; and events of several threads not in the order in which they happened. But from before a change of an address space until its event
//! was read, pages placed there are refused (`EAGAIN`); so a fault is served, and events are applied (`told`), only when all events were
//! read, and these in an order that is possible (`changes`).
//!
//! # What the table promises
//! **Each page that holds anything is in RAM, or in exactly one block of the table, and never leaves it but for one of these reasons:**
//! the kernel said that it has placed this very page; or it told, by an event, that the program gave it up, unmapped it or moved it; or the address
//! space is gone. Blocks of the same addresses may have different pages out (what was left behind when a part came back, what `mremap` put there), so
//! nothing is ever concluded for a page from its address, its block, or what was asked for.
//!
//! | the kernel's answer to `UFFDIO_COPY` | what is known | what is done |
//! |---|---|---|
//! | so many bytes | these pages are there | they, and no others, are not out any more |
//! | `EEXIST` | this page is there, and is what the rank sees | it is not out any more |
//! | `EAGAIN` | an event is to be read; nothing placed | all stays out; again when it was read |
//! | `ENOMEM` | nothing placed | all stays out; again when parts have left |
//! | `ENOENT`, `EINVAL` for several pages | they lie in several mappings | page by page |
//! | `ENOENT` for one | an event that says why is to be read | it stays out; if no event comes in 10 s the rank ends |
//! | `ESRCH` | the address space is gone | so is its table |
//! | anything else, for a page that is waited for | it cannot be put back | the rank ends, named; it never sees zeros |
//! | anything, for what was only brought along | as above | it stays out until it is missed itself |
//!
//! `UFFDIO_ZEROPAGE` concerns pages that are nowhere, so no answer to it changes the table. `REMOVE` of ranges that we drop ourselves (`dropping`) says nothing new: nothing else of the rank runs then, and it is told from others
//! by its range. A drop that the kernel refuses may have dropped what lies before the mapping it refused: which pages are still there
//! is looked up, page by page, before any fault in the range is served.
//!
//! *Proof that nothing is lost.* A page enters the table in `Parts::leave`, written and verified to be on its way, while all threads stand
//! and before it is dropped; from then on a fault in it waits (`is_leaving`) until the drop has been answered. It leaves only as above.
//! The answers that carry no news leave table and memory as they were, so asking again is right. Tests: `sbmalloc/tests/parts` runs
//! random programs (`tests/model`) and compares every byte, also with each of these answers thrown in (`whatever_the_kernel_answers`); `table` has a
//! property test against a model of single pages.

use super::state::State;
use super::table::{BLOCK, Block};
use crate::checksum;
use crate::pager::other::error::OtherError;
use crate::pager::other::image::Image;
use crate::store::{Direction, Transfer};
use crate::sys::{self, Errno, GRANULE, PAGE};
use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Bytes read at most for one fault: as much for adjacent faults, one behind the other.
pub(super) const WINDOW: u64 = 2 << 20;

pub(super) struct Shared {
    state: Mutex<State>,
    /// Told when the tracing thread may have something to do.
    pub news: Condvar,
}

impl Shared {
    pub fn new(state: State) -> Arc<Self> {
        Arc::new(Self { state: Mutex::new(state), news: Condvar::new() })
    }

    pub fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The life of the thread.
    pub fn serve(&self) {
        let mut buffer = match Buffer::new() {
            Ok(buffer) => buffer,
            Err(e) => {
                let mut state = self.lock();
                state.failed = Some(state.image.failed("make buffers for", None, e));
                self.news.notify_one();
                return;
            }
        };
        loop {
            let (mut polls, patience): (Vec<libc::pollfd>, Duration) = {
                let state = self.lock();
                if state.stop {
                    return;
                }
                let fds = state.served.iter().flatten().map(|s| s.uffd.0.0);
                let polls = fds.map(|fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 });
                let is_settled = state.served.iter().flatten().all(|s| s.told.is_empty());
                let patience = if state.waiting.is_empty() && is_settled { 20_000 } else { 100 };
                (polls.collect(), Duration::from_micros(patience))
            };
            // SAFETY: as many pollfds as are told. A descriptor closed meanwhile is told as such, or is another's, of which no
            // more than its number is used.
            unsafe {
                let patience = libc::timespec { tv_sec: 0, tv_nsec: patience.as_nanos() as i64 };
                libc::ppoll(polls.as_mut_ptr(), polls.len() as libc::nfds_t, &patience, std::ptr::null())
            };
            let begun = Instant::now();
            let mut state = self.lock();
            let before = state.moved.faults;
            for number in 0..state.served.len() {
                let fd = state.served[number].as_ref().map(|s| s.uffd.0.0);
                let is_told = polls.iter().any(|poll| Some(poll.fd) == fd && poll.revents != 0);
                let is_open = state.served[number].as_ref().is_some_and(|s| !s.told.is_empty());
                if is_told || is_open || state.waiting.iter().any(|&(n, _)| n == number) {
                    state.attend(number, &mut buffer);
                }
            }
            if state.moved.faults > before {
                state.moved.serving += begun.elapsed();
            }
            if state.is_full() || state.starved || state.failed.is_some() {
                self.news.notify_one();
            }
        }
    }
}

/// Where what is read lies.
struct Buffer(usize);

impl Buffer {
    fn new() -> Result<Self, Errno> {
        sys::map_anon_aligned(WINDOW as usize, GRANULE).map(Self)
    }

    fn bytes(&self, range: Range<u64>) -> &[u8] {
        assert!(range.end <= WINDOW);
        // SAFETY: within the mapping, which nobody writes while this is borrowed: reading needs it mutably.
        unsafe {
            std::slice::from_raw_parts(
                (self.0 + range.start as usize) as *const u8,
                (range.end - range.start) as usize,
            )
        }
    }

    fn read(&mut self, image: &Image, offset: u64, len: u64) -> Result<(), (u64, Errno)> {
        assert!(len <= WINDOW);
        let (offset, len) = (offset as usize, len as usize);
        let transfer = Transfer { direction: Direction::Read, offset, at: self.0, len };
        // SAFETY: `len` bytes of the mapping, which is borrowed mutably.
        unsafe { transfer.by_calls(image.store(), 0) }.result
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        sys::unmap(self.0, WINDOW as usize);
    }
}

/// How a fault ended.
enum Outcome {
    Served,
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
    fn attend(&mut self, number: usize, buffer: &mut Buffer) {
        let mut faults: Vec<u64> = vec![];
        self.waiting.retain(|&(n, at)| {
            n != number || {
                faults.push(at);
                false
            }
        });
        let mut tries = 0;
        loop {
            let is_settled = self.listen(number, &mut faults);
            if self.failed.is_some() {
                // Nobody goes on with what is not its memory.
                return;
            }
            if self.is_full() {
                return self.wait_for(number, &faults);
            }
            let Some(at) = faults.pop() else { return };
            let outcome = if is_settled { self.fault(number, at, buffer) } else { Ok(Outcome::Again) };
            match outcome {
                Ok(Outcome::Served) => self.moved.faults += 1,
                Ok(Outcome::Gone) => return self.close(number),
                Ok(outcome) => {
                    faults.insert(0, at);
                    tries += 1;
                    self.starved |= matches!(outcome, Outcome::Starved);
                    let later = matches!(outcome, Outcome::Later);
                    if tries > 20 || self.starved || later {
                        // Whoever is to change that may need what is locked.
                        return self.wait_for(number, &faults);
                    }
                    std::thread::sleep(Duration::from_micros(20));
                }
                Err(error) => {
                    self.failed.get_or_insert(error);
                    // Nobody goes on with what is not its memory.
                    return;
                }
            }
        }
    }

    fn fault(&mut self, number: usize, at: u64, buffer: &mut Buffer) -> Result<Outcome, OtherError> {
        let Some(served) = &mut self.served[number] else { return Ok(Outcome::Gone) };
        let window = served.window(at);
        match served.table.find(at) {
            Some(block) => self.bring(number, at, window, block, buffer),
            None => Ok(self.make_zeros(number, at, window)),
        }
    }

    /// Pages that hold nothing yet, as many as follow each other.
    fn make_zeros(&mut self, number: usize, at: u64, window: u64) -> Outcome {
        let Some(served) = &mut self.served[number] else { return Outcome::Gone };
        let (page, limit) = (PAGE as u64, at + window);
        let known = served.armed.within(&(at..limit)).first().filter(|r| r.start == at).map(|r| r.end);
        let end = known.unwrap_or(at + page);
        let mut end = served.table.first_out(&(at..end)).unwrap_or(end);
        let mut next = at;
        while next < end {
            match served.uffd.zero(&(next..end), &mut self.interference) {
                (done, Ok(())) if done > 0 => next += done,
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
        let _ = served.uffd.wake(&(at..at + page));
        served.brought(next.max(at + page));
        // They become memory as they are written.
        self.resident += next - at;
        self.choice.came((number, at & !(GRANULE as u64 - 1)));
        Outcome::Served
    }

    /// Brings a block back, and what follows it, of those that lie behind it in the file too.
    fn bring(
        &mut self,
        number: usize,
        at: u64,
        window: u64,
        first: Block,
        buffer: &mut Buffer,
    ) -> Result<Outcome, OtherError> {
        let leaves = |block: &Block| {
            stretches(block.out, block.at).iter().any(|stretch| self.is_leaving(number, stretch))
        };
        if leaves(&first) {
            // It is still there, or about to be gone: nobody that still runs waits for it.
            return Ok(Outcome::Later);
        }
        let Some(served) = &self.served[number] else { return Ok(Outcome::Gone) };
        let mut blocks = vec![first];
        while (blocks.len() as u64) < window / BLOCK {
            let next = first.at + blocks.len() as u64 * BLOCK;
            match served.table.find(next) {
                Some(b) if b.at == next && b.slot == first.slot + blocks.len() as u32 && !leaves(&b) => {
                    blocks.push(b);
                }
                _ => break,
            }
        }
        let offset = u64::from(first.slot) * BLOCK;
        let len = blocks.len() as u64 * BLOCK;
        buffer.read(&self.image, offset, len).map_err(|(at, e)| self.image.failed("read", Some(at), e))?;
        self.moved.read += len;
        for (i, block) in (0..).zip(&blocks) {
            let bytes = i * BLOCK..(i + 1) * BLOCK;
            if checksum::of(buffer.bytes(bytes.clone())) != block.sum {
                return Err(self.image.damaged(offset + bytes.start));
            }
        }
        for (i, block) in (0..).zip(&blocks) {
            for pages in stretches(block.out, 0) {
                let bytes = i * BLOCK + pages.start..i * BLOCK + pages.end;
                let answer = self.place(number, block, &pages, buffer.bytes(bytes));
                let Some(served) = &mut self.served[number] else { return Ok(Outcome::Gone) };
                let Err(errno) = answer else { continue };
                if errno == Errno(libc::ESRCH) {
                    return Ok(Outcome::Gone);
                }
                if served.table.find(at).is_none() {
                    // What follows was only brought along: it stays out until it is missed itself.
                    self.is_there(number, at, first.at..block.at + BLOCK);
                    return Ok(Outcome::Served);
                }
                return match errno.0 {
                    libc::ENOMEM => Ok(Outcome::Starved),
                    libc::EAGAIN => Ok(Outcome::Again),
                    // An event that tells why is still to be read.
                    libc::ENOENT if served.is_patient(at) => Ok(Outcome::Again),
                    _ => Err(OtherError::Rank {
                        op: "put back a page of",
                        pid: served.pid.unwrap_or_default(),
                        errno,
                    }),
                };
            }
        }
        self.is_there(number, at, first.at..first.at + len);
        Ok(Outcome::Served)
    }

    /// Lets go on who waits for a page, which was brought with the range in which it lies.
    fn is_there(&mut self, number: usize, at: u64, range: Range<u64>) {
        if let Some(served) = &mut self.served[number] {
            let _ = served.uffd.wake(&(at..at + PAGE as u64));
            served.brought(range.end);
        }
        granules(&range).for_each(|granule| self.choice.came((number, granule)));
    }

    /// Puts adjacent pages of a block back; `pages` in bytes from its start. What the kernel says it has placed is out no more, and
    /// nothing else: see the table above.
    fn place(&mut self, number: usize, block: &Block, pages: &Range<u64>, bytes: &[u8]) -> Result<(), Errno> {
        let page = PAGE as u64;
        let (mut from, mut most) = (pages.start, u64::MAX);
        while from < pages.end {
            let Some(served) = &mut self.served[number] else { return Err(Errno(libc::ESRCH)) };
            let to = pages.end.min(from.saturating_add(most));
            let piece = (from - pages.start) as usize..(to - pages.start) as usize;
            let (done, result) = served.uffd.copy(block.at + from, &bytes[piece], &mut self.interference);
            let there = match result {
                Ok(()) => done,
                // Somebody put it there: it is what the rank sees.
                Err(Errno(libc::EEXIST)) => page,
                // Only what lies in one mapping is filled at once.
                Err(Errno(libc::ENOENT | libc::EINVAL)) if to > from + page => {
                    most = page;
                    continue;
                }
                Err(errno) => return Err(errno),
            };
            let set = (from / page..(from + there) / page).fold(0, |set, i| set | 1 << i);
            served.table.placed(block, set);
            from += there;
            self.moved.filled += done;
            self.resident += done;
        }
        Ok(())
    }
}

/// Adjacent pages of a set, as bytes from `base` on.
fn stretches(pages: u16, base: u64) -> Vec<Range<u64>> {
    let mut list: Vec<Range<u64>> = vec![];
    for i in (0..16).filter(|i| pages & 1 << i != 0) {
        let at = base + i * PAGE as u64;
        match list.last_mut() {
            Some(last) if last.end == at => last.end += PAGE as u64,
            _ => list.push(at..at + PAGE as u64),
        }
    }
    list
}

/// The granules in which a range lies.
pub(super) fn granules(range: &Range<u64>) -> impl Iterator<Item = u64> {
    let size = GRANULE as u64;
    (range.start / size..range.end.div_ceil(size)).map(move |i| i * size)
}
