//! What was begun and may not be complete: the operations behind requests.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use bdrun_ipc::futex;
use bdrun_mpi_core::group::Process;
use bdrun_mpi_core::matching::{Ticket, Want};
use bdrun_worker::front::Need;

use crate::Mpi;
use crate::args::Status;
use crate::asleep::{self, Others};
use crate::failure::{Answer, Failure};
use crate::link::{Awaited, Limits, Link, Meeting};
use crate::looks::{Looks, Next};

/// What became of an operation.
#[derive(Debug, Clone)]
pub struct Done {
    /// What a program is told of it.
    pub status: Status,
    /// It has failed.
    pub failure: Option<Failure>,
}

impl Done {
    /// It succeeded, and there is nothing to tell.
    pub const fn well() -> Self {
        Self { status: Status::EMPTY, failure: None }
    }
}

/// What is done once those have come to a collective whose parts are wanted.
pub type Finish = Box<dyn FnOnce(&dyn Meeting) -> Answer<()> + Send>;

/// What is known of a message of which it is awaited that it is received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Receipt {
    /// Under which the word is awaited.
    pub number: u32,
    /// Who receives it.
    pub process: Process,
    /// Of which communicator.
    pub context: u32,
    /// The receiver's rank there, from which the word comes.
    pub source: u32,
    /// The sender's rank there.
    pub own: u32,
    /// The message's tag.
    pub tag: i32,
}

/// What an operation waits for.
pub enum Waits {
    /// A message: with what it may be taken back.
    Message {
        /// Where it is to come.
        context: u32,
        /// Which.
        want: Want,
        /// The receive.
        ticket: Ticket,
    },
    /// A word that a message was received.
    Receipt(Receipt),
    /// Another thread says that it is complete.
    Word,
    /// Others must come to a collective.
    Meeting(Arc<dyn Meeting>, Finish),
    /// Others; what is told of it is told of the last.
    All(Vec<Arc<Operation>>),
    /// Parts of one message, of which this is told.
    Parts(Vec<Arc<Operation>>, Status),
}

impl fmt::Debug for Waits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Message { context, want, .. } => write!(f, "a message of {context}: {want:?}"),
            Self::Receipt(Receipt { context, source, .. }) => write!(f, "a receipt of {context}: {source}"),
            Self::Word => write!(f, "a word"),
            Self::Meeting(meeting, _) => write!(f, "{meeting:?}"),
            Self::All(all) | Self::Parts(all, _) => write!(f, "{all:?}"),
        }
    }
}

#[derive(Debug)]
enum State {
    Waits(Waits),
    /// A thread does what remains to be done.
    Finishing,
    Done(Done),
}

/// Something that was begun.
#[derive(Debug)]
pub struct Operation(Mutex<State>);

impl Operation {
    /// It waits for something.
    pub fn begun(waits: Waits) -> Arc<Self> {
        Arc::new(Self(Mutex::new(State::Waits(waits))))
    }

