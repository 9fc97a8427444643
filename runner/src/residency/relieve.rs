//! Memory is short: who goes, who stands still, who ends.
//!
//! The means, from the mildest: page out the youngest (those over what was expected of them first); make
//! those that grow stand still; stop the youngest and admit it again later. The oldest in RAM is never paged
//! out or stopped for lack of memory, and stands still only while somebody is on the way out: so somebody
//! always goes on.

use super::claims::ALL;
use super::index::{Aged, PATIENCE};
use super::rank::{Life, RankState, Why};
use super::{Core, Effect, Rank, digest, signed};

impl Core {
    /// Orders what must be done so that memory does not run out. Those that grow, and those to be stopped,
    /// are judged only after a look: until the next, nothing more is known of them, unless all stand still.
    pub(super) fn relieve(&mut self, looked: bool, effects: &mut Vec<Effect>) {
        if self.is_short(self.margin()) {
            self.give_up_places();
        }
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
        self.committed().saturating_add(margin).saturating_add(self.lacking) > self.limits.budget
    }

    /// Memory will become free without another order, or somebody may yet leave who could not a moment ago.
    pub(super) fn relief_is_coming(&self) -> bool {
        let index = &self.index;
        let hopeful = self.disk_full.is_none() && index.hopeful > 0;
        index.evicting + index.shrinking + index.stopping > 0 || hopeful
    }

    /// The same, or somebody who cannot leave because he is on the way in, or runs and tells when he waits,
    /// soon can.
    fn relief_may_come(&self) -> bool {
        let index = &self.index;
        let arriving = index.restoring + index.starting + index.active_telling > 0;
        self.relief_is_coming() || (self.disk_full.is_none() && arriving)
    }

    /// The youngest that may be asked to leave, of those over what was expected of them if there are any.
    /// Never the oldest in RAM.
    pub(super) fn stranger_victim(&self) -> Option<Rank> {
        let oldest = self.oldest();
        self.index.victims.iter().rev().map(|&(.., rank)| rank).find(|&rank| Some(rank) != oldest)
    }

    /// The oldest in RAM.
    fn oldest(&self) -> Option<Rank> {
        self.index.inside.first().map(|&(_, rank)| rank)
    }

    /// Pages out until enough will be free: first those that wait for others.
    fn page_out(&mut self, effects: &mut Vec<Effect>) {
        while self.may_evict() && self.is_short(self.margin()) {
            let needed = self.committed().saturating_add(self.margin()).saturating_add(self.lacking);
            let lack = needed.saturating_sub(self.limits.budget);
            match self.waiting_victim() {
                Some(rank) => drop(self.evict(rank, Why::Memory, signed(lack), effects)),
                None => match self.stranger_victim() {
                    Some(rank) => drop(self.evict(rank, Why::Memory, ALL, effects)),
                    None => {
                        self.preempt(effects);
                        return;
                    }
                },
            }
        }
    }

    /// Nobody else gives memory, and it is nearly used up: the last in line of those that wait for memory
    /// leaves, or the youngest of those that tell and compute, if others run. Not for the margin alone: that
    /// was not kept free before it came in, and it would come in again.
    fn preempt(&mut self, effects: &mut Vec<Effect>) {
        if !self.is_short(self.small_margin()) || !self.threatens() || self.relief_is_coming() {
            return;
        }
        let index = &self.index;
        let gives = |&&(_, rank): &&Aged| {
            let state = &self.ranks[rank as usize];
            !state.has_turn && state.holds.total() > state.fixed
        };
        let others = index.active > 0;
        if let Some(&(_, rank)) = index.yielding.iter().rev().filter(|_| others).find(gives) {
            self.evict(rank, Why::Memory, ALL, effects);
        } else if let Some(&(_, rank)) =
            index.preemptible.iter().rev().filter(|_| index.active > 1).find(gives)
        {
            self.interrupt(rank, Why::Memory, effects);
        } else if self.used() > self.limits.budget
            && let Some(rank) = self.grew.or_else(|| self.exceeds())
        {
            self.tell_overdraft(rank, effects);
        }
    }

    /// The only one that does not tell, of several, if nothing else helps. (Of more the youngest may be
    /// ended: `stop_youngest`.)
    fn exceeds(&self) -> Option<Rank> {
        let oldest = self.oldest();
        let only = self.index.stoppable.iter().all(|&(_, rank)| Some(rank) == oldest);
        let nobody = only && self.index.holding == 0 && self.youngest_growing(oldest).is_none();
        oldest.filter(|_| nobody && self.alone().is_none() && !self.relief_may_come())
    }

    /// One that tells leaves while it computes, for all we know, with all that it holds.
    pub(super) fn interrupt(&mut self, rank: Rank, why: Why, effects: &mut Vec<Effect>) {
        self.update(rank, |state| state.evict(why, 0));
        self.interrupted(rank);
        effects.push(Effect::Evict { rank, keep: 0, preempt: true });
    }

