//! Who goes: of the blocked residents, the one whose next run is furthest.
//!
//! How far that is can only be guessed from what a rank waits for, and the guess changes while it waits. It
//! is made when the rank blocks and checked again when it is about to be chosen; in between it may be too
//! high (the check notices) or too low (the rank stays in RAM a little longer than would be best). Of
//! strangers nothing of the kind is known: `relieve.rs`.

use super::rank::{Doing, Life, RankState};
use super::{Core, Rank, Wait};

/// How many guesses are checked before the best so far is taken: keeps the choice cheap when all have
/// changed.
const CHECKED: usize = 8;

/// The order of victims; the largest goes first.
///
/// At the same distance a rank that holds much more goes first (fewer ranks are stopped for the same bytes),
/// then the one that blocked last: in a ring or a pipeline its turn is the furthest, and the others stay for
/// theirs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    distance: u8,
    size: u8,
    since: u64,
    rank: Rank,
}

impl Key {
    pub fn new(rank: Rank, state: &RankState) -> Self {
        // Steps of 16, so that ranks of about the same size fall into one class and age decides.
        let size =
            u8::try_from(state.weight().checked_ilog2().map_or(0, |log| 1 + log / 4)).unwrap_or(u8::MAX);
        Self { distance: state.distance, size, since: state.since, rank }
    }
}

/// The number of runs of other ranks before a rank can run that waits for this, roughly.
///
/// `from` is what the awaited sender does, `queue` how many ranks wait to come in.
pub(super) fn distance(wait: Wait, from: Option<&RankState>, queue: u64) -> u64 {
    match wait {
        Wait::Collective { missing } => u64::from(missing),
        Wait::Message { from: Some(_) } => match from.map(|from| (from.life, from.doing)) {
            // Will never send again: whatever was sent is there already, or it waits in vain.
            Some((Life::Gone, _)) | None => u64::MAX,
            // Has to come in first, and may only be asked to once something else happened.
            Some((Life::Out | Life::Evicting, Doing::Waits(_))) => 8 + queue,
            Some((Life::Out | Life::Evicting | Life::Unborn, _)) => 2 + queue,
            // Waits itself, so nobody knows.
            Some((Life::Resident, Doing::Waits(_))) => 4,
            Some(_) => 1,
        },
        Wait::Message { from: None } | Wait::Other => 2,
    }
}

impl Core {
    /// The guess for a rank that does this, in powers of two.
    pub(super) fn distance_class(&self, doing: &Doing) -> u8 {
        let Doing::Waits(wait) = *doing else { return 0 };
        let from = match wait {
            Wait::Message { from: Some(from) } => self.ranks.get(from as usize),
            _ => None,
        };
        let queue = (self.index.ready.len() + self.index.unborn.len()) as u64;
        // When it blocked so many were missing; of those that do not wait by now no more than these are.
        let others = (self.ranks.len() as u64) - u64::from(self.index.waiting) - u64::from(self.index.gone);
        let wait = match wait {
            Wait::Collective { missing } => {
                Wait::Collective { missing: missing.min(u32::try_from(others).unwrap_or(u32::MAX)) }
            }
            wait => wait,
        };
        u8::try_from(distance(wait, from, queue).checked_ilog2().map_or(0, |log| log + 1)).unwrap_or(u8::MAX)
    }

    /// The blocked rank to evict for memory (`bytes`) or for a place.
    pub(super) fn furthest(&mut self, bytes: bool) -> Option<Rank> {
        for _ in 0..CHECKED {
            let key = self.furthest_guess(bytes)?;
            let class = self.distance_class(&self.ranks[key.rank as usize].doing);
            if class >= key.distance {
                return Some(key.rank);
            }
            self.update(key.rank, |state| state.distance = class);
        }
        self.furthest_guess(bytes).map(|key| key.rank)
    }

    /// The first in order. One that holds nothing is of no use where bytes are needed, and the cheaper one at
    /// the same distance where a place is.
    fn furthest_guess(&self, bytes: bool) -> Option<Key> {
        let heavy = self.index.heavy.last().copied();
        if bytes {
            return heavy;
        }
        let light = self.index.light.last().copied();
        match (heavy, light) {
            (Some(heavy), Some(light)) if heavy.distance > light.distance => Some(heavy),
            (heavy, None) => heavy,
            (_, light) => light,
        }
    }
}
