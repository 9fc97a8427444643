//! Memory is short: who goes, who stands still, who ends.
//!
//! The means, from the mildest: page out the youngest (those over what was expected of them first); make those that grow
//! stand still; stop the youngest and admit it again later. The oldest in RAM is never paged out or stopped for lack of
//! memory, and stands still only while somebody is on the way out: so somebody always goes on.

use super::index::{Aged, PATIENCE};
use super::rank::{Life, RankState, Why};
use super::{Effect, Overdraft, digest};
use crate::scheduler::Rank;

/// The most ranks that are moved out at one moment, and the most that are brought back: more share the same disk.
pub(super) const MOVES: u32 = 4;

impl Overdraft {
    /// Orders what must be done so that memory does not run out. Those that grow, and those to be stopped, are judged
    /// only after a look: until the next, nothing more is known of them, unless all stand still.
    pub(super) fn relieve(&mut self, looked: bool, effects: &mut Vec<Effect>) {
        self.page_out(effects);
        if !looked && self.index.active + self.index.holding > 0 {
            return;
        }
        if let Some(rank) = self.alone() {
            self.relieve_alone(rank, effects);
            return;
        }
        self.shrink_younger(effects);
        self.hold_growing(effects);
        self.stop_youngest(effects);
    }

    /// Whether less than `margin` bytes will be free when those on their way out have left.
    fn is_short(&self, margin: u64) -> bool {
        self.committed().saturating_add(margin) > self.limits.budget
    }

    /// Whether somebody may be asked to leave.
    pub(super) fn may_evict(&self) -> bool {
        self.limits.may_page && !self.disk_full && self.index.evicting < MOVES
    }

    /// Memory will become free without another order, or somebody may yet leave who could not a moment ago.
    pub(super) fn relief_is_coming(&self) -> bool {
        let index = &self.index;
        let hopeful = self.limits.may_page && !self.disk_full && index.hopeful > 0;
        index.evicting + index.shrinking + index.stopping > 0 || hopeful
    }

    /// The same, or somebody who cannot leave because he is on the way in soon can.
    fn relief_may_come(&self) -> bool {
        let arriving = self.index.restoring + self.index.starting > 0;
        self.relief_is_coming() || (self.limits.may_page && !self.disk_full && arriving)
    }

    /// The youngest that may be asked to leave, of those over what was expected of them if there are any. Never the
    /// oldest in RAM.
    fn victim(&self) -> Option<Rank> {
        let oldest = self.oldest();
        self.index.victims.iter().rev().map(|&(.., rank)| rank).find(|&rank| Some(rank) != oldest)
    }

    /// The oldest in RAM.
    fn oldest(&self) -> Option<Rank> {
        self.index.inside.first().map(|&(_, rank)| rank)
    }

    /// Pages out until enough will be free.
    fn page_out(&mut self, effects: &mut Vec<Effect>) {
        while self.may_evict() && self.is_short(self.pace.margin(&self.limits)) {
            let Some(rank) = self.victim() else { break };
            self.evict(rank, Why::Memory, effects);
        }
    }

    /// One that runs in parts cannot leave as a whole, but does with less when the oldest needs it: it has had its turn.
    fn shrink_younger(&mut self, effects: &mut Vec<Effect>) {
        let margin = self.pace.margin(&self.limits);
        if !self.is_short(margin) || self.relief_is_coming() || (self.may_evict() && self.victim().is_some())
        {
            return;
        }
        let oldest = self.oldest();
        let mut inside = self.index.inside.iter().rev().map(|&(_, rank)| rank);
        let in_parts = |&rank: &Rank| {
            let state = &self.ranks[rank as usize];
            Some(rank) != oldest && state.partial && state.life == Life::Running
        };
        let Some(rank) = inside.find(in_parts) else { return };
        let state = &self.ranks[rank as usize];
        let lacks = self.committed().saturating_add(2 * margin).saturating_sub(self.limits.budget);
        let target = state.bytes.saturating_sub(lacks).max(self.limits.budget / 8).max(state.fixed);
        if target < state.bytes {
            self.shrink(rank, target, effects);
        }
    }

