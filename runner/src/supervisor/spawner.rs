//! The thread that makes all processes, and how one is made.
//!
//! A rank is started with `clone(CLONE_VM | CLONE_VFORK)`, as `posix_spawn` does: no page table is copied, and the
//! call returns when the rank's program runs or has failed, with the reason in shared memory. The child runs on a
//! stack of its own, with all signals blocked until its dispositions are the default ones (see `child.rs`).
//!
//! A rank is born in its memory cgroup, because moving a process there costs milliseconds: in v1 this thread itself
//! is in the group (charges of the master's memory follow its first thread, so they are not affected), in v2
//! `clone3(CLONE_INTO_CGROUP)` does it, or, where that is not permitted, the child moves itself. Into a cgroup of its
//! own (`measure/cgroup.rs`), where nothing has to be charged anew, the child always moves itself.

use super::cgroup::Entry;
use super::child::{self, Plan, Start, Step};
use super::pen::Mark;
use super::table::Process;
use super::{Happening, Shared, SpawnError, SpawnSpec, Stdin, SuperviseError, output, reaper};
use super::{sys, thread};
use crate::measure::{Group, RankCgroup};
use crossbeam_channel::{Receiver, Sender, bounded, unbounded};
use nix::sys::mman::{MapFlags, ProtFlags, mmap_anonymous, mprotect, munmap};
use std::ffi::{CString, OsStr, OsString, c_void};
use std::fs::File;
use std::io::{self, IsTerminal};
use std::num::NonZeroUsize;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::ptr::NonNull;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

enum Command {
    Spawn(Box<SpawnSpec>, u64),
    Stop,
}

/// The thread.
pub(super) struct Handle {
    commands: Sender<Command>,
    stopped: Receiver<()>,
    release: Sender<()>,
    thread: Option<JoinHandle<()>>,
}

impl Handle {
    pub(super) fn spawn(&self, spec: SpawnSpec, generation: u64) {
        let _ = self.commands.send(Command::Spawn(Box::new(spec), generation));
    }

    /// After this no process is made any more. False if that took longer than `patience`.
    pub(super) fn stop(&self, patience: Duration) -> bool {
        let _ = self.commands.send(Command::Stop);
        self.stopped.recv_timeout(patience).is_ok()
    }

