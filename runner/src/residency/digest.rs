//! What a rank is expected to need, from what those before it did: the digest of seed 002.
//!
//! Where ranks have a limit (`--rank-memory`, the seed's `memory_limit`) that is memory_limit times the
//! quantile of peak by limit over the ranks that ended well, and over those stopped for want of memory with
//! 1.1 times what they held. The limit is the same for all ranks, so peaks are kept, not quotients. Where
//! sizes are declared (seed 000) it is size times the quantile of peak by size.

use sketches_ddsketch::{Config, DDSketch};

use super::rank::RankState;
use super::{Core, Limits, Rank};

/// Relative error of the sketch.
const ERROR: f64 = 0.01;

/// What a rank that was stopped for lack of memory is taken to need, relative to what it held.
pub(super) const AFTER_STOP: f64 = 1.1;

/// What is expected while nothing is known, and how careful to be when something is. The fields have the
/// names that seed 002 gives them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Expect {
    /// The part of the ranks that are to fit what is expected of them.
    pub quantile: f64,
    /// What is set aside while nothing is known, relative to what a rank may hold
    /// (`user_job_memory_digest_default_value`).
    pub default_value: f64,
    /// What is set aside at least, relative to what a rank may hold (`user_job_memory_digest_lower_bound`).
    pub lower_bound: f64,
    /// Bytes of tmpfs that a rank may fill: never less is set aside (`tmpfs_size`).
    pub tmpfs_size: u64,
}

impl Default for Expect {
    fn default() -> Self {
        Self { quantile: 0.95, default_value: 0.5, lower_bound: 0.05, tmpfs_size: 0 }
    }
}

/// Peaks of the ranks that have ended.
pub(super) struct Digest {
    expect: Expect,
    /// Peak by declared size, of ranks that declare one.
    by_size: DDSketch,
    /// Peak in bytes, of all.
    by_peak: DDSketch,
}

impl std::fmt::Debug for Digest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Digest").field("peaks", &self.by_peak.count()).finish_non_exhaustive()
    }
}

impl Digest {
    pub fn new(expect: Expect) -> Self {
        let config = Config::new(ERROR, 2048, 1e-9);
        Self { expect, by_size: DDSketch::new(config), by_peak: DDSketch::new(config) }
    }

    /// A rank of the declared size held `peak` bytes at most.
    pub fn add(&mut self, size: Option<u64>, peak: u64) {
        if peak == 0 {
            return;
        }
        self.by_peak.add(peak as f64);
        if let Some(size) = size.filter(|&size| size > 0) {
            self.by_size.add(peak as f64 / size as f64);
        }
    }

    /// Nothing is known yet of ranks that declare a size.
    pub fn needs_pilot(&self) -> bool {
        self.by_size.count() == 0
    }

    /// Bytes for each unit of declared size, if anything is known of that.
    pub fn factor(&self) -> Option<f64> {
        self.by_size.quantile(self.expect.quantile).ok().flatten()
    }

    /// Bytes to be expected of a rank of the declared size. Never more than it may hold, nor than there is.
    pub fn reserve(&self, size: Option<u64>, limits: &Limits) -> u64 {
        self.learned(size)
            .unwrap_or_else(|| self.default(limits))
            .max(self.floor(limits))
            .min(ceiling(limits))
    }

    /// The same as far as it is known from ranks that have ended.
    pub fn learned(&self, size: Option<u64>) -> Option<u64> {
        let by_size =
            size.filter(|&size| size > 0).zip(self.factor()).map(|(size, factor)| size as f64 * factor);
        let by_peak = || self.by_peak.quantile(self.expect.quantile).ok().flatten();
        by_size.or_else(by_peak).map(|bytes| bytes as u64)
    }

    /// Bytes expected of a rank while nothing is known: a part of what it may hold, or of an equal share of
    /// the budget.
    fn default(&self, limits: &Limits) -> u64 {
        let most = limits.rank_limit.unwrap_or(limits.budget / u64::from(limits.processors.max(1)));
        (most as f64 * self.expect.default_value) as u64
    }

