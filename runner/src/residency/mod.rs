//! Which ranks are in RAM: who is admitted, who leaves, who comes back, who stands still. A pure state
//! machine: no clock, no I/O.
//!
//! It is told what happened ([`Event`]) and answers with orders ([`Effect`]). Ranks differ in what they
//! [`Can`]: some ask before they take memory and tell when they wait; of others all is learned by looks at
//! what they hold. [`sim`] drives it with synthetic jobs of all kinds at once. `README.md` beside this file
//! has the protocol, and why it cannot get stuck.
//!
//! | question | file |
//! |---|---|
//! | what is it told, what does it order? | `event.rs`, `effect.rs` |
//! | what does it know of a rank, and in which sets is it? | `rank.rs`, `states.rs`, `index.rs` |
//! | what does an event change? | `mod.rs`, `answer.rs` |
//! | how much is used, and free? | `account.rs` |
//! | what will a rank need? who is admitted next? | `digest.rs`, `queue.rs` |
//! | may more be begun than are expected to fit? | `overbook.rs` |
//! | how would a job go of which all is known? | `outlook.rs` |
//! | how fast does memory grow, how busy are the processors? | `pace.rs` |
//! | somebody waits for memory or a place: who is next, who makes room? | `claims.rs`, `victim.rs` |
//! | memory is short: who goes, stands still, ends? | `relieve.rs` |
//! | there is room: who goes on, comes back, begins? | `proceed.rs` |
//! | nobody makes room for whom the others may wait for? | `turn.rs` |
//! | what does a rank do, in a word? why does it not run? | `activity.rs`, `situation.rs` |
//! | is everything consistent? | `sanity.rs` |

mod account;
mod activity;
mod answer;
mod claims;
mod digest;
mod effect;
mod event;
mod index;
mod outlook;
mod overbook;
mod pace;
mod proceed;
mod queue;
mod rank;
mod relieve;
mod sanity;
pub mod sim;
mod situation;
mod states;
#[cfg(test)]
mod tests;
mod turn;
mod victim;

pub use activity::Activity;
pub use effect::{Effect, Failure};
pub use event::{Can, Event, Memory, Next, Outcome, Wait};
pub use outlook::Outlook;
pub use situation::{Hindrance, Situation};

use std::time::Duration;

use serde::{Deserialize, Serialize};

use account::Pool;
use digest::Digest;
pub use digest::{Expect, Informed};
use index::Index;
use overbook::Overbooking;
use pace::Pace;
use queue::Queue;
use rank::{Doing, Life, RankState};
use states::States;
use turn::Turn;

/// The number of a rank, from 0.
pub type Rank = u32;

/// What the job may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Bytes of RAM for all ranks and messages together.
    pub budget: u64,
    /// Processors that ranks may use; at least 1.
    pub processors: u32,
    /// The most ranks that are in RAM at once; at least 1.
    pub resident: u32,
    /// The most ranks that have been begun and have not ended, where they are independent; at least 1.
    pub alive: u32,
    /// The most a rank may hold, bytes.
    pub rank_limit: Option<u64>,
    /// Whether the budget is never exceeded: who needs more fails.
    pub enforce: bool,
    /// Bytes set aside for a rank that asks when it is started.
    pub first_reserve: u64,
    /// The most ranks that are evicted at one moment, and the most that are restored; at least 1. More share
    /// the same disk, and the first of them computes later. Twice the number of processors is a good value.
    pub moves: u32,
    /// The least that is moved, or left behind, of a rank that does not move as a whole, bytes.
    pub part: u64,
    /// Bytes up to which a rank is brought in ahead, at the cost of others that wait, while it cannot run
    /// yet.
    pub ahead: u64,
}

/// How many ranks are where.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Not started yet, or stopped and waiting to be started again.
    pub unborn: u32,
    /// Being started.
    pub starting: u32,
    /// In RAM and running, as far as is known; also those about to be held.
    pub running: u32,
    /// In RAM, standing still.
    pub held: u32,
    /// In RAM, blocked until there is memory.
    pub memory_blocked: u32,
    /// Being evicted, as a whole or in part.
    pub evicting: u32,
    /// Out.
    pub out: u32,
    /// Of those out, or that are coming: would run if they were in RAM.
    pub ready: u32,
    /// Being brought back.
    pub restoring: u32,
    /// Told to end.
    pub stopping: u32,
    /// Taking a place in RAM.
    pub resident: u32,
    /// Ended, whether well or not; also those that could not be started.
    pub exited: u32,
}

