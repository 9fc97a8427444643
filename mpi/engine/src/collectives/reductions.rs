//! What the calls that combine check, and who wants what of whom (MPI-5.0, sections 6.9 to 6.11).

use std::sync::Arc;

use bdrun_mpi_core::error::Class;

use super::reduction::Reduction;
use super::{Collective, Role, What, of_all};
use crate::Mpi;
use crate::args::{Buffer, Ints};
use crate::comm::Communicator;
use crate::datatypes::memory::Span;
use crate::failure::{Answer, Failure};
use crate::handle::{Comm, Datatype, Op};
use crate::link::{Needed, Whom};

/// The elements that a call was given, and how they are combined.
type Elements = (i64, Datatype, Op);

impl Mpi {
    /// What this process gives: with `MPI_IN_PLACE` what lies where the result goes.
    fn operand(
        &self,
        comm: &Communicator,
        (from, into): (Buffer, Buffer),
        count: i64,
        datatype: Datatype,
    ) -> Answer<Option<Span>> {
        let in_place = from == Buffer::InPlace && comm.remote.is_none();
        self.span(if in_place { into } else { from }, count, datatype).map(Some)
    }

    /// All give as many elements, and want all of them combined.
    pub(super) fn reduction(
        &self,
        name: &'static str,
        buffers: (Buffer, Buffer),
        (count, datatype, op): Elements,
        comm: Comm,
    ) -> Answer<Collective> {
        let comm = self.comm(comm)?;
        let gives = self.operand(&comm, buffers, count, datatype)?;
        let takes = Some((self.span(buffers.1, count, datatype)?, 0, self.fold(op, datatype)?));
        let (members, whom) = (comm.seats_of_peers(), of_all(&comm));
        // Of two each reads the other's part as fast as the result.
        let is_for_all = comm.remote.is_none() && comm.group.size() > 2;
        Ok(Reduction { gives, takes, members, whom, is_for_all }.called(name, comm))
    }

    /// Each wants what those have before it, and what it has itself.
    pub(super) fn scan(
        &self,
        name: &'static str,
        buffers: (Buffer, Buffer),
        (count, datatype, op): Elements,
        (comm, and_itself): (Comm, bool),
    ) -> Answer<Collective> {
        let comm = self.intra(comm)?;
        let members = 0..comm.rank + usize::from(and_itself);
        let gives = self.operand(&comm, buffers, count, datatype)?;
        let fold = self.fold(op, datatype)?;
        // Who wants nobody's gets nothing, and its buffer is not looked at.
        let into = |fold| Ok::<_, Failure>((self.span(buffers.1, count, datatype)?, 0, fold));
        let takes = if members.is_empty() { None } else { Some(into(fold)?) };
        let whom = Whom {
            awaits: Needed::Range(members.clone()),
            awaited_by: Needed::Range(comm.rank + 1..comm.group.size()),
        };
        Ok(Reduction { gives, takes, members, whom, is_for_all: false }.called(name, comm))
    }

    /// One wants the result.
    pub(super) fn reduction_for(
        &self,
        name: &'static str,
        buffers: (Buffer, Buffer),
        (count, datatype, op): Elements,
        (root, comm): (i64, Comm),
    ) -> Answer<Collective> {
        let comm = self.comm(comm)?;
        let role = Role::new(&comm, root)?;
        // Who has no part in it says nothing of what is combined.
        let fold = if role.is_root || role.is_peer { Some(self.fold(op, datatype)?) } else { None };
        let gives = match role {
            Role { is_peer: false, .. } => None,
            Role { is_root: true, .. } => self.operand(&comm, buffers, count, datatype)?,
            _ => Some(self.span(buffers.0, count, datatype)?),
        };
        let takes = match fold.filter(|_| role.is_root) {
            Some(fold) => Some((self.span(buffers.1, count, datatype)?, 0, fold)),
            None => None,
        };
        let members = if role.is_root { comm.seats_of_peers() } else { 0..0 };
        let whom = role.gives_to_root(&comm);
        Ok(Reduction { gives, takes, members, whom, is_for_all: false }.called(name, comm))
    }

    /// Each wants a block of the result.
    fn reduction_of_blocks(
        &self,
        name: &'static str,
        buffers: (Buffer, Buffer),
        (datatype, op): (Datatype, Op),
        comm: Arc<Communicator>,
        counts: &[i64],
    ) -> Answer<Collective> {
        if counts.iter().any(|&count| count < 0) {
            return Err(Class::Count.into());
        }
        let sum = |counts: &[i64]| {
            counts.iter().try_fold(0i64, |sum, &count| sum.checked_add(count)).ok_or(Class::ValueTooLarge)
        };
        let (first, all) = (sum(&counts[..comm.rank])?, sum(counts)?);
        let gives = self.operand(&comm, buffers, all, datatype)?;
        let fold = self.fold(op, datatype)?;
        let takes = Some((self.span(buffers.1, counts[comm.rank], datatype)?, first as u64, fold));
        let (members, whom) = (comm.seats_of_peers(), of_all(&comm));
        Ok(Reduction { gives, takes, members, whom, is_for_all: false }.called(name, comm))
    }

    /// Of as many elements as are said of each.
    ///
    /// # Safety
    /// There are as many counts as members.
    pub(super) unsafe fn reduction_in_blocks(
        &self,
        name: &'static str,
        buffers: (Buffer, Buffer),
        (counts, datatype, op): (Ints, Datatype, Op),
        comm: Comm,
    ) -> Answer<Collective> {
        let comm = self.comm(comm)?;
        if counts.is_null() {
            return Err(Class::Arg.into());
        }
        // SAFETY: the caller's.
        let counts: Vec<i64> = (0..comm.group.size()).map(|i| unsafe { counts.get(i) }).collect();
        self.reduction_of_blocks(name, buffers, (datatype, op), comm, &counts)
    }

    /// All of the same size.
    pub(super) fn reduction_in_equal_blocks(
        &self,
        name: &'static str,
        buffers: (Buffer, Buffer),
        (count, datatype, op): Elements,
        comm: Comm,
    ) -> Answer<Collective> {
        let comm = self.comm(comm)?;
        let counts = vec![count; comm.group.size()];
        self.reduction_of_blocks(name, buffers, (datatype, op), comm, &counts)
    }
}

impl Reduction {
    fn called(self, name: &'static str, comm: Arc<Communicator>) -> Collective {
        Collective { comm, name, what: What::Reduction(self) }
    }
}
