//! The gateway of a node: a thread of the master that does at this node what ranks of others do.
//!
//! What ranks here tell, and what other gateways say, it takes in turns. MPI wakes nobody: so it looks again
//! and again for a while ([`EAGER`]), and then sleeps between two looks for a part of the time for which
//! nothing has happened, a millisecond at most.
//!
//! *Messages* for ranks elsewhere stay in the mail, where they are counted, until the other node has room:
//! [`messages::WINDOW`] bytes may be on their way to a node and not delivered there. Delivered, they lie in
//! that node's mail. *Parts of collectives* stay where they were deposited; who needs more than the beginning
//! of one asks for it (at most [`far::MOST_WANTED`](bdrun_ipc::far::MOST_WANTED) bytes at a time). So what a
//! node holds of others is bounded by what its ranks ask for. What is on its way to others, whose ranks may
//! all ask one node, is as much as of messages at most for each, and 64 MiB for all.
//!
//! | question | file |
//! |---|---|
//! | what does a gateway do in turns? | here |
//! | what does it do of communicators and collectives? | `collectives.rs` |
//! | which node's question is answered next? | `giving.rs` |
//! | how do messages go and come? | `messages.rs` |
//! | does anything go on anywhere? | `quiet.rs` |
//! | by which clock may a master begin what it was given? | `lease.rs` |
//! | how does it end, and who is still there? | `end.rs` |

mod collectives;
mod end;
mod giving;
mod lease;
mod messages;
mod quiet;

pub use end::FAREWELL;
#[cfg(test)]
pub use lease::now as lease_clock;
pub use messages::WINDOW;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use bdrun_ipc::inbox::Arrived;
use bdrun_ipc::mail::Mail;
use bdrun_ipc::segment::Segment;
use bdrun_ipc::spread::Spread;

use crate::nodes::book::{Book, Event};
use crate::nodes::frame::{End, Frame, Probed, Word};
use crate::nodes::transport::{Came, Result, Transport, TransportError};
use crate::nodes::watch::Watch;
use collectives::{Asked, Early};
use giving::{Giving, Question};
use messages::{Assembling, Coming, Leaving, Piece};

/// How long it looks without sleeping after something has happened, but that others may have the processor:
/// while no rank here computes, and while one does. (To be woken from a sleep takes 40 to 200 µs on a virtual
/// machine, and two gateways that sleep would keep each other waiting so.)
const EAGER: [Duration; 2] = [Duration::from_micros(500), Duration::from_micros(50)];
/// How long it sleeps between two looks: this part of the time for which nothing has happened, but at least
/// and at most so long.
const PART: u32 = 4;
const SLEEP: [Duration; 2] = [Duration::from_micros(2), Duration::from_millis(1)];
/// How often the first master asks whether anything goes on, once nothing does at its own node.
const PROBE: Duration = Duration::from_millis(50);
/// After how many seconds of silence a master is lost; in the environment.
const SILENCE: &str = "BDRUN_SILENCE";

/// What stands in the account of each node, by its number.
pub type Accounts = Vec<(u32, Vec<u8>)>;

/// What the master's main thread tells its gateway.
#[derive(Debug)]
pub enum Order {
    /// The job ends everywhere, for this reason.
    End(End),
    /// All is over here; what the first master is told of it. [`Told::Over`] is the answer.
    Bye(Vec<u8>),
    /// All that is to be told of it has been told: it may leave.
    Last,
    /// This is said to another master.
    Say(u32, Word),
}

impl Order {
    /// Why the job ends, if it is that.
    pub fn end(self) -> Option<End> {
        match self {
            Self::End(end) => Some(end),
            _ => None,
        }
    }
}

/// What a gateway tells its master.
#[derive(Debug, PartialEq, Eq)]
pub enum Told {
    /// The job ends, because of what happened at that node.
    Ended(u32, End),
    /// Nothing goes on at any node.
    Settled,
    /// The main thread of another master says this.
    Said(u32, Word),
    /// Another master is lost, for this reason, and the job can go on without it.
    Lost(u32, String),
    /// This gateway can do nothing more for ranks, or another master is lost.
    Broken(TransportError),
    /// After [`Order::Bye`]: all is over everywhere, or others had time to say so. To the first master what
    /// they have told of themselves.
    Over(Accounts),
}

