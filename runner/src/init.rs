//! bdrun as process 1, which it is in a container that runs nothing else. Whoever loses its parent becomes a
//! child of process 1, and stays in the table of processes until that reaps it. So a process that does
//! nothing else stands in as process 1, and bdrun goes on as its child, which waits only for children of its
//! own.

use std::ptr;

use crate::supervisor::keep_ended_children;

/// In process 1: makes the process that goes on as bdrun, in which this returns, and ends as that does. To be
/// called before there are threads. Elsewhere it does nothing.
pub fn stand_in() {
    if std::process::id() != 1 {
        return;
    }
    keep_ended_children();
    // SAFETY: a set of signals is plain old data; both are locals. There is one thread, so the child of the
    // fork may do what its parent might.
    unsafe {
        let (mut all, mut before): (libc::sigset_t, libc::sigset_t) =
            (std::mem::zeroed(), std::mem::zeroed());
        libc::sigfillset(&mut all);
        // What is blocked is kept until it is waited for, also by process 1, which else ignores it.
        libc::sigprocmask(libc::SIG_SETMASK, &all, &mut before);
        let child = libc::fork();
        if child > 0 {
            let code = serve(child, &all);
            libc::_exit(code);
        }
        // In the child; or there can be none, and orphans are not reaped.
        libc::sigprocmask(libc::SIG_SETMASK, &before, ptr::null_mut());
    }
}

/// Reaps whoever ends and hands on signals until the child has ended: its exit code.
fn serve(child: libc::pid_t, all: &libc::sigset_t) -> i32 {
    loop {
        let mut status = 0;
        loop {
            // SAFETY: writes to a local.
            match unsafe { libc::waitpid(-1, &mut status, libc::WNOHANG) } {
                ended if ended == child => {
                    return if libc::WIFSIGNALED(status) {
                        128 + libc::WTERMSIG(status)
                    } else {
                        libc::WEXITSTATUS(status)
                    };
                }
                ended if ended > 0 => {}
                _ => break,
            }
        }
        // SAFETY: plain old data, for which zeros are a value.
        let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
        // SAFETY: reads the set, writes to a local.
        let signal = unsafe { libc::sigwaitinfo(all, &mut info) };
        // What the terminal sends it sends to the child too, which is in the same process group.
        if signal > 0 && signal != libc::SIGCHLD && info.si_code != libc::SI_KERNEL {
            // SAFETY: plain system call; the child is not reaped, so the number is its own.
            unsafe { libc::kill(child, signal) };
        }
    }
}