    /// Lets the thread end. To be called when all ranks are reaped; `stopped` is what [`stop`](Self::stop) returned.
    pub(super) fn release(&mut self, stopped: bool) {
        let _ = self.release.send(());
        // A thread that hangs in an `exec` is left alone.
        if let Some(thread) = self.thread.take()
            && stopped
        {
            let _ = thread.join();
        }
    }
}

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
    page: NonNull<child::Report>,
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

    fn get(&self) -> &child::Report {
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

struct Spawner {
    shared: Arc<Shared>,
    output: output::Feed,
    watch: reaper::Watch,
    stack: Stack,
    report: SharedReport,
    null: File,
    entry: Entry,
    next: u64,
}

/// Starts the thread; returns when it is ready to make processes.
pub(super) fn start(
    shared: Arc<Shared>,
    output: &output::Handle,
    reaper: &reaper::Handle,
) -> Result<Handle, SuperviseError> {
    let (commands, receiver) = unbounded();
    let (ready_sender, ready) = bounded(1);
    let (stopped_sender, stopped) = bounded(1);
    let (release, released) = bounded(1);
    let (feed, watch) = (output.feed(), reaper.watch());
    let thread = thread("bdrun-spawner", move || match Spawner::prepare(shared, feed, watch) {
        Err(error) => {
            let _ = ready_sender.send(Err(error));
        }
        Ok(mut spawner) => {
            let _ = ready_sender.send(Ok(()));
            for command in receiver {
                match command {
                    Command::Spawn(spec, generation) => spawner.spawn(*spec, generation),
                    Command::Stop => break,
                }
            }
            let _ = stopped_sender.send(());
            // The ranks' parent-death signal fires when this thread ends.
            let _ = released.recv();
        }
    })?;
    match ready.recv() {
        Ok(prepared) => prepared?,
        Err(_) => {
            let source = io::Error::other("it ended at once");
            return Err(SuperviseError::Thread { name: "bdrun-spawner", source });
        }
    }
    Ok(Handle { commands, stopped, release, thread: Some(thread) })
}

impl Spawner {
    fn prepare(
        shared: Arc<Shared>,
        output: output::Feed,
        watch: reaper::Watch,
    ) -> Result<Self, SuperviseError> {
        let setup = super::setup;
        let stack = Stack::new().map_err(setup("stack of a child"))?;
        let report = SharedReport::new().map_err(setup("page shared with a child"))?;
        let null = File::options().read(true).write(true).open("/dev/null");
        let null = null.map_err(|source| SuperviseError::Setup { what: "/dev/null", source })?;
        let entry = shared.cgroup.as_ref().map_or(Ok(Entry::None), |group| group.entry())?;
        Ok(Self { shared, output, watch, stack, report, null, entry, next: 0 })
    }

    fn spawn(&mut self, spec: SpawnSpec, generation: u64) {
        let rank = spec.rank;
        if let Err(error) = self.try_spawn(spec, generation) {
            self.output.never_was(rank);
            (self.shared.report)(Happening::SpawnFailed { rank, error });
        }
    }

    fn try_spawn(&mut self, spec: SpawnSpec, generation: u64) -> Result<(), SpawnError> {
        let rank = spec.rank;
        if !self.shared.table.wants(generation) {
            return Err(SpawnError::Cancelled);
        }
        let no_pipe = |source: nix::Error| SpawnError::Descriptors { source: source.into() };
        let stdout = Target::open(spec.stdout.as_deref(), "standard output", None)?;
        let same = spec.stdout.is_some() && spec.stdout == spec.stderr;
        let stderr = Target::open(spec.stderr.as_deref(), "standard error", same.then_some(&stdout))?;
        let program = text(spec.program.as_os_str())?;
        let args = spec.args.iter().map(|arg| text(arg)).collect::<Result<_, _>>()?;
        let mark = self.shared.pen.mark().map(Mark::variable);
        let mut plan = Plan::new(program, args, environment(&spec.env, mark)?);
        plan.directory = spec.directory.as_ref().map(|path| text(path.as_os_str())).transpose()?;
        let stdin = io::stdin();
        let file;
        let stdin = match &spec.stdin {
            Stdin::Inherit if !stdin.is_terminal() => stdin.as_fd(),
            Stdin::Inherit | Stdin::Null => self.null.as_fd(),
            Stdin::File(path) => {
                file = open(File::options().read(true), path, "standard input")?;
                file.as_fd()
            }
        };
        let targets = spec.fds.iter().map(|(_, target)| *target);
        let lowest = targets.max().unwrap_or(2).max(2) + 1;
        let mut moved = Vec::new();
        let standard = [(stdin, 0), (stdout.theirs.as_fd(), 1), (stderr.theirs.as_fd(), 2)];
        let given = spec.fds.iter().map(|(source, target)| (source.as_fd(), *target));
        for (source, target) in standard.into_iter().chain(given) {
            let mut number: RawFd = source.as_raw_fd();
            if number < lowest {
                let duplicate = sys::duplicate_above(source, lowest).map_err(no_pipe)?;
                number = duplicate.as_raw_fd();
                moved.push(duplicate);
            }
            plan.descriptors.push((number, target));
        }
        plan.nofile = self.shared.nofile;
        plan.master = nix::unistd::getpid().as_raw();
        let group = match &self.shared.groups {
            Ok(groups) => Some(groups.create_rank(rank).map_err(|source| SpawnError::Group { source })?),
            Err(_) => None,
        };
        let entrance = group.as_ref().map(RankCgroup::entrance).transpose();
        let entrance = entrance.map_err(|source| SpawnError::Group { source })?;
        let entered = entrance.as_ref().or_else(|| self.shared.pen.entrance());
        plan.rank_cgroup = entered.map_or(-1, AsRawFd::as_raw_fd);
        let spawned = self.clone(&mut plan);
        drop(entrance);
        let made = spawned.and_then(|(pid, pidfd)| self.has_execed(&spec, pid).map(|()| (pid, pidfd)));
        let (pid, pidfd) = made.inspect_err(|_| self.retire(group.as_ref()))?;
        self.shared.roster.enter(rank, pid);
        let group = Group::new(pid, group);
        let serial = self.next;
        self.next += 1;
        self.output.add(serial, rank, [stdout.ours, stderr.ours]);
        let process = Process { rank, pid, pidfd, group: group.clone(), killed: false };
        let watch = |pidfd: &OwnedFd| self.watch.rank(pidfd, serial);
        self.shared
            .table
            .insert(serial, generation, process, watch, || {
                (self.shared.report)(Happening::Spawned { rank, pid, group: group.clone() })
            })
            .map_err(no_pipe)
            .inspect_err(|_| self.retire(group.cgroup()))
    }

    /// Whether the child got as far as its program; else it is reaped, and the error says how far it got.
    fn has_execed(&self, spec: &SpawnSpec, pid: libc::pid_t) -> Result<(), SpawnError> {
        let (step, errno) = self.report.get().read();
        if step == Step::None {
            return Ok(());
        }
        sys::reap_blocking(pid);
        let source = io::Error::from_raw_os_error(errno);
        Err(match step {
            Step::Exec => SpawnError::Exec { program: spec.program.clone(), source },
            Step::Directory => {
                SpawnError::Directory { path: spec.directory.clone().unwrap_or_default(), source }
            }
            step => SpawnError::Prepare { what: step.what(), source },
        })
    }

    /// The group of a rank that came to nothing.
    fn retire(&self, group: Option<&RankCgroup>) {
        if let (Ok(groups), Some(group)) = (&self.shared.groups, group) {
            groups.retire(group);
        }
    }

    /// Makes the child; returns when it has execed or ended.
    fn clone(&self, plan: &mut Plan) -> Result<(libc::pid_t, OwnedFd), SpawnError> {
        let report = self.report.get();
        report.clear();
        if let Entry::Directory { directory, procs } = &self.entry {
            match clone_into(plan, report, directory) {
                Err(nix::Error::ENOSYS | nix::Error::EINVAL | nix::Error::E2BIG) => {
                    plan.cgroup = procs.as_raw_fd();
                }
                other => return other.map_err(|source| SpawnError::Fork { source: source.into() }),
            }
        }
        let start = Start { plan, report };
        let mut pidfd: libc::c_int = -1;
        let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::CLONE_PIDFD | libc::SIGCHLD;
        // SAFETY: the child runs `enter` on a stack of its own, makes only system calls, and `start` outlives it
        // (CLONE_VFORK suspends this thread until it has execed or exited). All signals are blocked here.
        let pid = unsafe {
            libc::clone(
                child::enter,
                self.stack.top(),
                flags,
                (&raw const start).cast_mut().cast(),
                &raw mut pidfd,
            )
        };
        if pid < 0 {
            return Err(SpawnError::Fork { source: io::Error::last_os_error() });
        }
        // SAFETY: CLONE_PIDFD has stored a new descriptor that nobody else owns.
        Ok((pid, unsafe { OwnedFd::from_raw_fd(pidfd) }))
    }
}

/// The constant of libc is too narrow.
const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;

/// `clone3` into a cgroup (v2), with a copy of the memory instead of a stack.
fn clone_into(
    plan: &Plan,
    report: &child::Report,
    directory: &OwnedFd,
) -> nix::Result<(libc::pid_t, OwnedFd)> {
    let mut pidfd: libc::c_int = -1;
    // SAFETY: clone_args is plain old data, for which zeros mean "nothing asked".
    let mut args: libc::clone_args = unsafe { std::mem::zeroed() };
    args.flags = (libc::CLONE_VFORK | libc::CLONE_PIDFD) as u64 | CLONE_INTO_CGROUP;
    args.exit_signal = libc::SIGCHLD as u64;
    args.pidfd = (&raw mut pidfd) as u64;
    args.cgroup = directory.as_raw_fd() as u64;
    // SAFETY: as `fork`: the child has a copy of this stack and makes only system calls until `exec` or `_exit`.
    match unsafe { libc::syscall(libc::SYS_clone3, &raw mut args, size_of::<libc::clone_args>()) } {
        0 => child::run(plan, report),
        -1 => Err(nix::Error::last()),
        // SAFETY: CLONE_PIDFD has stored a new descriptor that nobody else owns.
        pid => Ok((pid as libc::pid_t, unsafe { OwnedFd::from_raw_fd(pidfd) })),
    }
}

/// Where one of a rank's output streams goes.
struct Target {
    /// What the rank writes to.
    theirs: OwnedFd,
    /// The other end, if it is a pipe.
    ours: Option<OwnedFd>,
}

impl Target {
    /// A file, or that of `same`; else a pipe.
    fn open(path: Option<&Path>, what: &'static str, same: Option<&Self>) -> Result<Self, SpawnError> {
        let no_pipe = |source: nix::Error| SpawnError::Descriptors { source: source.into() };
        if let Some(other) = same {
            // One description, so that neither stream writes over the other.
            let theirs = other.theirs.try_clone().map_err(|source| SpawnError::Descriptors { source })?;
            return Ok(Self { theirs, ours: None });
        }
        let Some(path) = path else {
            let (ours, theirs) = sys::pipe().map_err(no_pipe)?;
            sys::set_nonblocking(&ours).map_err(no_pipe)?;
            return Ok(Self { theirs, ours: Some(ours) });
        };
        let file = open(File::options().write(true).create(true).truncate(true), path, what)?;
        Ok(Self { theirs: file, ours: None })
    }
}

/// Opens a file for a rank. To open a named pipe must not wait for somebody at its other end and hold up all other ranks:
/// without a writer it is at its end, without a reader it is an error.
fn open(options: &mut std::fs::OpenOptions, path: &Path, what: &'static str) -> Result<OwnedFd, SpawnError> {
    let failed = |source: io::Error| SpawnError::File { what, path: path.to_owned(), source };
    let file = OwnedFd::from(options.custom_flags(libc::O_NONBLOCK).open(path).map_err(failed)?);
    sys::set_blocking(&file).map_err(|error| failed(error.into()))?;
    Ok(file)
}

fn text(text: &OsStr) -> Result<CString, SpawnError> {
    CString::new(text.as_bytes()).map_err(|_| SpawnError::ZeroByte { text: text.to_owned() })
}

/// The inherited environment with `set` on top, and the job's mark.
fn environment(
    set: &[(OsString, OsString)],
    mark: Option<(OsString, OsString)>,
) -> Result<Vec<CString>, SpawnError> {
    // The child adds its own number; that of a `bdrun` around this one is not for it. The mark has the outer one's in it.
    let is_marked = |name: &OsString| mark.as_ref().is_some_and(|(variable, _)| name == variable);
    let is_set = |name: &OsString| {
        name == "BDRUN_PROCESS" || is_marked(name) || set.iter().any(|(other, _)| other == name)
    };
    let inherited = std::env::vars_os().filter(|(name, _)| !is_set(name));
    // Of a name set twice the last counts.
    let last = |at: usize| set[at + 1..].iter().all(|(later, _)| *later != set[at].0);
    let own = set
        .iter()
        .enumerate()
        .filter(|(at, (name, _))| last(*at) && !is_marked(name))
        .map(|(_, pair)| pair.clone());
    inherited
        .chain(own)
        .chain(mark.clone())
        .map(|(mut line, value)| {
            line.push("=");
            line.push(value);
            CString::new(line.into_vec())
                .map_err(|error| SpawnError::ZeroByte { text: OsString::from_vec(error.into_vec()) })
        })
        .collect()
}