/// The first start has this number; below are those that became older than all others.
const FIRST: u64 = 1 << 32;

/// The state machine. See the module's text.
#[derive(Debug)]
pub struct Core {
    limits: Limits,
    ranks: States,
    /// Others may come.
    more: bool,
    index: Index,
    queue: Queue,
    digest: Digest,
    pace: Pace,
    overbooking: Overbooking,
    pool: Pool,
    /// Counts events; the age of everything.
    now: u64,
    /// Counts starts.
    started: u64,
    /// Counts down, from the first start, those that became the oldest because it was their turn.
    seniors: u64,
    /// How many ranks were brought in so far, and how many since one that was not started was.
    brought: u64,
    passed: u64,
    /// Some rank tells: ranks may wait for each other, and all of them must be started some time.
    together: bool,
    /// Somebody may come in if that is still so after a look.
    asks: bool,
    /// Scratch was found full by this rank, for so many bytes: nobody is evicted before something changes.
    disk_full: Option<(Rank, u64)>,
    /// Everything that refused to be evicted has been asked once more, and nothing has happened since.
    last_call: bool,
    turn: Option<Turn>,
    /// For whose turn others were sent out, and since when, as time of the job.
    turned: Option<(Rank, Duration)>,
    /// How long the last such exchange took.
    exchange: Duration,
    /// How many there were.
    turns: u32,
    /// The largest rank is to run alone first, as a pilot: its peak tells what to expect of the others.
    pilot: bool,
    /// The last rank that was given more than there was.
    overdraft: Option<Rank>,
    /// So many more places are taken than there are.
    crowd: u32,
    /// Of those that tell the last that was seen to hold more than before without asking.
    grew: Option<Rank>,
    /// Bytes that threads wait for, beside ranks.
    lacking: u64,
    /// Nobody else is begun.
    halted: bool,
    ended: bool,
}

impl Core {
    /// A job of `ranks.len()` ranks, none of them started: what can be done with each, and the size that was
    /// declared for it, in any unit, if one was.
    ///
    /// `limits.processors`, `limits.resident` and `limits.moves` of 0 are taken as 1. Nothing is ordered
    /// before the first [`Event::Pool`].
    #[must_use]
    pub fn new(limits: Limits, ranks: &[(Can, Option<u64>)]) -> Self {
        let Limits { processors, resident, moves, .. } = limits;
        let limits = Limits {
            processors: processors.max(1),
            resident: resident.max(1),
            moves: moves.max(1),
            alive: limits.alive.max(1),
            ..limits
        };
        let sized = ranks.iter().filter(|(can, size)| !can.asks && size.is_some()).count();
        let together = ranks.iter().any(|(can, _)| can.tells);
        let first = ranks.first().map_or(Can::NONE, |&(can, _)| can);
        let alike = RankState { can: first, queued: !together, ..RankState::UNBORN };
        let mut core = Self {
            limits,
            ranks: States::new(alike),
            more: false,
            index: Index::default(),
            queue: Queue::default(),
            digest: Digest::new(Expect::default()),
            pace: Pace::new(&limits),
            overbooking: Overbooking::default(),
            pool: Pool::UNKNOWN,
            now: 0,
            started: FIRST,
            seniors: FIRST,
            brought: 0,
            passed: 0,
            together,
            asks: false,
            disk_full: None,
            last_call: false,
            turn: None,
            turned: None,
            exchange: Duration::ZERO,
            turns: 0,
            // It costs the time of one rank on one processor, so it is worth it only where there are many.
            pilot: sized > 4 * limits.processors as usize,
            overdraft: None,
            crowd: 0,
            grew: None,
            lacking: 0,
            halted: false,
            ended: false,
        };
        core.ranks.grow(ranks.len());
        for (rank, &(can, size)) in (0..).zip(ranks) {
            let declared = size.unwrap_or(0);
            let state = RankState { can, declared, order: declared, ..alike };
            core.index.change(rank, None, Some(&state));
            if state != alike {
                *core.ranks.own(rank as usize) = state;
            }
            if state.queued {
                core.queue.push(rank, &state);
            }
        }
        core
    }

