//! The link between processes of a node: over the segment of a job that `bdrun` has started.
//!
//! Messages lie in inboxes, the parts of collectives in the segment or the mail (`ipc`). A process waits as a
//! rank does (`worker`), so that its memory may be out meanwhile, and is woken only by what it waits for.
//!
//! | question | file |
//! |---|---|
//! | how do messages go and come? how does a process wait? | here |
//! | what does it say of its own end? | `crash.rs` |
//! | how is a plain message sent and received at once? | `direct.rs` |
//! | how does it come to a collective, and find the others there? | `meeting.rs` |

mod crash;
mod direct;
mod meeting;

use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use bdrun_ipc::collective::{CONTEXTS, Comm};
use bdrun_ipc::critical;
use bdrun_ipc::far::{Change, Notice};
use bdrun_ipc::inbox::{self, Arrived};
use bdrun_ipc::lane::{self, Came, Lying, Way};
use bdrun_ipc::segment::{Segment, Waiting};
use bdrun_ipc::state::State;
use bdrun_mpi_core::error::Class;
use bdrun_mpi_core::group::Process;
use bdrun_worker::front::{Need, Rank};

use crate::communicators::no_place;
use crate::entry::current_call;
use crate::failure::{Answer, Failure};
use crate::link::{
    ALONE, Awaited, Come, Coming, Head, Limits, Link, Meeting, Met, Mode, ONESELF, Parcel, Place,
};
pub use direct::Direct;
use meeting::{Combiner, Early, Here};

const _: () = assert!(ONESELF.context == CONTEXTS);

/// `RankBlock::attached` of who is in MPI, and of who has ended it. (Others look whether it is 0.)
const ATTACHED: u32 = 1;
/// See [`ATTACHED`].
const LEFT: u32 = 2;

/// How often a thread looks that does not wait as the rank.
const LOOK: Duration = Duration::from_micros(200);

/// This process among those of its node.
#[derive(Debug)]
pub struct Node {
    rank: Rank,
    early: Arc<Early>,
    /// To each of the others, once something is sent there.
    ways: Box<[OnceLock<Box<Mutex<Way>>>]>,
    /// The lane that is looked at first.
    next: AtomicU32,
}

/// A mode, as it is noted with a message.
const fn note_of(mode: Mode) -> u32 {
    match mode {
        Mode::Plain => 0,
        Mode::Active => 1,
        Mode::Synchronous(number) => 4 * number + 2,
        Mode::Received(number) => 4 * number + 3,
        Mode::TakesBack(number) => 4 * number + 4,
        Mode::TakenBack(number) => 4 * number + 5,
    }
}

const fn mode_of(note: u32) -> Mode {
    match (note, note % 4) {
        (0, _) => Mode::Plain,
        (1, _) => Mode::Active,
        (_, 2) => Mode::Synchronous((note - 2) / 4),
        (_, 3) => Mode::Received((note - 3) / 4),
        (_, 0) => Mode::TakesBack((note - 4) / 4),
        _ => Mode::TakenBack((note - 5) / 4),
    }
}

/// A failure of the job's memory.
fn failed(rank: Rank, error: bdrun_ipc::Error) -> Failure {
    let text = Some(rank.failed(error).to_string());
    Failure { text, ..Class::Other.into() }
}

impl Node {
    /// Joins the job; none if `bdrun` did not start this process.
    ///
    /// # Errors
    /// `MPI_ERR_OTHER`: another version of `bdrun` did, or another process is this rank.
    pub fn connect() -> Answer<Option<Self>> {
        let attached = Rank::attach().map_err(|error| {
            let text = Some(error.to_string());
            Failure { text, ..Class::Other.into() }
        })?;
        Ok(attached.map(|rank| {
            let ways = (0..rank.size()).map(|_| OnceLock::new()).collect();
            Self { rank, early: Arc::new(Early::new(rank)), ways, next: AtomicU32::new(0) }
        }))
    }

