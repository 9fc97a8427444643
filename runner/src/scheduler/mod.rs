//! The scheduler: who is resident, who leaves, who comes next. A pure state machine: no clock, no I/O, no locks.
//!
//! It is told what happened ([`Event`]) and answers with orders ([`Effect`]); [`crate::scheduler::sim`] drives it with
//! synthetic jobs. `README.md` beside this file has the protocol and why it cannot get stuck.
//!
//! | question | file |
//! |---|---|
//! | what is it told, what does it order? | `event.rs`, `effect.rs` |
//! | what does it know of a rank, and in which sets is it? | `rank.rs`, `index.rs` |
//! | what does an event change? | `mod.rs` |
//! | in which order are orders found? what if nobody can go on? | `plan.rs` |
//! | who may come in? who is next? who goes? | `admission.rs`, `order.rs`, `victim.rs` |
//! | is everything consistent? | `sanity.rs` |

mod admission;
mod effect;
mod event;
mod index;
mod order;
mod plan;
mod rank;
mod sanity;
pub mod sim;
#[cfg(test)]
mod tests;
mod victim;
pub(crate) mod way;

pub use effect::{Effect, Failure};
pub use event::{Event, Wait};

use index::Index;
use rank::{Doing, Life, RankState};

/// The number of a rank, from 0.
pub type Rank = u32;

/// What the job may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of RAM for all ranks and messages together.
    pub budget: u64,
    /// The most ranks that are resident at once; at least 1.
    pub resident: u32,
    /// Whether a single rank that needs more than the budget fails instead of running alone.
    pub enforce: bool,
    /// The most a rank may hold, bytes.
    pub rank_limit: Option<u64>,
    /// Bytes set aside for a rank when it is started.
    pub first_reserve: u64,
    /// The most ranks that are evicted at one moment, and the most that are restored; at least 1. More share the
    /// same disk, and the first of them computes later. Twice the number of processors is a good value.
    pub moves: u32,
    /// The least that is moved, or left behind, of a rank that does not move as a whole, bytes.
    pub part: u64,
    /// Bytes up to which a rank is brought in ahead, at the cost of others that wait, while it cannot run yet.
    pub ahead: u64,
}

/// How many ranks are where.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Not started yet.
    pub unborn: u32,
    /// In RAM, or coming or going.
    pub resident: u32,
    /// Of the resident: running, as far as the scheduler knows.
    pub running: u32,
    /// Of the resident: blocked until there is memory.
    pub memory_blocked: u32,
    /// Of the resident: being evicted.
    pub evicting: u32,
    /// Of the resident: being restored.
    pub restoring: u32,
    /// Out of RAM.
    pub evicted: u32,
    /// Of the evicted: what they wait for is there.
    pub ready: u32,
    /// Ended.
    pub exited: u32,
}

/// The state machine. See the module's text.
#[derive(Debug)]
pub struct Scheduler {
    limits: Limits,
    ranks: Vec<RankState>,
    index: Index,
    /// Bytes that can be given out: the last word of the pool minus what was ordered since.
    free: i64,
    /// Bytes of messages in RAM, as the pool told.
    messages: u64,
    /// Counts [`Event::Pool`]s, to know whether a denied order is already in `free`.
    pool_round: u64,
    /// `free` is known to be wrong (never told, or an order was denied): nothing is given out before the next pool.
    stale: bool,
    /// Counts events; the age of everything.
    now: u64,
    /// How many evicted ranks were brought in ahead of the unborn since one of those was started.
    passed: u64,
    /// How many evicted ranks were brought in so far.
    brought: u64,
    /// Scratch was found full by this rank, for so many bytes. Nothing is evicted until something changes.
    disk_full: Option<(Rank, u64)>,
    /// Everything that refused to be evicted has been asked once more, and nothing has happened since.
    last_call: bool,
    /// The last rank given more than there was.
    overdraft: Option<Rank>,
    /// Unborn ranks are admitted by somebody else ([`Event::Admitted`]).
    lazy: bool,
    ended: bool,
}

