//! What an answer to an order, or a word of a rank, changes.

use super::index::PATIENCE;
use super::rank::{Doing, Life, RankState};
use super::{Core, Failure, Memory, Next, Outcome, Rank, digest, micros};

impl Core {
    /// An order has ended. What was overtaken changes nothing.
    pub(super) fn done(&mut self, rank: Rank, life: Life, outcome: Outcome) {
        let counts = if self.ranks[rank as usize].can.tells { self.now } else { self.pace.looks };
        match (outcome, life) {
            (Outcome::Started, Life::Starting)
            | (Outcome::Restored, Life::Restoring)
            | (Outcome::Lost, Life::Evicting) => self.arrived(rank),
            (Outcome::NotStarted, Life::Starting) => self.gone(rank),
            (Outcome::Evicted { left, all }, Life::Evicting) => {
                self.last_call = false;
                self.evicted(rank, left, all);
            }
            (Outcome::Refused { lasting }, Life::Evicting) => {
                self.update(rank, |state| state.refuse(lasting, counts));
            }
            (Outcome::Refused { lasting }, Life::Shrinking) => self.update(rank, |state| {
                let leave = state.can.evict;
                state.refuse(false, counts);
                state.can.evict = leave;
                state.can.shrink &= !lasting;
            }),
            (Outcome::Full { need, part }, Life::Evicting) => {
                self.disk_full = Some((rank, need));
                match part {
                    Some((left, all)) => self.evicted(rank, left, all),
                    None => self.update(rank, RankState::stay),
                }
            }
            (Outcome::Full { need, .. }, Life::Shrinking) => {
                self.disk_full = Some((rank, need));
                self.update(rank, RankState::stay);
            }
            (Outcome::RestoredPartly { asked, orders }, Life::Restoring) => {
                self.update(rank, |state| {
                    // If another order was given since it was carried out, or denied, and it is on its way
                    // again.
                    if state.orders == orders {
                        state.life = Life::Out;
                        state.holds.asked = asked;
                        state.pending = 0;
                    }
                });
            }
            // It may have begun to tell, and said that it waits, while it stood still.
            (Outcome::Resumed, Life::Resuming) => self.update(rank, |state| state.life = Life::Resident),
            (Outcome::Held, Life::Holding) => self.update(rank, |state| state.life = Life::Held),
            (Outcome::NotHeld, Life::Holding) => self.update(rank, |state| {
                state.life = Life::Resident;
                state.can.hold = false;
            }),
            (Outcome::Shrunk { left }, Life::Shrinking) => {
                let slack = self.grain();
                self.update(rank, |state| {
                    state.partial = true;
                    state.holds.other = left;
                    if left <= state.target.saturating_add(slack) {
                        state.refusals = 0;
                        state.stay();
                    } else {
                        // The rest cannot leave (locked, say), at least not now. Asked at once it would do
                        // the same, for ever, while others hoped for it; so nobody does.
                        state.refusals = state.refusals.max(PATIENCE);
                        state.refuse(false, counts);
                    }
                });
            }
            _ => {}
        }
    }

    /// The rank is in RAM and runs: it was started, restored, granted memory, or woken by a peer.
    pub(super) fn arrived(&mut self, rank: Rank) {
        self.pace.stir();
        self.last_call = false;
        if self.ranks[rank as usize].life == Life::Restoring {
            self.brought += 1;
            self.passed += u64::from(!self.index.unborn.is_empty());
            if let Some((_, since)) = self.turned.take_if(|(turned, _)| *turned == rank) {
                self.exchange = self.pace.clock.saturating_sub(since);
            }
        }
        self.update(rank, |state| {
            state.arrive();
            if state.can.tells {
                state.refusals = 0;
            }
        });
    }

