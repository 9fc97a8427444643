//! A rank of a real MPI, without bdrun: its library is loaded when the program runs.
//!
//! MPI is initialised with MPI_THREAD_FUNNELED: only the thread that has initialised it calls it (MPI 4.1,
//! 11.6). Types keep that: a communicator is neither `Send` nor `Sync`, so it stays in the thread where it
//! was made, and what runs in another thread (a pool's closures are `Send`) cannot hold it or refer to it.

mod calls;
mod last_words;
mod table;

use std::cell::RefCell;
use std::rc::Rc;

use bytemuck::Pod;

use crate::communicator::by;
use crate::queue::{NEVER, Queue, deliver};
use crate::transport::{Combine, Result, Transport, exit_code};
use crate::{Cause, SharedMemory, SharedRegion, Tag, host};
use calls::{Comm, MOST, Parts};
pub use table::LIBRARY;

/// A rank of an MPI job.
///
/// Threads of a pool cannot call it:
///
/// ```compile_fail,E0277
/// fn of_all(comm: &bdrun_hybrid::MpiBackend) {
///     use bdrun_hybrid::Communicator;
///     rayon::scope(|scope| scope.spawn(|_| drop(comm.barrier()))); // it is not `Sync`
/// }
/// ```
///
/// ```compile_fail,E0277
/// fn given_away(comm: bdrun_hybrid::MpiBackend) {
///     std::thread::spawn(move || drop(comm)); // nor `Send`
/// }
/// ```
///
/// What they compute, the thread that made it sends:
///
/// ```
/// fn computes(comm: &bdrun_hybrid::MpiBackend) -> bdrun_hybrid::Result<f64> {
///     use bdrun_hybrid::{Communicator, ReduceOp};
///     use rayon::prelude::*;
///     let (mine, mut sum) = ((0..1_000).into_par_iter().map(f64::from).sum::<f64>(), [0.0]);
///     comm.allreduce(&[mine], &mut sum, ReduceOp::Sum)?;
///     Ok(sum[0])
/// }
/// ```
#[derive(Debug)]
pub struct MpiBackend(Rc<State>);

#[derive(Debug)]
struct State {
    comm: Box<dyn Comm>,
    rank: usize,
    size: usize,
    to_itself: RefCell<Queue<Tag>>,
}

impl State {
    fn new(comm: Box<dyn Comm>) -> Result<Self> {
        let [rank, size] = comm.place()?;
        Ok(Self { comm, rank, size, to_itself: RefCell::default() })
    }
}

impl MpiBackend {
    /// Initialises MPI, if the program has not: then it is finalised when the last communicator or region is
    /// dropped, or the job is ended if that is by a panic. `env` says where the library is
    /// ([`MPI_LIBRARY`](crate::MPI_LIBRARY)).
    ///
    /// # Errors
    /// [`Cause::Backend`]: there is no library, it permits no threads beside the one that calls it, or MPI
    /// was initialised by another thread, or finalised already.
    pub fn init(env: &dyn Fn(&str) -> Option<String>) -> Result<Self> {
        let (table, file) = table::load(&table::candidates(env)).map_err(Cause::Backend)?;
        State::new(calls::world(table, &file)?).map(|state| Self(Rc::new(state)))
    }
}

/// Bytes of a part that all gather, to be folded by each; longer ones each folds a part of.
const ALONE: usize = 1 << 10;
/// Bytes that are reduced at once, for each rank: so displacements of what all send are numbers of C.
const AT_ONCE: usize = 1 << 20;

fn ends(counts: &[usize]) -> Vec<usize> {
    counts
        .iter()
        .scan(0, |end, count| {
            *end += count;
            Some(*end - count)
        })
        .collect()
}

impl MpiBackend {
    /// Of `mine.len()` bytes, at most `AT_ONCE`, or `MOST` / size.
    fn reduce(&self, mine: &[u8], all: &mut [u8], element: usize, combine: &Combine<'_>) -> Result<()> {
        let State { comm, rank, size, .. } = &*self.0;
        let (rank, size, bytes) = (*rank, *size, mine.len());
        let fold = |into: &mut [u8], parts: &[u8]| {
            let mut parts = parts.chunks_exact(into.len().max(1));
            if let Some(first) = parts.next() {
                into.copy_from_slice(first);
            }
            parts.for_each(|with| combine(into, with));
        };
        if bytes <= ALONE {
            let (mut parts, counts) = (vec![0; bytes * size], vec![bytes; size]);
            let at = Parts { counts: &counts, displs: &ends(&counts) };
            comm.allgatherv(mine, &mut parts, at)?;
            fold(all, &parts);
            return Ok(());
        }
        let each = bytes.div_ceil(element).div_ceil(size) * element;
        let begins: Vec<usize> = (0..size).map(|rank| (rank * each).min(bytes)).collect();
        let counts: Vec<usize> = begins.iter().map(|begin| (begin + each).min(bytes) - begin).collect();
        let own = begins[rank]..begins[rank] + counts[rank];
        let (mut parts, same) = (vec![0; own.len() * size], vec![own.len(); size]);
        let at = Parts { counts: &counts, displs: &begins };
        comm.alltoallv(mine, at, &mut parts, Parts { counts: &same, displs: &ends(&same) })?;
        fold(&mut all[own.clone()], &parts);
        let folded = all[own].to_vec();
        comm.allgatherv(&folded, all, at)
    }
}

