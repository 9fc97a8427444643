//! Those that ask, or tell when they may go on: who of them is next, and who makes room for them.
//!
//! | | who | how |
//! |---|---|---|
//! | 1 | residents blocked on memory | longest waiting first |
//! | 2 | evicted ranks whose wait is over | those that hold a part of what they need first, then longest ready first |
//! | 3 | ranks that are not started | by number; ahead of 2 once as many as are alive have passed them |
//!
//! A later one never overtakes the first in its class. Residents are not in this order: they run by
//! themselves, before anybody is brought in. That makes a cyclic sweep move (P − R)·S bytes a phase: what was
//! loaded last is still there when the next phase begins and runs first, and only the others are exchanged,
//! each once.

use super::rank::{Life, RankState, Why};
use super::{Core, Effect, Rank, digest, signed};

/// A rank that is to come in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Claim {
    /// Restore it.
    Out(Rank),
    /// Start it.
    Unborn(Rank),
}

impl Claim {
    pub const fn rank(self) -> Rank {
        let (Self::Out(rank) | Self::Unborn(rank)) = self;
        rank
    }
}

/// Evicts a rank altogether.
pub(super) const ALL: i64 = i64::MAX;

impl Core {
    /// Gives those that ask what is free, unless somebody else's turn is being prepared.
    pub(super) fn serve_claims(&mut self, effects: &mut Vec<Effect>) {
        if self.pool.stale || self.turn.is_some() {
            return;
        }
        while let Some(&(_, rank)) = self.index.needs.first()
            && self.fits_free(self.ranks[rank as usize].need().unwrap_or(0))
        {
            self.grant(rank, false, effects);
        }
        if let Some(&(_, rank)) = self.index.needs.first()
            && self.needs_little_more(rank)
        {
            self.grant(rank, true, effects);
        }
        self.bring_in(effects);
    }

    /// It needs more than there is, has its turn, which was told, and asks for a little besides: paged out
    /// for that, all of it would have to come in again.
    fn needs_little_more(&self, rank: Rank) -> bool {
        let state = &self.ranks[rank as usize];
        let is_little = state.need().is_some_and(|bytes| bytes <= state.holds.asked / 64);
        is_little && state.has_turn && state.told && !self.limits.enforce && self.holds_alone(rank)
    }

    /// Restores and starts ranks while there is room. Residents in need of memory come first: they hold some
    /// already, and give it back the sooner the sooner they run. The first in line for which not all is free
    /// gets what there is, so that it comes in while others compute.
    fn bring_in(&mut self, effects: &mut Vec<Effect>) {
        while self.index.needs.is_empty() {
            let Some(claim) = self.next_claim() else { break };
            let (bytes, state) = (self.claimed(claim), &self.ranks[claim.rank() as usize]);
            let busy = state.life != Life::Restoring && self.index.restoring >= self.limits.moves;
            if !(state.has_place() || self.has_place()) {
                break;
            }
            match claim {
                Claim::Unborn(rank) if self.fits_free(bytes) => self.start(rank, bytes, effects),
                Claim::Out(rank) if !busy && self.fits_free(bytes) => {
                    self.restore(rank, bytes, false, effects)
                }
                Claim::Out(rank) if !busy => {
                    let part = self.part(state.on_scratch());
                    if part > 0 {
                        self.restore(rank, part, false, effects);
                    }
                    break;
                }
                _ => break,
            }
        }
    }

    /// Evicts until what was asked for will fit, and nobody without need: first those that wait for others,
    /// furthest next run first (`victim.rs`), then strangers.
    pub(super) fn make_room(&mut self, effects: &mut Vec<Effect>) {
        if self.disk_full.is_some() || self.pool.stale || self.turn.is_some() {
            return;
        }
        let coming = self.coming();
        if !self.index.needs.is_empty() {
            self.evict_for_bytes(signed(self.index.needs_bytes).saturating_sub(coming), true, effects);
            self.evict_needy(effects);
        } else if coming < 0 && self.index.holders > 1 {
            // The budget was lowered, or messages took the rest, or what is measured.
            self.evict_for_bytes(-coming, false, effects);
        } else {
            self.evict_for_claims(coming, effects);
        }
    }

    /// Evicts until `lack` bytes are on their way, or nobody is left.
    pub(super) fn evict_for_bytes(&mut self, mut lack: i64, strangers: bool, effects: &mut Vec<Effect>) {
        while lack > 0
            && self.may_evict()
            && let Some(rank) = self.waiting_victim().or_else(|| self.stranger_victim().filter(|_| strangers))
        {
            lack = lack.saturating_sub(self.evict(rank, Why::Memory, lack, effects));
        }
    }

