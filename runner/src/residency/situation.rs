//! Why a rank does not run, for people who ask (`bdrun explain`). Nothing here decides anything; it says what
//! the rules of `claims.rs`, `proceed.rs` and `queue.rs` make of the present state.

use serde::{Deserialize, Serialize};

use super::claims::Claim;
use super::rank::{Doing, Life};
use super::{Activity, Core, Rank};

/// What keeps a rank from running.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Hindrance {
    /// Nothing: it runs, or is about to.
    Nothing,
    /// It waits for what others do (a message, a collective), by itself.
    Others,
    /// Nobody else is begun (`--halt`).
    Halted,
    /// As many compute as there are processors for.
    Processors {
        /// Ranks that compute, or will without another order.
        active: u32,
        /// As many as are wanted.
        wanted: u32,
    },
    /// As many have been begun and have not ended as may (`-j`, or as there are open files for).
    Alive {
        /// So many.
        begun: u32,
        /// As many as may.
        most: u32,
    },
    /// All places in RAM are taken (`--resident`).
    Places {
        /// By so many.
        taken: u32,
    },
    /// What it needs is not free.
    Memory {
        /// Bytes it needs on top of what it holds, or is expected to.
        needs: u64,
        /// Bytes that are free for it.
        free: u64,
    },
    /// Memory was short, or its growth would have made it short; it goes on when there is room again, the
    /// oldest first.
    Held {
        /// Bytes that must be free for that.
        needs: u64,
        /// Bytes that are.
        free: u64,
    },
    /// There would be room; it is on its way, or its turn is next.
    Turn,
}

/// Where a rank stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Situation {
    /// What it does; none of one that does not live.
    pub activity: Option<Activity>,
    /// Bytes it holds in RAM.
    pub holds: u64,
    /// Of one that is out, bytes it must hold to run.
    pub all: u64,
    /// Bytes that are expected of it.
    pub expected: u64,
    /// What keeps it from running.
    pub hindrance: Hindrance,
    /// How many are to come in, or go on, before it, and the first of them.
    pub ahead: u32,
    /// The first of them.
    pub first: Option<Rank>,
}

impl Core {
    /// Where a rank stands; none if there is no such rank, or it has ended.
    #[must_use]
    pub fn situation(&self, rank: Rank) -> Option<Situation> {
        let state = self.ranks.get(rank as usize).filter(|state| state.life != Life::Gone)?;
        let (hindrance, line) = match state.life {
            Life::Unborn if self.halted => (Hindrance::Halted, Vec::new()),
            Life::Unborn if state.queued => (self.hinders_start(rank), self.queue.before(rank)),
            Life::Unborn => (self.hinders_claim(Claim::Unborn(rank)), self.claims_before(rank)),
            Life::Out if matches!(state.doing, Doing::Waits(_)) => (Hindrance::Others, Vec::new()),
            Life::Out if state.can.tells || state.can.asks => {
                (self.hinders_claim(Claim::Out(rank)), self.claims_before(rank))
            }
            Life::Out => (self.hinders_return(rank), before(&self.index.out, rank)),
            Life::Held => (self.hinders_going_on(), before(&self.index.held, rank)),
            Life::Resident => match state.doing {
                Doing::Runs => (Hindrance::Nothing, Vec::new()),
                Doing::Waits(_) => (Hindrance::Others, Vec::new()),
                Doing::Needs(needs) => {
                    let free = u64::try_from(self.free()).unwrap_or(0);
                    let hindrance =
                        if needs <= free { Hindrance::Turn } else { Hindrance::Memory { needs, free } };
                    (hindrance, before(&self.index.needs, rank))
                }
            },
            Life::Starting | Life::Holding | Life::Resuming | Life::Restoring => {
                (Hindrance::Nothing, Vec::new())
            }
            Life::Evicting | Life::Shrinking | Life::Stopping | Life::Gone => (Hindrance::Turn, Vec::new()),
        };
        let expected = match state.life {
            Life::Unborn if state.queued => {
                self.queue.expected(rank, &self.ranks, &self.digest, &self.limits)
            }
            Life::Unborn => self.claimed(Claim::Unborn(rank)),
            _ => state.expected(),
        };
        Some(Situation {
            activity: self.activity(rank),
            holds: state.holds.total(),
            all: if state.life == Life::Out { state.all.total() } else { 0 },
            expected,
            hindrance,
            ahead: u32::try_from(line.len()).unwrap_or(u32::MAX),
            first: line.first().copied(),
        })
    }

