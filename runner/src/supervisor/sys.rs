//! Safe wrappers of the few system calls that `nix` does not offer in the form needed here.

use super::Usage;
use super::ending::Ending;
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::epoll::{Epoll, EpollEvent, EpollFlags};
use nix::sys::eventfd::{EfdFlags, EventFd};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

/// A pipe, both ends closed on exec: `(read, write)`.
pub(super) fn pipe() -> nix::Result<(OwnedFd, OwnedFd)> {
    nix::unistd::pipe2(OFlag::O_CLOEXEC)
}

/// Makes an open file description non-blocking.
pub(super) fn set_nonblocking(fd: &OwnedFd) -> nix::Result<()> {
    let flags = OFlag::from_bits_retain(fcntl(fd, FcntlArg::F_GETFL)?);
    fcntl(fd, FcntlArg::F_SETFL(flags | OFlag::O_NONBLOCK)).map(drop)
}

/// The reverse.
pub(super) fn set_blocking(fd: &OwnedFd) -> nix::Result<()> {
    let flags = OFlag::from_bits_retain(fcntl(fd, FcntlArg::F_GETFL)?);
    fcntl(fd, FcntlArg::F_SETFL(flags - OFlag::O_NONBLOCK)).map(drop)
}

/// A duplicate with a number of at least `lowest`, closed on exec.
pub(super) fn duplicate_above(fd: BorrowedFd<'_>, lowest: RawFd) -> nix::Result<OwnedFd> {
    let number = fcntl(fd, FcntlArg::F_DUPFD_CLOEXEC(lowest))?;
    // SAFETY: the kernel has just made this descriptor, nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

/// The same in place of what `onto` was.
pub(super) fn duplicate_onto(fd: BorrowedFd<'_>, onto: &mut OwnedFd) -> nix::Result<()> {
    nix::unistd::dup3(fd, onto, OFlag::O_CLOEXEC)
}

/// How many bytes a pipe can hold.
pub(super) fn pipe_capacity(fd: &OwnedFd) -> usize {
    fcntl(fd, FcntlArg::F_GETPIPE_SZ).ok().and_then(|size| usize::try_from(size).ok()).unwrap_or(65_536)
}

/// A descriptor for the process, readable when it has ended.
pub(super) fn pidfd_open(pid: libc::pid_t) -> nix::Result<OwnedFd> {
    // SAFETY: plain system call; a result ≥ 0 is a new descriptor that nobody else owns.
    unsafe {
        let fd = Errno::result(libc::syscall(libc::SYS_pidfd_open, pid, 0))?;
        Ok(OwnedFd::from_raw_fd(fd as RawFd))
    }
}

/// Sends a signal through a pidfd. Failure means that the process is gone already.
pub(super) fn pidfd_kill(pidfd: &OwnedFd, signal: i32) {
    // SAFETY: plain system call on a descriptor we own.
    unsafe { libc::syscall(libc::SYS_pidfd_send_signal, pidfd.as_raw_fd(), signal, 0_usize, 0) };
}

/// `kill(2)`; a negative pid is a process group. Returns whether anybody was there.
pub(super) fn kill(pid: libc::pid_t, signal: i32) -> bool {
    debug_assert!(pid != 0 && pid != -1 && pid != 1, "would signal ourselves or everybody");
    // SAFETY: plain system call.
    unsafe { libc::kill(pid, signal) == 0 }
}

/// The end of a process that somebody else has reaped.
const UNKNOWN: Ending = Ending::Code(255);

/// Whether nobody else has reaped this child: as long as that is so its number is nobody else's.
pub(super) fn is_child(pid: libc::pid_t) -> bool {
    let options = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
    // SAFETY: siginfo_t is plain old data, for which zeros are a value; the call writes into this local only.
    unsafe {
        let mut info: libc::siginfo_t = std::mem::zeroed();
        libc::waitid(libc::P_PID, pid.cast_unsigned(), &mut info, options) == 0
    }
}

/// Reaps the process if it has ended.
pub(super) fn reap(pid: libc::pid_t) -> Option<(Ending, Usage)> {
    wait4(pid, libc::WNOHANG)
}

/// Waits for the end of the process and reaps it.
pub(super) fn reap_blocking(pid: libc::pid_t) -> Option<(Ending, Usage)> {
    wait4(pid, 0)
}

fn wait4(pid: libc::pid_t, options: i32) -> Option<(Ending, Usage)> {
    let mut status = 0;
    // SAFETY: rusage is plain old data, for which zeros are a value.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    loop {
        // SAFETY: both pointers are to locals.
        match unsafe { libc::wait4(pid, &mut status, options, &mut usage) } {
            0 => return None,
            -1 if Errno::last() == Errno::EINTR => {}
            // No child of ours any more, so it has ended; how, nobody can tell. Not to say so would be to
            // wait for it for ever.
            -1 if Errno::last() == Errno::ECHILD => return Some((UNKNOWN, Usage::default())),
            -1 => return None,
            _ => return Some((Ending::from_wait_status(status), Usage::from(&usage))),
        }
    }
}

