//! The processes of a job: started, tied to the master's life, listened to, ended.
//!
//! No decisions are made here. The [`Supervisor`] carries out what it is told (`spawn`, `signal`, `kill_all`)
//! and reports what happens as [`Happening`]s through one channel. When to ask politely, when to kill, is
//! decided by a state machine without side effects, [`Escalation`], which the master drives.
//!
//! # Threads
//! - two *spawners* (`spawner.rs`): make all ranks. They live as long as the job, because the parent-death
//!   signal fires when the thread that made a process ends. Of the master's descriptors, of which there are
//!   some for each rank, a rank gets no copy (`low.rs`).
//! - *reaper* (`reaper.rs`): learns of each end through a pidfd, kills what is left of the rank's process
//!   group, reaps it, and reports it once its last output has been forwarded.
//! - *output* and *errors* (`output.rs`): read all pipes of a stream, write whole lines (`sink.rs`), with
//!   `--keep-order` what one rank prints after another's (`order.rs`). If the master's stdout blocks, its
//!   thread blocks, and with it, once their pipes are full, the ranks that print: nothing is buffered without
//!   bound, and nothing else waits.
//! - *signals* (`signals.rs`): turns SIGINT, SIGTERM … into happenings.
//!
//! # Nothing is left behind
//! Ranks are plain children of the master, in no PID namespace: a rank's `getpid()`, `$$` and `/proc` are
//! those of the machine, and no two ranks, of one job or of several, have the same one at the same time. What
//! holds the job together instead ([`Supervisor::isolation`] tells which is in force):
//!
//! | what dies | what guards |
//! |---|---|
//! | the master | each rank has `PR_SET_PDEATHSIG` and checks `getppid` after setting it. The *keepers*, two processes of which either suffices (`keeper.rs`), kill what is left of the ranks' process groups, and everything in the job's cgroups, frozen or not, daemons included, and remove the cgroups; without a cgroup, everything that has the job's mark in its environment (`pen.rs`) |
//! | a keeper | the master replaces it |
//! | a rank | what is left of its process group is killed at its end, and what is left in its cgroup, if it has its own; what else left the group, at the end of the job (cgroup or mark) |
//! | the master and both keepers at once | ranks die; what they have started lives on, until another `bdrun` finds its cgroup with nobody to keep it, kills what is in it and removes it |
//!
//! What escapes: what a process with the right to do so moves into a cgroup outside of the job's; and without
//! cgroups (not root, and no group of one's own in version 2), what has left its process group and cleared
//! its environment.
//!
//! # Terminal
//! Each rank leads a process group of its own, so ^C reaches only the master. A background group that reads
//! the terminal would be stopped, hence a rank that inherits stdin gets it only when it is no terminal, else
//! `/dev/null`, and ranks have no controlling terminal: to open `/dev/tty` is an error.

mod birth;
mod child;
mod ending;
mod error;
mod escalate;
mod keeper;
mod low;
mod order;
mod output;
mod pen;
mod reaper;
mod roster;
mod signals;
mod sink;
mod spawner;
mod spool;
mod sweep;
mod sys;
mod table;
#[cfg(test)]
mod tests;
mod victim;

pub use crate::cgroups::{CgroupError, CgroupUsage, MemoryCgroup};
pub use crate::measure::Usage;
pub use ending::{Ending, OomKill, signal_name};
pub use error::{SpawnError, SuperviseError};
pub use escalate::{Effect as EscalationEffect, Escalation, Event as EscalationEvent};
pub use signals::{Catch, keep_ended_children, outlive_file_limit};

use crate::cgroups::RankGroups;
use crate::descriptors;
use crate::gate::Gate;
use crate::measure::{Group, Permits};
use crate::post::Post;
use keeper::Keepers;
use pen::Pen;
use roster::Roster;
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use sweep::Room;
use table::Table;

/// Where a rank's standard input comes from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Stdin {
    /// `/dev/null`.
    #[default]
    Null,
    /// The master's own, unless that is a terminal; then `/dev/null`. For one rank only, usually rank 0.
    Inherit,
    /// This file.
    File(PathBuf),
}

/// A descriptor to hand to a rank.
#[derive(Debug)]
pub enum FdSource {
    /// Closed in the master once the rank has it.
    Owned(OwnedFd),
    /// Kept open by others too.
    Shared(Arc<OwnedFd>),
}

impl AsFd for FdSource {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Owned(fd) => fd.as_fd(),
            Self::Shared(fd) => fd.as_fd(),
        }
    }
}