    fn segment(&self) -> &'static Segment {
        self.rank.segment()
    }

    fn comm_at(&self, place: Place) -> Answer<Comm> {
        Comm::at(self.segment(), place.number).map_err(|error| failed(self.rank, error))
    }

    /// Waits as the rank.
    fn wait_as(rank: Rank, early: &Early, waiting: Waiting, limits: Limits<'_>, enough: impl Fn() -> bool) {
        let (segment, number) = (rank.segment(), rank.number());
        let waiting = if limits.by_anything { Waiting::Anything } else { waiting };
        let satisfied =
            || enough() || !lane::is_quiet(segment, number) || (limits.unless)() || early.is_due();
        if rank.looks(&satisfied) {
            return;
        }
        if let Some(call) = current_call() {
            segment.rank(number).set_call(call);
        }
        if limits.beside && segment.is_spread() {
            // Masters of other nodes do not hear that this one will go on, only whether it waits.
            let begun = Instant::now();
            while rank.others_need().leaving.is_none() {
                if satisfied() || limits.at_most.is_some_and(|most| begun.elapsed() >= most) {
                    return;
                }
                std::thread::sleep(LOOK);
            }
        }
        rank.sleep(limits.at_most, waiting, satisfied);
    }
}

/// A message that is in this process's hands.
#[derive(Debug)]
struct Message {
    rank: Rank,
    len: u64,
    /// Until it is dropped.
    arrived: Mutex<Option<Arrived>>,
}

impl Message {
    fn lock(&self) -> MutexGuard<'_, Option<Arrived>> {
        self.arrived.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Parcel for Message {
    fn len(&self) -> u64 {
        self.len
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> Answer<()> {
        let arrived = self.lock();
        let arrived = arrived.as_ref().ok_or(Class::Internal)?;
        let (segment, mail) = (self.rank.segment(), self.rank.mail());
        inbox::read(segment, mail, arrived, offset, into).map_err(|error| failed(self.rank, error))
    }
}

/// A message that lies in a lane.
#[derive(Debug)]
struct Passing<'a> {
    rank: Rank,
    lying: &'a Lying<'a>,
}

impl Parcel for Passing<'_> {
    fn len(&self) -> u64 {
        self.lying.len
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> Answer<()> {
        self.lying.read(self.rank.mail(), offset, into).map_err(|error| failed(self.rank, error))
    }
}

impl Drop for Message {
    fn drop(&mut self) {
        if let Some(arrived) = self.lock().take() {
            inbox::free(self.rank.segment(), self.rank.mail(), arrived);
            self.rank.gave_memory();
        }
    }
}

impl Link for Node {
    fn process(&self) -> Process {
        self.rank.number()
    }

    fn processes(&self) -> u32 {
        self.rank.size()
    }

    fn send(&self, to: Process, head: Head, data: &[&[u8]]) -> Answer<()> {
        self.send_at(to, head, data)
    }

    fn receive(&self, take: &mut dyn FnMut(Head, Come<'_>)) -> Answer<()> {
        self.early.come()?;
        let (segment, number) = (self.segment(), self.rank.number());
        let mut came = |came: Came<'_>| match came {
            Came::Whole(arrived) => {
                let Arrived { context, source, tag, note, len, .. } = arrived;
                let head = Head { context, source, tag: tag as i32, mode: mode_of(note) };
                let message = Message { rank: self.rank, len, arrived: Mutex::new(Some(arrived)) };
                take(head, Come::Whole(Box::new(message)));
            }
            Came::Passing(lying) => {
                let Lying { context, source, tag, note, .. } = *lying;
                let head = Head { context, source, tag: tag as i32, mode: mode_of(note) };
                take(head, Come::Passing(&Passing { rank: self.rank, lying }));
            }
        };
        lane::receive(segment, self.rank.mail(), number, &mut came).map_err(|error| failed(self.rank, error))
    }

    fn wait(&self, awaited: Awaited, limits: Limits<'_>) {
        let waiting = match awaited {
            Awaited::Anything => Waiting::Anything,
            Awaited::Message { context, source, tag } => {
                Waiting::Message { context, source, tag: tag.map(|tag| tag as u32) }
            }
        };
        Self::wait_as(self.rank, &self.early, waiting, limits, || false);
    }

    fn others_need(&self) -> Need {
        self.rank.others_need()
    }

    fn nudge(&self) {
        self.rank.wake(self.rank.number());
    }

    fn wake(&self, process: Process) {
        self.rank.wake(process);
    }

    fn has_left(&self, process: Process) -> Option<bool> {
        let segment = self.segment();
        let block = segment.is_here(process).then(|| segment.rank(process))?;
        Some(block.attached.load(SeqCst) == LEFT || block.word.load().state() == State::Exited)
    }