    /// The rank is out of RAM, but for what is `left`.
    pub(super) fn evicted(&mut self, rank: Rank, left: Memory, all: Memory) {
        let (now, turn, ceiling) = (self.now, self.brought, digest::ceiling(&self.limits));
        let least = self.limits.budget / 64;
        self.update(rank, |state| {
            state.life = Life::Out;
            (state.holds, state.all) = (left, all);
            (state.was_held, state.was_out) = (false, false);
            state.refusals = 0;
            state.pending = 0;
            if !state.can.tells {
                (state.since, state.turn) = (now, turn);
            }
            if state.for_memory && !state.can.asks {
                // It needs more than was expected of it, or others do. Each time more must be free for it to
                // come back, so this happens only a few times to a rank.
                let more = state.wants().max(least);
                // Of one that was not expected to fit nothing new was learnt.
                let extra = if state.overbooked { 0 } else { more / 4 };
                state.reserve = more.saturating_add(extra).min(ceiling);
            }
        });
    }

    /// A rank waits, in RAM (also if that is how its start ended) or going.
    pub(super) fn blocked(&mut self, rank: Rank, doing: Doing) {
        let RankState { life, doing: before, interrupted, .. } = self.ranks[rank as usize];
        let may = match life {
            // It stands, or is about to. What it does is told when it is back.
            Life::Evicting | Life::Out if interrupted => false,
            Life::Unborn | Life::Restoring | Life::Stopping | Life::Gone => false,
            // How a restore ended is told first; until then this was seen before the order. An evicted rank
            // does not change what it waits for, but it may ask for memory.
            Life::Out => matches!(doing, Doing::Needs(_)),
            // It was woken since it blocked; a wake-up is never forgotten, a needless one does no harm.
            Life::Evicting => before != Doing::Runs || !matches!(doing, Doing::Waits(_)),
            _ => true,
        };
        if !may {
            return;
        }
        if life == Life::Starting {
            self.arrived(rank);
        }
        let (now, turn, distance) = (self.now, self.brought, self.distance_class(&doing));
        // Told again, since it may have been overtaken: it has waited all the time.
        let needs = matches!(before, Doing::Needs(_));
        let again = before == doing || (matches!(life, Life::Out | Life::Evicting) && needs);
        self.update(rank, |state| {
            state.doing = doing;
            if !again {
                (state.since, state.turn) = (now, turn);
            }
            state.distance = distance;
            state.pending = 0;
            state.has_turn &= matches!(doing, Doing::Needs(_));
        });
    }

    /// A rank cannot go on without more memory.
    pub(super) fn needs_memory(&mut self, rank: Rank, bytes: u64) -> Result<(), Failure> {
        let state = &self.ranks[rank as usize];
        let holds = if state.life == Life::Out { state.all.asked } else { state.holds.asked };
        let need = holds.saturating_add(bytes);
        if let Some(limit) = self.limits.rank_limit.filter(|&limit| need > limit) {
            return Err(Failure::RankOverLimit { rank, need, limit });
        }
        if self.limits.enforce && need > self.limits.budget {
            return Err(self.too_large(rank, need));
        }
        self.blocked(rank, Doing::Needs(bytes));
        Ok(())
    }

    /// The failure of a rank that cannot get `need` bytes even alone.
    pub(super) fn too_large(&self, rank: Rank, need: u64) -> Failure {
        Failure::RankTooLarge { rank, need, budget: self.limits.budget, messages: self.pool.messages }
    }

    /// What a rank waits for is there.
    pub(super) fn runnable(&mut self, rank: Rank) {
        // Of any other rank it is overtaken: it is back, or was never gone. To take it for running would be
        // an error that nothing corrects; to take a running rank for blocked is one that its next eviction
        // does.
        let state = &self.ranks[rank as usize];
        if matches!((state.life, state.doing), (Life::Evicting | Life::Out, Doing::Waits(_))) {
            let (now, turn) = (self.now, self.brought);
            self.update(rank, |state| {
                state.doing = Doing::Runs;
                (state.since, state.turn) = (now, turn);
            });
        }
    }

