//! There is room: who goes on, who comes back, who begins. In this order: what stands still in RAM uses memory for
//! nothing; what was begun is finished before more is begun.

use std::time::Duration;

use super::rank::{Life, Why};
use super::relieve::MOVES;
use super::{Effect, Overdraft};
use crate::scheduler::Rank;

/// After so long without anybody doing anything, it is another's turn: ranks may wait for each other in ways nobody sees.
const PATIENCE: Duration = Duration::from_secs(2);

/// So much longer than an exchange takes is waited for the next: where ranks only seem to do nothing that is what it costs.
const EXCHANGES: u32 = 4;

/// Where nobody is in RAM, the next is chosen of so many.
const CHOICE: usize = 16;

/// So often one that runs in parts is made smaller for a turn: what others use changes meanwhile.
const SHRINKS: u32 = 3;

impl Overdraft {
    /// Orders everything there is room for.
    pub(super) fn proceed(&mut self, looked: bool, effects: &mut Vec<Effect>) {
        if looked && self.pace.idle >= self.patience() {
            self.pace.be_patient();
            self.end_patience(effects);
        }
        if let Some(rank) = self.turn {
            self.take_turn(rank, looked, effects);
        }
        self.go_on(looked, effects);
        self.come_back(looked, effects);
        self.admit(effects);
    }

    /// So long nobody may do anything.
    fn patience(&self) -> Duration {
        PATIENCE.max(self.exchange * EXCHANGES)
    }

    /// Nobody has done anything for a while: somebody else gets a chance.
    fn end_patience(&mut self, effects: &mut Vec<Effect>) {
        self.pilot = false;
        let used = self.used().saturating_add(2 * self.pace.small_margin(&self.limits));
        if let Some(&(_, rank)) = self.index.held.first() {
            // They stand still for want of memory, and some is coming: that ends, well or not.
            if used > self.limits.budget && self.relief_is_coming() {
                return;
            }
            self.promote(rank);
            self.go(rank, effects);
        } else if self.turn.is_none() {
            self.turn = self.index.out_since.first().map(|&(_, rank)| rank);
            self.shrunk_for_turn = 0;
            self.turned = self.turn.map(|rank| (rank, self.pace.clock));
        }
    }

    /// Makes it the oldest: others may wait for it, so they make room for what it still needs, not it for them.
    fn promote(&mut self, rank: Rank) {
        self.seniors -= 1;
        let seq = self.seniors;
        self.update(rank, |state| state.seq = seq);
    }

    /// Brings in the rank whose turn it is, in exchange for the oldest of those that do nothing.
    fn take_turn(&mut self, rank: Rank, looked: bool, effects: &mut Vec<Effect>) {
        let state = &self.ranks[rank as usize];
        if state.life != Life::Out {
            self.turn = None;
            return;
        }
        if self.index.restoring >= MOVES {
            // When one of them has come in.
            return;
        }
        let needs = (state.size - state.bytes).saturating_add(self.pace.small_margin(&self.limits));
        let fits = |used: u64| used.saturating_add(needs) <= self.limits.budget;
        let places = self.index.places;
        if self.is_empty() {
            if self.makes_way_for(rank, effects) {
                self.take_place(rank, effects);
            }
            return;
        }
        if fits(self.used()) && places < self.limits.resident {
            // What was made free for it now is used again before long.
            if self.shrunk_for_turn > 0 || self.is_known(looked) {
                self.take_place(rank, effects);
            }
            return;
        }
        if fits(self.committed()) && places - self.index.evicting - self.index.stopping < self.limits.resident
        {
            // It will, once those on their way out have left.
            return;
        }
        let idle = self.index.pageable.first().map(|&(_, idle)| idle);
        if let Some(idle) = idle.filter(|_| self.may_evict()) {
            self.evict(idle, Why::Turn, effects);
        } else if self.relief_is_coming() || self.index.holding + self.index.restoring > 0 {
            // Then it is looked again.
        } else if self.shrunk_for_turn < SHRINKS && self.make_room_of_parts(needs, effects) {
            // It comes in as soon as they are free, or they would be used again by then.
            self.shrunk_for_turn += 1;
        } else {
            self.exceed_for(rank, effects);
        }
    }

