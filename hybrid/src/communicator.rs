use bytemuck::{Pod, cast_slice, cast_slice_mut};

use crate::element::combine_all;
use crate::transport::Transport;
use crate::{Cause, Element, Error, ReduceOp, Result, SharedRegion};

/// What tells messages between the same two ranks apart: `0..=TAG_MAX`.
pub type Tag = u32;

/// The greatest tag: what MPI promises at least (MPI 4.1, 9.1.2, MPI_TAG_UB).
pub const TAG_MAX: Tag = 32767;

/// Ranks that talk to each other, seen from one of them: the calls of MPI that a bulk-synchronous program
/// needs. Written once, over every back end ([`Transport`]).
///
/// Collectives (all but `send` and `recv`) are called by all ranks, in the same order. Elements are plain old
/// data ([`bytemuck::Pod`]). The place in the program from which a call is made tells bdrun's pager what will
/// be used after it, so calls are `#[track_caller]`. Only the thread that made the communicator calls it: it
/// is neither `Send` nor `Sync`, so that threads of a pool cannot (see
/// [`AnyCommunicator`](crate::AnyCommunicator)).
pub trait Communicator {
    /// This rank, `0..size`.
    fn rank(&self) -> usize;

    /// Number of ranks.
    fn size(&self) -> usize;

    /// Waits until all ranks have come here (MPI_Barrier).
    ///
    /// # Errors
    /// [`Cause::Lost`], [`Cause::Aborted`], [`Cause::Mismatch`], [`Cause::Backend`]: so do all calls below.
    #[track_caller]
    fn barrier(&self) -> Result<()>;

    /// `data` of rank `root` becomes that of all; the same length everywhere (MPI_Bcast).
    ///
    /// # Errors
    /// [`Cause::NoSuchRank`].
    #[track_caller]
    fn broadcast<T: Pod>(&self, data: &mut [T], root: usize) -> Result<()>;

    /// Element `i` of `recv` becomes that of all ranks' `send` combined, in rank order: the same to the bit
    /// on every rank and back end (MPI_Allreduce, but for that).
    ///
    /// # Errors
    /// [`Cause::Argument`]: `send` and `recv` are not of one length.
    #[track_caller]
    fn allreduce<T: Element>(&self, send: &[T], recv: &mut [T], op: ReduceOp) -> Result<()>;

    /// `send` of rank `i` comes to `recv[displs[i]..][..counts[i]]` of all; counts and displacements in
    /// elements, the counts the same everywhere (MPI_Allgatherv).
    ///
    /// # Errors
    /// [`Cause::Argument`]: there are not as many counts or displacements as ranks, `send` is not as long as
    /// this rank's count, a part is outside `recv`, or two overlap.
    #[track_caller]
    fn allgatherv<T: Pod>(
        &self,
        send: &[T],
        recv: &mut [T],
        counts: &[usize],
        displs: &[usize],
    ) -> Result<()>;

    /// `send` of all ranks, one behind the other; the same length everywhere (MPI_Allgather).
    ///
    /// # Errors
    /// As of [`allgatherv`](Self::allgatherv).
    #[track_caller]
    fn allgather<T: Pod>(&self, send: &[T]) -> Result<Vec<T>> {
        let (size, len) = (self.size(), send.len());
        let mut all = vec![T::zeroed(); size * len];
        let displs: Vec<usize> = (0..size).map(|rank| rank * len).collect();
        self.allgatherv(send, &mut all, &vec![len; size], &displs)?;
        Ok(all)
    }

    /// The elements of all ranks, of which each may have another number, combined one after the other in rank
    /// order; `None` if there is none. Depends on the order of the elements only, not on how they are split
    /// over ranks: so a sum of floating point numbers is the same to the bit for any number of ranks.
    ///
    /// # Errors
    /// As of [`allgatherv`](Self::allgatherv).
    #[track_caller]
    fn reduce_elements<T: Element>(&self, send: &[T], op: ReduceOp) -> Result<Option<T>> {
        let counts: Vec<usize> =
            self.allgather(&[send.len() as u64])?.into_iter().map(|len| len as usize).collect();
        let displs: Vec<usize> = counts
            .iter()
            .scan(0, |end, count| {
                *end += count;
                Some(*end - count)
            })
            .collect();
        let mut all = vec![T::zeroed(); counts.iter().sum()];
        self.allgatherv(send, &mut all, &counts, &displs)?;
        Ok(all.into_iter().reduce(|a, b| a.combine(b, op)))
    }

    /// Sends `data` to rank `to`. May wait until that receives it, so two ranks that send to each other first
    /// may wait for ever (MPI_Send). To itself a rank sends without waiting.
    ///
    /// # Errors
    /// [`Cause::NoSuchRank`]; [`Cause::Argument`]: the tag is above [`TAG_MAX`].
    #[track_caller]
    fn send<T: Pod>(&self, data: &[T], to: usize, tag: Tag) -> Result<()>;