    /// Makes those that grow stand still: all but the oldest if memory is nearly used up, or else, if nobody can leave, the
    /// youngest at each look. The oldest only while somebody is on the way out, or in and to be
    /// sent out again, and memory would not last until then.
    fn hold_growing(&mut self, effects: &mut Vec<Effect>) {
        if !self.limits.may_freeze {
            return;
        }
        let oldest = self.oldest();
        let (used, small) = (self.used(), self.pace.small_margin(&self.limits));
        if used.saturating_add(small) > self.limits.budget {
            while let Some(rank) = self.youngest_growing(oldest) {
                self.hold(rank, effects);
            }
            // Who is on the way in runs as soon as it is there, and grows until it is held.
            let least = if self.index.restoring > 0 { small } else { small / 2 };
            let lasts = used.saturating_add(least) <= self.limits.budget;
            let grows = oldest.filter(|&rank| self.ranks[rank as usize].is_growing());
            if let Some(rank) = grows.filter(|_| !lasts && self.relief_may_come()) {
                self.hold(rank, effects);
            }
        } else if self.is_short(self.pace.margin(&self.limits))
            && !(self.may_evict() && self.victim().is_some())
            && !self.relief_may_come()
            && let Some(rank) = self.youngest_growing(oldest)
        {
            self.hold(rank, effects);
        }
    }

    fn youngest_growing(&self, but: Option<Rank>) -> Option<Rank> {
        self.index.growing.iter().rev().map(|&(_, rank)| rank).find(|&rank| Some(rank) != but)
    }

    /// The last resort: nobody can leave, nobody else can be made to stand still, and it is not enough.
    fn stop_youngest(&mut self, effects: &mut Vec<Effect>) {
        let small = self.pace.small_margin(&self.limits);
        let threatens = self.pace.is_growing() || self.committed() > self.limits.budget;
        if !self.is_short(small) || !threatens || self.relief_may_come() || self.index.holding > 0 {
            return;
        }
        if self.may_evict() && self.victim().is_some() {
            return;
        }
        let oldest = self.oldest();
        if self.limits.may_freeze && self.youngest_growing(oldest).is_some() {
            return;
        }
        let youngest = |&&(_, rank): &&Aged| Some(rank) != oldest;
        let Some(&(_, rank)) = self.index.stoppable.iter().rev().find(youngest) else { return };
        // If running it again was not asked for the budget is exceeded, or, enforced, the youngest fails before it is.
        let will_exceed = self.used().saturating_add(self.pace.grows_soon()) > self.limits.budget;
        if self.limits.may_stop || (self.limits.enforce && will_exceed) {
            self.end(rank, effects);
        } else if self.used() > self.limits.budget
            && let Some(oldest) = oldest
        {
            self.tell_overdraft(oldest, effects);
        }
    }

    /// Ends a rank to make room: it is started again, if that is wanted.
    pub(super) fn end(&mut self, rank: Rank, effects: &mut Vec<Effect>) {
        let bytes = self.ranks[rank as usize].bytes;
        let limit = self.limits.budget.saturating_sub(self.index.present.saturating_sub(bytes));
        if self.limits.may_stop {
            self.update(rank, RankState::stop);
            effects.push(Effect::Stop { rank, used: bytes });
        } else {
            self.fail(rank, limit, effects);
        }
    }

    /// Ends a rank that holds more than `limit` bytes, for good.
    pub(super) fn fail(&mut self, rank: Rank, limit: u64, effects: &mut Vec<Effect>) {
        let bytes = self.ranks[rank as usize].bytes;
        self.update(rank, RankState::stop);
        effects.push(Effect::OverLimit { rank, bytes, limit });
    }

    /// Says, once for each rank, that it makes the job exceed the budget.
    pub(super) fn tell_overdraft(&mut self, rank: Rank, effects: &mut Vec<Effect>) {
        let state = &self.ranks[rank as usize];
        let bytes = if state.life == Life::Out { state.size } else { state.bytes };
        if !state.told {
            self.update(rank, |state| state.told = true);
            let beside = self.index.present.saturating_sub(self.ranks[rank as usize].bytes);
            let beside = if bytes > self.limits.budget { 0 } else { beside };
            effects.push(Effect::Overdraft { rank, bytes, beside });
        }
    }

