//! What happens between `clone` and `exec`: the only code that runs in a rank before the rank's program does.
//!
//! Everything that can be prepared (strings, pointers, descriptor numbers) is prepared by the master in a
//! [`Plan`]. The child itself only makes system calls: no allocation, no lock, no formatting, since in one of
//! the two ways of starting it shares the memory of the master, in the other it has a copy of a
//! multi-threaded process.

use std::ffi::{CString, c_char};
use std::os::fd::RawFd;
use std::ptr;
use std::sync::atomic::{AtomicI32, Ordering};

/// The step of the preparation that failed, as left by the child in its [`Report`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub(super) enum Step {
    /// Nothing failed: `exec` replaced the program.
    None = 0,
    /// A new process group.
    Group = 1,
    /// The tie to the master's life.
    Tie = 2,
    /// Joining the memory cgroup.
    Cgroup = 3,
    /// The limit of open files.
    Limits = 4,
    /// Moving a descriptor to its number.
    Descriptors = 5,
    /// The working directory.
    Directory = 6,
    /// `exec`.
    Exec = 7,
    /// Joining a cgroup of its own.
    RankCgroup = 8,
    /// A table of descriptors of its own.
    Table = 9,
}

impl Step {
    fn from_raw(raw: i32) -> Self {
        match raw {
            0 => Self::None,
            1 => Self::Group,
            2 => Self::Tie,
            3 => Self::Cgroup,
            4 => Self::Limits,
            5 => Self::Descriptors,
            6 => Self::Directory,
            8 => Self::RankCgroup,
            9 => Self::Table,
            _ => Self::Exec,
        }
    }

    /// What was tried, for messages.
    pub(super) fn what(self) -> &'static str {
        match self {
            Self::None => "nothing",
            Self::Group => "make a process group (setpgid)",
            Self::Tie => "tie it to the life of the master (prctl PR_SET_PDEATHSIG)",
            Self::Cgroup => "move it into the job's memory cgroup",
            Self::RankCgroup => "move it into its cgroup",
            Self::Table => "give it descriptors of its own (close_range, unshare)",
            Self::Limits => "set its limit of open files (setrlimit)",
            Self::Descriptors => "hand it its descriptors (dup2)",
            Self::Directory => "enter its directory (chdir)",
            Self::Exec => "execute the program",
        }
    }
}

/// Where the child leaves what failed: in memory that both processes see.
#[derive(Default)]
#[repr(C)]
pub(super) struct Report {
    step: AtomicI32,
    errno: AtomicI32,
}

impl Report {
    pub(super) fn clear(&self) {
        self.step.store(0, Ordering::Relaxed);
        self.errno.store(0, Ordering::Relaxed);
    }

    pub(super) fn read(&self) -> (Step, i32) {
        (Step::from_raw(self.step.load(Ordering::Acquire)), self.errno.load(Ordering::Acquire))
    }
}

/// The line of the environment in which a child writes its own number, so that what it executes can tell
/// itself from its children. As long as any number.
const PROCESS: &[u8] = b"BDRUN_PROCESS=0000000000\0";
const DIGITS: usize = 10;

/// Everything the child needs, prepared. The pointer arrays point into the `CString`s, which own the text.
pub(super) struct Plan {
    program: CString,
    _strings: Vec<CString>,
    argv: Vec<*const c_char>,
    shell_argv: Vec<*const c_char>,
    envp: Vec<*const c_char>,
    /// The line of its own number, and where its digits go.
    _process: Vec<u8>,
    digits: *mut u8,
    /// `(source, target)`; no source is a target of this list, so the order does not matter.
    pub(super) descriptors: Vec<(RawFd, RawFd)>,
    /// If the child begins with the master's own table of descriptors: where its copy ends (`low.rs`).
    pub(super) end: Option<RawFd>,
    /// An open `cgroup.procs` to write `0` into, or -1: of the job's memory group.
    pub(super) cgroup: RawFd,
    /// The same of the rank's own group, or of the one it has in common with the others.
    pub(super) rank_cgroup: RawFd,
    /// The master's pid, as the child must see it with `getppid`.
    pub(super) master: libc::pid_t,
    /// The limit of open files to give back.
    pub(super) nofile: libc::rlimit,
    /// Where to run, if not where the master does.
    pub(super) directory: Option<CString>,
    /// The master's controlling terminal, or -1.
    pub(super) terminal: RawFd,
}

