//! Nobody makes room for whom the others may wait for: then it is its turn, and they do.
//!
//! Every rank that lacks something (it needs memory, is out and may go on, stands still, is not started) is
//! served by `claims.rs` and `proceed.rs` as long as there is room. Ranks may wait for each other in ways
//! nobody sees, though (pipes, files, locks), and what is there may be used by others for ever. So one that
//! lacks something has its *turn*, whatever kind it is of, when
//!
//! - nobody moves: nothing will be heard without an order;
//! - nobody has done anything for a while (strangers do not tell when they wait; `pace.rs` says what that
//!   looks like);
//! - twice as many as are alive have been brought in since it was out.
//!
//! Then the others make room, those that do nothing first, and nobody else comes in before. If they cannot,
//! what there is is exceeded, which is told.

use std::time::Duration;

use super::claims::{ALL, Claim};
use super::rank::{Life, RankState, Why};
use super::{Core, Effect, Failure, Rank, signed};

/// After so long without anybody doing anything, it is another's turn.
const PATIENCE: Duration = Duration::from_secs(2);

/// The same if it was so before, and since then only those did anything who say so: a launcher that waits for
/// its ranks, say. By then who computes has used more of a processor than counts as nothing (`pace.rs`).
const SOON: Duration = Duration::from_millis(200);

/// So much longer than an exchange takes is waited for the next: where ranks only seem to do nothing that is
/// what it costs.
const EXCHANGES: u32 = 4;

/// So often one that runs in parts is made smaller for a turn: what others use changes meanwhile.
const SHRINKS: u32 = 3;

/// Why it is somebody's turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cause {
    /// Many have been brought in since. The others run, and will wait or end some time.
    Passed,
    /// Nobody moves, as far as is known: residents wake each other without our knowing.
    Nobody,
    /// Nobody has done anything for a while: nobody will make room by himself.
    Idle,
}

/// Whose turn it is.
#[derive(Debug, Clone, Copy)]
pub(super) struct Turn {
    rank: Rank,
    cause: Cause,
    /// How often one that runs in parts was made smaller for it.
    shrunk: u32,
    /// How many others came in meanwhile because they fit.
    others: u64,
}

impl Core {
    /// Goes on with the turn there is, or begins one.
    pub(super) fn take_turns(&mut self, looked: bool, effects: &mut Vec<Effect>) {
        if self.turn.is_some_and(|turn| !wants(&self.ranks[turn.rank as usize])) {
            self.end_turn();
        }
        let next = self.longest_waiting().is_some_and(|rank| self.ranks[rank as usize].can.tells);
        let patience = if next && self.pace.still.is_some() { SOON } else { PATIENCE };
        if looked && self.pace.idle >= patience.max(self.exchange * EXCHANGES) {
            self.pace.be_patient();
            self.pace.still.get_or_insert_default();
            self.end_patience(effects);
        }
        if self.turn.is_none()
            && let Some(&(_, rank)) = self.index.out_since.first()
            && self.waits_since(rank) >= 2 * self.alive()
        {
            self.begin_turn(rank, Cause::Passed);
        }
        if let Some(turn) = self.turn {
            // Who went meanwhile to be back at once comes after whose turn it is, like anybody.
            self.give_up_places();
            self.take_turn(turn, looked, turn.cause == Cause::Idle, effects);
        }
    }

    pub(super) fn begin_turn(&mut self, rank: Rank, cause: Cause) {
        self.give_up_places();
        self.turn = Some(Turn { rank, cause, shrunk: 0, others: 0 });
        self.turned = None;
    }

    /// Nobody has done anything for a while: somebody else gets a chance.
    fn end_patience(&mut self, effects: &mut Vec<Effect>) {
        self.pilot = false;
        // How long was waited until now says nothing of how long an exchange takes.
        self.turned = None;
        let used = self.used().saturating_add(2 * self.small_margin());
        if let Some(&(_, rank)) = self.index.held.first() {
            // They stand still for want of memory, and some is coming: that ends, well or not.
            if used <= self.limits.budget || !self.relief_is_coming() {
                self.promote(rank);
                self.resume(rank, effects);
            }
        } else if let Some(turn) = &mut self.turn {
            turn.cause = Cause::Idle;
        } else if let Some(rank) = self.longest_waiting() {
            self.begin_turn(rank, Cause::Idle);
        }
    }

