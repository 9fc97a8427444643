//! Every set and sum over the ranks, kept in step with each change, so that no decision scans the ranks.

use std::collections::BTreeSet;

use super::rank::{Life, RankState};
use crate::scheduler::Rank;
use crate::scheduler::way::{Enter, Leave, Way};

/// A rank by its age: the last is the youngest.
pub(super) type Aged = (u64, Rank);

/// The sets. Each rank is in those that its state says, and in no other: `insert` after every change, `remove` before.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Index {
    /// In RAM to stay.
    pub inside: BTreeSet<Aged>,
    /// May be asked to leave, the last first: those that hold more than their reserve, or were not expected to fit.
    pub victims: BTreeSet<(bool, u64, Rank)>,
    /// The same by age alone.
    pub pageable: BTreeSet<Aged>,
    /// Grow, and can be held.
    pub growing: BTreeSet<Aged>,
    pub held: BTreeSet<Aged>,
    /// May be stopped.
    pub stoppable: BTreeSet<Aged>,
    /// Out, but for what of them cannot be paged.
    pub remnants: BTreeSet<Aged>,
    /// Out for lack of memory.
    pub out: BTreeSet<Aged>,
    /// Out, and to come back at once.
    pub eager: BTreeSet<Aged>,
    /// All that are out, the one that has been out longest first.
    pub out_since: BTreeSet<(u64, Rank)>,
    /// Refused to leave, by the look from which they are asked again.
    pub refused: BTreeSet<(u64, Rank)>,

    /// Bytes of RAM that the ranks hold.
    pub present: u64,
    /// Bytes of these that will be free without another order.
    pub leaving: u64,
    /// Bytes of RAM that the ranks in RAM hold or are expected to need.
    pub expected: u64,
    /// Bytes of RAM that the ranks in RAM hold or need before long.
    pub soon: u64,
    pub places: u32,
    pub active: u32,
    pub starting: u32,
    pub running: u32,
    pub holding: u32,
    pub evicting: u32,
    /// Of these, those that do not come back at once.
    pub evicting_for_long: u32,
    pub restoring: u32,
    /// Going or coming, and never to be out for long.
    pub eager_moves: u32,
    pub shrinking: u32,
    pub stopping: u32,
    pub gone: u32,
    /// Begun although they were not expected to fit, in RAM or not.
    pub overbooked: u32,
    /// Of those that refused to leave, those for which it is worth waiting.
    pub hopeful: u32,
}

/// After so many refusals in a row nobody waits for a rank to change its mind.
pub(super) const PATIENCE: u8 = 3;

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
        let aged = (state.seq, rank);
        let out = state.life == Life::Out;
        way.set(&mut self.inside, aged, state.is_inside());
        let over = state.bytes > state.reserve || state.overbooked;
        way.set(&mut self.victims, (over, state.seq, rank), state.is_evictable());
        way.set(&mut self.pageable, aged, state.is_evictable());
        way.set(&mut self.growing, aged, state.is_growing());
        way.set(&mut self.held, aged, state.life == Life::Held);
        way.set(&mut self.stoppable, aged, state.is_stoppable());
        way.set(&mut self.remnants, aged, out && state.bytes > 0);
        way.set(&mut self.out, aged, out && !state.eager);
        way.set(&mut self.eager, aged, out && state.eager);
        way.set(&mut self.out_since, (state.out_since, rank), out);
        if let Some(due) = state.refused_until {
            way.set(&mut self.refused, (due, rank), state.life != Life::Gone);
        }

        way.sum(&mut self.present, state.present());
        way.sum(&mut self.leaving, state.leaving());
        way.sum(&mut self.expected, state.expected());
        way.sum(&mut self.soon, state.soon());
        way.count(&mut self.places, state.has_place());
        way.count(&mut self.active, state.is_active());
        way.count(&mut self.starting, state.life == Life::Starting);
        way.count(&mut self.running, state.life == Life::Running);
        way.count(&mut self.holding, state.life == Life::Holding);
        way.count(&mut self.evicting, state.life == Life::Evicting);
        way.count(&mut self.evicting_for_long, state.life == Life::Evicting && !state.eager);
        way.count(&mut self.restoring, state.life == Life::Restoring);
        let moves = matches!(state.life, Life::Evicting | Life::Restoring);
        way.count(&mut self.eager_moves, moves && state.eager);
        way.count(&mut self.shrinking, state.life == Life::Shrinking);
        way.count(&mut self.stopping, state.life == Life::Stopping);
        way.count(&mut self.overbooked, state.overbooked);
        way.count(&mut self.gone, state.life == Life::Gone);
        let hopeful = state.refused_until.is_some() && state.refusals <= PATIENCE && state.is_stoppable();
        way.count(&mut self.hopeful, hopeful);
    }
}
