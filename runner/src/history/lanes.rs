//! What each rank did, from when to when. Where that is too much, what is shortest counts for what was
//! before it.

use serde::{Deserialize, Serialize};

use crate::residency::{Activity, Rank};

/// So many changes are kept, at most, where there are not very many ranks.
const MOST: usize = 1 << 18;

/// And at least so many of each rank.
const EACH: usize = 8;

/// What is shorter goes first when there are too many, microseconds.
const SHORT: u64 = 1000;

/// A rank did this all the time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Span {
    /// Since when, seconds of the job.
    pub from: f64,
    /// Until when.
    pub to: f64,
    /// What.
    pub activity: Activity,
}

/// From then on (microseconds) it does this; `None`: it does not live.
type Change = (u64, Option<Activity>);

/// The lanes of all ranks.
#[derive(Debug, Serialize, Deserialize)]
pub struct Lanes {
    ranks: Vec<Vec<Change>>,
    count: usize,
    /// Nothing shorter is kept, microseconds.
    shortest: u64,
}

impl Lanes {
    /// Of so many ranks.
    #[must_use]
    pub fn new(np: u32) -> Self {
        Self { ranks: vec![Vec::new(); np as usize], count: 0, shortest: 0 }
    }

    /// At `t` seconds, which never goes back, a rank begins to do something else, or what it does already.
    pub fn set(&mut self, t: f64, rank: Rank, activity: Option<Activity>) {
        // Others may come than were known at the beginning.
        if rank as usize >= self.ranks.len() {
            self.ranks.resize(rank as usize + 1, Vec::new());
        }
        let lane = &mut self.ranks[rank as usize];
        let now = (t.max(0.0) * 1e6) as u64;
        match lane.last_mut() {
            Some(last) if last.1 == activity => return,
            // It was nothing, or nothing worth keeping.
            Some(last) if now <= last.0 => last.1 = activity,
            None if activity.is_none() => return,
            _ => {
                lane.push((now, activity));
                self.count += 1;
            }
        }
        let most = MOST.max(EACH * self.ranks.len());
        while self.count > most && self.shortest < u64::MAX / 4 {
            self.shortest = (self.shortest * 2).max(SHORT);
            self.compact();
        }
    }

    /// Adds what ranks did at another node, which began so many seconds later. Of one that was begun at both
    /// each did what it did.
    pub fn join(&mut self, later: f64, other: Self) {
        let later = (later * 1e6) as i64;
        if other.ranks.len() > self.ranks.len() {
            self.ranks.resize(other.ranks.len(), Vec::new());
        }
        for (own, lane) in self.ranks.iter_mut().zip(other.ranks) {
            self.count += lane.len();
            own.extend(lane.into_iter().map(|(at, activity)| (at.saturating_add_signed(later), activity)));
            own.sort_by_key(|&(at, _)| at);
        }
    }

    fn compact(&mut self) {
        let shortest = self.shortest;
        self.count = 0;
        for lane in &mut self.ranks {
            let mut kept: Vec<Change> = Vec::new();
            for (at, &(since, activity)) in lane.iter().enumerate() {
                let until = lane.get(at + 1).map_or(u64::MAX, |next| next.0);
                let is_short = until - since < shortest && at > 0;
                if !is_short && kept.last().is_none_or(|last| last.1 != activity) {
                    kept.push((since, activity));
                }
            }
            kept.shrink_to_fit();
            self.count += kept.len();
            *lane = kept;
        }
    }

    /// What a rank did, in order, until `end`, seconds, if it does it still.
    pub fn of(&self, rank: Rank, end: f64) -> impl Iterator<Item = Span> + '_ {
        let lane = self.ranks.get(rank as usize).map_or(&[][..], Vec::as_slice);
        lane.iter().enumerate().filter_map(move |(at, &(since, activity))| {
            let from = since as f64 / 1e6;
            let to = lane.get(at + 1).map_or(end, |next| next.0 as f64 / 1e6);
            activity.map(|activity| Span { from, to: to.max(from), activity })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Activity::{Held, Out, Running};
    use proptest::prelude::*;

    #[test]
    fn what_ranks_did_at_two_nodes() {
        let (mut one, mut other) = (Lanes::new(2), Lanes::new(3));
        one.set(1.0, 0, Some(Running));
        one.set(2.0, 0, None);
        other.set(0.5, 2, Some(Running));
        other.set(3.0, 0, Some(Out));
        one.join(0.25, other);
        let span = |from, to, activity| Span { from, to, activity };
        assert_eq!(one.of(0, 5.0).collect::<Vec<_>>(), [span(1.0, 2.0, Running), span(3.25, 5.0, Out)]);
        assert_eq!(one.of(2, 5.0).collect::<Vec<_>>(), [span(0.75, 5.0, Running)]);
    }

    #[test]
    fn what_a_rank_did() {
        let mut lanes = Lanes::new(2);
        lanes.set(0.5, 1, None);
        lanes.set(1.0, 1, Some(Running));
        lanes.set(1.5, 1, Some(Running));
        lanes.set(2.0, 1, Some(Out));
        lanes.set(3.0, 1, None);
        lanes.set(4.0, 1, Some(Held));
        lanes.set(4.0, 1, Some(Running));
        lanes.set(0.0, 7, Some(Running));
        lanes.set(1.0, 7, None);
        let span = |from, to, activity| Span { from, to, activity };
        let all: Vec<Span> = lanes.of(1, 5.0).collect();
        assert_eq!(all, [span(1.0, 2.0, Running), span(2.0, 3.0, Out), span(4.0, 5.0, Running)]);
        assert_eq!((lanes.of(0, 5.0).count(), lanes.of(9, 5.0).count()), (0, 0));
        assert_eq!(lanes.of(7, 5.0).collect::<Vec<_>>(), [span(0.0, 1.0, Running)], "one that came later");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(16))]

        /// However much happens, little is kept, in order, and what is long is there.
        #[test]
        fn much_becomes_little(np in 1u32..50, long in 0.5f64..2.0) {
            let mut lanes = Lanes::new(np);
            for n in 0..3 * MOST {
                let (t, rank) = (n as f64 * 1e-5, n as u32 % np);
                let activity = [Some(Running), Some(Out), Some(Held), None][n / np as usize % 4];
                lanes.set(t, rank, activity);
            }
            let end = 3.0 * MOST as f64 * 1e-5;
            lanes.set(end, 0, Some(Held));
            lanes.set(end + long, 0, Some(Out));
            prop_assert!(lanes.count <= MOST, "{}", lanes.count);
            for rank in 0..np {
                let spans: Vec<Span> = lanes.of(rank, end + 9.0).collect();
                prop_assert!(spans.is_sorted_by(|a, b| a.to <= b.from), "{rank}: {spans:?}");
            }
            let held = lanes.of(0, end + 9.0).filter(|span| span.activity == Held);
            let longest = held.map(|span| span.to - span.from).fold(0.0, f64::max);
            prop_assert!(longest >= long - 1e-4, "{longest} of {long}");
        }
    }
}
