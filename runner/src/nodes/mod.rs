//! A job on several nodes: one master on each, started by the launcher that the site has (`mpiexec`, `srun`),
//! which find each other through the MPI it belongs to. Ranks are numbered over all nodes
//! ([`bdrun_ipc::spread`]); each node has its own segment, budget and scratch, and decides by itself who is
//! in RAM.
//!
//! | question | file |
//! |---|---|
//! | what do masters say to one another? | `frame.rs` |
//! | what carries that? | `transport.rs`; `mpi.rs`: the MPI that is there |
//! | what happens at a node of what ranks of others do? | `gateway/` |
//! | is another master still there? | `watch.rs` |
//! | which node runs which part, where ranks are independent? | `deal.rs` |
//! | who must be told of a communicator, and of who comes to a collective? | `book.rs` |

#[cfg(test)]
mod at_scale;
mod book;
pub mod deal;
mod frame;
mod gateway;
pub mod mpi;
#[cfg(test)]
mod seen;
#[cfg(test)]
mod tests;
mod transport;
mod watch;

use std::hash::Hasher;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use bdrun_ipc::control::PROTOCOL;
use bdrun_ipc::mail::Mail;
use bdrun_ipc::segment::Segment;
use bdrun_ipc::spread::Spread;
use twox_hash::XxHash3_64;

use crate::in_use::Owner;
use crate::launch::Parts;
pub use frame::{End, Word};
use frame::{Frame, Hello};
use gateway::Gateway;
pub use gateway::{Order, Shared, Told};
use mpi::{Launcher, Mpi};
pub use transport::TransportError;
use transport::{Came, Transport};

/// How long masters wait for each other at the beginning.
const MEETING: Duration = Duration::from_secs(60);

/// How long MPI gets to finish once all masters have said their last word: it waits for all of them, of which
/// one may be gone meanwhile.
const FINISHING: Duration = Duration::from_secs(30);

/// How long MPI may take to begin: it waits for all masters, of which one may have ended meanwhile.
const BEGINNING: Duration = Duration::from_secs(300);

/// What the gateway is given once there is a segment.
struct Work {
    segment: Arc<Segment>,
    mail: Mail,
    tell: Box<dyn Fn(Told) + Send>,
    spread: Spread,
    deals: bool,
}

/// This master among the others.
pub struct Nodes {
    spread: Spread,
    on_this_machine: u32,
    hosts: Vec<String>,
    first: Owner,
    shared: Arc<Shared>,
    orders: Sender<Order>,
    work: Option<Sender<Work>>,
    /// Ends when the gateway does.
    ended: Receiver<()>,
}

impl Nodes {
    /// Meets the other masters that this launcher has started, for a job of so many ranks.
    ///
    /// # Errors
    /// There is no MPI that belongs to the launcher, or the others are of another version or have another
    /// command line.
    pub fn meet(
        launcher: &Launcher,
        ranks: u32,
        command: &[String],
        parts: Option<&Parts>,
    ) -> Result<Self, String> {
        let (orders, obeyed) = channel();
        let (work, given) = channel::<Work>();
        let (met, meeting) = channel();
        let (finished, ended) = channel();
        let shared = Arc::new(Shared::default());
        let version = env!("CARGO_PKG_VERSION").to_owned();
        let (command, machine) = (hash_of(command.iter().map(String::as_bytes)), machine());
        let parts = parts.map_or(0, |parts| hash_of((0..parts.count()).map(|rank| parts.part(rank).whole())));
        let owner = Owner::this();
        let hello =
            Hello { protocol: PROTOCOL, version, ranks, command, parts, machine, host: host(), owner };
        let (launcher, seen) = (launcher.clone(), shared.clone());
        let gateway = move || {
            let wanted = std::env::var("BDRUN_MPI_LIBRARY").ok();
            let joined = Mpi::join(&launcher, wanted.as_deref()).and_then(|mut mpi| {
                let met = greet(&mut mpi, &hello)?;
                Ok((mpi, met))
            });
            let (mpi, Met { on_this_machine, hosts, first, early }) = match joined {
                Ok(joined) => joined,
                Err(error) => {
                    let _ = met.send(Err(error.to_string()));
                    return;
                }
            };
            let _ = met.send(Ok((mpi.node(), mpi.nodes(), on_this_machine, hosts, first)));
            serve(mpi, early, &given, &obeyed, seen);
            drop(finished);
        };
        let thread = std::thread::Builder::new().name("gateway".into()).spawn(gateway);
        thread.map_err(|error| format!("cannot start a thread: {error}"))?;
        let (node, nodes, on_this_machine, hosts, first) =
            meeting.recv_timeout(BEGINNING).unwrap_or_else(|error| match error {
                RecvTimeoutError::Disconnected => Err("the gateway has ended".into()),
                RecvTimeoutError::Timeout => Err(format!(
                    "the launcher's MPI has not begun within {} minutes: has another master ended?",
                    BEGINNING.as_secs() / 60
                )),
            })?;
        let spread = Spread { ranks, nodes, node };
        Ok(Self { spread, on_this_machine, hosts, first, shared, orders, work: Some(work), ended })
    }

