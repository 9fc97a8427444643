//! Groups (MPI-5.0, section 7.3).

use std::ffi::c_int;
use std::sync::Arc;

use bdrun_mpi_core::error::Class;
use bdrun_mpi_core::group::{Alike, Group as Members, GroupError};

use crate::Mpi;
use crate::args::{Ints, IntsOut, Meant};
use crate::calls::Groups;
use crate::failure::{Answer, Failure};
use crate::handle::Group;

/// `MPI_UNDEFINED`.
pub const UNDEFINED: i64 = -32766;
/// `MPI_PROC_NULL`.
pub const PROC_NULL: i64 = -3;

impl From<GroupError> for Failure {
    fn from(error: GroupError) -> Self {
        match error {
            GroupError::Rank(_) => Class::Rank.into(),
            GroupError::Range => Class::Arg.into(),
        }
    }
}

impl Mpi {
    /// Who is in a group.
    pub(crate) fn group(&self, group: Group) -> Answer<Arc<Members>> {
        if group == Group::EMPTY {
            return Ok(Arc::new([].into_iter().collect()));
        }
        self.groups.get(group).ok_or_else(|| Class::Group.into())
    }

    /// The group of these members.
    pub(crate) fn new_group(&self, members: Members) -> Group {
        if members.members().is_empty() { Group::EMPTY } else { self.groups.add(Arc::new(members)) }
    }
}

/// Numbers of the program.
///
/// # Safety
/// There are so many.
unsafe fn numbers(n: i64, at: Ints) -> Answer<Vec<i64>> {
    let n = usize::try_from(n).map_err(|_| Class::Arg)?;
    if n > 0 && at.is_null() {
        return Err(Class::Arg.into());
    }
    // SAFETY: the caller's.
    Ok((0..n).map(|i| unsafe { at.get(i) }).collect())
}

/// Ranges of the program.
///
/// # Safety
/// There are so many.
unsafe fn ranges(n: i64, at: *const [c_int; 3]) -> Answer<Vec<(i64, i64, i64)>> {
    let n = usize::try_from(n).map_err(|_| Class::Arg)?;
    if n > 0 && at.is_null() {
        return Err(Class::Arg.into());
    }
    // SAFETY: the caller's.
    Ok((0..n).map(|i| unsafe { at.add(i).read() }.map(i64::from).into()).collect())
}

impl Groups for Mpi {
    unsafe fn group_compare(&self, group1: Group, group2: Group) -> Answer<i64> {
        // MPI_IDENT, MPI_SIMILAR, MPI_UNEQUAL
        Ok(match self.group(group1)?.compare(&*self.group(group2)?) {
            Alike::Identical => 201,
            Alike::Similar => 203,
            Alike::Unequal => 204,
        })
    }

    unsafe fn group_difference(&self, group1: Group, group2: Group) -> Answer<Group> {
        Ok(self.new_group(self.group(group1)?.difference(&*self.group(group2)?)))
    }

    unsafe fn group_excl(&self, group: Group, n: i64, at: Ints) -> Answer<Group> {
        // SAFETY: the caller's.
        let named = unsafe { numbers(n, at) }?;
        Ok(self.new_group(self.group(group)?.excluding(&named)?))
    }

    unsafe fn group_rank(&self, group: Group) -> Answer<i64> {
        let group = self.group(group)?;
        Ok(group.rank_of(self.link()?.process()).map_or(UNDEFINED, |rank| rank as i64))
    }

    unsafe fn group_free(&self, group: Group) -> Answer<Group> {
        if group != Group::EMPTY {
            self.groups.take(group).ok_or(Class::Group)?;
        }
        Ok(Group::NULL)
    }

    unsafe fn group_incl(&self, group: Group, n: i64, at: Ints) -> Answer<Group> {
        // SAFETY: the caller's.
        let named = unsafe { numbers(n, at) }?;
        Ok(self.new_group(self.group(group)?.including(&named)?))
    }

    unsafe fn group_intersection(&self, group1: Group, group2: Group) -> Answer<Group> {
        Ok(self.new_group(self.group(group1)?.intersection(&*self.group(group2)?)))
    }

    unsafe fn group_range_excl(&self, group: Group, n: i64, at: *const [c_int; 3]) -> Answer<Group> {
        // SAFETY: the caller's.
        let named = unsafe { ranges(n, at) }?;
        Ok(self.new_group(self.group(group)?.excluding_ranges(&named)?))
    }

    unsafe fn group_range_incl(&self, group: Group, n: i64, at: *const [c_int; 3]) -> Answer<Group> {
        // SAFETY: the caller's.
        let named = unsafe { ranges(n, at) }?;
        Ok(self.new_group(self.group(group)?.including_ranges(&named)?))
    }

    unsafe fn group_size(&self, group: Group) -> Answer<i64> {
        Ok(self.group(group)?.size() as i64)
    }

    unsafe fn group_translate_ranks(
        &self,
        group1: Group,
        n: i64,
        at: Meant,
        group2: Group,
        to: IntsOut,
    ) -> Answer<()> {
        let (from, into) = (self.group(group1)?, self.group(group2)?);
        let n = usize::try_from(n).map_err(|_| Class::Arg)?;
        if n > 0 && (at.is_null() || to.is_null()) {
            return Err(Class::Arg.into());
        }
        for i in 0..n {
            // SAFETY: the caller's.
            let rank = unsafe { at.get(i) }?;
            let translated = match usize::try_from(rank).ok().and_then(|rank| from.members().get(rank)) {
                _ if rank == PROC_NULL => PROC_NULL,
                Some(&process) => into.rank_of(process).map_or(UNDEFINED, |rank| rank as i64),
                None => return Err(Class::Rank.into()),
            };
            // SAFETY: the caller's.
            unsafe { to.set(i, translated) };
        }
        Ok(())
    }

    unsafe fn group_union(&self, group1: Group, group2: Group) -> Answer<Group> {
        Ok(self.new_group(self.group(group1)?.union(&*self.group(group2)?)))
    }
}