    fn open(&self, members: &[Process]) -> Answer<Place> {
        let segment = self.segment();
        if members == [self.rank.number()] {
            return Ok(Place { number: ALONE, context: Comm::new_context(segment) });
        }
        let comm = Comm::create(segment, members).map_err(|error| match error {
            bdrun_ipc::Error::TooMany { most, .. } => no_place(&format!("there are {most} at most")),
            error => failed(self.rank, error),
        })?;
        if comm.is_spread(segment) {
            let opened = self.rank.ask(&Notice::Opened { comm: comm.index() }, &mut []);
            opened.map_err(|error| failed(self.rank, error))?;
        }
        Ok(Place { number: comm.index(), context: comm.context(segment) })
    }

    fn close(&self, place: Place) {
        if place.number != ALONE
            && let Ok(comm) = Comm::at(self.segment(), place.number)
        {
            self.early.close(comm);
        }
    }

    fn ends_in(&self, call: Option<&'static str>) {
        self.segment().rank(self.rank.number()).end_in(call);
    }

    fn set_begun(&self, begun: bool) {
        let block = self.segment().rank(self.rank.number());
        block.begun.store(begun.into(), SeqCst);
        block.attached.store(if begun { ATTACHED } else { LEFT }, SeqCst);
        if begun {
            crash::watch(block);
        }
    }

    fn set_name(&self, place: Place, name: &str) {
        if place.number != ALONE
            && let Ok(comm) = Comm::at(self.segment(), place.number)
        {
            comm.set_name(self.segment(), name);
        }
    }

    fn meet(&self, place: Place, coming: &Coming<'_>) -> Answer<Box<dyn Meeting>> {
        if place.number == ALONE {
            return Ok(Box::new(Met::new(coming.part)));
        }
        let combines = coming.combines.map(|combines| Combiner::Kept(combines.kept()));
        Ok(Box::new(Here::new(self.rank, &self.early, self.comm_at(place)?, coming, combines)?))
    }

    fn meet_while(
        &self,
        place: Place,
        coming: &Coming<'_>,
        stays: &mut dyn FnMut(&dyn Meeting) -> Answer<()>,
    ) -> Answer<()> {
        if place.number == ALONE {
            return stays(&Met::new(coming.part));
        }
        let combines = coming.combines.map(Combiner::Lent);
        stays(&Here::new(self.rank, &self.early, self.comm_at(place)?, coming, combines)?)
    }

    fn is_early(&self) -> bool {
        self.early.is_some()
    }

    fn word(&self, place: Place, change: Change) -> Answer<i64> {
        let segment = self.segment();
        let comm = Comm::at(segment, place.number).map_err(|error| failed(self.rank, error))?;
        if comm.holder(segment) == segment.spread().node {
            return Ok(change.apply(comm.word(segment)));
        }
        let (notice, mut was) = (Notice::Word { comm: comm.index(), change }, [0; 8]);
        let asked = self.rank.ask(&notice, &mut [&mut was]);
        asked.map_err(|error| failed(self.rank, error))?;
        Ok(i64::from_le_bytes(was))
    }

    fn node_of(&self, process: Process) -> u32 {
        self.segment().spread().node_of(process)
    }

    fn come_to_critical(&self, most: u32) -> u32 {
        let ticket = self.segment().header().critical.come(most);
        critical::note(self.segment(), self.rank.number(), Some(ticket));
        ticket
    }

    fn may_enter_critical(&self, ticket: u32) -> bool {
        self.segment().header().critical.may_enter(ticket)
    }

    fn entered_critical(&self) {
        critical::note(self.segment(), self.rank.number(), None);
    }

    fn leave_critical(&self) {
        let next = self.segment().header().critical.leave();
        if let Some(rank) = critical::waiter(self.segment(), next) {
            self.rank.wake(rank);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::messages::MOST_RECEIPTS;

    #[test]
    fn modes_survive() {
        for number in [0, 1, 7, MOST_RECEIPTS - 1] {
            let asked = [Mode::Synchronous(number), Mode::Received(number)];
            let back = [Mode::TakesBack(number), Mode::TakenBack(number)];
            for mode in [Mode::Plain, Mode::Active].into_iter().chain(asked).chain(back) {
                assert_eq!(mode_of(note_of(mode)), mode);
            }
        }
    }
}