    /// Who leaves for memory, of those that tell: one that waits for others, else one that was brought in
    /// ahead.
    pub(super) fn waiting_victim(&mut self) -> Option<Rank> {
        self.furthest(true).or_else(|| self.index.parts.last().map(|&(.., rank)| rank))
    }

    /// Everybody left waits for memory: the one that waits longest will get it, from those that wait
    /// shortest. It holds then what they held, so the next in line is served later, not never.
    fn evict_needy(&mut self, effects: &mut Vec<Effect>) {
        while self.may_evict()
            && self.index.heavy.is_empty()
            && self.index.parts.is_empty()
            && self.index.needs.len() > 1
            && signed(self.index.needs_bytes) > self.coming()
        {
            let head = self.index.needs.first().copied();
            // The head is the oldest; if the youngest that can go is the head, nobody else can.
            match self.index.yielding.last().copied() {
                Some(last) if Some(last) != head => drop(self.evict(last.1, Why::Memory, ALL, effects)),
                _ => break,
            }
        }
    }

    /// Evicts for those who want to come in, as many of them as may move at once. Those who were promised the
    /// room of an eviction under way still stand first in line, and `coming` has that room, so all are
    /// counted from the front.
    fn evict_for_claims(&mut self, coming: i64, effects: &mut Vec<Effect>) {
        let index = &self.index;
        let nobody = index.heavy.is_empty() && index.light.is_empty() && index.parts.is_empty();
        if !self.may_evict() || (nobody && index.victims.is_empty()) {
            return;
        }
        let mut room = coming;
        let mut places =
            i64::from(self.limits.resident) - i64::from(index.residents() - index.freeing_places);
        let wanted: Vec<Claim> = self.claims().take(self.limits.moves as usize).collect();
        let idle = self.index.active == 0;
        let mut last = None;
        for (nth, claim) in wanted.into_iter().enumerate() {
            let (lacks, state) = (self.claimed(claim), &self.ranks[claim.rank() as usize]);
            let evictable = if self.index.victims.is_empty() { self.index.heavy_bytes } else { u64::MAX };
            // It cannot run before somebody who runs now blocks: bring in a part, and leave the others what
            // they have.
            let ahead = !idle && room.saturating_add(signed(evictable)) < signed(lacks);
            let part = self.limits.ahead.saturating_sub(state.holds.asked).min(state.on_scratch());
            places -= i64::from(!state.has_place());
            room = room.saturating_sub(signed(if ahead { part } else { lacks }));
            while room < 0 || places < 0 {
                // What was brought in ahead is given up for the first in line only, and only if there is no
                // other hope.
                let part = if nth == 0 && idle { self.last_part(claim.rank()) } else { None };
                let mut victim = if room < 0 { self.furthest(true).or(part) } else { None };
                if victim.is_none() && places < 0 {
                    victim = self.furthest(false);
                }
                if victim.is_none() && nth == 0 {
                    victim = self.stranger_victim();
                }
                // Rather more of one whose eviction was ordered just now than a part of another.
                if room < 0
                    && let Some(more) = self.evict_more(last, -room, effects)
                {
                    room = room.saturating_add(more);
                    continue;
                }
                let Some(victim) = victim else { return };
                last = Some(victim);
                let gives = self.evict(victim, Why::Memory, if places < 0 { ALL } else { -room }, effects);
                room = room.saturating_add(gives);
                places += i64::from(self.ranks[victim as usize].keep.asked == 0);
                if !self.may_evict() {
                    return;
                }
            }
            if ahead {
                return;
            }
        }
    }

    /// The last in line of those that hold a part of what they need, but for `head`.
    fn last_part(&self, head: Rank) -> Option<Rank> {
        self.index.parts.iter().rev().map(|&(.., rank)| rank).find(|&rank| rank != head)
    }

    /// Whether anybody would run if there were memory or a place.
    pub(super) fn has_claims(&self) -> bool {
        let index = &self.index;
        let strangers = index.out.len() + index.eager.len() + index.held.len() > 0;
        let asking = !(index.needs.is_empty() && index.ready.is_empty()) || self.unborn().next().is_some();
        asking || strangers || self.queue.len() > 0
    }

    /// Bytes that somebody waits for: those who need memory, and who comes in next.
    #[must_use]
    pub fn wanted(&self) -> u64 {
        let next = self.next_claim().map_or(0, |claim| self.claimed(claim));
        self.index.needs_bytes.saturating_add(next)
    }

