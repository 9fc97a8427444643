//! The budget of `--memory auto` while the job runs: what is there, others included, decides. Pure.
//!
//! Read about once a second: what is available (the kernel's MemAvailable and the limits of the cgroups we
//! are in, which others may change), what the job itself holds, and how long processes of our cgroup waited
//! for memory (PSI, `some avg10`; `budget::pressure_file`). Less is taken at once, more a part at a time.

/// A change of less is none.
const LEAST_CHANGE: f64 = 0.05;

/// Of what there is more than before so much is taken at once.
const GROWTH: f64 = 0.25;

/// Waiting for memory so much of the last ten seconds, percent, somebody has too little.
const PRESSED: f64 = 10.0;

/// Then so much of the budget is kept.
const UNDER_PRESSURE: f64 = 0.9;

/// The budget, and how it follows.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Elastic {
    share: f64,
    least: u64,
    budget: u64,
}

/// What was read.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Reading {
    /// Bytes that are available beside what the job holds.
    pub available: u64,
    /// Bytes of RAM that the job holds.
    pub held: u64,
    /// Of the last ten seconds, the percentage in which some process waited for memory.
    pub pressure: f64,
}

impl Elastic {
    /// Of a job that begins with `budget` bytes, a `share` of what was there, and is never given less than
    /// `least`.
    #[must_use]
    pub const fn new(share: f64, least: u64, budget: u64) -> Self {
        Self { share, least, budget }
    }

    /// The new budget, if it changes.
    pub fn read(&mut self, reading: Reading) -> Option<u64> {
        let now = self.budget as f64;
        let there = reading.available.saturating_add(reading.held) as f64 * self.share;
        let pressed = reading.pressure >= PRESSED;
        let target = if pressed { there.min(now * UNDER_PRESSURE) } else { there };
        let next = if target < now { target } else { now + (target - now) * GROWTH };
        let next = (next as u64).max(self.least);
        if next.abs_diff(self.budget) as f64 <= now * LEAST_CHANGE {
            return None;
        }
        self.budget = next;
        Some(next)
    }
}

/// The percentage in a file of `/proc/pressure`: `some avg10=1.23 …`.
#[must_use]
pub fn pressure_in(text: &str) -> f64 {
    let line = text.lines().find_map(|line| line.strip_prefix("some avg10="));
    line.and_then(|rest| rest.split_whitespace().next()?.parse().ok()).unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn reading(available: u64, held: u64, pressure: f64) -> Reading {
        Reading { available: available * MIB, held: held * MIB, pressure }
    }

    #[test]
    fn it_shrinks_at_once_and_grows_bit_by_bit() {
        let mut elastic = Elastic::new(0.5, 10 * MIB, 500 * MIB);
        assert_eq!(elastic.read(reading(600, 400, 0.0)), None, "as it was");
        assert_eq!(elastic.read(reading(620, 400, 0.0)), None, "next to nothing");
        assert_eq!(elastic.read(reading(100, 400, 0.0)), Some(250 * MIB));
        assert_eq!(elastic.read(reading(250, 250, 0.0)), None);
        let mut steps = 0;
        let mut last = 250 * MIB;
        while let Some(budget) = elastic.read(reading(800, 200, 0.0)) {
            assert!(budget > last && budget <= 500 * MIB);
            (last, steps) = (budget, steps + 1);
        }
        assert!((2..20).contains(&steps) && last > 400 * MIB, "{steps} {last}");
    }

    #[test]
    fn under_pressure_it_gives_way_but_not_for_ever() {
        let mut elastic = Elastic::new(0.5, 100 * MIB, 500 * MIB);
        assert_eq!(elastic.read(reading(600, 400, 30.0)), Some(450 * MIB));
        for _ in 0..50 {
            elastic.read(reading(600, 400, 30.0));
        }
        // What is nearer than the least change is not worth one.
        assert!((100..=106).contains(&(elastic.budget / MIB)), "{}", elastic.budget);
        assert_eq!(elastic.read(reading(0, 0, 0.0)), None);
    }

    #[test]
    fn what_the_kernel_says_of_pressure() {
        let text = "some avg10=1.25 avg60=0.00 avg300=0.00 total=7\nfull avg10=9.00 avg60=0.00 avg300=0.00 total=7\n";
        assert_eq!(pressure_in(text), 1.25);
        assert_eq!(pressure_in("nothing"), 0.0);
    }
}
