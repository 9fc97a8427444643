//! Overdraft: which independent ranks are in RAM. A pure state machine: no clock, no I/O.
//!
//! Independent ranks are programs that know nothing of us. They take memory without asking, so the core learns what they
//! hold only by looks ([`Event::Sample`], [`Event::Looked`]), and answers with orders ([`Effect`]): who is admitted, who is
//! paged out when memory gets short, who comes back, who stands still meanwhile. `README.md` beside this file has the
//! protocol and why it cannot get stuck; [`sim`] drives it with synthetic jobs.
//!
//! In the simulator, 256 partitions that each need 2 to 6 times their declared size, of which about five fit, take 1.02 to 1.09
//! times the ideal max(work / processors, bytes / disk) on two processors if they grow evenly or at the end, 1.07 to 1.21
//! if they take all at once (`sim/tests.rs`).
//!
//! | question | file |
//! |---|---|
//! | what is it told, what does it order? | `event.rs`, `effect.rs` |
//! | what does it know of a rank, and in which sets is it? | `rank.rs`, `index.rs` |
//! | what does an event change? | `mod.rs` |
//! | what will a rank need? who is admitted next? | `digest.rs`, `queue.rs` |
//! | may more be begun than are expected to fit? | `overbook.rs` |
//! | how fast does memory grow, how busy are the processors? | `pace.rs` |
//! | memory is short: who goes, stands still, ends? | `relieve.rs` |
//! | there is room: who goes on, comes back, begins? | `proceed.rs` |
//! | is everything consistent? | `sanity.rs` |

mod digest;
mod effect;
mod event;
mod index;
mod overbook;
mod pace;
mod proceed;
mod queue;
mod rank;
mod relieve;
mod sanity;
pub mod sim;
#[cfg(test)]
mod tests;

use std::time::Duration;

pub use effect::Effect;
pub use event::Event;

use crate::scheduler::Rank;
use digest::Digest;
use index::Index;
use overbook::Overbooking;
use pace::{Doing, Pace};
use queue::Queue;
use rank::{Life, RankState};

/// What the job may use, and what can be done to its ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of RAM for all ranks, and for the others that [`Event::Looked`] tells of, together.
    pub budget: u64,
    /// Processors that ranks may use; at least 1.
    pub processors: u32,
    /// The most ranks that are in RAM at once; at least 1.
    pub resident: u32,
    /// The most a rank may hold, bytes.
    pub rank_limit: Option<u64>,
    /// Ranks can be paged out (ptrace is permitted, there is scratch).
    pub may_page: bool,
    /// Ranks can be made to stand still.
    pub may_freeze: bool,
    /// Where nothing can be paged, a rank may be ended to make room, and started again from its beginning later.
    pub may_stop: bool,
    /// A single rank that needs more than the budget, and cannot be paged in parts, fails instead of exceeding it.
    pub enforce: bool,
}

/// How many ranks are where.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Not started yet, or stopped and waiting to be started again.
    pub unborn: u32,
    /// Being started.
    pub starting: u32,
    /// Running, as far as is known; also those about to be held or just continued.
    pub running: u32,
    /// In RAM, standing still.
    pub held: u32,
    /// Being paged out, as a whole or in part.
    pub evicting: u32,
    /// Out.
    pub out: u32,
    /// Being brought back.
    pub restoring: u32,
    /// Told to end.
    pub stopping: u32,
    /// Ended, whether well or not; also those that could not be started.
    pub exited: u32,
    /// Handed over to the co-operative scheduler.
    pub adopted: u32,
    /// Left to the co-operative scheduler before they were started.
    pub given_up: u32,
}

/// The first admission has this number; below are those that became older than all others.
const FIRST: u64 = 1 << 32;