impl Scheduler {
    /// A job of `np` ranks, all unborn. Nothing is ordered before the first [`Event::Pool`].
    ///
    /// `np`, `limits.resident` and `limits.moves` of 0 are taken as 1.
    #[must_use]
    pub fn new(np: u32, limits: Limits) -> Self {
        let np = np.max(1);
        let limits = Limits { resident: limits.resident.max(1), moves: limits.moves.max(1), ..limits };
        let ranks = vec![RankState::UNBORN; np as usize];
        Self {
            limits,
            index: Index::unborn(np),
            ranks,
            free: 0,
            messages: 0,
            pool_round: 0,
            stale: true,
            now: 0,
            passed: 0,
            brought: 0,
            disk_full: None,
            last_call: false,
            overdraft: None,
            lazy: false,
            ended: false,
        }
    }

    /// A job whose ranks need not know of each other, and are not paged by themselves: who of them is started is not decided
    /// here but by [`crate::overdraft`], until the first of them joins the co-operative runtime ([`Event::Attached`]). From
    /// then on ranks may wait for each other, and all of them must be started some time.
    #[must_use]
    pub fn of_independent_ranks(np: u32, limits: Limits) -> Self {
        Self { lazy: true, ..Self::new(np, limits) }
    }

    /// Whether unborn ranks are admitted here.
    #[must_use]
    pub fn admits(&self) -> bool {
        !self.lazy
    }

    /// Takes in one event and adds what is to be done to `effects`, in the order in which to do it.
    ///
    /// Events that cannot be true any more, or name a rank that does not exist, change nothing. After
    /// [`Effect::Fail`] or [`Effect::Finish`] nothing is ordered any more.
    pub fn handle(&mut self, event: Event, effects: &mut Vec<Effect>) {
        self.now += 1;
        if self.ended {
            return;
        }
        self.retry_refused();
        let before = effects.len();
        match self.take_in(event) {
            Err(failure) => self.fail(failure, effects),
            Ok(()) if self.index.exited as usize == self.ranks.len() => {
                self.ended = true;
                effects.push(Effect::Finish);
            }
            Ok(()) => {
                self.schedule(effects);
                if let Event::Chaos { rank } = event {
                    self.evict_for_chaos(rank, effects);
                }
                if event == Event::Settled && effects.len() == before && !self.ended {
                    self.settle(effects);
                }
            }
        }
    }

