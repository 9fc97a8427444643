//! The gateway of a node: a thread of the master that does at this node what ranks of others do.
//!
//! What ranks here tell, and what other gateways say, it takes in turns, and sleeps between two looks for as
//! long as nothing has happened (microseconds at first, a millisecond at most): MPI wakes nobody. It is
//! scheduled sooner than ranks, who wait for it more often than it for them.
//!
//! *Messages* for ranks elsewhere stay in the mail, where they are counted, until the other node has room:
//! [`WINDOW`] bytes may be on their way to a node and not delivered there. Delivered, they lie in that
//! node's mail. *Parts of collectives* stay where they were deposited; who needs more than the beginning of
//! one asks for it (at most [`far::MOST_WANTED`] bytes at a time). So what a node holds for others is
//! bounded by what it asks for itself.
//!
//! | question | file |
//! |---|---|
//! | what does a gateway do in turns, and of collectives? | here |
//! | how do messages go and come? | `messages.rs` |
//! | does anything go on anywhere? | `quiet.rs` |

mod messages;
mod quiet;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::{Duration, Instant};

use bdrun_ipc::collective::{Arrival, Comm, FarComing};
use bdrun_ipc::far::{self, Notice, Range};
use bdrun_ipc::inbox::Arrived;
use bdrun_ipc::mail::{Mail, Place};
use bdrun_ipc::segment::Segment;
use bdrun_ipc::spread::Spread;

use crate::nodes::book::{Book, Effect, Event};
use crate::nodes::frame::{End, Entry, Frame, Probed};
use crate::nodes::transport::{Result, Transport, TransportError};

/// Bytes of messages that may be on their way to a node.
const WINDOW: u64 = 4 << 20;
/// Bytes of a message that are sent at a time.
const PIECE: u64 = 512 << 10;
/// What a message takes beside its bytes.
const HEADER: u64 = 256;
/// How long it looks, without sleeping, after something has happened.
const EAGER: Duration = Duration::from_micros(100);
/// How long it sleeps between two looks: at first, at most, and once nothing has happened for [`LONG`].
const SLEEP: [Duration; 3] =
    [Duration::from_micros(50), Duration::from_micros(200), Duration::from_millis(1)];
const LONG: Duration = Duration::from_secs(1);
/// How often the first master asks whether anything goes on, once nothing does at its own node.
const PROBE: Duration = Duration::from_millis(50);
/// How long the others get to say goodbye when the job ends by a failure.
pub const FAREWELL: Duration = Duration::from_secs(2);

/// What the master's main thread tells its gateway.
#[derive(Debug)]
pub enum Order {
    /// The job ends everywhere, for this reason.
    End(End),
    /// All is over here; what the first master is told of it.
    Bye(Vec<u8>),
}

/// What a gateway tells its master.
#[derive(Debug)]
pub enum Told {
    /// The job ends, because of what happened at that node.
    Ended(u32, End),
    /// Nothing goes on at any node.
    Settled,
    /// Masters can hear each other no more.
    Broken(String),
}

/// What both look at.
#[derive(Debug, Default)]
pub struct Shared {
    /// By the main thread: nothing has happened here for a while.
    pub quiet: AtomicBool,
}

/// A message that leaves, and how much of it has.
struct Leaving {
    to: u32,
    message: Arrived,
    sent: u64,
}

/// One that comes, so far.
struct Arriving {
    to: u32,
    what: [u32; 4],
    place: Place,
    at: u64,
}

/// Another node.
#[derive(Default)]
struct Peer {
    leaving: VecDeque<Leaving>,
    /// Bytes that may be sent.
    credit: u64,
    arriving: Option<Arriving>,
    /// Bytes delivered here, of which it was not told yet.
    owed: u64,
    said_bye: bool,
}

/// A question of a rank for parts of several nodes.
struct Asked {
    /// The bytes, in the order of the question: how many, and what has come of them.
    ranges: Vec<(u64, Option<Vec<u8>>)>,
    /// Which of them each node has been asked for, and has not answered.
    of: HashMap<u32, Vec<usize>>,
}

/// What came of a communicator from a node before it could be done. All that a node says of one is done in
/// order: what was said of a collective must not count for one of the next communicator of this number.
struct Early {
    from: u32,
    comm: u32,
    frame: Frame,
    bytes: Vec<u8>,
}

