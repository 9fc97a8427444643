//! Who waited for whom, as gates: a rank waits until a gate is open, which it is when all that ever arrive
//! there have. Pure.

use std::collections::{BTreeMap, BTreeSet};

use crate::history::{Leg, On};

/// Times of who wakes are a little coarse, seconds.
const COARSE: f64 = 2e-6;

/// A rank comes to a gate.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Arrival {
    /// After so many seconds of computing.
    pub after: f64,
    /// Which.
    pub gate: u32,
    /// It came last and so did not wait; it would have.
    pub waits: bool,
}

/// Before which of its legs a rank comes to which gates, in order.
type Opens = BTreeMap<usize, Vec<Arrival>>;

/// The gates of a job.
#[derive(Debug, Default)]
pub(super) struct Meetings {
    gates: u32,
    /// Of each rank: at which of its legs it waits for which gate.
    awaits: Vec<BTreeMap<usize, u32>>,
    opens: Vec<Opens>,
    /// Of which collective a gate is, if it is that of one.
    collectives: BTreeMap<u32, On>,
}

/// The same of one rank.
pub(super) struct Of<'a> {
    pub awaits: &'a BTreeMap<usize, u32>,
    pub opens: &'a Opens,
    pub collectives: &'a BTreeMap<u32, On>,
}

impl Meetings {
    /// What the legs of all ranks tell.
    pub fn of(legs: &[Vec<Leg>]) -> Self {
        let awaits = vec![BTreeMap::new(); legs.len()];
        let mut all = Self { awaits, opens: vec![BTreeMap::new(); legs.len()], ..Self::default() };
        let mut groups = BTreeMap::<(u32, u64), Vec<(usize, usize)>>::new();
        for (rank, own) in legs.iter().enumerate() {
            for (at, leg) in own.iter().enumerate().skip(1) {
                match leg.on {
                    On::Collective { comm, number } => {
                        groups.entry((comm, number)).or_default().push((rank, at))
                    }
                    On::Message { .. } | On::Other => all.awaits_one(legs, rank, at),
                    On::Memory | On::Nothing => {}
                }
            }
        }
        let leg = |(rank, at): (usize, usize)| &legs[rank][at];
        for mut group in groups.into_values() {
            group.sort_by(|&a, &b| leg(a).began.total_cmp(&leg(b).began));
            // Another communicator may have the number of one that is no more.
            let mut rest = &group[..];
            while let Some(&first) = rest.first() {
                let mut until = leg(first).woken;
                let apart = |&place: &(usize, usize)| {
                    let is_later = leg(place).began > until;
                    until = until.max(leg(place).woken);
                    is_later
                };
                let count = rest.iter().position(apart).unwrap_or(rest.len());
                all.meet(legs, &rest[..count]);
                rest = &rest[count..];
            }
        }
        for arrivals in all.opens.iter_mut().flat_map(BTreeMap::values_mut) {
            arrivals.sort_by(|a, b| a.after.total_cmp(&b.after));
        }
        all.let_go(legs);
        all
    }