    /// A rank that tells leaves as it is, and comes back as a whole when that fits.
    pub(super) fn interrupted(&mut self, rank: Rank) {
        let (now, turn) = (self.now, self.brought);
        self.update(rank, |state| {
            (state.since, state.turn) = (now, turn);
            (state.has_turn, state.eager) = (false, false);
            state.interrupted = true;
        });
    }

    /// One that runs in parts cannot leave as a whole, but does with less when the oldest needs it: it has
    /// had its turn.
    fn shrink_younger(&mut self, effects: &mut Vec<Effect>) {
        let margin = self.margin();
        if !self.is_short(margin)
            || self.relief_is_coming()
            || (self.may_evict() && self.stranger_victim().is_some())
        {
            return;
        }
        let oldest = self.oldest();
        let mut inside = self.index.inside.iter().rev().map(|&(_, rank)| rank);
        let in_parts = |&rank: &Rank| {
            let state = &self.ranks[rank as usize];
            Some(rank) != oldest && state.partial && state.life == Life::Resident
        };
        let Some(rank) = inside.find(in_parts) else { return };
        let state = &self.ranks[rank as usize];
        let lacks = self.committed().saturating_add(2 * margin).saturating_sub(self.limits.budget);
        let target = state.holds.other.saturating_sub(lacks).max(self.limits.budget / 8).max(state.fixed);
        if self.is_worth_shrinking(state, target) {
            self.shrink(rank, target, effects);
        }
    }