    /// The only rank in RAM, if nobody is on the way out.
    fn alone(&self) -> Option<Rank> {
        let index = &self.index;
        let alone = index.inside.len() == 1 && index.evicting + index.stopping == 0;
        self.oldest().filter(|_| alone)
    }

    /// The only rank in RAM does not fit: parts of it leave, or it is said.
    fn relieve_alone(&mut self, rank: Rank, effects: &mut Vec<Effect>) {
        let state = &self.ranks[rank as usize];
        let small = self.pace.small_margin(&self.limits);
        if state.life != Life::Running || !self.is_short(small) {
            return;
        }
        let (budget, bytes) = (self.limits.budget, state.bytes);
        let elsewhere = self.used().saturating_sub(bytes);
        let room = budget.saturating_sub(elsewhere).saturating_sub(self.pace.margin(&self.limits) + small);
        // However fast it grew: what is taken from it now it is not given back, and whoever runs in parts waits where there is no room.
        let most = budget.saturating_sub(elsewhere) / 4 * 3;
        let target = room.max(most).max(budget / 8).max(state.fixed);
        let state = &self.ranks[rank as usize];
        let possible = self.may_shrink(state);
        let shrinks = target < bytes && possible && state.refused_until.is_none();
        let hopeful = possible && state.refused_until.is_some() && state.refusals <= PATIENCE;
        let suffices = shrinks && elsewhere.saturating_add(target) <= budget;
        if self.index.present > budget && !hopeful && !suffices {
            // It may be that it fits, but not beside what of the others cannot be paged.
            let remnant = self.index.remnants.last().map(|&(_, other)| other);
            match remnant.filter(|_| shrinks || bytes <= budget) {
                Some(other) if self.limits.may_stop || self.limits.enforce => self.end(other, effects),
                None if self.limits.enforce => return self.fail(rank, budget, effects),
                _ => self.tell_overdraft(rank, effects),
            }
        }
        if shrinks {
            self.shrink(rank, target, effects);
        }
    }

    /// Whether parts of a rank can be paged out, now or when it is asked again.
    fn may_shrink(&self, state: &RankState) -> bool {
        self.limits.may_page && !self.disk_full && !state.unpageable && !state.unshrinkable
    }

    /// Pages parts of a rank out, if that is possible now.
    pub(super) fn shrink(&mut self, rank: Rank, target: u64, effects: &mut Vec<Effect>) -> bool {
        let (state, ceiling) = (&self.ranks[rank as usize], digest::ceiling(&self.limits));
        if !self.may_shrink(state) || state.refused_until.is_some() {
            return false;
        }
        self.update(rank, |state| {
            state.shrink(target);
            // Whatever there is will be of use to it.
            state.reserve = ceiling;
        });
        effects.push(Effect::Shrink { rank, target });
        true
    }

    fn hold(&mut self, rank: Rank, effects: &mut Vec<Effect>) {
        self.update(rank, |state| state.life = Life::Holding);
        effects.push(Effect::Hold { rank });
    }

    pub(super) fn evict(&mut self, rank: Rank, why: Why, effects: &mut Vec<Effect>) {
        self.update(rank, |state| state.leave(why));
        effects.push(Effect::Evict { rank });
    }

    /// Pages a rank out for no need, if it can be, and can come back: where the budget is exceeded somebody is in whom the others wait for.
    pub(super) fn evict_for_chaos(&mut self, rank: Rank, effects: &mut Vec<Effect>) {
        let comes_back = self.used() <= self.limits.budget || self.index.inside.len() == 1;
        if comes_back
            && self.may_evict()
            && self.ranks.get(rank as usize).is_some_and(RankState::is_evictable)
        {
            self.evict(rank, Why::Chaos, effects);
        }
    }
}