/// The state machine. See the module's text.
#[derive(Debug)]
pub struct Overdraft {
    limits: Limits,
    ranks: Vec<RankState>,
    index: Index,
    queue: Queue,
    digest: Digest,
    pace: Pace,
    overbooking: Overbooking,
    /// Counts events.
    now: u64,
    /// Counts admissions.
    admitted: u64,
    /// Counts down, from the first admission, those that became the oldest because it was their turn.
    seniors: u64,
    /// Somebody may come in if that is still so after a look.
    asks: bool,
    /// Scratch was found full: nobody is paged out before somebody ends.
    disk_full: bool,
    /// Nobody did anything for a while although somebody is out: this one, which is out longest, comes in next.
    turn: Option<Rank>,
    /// Who came in last because it was its turn, and since when that was so, as time of the job.
    turned: Option<(Rank, Duration)>,
    /// How often one that runs in parts was made smaller for this turn.
    shrunk_for_turn: u32,
    /// How long the last such exchange took.
    exchange: Duration,
    /// How many there were.
    turns: u32,
    /// The largest rank is to run alone first, as a pilot: its peak tells what to expect of the others.
    pilot: bool,
    adopted: u32,
    given_up: u32,
}

impl Overdraft {
    /// A job of `sizes.len()` ranks, none of them started. `sizes` are what was declared for each: how large its part
    /// of the work is, in any unit, if anything was.
    ///
    /// `limits.processors` and `limits.resident` of 0 are taken as 1. Nothing is ordered before the first
    /// [`Event::Looked`].
    #[must_use]
    pub fn new(limits: Limits, sizes: &[Option<u64>]) -> Self {
        let limits =
            Limits { processors: limits.processors.max(1), resident: limits.resident.max(1), ..limits };
        let ranks = sizes.iter().map(|&declared| RankState { declared, ..RankState::UNBORN }).collect();
        Self {
            limits,
            ranks,
            index: Index::default(),
            queue: Queue::new(sizes),
            digest: Digest::new(),
            pace: Pace::new(&limits),
            overbooking: Overbooking::default(),
            now: 0,
            admitted: FIRST,
            seniors: FIRST,
            asks: false,
            disk_full: false,
            turn: None,
            turned: None,
            shrunk_for_turn: 0,
            exchange: Duration::ZERO,
            turns: 0,
            // It costs the time of one rank on one processor, so it is worth it only where there are many.
            pilot: sizes.iter().flatten().count() > 4 * limits.processors as usize,
            adopted: 0,
            given_up: 0,
        }
    }

    /// Takes in one event and adds what is to be done to `effects`, in the order in which to do it.
    ///
    /// Events that cannot be true any more, or name a rank that does not exist, change nothing.
    pub fn handle(&mut self, event: Event, effects: &mut Vec<Effect>) {
        self.now += 1;
        if let Event::Sample { rank, bytes, fixed } = event {
            self.sample(rank, bytes, fixed, effects);
            return;
        }
        self.take_in(event);
        if self.pace.looks == 0 {
            return;
        }
        if let Event::Chaos { rank } = event {
            self.evict_for_chaos(rank, effects);
        }
        let looked = matches!(event, Event::Looked { .. });
        self.relieve(looked, effects);
        self.proceed(looked, effects);
    }

    /// How soon after the last look memory must be looked at again; between 2 and 100 ms. To be asked again after every
    /// event: once somebody was let go on, it may be at once.
    #[must_use]
    pub fn next_look(&self) -> Duration {
        if self.asks {
            return pace::SOONEST;
        }
        let used = self.index.present.saturating_add(self.pace.others);
        self.pace.next_look(self.index.active, self.limits.budget.saturating_sub(used), &self.limits)
    }

    /// How often a rank came in because it was its turn: the others did nothing, and seemed to wait for it.
    #[must_use]
    pub const fn turns(&self) -> u32 {
        self.turns
    }

    /// The limits as they are now.
    #[must_use]
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// How many ranks are where.
    #[must_use]
    pub fn counts(&self) -> Counts {
        let len = |set: usize| u32::try_from(set).unwrap_or(u32::MAX);
        let index = &self.index;
        let held = len(index.held.len());
        let moving = index.starting + index.restoring + index.shrinking;
        Counts {
            unborn: len(self.queue.len()),
            starting: index.starting,
            running: index.active - moving + index.holding,
            held,
            evicting: index.evicting + index.shrinking,
            out: len(index.out_since.len()),
            restoring: index.restoring,
            stopping: index.stopping,
            exited: index.gone - self.adopted - self.given_up,
            adopted: self.adopted,
            given_up: self.given_up,
        }
    }