    /// It was complete at once.
    pub fn complete(done: Done) -> Arc<Self> {
        Arc::new(Self(Mutex::new(State::Done(done))))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What it waits for has changed.
    pub fn set_waits(&self, waits: Waits) {
        let mut state = self.lock();
        if let State::Waits(Waits::Word) = *state {
            *state = State::Waits(waits);
        }
    }

    /// It is complete.
    pub fn finish(&self, done: Done) {
        *self.lock() = State::Done(done);
    }

    /// With what a receive may be taken back, if it has no message.
    pub fn takes_back(&self) -> Option<(u32, Want, Ticket)> {
        match &*self.lock() {
            &State::Waits(Waits::Message { context, want, ticket }) => Some((context, want, ticket)),
            _ => None,
        }
    }

    /// Those of which it consists, if it waits for such.
    pub fn parts(&self) -> Vec<Arc<Self>> {
        match &*self.lock() {
            State::Waits(Waits::All(all)) => all.clone(),
            _ => vec![],
        }
    }

    /// Of which message it is awaited that it is received.
    pub fn receipt(&self) -> Option<Receipt> {
        match &*self.lock() {
            &State::Waits(Waits::Receipt(receipt)) => Some(receipt),
            _ => None,
        }
    }

    /// A collective that may be complete, at which no thread looks.
    fn is_due(&self) -> bool {
        // A thread that has it locked looks at it.
        let Ok(state) = self.0.try_lock() else { return false };
        matches!(&*state, State::Waits(Waits::Meeting(meeting, _)) if meeting.is_due())
    }

    /// The status of the last of these and the first failure, if all are complete.
    fn look_at(all: &[Arc<Self>]) -> Option<(Option<Status>, Option<Failure>)> {
        let mut all: Vec<Done> = all.iter().map(|one| one.look()).collect::<Option<_>>()?;
        let failure = all.iter_mut().find_map(|done| done.failure.take());
        Some((all.last().map(|last| last.status), failure))
    }

    /// What became of it, if it is complete. Does what can be done for that without waiting.
    pub fn look(&self) -> Option<Done> {
        let mut state = self.lock();
        match &mut *state {
            State::Done(done) => return Some(done.clone()),
            State::Finishing | State::Waits(Waits::Message { .. } | Waits::Receipt(_) | Waits::Word) => {
                return None;
            }
            State::Waits(Waits::All(all)) => {
                let (last, failure) = Self::look_at(all)?;
                *state = State::Done(Done { status: last.unwrap_or(Status::EMPTY), failure });
            }
            State::Waits(Waits::Parts(parts, status)) => {
                let (status, (_, failure)) = (*status, Self::look_at(parts)?);
                *state = State::Done(Done { status, failure });
            }
            State::Waits(Waits::Meeting(meeting, _)) => match meeting.is_complete() {
                Ok(false) => return None,
                Err(failure) => {
                    *state = State::Done(Done { failure: Some(failure), ..Done::well() });
                }
                Ok(true) => {
                    let State::Waits(Waits::Meeting(meeting, finish)) =
                        std::mem::replace(&mut *state, State::Finishing)
                    else {
                        return None;
                    };
                    drop(state);
                    let failure = finish(&*meeting).err();
                    drop(meeting);
                    state = self.lock();
                    *state = State::Done(Done { failure, ..Done::well() });
                }
            },
        }
        match &*state {
            State::Done(done) => Some(done.clone()),
            _ => None,
        }
    }
}

/// Collectives that were begun and may not be complete.
///
/// A program may begin as many as it likes and wait for them in any order, or for none before it waits for
/// something else. But a member that has not left one is in the way of a later one (`ipc`). So who is too
/// early somewhere completes what can be completed of them, whatever it waits for.
#[derive(Debug)]
pub struct Open(Mutex<Vec<Weak<Operation>>>);

impl Open {
    /// None.
    pub const fn new() -> Self {
        Self(Mutex::new(vec![]))
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Weak<Operation>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One that was come to, or will be.
    pub fn begin(&self, meeting: Box<dyn Meeting>, finish: Finish) -> Arc<Operation> {
        let operation = Operation::begun(Waits::Meeting(meeting.into(), finish));
        let mut all = self.lock();
        // Those that are gone are left out where room would be made otherwise: rarely, as room doubles.
        if all.len() == all.capacity() {
            all.retain(|one| one.strong_count() > 0);
            let more = all.len().max(8);
            all.reserve(more);
        }
        all.push(Arc::downgrade(&operation));
        operation
    }

    /// Whether one of them may be complete and nobody has looked at it.
    fn is_due(&self) -> bool {
        self.lock().iter().filter_map(Weak::upgrade).any(|one| one.is_due())
    }

    /// Completes those that can be, in the order in which they were begun; whether there were any.
    fn look(&self) -> bool {
        let all: Vec<_> = self.lock().iter().filter_map(Weak::upgrade).collect();
        let mut any = false;
        for one in all.iter().filter(|one| one.is_due()) {
            any |= one.look().is_some();
        }
        any
    }
}

/// A thread that only says so from time to time may be on its way.
const A_MOMENT: Duration = Duration::from_millis(1);

impl Operation {
    /// Waits until it may be complete.
    pub fn wait(&self, link: &dyn Link, limits: Limits<'_>) {
        let state = self.lock();
        match &*state {
            State::Done(_) => {}
            &State::Waits(Waits::Message { context, want: Want { source, tag }, .. }) => {
                drop(state);
                link.wait(Awaited::Message { context, source, tag }, limits);
            }
            &State::Waits(Waits::Receipt(Receipt { context, source, tag, .. })) => {
                drop(state);
                link.wait(Awaited::Message { context, source: Some(source), tag: Some(tag) }, limits);
            }
            State::Waits(Waits::Meeting(meeting, _)) => {
                let meeting = meeting.clone();
                drop(state);
                meeting.wait(limits);
            }
            State::Waits(Waits::All(all) | Waits::Parts(all, _)) => {
                let first = all.iter().find(|one| one.look().is_none()).cloned();
                drop(state);
                if let Some(first) = first {
                    first.wait(link, limits);
                }
            }
            State::Finishing | State::Waits(Waits::Word) => {
                drop(state);
                link.wait(Awaited::Anything, Limits { at_most: Some(A_MOMENT), ..limits });
            }
        }
    }
}

/// What threads know of each other.
#[derive(Debug)]
pub struct Threads {
    /// Another thread than the one that initialised MPI sends, looks or waits, or has done so.
    several: AtomicBool,
    waiting: AtomicU32,
    /// How often one has found what another may wait for.
    found: AtomicU64,
    looks: Mutex<Looks>,
    /// Something else was done since the last look, or one has found something.
    acted: AtomicBool,
    /// As the kernel knows them.
    others: Others,
}

/// How long a thread waits at a time where others may have to do something first: they may send something
/// without which all ranks wait, and cannot while the process's memory is out.
pub(crate) const A_WHILE: Duration = Duration::from_secs(1);
/// The same before it is known whether they can do anything, which takes time.
const A_SHORT_WHILE: Duration = Duration::from_millis(100);
/// How often it is looked whether a process goes on of which an answer is awaited.
const A_LOOK: Duration = Duration::from_millis(100);

impl Threads {
    /// None waits.
    pub const fn new() -> Self {
        let (several, waiting) = (AtomicBool::new(false), AtomicU32::new(0));
        let (looks, acted) = (Mutex::new(Looks::none()), AtomicBool::new(false));
        Self { several, waiting, found: AtomicU64::new(0), looks, acted, others: Others::new() }
    }

