//! Messages whose parts are sent when each is ready (MPI-5.0, chapter 4).
//!
//! Who is going to send announces a *channel*: as many tags as there are parts, on a context of such messages
//! alone. Announcements are matched in the order of the calls, like messages. A part is then a message of its
//! own, so that it arrives by itself.

use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bdrun_mpi_core::error::Class;
use bdrun_mpi_core::group::Process;
use bdrun_mpi_core::matching::Want;

use crate::Mpi;
use crate::args::{Buffer, Ints, Status};
use crate::calls::Partitioned;
use crate::comm::Communicator;
use crate::communicators::{bytes_of, numbers_in};
use crate::datatypes::memory::Span;
use crate::failure::{Answer, Failure};
use crate::handle::{Comm, Datatype, Info, Request};
use crate::messages::{self, FROM_NOBODY, MOST_TAG};
use crate::operation::{Done, Operation, Waits};

/// Contexts of parts, and of announcements, behind that of the communicator.
const PARTS: u32 = 2;
const ANNOUNCED: u32 = 3;
/// Bytes of an announcement: the first tag, how many parts, bytes of each.
const ANNOUNCEMENT: usize = 3 * size_of::<i64>();

/// A request of this kind.
#[derive(Debug)]
pub enum Parts {
    Sends(Sends),
    Receives(Receives),
}

/// What is sent.
#[derive(Debug)]
pub struct Sends {
    comm: Arc<Communicator>,
    to: Option<Process>,
    first_tag: i32,
    /// All of it; each part has so many elements.
    span: Span,
    each: i64,
    partitions: i64,
    state: Mutex<Option<Ready>>,
}

/// What is ready of what was started.
#[derive(Debug)]
struct Ready {
    parts: Vec<bool>,
    left: usize,
    operation: Arc<Operation>,
}

/// What is received.
#[derive(Debug)]
pub struct Receives {
    comm: Arc<Communicator>,
    /// From whom; nobody.
    from: Option<u32>,
    tag: i32,
    span: Span,
    partitions: i64,
    announcement: Announcement,
    /// The parts of the sender that were started, in order.
    started: Mutex<Option<Vec<Arc<Operation>>>>,
}

/// An announcement that comes, or has come.
#[derive(Debug)]
struct Announcement {
    operation: Arc<Operation>,
    bytes: Arc<Mutex<[u8; ANNOUNCEMENT]>>,
}

impl Drop for Announcement {
    /// A request that was never started may be freed before it is announced. The announcement still comes to
    /// this receive, as those are matched in order: its bytes stay for good.
    fn drop(&mut self) {
        if self.operation.look().is_none() {
            std::mem::forget(self.bytes.clone());
        }
    }
}

/// The sender's parts.
#[derive(Debug, Clone, Copy)]
struct Channel {
    first_tag: i32,
    parts: i64,
    bytes: i64,
}

/// Receives that were started before it was known of what.
#[derive(Debug)]
pub struct Unknown {
    list: Mutex<Vec<(Arc<Parts>, Arc<Operation>)>>,
    next_tag: AtomicU32,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Unknown {
    /// None.
    pub const fn new() -> Self {
        Self { list: Mutex::new(vec![]), next_tag: AtomicU32::new(0) }
    }
}

impl Receives {
    fn channel(&self) -> Option<Answer<Channel>> {
        let done = self.announcement.operation.look()?;
        if let Some(failure) = done.failure {
            return Some(Err(failure));
        }
        let numbers = numbers_in(&lock(&self.announcement.bytes).to_vec());
        Some(numbers.and_then(|numbers| match numbers[..] {
            [first_tag, parts, bytes] => Ok(Channel { first_tag: first_tag as i32, parts, bytes }),
            _ => Err(Class::Internal.into()),
        }))
    }

    /// What is told of the whole, however many parts it was sent in.
    fn status(&self) -> Status {
        let source = self.from.map_or(FROM_NOBODY.source, i64::from);
        let count = self.span.bytes() as i64;
        Status { source, tag: self.tag.into(), error: None, count, cancelled: false }
    }

    /// Whether a part of the receiver's has come.
    fn has_come(&self, part: i64) -> Answer<bool> {
        let started = lock(&self.started);
        let (Some(started), Some(channel)) = (&*started, self.channel()) else { return Ok(false) };
        // All of both together is the same: also of nothing each has its share.
        let (theirs, ours) = (channel?.parts, self.partitions);
        let overlaps = |nth: i64| nth * ours < (part + 1) * theirs && part * theirs < (nth + 1) * ours;
        let mut theirs = started.iter().zip(0..).filter(|(_, nth)| overlaps(*nth));
        Ok(theirs.all(|(operation, _)| operation.look().is_some()))
    }
}

impl Mpi {
    fn parts_of(&self, request: Request) -> Answer<Arc<Parts>> {
        self.parts_of_request(request)?.ok_or_else(|| Class::Request.into())
    }