    /// Makes those that grow stand still: all but the oldest if memory is nearly used up, or else, if nobody
    /// can leave, the youngest at each look. The oldest only while somebody is on the way out, or in and to
    /// be sent out again, and memory would not last until then.
    fn hold_growing(&mut self, effects: &mut Vec<Effect>) {
        let oldest = self.oldest();
        let (used, small) = (self.used(), self.small_margin());
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
        } else if self.is_short(self.margin())
            && !(self.may_evict() && self.stranger_victim().is_some())
            && !self.relief_may_come()
            && let Some(rank) = self.youngest_growing(oldest)
        {
            self.hold(rank, effects);
        }
    }

    fn youngest_growing(&self, but: Option<Rank>) -> Option<Rank> {
        self.index.growing.iter().rev().map(|&(_, rank)| rank).find(|&rank| Some(rank) != but)
    }

    /// More is used, or wanted, than there is, or will be if those that grow go on.
    fn threatens(&self) -> bool {
        self.pace.is_growing() || self.committed().saturating_add(self.lacking) > self.limits.budget
    }

    /// The last resort: nobody can leave, nobody else can be made to stand still, and it is not enough.
    fn stop_youngest(&mut self, effects: &mut Vec<Effect>) {
        let small = self.small_margin();
        if !self.is_short(small) || !self.threatens() || self.relief_may_come() || self.index.holding > 0 {
            return;
        }
        if self.may_evict() && self.stranger_victim().is_some() {
            return;
        }
        let oldest = self.oldest();
        if self.youngest_growing(oldest).is_some() {
            return;
        }
        let youngest = |&&(_, rank): &&Aged| Some(rank) != oldest;
        let Some(&(_, rank)) = self.index.stoppable.iter().rev().find(youngest) else { return };
        // The others have gone as far as they can: it is the oldest that does not fit.
        if let Some((rank, target)) = oldest.and_then(|rank| Some((rank, self.fitting(rank)?))) {
            self.shrink(rank, target, effects);
            return;
        }
        // If running it again was not asked for the budget is exceeded, or, enforced, the youngest fails
        // before it is.
        let will_exceed = self.used().saturating_add(self.pace.grows_soon()) > self.limits.budget;
        if self.ranks[rank as usize].can.rerun || (self.limits.enforce && will_exceed) {
            self.end(rank, effects);
        } else if self.used() > self.limits.budget
            && let Some(oldest) = oldest
        {
            self.tell_overdraft(oldest, effects);
        }
    }

    /// Ends a rank to make room: it is started again, if that is wanted.
    pub(super) fn end(&mut self, rank: Rank, effects: &mut Vec<Effect>) {
        let state = &self.ranks[rank as usize];
        let used = state.holds.total();
        let limit = self.limits.budget.saturating_sub(self.used().saturating_sub(used));
        if state.can.rerun {
            self.update(rank, RankState::stop);
            effects.push(Effect::Stop { rank, used });
        } else {
            self.kill(rank, limit, effects);
        }
    }

    /// Ends a rank that holds more than `limit` bytes, for good.
    pub(super) fn kill(&mut self, rank: Rank, limit: u64, effects: &mut Vec<Effect>) {
        let bytes = self.ranks[rank as usize].holds.total();
        self.update(rank, RankState::stop);
        effects.push(Effect::OverLimit { rank, bytes, limit });
    }

    /// Says, once for each rank, that it makes the job exceed the budget.
    pub(super) fn tell_overdraft(&mut self, rank: Rank, effects: &mut Vec<Effect>) {
        self.overdraft = Some(rank);
        let state = &self.ranks[rank as usize];
        if state.told {
            return;
        }
        let needs =
            state.all_to_run().unwrap_or(state.holds).total().saturating_add(state.need().unwrap_or(0));
        let beside = self.used().saturating_sub(state.holds.total());
        let beside = if needs > self.limits.budget { 0 } else { beside };
        self.update(rank, |state| state.told = true);
        effects.push(Effect::Overdraft { rank, bytes: needs, beside });
    }

    /// The only rank in RAM, if nobody is on the way out.
    fn alone(&self) -> Option<Rank> {
        let index = &self.index;
        let alone = index.inside.len() == 1 && index.places == 1 && index.evicting + index.stopping == 0;
        self.oldest().filter(|_| alone)
    }

    /// The only rank in RAM does not fit: parts of it leave, or it is said. If it has just refused it stands
    /// still until it can be asked again.
    fn relieve_alone(&mut self, rank: Rank, effects: &mut Vec<Effect>) {
        let state = &self.ranks[rank as usize];
        let small = self.small_margin();
        if state.life == Life::Held
            && self.is_short(small)
            && let Some(target) = self.fitting(rank)
        {
            self.shrink(rank, target, effects);
            return;
        }
        if state.life != Life::Resident {
            return;
        }
        let (budget, bytes) = (self.limits.budget, state.holds.other);
        let elsewhere = self.used().saturating_sub(bytes);
        if !self.is_short(small) {
            // It grew fast when it was told how much it may hold.
            let room = budget.saturating_sub(elsewhere).saturating_sub(2 * small);
            if state.partial
                && room >= state.target.saturating_add(self.grain())
                && bytes >= state.target / 8 * 7
            {
                self.shrink(rank, room, effects);
            }
            return;
        }
        let possible = self.may_shrink(state);
        let target = self.target(rank);
        let shrinks = self.is_worth_shrinking(state, target) && possible && state.refused_until == 0;
        let hopeful = possible && state.refused_until != 0 && state.refusals <= PATIENCE;
        let suffices = self.fitting(rank).is_some();
        if hopeful && state.is_growing() && self.used().saturating_add(small / 2) > budget {
            self.hold(rank, effects);
            return;
        }
        if self.used() > budget && !hopeful && !suffices {
            // It may be that it fits, but not beside what of the others cannot be paged.
            let remnant = self.index.remnants.last().map(|&(_, other)| other);
            match remnant.filter(|_| shrinks || bytes <= budget) {
                Some(other) if self.ranks[other as usize].can.rerun || self.limits.enforce => {
                    self.end(other, effects)
                }
                None if self.limits.enforce => return self.kill(rank, budget, effects),
                _ => self.tell_overdraft(rank, effects),
            }
        }
        if shrinks {
            self.shrink(rank, target, effects);
        }
    }

    /// How much a rank may hold if parts of it leave, however fast it grew: whoever runs in parts waits where
    /// there is no room.
    fn target(&self, rank: Rank) -> u64 {
        let (state, budget) = (&self.ranks[rank as usize], self.limits.budget);
        let there = budget.saturating_sub(self.used().saturating_sub(state.holds.other));
        let kept = if state.partial && self.alone() == Some(rank) {
            // Nobody else can grow, and this one only until its mover sees it.
            2 * self.small_margin()
        } else {
            self.margin() + self.small_margin()
        };
        there.saturating_sub(kept).max(there / 4 * 3).max(budget / 8).max(state.fixed)
    }

    /// The same of one that can be paged in parts now, and fits then. If it stands still it then goes on.
    fn fitting(&self, rank: Rank) -> Option<u64> {
        let (state, target) = (&self.ranks[rank as usize], self.target(rank));
        let elsewhere = self.used().saturating_sub(state.holds.other);
        let is_in = matches!(state.life, Life::Resident | Life::Held);
        let shrinks = is_in && self.may_shrink(state) && state.refused_until == 0;
        let fits = elsewhere.saturating_add(target) <= self.limits.budget;
        (shrinks && fits && self.is_worth_shrinking(state, target)).then_some(target)
    }

    /// Bytes for less than which nobody is made smaller or larger.
    pub(super) const fn grain(&self) -> u64 {
        self.limits.budget / 128
    }

    /// Whether enough would leave. What cannot, and what it touches all the time, would else be asked for
    /// again and again, while others hoped for it.
    fn is_worth_shrinking(&self, state: &RankState, target: u64) -> bool {
        target < state.holds.other && target.saturating_add(self.grain()) <= state.holds.other
    }

    /// Whether parts of a rank can be paged out, now or when it is asked again.
    fn may_shrink(&self, state: &RankState) -> bool {
        self.disk_full.is_none() && state.can.evict && state.can.shrink
    }

    /// Pages parts of a rank out, if that is possible now.
    pub(super) fn shrink(&mut self, rank: Rank, target: u64, effects: &mut Vec<Effect>) -> bool {
        let (state, ceiling) = (&self.ranks[rank as usize], digest::ceiling(&self.limits));
        if !self.may_shrink(state) || state.refused_until != 0 {
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
}