impl Early {
    /// Must this be done before that?
    fn is_before(&self, later: &Self) -> bool {
        (self.from, self.comm) == (later.from, later.comm)
    }
}

/// See the module's text.
pub struct Gateway<T> {
    segment: Arc<Segment>,
    mail: Mail,
    transport: T,
    spread: Spread,
    book: Book,
    peers: Vec<Peer>,
    asked: HashMap<u32, Asked>,
    early: VecDeque<Early>,
    /// Frames about the job's work, sent and come.
    sent: u64,
    came: u64,
    shared: Arc<Shared>,
    tell: Box<dyn Fn(Told) + Send>,
    /// By the first: the round of questions, what was answered, and the sums of the round before.
    round: u64,
    answers: HashMap<u32, Probed>,
    before: Option<(u64, u64)>,
    next_probe: Instant,
    said_bye: bool,
    /// By the first: what the others have said of themselves.
    accounts: Vec<(u32, Vec<u8>)>,
    failed: Option<Instant>,
}

impl<T: Transport> Gateway<T> {
    /// Of a node whose segment this is.
    pub fn new(
        transport: T,
        segment: Arc<Segment>,
        mail: Mail,
        shared: Arc<Shared>,
        tell: Box<dyn Fn(Told) + Send>,
    ) -> Self {
        let spread = segment.spread();
        let peer = || Peer { credit: WINDOW, ..Peer::default() };
        Self {
            book: Book::new(spread),
            peers: (0..spread.nodes).map(|_| peer()).collect(),
            asked: HashMap::new(),
            early: VecDeque::new(),
            sent: 0,
            came: 0,
            round: 0,
            answers: HashMap::new(),
            before: None,
            next_probe: Instant::now(),
            said_bye: false,
            accounts: vec![],
            failed: None,
            segment,
            mail,
            transport,
            spread,
            shared,
            tell,
        }
    }

    /// Until all have said goodbye; the first is given what the others say of themselves.
    pub fn run(mut self, orders: &Receiver<Order>) -> Vec<(u32, Vec<u8>)> {
        crate::urgent::schedule_sooner();
        // What is slept is what was meant, and not the 50 µs more that others do not mind.
        let _ = nix::sys::prctl::set_timerslack(1);
        let (mut idle_since, mut sleep) = (Instant::now(), SLEEP[0]);
        loop {
            match self.turn(orders) {
                Ok(true) => (idle_since, sleep) = (Instant::now(), SLEEP[0]),
                Ok(false) => {}
                Err(TransportError(text)) => {
                    (self.tell)(Told::Broken(text));
                    return self.accounts;
                }
            }
            if self.is_over() {
                break;
            }
            if idle_since.elapsed() < EAGER {
                std::thread::yield_now();
                continue;
            }
            if self.segment.header().gateway.wait(sleep) {
                sleep = SLEEP[0];
            } else {
                sleep = (sleep * 2).min(SLEEP[if idle_since.elapsed() < LONG { 1 } else { 2 }]);
            }
        }
        if self.peers.iter().zip(0..).all(|(peer, node)| peer.said_bye || node == self.spread.node) {
            self.transport.finish();
        }
        // Else somebody is gone without a word, for whom MPI would wait: the launcher sees to the others.
        self.accounts
    }

    fn is_over(&self) -> bool {
        let mut others = self.peers.iter().zip(0..).filter(|(_, node)| *node != self.spread.node);
        let all = self.said_bye && self.transport.unsent() == 0 && others.all(|(peer, _)| peer.said_bye);
        all || self.failed.is_some_and(|since| self.said_bye && since.elapsed() > FAREWELL)
    }

    /// Takes what there is; whether there was anything.
    fn turn(&mut self, orders: &Receiver<Order>) -> Result<bool> {
        let mut any = self.obey(orders)?;
        // Messages first: what a rank told before it sent one is then among the notices.
        any |= self.collect()?;
        any |= self.hear()?;
        let mut come = vec![];
        any |= self.transport.receive(&mut |from, frame| come.push((from, frame)))?;
        for (from, frame) in come {
            let Some((frame, bytes)) = Frame::decode(&frame) else {
                return Err(TransportError(format!("node {from} sent what is no frame of this version")));
            };
            self.take(from, frame, bytes)?;
        }
        any |= self.retry()?;
        for node in 0..self.spread.nodes {
            any |= self.flush(node)?;
        }
        self.probe()?;
        Ok(any)
    }

