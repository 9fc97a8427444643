//! From what a job was recorded to have done to programs for the simulator: how long each computed and how
//! much it held between two waits, and what each wait was for. Pure.
//!
//! A wait ended because somebody did something: the record says who, and when. In another order of things it
//! ends when that rank has come as far again. A collective for which all had come ends when all have, whoever
//! is last. Waits for memory are none here: the simulated core makes its own.

use std::collections::BTreeMap;

use super::meetings::{Arrival, Meetings, Of};
use super::record::{RankRecord, Record};
use crate::history::{Leg, On};
use crate::residency::sim::{Program, Step, Then};
use crate::residency::{Can, Rank};

/// A wait that nobody ended and that took at least so long was for a time to come, seconds.
const PAUSE: f64 = 1e-3;

/// Computing time never is quite nothing, seconds.
const LITTLE: f64 = 1e-9;

/// The programs of a recorded job: of the ranks that lived.
#[must_use]
pub fn programs(record: &Record) -> Vec<Program> {
    let ranks: Vec<&RankRecord> = record.ranks.iter().filter(|rank| rank.ended > 0.0).collect();
    let mut number = vec![None; record.ranks.len()];
    let mut next = 0;
    for (rank, of) in record.ranks.iter().enumerate() {
        if of.ended > 0.0 {
            number[rank] = Some(next);
            next += 1;
        }
    }
    let legs: Vec<Vec<Leg>> =
        ranks.iter().map(|rank| rank.legs.iter().map(|leg| renamed(leg, &number)).collect()).collect();
    let meetings = Meetings::of(&legs);
    let habits = Habits::of(&legs);
    let share = |part: u64, of: u64| if of > 0 { (part as f64 / of as f64).min(1.0) } else { 1.0 };
    let dirty = share(record.written, record.evicted);
    let each = ranks.iter().zip(&legs).enumerate();
    each.map(|(at, (rank, legs))| {
        let dirty = if rank.written > 0 { share(rank.written, rank.evicted) } else { dirty };
        let fill = legs.last().map_or(1.0, |last| share(last.moved[0], last.moved[4])).max(0.01);
        let program =
            if legs.is_empty() { stranger(rank) } else { told(rank, legs, &meetings.of_rank(at), &habits) };
        Program { dirty, fill, ..program }
    })
    .collect()
}

/// Ranks that were never begun are left out, so the others have other numbers.
fn renamed(leg: &Leg, number: &[Option<Rank>]) -> Leg {
    let name = |rank: Rank| number.get(rank as usize).copied().flatten();
    let on = match leg.on {
        On::Message { from } => On::Message { from: from.and_then(name) },
        on => on,
    };
    Leg { on, waker: leg.waker.and_then(name), ..*leg }
}

/// A program that does not tell: what it held when it had computed so long.
fn stranger(rank: &RankRecord) -> Program {
    let work = rank.ran_s.max(1e-4);
    let most = rank.sizes.iter().map(|&(_, bytes)| bytes).max().unwrap_or(0);
    let peak = most.max(rank.peak).max(1) as f64;
    let mut points: Vec<(f64, f64)> = vec![(0.0, 0.0)];
    for &(t, bytes) in &rank.sizes {
        // What was never seen was there at some time: it is, where the most was seen.
        let bytes = if bytes == most { peak } else { bytes as f64 };
        let at = (t / work).min(1.0);
        match points.last_mut() {
            Some(last) if at <= last.0 + 1e-9 => last.1 = last.1.max(bytes / peak),
            _ => points.push((at, bytes / peak)),
        }
    }
    if points.len() == 1 {
        points.push((1.0, 1.0));
    }
    // Whose processor was taken away again and again did not sleep: it waited for its turn.
    let [gave, lost] = rank.switches.unwrap_or_default();
    let sleeps = rank.cpu_s.map(|cpu| cpu / work).filter(|&part| part < 0.1 && lost <= gave);
    let curve = crate::residency::sim::Curve::Even;
    Program {
        can: Can {
            rerun: rank.can.rerun,
            evict: rank.can.evict,
            hold: rank.can.hold,
            shrink: rank.can.shrink,
            ..Can::PROGRAM
        },
        points: points.into(),
        sleeps,
        declared: rank.size,
        starting: (rank.begun - rank.ordered).max(0.0),
        ..Program::new(peak, work, curve)
    }
}

