//! Point-to-point communication (MPI-5.0, chapter 3): how messages go and come.
//!
//! A message is copied when it is sent, so that no send waits for its receiver but a synchronous one, which
//! waits for a word from it. What has come is matched whenever any call is made.
//!
//! | question | file |
//! |---|---|
//! | how does one go, and come? | here |
//! | what do the calls check, and do? | `calls.rs` |
//! | which go and come with nothing made in between? | `short.rs` |
//! | how is one taken back? | `cancel.rs` |
//! | what is in a buffer that was attached? | `buffers.rs` |

mod buffers;
mod calls;
mod cancel;
mod short;

use std::borrow::Cow;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, MutexGuard, PoisonError};

use bdrun_mpi_core::error::Class;
use bdrun_mpi_core::group::Process;
use bdrun_mpi_core::matching::{Envelope, Matcher, Posted, Want};

pub use buffers::Buffers;

use crate::Mpi;
use crate::args::Status;
use crate::comm::{Communicator, World};
use crate::datatypes::memory::Span;
use crate::failure::{Answer, Failure};
use crate::groups::PROC_NULL;
use crate::handle::Message;
use crate::link::{Awaited, Come, Head, Limits, Link, Mode, Parcel, Place};
use crate::operation::{Done, Operation, Receipt, Waits};

/// `MPI_ANY_SOURCE` and `MPI_ANY_TAG`.
pub const ANY_SOURCE: i64 = -1;
/// See [`ANY_SOURCE`].
pub const ANY_TAG: i64 = -2;
/// `MPI_TAG_UB`.
pub const MOST_TAG: i64 = i32::MAX as i64;

/// Numbers of receipts are below this.
pub const MOST_RECEIPTS: u32 = 1 << 29;

/// So much of a message is copied at a time where it is unpacked.
const PIECE: usize = 64 << 10;

/// A receive that has no message.
#[derive(Debug)]
pub struct Receive {
    into: Span,
    comm: Arc<Communicator>,
    operation: Arc<Operation>,
}

impl Receive {
    /// It has its message, of which nobody wants to hear.
    fn finish(&self, envelope: Envelope, parcel: &dyn Parcel) {
        self.told(envelope, parcel.len(), take(&self.into, parcel));
    }

    /// So many bytes of a message were copied.
    fn told(&self, envelope: Envelope, len: u64, result: Answer<u64>) {
        let failure = match result {
            Ok(bytes) if bytes < len => Some(truncated(len, self.into.bytes())),
            Ok(_) => None,
            Err(failure) => Some(failure),
        };
        self.operation.finish(Done { status: status_of(envelope, len.min(self.into.bytes())), failure });
    }
}

/// A message that came.
#[derive(Debug)]
pub struct Arrived {
    parcel: Box<dyn Parcel>,
    mode: Mode,
}

/// A message that was claimed before it is received (`MPI_Mprobe`).
#[derive(Debug)]
pub struct Claimed {
    comm: Arc<Communicator>,
    envelope: Envelope,
    message: Arrived,
}

impl Claimed {
    /// What is told of it.
    pub fn status(&self) -> Status {
        status_of(self.envelope, self.message.parcel.len())
    }
}

/// All messages and receives of this process.
#[derive(Debug)]
pub struct Traffic {
    matcher: Matcher<Receive, Arrived>,
    /// Synchronous sends that wait for a word, by number.
    awaited: Option<HashMap<u32, Arc<Operation>>>,
    /// Of these, those that were asked back.
    questions: Vec<Receipt>,
    next: u32,
}

impl Traffic {
    /// None.
    pub const fn new() -> Self {
        Self { matcher: Matcher::new(), awaited: None, questions: vec![], next: 0 }
    }

    /// Awaits a receipt under a number that no other has, however long that waits.
    fn await_receipt(&mut self, receipt: Receipt) -> (u32, Arc<Operation>) {
        let awaited = self.awaited.get_or_insert_default();
        loop {
            self.next = (self.next + 1) % MOST_RECEIPTS;
            if let Entry::Vacant(free) = awaited.entry(self.next) {
                let operation = Operation::begun(Waits::Receipt(Receipt { number: self.next, ..receipt }));
                free.insert(operation.clone());
                return (self.next, operation);
            }
        }
    }
}

/// What is told of a message.
fn status_of(envelope: Envelope, bytes: u64) -> Status {
    Status {
        source: envelope.source.into(),
        tag: envelope.tag.into(),
        error: None,
        count: i64::try_from(bytes).unwrap_or(i64::MAX),
        cancelled: false,
    }
}

