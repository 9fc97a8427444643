//! Communicators between two groups (MPI-5.0, sections 7.4.2 and 7.6).

use std::ffi::{CStr, c_char};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use bdrun_mpi_core::error::Class;
use bdrun_mpi_core::group::Group as Members;
use bdrun_mpi_core::info::Info as Content;

use crate::Mpi;
use crate::comm::{Communicator, Form, Groups, World};
use crate::communicators::{bytes_of, numbers_in, place_heard, place_said, processes};
use crate::failure::Answer;
use crate::handle::{Comm, Group};
use crate::handlers::Handler;
use crate::link::{Link, Needed, Place, Whom};

/// All processes, whether MPI was initialised or only sessions were.
pub fn everybody(link: &Arc<dyn Link>) -> Arc<Communicator> {
    World::new(&**link).all
}

/// The tag behind which those find each other who give the same string. No program's tag is negative.
///
/// # Safety
/// It is null or ends.
pub unsafe fn tag_of(string: *const c_char) -> Answer<i32> {
    if string.is_null() {
        return Err(Class::Arg.into());
    }
    let mut hasher = DefaultHasher::new();
    // SAFETY: the caller's.
    unsafe { CStr::from_ptr(string) }.to_bytes().hash(&mut hasher);
    Ok(-1 - (hasher.finish() >> 33) as i32)
}

/// What the leaders of two groups agree on.
struct Agreed {
    remote: Members,
    is_first: bool,
    place: Place,
}

impl Agreed {
    /// What a leader says to its group, also of a failure.
    fn said(agreed: &Answer<Self>) -> Vec<u8> {
        let Ok(Self { remote, is_first, place }) = agreed else { return vec![] };
        let head = place_said(Some(*place)).into_iter().chain([(*is_first).into()]);
        bytes_of(head.chain(remote.members().iter().map(|&process| process.into())))
    }

    fn heard(numbers: &[i64]) -> Answer<Self> {
        let [number, context, is_first, remote @ ..] = numbers else { return Err(Class::Other.into()) };
        let place = place_heard(&[*number, *context])?;
        Ok(Self { remote: processes(remote)?, is_first: *is_first != 0, place })
    }
}

impl Mpi {
    /// By a leader: agrees with that of the other group, a peer of it in a communicator.
    fn agree(&self, local: &Members, peers: &Communicator, remote: i64, tag: i32) -> Answer<Agreed> {
        let link = self.link()?;
        let rank = usize::try_from(remote).ok().filter(|&rank| rank < peers.peers().size());
        let rank = rank.ok_or(Class::Rank)?;
        let other = peers.peers().members()[rank];
        // It would wait for what it says itself.
        if other == link.process() {
            return Err(Class::Rank.into());
        }
        let is_first = link.process() < other;
        let members = bytes_of(local.members().iter().map(|&process| process.into()));
        self.say(peers, other, tag, &members)?;
        let remote = processes(&numbers_in(&self.hear(peers, rank, tag)?)?)?;
        let is_divided = local.intersection(&remote).size() == 0;
        let place = if is_first {
            let all = [local.members(), remote.members()].concat();
            let opened = if is_divided { link.open(&all) } else { Err(Class::Comm.into()) };
            self.say(peers, other, tag, &bytes_of(place_said(opened.as_ref().ok().copied())))?;
            opened?
        } else {
            let place = self.hear(peers, rank, tag)?;
            if !is_divided {
                return Err(Class::Comm.into());
            }
            place_heard(&numbers_in(&place)?)?
        };
        Ok(Agreed { remote, is_first, place })
    }

    /// A communicator of what was agreed on.
    fn connected(
        &self,
        agreed: Agreed,
        local: Members,
        (content, handler): (Content, Handler),
    ) -> Answer<Comm> {
        let link = self.link()?;
        let Agreed { remote, is_first, place } = agreed;
        let rank = local.rank_of(link.process()).ok_or(Class::Group)?;
        let groups = Groups { local, remote: Some((remote, is_first)) };
        let made = Communicator::new(link, Some(place), groups, rank, handler);
        made.with(|state| state.info = content);
        Ok(self.new_comm(Some(made)))
    }