    fn looks(&self) -> MutexGuard<'_, Looks> {
        self.looks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The program has sent something, waited for something, or found what it looked for: it does not only
    /// look.
    fn act(&self) {
        if !self.acted.load(Relaxed) {
            self.acted.store(true, Relaxed);
        }
    }

    /// Whether none but the thread that initialised MPI has ever sent anything, looked or waited.
    pub(crate) fn is_one(&self) -> bool {
        !self.several.load(SeqCst)
    }

    /// Who looks now does so once more for nothing: what is to come now?
    fn looked_in_vain(&self, need: Need) -> Next {
        let mut looks = self.looks();
        if self.acted.swap(false, Relaxed) {
            *looks = Looks::none();
        }
        looks.in_vain(Instant::now(), need)
    }
}

impl Mpi {
    /// A thread is in a call in which others may wait for what it finds, and it for what they find.
    #[inline]
    pub(crate) fn note_thread(&self) {
        if !self.is_main_thread() && self.threads.is_one() {
            self.threads.several.store(true, SeqCst);
        }
    }

    /// The program has sent something.
    #[inline]
    pub(crate) fn act(&self) {
        self.threads.act();
        self.note_thread();
    }

    /// How long a thread may wait now, if not without end; in `vain`: nothing has come for as long as it has
    /// waited just now. Who waits without end is part of a deadlock where all ranks do: so nobody does while
    /// another thread of this process may call MPI.
    fn at_most(&self, link: &dyn Link, vain: bool) -> Option<Duration> {
        if self.questions.load(SeqCst) > 0 {
            return Some(A_LOOK);
        }
        // What a program has promised of its threads it keeps, but for one of which others are seen.
        let may_be_several = self.life.is_for_several() || !self.threads.is_one();
        if !may_be_several || asleep::is_alone() {
            return None;
        }
        // Where memory is short it may leave for the wait, and is not to be brought back only to look.
        let is_worth_a_look = vain || link.others_need().leaving.is_some();
        match is_worth_a_look {
            true if self.threads.others.sleep(vain) => None,
            true => Some(A_WHILE),
            false => Some(A_SHORT_WHILE),
        }
    }