    fn ready(&self, request: Request, nth: i64) -> Answer<()> {
        let parts = self.parts_of(request)?;
        let Parts::Sends(sends) = &*parts else { return Err(Class::Request.into()) };
        let mut state = lock(&sends.state);
        let ready = state.as_mut().ok_or(Class::Request)?;
        let place = usize::try_from(nth).ok().filter(|&nth| nth < ready.parts.len()).ok_or(Class::Arg)?;
        if std::mem::replace(&mut ready.parts[place], true) {
            return Err(Class::Arg.into());
        }
        if let Some(to) = sends.to {
            let part = sends.span.part(nth * sends.each, sends.each);
            // SAFETY: the program says that it is ready, and leaves it alone until all is sent.
            let bytes = unsafe { messages::bytes_of(&part) };
            self.say_on(&sends.comm, PARTS, to, sends.first_tag + nth as i32, &bytes)?;
        }
        ready.left -= 1;
        if ready.left == 0 {
            ready.operation.finish(Done::well());
            *state = None;
            self.tell_threads();
        }
        Ok(())
    }

    fn start_parts(&self, parts: &Arc<Parts>) -> Answer<Arc<Operation>> {
        let operation = Operation::begun(Waits::Word);
        match &**parts {
            Parts::Sends(sends) => {
                let left = sends.partitions as usize;
                let ready = Ready { parts: vec![false; left], left, operation: operation.clone() };
                if left == 0 {
                    operation.finish(Done::well());
                } else {
                    *lock(&sends.state) = Some(ready);
                }
            }
            Parts::Receives(receives) => {
                *lock(&receives.started) = None;
                if receives.from.is_none() {
                    *lock(&receives.started) = Some(vec![]);
                    return Ok(Operation::complete(Done { status: FROM_NOBODY, failure: None }));
                }
                lock(&self.unknown.list).push((parts.clone(), operation.clone()));
                self.progress()?;
            }
        }
        Ok(operation)
    }

    /// Receives of what was announced meanwhile.
    pub(crate) fn receive_announced(&self) -> Answer<()> {
        // Looked at before anything is locked, as there are none as a rule.
        let mut due = vec![];
        {
            let mut list = lock(&self.unknown.list);
            if list.is_empty() {
                return Ok(());
            }
            list.retain(|(parts, operation)| {
                let Parts::Receives(receives) = &**parts else { return false };
                match receives.channel() {
                    None => true,
                    Some(channel) => {
                        due.push((parts.clone(), operation.clone(), channel));
                        false
                    }
                }
            });
        }
        let any = !due.is_empty();
        for (parts, operation, channel) in due {
            let Parts::Receives(receives) = &*parts else { continue };
            match channel.and_then(|channel| self.receive_parts(receives, channel)) {
                Ok(all) => {
                    *lock(&receives.started) = Some(all.clone());
                    operation.set_waits(Waits::Parts(all, receives.status()));
                }
                Err(failure) => {
                    // Nothing more arrives: who looks for a part is not to look for ever.
                    *lock(&receives.started) = Some(vec![]);
                    operation.finish(Done { failure: Some(failure), ..Done::well() });
                }
            }
        }
        // All parts may have come before, and another thread waits for them.
        if any {
            self.tell_threads();
        }
        Ok(())
    }

    fn receive_parts(&self, receives: &Receives, channel: Channel) -> Answer<Vec<Arc<Operation>>> {
        let (span, Channel { first_tag, parts, bytes }) = (&receives.span, channel);
        if parts.checked_mul(bytes) != Some(span.bytes() as i64) {
            let text = format!("{parts} parts of {bytes} bytes where {} are expected", span.bytes());
            return Err(Failure { text: Some(text), ..Class::Truncate.into() });
        }
        // Each side says for itself of which elements it is, and a part may end within one of the receiver's.
        let part = |nth: i64| {
            let want = Want { source: receives.from, tag: Some(first_tag + nth as i32) };
            self.post_on(&receives.comm, PARTS, want, span.bytes_part((nth * bytes) as u64, bytes as u64))
        };
        (0..parts).map(part).collect()
    }
}

impl Partitioned for Mpi {
    unsafe fn parrived(&self, request: Request, partition: i64) -> Answer<bool> {
        if request == Request::NULL {
            return Ok(true);
        }
        let parts = self.parts_of(request)?;
        let Parts::Receives(receives) = &*parts else { return Err(Class::Request.into()) };
        if !(0..receives.partitions).contains(&partition) {
            return Err(Class::Arg.into());
        }
        // Of one that is not active all parts are there.
        if !self.is_active(request)? {
            return Ok(true);
        }
        let found = self.look_for(|| match receives.has_come(partition) {
            Ok(false) => None,
            come => Some(come),
        })?;
        found.unwrap_or(Ok(false))
    }