    /// Those of one rank.
    pub fn of_rank(&self, rank: usize) -> Of<'_> {
        Of { awaits: &self.awaits[rank], opens: &self.opens[rank], collectives: &self.collectives }
    }

    fn gate(&mut self) -> u32 {
        self.gates += 1;
        self.gates - 1
    }

    /// What the rank waited for was there when the one that woke it had come so far.
    fn awaits_one(&mut self, legs: &[Vec<Leg>], rank: usize, at: usize) {
        let leg = legs[rank][at];
        let Some(waker) = leg.waker.map(|waker| waker as usize) else { return };
        if waker != rank && legs.get(waker).is_some_and(|legs| !legs.is_empty()) {
            let gate = self.gate();
            self.opens_at(legs, waker, leg.woken, gate, false);
            self.awaits[rank].insert(at, gate);
        }
    }

    /// At `t` the rank had done what opens the gate.
    fn opens_at(&mut self, legs: &[Vec<Leg>], rank: usize, t: f64, gate: u32, waits: bool) {
        let own = &legs[rank];
        let ends = own.len() > 1 && own[own.len() - 1].on == On::Nothing;
        let most = if ends { own.len() - 1 } else { own.len() };
        let at = own.partition_point(|leg| leg.ran <= t).clamp(1, most.max(1));
        let after = (t - own[at - 1].ran).max(0.0);
        self.opens[rank].entry(at).or_default().push(Arrival { after, gate, waits });
    }

    /// These waited in one collective. Who was still waiting when all had come waited for all; others for a
    /// part of them, of whom one woke it.
    fn meet(&mut self, legs: &[Vec<Leg>], group: &[(usize, usize)]) {
        let leg = |(rank, at): (usize, usize)| legs[rank][at];
        let all_came = group.iter().map(|&place| leg(place).began).fold(0.0, f64::max);
        let (whole, early): (Vec<_>, Vec<_>) =
            group.iter().copied().partition(|&place| leg(place).woken + COARSE >= all_came);
        for (rank, at) in early {
            self.awaits_one(legs, rank, at);
        }
        let gate = self.gate();
        self.collectives.insert(gate, leg(group[0]).on);
        let mut members = BTreeSet::new();
        for &(rank, at) in group {
            // Who came back to it had come before.
            if members.insert(rank) {
                let after = (legs[rank][at].began - legs[rank][at - 1].ran).max(0.0);
                self.opens[rank].entry(at).or_default().push(Arrival { after, gate, waits: false });
            }
        }
        // Who came last did not wait.
        let mut last = BTreeMap::<usize, f64>::new();
        for &place in &whole {
            let Some(waker) = leg(place).waker.map(|waker| waker as usize) else { continue };
            if !members.contains(&waker) && legs.get(waker).is_some_and(|legs| !legs.is_empty()) {
                let first = last.entry(waker).or_insert(f64::INFINITY);
                *first = first.min(leg(place).woken);
            }
        }
        for (waker, t) in last {
            self.opens_at(legs, waker, t, gate, true);
        }
        for (rank, at) in whole {
            self.awaits[rank].insert(at, gate);
        }
    }

    /// Lets go who would wait for ever, the one first that was woken first: times are a little coarse, and of
    /// a rank that failed to tell something is missing.
    fn let_go(&mut self, legs: &[Vec<Leg>]) {
        let mut missing = vec![0u32; self.gates as usize];
        for arrival in self.opens.iter().flat_map(BTreeMap::values).flatten() {
            missing[arrival.gate as usize] += 1;
        }
        let plans: Vec<Vec<Act>> = (0..legs.len()).map(|rank| self.plan(rank)).collect();
        let mut waiting = vec![Vec::new(); self.gates as usize];
        let mut at = vec![0; legs.len()];
        let mut stuck: BTreeSet<(u64, usize)> = BTreeSet::new();
        let woken = |rank: usize, leg: usize| legs[rank].get(leg).map_or(u64::MAX, |leg| leg.woken.to_bits());
        let mut goes: Vec<usize> = (0..legs.len()).collect();
        loop {
            while let Some(rank) = goes.pop() {
                while let Some(&act) = plans[rank].get(at[rank]) {
                    match act {
                        Act::Opens(gate) => {
                            missing[gate as usize] -= 1;
                            if missing[gate as usize] == 0 {
                                for (other, leg) in std::mem::take(&mut waiting[gate as usize]) {
                                    stuck.remove(&(woken(other, leg), other));
                                    at[other] += 1;
                                    goes.push(other);
                                }
                            }
                        }
                        Act::Awaits(gate, leg) if missing[gate as usize] > 0 => {
                            waiting[gate as usize].push((rank, leg));
                            stuck.insert((woken(rank, leg), rank));
                            break;
                        }
                        Act::Awaits(..) => {}
                    }
                    at[rank] += 1;
                }
            }
            let Some((_, rank)) = stuck.pop_first() else { return };
            if let Some(&Act::Awaits(gate, leg)) = plans[rank].get(at[rank]) {
                waiting[gate as usize].retain(|&(other, _)| other != rank);
                if self.awaits[rank].get(&leg) == Some(&gate) {
                    self.awaits[rank].remove(&leg);
                } else if let Some(arrivals) = self.opens[rank].get_mut(&leg) {
                    let at_this = |arrival: &&mut Arrival| arrival.gate == gate;
                    arrivals.iter_mut().filter(at_this).for_each(|arrival| arrival.waits = false);
                }
            }
            at[rank] += 1;
            goes.push(rank);
        }
    }

    /// What a rank opens and waits for, in order.
    fn plan(&self, rank: usize) -> Vec<Act> {
        let legs: BTreeSet<usize> =
            self.opens[rank].keys().chain(self.awaits[rank].keys()).copied().collect();
        let mut plan = Vec::new();
        for leg in legs {
            for arrival in self.opens[rank].get(&leg).into_iter().flatten() {
                plan.push(Act::Opens(arrival.gate));
                if arrival.waits {
                    plan.push(Act::Awaits(arrival.gate, leg));
                }
            }
            plan.extend(self.awaits[rank].get(&leg).map(|&gate| Act::Awaits(gate, leg)));
        }
        plan
    }
}

