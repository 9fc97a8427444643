//! The threads that make all processes, and how one is made.
//!
//! A rank takes a thread until its program runs, which is half of the time that a program takes that does
//! nothing: while one thread waits for that the other makes the next.
//!
//! A rank is started with `clone(CLONE_VM | CLONE_VFORK)`, as `posix_spawn` does: no page table is copied,
//! and the call returns when the rank's program runs or has failed, with the reason in shared memory. The
//! child runs on a stack of its own, with all signals blocked until its dispositions are the default ones
//! (see `birth.rs`, `child.rs`).
//!
//! A rank is born in its memory cgroup, because moving a process there costs milliseconds: in v1 these
//! threads are in the group themselves (charges of the master's memory follow its first thread, so they are
//! not affected), in v2 `clone3(CLONE_INTO_CGROUP)` does it, or, where that is not permitted, the child moves
//! itself. Into a cgroup of its own (`measure/cgroup.rs`), where nothing has to be charged anew, the child
//! always moves itself.

use super::birth::Birth;
use super::child::{Plan, Step};
use super::low::Low;
use super::pen::Mark;
use super::table::Process;
use super::victim;
use super::{Happening, Shared, SpawnError, SpawnSpec, Stdin, SuperviseError, output, reaper};
use super::{sys, thread};
use crate::cgroups::{Entry, RankCgroup};
use crate::descriptors;
use crate::in_use;
use crate::measure::Group;
use crate::nodes::mpi::is_launchers;
use crossbeam_channel::{Receiver, Sender, bounded, unbounded};
use std::ffi::{CString, OsStr, OsString};
use std::fs::File;
use std::io::{self, IsTerminal};
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

enum Command {
    Spawn(Box<SpawnSpec>, u64),
    Stop,
}

/// How many there are.
const SPAWNERS: usize = 2;

/// The threads.
pub(super) struct Handle {
    commands: Sender<Command>,
    stopped: Receiver<()>,
    /// Dropped, it lets them end.
    hold: Option<Sender<()>>,
    threads: Vec<JoinHandle<()>>,
}

impl Handle {
    pub(super) fn spawn(&self, spec: SpawnSpec, generation: u64) {
        let _ = self.commands.send(Command::Spawn(Box::new(spec), generation));
    }

    /// After this no process is made any more. False if that took longer than `patience`.
    pub(super) fn stop(&self, patience: Duration) -> bool {
        let deadline = Instant::now() + patience;
        for _ in 0..SPAWNERS {
            let _ = self.commands.send(Command::Stop);
        }
        (0..SPAWNERS).all(|_| self.stopped.recv_deadline(deadline).is_ok())
    }

    /// Lets the threads end. To be called when all ranks are reaped; `stopped` is what [`stop`](Self::stop)
    /// returned.
    pub(super) fn release(&mut self, stopped: bool) {
        drop(self.hold.take());
        // A thread that hangs in an `exec` is left alone.
        let threads = std::mem::take(&mut self.threads);
        if stopped {
            threads.into_iter().for_each(|thread| drop(thread.join()));
        }
    }
}

struct Spawner {
    shared: Arc<Shared>,
    output: output::Feed,
    watch: reaper::Watch,
    birth: Birth,
    null: File,
    terminal: Option<File>,
    entry: Entry,
    low: Option<Low>,
}

/// Starts the threads; returns when they are ready to make processes.
pub(super) fn start(
    shared: &Arc<Shared>,
    output: &output::Handle,
    reaper: &reaper::Handle,
) -> Result<Handle, SuperviseError> {
    let (commands, receiver) = unbounded();
    let (stopped_sender, stopped) = unbounded();
    let (hold, held) = unbounded::<()>();
    let mut handle = Handle { commands, stopped, hold: Some(hold), threads: Vec::new() };
    for _ in 0..SPAWNERS {
        let (ready_sender, ready) = bounded(1);
        let (shared, feed, watch) = (Arc::clone(shared), output.feed(), reaper.watch());
        let (receiver, stopped, held) = (receiver.clone(), stopped_sender.clone(), held.clone());
        handle.threads.push(thread("bdrun-spawner", move || match Spawner::prepare(shared, feed, watch) {
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
                let _ = stopped.send(());
                // The ranks' parent-death signal fires when this thread ends.
                let _ = held.recv();
            }
        })?);
        match ready.recv() {
            Ok(prepared) => prepared?,
            Err(_) => {
                let source = io::Error::other("it ended at once");
                return Err(SuperviseError::Thread { name: "bdrun-spawner", source });
            }
        }
    }
    Ok(handle)
}

