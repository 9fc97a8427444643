//! Ranks as processes of one node, through the segment that `bdrun` made.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use bdrun_ipc::collective::{Arrival, Coming, Comm, name_hash};
use bdrun_ipc::far::Notice;
use bdrun_ipc::inbox::{self, Arrived};
use bdrun_ipc::segment::Waiting;

use crate::backend::{Backend, Fold, Parts, Read, check_rank};
use crate::matching::{Matcher, Selector, Source, Status, Tag, TagSel, Ticket};
use crate::runtime::Runtime;
use crate::runtime::far::{self, Wanted};
use crate::{Communicator, Error, Result};

/// The communicator of all ranks of the job.
pub(crate) fn world(runtime: &'static Runtime) -> Communicator {
    let everybody: Vec<u32> = (0..runtime.segment.np()).collect();
    let mailbox = Rc::new(Mailbox { runtime, matcher: RefCell::default() });
    let rank = runtime.rank as usize;
    Communicator::new(Box::new(Shm::new(runtime, Comm::WORLD, everybody, rank, mailbox)))
}

struct Shm {
    runtime: &'static Runtime,
    comm: Comm,
    context: u32,
    /// Ranks of the node, by rank of the communicator.
    members: Vec<u32>,
    rank: usize,
    /// Collectives called so far.
    number: Cell<u64>,
    mailbox: Rc<Mailbox>,
}

/// Messages and receives of this process, over all communicators.
struct Mailbox {
    runtime: &'static Runtime,
    matcher: RefCell<Matcher<Arrived>>,
}

impl Drop for Mailbox {
    /// No communicator is left: what was never received is put back, for the master to tell of it.
    fn drop(&mut self) {
        // A child of fork has a copy of what is the rank's.
        if !self.runtime.alive.is_rank() {
            return;
        }
        for message in self.matcher.get_mut().take_all() {
            inbox::put_back(&self.runtime.segment, &self.runtime.mail, self.runtime.rank, message);
        }
    }
}

impl Shm {
    fn new(
        runtime: &'static Runtime,
        comm: Comm,
        members: Vec<u32>,
        rank: usize,
        mailbox: Rc<Mailbox>,
    ) -> Self {
        let context = comm.context(&runtime.segment);
        Self { runtime, comm, context, members, rank, number: Cell::new(0), mailbox }
    }

    fn selector(&self, source: Source, tag: TagSel) -> Selector {
        Selector { context: self.context, source, tag }
    }

    /// Take in what has arrived.
    fn drain(&self) -> Result<()> {
        let (segment, rank) = (&self.runtime.segment, self.runtime.rank);
        if inbox::is_empty(segment, rank) {
            return Ok(());
        }
        let mut arrived = Vec::new();
        inbox::drain(segment, rank, &mut arrived).map_err(|e| self.runtime.failed(e))?;
        let mut matcher = self.mailbox.matcher.borrow_mut();
        for message in arrived {
            let status =
                Status { source: message.source as usize, tag: message.tag, bytes: message.len as usize };
            matcher.arrive(message.context, status, message);
        }
        Ok(())
    }

    fn wait_for_messages(&self, waiting: Waiting) {
        let (segment, rank) = (&self.runtime.segment, self.runtime.rank);
        self.runtime.wait(waiting, || !inbox::is_empty(segment, rank));
    }

    fn waiting(want: Selector) -> Waiting {
        Waiting::Message {
            context: want.context,
            source: match want.source {
                Source::Any => None,
                Source::Rank(r) => Some(r as u32),
            },
            tag: match want.tag {
                TagSel::Any => None,
                TagSel::Is(t) => Some(t),
            },
        }
    }

    /// Wait for collective `number` to be complete; `true`: it is, but for its parts, which this rank is to
    /// combine.
    fn wait_complete(&self, number: u64) -> bool {
        let (comm, segment) = (self.comm, &self.runtime.segment);
        let waiting = Waiting::Collective { comm: comm.index(), number };
        while !comm.is_complete(segment, number) {
            if comm.claim(segment, number) {
                return true;
            }
            self.runtime.wait(waiting, || {
                comm.is_complete(segment, number) || comm.is_to_be_claimed(segment, number)
            });
        }
        false
    }