impl From<OwnedFd> for FdSource {
    fn from(fd: OwnedFd) -> Self {
        Self::Owned(fd)
    }
}

impl From<Arc<OwnedFd>> for FdSource {
    fn from(fd: Arc<OwnedFd>) -> Self {
        Self::Shared(fd)
    }
}

/// A rank to start.
#[derive(Debug)]
pub struct SpawnSpec {
    /// Its number. A number may be used again once its process has ended (retry).
    pub rank: u32,
    /// The program, used as it is (not looked for in PATH).
    pub program: PathBuf,
    /// Its arguments, without the program's name.
    pub args: Vec<OsString>,
    /// Set on top of the inherited environment.
    pub env: Vec<(OsString, OsString)>,
    /// Descriptors and the numbers under which the rank finds them, open across `exec`. Numbers from 3 on.
    pub fds: Vec<(FdSource, RawFd)>,
    /// Standard input.
    pub stdin: Stdin,
    /// A file for standard output, which the rank writes itself; it is made, with its directory, or emptied.
    /// Without, the master forwards it.
    pub stdout: Option<PathBuf>,
    /// That file must not be there yet: another master's rank may write it.
    pub stdout_is_new: bool,
    /// The same for standard error. If it is the same file, both streams share one place in it.
    pub stderr: Option<PathBuf>,
    /// Where it runs, if not where the master does. The files above are found from where the master is.
    pub directory: Option<PathBuf>,
}

/// One of the two output streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// What the supervisor reports.
#[derive(Debug)]
pub enum Happening {
    /// A rank's program runs.
    Spawned {
        /// The rank.
        rank: u32,
        /// Its process id as the master sees it.
        pid: i32,
        /// All its processes.
        group: Group,
        /// When it was made. What is told of several may be heard later.
        at: Instant,
        /// The number of the file that its standard output is, if it is one ([`SpawnSpec::stdout`]).
        output: Option<u64>,
    },
    /// A rank could not be started.
    SpawnFailed {
        /// The rank.
        rank: u32,
        /// Why.
        error: SpawnError,
    },
    /// A rank's process ended. What it had written before has been forwarded (unless the master's own output
    /// is blocked: then this comes first, after a quarter of a second).
    Exited {
        /// The rank.
        rank: u32,
        /// Its process id.
        pid: i32,
        /// How it ended.
        ending: Ending,
        /// What it used.
        usage: Usage,
        /// Whether the out-of-memory killer did it.
        oom: OomKill,
    },
    /// The master received a signal: SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2 or SIGTSTP.
    Signal(i32),
    /// The master's own output cannot be written any more; what follows on that stream is discarded.
    /// `BrokenPipe`: whoever read it has gone.
    OutputFailed {
        /// Which stream.
        stream: Stream,
        /// Why.
        error: io::Error,
    },
    /// What ranks have written too early ([`Config::keep_order`]) cannot be held back: from now on it is
    /// discarded. Or a long line cannot wait for its end: another's may come in between.
    HoldFailed(io::Error),
    /// All that ranks have written is forwarded ([`Supervisor::forward_rest`]).
    Forwarded,
    /// Somebody goes on killing the keepers: what is left if the master is killed now may live on.
    KeeperLost,
}

/// Called around each write to where the master shows what it does, so that a progress line can be taken away
/// and drawn again: it must call its argument once (`MultiProgress::suspend` has this form). The write may
/// block for as long as nobody reads: whoever may not wait must not wait for it.
pub type AroundWrite = Arc<dyn Fn(&mut dyn FnMut()) + Send + Sync>;

/// How the supervisor works.
#[derive(Default)]
pub struct Config {
    /// Prefix each line with `[rank] `.
    pub tag_output: bool,
    /// Forward bytes as they come, without waiting for whole lines and without adding a last newline: for a
    /// single rank, whose output need not be kept apart from others'. Not together with `tag_output`.
    pub pass_through: bool,
    /// Forward what ranks write in the order of their numbers, each rank's as a whole, and without tags byte
    /// by byte. Every rank from 0 on must be started (or fail to) some time, else those behind it are heard
    /// only at the end. Takes `spool`.
    pub keep_order: bool,
    /// An empty file that nobody else uses, for output that has to wait: for its turn, or for the end of its
    /// line. Without, long lines are broken where another rank prints.
    pub spool: Option<std::fs::File>,
    /// Keep the ranks in one cgroup where that is permitted, unless each has its own. Else by a mark in their
    /// environment.
    pub common_group: bool,
    /// Make a memory cgroup with this limit in bytes for the ranks (`--enforce`).
    pub cgroup_limit: Option<u64>,
    /// Make a cgroup for each rank where that is permitted, so that all its processes are known. At the end
    /// of a rank all that is left in it is killed, daemons included.
    pub rank_groups: bool,
    /// Which signals to the master are reported as [`Happening::Signal`].
    pub catch_signals: Catch,
    /// Where stdout and stderr go instead of descriptors 1 and 2.
    pub outputs: Option<(OwnedFd, OwnedFd)>,
    /// Called around each write to stderr, and to stdout where it goes to the same place.
    pub around_write: Option<AroundWrite>,
}

