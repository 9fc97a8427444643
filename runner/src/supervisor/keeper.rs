//! The *keepers*: two processes that end what a SIGKILL of the master leaves.
//!
//! Each sleeps on a pipe whose only write end the master holds, so the master's end wakes it, whatever that
//! was. Then it kills what is left of the ranks' process groups and in their cgroups, which hold also what
//! has left its process group (a frozen process is thawed when its death is certain); or, where there are no
//! cgroups, what has the job's mark (`pen.rs`). It goes on until the cgroups are empty, removes them, and
//! ends; it gives up after ten seconds.
//!
//! They are two, and either suffices. One that is killed is replaced by the master. They have sessions of
//! their own, no signal but SIGKILL reaches them, and their name is not that of `bdrun`, so that who kills
//! all by that name does not kill them. Only if the master and both keepers are killed in the same moment,
//! nobody ends what is left: ranks die by their parent-death signal, what they have started lives until
//! another `bdrun` starts in the same place (`remove_stale`).
//!
//! They are plain forks of the multi-threaded master and so only make system calls (`sweep.rs`). They share
//! the master's pages, hold no descriptor but the pipe, and stay outside of the ranks' cgroups.

use super::pen::Mark;
use super::roster::Roster;
use super::sweep::{self, Room};
use super::{SuperviseError, sys};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// How many there are.
pub(super) const KEEPERS: usize = 2;
/// Who kills more of them than this means it.
const REPLACEMENTS: u32 = 16;

/// A keeper, the pipe on which it sleeps, and a descriptor that becomes readable when it ends.
struct Keeper {
    pid: libc::pid_t,
    pidfd: OwnedFd,
    _lifeline: OwnedFd,
}

impl Keeper {
    /// Kills it and waits for its end, at most `limit_ms`.
    fn end(&self, limit_ms: i32) {
        sys::pidfd_kill(&self.pidfd, libc::SIGKILL);
        if sys::wait_readable(&self.pidfd, limit_ms) {
            sys::reap(self.pid);
        }
    }
}

#[derive(Default)]
struct Inner {
    there: [Option<Keeper>; KEEPERS],
    replaced: u32,
    /// The job is over: nobody is replaced.
    closed: bool,
}

/// The keepers of a job.
pub(super) struct Keepers {
    /// What to remove, in this order: innermost first.
    rooms: Vec<Room>,
    inner: Mutex<Inner>,
}

