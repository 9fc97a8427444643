//! In which order ranks are admitted.
//!
//! First those that were stopped for lack of memory, then those with a declared size, the largest first, then
//! the others by number. If the first in line does not fit, the next that does may pass it, but only
//! [`PASSES`] may: then all wait until it fits, at the latest when nothing else is in RAM.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use super::digest::{self, Digest};
use super::rank::RankState;
use super::{Limits, Rank};

/// How many ranks may pass the first in line.
const PASSES: u32 = 16;

/// Those not started.
#[derive(Debug, Default)]
pub(super) struct Queue {
    /// Stopped for lack of memory, by when.
    again: BTreeSet<(u64, Rank)>,
    /// With a declared size, the largest first.
    sized: BTreeSet<(Reverse<u64>, Rank)>,
    /// By number.
    plain: BTreeSet<Rank>,
    /// How many have passed the first in line.
    passed: u32,
}

impl Queue {
    /// A rank stands in line, for the first time or again.
    pub fn push(&mut self, rank: Rank, state: &RankState) {
        let _ = match (state.stopped_at, state.declared) {
            (0, 0) => self.plain.insert(rank),
            (0, size) => self.sized.insert((Reverse(size), rank)),
            (stopped, _) => self.again.insert((stopped, rank)),
        };
    }

    pub fn len(&self) -> usize {
        self.again.len() + self.sized.len() + self.plain.len()
    }

    /// Somebody was stopped, and waits to be started again.
    pub fn has_stopped(&self) -> bool {
        !self.again.is_empty()
    }

    /// Gives all up: who they were.
    pub fn give_up(&mut self) -> Vec<Rank> {
        let all = std::mem::take(self);
        let again = all.again.into_iter().map(|(_, rank)| rank);
        again.chain(all.sized.into_iter().map(|(_, rank)| rank)).chain(all.plain).collect()
    }

    /// The first in line, and whether it is the one to learn from: the largest with a declared size.
    pub fn head(&self) -> Option<(Rank, bool)> {
        let again = self.again.first().map(|&(_, rank)| (rank, false));
        let sized = || self.sized.first().map(|&(_, rank)| (rank, true));
        again.or_else(sized).or_else(|| self.plain.first().map(|&rank| (rank, false)))
    }

    /// Takes out the first in line, if what is expected of it fits the `free` bytes or `always`; else the
    /// next that fits, while others may still pass. With what is expected of it, bytes.
    pub fn take(
        &mut self,
        free: u64,
        always: bool,
        ranks: &[RankState],
        digest: &Digest,
        limits: &Limits,
    ) -> Option<(Rank, u64)> {
        let (head, _) = self.head()?;
        let bytes = self.expected(head, ranks, digest, limits);
        if always || bytes <= free {
            self.passed = 0;
            self.remove(head, ranks);
            return Some((head, bytes));
        }
        if self.passed >= PASSES {
            return None;
        }
        let next = [self.next_sized(free, digest), self.plain.first().copied()]
            .into_iter()
            .flatten()
            .map(|rank| (rank, self.expected(rank, ranks, digest, limits)))
            .find(|&(_, bytes)| bytes <= free)?;
        self.passed += 1;
        self.remove(next.0, ranks);
        Some(next)
    }

    /// The first of those with a declared size that is expected to fit the `free` bytes.
    fn next_sized(&self, free: u64, digest: &Digest) -> Option<Rank> {
        // As long as nothing is known of sizes, all are expected to need the same.
        let most = digest.factor().map_or(u64::MAX, |factor| (free as f64 / factor) as u64);
        self.sized.range((Reverse(most), 0)..).next().map(|&(_, rank)| rank)
    }

    /// Bytes expected of a rank in line.
    fn expected(&self, rank: Rank, ranks: &[RankState], digest: &Digest, limits: &Limits) -> u64 {
        let state = &ranks[rank as usize];
        match state.stopped_at {
            0 => digest.reserve(Some(state.declared), limits),
            _ => state.reserve.min(digest::ceiling(limits)),
        }
    }

    /// One that stands in line leaves it.
    pub fn remove(&mut self, rank: Rank, ranks: &[RankState]) {
        let RankState { stopped_at, declared, .. } = ranks[rank as usize];
        let _ = match (stopped_at, declared) {
            (0, 0) => self.plain.remove(&rank),
            (0, size) => self.sized.remove(&(Reverse(size), rank)),
            (stopped, _) => self.again.remove(&(stopped, rank)),
        };
    }
}
