//! A rank that another process traces, as a debugger does: its end is that one's first.

use super::*;
use std::fs::File;
use std::os::fd::AsRawFd;

/// A process that traces another, and does not ask how it ends. Dropped, it lets go.
pub(in super::super) struct Tracer(libc::pid_t);

impl Tracer {
    /// None, and said, if that is not permitted.
    pub(in super::super) fn start(traced: libc::pid_t) -> Option<Self> {
        let (told, tells) = sys::pipe().unwrap();
        // SAFETY: the child makes only async-signal-safe calls, on copies of these locals, until it is
        // killed.
        let pid = unsafe {
            let pid = libc::fork();
            if pid == 0 {
                let traces = libc::ptrace(libc::PTRACE_SEIZE, traced, 0_usize, 0_usize) == 0;
                let byte = u8::from(traces);
                libc::write(tells.as_raw_fd(), (&raw const byte).cast(), 1);
                loop {
                    libc::pause();
                }
            }
            pid
        };
        assert!(pid > 0, "fork");
        let tracer = Self(pid);
        let mut traces = [0];
        File::from(told).read_exact(&mut traces).expect("the tracer speaks");
        if traces == [1] {
            return Some(tracer);
        }
        bdrun_skipped::skipped("root", "a process that is not its child may not be traced");
        None
    }
}

impl Drop for Tracer {
    fn drop(&mut self) {
        sys::kill(self.0, libc::SIGKILL);
        sys::reap_blocking(self.0);
    }
}

#[test]
fn an_end_is_reported_when_its_tracer_has_let_go() {
    let rig = rig(Config::default());
    rig.shell(0, "exec sleep 1000");
    let pid = match rig.next() {
        Happening::Spawned { pid, .. } => pid,
        other => panic!("{other:?}"),
    };
    let Some(tracer) = Tracer::start(pid) else { return };
    let pidfd = sys::pidfd_open(pid).unwrap();
    rig.supervisor.signal(0, libc::SIGKILL);
    assert!(sys::wait_readable(&pidfd, 60_000), "it ends, traced or not");
    assert!(sys::is_child(pid), "nobody can have reaped it");
    drop(tracer);
    let ends = rig.ends(1);
    assert!(matches!(ends[..], [(0, Ending::Signal { signal: libc::SIGKILL, .. }, OomKill::No)]), "{ends:?}");
    rig.finish();
}