    /// The limits as they are now.
    #[must_use]
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// How many ranks are where, as far as the scheduler knows.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.index.counts()
    }

    /// The last rank that alone was given more than there was, if one ever was.
    #[must_use]
    pub fn overdraft_rank(&self) -> Option<Rank> {
        self.overdraft
    }

    /// Whether nobody runs, comes or goes as far as the scheduler knows: the time to look at all ranks and, if
    /// nothing has changed for a while, to send [`Event::Settled`].
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        !self.ended && self.index.active == 0
    }

    /// Whether somebody waits for memory or a place. Only then does it matter to the scheduler which residents are
    /// blocked; while this is false the shell need not look at them.
    #[must_use]
    pub fn wants_room(&self) -> bool {
        !self.ended && self.has_claims()
    }

    /// Whether the job has ended, well or not.
    #[must_use]
    pub fn is_ended(&self) -> bool {
        self.ended
    }

    /// What an event changes, without what follows from it.
    fn take_in(&mut self, event: Event) -> Result<(), Failure> {
        let rank = match event {
            Event::Pool { free, messages } => {
                self.free = free;
                self.messages = messages;
                self.pool_round += 1;
                self.stale = false;
                return Ok(());
            }
            Event::LimitChanged { budget } => {
                self.limits.budget = budget;
                self.progress();
                self.disk_full = None;
                return Ok(());
            }
            Event::Settled | Event::Chaos { .. } => return Ok(()),
            Event::Admitted { rank }
            | Event::Returned { rank }
            | Event::Spawned { rank }
            | Event::SpawnFailed { rank }
            | Event::Attached { rank }
            | Event::Granted { rank, .. }
            | Event::Blocked { rank, .. }
            | Event::Left { rank, .. }
            | Event::Running { rank }
            | Event::Runnable { rank }
            | Event::NeedsMemory { rank, .. }
            | Event::Evicted { rank, .. }
            | Event::EvictLost { rank }
            | Event::EvictRefused { rank }
            | Event::DiskFull { rank, .. }
            | Event::Restored { rank }
            | Event::RestoredPartly { rank, .. }
            | Event::Denied { rank, .. }
            | Event::Exited { rank, .. } => rank,
        };
        let Some(state) = self.ranks.get(rank as usize) else { return Ok(()) };
        let life = state.life;
        if life == Life::Exited {
            return Ok(());
        }
        match event {
            Event::Pool { .. } | Event::LimitChanged { .. } | Event::Settled | Event::Chaos { .. } => {}
            Event::Admitted { .. } if life == Life::Unborn => {
                self.update(rank, |state| state.life = Life::Spawning);
            }
            Event::Returned { .. } if !self.ranks[rank as usize].attached => {
                self.update(rank, |state| *state = RankState::UNBORN);
            }
            Event::Spawned { .. } if life == Life::Spawning => self.arrived(rank),
            Event::SpawnFailed { .. } => return Err(Failure::SpawnFailed { rank }),
            Event::Attached { .. } => {
                if matches!(life, Life::Spawning) {
                    self.arrived(rank);
                }
                self.update(rank, |state| state.attached = true);
                self.lazy = false;
            }
            Event::Granted { bytes, .. } => return self.granted(rank, bytes),
            Event::Blocked { wait, .. } => self.blocked(rank, Doing::Waits(wait)),
            Event::Left { wait, granted, held, .. } if matches!(life, Life::Spawning | Life::Resident) => {
                self.blocked(rank, Doing::Waits(wait.unwrap_or(Wait::Other)));
                self.left(rank, granted, held);
                if wait.is_none() {
                    self.runnable(rank);
                }
            }
            Event::NeedsMemory { bytes, .. } => return self.needs_memory(rank, bytes),
            // While it is being evicted, the answer to that tells what became of it.
            Event::Running { .. } if matches!(life, Life::Spawning | Life::Resident | Life::Restoring) => {
                self.arrived(rank);
            }
            Event::Runnable { .. } => self.runnable(rank),
            Event::Evicted { granted, held, .. } if life == Life::Evicting => {
                self.progress();
                self.left(rank, granted, held);
            }
            Event::EvictLost { .. } if life == Life::Evicting => self.arrived(rank),
            Event::EvictRefused { .. } if life == Life::Evicting => {
                let now = self.now;
                self.update(rank, |state| state.refuse(now));
            }
            Event::DiskFull { need, part, .. } if life == Life::Evicting => {
                self.disk_full = Some((rank, need));
                match part {
                    Some((granted, held)) => self.left(rank, granted, held),
                    None => self.update(rank, RankState::stay),
                }
            }
            Event::Restored { .. } if life == Life::Restoring => self.arrived(rank),
            Event::RestoredPartly { granted, orders, .. }
                if life == Life::Restoring && orders == self.ranks[rank as usize].orders =>
            {
                self.update(rank, |state| {
                    state.life = Life::Evicted;
                    state.granted = granted;
                    state.pending = None;
                });
            }
            Event::Denied { bytes, .. } => self.denied(rank, bytes),
            Event::Exited { ok: false, .. } => return Err(Failure::RankFailed { rank }),
            Event::Exited { ok: true, .. } => {
                self.progress();
                // Its scratch file went with it.
                self.disk_full = None;
                self.update(rank, |state| {
                    *state = RankState { life: Life::Exited, ..RankState::UNBORN };
                });
            }
            // Overtaken.
            Event::Admitted { .. }
            | Event::Returned { .. }
            | Event::Spawned { .. }
            | Event::Left { .. }
            | Event::Running { .. }
            | Event::Evicted { .. }
            | Event::EvictLost { .. }
            | Event::EvictRefused { .. }
            | Event::DiskFull { .. }
            | Event::Restored { .. }
            | Event::RestoredPartly { .. } => {}
        }
        Ok(())
    }

    /// The rank is in RAM and runs: it was started, restored, granted memory, or woken by a peer.
    fn arrived(&mut self, rank: Rank) {
        self.progress();
        if self.ranks[rank as usize].life == Life::Restoring {
            self.brought += 1;
            self.passed += u64::from(!self.index.unborn.is_empty());
        }
        self.update(rank, |state| {
            state.life = Life::Resident;
            state.doing = Doing::Runs;
            state.pending = None;
            state.keep = 0;
            state.refusals = 0;
        });
    }

    /// The rank is out of RAM, but for `granted` bytes.
    fn left(&mut self, rank: Rank, granted: u64, held: u64) {
        self.update(rank, |state| {
            state.life = Life::Evicted;
            state.held = held;
            state.granted = granted;
            state.keep = 0;
            state.refusals = 0;
        });
    }

    /// The rank holds `bytes` now, by its own doing.
    fn granted(&mut self, rank: Rank, bytes: u64) -> Result<(), Failure> {
        if let Some(limit) = self.limits.rank_limit.filter(|&limit| bytes > limit) {
            return Err(Failure::RankOverLimit { rank, need: bytes, limit });
        }
        self.update(rank, |state| state.granted = bytes);
        Ok(())
    }

    /// A rank waits, in RAM (also if that is how its start ended) or going.
    fn blocked(&mut self, rank: Rank, doing: Doing) {
        let life = self.ranks[rank as usize].life;
        if matches!(life, Life::Unborn | Life::Evicted | Life::Restoring) {
            // How a restore ended is told first; until then this was seen before the order. An evicted rank does not
            // change what it waits for, but it may ask for memory.
            if life != Life::Evicted || !matches!(doing, Doing::NeedsMemory(_)) {
                return;
            }
        }
        if life == Life::Evicting
            && self.ranks[rank as usize].doing == Doing::Runs
            && matches!(doing, Doing::Waits(_))
        {
            // It was woken since it blocked; a wake-up is never forgotten, a needless one does no harm.
            return;
        }
        if life == Life::Spawning {
            self.arrived(rank);
        }
        let (now, turn, distance) = (self.now, self.brought, self.distance_class(&doing));
        self.update(rank, |state| {
            state.doing = doing;
            state.since = now;
            state.turn = turn;
            state.distance = distance;
            state.pending = None;
        });
    }

    /// A rank cannot go on without more memory.
    fn needs_memory(&mut self, rank: Rank, bytes: u64) -> Result<(), Failure> {
        let state = &self.ranks[rank as usize];
        let holds = if state.life == Life::Evicted { state.held } else { state.granted };
        let need = holds.saturating_add(bytes);
        if let Some(limit) = self.limits.rank_limit.filter(|&limit| need > limit) {
            return Err(Failure::RankOverLimit { rank, need, limit });
        }
        if self.limits.enforce && need > self.limits.budget {
            return Err(self.too_large(rank, need));
        }
        self.blocked(rank, Doing::NeedsMemory(bytes));
        Ok(())
    }

    /// What a rank waits for is there.
    fn runnable(&mut self, rank: Rank) {
        // Of any other rank it is overtaken: it is back, or was never gone. To take it for running would be an error that
        // nothing corrects; to take a running rank for blocked is one that its next eviction does.
        let state = &self.ranks[rank as usize];
        if matches!((state.life, state.doing), (Life::Evicting | Life::Evicted, Doing::Waits(_))) {
            let (now, turn) = (self.now, self.brought);
            self.update(rank, |state| {
                state.doing = Doing::Runs;
                state.since = now;
                state.turn = turn;
            });
        }
    }

    /// The pool had `bytes` less than was ordered.
    fn denied(&mut self, rank: Rank, bytes: u64) {
        let Some(pending) = self.ranks[rank as usize].pending else { return };
        if pending.pool_round == self.pool_round {
            self.free = self.free.saturating_add(signed(bytes));
            // Somebody took it, and how much is left is not known.
            self.stale = true;
        }
        self.update(rank, |state| {
            state.granted = state.granted.saturating_sub(bytes);
            if state.life == Life::Restoring {
                // It comes as far as it can, and says how far that was.
                return;
            }
            state.pending = None;
            if state.life == Life::Spawning {
                state.life = Life::Unborn;
            }
        });
    }

    /// Something happened that lets those who refused, and the disk, be asked again.
    fn progress(&mut self) {
        self.last_call = false;
    }

    /// Ends the job.
    fn fail(&mut self, failure: Failure, effects: &mut Vec<Effect>) {
        self.ended = true;
        effects.push(Effect::Fail(failure));
    }

    /// The failure of a rank that cannot get `need` bytes even alone.
    fn too_large(&self, rank: Rank, need: u64) -> Failure {
        Failure::RankTooLarge { rank, need, budget: self.limits.budget, messages: self.messages }
    }

    /// Changes a rank and every set it is in. The only way a rank's state changes.
    fn update(&mut self, rank: Rank, change: impl FnOnce(&mut RankState)) {
        let state = &mut self.ranks[rank as usize];
        self.index.remove(rank, state);
        change(state);
        self.index.insert(rank, state);
    }
}

/// Bytes as a signed number.
fn signed(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}