/// Waits until the descriptor is readable; false if that took longer than `limit_ms`.
pub(super) fn wait_readable(fd: &OwnedFd, limit_ms: i32) -> bool {
    let mut fds = [PollFd::new(fd.as_fd(), PollFlags::POLLIN)];
    loop {
        match poll(&mut fds, PollTimeout::try_from(limit_ms).unwrap_or(PollTimeout::MAX)) {
            Err(Errno::EINTR) => {}
            other => return other.is_ok_and(|ready| ready > 0),
        }
    }
}

/// Waits until the descriptor can be written, without limit.
pub(super) fn wait_writable(fd: &OwnedFd) {
    let mut fds = [PollFd::new(fd.as_fd(), PollFlags::POLLOUT)];
    let _ = poll(&mut fds, PollTimeout::NONE);
}

/// Blocks all signals in the calling thread: they are for the thread that listens for them.
pub(super) fn block_signals() {
    let _ = nix::sys::signal::SigSet::all().thread_block();
}

/// Whether a signal is ignored by this process.
pub(super) fn is_ignored(signal: i32) -> bool {
    // SAFETY: sigaction is plain old data; the call only reads the current disposition into a local.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        libc::sigaction(signal, std::ptr::null(), &mut action) == 0 && action.sa_sigaction == libc::SIG_IGN
    }
}

/// Gives a signal its default effect.
pub(super) fn set_default(signal: i32) {
    dispose(signal, libc::SIG_DFL);
}

/// Nothing happens at a signal from now on.
pub(super) fn ignore(signal: i32) {
    dispose(signal, libc::SIG_IGN);
}

fn dispose(signal: i32, how: libc::sighandler_t) {
    // SAFETY: sigaction is plain old data, zeros are no flags and an empty mask; neither the default nor to
    // be ignored runs code of ours.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = how;
        libc::sigaction(signal, &action, std::ptr::null_mut());
    }
}

/// An epoll with an eventfd in it, so that other threads can wake the one that waits.
pub(super) struct Poller {
    epoll: Epoll,
    bell: EventFd,
}

/// The key under which a [`Poller`] reports its own bell.
pub(super) const BELL: u64 = u64::MAX;

impl Poller {
    pub(super) fn new() -> nix::Result<Self> {
        let epoll = Epoll::new(nix::sys::epoll::EpollCreateFlags::EPOLL_CLOEXEC)?;
        let bell = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?;
        epoll.add(&bell, EpollEvent::new(EpollFlags::EPOLLIN, BELL))?;
        Ok(Self { epoll, bell })
    }

    /// Watches a descriptor for reading.
    pub(super) fn add(&self, fd: impl AsFd, key: u64) -> nix::Result<()> {
        self.epoll.add(fd, EpollEvent::new(EpollFlags::EPOLLIN, key))
    }

    /// Watches a descriptor for reading, once.
    pub(super) fn add_once(&self, fd: impl AsFd, key: u64) -> nix::Result<()> {
        self.epoll.add(fd, EpollEvent::new(EpollFlags::EPOLLIN | EpollFlags::EPOLLONESHOT, key))
    }

    /// Watches a descriptor for reading, and tells of each time that something happened there, not of how it
    /// is: who cannot do anything about it yet is not told again and again.
    pub(super) fn add_news(&self, fd: impl AsFd, key: u64) -> nix::Result<()> {
        self.epoll.add(fd, EpollEvent::new(EpollFlags::EPOLLIN | EpollFlags::EPOLLET, key))
    }

    /// No longer watches it. Needed even before closing it: a child between `clone` and `exec` may still hold
    /// it.
    pub(super) fn remove(&self, fd: impl AsFd) {
        let _ = self.epoll.delete(fd);
    }

    /// Wakes whoever waits.
    pub(super) fn ring(&self) {
        let _ = self.bell.write(1);
    }

    /// Waits at most `limit_ms` (-1: without limit) and calls `each` with the keys that are ready. The bell
    /// is silenced before it is reported.
    pub(super) fn wait(&self, limit_ms: i32, mut each: impl FnMut(u64)) {
        let mut events = [EpollEvent::empty(); 128];
        let limit =
            nix::sys::epoll::EpollTimeout::try_from(limit_ms).unwrap_or(nix::sys::epoll::EpollTimeout::NONE);
        let ready = self.epoll.wait(&mut events, limit).unwrap_or(0);
        for event in &events[..ready] {
            if event.data() == BELL {
                let _ = self.bell.read();
            }
            each(event.data());
        }
    }
}
