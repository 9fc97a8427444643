//! What this machine lets the master do to its own children.

use std::fmt;
use std::io;
use std::time::{Duration, Instant};

use crate::cgroups::{Kind, RankGroups};

/// How a rank can be stopped where ptrace is forbidden.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Freezer {
    /// `cgroup.freeze` of its group (version 2).
    V2,
    /// `freezer.state` of its group (version 1).
    V1,
    /// SIGSTOP to each of its processes.
    Signals,
}

impl fmt::Display for Freezer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::V2 => "the cgroup v2 freezer",
            Self::V1 => "the cgroup v1 freezer",
            Self::Signals => "SIGSTOP",
        })
    }
}

/// What is permitted, for a note to the user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Permits {
    /// Whether ranks can be paged out by ptrace; else why not and what would help, in one sentence.
    pub ptrace: Result<(), String>,
    /// How ranks can be stopped otherwise.
    pub freezer: Freezer,
    /// Whether each rank has a cgroup of its own; else what was tried, in which case children that leave
    /// session and parents behind may be missed.
    pub cgroups: Result<(), String>,
}

impl Permits {
    /// Finds out: stops a child, reads its memory, and lets it go. About 1 ms. Groups are those of the
    /// supervisor.
    pub(crate) fn probe(groups: Result<&RankGroups, String>) -> Self {
        let freezer = match groups.as_ref().map(|groups| groups.kind()) {
            Ok(Kind::V2) => Freezer::V2,
            Ok(Kind::Freezer) => Freezer::V1,
            Ok(Kind::List) | Err(_) => Freezer::Signals,
        };
        let ptrace = can_ptrace().map_err(|(what, error)| explain(what, &error));
        Self { ptrace, freezer, cgroups: groups.map(drop) }
    }
}

fn explain(what: &str, error: &io::Error) -> String {
    let remedy = match (error.raw_os_error(), yama()) {
        (Some(libc::EPERM | libc::EACCES), Some(scope @ 2..)) => format!(
            "the kernel forbids it (kernel.yama.ptrace_scope = {scope}): as root, `sysctl kernel.yama.ptrace_scope=1`"
        ),
        (Some(libc::EPERM | libc::EACCES | libc::ENOSYS), _) => "a seccomp filter or a security module forbids it: \
            in a container, allow it (`--cap-add=SYS_PTRACE`, or a seccomp profile with ptrace and process_vm_readv)"
            .to_owned(),
        _ => "this was not expected".to_owned(),
    };
    format!("{what}: {error}; {remedy}")
}

fn yama() -> Option<u32> {
    std::fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").ok()?.trim().parse().ok()
}

/// Does to a child what paging does to a rank. The error says which step failed.
fn can_ptrace() -> Result<(), (&'static str, io::Error)> {
    static MARK: u64 = 0x6264_7275_6e21_7074;
    let child = Child::start().map_err(|error| ("fork", error))?;
    let failed = |what| move || (what, io::Error::last_os_error());
    let check = |fine: bool, what| if fine { Ok(()) } else { Err(failed(what)()) };
    let options = libc::PTRACE_O_EXITKILL | libc::PTRACE_O_TRACECLONE;
    // SAFETY: ptrace requests on our own child, without memory of ours.
    unsafe {
        let none = std::ptr::null_mut::<libc::c_void>();
        let seized = libc::ptrace(libc::PTRACE_SEIZE, child.0, none, options as usize as *mut libc::c_void);
        check(seized == 0, "PTRACE_SEIZE of a child")?;
        check(libc::ptrace(libc::PTRACE_INTERRUPT, child.0, none, none) == 0, "PTRACE_INTERRUPT of a child")?;
    }
    // A child that cannot be stopped must not hold the master up.
    // It is asked once more after that: this thread may have been kept from looking.
    let deadline = Instant::now() + Duration::from_secs(120);
    loop {
        let mut status = 0;
        let is_over = Instant::now() >= deadline;
        // SAFETY: waits for the child just made; the pointer is to a local.
        match unsafe { libc::waitpid(child.0, &mut status, libc::__WALL | libc::WNOHANG) } {
            0 if !is_over => std::thread::sleep(Duration::from_micros(100)),
            0 => return Err(("stopping a child", io::Error::from(io::ErrorKind::TimedOut))),
            -1 => return Err(failed("waiting for a stopped child")()),
            _ if libc::WIFSTOPPED(status) => break,
            _ => return Err(("stopping a child", io::Error::other("it ended"))),
        }
    }
    let mut copy = 0_u64;
    let local = libc::iovec { iov_base: (&raw mut copy).cast(), iov_len: 8 };
    let remote = libc::iovec { iov_base: (&raw const MARK).cast_mut().cast(), iov_len: 8 };
    // SAFETY: reads eight bytes of the child, at the address of a constant that it has too, into a local.
    let read = unsafe { libc::process_vm_readv(child.0, &local, 1, &remote, 1, 0) };
    check(read == 8, "process_vm_readv from a child")?;
    if copy != MARK {
        return Err(("process_vm_readv from a child", io::Error::other("it read something else")));
    }
    Ok(())
}

/// A child that sleeps until it is dropped.
struct Child(libc::pid_t);

impl Child {
    fn start() -> io::Result<Self> {
        // SAFETY: the child of a process that may have threads makes only system calls and never returns.
        match unsafe { libc::fork() } {
            -1 => Err(io::Error::last_os_error()),
            0 => loop {
                // SAFETY: system calls on constants.
                unsafe {
                    libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL as libc::c_ulong, 0, 0, 0);
                    libc::pause();
                }
            },
            pid => Ok(Self(pid)),
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        let mut status = 0;
        // SAFETY: ends and reaps the child just made; the pointer is to a local.
        unsafe {
            libc::kill(self.0, libc::SIGKILL);
            while libc::waitpid(self.0, &mut status, libc::__WALL) >= 0 && libc::WIFSTOPPED(status) {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_names_the_remedy() {
        let denied = io::Error::from_raw_os_error(libc::EPERM);
        let text = explain("PTRACE_SEIZE of a child", &denied);
        assert!(text.starts_with("PTRACE_SEIZE of a child: Operation not permitted"), "{text}");
        assert!(text.contains("seccomp") || text.contains("ptrace_scope"), "{text}");
    }

    #[test]
    fn a_child_can_be_stopped_and_read_or_the_reason_is_named() {
        match can_ptrace() {
            Ok(()) => {}
            Err((what, error)) => println!("not permitted here: {}", explain(what, &error)),
        }
        // Whatever came out, no child is left: there is none that has this as its parent and sleeps in
        // `pause`.
        let permits = Permits::probe(Err("not tried".into()));
        assert_eq!(permits.freezer, Freezer::Signals);
        assert_eq!(permits.cgroups, Err("not tried".into()));
    }
}