    /// The least that is expected of any rank, bytes.
    pub fn floor(&self, limits: &Limits) -> u64 {
        let least = limits.rank_limit.map_or(0, |limit| (limit as f64 * self.expect.lower_bound) as u64);
        least.max(self.expect.tmpfs_size)
    }
}

/// The most that is expected of any rank, bytes.
pub(super) fn ceiling(limits: &Limits) -> u64 {
    limits.rank_limit.map_or(limits.budget, |limit| limit.min(limits.budget))
}

/// What is known before the first rank begins.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Informed {
    /// How that is used.
    pub expect: Expect,
    /// Of ranks like these: what was declared of their size, and the most they held, bytes.
    pub peaks: Vec<(Option<u64>, u64)>,
    /// Of ranks of this job: what they are known to need, bytes.
    pub known: Vec<(Rank, u64)>,
    /// Those that need most begin first; else ranks begin by number, or by the size that was declared.
    pub largest_first: bool,
}

impl Core {
    /// Tells what is known before anything else is told.
    #[must_use]
    pub fn informed(mut self, informed: &Informed) -> Self {
        self.digest = Digest::new(informed.expect);
        for &(size, peak) in &informed.peaks {
            self.digest.add(size, peak);
        }
        for &(rank, bytes) in &informed.known {
            if let Some(&(mut state)) = self.ranks.get(rank as usize) {
                self.know(&mut state, bytes);
                self.update(rank, |known| *known = state);
            }
        }
        if !informed.known.is_empty() && informed.largest_first {
            self.sort_by_bytes();
        }
        self
    }

    /// A rank is known to need so many bytes; of 0 nothing is known.
    pub(super) fn know(&self, state: &mut RankState, bytes: u64) {
        if bytes > 0 {
            let (least, most) = (self.digest.floor(&self.limits), ceiling(&self.limits));
            (state.known, state.reserve) = (true, bytes.max(least).min(most));
        }
    }

    /// Whoever stands in line does so by what is expected of it, bytes.
    fn sort_by_bytes(&mut self) {
        for rank in 0..self.ranks.len() as Rank {
            if self.ranks[rank as usize].queued {
                self.order_by_bytes(rank);
            }
        }
        self.queue.by_bytes = true;
    }

    /// The same of one that stands in line.
    pub(super) fn order_by_bytes(&mut self, rank: Rank) {
        let bytes = self.queue.expected(rank, &self.ranks, &self.digest, &self.limits);
        self.queue.remove(rank, &self.ranks);
        self.update(rank, |state| state.order = bytes);
        self.queue.push(rank, &self.ranks[rank as usize]);
    }

    /// Bytes of the budget that are free.
    #[must_use]
    pub fn free_bytes(&self) -> u64 {
        u64::try_from(self.free()).unwrap_or(0)
    }

    /// Whether one of which nothing is known would be begun now.
    #[must_use]
    pub fn has_room(&self) -> bool {
        let places = self.index.residents() < self.limits.resident;
        places && self.free_bytes() >= self.digest.reserve(None, &self.limits)
    }

    /// Those that stand in line, in the order in which they would be begun if each fitted.
    #[must_use]
    pub fn line(&self) -> Vec<Rank> {
        self.queue.before(Rank::MAX)
    }

    /// Bytes that would be set aside for a rank that stands in line; and those that it will need, be that
    /// more than there is, as far as others that have ended, now or in an earlier run, tell.
    #[must_use]
    pub fn expects(&self, rank: Rank) -> (u64, Option<u64>) {
        let declared = self.ranks[rank as usize].declared;
        let aside = self.queue.expected(rank, &self.ranks, &self.digest, &self.limits);
        (aside, self.digest.learned(Some(declared)))
    }

    /// Bytes that were set aside for a rank when it began, or will be.
    #[must_use]
    pub fn reserve(&self, rank: Rank) -> u64 {
        self.ranks.get(rank as usize).map_or(0, |state| state.reserve)
    }
}