    /// Of those that lack something the one that has for longest; those not started last, unless many have
    /// passed them.
    fn longest_waiting(&self) -> Option<Rank> {
        let index = &self.index;
        let first =
            [&index.needs, &index.ready, &index.out_since].into_iter().filter_map(|set| set.first()).min();
        let unborn = self.unborn().next();
        let overdue = unborn.filter(|_| self.passed >= 2 * self.alive());
        overdue.or(first.map(|&(_, rank)| rank)).or(unborn)
    }

    /// Nobody moves, and somebody wants to. What is begun for him is taken back if there is nothing to be
    /// ordered: residents wake each other.
    pub(super) fn take_turn_if_nobody_moves(&mut self, effects: &mut Vec<Effect>) {
        if self.index.awaited == 0 && !self.pool.stale && !self.ended {
            self.take_last_turn(false, effects);
        }
    }

    fn take_last_turn(&mut self, sure: bool, effects: &mut Vec<Effect>) {
        let Some(rank) = self.turn.map(|turn| turn.rank).or_else(|| self.longest_waiting()) else { return };
        if self.turn.is_none() {
            self.begin_turn(rank, Cause::Nobody);
        }
        if let Some(turn) = self.turn {
            self.take_turn(turn, true, sure, effects);
        }
        if self.index.awaited == 0 {
            self.end_turn();
        }
    }

    /// It is nobody's turn any more, and nobody came in for that.
    fn end_turn(&mut self) {
        (self.turn, self.turned) = (None, None);
    }

    /// Makes it the oldest: others may wait for it, so they make room for what it still needs, not it for
    /// them.
    fn promote(&mut self, rank: Rank) {
        self.seniors -= 1;
        let seq = self.seniors;
        self.update(rank, |state| state.seq = seq);
    }

    /// Gives the rank what it lacks, or has the others make room for it. If it is `sure` that nobody else
    /// will, what there is is exceeded.
    fn take_turn(&mut self, turn: Turn, looked: bool, sure: bool, effects: &mut Vec<Effect>) {
        let (rank, state) = (turn.rank, self.ranks[turn.rank as usize]);
        let coming = state.life == Life::Restoring;
        if (self.index.restoring >= self.limits.moves && !coming) || (state.can.asks && self.pool.stale) {
            // When one of them has come in, or the pool has spoken.
            return;
        }
        let lacks = self.lacking(rank);
        let lack = self.lack_for(rank, lacks);
        let has_place = state.has_place() || self.has_place();
        let others = self.index.places - u32::from(state.has_place());
        if lack <= 0 && has_place {
            // What was made free for it now is used again before long.
            if state.can.asks || turn.shrunk > 0 || self.is_known(looked) {
                self.give(rank, false, effects);
            }
            return;
        }
        if others == 0 && self.index.awaited == 0 {
            self.come_in_alone(rank, effects);
            return;
        }
        let leaving = self.index.evicting + self.index.stopping;
        let will_have_place =
            has_place || self.index.residents().saturating_sub(leaving) < self.limits.resident;
        if will_have_place && lack <= signed(self.index.freeing) && leaving + self.index.shrinking > 0 {
            // It fits, once those on their way out have left.
            return;
        }
        let lack = if will_have_place { lack.saturating_sub(signed(self.index.freeing)) } else { ALL };
        if let Some(victim) = self.victim_for(&turn, !will_have_place).filter(|_| self.may_evict()) {
            self.turned.get_or_insert((rank, self.pace.clock));
            self.evict(victim, Why::Turn, lack, effects);
        } else if let Some(victim) = self
            .seems_to_wait(rank, !will_have_place)
            .filter(|_| turn.cause == Cause::Idle && self.may_evict())
        {
            self.turned.get_or_insert((rank, self.pace.clock));
            self.interrupt(victim, Why::Turn, effects);
        } else if self.relief_is_coming()
            || self.index.about_to_end > 0
            || self.index.holding + self.index.restoring > u32::from(coming)
        {
            // Then it is looked again.
        } else if turn.cause != Cause::Passed
            && turn.shrunk < SHRINKS
            && self.make_room_of_parts(lacks, effects)
        {
            // It comes in as soon as they are free, or they would be used again by then.
            self.turn = Some(Turn { shrunk: turn.shrunk + 1, ..turn });
        } else if has_place && self.index.awaited == 0 && self.is_hardly_beside(rank, lacks) {
            self.give_all(rank, effects);
        } else if self.index.awaited == 0 && self.ask_all_again() {
            self.take_turn(turn, looked, sure, effects);
        } else if self.index.awaited == 0 && self.out_of_turn(turn, effects) {
            // What it does may be what the others wait for.
        } else if self.may_evict()
            && self.index.awaited == 0
            && self.index.needs.len() > 1
            && state.evictable_waiting()
        {
            // It leaves although it waited longest: the others that wait for memory cannot.
            self.end_turn();
            self.evict(rank, Why::Turn, ALL, effects);
        } else if sure {
            self.exceed_for(rank, has_place, effects);
        }
    }

