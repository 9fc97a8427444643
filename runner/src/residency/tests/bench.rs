//! A core that is looked at as the shell does, and what is easily said of its orders.

use super::*;

pub(super) const MB: u64 = 1_000_000;

/// So long a look that nothing seems to grow fast.
pub(super) const LONG: Duration = Duration::from_secs(100);

/// What the job may use, and what can be done with each of its ranks.
#[derive(Clone, Copy)]
pub(super) struct Given {
    pub budget: u64,
    pub processors: u32,
    pub resident: u32,
    pub rank_limit: Option<u64>,
    pub may_page: bool,
    pub may_freeze: bool,
    pub may_stop: bool,
    pub enforce: bool,
}

pub(super) fn limits(processors: u32) -> Given {
    Given {
        budget: 1000 * MB,
        processors,
        resident: 100,
        rank_limit: None,
        may_page: true,
        may_freeze: true,
        may_stop: true,
        enforce: false,
    }
}

/// A core that is checked after every event.
pub(super) struct Bench {
    pub core: Core,
}

impl Bench {
    pub(super) fn new(given: Given, sizes: &[Option<u64>]) -> Self {
        let Given { budget, processors, resident, rank_limit, may_page, may_freeze, may_stop, enforce } =
            given;
        let can = Can { evict: may_page, hold: may_freeze, rerun: may_stop, ..Can::PROGRAM };
        let limits = Limits {
            alive: u32::MAX,
            budget,
            processors,
            resident,
            rank_limit,
            enforce,
            first_reserve: 0,
            moves: 4,
            part: 1,
            ahead: 0,
        };
        let ranks: Vec<_> = sizes.iter().map(|&size| (can, size)).collect();
        let mut bench = Self { core: Core::new(limits, &ranks) };
        assert_eq!(bench.tell(Event::Pool { asked: 0, messages: 0, measured: 0, kept: 0 }), []);
        bench
    }

    /// `np` ranks of unknown size, of which the first `running` run, the first look being over.
    pub(super) fn running(limits: Given, np: usize, running: u32) -> Self {
        let mut bench = Self::new(limits, &vec![None; np]);
        let admitted = bench.look(&[]);
        assert_eq!(ranks(&admitted), (0..running).collect::<Vec<_>>(), "{admitted:?}");
        for rank in 0..running {
            bench.tell(started(rank));
        }
        bench
    }

    pub(super) fn tell(&mut self, event: Event) -> Vec<Effect> {
        let mut effects = Vec::new();
        self.core.handle(event, &mut effects);
        self.core.sanity_check();
        effects.into_iter().map(whole).collect()
    }

    /// A look at ranks that hold so many MB, while the processors are busy.
    pub(super) fn look(&mut self, held: &[(Rank, u64)]) -> Vec<Effect> {
        self.look_at(held, f64::from(self.core.limits.processors), LONG)
    }

    pub(super) fn look_at(&mut self, held: &[(Rank, u64)], busy: f64, elapsed: Duration) -> Vec<Effect> {
        let mut effects = Vec::new();
        for &(rank, bytes) in held {
            effects.extend(self.tell(Event::Sample { rank, bytes: bytes * MB, fixed: 0 }));
        }
        let idle = (f64::from(self.core.limits.processors) - busy).max(0.0);
        effects.extend(self.tell(Event::Looked { elapsed, busy, idle, reaction: Duration::ZERO }));
        effects
    }

    /// Of a look that is not complete.
    pub(super) fn sample(&mut self, rank: Rank, bytes: u64, fixed: u64) {
        self.tell(Event::Sample { rank, bytes: bytes * MB, fixed: fixed * MB });
    }

    pub(super) fn exit(&mut self, rank: Rank, peak: u64) -> Vec<Effect> {
        self.tell(Event::Exited { rank, peak: peak * MB, next: Next::Over })
    }

    pub(super) fn out(&mut self, rank: Rank, out: u64) -> Vec<Effect> {
        self.tell(evicted(rank, out * MB, 0))
    }
}

/// Whom the effects are about.
pub(super) fn ranks(effects: &[Effect]) -> Vec<Rank> {
    let rank = |effect: &Effect| match *effect {
        Effect::Start { rank, .. }
        | Effect::Evict { rank, .. }
        | Effect::Restore { rank, .. }
        | Effect::Hold { rank }
        | Effect::Resume { rank }
        | Effect::Shrink { rank, .. }
        | Effect::Stop { rank, .. }
        | Effect::OverLimit { rank, .. }
        | Effect::Grant { rank, .. }
        | Effect::Crowded { rank, .. }
        | Effect::Overdraft { rank, .. } => rank,
        Effect::Fail(_) | Effect::Finish => panic!("{effect:?}"),
    };
    effects.iter().map(rank).collect()
}

pub(super) fn evict(rank: Rank) -> Effect {
    Effect::Evict { rank, keep: 0, preempt: false }
}

/// What was measured comes back as a whole: how much that is goes without saying here.
pub(super) fn whole(effect: Effect) -> Effect {
    match effect {
        Effect::Restore { rank, .. } => restore(rank),
        other => other,
    }
}

pub(super) fn restore(rank: Rank) -> Effect {
    Effect::Restore { rank, bytes: 0, all: 0, overdraft: false }
}

pub(super) fn evicted(rank: Rank, out: u64, left: u64) -> Event {
    let memory = |other| Memory { asked: 0, other };
    done(rank, Outcome::Evicted { left: memory(left), all: memory(out + left) })
}

pub(super) fn reserves(effects: &[Effect]) -> Vec<(Rank, u64)> {
    let reserve = |effect: &Effect| match *effect {
        Effect::Start { rank, reserve } => Some((rank, reserve / MB)),
        _ => None,
    };
    effects.iter().filter_map(reserve).collect()
}