    /// `MPI_Intercomm_create`.
    pub(crate) fn connect(
        &self,
        local: Comm,
        leader: i64,
        (peers, remote): (Comm, i64),
        tag: i64,
    ) -> Answer<Comm> {
        let local = self.intra(local)?;
        let leader = usize::try_from(leader).ok().filter(|&rank| rank < local.group.size());
        let leader = leader.ok_or(Class::Rank)?;
        let tag = i32::try_from(tag).ok().filter(|&tag| tag >= 0).ok_or(Class::Tag)?;
        let agreed = (local.rank == leader).then(|| {
            let peers = self.comm(peers)?;
            self.agree(&local.group, &peers, remote, tag)
        });
        let said = agreed.as_ref().map(Agreed::said).unwrap_or_default();
        let whom = if agreed.is_some() {
            Whom::awaited_by(Needed::Range(local.seats_of_group()))
        } else {
            Whom::awaits(Needed::one(leader))
        };
        let meeting =
            local.meet(&**self.link()?, ("MPI_Intercomm_create", Form::Blocking), &whom, &[&said])?;
        let agreed = match agreed {
            Some(agreed) => agreed?,
            None => {
                self.wait_meeting(&*meeting)?;
                Agreed::heard(&numbers_in(meeting.part(leader))?)?
            }
        };
        self.connected(agreed, local.group.clone(), (Content::default(), local.handler()))
    }

    /// `MPI_Intercomm_create_from_groups`.
    pub(crate) fn connect_groups(
        &self,
        (local, leader): (Group, i64),
        (remote, remote_leader): (Group, i64),
        tag: i32,
        made_with: (Content, Handler),
    ) -> Answer<Comm> {
        let (local, link) = (self.group(local)?, self.link()?);
        let everybody = everybody(link);
        let leader = usize::try_from(leader).ok().and_then(|rank| local.members().get(rank));
        let leader = *leader.ok_or(Class::Rank)?;
        if leader != link.process() {
            let said = self.hear(&everybody, leader as usize, tag)?;
            return self.connected(Agreed::heard(&numbers_in(&said)?)?, (*local).clone(), made_with);
        }
        // Only here the other group is looked at.
        let agreed = self.group(remote).and_then(|remote| {
            let other = usize::try_from(remote_leader).ok().and_then(|rank| remote.members().get(rank));
            self.agree(&local, &everybody, i64::from(*other.ok_or(Class::Rank)?), tag)
        });
        let said = Agreed::said(&agreed);
        for &member in local.members().iter().filter(|&&member| member != leader) {
            self.say(&everybody, member, tag, &said)?;
        }
        self.connected(agreed?, (*local).clone(), made_with)
    }

    /// `MPI_Intercomm_merge`: the group that says low, or is the first, comes first.
    pub(crate) fn merge(&self, comm: Comm, high: bool) -> Answer<Comm> {
        let comm = self.comm(comm)?;
        let remote = comm.remote.as_ref().ok_or(Class::Comm)?;
        let (whom, seat) = (comm.first_of_peers(), comm.seat_of_peers());
        let said = bytes_of([high.into()]);
        let meeting = comm.meet(&**self.link()?, ("MPI_Intercomm_merge", Form::Blocking), &whom, &[&said])?;
        self.wait_meeting(&*meeting)?;
        let others_high = numbers_in(meeting.part(seat))?.first() == Some(&1);
        drop(meeting);
        let is_before = if high == others_high { comm.is_first } else { !high };
        let (low, up) = if is_before { (&comm.group, remote) } else { (remote, &comm.group) };
        let all = low.members().iter().chain(up.members()).copied().collect();
        let made = self.part_of(&comm, Groups::one(all), "MPI_Intercomm_merge")?;
        Ok(self.new_comm(made))
    }
}