/// What is told of a receive from `MPI_PROC_NULL`.
pub const FROM_NOBODY: Status =
    Status { source: PROC_NULL, tag: ANY_TAG, error: None, count: 0, cancelled: false };

/// The bytes of a span, as they are moved.
///
/// # Safety
/// The memory is what the program said it is, and nobody writes it meanwhile.
pub unsafe fn bytes_of(span: &Span) -> Cow<'_, [u8]> {
    let len = span.bytes() as usize;
    match span.contiguous() {
        // SAFETY: the caller's.
        Some(at) if len > 0 => Cow::Borrowed(unsafe { std::slice::from_raw_parts(at, len) }),
        _ => {
            let mut bytes = vec![0; len];
            // SAFETY: the caller's.
            unsafe { span.pack(0, &mut bytes) };
            Cow::Owned(bytes)
        }
    }
}

impl Mpi {
    fn traffic(&self) -> MutexGuard<'_, Traffic> {
        self.traffic.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The process with a rank at the other end, and that; none for `MPI_PROC_NULL`.
    pub(crate) fn peer(comm: &Communicator, rank: i64) -> Answer<Option<(Process, u32)>> {
        if rank == PROC_NULL {
            return Ok(None);
        }
        let found = usize::try_from(rank).ok().and_then(|rank| comm.peers().members().get(rank));
        found.map(|&process| Some((process, rank as u32))).ok_or_else(|| Class::Rank.into())
    }

    /// What a receive or a probe wants; none from `MPI_PROC_NULL`.
    fn want(comm: &Communicator, source: i64, tag: i64) -> Answer<Option<Want>> {
        let tag = match tag {
            ANY_TAG => None,
            0..=MOST_TAG => Some(tag as i32),
            _ => return Err(Class::Tag.into()),
        };
        if source == ANY_SOURCE {
            return Ok(Some(Want { source: None, tag }));
        }
        Ok(Self::peer(comm, source)?.map(|_| Want { source: Some(source as u32), tag }))
    }

    /// Sends what is in a span, which may be used again at once. The operation is complete when the receiver
    /// has it, where that is asked for.
    ///
    /// # Safety
    /// The memory is what the program said it is, and nobody writes it meanwhile.
    unsafe fn send_span(
        &self,
        comm: &Communicator,
        to: (Option<(Process, u32)>, i32),
        span: &Span,
        synchronous: bool,
    ) -> Answer<Arc<Operation>> {
        let (Some((process, receiver)), tag) = to else { return Ok(Operation::complete(Done::well())) };
        let link = self.link()?;
        let (mut operation, mut mode) = (None, Mode::Plain);
        if synchronous {
            let context = comm.place()?.context;
            let own = comm.rank as u32;
            let receipt = Receipt { number: 0, process, context, source: receiver, own, tag };
            let (number, waits) = self.traffic().await_receipt(receipt);
            (operation, mode) = (Some((number, waits)), Mode::Synchronous(number));
        }
        let head = Head { context: comm.place()?.context, source: comm.rank as u32, tag, mode };
        // SAFETY: the caller's.
        let sent = link.send(process, head, &[&unsafe { bytes_of(span) }]);
        if let (Err(_), Some((number, _))) = (&sent, &operation) {
            self.traffic().awaited.get_or_insert_default().remove(number);
        }
        sent?;
        self.act();
        self.tools.sent(span.bytes());
        Ok(operation.map_or_else(|| Operation::complete(Done::well()), |(_, operation)| operation))
    }

    /// Posts a receive of MPI's own, so many contexts behind the program's.
    pub(crate) fn post_on(
        &self,
        comm: &Arc<Communicator>,
        behind: u32,
        want: Want,
        into: Span,
    ) -> Answer<Arc<Operation>> {
        let operation = Operation::begun(Waits::Word);
        let receive = Receive { into, comm: comm.clone(), operation: operation.clone() };
        let context = comm.place()?.context + behind;
        let mut traffic = self.traffic();
        match traffic.matcher.post(context, want, receive) {
            Posted::Waits(ticket) => operation.set_waits(Waits::Message { context, want, ticket }),
            Posted::Has(envelope, message, receive) => {
                drop(traffic);
                self.deliver(receive, envelope, &message);
            }
        }
        Ok(operation)
    }

    /// Posts a receive.
    fn post(&self, comm: &Arc<Communicator>, want: Option<Want>, into: Span) -> Answer<Arc<Operation>> {
        let Some(want) = want else {
            return Ok(Operation::complete(Done { status: FROM_NOBODY, failure: None }));
        };
        // What has come already is first in line.
        self.progress()?;
        self.post_on(comm, 0, want, into)
    }