/// What holds the processes of a job together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Isolation {
    /// Cgroups: nothing of it survives the master, whatever it did to get away.
    Cgroup,
    /// A mark in the environment: what a rank has started with another environment, or as another user, and
    /// what has left its process group then, survives.
    Mark,
}

/// What was found at the end of the job.
#[derive(Debug, Default)]
pub struct Farewell {
    /// Ranks whose process could not be reaped in time (in uninterruptible sleep).
    pub stuck: Vec<(u32, i32)>,
    /// Whether all output was written. False if the master's stdout blocked for longer than was allowed.
    pub output_complete: bool,
    /// The memory cgroup's figures, if there was one.
    pub cgroup: Option<CgroupUsage>,
    /// The directory of a cgroup that could not be removed in time (the keepers go on trying).
    pub cgroup_left: Option<PathBuf>,
}

/// Whatever is asked for: a time that can be added to now.
const LONGEST_PATIENCE: Duration = Duration::from_secs(365 * 24 * 3600);
/// How long ranks may take to stop for ^Z before the master stops all the same. On a loaded machine it takes
/// seconds until who waits for a page is served, and one that is not served by then waits for it, and cannot
/// be killed, until the master goes on.
const STANDING: Duration = Duration::from_secs(10);

type Report = Arc<dyn Fn(Happening) + Send + Sync>;

/// What all threads share.
struct Shared {
    report: Report,
    table: Table,
    /// Before the memory cgroup, below which they may lie: they must be removed first.
    groups: Result<RankGroups, String>,
    /// Before the memory cgroup, as above.
    pen: Pen,
    cgroup: Option<MemoryCgroup>,
    roster: Roster,
    keepers: Keepers,
    /// From before a process is made until it is in the table: signals to all reach none that is not.
    births: Gate,
    /// Processes made so far.
    serials: AtomicU64,
}

struct Threads {
    spawner: spawner::Handle,
    reaper: reaper::Handle,
    output: output::Handle,
    signals: Option<signals::Handle>,
    /// Ranks that could not be reaped, once all has been ended.
    stuck: Option<Vec<(u32, i32)>>,
    /// Somebody else has waited for the output.
    awaited: bool,
}

/// Supervises the processes of one job. Dropping it without [`finish`](Self::finish) kills them.
pub struct Supervisor {
    shared: Arc<Shared>,
    threads: Option<Threads>,
}

impl Supervisor {
    /// Starts the threads and helper processes. Happenings go to `events`, converted into its type; nobody
    /// waits for the receiver.
    pub fn start<E>(config: Config, events: impl Into<Post<E>>) -> Result<Self, SuperviseError>
    where
        E: From<Happening> + Send + 'static,
    {
        let cgroup = config.cgroup_limit.map(MemoryCgroup::create).transpose()?;
        Self::start_in(config, cgroup, events.into())
    }