    /// Whether a rank has ended for good.
    #[must_use]
    pub fn is_over(&self, rank: Rank) -> bool {
        self.ranks.get(rank as usize).is_some_and(|state| state.life == Life::Gone)
    }

    /// Whether one that lives is kept from going on: by memory, a place, a processor, not by what others do.
    #[must_use]
    pub fn is_kept(&self, rank: Rank) -> bool {
        self.ranks.get(rank as usize).is_some_and(|state| match state.life {
            Life::Out => !matches!(state.doing, Doing::Waits(_)),
            Life::Resident => matches!(state.doing, Doing::Needs(_)),
            life => life == Life::Held,
        })
    }

    /// The first so many of those that have not begun, as far as it is known who is next.
    #[must_use]
    pub fn next_to_begin(&self, most: usize) -> Vec<Rank> {
        let unborn = self.index.unborn.iter().map(|&(_, rank)| rank);
        self.queue.iter().chain(unborn).take(most).collect()
    }

    fn places(&self) -> Option<Hindrance> {
        (!self.has_place()).then_some(Hindrance::Places { taken: self.index.residents() })
    }

    fn memory(needs: u64, free: u64) -> Hindrance {
        if needs <= free { Hindrance::Turn } else { Hindrance::Memory { needs, free } }
    }

    /// Of one that stands in the queue.
    fn hinders_start(&self, rank: Rank) -> Hindrance {
        let (active, wanted) = (self.index.active, self.pace.wanted);
        // Of `-j` first: there as many are wanted as may live, and more processors would change nothing.
        let (begun, most) = (self.begun(), self.limits.alive);
        if begun >= most {
            return Hindrance::Alive { begun, most };
        }
        if active >= wanted {
            return Hindrance::Processors { active, wanted };
        }
        let needs = self.queue.expected(rank, &self.ranks, &self.digest, &self.limits);
        let free = self.room().saturating_sub(self.index.expected);
        // Nobody is begun while somebody is out or held.
        let lack = self.index.out.len() + self.index.held.len() > 0;
        self.places().unwrap_or(if lack {
            Hindrance::Memory { needs, free }
        } else {
            Self::memory(needs, free)
        })
    }

    /// Of one that asks, or tells when it may go on.
    fn hinders_claim(&self, claim: Claim) -> Hindrance {
        let has_place = self.ranks[claim.rank() as usize].has_place();
        let free = u64::try_from(self.free()).unwrap_or(0);
        let places = self.places().filter(|_| !has_place);
        places.unwrap_or_else(|| Self::memory(self.claimed(claim), free))
    }

    /// Of one that does not, and is out.
    fn hinders_return(&self, rank: Rank) -> Hindrance {
        let state = &self.ranks[rank as usize];
        let (active, wanted) =
            (self.index.active, self.pace.wanted.max(self.limits.processors.saturating_add(1)));
        if active >= wanted {
            return Hindrance::Processors { active, wanted };
        }
        let beside = self.index.expected - state.expected();
        let free = self.room().saturating_sub(beside.saturating_add(self.unknown()));
        self.places().unwrap_or_else(|| Self::memory(state.wants(), free))
    }

    /// Of one that was made to stand still.
    fn hinders_going_on(&self) -> Hindrance {
        let free = self.limits.budget.saturating_sub(self.used());
        Hindrance::Held { needs: 2 * self.margin().max(self.small_margin()), free }
    }

    fn claims_before(&self, rank: Rank) -> Vec<Rank> {
        let needy = self.index.needs.iter().map(|&(_, rank)| rank);
        let claims = self.claims().map(Claim::rank);
        needy.chain(claims).take_while(|&other| other != rank).collect()
    }
}

fn before(line: &std::collections::BTreeSet<(u64, Rank)>, rank: Rank) -> Vec<Rank> {
    line.iter().map(|&(_, rank)| rank).take_while(|&other| other != rank).collect()
}
