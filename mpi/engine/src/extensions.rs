//! Beyond MPI, for programs written for BDMPI: where ranks are, and a critical section of a node
//! (`mpi/include/bdrun.h`).

use std::sync::atomic::Ordering::SeqCst;

use bdrun_mpi_core::error::Class;

use crate::Mpi;
use crate::failure::{Answer, Failure};
use crate::handle::Comm;

/// In the environment: how many ranks of a node may be in the critical section; one, if it is not there.
pub const MOST: &str = "BDRUN_CRITICAL";

/// Where a rank is, of those of a communicator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seat {
    /// Its number among those of its node, as they are in the communicator.
    pub local_rank: usize,
    /// How many those are.
    pub local_size: usize,
    /// The first of them, in the communicator.
    pub local_root: usize,
    /// The number of its node, in the order in which their first ranks are in the communicator.
    pub node: usize,
    /// How many nodes there are.
    pub nodes: usize,
}

impl Seat {
    /// Of the rank `rank`, where ranks are on these nodes.
    fn of(on: &[u32], rank: usize) -> Option<Self> {
        let own = *on.get(rank)?;
        let here = |ranks: &[u32]| ranks.iter().filter(|&&node| node == own).count();
        let local_root = on.iter().position(|&node| node == own)?;
        let nodes_in = |ranks: &[u32]| {
            let first = |&(at, node): &(usize, &u32)| !ranks[..at].contains(node);
            ranks.iter().enumerate().filter(first).count()
        };
        Some(Self {
            local_rank: here(&on[..rank]),
            local_size: here(on),
            local_root,
            node: nodes_in(&on[..local_root]),
            nodes: nodes_in(on),
        })
    }
}

fn most() -> Answer<u32> {
    let Some(said) = std::env::var_os(MOST) else { return Ok(1) };
    let number = said.to_str().and_then(|text| text.parse().ok()).filter(|&number| number > 0);
    number.ok_or_else(|| because(&format!("{MOST} is {}, and no number of ranks", said.display())))
}

fn because(text: &str) -> Failure {
    Failure { text: Some(text.into()), ..Class::Other.into() }
}

impl Mpi {
    /// Where this process is.
    ///
    /// # Errors
    /// `MPI_ERR_COMM`: it is no communicator of one group.
    pub fn seat(&self, comm: Comm) -> Answer<Seat> {
        let (comm, link) = (self.intra(comm)?, self.link()?);
        let on: Vec<u32> = comm.group.members().iter().map(|&process| link.node_of(process)).collect();
        Seat::of(&on, comm.rank).ok_or_else(|| Class::Internal.into())
    }

    /// A communicator of those on the same node, in their order. Collective.
    ///
    /// # Errors
    /// As of [`seat`](Self::seat).
    pub fn comm_of_node(&self, comm: Comm) -> Answer<Comm> {
        let seat = self.seat(comm)?;
        Ok(self.new_comm(self.split(&*self.intra(comm)?, seat.node as i64, seat.local_rank as i64)?))
    }

    /// One of all, in which nodes take turns: the first rank of each, then the second. Collective.
    ///
    /// # Errors
    /// As of [`seat`](Self::seat).
    pub fn comm_by_turns(&self, comm: Comm) -> Answer<Comm> {
        let seat = self.seat(comm)?;
        let key = seat.local_rank * seat.nodes + seat.node;
        Ok(self.new_comm(self.split(&*self.intra(comm)?, 0, key as i64)?))
    }

    /// Waits until it may go into the critical section. Meanwhile others compute, and its memory may be out.
    ///
    /// # Errors
    /// `MPI_ERR_OTHER`: this process is in, or waits; MPI is not initialised; the environment says no number.
    pub fn enter_critical(&self) -> Answer<()> {
        self.world()?;
        let (link, most) = (self.link()?, most()?);
        if self.is_critical.swap(true, SeqCst) {
            return Err(because("this rank is in the critical section already"));
        }
        let ticket = link.come_to_critical(most);
        let waited = self.wait_until(|| link.may_enter_critical(ticket));
        link.entered_critical();
        if waited.is_err() {
            // What comes cannot be taken in any more. Others are not to wait for this one.
            self.leave_critical_if_in()?;
        }
        waited
    }

    /// Goes out of it.
    ///
    /// # Errors
    /// `MPI_ERR_OTHER`: it is not in.
    pub fn exit_critical(&self) -> Answer<()> {
        self.world()?;
        if !self.leave_critical_if_in()? {
            return Err(because("this rank is not in the critical section"));
        }
        Ok(())
    }

    /// Goes out; whether it was in.
    pub(crate) fn leave_critical_if_in(&self) -> Answer<bool> {
        let was_in = self.is_critical.swap(false, SeqCst);
        if was_in {
            self.link()?.leave_critical();
        }
        Ok(was_in)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seat_is_counted_among_those_of_its_node() {
        // As of BDMPI: 20 ranks, of which 4, 5, 8 and 15 are together.
        let mut on = vec![7; 20];
        for rank in [4, 5, 8, 15] {
            on[rank] = 3;
        }
        for (local_rank, rank) in [4, 5, 8, 15].into_iter().enumerate() {
            let seat = Seat { local_rank, local_size: 4, local_root: 4, node: 1, nodes: 2 };
            assert_eq!(Seat::of(&on, rank), Some(seat));
        }
        assert_eq!(
            Seat::of(&[0, 0, 1, 1, 0, 9], 5),
            Some(Seat { local_rank: 0, local_size: 1, local_root: 5, node: 2, nodes: 3 })
        );
        assert_eq!(Seat::of(&[], 0), None);
    }
}