    fn start_in<E>(
        config: Config,
        cgroup: Option<MemoryCgroup>,
        events: Post<E>,
    ) -> Result<Self, SuperviseError>
    where
        E: From<Happening> + Send + 'static,
    {
        let report: Report = Arc::new(move |happening| {
            // A receiver that is gone no longer wants to know.
            let _ = events.leave(E::from(happening));
        });
        let groups = if config.rank_groups {
            RankGroups::create(cgroup.as_ref())
        } else {
            Err("not asked for".to_owned())
        };
        let pen = Pen::new(&groups, config.common_group, cgroup.as_ref());
        let of_ranks = groups.iter().map(RankGroups::path).chain(pen.path()).map(Room::of_ranks);
        let rooms =
            of_ranks.chain(cgroup.iter().flat_map(MemoryCgroup::directories).map(Room::bare)).collect();
        let roster = Roster::new().map_err(setup("list of process groups"))?;
        descriptors::raise_soft();
        let table = Table::default();
        let keepers = Keepers::new(rooms);
        let shared = Arc::new(Shared {
            report,
            table,
            groups,
            pen,
            cgroup,
            roster,
            keepers,
            births: Gate::new(),
            serials: AtomicU64::new(0),
        });
        let style = output::Style {
            tag: config.tag_output,
            pass_through: config.pass_through && !config.tag_output,
            keep_order: config.keep_order && config.spool.is_some(),
            spool: config.spool.map(spool::Spool::new),
            around_write: config.around_write,
        };
        let output = output::start(&style, config.outputs, &shared.report)?;
        let reaper = reaper::start(Arc::clone(&shared), &output)?;
        let started = spawner::start(&shared, &output, &reaper);
        let signals = match config.catch_signals {
            Catch::None => Ok(None),
            catch => signals::start(Arc::clone(&shared.report), catch).map(Some),
        };
        let watch = reaper.watch();
        let kept =
            shared.keepers.start(&shared.roster, shared.pen.mark(), |which, fd| watch.keeper(which, fd));
        let (spawner, signals) = match (started, signals, kept) {
            (Ok(spawner), Ok(signals), Ok(())) => (spawner, signals),
            (Err(error), ..) | (_, Err(error), _) | (.., Err(error)) => {
                reaper.stop();
                output.finish(Duration::from_secs(1));
                return Err(error);
            }
        };
        let threads = Threads { spawner, reaper, output, signals, stuck: None, awaited: false };
        Ok(Self { shared, threads: Some(threads) })
    }

    /// What holds the processes together.
    pub fn isolation(&self) -> Isolation {
        match self.shared.pen {
            Pen::Each | Pen::Common(_) => Isolation::Cgroup,
            Pen::Mark(_) => Isolation::Mark,
        }
    }

    /// The ranks' memory cgroup, under `--enforce`.
    pub fn cgroup(&self) -> Option<&MemoryCgroup> {
        self.shared.cgroup.as_ref()
    }

    /// What the machine permits us to do to ranks. Finds it out anew at each call, with a child that is
    /// stopped.
    pub fn permits(&self) -> Permits {
        Permits::probe(self.shared.groups.as_ref().map_err(Clone::clone))
    }

    /// Starts a rank. Returns at once; [`Happening::Spawned`] or [`Happening::SpawnFailed`] follows.
    pub fn spawn(&self, spec: SpawnSpec) {
        if let Some(threads) = &self.threads {
            threads.spawner.spawn(spec, self.shared.table.generation());
        }
    }

    /// Gives up what was asked for with `spawn` but does not run yet; [`SpawnError::Cancelled`] is reported
    /// for it. To be called before `signal_all` when a signal asks the job to end. Later spawns are carried
    /// out.
    pub fn cancel_pending(&self) {
        self.shared.table.cancel_pending();
    }

    /// Of a rank that has ended and is started again from its beginning: with [`Config::keep_order`] what was
    /// held back of it is forgotten. What was already forwarded comes twice.
    pub fn forget(&self, rank: u32) {
        if let Some(threads) = &self.threads {
            threads.output.forget(rank);
        }
    }

    /// A rank that has ended and is not started again, or never will be: with [`Config::keep_order`] it is
    /// the turn of the next. (Of one that could not be started that is known.)
    pub fn is_over(&self, rank: u32) {
        if let Some(threads) = &self.threads {
            threads.output.is_over(rank);
        }
    }

    /// Sends a signal to the process groups of all ranks that run.
    pub fn signal_all(&self, signal: i32) {
        self.shared.table.signal_all(signal);
    }

    /// Sends a signal to the process group of one rank. Nothing happens if it has no process (yet). Whether
    /// it has one that has not ended; that one has ended may be heard later.
    pub fn signal(&self, rank: u32, signal: i32) -> bool {
        self.shared.table.signal(rank, signal)
    }

    /// Kills everything of the job at once: ranks, their groups, and what else of it there is. Ranks not yet
    /// started are cancelled. This is final: nothing can be started any more.
    pub fn kill_all(&self) {
        self.shared.table.kill_all();
        self.kill_rest();
    }

    /// What the table does not know.
    fn kill_rest(&self) {
        self.shared.pen.kill_all();
        if let Ok(groups) = &self.shared.groups {
            groups.kill_all();
        }
        if let Some(group) = &self.shared.cgroup {
            group.kill_all();
        }
    }