    unsafe fn pready(&self, partition: i64, request: Request) -> Answer<()> {
        self.ready(request, partition)
    }

    unsafe fn pready_list(&self, length: i64, partitions: Ints, request: Request) -> Answer<()> {
        if length < 0 || (length > 0 && partitions.is_null()) {
            return Err(Class::Arg.into());
        }
        // SAFETY: the caller's: so many.
        (0..length as usize).try_for_each(|nth| self.ready(request, unsafe { partitions.get(nth) }))
    }

    unsafe fn pready_range(&self, partition_low: i64, partition_high: i64, request: Request) -> Answer<()> {
        (partition_low..=partition_high).try_for_each(|nth| self.ready(request, nth))
    }

    unsafe fn precv_init(
        &self,
        buf: Buffer,
        partitions: i64,
        count: i64,
        datatype: Datatype,
        source: i64,
        tag: i64,
        comm: Comm,
        _: Info,
    ) -> Answer<Request> {
        let (comm, span, tag, from) =
            self.parts_given((buf, partitions, count, datatype), (source, tag, comm))?;
        let bytes = Arc::new(Mutex::new([0; ANNOUNCEMENT]));
        let from = from.map(|(_, rank)| rank);
        let operation = match from {
            None => Operation::complete(Done::well()),
            Some(rank) => {
                let at = bytes.lock().unwrap_or_else(PoisonError::into_inner).as_mut_ptr();
                // The bytes live as long as the request, and longer if nothing has come by then.
                let into = span.bytes_at(at, ANNOUNCEMENT as u64);
                self.post_on(&comm, ANNOUNCED, Want { source: Some(rank), tag: Some(tag) }, into)?
            }
        };
        let announcement = Announcement { operation, bytes };
        let started = Mutex::new(None);
        let receives = Receives { comm: comm.clone(), from, tag, span, partitions, announcement, started };
        Ok(self.new_parts(comm, Arc::new(Parts::Receives(receives)), Self::start_parts))
    }

    unsafe fn psend_init(
        &self,
        buf: Buffer,
        partitions: i64,
        count: i64,
        datatype: Datatype,
        dest: i64,
        tag: i64,
        comm: Comm,
        _: Info,
    ) -> Answer<Request> {
        let (comm, span, tag, to) =
            self.parts_given((buf, partitions, count, datatype), (dest, tag, comm))?;
        let tags = u32::try_from(partitions).map_err(|_| Class::Arg)?;
        let first_tag = self.unknown.next_tag.fetch_add(tags.max(1), SeqCst) & i32::MAX as u32;
        if let Some((process, _)) = to {
            let bytes = if partitions > 0 { span.bytes() as i64 / partitions } else { 0 };
            let said = bytes_of([first_tag.into(), partitions, bytes]);
            self.say_on(&comm, ANNOUNCED, process, tag, &said)?;
        }
        let (to, first_tag) = (to.map(|(process, _)| process), first_tag as i32);
        let state = Mutex::new(None);
        let sends = Sends { comm: comm.clone(), to, first_tag, span, each: count, partitions, state };
        Ok(self.new_parts(comm, Arc::new(Parts::Sends(sends)), Self::start_parts))
    }
}

/// With whom, in which communicator, what.
type Given = (Arc<Communicator>, Span, i32, Option<(Process, u32)>);

impl Mpi {
    fn parts_given(
        &self,
        (buf, partitions, count, datatype): (Buffer, i64, i64, Datatype),
        (peer, tag, comm): (i64, i64, Comm),
    ) -> Answer<Given> {
        let comm = self.comm(comm)?;
        if partitions < 0 {
            return Err(Class::Arg.into());
        }
        if !(0..=MOST_TAG).contains(&tag) {
            return Err(Class::Tag.into());
        }
        if count < 0 {
            return Err(Class::Count.into());
        }
        let all = partitions.checked_mul(count).ok_or(Class::ValueTooLarge)?;
        let span = self.span(buf, all, datatype)?;
        let peer = Self::peer(&comm, peer)?;
        Ok((comm, span, tag as i32, peer))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What comes after the request was freed is written there.
    #[test]
    fn bytes_of_an_announcement_stay_until_it_has_come() {
        for has_come in [false, true] {
            let (operation, bytes) = (Operation::begun(Waits::Word), Arc::new(Mutex::new([0; ANNOUNCEMENT])));
            let there = Arc::downgrade(&bytes);
            let announcement = Announcement { operation: operation.clone(), bytes };
            if has_come {
                operation.finish(Done::well());
            }
            drop(announcement);
            assert_eq!(there.upgrade().is_some(), !has_come);
        }
    }
}
