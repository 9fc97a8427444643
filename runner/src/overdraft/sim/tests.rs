//! Random and chosen jobs in the simulator.

use proptest::prelude::*;

use super::{Curve, Machine, Outcome, Program, run};
use crate::overdraft::Limits;
use crate::scheduler::Rank;
use crate::scheduler::sim::Draw;

const MB: f64 = 1e6;

/// What a part of seed 000's job computes: so many bytes of its peak a second.
const SPEED: f64 = 100.0 * MB;

/// The partitions of seed 000's table, in MB: 256, of which four are extreme, with its mean of 40.1, median of 37.2 and
/// maximum of 232.1.
fn partitions() -> Vec<f64> {
    let mut sizes: Vec<f64> = (0..238).map(|nth| 30.5 + 13.8 * f64::from(nth) / 237.0).collect();
    sizes.extend((0..14).map(|nth| 47.1 + 6.0 * f64::from(nth) / 13.0));
    sizes.extend([115.0, 150.0, 190.0, 232.1]);
    // Any fixed scatter will do.
    let mut draw = Draw::new(7);
    for at in (1..sizes.len()).rev() {
        sizes.swap(at, draw.below(at as u64 + 1) as usize);
    }
    sizes
}

/// Seed 000's situation: each needs 2 to 6 times its size, which nobody declares.
fn merge(curve: Curve, most: f64, seed: u64) -> Vec<Program> {
    let mut draw = Draw::new(seed);
    let program = |size: f64| {
        let factor = 2.0 + draw.below(4001) as f64 / 1000.0;
        let peak = (size * MB * factor).min(most);
        Program { declared: Some((size * MB) as u64), ..Program::new(peak, peak / SPEED, curve) }
    };
    partitions().into_iter().map(program).collect()
}

/// Seconds that nobody could do with less: the work on all processors, the longest rank, the disk.
fn ideal(programs: &[Program], machine: &Machine, outcome: &Outcome) -> f64 {
    let work: f64 = programs.iter().map(|program| program.work).sum();
    let longest = programs.iter().map(|program| program.work).fold(0.0, f64::max);
    let moved = (outcome.moved_in + outcome.moved_out) / machine.disk;
    (work / f64::from(machine.limits.processors)).max(longest).max(moved)
}

/// Two processors, and memory for about five of the partitions; also where some are larger than that.
#[test]
fn the_merge_of_seed_000_is_nearly_as_fast_as_can_be() {
    let mean = partitions().iter().sum::<f64>() / 256.0;
    assert!((mean - 40.1).abs() < 0.3, "{mean}");
    for (name, curve) in [("evenly", Curve::Even), ("at the end", Curve::Late), ("at once", Curve::Flat)] {
        for (most, bound) in [(0.9, 1.25), (9.0, 1.25)] {
            for seed in 1..6 {
                let machine = Machine::new((5.0 * 4.0 * mean * MB) as u64, 2);
                let budget = machine.limits.budget as f64;
                let programs = merge(curve, most * budget, seed);
                let outcome = run(&programs, Machine { check: false, ..machine });
                let ratio = outcome.time / ideal(&programs, &machine, &outcome);
                let Outcome { evictions, shrinks, peak, .. } = outcome;
                let largest = programs.iter().map(|program| program.peak / budget).fold(0.0, f64::max);
                println!(
                    "grows {name}, largest {largest:.2}: {ratio:.3} x ideal, {evictions} evictions, {shrinks} \
                     shrinks, peak {:.3}",
                    peak / budget
                );
                assert_eq!((outcome.stops, outcome.overdrafts), (0, 0));
                assert!(ratio <= bound, "{ratio} {outcome:?}");
                assert!(peak <= promised(&programs, &machine), "{outcome:?}");
            }
        }
    }
}

