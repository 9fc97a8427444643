use bytemuck::Pod;

use crate::transport::{Combine, Result, Transport};
use crate::{LocalBackend, SharedMemory, SharedRegion, Tag};

/// The back end that was found where the program runs ([`create_communicator`](crate::create_communicator)).
///
/// Only the thread that made it calls it: of no back end it is `Send` or `Sync`, so that threads of a pool
/// cannot.
///
/// ```compile_fail,E0277
/// fn of_all(comm: &bdrun_hybrid::AnyCommunicator) {
///     use bdrun_hybrid::Communicator;
///     rayon::scope(|scope| scope.spawn(|_| drop(comm.barrier())));
/// }
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub enum AnyCommunicator {
    /// One process.
    Local(LocalBackend),
    /// A rank of bdrun.
    #[cfg(feature = "bdrun")]
    Bdrun(crate::BdrunBackend),
    /// A rank of an MPI.
    #[cfg(feature = "mpi")]
    Mpi(crate::MpiBackend),
    /// A process of several on this machine.
    #[cfg(feature = "shm")]
    Shm(crate::ShmBackend),
}

/// The same call of whichever it is.
macro_rules! each {
    ($self:expr, $comm:ident => $call:expr) => {
        match $self {
            AnyCommunicator::Local($comm) => $call,
            #[cfg(feature = "bdrun")]
            AnyCommunicator::Bdrun($comm) => $call,
            #[cfg(feature = "mpi")]
            AnyCommunicator::Mpi($comm) => $call,
            #[cfg(feature = "shm")]
            AnyCommunicator::Shm($comm) => $call,
        }
    };
}

impl AnyCommunicator {
    /// Which one it is.
    #[must_use]
    pub const fn kind(&self) -> crate::Kind {
        match self {
            Self::Local(_) => crate::Kind::Local,
            #[cfg(feature = "bdrun")]
            Self::Bdrun(_) => crate::Kind::Bdrun,
            #[cfg(feature = "mpi")]
            Self::Mpi(_) => crate::Kind::Mpi,
            #[cfg(feature = "shm")]
            Self::Shm(_) => crate::Kind::Shm,
        }
    }
}

impl Transport for AnyCommunicator {
    fn rank(&self) -> usize {
        each!(self, comm => Transport::rank(comm))
    }

    fn size(&self) -> usize {
        each!(self, comm => Transport::size(comm))
    }

    fn barrier(&self) -> Result<()> {
        each!(self, comm => Transport::barrier(comm))
    }

    fn broadcast(&self, data: &mut [u8], root: usize) -> Result<()> {
        each!(self, comm => Transport::broadcast(comm, data, root))
    }

    fn allgatherv(&self, send: &[u8], recv: &mut [u8], counts: &[usize], displs: &[usize]) -> Result<()> {
        each!(self, comm => Transport::allgatherv(comm, send, recv, counts, displs))
    }

    fn allreduce(&self, send: &[u8], recv: &mut [u8], element: usize, combine: &Combine<'_>) -> Result<()> {
        each!(self, comm => Transport::allreduce(comm, send, recv, element, combine))
    }

    fn send(&self, data: &[u8], to: usize, tag: Tag) -> Result<()> {
        each!(self, comm => Transport::send(comm, data, to, tag))
    }

    fn recv(&self, data: &mut [u8], from: usize, tag: Tag) -> Result<()> {
        each!(self, comm => Transport::recv(comm, data, from, tag))
    }

    fn abort(&self, code: i32) -> ! {
        each!(self, comm => Transport::abort(comm, code))
    }

    fn handle(&self) -> Box<dyn Transport> {
        each!(self, comm => Transport::handle(comm))
    }

    fn set_aside(&self, bytes: u64) -> Result<()> {
        each!(self, comm => Transport::set_aside(comm, bytes))
    }

    fn give_back(&self, bytes: u64) {
        each!(self, comm => Transport::give_back(comm, bytes));
    }
}

impl SharedMemory for AnyCommunicator {
    fn split_local(&self) -> crate::Result<Self> {
        Ok(match self {
            Self::Local(comm) => Self::Local(comm.split_local()?),
            #[cfg(feature = "bdrun")]
            Self::Bdrun(comm) => Self::Bdrun(comm.split_local()?),
            #[cfg(feature = "mpi")]
            Self::Mpi(comm) => Self::Mpi(comm.split_local()?),
            #[cfg(feature = "shm")]
            Self::Shm(comm) => Self::Shm(comm.split_local()?),
        })
    }

    fn create_shared_region<T: Pod>(&self, len: usize) -> crate::Result<SharedRegion<T>> {
        SharedRegion::create(self, len)
    }
}
