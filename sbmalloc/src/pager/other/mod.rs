//! Moves the memory of *other* processes out to a scratch file, at any moment and without their help, and
//! back.
//!
//! A rank is some processes. [`hold`] stops all of their threads by ptrace; [`Held::evict`] copies their
//! private memory to the [`Image`] and has them drop it; for as long as it is out they stand still;
//! [`Held::restore`] puts every page back where it was; [`Held::release`] lets them go on as if nothing had
//! been. The only thing that the rank's own threads are made to do is `madvise`: `MADV_DONTNEED` on what is
//! safe in the image, and on the way back `MADV_POPULATE_WRITE` and `MADV_COLLAPSE` on what is about to be
//! filled. No mapping, descriptor or limit of theirs is changed. [`check`] tells beforehand what cannot be
//! moved.
//!
//! Unlike the rest of the crate it runs outside of what it moves, and may use the heap.
//!
//! # Files
//! | file | concept |
//! |---|---|
//! | `stop` | stopping all threads, children and newcomers included, and letting them go |
//! | `restart` | calls that a stop broke off: that their timeouts end |
//! | `inject` | making a parked thread call the system |
//! | `together` | dropping ranges, many of them by one call |
//! | `arch` | registers and instructions of the processor |
//! | `ptrace` | ptrace(2) and waitid(2), thinly |
//! | `check` | what must not be moved |
//! | `proc` | what `/proc` tells |
//! | `space` | an address space: which pages are there; copying |
//! | `image` | scratch file and tables of what is out |
//! | `evict`, `restore` | the whole of a rank moved out, and back |
//! | `writer` | copying what leaves, and writing what of it changed |
//! | `parts` | a rank that runs while parts of it are out ([`Held::into_parts`]) |
//! | `error` | [`Refusal`], [`OtherError`] |
//!
//! # Why nothing is lost
//! *Nobody looks.* Every thread that could touch the memory stands: threads of all processes that have it,
//! newcomers from their first instruction on. A last listing after all stand finds nothing new, and nothing
//! that could make anything new runs. The kernel's own accesses end with the calls in which threads stand, or
//! were made unseen: those (asynchronous I/O, io_uring, pinned pages, devices) are recognised while
//! everything stands, and the rank refused.
//!
//! *Nothing is dropped before it is written.* A page is dropped only when its content lies on scratch,
//! written and flushed: now, or when it left before with the same checksum. Until then it is not in the
//! table. What the kernel refuses to drop (locked, sealed) stays; whether a protected range can be put back
//! is tried before it is dropped. A range to be dropped never goes beyond a mapping, so that one madvise
//! drops all of it or nothing. What lies between the pages of such a range holds nothing, or only zeros.
//!
//! *Everything comes back, or the rank ends.* Each page is verified before it is put back. A rank of which
//! anything is out is killed rather than let go ([`Held`]'s drop), and by the kernel if the thread that holds
//! it ends (`PTRACE_O_EXITKILL`).
//!
//! *Nobody notices.* A thread is let go from an event stop with the registers it had at its first stop, so
//! the kernel restarts its call or delivers its signal as after any stop; calls that a bare stop makes return
//! `EINTR` are marked to be restarted unless a handler runs (`arch`). Signals that come while a rank is held
//! wait in the kernel's own queues, in order. What remains to be seen: time has passed; a timeout may last up
//! to twice as long (`restart`). And what `SIGSTOP` and `SIGCONT` do, too: a large `write` to a pipe or
//! socket that was under way may return less than was asked for; of programs of 32 bits, which a rank in
//! parts may begin, calls with a timeout return `EINTR`, on 64-bit Arm all that a bare stop makes return it.
//!
//! # The thread
//! ptrace relations belong to a thread: that which holds a rank does all to it, must outlive it, and has no
//! children of its own. The end of the rank's first process is never taken note of here: whoever started it
//! waits for it as ever.

