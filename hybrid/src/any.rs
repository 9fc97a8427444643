use bytemuck::Pod;

use crate::transport::{Combine, Result, Transport};
use crate::{LocalBackend, SharedMemory, SharedRegion, Tag};

/// The back end that was found, without dynamic dispatch
/// of the typed calls.
#[derive(Debug)]
#[non_exhaustive]
pub enum AnyCommunicator {
    /// One process.
    Local(LocalBackend),
}

/// The same call of whichever it is.
macro_rules! each {
    ($self:expr, $comm:ident => $call:expr) => {
        match $self {
            AnyCommunicator::Local($comm) => $call,
        }
    };
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
}

impl SharedMemory for AnyCommunicator {
    fn split_local(&self) -> crate::Result<Self> {
        Ok(match self {
            Self::Local(comm) => Self::Local(comm.split_local()?),
        })
    }

    fn create_shared_region<T: Pod>(&self, len: usize) -> crate::Result<SharedRegion<T>> {
        SharedRegion::create(self, len)
    }
}
