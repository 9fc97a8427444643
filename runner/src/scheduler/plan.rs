//! What follows from the state after an event: who is given memory, who comes in, who has to go, and what is done when
//! nobody can go on.

use std::collections::BTreeSet;

use super::order::{self, Claim};
use super::rank::{Life, Pending, RankState};
use super::{Effect, Failure, Rank, Scheduler, admission, signed};

/// Evicts a rank altogether.
const ALL: i64 = i64::MAX;

impl Scheduler {
    /// Orders everything that can be ordered now.
    pub(super) fn schedule(&mut self, effects: &mut Vec<Effect>) {
        if self.stale {
            return;
        }
        self.grant_needs(effects);
        self.bring_in(effects);
        self.make_room(effects);
        if self.index.active == 0 && self.has_claims() {
            self.last_resorts(effects);
        }
    }

    /// Gives residents the memory they wait for, the longest waiting first.
    fn grant_needs(&mut self, effects: &mut Vec<Effect>) {
        while let Some(&(_, rank)) = self.index.needs.first() {
            if !self.ranks[rank as usize].need().is_some_and(|bytes| admission::fits(bytes, self.free)) {
                break;
            }
            self.grant(rank, false, effects);
        }
    }

    /// Restores and starts ranks while there is room. Residents in need of memory come first: they hold some already,
    /// and give it back the sooner the sooner they run. The first in line for which not all is free gets what there is,
    /// so that it comes in while others compute.
    fn bring_in(&mut self, effects: &mut Vec<Effect>) {
        while self.index.needs.is_empty() {
            let Some(claim) = self.next_claim() else { break };
            let bytes = self.claimed(claim);
            let (Claim::Ready(rank) | Claim::Unborn(rank)) = claim;
            let state = &self.ranks[rank as usize];
            if !state.has_place() && !admission::has_place(&self.limits, self.index.places) {
                break;
            }
            let fits = admission::fits(bytes, self.free);
            match claim {
                Claim::Unborn(_) if !fits => break,
                Claim::Unborn(rank) => self.spawn(rank, admission::first_reserve(&self.limits), effects),
                Claim::Ready(_)
                    if state.life != Life::Restoring && self.index.restoring >= self.limits.moves =>
                {
                    break;
                }
                Claim::Ready(rank) if fits => self.restore(rank, bytes, false, effects),
                Claim::Ready(rank) => {
                    let part = admission::part(&self.limits, state.on_scratch(), self.free);
                    if part > 0 {
                        self.restore(rank, part, false, effects);
                    }
                    break;
                }
            }
        }
    }

    /// Evicts blocked ranks until what was asked for will fit, and nobody without need.
    fn make_room(&mut self, effects: &mut Vec<Effect>) {
        if self.disk_full.is_some() {
            return;
        }
        let coming = self.free.saturating_add(signed(self.index.leaving));
        if !self.index.needs.is_empty() {
            self.evict_for_bytes(signed(self.index.needs_bytes).saturating_sub(coming), effects);
            self.evict_needy(effects);
        } else if coming < 0 && self.index.holders > 1 {
            // The budget was lowered, or messages took the rest.
            self.evict_for_bytes(-coming, effects);
        } else {
            self.evict_for_claims(coming, effects);
        }
    }

    /// Evicts those who wait for others, then those that were brought in ahead, until `lack` bytes are on their way, or
    /// nobody is left.
    fn evict_for_bytes(&mut self, mut lack: i64, effects: &mut Vec<Effect>) {
        while lack > 0 && self.may_evict() {
            let part = self.index.parts.last().map(|&(.., rank)| rank);
            let Some(rank) = self.victim(true).or(part) else { break };
            lack = lack.saturating_sub(self.evict(rank, lack, effects));
        }
    }

    /// Everybody left waits for memory: the one that waits longest will get it, from those that wait shortest. It holds
    /// then what they held, so the next in line is served later, not never.
    fn evict_needy(&mut self, effects: &mut Vec<Effect>) {
        while self.may_evict()
            && self.index.heavy.is_empty()
            && self.index.parts.is_empty()
            && self.index.needs.len() > 1
        {
            let coming = self.free.saturating_add(signed(self.index.leaving));
            if admission::fits(self.index.needs_bytes, coming) {
                break;
            }
            let head = self.index.needs.first().copied();
            // The head is the oldest; if the youngest that can go is the head, nobody else can.
            match self.index.yielding.last().copied() {
                Some(last) if Some(last) != head => drop(self.evict(last.1, ALL, effects)),
                _ => break,
            }
        }
    }