mod arch;
mod call;
mod check;
mod error;
mod evict;
mod image;
mod inject;
mod parts;
mod proc;
mod ptrace;
mod restart;
mod restore;
mod space;
mod stop;
#[cfg(test)]
mod tests;
mod together;
mod writer;

pub use check::check;
pub use error::{OtherError, Refusal};
pub use image::{Image, MOVE_MEMORY};
pub use parts::{Parts, PartsMoved, Shrunk};

use space::Space;
use std::io;
use std::marker::PhantomData;
use std::time::{Duration, Instant};
use stop::Threads;

/// What was moved, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Moved {
    /// Written to the scratch file, or read from it.
    pub bytes: u64,
    /// Memory given back, or filled.
    pub freed: u64,
    /// Of what was given back, pages that held only zeros.
    pub zeros: u64,
    /// Private memory that stays: of private mappings of files (static data), shared with another process of
    /// the rank since a fork, or what could not be dropped.
    pub unmanaged: u64,
}

/// What a process has of this crate's own pager ([`crate::pager`]), which stands while nobody runs: no reason
/// not to move the rest.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OwnPager {
    /// Its asynchronous I/O ([`crate::pager::ring`]); 0: none.
    pub ring: u64,
}

/// A rank of which nothing runs. Dropped, it goes on if nothing of it is out, and else is killed.
pub struct Held {
    threads: Threads,
    spaces: Vec<Space>,
    /// Something is out.
    out: bool,
    stopping: Duration,
    /// What is traced belongs to the thread.
    _not_send: PhantomData<*const ()>,
}

impl std::fmt::Debug for Held {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { threads, out, .. } = self;
        f.debug_struct("Held").field("rank", &threads.leader()).field("out", out).finish()
    }
}

/// Stops all threads of a rank.
///
/// `leader` is its first process, `list` gives all of its processes, and is called again until nothing new
/// appears. Threads that do not stop within `patience` make it fail. Should anything be refused the rank goes
/// on; the calling thread had then better end soon, as a thread of the rank that could not be stopped within
/// 2 s more is let go only by that.
///
/// # Errors
/// Why the rank cannot be held, now or ever. See [`Refusal`].
pub fn hold(
    leader: i32,
    list: &mut dyn FnMut() -> io::Result<Vec<i32>>,
    patience: Duration,
) -> Result<Held, Refusal> {
    hold_with(leader, list, patience, None)
}

/// The same of a rank that may have a pager of its own, which moves nothing at this moment.
///
/// # Errors
/// As of [`hold`].
pub fn hold_with(
    leader: i32,
    list: &mut dyn FnMut() -> io::Result<Vec<i32>>,
    patience: Duration,
    own: Option<OwnPager>,
) -> Result<Held, Refusal> {
    let begun = Instant::now();
    loop {
        let (mut threads, refusal) = match Threads::stop(leader, list, patience, own) {
            Ok((mut threads, processes)) => match spaces(&threads, &processes) {
                Ok(spaces) => {
                    let stopping = begun.elapsed();
                    return Ok(Held { threads, spaces, out: false, stopping, _not_send: PhantomData });
                }
                Err(refusal) => {
                    threads.detach();
                    (threads, refusal)
                }
            },
            Err(refusal) => (Threads::none(leader), refusal),
        };
        // A child that was killed just then is not the rank.
        let is_child = refusal == Refusal::Gone && !proc::is_over(leader);
        match refusal {
            Refusal::Gone if is_child && begun.elapsed() < patience => threads.detach(),
            Refusal::Gone if is_child => return Err(Refusal::Busy { tid: leader }),
            refusal => return Err(refusal),
        }
    }
}