    /// Receives the next message of rank `from` with that tag, which must be as long as `data` (MPI_Recv).
    ///
    /// # Errors
    /// [`Cause::NoSuchRank`]; [`Cause::Argument`]: the tag is above [`TAG_MAX`]; [`Cause::Length`];
    /// [`Cause::Never`]: the rank is alone, and has sent itself no such message.
    #[track_caller]
    fn recv<T: Pod>(&self, data: &mut [T], from: usize, tag: Tag) -> Result<()>;

    /// Ends the whole job, as far as the back end can, and this process at once (MPI_Abort): with the low 8
    /// bits of this code, or with 1 where they are 0.
    fn abort(&self, code: i32) -> !;
}

/// Communicators whose ranks on one node can share memory.
pub trait SharedMemory: Communicator + Sized {
    /// The ranks of this communicator that are on this node, in the order they have here (a collective;
    /// MPI_Comm_split_type with MPI_COMM_TYPE_SHARED).
    ///
    /// # Errors
    /// As of [`Communicator::barrier`].
    #[track_caller]
    fn split_local(&self) -> Result<Self>;

    /// Whether this rank is the one that writes what is shared: rank 0.
    fn is_leader(&self) -> bool {
        self.rank() == 0
    }

    /// `len` elements, zeros at first, that the ranks of this communicator share (a collective; all pass the
    /// same `len`). It is made for [`split_local`](Self::split_local)'s communicator: there the elements
    /// exist once. Where ranks cannot share memory (another node, or the system refuses) each has a copy, and
    /// fences bring what the leader wrote: what a program reads is the same.
    ///
    /// # Errors
    /// [`Cause::Argument`]: it has more bytes than there can be; [`Cause::Mismatch`]: the ranks pass
    /// different lengths; as of [`Communicator::barrier`].
    #[track_caller]
    fn create_shared_region<T: Pod>(&self, len: usize) -> Result<SharedRegion<T>>;
}

fn check_peer(peer: usize, size: usize) -> std::result::Result<(), Cause> {
    if peer < size { Ok(()) } else { Err(Cause::NoSuchRank { peer, size }) }
}

fn check_message(peer: usize, size: usize, tag: Tag) -> std::result::Result<(), Cause> {
    check_peer(peer, size)?;
    if tag <= TAG_MAX {
        return Ok(());
    }
    Err(Cause::Argument(format!("tag {tag} is above the greatest one, {TAG_MAX}")))
}

/// Whether the parts are what `allgatherv` asks for, in elements.
fn check_parts(
    rank: usize,
    size: usize,
    send: usize,
    recv: usize,
    counts: &[usize],
    displs: &[usize],
) -> std::result::Result<(), Cause> {
    let wrong = |why| Err(Cause::Argument(why));
    if counts.len() != size || displs.len() != size {
        let (counts, displs) = (counts.len(), displs.len());
        return wrong(format!("{counts} counts and {displs} displacements for {size} ranks"));
    }
    if send != counts[rank] {
        return wrong(format!("{send} elements are sent, and the count of this rank is {}", counts[rank]));
    }
    let end = |i: usize| displs[i].checked_add(counts[i]);
    if let Some(out) = (0..size).find(|&i| end(i).is_none_or(|end| end > recv)) {
        return wrong(format!("the part of rank {out} ends outside the {recv} elements of the buffer"));
    }
    let mut filled: Vec<usize> = (0..size).filter(|&i| counts[i] > 0).collect();
    filled.sort_unstable_by_key(|&i| displs[i]);
    match filled.windows(2).find(|pair| displs[pair[0]] + counts[pair[0]] > displs[pair[1]]) {
        Some(pair) => wrong(format!("the parts of ranks {} and {} overlap", pair[0], pair[1])),
        None => Ok(()),
    }
}

impl<C: Transport> Communicator for C {
    fn rank(&self) -> usize {
        Transport::rank(self)
    }

    fn size(&self) -> usize {
        Transport::size(self)
    }

    fn barrier(&self) -> Result<()> {
        Transport::barrier(self).map_err(by(self, "barrier"))
    }

    fn broadcast<T: Pod>(&self, data: &mut [T], root: usize) -> Result<()> {
        check_peer(root, Transport::size(self)).map_err(by(self, "broadcast"))?;
        Transport::broadcast(self, cast_slice_mut(data), root).map_err(by(self, "broadcast"))
    }