    /// Those who want to come in, next first.
    ///
    /// Evicted ranks go before those not started: what was begun is finished before more is begun, which
    /// holds fewer bytes in scratch and lets independent ranks end without ever being evicted. Among them
    /// those that hold a part of their memory, or were given some, go first, the one that lacks least first:
    /// they are the residents of a sweep whose ranks do not fit whole; the others in the order they became
    /// ready. But ranks that keep waking each other could keep one out for ever, and may even wait for it: so
    /// after as many ranks as are alive have passed, the next one that is not started has its turn, and so
    /// has the one that has been ready for longest.
    pub(super) fn claims(&self) -> impl Iterator<Item = Claim> + '_ {
        let alive = self.alive();
        let is_overdue = |&(_, rank): &(u64, Rank)| self.waits_since(rank) >= 2 * alive;
        let index = &self.index;
        let oldest = index.ready.first().copied().filter(is_overdue);
        let others = move |key: &(u64, Rank)| Some(*key) != oldest;
        let begun = index.begun.iter().map(|&(_, since, rank)| (since, rank)).filter(others);
        let is_begun = |rank: Rank| self.ranks[rank as usize].has_place();
        let rest = index.ready.iter().copied().filter(move |key| others(key) && !is_begun(key.1));
        let ready = oldest.into_iter().chain(begun).chain(rest).map(|(_, rank)| Claim::Out(rank));
        let turn = self.passed >= alive;
        let mut unborn = self.unborn().map(Claim::Unborn);
        let first = unborn.next().filter(|_| turn);
        let unborn = self.unborn().skip(usize::from(turn)).map(Claim::Unborn);
        first.into_iter().chain(ready).chain(unborn)
    }

    /// Those not started that may be, next first: with the others no more may be alive than the limit says.
    pub(super) fn unborn(&self) -> impl Iterator<Item = Rank> + '_ {
        let most = self.limits.alive.saturating_sub(self.begun());
        self.index.unborn.iter().take(most as usize).map(|&(_, rank)| rank)
    }

    fn next_claim(&self) -> Option<Claim> {
        self.claims().next()
    }

    /// How many ranks have been started and not ended; at least 1.
    pub(super) fn alive(&self) -> u64 {
        u64::from(self.begun()).max(1)
    }

    /// How many ranks have been brought in since one began to lack something.
    pub(super) fn waits_since(&self, rank: Rank) -> u64 {
        self.brought - self.ranks[rank as usize].turn.min(self.brought)
    }

    /// What a rank lacks to come in, bytes.
    pub(super) fn claimed(&self, claim: Claim) -> u64 {
        match claim {
            Claim::Out(rank) => self.ranks[rank as usize].lacks().unwrap_or(0),
            // Never more than there can be, so that the first rank always starts. Nothing is lost by too
            // little: it asks for more.
            Claim::Unborn(rank) => {
                let state = &self.ranks[rank as usize];
                let learned = self.digest.learned(Some(state.declared)).filter(|_| state.can.asks);
                let most = digest::ceiling(&self.limits);
                self.limits.first_reserve.max(state.reserve).max(learned.unwrap_or(0)).min(most)
            }
        }
    }

    /// Whether so many bytes can be given out.
    pub(super) fn fits_free(&self, bytes: u64) -> bool {
        signed(bytes) <= self.free()
    }

    /// Whether another rank may take a place in RAM.
    pub(super) const fn has_place(&self) -> bool {
        self.index.residents() < self.limits.resident.saturating_add(self.crowd)
    }

    /// Whether somebody may be asked to leave.
    pub(super) const fn may_evict(&self) -> bool {
        self.disk_full.is_none() && self.index.evicting < self.limits.moves
    }

    /// How much of the `lacks` bytes to give a rank for which not all are free: enough to be worth moving, or
    /// nothing.
    fn part(&self, lacks: u64) -> u64 {
        let free = u64::try_from(self.free()).unwrap_or(0);
        (free - free % self.limits.part.max(1)).min(lacks)
    }

    /// What a rank that asked for `granted` bytes keeps when `lack` of them are needed: a small rest is not
    /// worth keeping.
    fn rest(&self, granted: u64, lack: i64) -> u64 {
        let rest = granted.saturating_sub(u64::try_from(lack).unwrap_or(0));
        if rest < self.limits.part || rest < granted / 8 { 0 } else { rest }
    }

    /// Evicts a rank for `lack` bytes; those it will give, at least as many if it has them.
    pub(super) fn evict(&mut self, rank: Rank, why: Why, lack: i64, effects: &mut Vec<Effect>) -> i64 {
        let keep = self.rest(self.ranks[rank as usize].holds.asked, lack);
        self.update(rank, |state| state.evict(why, keep));
        effects.push(Effect::Evict { rank, keep, preempt: false });
        signed(self.ranks[rank as usize].freeing())
    }

    /// Has a rank whose eviction was ordered just now leave with up to `lack` bytes more; how many those are.
    fn evict_more(&mut self, rank: Option<Rank>, lack: i64, effects: &mut [Effect]) -> Option<i64> {
        let rank = rank?;
        let before = self.ranks[rank as usize].keep.asked;
        let less = self.rest(before, lack);
        let order = effects.iter_mut().rev().find_map(|effect| match effect {
            Effect::Evict { rank: other, keep, .. } if *other == rank => Some(keep),
            _ => None,
        });
        *order.filter(|_| less < before)? = less;
        self.update(rank, |state| state.keep.asked = less);
        Some(signed(before - less))
    }

    /// The order is based on what the pool said last, and may be denied.
    fn take(&mut self, bytes: u64, overdraft: bool) -> u64 {
        debug_assert!(overdraft || bytes == 0 || self.fits_free(bytes), "{bytes} of {}", self.free());
        self.pool.take(bytes);
        self.pool.round
    }

    /// Starts a rank with so many bytes set aside, or expected.
    pub(super) fn start(&mut self, rank: Rank, reserve: u64, effects: &mut Vec<Effect>) {
        let asks = self.ranks[rank as usize].can.asks;
        let bytes = if asks { reserve } else { 0 };
        // Where nobody holds anything a negative balance does not matter for a reserve of 0.
        let pending = self.take(bytes, bytes == 0);
        self.passed = 0;
        self.started += 1;
        let (seq, clock) = (self.started, self.clock());
        self.update(rank, |state| {
            state.life = Life::Starting;
            (state.queued, state.seq, state.reserve, state.high_at) = (false, seq, reserve, clock);
            state.holds.asked = bytes;
            state.pending = pending;
        });
        effects.push(Effect::Start { rank, reserve });
    }

    /// Brings in a rank that asks, with so many bytes, or all of any other.
    pub(super) fn restore(&mut self, rank: Rank, bytes: u64, overdraft: bool, effects: &mut Vec<Effect>) {
        let state = &self.ranks[rank as usize];
        let all = state.all_to_run().unwrap_or_default().asked;
        // What it did not ask for comes back as a whole.
        let asked = bytes.saturating_sub(state.other_out()).min(all.saturating_sub(state.holds.asked));
        self.note_overdraft(rank, asked, overdraft, effects);
        let (pending, clock) = (self.take(asked, overdraft), self.clock());
        self.update(rank, |state| {
            state.restore(asked, clock);
            state.pending = pending;
        });
        effects.push(Effect::Restore { rank, bytes, all, overdraft });
    }

    /// Gives a resident what it asked for.
    pub(super) fn grant(&mut self, rank: Rank, overdraft: bool, effects: &mut Vec<Effect>) {
        let bytes = self.ranks[rank as usize].need().unwrap_or(0);
        self.note_overdraft(rank, bytes, overdraft, effects);
        let pending = self.take(bytes, overdraft);
        self.update(rank, |state| {
            state.holds.asked = state.holds.asked.saturating_add(bytes);
            state.pending = pending;
        });
        effects.push(Effect::Grant { rank, bytes, overdraft });
    }

    /// It takes so many bytes, whatever is kept free: whether there are that many at all.
    fn note_overdraft(&mut self, rank: Rank, bytes: u64, overdraft: bool, effects: &mut Vec<Effect>) {
        let exceeds = overdraft && self.used().saturating_add(bytes) > self.limits.budget;
        if exceeds && self.ranks[rank as usize].can.asks {
            self.tell_overdraft(rank, effects);
        }
    }

    /// Pages a rank out for no need, if it can be, and can come back: where the budget is exceeded somebody
    /// is in whom the others wait for.
    pub(super) fn evict_for_chaos(&mut self, rank: Rank, effects: &mut Vec<Effect>) {
        let comes_back = self.used() <= self.limits.budget || self.index.holders == 1;
        // One that is out but for a part of it would only be kept from coming in.
        let waits = |state: &RankState| state.life == Life::Resident && state.evictable_waiting();
        let leaves = |state: &RankState| waits(state) || (comes_back && state.evictable_running());
        if self.may_evict() && self.ranks.get(rank as usize).is_some_and(leaves) {
            self.evict(rank, Why::Chaos, ALL, effects);
        }
    }

    /// Who was paged out for no need keeps its place, until others need what it held: then it stands in line.
    pub(super) fn give_up_places(&mut self) {
        while let Some(&(_, rank)) = self.index.eager.first() {
            self.update(rank, |state| state.eager = false);
        }
    }
}