    fn obey(&mut self, orders: &Receiver<Order>) -> Result<bool> {
        let mut any = false;
        loop {
            match orders.try_recv() {
                Ok(Order::End(end)) => {
                    self.failed.get_or_insert_with(Instant::now);
                    self.tell_all(&Frame::End(end))?;
                }
                Ok(Order::Bye(account)) if self.spread.node != 0 => {
                    self.send(0, &Frame::Account, &account)?;
                    self.say_bye()?;
                }
                Ok(Order::Bye(_)) => self.say_bye()?,
                Err(TryRecvError::Disconnected) if !self.said_bye => self.say_bye()?,
                Err(_) => return Ok(any),
            }
            any = true;
        }
    }

    fn say_bye(&mut self) -> Result<()> {
        self.said_bye = true;
        self.tell_all(&Frame::Bye)
    }

    fn others(&self) -> impl Iterator<Item = u32> + use<T> {
        let own = self.spread.node;
        (0..self.spread.nodes).filter(move |&node| node != own)
    }

    fn tell_all(&mut self, frame: &Frame) -> Result<()> {
        self.others().try_for_each(|node| self.send(node, frame, &[]))
    }

    fn send(&mut self, to: u32, frame: &Frame, bytes: &[u8]) -> Result<()> {
        self.sent += u64::from(frame.is_work());
        self.transport.send(to, frame.encode(bytes))
    }

    /// Memory of the budget was given back.
    fn gave_memory(&self) {
        if self.segment.header().pool.wanted() {
            self.segment.ring(self.segment.here().start);
        }
    }

    /// A frame about the job's work, as it is.
    fn send_work(&mut self, to: u32, whole: Vec<u8>) -> Result<()> {
        self.sent += 1;
        self.transport.send(to, whole)
    }

    /// What ranks here have told.
    fn hear(&mut self) -> Result<bool> {
        let mut all = vec![];
        far::heard(&self.segment, &self.mail, &mut |rank, notice| all.push((rank, notice)))
            .map_err(damaged)?;
        let any = !all.is_empty();
        for (rank, notice) in all {
            let event = match notice {
                Notice::Opened { comm } => {
                    let made = Comm::at(&self.segment, comm).map_err(damaged)?;
                    let members = made.ranks(&self.segment).collect();
                    Event::Made { comm, members, asker: rank }
                }
                Notice::Closed { comm } => Event::ClosedHere(comm),
                Notice::Came { comm, number, member, awaited_by } => {
                    Event::Came { comm, number, member, awaited_by }
                }
                Notice::AllCame { comm, number } => Event::AllCame { comm, number },
                Notice::AllLeft { comm, number } => Event::AllLeft { comm, number },
                Notice::Wants { comm, number, ranges } => {
                    self.fetch(rank, comm, number, &ranges)?;
                    continue;
                }
            };
            self.carry_out(event)?;
        }
        Ok(any)
    }

    fn carry_out(&mut self, event: Event) -> Result<()> {
        let mut effects = vec![];
        self.book.handle(event, &mut effects);
        for effect in effects {
            match effect {
                Effect::TellOpen { node, comm, asker } => {
                    let made = Comm::at(&self.segment, comm).map_err(damaged)?;
                    let members = made.ranks(&self.segment).collect();
                    let context = made.context(&self.segment);
                    self.send(node, &Frame::Open { comm, context, members, asker }, &[])?;
                }
                Effect::Answer(rank) => self.answer(rank, &[])?,
                Effect::Open { node, comm, context, members, asker } => {
                    Comm::open_far(&self.segment, comm, context, &members).map_err(damaged)?;
                    self.send(node, &Frame::Opened(asker), &[])?;
                }
                Effect::TellClosed { node, comm } => self.send(node, &Frame::Closed(comm), &[])?,
                Effect::Free(comm) => Comm::at(&self.segment, comm).map_err(damaged)?.free(&self.segment),
                Effect::TellCome { node, comm, number, members } => {
                    self.tell_come(node, comm, number, members)?;
                }
                Effect::TellLeft { node, comm, number } => {
                    self.send(node, &Frame::Left { comm, number }, &[])?;
                }
            }
        }
        Ok(())
    }

