//! The state of each rank. Those that were never begun, in a job whose ranks are all alike, and those that
//! have ended, have none of their own: of a million parts only those that live take memory.

use std::ops::Index;

use super::Rank;
use super::rank::{Life, RankState};

/// So many neighbours are kept together.
const PAGE: usize = 64;

/// Neighbours of which at least one has a state of its own.
#[derive(Debug)]
struct Page {
    /// Which of them have.
    own: u64,
    states: [RankState; PAGE],
}

/// See the module's text.
#[derive(Debug)]
pub(super) struct States {
    len: usize,
    pages: Vec<Option<Box<Page>>>,
    /// Who has ended, a bit each.
    over: Vec<u64>,
    /// What those are that were not begun and have nothing of their own.
    unborn: RankState,
    /// What those are that have ended.
    gone: RankState,
}

impl States {
    /// None yet. Those that come are like `unborn`.
    pub fn new(unborn: RankState) -> Self {
        let gone = RankState { life: Life::Gone, ..RankState::UNBORN };
        Self { len: 0, pages: Vec::new(), over: Vec::new(), unborn, gone }
    }

    /// How many there are, those that have ended included.
    pub const fn len(&self) -> usize {
        self.len
    }

    /// There are so many from now on, if that is more.
    pub fn grow(&mut self, len: usize) {
        self.len = self.len.max(len);
        let pages = self.len.div_ceil(PAGE);
        self.pages.resize_with(pages, || None);
        self.over.resize(pages, 0);
    }

    pub fn get(&self, rank: usize) -> Option<&RankState> {
        (rank < self.len).then(|| &self[rank])
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = (Rank, &RankState)> {
        (0..self.len).map(|rank| (rank as Rank, &self[rank]))
    }

    /// To change it.
    ///
    /// # Panics
    /// If there are not so many.
    pub fn own(&mut self, rank: usize) -> &mut RankState {
        assert!(rank < self.len, "there are {} ranks", self.len);
        let (at, bit) = (rank % PAGE, 1 << (rank % PAGE));
        let was = if self.over[rank / PAGE] & bit == 0 { self.unborn } else { self.gone };
        let page = self.pages[rank / PAGE]
            .get_or_insert_with(|| Box::new(Page { own: 0, states: [RankState::UNBORN; PAGE] }));
        if page.own & bit == 0 {
            page.own |= bit;
            page.states[at] = was;
        }
        &mut page.states[at]
    }

    /// It has ended: nothing else is kept of it.
    pub fn end(&mut self, rank: usize) {
        let bit = 1 << (rank % PAGE);
        self.over[rank / PAGE] |= bit;
        if let Some(page) = &mut self.pages[rank / PAGE] {
            page.own &= !bit;
            if page.own == 0 {
                self.pages[rank / PAGE] = None;
            }
        }
    }

    /// So have all.
    pub fn end_all(&mut self) {
        self.pages.fill_with(|| None);
        self.over.fill(u64::MAX);
    }

    /// What those are that were not begun and have nothing of their own.
    pub const fn unborn(&self) -> RankState {
        self.unborn
    }

    /// How many have states of their own.
    #[cfg(test)]
    pub fn kept(&self) -> u32 {
        self.pages.iter().flatten().map(|page| page.own.count_ones()).sum()
    }
}

impl Index<usize> for States {
    type Output = RankState;

    fn index(&self, rank: usize) -> &RankState {
        let bit = 1 << (rank % PAGE);
        match &self.pages[rank / PAGE] {
            Some(page) if page.own & bit != 0 => &page.states[rank % PAGE],
            _ if self.over[rank / PAGE] & bit != 0 => &self.gone,
            _ => &self.unborn,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Whatever begins and ends in whatever order, it is as if each had a state of its own.
        #[test]
        fn as_if_each_had_its_own(steps in proptest::collection::vec((0_usize..300, 0_u8..3), 0..600)) {
            let unborn = RankState { queued: true, ..RankState::UNBORN };
            let mut states = States::new(unborn);
            states.grow(300);
            let mut model = vec![unborn; 300];
            for (rank, step) in steps {
                if step == 0 {
                    states.end(rank);
                    model[rank] = RankState { life: Life::Gone, ..RankState::UNBORN };
                } else {
                    for state in [states.own(rank), &mut model[rank]] {
                        (state.life, state.declared) = (Life::Resident, u64::from(step));
                    }
                }
            }
            for (rank, state) in states.iter() {
                prop_assert_eq!(state, &model[rank as usize]);
            }
            let kept = model.iter().filter(|state| state.life == Life::Resident).count();
            prop_assert_eq!(states.kept() as usize, kept);
            prop_assert!(states.pages.iter().flatten().all(|page| page.own != 0));
            prop_assert_eq!(states.get(300), None);
        }
    }
}