/// A program that tells.
fn told(rank: &RankRecord, legs: &[Leg], meetings: &Of<'_>, habits: &Habits) -> Program {
    let mut steps: Vec<Step> = Vec::new();
    let attached = legs[0];
    let mut holds = attached.held;
    for (at, leg) in legs.iter().enumerate().skip(1) {
        let before = legs[at - 1];
        let is_pause = leg.waker.is_none()
            && !matches!(leg.on, On::Memory | On::Nothing)
            && leg.moved == before.moved
            && leg.woken - leg.began >= PAUSE;
        let then = match meetings.awaits.get(&at) {
            Some(&gate) => {
                let from = if let On::Collective { .. } = leg.on { None } else { leg.waker };
                Then::Gate { gate, from }
            }
            None if is_pause => Then::Pause(leg.woken - leg.began),
            None => Then::Nothing,
        };
        let needs = habits.after(&before, holds);
        let computes = Computes {
            seconds: (leg.began - before.ran).max(0.0),
            needs,
            most: leg.most.max(leg.held),
            holds: leg.held,
        };
        spread(&mut steps, computes, meetings, at, habits);
        if let Some(last) = steps.last_mut() {
            last.then = then;
        }
        holds = leg.held;
    }
    let last = legs[legs.len() - 1];
    let mut ending = (rank.ended - last.began).max(0.0);
    if legs.len() == 1 || last.on != On::Nothing {
        // It did not say that it ended.
        let seconds = (rank.ended - last.ran).max(0.0);
        let computes = Computes { seconds, needs: Needs::ALL, most: holds, holds };
        spread(&mut steps, computes, meetings, legs.len(), habits);
        ending = 0.0;
    }
    let work = steps.iter().map(|step| step.work).sum::<f64>().max(LITTLE);
    let besides = rank.sizes.iter().map(|&(_, bytes)| bytes).max().unwrap_or(0) as f64;
    let ran = rank.sizes.last().map_or(0.0, |&(t, _)| t).max(LITTLE);
    Program {
        can: Can {
            asks: true,
            tells: true,
            evict: true,
            shrink: false,
            hold: false,
            rerun: false,
            ..rank.can
        },
        work,
        peak: besides,
        points: rank.sizes.iter().map(|&(t, bytes)| (t / ran, bytes as f64 / besides.max(1.0))).collect(),
        chunk: u64::MAX,
        script: steps.into(),
        tokens: !last.tokenless,
        starting: (attached.began - rank.ordered).max(0.0),
        ending,
        ..Program::new(0.0, work, crate::residency::sim::Curve::Flat)
    }
}

/// Bytes that must be in RAM for the first seconds of computing, after which it is all; 0: all at once.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Needs {
    bytes: u64,
    until: f64,
}

impl Needs {
    const ALL: Self = Self { bytes: 0, until: f64::INFINITY };
}

/// What ranks need after a wait, where that was seen: of those that were out then. The others of the same
/// collective need the same part of what they hold.
#[derive(Debug, Default)]
struct Habits(BTreeMap<(u32, u64), (f64, f64)>);

impl Habits {
    fn of(legs: &[Vec<Leg>]) -> Self {
        let mut seen = BTreeMap::<(u32, u64), Vec<(f64, f64)>>::new();
        for own in legs {
            for (at, leg) in own.iter().enumerate() {
                let On::Collective { comm, number } = leg.on else { continue };
                if leg.need == 0 || leg.held == 0 {
                    continue;
                }
                // Then it turned out to need more, or it did not.
                let mut ran = 0.0;
                let mut until = f64::INFINITY;
                for pair in own[at..].windows(2) {
                    ran += (pair[1].began - pair[0].ran).max(0.0);
                    if pair[1].on != On::Memory {
                        break;
                    }
                    if pair[1].need > leg.need {
                        until = ran;
                        break;
                    }
                }
                let part = leg.need as f64 / leg.held as f64;
                seen.entry((comm, number)).or_default().push((part, until));
            }
        }
        let middle = |of: &mut Vec<f64>| {
            of.sort_by(f64::total_cmp);
            of[of.len() / 2]
        };
        let each = seen.into_iter().map(|(key, seen)| {
            let (mut parts, mut untils): (Vec<f64>, Vec<f64>) = seen.into_iter().unzip();
            (key, (middle(&mut parts), middle(&mut untils)))
        });
        Self(each.collect())
    }