    /// Which ranks are where.
    #[must_use]
    pub fn spread(&self) -> Spread {
        self.spread
    }

    /// How many of the masters are on this machine, and share its memory and processors.
    #[must_use]
    pub fn on_this_machine(&self) -> u32 {
        self.on_this_machine
    }

    /// What the machine of a node is called.
    #[must_use]
    pub fn host(&self, node: u32) -> &str {
        self.hosts.get(node as usize).map_or("", String::as_str)
    }

    /// The job, by its first node's master.
    #[must_use]
    pub fn first(&self) -> Owner {
        self.first
    }

    /// The job begins: this is its memory, and `tell` is told what the master has to know. Where ranks are
    /// dealt out (`deals`) it goes on without those that are lost, but for the first.
    pub fn begin(&mut self, segment: Arc<Segment>, mail: Mail, deals: bool, tell: Box<dyn Fn(Told) + Send>) {
        if let Some(work) = self.work.take() {
            let _ = work.send(Work { segment, mail, tell, spread: self.spread, deals });
        }
    }

    /// Where ranks are dealt out: whether the first master was heard so short a time ago that it cannot have
    /// given this node for lost, and its ranks to others. Also true of the first.
    #[must_use]
    pub fn may_begin(&self) -> bool {
        self.spread.node == 0 || self.shared.is_heard()
    }

    /// Says this to another master.
    pub fn say(&self, node: u32, word: Word) {
        let _ = self.orders.send(Order::Say(node, word));
    }

    /// Before all ranks are looked at: for [`set_quiet`](Self::set_quiet).
    pub fn acted(&self) -> u64 {
        self.shared.acted()
    }

    /// Nothing has happened here for a while, nor did when all ranks were looked at; or (`None`) something
    /// does, or is about to.
    pub fn set_quiet(&self, acted: Option<u64>) {
        self.shared.set_quiet(acted);
    }

    /// All ranks here are over.
    pub fn set_over(&self) {
        self.shared.set_over();
    }

    /// The job ends on all nodes.
    pub fn end(&self, end: End) {
        let _ = self.orders.send(Order::End(end));
    }

    /// It has ended here, of which the first master is told this. [`Told::Over`] comes when it has
    /// everywhere; until then the job may still end otherwise.
    pub fn bye(&self, account: Vec<u8>) {
        let _ = self.orders.send(Order::Bye(account));
    }

    /// After that, when all has been told of the job's end: waits until others have told it too.
    pub fn go(self) {
        let _ = self.orders.send(Order::Last);
        let mut since = None;
        while self.ended.recv_timeout(Duration::from_secs(1)) == Err(RecvTimeoutError::Timeout) {
            if self.shared.is_finishing() && since.get_or_insert_with(Instant::now).elapsed() > FINISHING {
                return;
            }
        }
    }

    /// This master cannot begin: the others are told, who would wait for it for ever. To be followed by
    /// [`go`](Self::go), once it has been said here.
    pub fn give_up(&mut self, end: End) {
        self.end(end);
        if self.work.take().is_none() {
            self.bye(vec![]);
        }
    }
}

/// Carries on until the end; without a job only until that.
fn serve<T: Transport>(
    mut transport: T,
    early: Early,
    given: &Receiver<Work>,
    orders: &Receiver<Order>,
    shared: Arc<Shared>,
) {
    match given.recv() {
        Ok(Work { segment, mail, tell, spread, deals }) => {
            Gateway::new(transport, spread, (segment, mail), shared, tell).dealing(deals).run(early, orders)
        }
        Err(_) => {
            if let Some(end) = orders.try_iter().find_map(|order| order.end()) {
                // The launcher ends the others if they do not hear it.
                let _ = say_that_it_cannot_begin(&mut transport, early, &end, (orders, &shared));
            }
        }
    }
}

/// This master could not begin; the others would wait for it for ever.
fn say_that_it_cannot_begin(
    transport: &mut impl Transport,
    early: Early,
    end: &End,
    (orders, shared): (&Receiver<Order>, &Shared),
) -> transport::Result<()> {
    let (own, nodes) = (transport.node(), transport.nodes());
    let others = || (0..nodes).filter(move |&node| node != own);
    let mut told = Ok(());
    for node in others() {
        for frame in [Frame::End(end.clone()), Frame::Bye] {
            told = told.and(transport.send(node, frame.encode(&[])).map(drop));
        }
    }
    told?;
    let (mut all, mut may_leave, mut said_last) = (early, false, false);
    let begun = Instant::now();
    while begun.elapsed() < gateway::FAREWELL {
        transport.receive(&mut |from, came| all.push((from, came)))?;
        let have_said = |what: &Frame| {
            let says = |came: &Came| matches!(came, Came::Frame(frame) if *frame == what.encode(&[]));
            others().all(|node| all.iter().any(|(from, came)| *from == node && says(came)))
        };
        // Not before this master has said why: launchers kill those that are left.
        may_leave |= orders.try_iter().any(|order| matches!(order, Order::Last));
        if have_said(&Frame::Bye) && may_leave && !said_last {
            said_last = true;
            others().try_for_each(|node| transport.send(node, Frame::Last.encode(&[])).map(drop))?;
        }
        if said_last && have_said(&Frame::Last) && transport.unsent() == 0 {
            shared.finish();
            transport.finish();
            break;
        }
        std::thread::sleep(Duration::from_micros(200));
    }
    Ok(())
}