/// What the gateway and the main thread know of each other. Ranks that all wait are woken by the gateway
/// alone, or by something that the main thread does: that they wait is true as long as neither has done
/// anything since they were last looked at.
#[derive(Debug, Default)]
pub struct Shared {
    /// How often the gateway has done something for ranks here.
    acted: AtomicU64,
    /// By the main thread: at so many, plus one, it began to look at all ranks, and none went on; or 0.
    quiet_at: AtomicU64,
    /// All have said their last word, and MPI is told to finish.
    finishes: AtomicBool,
    /// The first master has heard that this one was there then, by [`lease::now`] of this machine.
    heard: AtomicU64,
}

impl Shared {
    /// By the main thread, before it looks at all ranks.
    pub fn acted(&self) -> u64 {
        self.acted.load(SeqCst)
    }

    /// By the main thread, after that: `None`, also before it does anything for a rank, something goes on.
    pub fn set_quiet(&self, acted: Option<u64>) {
        self.quiet_at.store(acted.map_or(0, |acted| acted + 1), SeqCst);
    }

    /// By the main thread: its ranks are over.
    pub fn set_over(&self) {
        self.quiet_at.store(u64::MAX, SeqCst);
    }

    /// By the main thread: has all been said, so that only MPI may still wait?
    pub fn is_finishing(&self) -> bool {
        self.finishes.load(SeqCst)
    }

    /// By the main thread: has the first master heard that this one was there a moment ago, so that it cannot
    /// have taken it for lost since? What it says itself may have been under way for long.
    pub fn is_heard(&self) -> bool {
        let Some(limit) = silence() else { return true };
        Duration::from_nanos(lease::now().saturating_sub(self.heard.load(SeqCst))) < limit / 4 * 3
    }

    /// As if it had not, ever; whether it had.
    #[cfg(test)]
    pub fn forget_heard(&self) -> bool {
        self.heard.swap(0, SeqCst) > 0
    }

    /// By the gateway: it has, of then.
    fn heard(&self, then: u64) {
        self.heard.fetch_max(then, SeqCst);
    }

    /// By the gateway, before MPI is told to finish.
    pub fn finish(&self) {
        self.finishes.store(true, SeqCst);
    }

    /// By the gateway, after it has done something for a rank.
    fn act(&self) {
        self.acted.fetch_add(1, SeqCst);
    }

    fn is_quiet(&self) -> bool {
        let quiet_at = self.quiet_at.load(SeqCst);
        quiet_at == u64::MAX || quiet_at == self.acted.load(SeqCst) + 1
    }
}

/// Another node.
#[derive(Default)]
struct Peer {
    leaving: VecDeque<Leaving>,
    /// Messages that are freed once the body of this number is sent.
    lent: VecDeque<(u64, Arrived)>,
    /// Bytes that may be sent.
    credit: u64,
    assembling: Option<Assembling>,
    coming: VecDeque<Coming>,
    /// Bytes delivered here, of which it was not told yet.
    owed: u64,
    said_bye: bool,
    said_last: bool,
    /// Nothing is said to it any more, nor heard of it.
    is_lost: bool,
    /// Why, while that is not told yet: it may still begin what it was given.
    cut_off: Option<String>,
    /// Where the first says who is lost: nothing was heard of it here for long. It is not waited for until it
    /// is heard again.
    is_silent: bool,
}

