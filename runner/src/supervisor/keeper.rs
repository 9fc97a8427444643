//! Two helper processes whose only task is to outlive or to end with the master.
//!
//! The *keeper* is process 1 of the job's PID namespace. When it ends, the kernel kills every process of the
//! namespace: ranks, their children, and children that made a session of their own. It ends with the master by two
//! independent ways: the parent-death signal, and a pipe whose only write end the master holds, so that no moment
//! between `fork` and `prctl` is unguarded. Orphans of the namespace become its children; it ignores SIGCHLD, so
//! the kernel reaps them.
//!
//! The *janitor* exists where there is no namespace, or where there are cgroups: after a SIGKILL of the master it kills what is
//! left of the ranks' process groups and in their cgroups (which hold also what has left its process group; a frozen
//! process is thawed when its death is certain), waits until the job's cgroups are empty, removes them and ends. It
//! gives up after ten seconds.
//!
//! Both are plain forks of the multi-threaded master and so only make system calls. They share the master's pages,
//! hold no descriptor but the pipe, and sleep all their life.

use super::SuperviseError;
use super::roster::Roster;
use super::sys;
use std::ffi::{CStr, CString};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

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

/// A cgroup that the janitor removes.
pub(super) struct Room {
    path: CString,
    /// The groups directly below it are of ranks: what lives in them is killed, and they are removed first.
    ranks: bool,
}

impl Room {
    /// One without groups of ours below it.
    pub(super) fn bare(path: CString) -> Self {
        Self { path, ranks: false }
    }

    /// The one that holds the ranks' groups. An existing directory, so its path has no zero byte.
    pub(super) fn of_ranks(path: &Path) -> Self {
        Self { path: CString::new(path.as_os_str().as_bytes()).unwrap_or_default(), ranks: true }
    }
}

/// Starts the janitor for these cgroups (innermost first).
pub(super) fn start_janitor(rooms: &[Room], roster: &Roster) -> Result<Helper, SuperviseError> {
    start("the janitor of the job's cgroup", |pipe| janitor(pipe, rooms, roster))
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

fn janitor(pipe: RawFd, rooms: &[Room], roster: &Roster) -> u8 {
    // SAFETY: a system call on a constant.
    unsafe { libc::prctl(libc::PR_SET_NAME, c"bdrun-janitor".as_ptr(), 0, 0, 0) };
    sleep_until_closed(pipe);
    // The ranks themselves die by their parent-death signal.
    roster.kill_groups();
    let pause = libc::timespec { tv_sec: 0, tv_nsec: 5_000_000 };
    for _ in 0..2_000 {
        let mut left = false;
        for room in rooms {
            if room.ranks {
                empty(&room.path);
            }
            // SAFETY: removes an empty directory; the path is a valid C string of the copied address space.
            let removed = unsafe { libc::rmdir(room.path.as_ptr()) } == 0;
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

/// Kills whatever lives in the groups directly below this one, and removes those that are empty. By bare system calls
/// on buffers of the stack, as everything here.
fn empty(room: &CStr) {
    // Aligned as the kernel's records are.
    let mut buffer = [0_u64; 512];
    // SAFETY: system calls on valid strings and on a buffer of which its own size is told.
    unsafe {
        let directory = libc::open(room.as_ptr(), libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC);
        if directory < 0 {
            return;
        }
        loop {
            let start = buffer.as_mut_ptr().cast::<u8>();
            let got = libc::syscall(libc::SYS_getdents64, directory, start, size_of_val(&buffer));
            let Some(end) = usize::try_from(got).ok().filter(|&end| end > 0) else { break };
            let mut at = 0;
            while at < end {
                // A record: number (8), offset (8), length (2), kind (1), name.
                let record = start.add(at);
                let length = usize::from(record.add(16).cast::<u16>().read_unaligned());
                let name = record.add(19).cast::<libc::c_char>();
                if record.add(18).read() == libc::DT_DIR && name.cast::<u8>().read() != b'.' {
                    empty_group(directory, name);
                }
                at += length.max(1);
            }
        }
        libc::close(directory);
    }
}

/// # Safety
/// `directory` must be open and `name` a valid C string.
unsafe fn empty_group(directory: RawFd, name: *const libc::c_char) {
    // SAFETY: as above; the constants are valid strings.
    unsafe {
        let group = libc::openat(directory, name, libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC);
        if group >= 0 {
            if !put(group, c"cgroup.kill", c"1") {
                kill_listed(group);
                // Only now: nothing of it runs again.
                put(group, c"freezer.state", c"THAWED");
                put(group, c"cgroup.freeze", c"0");
            }
            libc::close(group);
        }
        libc::unlinkat(directory, name, libc::AT_REMOVEDIR);
    }
}

/// Writes a word into a file of a group, if there is such a file.
fn put(group: RawFd, file: &CStr, word: &CStr) -> bool {
    // SAFETY: system calls on valid strings.
    unsafe {
        let file = libc::openat(group, file.as_ptr(), libc::O_WRONLY | libc::O_CLOEXEC);
        if file < 0 {
            return false;
        }
        let length = word.count_bytes();
        let written = libc::write(file, word.as_ptr().cast(), length);
        libc::close(file);
        usize::try_from(written) == Ok(length)
    }
}

/// Kills the first few hundred processes of a group; the next turn kills the next.
fn kill_listed(group: RawFd) {
    let mut text = [0_u8; 4096];
    // SAFETY: system calls on a valid string and on a buffer of which its own size is told; the numbers are positive.
    unsafe {
        let list = libc::openat(group, c"cgroup.procs".as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC);
        if list < 0 {
            return;
        }
        let got = libc::read(list, text.as_mut_ptr().cast(), text.len());
        libc::close(list);
        let mut pid: libc::pid_t = 0;
        // A number that is cut off at the end has no line end and is not used.
        for &byte in text.iter().take(usize::try_from(got).unwrap_or(0)) {
            if byte.is_ascii_digit() {
                pid = pid.saturating_mul(10).saturating_add(libc::pid_t::from(byte - b'0'));
            } else {
                if pid > 1 {
                    libc::kill(pid, libc::SIGKILL);
                }
                pid = 0;
            }
        }
    }
}
