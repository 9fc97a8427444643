//! The rank of a program that was not written for us, on behalf of `libsbmalloc.so`: attached when its
//! process starts, and again when it executes another program; pageable at the calls that the library
//! intercepts.
//!
//! **One process of a rank attaches: the one that `bdrun` started** ([`ENV_PROCESS`] has its number). Its
//! children inherit library, environment and socket, and are plain programs. The socket stays open over
//! `exec`, so that the next image of the same process asks for the rest anew; the account of the last image
//! is closed then. A child of fork has the memory of its parent but not its rank (`runtime/alive.rs`).
//!
//! Such a rank takes no token: it may wait for others in calls that we do not see.

use std::cell::Cell;
use std::os::fd::IntoRawFd;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

use bdrun_ipc::segment::Waiting;

use crate::front::{self, Table};
use crate::runtime::{ENV, Handed, Program, RUNTIME, Runtime};

/// Environment: the number of the rank's first process, in its own PID namespace.
pub const ENV_PROCESS: &str = "BDRUN_PROCESS";

/// What a rank asks for that only wants to be asked to leave, in bytes: the least there is.
const LEAST: u64 = 4096;

thread_local! {
    /// This thread is in here, and must not wait once more from a signal handler or an allocation of ours.
    static BUSY: Cell<bool> = const { Cell::new(false) };
}

/// Until dropped, this thread is busy; `None` if it was already.
pub(crate) struct Busy(());

impl Busy {
    pub(crate) fn begin() -> Option<Self> {
        // No destructor to run, so this works at the end of a thread, too.
        // Not `then_some`, whose value would be dropped where it was busy before, which it then were no more.
        BUSY.with(|busy| !busy.replace(true)).then(|| Self(()))
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        BUSY.with(|busy| busy.set(false));
    }
}

/// The runtime, unless this is a child of the process that attached.
fn live() -> Option<&'static Runtime> {
    RUNTIME.get().filter(|runtime| runtime.alive.is_rank())
}

/// Attach this process if it is a rank's first one, started by `bdrun` or by an `exec` of itself; the flag
/// that says when [`scheduling_point`] is to be called. Everybody else, and every failure, is none: the
/// program runs as it is.
///
/// `own_runtime`: the program has the runtime in it (`note`), and is to find its rank as if nobody had
/// attached.
pub fn attach(own_runtime: bool) -> Option<&'static AtomicU32> {
    let _busy = Busy::begin()?;
    std::env::var_os(ENV[2])?;
    let process = std::env::var(ENV_PROCESS).ok()?.parse::<i32>().ok()?;
    // SAFETY: neither has preconditions.
    if unsafe { libc::getpid() != process || libc::syscall(libc::SYS_gettid) != i64::from(process) } {
        return None;
    }
    let handed = Handed::take().ok()??;
    end_of_last_image(&handed);
    if own_runtime {
        // The socket is the program's, which asks for the rest itself.
        let _ = handed.control.into_raw_fd();
        return None;
    }
    handed.segment.rank(handed.rank).attached.store(1, SeqCst);
    let runtime = Runtime::begin(handed, Program::Any, |_| &PreloadAccount).ok()?;
    Some(&runtime.block().yield_wanted)
}

/// What the process was before it executed this program is gone: its memory is nobody's, and it runs.
fn end_of_last_image(handed: &Handed) {
    let block = handed.segment.rank(handed.rank);
    if block.attached.swap(0, SeqCst) == 0 {
        return;
    }
    let pool = &handed.segment.header().pool;
    block.prepaid.store(0, SeqCst);
    block.request.store(0, SeqCst);
    // Threads that waited for memory are gone, and nobody of the next program has taken the token.
    block.lacks.store(0, SeqCst);
    handed.segment.header().tokens.release(handed.rank);
    pool.give(block.granted.swap(0, SeqCst));
    pool.demand_sub(block.held.swap(0, SeqCst));
    block.publish(Waiting::Nothing);
    block.word.resume();
    if pool.wanted() {
        handed.segment.ring(handed.rank);
    }
}

/// The number of the socket, which children that execute other programs have no use for; `None` unless
/// attached.
pub fn socket() -> Option<i32> {
    live().map(Runtime::socket)
}