impl Spawner {
    fn prepare(
        shared: Arc<Shared>,
        output: output::Feed,
        watch: reaper::Watch,
    ) -> Result<Self, SuperviseError> {
        let setup = super::setup;
        let birth = Birth::new().map_err(setup("stack of a child, and a page shared with it"))?;
        let null = File::options().read(true).write(true).open("/dev/null");
        let null = null.map_err(|source| SuperviseError::Setup { what: "/dev/null", source })?;
        // None, if there is none.
        let terminal = File::options().read(true).custom_flags(libc::O_NOCTTY).open("/dev/tty").ok();
        let entry = shared.cgroup.as_ref().map_or(Ok(Entry::None), |group| group.entry())?;
        let low = Low::new(descriptors::FIXED as RawFd);
        Ok(Self { shared, output, watch, birth, null, terminal, entry, low })
    }

    fn spawn(&mut self, spec: SpawnSpec, generation: u64) {
        let rank = spec.rank;
        if let Err(error) = self.try_spawn(spec, generation) {
            self.output.is_over(rank);
            (self.shared.report)(Happening::SpawnFailed { rank, error });
        }
    }

    fn try_spawn(&mut self, spec: SpawnSpec, generation: u64) -> Result<(), SpawnError> {
        let rank = spec.rank;
        let pipes = spec.stdout.is_none() || spec.stderr.is_none();
        if !self.shared.table.wants(generation, pipes) {
            return Err(SpawnError::Cancelled);
        }
        let no_pipe = |source: nix::Error| SpawnError::Descriptors { source: source.into() };
        let stdout = Target::open(spec.stdout.as_deref(), "standard output", spec.stdout_is_new, None)?;
        let output = stdout.number;
        let same = spec.stdout.is_some() && spec.stdout == spec.stderr;
        let stderr = Target::open(spec.stderr.as_deref(), "standard error", false, same.then_some(&stdout))?;
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
        plan.terminal = self.terminal.as_ref().map_or(-1, AsRawFd::as_raw_fd);
        plan.nofile = descriptors::original();
        plan.master = nix::unistd::getpid().as_raw();
        let group = match &self.shared.groups {
            Ok(groups) => Some(groups.create_rank(rank).map_err(|source| SpawnError::Group { source })?),
            Err(_) => None,
        };
        let entrance = group.as_ref().map(RankCgroup::entrance).transpose();
        let entrance = entrance.map_err(|source| SpawnError::Group { source })?;
        let entered = entrance.as_ref().or_else(|| self.shared.pen.entrance());
        plan.rank_cgroup = entered.map_or(-1, AsRawFd::as_raw_fd);
        let shared = Arc::clone(&self.shared);
        // Until others know of it.
        let _birth = shared.births.begin();
        let at = Instant::now();
        let made = self.make(&spec, &mut plan);
        drop(entrance);
        let (pid, pidfd) = made.inspect_err(|_| self.retire(group.as_ref()))?;
        // First of all, so that whatever happens to us it ends too.
        self.shared.roster.enter(rank, pid);
        victim::prefer(pid);
        let group = Group::new(pid, group);
        let serial = self.shared.serials.fetch_add(1, Relaxed);
        self.output.add(serial, rank, [stdout.ours, stderr.ours]);
        let process = Process { rank, pid, pidfd, group: group.clone(), killed: false };
        let watch = |pidfd: &OwnedFd| self.watch.rank(pidfd, serial);
        self.shared
            .table
            .insert(serial, generation, process, watch, || {
                (self.shared.report)(Happening::Spawned { rank, pid, group: group.clone(), at, output })
            })
            .map_err(no_pipe)
            .inspect_err(|_| {
                self.shared.roster.leave(rank, pid);
                self.retire(group.cgroup());
            })
    }

    /// Makes the process, which runs its program.
    fn make(&mut self, spec: &SpawnSpec, plan: &mut Plan) -> Result<(libc::pid_t, OwnedFd), SpawnError> {
        plan.end = self.low.as_mut().and_then(|low| low.hold(&mut plan.descriptors));
        let mut made = self.clone(spec, plan);
        if made.is_err() && self.birth.report().0 == Step::Table {
            // Both ways to get out of a shared table are refused, as old containers do: none is shared then.
            plan.end = None;
            made = self.clone(spec, plan);
            self.low = None;
        }
        self.low.as_mut().map(Low::clear);
        made
    }

