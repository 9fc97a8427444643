//! Collectives in the segment: coming to one, now or when others have left the one before it there.

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};

use bdrun_ipc::collective::{self, Arrival, Comm, name_hash};
use bdrun_ipc::segment::Waiting;
use bdrun_mpi_core::error::Class;
use bdrun_worker::front::Rank;

use super::{Node, failed};
use crate::failure::{Answer, Failure};
use crate::link::{Combines, Coming, Limits, Meeting, Needed, Parcel};

/// This process at a collective.
#[derive(Clone, Debug)]
struct Seat {
    comm: Comm,
    number: u64,
    rank: u32,
    name: u64,
    /// How many others it waits for; none: for all.
    awaits: Option<u32>,
    awaited_by: Vec<u32>,
    size: u32,
}

/// The same, if it was too early.
#[derive(Debug)]
struct Late {
    seat: Seat,
    state: Mutex<State>,
}

/// What a member that was too early comes with later: its part, and what all parts become.
type Later = (Vec<u8>, Option<Arc<dyn Combines>>);

#[derive(Debug)]
enum State {
    /// It was too early, and comes later.
    Early(Later),
    /// The same, and nobody is here any more who wants others' parts.
    Abandoned(Later),
    Come,
    /// It cannot come.
    Failed(Failure),
}

impl Seat {
    /// Comes with a part; `false`: it is too early. Who comes last makes one thing of all parts, if it can:
    /// else each does that by itself.
    fn come(&self, rank: Rank, part: &[&[u8]], combines: Option<&dyn Combines>) -> Answer<bool> {
        let (segment, mail) = (rank.segment(), rank.mail());
        let &Self { comm, number, rank: own, name, awaits, .. } = self;
        let awaited_by = &self.awaited_by[..];
        let combined = combines.is_some();
        let coming =
            collective::Coming { number, rank: own, name, awaits, awaited_by, combines: combined, part };
        let mut wake = |member| rank.wake(member);
        match comm.arrive(segment, mail, &coming, &mut wake).map_err(|error| failed(rank, error))? {
            Arrival::TooEarly => return Ok(false),
            Arrival::Here => {}
            Arrival::Last => self.complete(rank, combines)?,
        }
        Ok(true)
    }

    /// By who came last.
    fn complete(&self, rank: Rank, combines: Option<&dyn Combines>) -> Answer<()> {
        let (segment, mail, &Self { comm, number, .. }) = (rank.segment(), rank.mail(), self);
        let all = combines.and_then(|combines| self.combine(rank, combines).ok());
        let all = all.as_deref().map(Ok);
        comm.complete(segment, mail, number, all).map_err(|error| failed(rank, error))?;
        comm.wake_all(segment, number, &mut |member| rank.wake(member));
        Ok(())
    }

    fn combine(&self, rank: Rank, combines: &dyn Combines) -> Answer<Vec<u8>> {
        let parts = self.parts(rank);
        combines.combine(&|member| &parts[member])
    }

    fn parts(&self, rank: Rank) -> Box<[Deposited]> {
        let &Self { comm, number, size, .. } = self;
        (0..size).map(|member| Deposited { rank, comm, number, member }).collect()
    }

    /// Have those come that are awaited, or is it to this process to combine their parts? Reads shared memory
    /// only.
    fn is_due(&self, rank: Rank) -> bool {
        let (segment, &Self { comm, number, rank: own, .. }) = (rank.segment(), self);
        comm.is_enough(segment, number, own) || comm.is_to_be_claimed(segment, number)
    }

    fn leave(&self, rank: Rank) {
        let (segment, mail, leaves) = (rank.segment(), rank.mail(), (self.number, self.rank));
        match self.comm.leave(segment, mail, leaves, &mut |member| rank.wake(member)) {
            Ok(true) => rank.gave_memory(),
            Ok(false) => {}
            // The gateway is not told, and the job would stand still: the master hears of it instead.
            Err(error) => _ = failed(rank, error),
        }
    }
}

impl Late {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Comes, if it was too early and is not any more; whether it need not try again.
    ///
    /// # Errors
    /// It cannot come, and nobody is here who is told that.
    fn come(&self, rank: Rank) -> Answer<bool> {
        let mut state = self.lock();
        let (later, is_awaited) = match &*state {
            State::Early(later) => (later, true),
            State::Abandoned(later) => (later, false),
            State::Come | State::Failed(_) => return Ok(true),
        };
        let (part, combines) = later;
        if !self.seat.comm.is_free(rank.segment(), self.seat.number) {
            return Ok(false);
        }
        match self.seat.come(rank, &[part], combines.as_deref()) {
            Ok(false) => return Ok(false),
            Ok(true) => {
                if !is_awaited {
                    self.seat.leave(rank);
                }
                *state = State::Come;
            }
            // Whoever makes progress comes here: that is told who waits for this one.
            Err(failure) if is_awaited => *state = State::Failed(failure),
            Err(failure) => return Err(failure),
        }
        Ok(true)
    }
}