/// Memory for fewer at their peaks than there are processors: ranks seldom need the most at the same moment.
#[test]
fn processors_are_not_idle_for_peaks_that_are_not_there() {
    let mut draw = Draw::new(11);
    let mut peaks = || (150.0 + draw.below(231) as f64) * MB;
    let peaks: Vec<f64> = (0..120).map(|_| peaks()).collect();
    // Without overbooking 2.0 and 2.6, and at once, where there is nothing to gain, 2.5 and 2.8.
    let bounds = [
        (2, 1.6, [(Curve::Even, 1.25), (Curve::Late, 1.15), (Curve::Saw(4), 2.0), (Curve::Flat, 2.6)]),
        (8, 5.0, [(Curve::Even, 1.45), (Curve::Late, 1.35), (Curve::Saw(4), 2.4), (Curve::Flat, 3.0)]),
    ];
    for (processors, fit, bounds) in bounds {
        for disk in [4e9, 1e9] {
            for (curve, bound) in bounds {
                let programs: Vec<Program> =
                    peaks.iter().map(|&peak| Program::new(peak, peak / 132e6, curve)).collect();
                let machine = Machine { disk, ..Machine::new((fit * 265.0 * MB) as u64, processors) };
                let outcome = run(&programs, Machine { check: false, ..machine });
                let ratio = outcome.time / ideal(&programs, &machine, &outcome);
                let Outcome { evictions, peak, .. } = outcome;
                println!(
                    "{processors} processors, {fit} fit, {curve:?}, {disk:e} B/s: {ratio:.3} x ideal, {evictions} evictions"
                );
                assert!(ratio <= bound, "{ratio} {outcome:?}");
                assert!(peak <= promised(&programs, &machine), "{outcome:?}");
                assert_eq!((outcome.stops, outcome.overdrafts), (0, 0));
            }
        }
    }
}

#[test]
fn a_hundred_thousand_ranks() {
    let mut draw = Draw::new(5);
    let mut program = || {
        let peak = 20.0 * MB + draw.below(400) as f64 * MB;
        Program { declared: Some(peak as u64 / 3), ..Program::new(peak, peak / SPEED / 4.0, Curve::Even) }
    };
    let programs: Vec<Program> = (0..100_000).map(|_| program()).collect();
    let machine = Machine { check: false, disk: 4e9, ..Machine::new(8_000_000_000, 32) };
    let outcome = run(&programs, machine);
    let ratio = outcome.time / ideal(&programs, &machine, &outcome);
    println!("{} events, {} looks, {ratio:.3} x ideal", outcome.events, outcome.looks);
    assert_eq!((outcome.stops, outcome.overdrafts), (0, 0));
    assert!(outcome.most_evictions <= 20);
}

#[test]
fn ranks_that_sleep_leave_no_processor_idle() {
    let sleeper = Program { sleeps: true, ..Program::new(MB, 5.0, Curve::Flat) };
    let outcome = run(&vec![sleeper; 200], Machine::new(4_000_000_000, 2));
    assert!(outcome.time < 60.0, "{} s, one after the other on two processors 500", outcome.time);
}

/// Any curve.
fn curves() -> impl Strategy<Value = Curve> {
    prop_oneof![
        Just(Curve::Flat),
        Just(Curve::Even),
        Just(Curve::Late),
        (0.0..0.9).prop_map(Curve::Sudden),
        (1_u32..8).prop_map(Curve::Saw),
    ]
}

prop_compose! {
    /// A program that grows by no more than 1 GB/s.
    fn programs()(
        peak in 1.0..600.0, seconds in 0.05..4.0, curve in curves(), declared in proptest::option::of(2.0..6.0),
    ) -> Program {
        let peak = peak * MB;
        let work = f64::max(seconds, curve.steepest() * peak / 1e9);
        let declared = declared.map(|factor| (peak / factor) as u64);
        Program { declared, ..Program::new(peak, work, curve) }
    }
}