    /// For ^Z: stops all ranks, then, once those `stand` that our threads serve, the master itself; returns
    /// when somebody has continued it (`fg`), after continuing the ranks. What `stand` returns is held for as
    /// long as we stand. Nobody is made meanwhile: who has just been made would not get the signal, and run,
    /// unseen, for as long as we stand. One that hangs in its `exec` is not waited for.
    pub fn pause<T>(&self, stand: impl Fn() -> Option<T>) {
        let births = self.shared.births.pause(STANDING);
        self.signal_all(libc::SIGSTOP);
        let begin = Instant::now();
        let mut still = stand();
        while still.is_none() && begin.elapsed() < STANDING {
            std::thread::sleep(Duration::from_millis(1));
            still = stand();
        }
        let _ = nix::sys::signal::raise(nix::sys::signal::Signal::SIGSTOP);
        drop(still);
        self.signal_all(libc::SIGCONT);
        drop(births);
    }

    /// Ends the job's processes: kills what still runs, and reaps everything. Takes at most about `patience`.
    /// What they have printed may still have to be read: [`forward_rest`](Self::forward_rest). Signals to the
    /// master are still reported.
    pub fn stop(&mut self, patience: Duration) {
        let Some(mut threads) = self.threads.take_if(|threads| threads.stuck.is_none()) else { return };
        let deadline = Instant::now() + patience.min(LONGEST_PATIENCE);
        let left =
            |least: u64| deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(least));
        self.shared.table.kill_all();
        self.kill_rest();
        let spawner_ended = threads.spawner.stop(left(100));
        threads.stuck = Some(self.shared.table.wait_empty(left(100)));
        threads.spawner.release(spawner_ended);
        self.threads = Some(threads);
    }

    /// After [`stop`](Self::stop): forwards what the pipes still hold and what waits for its turn.
    /// [`Happening::Forwarded`] comes when all of it is written, however long whoever reads it takes.
    /// [`finish`](Self::finish) waits no more for that.
    pub fn forward_rest(&mut self) {
        if let Some(threads) = &mut self.threads {
            threads.awaited = true;
            threads.output.forward_rest();
        }
    }

    /// Ends the job: kills what still runs, reaps everything, forwards what the pipes hold, removes the
    /// cgroup. Takes at most about `patience`, also if the master's own output blocks or a process cannot be
    /// killed; then the [`Farewell`] says what was left. For what signals to the master do from then on see
    /// [`Catch`].
    pub fn finish(&mut self, patience: Duration) -> Farewell {
        self.end(patience)
    }

    fn end(&mut self, patience: Duration) -> Farewell {
        let deadline = Instant::now() + patience.min(LONGEST_PATIENCE);
        let left =
            |least: u64| deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(least));
        self.stop(patience);
        let Some(mut threads) = self.threads.take() else { return Farewell::default() };
        let stuck = threads.stuck.take().unwrap_or_default();
        let output_patience = if threads.awaited { Duration::from_millis(100) } else { left(100) };
        let output_complete = threads.output.finish(output_patience);
        self.shared.table.wait_reported(left(0).min(Duration::from_secs(1)));
        threads.reaper.stop();
        if let Some(signals) = threads.signals.take() {
            signals.stop();
        }
        let usage = self.shared.cgroup.as_ref().map(MemoryCgroup::usage);
        let groups_left = self.shared.groups.as_ref().ok().and_then(|groups| groups.remove(left(200)).err());
        let common_left = self.shared.pen.remove(left(200)).err();
        let memory_left = self.shared.cgroup.as_ref().and_then(|group| group.remove(left(200)).err());
        let cgroup_left = groups_left.or(common_left).or(memory_left);
        if cgroup_left.is_none() {
            self.shared.keepers.end(1_000);
        } else {
            self.shared.keepers.release();
        }
        Farewell { stuck, output_complete, cgroup: usage, cgroup_left }
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        self.end(Duration::from_secs(2));
    }
}

/// Starts a named thread with all signals blocked.
fn thread(
    name: &'static str,
    body: impl FnOnce() + Send + 'static,
) -> Result<JoinHandle<()>, SuperviseError> {
    std::thread::Builder::new()
        .name(name.to_owned())
        .stack_size(256 << 10)
        .spawn(move || {
            sys::block_signals();
            body();
        })
        .map_err(|source| SuperviseError::Thread { name, source })
}

/// For `map_err`: what was being prepared.
fn setup(what: &'static str) -> impl FnOnce(nix::Error) -> SuperviseError {
    move |source| SuperviseError::Setup { what, source: source.into() }
}
