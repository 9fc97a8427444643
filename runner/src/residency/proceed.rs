//! There is room: which strangers go on, come back, begin. In this order: what stands still in RAM uses
//! memory for nothing; what was begun is finished before more is begun. (Those that ask, or tell when they
//! may go on: `claims.rs`.)

use super::rank::{Life, RankState};
use super::{Core, Effect, Rank, signed};

/// Where nobody is in RAM, the next is chosen of so many.
const CHOICE: usize = 16;

impl Core {
    /// Orders everything there is room for.
    pub(super) fn proceed(&mut self, looked: bool, effects: &mut Vec<Effect>) {
        self.resume_held(looked, effects);
        self.restore_strangers(looked, effects);
        self.admit(effects);
    }

    /// Lets those held go on, the oldest first: one after each look that shows room, and in any case one if
    /// nobody runs.
    fn resume_held(&mut self, looked: bool, effects: &mut Vec<Effect>) {
        let Some(&(_, rank)) = self.index.held.first() else { return };
        let budget = self.limits.budget;
        let room = self.committed().saturating_add(2 * self.margin()) <= budget
            && self.used().saturating_add(2 * self.small_margin()) <= budget;
        let nobody = self.index.active + self.index.holding == 0 && !self.relief_is_coming();
        if (looked && room) || nobody {
            self.resume(rank, effects);
        }
    }

    /// Brings back those that are out, the oldest first, while what they and those in RAM will need fits. One
    /// more than there are processors, so that they have something to do while it is on its way.
    fn restore_strangers(&mut self, looked: bool, effects: &mut Vec<Effect>) {
        while let Some(&(_, rank)) = self.index.eager.first()
            && self.index.restoring < self.limits.moves
        {
            let used = self.used().saturating_add(self.margin());
            if self.turn.is_some() || !self.fits_beside(rank, used) {
                self.give_up_places();
                break;
            }
            // As it was before, whatever is expected of the others.
            if !self.is_known(looked) {
                break;
            }
            self.restore_all(rank, false, effects);
        }
        if self.turn.is_some() || !self.index.held.is_empty() || self.index.holding > 0 {
            return;
        }
        if self.is_empty() && self.index.needs.is_empty() {
            self.come_alone(effects);
        }
        while let Some(&(_, rank)) = self.index.out.first()
            && self.index.restoring < self.limits.moves
        {
            let enough = self.pace.wanted.max(self.limits.processors.saturating_add(1));
            if self.index.active >= enough || !self.has_place() {
                break;
            }
            if !self.fits(rank) {
                // Those that wait for others can do that elsewhere.
                let lacks = self.committed().saturating_add(self.margin() + self.lacks(rank));
                let lack = signed(lacks).saturating_sub(signed(self.limits.budget));
                if lack > 0 && signed(self.index.heavy_bytes) >= lack {
                    self.evict_for_bytes(lack, false, effects);
                }
                break;
            }
            if !self.is_known(looked) {
                break;
            }
            self.restore_all(rank, false, effects);
        }
    }

    /// Whether what is in RAM is known: somebody may have grown since the last look, and whoever is on the
    /// way in cannot go out before he has come in. If not, a look is asked for.
    pub(super) fn is_known(&mut self, looked: bool) -> bool {
        // One that is held may have begun to tell meanwhile, and is not among those inside.
        let stand = self.index.held.len() as u32 + self.index.restoring;
        let grow = (self.index.inside.len() as u32).saturating_sub(stand);
        self.asks |= !looked && grow > 0;
        looked || grow == 0
    }

    /// Nobody is in RAM: one comes in, whatever it needs. The oldest, or the first after it that fits beside
    /// what of the others cannot be paged.
    fn come_alone(&mut self, effects: &mut Vec<Effect>) {
        let mut out = self.index.out.iter().map(|&(_, rank)| rank).take(CHOICE);
        let fits = |&rank: &Rank| self.fits_beside(rank, self.used());
        let Some(rank) = out.clone().find(fits).or_else(|| out.next()) else { return };
        if self.makes_way_for(rank, effects) {
            let overdraft = !self.fits_beside(rank, self.used());
            self.restore_all(rank, overdraft, effects);
        }
    }