    /// Whether the child got as far as its program; else it is reaped, and the error says how far it got.
    fn has_execed(&self, spec: &SpawnSpec, pid: libc::pid_t) -> Result<(), SpawnError> {
        let (step, errno) = self.birth.report();
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

    /// Makes the child; returns when it has execed, or ended and been reaped.
    fn clone(&self, spec: &SpawnSpec, plan: &mut Plan) -> Result<(libc::pid_t, OwnedFd), SpawnError> {
        let (pid, pidfd) = self.bear(plan)?;
        self.has_execed(spec, pid).map(|()| (pid, pidfd))
    }

    /// Makes the child; returns when it has execed or ended.
    fn bear(&self, plan: &mut Plan) -> Result<(libc::pid_t, OwnedFd), SpawnError> {
        self.birth.clear();
        let failed = |source: nix::Error| SpawnError::Fork { source: source.into() };
        if let Entry::Directory { directory, procs } = &self.entry {
            // SAFETY: as below.
            match unsafe { self.birth.in_cgroup(plan, directory) } {
                Err(nix::Error::ENOSYS | nix::Error::EINVAL | nix::Error::E2BIG) => {
                    plan.cgroup = procs.as_raw_fd();
                }
                other => return other.map_err(failed),
            }
        }
        // SAFETY: `thread` has blocked all signals of this thread, and nobody lets them in.
        unsafe { self.birth.beside(plan) }.map_err(failed)
    }
}

/// Where one of a rank's output streams goes.
struct Target {
    /// What the rank writes to.
    theirs: OwnedFd,
    /// The other end, if it is a pipe.
    ours: Option<OwnedFd>,
    /// The number of the file, if it is one by which it is known again.
    number: Option<u64>,
}

impl Target {
    /// A file, whose directory is made if it is missing, or that of `same`; else a pipe.
    fn open(
        path: Option<&Path>,
        what: &'static str,
        is_new: bool,
        same: Option<&Self>,
    ) -> Result<Self, SpawnError> {
        let no_pipe = |source: nix::Error| SpawnError::Descriptors { source: source.into() };
        if let Some(other) = same {
            // One description, so that neither stream writes over the other.
            let theirs = other.theirs.try_clone().map_err(|source| SpawnError::Descriptors { source })?;
            return Ok(Self { theirs, ours: None, number: other.number });
        }
        let Some(path) = path else {
            let (ours, theirs) = sys::pipe().map_err(no_pipe)?;
            sys::set_nonblocking(&ours).map_err(no_pipe)?;
            return Ok(Self { theirs, ours: Some(ours), number: None });
        };
        let directory = path.parent().filter(|directory| !directory.as_os_str().is_empty());
        if let Some(directory) = directory {
            std::fs::create_dir_all(directory).map_err(|source| SpawnError::OutputDirectory {
                what,
                path: directory.to_owned(),
                source,
            })?;
        }
        let failed = |source: io::Error| SpawnError::File { what, path: path.to_owned(), source };
        let mut options = File::options();
        options.write(true);
        let opened = match is_new {
            true => open_new(&mut options, path, what),
            false => open(options.create(true), path, what),
        };
        let file = File::from(opened?);
        in_use::take(&file).map_err(|source| SpawnError::InUse { what, path: path.to_owned(), source })?;
        // Not what is no file: to make a device or a pipe empty is an error.
        let there = file.metadata().map_err(failed)?;
        if there.is_file() {
            file.set_len(0).map_err(failed)?;
        }
        let number = (there.is_file() && keeps_numbers(&file)).then(|| there.ino());
        Ok(Self { theirs: file.into(), ours: None, number })
    }
}

/// Whether a file has the same number for all nodes, and for as long as it is there. Some clients make
/// numbers of their own: each others, and new ones once they have forgotten a file.
fn keeps_numbers(file: &File) -> bool {
    use nix::sys::statfs::{FUSE_SUPER_MAGIC, FsType, fstatfs};
    // From linux/magic.h (CIFS and SMB2) and the sources of VirtualBox's shared folders.
    const OTHERS: [FsType; 3] = [FsType(0xff53_4d42), FsType(0xfe53_4d42), FsType(0x786f_4256)];
    let of = fstatfs(file).map(|of| of.filesystem_type());
    of.is_ok_and(|of| of != FUSE_SUPER_MAGIC && !OTHERS.contains(&of))
}

/// Makes a file for a rank, so that nobody else's is emptied. What is there is taken away, if it is nobody's:
/// that it is may have been seen too late to do so before (on NFS a node may take a file for missing that
/// another has made).
fn open_new(
    options: &mut std::fs::OpenOptions,
    path: &Path,
    what: &'static str,
) -> Result<OwnedFd, SpawnError> {
    let made = open(options.clone().create_new(true), path, what);
    match made {
        Err(SpawnError::File { source, .. }) if source.kind() == io::ErrorKind::AlreadyExists => {}
        made => return made,
    }
    let there = File::from(open(options, path, what)?);
    in_use::take(&there).map_err(|source| SpawnError::InUse { what, path: path.to_owned(), source })?;
    std::fs::remove_file(path).map_err(|source| SpawnError::File { what, path: path.to_owned(), source })?;
    open(options.create_new(true), path, what)
}

/// Opens a file for a rank. To open a named pipe must not wait for somebody at its other end and hold up all
/// other ranks: without a writer it is at its end, without a reader it is an error.
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
    // The child adds its own number; that of a `bdrun` around this one is not for it. The mark has the outer
    // one's in it.
    let is_marked = |name: &OsString| mark.as_ref().is_some_and(|(variable, _)| name == variable);
    let is_set = |name: &OsString| {
        name == "BDRUN_PROCESS" || is_marked(name) || set.iter().any(|(other, _)| other == name)
    };
    // A rank is no process of the launcher that has started the masters.
    let is_launchers = |name: &OsString| name.to_str().is_some_and(is_launchers);
    let inherited = std::env::vars_os().filter(|(name, _)| !is_set(name) && !is_launchers(name));
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