    /// Its turn has come.
    fn take_place(&mut self, rank: Rank, effects: &mut Vec<Effect>) {
        self.turn = None;
        self.turns += 1;
        self.promote(rank);
        self.restore(rank, effects);
    }

    /// Nobody can make room for whom the others may wait for: the youngest of them is stopped if that is wanted, else what there is to
    /// memory is exceeded, which is told. If it may not be, nobody would ever go on, and the youngest fails.
    fn exceed_for(&mut self, rank: Rank, effects: &mut Vec<Effect>) {
        let has_place = self.index.places < self.limits.resident;
        match self.index.stoppable.last() {
            Some(&(_, other)) if self.limits.may_stop || self.limits.enforce => self.end(other, effects),
            _ if has_place && !self.limits.enforce => {
                self.tell_overdraft(rank, effects);
                self.take_place(rank, effects);
            }
            _ => self.turn = None,
        }
    }

    /// Nobody can leave as a whole, but one that runs in parts can do with less: `needs` bytes less than there are, and a little
    /// more.
    fn make_room_of_parts(&mut self, needs: u64, effects: &mut Vec<Effect>) -> bool {
        let Some(&(_, rank)) = self.index.inside.first() else { return false };
        let state = &self.ranks[rank as usize];
        let beside = self.used().saturating_sub(state.bytes).saturating_add(needs);
        let room = self.limits.budget.saturating_sub(beside);
        let slack = self.pace.small_margin(&self.limits).min(room.saturating_sub(state.fixed) / 2);
        let target = room - slack;
        let can =
            state.partial && state.life == Life::Running && target < state.bytes && target > state.fixed;
        can && self.shrink(rank, target, effects)
    }

    /// Lets those held go on, the oldest first: one after each look that shows room, and in any case one if nobody runs.
    fn go_on(&mut self, looked: bool, effects: &mut Vec<Effect>) {
        let Some(&(_, rank)) = self.index.held.first() else { return };
        let (margin, small) = (self.pace.margin(&self.limits), self.pace.small_margin(&self.limits));
        let budget = self.limits.budget;
        let room = self.committed().saturating_add(2 * margin) <= budget
            && self.used().saturating_add(2 * small) <= budget;
        let nobody = self.index.active + self.index.holding == 0 && !self.relief_is_coming();
        if (looked && room) || nobody {
            self.go(rank, effects);
        }
    }

    /// Brings back those that are out, the oldest first, while what they and those in RAM will need fits. One more than
    /// there are processors, so that they have something to do while it is on its way.
    fn come_back(&mut self, looked: bool, effects: &mut Vec<Effect>) {
        while let Some(&(_, rank)) = self.index.eager.first()
            && self.index.restoring < MOVES
        {
            let used = self.used().saturating_add(self.pace.margin(&self.limits));
            if self.turn.is_none() && self.fits_beside(rank, used) {
                // As it was before, whatever is expected of the others.
                if !self.is_known(looked) {
                    break;
                }
                self.restore(rank, effects);
            } else {
                // What it held is needed now: it stands in line.
                self.update(rank, |state| state.eager = false);
            }
        }
        if self.turn.is_some() || !self.index.held.is_empty() || self.index.holding > 0 {
            return;
        }
        if self.is_empty() {
            self.come_alone(effects);
        }
        while let Some(&(_, rank)) = self.index.out.first()
            && self.index.restoring < MOVES
        {
            let enough = self.pace.wanted.max(self.limits.processors.saturating_add(1));
            let wanted = self.index.active < enough && self.index.places < self.limits.resident;
            if !wanted || !self.fits(rank) || !self.is_known(looked) {
                break;
            }
            self.restore(rank, effects);
        }
    }

    /// Whether what is in RAM is known: somebody may have grown since the last look, and whoever is on the way in cannot go out
    /// before he has come in. If not, a look is asked for.
    fn is_known(&mut self, looked: bool) -> bool {
        let grow = self.index.active - self.index.restoring + self.index.holding;
        self.asks |= !looked && grow > 0;
        looked || grow == 0
    }