/// What stands for these words.
fn hash_of<'a>(words: impl IntoIterator<Item = &'a [u8]>) -> u64 {
    let mut hash = XxHash3_64::with_seed(0);
    words.into_iter().for_each(|word| {
        // A part may have any byte in it.
        hash.write(&(word.len() as u64).to_le_bytes());
        hash.write(word);
    });
    hash.finish()
}

/// What stands for this machine: also in a container, which has names of its own.
fn machine() -> u64 {
    let said = |file: &str| std::fs::read_to_string(format!("/proc/sys/kernel/{file}")).ok();
    hash_of([said("random/boot_id").or_else(|| said("hostname")).unwrap_or_default().as_bytes()])
}

/// What this machine is called.
fn host() -> String {
    let said = std::fs::read_to_string("/proc/sys/kernel/hostname");
    said.map(|name| name.trim().to_owned()).unwrap_or_default()
}

/// What has come of masters that have met all others, before this one had.
type Early = Vec<(u32, Came)>;

/// What comes of the greeting.
struct Met {
    on_this_machine: u32,
    hosts: Vec<String>,
    /// What the first master calls the job.
    first: Owner,
    early: Early,
}

/// All masters tell each other who they are.
fn greet(transport: &mut impl Transport, hello: &Hello) -> transport::Result<Met> {
    let (own, nodes) = (transport.node(), transport.nodes());
    if nodes > hello.ranks {
        let remedy =
            if hello.parts == 0 { "raise -np" } else { "start no more masters than there are parts" };
        let text = format!("{nodes} masters for {} ranks: some would have none; {remedy}", hello.ranks);
        transport.finish();
        return Err(TransportError::Broken(text));
    }
    for node in (0..nodes).filter(|&node| node != own) {
        transport.send(node, Frame::Hello(hello.clone()).encode(&[]))?;
    }
    let (begun, mut wrong) = (Instant::now(), None);
    let mut met: Vec<bool> = (0..nodes).map(|node| node == own).collect();
    let (mut on_this_machine, mut early) = (1, vec![]);
    let mut hosts = vec![String::new(); nodes as usize];
    hosts[own as usize].clone_from(&hello.host);
    let mut first = hello.owner;
    while met.contains(&false) || transport.unsent() > 0 {
        let any = transport.receive(&mut |from, came| {
            if met[from as usize] {
                early.push((from, came));
                return;
            }
            met[from as usize] = true;
            let theirs = match &came {
                Came::Frame(frame) => Frame::decode(frame).map(|(frame, _)| frame),
                Came::Body => None,
            };
            let said = match theirs {
                Some(Frame::Hello(theirs)) => {
                    on_this_machine += u32::from(theirs.machine == hello.machine);
                    let said = differs(hello, &theirs, from);
                    hosts[from as usize] = theirs.host;
                    if from == 0 {
                        first = theirs.owner;
                    }
                    said
                }
                _ => Some(format!("node {from} is of another version of bdrun")),
            };
            wrong = wrong.take().or(said);
        })?;
        if begun.elapsed() > MEETING {
            let met = met.iter().filter(|met| **met).count();
            return Err(TransportError::Broken(format!(
                "of {nodes} masters only {met} have come within a minute"
            )));
        }
        if !any {
            std::thread::sleep(Duration::from_micros(200));
        }
    }
    match wrong {
        // The others see it, too: they end as this one does.
        Some(text) => {
            transport.finish();
            Err(TransportError::Broken(text))
        }
        None => Ok(Met { on_this_machine, hosts, first, early }),
    }
}

/// What is another than here.
fn differs(ours: &Hello, theirs: &Hello, node: u32) -> Option<String> {
    let said = if ours.protocol != theirs.protocol || ours.version != theirs.version {
        format!(
            "is bdrun {} (protocol {}), this one {} ({})",
            theirs.version, theirs.protocol, ours.version, ours.protocol
        )
    } else if ours.ranks != theirs.ranks {
        format!("has {} ranks, this one {}", theirs.ranks, ours.ranks)
    } else if ours.command != theirs.command {
        "was given another command line".into()
    } else if ours.parts != theirs.parts {
        "has other parts, or the same in another order: --parts must have the same lines on all nodes, --glob \
         find the same files (on a file system that they share, or give the list of one node to all)"
            .into()
    } else {
        return None;
    };
    Some(format!("the masters are not of one job: that of node {node} {said}"))
}
