//! What the core orders: processes are started here; who is moved is told to its own runtime (`own.rs`), or
//! to the thread that holds it (`other.rs`).

use std::ffi::OsString;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

use bdrun_ipc::door;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};

use super::listen::Message;
use super::observe::Seen;
use super::other::Other;
use super::own::Own;
use super::scratch;
use super::stdin::{self, Input};
use super::{Job, TICK};
use crate::exit::Ending;
use crate::residency::{Effect, Event, Outcome};
use crate::supervisor::{Happening, SpawnError, SpawnSpec, Stdin};
use crate::units::Bytes;

/// Whether both are names of one file, as far as their spelling goes.
fn is_one_file(stdout: Option<&Path>, stderr: Option<&Path>) -> bool {
    let plain = |path: Option<&Path>| std::path::absolute(path?).ok();
    plain(stdout).is_some_and(|stdout| plain(stderr) == Some(stdout))
}

/// The number under which a rank finds its control socket. What else belongs to the job it is given when it
/// says hello.
const SOCKET: i32 = 203;

/// A restore, as it was ordered.
#[derive(Debug, Clone, Copy)]
pub(super) struct Restore {
    pub bytes: u64,
    pub all: u64,
    pub overdraft: bool,
}

/// Who carries out what is ordered of a rank that lives. Each order is answered by one [`Outcome`], sooner or
/// later.
pub(super) trait Executor {
    /// Moves it out of RAM, but for `keep` bytes of what it asked for.
    fn evict(&self, job: &mut Job<'_>, rank: u32, keep: u64);
    /// Brings it back, or gives one that is on its way more to go on with.
    fn restore(&self, job: &mut Job<'_>, rank: u32, order: Restore);
    /// Makes it stand still.
    fn hold(&self, job: &mut Job<'_>, rank: u32);
    /// Lets it run that stands still.
    fn resume(&self, job: &mut Job<'_>, rank: u32);
    /// Has parts of it leave until it holds no more than `target` bytes.
    fn shrink(&self, job: &mut Job<'_>, rank: u32, target: u64);
}

impl Job<'_> {
    /// An order has ended.
    pub(super) fn done(&mut self, rank: u32, outcome: Outcome) {
        self.events.push(Event::Done { rank, outcome });
    }

    /// Who carries out orders of this rank now: it may have begun to ask while a thread holds it.
    pub(super) fn executor(&self, rank: u32) -> &'static dyn Executor {
        let record = &self.ranks[rank as usize];
        let held = record.holder.is_some();
        debug_assert!(held || record.order.is_none() || record.stopping, "rank {rank}: an order to nobody");
        if held || self.is_stranger(rank) { &Other } else { &Own }
    }

    pub(super) fn order(&mut self, order: Effect) {
        match order {
            Effect::Start { rank, reserve } if self.options.launch.delay.is_some() || !self.may_begin() => {
                self.delayed.push_back((rank, reserve));
                self.start_delayed(Instant::now());
            }
            Effect::Start { rank, reserve } => self.start_rank(rank, reserve),
            Effect::Evict { rank, preempt: true, .. } => self.preempt(rank),
            Effect::Evict { rank, keep, .. } => self.executor(rank).evict(self, rank, keep),
            Effect::Restore { rank, bytes, all, overdraft } => {
                self.executor(rank).restore(self, rank, Restore { bytes, all, overdraft });
            }
            Effect::Grant { rank, bytes, overdraft } => self.grant(rank, bytes, overdraft),
            Effect::Hold { rank } => self.executor(rank).hold(self, rank),
            Effect::Resume { rank } => self.executor(rank).resume(self, rank),
            Effect::Shrink { rank, target } => self.executor(rank).shrink(self, rank, target),
            Effect::Stop { rank, used } => {
                self.note(&format!(
                    "rank {rank} is stopped to make room ({}), and will be started again: it cannot be paged out",
                    Bytes(used)
                ));
                self.stop(rank);
            }
            Effect::OverLimit { rank, bytes, limit } => {
                let limit = self.options.rank_memory.map_or(limit, |most| most.min(limit));
                let text = format!(
                    "{}: memory limit exceeded: it holds {}, and may hold {}",
                    self.who(rank),
                    Bytes(bytes),
                    Bytes(limit)
                );
                self.kill(rank);
                self.fail_rank(rank, Ending::Memory(text));
            }
            Effect::Overdraft { rank, bytes, beside } => {
                self.ranks[rank as usize].overdraft = Some((bytes, beside));
                if self.is_stranger(rank) {
                    self.say_overdraft(rank);
                }
            }
            Effect::Crowded { rank, resident } => {
                if !std::mem::replace(&mut self.told_crowd, true) {
                    self.note(&format!(
                        "rank {rank} comes in although all places are taken: the ranks there do nothing, and cannot be paged out \
                         ({resident} are in RAM now, --resident {})",
                        self.options.resident_limit()
                    ));
                }
            }
            Effect::Fail(_) | Effect::Finish => {}
        }
    }

    /// Begins those whose time has come (`--delay`), or that wait for a word of the first node's master; how
    /// long until the next.
    pub(super) fn start_delayed(&mut self, now: Instant) -> Duration {
        let delay = self.options.launch.delay.unwrap_or(Duration::ZERO).min(super::LONGEST_DELAY);
        if !self.delayed.is_empty() && !self.may_begin() {
            return TICK;
        }
        while !self.delayed.is_empty() && self.ending.is_none() {
            let wait = self.next_start.map_or(Duration::ZERO, |next| next.saturating_duration_since(now));
            if wait > Duration::ZERO {
                return wait;
            }
            self.next_start = Some(now + delay);
            if let Some((rank, reserve)) = self.delayed.pop_front() {
                self.start_rank(rank, reserve);
            }
        }
        TICK
    }

    /// Nobody else is begun, nor are those whose time (`--delay`) has not come: who.
    pub(super) fn begin_no_delayed(&mut self) -> Vec<u32> {
        let delayed: Vec<u32> = std::mem::take(&mut self.delayed).into_iter().map(|(rank, _)| rank).collect();
        for &rank in &delayed {
            self.supervisor.is_over(rank);
            self.done(rank, Outcome::NotStarted);
        }
        delayed
    }

    /// Where ranks are dealt out: the first node's master was heard a moment ago, so that it has given none
    /// of them to others.
    pub(super) fn may_begin(&self) -> bool {
        self.elsewhere.as_ref().is_none_or(super::Elsewhere::may_begin)
    }

    fn start_rank(&mut self, rank: u32, reserve: u64) {
        let segment = self.setup.segment.clone();
        segment.enter(rank);
        let block = segment.rank(rank);
        let record = &mut self.ranks[rank as usize];
        (record.reserve, record.retried) = (reserve, None);
        if let Some(window) = self.coming.as_ref().filter(|_| self.ranks[rank as usize].nth == 0) {
            window.give(1);
        }
        if !self.is_stranger(rank) {
            if !self.pay(rank, reserve, false) {
                return;
            }
            block.granted.store(reserve, SeqCst);
            block.prepaid.store(reserve, SeqCst);
        }
        block.begin();
        if !block.word.birth() {
            // It was stopped, and begins anew.
            block.word.resume();
        }
        self.alive += 1;
        self.most_alive = self.most_alive.max(self.alive);
        match self.spawn_spec(rank) {
            Ok(spec) => self.supervisor.spawn(spec),
            // As if the supervisor had told it, and as late: what else was ordered now finds the rank.
            Err(error) => {
                self.supervisor.is_over(rank);
                let failed = Happening::SpawnFailed { rank, error };
                // Whoever does not read it any more has ended.
                let _ = self.watch.post.leave(Message::Supervisor(failed));
            }
        }
    }

    fn spawn_spec(&mut self, rank: u32) -> Result<SpawnSpec, SpawnError> {
        let none_left = |errno: nix::Error| SpawnError::Descriptors { source: errno.into() };
        let pair = socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC);
        let (ours, theirs) = pair.map_err(none_left)?;
        self.listener.add(rank, ours.as_fd()).map_err(none_left)?;
        self.ranks[rank as usize].control = Some(ours);
        let given = self.setup.launch.given(rank);
        let program =
            self.setup.program_of(rank).map_err(|ending| SpawnError::Program { why: ending.to_string() })?;
        let mut env = given.env;
        env.extend(given.part.map(|part| ("BDRUN_PART".into(), part)));
        for (name, value) in [
            ("BDRUN_RANK", rank.to_string().into()),
            ("BDRUN_APPNUM", given.number.to_string().into()),
            ("BDRUN_FDS", OsString::from(SOCKET.to_string())),
            ("BDRUN_BUDGET_BYTES", self.setup.limits.budget.to_string().into()),
            ("BDRUN_TRACKER", self.setup.tracker.to_string().into()),
            ("BDRUN_COMPRESS", self.setup.compression.to_string().into()),
            ("BDRUN_SCRATCH", scratch::join(&self.setup.scratch_dirs)),
        ] {
            env.push((name.into(), value));
        }
        // 0: not known.
        let size = if self.np_is_known { self.np() } else { 0 };
        env.push(("BDRUN_SIZE".into(), size.to_string().into()));
        if self.elsewhere.is_some() {
            env.push(super::elsewhere::variable_of_ranks());
        }
        if self.options.check {
            env.push(("BDRUN_CHECK".into(), "1".into()));
        }
        let given_before = |env: &[(OsString, OsString)], wanted: &str| {
            let given = env.iter().rev().find(|(name, _)| name == wanted).map(|(_, value)| value.clone());
            given.or_else(|| std::env::var_os(wanted))
        };
        if let Some(mpi) = &self.setup.mpi {
            let more = mpi.environment(&program, |name| given_before(&env, name));
            env.extend(more);
        }
        if let Some(library) = &self.setup.preload {
            let before = given_before(&env, "LD_PRELOAD");
            env.push(("LD_PRELOAD".into(), super::preload::in_front_of(library, before.as_deref())));
        }
        let is_one = is_one_file(given.stdout.as_deref(), given.stderr.as_deref());
        let (stdout, is_aside) = given.stdout.map(|path| self.written_to(rank, path)).unzip();
        Ok(SpawnSpec {
            rank,
            program,
            args: given.args,
            env,
            fds: vec![(theirs.into(), SOCKET)],
            stdin: match self.piped.of(rank).or(given.stdin) {
                Some(path) => Stdin::File(path),
                None if rank == 0 && self.setup.launch.stdin_is_free() => match self.setup.stdin {
                    Input::File if self.ranks[0].nth > 0 => Stdin::File(stdin::AGAIN.into()),
                    _ => Stdin::Inherit,
                },
                None => Stdin::Null,
            },
            stderr: if is_one { stdout.clone() } else { given.stderr },
            stdout_is_new: self.setup.deals && is_aside == Some(true),
            stdout,
            directory: given.directory,
        })
    }

    /// What a rank reads it can read only once: bdrun's own standard input, unless that is a file.
    pub(super) fn reads_once(&self, rank: u32) -> bool {
        rank == 0
            && self.setup.stdin == Input::Once
            && self.setup.launch.stdin_is_free()
            && self.setup.launch.given(rank).stdin.is_none()
    }

    /// A process of a rank has said hello: it is given what belongs to the job.
    pub(super) fn hand_over(&mut self, rank: u32) {
        let Some(socket) = &self.ranks[rank as usize].control else { return };
        let [mail, spill] = self.setup.mail.fds();
        if let Err(error) = door::hand_over(socket.as_fd(), [self.setup.segment.fd(), mail, spill]) {
            self.end(Ending::Internal(format!("rank {rank}: {error}")));
        }
    }

    /// Says, once in a job, that because of a rank more is used than there is.
    pub(super) fn say_overdraft(&mut self, rank: u32) {
        let Some((bytes, beside)) = self.ranks[rank as usize].overdraft.take() else { return };
        if std::mem::replace(&mut self.told_overdraft, true) {
            return;
        }
        let pool = &self.setup.segment.header().pool;
        // What others held may have left by the time it is said, and what was missing have been messages.
        let fits = bytes.saturating_add(beside) <= pool.budget();
        let (bytes, budget) = (Bytes(bytes), Bytes(pool.budget()));
        let text = if beside == 0 {
            let mail = Bytes(pool.mail());
            format!(
                "rank {rank} alone needs {bytes}, which with {mail} of messages is more than the budget of {budget}: it runs alone"
            )
        } else if fits {
            format!(
                "rank {rank} needs {bytes}, and the others made no room for it: the budget of {budget} is exceeded"
            )
        } else {
            let beside = Bytes(beside);
            format!(
                "rank {rank} needs {bytes}, which with {beside} of others that cannot be paged out is more than the budget of {budget}: it is exceeded"
            )
        };
        self.note(&text);
    }

    /// A rank's process has ended: what it held is free.
    pub(super) fn release_memory_of(&mut self, rank: u32) {
        let segment = self.setup.segment.clone();
        let block = segment.rank(rank);
        block.word.exit();
        let pool = &segment.header().pool;
        let computed = segment.header().tokens.release_of_ended(rank);
        if block.attached.load(SeqCst) != 0 {
            // What it did last nobody else can account for.
            let span = if computed { &block.running_ns } else { &block.waiting_ns };
            span.fetch_add(block.next_span(), SeqCst);
        }
        block.ends.store(0, SeqCst);
        block.prepaid.store(0, SeqCst);
        block.lacks.store(0, SeqCst);
        self.observe_end(rank);
        pool.give(block.granted.swap(0, SeqCst));
        pool.demand_sub(block.held.swap(0, SeqCst));
        self.ranks[rank as usize].seen = Seen::default();
    }

    /// Messages may take half of the budget, but never what the largest rank needs to run.
    pub(super) fn update_mail_limit(&self) {
        let budget = self.setup.limits.budget;
        let room = budget.saturating_sub(2 * self.largest_rank);
        self.setup.segment.header().pool.set_mail_limit(room.min(budget / 2).max(budget / 16));
    }
}