    /// A job to which independent ranks come ([`Event::Came`]): what can be done with each.
    #[must_use]
    pub fn open(limits: Limits, can: Can) -> Self {
        let mut core = Self::new(limits, &[]);
        core.ranks = States::new(RankState { can, queued: true, ..RankState::UNBORN });
        core.more = true;
        core
    }

    /// A job of so many independent ranks, of which others run elsewhere: until they are given
    /// to this node ([`Event::Given`]) all are over here.
    #[must_use]
    pub fn shared_out(limits: Limits, can: Can, ranks: u32) -> Self {
        let mut core = Self::open(limits, can);
        core.ranks.grow(ranks as usize);
        core.ranks.end_all();
        core.index.gone = ranks;
        core
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
        if let Event::Sample { rank, bytes, fixed } = event {
            self.sample(rank, bytes, fixed, effects);
            return;
        }
        let (before, looked) = (effects.len(), matches!(event, Event::Looked { .. }));
        if let Err(failure) = self.take_in(event) {
            return self.fail_job(failure, effects);
        }
        self.crowd = self.crowd.min(self.index.residents().saturating_sub(self.limits.resident));
        self.ask_refused_again();
        if self.index.gone as usize == self.ranks.len() && !self.more {
            self.ended = true;
            effects.push(Effect::Finish);
            return;
        }
        if self.pool.is_unknown() {
            return;
        }
        if let Event::Chaos { rank } = event {
            self.evict_for_chaos(rank, effects);
        }
        self.schedule(looked, effects);
        if event == Event::Settled && effects.len() == before {
            self.settle(effects);
        }
    }

    /// Orders everything that can be ordered now: who is to be there least of all first.
    fn schedule(&mut self, looked: bool, effects: &mut Vec<Effect>) {
        if self.pace.looks > 0 {
            self.relieve(looked, effects);
        }
        self.take_turns(looked, effects);
        self.serve_claims(effects);
        if self.pace.looks > 0 {
            self.proceed(looked, effects);
        }
        self.make_room(effects);
        self.take_turn_if_nobody_moves(effects);
    }

    /// How soon after the last look memory must be looked at again; between 2 and 100 ms. To be asked again
    /// after every event: once somebody was let go on, it may be at once.
    #[must_use]
    pub fn next_look(&self) -> Duration {
        if self.asks {
            return pace::SOONEST;
        }
        let index = &self.index;
        let grow = index.active - index.active_telling;
        let may_grow = index.active_telling > index.active_for_long;
        let free = self.limits.budget.saturating_sub(self.used());
        self.pace.next_look(grow, may_grow, free, &self.limits)
    }

    /// Bytes to be kept free for what is measured and grows: to be charged to the pool beside what it holds.
    /// None while nobody asks.
    #[must_use]
    pub fn kept_free(&self) -> u64 {
        if self.together { self.margin() } else { 0 }
    }

    /// Bytes that the others have asked for and hold, as far as is known.
    #[must_use]
    pub fn asked_beside(&self, rank: Rank) -> u64 {
        let own = self.ranks.get(rank as usize).map_or(0, |state| state.holds.asked);
        self.index.asked.saturating_sub(own)
    }

    /// How often a rank came in because it was its turn: the others did nothing, and seemed to wait for it.
    #[must_use]
    pub const fn turns(&self) -> u32 {
        self.turns
    }

    /// The limits as they are now.
    #[must_use]
    pub const fn limits(&self) -> &Limits {
        &self.limits
    }

