//! What ranks held that nobody asked for, as looks saw it: often at first, half as often each time there is
//! too much of one.

use serde::{Deserialize, Serialize};

use crate::residency::Rank;

/// So many points are kept of all ranks together, as a rule; of each at most and at least so many.
const ALL: usize = 1 << 18;
const MOST: usize = 256;
const LEAST: usize = 16;

/// The curves of all ranks: seconds of the job, and bytes, in RAM or out.
#[derive(Debug, Serialize, Deserialize)]
pub struct Sizes {
    ranks: Vec<Vec<(f64, u64)>>,
    /// From one point of each to the next, seconds.
    intervals: Vec<f64>,
    most: usize,
}

impl Sizes {
    /// Of so many ranks.
    #[must_use]
    pub fn new(np: u32) -> Self {
        let most = (ALL / np.max(1) as usize).clamp(LEAST, MOST);
        Self { ranks: vec![Vec::new(); np as usize], intervals: vec![0.0; np as usize], most }
    }

    /// There are so many ranks, if that is more: others may come than were known at the beginning. Where
    /// they are many, fewer points are left of each.
    fn grow(&mut self, np: usize) {
        if np <= self.ranks.len() {
            return;
        }
        self.ranks.resize(np, Vec::new());
        self.intervals.resize(np, 0.0);
        while self.most > LEAST && np.saturating_mul(self.most) > ALL {
            self.most = (self.most / 2).max(LEAST);
            for (points, interval) in self.ranks.iter_mut().zip(&mut self.intervals) {
                halve(points, interval, self.most);
            }
        }
    }

    /// At `t` seconds, which never goes back, it held so much.
    pub fn add(&mut self, t: f64, rank: Rank, bytes: u64) {
        self.grow(rank as usize + 1);
        let (points, interval) = (&mut self.ranks[rank as usize], &mut self.intervals[rank as usize]);
        match &mut points[..] {
            // Nothing new between two.
            [.., (_, before), last] if *before == last.1 && last.1 == bytes => last.0 = t,
            // Sooner than is wanted by now: the most of both.
            [.., (before, _), last] if t < *before + *interval => {
                *last = (t, last.1.max(bytes));
            }
            _ => points.push((t, bytes)),
        }
        halve(points, interval, self.most);
    }

    /// Adds what ranks held at another node, which began so many seconds later.
    pub fn join(&mut self, later: f64, other: Self) {
        self.grow(other.ranks.len());
        for (own, points) in self.ranks.iter_mut().zip(other.ranks) {
            own.extend(points.into_iter().map(|(t, bytes)| (t + later, bytes)));
        }
    }

    /// It begins anew.
    pub fn forget(&mut self, rank: Rank) {
        if let Some(points) = self.ranks.get_mut(rank as usize) {
            points.clear();
            self.intervals[rank as usize] = 0.0;
        }
    }

    /// The curve of a rank.
    #[must_use]
    pub fn of(&self, rank: Rank) -> &[(f64, u64)] {
        self.ranks.get(rank as usize).map_or(&[], Vec::as_slice)
    }
}

/// If there are more points than `most`, leaves half of them: the first, and of each two after it the later,
/// with the most of both.
fn halve(points: &mut Vec<(f64, u64)>, interval: &mut f64, most: usize) {
    if points.len() <= most {
        return;
    }
    let rest = points.split_off(1);
    points.extend(rest.chunks(2).map(|pair| {
        let most = pair.iter().map(|&(_, bytes)| bytes).max().unwrap_or(0);
        (pair[pair.len() - 1].0, most)
    }));
    let took = points[points.len() - 1].0 - points[0].0;
    *interval = 2.0 * took / most as f64;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_curve_keeps_its_peak_and_its_ends() {
        let mut sizes = Sizes::new(2);
        for n in 0..100_000u64 {
            let bytes = if n == 77_777 { 1 << 40 } else { n % 13 };
            sizes.add(n as f64, 1, bytes);
        }
        let points = sizes.of(1);
        assert!((MOST / 2..=MOST).contains(&points.len()), "{}", points.len());
        assert_eq!((points[0].0, points.last().unwrap().0), (0.0, 99_999.0));
        assert!(points.is_sorted_by(|a, b| a.0 < b.0));
        let peak = points.iter().max_by_key(|point| point.1).unwrap();
        assert!(peak.1 == 1 << 40 && (peak.0 - 77_777.0).abs() < 1000.0, "{peak:?}");
        for n in 0..1000 {
            sizes.add(f64::from(n), 0, 5);
        }
        assert_eq!(sizes.of(0), [(0.0, 5), (999.0, 5)]);
    }

    /// Of a list that is read while the job runs only the first is known at the beginning.
    #[test]
    fn those_that_come_later_have_curves_too() {
        let mut sizes = Sizes::new(1);
        let np = 4 * ALL / MOST;
        for n in 0..MOST {
            for rank in [0, 1, np / 2] {
                sizes.add(n as f64, rank as Rank, n as u64);
            }
        }
        assert!([0, 1, np / 2].iter().all(|&rank| sizes.of(rank as Rank).len() > 2 * LEAST));
        // All together are no more for that.
        sizes.add(0.0, np as Rank - 1, 7);
        for rank in [0, 1, np / 2] {
            let points = sizes.of(rank as Rank);
            assert!(points.len() * np <= ALL + np, "{} of {np}", points.len());
            assert_eq!(points.last(), Some(&(MOST as f64 - 1.0, MOST as u64 - 1)));
        }
        assert_eq!(sizes.of(np as Rank - 1), [(0.0, 7)]);
    }
}
