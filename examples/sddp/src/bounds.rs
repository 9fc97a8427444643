//! Bounds on the cost of the best policy, and when they are close enough.

use serde::{Deserialize, Serialize};

/// 0.975 quantile of the normal distribution: of an interval that holds the mean in 95 of 100 cases.
const QUANTILE: f64 = 1.959_963_984_540_054;

/// Mean and spread of the cost of trajectories.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    /// Their number.
    pub count: usize,
    /// M$.
    pub mean: f64,
    /// Standard deviation of one trajectory's cost, M$; 0 of a single one.
    pub deviation: f64,
}

impl Estimate {
    /// Of costs in the order of scenarios: the sums are in that order, so that their bits do not depend on
    /// who computed which.
    ///
    /// # Panics
    /// If there are none.
    pub fn of(costs: &[f64]) -> Self {
        let count = costs.len();
        let mean = costs.iter().sum::<f64>() / count as f64;
        let squares: f64 = costs.iter().map(|cost| (cost - mean) * (cost - mean)).sum();
        assert!(count > 0, "the mean of something");
        Self { count, mean, deviation: (squares / (count.max(2) - 1) as f64).sqrt() }
    }

    /// Half of the 95 % confidence interval of the mean, M$; infinite of a single trajectory.
    pub fn half_width(&self) -> f64 {
        if self.count < 2 { f64::INFINITY } else { QUANTILE * self.deviation / (self.count as f64).sqrt() }
    }
}

/// What an iteration brought.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Iteration {
    /// From 1.
    pub number: u64,
    /// Least cost of the first stage with all cuts so far, M$: no policy costs less.
    pub lower: f64,
    /// Cost of the policy as it was when the iteration began.
    pub upper: Estimate,
    /// Cuts of all stages.
    pub cuts: u64,
}

impl Iteration {
    /// How far the best policy may be below what this one costs, of the latter: from the lower bound to the
    /// upper end of the interval, over the mean. 0 where both are 0.
    pub fn gap(&self) -> f64 {
        let upper = self.upper.mean + self.upper.half_width();
        if upper == self.lower { 0.0 } else { (upper - self.lower) / self.upper.mean.abs() }
    }
}

/// When training ends before its iterations are done.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stopping {
    /// Once [`Iteration::gap`] is at most that (Shapiro 2011, section 3.4: the upper end of the interval,
    /// since the test of Pereira & Pinto 1991, whether the bound is inside, passes the sooner the less is
    /// known).
    pub gap: Option<f64>,
    /// Once the lower bound grew by less than this share of it …
    pub stall: Option<f64>,
    /// … within so many iterations.
    pub window: usize,
}

/// Why training ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stopped {
    /// All iterations were done.
    Iterations,
    /// The gap is small.
    Gap,
    /// The lower bound grows no more.
    Stall,
}

impl std::fmt::Display for Stopped {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(match self {
            Self::Iterations => "all iterations are done",
            Self::Gap => "the gap is as small as was asked for",
            Self::Stall => "the lower bound has stalled",
        })
    }
}

impl Stopping {
    /// Whether to stop after these iterations.
    pub fn after(&self, history: &[Iteration]) -> Option<Stopped> {
        let last = history.last()?;
        if self.gap.is_some_and(|gap| last.gap() <= gap) {
            return Some(Stopped::Gap);
        }
        let earlier = history.len().checked_sub(self.window + 1).map(|at| history[at].lower);
        let stalled = |share: f64| earlier.is_some_and(|lower| last.lower - lower < share * last.lower.abs());
        self.stall.is_some_and(stalled).then_some(Stopped::Stall)
    }
}

/// Where the contiguous block of `rank` of `size` begins, of `count` trajectories; that of rank `size` is the
/// end.
pub fn block(rank: usize, size: usize, count: usize) -> usize {
    (rank as u128 * count as u128 / size as u128) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn iteration(lower: f64, mean: f64, deviation: f64) -> Iteration {
        Iteration { number: 1, lower, upper: Estimate { count: 100, mean, deviation }, cuts: 0 }
    }

    #[test]
    fn an_estimate_is_the_mean_and_its_interval() {
        let estimate = Estimate::of(&[1.0, 2.0, 3.0, 4.0]);
        assert_eq!((estimate.mean, estimate.count), (2.5, 4));
        assert!((estimate.deviation - (5.0f64 / 3.0).sqrt()).abs() < 1e-15);
        assert!((estimate.half_width() - 1.96 * estimate.deviation / 2.0).abs() < 1e-4);
        assert_eq!(Estimate::of(&[7.0]).half_width(), f64::INFINITY);
    }

    #[test]
    fn training_stops_for_the_reason_it_was_given() {
        let rule = Stopping { gap: Some(0.05), stall: Some(1e-3), window: 2 };
        assert_eq!(rule.after(&[iteration(90.0, 100.0, 10.0)]), None);
        assert_eq!(rule.after(&[iteration(98.0, 100.0, 10.0)]), Some(Stopped::Gap));
        // The bound is inside the interval, which is wide: nothing is known yet.
        assert_eq!(rule.after(&[iteration(98.0, 100.0, 100.0)]), None);
        let rising = [60.0, 80.0, 80.05, 80.06].map(|lower| iteration(lower, 100.0, 10.0));
        assert_eq!(rule.after(&rising[..3]), None);
        assert_eq!(rule.after(&rising), Some(Stopped::Stall));
        assert_eq!(Stopping { gap: None, stall: None, window: 2 }.after(&rising), None);
    }

    proptest! {
        #[test]
        fn blocks_are_all_trajectories_in_order(size in 1..100usize, count in 0..1000usize) {
            let bounds: Vec<usize> = (0..=size).map(|rank| block(rank, size, count)).collect();
            prop_assert_eq!((bounds[0], bounds[size]), (0, count));
            let most = count.div_ceil(size);
            let even = bounds.windows(2).all(|pair| pair[0] <= pair[1] && pair[1] - pair[0] <= most);
            prop_assert!(even);
        }
    }
}
