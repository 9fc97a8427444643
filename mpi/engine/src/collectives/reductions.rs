//! What the calls that combine check, and who wants what of whom (MPI-5.0, sections 6.9 to 6.11).

use std::ops::Range;
use std::sync::Arc;

use bdrun_mpi_core::error::Class;

use super::reduction::Reduction;
use super::{Collective, What};
use crate::Mpi;
use crate::args::{Buffer, Ints};
use crate::comm::Communicator;
use crate::datatypes::memory::Span;
use crate::failure::Answer;
use crate::handle::{Comm, Datatype, Op};

/// The elements that a call was given, and how they are combined.
type Elements = (i64, Datatype, Op);

impl Mpi {
    /// What this process gives: with `MPI_IN_PLACE` what lies where the result goes.
    fn operand(&self, from: Buffer, into: Buffer, count: i64, datatype: Datatype) -> Answer<Span> {
        self.span(if from == Buffer::InPlace { into } else { from }, count, datatype)
    }

    /// All give as many elements; this one wants all of them, of the members that it says by its rank and how
    /// many there are.
    pub(super) fn reduction(
        &self,
        name: &'static str,
        (from, into): (Buffer, Buffer),
        (count, datatype, op): Elements,
        comm: Comm,
        of: impl FnOnce(usize, usize) -> Range<usize>,
    ) -> Answer<Collective> {
        let comm = self.gathered(comm, name)?;
        let members = of(comm.rank, comm.group.size());
        let gives = self.operand(from, into, count, datatype)?;
        let fold = self.fold(op, datatype)?;
        // Who wants nobody's gets nothing, and its buffer is not looked at.
        let takes = if members.is_empty() { None } else { Some((self.span(into, count, datatype)?, 0)) };
        Ok(Reduction { gives, fold, takes, members }.called(name, comm))
    }

    /// One wants the result.
    pub(super) fn reduction_for(
        &self,
        name: &'static str,
        buffers: (Buffer, Buffer),
        (count, datatype, op): Elements,
        (root, comm): (i64, Comm),
    ) -> Answer<Collective> {
        let members = self.gathered(comm, name)?;
        if Self::root(&members, root)? == members.rank {
            return self.reduction(name, buffers, (count, datatype, op), comm, |_, all| 0..all);
        }
        let (gives, fold) = (self.span(buffers.0, count, datatype)?, self.fold(op, datatype)?);
        Ok(Reduction { gives, fold, takes: None, members: 0..0 }.called(name, members))
    }

    /// Each wants a block of the result.
    fn reduction_of_blocks(
        &self,
        name: &'static str,
        (from, into): (Buffer, Buffer),
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
        let gives = self.operand(from, into, all, datatype)?;
        let (takes, fold) = (self.span(into, counts[comm.rank], datatype)?, self.fold(op, datatype)?);
        let members = 0..comm.group.size();
        Ok(Reduction { gives, fold, takes: Some((takes, first as u64)), members }.called(name, comm))
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
        let comm = self.gathered(comm, name)?;
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
        let comm = self.gathered(comm, name)?;
        let counts = vec![count; comm.group.size()];
        self.reduction_of_blocks(name, buffers, (datatype, op), comm, &counts)
    }
}

impl Reduction {
    fn called(self, name: &'static str, comm: Arc<Communicator>) -> Collective {
        Collective { comm, name, what: Arc::new(What::Reduction(self)) }
    }
}