    fn tell_come(&mut self, node: u32, comm: u32, number: u64, members: Vec<(u32, Vec<u32>)>) -> Result<()> {
        let at = Comm::at(&self.segment, comm).map_err(damaged)?;
        let (mut entries, mut bytes) = (vec![], vec![]);
        for (member, awaited_by) in members {
            let seen = at.see(&self.segment, &self.mail, number, member);
            let head = seen.head.len() as u32;
            entries.push(Entry { member, names: seen.names, len: seen.len, head, awaited_by });
            bytes.extend(seen.head);
        }
        self.send(node, &Frame::Come { comm, number, entries }, &bytes)
    }

    fn answer(&self, rank: u32, pieces: &[&[u8]]) -> Result<()> {
        self.segment.answer(rank).give(&self.segment, &self.mail, pieces).map_err(damaged)?;
        self.segment.wake(rank, rank);
        Ok(())
    }

    /// Asks the nodes that have them for parts.
    fn fetch(&mut self, asker: u32, comm: u32, number: u64, ranges: &[Range]) -> Result<()> {
        if !is_permitted(ranges) {
            return Err(TransportError(format!("rank {asker} asked for more of other nodes than it may")));
        }
        let at = Comm::at(&self.segment, comm).map_err(damaged)?;
        let ranks: Vec<u32> = at.ranks(&self.segment).collect();
        let mut of: HashMap<u32, Vec<usize>> = HashMap::new();
        for (i, range) in ranges.iter().enumerate() {
            let Some(&rank) = ranks.get(range.member as usize) else {
                return Err(TransportError(format!(
                    "rank {asker} asked for what member {} has",
                    range.member
                )));
            };
            of.entry(self.spread.node_of(rank)).or_default().push(i);
        }
        for (&node, which) in &of {
            let ranges = which.iter().map(|&i| ranges[i]).collect();
            self.send(node, &Frame::Fetch { asker, comm, number, ranges }, &[])?;
        }
        self.asked.insert(asker, Asked { ranges: ranges.iter().map(|r| (r.len, None)).collect(), of });
        Ok(())
    }

    fn fetched(&mut self, from: u32, asker: u32, bytes: &[u8]) -> Result<()> {
        let wrong = || TransportError(format!("node {from} sent other parts than rank {asker} asked for"));
        let asked = self.asked.get_mut(&asker).ok_or_else(wrong)?;
        let mut rest = bytes;
        for i in asked.of.remove(&from).ok_or_else(wrong)? {
            let (part, more) = rest.split_at_checked(asked.ranges[i].0 as usize).ok_or_else(wrong)?;
            asked.ranges[i].1 = Some(part.to_vec());
            rest = more;
        }
        if asked.of.is_empty()
            && let Some(asked) = self.asked.remove(&asker)
        {
            let parts: Vec<Vec<u8>> = asked.ranges.into_iter().filter_map(|(_, part)| part).collect();
            let pieces: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
            self.answer(asker, &pieces)?;
        }
        Ok(())
    }