    /// Takes in what has come.
    pub(crate) fn progress(&self) -> Answer<()> {
        let link = self.link()?;
        self.note_thread();
        let (mut matched, mut words, mut answers) = (vec![], vec![], vec![]);
        let mut traffic = self.traffic();
        // What they have said was said before, and is taken in now.
        let left = traffic.who_have_left(&**link);
        let Traffic { matcher, awaited, .. } = &mut *traffic;
        let (mut any, mut probed, mut kept) = (false, false, Ok(()));
        let received = link.receive(&mut |head, come| {
            match head.mode {
                Mode::Received(number) | Mode::TakenBack(number) => {
                    let operation = awaited.as_mut().and_then(|awaited| awaited.remove(&number));
                    words.extend(operation.map(|operation| (operation, cancel::told(head.mode))));
                    return;
                }
                Mode::TakesBack(number) => match cancel::take_back(matcher, head, number, come) {
                    Ok(answer) => return answers.extend(answer),
                    Err(failure) => return kept = Err(failure),
                },
                _ => {}
            }
            let Head { context, source, tag, mode } = head;
            let envelope = Envelope { source, tag };
            let is_asked = mode == Mode::Active;
            let receive = if is_asked { None } else { matcher.take_receive(context, envelope) };
            // What only passes is copied at once.
            if let (Some(receive), Come::Passing(parcel), Mode::Plain) = (&receive, &come, mode) {
                receive.finish(envelope, *parcel);
                any = true;
                return;
            }
            match (receive, come.keep()) {
                (Some(receive), Ok(parcel)) => matched.push((receive, envelope, Arrived { parcel, mode })),
                (None, Ok(parcel)) if is_asked => self.active.add_come(head, parcel),
                (None, Ok(parcel)) => {
                    matcher.keep(context, envelope, Arrived { parcel, mode });
                    probed = true;
                }
                (Some(receive), Err(failure)) => {
                    receive.operation.finish(Done { failure: Some(failure), ..Done::well() });
                    any = true;
                }
                (None, Err(failure)) => kept = Err(failure),
            }
        });
        words.extend(self.settle_questions(&mut traffic, &left));
        drop(traffic);
        // What came before something that is damaged has come. Another thread may look for what is kept; of
        // one that begins to look later this is told by what it finds.
        any |= !words.is_empty() || !matched.is_empty() || (probed && !self.threads.is_one());
        words.into_iter().for_each(|(operation, done)| operation.finish(done));
        for (receive, envelope, message) in matched {
            self.deliver(receive, envelope, &message);
        }
        if any {
            self.tell_threads();
        }
        for (process, head) in answers {
            link.send(process, head, &[])?;
        }
        received.and(kept)?;
        self.receive_announced()?;
        self.look_at_open()?;
        self.do_asked()
    }

    /// A receive has its message.
    fn deliver(&self, receive: Receive, envelope: Envelope, message: &Arrived) {
        let result = take(&receive.into, &*message.parcel).and_then(|bytes| {
            self.acknowledge(&receive.comm, envelope, message.mode)?;
            Ok(bytes)
        });
        receive.told(envelope, message.parcel.len(), result);
    }

    /// Tells who waits for it that his message is received.
    fn acknowledge(&self, comm: &Communicator, envelope: Envelope, mode: Mode) -> Answer<()> {
        let Mode::Synchronous(number) = mode else { return Ok(()) };
        let Some((process, _)) = Self::peer(comm, envelope.source.into())? else { return Ok(()) };
        let (context, source) = (comm.place()?.context, comm.rank as u32);
        let head = Head { context, source, tag: envelope.tag, mode: Mode::Received(number) };
        self.link()?.send(process, head, &[])
    }

    /// The first message that fits: what is told of it.
    fn probe_now(&self, comm: &Communicator, want: Want) -> Answer<Option<Status>> {
        let context = comm.place()?.context;
        let traffic = self.traffic();
        let found = traffic.matcher.probe(context, want);
        Ok(found.map(|(envelope, message)| status_of(envelope, message.parcel.len())))
    }

    /// The first message that fits, which nobody else gets.
    fn claim_now(&self, comm: &Arc<Communicator>, want: Want) -> Answer<Option<Claimed>> {
        let found = self.traffic().matcher.claim(comm.place()?.context, want);
        Ok(found.map(|(envelope, message)| Claimed { comm: comm.clone(), envelope, message }))
    }

    /// What came and nobody has received, by context.
    pub(crate) fn forgotten(&self) -> Vec<(u32, Envelope)> {
        self.traffic().matcher.unclaimed().collect()
    }