    /// Asks the gateway, and takes what it answers.
    fn ask(&self, notice: &Notice, into: &mut [&mut [u8]]) -> Result<()> {
        let runtime = self.runtime;
        let rank = (&runtime.segment, &runtime.mail, runtime.rank);
        let wait = |enough: &dyn Fn() -> bool| runtime.wait(Waiting::Anything, enough);
        far::ask(rank, notice, into, &wait).map_err(|e| runtime.failed(e))
    }
}

struct Deposited<'a> {
    shm: &'a Shm,
    number: u64,
}

impl Deposited<'_> {
    fn is_near(&self, rank: usize, offset: usize, len: usize) -> bool {
        let segment = &self.shm.runtime.segment;
        self.shm.comm.is_near(segment, self.number, rank as u32, offset as u64, len as u64)
    }

    /// Of ranks on other nodes.
    fn read_far(&self, wanted: Vec<Wanted<'_>>) -> Result<()> {
        for question in far::questions(wanted) {
            let (comm, ranges) = (self.shm.comm.index(), far::ranges(&question));
            let mut into: Vec<&mut [u8]> = question.into_iter().map(|wanted| wanted.into).collect();
            self.shm.ask(&Notice::Wants { comm, number: self.number, ranges }, &mut into)?;
        }
        Ok(())
    }
}

impl Parts for Deposited<'_> {
    fn len(&self, rank: usize) -> usize {
        self.shm.comm.part_len(&self.shm.runtime.segment, self.number, rank as u32)
    }

    fn read(&self, rank: usize, offset: usize, into: &mut [u8]) -> Result<()> {
        if !self.is_near(rank, offset, into.len()) {
            return self.read_far(vec![Wanted { member: rank as u32, offset: offset as u64, into }]);
        }
        let runtime = self.shm.runtime;
        self.shm
            .comm
            .part(&runtime.segment, &runtime.mail, self.number, rank as u32, offset, into)
            .map_err(|e| runtime.failed(e))
    }

    fn read_all(&self, wanted: Vec<(usize, usize, &mut [u8])>) -> Result<()> {
        let mut far = vec![];
        for (rank, offset, into) in wanted {
            if self.is_near(rank, offset, into.len()) {
                self.read(rank, offset, into)?;
            } else {
                far.push(Wanted { member: rank as u32, offset: offset as u64, into });
            }
        }
        self.read_far(far)
    }

    fn folded_len(&self) -> usize {
        self.shm.comm.folded_len(&self.shm.runtime.segment, self.number)
    }

    fn read_folded(&self, offset: usize, into: &mut [u8]) -> Result<()> {
        let runtime = self.shm.runtime;
        self.shm
            .comm
            .folded(&runtime.segment, &runtime.mail, self.number, offset, into)
            .map_err(|e| runtime.failed(e))
    }
}

