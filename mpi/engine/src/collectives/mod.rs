//! Collective communication (MPI-5.0, chapter 6).
//!
//! Each process deposits what it has for the others and takes what others have for it, once it is there:
//! nobody need make progress for anybody, and nobody waits for whose part he does not want. The three forms
//! of a call (blocking, non-blocking, persistent) are three ways to use one [`Collective`].
//!
//! | question | file |
//! |---|---|
//! | how are the three forms made of it? | here |
//! | what do the calls check, who gives what to whom? | `exchanges.rs`, `neighbours.rs`, `reductions.rs` |
//! | how is it deposited and found? | `exchange.rs` |
//! | how is it combined? | `reduction.rs` |
//! | where do persistent ones meet? | `persistent.rs` |

mod exchange;
mod exchanges;
mod neighbours;
mod persistent;
mod reduction;
mod reductions;

use std::sync::Arc;

use bdrun_mpi_core::error::Class;
use exchange::Exchange;
use exchanges::Blocks::{Counted, Equal, Typed};
pub use persistent::Together;
use persistent::Turns;
use reduction::Reduction;

use crate::Mpi;
use crate::args::{Buffer, Handles, Ints};
use crate::calls::Collectives;
use crate::comm::{Communicator, Form};
use crate::failure::Answer;
use crate::groups::PROC_NULL;
use crate::handle::{Comm, Datatype, Info, Op, Request};
use crate::link::{Combines, Meeting, Needed, Whom};
use crate::operation::Operation;

/// `MPI_ROOT`.
const ROOT: i64 = -4;

/// A collective as one process was called to it.
#[derive(Debug, Clone)]
struct Collective {
    comm: Arc<Communicator>,
    name: &'static str,
    what: What,
}

#[derive(Clone, Debug)]
enum What {
    Barrier,
    Exchange(Arc<Exchange>),
    Reduction(Reduction),
}

impl What {
    fn whom(&self) -> &Whom {
        match self {
            Self::Barrier => &Whom::ALL,
            Self::Exchange(exchange) => &exchange.whom,
            Self::Reduction(reduction) => &reduction.whom,
        }
    }

    /// What all parts become, if all want the same of them.
    fn combines(&self) -> Option<&dyn Combines> {
        match self {
            Self::Reduction(reduction) if reduction.is_for_all => Some(reduction),
            _ => None,
        }
    }

    /// Comes to the meeting with this process's part.
    fn deposit<T>(&self, meet: impl FnOnce(&[&[u8]]) -> Answer<T>) -> Answer<T> {
        match self {
            Self::Barrier => meet(&[]),
            Self::Exchange(exchange) => exchange.deposit(meet),
            Self::Reduction(reduction) => reduction.deposit(meet),
        }
    }

    /// What is to be done when those have come that are needed.
    fn finish(&self, meeting: &dyn Meeting) -> Answer<()> {
        match self {
            Self::Barrier => Ok(()),
            Self::Exchange(exchange) => exchange.finish(meeting),
            Self::Reduction(reduction) => reduction.finish(meeting),
        }
    }
}

impl Collective {
    fn meet(&self, mpi: &Mpi, turns: Option<&Turns>) -> Answer<Box<dyn Meeting>> {
        let (link, whom, combines) = (mpi.link()?, self.what.whom(), self.what.combines());
        self.what.deposit(|part| {
            let number = turns.map_or_else(|| self.comm.next(Form::Begun), Turns::next);
            let (place, coming) = self.comm.coming((self.name, number), whom, part, combines)?;
            link.meet(place, &coming)
        })
    }

    /// The blocking form.
    fn run(&self, mpi: &Mpi) -> Answer<()> {
        let link = mpi.link()?;
        let (whom, combines) = (self.what.whom(), self.what.combines());
        self.what.deposit(|part| {
            let number = self.comm.next(Form::Blocking);
            let (place, coming) = self.comm.coming((self.name, number), whom, part, combines)?;
            link.meet_while(place, &coming, &mut |meeting| {
                mpi.wait_meeting(meeting)?;
                self.what.finish(meeting)
            })
        })
    }

    fn begin(&self, mpi: &Mpi, turns: Option<&Turns>) -> Answer<Arc<Operation>> {
        let (meeting, what) = (self.meet(mpi, turns)?, self.what.clone());
        let finish = Box::new(move |meeting: &dyn Meeting| what.finish(meeting));
        Ok(mpi.open.begin(meeting, finish))
    }

