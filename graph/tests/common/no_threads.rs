//! A system that has no thread left.

use std::io;

/// Does something on a thread for which the kernel makes no other: it says that there are too many (EAGAIN),
/// as where a limit of processes is reached, which root does not have. None where it has no such filters.
pub fn without_threads<T: Send>(work: impl FnOnce() -> T + Send) -> Option<T> {
    const fn step(code: u16, jt: u8, jf: u8, k: u32) -> libc::sock_filter {
        libc::sock_filter { code, jt, jf, k }
    }
    const REFUSE: u32 = libc::SECCOMP_RET_ERRNO | libc::EAGAIN as u32;
    // The number of the call; if it is clone or clone3, EAGAIN.
    let filter = [
        step(0x20, 0, 0, 0),
        step(0x15, 2, 0, libc::SYS_clone as u32),
        step(0x15, 1, 0, libc::SYS_clone3 as u32),
        step(6, 0, 0, libc::SECCOMP_RET_ALLOW),
        step(6, 0, 0, REFUSE),
    ];
    let alone = || {
        let program = libc::sock_fprog { len: 5, filter: filter.as_ptr().cast_mut() };
        // SAFETY: two calls that only read what lives until they return; they are about this thread alone.
        let done = unsafe {
            libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
            libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, 0, &raw const program)
        };
        if done == 0 { Ok(work()) } else { Err(io::Error::last_os_error()) }
    };
    match std::thread::scope(|scope| scope.spawn(alone).join()) {
        Ok(Ok(result)) => Some(result),
        Ok(Err(error)) => {
            bdrun_skipped::skipped("seccomp", format!("no system call filters here: {error}"));
            None
        }
        Err(panic) => std::panic::resume_unwind(panic),
    }
}