    fn allreduce<T: Element>(&self, send: &[T], recv: &mut [T], op: ReduceOp) -> Result<()> {
        let (out, into) = (send.len(), recv.len());
        if out != into {
            let why = format!("{out} elements are sent, and {into} received");
            return Err(by(self, "allreduce")(Cause::Argument(why)));
        }
        let combine = |into: &mut [u8], with: &[u8]| match bytemuck::try_cast_slice(with) {
            Ok(with) => combine_all(cast_slice_mut::<u8, T>(into), with, op),
            // A back end may hand over what lies anywhere.
            Err(_) => {
                let aligned: Vec<T> = bytemuck::allocation::pod_collect_to_vec(with);
                combine_all(cast_slice_mut::<u8, T>(into), &aligned, op);
            }
        };
        Transport::allreduce(self, cast_slice(send), cast_slice_mut(recv), size_of::<T>(), &combine)
            .map_err(by(self, "allreduce"))
    }

    fn allgatherv<T: Pod>(
        &self,
        send: &[T],
        recv: &mut [T],
        counts: &[usize],
        displs: &[usize],
    ) -> Result<()> {
        let (rank, size, element) = (Transport::rank(self), Transport::size(self), size_of::<T>());
        let bytes = |elements: &[usize]| elements.iter().map(|n| n * element).collect::<Vec<_>>();
        check_parts(rank, size, send.len(), recv.len(), counts, displs).map_err(by(self, "allgatherv"))?;
        let (send, recv) = (cast_slice(send), cast_slice_mut(recv));
        Transport::allgatherv(self, send, recv, &bytes(counts), &bytes(displs))
            .map_err(by(self, "allgatherv"))
    }

    fn send<T: Pod>(&self, data: &[T], to: usize, tag: Tag) -> Result<()> {
        check_message(to, Transport::size(self), tag).map_err(by(self, "send"))?;
        Transport::send(self, cast_slice(data), to, tag).map_err(by(self, "send"))
    }

    fn recv<T: Pod>(&self, data: &mut [T], from: usize, tag: Tag) -> Result<()> {
        check_message(from, Transport::size(self), tag).map_err(by(self, "recv"))?;
        Transport::recv(self, cast_slice_mut(data), from, tag).map_err(by(self, "recv"))
    }

    fn abort(&self, code: i32) -> ! {
        Transport::abort(self, code)
    }
}

/// Names rank and call of what went wrong.
pub(crate) fn by<C: Transport + ?Sized>(comm: &C, call: &'static str) -> impl FnOnce(Cause) -> Error {
    let rank = comm.rank();
    move |cause| cause.of(rank, call)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::panic::Location;

    use super::*;
    use crate::LocalBackend;
    use crate::transport::{self, Combine};

    /// Keeps where it was last called from.
    struct Places(Cell<u32>);

    impl Places {
        #[track_caller]
        fn note(&self) -> transport::Result<()> {
            assert_eq!(Location::caller().file(), file!());
            self.0.set(Location::caller().line());
            Ok(())
        }
    }

    impl Transport for Places {
        fn rank(&self) -> usize {
            0
        }
        fn size(&self) -> usize {
            1
        }
        fn barrier(&self) -> transport::Result<()> {
            self.note()
        }
        fn broadcast(&self, _: &mut [u8], _: usize) -> transport::Result<()> {
            self.note()
        }
        fn allgatherv(&self, _: &[u8], _: &mut [u8], _: &[usize], _: &[usize]) -> transport::Result<()> {
            self.note()
        }
        fn allreduce(&self, _: &[u8], _: &mut [u8], _: usize, _: &Combine<'_>) -> transport::Result<()> {
            self.note()
        }
        fn send(&self, _: &[u8], _: usize, _: Tag) -> transport::Result<()> {
            self.note()
        }
        fn recv(&self, _: &mut [u8], _: usize, _: Tag) -> transport::Result<()> {
            self.note()
        }
        fn abort(&self, _: i32) -> ! {
            panic!("nobody asks for it")
        }
        fn handle(&self) -> Box<dyn Transport> {
            Box::new(LocalBackend)
        }
    }

    #[test]
    fn a_back_end_sees_from_where_the_program_calls() {
        let comm = Places(Cell::new(0));
        macro_rules! here {
            ($call:expr) => {
                assert!($call.is_ok());
                assert_eq!(comm.0.get(), line!());
            };
        }
        here!(Communicator::barrier(&comm));
        here!(Communicator::broadcast(&comm, &mut [0u8], 0));
        here!(Communicator::allreduce(&comm, &[0u8], &mut [0u8], ReduceOp::Sum));
        here!(Communicator::allgatherv(&comm, &[0u8], &mut [0u8], &[1], &[0]));
        here!(comm.allgather(&[0u8]));
        here!(comm.reduce_elements::<f64>(&[], ReduceOp::Sum));
        here!(Communicator::send(&comm, &[0u8], 0, 0));
        here!(Communicator::recv(&comm, &mut [0u8], 0, 0));
    }
}
