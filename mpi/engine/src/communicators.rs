//! How communicators are made of others (MPI-5.0, section 7.4.2).

use std::ffi::c_char;
use std::sync::Arc;

use bdrun_mpi_core::error::Class;
use bdrun_mpi_core::group::{Alike, Group as Members};
use bdrun_mpi_core::info::Info as Content;

use crate::Mpi;
use crate::calls::Communicators;
use crate::comm::Communicator;
use crate::failure::{Answer, unsupported};
use crate::groups::UNDEFINED;
use crate::handle::{Comm, Errhandler, Group, Info};
use crate::handlers::Kind;
use crate::link::{Meeting, Needed, Place};

/// `MPI_COMM_TYPE_SHARED`, `MPI_COMM_TYPE_HW_UNGUIDED`, `MPI_COMM_TYPE_HW_GUIDED`,
/// `MPI_COMM_TYPE_RESOURCE_GUIDED`.
const SHARED: i64 = 241;
const UNGUIDED: i64 = 242;
const GUIDED: i64 = 243;
const RESOURCE: i64 = 244;

/// Two numbers that a member of a communicator says.
fn two(meeting: &dyn Meeting, member: usize) -> Answer<(i64, i64)> {
    let part = meeting.part(member);
    let mut bytes = [0; 16];
    part.read(0, &mut bytes)?;
    let number = |at: usize| i64::from_le_bytes(std::array::from_fn(|i| bytes[at + i]));
    Ok((number(0), number(8)))
}

/// Where the members of a new communicator meet, as their first one says.
fn said(meeting: &dyn Meeting, leader: usize) -> Answer<Place> {
    let (number, context) = two(meeting, leader)?;
    let legal = |value: i64| u32::try_from(value).map_err(|_| Class::NoMemory);
    Ok(Place { number: legal(number)?, context: legal(context)? })
}

impl Mpi {
    /// Called by all members of a communicator: a new one of those in `group`, if this process is in it. The
    /// first of them finds a place and tells the others.
    fn part_of(&self, of: &Communicator, group: Members, name: &'static str) -> Answer<Option<Communicator>> {
        let link = self.link()?;
        let rank = group.rank_of(link.process());
        let opened = if rank == Some(0) { link.open(group.members()).map(Some) } else { Ok(None) };
        // Who has found no place says so: the others must not wait for it.
        let place = opened.as_ref().ok().copied().flatten();
        let said_here = place.map_or([-1, -1], |place| [place.number.into(), place.context.into()]);
        let bytes: Vec<u8> = said_here.into_iter().flat_map(i64::to_le_bytes).collect();
        let meeting = of.meet(link, name, &[&bytes])?;
        self.wait_meeting(&*meeting, &Needed::All)?;
        opened?;
        let Some(rank) = rank else { return Ok(None) };
        let leader = of.group.rank_of(group.members()[0]).ok_or(Class::Group)?;
        let place = said(&*meeting, leader)?;
        Ok(Some(Communicator::new(place, group, rank, of.handler(), "")))
    }

    /// A handle of what was made, if anything was.
    fn new_comm(&self, made: Option<Communicator>) -> Comm {
        made.map_or(Comm::NULL, |made| self.comms.add(Arc::new(made)))
    }

    /// A copy of a communicator without what hangs on it.
    fn copy_of(&self, comm: Comm, info: Option<Content>) -> Answer<Comm> {
        let comm = self.intra(comm)?;
        let made = self.part_of(&comm, comm.group.clone(), "MPI_Comm_dup")?;
        if let (Some(made), Some(info)) = (&made, info) {
            made.with(|state| state.info = info);
        }
        Ok(self.new_comm(made))
    }

    /// Those with the same color, in the order of their keys.
    fn split(&self, comm: &Communicator, color: i64, key: i64) -> Answer<Comm> {
        let link = self.link()?;
        let bytes: Vec<u8> = [color, key].into_iter().flat_map(i64::to_le_bytes).collect();
        let meeting = comm.meet(link, "MPI_Comm_split", &[&bytes])?;
        self.wait_meeting(&*meeting, &Needed::All)?;
        let all: Vec<(i64, i64)> =
            (0..comm.group.size()).map(|member| two(&*meeting, member)).collect::<Answer<_>>()?;
        drop(meeting);
        let with = |color: i64| {
            let mut chosen: Vec<(i64, usize)> = all
                .iter()
                .zip(0..)
                .filter(|((of, _), _)| *of == color)
                .map(|((_, key), at)| (*key, at))
                .collect();
            chosen.sort_unstable();
            chosen.into_iter().map(|(_, at)| comm.group.members()[at]).collect::<Members>()
        };
        // Those who join none still come to where the others find their place.
        let group = if color == UNDEFINED { [].into_iter().collect() } else { with(color) };
        let made = self.part_of(comm, group, "MPI_Comm_split")?;
        Ok(self.new_comm(made))
    }
}

impl Communicators for Mpi {
    unsafe fn comm_compare(&self, comm1: Comm, comm2: Comm) -> Answer<i64> {
        let (one, other) = (self.comm(comm1)?, self.comm(comm2)?);
        if Arc::ptr_eq(&one, &other) {
            return Ok(201);
        }
        let local = one.group.compare(&other.group);
        let remote = match (&one.remote, &other.remote) {
            (None, None) => Alike::Identical,
            (Some(one), Some(other)) => one.compare(other),
            _ => Alike::Unequal,
        };
        // MPI_CONGRUENT, MPI_SIMILAR, MPI_UNEQUAL
        Ok(match (local, remote) {
            (Alike::Unequal, _) | (_, Alike::Unequal) => 204,
            (Alike::Identical, Alike::Identical) => 202,
            _ => 203,
        })
    }