/// What a rank does at a gate; before or at which of its legs.
#[derive(Debug, Clone, Copy)]
enum Act {
    Opens(u32),
    Awaits(u32, usize),
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leg(began: f64, woken: f64, waker: Option<u32>, on: On) -> Leg {
        Leg { began, woken, ran: woken, waker, on, ..Leg::default() }
    }

    fn begin() -> Leg {
        leg(0.0, 0.0, None, On::Nothing)
    }

    const ALL: On = On::Collective { comm: 0, number: 1 };

    #[test]
    fn a_collective_ends_when_all_have_come_whoever_is_last() {
        // Rank 2 came last, at 3, and did not wait.
        let legs = vec![
            vec![begin(), leg(1.0, 3.0, Some(2), ALL)],
            vec![begin(), leg(2.0, 3.0, Some(2), ALL)],
            vec![begin(), leg(5.0, 5.0, None, On::Nothing)],
        ];
        let meetings = Meetings::of(&legs);
        let gate = meetings.awaits[0][&1];
        assert_eq!(meetings.awaits[1][&1], gate);
        assert!(meetings.awaits[2].is_empty());
        let arrives = |after, waits| [Arrival { after, gate, waits }];
        assert_eq!(meetings.opens[0][&1], arrives(1.0, false));
        assert_eq!(meetings.opens[1][&1], arrives(2.0, false));
        assert_eq!(meetings.opens[2][&1], arrives(3.0, true), "it would have waited");
    }

    #[test]
    fn who_was_woken_before_all_had_come_waited_for_that_one() {
        let legs = vec![
            vec![begin(), leg(1.0, 2.0, Some(2), ALL)],
            vec![begin(), leg(1.5, 4.0, Some(2), ALL)],
            vec![begin(), leg(5.0, 5.0, None, On::Nothing)],
            vec![begin(), leg(3.0, 4.0, Some(2), ALL)],
        ];
        let meetings = Meetings::of(&legs);
        let gate = meetings.awaits[0][&1];
        assert_eq!(meetings.opens[2][&1][0], Arrival { after: 2.0, gate, waits: false });
        assert_ne!(meetings.awaits[1][&1], gate);
        assert_eq!(meetings.awaits[1][&1], meetings.awaits[3][&1]);
    }

    #[test]
    fn a_number_that_comes_again_is_another_collective() {
        let again = |t: f64| leg(t, t + 1.0, Some(1), ALL);
        let legs =
            vec![vec![begin(), again(1.0), again(10.0)], vec![begin(), leg(20.0, 20.0, None, On::Nothing)]];
        let meetings = Meetings::of(&legs);
        assert_ne!(meetings.awaits[0][&1], meetings.awaits[0][&2]);
        assert_eq!(meetings.opens[1][&1].len(), 2);
    }

    #[test]
    fn nobody_waits_for_ever() {
        // Each was woken by what the other did later, which cannot be.
        let from = |rank: u32, woken| Leg {
            ran: 2.0,
            ..leg(1.0, woken, Some(rank), On::Message { from: Some(rank) })
        };
        let end = leg(6.0, 6.0, None, On::Nothing);
        let legs = vec![vec![begin(), from(1, 5.0), end], vec![begin(), from(0, 4.5), end]];
        let meetings = Meetings::of(&legs);
        assert_eq!(meetings.awaits.iter().map(BTreeMap::len).sum::<usize>(), 1);
        assert!(meetings.awaits[1].is_empty(), "who was woken first goes first");
    }
}
