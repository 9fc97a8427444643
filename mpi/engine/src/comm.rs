//! Communicators (MPI-5.0, section 7.4): who is in one, where its members meet, what hangs on it.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use bdrun_mpi_core::error::Class;
use bdrun_mpi_core::group::{Group, Process};
use bdrun_mpi_core::info::Info;

use crate::Mpi;
use crate::attributes::Attached;
use crate::collectives::Together;
use crate::face::Object;
use crate::failure::{Answer, Failure, Freed};
use crate::handle::Comm;
use crate::handlers::Handler;
use crate::link::{Combines, Coming, EVERYBODY, Link, Meeting, Needed, ONESELF, Place, Whom};
use crate::messages::Buffers;
use crate::topologies::Topology;

/// A communicator of processes that all know it.
#[derive(Debug)]
pub struct Communicator {
    /// Where its members meet; of an inter-communicator, those of both groups. Not known yet while it is
    /// being made.
    place: OnceLock<Place>,
    /// This process's group.
    pub group: Group,
    /// The other group of an inter-communicator.
    pub remote: Option<Group>,
    /// Of an inter-communicator: this group's members are the first ones where all meet.
    pub is_first: bool,
    /// This process's rank in its group.
    pub rank: usize,
    /// For `MPI_Bsend`.
    pub buffers: Buffers,
    /// Who is whose neighbour in it.
    pub topology: Option<Topology>,
    /// What the program has attached to it.
    pub attributes: Attached,
    /// With what its place is closed when nobody uses it any more; those that are there from the beginning
    /// stay.
    link: Option<Arc<dyn Link>>,
    /// Collectives called so far, of each form.
    met: [AtomicU64; 2],
    /// Where persistent ones meet.
    pub persistent: Together,
    state: Mutex<State>,
}

/// How a collective was called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// It returns when it is complete.
    Blocking,
    /// It has a request.
    Begun,
}

/// What the program changes of a communicator.
#[derive(Debug, Default)]
pub struct State {
    /// Who is told of failures.
    pub handler: Handler,
    /// Its hints.
    pub info: Info,
    /// Its name.
    pub name: Vec<u8>,
}

/// The groups of a communicator, as one of its members sees them.
#[derive(Debug, Clone)]
pub struct Groups {
    /// Its own.
    pub local: Group,
    /// The other one, and whether its own is the first.
    pub remote: Option<(Group, bool)>,
}

impl Groups {
    /// Those of a communicator that is not between two groups.
    pub const fn one(local: Group) -> Self {
        Self { local, remote: None }
    }

    /// All members, in the order in which they are numbered where they meet.
    pub fn members(&self) -> Vec<Process> {
        match &self.remote {
            None => self.local.members().to_vec(),
            Some((remote, true)) => [self.local.members(), remote.members()].concat(),
            Some((remote, false)) => [remote.members(), self.local.members()].concat(),
        }
    }
}

impl Drop for Communicator {
    fn drop(&mut self) {
        if let (Some(link), Some(place)) = (&self.link, self.place.get()) {
            link.close(*place);
        }
    }
}

impl Communicator {
    /// Of the members of `groups`, of whose own this process is the one with `rank`.
    pub fn new(
        link: &Arc<dyn Link>,
        place: Option<Place>,
        groups: Groups,
        rank: usize,
        handler: Handler,
    ) -> Self {
        let state = State { handler, ..State::default() };
        Self::with_state(Some(link.clone()), place, groups, rank, state)
    }

    fn with_state(
        link: Option<Arc<dyn Link>>,
        place: Option<Place>,
        groups: Groups,
        rank: usize,
        state: State,
    ) -> Self {
        let Groups { local, remote } = groups;
        let (remote, is_first) = remote.map_or((None, true), |(remote, first)| (Some(remote), first));
        Self {
            place: place.map_or_else(OnceLock::new, OnceLock::from),
            group: local,
            remote,
            is_first,
            rank,
            buffers: Buffers::new(),
            topology: None,
            attributes: Attached::default(),
            link,
            met: [AtomicU64::new(0), AtomicU64::new(0)],
            persistent: Together::default(),
            state: Mutex::new(state),
        }
    }

    /// Where its members meet.
    ///
    /// # Errors
    /// `MPI_ERR_COMM`: it is still being made (`MPI_Comm_idup`).
    pub fn place(&self) -> Answer<Place> {
        self.place.get().copied().ok_or_else(|| Class::Comm.into())
    }

    /// Where they do from now on.
    pub fn set_place(&self, place: Place) {
        let _ = self.place.set(place);
    }

    /// Its groups.
    pub fn groups(&self) -> Groups {
        Groups {
            local: self.group.clone(),
            remote: self.remote.clone().map(|remote| (remote, self.is_first)),
        }
    }

    /// Those with whom a member communicates: of an inter-communicator the other group.
    pub fn peers(&self) -> &Group {
        self.remote.as_ref().unwrap_or(&self.group)
    }

    /// The number of the first of them where all meet; the others follow.
    pub fn seat_of_peers(&self) -> usize {
        if self.remote.is_some() && self.is_first { self.group.size() } else { 0 }
    }

