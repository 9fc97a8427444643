//! What was begun and may not be complete: the operations behind requests.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bdrun_mpi_core::matching::{Ticket, Want};

use crate::Mpi;
use crate::args::Status;
use crate::failure::{Answer, Failure};
use crate::link::{Meeting, Needed};

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
    /// Somebody else says that it is complete.
    Word,
    /// These must come to a collective.
    Meeting(Box<dyn Meeting>, Needed, Finish),
    /// Others; what is told of it is told of the last.
    All(Vec<Arc<Operation>>),
}

impl fmt::Debug for Waits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Message { context, want, .. } => write!(f, "a message of {context}: {want:?}"),
            Self::Word => write!(f, "a word"),
            Self::Meeting(meeting, needed, _) => write!(f, "{needed:?} of {meeting:?}"),
            Self::All(all) => write!(f, "{all:?}"),
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

    /// What became of it, if it is complete. Does what can be done for that without waiting.
    pub fn look(&self) -> Option<Done> {
        let mut state = self.lock();
        match &mut *state {
            State::Done(done) => return Some(done.clone()),
            State::Finishing | State::Waits(Waits::Message { .. } | Waits::Word) => return None,
            State::Waits(Waits::All(all)) => {
                let all: Option<Vec<Done>> = all.iter().map(|one| one.look()).collect();
                let mut all = all?;
                let failure = all.iter_mut().find_map(|done| done.failure.take());
                let status = all.last().map_or(Status::EMPTY, |last| last.status);
                *state = State::Done(Done { status, failure });
            }
            State::Waits(Waits::Meeting(meeting, needed, _)) => match meeting.is_complete(needed) {
                Ok(false) => return None,
                Err(failure) => {
                    *state = State::Done(Done { failure: Some(failure), ..Done::well() });
                }
                Ok(true) => {
                    let State::Waits(Waits::Meeting(meeting, _, finish)) =
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

impl Mpi {
    /// Waits until there is something to tell, taking in what comes. Every call that may block blocks here.
    pub(crate) fn wait_for<T>(&self, mut found: impl FnMut() -> Answer<Option<T>>) -> Answer<T> {
        let link = self.link()?;
        loop {
            self.progress()?;
            if let Some(found) = found()? {
                return Ok(found);
            }
            link.wait();
        }
    }

    /// Waits until an operation is complete.
    pub(crate) fn wait_operation(&self, operation: &Operation) -> Answer<Done> {
        self.wait_for(|| Ok(operation.look()))
    }
}