impl Backend for Shm {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.members.len()
    }

    fn send(&self, to: usize, tag: Tag, data: &[u8]) -> Result<()> {
        check_rank("send", to, self.size())?;
        let (runtime, peer, source) = (self.runtime, self.members[to], self.rank as u32);
        runtime.vouch_for(&[data]);
        let unpaid =
            inbox::push(&runtime.segment, &runtime.mail, peer, self.context, source, (tag, 0), &[data])
                .map_err(|e| runtime.failed(e))?;
        // All accesses here are sequentially consistent: the push is seen by the receiver, or its wait by us.
        if inbox::concerns(runtime.segment.rank(peer).waiting(), self.context, source, tag) {
            runtime.wake(peer);
        }
        if unpaid > 0 {
            runtime.pay_for_headers(unpaid);
        }
        Ok(())
    }

    fn post(&self, from: Source, tag: TagSel) -> Ticket {
        // A damaged segment is reported by the wait that follows.
        let _ = self.drain();
        self.mailbox.matcher.borrow_mut().post(self.selector(from, tag))
    }

    fn test(&self, ticket: Ticket) -> Result<Option<Status>> {
        self.drain()?;
        Ok(self.mailbox.matcher.borrow().status(ticket))
    }

    fn wait_any(&self, tickets: &[Ticket]) -> Result<(usize, Status)> {
        loop {
            self.drain()?;
            let waiting = {
                let matcher = self.mailbox.matcher.borrow();
                for (i, &ticket) in tickets.iter().enumerate() {
                    if let Some(status) = matcher.status(ticket) {
                        return Ok((i, status));
                    }
                }
                match tickets {
                    [one] => matcher.waiting_for(*one).map(Self::waiting),
                    _ => Some(Waiting::Anything),
                }
            };
            match waiting {
                Some(waiting) => self.wait_for_messages(waiting),
                None => return Err(Error::Runtime("wait for a receive that has ended".into())),
            }
        }
    }

    fn fetch(&self, ticket: Ticket, into: &mut [u8]) -> Result<()> {
        let taken = self.mailbox.matcher.borrow_mut().take(ticket);
        match taken {
            Some((_, message)) => {
                inbox::take(&self.runtime.segment, &self.runtime.mail, message, into)
                    .map_err(|e| self.runtime.failed(e))?;
                self.runtime.gave_memory();
                Ok(())
            }
            None => Err(Error::Runtime("fetch of a receive without a message".into())),
        }
    }

    fn cancel(&self, ticket: Ticket) {
        self.mailbox.matcher.borrow_mut().cancel(ticket);
    }

    fn probe(&self, from: Source, tag: TagSel, wait: bool) -> Result<Option<Status>> {
        let want = self.selector(from, tag);
        loop {
            self.drain()?;
            let found = self.mailbox.matcher.borrow().probe(&want);
            if found.is_some() || !wait {
                return Ok(found);
            }
            self.wait_for_messages(Self::waiting(want));
        }
    }

    fn collective(
        &self,
        name: &'static str,
        part: &[&[u8]],
        fold: Option<&mut Fold<'_>>,
        read: &mut Read<'_>,
    ) -> Result<()> {
        let (runtime, comm) = (self.runtime, self.comm);
        let (segment, mail) = (&runtime.segment, &runtime.mail);
        let number = self.number.replace(self.number.get() + 1);
        runtime.vouch_for(part);
        let coming = Coming {
            number,
            rank: self.rank as u32,
            name: name_hash(name),
            awaits: None,
            awaited_by: &[],
            combines: fold.is_some(),
            part,
        };
        let mut wake = |member| runtime.wake(member);
        let mut arrival = Arrival::TooEarly;
        while arrival == Arrival::TooEarly {
            arrival = comm.arrive(segment, mail, &coming, &mut wake).map_err(|e| runtime.failed(e))?;
            if arrival == Arrival::TooEarly {
                let waiting = Waiting::Collective { comm: comm.index(), number };
                runtime.wait(waiting, || comm.is_free(segment, number));
            }
        }
        let parts = Deposited { shm: self, number };
        if arrival == Arrival::Last || self.wait_complete(number) {
            let same = comm.names_differ(segment, number).is_none();
            let folded = fold.filter(|_| same).map(|fold| fold(&parts));
            let bytes = folded.as_ref().map(|f| f.as_deref().map_err(|_| ()));
            let stored = comm.complete(segment, mail, number, bytes);
            comm.wake_all(segment, number, &mut wake);
            stored.map_err(|e| runtime.failed(e))?;
            if let Some(Err(error)) = folded {
                comm.leave(segment, mail, (number, self.rank as u32), &mut wake)
                    .map_err(|e| runtime.failed(e))?;
                return Err(error);
            }
        }
        let result = if let Some((a, b)) = comm.names_differ(segment, number) {
            let theirs = if a == name_hash(name) { b } else { a };
            Err(Error::Mismatch { rank: self.rank, ours: name, theirs: name_of(theirs) })
        } else if comm.fold_failed(segment, number) {
            Err(Error::Runtime(format!("{name}: the rank that combined the parts failed")))
        } else {
            read(&parts)
        };
        let left = comm.leave(segment, mail, (number, self.rank as u32), &mut wake);
        if left.map_err(|e| runtime.failed(e))? {
            runtime.gave_memory();
        }
        result
    }

    fn memory_is_wanted(&self) -> bool {
        self.runtime.segment.header().pool.wanted()
    }

    fn subgroup(&self, members: &[usize]) -> Result<Option<Box<dyn Backend>>> {
        let nodes: Vec<u32> = members.iter().map(|&m| self.members[m]).collect();
        let mut made = Ok(None);
        if members.first() == Some(&self.rank) {
            let segment = &self.runtime.segment;
            made = Comm::create(segment, &nodes).map(Some);
            if let Ok(Some(comm)) = made
                && comm.is_spread(segment)
            {
                self.ask(&Notice::Opened { comm: comm.index() }, &mut [])?;
            }
        }
        // A leader that failed deposits nothing, which tells its group.
        let index: Vec<u8> =
            made.as_ref().ok().and_then(|m| *m).map_or(Vec::new(), |c| c.index().to_le_bytes().into());
        let mut found = [0u8; 4];
        let mut there = false;
        self.collective("split", &[&index], None, &mut |parts| {
            if let Some(&leader) = members.first() {
                there = parts.len(leader) == found.len();
                if there {
                    parts.read(leader, 0, &mut found)?;
                }
            }
            Ok(())
        })?;
        made.map_err(|e| self.runtime.failed(e))?;
        let Some(rank) = members.iter().position(|&m| m == self.rank) else { return Ok(None) };
        if !there {
            return Err(Error::Runtime("the new communicator could not be made by its first rank".into()));
        }
        let comm =
            Comm::at(&self.runtime.segment, u32::from_le_bytes(found)).map_err(|e| self.runtime.failed(e))?;
        Ok(Some(Box::new(Self::new(self.runtime, comm, nodes, rank, self.mailbox.clone()))))
    }
}

