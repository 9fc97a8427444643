//! How a child comes into being that prepares itself (`child.rs`) and turns into a rank's program.

use super::child::{self, Plan, Report, Step};
use nix::sys::mman::{MapFlags, ProtFlags, mmap_anonymous, mprotect, munmap};
use std::ffi::{c_int, c_void};
use std::num::NonZeroUsize;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;

/// The stack of a child between `clone` and `exec`, with a page below that faults.
struct Stack {
    base: NonNull<c_void>,
}

const STACK: NonZeroUsize = NonZeroUsize::new(64 << 10).expect("not zero");

impl Stack {
    fn new() -> nix::Result<Self> {
        // SAFETY: a fresh private mapping; its lowest page is made inaccessible.
        unsafe {
            let base = mmap_anonymous(
                None,
                STACK,
                ProtFlags::PROT_READ | ProtFlags::PROT_WRITE,
                MapFlags::MAP_PRIVATE | MapFlags::MAP_STACK,
            )?;
            mprotect(base, 4096, ProtFlags::PROT_NONE)?;
            Ok(Self { base })
        }
    }

    fn top(&self) -> *mut c_void {
        self.base.as_ptr().wrapping_byte_add(STACK.get())
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        // SAFETY: our own mapping, on which nobody runs any more: every child has execed or exited.
        let _ = unsafe { munmap(self.base, STACK.get()) };
    }
}

/// A page that stays common to both sides even of a `clone` that copies memory.
struct SharedReport {
    page: NonNull<Report>,
}

const PAGE: NonZeroUsize = NonZeroUsize::new(4096).expect("not zero");

impl SharedReport {
    fn new() -> nix::Result<Self> {
        // SAFETY: a fresh mapping of zeros, which are a valid `Report` (two atomic integers).
        let page = unsafe {
            mmap_anonymous(None, PAGE, ProtFlags::PROT_READ | ProtFlags::PROT_WRITE, MapFlags::MAP_SHARED)?
        };
        Ok(Self { page: page.cast() })
    }

    fn get(&self) -> &Report {
        // SAFETY: mapped as long as `self` lives; only ever accessed through atomics.
        unsafe { self.page.as_ref() }
    }
}

impl Drop for SharedReport {
    fn drop(&mut self) {
        // SAFETY: our own mapping; no child that could write to it exists before its `exec` any more.
        let _ = unsafe { munmap(self.page.cast(), PAGE.get()) };
    }
}

/// What children need before they are their programs, one at a time.
pub(super) struct Birth {
    stack: Stack,
    report: SharedReport,
}

/// What the child is handed.
struct Start<'a> {
    plan: &'a Plan,
    report: &'a Report,
}

impl Birth {
    pub(super) fn new() -> nix::Result<Self> {
        Ok(Self { stack: Stack::new()?, report: SharedReport::new()? })
    }

    /// Forgets what the last child reported.
    pub(super) fn clear(&self) {
        self.report.get().clear();
    }

    /// What the last child reported: which step failed, and why.
    pub(super) fn report(&self) -> (Step, i32) {
        self.report.get().read()
    }

    /// Makes a child that shares our memory until it execs, on a stack of its own. Returns when it has execed
    /// or ended.
    ///
    /// # Safety
    /// All signals are blocked in the calling thread: the child has our handlers, and they would run in it,
    /// on our memory.
    pub(super) unsafe fn beside(&self, plan: &Plan) -> nix::Result<(libc::pid_t, OwnedFd)> {
        // In here, so that nobody else can call it.
        extern "C" fn enter(start: *mut c_void) -> c_int {
            // SAFETY: `clone` below passes a `Start`, which lives until this child has execed or exited.
            let start = unsafe { &*start.cast::<Start<'_>>() };
            // SAFETY: a fresh child.
            unsafe { child::run(start.plan, start.report) }
        }
        let start = Start { plan, report: self.report.get() };
        let mut pidfd: c_int = -1;
        let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::CLONE_PIDFD | libc::SIGCHLD | table(plan);
        // SAFETY: the child runs `enter` on a stack of its own, makes only system calls, and `start` outlives
        // it (CLONE_VFORK suspends this thread until it has execed or exited).
        let pid = unsafe {
            let start = (&raw const start).cast_mut().cast();
            libc::clone(enter, self.stack.top(), flags, start, &raw mut pidfd)
        };
        made(pid.into(), pidfd)
    }

    /// Makes a child in a cgroup (v2, `clone3`), with a copy of the memory instead of a stack. The same
    /// otherwise.
    ///
    /// # Safety
    /// As [`beside`](Self::beside): the handlers would run in the child, in the middle of what other threads
    /// had begun.
    pub(super) unsafe fn in_cgroup(
        &self,
        plan: &Plan,
        group: &OwnedFd,
    ) -> nix::Result<(libc::pid_t, OwnedFd)> {
        let mut pidfd: c_int = -1;
        // SAFETY: clone_args is plain old data, for which zeros mean "nothing asked".
        let mut args: libc::clone_args = unsafe { std::mem::zeroed() };
        args.flags = (libc::CLONE_VFORK | libc::CLONE_PIDFD | table(plan)) as u64 | CLONE_INTO_CGROUP;
        args.exit_signal = libc::SIGCHLD as u64;
        args.pidfd = (&raw mut pidfd) as u64;
        args.cgroup = group.as_raw_fd() as u64;
        // SAFETY: as `fork`: the child has a copy of this stack and makes only system calls until `exec` or
        // `_exit`.
        match unsafe { libc::syscall(libc::SYS_clone3, &raw mut args, size_of::<libc::clone_args>()) } {
            // SAFETY: a fresh child.
            0 => unsafe { child::run(plan, self.report.get()) },
            pid => made(pid, pidfd),
        }
    }
}

/// Whose table of descriptors the child begins with.
fn table(plan: &Plan) -> c_int {
    if plan.end.is_some() { libc::CLONE_FILES } else { 0 }
}

/// The constant of libc is too narrow.
const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;

fn made(pid: libc::c_long, pidfd: c_int) -> nix::Result<(libc::pid_t, OwnedFd)> {
    if pid < 0 {
        return Err(nix::Error::last());
    }
    // SAFETY: CLONE_PIDFD has stored a new descriptor that nobody else owns.
    Ok((pid as libc::pid_t, unsafe { OwnedFd::from_raw_fd(pidfd) }))
}
