//! A rank of bdrun: every call that waits is a moment at which its memory may be written to scratch.

use std::rc::Rc;

use bdrun_worker::{Communicator, World};
use bytemuck::Pod;

use crate::communicator::by;
use crate::transport::{Combine, Result, Transport, exit_code};
use crate::{Cause, SharedMemory, SharedRegion, Tag, host};

/// A rank of a job that `bdrun` runs.
pub struct BdrunBackend(Rc<Rank>);

struct Rank {
    comm: Communicator,
    /// None in a thread of a test.
    world: Option<Rc<World>>,
}

impl std::fmt::Debug for BdrunBackend {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "rank {} of {} of bdrun", self.0.comm.rank(), self.0.comm.size())
    }
}

impl From<bdrun_worker::Error> for Cause {
    fn from(error: bdrun_worker::Error) -> Self {
        match error {
            bdrun_worker::Error::Mismatch { ours, theirs, .. } => {
                Self::Mismatch(format!("this rank is in {ours}, another in {theirs}"))
            }
            error => Self::Backend(error.to_string()),
        }
    }
}

impl BdrunBackend {
    /// Joins the job that started this process; without `bdrun` a job of one rank.
    ///
    /// # Errors
    /// [`Cause::Backend`]: as of [`bdrun_worker::init`].
    pub fn join() -> Result<Self> {
        let world = Rc::new(bdrun_worker::init()?);
        let comm = world.communicator().duplicate()?;
        Ok(Self(Rc::new(Rank { comm, world: Some(world) })))
    }

    /// On a communicator of [`bdrun_worker`], for what the worker's own threads do
    /// ([`bdrun_worker::local::run`]).
    #[must_use]
    pub fn on(comm: Communicator) -> Self {
        Self(Rc::new(Rank { comm, world: None }))
    }
}

/// Bytes of a part that are folded at once.
const PIECE: usize = 64 << 10;

/// All ranks have passed the same.
fn agreed(call: &'static str, what: &str, mine: usize, theirs: usize) -> bdrun_worker::Result<()> {
    if mine == theirs {
        return Ok(());
    }
    Err(bdrun_worker::Error::Mismatch {
        rank: 0,
        ours: call,
        theirs: format!("the same with {what} {theirs}, and not {mine}"),
    })
}

impl Transport for BdrunBackend {
    fn rank(&self) -> usize {
        self.0.comm.rank()
    }

    fn size(&self) -> usize {
        self.0.comm.size()
    }

    fn barrier(&self) -> Result<()> {
        Ok(self.0.comm.barrier()?)
    }

    fn broadcast(&self, data: &mut [u8], root: usize) -> Result<()> {
        let backend = self.0.comm.backend();
        if root == self.0.comm.rank() {
            return Ok(backend.collective("broadcast", &[data], None, &mut |_| Ok(()))?);
        }
        Ok(backend.collective("broadcast", &[], None, &mut |parts| {
            agreed("broadcast", "so many bytes", data.len(), parts.len(root))?;
            parts.read(root, 0, data)
        })?)
    }

    fn allgatherv(&self, send: &[u8], recv: &mut [u8], counts: &[usize], displs: &[usize]) -> Result<()> {
        Ok(self.0.comm.backend().collective("allgather", &[send], None, &mut |parts| {
            for (rank, (&count, &displ)) in counts.iter().zip(displs).enumerate() {
                agreed("allgather", "a part of so many bytes", count, parts.len(rank))?;
                parts.read(rank, 0, &mut recv[displ..][..count])?;
            }
            Ok(())
        })?)
    }

    fn allreduce(&self, send: &[u8], recv: &mut [u8], element: usize, combine: &Combine<'_>) -> Result<()> {
        let size = self.0.comm.size();
        let piece = (PIECE / element).max(1) * element;
        // By the rank that comes last.
        let mut fold = |parts: &dyn bdrun_worker::backend::Parts| {
            // Aligned for every element, as `combine` wants it.
            let mut words = vec![0u128; send.len().div_ceil(size_of::<u128>())];
            let all = &mut bytemuck::cast_slice_mut::<_, u8>(&mut words)[..send.len()];
            let mut with = vec![0u128; piece.min(send.len()).div_ceil(size_of::<u128>())];
            for rank in 0..size {
                agreed("allreduce", "so many bytes", send.len(), parts.len(rank))?;
                for (at, into) in all.chunks_mut(piece).enumerate() {
                    if rank == 0 {
                        parts.read(rank, at * piece, into)?;
                        continue;
                    }
                    let with = &mut bytemuck::cast_slice_mut::<_, u8>(&mut with)[..into.len()];
                    parts.read(rank, at * piece, with)?;
                    combine(into, with);
                }
            }
            Ok(all.to_vec())
        };
        Ok(self.0.comm.backend().collective("allreduce", &[send], Some(&mut fold), &mut |parts| {
            agreed("allreduce", "so many bytes", recv.len(), parts.folded_len())?;
            parts.read_folded(0, recv)
        })?)
    }

    /// Does not wait.
    fn send(&self, data: &[u8], to: usize, tag: Tag) -> Result<()> {
        Ok(self.0.comm.send(to, tag, data)?)
    }

    fn recv(&self, data: &mut [u8], from: usize, tag: Tag) -> Result<()> {
        let comm = &self.0.comm;
        if from == comm.rank() && comm.iprobe(from, tag)?.is_none() {
            return Err(crate::queue::NEVER);
        }
        let bytes = comm.probe(from, tag)?.bytes;
        if bytes == data.len() {
            comm.recv_into(from, tag, data)?;
            return Ok(());
        }
        comm.recv::<u8>(from, tag)?;
        Err(Cause::Length { from, tag, bytes, room: data.len() })
    }

    /// The master ends the other ranks when this one has ended with a code that is not 0.
    fn abort(&self, code: i32) -> ! {
        std::process::exit(exit_code(code))
    }

    fn handle(&self) -> Box<dyn Transport> {
        Box::new(Self(self.0.clone()))
    }

    fn set_aside(&self, bytes: u64) -> Result<()> {
        match &self.0.world {
            Some(world) => Ok(world.set_aside(bytes)?),
            None => Ok(()),
        }
    }

    fn give_back(&self, bytes: u64) {
        if let Some(world) = &self.0.world {
            world.give_back(bytes);
        }
    }
}

impl SharedMemory for BdrunBackend {
    fn split_local(&self) -> crate::Result<Self> {
        let split = || -> Result<Self> {
            // Of two masters on one machine each has its own budget, of which its ranks count what they
            // share.
            let node = self.0.world.as_ref().map_or(0, |world| world.node());
            let color = u32::try_from(host::color_in(self, node.into())?).ok();
            let comm = self.0.comm.split(color, 0)?;
            let comm = comm.ok_or_else(|| Cause::Backend("a rank of no node".into()))?;
            Ok(Self(Rc::new(Rank { comm, world: self.0.world.clone() })))
        };
        split().map_err(by(self, "split_local"))
    }

    fn create_shared_region<T: Pod>(&self, len: usize) -> crate::Result<SharedRegion<T>> {
        SharedRegion::create(self, len)
    }
}