impl Drop for Shm {
    fn drop(&mut self) {
        // A child of fork has a copy of the handle, which the rank still has.
        if !self.runtime.alive.is_rank() {
            return;
        }
        // A damaged segment is reported by whoever waits next.
        let _ = self.comm.release(&self.runtime.segment, &self.runtime.mail, self.runtime.rank);
    }
}

/// Names of the collectives, to name the other one in a mismatch.
const NAMES: &[&str] = &[
    "barrier",
    "broadcast",
    "reduce",
    "allreduce",
    "scan",
    "gather",
    "allgather",
    "scatter",
    "alltoallv",
    "split",
];

fn name_of(hashed: u64) -> String {
    NAMES
        .iter()
        .find(|n| name_hash(n) == hashed)
        .map_or_else(|| "another collective".to_string(), |n| (*n).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_of_fork_gives_up_no_communicator_of_its_parent() {
        let _alone = crate::runtime::tests::pager_alone();
        let runtime = crate::runtime::tests::runtime();
        let segment = &runtime.segment;
        let comm = Comm::create(segment, &[0]).unwrap();
        let mailbox = Rc::new(Mailbox { runtime, matcher: RefCell::default() });
        let handle = Shm::new(runtime, comm, vec![0], 0, mailbox);
        // SAFETY: the child drops the handle, which writes to its copy of memory and to the segment, and
        // ends.
        unsafe {
            let child = libc::fork();
            if child == 0 {
                drop(handle);
                libc::_exit(0);
            }
            assert!(child > 0);
            let mut status = -1;
            assert_eq!(libc::waitpid(child, &raw mut status, 0), child);
            assert_eq!(status, 0);
        }
        let index = |comm: bdrun_ipc::Result<Comm>| comm.map(Comm::index).unwrap();
        let other = index(Comm::create(segment, &[0]));
        assert_ne!(other, comm.index(), "it is still in use");
        drop(handle);
        assert_eq!(index(Comm::create(segment, &[0])), comm.index(), "its number is free");
    }
}