impl Transport for MpiBackend {
    fn rank(&self) -> usize {
        self.0.rank
    }

    fn size(&self) -> usize {
        self.0.size
    }

    fn barrier(&self) -> Result<()> {
        self.0.comm.barrier()
    }

    fn broadcast(&self, data: &mut [u8], root: usize) -> Result<()> {
        // With nothing in it too: so that all meet.
        if data.is_empty() {
            return self.0.comm.broadcast(data, root);
        }
        data.chunks_mut(MOST).try_for_each(|chunk| self.0.comm.broadcast(chunk, root))
    }

    fn allgatherv(&self, send: &[u8], recv: &mut [u8], counts: &[usize], displs: &[usize]) -> Result<()> {
        let fits = |end: usize| end <= MOST;
        let end = counts.iter().zip(displs).map(|(count, displ)| count + displ).max().unwrap_or(0);
        if !fits(counts.iter().sum()) {
            // Counts are the same in all ranks, so all go this way.
            recv[displs[self.0.rank]..][..send.len()].copy_from_slice(send);
            let mut parts = counts.iter().zip(displs).enumerate();
            return parts
                .try_for_each(|(root, (&count, &displ))| self.broadcast(&mut recv[displ..][..count], root));
        }
        if fits(end) {
            return self.0.comm.allgatherv(send, recv, Parts { counts, displs });
        }
        let (mut all, begins) = (vec![0; counts.iter().sum()], ends(counts));
        self.0.comm.allgatherv(send, &mut all, Parts { counts, displs: &begins })?;
        for ((&count, &displ), begin) in counts.iter().zip(displs).zip(begins) {
            recv[displ..][..count].copy_from_slice(&all[begin..][..count]);
        }
        Ok(())
    }

    fn allreduce(&self, send: &[u8], recv: &mut [u8], element: usize, combine: &Combine<'_>) -> Result<()> {
        if send.is_empty() {
            return self.barrier();
        }
        let chunk = AT_ONCE.min(MOST / self.0.size).max(element) / element * element;
        send.chunks(chunk)
            .zip(recv.chunks_mut(chunk))
            .try_for_each(|(mine, all)| self.reduce(mine, all, element, combine))
    }

    /// Of at most 2^31 - 1 bytes: else [`Cause::Argument`].
    fn send(&self, data: &[u8], to: usize, tag: Tag) -> Result<()> {
        if to == self.0.rank {
            self.0.to_itself.borrow_mut().push(tag, data.to_vec());
            return Ok(());
        }
        self.0.comm.send(data, to, tag)
    }

    fn recv(&self, data: &mut [u8], from: usize, tag: Tag) -> Result<()> {
        if from == self.0.rank {
            let message = self.0.to_itself.borrow_mut().take(&tag).ok_or(NEVER)?;
            return deliver(&message, data, from, tag);
        }
        match self.0.comm.probe(from, tag)? {
            bytes if bytes == data.len() => self.0.comm.recv(data, from, tag),
            bytes => {
                self.0.comm.recv(&mut vec![0; bytes], from, tag)?;
                Err(Cause::Length { from, tag, bytes, room: data.len() })
            }
        }
    }

    fn abort(&self, code: i32) -> ! {
        self.0.comm.abort(exit_code(code))
    }

    fn handle(&self) -> Box<dyn Transport> {
        Box::new(Self(self.0.clone()))
    }
}

impl SharedMemory for MpiBackend {
    fn split_local(&self) -> crate::Result<Self> {
        let split = || -> Result<Self> {
            let color = host::color_in(self, 0)?;
            let comm = self.0.comm.split(color, self.0.rank)?;
            State::new(comm).map(|state| Self(Rc::new(state)))
        };
        split().map_err(by(self, "split_local"))
    }

    fn create_shared_region<T: Pod>(&self, len: usize) -> crate::Result<SharedRegion<T>> {
        SharedRegion::create(self, len)
    }
}