    /// Nobody is in RAM: one comes in, whatever it needs. The oldest, or the first after it that fits beside what of the others cannot
    /// be paged.
    fn come_alone(&mut self, effects: &mut Vec<Effect>) {
        let mut out = self.index.out.iter().map(|&(_, rank)| rank).take(CHOICE);
        let Some(rank) =
            out.clone().find(|&rank| self.fits_beside(rank, self.index.present)).or_else(|| out.next())
        else {
            return;
        };
        if self.makes_way_for(rank, effects) {
            self.restore(rank, effects);
        }
    }

    /// Whether what it holds fits now beside the rest of `used` bytes.
    fn fits_beside(&self, rank: Rank, used: u64) -> bool {
        let state = &self.ranks[rank as usize];
        used.saturating_sub(state.bytes).saturating_add(state.size) <= self.limits.budget
    }

    /// Whether a rank may come in while nobody else is in RAM. What does not fit is told, or who has what cannot be paged is ended.
    fn makes_way_for(&mut self, rank: Rank, effects: &mut Vec<Effect>) -> bool {
        if self.index.stopping > 0 {
            return false;
        }
        let state = &self.ranks[rank as usize];
        if self.fits_beside(rank, self.index.present) || state.size > self.limits.budget {
            return true;
        }
        let mut remnants = self.index.remnants.iter().rev().map(|&(_, other)| other);
        match remnants.find(|&other| other != rank) {
            Some(other) if self.limits.may_stop || self.limits.enforce => {
                self.end(other, effects);
                false
            }
            _ => {
                self.tell_overdraft(rank, effects);
                true
            }
        }
    }

    /// Starts ranks while processors want more and what they are expected to need fits: nobody while somebody is out or
    /// stands still for lack of memory.
    fn admit(&mut self, effects: &mut Vec<Effect>) {
        let index = &self.index;
        let lack = index.out.len() + index.held.len();
        if lack > 0 || index.holding + index.evicting_for_long + index.stopping > 0 {
            return;
        }
        while self.index.active < self.pace.wanted && self.index.places < self.limits.resident {
            let nobody = self.is_empty() && self.index.eager.is_empty();
            let Some((_, sized)) = self.queue.head() else { break };
            if sized && self.pilot && self.digest.needs_pilot() && !nobody {
                break;
            }
            let free = self.room().saturating_sub(self.index.expected);
            let fits = self.queue.take(free, nobody, &self.ranks, &self.digest, &self.limits);
            let Some((rank, reserve)) = fits.or_else(|| self.overbook()) else { break };
            self.admitted += 1;
            let (seq, clock) = (self.admitted, self.pace.clock);
            let overbooked = fits.is_none();
            self.update(rank, |state| {
                state.life = Life::Starting;
                state.overbooked = overbooked;
                state.seq = seq;
                state.reserve = reserve;
                state.high_at = clock;
            });
            effects.push(Effect::Admit { rank, reserve });
        }
    }

    /// Nobody is in RAM, nor on the way out of it.
    fn is_empty(&self) -> bool {
        self.index.places as usize == self.index.eager.len()
    }

    /// Whether what a rank that is out will need fits beside what those in RAM will.
    fn fits(&self, rank: Rank) -> bool {
        let state = &self.ranks[rank as usize];
        let beside = self.index.expected - state.expected();
        let all = beside.saturating_add(state.wants()).saturating_add(self.pace.others);
        all.saturating_add(self.pace.margin(&self.limits)) <= self.limits.budget
    }

    fn restore(&mut self, rank: Rank, effects: &mut Vec<Effect>) {
        let clock = self.pace.clock;
        self.update(rank, |state| state.come_back(clock));
        effects.push(Effect::Restore { rank });
    }

    fn go(&mut self, rank: Rank, effects: &mut Vec<Effect>) {
        self.update(rank, |state| state.life = Life::Continuing);
        effects.push(Effect::Continue { rank });
    }
}
