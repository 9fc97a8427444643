//! How communicators are made of others (MPI-5.0, section 7.4.2).

use std::ffi::c_char;
use std::sync::Arc;

use bdrun_mpi_core::error::Class;
use bdrun_mpi_core::group::{Alike, Group as Members, Process};
use bdrun_mpi_core::info::Info as Content;

use crate::Mpi;
use crate::calls::Communicators;
use crate::comm::{Communicator, Form, Groups};
use crate::face::{Kind as FaceKind, Object};
use crate::failure::{Answer, Failure};
use crate::groups::UNDEFINED;
use crate::handle::{Comm, Errhandler, Group, Info, Request};
use crate::handlers::{Handler, Kind};
use crate::hints;
use crate::intercommunicators::{everybody, tag_of};
use crate::link::{Link, Meeting, Needed, Parcel, Place, Whom};

/// `MPI_COMM_TYPE_SHARED`, `MPI_COMM_TYPE_HW_UNGUIDED`, `MPI_COMM_TYPE_HW_GUIDED`,
/// `MPI_COMM_TYPE_RESOURCE_GUIDED`.
const SHARED: i64 = 221;
const UNGUIDED: i64 = 222;
const GUIDED: i64 = 223;
const RESOURCE: i64 = 224;

/// Numbers as they are deposited and sent.
pub fn bytes_of(numbers: impl IntoIterator<Item = i64>) -> Vec<u8> {
    numbers.into_iter().flat_map(i64::to_le_bytes).collect()
}

/// The numbers that somebody has deposited or sent.
pub fn numbers_in(part: &dyn Parcel) -> Answer<Vec<i64>> {
    let mut bytes = vec![0; part.len() as usize];
    part.read(0, &mut bytes)?;
    Ok(bytes.as_chunks().0.iter().map(|&number| i64::from_le_bytes(number)).collect())
}

/// Processes, among numbers.
pub fn processes(numbers: &[i64]) -> Answer<Members> {
    numbers.iter().map(|&number| u32::try_from(number).map_err(|_| Class::Internal.into())).collect()
}

/// A place, as its leader says it; who has found none says so, as the others must not wait for it.
pub fn place_said(place: Option<Place>) -> [i64; 2] {
    place.map_or([-1, -1], |place| [place.number.into(), place.context.into()])
}

/// There is no place for one more: of communicators, and of what has one of its own.
pub fn no_place(why: &str) -> Failure {
    let text = format!(
        "no place for one more communicator ({why}): those of all ranks of a job count, with windows, files and \
         each fourth persistent collective; free (MPI_Comm_free, MPI_Win_free, MPI_File_close, \
         MPI_Request_free) what is not needed any more"
    );
    Failure { text: Some(text), ..Class::Other.into() }
}

/// The place that was said.
pub fn place_heard(numbers: &[i64]) -> Answer<Place> {
    let legal = |value: i64| u32::try_from(value).map_err(|_| no_place("another rank was refused it"));
    let [number, context] = *numbers else { return Err(Class::Internal.into()) };
    Ok(Place { number: legal(number)?, context: legal(context)? })
}

/// A communicator that is being made of another: all of whose members have come, or not yet.
struct Making {
    groups: Groups,
    /// Where the leader of the new one sits in the old one; none for who joins none.
    leader: Option<usize>,
    opened: Answer<Option<Place>>,
    handler: Handler,
}

impl Making {
    /// The communicator, whose place is not known yet.
    fn object(&self, link: &Arc<dyn Link>) -> Option<Communicator> {
        let rank = self.groups.local.rank_of(link.process())?;
        Some(Communicator::new(link, None, self.groups.clone(), rank, self.handler.clone()))
    }

    /// The place that the leader has said.
    fn place(self, meeting: &dyn Meeting) -> Answer<Option<Place>> {
        self.opened?;
        self.leader.map(|leader| place_heard(&numbers_in(meeting.part(leader))?)).transpose()
    }
}