impl Keepers {
    /// None yet.
    pub(super) fn new(rooms: Vec<Room>) -> Self {
        Self { rooms, inner: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts them all; `watch` makes the end of each known to whoever replaces it.
    pub(super) fn start(
        &self,
        roster: &Roster,
        mark: Option<&Mark>,
        watch: impl Fn(usize, &OwnedFd) -> nix::Result<()>,
    ) -> Result<(), SuperviseError> {
        let mut inner = self.lock();
        for which in 0..KEEPERS {
            self.put(&mut inner, which, roster, mark, &watch)?;
        }
        Ok(())
    }

    fn put(
        &self,
        inner: &mut Inner,
        which: usize,
        roster: &Roster,
        mark: Option<&Mark>,
        watch: impl Fn(usize, &OwnedFd) -> nix::Result<()>,
    ) -> Result<(), SuperviseError> {
        let failed = |source: nix::Error| SuperviseError::Helper {
            what: "a keeper of the job",
            source: source.into(),
        };
        let keeper = fork(|| keep(&self.rooms, roster, mark)).map_err(failed)?;
        let watched = watch(which, &keeper.pidfd);
        if watched.is_err() {
            keeper.end(1_000);
        }
        watched.map_err(failed)?;
        inner.there[which] = Some(keeper);
        Ok(())
    }

    /// For one that has ended: reaps it and starts another. False if that is not possible, or was done too
    /// often.
    pub(super) fn replace(
        &self,
        which: usize,
        roster: &Roster,
        mark: Option<&Mark>,
        watch: impl Fn(usize, &OwnedFd) -> nix::Result<()>,
    ) -> bool {
        let mut inner = self.lock();
        if inner.closed {
            return true;
        }
        if let Some(old) = inner.there[which].take() {
            sys::reap(old.pid);
        }
        inner.replaced += 1;
        inner.replaced <= REPLACEMENTS && self.put(&mut inner, which, roster, mark, watch).is_ok()
    }

    /// Their processes.
    #[cfg(test)]
    pub(super) fn pids(&self) -> [Option<libc::pid_t>; KEEPERS] {
        self.lock().there.each_ref().map(|keeper| keeper.as_ref().map(|keeper| keeper.pid))
    }

    /// Nothing is left to be kept.
    pub(super) fn end(&self, limit_ms: i32) {
        let mut inner = self.lock();
        inner.closed = true;
        inner.there.iter_mut().filter_map(Option::take).for_each(|keeper| keeper.end(limit_ms));
    }

    /// Lets them go on with what is left, as if the master had ended.
    pub(super) fn release(&self) {
        let mut inner = self.lock();
        inner.closed = true;
        inner.there = Default::default();
    }
}

impl Drop for Keepers {
    fn drop(&mut self) {
        self.end(1_000);
    }
}

fn fork(body: impl Fn() -> u8) -> nix::Result<Keeper> {
    let (read, write) = sys::pipe()?;
    let pipe = read.as_raw_fd();
    // SAFETY: the child makes only async-signal-safe calls (`settle`, `keep`) and ends with `_exit`.
    match unsafe { libc::fork() } {
        0 => {
            settle(pipe);
            let code = body();
            // SAFETY: ends the child without running the master's exit handlers.
            unsafe { libc::_exit(i32::from(code)) }
        }
        -1 => Err(nix::Error::last()),
        pid => {
            let pidfd = sys::pidfd_open(pid).inspect_err(|_| {
                sys::kill(pid, libc::SIGKILL);
                sys::reap_blocking(pid);
            });
            Ok(Keeper { pid, pidfd: pidfd?, _lifeline: write })
        }
    }
}

/// In the keeper: a session of its own, out of reach of the terminal; deaf to signals; nothing open but the
/// pipe, as descriptor 0; no directory kept busy.
fn settle(pipe: RawFd) {
    // SAFETY: async-signal-safe system calls only, on locals and constants.
    unsafe {
        libc::setsid();
        let mut all: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&mut all);
        libc::sigprocmask(libc::SIG_SETMASK, &all, std::ptr::null_mut());
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = libc::SIG_DFL;
        for signal in 1..=64 {
            libc::sigaction(signal, &action, std::ptr::null_mut());
        }
        libc::dup2(pipe, 0);
        if libc::syscall(libc::SYS_close_range, 1_u32, u32::MAX, 0_u32) != 0 {
            // Before Linux 5.9.
            let mut limit = libc::rlimit { rlim_cur: 1024, rlim_max: 1024 };
            libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit);
            for fd in 1..i32::try_from(limit.rlim_cur).unwrap_or(65_536) {
                libc::close(fd);
            }
        }
        libc::chdir(c"/".as_ptr());
        libc::prctl(libc::PR_SET_NAME, c"job-keeper".as_ptr(), 0, 0, 0);
    }
}

/// Sleeps until the other end of the pipe is gone.
fn sleep_until_closed(pipe: RawFd) {
    let mut byte = 0_u8;
    loop {
        // SAFETY: reads at most one byte into a local.
        match unsafe { libc::read(pipe, (&raw mut byte).cast(), 1) } {
            0 => return,
            // SAFETY: errno of this thread.
            -1 if unsafe { *libc::__errno_location() } != libc::EINTR => return,
            _ => {}
        }
    }
}

fn keep(rooms: &[Room], roster: &Roster, mark: Option<&Mark>) -> u8 {
    sleep_until_closed(0);
    // The ranks themselves die by their parent-death signal.
    roster.kill_groups();
    let pause = libc::timespec { tv_sec: 0, tv_nsec: 5_000_000 };
    let mut marked = mark.map(|mark| sweep::Marked::new(mark.bytes()));
    for _ in 0..2_000 {
        let mut left = marked.as_mut().is_some_and(|marked| !marked.clear());
        for room in rooms {
            left |= !room.clear();
        }
        if !left {
            return 0;
        }
        // SAFETY: sleeps on a local timespec.
        unsafe { libc::nanosleep(&pause, std::ptr::null_mut()) };
    }
    1
}