    /// What another gateway says.
    fn take(&mut self, from: u32, frame: Frame, bytes: &[u8]) -> Result<()> {
        self.came += u64::from(frame.is_work());
        match frame {
            Frame::Message { to, what, len, offset } => self.deliver(from, (to, what, len, offset), bytes)?,
            Frame::Credit(bytes) => self.peers[from as usize].credit += bytes,
            Frame::Opened(asker) => self.carry_out(Event::Opened(asker))?,
            Frame::Open { comm, .. }
            | Frame::Closed(comm)
            | Frame::Come { comm, .. }
            | Frame::Left { comm, .. } => {
                let waits = self.early.iter().any(|other| (other.from, other.comm) == (from, comm));
                if waits || !self.attend(from, &frame, bytes)? {
                    self.early.push_back(Early { from, comm, frame, bytes: bytes.to_vec() });
                }
            }
            Frame::Fetch { asker, comm, number, ranges } => {
                let at = Comm::at(&self.segment, comm).map_err(damaged)?;
                if !is_permitted(&ranges) {
                    return Err(TransportError(format!("node {from} asked for more than it may")));
                }
                let all = ranges.iter().map(|range| range.len as usize).sum();
                let whole = Frame::Fetched(asker).encode_with(all, |mut rest| {
                    for Range { member, offset, len } in ranges {
                        let (part, more) = std::mem::take(&mut rest).split_at_mut(len as usize);
                        let offset = usize::try_from(offset).unwrap_or(usize::MAX);
                        at.part(&self.segment, &self.mail, number, member, offset, part).map_err(damaged)?;
                        rest = more;
                    }
                    Ok(())
                })?;
                self.send_work(from, whole)?;
            }
            Frame::Fetched(asker) => self.fetched(from, asker, bytes)?,
            Frame::Probe(round) => {
                let probed = self.probed(round);
                self.send(from, &Frame::Probed(probed), &[])?;
            }
            Frame::Probed(probed) if probed.round == self.round => {
                self.answers.insert(from, probed);
            }
            Frame::Settled => (self.tell)(Told::Settled),
            Frame::End(end) => {
                self.failed.get_or_insert_with(Instant::now);
                (self.tell)(Told::Ended(from, end));
            }
            Frame::Account => self.accounts.push((from, bytes.to_vec())),
            Frame::Bye => self.peers[from as usize].said_bye = true,
            Frame::Probed(_) | Frame::Hello(_) => {}
        }
        Ok(())
    }

    /// Does at collectives what others have done there, as far as it can be done now.
    fn retry(&mut self) -> Result<bool> {
        let mut any = false;
        let mut left: VecDeque<Early> = VecDeque::new();
        while let Some(early) = self.early.pop_front() {
            let waits = left.iter().any(|other| other.is_before(&early));
            if waits || !self.attend(early.from, &early.frame, &early.bytes)? {
                left.push_back(early);
            } else {
                any = true;
            }
        }
        self.early = left;
        Ok(any)
    }

    /// Whether it could be done.
    fn attend(&mut self, from: u32, frame: &Frame, bytes: &[u8]) -> Result<bool> {
        match frame {
            Frame::Open { comm, context, members, asker } => {
                let (node, members) = (from, members.clone());
                let event = Event::Open { node, comm: *comm, context: *context, members, asker: *asker };
                self.carry_out(event)?;
            }
            Frame::Closed(comm) => self.carry_out(Event::Closed { node: from, comm: *comm })?,
            _ => return self.attend_collective(from, frame, bytes),
        }
        Ok(true)
    }

    fn attend_collective(&self, from: u32, frame: &Frame, bytes: &[u8]) -> Result<bool> {
        let segment = &self.segment;
        let mut wake = |rank| segment.wake(rank, rank);
        match frame {
            Frame::Come { comm, number, entries } => {
                let comm = Comm::at(segment, *comm).map_err(damaged)?;
                if !comm.is_now(segment, *number) {
                    return Ok(false);
                }
                let mut rest = bytes;
                for entry in entries {
                    let Some((head, more)) = rest.split_at_checked(entry.head as usize) else {
                        return Err(TransportError(format!("node {from} sent a part that is too short")));
                    };
                    rest = more;
                    let &Entry { member: rank, names, len, ref awaited_by, .. } = entry;
                    let coming = FarComing { number: *number, rank, names, awaited_by, len, head };
                    let arrival =
                        comm.arrive_far(segment, &self.mail, &coming, &mut wake).map_err(damaged)?;
                    debug_assert_ne!(arrival, Arrival::TooEarly);
                }
            }
            Frame::Left { comm: index, number } => {
                let comm = Comm::at(segment, *index).map_err(damaged)?;
                if !comm.is_now(segment, *number) {
                    return Ok(false);
                }
                let count = self.book.count(*index, from);
                if comm.leave_far(segment, &self.mail, *number, count, &mut wake) {
                    self.gave_memory();
                }
            }
            _ => {}
        }
        Ok(true)
    }
}

/// Do these ask for no more than [`far::MOST_WANTED`]?
fn is_permitted(ranges: &[Range]) -> bool {
    let sum = ranges.iter().try_fold(0u64, |sum, range| sum.checked_add(range.len));
    sum.is_some_and(|sum| sum <= far::MOST_WANTED)
}

fn damaged(error: bdrun_ipc::Error) -> TransportError {
    TransportError(error.to_string())
}