    /// The pool had `bytes` less than was ordered.
    pub(super) fn denied(&mut self, rank: Rank, bytes: u64) {
        let RankState { pending, life, from, holds, interrupted, .. } = self.ranks[rank as usize];
        if pending == 0 {
            return;
        }
        // What it did not ask for comes back as a whole, or not at all.
        let other = if life == Life::Restoring { holds.other.saturating_sub(from) } else { 0 };
        let asked = bytes.saturating_sub(other);
        self.pool.denied(pending, asked);
        self.update(rank, |state| {
            state.holds.asked = state.holds.asked.saturating_sub(asked);
            match life {
                // It comes as far as it can, and says how far that was.
                Life::Restoring if other == 0 && !interrupted && state.can.asks => return,
                Life::Restoring => {
                    state.life = Life::Out;
                    state.holds.other = state.from;
                    state.orders = state.orders.wrapping_sub(1);
                }
                Life::Starting => state.life = Life::Unborn,
                _ => {}
            }
            state.pending = 0;
        });
    }

    /// All of the rank has ended.
    pub(super) fn exited(&mut self, rank: Rank, peak: u64, next: Next) {
        // Its scratch file went with it.
        self.disk_full = None;
        self.last_call = false;
        let state = &self.ranks[rank as usize];
        let (peak, size) = (peak.max(state.peak), Some(state.declared));
        let reserve = match next {
            Next::Retry { .. } if self.halted => return self.gone(rank),
            // How much it would have needed is not known.
            Next::Retry { least } => least.max(state.reserve),
            Next::Stopped if state.life == Life::Stopping && !self.halted => {
                let used = (peak as f64 * digest::AFTER_STOP) as u64;
                self.digest.add(size, used);
                used.max(state.reserve.saturating_add(state.reserve / 10))
            }
            Next::Over | Next::Stopped => {
                self.digest.add(size, peak);
                return self.gone(rank);
            }
        };
        let reserve = reserve.max(self.limits.budget / 64);
        let (now, ceiling, queued) = (self.now, digest::ceiling(&self.limits), !self.together);
        self.update(rank, |state| {
            *state = RankState {
                reserve: reserve.min(ceiling),
                declared: state.declared,
                order: state.order,
                stopped_at: now,
                can: state.can,
                told: state.told,
                queued,
                ..RankState::UNBORN
            };
        });
        if queued {
            self.queue.push(rank, &self.ranks[rank as usize]);
        }
    }

    /// So many ranks are known now.
    pub(super) fn came(&mut self, ranks: u32, more: bool) {
        self.more = more;
        let before = self.ranks.len() as Rank;
        self.ranks.grow(ranks as usize);
        for rank in before..ranks {
            let state = self.ranks[rank as usize];
            self.index.change(rank, None, Some(&state));
            if self.halted {
                self.update(rank, |state| state.life = Life::Gone);
            } else if state.queued {
                self.queue.push(rank, &state);
            }
        }
    }

    /// One that was over here is to be run here.
    pub(super) fn given(&mut self, rank: Rank, declared: u64, known: u64) {
        let is_over = self.ranks.get(rank as usize).is_some_and(|state| state.life == Life::Gone);
        if self.halted || !is_over {
            return;
        }
        let mut given = RankState { declared, order: declared, ..self.ranks.unborn() };
        self.know(&mut given, known);
        self.update(rank, |state| *state = given);
        self.queue.push(rank, &self.ranks[rank as usize]);
        if self.queue.by_bytes {
            self.order_by_bytes(rank);
        }
    }

    /// Nobody else is begun.
    pub(super) fn halt(&mut self) {
        self.halted = true;
        for rank in 0..self.ranks.len() as Rank {
            if self.ranks[rank as usize].life == Life::Unborn {
                self.gone(rank);
            }
        }
    }

    /// It is over. That may be known of one that was never begun: it was done before, or is given up.
    fn gone(&mut self, rank: Rank) {
        let RankState { life, queued, .. } = self.ranks[rank as usize];
        if life == Life::Unborn && queued {
            self.queue.remove(rank, &self.ranks);
        }
        self.update(rank, |state| *state = RankState { life: Life::Gone, ..RankState::UNBORN });
    }

    /// Whether somebody waits for something unknown, or does not tell whether he waits.
    pub(super) const fn may_be_waited_for(&self) -> bool {
        self.index.waiting_other > 0 || self.index.begun_strangers > 0
    }

    /// Time of the job, as ranks keep it.
    pub(super) fn clock(&self) -> u64 {
        micros(self.pace.clock)
    }
}