/// The address spaces of processes, each once.
fn spaces(threads: &Threads, processes: &[i32]) -> Result<Vec<Space>, Refusal> {
    let mut spaces: Vec<Space> = vec![];
    'processes: for &pid in processes {
        let parked = threads.parked(pid);
        for space in &mut spaces {
            if shares_memory(space, pid, parked)? {
                space.processes.push(pid);
                if let Some(tid) = parked.filter(|_| space.caller == 0) {
                    space.choose(tid);
                }
                continue 'processes;
            }
        }
        let mut space = Space::open(pid, parked.unwrap_or(pid))?;
        parked.into_iter().for_each(|tid| space.choose(tid));
        space.has_own_pager = threads.own.is_some();
        spaces.push(space);
    }
    // A parent that stands in vfork has its child's memory, and the child makes the calls.
    match spaces.iter().find(|space| space.caller == 0) {
        Some(space) => Err(Refusal::Vfork { pid: space.processes[0] }),
        None => Ok(spaces),
    }
}

/// Whether a process lives in an address space, while all stand. kcmp(2) tells; where that is refused, as in
/// containers, it is tried.
fn shares_memory(space: &Space, pid: i32, parked: Option<i32>) -> Result<bool, Refusal> {
    match proc::share_memory(pid, space.processes[0]) {
        Ok(shares) => Ok(shares),
        Err(crate::sys::Errno(libc::ESRCH)) => Ok(false),
        Err(_) => {
            let other = Space::open(pid, parked.unwrap_or(pid))?;
            space.shares_with(&other).ok_or(Refusal::Kernel("kcmp"))
        }
    }
}

impl Held {
    /// Moves what can be moved to the image, which is empty. `progress` is told again and again how many
    /// bytes of memory the rank has given back so far.
    ///
    /// # Errors
    /// See [`OtherError`]. What was given back by then is in the image; [`restore`](Self::restore) brings it
    /// back. After [`OtherError::NoSpace`] and [`OtherError::Busy`] the rank may go on if nothing is there.
    pub fn evict(&mut self, image: &mut Image, progress: &mut dyn FnMut(u64)) -> Result<Moved, OtherError> {
        if !image.is_empty() {
            return Err(OtherError::Occupied);
        }
        let (moved, result) = evict::evict(&self.threads, &self.spaces, image, progress)?;
        // Pages of zeros that were dropped are zeros when they are touched: they are not missing. But of the
        // rank itself something failed: a thread of it may not be parked.
        let is_parked = !matches!(result, Err(OtherError::Rank { .. } | OtherError::Gone));
        self.out = !image.is_empty() || !is_parked;
        result.map(|()| moved)
    }

    /// Puts back what is in the image, and empties it. `progress` is told again and again how many bytes of
    /// memory the rank has again.
    ///
    /// # Errors
    /// See [`OtherError`]. The image is as it was, and the call may be repeated, but for
    /// [`OtherError::Corrupt`] and [`OtherError::Gone`]: then the rank is to be killed ([`kill`](Self::kill),
    /// or by dropping this).
    pub fn restore(&mut self, image: &mut Image, progress: &mut dyn FnMut(u64)) -> Result<Moved, OtherError> {
        if !image.is_empty() && image.rank != self.threads.leader() {
            return Err(OtherError::Occupied);
        }
        let moved = restore::restore(&self.threads, &self.spaces, image, progress)?;
        self.out = false;
        Ok(moved)
    }

    /// Lets the rank go on.
    ///
    /// # Errors
    /// [`OtherError::StillOut`] if something of it was not brought back; it is killed then.
    pub fn release(mut self) -> Result<(), OtherError> {
        if self.out {
            return Err(OtherError::StillOut);
        }
        self.threads.detach();
        Ok(())
    }

    /// Kills all processes of the rank.
    pub fn kill(mut self) {
        self.threads.kill();
    }

    /// Takes note of what was killed by others while it is held; false if the rank has ended. To be called
    /// now and then, at least every 100 ms: the end of the rank's first process is told to others only when
    /// that of its other threads was taken note of here. One system call.
    pub fn watch(&mut self) -> bool {
        self.threads.watch()
    }

    /// Threads that are held.
    pub fn threads(&self) -> usize {
        self.threads.count()
    }

    /// How long stopping it took.
    pub fn stopping(&self) -> Duration {
        self.stopping
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if self.out {
            self.threads.kill();
        } else {
            self.threads.detach();
        }
    }
}