    /// What it lacks, bytes.
    fn lacking(&self, rank: Rank) -> u64 {
        let state = &self.ranks[rank as usize];
        match state.life {
            Life::Unborn => self.claimed(Claim::Unborn(rank)),
            _ => state.lacks().or(state.need()).unwrap_or(0),
        }
    }

    /// How many bytes more than there are free it lacks; 0 or less if it fits.
    fn lack_for(&self, rank: Rank, lacks: u64) -> i64 {
        let state = &self.ranks[rank as usize];
        if state.can.asks {
            return signed(lacks).saturating_sub(self.free());
        }
        let used = self.used().saturating_add(self.unknown());
        let needs = used.saturating_add(lacks).saturating_add(self.small_margin());
        signed(needs).saturating_sub(signed(self.limits.budget))
    }

    /// Who makes room: those that wait for others, those brought in ahead, strangers (where nobody does
    /// anything the oldest, else the youngest), others that need memory. A stranger that was let go out of
    /// turn has its chance until nobody does anything again.
    fn victim_for(&mut self, turn: &Turn, for_place: bool) -> Option<Rank> {
        let (rank, idle) = (turn.rank, turn.cause != Cause::Passed);
        let has_chance = turn.others > 0 && turn.cause != Cause::Idle;
        let other = move |&of: &Rank| of != rank;
        let light = if for_place { self.furthest(false) } else { None };
        let part = self.index.parts.iter().rev().map(|&(.., rank)| rank).find(other);
        let waiting = self.furthest(true).or(light).or(part);
        let stranger = if has_chance {
            None
        } else if idle {
            self.index.pageable.iter().map(|&(_, rank)| rank).find(other)
        } else {
            self.stranger_victim().filter(other)
        };
        let needy = self.index.yielding.iter().rev().map(|&(_, rank)| rank).find(other);
        waiting.filter(other).or(stranger).or(needy)
    }

    /// The oldest other that tells when it waits, and has not, although nobody does anything: it waits in a
    /// way it does not tell (in a call of the system). One that holds nothing gives a place.
    fn seems_to_wait(&self, rank: Rank, for_place: bool) -> Option<Rank> {
        let gives =
            |of: Rank| for_place || self.ranks[of as usize].holds.total() > self.ranks[of as usize].fixed;
        self.index.preemptible.iter().map(|&(_, rank)| rank).find(|&of| of != rank && gives(of))
    }