    /// The number of the first of this process's group.
    pub fn seat_of_group(&self) -> usize {
        self.remote.as_ref().filter(|_| !self.is_first).map_or(0, Group::size)
    }

    /// Does something with what the program changes.
    pub fn with<T>(&self, act: impl FnOnce(&mut State) -> T) -> T {
        act(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// `MPI_Comm_set_info` and its like, of windows and files too: hints that are not among these stay.
    pub fn set_hints(&self, hints: &Info) {
        self.with(|state| state.info.set_all(hints));
    }

    /// Who is told of failures.
    pub fn handler(&self) -> Handler {
        self.with(|state| state.handler.clone())
    }

    /// Where all meet, the number of this process.
    pub fn seat(&self) -> usize {
        self.seat_of_group() + self.rank
    }

    /// Where all meet, the numbers of those with whom a member communicates.
    pub fn seats_of_peers(&self) -> Range<usize> {
        let first = self.seat_of_peers();
        first..first + self.peers().size()
    }

    /// The same of this process's group.
    pub fn seats_of_group(&self) -> Range<usize> {
        let first = self.seat_of_group();
        first..first + self.group.size()
    }

    /// Of an inter-communicator: all members of a group await the other's first.
    pub fn first_of_peers(&self) -> Whom {
        let is_first = self.rank == 0;
        Whom {
            awaits: Needed::one(self.seat_of_peers()),
            awaited_by: if is_first { Needed::Range(self.seats_of_peers()) } else { Needed::NOBODY },
        }
    }

    /// Comes to its next collective of a form. All members come to all of them in the same order; those of
    /// different forms do not match, and need none between them.
    pub fn meet(
        &self,
        link: &dyn Link,
        (name, form): (&'static str, Form),
        whom: &Whom,
        part: &[&[u8]],
    ) -> Answer<Box<dyn Meeting>> {
        let (place, coming) = self.coming((name, self.next(form)), whom, part, None)?;
        link.meet(place, &coming)
    }

    /// The number of its next collective of a form.
    pub fn next(&self, form: Form) -> u64 {
        2 * self.met[form as usize].fetch_add(1, SeqCst) + form as u64
    }

    /// With what it comes to a collective of this number, and where to.
    pub fn coming<'a>(
        &self,
        (name, number): (&'static str, u64),
        whom: &'a Whom,
        part: &'a [&'a [u8]],
        combines: Option<&'a dyn Combines>,
    ) -> Answer<(Place, Coming<'a>)> {
        let (place, seat) = (self.place()?, self.seat());
        Ok((place, Coming { number, name, seat, whom, part, combines }))
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
        let (own, rank) = ([process].into_iter().collect(), process as usize);
        let permanent = |place, group, rank, name: &str| {
            let state = State { name: name.into(), ..State::default() };
            Arc::new(Communicator::with_state(None, Some(place), Groups::one(group), rank, state))
        };
        Self {
            all: permanent(EVERYBODY, all, rank, "MPI_COMM_WORLD"),
            own: permanent(ONESELF, own, 0, "MPI_COMM_SELF"),
        }
    }
}

impl Mpi {
    /// The communicators that are there from the beginning.
    pub(crate) fn world(&self) -> Answer<&Arc<World>> {
        let world = self.world.get().filter(|_| !self.is_over());
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

    /// The object of a program whose communicator this is, if the program has not freed it.
    fn object_of(&self, comm: &Communicator) -> Option<Object> {
        let is_it = |other: &Communicator| std::ptr::eq(other, comm);
        // Where only sessions are there is no world.
        if let Ok(world) = self.world() {
            if is_it(&world.all) {
                return Some(Object::Comm(Comm::WORLD));
            }
            if is_it(&world.own) {
                return Some(Object::Comm(Comm::SELF));
            }
        }
        let own = self.comms.find(|other| is_it(other)).map(Object::Comm);
        let win = || self.windows.find(|window| is_it(window.comm())).map(Object::Win);
        let file = || self.files.find(|file| is_it(file.comm())).map(Object::File);
        own.or_else(win).or_else(file)
    }

    /// A failure of something in a communicator: unless another object is named, that one's error handler is
    /// told.
    pub(crate) fn of_comm(&self, comm: &Arc<Communicator>, failure: Failure) -> Failure {
        if failure.on.is_some() || failure.freed.is_some() {
            return failure;
        }
        let on = self.object_of(comm);
        Failure { on, freed: on.is_none().then(|| Freed(comm.clone())), ..failure }
    }

    /// A communicator that must not be an inter-communicator.
    pub(crate) fn intra(&self, comm: Comm) -> Answer<Arc<Communicator>> {
        self.comm(comm)
            .and_then(|comm| if comm.remote.is_some() { Err(Class::Comm.into()) } else { Ok(comm) })
    }

    /// What carries bytes.
    pub(crate) fn link(&self) -> Answer<&Arc<dyn Link>> {
        self.link.get().ok_or_else(|| Class::Other.into())
    }
}