impl Peer {
    /// Whether it is waited for.
    fn is_waited_for(&self) -> bool {
        !self.is_lost && !self.is_silent
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
    giving: Giving,
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
    /// Since when nothing more goes to the others.
    said_last: Option<Instant>,
    may_leave: bool,
    /// By the first: what the others have said of themselves.
    accounts: Accounts,
    /// The main thread waits for [`Told::Over`].
    is_awaited: bool,
    failed: Option<Instant>,
    /// Nothing more is done for ranks: masters tell each other how it ends.
    is_broken: bool,
    /// The node that the job's end was heard of.
    follows: Option<u32>,
    watch: Watch,
    limit: Option<Duration>,
    farewell: Duration,
    /// Ranks are dealt out: what a lost node had is run by others.
    deals: bool,
}

impl<T: Transport> Gateway<T> {
    /// Of one of the nodes of this spread, whose segment and mail these are.
    pub fn new(
        transport: T,
        spread: Spread,
        (segment, mail): (Arc<Segment>, Mail),
        shared: Arc<Shared>,
        tell: Box<dyn Fn(Told) + Send>,
    ) -> Self {
        let limit = silence();
        let peer = || Peer { credit: WINDOW, ..Peer::default() };
        Self {
            book: Book::new(spread),
            peers: (0..spread.nodes).map(|_| peer()).collect(),
            asked: HashMap::new(),
            giving: Giving::new(spread.nodes),
            early: VecDeque::new(),
            sent: 0,
            came: 0,
            round: 0,
            answers: HashMap::new(),
            before: None,
            next_probe: Instant::now(),
            said_bye: false,
            said_last: None,
            may_leave: false,
            accounts: vec![],
            is_awaited: false,
            failed: None,
            is_broken: false,
            follows: None,
            watch: Watch::new(Instant::now(), limit, (spread.node, spread.nodes)),
            limit,
            farewell: FAREWELL,
            deals: false,
            segment,
            mail,
            transport,
            spread,
            shared,
            tell,
        }
    }

    /// Whether ranks are dealt out.
    pub fn dealing(self, deals: bool) -> Self {
        Self { deals, ..self }
    }

    /// With another time after which a master is lost, and another that it gets to say goodbye.
    #[cfg(test)]
    pub fn with_times(mut self, limit: Option<Duration>, farewell: Duration) -> Self {
        self.farewell = farewell;
        self.watch = Watch::new(Instant::now(), limit, (self.spread.node, self.spread.nodes));
        self.limit = limit;
        self
    }

    /// Until all have said their last word. `early`: what has come already.
    pub fn run(mut self, mut early: Vec<(u32, Came)>, orders: &Receiver<Order>) {
        // What is slept is what was meant, and not the 50 µs more that others do not mind.
        let _ = nix::sys::prctl::set_timerslack(1);
        let mut idle_since = Instant::now();
        self.shared.heard(lease::now());
        loop {
            let early = std::mem::take(&mut early);
            match self.turn_unless_broken(early, orders) {
                Ok(true) => idle_since = Instant::now(),
                Ok(false) => {}
                Err(error) => self.break_off(error),
            }
            if self.is_over() {
                break;
            }
            let computes = self.segment.header().tokens.running() > 0;
            if idle_since.elapsed() < EAGER[usize::from(computes)] {
                std::thread::yield_now();
                continue;
            }
            let sleep = (idle_since.elapsed() / PART).clamp(SLEEP[0], SLEEP[1]);
            self.segment.header().gateway.wait(sleep);
        }
        self.leave();
    }

    /// Takes what there is; whether there was anything.
    fn turn(&mut self, early: Vec<(u32, Came)>, orders: &Receiver<Order>) -> Result<bool> {
        let mut any = self.obey(orders)?;
        // A message that a rank sent before it came to a collective leaves before that is told, as far as
        // there is room for it: whoever looks for it behind a barrier finds it.
        let notices = self.heard()?;
        any |= !notices.is_empty() | self.collect()?;
        for node in 0..self.spread.nodes {
            any |= self.flush(node)?;
        }
        self.act_on(notices)?;
        let mut come = early;
        let received = self.transport.receive(&mut |from, what| come.push((from, what)));
        let received = self.without_who_is_lost(received);
        self.take_all(come)?;
        any |= received?;
        any |= self.retry()? | self.give_parts()?;
        for node in 0..self.spread.nodes {
            any |= self.flush(node)?;
        }
        self.probe()?;
        self.look_at_others()?;
        self.say_last()?;
        Ok(any)
    }

    fn send(&mut self, to: u32, frame: &Frame, bytes: &[u8]) -> Result<()> {
        if self.said_last.is_some() || (self.deals && self.peers[to as usize].is_lost) {
            return Ok(());
        }
        self.sent += u64::from(frame.is_work());
        let sent = self.transport.send(to, frame.encode(bytes)).map(drop);
        self.without_who_is_lost(sent)
    }

