//! Communicators (MPI-5.0, section 7.4): who is in one, where its members meet, what hangs on it.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex, PoisonError};

use bdrun_mpi_core::error::Class;
use bdrun_mpi_core::group::Group;
use bdrun_mpi_core::info::Info;

use crate::Mpi;
use crate::failure::{Answer, Failure};
use crate::handle::Comm;
use crate::handlers::Handler;
use crate::link::{EVERYBODY, Link, Meeting, ONESELF, Place};
use crate::messages::Buffers;

/// A communicator of processes that all know it.
#[derive(Debug)]
pub struct Communicator {
    /// Where its members meet; of an inter-communicator, those of both groups.
    pub place: Place,
    /// This process's group.
    pub group: Group,
    /// The other group of an inter-communicator.
    pub remote: Option<Group>,
    /// This process's rank in its group.
    pub rank: usize,
    /// For `MPI_Bsend`.
    pub buffers: Buffers,
    /// Collectives called so far.
    met: AtomicU64,
    state: Mutex<State>,
}

/// What the program changes of a communicator.
#[derive(Debug, Default)]
pub struct State {
    /// Who is told of failures.
    pub handler: Handler,
    /// Its hints.
    pub info: Info,
    /// Its name.
    pub name: String,
}

impl Communicator {
    /// Of the members of `group`, of which this process is the one with `rank`.
    pub fn new(place: Place, group: Group, rank: usize, handler: Handler, name: &str) -> Self {
        let state = State { handler, name: name.into(), ..State::default() };
        Self {
            place,
            group,
            remote: None,
            rank,
            buffers: Buffers::new(),
            met: AtomicU64::new(0),
            state: Mutex::new(state),
        }
    }

    /// Does something with what the program changes.
    pub fn with<T>(&self, act: impl FnOnce(&mut State) -> T) -> T {
        act(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Who is told of failures.
    pub fn handler(&self) -> Handler {
        self.with(|state| state.handler.clone())
    }

    /// Comes to its next collective. All members come to all of them in the same order.
    pub fn meet(&self, link: &dyn Link, name: &'static str, part: &[&[u8]]) -> Answer<Box<dyn Meeting>> {
        link.meet(self.place, self.met.fetch_add(1, SeqCst), name, part)
    }
}

/// The communicators that are there from the beginning.
#[derive(Debug)]
pub struct World {
    /// `MPI_COMM_WORLD`.
    pub all: Arc<Communicator>,
    /// `MPI_COMM_SELF`.
    pub own: Arc<Communicator>,
}

impl World {
    pub(crate) fn new(link: &dyn Link) -> Self {
        let (process, all) = (link.process(), (0..link.processes()).collect());
        let handler = Handler::Fatal;
        let (own, rank) = ([process].into_iter().collect(), process as usize);
        Self {
            all: Arc::new(Communicator::new(EVERYBODY, all, rank, handler.clone(), "MPI_COMM_WORLD")),
            own: Arc::new(Communicator::new(ONESELF, own, 0, handler, "MPI_COMM_SELF")),
        }
    }
}

impl Mpi {
    /// The communicators that are there from the beginning.
    pub(crate) fn world(&self) -> Answer<Arc<World>> {
        let world = self.world.lock().unwrap_or_else(PoisonError::into_inner).clone();
        world.ok_or_else(|| Failure {
            text: Some("MPI is not initialized, or was finalized".into()),
            ..Class::Other.into()
        })
    }

    /// A communicator.
    pub(crate) fn comm(&self, comm: Comm) -> Answer<Arc<Communicator>> {
        match comm {
            Comm::WORLD => Ok(self.world()?.all.clone()),
            Comm::SELF => Ok(self.world()?.own.clone()),
            _ => self.comms.get(comm).ok_or_else(|| Class::Comm.into()),
        }
    }

    /// The same, which must not be an inter-communicator.
    pub(crate) fn intra(&self, comm: Comm) -> Answer<Arc<Communicator>> {
        self.comm(comm)
            .and_then(|comm| if comm.remote.is_some() { Err(Class::Comm.into()) } else { Ok(comm) })
    }

    /// What carries bytes.
    pub(crate) fn link(&self) -> Answer<&dyn Link> {
        self.link.get().map(|link| &**link).ok_or_else(|| Class::Other.into())
    }
}