    /// The non-blocking form.
    fn request(self, mpi: &Mpi) -> Answer<Request> {
        let operation = self.begin(mpi, None)?;
        Ok(mpi.new_request(self.comm, operation))
    }

    /// The persistent form.
    fn persistent(self, mpi: &Mpi, info: Info) -> Answer<Request> {
        if info != Info::NULL {
            mpi.with_info(info, |_| Ok(()))?;
        }
        let (place, turns) = mpi.persistent_place(&self.comm, self.name)?;
        let own = Self { comm: place, ..self.clone() };
        Ok(mpi.new_persistent(self.comm, Box::new(move |mpi| own.begin(mpi, Some(&turns)))))
    }
}

/// What a process is in a collective with a root.
struct Role {
    /// The root itself.
    is_root: bool,
    /// One of those for whom the root is there. Of an inter-communicator those of the other group.
    is_peer: bool,
    /// Where all meet, the root's number; none for itself and its own group there.
    root: Option<usize>,
}

impl Role {
    /// Of a collective in which the root gives.
    fn takes_of_root(&self, comm: &Communicator) -> Whom {
        Whom {
            awaits: self.root.map_or(Needed::NOBODY, Needed::one),
            awaited_by: if self.is_root { Needed::Range(comm.seats_of_peers()) } else { Needed::NOBODY },
        }
    }

    /// Of a collective in which the root takes.
    fn gives_to_root(&self, comm: &Communicator) -> Whom {
        Whom {
            awaits: if self.is_root { Needed::Range(comm.seats_of_peers()) } else { Needed::NOBODY },
            awaited_by: self.root.map_or(Needed::NOBODY, Needed::one),
        }
    }

    fn new(comm: &Communicator, root: i64) -> Answer<Self> {
        match (&comm.remote, root) {
            (Some(_), ROOT) => Ok(Self { is_root: true, is_peer: false, root: None }),
            (Some(_), PROC_NULL) => Ok(Self { is_root: false, is_peer: false, root: None }),
            _ => {
                let rank = usize::try_from(root).ok().filter(|&root| root < comm.peers().size());
                let rank = rank.ok_or(Class::Root)?;
                let is_root = comm.remote.is_none() && comm.rank == rank;
                Ok(Self { is_root, is_peer: true, root: Some(comm.seat_of_peers() + rank) })
            }
        }
    }
}

/// Of a collective in which all give to all.
pub(crate) fn of_all(comm: &Communicator) -> Whom {
    if comm.remote.is_some() { Whom::mutual(comm.seats_of_peers()) } else { Whom::ALL }
}

impl Mpi {
    /// Waits in a collective until those have come whose parts are wanted, taking in what messages come.
    pub(crate) fn wait_meeting(&self, meeting: &dyn Meeting) -> Answer<()> {
        self.wait_for(|| Ok(meeting.is_complete()?.then_some(())), |_, limits| meeting.wait(limits))
    }

    fn meeting_of_all(&self, name: &'static str, comm: Comm) -> Answer<Collective> {
        Ok(Collective { comm: self.comm(comm)?, name, what: What::Barrier })
    }
}

/// The calls in their three forms; behind the arrow what they check, and what it is that they begin.
macro_rules! collectives {
    ($(
        $called:literal $call:ident $begun:ident $init:ident ($($arg:ident: $type:ty),*)
        => |$mpi:ident, $name:ident| $of:expr;
    )*) => {
        #[allow(unused_unsafe, reason = "not all are given arrays")]
        impl Collectives for Mpi {
            $(
                unsafe fn $call(&self, $($arg: $type),*) -> Answer<()> {
                    let ($mpi, $name) = (self, $called);
                    // SAFETY: the caller's.
                    unsafe { $of }?.run(self)
                }

                unsafe fn $begun(&self, $($arg: $type),*) -> Answer<Request> {
                    let ($mpi, $name) = (self, $called);
                    // SAFETY: the caller's.
                    unsafe { $of }?.request(self)
                }

                unsafe fn $init(&self, $($arg: $type,)* info: Info) -> Answer<Request> {
                    let ($mpi, $name) = (self, $called);
                    // SAFETY: the caller's.
                    unsafe { $of }?.persistent(self, info)
                }
            )*
        }
    };
}

