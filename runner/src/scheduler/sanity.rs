//! Checks every cross-reference and every promise of the scheduler; called after each event by tests and simulator.

use super::index::Index;
use super::rank::{Life, RankState};
use super::{Rank, Scheduler};

impl Scheduler {
    /// Checks that every set and sum says what the ranks say, that no limit is exceeded, and that somebody can make
    /// progress. Looks at every rank: for tests.
    ///
    /// # Panics
    /// With what is wrong.
    pub fn sanity_check(&self) {
        let mut index = Index::default();
        for (rank, state) in (0..).zip(&self.ranks) {
            index.insert(rank, state);
            Self::check_rank(rank, state);
        }
        assert_eq!(index, self.index, "sets or sums are out of step with the ranks");
        let counts = self.counts();
        assert_eq!(
            (counts.unborn + counts.resident + counts.evicted + counts.exited) as usize,
            self.ranks.len(),
            "every rank is in exactly one place: {counts:?}"
        );
        assert!(
            self.index.places <= self.limits.resident,
            "{} ranks are resident, {} may be",
            self.index.places,
            self.limits.resident
        );
        assert!(counts.evicting <= self.limits.moves && counts.restoring <= self.limits.moves);
        if !self.ended && !self.stale && self.index.active == 0 && self.has_claims() {
            self.check_stuck();
        }
    }

    fn check_rank(rank: Rank, state: &RankState) {
        assert!(
            state.is_resident() || state.granted == 0 || state.life == Life::Evicted,
            "rank {rank} is not there and holds memory: {state:?}"
        );
        assert!(
            state.pending.is_none()
                || matches!(state.life, Life::Spawning | Life::Restoring | Life::Resident),
            "rank {rank} was given memory but is not on its way: {state:?}"
        );
        assert!(
            state.attached || !matches!(state.life, Life::Evicting | Life::Evicted | Life::Restoring),
            "rank {rank} cannot be paged but was: {state:?}"
        );
    }

    /// Nobody moves although somebody wants to: legal only where nobody can be evicted and nothing fits.
    fn check_stuck(&self) {
        assert!(
            self.disk_full.is_some() || self.index.refused.len() + self.unpageable() > 0,
            "nobody moves, though nobody is in the way: {self:?}"
        );
        assert!(self.last_call || (self.disk_full.is_none() && self.index.refused.is_empty()));
        let smallest = self.index.needs_by_size.first().map(|&(bytes, _)| bytes);
        assert!(smallest.is_none_or(|bytes| super::signed(bytes) > self.free), "a need fits and is not met");
    }

    /// Residents that never said hello and wait nevertheless.
    fn unpageable(&self) -> usize {
        self.ranks.iter().filter(|state| state.is_resident() && !state.attached && !state.is_active()).count()
    }
}