    /// Bytes that a stranger lacks to come back.
    fn lacks(&self, rank: Rank) -> u64 {
        self.ranks[rank as usize].lacks().unwrap_or(0)
    }

    pub(super) fn restore_all(&mut self, rank: Rank, overdraft: bool, effects: &mut Vec<Effect>) {
        self.restore(rank, self.lacks(rank), overdraft, effects);
    }

    /// Whether what it holds fits now beside the rest of `used` bytes.
    pub(super) fn fits_beside(&self, rank: Rank, used: u64) -> bool {
        used.saturating_add(self.unknown()).saturating_add(self.lacks(rank)) <= self.limits.budget
    }

    /// Whether a rank may come in while nobody else is in RAM. What does not fit is told, or who has what
    /// cannot be paged is ended.
    pub(super) fn makes_way_for(&mut self, rank: Rank, effects: &mut Vec<Effect>) -> bool {
        if self.index.stopping > 0 {
            return false;
        }
        let all = self.ranks[rank as usize].all.total();
        if self.fits_beside(rank, self.used()) || all > self.limits.budget {
            return true;
        }
        let ends = |state: &RankState| state.can.rerun || self.limits.enforce;
        let mut remnants = self.index.remnants.iter().rev().map(|&(_, other)| other);
        match remnants.find(|&other| other != rank) {
            Some(other) if ends(&self.ranks[other as usize]) => {
                self.end(other, effects);
                false
            }
            _ => {
                self.tell_overdraft(rank, effects);
                true
            }
        }
    }

    /// Starts ranks while processors want more and what they are expected to need fits: nobody while somebody
    /// is out or stands still for lack of memory.
    fn admit(&mut self, effects: &mut Vec<Effect>) {
        let index = &self.index;
        let lack = index.out.len() + index.held.len();
        if lack > 0 || index.holding + index.evicting_for_long + index.stopping > 0 || self.turn.is_some() {
            return;
        }
        while self.index.active < self.pace.wanted && self.has_place() && self.begun() < self.limits.alive {
            let nobody = self.is_empty() && self.index.eager.is_empty();
            if self.waits_for_pilot(nobody) {
                break;
            }
            let free = self.room().saturating_sub(self.index.expected);
            let others = self.pace.wanted.min(self.limits.processors).saturating_sub(self.index.active + 1);
            let fits = self.queue.take(free, nobody, others, &self.ranks, &self.digest, &self.limits);
            let Some((rank, reserve)) = fits.or_else(|| self.overbook()) else { break };
            self.update(rank, |state| state.overbooked = fits.is_none());
            self.start(rank, reserve, effects);
        }
    }

    /// Nobody stands in line, or all of them wait for the first that shows what sizes mean.
    pub(super) fn waits_for_pilot(&self, nobody: bool) -> bool {
        self.queue.head().is_none_or(|(head, sized)| {
            let unknown = sized && !self.ranks[head as usize].known;
            unknown && self.pilot && self.digest.needs_pilot() && !nobody
        })
    }

    /// How many ranks have been begun and have not ended.
    pub(super) fn begun(&self) -> u32 {
        let others = (self.index.unborn.len() + self.queue.len()) as u32 + self.index.gone;
        (self.ranks.len() as u32).saturating_sub(others)
    }

    /// Nobody is in RAM, nor on the way out of it.
    pub(super) fn is_empty(&self) -> bool {
        self.index.places as usize == self.index.eager.len()
    }

    /// Whether what a rank that is out will need fits beside what those in RAM will.
    fn fits(&self, rank: Rank) -> bool {
        let state = &self.ranks[rank as usize];
        let beside = self.index.expected - state.expected();
        beside.saturating_add(state.wants()).saturating_add(self.unknown()) <= self.room()
    }

    pub(super) fn resume(&mut self, rank: Rank, effects: &mut Vec<Effect>) {
        self.update(rank, |state| state.life = Life::Resuming);
        effects.push(Effect::Resume { rank });
    }
}