impl Mpi {
    /// Called by all members of a communicator: a new one of some of them, each as the members see it. The
    /// first one finds a place and tells the others.
    fn make(
        &self,
        of: &Communicator,
        groups: Groups,
        name: (&'static str, Form),
    ) -> Answer<(Making, Box<dyn Meeting>)> {
        let link = self.link()?;
        let groups = Groups { local: groups.local.of_session(of.group.session()), ..groups };
        let members = groups.members();
        let joins = groups.local.rank_of(link.process()).is_some();
        let leader = members.first().copied().filter(|_| joins);
        let opened = if leader == Some(link.process()) { link.open(&members).map(Some) } else { Ok(None) };
        let said = place_said(opened.as_ref().ok().copied().flatten());
        let seats = of.groups().members();
        let seat = |process: Process| seats.iter().position(|&seat| seat == process).ok_or(Class::Group);
        let leader = leader.map(seat).transpose()?;
        let mut whom = Whom::awaits(Needed::These(leader.into_iter().collect()));
        if leader == Some(of.seat()) {
            let others = members.iter().map(|&member| seat(member));
            whom.awaited_by = Needed::These(others.collect::<Result<_, _>>()?);
        }
        let meeting = of.meet(&**link, name, &whom, &[&bytes_of(said)])?;
        Ok((Making { groups, leader, opened, handler: of.handler() }, meeting))
    }

    /// The same, waiting for it.
    pub(crate) fn part_of(
        &self,
        of: &Communicator,
        groups: Groups,
        name: &'static str,
    ) -> Answer<Option<Communicator>> {
        let (making, meeting) = self.make(of, groups, (name, Form::Blocking))?;
        self.wait_meeting(&*meeting)?;
        let made = making.object(self.link()?);
        if let (Some(made), Some(place)) = (&made, making.place(&*meeting)?) {
            made.set_place(place);
        }
        Ok(made)
    }

    /// A handle of what was made, if anything was.
    pub(crate) fn new_comm(&self, made: Option<Communicator>) -> Comm {
        made.map_or(Comm::NULL, |made| self.comms.add(Arc::new(made)))
    }

    /// The hints of an info.
    pub(crate) fn content_of(&self, info: Info) -> Answer<Content> {
        if info == Info::NULL {
            Ok(Content::default())
        } else {
            self.with_info(info, |info| Ok(info.clone()))
        }
    }

    /// Whether hints say that what is to be shared is memory.
    fn asks_for_shared_memory(&self, info: Info) -> Answer<bool> {
        let content = self.content_of(info)?;
        Ok(content
            .get(b"mpi_hw_resource_type", self.limits())?
            .is_some_and(|kind| kind == b"mpi_shared_memory"))
    }

    /// A copy of a communicator with what is attached to it. Since MPI-4.0 hints are not copied.
    ///
    /// # Safety
    /// The functions of attributes are such.
    unsafe fn copy_of(&self, comm: Comm, info: Content) -> Answer<Comm> {
        let old = self.comm(comm)?;
        let mut made = self.part_of(&old, old.groups(), "MPI_Comm_dup")?.ok_or(Class::Internal)?;
        made.topology.clone_from(&old.topology);
        // SAFETY: the caller's.
        made.attributes = unsafe { self.comm_keys.copy(&old.attributes, self.whose(FaceKind::Comm, comm)) }?;
        made.with(|state| state.info = info);
        Ok(self.new_comm(Some(made)))
    }

    /// The same without waiting: the handle is of something when the request is complete.
    ///
    /// # Safety
    /// As of [`copy_of`](Self::copy_of).
    unsafe fn copy_begun(&self, comm: Comm, info: Content) -> Answer<(Comm, Request)> {
        let old = self.comm(comm)?;
        // SAFETY: the caller's.
        let attributes = unsafe { self.comm_keys.copy(&old.attributes, self.whose(FaceKind::Comm, comm)) };
        let (making, meeting) = self.make(&old, old.groups(), ("MPI_Comm_idup", Form::Begun))?;
        // It is there at once, as a program may set its error handler; what needs its place fails until then.
        let mut made = making.object(self.link()?).ok_or(Class::Internal)?;
        made.topology.clone_from(&old.topology);
        // If a function has failed here that is told at the end: others come, and wait for this process.
        let copied = attributes.map(|attributes| made.attributes = attributes);
        made.with(|state| state.info = info);
        let made = Arc::new(made);
        let handle = self.comms.add(made.clone());
        let finish = move |meeting: &dyn Meeting| {
            made.set_place(making.place(meeting)?.ok_or(Class::Internal)?);
            copied
        };
        let operation = self.open.begin(meeting, Box::new(finish));
        Ok((handle, self.new_request(old, operation)))
    }

    /// Those with the same color, in the order of their keys: of an inter-communicator, of both groups.
    pub(crate) fn split(&self, comm: &Communicator, color: i64, key: i64) -> Answer<Option<Communicator>> {
        let meeting = comm.meet(
            &**self.link()?,
            ("MPI_Comm_split", Form::Blocking),
            &Whom::ALL,
            &[&bytes_of([color, key])],
        )?;
        self.wait_meeting(&*meeting)?;
        let chosen = |group: &Members, seat: usize| {
            let mut with = vec![];
            for (at, &process) in group.members().iter().enumerate() {
                let said = numbers_in(meeting.part(seat + at))?;
                if color != UNDEFINED && said[0] == color {
                    with.push((said[1], at, process));
                }
            }
            with.sort_unstable();
            Ok::<_, Failure>(with.into_iter().map(|(.., process)| process).collect::<Members>())
        };
        let mut local = chosen(&comm.group, comm.seat_of_group())?;
        let remote = match &comm.remote {
            None => None,
            Some(remote) => Some((chosen(remote, comm.seat_of_peers())?, comm.is_first)),
        };
        drop(meeting);
        if remote.as_ref().is_some_and(|(remote, _)| remote.size() == 0) {
            local = [].into_iter().collect();
        }
        // Those who join none still come to where the others find their place.
        let groups = if local.size() == 0 { Groups::one(local) } else { Groups { local, remote } };
        self.part_of(comm, groups, "MPI_Comm_split")
    }

    /// Called only by the members of a group that lies within a communicator: the first one tells the others
    /// where they meet.
    fn made_by_members(&self, within: &Communicator, group: &Members, tag: i32) -> Answer<Place> {
        let link = self.link()?;
        let rank = |process: &Process| within.group.rank_of(*process).ok_or(Class::Group);
        let (first, others) = group.members().split_first().ok_or(Class::Group)?;
        if *first != link.process() {
            let said = self.hear(within, rank(first)?, tag)?;
            return place_heard(&numbers_in(&said)?);
        }
        let opened = link.open(group.members());
        let said = bytes_of(place_said(opened.as_ref().ok().copied()));
        others.iter().try_for_each(|&other| self.say(within, other, tag, &said))?;
        opened
    }

    /// `MPI_Comm_create_from_group`.
    ///
    /// # Safety
    /// The string is null or ends.
    unsafe fn made_of_group(
        &self,
        group: Group,
        stringtag: *const c_char,
        info: Info,
        handler: Handler,
    ) -> Answer<Comm> {
        let (group, link, content) = (self.group(group)?, self.link()?, self.content_of(info)?);
        if group.size() == 0 {
            return Ok(Comm::NULL);
        }
        let rank = group.rank_of(link.process()).ok_or(Class::Group)?;
        // SAFETY: the caller's.
        let tag = unsafe { tag_of(stringtag) }?;
        let place = self.made_by_members(&everybody(link), &group, tag)?;
        let made = Communicator::new(link, Some(place), Groups::one((*group).clone()), rank, handler);
        made.with(|state| state.info = content);
        Ok(self.new_comm(Some(made)))
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
        let (comm, group) = (self.comm(comm)?, self.group(group)?);
        if group.members().iter().any(|&process| comm.group.rank_of(process).is_none()) {
            return Err(Class::Group.into());
        }
        let local = (*group).clone();
        let groups = if comm.remote.is_none() {
            Groups::one(local)
        } else {
            // All of the other group say the same.
            let said = bytes_of(local.members().iter().map(|&process| process.into()));
            let (whom, seat) = (comm.first_of_peers(), comm.seat_of_peers());
            let meeting = comm.meet(&**self.link()?, ("MPI_Comm_create", Form::Blocking), &whom, &[&said])?;
            self.wait_meeting(&*meeting)?;
            let remote = processes(&numbers_in(meeting.part(seat))?)?;
            if remote.size() == 0 {
                Groups::one(remote)
            } else {
                Groups { local, remote: Some((remote, comm.is_first)) }
            }
        };
        let made = self.part_of(&comm, groups, "MPI_Comm_create")?;
        Ok(self.new_comm(made))
    }

    unsafe fn comm_create_from_group(
        &self,
        group: Group,
        stringtag: *const c_char,
        info: Info,
        errhandler: Errhandler,
    ) -> Answer<Comm> {
        let handler = self.handler(errhandler, Kind::Comm)?;
        // SAFETY: the caller's.
        let made = unsafe { self.made_of_group(group, stringtag, info, handler.clone()) };
        made.map_err(|failure| failure.told_to(handler, Object::Comm(Comm::NULL)))
    }

    unsafe fn comm_create_group(&self, comm: Comm, group: Group, tag: i64) -> Answer<Comm> {
        let (comm, group) = (self.intra(comm)?, self.group(group)?);
        let tag = i32::try_from(tag).ok().filter(|&tag| tag >= 0).ok_or(Class::Tag)?;
        let link = self.link()?;
        if group.members().iter().any(|&process| comm.group.rank_of(process).is_none()) {
            return Err(Class::Group.into());
        }
        let Some(rank) = group.rank_of(link.process()) else { return Ok(Comm::NULL) };
        let place = self.made_by_members(&comm, &group, tag)?;
        let groups = Groups::one((*group).clone());
        Ok(self.new_comm(Some(Communicator::new(link, Some(place), groups, rank, comm.handler()))))
    }

    unsafe fn comm_dup(&self, comm: Comm) -> Answer<Comm> {
        // SAFETY: the caller's.
        unsafe { self.copy_of(comm, Content::default()) }
    }

    unsafe fn comm_dup_with_info(&self, comm: Comm, info: Info) -> Answer<Comm> {
        let content = self.content_of(info)?;
        // SAFETY: the caller's.
        unsafe { self.copy_of(comm, content) }
    }

    unsafe fn comm_free(&self, comm: Comm) -> Answer<Comm> {
        let object = self.comms.get(comm).ok_or(Class::Comm)?;
        // SAFETY: the caller's: the functions of attributes are such.
        unsafe { self.comm_keys.delete_all(&object.attributes, self.whose(FaceKind::Comm, comm)) }?;
        // Whoever still uses it (a request) holds it, and its place.
        self.comms.take(comm).ok_or(Class::Comm)?;
        Ok(Comm::NULL)
    }

    unsafe fn comm_get_info(&self, comm: Comm) -> Answer<Info> {
        let comm = self.comm(comm)?;
        let content = self.hints_told(&comm, hints::COMM)?;
        Ok(self.new_info(content))
    }

    unsafe fn comm_group(&self, comm: Comm) -> Answer<Group> {
        Ok(self.new_group(self.comm(comm)?.group.clone()))
    }

    unsafe fn comm_idup(&self, comm: Comm) -> Answer<(Comm, Request)> {
        // SAFETY: the caller's.
        unsafe { self.copy_begun(comm, Content::default()) }
    }

    unsafe fn comm_idup_with_info(&self, comm: Comm, info: Info) -> Answer<(Comm, Request)> {
        let content = self.content_of(info)?;
        // SAFETY: the caller's.
        unsafe { self.copy_begun(comm, content) }
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
        comm.set_hints(&content);
        Ok(())
    }

    unsafe fn comm_size(&self, comm: Comm) -> Answer<i64> {
        Ok(self.comm(comm)?.group.size() as i64)
    }

    unsafe fn comm_split(&self, comm: Comm, color: i64, key: i64) -> Answer<Comm> {
        let comm = self.comm(comm)?;
        if color < 0 && color != UNDEFINED {
            return Err(Class::Arg.into());
        }
        Ok(self.new_comm(self.split(&comm, color, key)?))
    }

    unsafe fn comm_split_type(&self, comm: Comm, kind: i64, key: i64, info: Info) -> Answer<Comm> {
        let comm = self.comm(comm)?;
        self.content_of(info)?;
        let is_of_node = match kind {
            SHARED => true,
            GUIDED | RESOURCE => self.asks_for_shared_memory(info)?,
            // Nothing divides it further that is known of.
            UNGUIDED | UNDEFINED => false,
            _ => return Err(Class::Arg.into()),
        };
        let link = self.link()?;
        let color = if is_of_node { link.node_of(link.process()).into() } else { UNDEFINED };
        Ok(self.new_comm(self.split(&comm, color, key)?))
    }

    unsafe fn comm_test_inter(&self, comm: Comm) -> Answer<bool> {
        Ok(self.comm(comm)?.remote.is_some())
    }

    unsafe fn intercomm_create(
        &self,
        local_comm: Comm,
        local_leader: i64,
        peer_comm: Comm,
        remote_leader: i64,
        tag: i64,
    ) -> Answer<Comm> {
        self.connect(local_comm, local_leader, (peer_comm, remote_leader), tag)
    }

    unsafe fn intercomm_create_from_groups(
        &self,
        local_group: Group,
        local_leader: i64,
        remote_group: Group,
        remote_leader: i64,
        stringtag: *const c_char,
        info: Info,
        errhandler: Errhandler,
    ) -> Answer<Comm> {
        let handler = self.handler(errhandler, Kind::Comm)?;
        let (local, remote) = ((local_group, local_leader), (remote_group, remote_leader));
        let content = self.content_of(info);
        // SAFETY: the caller's.
        let tag = unsafe { tag_of(stringtag) };
        let made = tag.and_then(|tag| self.connect_groups(local, remote, tag, (content?, handler.clone())));
        made.map_err(|failure| failure.told_to(handler, Object::Comm(Comm::NULL)))
    }

    unsafe fn intercomm_merge(&self, intercomm: Comm, high: bool) -> Answer<Comm> {
        self.merge(intercomm, high)
    }
}