impl Plan {
    /// `argv` is the program's name followed by the arguments; `envp` lines are `NAME=value`.
    pub(super) fn new(program: CString, args: Vec<CString>, env: Vec<CString>) -> Self {
        let pointers = |strings: &[CString]| strings.iter().map(|s| s.as_ptr()).collect::<Vec<_>>();
        let arguments = pointers(&args);
        let mut argv = vec![program.as_ptr()];
        argv.extend_from_slice(&arguments);
        argv.push(ptr::null());
        // A script without `#!` is run by the shell, as `execvp` does.
        let mut shell_argv = vec![c"/bin/sh".as_ptr()];
        shell_argv.extend_from_slice(&argv);
        let mut envp = pointers(&env);
        let mut process = PROCESS.to_vec();
        let line = process.as_mut_ptr();
        envp.push(line.cast());
        envp.push(ptr::null());
        let mut strings = args;
        strings.extend(env);
        Self {
            program,
            _strings: strings,
            argv,
            shell_argv,
            envp,
            _process: process,
            digits: line.wrapping_add(PROCESS.len() - 1 - DIGITS),
            descriptors: Vec::new(),
            end: None,
            cgroup: -1,
            rank_cgroup: -1,
            master: 0,
            nofile: libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY },
            directory: None,
            terminal: -1,
        }
    }
}

/// Prepares the process and turns it into the program. Never returns.
///
/// # Safety
/// To be called only in a fresh child, which has nothing but this to do, with all signals blocked: it resets
/// their handlers, moves descriptors and ends the process without running anything of its own.
pub(super) unsafe fn run(plan: &Plan, report: &Report) -> ! {
    let (step, errno) = prepare(plan);
    report.errno.store(errno, Ordering::Release);
    report.step.store(step as i32, Ordering::Release);
    // SAFETY: `_exit` ends this process without running anything of the master's.
    unsafe { libc::_exit(127) }
}

fn errno() -> i32 {
    // SAFETY: `__errno_location` gives this thread's errno.
    unsafe { *libc::__errno_location() }
}

/// Returns only if something failed.
fn prepare(plan: &Plan) -> (Step, i32) {
    // SAFETY: only async-signal-safe system calls on values prepared by the parent, in a process of its own.
    unsafe {
        // Handlers of the master must not run here, and what it ignores (SIGPIPE) must not be inherited.
        // Before any signal is unblocked. By the bare system call, because libc hides its own two signals
        // (which may have been ignored by our parent); zeros in the kernel's structure are the default.
        let default = [0_u64; 4];
        for signal in 1..=64 {
            libc::syscall(libc::SYS_rt_sigaction, signal, default.as_ptr(), ptr::null::<u64>(), 8_usize);
        }
        if libc::setpgid(0, 0) != 0 {
            return (Step::Group, errno());
        }
        // No terminal of its own to ask: to read it from the background is to be stopped, unsaid, for ever.
        // To open it is an error now, which a program says. Not `setsid`, which would give each rank the
        // same share of the processors as all threads of the master together (autogroups). Where it fails
        // nothing is lost.
        if plan.terminal >= 0 {
            libc::ioctl(plan.terminal, libc::TIOCNOTTY);
        }
        if libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL as libc::c_ulong, 0, 0, 0) != 0 {
            return (Step::Tie, errno());
        }
        // The master may have died before the line above; then nobody would send the signal any more.
        if libc::getppid() != plan.master {
            libc::_exit(127);
        }
        for (procs, step) in [(plan.cgroup, Step::Cgroup), (plan.rank_cgroup, Step::RankCgroup)] {
            if procs >= 0 && libc::write(procs, c"0".as_ptr().cast(), 1) != 1 {
                return (step, errno());
            }
        }
        // Before anything is done to descriptors: in a table that is shared it would be done to the master.
        if let Some(end) = plan.end
            && libc::syscall(libc::SYS_close_range, end, u32::MAX, libc::CLOSE_RANGE_UNSHARE) != 0
            && libc::unshare(libc::CLONE_FILES) != 0
        {
            return (Step::Table, errno());
        }
        for &(source, target) in &plan.descriptors {
            if libc::dup2(source, target) < 0 {
                return (Step::Descriptors, errno());
            }
        }
        if let Some(directory) = &plan.directory
            && libc::chdir(directory.as_ptr()) != 0
        {
            return (Step::Directory, errno());
        }
        // After the descriptors: a target may lie above the limit given back.
        if libc::setrlimit(libc::RLIMIT_NOFILE, &plan.nofile) != 0 {
            return (Step::Limits, errno());
        }
        let mut number = libc::getpid();
        for at in (0..DIGITS).rev() {
            // Memory of the plan, or a copy of it, which nobody reads meanwhile.
            plan.digits.add(at).write(b'0' + (number % 10) as u8);
            number /= 10;
        }
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &none, ptr::null_mut());
        libc::execve(plan.program.as_ptr(), plan.argv.as_ptr(), plan.envp.as_ptr());
        if errno() == libc::ENOEXEC {
            libc::execve(c"/bin/sh".as_ptr(), plan.shell_argv.as_ptr(), plan.envp.as_ptr());
        }
        (Step::Exec, errno())
    }
}