prop_compose! {
    fn machines()(
        budget in 600_u64..1200, processors in 1_u32..9, resident in 1_u32..20, disk in 0.2..2.0, latency in 0.002..0.03,
        holding in 0.001..0.01, seed in 1_u64..,
    ) -> Machine {
        let machine = Machine::new(budget * 1_000_000, processors);
        let limits = Limits { resident, ..machine.limits };
        Machine { limits, disk: disk * 1e9, latency, holding, seed, ..machine }
    }
}

/// What the programs that can compute at one moment can grow by, bytes a second.
fn growth(programs: &[Program], machine: &Machine) -> f64 {
    let mut fastest: Vec<f64> = programs.iter().map(Program::fastest).collect();
    fastest.sort_by(|one, other| other.total_cmp(one));
    fastest.iter().take(machine.limits.processors as usize).sum()
}

/// From growth until an order takes effect: the shortest time between looks, and until the ranks stand still, seconds.
fn reaction(machine: &Machine) -> f64 {
    0.004 + machine.latency.max(machine.holding)
}

/// The most bytes of RAM that may be used at once: what grows until an order takes effect may exceed the budget, unless that
/// is little.
fn promised(programs: &[Program], machine: &Machine) -> f64 {
    let budget = machine.limits.budget as f64;
    let grows = growth(programs, machine) * reaction(machine);
    budget + if grows <= budget / 128.0 { 0.0 } else { grows }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), ..ProptestConfig::default() })]

    /// Where all can be paged nobody is stopped, the budget holds but for what grows before an order takes effect, and nobody
    /// goes out and in for ever.
    #[test]
    fn the_budget_holds(programs in proptest::collection::vec(programs(), 1..40), machine in machines()) {
        let outcome = run(&programs, machine);
        prop_assert_eq!((outcome.stops, outcome.overdrafts, outcome.over_limit), (0, 0, 0));
        let most = promised(&programs, &machine);
        prop_assert!(outcome.peak <= most, "peak {} of {}, {:?}", outcome.peak, most, outcome);
        prop_assert!(outcome.most_evictions <= 20, "{:?}", outcome);
    }

    /// Whatever goes wrong, every rank ends, and only those that may not go on are killed. Where ranks can be held, there is room on
    /// scratch and no measure is late, the budget holds as well, or it is said that it does not. That the oldest is never stopped, and that
    /// somebody goes on at any moment, is checked after every event.
    #[test]
    fn every_job_ends(
        (programs, faults) in (1_usize..40).prop_flat_map(|np| {
            (proptest::collection::vec(programs(), np), proptest::collection::vec(faults(np), np))
        }),
        machine in machines(),
        (may_page, may_freeze, may_stop, enforce) in (weighted(0.8), weighted(0.8), weighted(0.5), weighted(0.2)),
        (refused, late, chaos) in (prop_oneof![Just(0), 0_u8..200], prop_oneof![Just(0), 0_u8..100], 0_u8..100),
        scratch in proptest::option::weighted(0.3, 0.0..2000.0),
        rank_limit in proptest::option::weighted(0.2, 100_u64..600),
    ) {
        let mut programs: Vec<Program> = programs.into_iter().zip(faults).map(|(program, fault)| fault.of(program)).collect();
        // Those who wait for each other in a circle would wait for ever: by a drawn order each waits for one before it, be that one
        // older or younger.
        let mut draw = Draw::new(machine.seed);
        let mut place: Vec<usize> = (0..programs.len()).collect();
        for at in (1..place.len()).rev() {
            place.swap(at, draw.below(at as u64 + 1) as usize);
        }
        for rank in 0..programs.len() {
            let waits_for = programs[rank].waits_for;
            programs[rank].waits_for = waits_for.filter(|&other| place[other as usize] < place[rank]);
        }
        let rank_limit = rank_limit.map(|limit| limit * 1_000_000);
        let limits = Limits { may_page, may_freeze, may_stop, enforce, rank_limit, ..machine.limits };
        let scratch = scratch.map_or(f64::INFINITY, |scratch| scratch * MB);
        let machine = Machine { limits, refused, late, chaos, scratch, ..machine };
        let outcome = run(&programs, machine);
        let over = |program: &&Program| rank_limit.is_some_and(|limit| program.peak > limit as f64);
        // Only where nobody can be paged, and nobody may be stopped.
        let can_page = may_page && may_freeze && refused == 0 && scratch.is_infinite();
        let sure = may_stop || (can_page && programs.iter().all(Program::is_pageable));
        let over = programs.iter().filter(over).count() as u64;
        prop_assert!((enforce && !sure) || outcome.over_limit <= over, "{:?}", outcome);
        prop_assert!(!sure || outcome.overdrafts == 0, "{:?}", outcome);
        prop_assert!(outcome.stops <= 20 * programs.len() as u64, "{:?}", outcome);
        let holds = may_freeze && scratch.is_infinite() && late == 0 && outcome.overdrafts == 0;
        let most = promised(&programs, &machine);
        prop_assert!(!holds || outcome.peak <= most, "peak {} of {}, {:?}", outcome.peak, most, outcome);
    }

    /// Single ranks that need more than there is: run in parts, or told, or, enforced, killed.
    #[test]
    fn ranks_larger_than_the_budget_end(
        programs in proptest::collection::vec(programs(), 1..20), machine in machines(), factor in 1.0..4.0,
        may_page: bool, enforce: bool,
    ) {
        let programs: Vec<Program> = programs.into_iter()
            .map(|program| Program { peak: program.peak * factor, work: program.work * factor, ..program })
            .collect();
        let limits = Limits { may_page, enforce, ..machine.limits };
        let outcome = run(&programs, Machine { limits, ..machine });
        let budget = machine.limits.budget as f64;
        let larger = programs.iter().filter(|program| program.peak > budget).count() as u64;
        let (killed, told) = if enforce { (larger, 0) } else { (0, larger) };
        if may_page {
            prop_assert_eq!((outcome.over_limit, outcome.overdrafts, outcome.stops), (0, 0, 0));
            let most = promised(&programs, &machine) + machine.disk / 8.0 * reaction(&machine);
            prop_assert!(outcome.peak <= most, "peak {} of {}, {:?}", outcome.peak, most, outcome);
        } else {
            prop_assert!(outcome.over_limit <= killed && outcome.overdrafts <= told, "{:?}", outcome);
        }
    }
}