    /// Whether every rank has ended, was adopted, or was given up.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.index.gone as usize == self.ranks.len()
    }

    /// What an event changes, without what follows from it.
    fn take_in(&mut self, event: Event) {
        match event {
            Event::Looked { elapsed, others, busy, reaction } => {
                self.pace.others = others;
                self.asks = false;
                let doing = self.doing();
                self.pace.looked(elapsed, busy, reaction, doing, &self.limits);
                self.judge_overbooking(elapsed);
                self.ask_refused_again();
            }
            Event::LimitChanged { budget } => {
                self.limits.budget = budget;
                self.disk_full = false;
            }
            Event::Sample { .. } | Event::Chaos { .. } => {}
            Event::Spawned { rank }
            | Event::SpawnFailed { rank }
            | Event::Exited { rank, .. }
            | Event::Adopted { rank }
            | Event::EvictProgress { rank, .. }
            | Event::Evicted { rank, .. }
            | Event::EvictRefused { rank, .. }
            | Event::ShrinkRefused { rank, .. }
            | Event::DiskFull { rank, .. }
            | Event::Restored { rank }
            | Event::Shrunk { rank, .. }
            | Event::Held { rank }
            | Event::HoldRefused { rank }
            | Event::Continued { rank } => {
                if let Some(life) = self.ranks.get(rank as usize).map(|state| state.life) {
                    self.take_in_of(rank, life, event);
                }
            }
        }
    }

    /// The same of an event about a rank.
    fn take_in_of(&mut self, rank: Rank, life: Life, event: Event) {
        match (event, life) {
            (_, Life::Unborn | Life::Gone) => {}
            (Event::SpawnFailed { .. }, Life::Starting) => self.gone(rank),
            (Event::Exited { peak, stopped, .. }, _) => self.exited(rank, peak, stopped),
            (Event::Adopted { .. }, _) => self.adopt(rank),
            (Event::EvictProgress { freed, .. }, Life::Evicting | Life::Shrinking) => {
                self.update(rank, |state| state.bytes = state.from.saturating_sub(freed).max(state.keep));
            }
            (Event::Evicted { out, left, .. }, Life::Evicting) => self.left(rank, out, left),
            (Event::EvictRefused { lasting, .. }, Life::Evicting) => {
                let again = self.pace.looks;
                self.update(rank, |state| state.refuse(lasting, again));
            }
            (Event::ShrinkRefused { lasting, .. }, Life::Shrinking) => {
                let again = self.pace.looks;
                self.update(rank, |state| {
                    state.refuse(false, again);
                    state.unshrinkable |= lasting;
                });
            }
            (Event::DiskFull { out, .. }, Life::Evicting) => {
                self.disk_full = true;
                let size = self.ranks[rank as usize].size;
                if out > 0 {
                    self.left(rank, out, size.saturating_sub(out));
                } else {
                    self.update(rank, RankState::stay);
                }
            }
            (Event::DiskFull { .. }, Life::Shrinking) => {
                self.disk_full = true;
                self.update(rank, RankState::stay);
            }
            (Event::Shrunk { left, .. }, Life::Shrinking) => self.update(rank, |state| {
                state.arrive();
                state.partial = true;
                state.bytes = left;
            }),
            (Event::Restored { .. }, Life::Restoring) => {
                if let Some((_, since)) = self.turned.take_if(|(turned, _)| *turned == rank) {
                    self.exchange = self.pace.clock.saturating_sub(since);
                }
                self.update(rank, RankState::arrive);
            }
            (Event::Spawned { .. }, Life::Starting) | (Event::Continued { .. }, Life::Continuing) => {
                self.update(rank, RankState::arrive)
            }
            (Event::Held { .. }, Life::Holding) => self.update(rank, |state| state.life = Life::Held),
            (Event::HoldRefused { .. }, Life::Holding) => self.update(rank, |state| {
                state.life = Life::Running;
                state.unholdable = true;
            }),
            // Overtaken.
            _ => {}
        }
    }

    /// What a rank holds was measured.
    fn sample(&mut self, rank: Rank, bytes: u64, fixed: u64, effects: &mut Vec<Effect>) {
        let Some(state) = self.ranks.get(rank as usize) else { return };
        let runs = matches!(
            state.life,
            Life::Starting | Life::Running | Life::Holding | Life::Held | Life::Continuing
        );
        if !runs {
            // What it holds changes by our orders, and they tell.
            return;
        }
        self.pace.grew(bytes.saturating_sub(state.bytes));
        self.overbooking.saw_fixed(fixed.min(bytes));
        let (clock, life) = (self.pace.clock, state.life);
        self.update(rank, |state| state.measured(bytes, fixed, clock));
        let limit = self.limits.rank_limit.filter(|&limit| bytes > limit);
        if let Some(limit) = limit.filter(|_| matches!(life, Life::Running | Life::Held)) {
            self.fail(rank, limit, effects);
        }
    }

    /// The rank is out, but for `left` bytes.
    fn left(&mut self, rank: Rank, out: u64, left: u64) {
        let (now, ceiling) = (self.now, digest::ceiling(&self.limits));
        let least = self.limits.budget / 64;
        self.update(rank, |state| {
            state.life = Life::Out;
            state.was_held = false;
            state.size = out.saturating_add(left);
            state.bytes = left;
            state.out_since = now;
            state.refusals = 0;
            if state.for_memory {
                // It needs more than was expected of it, or others do. Each time more must be free for it to come
                // back, so this happens only a few times to a rank.
                let more = state.wants().max(least);
                // Of one that was not expected to fit nothing new was learnt.
                let extra = if state.overbooked { 0 } else { more / 4 };
                state.reserve = more.saturating_add(extra).min(ceiling);
            }
        });
    }

    /// All of the rank has ended.
    fn exited(&mut self, rank: Rank, peak: u64, stopped: bool) {
        self.disk_full = false;
        let state = &self.ranks[rank as usize];
        let peak = peak.max(state.peak);
        if !(stopped && state.life == Life::Stopping) {
            self.digest.add(state.declared, peak);
            self.gone(rank);
            return;
        }
        let used = (peak as f64 * digest::AFTER_STOP) as u64;
        self.digest.add(state.declared, used);
        let reserve = used.max(state.reserve.saturating_add(state.reserve / 10)).max(self.limits.budget / 64);
        let again = RankState {
            reserve: reserve.min(digest::ceiling(&self.limits)),
            declared: state.declared,
            stopped_at: Some(self.now),
            unpageable: state.unpageable,
            unshrinkable: state.unshrinkable,
            unholdable: state.unholdable,
            told: state.told,
            ..RankState::UNBORN
        };
        self.update(rank, |state| *state = again);
        self.queue.push_again(rank, self.now);
    }

    /// The rank belongs to the co-operative scheduler now, and so does admission.
    fn adopt(&mut self, rank: Rank) {
        self.gone(rank);
        self.adopted += 1;
        for rank in self.queue.give_up() {
            self.gone(rank);
            self.given_up += 1;
        }
    }

    fn gone(&mut self, rank: Rank) {
        if self.turn == Some(rank) {
            self.turn = None;
        }
        self.update(rank, |state| *state = RankState { life: Life::Gone, ..RankState::UNBORN });
    }

    /// What the ranks did up to this look.
    fn doing(&self) -> Doing {
        let index = &self.index;
        let moving = index.evicting + index.restoring + index.shrinking;
        // Ranks that are short may start all the time.
        let disturbed = moving + index.holding + index.stopping;
        Doing {
            active: index.active,
            disturbed: disturbed > 0,
            moves: moving + index.starting > index.eager_moves,
        }
    }

    /// Those who refused to leave, a while ago, may be asked again.
    fn ask_refused_again(&mut self) {
        while let Some(&(due, rank)) = self.index.refused.first()
            && due <= self.pace.looks
        {
            self.update(rank, |state| state.refused_until = None);
        }
    }

    /// Bytes of RAM used, those not counted that are on their way out.
    fn committed(&self) -> u64 {
        self.used().saturating_sub(self.index.leaving)
    }

    /// Bytes of RAM used, by ranks and others.
    fn used(&self) -> u64 {
        self.index.present.saturating_add(self.pace.others)
    }

    /// Bytes of RAM for ranks, but for what is kept free.
    fn room(&self) -> u64 {
        let taken = self.pace.others.saturating_add(self.pace.margin(&self.limits));
        self.limits.budget.saturating_sub(taken)
    }

    /// Changes a rank and every set it is in. The only way a rank's state changes.
    fn update(&mut self, rank: Rank, change: impl FnOnce(&mut RankState)) {
        let state = &mut self.ranks[rank as usize];
        self.index.remove(rank, state);
        change(state);
        self.index.insert(rank, state);
    }
}
