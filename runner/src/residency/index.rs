//! Every set and sum over the ranks, kept in step with each change, so that no decision scans the ranks.

use std::collections::BTreeSet;

use super::rank::{Doing, Life, RankState};
use super::victim::Key;
use super::way::{Enter, Leave, Way};
use super::{Counts, Rank, Wait};

/// A rank by its age, or since when it waits: the last is the youngest.
pub(super) type Aged = (u64, Rank);

/// After so many refusals in a row nobody waits for a rank to change its mind.
pub(super) const PATIENCE: u8 = 3;

/// The sets. Each rank is in those that its state says, and in no other: `insert` after every change, `remove` before. *Strangers* are those
/// that do not tell when they wait.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Index {
    /// Not started, by number, those that were stopped last; but for those admitted by what is expected of them.
    pub unborn: BTreeSet<Aged>,
    /// Residents that wait for memory, the longest waiting first.
    pub needs: BTreeSet<Aged>,
    /// The same by bytes.
    pub needs_by_size: BTreeSet<(u64, Rank)>,
    /// Those of `needs` that may be asked to leave.
    pub yielding: BTreeSet<Aged>,
    /// Out, tell, and would run, the longest waiting first; also those that were given a part of what they need.
    pub ready: BTreeSet<Aged>,
    /// The same, and strangers, by the bytes they lack.
    pub ready_by_size: BTreeSet<(u64, Rank)>,
    /// Those of `ready` that hold a part or are on their way; the one that lacks least first.
    pub begun: BTreeSet<(u64, u64, Rank)>,
    /// Those of `begun` that may be asked to give their part back.
    pub parts: BTreeSet<(u64, u64, Rank)>,
    /// Ranks that wait for others, hold memory that would leave with them and may be asked to; the last goes first.
    pub heavy: BTreeSet<Key>,
    /// The same of those that hold none: they free a place only.
    pub light: BTreeSet<Key>,
    /// Ranks that refused to leave, by when they are asked again: those that tell by event, strangers by look.
    pub refused: BTreeSet<Aged>,
    pub refused_strangers: BTreeSet<Aged>,

    /// Strangers in RAM to stay.
    pub inside: BTreeSet<Aged>,
    /// May be asked to leave, the last first: those that hold more than was expected, or were not expected to fit.
    pub victims: BTreeSet<(bool, u64, Rank)>,
    /// The same by age alone.
    pub pageable: BTreeSet<Aged>,
    /// Grow, and can be held.
    pub growing: BTreeSet<Aged>,
    pub held: BTreeSet<Aged>,
    pub stoppable: BTreeSet<Aged>,
    /// Out, but for what of them cannot be paged.
    pub remnants: BTreeSet<Aged>,
    /// Strangers that are out for lack of memory, the oldest first.
    pub out: BTreeSet<Aged>,
    /// The same, the one that has been out longest first.
    pub out_since: BTreeSet<Aged>,
    /// Out, and to come back at once.
    pub eager: BTreeSet<Aged>,

    /// Bytes that ranks asked for and hold.
    pub asked: u64,
    /// Bytes that are measured.
    pub other: u64,
    /// Bytes of both that will be free without another order.
    pub leaving: u64,
    /// Measured bytes that the ranks in RAM hold or are expected to need.
    pub expected: u64,
    /// Measured bytes that the ranks in RAM hold or need before long.
    pub soon: u64,
    /// Sum of what `needs` wait for, bytes.
    pub needs_bytes: u64,
    /// Sum of what those in `heavy` hold, bytes.
    pub heavy_bytes: u64,
    /// Ranks that hold anything.
    pub holders: u32,
    pub places: u32,
    /// Of those being evicted, the ones that will take none.
    pub freeing: u32,
    pub active: u32,
    /// Of these, the ones that tell: they will wait, or end, and say so.
    pub active_telling: u32,
    /// Something will be heard of them without any order.
    pub awaited: u32,
    pub starting: u32,
    pub running: u32,
    pub holding: u32,
    pub evicting: u32,
    /// Of these, strangers that do not come back at once.
    pub evicting_for_long: u32,
    pub restoring: u32,
    /// Going or coming, and never to be out for long.
    pub eager_moves: u32,
    pub shrinking: u32,
    pub stopping: u32,
    pub is_out: u32,
    pub gone: u32,
    pub begun_strangers: u32,
    /// Begun although they were not expected to fit, in RAM or not.
    pub overbooked: u32,
    /// Of the strangers that refused to leave, those for which it is worth waiting.
    pub hopeful: u32,
    /// Ranks, in RAM or not, that wait for others.
    pub waiting: u32,
    /// Of them, those that wait for something unknown.
    pub waiting_other: u32,
}

impl Index {
    /// Enters a rank with the state it has now.
    pub fn insert(&mut self, rank: Rank, state: &RankState) {
        self.enter(rank, state, &mut Enter);
    }

    /// Takes out a rank that was entered with exactly this state.
    pub fn remove(&mut self, rank: Rank, state: &RankState) {
        self.enter(rank, state, &mut Leave);
    }