collectives! {
    "MPI_Barrier" barrier ibarrier barrier_init (comm: Comm)
        => |mpi, name| mpi.meeting_of_all(name, comm);
    "MPI_Bcast" bcast ibcast bcast_init
        (buffer: Buffer, count: i64, datatype: Datatype, root: i64, comm: Comm)
        => |mpi, name| mpi.broadcast(name, (buffer, count, datatype), (root, comm));
    "MPI_Gather" gather igather gather_init
        (sendbuf: Buffer, sendcount: i64, sendtype: Datatype, recvbuf: Buffer, recvcount: i64,
         recvtype: Datatype, root: i64, comm: Comm)
        => |mpi, name| mpi.gathering(
            name, (sendbuf, sendcount, sendtype), (recvbuf, &Equal(recvcount, recvtype)), (root, comm)
        );
    "MPI_Gatherv" gatherv igatherv gatherv_init
        (sendbuf: Buffer, sendcount: i64, sendtype: Datatype, recvbuf: Buffer, recvcounts: Ints,
         displs: Ints, recvtype: Datatype, root: i64, comm: Comm)
        => |mpi, name| mpi.gathering(
            name, (sendbuf, sendcount, sendtype), (recvbuf, &Counted(recvcounts, displs, recvtype)),
            (root, comm)
        );
    "MPI_Scatter" scatter iscatter scatter_init
        (sendbuf: Buffer, sendcount: i64, sendtype: Datatype, recvbuf: Buffer, recvcount: i64,
         recvtype: Datatype, root: i64, comm: Comm)
        => |mpi, name| mpi.scattering(
            name, (sendbuf, &Equal(sendcount, sendtype)), (recvbuf, recvcount, recvtype), (root, comm)
        );
    "MPI_Scatterv" scatterv iscatterv scatterv_init
        (sendbuf: Buffer, sendcounts: Ints, displs: Ints, sendtype: Datatype, recvbuf: Buffer,
         recvcount: i64, recvtype: Datatype, root: i64, comm: Comm)
        => |mpi, name| mpi.scattering(
            name, (sendbuf, &Counted(sendcounts, displs, sendtype)), (recvbuf, recvcount, recvtype),
            (root, comm)
        );
    "MPI_Allgather" allgather iallgather allgather_init
        (sendbuf: Buffer, sendcount: i64, sendtype: Datatype, recvbuf: Buffer, recvcount: i64,
         recvtype: Datatype, comm: Comm)
        => |mpi, name| mpi.gathering_for_all(
            name, (sendbuf, sendcount, sendtype), (recvbuf, &Equal(recvcount, recvtype)), comm
        );
    "MPI_Allgatherv" allgatherv iallgatherv allgatherv_init
        (sendbuf: Buffer, sendcount: i64, sendtype: Datatype, recvbuf: Buffer, recvcounts: Ints,
         displs: Ints, recvtype: Datatype, comm: Comm)
        => |mpi, name| mpi.gathering_for_all(
            name, (sendbuf, sendcount, sendtype), (recvbuf, &Counted(recvcounts, displs, recvtype)), comm
        );
    "MPI_Alltoall" alltoall ialltoall alltoall_init
        (sendbuf: Buffer, sendcount: i64, sendtype: Datatype, recvbuf: Buffer, recvcount: i64,
         recvtype: Datatype, comm: Comm)
        => |mpi, name| mpi.exchange_of_blocks(
            name, (sendbuf, &Equal(sendcount, sendtype)), (recvbuf, &Equal(recvcount, recvtype)), comm
        );
    "MPI_Alltoallv" alltoallv ialltoallv alltoallv_init
        (sendbuf: Buffer, sendcounts: Ints, sdispls: Ints, sendtype: Datatype, recvbuf: Buffer,
         recvcounts: Ints, rdispls: Ints, recvtype: Datatype, comm: Comm)
        => |mpi, name| mpi.exchange_of_blocks(
            name, (sendbuf, &Counted(sendcounts, sdispls, sendtype)), (recvbuf, &Counted(recvcounts,
            rdispls, recvtype)), comm
        );
    "MPI_Alltoallw" alltoallw ialltoallw alltoallw_init
        (sendbuf: Buffer, sendcounts: Ints, sdispls: Ints, sendtypes: Handles<Datatype>, recvbuf: Buffer,
         recvcounts: Ints, rdispls: Ints, recvtypes: Handles<Datatype>, comm: Comm)
        => |mpi, name| mpi.exchange_of_blocks(
            name, (sendbuf, &Typed(sendcounts, sdispls, sendtypes)), (recvbuf, &Typed(recvcounts, rdispls,
            recvtypes)), comm
        );
    "MPI_Reduce" reduce ireduce reduce_init
        (sendbuf: Buffer, recvbuf: Buffer, count: i64, datatype: Datatype, op: Op, root: i64, comm: Comm)
        => |mpi, name| mpi.reduction_for(name, (sendbuf, recvbuf), (count, datatype, op), (root, comm));
    "MPI_Allreduce" allreduce iallreduce allreduce_init
        (sendbuf: Buffer, recvbuf: Buffer, count: i64, datatype: Datatype, op: Op, comm: Comm)
        => |mpi, name| mpi.reduction(name, (sendbuf, recvbuf), (count, datatype, op), comm);
    "MPI_Reduce_scatter" reduce_scatter ireduce_scatter reduce_scatter_init
        (sendbuf: Buffer, recvbuf: Buffer, recvcounts: Ints, datatype: Datatype, op: Op, comm: Comm)
        => |mpi, name| mpi.reduction_in_blocks(
            name, (sendbuf, recvbuf), (recvcounts, datatype, op), comm
        );
    "MPI_Reduce_scatter_block" reduce_scatter_block ireduce_scatter_block reduce_scatter_block_init
        (sendbuf: Buffer, recvbuf: Buffer, recvcount: i64, datatype: Datatype, op: Op, comm: Comm)
        => |mpi, name| mpi.reduction_in_equal_blocks(
            name, (sendbuf, recvbuf), (recvcount, datatype, op), comm
        );
    "MPI_Scan" scan iscan scan_init
        (sendbuf: Buffer, recvbuf: Buffer, count: i64, datatype: Datatype, op: Op, comm: Comm)
        => |mpi, name| mpi.scan(name, (sendbuf, recvbuf), (count, datatype, op), (comm, true));
    "MPI_Exscan" exscan iexscan exscan_init
        (sendbuf: Buffer, recvbuf: Buffer, count: i64, datatype: Datatype, op: Op, comm: Comm)
        => |mpi, name| mpi.scan(name, (sendbuf, recvbuf), (count, datatype, op), (comm, false));
    "MPI_Neighbor_allgather" neighbor_allgather ineighbor_allgather neighbor_allgather_init
        (sendbuf: Buffer, sendcount: i64, sendtype: Datatype, recvbuf: Buffer, recvcount: i64,
         recvtype: Datatype, comm: Comm)
        => |mpi, name| mpi.gathering_of_neighbours(
            name, (sendbuf, sendcount, sendtype), (recvbuf, &Equal(recvcount, recvtype)), comm
        );
    "MPI_Neighbor_allgatherv" neighbor_allgatherv ineighbor_allgatherv neighbor_allgatherv_init
        (sendbuf: Buffer, sendcount: i64, sendtype: Datatype, recvbuf: Buffer, recvcounts: Ints,
         displs: Ints, recvtype: Datatype, comm: Comm)
        => |mpi, name| mpi.gathering_of_neighbours(
            name, (sendbuf, sendcount, sendtype), (recvbuf, &Counted(recvcounts, displs, recvtype)), comm
        );
    "MPI_Neighbor_alltoall" neighbor_alltoall ineighbor_alltoall neighbor_alltoall_init
        (sendbuf: Buffer, sendcount: i64, sendtype: Datatype, recvbuf: Buffer, recvcount: i64,
         recvtype: Datatype, comm: Comm)
        => |mpi, name| mpi.exchange_of_neighbours(
            name, (sendbuf, &Equal(sendcount, sendtype)), (recvbuf, &Equal(recvcount, recvtype)), comm
        );
    "MPI_Neighbor_alltoallv" neighbor_alltoallv ineighbor_alltoallv neighbor_alltoallv_init
        (sendbuf: Buffer, sendcounts: Ints, sdispls: Ints, sendtype: Datatype, recvbuf: Buffer,
         recvcounts: Ints, rdispls: Ints, recvtype: Datatype, comm: Comm)
        => |mpi, name| mpi.exchange_of_neighbours(
            name, (sendbuf, &Counted(sendcounts, sdispls, sendtype)),
            (recvbuf, &Counted(recvcounts, rdispls, recvtype)), comm
        );
    "MPI_Neighbor_alltoallw" neighbor_alltoallw ineighbor_alltoallw neighbor_alltoallw_init
        (sendbuf: Buffer, sendcounts: Ints, sdispls: Ints, sendtypes: Handles<Datatype>, recvbuf: Buffer,
         recvcounts: Ints, rdispls: Ints, recvtypes: Handles<Datatype>, comm: Comm)
        => |mpi, name| mpi.exchange_of_neighbours(
            name, (sendbuf, &Typed(sendcounts, sdispls, sendtypes)),
            (recvbuf, &Typed(recvcounts, rdispls, recvtypes)), comm
        );
}