/// Collectives to which this process was too early.
#[derive(Debug)]
pub struct Early {
    rank: Rank,
    seats: Mutex<Seats>,
    /// How many they are.
    count: AtomicUsize,
}

#[derive(Debug, Default)]
struct Seats {
    all: Vec<Arc<Late>>,
    /// Communicators that are given up when it has come to theirs.
    closed: Vec<Comm>,
}

impl Early {
    pub fn new(rank: Rank) -> Self {
        Self { rank, seats: Mutex::default(), count: AtomicUsize::new(0) }
    }

    fn lock(&self) -> MutexGuard<'_, Seats> {
        self.seats.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, seat: &Seat, later: Later) -> Arc<Late> {
        let late = Arc::new(Late { seat: seat.clone(), state: Mutex::new(State::Early(later)) });
        self.lock().all.push(late.clone());
        self.count.fetch_add(1, SeqCst);
        late
    }

    /// Are there any?
    pub fn is_some(&self) -> bool {
        self.count.load(SeqCst) > 0
    }

    /// Can it come to one of them now?
    pub fn is_due(&self) -> bool {
        let segment = self.rank.segment();
        self.is_some() && self.lock().all.iter().any(|late| late.seat.comm.is_free(segment, late.seat.number))
    }

    /// Comes to those to which it can.
    pub fn come(&self) -> Answer<()> {
        if !self.is_some() {
            return Ok(());
        }
        let mut seats = self.lock();
        let Seats { all, closed } = &mut *seats;
        let mut result = Ok(());
        let before = all.len();
        all.retain(|late| match late.come(self.rank) {
            Ok(done) => !done,
            Err(failure) => {
                result = Err(failure);
                false
            }
        });
        self.count.store(all.len(), SeqCst);
        if all.len() < before {
            // Another thread may wait there, and was not to be woken before it had come.
            self.rank.wake(self.rank.number());
        }
        closed.retain(|comm| {
            let waits = all.iter().any(|late| late.seat.comm == *comm);
            if !waits {
                give_up(self.rank, *comm);
            }
            waits
        });
        result
    }

    /// This process will not come there any more, but to where it was too early.
    pub fn close(&self, comm: Comm) {
        let mut seats = self.lock();
        if seats.all.iter().any(|late| late.seat.comm == comm) {
            seats.closed.push(comm);
        } else {
            give_up(self.rank, comm);
        }
    }
}

/// Gives the handle of a communicator up.
fn give_up(rank: Rank, comm: Comm) {
    if let Err(error) = comm.release(rank.segment(), rank.mail(), rank.number()) {
        failed(rank, error);
    }
}

/// What all parts become, by who comes last or claims it.
#[derive(Debug)]
pub enum Combiner<'a> {
    /// The call goes on that lends it.
    Lent(&'a dyn Combines),
    Kept(Arc<dyn Combines>),
}

impl Combiner<'_> {
    fn get(&self) -> &dyn Combines {
        match self {
            Self::Lent(combines) => *combines,
            Self::Kept(combines) => &**combines,
        }
    }
}

/// A collective to which this process has come, or will.
#[derive(Debug)]
pub struct Here<'a> {
    rank: Rank,
    early: Arc<Early>,
    seat: Seat,
    late: Option<Arc<Late>>,
    name: &'static str,
    combines: Option<Combiner<'a>>,
    parts: OnceLock<Box<[Deposited]>>,
}

impl<'a> Here<'a> {
    /// Comes there. `combines`: as `coming` has it.
    pub fn new(
        rank: Rank,
        early: &Arc<Early>,
        comm: Comm,
        coming: &Coming<'_>,
        combines: Option<Combiner<'a>>,
    ) -> Answer<Self> {
        let size = comm.size(rank.segment());
        let others = |needed: &Needed| -> Vec<u32> {
            let others = needed.of(size as usize).filter(|&other| other != coming.seat);
            let mut others: Vec<u32> = others.map(|other| other as u32).collect();
            others.sort_unstable();
            others.dedup();
            others
        };
        let awaits = match &coming.whom.awaits {
            Needed::All => None,
            some => Some(others(some).len() as u32),
        };
        let seat = Seat {
            comm,
            number: coming.number,
            rank: coming.seat as u32,
            name: name_hash(coming.name),
            awaits,
            awaited_by: others(&coming.whom.awaited_by),
            size,
        };
        rank.vouch_for(coming.part);
        let late = match seat.come(rank, coming.part, coming.combines)? {
            true => None,
            false => Some(early.add(&seat, (coming.part.concat(), coming.combines.map(Combines::kept)))),
        };
        Ok(Self {
            rank,
            early: early.clone(),
            seat,
            late,
            name: coming.name,
            combines,
            parts: OnceLock::new(),
        })
    }