    /// The one place that says which state belongs where.
    fn enter(&mut self, rank: Rank, state: &RankState, way: &mut impl Way) {
        let (aged, waited, tells) = ((state.seq, rank), (state.since, rank), state.can.tells);
        let out = state.life == Life::Out;
        way.set(&mut self.unborn, (state.stopped_at, rank), state.life == Life::Unborn && !state.queued);
        if let Some(bytes) = state.need() {
            way.set(&mut self.needs, waited, true);
            way.set(&mut self.needs_by_size, (bytes, rank), true);
            way.set(&mut self.yielding, waited, state.can_leave_waiting());
            way.sum(&mut self.needs_bytes, bytes);
        }
        if let Some(bytes) = state.lacks().filter(|_| !state.eager) {
            way.set(&mut self.ready, waited, tells);
            way.set(&mut self.ready_by_size, (bytes, rank), true);
            let least_first = (bytes, state.since, rank);
            way.set(&mut self.begun, least_first, tells && state.has_place());
            way.set(&mut self.parts, least_first, state.can_leave_waiting());
        }
        let goes = state.can_leave_waiting() && state.waits();
        let key = Key::new(rank, state);
        way.set(&mut self.heavy, key, goes && state.weight() > 0);
        way.sum(&mut self.heavy_bytes, if goes { state.weight() } else { 0 });
        way.set(&mut self.light, key, goes && state.weight() == 0);
        let refused = state.refused_until != 0 && state.life != Life::Gone;
        way.set(&mut self.refused, (state.refused_until, rank), refused && tells);
        way.set(&mut self.refused_strangers, (state.refused_until, rank), refused && !tells);

        way.set(&mut self.inside, aged, state.is_inside() && !tells);
        let over = state.holds.other > state.reserve || state.overbooked;
        way.set(&mut self.victims, (over, state.seq, rank), state.can_leave_running());
        way.set(&mut self.pageable, aged, state.can_leave_running());
        way.set(&mut self.growing, aged, state.is_growing());
        way.set(&mut self.held, aged, state.life == Life::Held);
        way.set(&mut self.stoppable, aged, state.is_stoppable());
        way.set(&mut self.remnants, aged, out && state.holds.other > 0);
        way.set(&mut self.out, aged, out && !tells && !state.eager);
        way.set(&mut self.out_since, waited, out && !tells && !state.eager);
        way.set(&mut self.eager, aged, out && state.eager);

        way.sum(&mut self.asked, state.holds.asked);
        way.sum(&mut self.other, state.other());
        way.sum(&mut self.leaving, state.leaving());
        way.sum(&mut self.expected, state.expected());
        way.sum(&mut self.soon, state.soon());
        way.count(&mut self.holders, state.holds.total() > 0 && state.life != Life::Gone);
        way.count(&mut self.places, state.has_place());
        way.count(&mut self.freeing, state.life == Life::Evicting && state.keep.asked == 0);
        way.count(&mut self.active, state.is_active());
        way.count(&mut self.active_telling, state.is_active() && tells);
        way.count(&mut self.awaited, state.will_be_heard_of());
        way.count(&mut self.starting, state.life == Life::Starting);
        way.count(&mut self.running, state.life == Life::Resident && state.doing == Doing::Runs);
        way.count(&mut self.holding, state.life == Life::Holding);
        way.count(&mut self.evicting, state.life == Life::Evicting);
        way.count(&mut self.evicting_for_long, state.life == Life::Evicting && !state.eager && !tells);
        way.count(&mut self.restoring, state.life == Life::Restoring);
        let moves = matches!(state.life, Life::Evicting | Life::Restoring);
        way.count(&mut self.eager_moves, moves && state.eager);
        way.count(&mut self.shrinking, state.life == Life::Shrinking);
        way.count(&mut self.stopping, state.life == Life::Stopping);
        way.count(&mut self.is_out, out);
        way.count(&mut self.gone, state.life == Life::Gone);
        way.count(&mut self.begun_strangers, !tells && !matches!(state.life, Life::Unborn | Life::Gone));
        way.count(&mut self.overbooked, state.overbooked);
        way.count(&mut self.hopeful, refused && state.refusals <= PATIENCE && state.is_stoppable());
        way.count(&mut self.waiting, state.waits());
        way.count(&mut self.waiting_other, state.waits() && state.doing == Doing::Waits(Wait::Other));
    }

    /// How many ranks are where.
    pub fn counts(&self, queued: usize) -> Counts {
        let len = |set: usize| u32::try_from(set).unwrap_or(u32::MAX);
        Counts {
            unborn: len(self.unborn.len() + queued),
            starting: self.starting,
            running: self.running + self.holding,
            held: len(self.held.len()),
            memory_blocked: len(self.needs.len()),
            evicting: self.evicting + self.shrinking,
            out: self.is_out,
            ready: len(self.ready_by_size.len()),
            restoring: self.restoring,
            stopping: self.stopping,
            resident: self.places,
            exited: self.gone,
        }
    }
}
