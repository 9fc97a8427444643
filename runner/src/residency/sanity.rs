//! Checks every cross-reference and every promise of the core; called after each event by tests and
//! simulator.

use super::index::Index;
use super::rank::{Life, RankState};
use super::{Core, Rank};

impl Core {
    /// Checks that every set and sum says what the ranks say, that no limit is exceeded, and that somebody
    /// goes on. Looks at every rank: for tests.
    ///
    /// # Panics
    /// With what is wrong.
    pub fn sanity_check(&self) {
        let mut index = Index::default();
        let mut queued = 0;
        for (rank, state) in self.ranks.iter() {
            index.change(rank, None, Some(state));
            queued += usize::from(state.life == Life::Unborn && state.queued);
            Self::check_rank(rank, state);
        }
        assert_eq!(index, self.index, "sets or sums are out of step with the ranks");
        assert_eq!(queued, self.queue.len(), "who is not started stands in line");
        assert!(
            index.residents() <= self.limits.resident.saturating_add(self.crowd),
            "{} ranks in RAM",
            index.residents()
        );
        assert!(index.evicting <= self.limits.moves && index.restoring <= self.limits.moves);
        if self.pool.is_unknown() || self.pool.stale || self.ended || self.pace.looks == 0 {
            return;
        }
        // Of those that do not tell nothing would be heard otherwise. Those that do may wake each other, or
        // it is told that nothing happens.
        let told = index.waiting > 0 || !(index.needs.is_empty() && index.ready.is_empty());
        let strangers = index.begun_strangers > 0 && !told;
        assert!(
            !strangers || index.awaited > 0 || self.relief_is_coming(),
            "nobody goes on: {:?}",
            self.counts()
        );
    }

    fn check_rank(rank: Rank, state: &RankState) {
        assert!(
            state.is_inside()
                || state.holds == super::Memory::default()
                || matches!(state.life, Life::Evicting | Life::Out | Life::Stopping),
            "rank {rank} is not there and holds memory: {state:?}"
        );
        assert!(
            state.pending == 0 || state.is_active() || state.life == Life::Stopping,
            "rank {rank} was given memory but is not on its way: {state:?}"
        );
    }
}