    /// Memory of the budget was given back.
    fn gave_memory(&self) {
        if self.segment.header().pool.wanted() {
            self.segment.ring(self.segment.here().start);
            self.shared.act();
        }
    }

    /// What this rank may wait for is there.
    fn wake(&self, rank: u32) {
        self.segment.wake(rank, rank);
        self.shared.act();
    }

    /// All that has come; if something goes wrong, of the rest what ends the job.
    fn take_all(&mut self, come: Vec<(u32, Came)>) -> Result<()> {
        let mut come = come.into_iter();
        let taken = come.by_ref().try_for_each(|(from, what)| {
            match what {
                Came::Body => self.body_came(from)?,
                Came::Frame(frame) => match Frame::decode(&frame) {
                    Some((frame, bytes)) => self.take(from, frame, bytes)?,
                    None => {
                        let text = format!("node {from} sent what is no frame of this version");
                        return Err(TransportError::Broken(text));
                    }
                },
            }
            self.beat_if_due()
        });
        if taken.is_err() {
            self.is_broken = true;
            self.take_what_ends(come);
        }
        taken
    }

    /// What another gateway says.
    fn take(&mut self, from: u32, frame: Frame, bytes: &[u8]) -> Result<()> {
        let peer = &mut self.peers[from as usize];
        if peer.is_lost && self.deals {
            // What it had is run by others, or will be.
            return Ok(());
        }
        if std::mem::take(&mut peer.is_silent) {
            self.watch.expect(from);
        }
        self.came += u64::from(frame.is_work());
        self.watch.heard(from);
        if self.is_broken && frame.is_work() {
            return Ok(());
        }
        match frame {
            Frame::Message { to, what, len, offset, body } => {
                self.deliver(from, Piece { to, what, len, offset, body }, bytes)?;
            }
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
                self.asks_for_parts(from, Question { asker, of: (comm, number), ranges })?;
            }
            Frame::Word { asker, comm, change } => self.change_word(from, asker, comm, change)?,
            Frame::Fetched { asker, body: 0 } => self.fetched(from, asker, bytes.to_vec())?,
            Frame::Fetched { asker, body } => self.expect_parts(from, asker, body)?,
            Frame::Probe(round) => {
                let probed = self.probed(round);
                self.send(from, &Frame::Probed(probed), &[])?;
            }
            Frame::Probed(probed) if probed.round == self.round => {
                self.answers.insert(from, probed);
            }
            Frame::Settled => (self.tell)(Told::Settled),
            Frame::Said(word) => (self.tell)(Told::Said(from, word)),
            Frame::End(end) => self.heard_of_the_end(from, end)?,
            Frame::Account => self.accounts.push((from, bytes.to_vec())),
            Frame::Bye => self.peers[from as usize].said_bye = true,
            Frame::Last => self.heard_the_last(from)?,
            Frame::Beat(then) if self.deals && self.spread.node == 0 => {
                self.send(from, &Frame::Heard(then), &[])?;
            }
            Frame::Heard(then) => self.shared.heard(then),
            Frame::Lost(node) => {
                self.watch.forget(node);
                self.peers[node as usize].is_lost = true;
            }
            Frame::Probed(_) | Frame::Hello(_) | Frame::Beat(_) => {}
        }
        Ok(())
    }
}

/// As it is wanted, else ten seconds: networks that find another way need two or three.
fn silence() -> Option<Duration> {
    let wanted = std::env::var(SILENCE).ok().and_then(|text| text.trim().parse::<f64>().ok());
    let seconds = wanted.filter(|seconds| seconds.is_finite() && *seconds >= 0.0).unwrap_or(10.0);
    (seconds > 0.0).then(|| Duration::from_secs_f64(seconds.clamp(0.2, 1e6)))
}

fn damaged(error: bdrun_ipc::Error) -> TransportError {
    TransportError::Broken(error.to_string())
}

/// The same where something of this rank is written, for which scratch may have no room.
fn no_room(rank: u32) -> impl Fn(bdrun_ipc::Error) -> TransportError {
    move |error| match error {
        bdrun_ipc::Error::ScratchFull { bytes } => TransportError::Full { rank, need: bytes },
        error => damaged(error),
    }
}