/// The master wants this rank to leave, or may: wait as for memory. Returns at once where that cannot be:
/// inside this library, in a child, while another thread waits. Any thread may wait, since the first one of a
/// program with threads often sleeps in `pthread_join`; the others go on meanwhile.
#[cold]
pub fn scheduling_point() {
    let Some(runtime) = live() else { return };
    let Some(_busy) = Busy::begin() else { return };
    let block = runtime.block();
    let Some(_turn) = runtime.turn() else { return };
    if block.yield_wanted.swap(0, SeqCst) == 0 {
        return;
    }
    block.request.store(LEAST, SeqCst);
    runtime.wait(Waiting::Memory { bytes: LEAST }, || block.request.load(SeqCst) == 0);
    block.request.store(0, SeqCst);
    runtime.give_reserve_back();
    runtime.gave_memory();
}

/// For a library of this process that waits for the program, MPI's: its table, once. None if this process is
/// no rank, or one for which somebody waits already.
pub fn front() -> Option<&'static Table> {
    static TABLE: OnceLock<Table> = OnceLock::new();
    let runtime = live()?;
    let _busy = Busy::begin();
    runtime.become_front().then(|| TABLE.get_or_init(|| front::table(runtime)))
}

/// The rank's account, in the process that is the rank.
struct PreloadAccount;

// SAFETY: as of the runtime.
unsafe impl sbmalloc::Account for PreloadAccount {
    fn charge(&self, bytes: usize) -> Result<(), sbmalloc::Denied> {
        let Some(runtime) = live() else { return Ok(()) };
        let _busy = Busy::begin();
        sbmalloc::Account::charge(runtime, bytes)
    }

    fn uncharge(&self, bytes: usize) {
        if let Some(runtime) = live() {
            sbmalloc::Account::uncharge(runtime, bytes);
        }
    }

    fn forks(&self, in_ram: usize) {
        if let Some(runtime) = live() {
            sbmalloc::Account::forks(runtime, in_ram);
        }
    }
}

/// Around a fork: the calling thread must not wait.
pub fn before_fork() {
    BUSY.with(|busy| busy.set(true));
}

/// See [`before_fork`].
pub fn after_fork() {
    BUSY.with(|busy| busy.set(false));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_busy_stays_so_whoever_asks() {
        let busy = Busy::begin();
        assert!(busy.is_some() && Busy::begin().is_none() && Busy::begin().is_none());
        drop(busy);
        assert!(Busy::begin().is_some() && Busy::begin().is_some());
    }

    #[test]
    fn nothing_of_the_last_image_outlives_exec() {
        let handed = crate::runtime::tests::handed(2);
        let header = handed.segment.header();
        let (block, budget) = (handed.segment.rank(handed.rank), header.pool.budget() as i64);
        assert!(header.pool.take(5000) && header.tokens.acquire_now(handed.rank));
        block.attached.store(1, SeqCst);
        block.granted.store(5000, SeqCst);
        for word in [&block.prepaid, &block.request, &block.lacks, &block.held] {
            word.store(3000, SeqCst);
        }
        header.pool.demand_add(3000);
        end_of_last_image(&handed);
        assert!(!header.tokens.has(handed.rank), "nobody would give it back");
        assert_eq!(header.pool.free(), budget);
        for word in [&block.prepaid, &block.request, &block.lacks, &block.held, &block.granted] {
            assert_eq!(word.load(SeqCst), 0);
        }
        // The next time there was none.
        assert!(header.tokens.acquire_now(handed.rank));
        end_of_last_image(&handed);
        assert!(header.tokens.has(handed.rank));
    }

    /// The first image of a rank that is run again comes after none, though its last process had attached.
    #[test]
    fn what_was_set_aside_for_another_try_is_left_to_it() {
        let handed = crate::runtime::tests::handed(2);
        let (block, pool) = (handed.segment.rank(handed.rank), &handed.segment.header().pool);
        block.attached.store(1, SeqCst);
        assert!(pool.take(5000));
        let free = pool.free();
        for word in [&block.granted, &block.prepaid] {
            word.store(5000, SeqCst);
        }
        block.begin();
        end_of_last_image(&handed);
        assert_eq!(pool.free(), free);
        for word in [&block.granted, &block.prepaid] {
            assert_eq!(word.load(SeqCst), 5000);
        }
    }
}