    unsafe fn comm_create(&self, comm: Comm, group: Group) -> Answer<Comm> {
        let (comm, group) = (self.intra(comm)?, self.group(group)?);
        if group.members().iter().any(|&process| comm.group.rank_of(process).is_none()) {
            return Err(Class::Group.into());
        }
        let made = self.part_of(&comm, (*group).clone(), "MPI_Comm_create")?;
        Ok(self.new_comm(made))
    }

    unsafe fn comm_create_from_group(
        &self,
        group: Group,
        _: *const c_char,
        info: Info,
        errhandler: Errhandler,
    ) -> Answer<Comm> {
        let (group, handler) = (self.group(group)?, self.handler(errhandler, Kind::Comm)?);
        let link = self.link()?;
        match group.members() {
            [] => Ok(Comm::NULL),
            [only] if *only == link.process() => {
                let made = Communicator::new(link.open(&[*only])?, (*group).clone(), 0, handler, "");
                if info != Info::NULL {
                    let content = self.with_info(info, |content| Ok(content.clone()))?;
                    made.with(|state| state.info = content);
                }
                Ok(self.comms.add(Arc::new(made)))
            }
            _ if group.rank_of(link.process()).is_none() => Err(Class::Group.into()),
            _ => Err(unsupported("MPI_Comm_create_from_group of several processes")),
        }
    }

    unsafe fn comm_create_group(&self, comm: Comm, group: Group, tag: i64) -> Answer<Comm> {
        let (comm, group) = (self.intra(comm)?, self.group(group)?);
        if tag < 0 {
            return Err(Class::Tag.into());
        }
        let link = self.link()?;
        match group.members() {
            members if members.iter().any(|&process| comm.group.rank_of(process).is_none()) => {
                Err(Class::Group.into())
            }
            _ if group.rank_of(link.process()).is_none() => Ok(Comm::NULL),
            [only] => {
                let made = Communicator::new(link.open(&[*only])?, (*group).clone(), 0, comm.handler(), "");
                Ok(self.comms.add(Arc::new(made)))
            }
            _ => Err(unsupported("MPI_Comm_create_group of several processes")),
        }
    }

    unsafe fn comm_dup(&self, comm: Comm) -> Answer<Comm> {
        // Since MPI-4.0 hints are not copied.
        self.copy_of(comm, None)
    }

    unsafe fn comm_dup_with_info(&self, comm: Comm, info: Info) -> Answer<Comm> {
        let content =
            if info == Info::NULL { Content::default() } else { self.with_info(info, |i| Ok(i.clone()))? };
        self.copy_of(comm, Some(content))
    }

    unsafe fn comm_free(&self, comm: Comm) -> Answer<Comm> {
        let made = self.comms.take(comm).ok_or(Class::Comm)?;
        // Whoever still uses it (a request) holds it.
        if let (Some(made), Ok(link)) = (Arc::into_inner(made), self.link()) {
            link.close(made.place);
        }
        Ok(Comm::NULL)
    }

    unsafe fn comm_get_info(&self, comm: Comm) -> Answer<Info> {
        let content = self.comm(comm)?.with(|state| state.info.clone());
        Ok(self.new_info(content))
    }

    unsafe fn comm_group(&self, comm: Comm) -> Answer<Group> {
        Ok(self.new_group(self.comm(comm)?.group.clone()))
    }

    unsafe fn comm_rank(&self, comm: Comm) -> Answer<i64> {
        Ok(self.comm(comm)?.rank as i64)
    }

    unsafe fn comm_remote_group(&self, comm: Comm) -> Answer<Group> {
        let comm = self.comm(comm)?;
        Ok(self.new_group(comm.remote.clone().ok_or(Class::Comm)?))
    }

    unsafe fn comm_remote_size(&self, comm: Comm) -> Answer<i64> {
        Ok(self.comm(comm)?.remote.as_ref().ok_or(Class::Comm)?.size() as i64)
    }

    unsafe fn comm_set_info(&self, comm: Comm, info: Info) -> Answer<()> {
        let comm = self.comm(comm)?;
        let content = self.with_info(info, |content| Ok(content.clone()))?;
        comm.with(|state| state.info = content);
        Ok(())
    }

    unsafe fn comm_size(&self, comm: Comm) -> Answer<i64> {
        Ok(self.comm(comm)?.group.size() as i64)
    }

    unsafe fn comm_split(&self, comm: Comm, color: i64, key: i64) -> Answer<Comm> {
        let comm = self.intra(comm)?;
        if color < 0 && color != UNDEFINED {
            return Err(Class::Arg.into());
        }
        self.split(&comm, color, key)
    }

    unsafe fn comm_split_type(&self, comm: Comm, kind: i64, key: i64, _: Info) -> Answer<Comm> {
        let comm = self.intra(comm)?;
        match kind {
            // All are on one node.
            SHARED => self.split(&comm, 0, key),
            // Nothing divides it further that is known of.
            UNGUIDED | GUIDED | RESOURCE | UNDEFINED => self.split(&comm, UNDEFINED, key),
            _ => Err(Class::Arg.into()),
        }
    }

    unsafe fn comm_test_inter(&self, comm: Comm) -> Answer<bool> {
        Ok(self.comm(comm)?.remote.is_some())
    }
}