    /// Its turn has come.
    fn give(&mut self, rank: Rank, overdraft: bool, effects: &mut Vec<Effect>) {
        let RankState { life, can, .. } = self.ranks[rank as usize];
        self.turns +=
            u32::from(self.turn.take().is_some_and(|turn| turn.cause == Cause::Idle && turn.rank == rank));
        match life {
            Life::Held => self.resume(rank, effects),
            Life::Unborn => {
                let left = u64::try_from(self.free()).unwrap_or(0);
                self.start(rank, self.claimed(Claim::Unborn(rank)).min(left), effects);
            }
            Life::Resident => self.grant(rank, overdraft, effects),
            _ => self.restore_all(rank, overdraft, effects),
        }
        if can.tells {
            self.update(rank, |state| state.has_turn = true);
        } else {
            self.promote(rank);
        }
    }

    /// Whether no other rank holds any memory.
    pub(super) fn holds_alone(&self, rank: Rank) -> bool {
        self.index.holders == u32::from(self.ranks[rank as usize].holds.total() > 0)
    }

    /// Whether the others hold next to nothing that would make no difference to one that asks: that is as
    /// good as being alone.
    fn is_hardly_beside(&self, rank: Rank, lacks: u64) -> bool {
        let state = &self.ranks[rank as usize];
        let (own, budget) = (state.holds.total(), self.limits.budget);
        let matters = self.limits.enforce && own.saturating_add(lacks) <= budget;
        state.can.asks && self.used().saturating_sub(own) <= budget / 64 && !matters
    }

    /// Nobody else is in RAM: it comes in, whatever it needs.
    fn come_in_alone(&mut self, rank: Rank, effects: &mut Vec<Effect>) {
        if self.holds_alone(rank) {
            self.give_all(rank, effects);
        } else if self.makes_way_for(rank, effects) {
            self.give(rank, true, effects);
        }
    }

    /// Nothing more can be done for it: it gets what it needs, or, enforced, the job fails.
    fn give_all(&mut self, rank: Rank, effects: &mut Vec<Effect>) {
        let (state, lacks) = (&self.ranks[rank as usize], self.lacking(rank));
        if state.can.asks && self.limits.enforce {
            let failure = self.too_large(rank, state.holds.total().saturating_add(lacks));
            return self.fail_job(failure, effects);
        }
        self.give(rank, true, effects);
    }

    /// Whoever refused to leave, and a full disk, are asked once more, unless they were and nothing has
    /// happened since.
    fn ask_all_again(&mut self) -> bool {
        let refused =
            |core: &Self| core.index.refused.first().or(core.index.refused_strangers.first()).copied();
        if self.last_call || (self.disk_full.is_none() && refused(self).is_none()) {
            return false;
        }
        self.last_call = true;
        self.disk_full = None;
        while let Some((_, rank)) = refused(self) {
            self.update(rank, |state| state.refused_until = 0);
        }
        true
    }

    /// Lets the smallest go that fits, whoever is first in line, and does not interrupt it before nobody does
    /// anything again. Those not started make do with what there is. Each may have its chance, but not for
    /// ever: what they wait for may be the one whose turn it is.
    fn out_of_turn(&mut self, turn: Turn, effects: &mut Vec<Effect>) -> bool {
        let (rank, place) = (turn.rank, self.has_place());
        if turn.others >= self.alive() {
            return false;
        }
        let fits = |&&(bytes, of): &&(u64, Rank)| {
            of != rank && self.fits_free(bytes) && (place || self.ranks[of as usize].has_place())
        };
        let smallest = self.index.needs_by_size.first().filter(fits);
        let smallest =
            smallest.or_else(|| self.index.ready_by_size.first().filter(fits)).map(|&(_, rank)| rank);
        // Where nobody holds anything and the head needs more than there is, starting another would only be
        // in its way.
        let alone = self.index.holders == 0 && !self.index.ready_by_size.is_empty();
        let unborn = self.unborn().next().filter(|&of| of != rank && place && !alone);
        let unborn = unborn.filter(|_| self.free() > 0 || self.index.holders == 0);
        let Some(other) = smallest.or(unborn) else { return false };
        self.give(other, false, effects);
        let cause = if turn.cause == Cause::Idle { Cause::Nobody } else { turn.cause };
        self.turn = Some(Turn { cause, others: turn.others + 1, ..turn });
        // Nor does how long that other has its chance.
        self.turned = None;
        true
    }