/// Jobs of each kind; with `OVERDRAFT_CASES` so many.
fn cases() -> u32 {
    std::env::var("OVERDRAFT_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(600)
}

/// Whether something is so, in so many of all cases.
fn weighted(part: f64) -> impl Strategy<Value = bool> {
    proptest::bool::weighted(part)
}

/// What is wrong with a program.
#[derive(Debug, Clone)]
struct Fault {
    fixed: Option<f64>,
    sleeps: bool,
    unpageable: bool,
    waits_for: Option<Rank>,
    polls: f64,
}

impl Fault {
    fn of(self, program: Program) -> Program {
        let Self { fixed, sleeps, unpageable, waits_for, polls } = self;
        let fixed = fixed.map_or(0.0, |part| part * program.peak);
        Program { fixed, sleeps, unpageable, waits_for, polls, ..program }
    }
}

prop_compose! {
    /// Faults of the next of `np` programs. It may wait for one of them.
    fn faults(np: usize)(
        fixed in proptest::option::weighted(0.2, 0.0..1.0),
        sleeps in weighted(0.2),
        unpageable in weighted(0.2),
        waits_for in proptest::option::weighted(0.4, 0..np as Rank),
        polls in prop_oneof![Just(0.0), 0.0..0.08],
    ) -> Fault {
        Fault { fixed, sleeps, unpageable, waits_for, polls }
    }
}
