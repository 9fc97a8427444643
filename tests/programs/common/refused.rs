//! System calls that are refused, as containers do.

use std::os::unix::process::CommandExt;
use std::process::Command;

/// Has this call refused to a command and all that it starts: EPERM.
pub fn without(call: libc::c_long, command: &mut Command) -> &mut Command {
    const fn step(code: u16, jt: u8, jf: u8, k: u32) -> libc::sock_filter {
        libc::sock_filter { code, jt, jf, k }
    }
    const REFUSE: u32 = libc::SECCOMP_RET_ERRNO | libc::EPERM as u32;
    // The number of the call, and whether it is this one.
    let filter = [
        step(0x20, 0, 0, 0),
        step(0x15, 0, 1, call as u32),
        step(6, 0, 0, REFUSE),
        step(6, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let refuse = move || {
        let program = libc::sock_fprog { len: 4, filter: filter.as_ptr().cast_mut() };
        // SAFETY: two calls that only read what lives as long as they last.
        let done = unsafe {
            libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
            libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, 0, &raw const program)
        };
        if done == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
    };
    // SAFETY: the closure makes system calls only.
    unsafe { command.pre_exec(refuse) }
}
