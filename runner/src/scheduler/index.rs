//! Every set and sum over the ranks, kept in step with each change, so that no decision scans the ranks.

use std::collections::BTreeSet;

use super::rank::{Doing, Life, RankState};
use super::victim::Key;
use super::way::{Enter, Leave, Way};
use super::{Counts, Rank, Wait};

/// The sets. Each rank is in those that its state says, and in no other: `insert` after every change, `remove` before.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Index {
    /// Not started, in order of rank.
    pub unborn: BTreeSet<Rank>,
    /// Residents that wait for memory, the longest waiting first.
    pub needs: BTreeSet<(u64, Rank)>,
    /// The same by bytes.
    pub needs_by_size: BTreeSet<(u64, Rank)>,
    /// Those of `needs` that may be asked to leave.
    pub yielding: BTreeSet<(u64, Rank)>,
    /// Evicted ranks that would run, the longest waiting first; also those that were given a part of what they need.
    pub ready: BTreeSet<(u64, Rank)>,
    /// The same by the bytes they lack.
    pub ready_by_size: BTreeSet<(u64, Rank)>,
    /// Those of `ready` that hold a part, or are on their way; the one that lacks least first.
    pub begun: BTreeSet<(u64, u64, Rank)>,
    /// Those of `begun` that may be asked to give their part back.
    pub parts: BTreeSet<(u64, u64, Rank)>,
    /// Ranks that wait for others, hold memory and may be asked to leave; the last goes first.
    pub heavy: BTreeSet<Key>,
    /// The same of those that hold no memory: they free a place only.
    pub light: BTreeSet<Key>,
    /// Ranks that refused to leave, by the event from which they are asked again.
    pub refused: BTreeSet<(u64, Rank)>,

    /// Sum of what `needs` wait for, bytes.
    pub needs_bytes: u64,
    /// Sum of what the ranks hold, bytes.
    pub granted: u64,
    /// Sum of what those in `heavy` hold, bytes.
    pub heavy_bytes: u64,
    /// Sum of what those being evicted will give back, bytes.
    pub leaving: u64,
    /// Ranks that hold anything.
    pub holders: u32,
    pub resident: u32,
    /// Ranks that take a place: residents, and those out but for a part.
    pub places: u32,
    /// Of those being evicted, the ones that will take none.
    pub freeing: u32,
    pub active: u32,
    pub running: u32,
    pub evicting: u32,
    pub evicted: u32,
    pub restoring: u32,
    pub exited: u32,
    /// Ranks, resident or not, that wait for others.
    pub waiting: u32,
    /// Of them, those that wait for something unknown.
    pub waiting_other: u32,
}

impl Index {
    /// The index of `np` unborn ranks.
    pub fn unborn(np: u32) -> Self {
        Self { unborn: (0..np).collect(), ..Self::default() }
    }

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
        way.set(&mut self.unborn, rank, state.life == Life::Unborn);
        if let Some(bytes) = state.need() {
            way.set(&mut self.needs, (state.since, rank), true);
            way.set(&mut self.needs_by_size, (bytes, rank), true);
            way.set(&mut self.yielding, (state.since, rank), state.is_evictable());
            way.sum(&mut self.needs_bytes, bytes);
        }
        if let Some(bytes) = state.lacks() {
            way.set(&mut self.ready, (state.since, rank), true);
            way.set(&mut self.ready_by_size, (bytes, rank), true);
            let least_first = (bytes, state.since, rank);
            way.set(&mut self.begun, least_first, state.has_place());
            way.set(&mut self.parts, least_first, state.is_evictable());
        }
        let evictable = state.is_evictable() && matches!(state.doing, Doing::Waits(_));
        let key = Key::new(rank, state);
        way.set(&mut self.heavy, key, evictable && state.granted > 0);
        way.sum(&mut self.heavy_bytes, if evictable { state.granted } else { 0 });
        way.set(&mut self.light, key, evictable && state.granted == 0);
        if let Some(due) = state.refused_until {
            way.set(&mut self.refused, (due, rank), true);
        }

        way.sum(&mut self.granted, state.granted);
        way.count(&mut self.holders, state.granted > 0);
        way.count(&mut self.resident, state.is_resident());
        way.count(&mut self.places, state.has_place());
        if state.life == Life::Evicting {
            way.sum(&mut self.leaving, state.granted.saturating_sub(state.keep));
            way.count(&mut self.freeing, state.keep == 0);
        }
        way.count(&mut self.active, state.is_active());
        way.count(&mut self.running, state.life == Life::Resident && state.doing == Doing::Runs);
        way.count(&mut self.evicting, state.life == Life::Evicting);
        way.count(&mut self.evicted, state.life == Life::Evicted);
        way.count(&mut self.restoring, state.life == Life::Restoring);
        way.count(&mut self.exited, state.life == Life::Exited);
        way.count(&mut self.waiting, matches!(state.doing, Doing::Waits(_)));
        way.count(&mut self.waiting_other, state.doing == Doing::Waits(Wait::Other));
    }

    /// How many ranks are where.
    pub fn counts(&self) -> Counts {
        let len = |set: usize| u32::try_from(set).unwrap_or(u32::MAX);
        Counts {
            unborn: len(self.unborn.len()),
            resident: self.resident,
            running: self.running,
            memory_blocked: len(self.needs.len()),
            evicting: self.evicting,
            restoring: self.restoring,
            evicted: self.evicted,
            ready: len(self.ready.len()),
            exited: self.exited,
        }
    }
}
