//! In which order ranks are admitted.
//!
//! First those that were stopped for lack of memory, then those whose size was declared or is known, the
//! largest first, then the others by number. If the first in line does not fit, the next that does may pass
//! it, but only [`PASSES`] may: then all wait until it fits, at the latest when nothing else is in RAM.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use super::digest::{self, Digest};
use super::rank::RankState;
use super::states::States;
use super::{Limits, Rank};

/// How many ranks may pass the first in line, for each processor: where one that is large is followed by many
/// that are small, it needs the room of another large one, which lives longer than they do.
const PASSES: u32 = 16;

/// With so many waiting for each processor the large ones need not all be begun at once.
const MANY: usize = 4;

/// Those not started.
#[derive(Debug, Default)]
pub(super) struct Queue {
    /// Stopped for lack of memory, by when.
    again: BTreeSet<(u64, Rank)>,
    /// By what is expected of them, or by declared size, the largest first.
    sized: BTreeSet<(Reverse<u64>, Rank)>,
    /// By number.
    plain: BTreeSet<Rank>,
    /// The sum of what those of the latter stand in line by.
    sum: u128,
    /// How many have passed the first in line.
    passed: u32,
    /// They stand in line by bytes that are expected of them, not in a unit of their own.
    pub by_bytes: bool,
}

impl Queue {
    /// A rank stands in line, for the first time or again.
    pub fn push(&mut self, rank: Rank, state: &RankState) {
        let _ = match (state.stopped_at, state.order) {
            (0, 0) => self.plain.insert(rank),
            (0, size) => {
                self.sum += u128::from(size);
                self.sized.insert((Reverse(size), rank))
            }
            (stopped, _) => self.again.insert((stopped, rank)),
        };
    }

    /// Bytes to be left for `others` to be begun beside one that is large: what those of known size need on
    /// average, while there are many of them.
    fn beside(&self, others: u32, digest: &Digest) -> u64 {
        let (left, factor) = (self.sized.len(), if self.by_bytes { Some(1.0) } else { digest.factor() });
        let many = left > MANY * (others as usize + 1);
        let mean = factor.filter(|_| many).map_or(0.0, |factor| self.sum as f64 * factor / left as f64);
        (mean * f64::from(others)) as u64
    }

    pub fn len(&self) -> usize {
        self.again.len() + self.sized.len() + self.plain.len()
    }

    /// All of them, the first first.
    pub fn iter(&self) -> impl Iterator<Item = Rank> + '_ {
        let again = self.again.iter().map(|&(_, rank)| rank);
        again.chain(self.sized.iter().map(|&(_, rank)| rank)).chain(self.plain.iter().copied())
    }

    /// Those that stand before a rank, the first first.
    pub fn before(&self, rank: Rank) -> Vec<Rank> {
        self.iter().take_while(|&other| other != rank).collect()
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
    ///
    /// The largest first, but not all of them at once while processors are idle and many small ones wait: one
    /// that leaves no room for `others` does not fit, unless that is so of all.
    pub fn take(
        &mut self,
        free: u64,
        always: bool,
        others: u32,
        ranks: &States,
        digest: &Digest,
        limits: &Limits,
    ) -> Option<(Rank, u64)> {
        let (head, _) = self.head()?;
        let bytes = self.expected(head, ranks, digest, limits);
        let is_turn = self.passed >= PASSES.saturating_mul(limits.processors);
        // Who was stopped has waited already.
        let beside = if self.again.is_empty() { self.beside(others, digest) } else { 0 };
        let with_others = free.saturating_sub(beside);
        if always || bytes <= if is_turn { free } else { with_others } {
            self.passed = 0;
            self.remove(head, ranks);
            return Some((head, bytes));
        }
        if is_turn {
            return None;
        }
        let fits = |rank: Option<Rank>, free: u64| {
            let rank = rank?;
            let bytes = self.expected(rank, ranks, digest, limits);
            (bytes <= free).then_some((rank, bytes))
        };
        let plain = self.plain.first().copied();
        let next = fits(self.next_sized(with_others, digest), with_others)
            .or_else(|| fits(plain, free))
            .or_else(|| fits(Some(head), free))
            .or_else(|| fits(self.next_sized(free, digest), free))?;
        self.passed = if next.0 == head { 0 } else { self.passed + 1 };
        self.remove(next.0, ranks);
        Some(next)
    }

    /// The first of those with a declared size that is expected to fit the `free` bytes.
    fn next_sized(&self, free: u64, digest: &Digest) -> Option<Rank> {
        // As long as nothing is known of sizes, all are expected to need the same.
        let by_size = || digest.factor().map_or(u64::MAX, |factor| (free as f64 / factor) as u64);
        let most = if self.by_bytes { free } else { by_size() };
        self.sized.range((Reverse(most), 0)..).next().map(|&(_, rank)| rank)
    }

    /// Bytes expected of a rank in line.
    pub fn expected(&self, rank: Rank, ranks: &States, digest: &Digest, limits: &Limits) -> u64 {
        let state = &ranks[rank as usize];
        match state.stopped_at {
            0 if !state.known => digest.reserve(Some(state.declared), limits),
            _ => state.reserve.min(digest::ceiling(limits)),
        }
    }

    /// One that stands in line leaves it.
    pub fn remove(&mut self, rank: Rank, ranks: &States) {
        let RankState { stopped_at, order, .. } = ranks[rank as usize];
        let _ = match (stopped_at, order) {
            (0, 0) => self.plain.remove(&rank),
            (0, size) => {
                let is_there = self.sized.remove(&(Reverse(size), rank));
                self.sum -= if is_there { u128::from(size) } else { 0 };
                is_there
            }
            (stopped, _) => self.again.remove(&(stopped, rank)),
        };
    }
}
