//! From scheduler effects to state words and processes.

use std::ffi::OsString;
use std::os::fd::AsFd;
use std::sync::atomic::Ordering::SeqCst;

use bdrun_ipc::door;
use bdrun_ipc::futex::SharedFutex;
use bdrun_ipc::pool::bytes_in;
use bdrun_ipc::state::Woken;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};

use super::Job;
use super::observe::Pending;
use super::scratch;
use crate::display::units::Bytes;
use crate::exit::Ending;
use crate::scheduler::{Effect, Event};
use crate::supervisor::{SpawnSpec, Stdin};

/// The number under which a rank finds its control socket. What else belongs to the job it is given when it says hello.
const SOCKET: i32 = 203;

/// The number under which a rank has frames of the pool.
pub(super) fn frames_owner(rank: u32) -> u32 {
    rank + 2
}

impl Job<'_> {
    pub(super) fn order(&mut self, order: Effect) {
        match order {
            Effect::Spawn { rank, reserve } => self.spawn(rank, reserve),
            Effect::Evict { rank, keep } => self.evict(rank, keep),
            Effect::Restore { rank, bytes, all, overdraft } => self.restore(rank, bytes, all, overdraft),
            Effect::Grant { rank, bytes, overdraft } => self.grant(rank, bytes, overdraft),
            Effect::Fail(_) | Effect::Finish => {}
        }
    }

    /// Take bytes for a rank out of the pool; if they are gone the scheduler is told.
    fn pay(&mut self, rank: u32, bytes: u64, overdraft: bool) -> bool {
        let pool = &self.setup.segment.header().pool;
        let paid = pool.take(bytes) || (overdraft && self.force(rank, bytes));
        if !paid {
            self.events.push(Event::Denied { rank, bytes });
        }
        paid
    }

    /// Take more than there is, if really nobody else holds anything: one who was woken a moment ago may, and the
    /// scheduler not know yet.
    fn force(&mut self, rank: u32, bytes: u64) -> bool {
        let segment = self.setup.segment.clone();
        let holds = |other: u32| segment.rank(other).granted.load(SeqCst) > 0;
        if (0..segment.np()).any(|other| other != rank && holds(other)) {
            self.observe_all();
            return false;
        }
        segment.header().pool.force(bytes);
        true
    }

    fn spawn(&mut self, rank: u32, reserve: u64) {
        if !self.pay(rank, reserve, false) {
            return;
        }
        let segment = self.setup.segment.clone();
        let block = segment.rank(rank);
        block.granted.store(reserve, SeqCst);
        block.prepaid.store(reserve, SeqCst);
        match self.spawn_spec(rank) {
            Ok(spec) => {
                block.word.birth();
                self.alive += 1;
                self.most_alive = self.most_alive.max(self.alive);
                self.supervisor.spawn(spec);
            }
            Err(error) => self.end(Ending::Setup(format!("rank {rank} cannot be started: {error}"))),
        }
    }

    pub(super) fn spawn_spec(&mut self, rank: u32) -> std::io::Result<SpawnSpec> {
        let (ours, theirs) =
            socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC)?;
        self.listeners.add(rank, ours.as_fd())?;
        self.ranks[rank as usize].control = Some(ours);
        let given = self.setup.launch.given(rank);
        let mut env = given.env;
        env.extend(given.part.map(|part| ("BDRUN_PART".into(), part)));
        for (name, value) in [
            ("BDRUN_RANK", rank.to_string().into()),
            ("BDRUN_SIZE", self.options.np.to_string().into()),
            ("BDRUN_FDS", OsString::from(SOCKET.to_string())),
            ("BDRUN_BUDGET_BYTES", self.setup.limits.budget.to_string().into()),
            ("BDRUN_TRACKER", self.setup.tracker.to_string().into()),
            ("BDRUN_COMPRESS", self.setup.compression.to_string().into()),
            ("BDRUN_SCRATCH", scratch::join(&self.setup.scratch_dirs)),
        ] {
            env.push((name.into(), value));
        }
        if let Some(library) = &self.setup.preload {
            let given =
                env.iter().rev().find(|(name, _)| name == "LD_PRELOAD").map(|(_, value)| value.clone());
            let before = given.or_else(|| std::env::var_os("LD_PRELOAD"));
            env.push(("LD_PRELOAD".into(), super::preload::in_front_of(library, before.as_deref())));
        }
        Ok(SpawnSpec {
            rank,
            program: self.setup.program_of(rank)?,
            args: given.args,
            env,
            fds: vec![(theirs.into(), SOCKET)],
            stdin: match given.stdin {
                Some(path) => Stdin::File(path),
                None if rank == 0 && self.setup.launch.stdin_is_free() => Stdin::Inherit,
                None => Stdin::Null,
            },
            stdout: given.stdout,
            stderr: given.stderr,
            directory: given.directory,
        })
    }

    /// A process of a rank has said hello: it is given what belongs to the job.
    pub(super) fn hand_over(&mut self, rank: u32) {
        let Some(socket) = &self.ranks[rank as usize].control else { return };
        let [mail, spill] = self.setup.mail.fds();
        let mut given = vec![self.setup.segment.fd(), mail, spill];
        given.extend(self.setup.frames.iter().flat_map(|frames| frames.fds()));
        if let Err(error) = door::hand_over(socket.as_fd(), &given, frames_owner(rank)) {
            self.end(Ending::Internal(format!("rank {rank}: {error}")));
        }
    }

    fn evict(&mut self, rank: u32, keep: u64) {
        let segment = self.setup.segment.clone();
        let block = segment.rank(rank);
        block.evict_failure.store(0, SeqCst);
        block.keep.store(keep, SeqCst);
        self.forget(rank);
        if block.word.try_evict(&SharedFutex) {
            let seen = &mut self.ranks[rank as usize].seen;
            // Read after it was taken: it may have run and blocked again just before.
            seen.waits = block.waits.load(SeqCst);
            seen.pending = Some(Pending::Evict);
        } else {
            self.events.push(Event::EvictLost { rank });
            self.observe(rank);
        }
    }

    /// Brings a rank in, or gives one on its way more to go on with.
    fn restore(&mut self, rank: u32, bytes: u64, all: u64, overdraft: bool) {
        let pool = &self.setup.segment.header().pool;
        let mut got = pool.take_up_to(bytes);
        if overdraft && got < bytes && self.force(rank, bytes - got) {
            got = bytes;
        }
        if got < bytes {
            self.events.push(Event::Denied { rank, bytes: bytes - got });
        }
        let segment = self.setup.segment.clone();
        let block = segment.rank(rank);
        block.all.store(all, SeqCst);
        let granted = block.granted.fetch_add(got, SeqCst) + got;
        if overdraft {
            self.note_overdraft(rank, granted, 0);
        }
        let seen = &mut self.ranks[rank as usize].seen;
        seen.orders = seen.orders.wrapping_add(1);
        if seen.pending == Some(Pending::Restore) {
            // It looks at `granted` again and again; if it has just looked for the last time it says so, and is asked anew.
            return;
        }
        self.forget(rank);
        let seen = &mut self.ranks[rank as usize].seen;
        seen.waits = block.waits.load(SeqCst);
        seen.pending = Some(Pending::Restore);
        let asked = block.request.swap(0, SeqCst);
        if asked > 0 {
            block.asked.store(asked, SeqCst);
            // What it waits for is there: marks it runnable, so that it runs once it is in RAM.
            block.word.wake(&SharedFutex);
        }
        block.word.try_restore(&SharedFutex);
    }

    fn grant(&mut self, rank: u32, bytes: u64, overdraft: bool) {
        if !self.pay(rank, bytes, overdraft) {
            return;
        }
        let segment = self.setup.segment.clone();
        let block = segment.rank(rank);
        block.granted.fetch_add(bytes, SeqCst);
        block.prepaid.fetch_add(bytes, SeqCst);
        block.request.store(0, SeqCst);
        self.forget(rank);
        if overdraft {
            self.note_overdraft(rank, bytes_in(&block.granted), 0);
        }
        if block.word.wake(&SharedFutex) == Woken::NeedsMaster {
            self.observe(rank);
        }
    }

    /// Frames that nobody is about to use are given back as far as the budget has no room for them.
    pub(super) fn update_frames(&self, restoring: u32) {
        let header = self.setup.segment.header();
        header.restoring.store(restoring, SeqCst);
        if restoring == 0
            && let Some(frames) = &self.setup.frames
        {
            frames.trim(header.pool.free().max(0) as u64);
        }
    }

    pub(super) fn note_overdraft(&mut self, rank: u32, bytes: u64, beside: u64) {
        if self.overdraft.replace(rank).is_some() {
            return;
        }
        let pool = &self.setup.segment.header().pool;
        let (bytes, budget) = (Bytes(bytes), Bytes(pool.budget()));
        let text = if beside == 0 {
            let mail = Bytes(pool.mail());
            format!(
                "rank {rank} alone needs {bytes}, which with {mail} of messages is more than the budget of {budget}: it runs alone"
            )
        } else {
            let beside = Bytes(beside);
            format!(
                "rank {rank} needs {bytes}, which with {beside} of others that cannot be paged out is more than the budget of {budget}: it is exceeded"
            )
        };
        super::lock(&self.output).note(&text);
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
        block.prepaid.store(0, SeqCst);
        pool.give(block.granted.swap(0, SeqCst));
        pool.demand_sub(block.held.swap(0, SeqCst));
        self.ranks[rank as usize].seen.pending = None;
    }

    /// Messages may take half of the budget, but never what the largest rank needs to run.
    pub(super) fn update_mail_limit(&self) {
        let budget = self.setup.limits.budget;
        let room = budget.saturating_sub(2 * self.largest_rank);
        self.setup.segment.header().pool.set_mail_limit(room.min(budget / 2).max(budget / 16));
    }
}
