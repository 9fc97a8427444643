//! Two helper processes whose only task is to outlive or to end with the master.
//!
//! The *keeper* is process 1 of the job's PID namespace. When it ends, the kernel kills every process of the
//! namespace: ranks, their children, and children that made a session of their own. It ends with the master by two
//! independent ways: the parent-death signal, and a pipe whose only write end the master holds, so that no moment
//! between `fork` and `prctl` is unguarded. Orphans of the namespace become its children; it ignores SIGCHLD, so
//! the kernel reaps them.
//!
//! The *janitor* exists only with `--enforce`: after a SIGKILL of the master it waits, outside the namespace, until
//! the job's cgroups are empty, removes them and ends. It gives up after ten seconds.
//!
//! Both are plain forks of the multi-threaded master and so only make system calls. They share the master's pages,
//! hold no descriptor but the pipe, and sleep all their life.

use super::SuperviseError;
use super::sys;
use std::ffi::CString;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

/// A helper process, the pipe that keeps it alive, and a descriptor that becomes readable when it ends.
pub(super) struct Helper {
    pub(super) pid: libc::pid_t,
    pub(super) pidfd: OwnedFd,
    _lifeline: OwnedFd,
}

impl Helper {
    /// Kills it and waits for its end, at most `limit_ms`. Returns whether it ended (and was reaped).
    pub(super) fn end(&self, limit_ms: i32) -> bool {
        sys::pidfd_kill(&self.pidfd, libc::SIGKILL);
        sys::wait_readable(&self.pidfd, limit_ms) && sys::reap(self.pid).is_some()
    }
}

/// Starts the keeper. To be called by the thread that has just unshared its PID namespace.
pub(super) fn start_keeper() -> Result<Helper, SuperviseError> {
    start("the keeper of the job's PID namespace", keeper)
}

/// Starts the janitor for these cgroup directories (innermost first).
pub(super) fn start_janitor(directories: &[CString]) -> Result<Helper, SuperviseError> {
    start("the janitor of the job's cgroup", |pipe| janitor(pipe, directories))
}

fn start(what: &'static str, body: impl Fn(RawFd) -> u8) -> Result<Helper, SuperviseError> {
    let failed = |source: nix::Error| SuperviseError::Helper { what, source: source.into() };
    let (read, write) = sys::pipe().map_err(failed)?;
    let pipe = read.as_raw_fd();
    // SAFETY: the child makes only async-signal-safe calls (`keeper`, `janitor`) and ends with `_exit`.
    match unsafe { libc::fork() } {
        0 => {
            settle(pipe);
            let code = body(0);
            // SAFETY: ends the child without running the master's exit handlers.
            unsafe { libc::_exit(i32::from(code)) }
        }
        -1 => Err(failed(nix::Error::last())),
        pid => {
            let pidfd = sys::pidfd_open(pid).inspect_err(|_| {
                sys::kill(pid, libc::SIGKILL);
                sys::reap_blocking(pid);
            });
            Ok(Helper { pid, pidfd: pidfd.map_err(failed)?, _lifeline: write })
        }
    }
}

/// In the helper: a session of its own, out of reach of the terminal; nothing open but the pipe, as descriptor 0;
/// no directory kept busy; default dispositions.
fn settle(pipe: RawFd) {
    // SAFETY: async-signal-safe system calls only.
    unsafe {
        libc::setsid();
        let mut action: libc::sigaction = std::mem::zeroed();
        for signal in 1..=64 {
            action.sa_sigaction = if signal == libc::SIGCHLD { libc::SIG_IGN } else { libc::SIG_DFL };
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

fn keeper(pipe: RawFd) -> u8 {
    // SAFETY: system calls on constants.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL as libc::c_ulong, 0, 0, 0);
        libc::prctl(libc::PR_SET_NAME, c"bdrun-keeper".as_ptr(), 0, 0, 0);
    }
    sleep_until_closed(pipe);
    0
}

fn janitor(pipe: RawFd, directories: &[CString]) -> u8 {
    // SAFETY: a system call on a constant.
    unsafe { libc::prctl(libc::PR_SET_NAME, c"bdrun-janitor".as_ptr(), 0, 0, 0) };
    sleep_until_closed(pipe);
    let pause = libc::timespec { tv_sec: 0, tv_nsec: 5_000_000 };
    for _ in 0..2_000 {
        let mut left = false;
        for directory in directories {
            // SAFETY: removes an empty directory; the path is a valid C string of the copied address space.
            let removed = unsafe { libc::rmdir(directory.as_ptr()) } == 0;
            // SAFETY: errno of this thread.
            left |= !removed && unsafe { *libc::__errno_location() } != libc::ENOENT;
        }
        if !left {
            return 0;
        }
        // SAFETY: sleeps on a local timespec.
        unsafe { libc::nanosleep(&pause, std::ptr::null_mut()) };
    }
    1
}