    /// What a rank needs that has waited so and holds so much.
    fn after(&self, leg: &Leg, holds: u64) -> Needs {
        let all = |bytes: u64| if bytes >= holds { 0 } else { bytes };
        if leg.need > 0 {
            return Needs { bytes: all(leg.need), until: f64::INFINITY };
        }
        let On::Collective { comm, number } = leg.on else { return Needs::ALL };
        let Some(&(part, until)) = self.0.get(&(comm, number)) else { return Needs::ALL };
        Needs { bytes: all((holds as f64 * part) as u64), until }
    }
}

/// What a rank did between two waits.
#[derive(Debug, Clone, Copy)]
struct Computes {
    seconds: f64,
    needs: Needs,
    most: u64,
    holds: u64,
}

/// Adds the steps of what was done before one of its legs: it holds the most from the beginning, gives back
/// at the end what it does not hold then, and comes to gates in between.
fn spread(steps: &mut Vec<Step>, computes: Computes, meetings: &Of<'_>, leg: usize, habits: &Habits) {
    let Computes { seconds, needs: Needs { mut bytes, until }, most, holds } = computes;
    let mut until = until;
    let arrivals: &[Arrival] = meetings.opens.get(&leg).map_or(&[][..], Vec::as_slice);
    let first = steps.len();
    let mut since = 0.0;
    // Computes on to some moment; it may find that it needs all on the way.
    let go_on = |steps: &mut Vec<Step>, since: &mut f64, to: f64, bytes: u64, until: f64| {
        let step = |work: f64, needs: u64| Step { work, most, holds: most, needs, ..Step::default() };
        if bytes > 0 && until < to {
            steps.push(step((until - *since).max(0.0), bytes));
            *since = until.max(*since);
            steps.push(step(to - *since, 0));
        } else {
            steps.push(step(to - *since, bytes));
        }
        *since = to;
    };
    for arrival in arrivals {
        let to = arrival.after.clamp(since, seconds);
        if to - since > LITTLE || steps.len() == first {
            go_on(steps, &mut since, to, bytes, until);
        }
        if let Some(last) = steps.last_mut() {
            last.opens.push(arrival.gate);
        }
        if arrival.waits {
            if let Some(last) = steps.last_mut() {
                last.then = Then::Gate { gate: arrival.gate, from: None };
            }
            let on = meetings.collectives.get(&arrival.gate).copied().unwrap_or_default();
            let needs = habits.after(&Leg { on, ..Leg::default() }, most);
            (bytes, until) = (needs.bytes, since + needs.until);
            let now = since;
            go_on(steps, &mut since, now, bytes, f64::INFINITY);
        }
    }
    if seconds - since > LITTLE || steps.len() == first {
        go_on(steps, &mut since, seconds, bytes, until);
    }
    if let Some(last) = steps.last_mut() {
        last.holds = holds;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One that had as little of a processor slept if it gave it up itself, and did not if others took it.
    #[test]
    fn who_waited_for_a_processor_did_not_sleep() {
        let rank = |cpu_s, switches| {
            stranger(&RankRecord { ran_s: 2.0, cpu_s, switches, ended: 2.0, ..RankRecord::default() }).sleeps
        };
        assert_eq!(rank(Some(0.1), Some([40, 3])), Some(0.05));
        assert_eq!(rank(Some(0.1), Some([40, 41])), None, "it waited for its turn");
        assert_eq!(rank(Some(1.9), Some([40, 3])), None, "it computed");
        assert_eq!(rank(None, None), None, "that is not known");
    }
}