    /// Waits until there is something to tell, taking in what comes; `wait` waits for it. Every call that may
    /// block blocks here.
    pub(crate) fn wait_for<T>(
        &self,
        mut found: impl FnMut() -> Answer<Option<T>>,
        mut wait: impl FnMut(&dyn Link, Limits<'_>),
    ) -> Answer<T> {
        let link = self.link()?;
        self.threads.act();
        let mut vain = false;
        loop {
            let seen = self.threads.found.load(SeqCst);
            self.progress()?;
            if let Some(found) = found()? {
                return Ok(found);
            }
            let at_most = self.at_most(&**link, vain);
            let begun = at_most.map(|_| Instant::now());
            let by_anything = link.is_early();
            let unless = || self.threads.found.load(SeqCst) != seen || (by_anything && self.open.is_due());
            self.threads.waiting.fetch_add(1, SeqCst);
            let beside = at_most.is_some();
            wait(&**link, Limits { at_most, unless: &unless, by_anything, beside });
            self.threads.waiting.fetch_sub(1, SeqCst);
            vain = at_most.zip(begun).is_some_and(|(at_most, begun)| begun.elapsed() >= at_most);
            // What else has come can be taken in by the next call. Among many ranks on few processors
            // whatever is touched is in no cache.
            if let Some(found) = found()? {
                return Ok(found);
            }
        }
    }

    /// Where this process is too early for a collective, leaves what it can: others, too, wait for that.
    pub(crate) fn look_at_open(&self) -> Answer<()> {
        if self.link()?.is_early() && self.open.look() {
            self.tell_threads();
        }
        Ok(())
    }

    /// Something was found for which another thread may wait.
    pub(crate) fn tell_threads(&self) {
        self.threads.found.fetch_add(1, SeqCst);
        if self.threads.waiting.load(SeqCst) > 0
            && let Some(link) = self.link.get()
        {
            link.nudge();
        }
    }

    /// Looks for something without waiting. Who does nothing but look waits all the same, a moment each time:
    /// others compute meanwhile.
    pub(crate) fn look_for<T>(&self, found: impl Fn() -> Option<T>) -> Answer<Option<T>> {
        let seen = self.threads.found.load(SeqCst);
        self.progress()?;
        if let Some(found) = found() {
            self.threads.act();
            return Ok(Some(found));
        }
        let link = self.link()?;
        let need = link.others_need();
        let at_most = match self.threads.looked_in_vain(need) {
            Next::GoOn => return Ok(None),
            Next::Yield => {
                futex::let_others_run();
                self.threads.looks().yielded(Instant::now());
                return Ok(None);
            }
            Next::Wait(at_most) => at_most,
        };
        let unless = || self.threads.found.load(SeqCst) != seen;
        let (at_most, by_anything) = (Some(at_most), false);
        let limits = Limits { at_most, unless: &unless, by_anything, beside: false };
        link.wait(Awaited::Anything, limits);
        self.threads.looks().waited(Instant::now());
        self.progress()?;
        let found = found();
        if found.is_some() {
            self.threads.act();
        }
        Ok(found)
    }

    /// Waits until an operation is complete.
    pub(crate) fn wait_operation(&self, operation: &Operation) -> Answer<Done> {
        self.wait_for(|| Ok(operation.look()), |link, limits| operation.wait(link, limits))
    }
}
