//! Checks every cross-reference and every promise of the overdraft core; called after each event by tests and simulator.

use super::Overdraft;
use super::index::Index;
use super::rank::Life;
use super::relieve::MOVES;

impl Overdraft {
    /// Checks that every set and sum says what the ranks say, that no limit is exceeded, and that somebody goes on. Looks
    /// at every rank: for tests.
    ///
    /// # Panics
    /// With what is wrong.
    pub fn sanity_check(&self) {
        let mut index = Index::default();
        let mut unborn = 0;
        for (rank, state) in (0..).zip(&self.ranks) {
            index.insert(rank, state);
            unborn += usize::from(state.life == Life::Unborn);
            assert!(
                self.limits.may_page || !matches!(state.life, Life::Evicting | Life::Out | Life::Shrinking),
                "rank {rank} cannot be paged but was: {state:?}"
            );
            assert!(
                self.limits.may_freeze || !matches!(state.life, Life::Holding | Life::Held),
                "rank {rank} cannot be held but was: {state:?}"
            );
        }
        assert_eq!(index, self.index, "sets or sums are out of step with the ranks");
        assert_eq!(unborn, self.queue.len(), "who is not started stands in line");
        let counts = self.counts();
        let places = [
            counts.unborn,
            counts.starting,
            counts.running,
            counts.held,
            counts.evicting,
            counts.out,
            counts.restoring,
            counts.stopping,
            counts.exited,
            counts.adopted,
            counts.given_up,
        ];
        assert_eq!(
            places.iter().sum::<u32>() as usize,
            self.ranks.len(),
            "every rank is in exactly one place: {counts:?}"
        );
        assert!(index.places <= self.limits.resident, "{} ranks in RAM", index.places);
        assert!(index.evicting <= MOVES && index.restoring <= MOVES);
        if self.pace.looks > 0 && !self.is_done() {
            let moves = index.active + index.holding > 0 || self.relief_is_coming();
            assert!(moves, "nobody goes on: {counts:?}");
        }
    }
}