    /// How many ranks are where, as far as is known.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.index.counts(self.queue.len())
    }

    /// The last rank that was given more than there was, if one ever was.
    #[must_use]
    pub const fn overdraft_rank(&self) -> Option<Rank> {
        self.overdraft
    }

    /// Whether nobody runs, comes or goes as far as is known: the time to look at all ranks and, if nothing
    /// has changed for a while, to send [`Event::Settled`].
    #[must_use]
    pub const fn is_quiet(&self) -> bool {
        !self.ended && self.index.awaited == 0
    }

    /// Whether somebody waits for memory or a place. Only then does it matter which residents wait; while
    /// this is false the shell need not look at them.
    #[must_use]
    pub fn wants_room(&self) -> bool {
        !self.ended && (self.has_claims() || self.lacking > 0)
    }

    /// Whether somebody is making room, or may be asked to.
    #[must_use]
    pub fn may_make_room(&self) -> bool {
        let index = &self.index;
        let waiting = !index.heavy.is_empty() || !index.parts.is_empty();
        let others = waiting || self.stranger_victim().is_some() || index.preemptible.len() > 1;
        self.relief_is_coming() || (self.may_evict() && others)
    }

    /// Whether the job has ended, well or not.
    #[must_use]
    pub const fn is_ended(&self) -> bool {
        self.ended
    }

    /// A rank need not be begun: it was done earlier, when it needed this much. To be said before the first
    /// event, since that may begin all ranks at once. False: no such rank is known.
    pub fn was_done_before(&mut self, rank: Rank, peak: u64) -> bool {
        let over = self.take_in(Event::Exited { rank, peak, next: Next::Over });
        over.is_ok() && (rank as usize) < self.ranks.len()
    }

    /// What an event changes, without what follows from it.
    fn take_in(&mut self, event: Event) -> Result<(), Failure> {
        match event {
            Event::Pool { asked, messages, measured, kept } => {
                self.pool.told(asked, messages, measured, kept);
                return Ok(());
            }
            Event::Looked { elapsed, busy, idle, reaction } => {
                self.asks = false;
                let doing = self.doing();
                self.pace.looked(elapsed, [busy, idle], reaction, doing, &self.limits);
                self.judge_overbooking(elapsed);
                return Ok(());
            }
            Event::LimitChanged { budget } => {
                self.limits.budget = budget;
                self.last_call = false;
                self.disk_full = None;
                return Ok(());
            }
            Event::Halt => {
                self.halt();
                return Ok(());
            }
            Event::Came { ranks, more } => {
                self.came(ranks, more);
                return Ok(());
            }
            Event::Given { rank, declared, known } => {
                self.given(rank, declared, known);
                return Ok(());
            }
            Event::Settled | Event::Chaos { .. } | Event::Sample { .. } => return Ok(()),
            _ => {}
        }
        let Some(rank) = event.rank() else { return Ok(()) };
        if let Event::Lacks { bytes, .. } = event {
            self.lacking = bytes;
            return Ok(());
        }
        let Some(state) = self.ranks.get(rank as usize) else { return Ok(()) };
        let life = state.life;
        if life == Life::Gone {
            return Ok(());
        }
        match event {
            Event::Can { can, .. } => self.can(rank, can),
            Event::Interrupted { .. } if life == Life::Evicting => self.interrupted(rank),
            Event::Done { outcome, .. } => self.done(rank, life, outcome),
            Event::Denied { bytes, .. } => self.denied(rank, bytes),
            Event::Granted { bytes, .. } => {
                if let Some(limit) = self.limits.rank_limit.filter(|&limit| bytes > limit) {
                    return Err(Failure::RankOverLimit { rank, need: bytes, limit });
                }
                self.update(rank, |state| {
                    state.holds.asked = bytes;
                    state.peak = state.peak.max(state.holds.total());
                });
                if self.used() > self.limits.budget {
                    self.grew = Some(rank);
                }
            }
            Event::Freed { bytes, .. } if matches!(life, Life::Evicting | Life::Shrinking) => {
                self.update(rank, |state| {
                    state.holds.other = state.from.saturating_sub(bytes).max(state.keep.other);
                });
            }
            Event::Running { .. } if life == Life::Resident => self.arrived(rank),
            Event::Ending { .. } if life != Life::Unborn => {
                // That it was woken by another may not have been heard.
                if life == Life::Resident {
                    self.arrived(rank);
                }
                self.update(rank, |state| state.ends = true);
            }
            Event::Blocked { wait, .. } => self.blocked(rank, Doing::Waits(wait)),
            Event::EvictedItself { wait, .. } if life == Life::Evicting && state.interrupted => {
                // It was out before the order was carried out, and nobody interrupted it: it may come back in
                // parts.
                self.update(rank, |state| {
                    state.interrupted = false;
                    state.doing = wait.map_or(Doing::Runs, Doing::Waits);
                });
            }
            Event::EvictedItself { wait, asked, all, .. }
                if matches!(life, Life::Starting | Life::Resident) =>
            {
                self.blocked(rank, Doing::Waits(wait.unwrap_or(Wait::Other)));
                let other = self.ranks[rank as usize].holds.other;
                self.evicted(rank, Memory { asked, other }, Memory { asked: all, other });
                if wait.is_none() {
                    self.runnable(rank);
                }
            }
            Event::Runnable { .. } => self.runnable(rank),
            Event::NeedsMemory { bytes, .. } => return self.needs_memory(rank, bytes),
            Event::Exited { peak, next, .. } => self.exited(rank, peak, next),
            // Overtaken, or taken in above.
            _ => {}
        }
        Ok(())
    }

    /// What can be done with a rank has changed.
    fn can(&mut self, rank: Rank, can: Can) {
        if self.ranks[rank as usize].life == Life::Starting {
            self.arrived(rank);
        }
        self.update(rank, |state| state.can = can);
        if can.tells && !self.together {
            self.together = true;
            // From here on all of them must be started some time: others may wait for them.
            for rank in self.queue.give_up() {
                self.update(rank, |state| state.queued = false);
            }
        }
    }

    /// What a rank holds was measured.
    fn sample(&mut self, rank: Rank, bytes: u64, fixed: u64, effects: &mut Vec<Effect>) {
        let Some(state) = self.ranks.get(rank as usize) else { return };
        use Life::{Evicting, Held, Holding, Resident, Resuming, Shrinking, Starting};
        if matches!(state.life, Evicting | Shrinking) && state.holds.other == state.from {
            // Nothing has left yet: it runs until it stands, and had grown before it was ordered out.
            if !state.can.asks && bytes > state.from {
                self.update(rank, |state| (state.from, state.holds.other) = (bytes, bytes));
            }
            return;
        }
        if !matches!(state.life, Starting | Resident | Holding | Held | Resuming) {
            // What it holds changes by our orders, and they tell.
            return;
        }
        if state.can.tells && bytes > state.holds.other {
            self.grew = Some(rank);
        }
        // What comes back of one in parts, up to its target, its mover keeps within bounds.
        let bounded = if state.partial { state.target } else { 0 };
        self.pace.grew(bytes.saturating_sub(state.holds.other.max(bounded)));
        self.overbooking.saw_fixed(fixed.min(bytes));
        let clock = micros(self.pace.clock);
        self.update(rank, |state| state.measured(bytes, fixed, clock));
        let state = &self.ranks[rank as usize];
        let limit = self.limits.rank_limit.filter(|&limit| state.holds.total() > limit);
        if let Some(limit) = limit.filter(|_| matches!(state.life, Resident | Held)) {
            self.kill(rank, limit, effects);
        }
    }

    /// What the ranks did up to this look.
    fn doing(&self) -> pace::Doing {
        let index = &self.index;
        let moving = index.evicting + index.restoring + index.shrinking;
        // Ranks that are short may start all the time.
        let disturbed = moving + index.holding + index.stopping;
        pace::Doing {
            active: index.active,
            disturbed: disturbed > 0,
            moves: moving + index.starting > index.eager_moves,
            telling: index.compute_for_long > 0,
        }
    }

    /// Those who refused to leave, a while ago, may be asked again.
    fn ask_refused_again(&mut self) {
        let due = |set: &std::collections::BTreeSet<index::Aged>, now| {
            set.first().filter(|&&(due, _)| due <= now).map(|&(_, rank)| rank)
        };
        while let Some(rank) =
            due(&self.index.refused, self.now).or(due(&self.index.refused_strangers, self.pace.looks))
        {
            self.update(rank, |state| state.refused_until = 0);
        }
    }

    /// Ends the job.
    fn fail_job(&mut self, failure: Failure, effects: &mut Vec<Effect>) {
        self.ended = true;
        effects.push(Effect::Fail(failure));
    }

    /// Changes a rank and every set it is in. The only way a rank's state changes.
    fn update(&mut self, rank: Rank, change: impl FnOnce(&mut RankState)) {
        let state = self.ranks.own(rank as usize);
        let before = *state;
        change(state);
        self.index.change(rank, Some(&before), Some(state));
        if state.life == Life::Gone {
            self.ranks.end(rank as usize);
        }
    }
}

/// Bytes as a signed number.
fn signed(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

/// A time as ranks keep it.
fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}
