//! Where the descriptor comes from through which an address space is served: a thread of the rank is made to
//! open it, and to close it again when this process has taken it over.

use super::serve_failed;
use crate::pager::other::error::OtherError;
use crate::pager::other::inject::Session;
use crate::pager::other::space::Space;
use crate::pager::other::stop::Threads;
use crate::sys::{Errno, Fd};

/// Of a pidfd: of a thread, which may have descriptors of its own (Linux 6.9).
const PIDFD_THREAD: i32 = libc::O_EXCL;

/// Has a thread make a descriptor, takes it over, and has the thread close it.
pub(super) fn of(threads: &Threads, space: &Space) -> Result<Fd, OtherError> {
    // Whoever has the memory need not have the descriptors: a child of vfork has its own.
    let caller = (space.caller, threads.process_of(space.caller).unwrap_or(space.processes[0]));
    let mut session = Session::begin(threads, space)?;
    let flags = (libc::O_CLOEXEC | libc::O_NONBLOCK) as u64;
    let made = session.call(libc::SYS_userfaultfd, [flags, 0, 0])?;
    let taken = if made < 0 { Err(Errno(-made as i32)) } else { take(caller, made as i32) };
    if made >= 0 {
        session.call(libc::SYS_close, [made as u64, 0, 0])?;
    }
    session.park(space)?;
    taken.map_err(|errno| serve_failed(space.processes[0], errno))
}

/// A descriptor for the same as that of a thread, and its process.
fn take((tid, process): (i32, i32), fd: i32) -> Result<Fd, Errno> {
    let open = |id: i32, flags: i32| {
        // SAFETY: makes a descriptor, which is closed on drop.
        match unsafe { libc::syscall(libc::SYS_pidfd_open, id, flags) } {
            n if n >= 0 => Ok(Fd(n as i32)),
            _ => Err(Errno::last()),
        }
    };
    let owner = open(tid, PIDFD_THREAD).or_else(|_| open(process, 0))?;
    // SAFETY: as above.
    match unsafe { libc::syscall(libc::SYS_pidfd_getfd, owner.0, fd, 0) } {
        n if n >= 0 => Ok(Fd(n as i32)),
        _ => Err(Errno::last()),
    }
}