    /// One that runs in parts can do with less: with what the others leave when so many bytes more are used.
    fn make_room_of_parts(&mut self, lacks: u64, effects: &mut Vec<Effect>) -> bool {
        let Some(&(_, rank)) = self.index.inside.first() else { return false };
        let (state, small) = (&self.ranks[rank as usize], self.small_margin());
        let holds = state.holds.other;
        let beside = self.used().saturating_sub(holds).saturating_add(lacks.saturating_add(small));
        let room = self.limits.budget.saturating_sub(beside);
        let target = room - small.min(room.saturating_sub(state.fixed) / 2);
        let can = state.partial && state.life == Life::Resident && target < holds && target > state.fixed;
        can && self.shrink(rank, target, effects)
    }

    /// Nobody can make room for whom the others may wait for: the youngest stranger is stopped if that is
    /// wanted, else what there is to memory is exceeded, which is told. If it may not be, nobody would ever
    /// go on, and the youngest fails.
    fn exceed_for(&mut self, rank: Rank, has_place: bool, effects: &mut Vec<Effect>) {
        let asks = self.ranks[rank as usize].can.asks;
        // Who holds nothing is in nobody's way, with a place and beside a full disk. Whoever does not tell
        // only seems to do nothing, and may go on some time.
        let in_its_way = !self.holds_alone(rank) && (!has_place || self.disk_full.is_some());
        let certain = in_its_way && self.index.begun_strangers + self.index.awaited == 0;
        let others = self.index.stoppable.iter().rev().map(|&(_, other)| other);
        // Nobody is stopped for one that was: they would stop each other for ever.
        let reruns =
            |other: Rank| self.ranks[other as usize].can.rerun && self.ranks[rank as usize].stopped_at == 0;
        let ends = |&other: &Rank| other != rank && (reruns(other) || self.limits.enforce);
        if let Some(other) = others.clone().find(ends) {
            self.end(other, effects);
        } else if asks && (self.limits.enforce || certain) {
            let failure = self.cannot_go_on(rank);
            self.fail_job(failure, effects);
        } else if self.limits.enforce {
            self.end_turn();
        } else {
            if !has_place {
                self.crowd += 1;
                effects.push(Effect::Crowded { rank, resident: self.index.residents() + 1 });
            }
            // Without what else is kept free it may fit.
            let exceeds = if asks {
                self.lack_for(rank, self.lacking(rank)) > 0
            } else {
                !self.fits_beside(rank, self.used())
            };
            if exceeds {
                self.tell_overdraft(rank, effects);
            }
            self.give(rank, exceeds, effects);
        }
    }

    /// Why a rank gets nothing although nobody moves.
    fn cannot_go_on(&self, rank: Rank) -> Failure {
        let (own, need) = (&self.ranks[rank as usize], self.lacking(rank));
        match self.disk_full {
            // The others have a place and nothing in it: no rank is in its way, only messages are.
            _ if self.holds_alone(rank) && self.lack_for(rank, need) > 0 => {
                self.too_large(rank, own.holds.total().saturating_add(need))
            }
            Some((rank, need)) => Failure::ScratchFull { rank, need },
            None => Failure::Unpageable {
                rank,
                need,
                held: self.used().saturating_sub(own.holds.total()),
                holders: self.index.holders.max(self.index.places) - u32::from(own.has_place()),
            },
        }
    }

    /// Nothing has happened for a while and nothing was ordered: what cannot be taken back is done now.
    pub(super) fn settle(&mut self, effects: &mut Vec<Effect>) {
        if self.index.awaited > 0 || self.pool.stale {
            return;
        }
        if self.has_claims() {
            self.take_last_turn(true, effects);
        } else if self.index.waiting > 0 && !self.may_be_waited_for() {
            self.fail_job(Failure::Deadlock { waiting: self.index.waiting }, effects);
        }
    }
}

/// Whether a rank lacks anything.
fn wants(state: &RankState) -> bool {
    let unborn = state.life == Life::Unborn && !state.queued;
    unborn || state.life == Life::Held || state.need().is_some() || state.lacks().is_some()
}