    /// Waits until a message may have come that fits.
    fn wait_message(comm: &Communicator, want: Want, link: &dyn Link, limits: Limits<'_>) {
        // Of one that is still being made there was no message to look for.
        if let Ok(Place { context, .. }) = comm.place() {
            link.wait(Awaited::Message { context, source: want.source, tag: want.tag }, limits);
        }
    }

    /// Sends something of MPI's own to a peer, behind the program's back.
    pub(crate) fn say(&self, comm: &Communicator, to: Process, tag: i32, bytes: &[u8]) -> Answer<()> {
        self.say_on(comm, 1, to, tag, bytes)
    }

    /// The same, so many contexts behind the program's.
    pub(crate) fn say_on(
        &self,
        comm: &Communicator,
        behind: u32,
        to: Process,
        tag: i32,
        bytes: &[u8],
    ) -> Answer<()> {
        let (context, source) = (comm.place()?.context + behind, comm.rank as u32);
        self.act();
        self.link()?.send(to, Head { context, source, tag, mode: Mode::Plain }, &[bytes])
    }

    /// Waits for what a peer says so.
    pub(crate) fn hear(&self, comm: &Communicator, from: usize, tag: i32) -> Answer<Vec<u8>> {
        let want = Want { source: Some(from as u32), tag: Some(tag) };
        let context = comm.place()?.context + 1;
        let claim = || Ok(self.traffic().matcher.claim(context, want));
        let (_, message) = self.wait_for(claim, |link, limits| {
            let (source, tag) = (want.source, want.tag);
            link.wait(Awaited::Message { context, source, tag }, limits);
        })?;
        bytes_in(&*message.parcel)
    }

    /// What a peer has said so, if it has.
    pub(crate) fn hear_now(&self, comm: &Communicator, from: usize, tag: i32) -> Answer<Option<Vec<u8>>> {
        let want = Want { source: Some(from as u32), tag: Some(tag) };
        let context = comm.place()?.context + 1;
        let found = self.look_for(|| self.traffic().matcher.claim(context, want))?;
        found.map(|(_, message)| bytes_in(&*message.parcel)).transpose()
    }

    /// In which communicator a message was claimed.
    fn comm_of_claimed(&self, message: Message) -> Answer<Arc<Communicator>> {
        if message == Message::NO_PROC {
            self.goes_on()?;
            // Where only sessions are there is no MPI_COMM_SELF.
            let own = self.world().map(|world| world.own.clone());
            return own.or_else(|_| Ok(World::new(&**self.link()?).own));
        }
        let claimed = self.claimed.get(message).ok_or(Class::Request)?;
        let claimed = claimed.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(claimed.as_ref().ok_or(Class::Request)?.comm.clone())
    }

    /// Receives a message that was claimed.
    fn deliver_claimed(&self, into: Span, claimed: Claimed) -> Arc<Operation> {
        let Claimed { comm, envelope, message } = claimed;
        let operation = Operation::begun(Waits::Word);
        self.deliver(Receive { into, comm, operation: operation.clone() }, envelope, &message);
        operation
    }
}

fn truncated(len: u64, room: u64) -> Failure {
    let text = Some(format!("a message of {len} bytes where there is room for {room}"));
    Failure { text, ..Class::Truncate.into() }
}

fn bytes_in(parcel: &dyn Parcel) -> Answer<Vec<u8>> {
    let mut bytes = vec![0; parcel.len() as usize];
    parcel.read(0, &mut bytes)?;
    Ok(bytes)
}

/// The same where it must fit.
pub fn take_all(into: &Span, parcel: &dyn Parcel) -> Answer<()> {
    if parcel.len() > into.bytes() {
        return Err(truncated(parcel.len(), into.bytes()));
    }
    take(into, parcel).map(|_| ())
}

/// Copies a message to where it belongs, as far as there is room; how many bytes.
fn take(into: &Span, parcel: &dyn Parcel) -> Answer<u64> {
    let len = parcel.len().min(into.bytes());
    if let Some(at) = into.contiguous().filter(|_| len > 0) {
        // SAFETY: the program has said that it is there, and leaves it alone until this is complete.
        parcel.read(0, unsafe { std::slice::from_raw_parts_mut(at, len as usize) })?;
        return Ok(len);
    }
    let mut piece = vec![0; PIECE.min(len as usize)];
    let mut from = 0;
    while from < len {
        let part = (len - from).min(piece.len() as u64) as usize;
        parcel.read(from, &mut piece[..part])?;
        // SAFETY: as above.
        unsafe { into.unpack(from, &piece[..part]) };
        from += part as u64;
    }
    Ok(len)
}