    /// Evicts for those who want to come in, as many of them as may move at once. Those who were promised the room of an
    /// eviction under way still stand first in line, and `coming` has that room, so all are counted from the front.
    fn evict_for_claims(&mut self, coming: i64, effects: &mut Vec<Effect>) {
        let index = &self.index;
        if !self.may_evict() || (index.heavy.is_empty() && index.light.is_empty() && index.parts.is_empty()) {
            return;
        }
        let mut room = coming;
        let mut places = i64::from(self.limits.resident) - i64::from(index.places - index.freeing);
        let wanted: Vec<Claim> = self.claims().take(self.limits.moves as usize).collect();
        let idle = self.index.active == 0;
        let mut last = None;
        for (nth, claim) in wanted.into_iter().enumerate() {
            let (Claim::Ready(rank) | Claim::Unborn(rank)) = claim;
            let (lacks, state) = (self.claimed(claim), &self.ranks[rank as usize]);
            let evictable = self.index.heavy_bytes;
            // It cannot run before somebody who runs now blocks: bring in a part, and leave the others what they have.
            let ahead = !idle && room.saturating_add(signed(evictable)) < signed(lacks);
            let part = self.limits.ahead.saturating_sub(state.granted).min(state.on_scratch());
            let aim = if ahead { part } else { lacks };
            places -= i64::from(!state.has_place());
            room = room.saturating_sub(signed(aim));
            while room < 0 || places < 0 {
                // What was brought in ahead is given up for the first in line only, and only if there is no other hope.
                let part = if nth == 0 && idle { self.last_part(rank) } else { None };
                let mut victim = if room < 0 { self.victim(true).or(part) } else { None };
                if victim.is_none() && places < 0 {
                    victim = self.victim(false).or(part);
                }
                // Rather more of the one that goes already: the others have been kept for longer.
                if room < 0
                    && places >= 0
                    && let Some(more) = self.evict_more(last, -room, effects)
                {
                    room = room.saturating_add(more);
                    continue;
                }
                let Some(victim) = victim else { return };
                last = Some(victim);
                let gives = self.evict(victim, if places < 0 { ALL } else { -room }, effects);
                room = room.saturating_add(gives);
                places += i64::from(self.ranks[victim as usize].keep == 0);
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

    /// Nobody runs, comes or goes, and somebody wants to. In this order:
    /// 1. whoever refused to leave, and a full disk, are asked once more;
    /// 2. the smallest that fits goes out of turn: what it does may be what the others wait for;
    /// 3. of several that wait for memory the first in line leaves, if it alone can;
    /// 4. where nobody else holds anything, the first in line gets more than there is, or fails if that is enforced;
    /// 5. otherwise wait for a sign of life, or for [`super::Event::Settled`].
    fn last_resorts(&mut self, effects: &mut Vec<Effect>) {
        if !self.last_call && (self.disk_full.is_some() || !self.index.refused.is_empty()) {
            self.last_call = true;
            self.disk_full = None;
            while let Some(&(_, rank)) = self.index.refused.first() {
                self.update(rank, |state| state.refused_until = None);
            }
            self.make_room(effects);
            if self.index.active > 0 {
                return;
            }
        }
        if self.out_of_turn(effects) || self.head_yields(effects) {
            return;
        }
        if let Some(&(_, rank)) = self.index.needs.first() {
            let state = &self.ranks[rank as usize];
            if self.index.holders == u32::from(state.granted > 0) {
                let need = state.granted.saturating_add(state.need().unwrap_or(0));
                if self.limits.enforce {
                    let failure = self.too_large(rank, need);
                    return self.fail(failure, effects);
                }
                self.grant(rank, true, effects);
            }
        } else if let Some(rank) = self.next_ready() {
            let state = &self.ranks[rank as usize];
            let alone = self.index.holders == u32::from(state.granted > 0);
            if !alone || !(state.has_place() || admission::has_place(&self.limits, self.index.places)) {
                return;
            }
            if self.limits.enforce {
                let failure = self.too_large(rank, state.comeback().unwrap_or(0));
                return self.fail(failure, effects);
            }
            self.restore(rank, self.claimed(Claim::Ready(rank)), true, effects);
        }
    }

    /// Lets the smallest go that fits, whoever is first in line. Unborn ranks make do with what there is.
    fn out_of_turn(&mut self, effects: &mut Vec<Effect>) -> bool {
        let fits = |&(bytes, rank): &(u64, Rank)| admission::fits(bytes, self.free).then_some(rank);
        if let Some(rank) = self.index.needs_by_size.first().and_then(fits) {
            self.grant(rank, false, effects);
            return true;
        }
        let has_place = admission::has_place(&self.limits, self.index.places);
        if let Some(rank) = self.index.ready_by_size.first().and_then(fits)
            && (has_place || self.ranks[rank as usize].has_place())
        {
            self.restore(rank, self.claimed(Claim::Ready(rank)), false, effects);
            return true;
        }
        if !has_place {
            return false;
        }
        // Where nobody holds anything and the head needs an overdraft, starting another would only be in its way.
        let alone = self.index.holders == 0 && !self.index.ready.is_empty();
        if let Some(&rank) = self.to_admit().first().filter(|_| !alone) {
            let left = u64::try_from(self.free).unwrap_or(0);
            if left > 0 || self.index.holders == 0 {
                self.spawn(rank, admission::first_reserve(&self.limits).min(left), effects);
                return true;
            }
        }
        false
    }

    /// The first in line leaves although it waited longest: the others that wait for memory cannot.
    fn head_yields(&mut self, effects: &mut Vec<Effect>) -> bool {
        if self.index.needs.len() < 2 || !self.may_evict() {
            return false;
        }
        let Some(&(_, rank)) = self.index.yielding.last() else { return false };
        self.evict(rank, ALL, effects);
        true
    }

    /// Nothing has happened for a while and nothing can be ordered: says why the job cannot go on, if it cannot.
    pub(super) fn settle(&mut self, effects: &mut Vec<Effect>) {
        if self.index.active > 0 || self.stale {
            return;
        }
        if !self.has_claims() {
            if self.index.waiting > 0 && self.index.waiting_other == 0 {
                self.fail(Failure::Deadlock { waiting: self.index.waiting }, effects);
            }
            return;
        }
        let (rank, need) = match self.index.needs.first() {
            Some(&(_, rank)) => (rank, self.ranks[rank as usize].need().unwrap_or(0)),
            None => match self.next_claim() {
                Some(claim @ (Claim::Ready(rank) | Claim::Unborn(rank))) => (rank, self.claimed(claim)),
                None => return,
            },
        };
        let failure = match self.disk_full {
            Some((rank, need)) => Failure::ScratchFull { rank, need },
            None => {
                let own = self.ranks[rank as usize].granted;
                Failure::Unpageable {
                    rank,
                    need,
                    held: self.index.granted.saturating_sub(own),
                    holders: self.index.resident - u32::from(self.ranks[rank as usize].is_resident()),
                }
            }
        };
        self.fail(failure, effects);
    }

    /// Ranks that refused to leave long enough ago may be asked again.
    pub(super) fn retry_refused(&mut self) {
        while let Some(&(due, rank)) = self.index.refused.first() {
            if due > self.now {
                break;
            }
            self.update(rank, |state| state.refused_until = None);
        }
    }

    /// Whether anybody would run if there were memory or a place.
    pub(super) fn has_claims(&self) -> bool {
        !(self.index.needs.is_empty() && self.index.ready.is_empty() && self.to_admit().is_empty())
    }

    /// Those not started yet, as far as that is decided here.
    fn to_admit(&self) -> &BTreeSet<Rank> {
        static NOBODY: BTreeSet<Rank> = BTreeSet::new();
        if self.lazy { &NOBODY } else { &self.index.unborn }
    }

    /// Bytes that somebody waits for: those who need memory, and who comes in next.
    #[must_use]
    pub fn wanted(&self) -> u64 {
        let next = self.next_claim().map_or(0, |claim| self.claimed(claim));
        self.index.needs_bytes.saturating_add(next)
    }

    /// Those who want to come in, next first.
    fn claims(&self) -> impl Iterator<Item = Claim> + '_ {
        let alive = (u64::from(self.index.resident) + u64::from(self.index.evicted)).max(1);
        let oldest = self.index.ready.first().map(|&(_, rank)| self.ranks[rank as usize].turn);
        let overdue = oldest.is_some_and(|turn| self.brought - turn >= 2 * alive);
        let is_begun = |rank: Rank| self.ranks[rank as usize].has_place();
        order::claims(
            &self.index.ready,
            &self.index.begun,
            is_begun,
            self.to_admit(),
            overdue,
            self.passed >= alive,
        )
    }

    fn next_claim(&self) -> Option<Claim> {
        self.claims().next()
    }

    /// The first of them that was evicted.
    fn next_ready(&self) -> Option<Rank> {
        self.claims().find_map(|claim| match claim {
            Claim::Ready(rank) => Some(rank),
            Claim::Unborn(_) => None,
        })
    }

    /// What a rank lacks to come in, bytes.
    fn claimed(&self, claim: Claim) -> u64 {
        match claim {
            Claim::Ready(rank) => self.ranks[rank as usize].lacks().unwrap_or(0),
            Claim::Unborn(_) => admission::first_reserve(&self.limits),
        }
    }

    fn may_evict(&self) -> bool {
        self.disk_full.is_none() && self.index.evicting < self.limits.moves
    }

    /// Takes bytes for an order that may still be denied.
    fn take(&mut self, bytes: u64, overdraft: bool) -> Pending {
        debug_assert!(overdraft || admission::fits(bytes, self.free), "gave out {bytes} of {}", self.free);
        self.free = self.free.saturating_sub(signed(bytes));
        Pending { pool_round: self.pool_round }
    }

    fn spawn(&mut self, rank: Rank, reserve: u64, effects: &mut Vec<Effect>) {
        // Where nobody holds anything a negative balance does not matter for a reserve of 0.
        let pending = self.take(reserve, reserve == 0);
        self.passed = 0;
        self.update(rank, |state| {
            state.life = Life::Spawning;
            state.granted = reserve;
            state.pending = Some(pending);
        });
        effects.push(Effect::Spawn { rank, reserve });
    }

    fn restore(&mut self, rank: Rank, bytes: u64, overdraft: bool, effects: &mut Vec<Effect>) {
        let all = self.ranks[rank as usize].comeback().unwrap_or(0);
        let pending = self.take(bytes, overdraft);
        self.note_overdraft(rank, overdraft);
        self.update(rank, |state| {
            state.life = Life::Restoring;
            state.granted = state.granted.saturating_add(bytes);
            state.orders = state.orders.wrapping_add(1);
            state.pending = Some(pending);
        });
        effects.push(Effect::Restore { rank, bytes, all, overdraft });
    }

    fn grant(&mut self, rank: Rank, overdraft: bool, effects: &mut Vec<Effect>) {
        let bytes = self.ranks[rank as usize].need().unwrap_or(0);
        let pending = self.take(bytes, overdraft);
        self.note_overdraft(rank, overdraft);
        self.update(rank, |state| {
            state.granted = state.granted.saturating_add(bytes);
            state.pending = Some(pending);
        });
        effects.push(Effect::Grant { rank, bytes, overdraft });
    }

    /// The rank leaves although nobody needs its memory. It comes back like any other: when it is runnable.
    pub(super) fn evict_for_chaos(&mut self, rank: Rank, effects: &mut Vec<Effect>) {
        if self.may_evict() && self.ranks.get(rank as usize).is_some_and(RankState::is_evictable) {
            self.evict(rank, ALL, effects);
        }
    }

    /// Evicts a rank for `lack` bytes; those it will give, at least as many if it has them.
    fn evict(&mut self, rank: Rank, lack: i64, effects: &mut Vec<Effect>) -> i64 {
        let granted = self.ranks[rank as usize].granted;
        let keep = admission::keep(&self.limits, granted, lack);
        self.update(rank, |state| state.leave(keep));
        effects.push(Effect::Evict { rank, keep });
        signed(granted - keep)
    }

    /// Has a rank whose eviction was ordered just now leave with up to `lack` bytes more; how many those are.
    fn evict_more(&mut self, rank: Option<Rank>, lack: i64, effects: &mut [Effect]) -> Option<i64> {
        let rank = rank?;
        let before = self.ranks[rank as usize].keep;
        let keep = admission::keep(&self.limits, before, lack);
        let order = effects.iter_mut().rev().find_map(|effect| match effect {
            Effect::Evict { rank: other, keep } if *other == rank => Some(keep),
            _ => None,
        });
        let order = order.filter(|_| keep < before)?;
        *order = keep;
        self.update(rank, |state| state.keep = keep);
        Some(signed(before - keep))
    }

    fn note_overdraft(&mut self, rank: Rank, overdraft: bool) {
        if overdraft {
            self.overdraft = Some(rank);
        }
    }
}