    /// Whether it has come.
    fn has_come(&self) -> Answer<bool> {
        let Some(late) = &self.late else { return Ok(true) };
        match &*late.lock() {
            State::Come => Ok(true),
            State::Early(_) | State::Abandoned(_) => Ok(false),
            State::Failed(failure) => Err(failure.clone()),
        }
    }

    /// Whether it may be complete, or it is known that it will not be. Allocates nothing, and waits for no
    /// other thread: one that is about to come for this one may change that.
    fn may_go_on(&self) -> bool {
        let state = match self.late.as_ref().map(|late| late.state.try_lock()) {
            None => return self.seat.is_due(self.rank),
            Some(Err(TryLockError::WouldBlock)) => return true,
            Some(Err(TryLockError::Poisoned(poisoned))) => poisoned.into_inner(),
            Some(Ok(state)) => state,
        };
        match &*state {
            State::Come => self.seat.is_due(self.rank),
            State::Failed(_) => true,
            State::Early(_) | State::Abandoned(_) => false,
        }
    }
}

impl Drop for Here<'_> {
    fn drop(&mut self) {
        let Some(late) = &self.late else { return self.seat.leave(self.rank) };
        let mut state = late.lock();
        match &mut *state {
            State::Early(part) => *state = State::Abandoned(std::mem::take(part)),
            State::Come => self.seat.leave(self.rank),
            State::Abandoned(_) | State::Failed(_) => {}
        }
    }
}

impl Meeting for Here<'_> {
    fn is_complete(&self) -> Answer<bool> {
        let (segment, Seat { comm, number, rank, .. }) = (self.rank.segment(), &self.seat);
        if !self.has_come()? {
            self.early.come()?;
            // That it cannot is told at once: nobody would wake who waits for it.
            return self.has_come().map(|_| false);
        }
        if comm.names_differ(segment, *number).is_some() {
            let text =
                format!("{}, where another process of the communicator calls something else", self.name);
            return Err(Failure { text: Some(text), ..Class::Other.into() });
        }
        if comm.claim(segment, *number) {
            self.seat.complete(self.rank, self.combines.as_ref().map(Combiner::get))?;
        }
        Ok(comm.is_enough(segment, *number, *rank))
    }

    fn part(&self, member: usize) -> &dyn Parcel {
        &self.parts.get_or_init(|| self.seat.parts(self.rank))[member]
    }

    fn combined(&self) -> Option<&dyn Parcel> {
        let (segment, Seat { comm, number, .. }) = (self.rank.segment(), &self.seat);
        let well = comm.folded_len(segment, *number) > 0 && !comm.fold_failed(segment, *number);
        well.then_some(self)
    }

    fn is_due(&self) -> bool {
        self.may_go_on()
    }

    fn wait(&self, limits: Limits<'_>) {
        let waiting = Waiting::Collective { comm: self.seat.comm.index(), number: self.seat.number };
        Node::wait_as(self.rank, &self.early, waiting, limits, || self.may_go_on());
    }
}

/// What a member has deposited.
#[derive(Debug)]
struct Deposited {
    rank: Rank,
    comm: Comm,
    number: u64,
    member: u32,
}

impl Parcel for Deposited {
    fn len(&self) -> u64 {
        self.comm.part_len(self.rank.segment(), self.number, self.member) as u64
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> Answer<()> {
        let &Self { rank, comm, number, member } = self;
        let (segment, mail) = (rank.segment(), rank.mail());
        if !comm.is_near(segment, number, member, offset, into.len() as u64) {
            let read = rank.read_far((comm.index(), number), vec![(member, offset, into)]);
            return read.map_err(|error| failed(rank, error));
        }
        let offset = usize::try_from(offset).map_err(|_| Class::Internal)?;
        comm.part(segment, mail, number, member, offset, into).map_err(|error| failed(rank, error))
    }
}

/// What was made of all parts.
impl Parcel for Here<'_> {
    fn len(&self) -> u64 {
        self.seat.comm.folded_len(self.rank.segment(), self.seat.number) as u64
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> Answer<()> {
        let (segment, mail, Seat { comm, number, .. }) = (self.rank.segment(), self.rank.mail(), &self.seat);
        let offset = usize::try_from(offset).map_err(|_| Class::Internal)?;
        comm.folded(segment, mail, *number, offset, into).map_err(|error| failed(self.rank, error))
    }
}
