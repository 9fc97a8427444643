//! What a rank is expected to need, from what those before it did.

use sketches_ddsketch::{Config, DDSketch};

use super::Limits;

/// The part of the ranks that are to fit what is expected of them.
const QUANTILE: f64 = 0.95;

/// Relative error of the sketch.
const ERROR: f64 = 0.01;

/// What a rank that was stopped for lack of memory is taken to need, relative to what it held.
pub(super) const AFTER_STOP: f64 = 1.1;

/// Peaks of the ranks that have ended.
pub(super) struct Digest {
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
    pub fn new() -> Self {
        let config = Config::new(ERROR, 2048, 1e-9);
        Self { by_size: DDSketch::new(config), by_peak: DDSketch::new(config) }
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
        self.by_size.quantile(QUANTILE).ok().flatten()
    }

    /// Bytes to be expected of a rank of the declared size. Never more than it may hold, nor than there is.
    pub fn reserve(&self, size: Option<u64>, limits: &Limits) -> u64 {
        self.learned(size).unwrap_or_else(|| default(limits)).max(floor(limits)).min(ceiling(limits))
    }

    /// The same as far as it is known from ranks that have ended.
    pub fn learned(&self, size: Option<u64>) -> Option<u64> {
        let by_size =
            size.filter(|&size| size > 0).zip(self.factor()).map(|(size, factor)| size as f64 * factor);
        let by_peak = || self.by_peak.quantile(QUANTILE).ok().flatten();
        by_size.or_else(by_peak).map(|bytes| bytes as u64)
    }
}

/// Bytes expected of a rank while nothing is known: half of what it may hold, or an equal share of half the
/// budget.
fn default(limits: &Limits) -> u64 {
    limits.rank_limit.unwrap_or(limits.budget / u64::from(limits.processors.max(1))) / 2
}

/// The least that is expected of any rank, bytes.
pub(super) fn floor(limits: &Limits) -> u64 {
    limits.rank_limit.map_or(0, |limit| limit / 20)
}

/// The most that is expected of any rank, bytes.
pub(super) fn ceiling(limits: &Limits) -> u64 {
    limits.rank_limit.map_or(limits.budget, |limit| limit.min(limits.budget))
}
