//! Random and chosen jobs in the simulator.

use proptest::prelude::*;
use proptest::test_runner::RngSeed;

use super::{Curve, Draw, Exchange, Machine, Program, Report, run};
use crate::residency::{Can, Effect, Failure, Limits, Rank};

const MB: f64 = 1e6;
const MIB: u64 = 1 << 20;

/// What a part of seed 000's job computes: so many bytes of its peak a second.
const SPEED: f64 = 100.0 * MB;

fn finished(report: &Report) {
    assert_eq!(report.end, Some(Effect::Finish), "{report:?}");
}

/// A machine for native ranks: what moves takes hardly any time, and what is computed little.
fn machine(budget: u64, resident: u32) -> Machine {
    let machine = Machine { disk: 1e12, ..Machine::new(budget, 4) };
    Machine { limits: Limits { resident, moves: 2, ..machine.limits }, ..machine }
}

#[test]
fn cyclic_sweep_moves_no_more_than_belady() {
    let (np, resident, phases, bytes) = (64, 16, 11, 10 * MIB);
    for by_count in [true, false] {
        let machine =
            if by_count { machine(1 << 40, resident) } else { machine(u64::from(resident) * bytes, np) };
        let machine = Machine { limits: Limits { first_reserve: bytes, ..machine.limits }, ..machine };
        let job = |phases| vec![Program::native(bytes, phases, Exchange::Barrier); np as usize];
        let (one, all) = (run(&job(1), machine), run(&job(phases), machine));
        finished(&one);
        finished(&all);
        let moved = (all.moved_in - one.moved_in) / f64::from(phases - 1);
        let least = (u64::from(np - resident) * bytes) as f64;
        assert!(moved <= least * 1.05, "moved {moved} a phase, {least} would do (by count: {by_count})");
        assert_eq!(all.needless, 0);
    }
}

#[test]
fn token_in_a_ring_keeps_most_ranks_in_place() {
    let job = vec![Program::native(10 * MIB, 20, Exchange::Token); 32];
    let report = run(&job, machine(1 << 40, 16));
    finished(&report);
    let a_phase = report.moved_in / 19.0;
    assert!(a_phase <= 200.0 * MIB as f64, "{a_phase} bytes a phase, 32 ranks of which 16 fit");
}

#[test]
fn a_job_that_fits_moves_nothing() {
    for exchange in [Exchange::Barrier, Exchange::Ring, Exchange::Token, Exchange::Nothing] {
        let report = run(&vec![Program::native(MIB, 5, exchange); 100], machine(101 * MIB, 100));
        finished(&report);
        assert_eq!((report.moved_out, report.overdrafts), (0.0, 0));
    }
}

#[test]
fn a_hanging_job_is_called_a_deadlock() {
    let report = run(&vec![Program::native(MIB, 1, Exchange::Hang); 9], machine(3 * MIB, 2));
    assert_eq!(report.end, Some(Effect::Fail(Failure::Deadlock { waiting: 9 })));
}

#[test]
fn unpageable_independent_ranks_run_through() {
    let rank =
        Program { can: Can { evict: false, ..Can::NATIVE }, ..Program::native(MIB, 1, Exchange::Nothing) };
    let report = run(&vec![rank; 50], machine(7 * MIB, 50));
    finished(&report);
    assert_eq!((report.evictions, report.peak), (0, (7 * MIB) as f64));
}

#[test]
fn a_hundred_thousand_native_ranks() {
    let job = vec![Program::native(MIB, 3, Exchange::Barrier); 100_000];
    let machine = machine(10_000 * MIB, 20_000);
    let report = run(&job, Machine { check: 0, ..machine });
    finished(&report);
    assert!(report.moved_out <= 4.0 * 90_000.0 * MIB as f64, "{report:?}");
}

/// The partitions of seed 000's table, in MB: 256, of which four are extreme, with its mean of 40.1, median
/// of 37.2 and maximum of 232.1.
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
fn ideal(programs: &[Program], machine: &Machine, report: &Report) -> f64 {
    let work: f64 = programs.iter().map(|program| program.work).sum();
    let longest = programs.iter().map(|program| program.work).fold(0.0, f64::max);
    let moved = (report.moved_in + report.moved_out) / machine.disk;
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
                let report = run(&programs, Machine { check: 0, ..machine });
                let ratio = report.time / ideal(&programs, &machine, &report);
                let Report { evictions, shrinks, peak, .. } = report;
                let largest = programs.iter().map(|program| program.peak / budget).fold(0.0, f64::max);
                println!(
                    "grows {name}, largest {largest:.2}: {ratio:.3} x ideal, {evictions} evictions, {shrinks} \
                     shrinks, peak {:.3}",
                    peak / budget
                );
                assert_eq!((report.stops, report.overdrafts), (0, 0));
                assert!(ratio <= bound, "{ratio} {report:?}");
                assert!(peak <= promised(&programs, &machine), "{report:?}");
            }
        }
    }
}

/// Memory for fewer at their peaks than there are processors: ranks seldom need the most at the same moment.
#[test]
fn processors_are_not_idle_for_peaks_that_are_not_there() {
    // Without overbooking 2.0 and 2.6, and at once, where there is nothing to gain, 2.5 and 2.8.
    let bounds = [
        (2, 1.6, [(Curve::Even, 1.25), (Curve::Late, 1.15), (Curve::Saw(4), 2.0), (Curve::Flat, 2.7)]),
        (8, 5.0, [(Curve::Even, 1.5), (Curve::Late, 1.4), (Curve::Saw(4), 2.4), (Curve::Flat, 3.2)]),
    ];
    for (processors, fit, bounds) in bounds {
        for disk in [4e9, 1e9] {
            for (curve, bound) in bounds {
                let mut ratios: Vec<f64> =
                    (11..20).map(|seed| overbooked(seed, curve, processors, fit, disk)).collect();
                ratios.sort_by(f64::total_cmp);
                let (median, most) = (ratios[ratios.len() / 2], ratios[ratios.len() - 1]);
                println!(
                    "{processors} processors, {fit} fit, {curve:?}, {disk:e} B/s: {median:.3} x ideal, at most {most:.3}"
                );
                // Where the first tries cost more than they gained it is given up for a while.
                assert!(median <= bound && most <= bound * 1.4, "{ratios:?}");
            }
        }
    }
}

/// 120 ranks, of which so many of the mean fit: their time by the ideal.
fn overbooked(seed: u64, curve: Curve, processors: u32, fit: f64, disk: f64) -> f64 {
    let mut draw = Draw::new(seed);
    let peaks: Vec<f64> = (0..120).map(|_| (150.0 + draw.below(231) as f64) * MB).collect();
    let programs: Vec<Program> = peaks.iter().map(|&peak| Program::new(peak, peak / 132e6, curve)).collect();
    let machine = Machine { disk, ..Machine::new((fit * 265.0 * MB) as u64, processors) };
    let report = run(&programs, Machine { check: 0, ..machine });
    assert!(report.peak <= promised(&programs, &machine), "{report:?}");
    assert_eq!((report.stops, report.overdrafts), (0, 0));
    report.time / ideal(&programs, &machine, &report)
}

#[test]
fn a_hundred_thousand_ranks() {
    let mut draw = Draw::new(5);
    let mut program = || {
        let peak = 20.0 * MB + draw.below(400) as f64 * MB;
        Program { declared: Some(peak as u64 / 3), ..Program::new(peak, peak / SPEED / 4.0, Curve::Even) }
    };
    let programs: Vec<Program> = (0..100_000).map(|_| program()).collect();
    let machine = Machine { check: 0, disk: 4e9, ..Machine::new(8_000_000_000, 32) };
    let report = run(&programs, machine);
    let ratio = report.time / ideal(&programs, &machine, &report);
    println!("{} events, {} looks, {ratio:.3} x ideal", report.events, report.looks);
    assert_eq!((report.stops, report.overdrafts), (0, 0));
    assert!(report.most_evictions <= 20);
}

/// What the core itself costs: `cargo test --release -p bdrun a_million_ranks -- --ignored --nocapture`.
/// Needs 2 GiB.
#[test]
#[ignore = "a measurement"]
fn a_million_ranks() {
    let natives = vec![Program::native(MIB, 3, Exchange::Barrier); 1_000_000];
    let mut draw = Draw::new(5);
    let mut stranger = || {
        let peak = 20.0 * MB + draw.below(400) as f64 * MB;
        Program { declared: Some(peak as u64 / 3), ..Program::new(peak, peak / SPEED / 4.0, Curve::Even) }
    };
    let strangers: Vec<Program> = (0..1_000_000).map(|_| stranger()).collect();
    let sweep = machine(100_000 * MIB, 200_000);
    let cluster = Machine { disk: 4e9, ..Machine::new(8_000_000_000, 32) };
    for (what, job, machine) in [("ask and tell", natives, sweep), ("do neither", strangers, cluster)] {
        let begun = std::time::Instant::now();
        let report = run(&job, Machine { check: 0, ..machine });
        let (each, all) = (report.core_time / report.events as f64, begun.elapsed().as_secs_f64());
        println!(
            "{} events of ranks that {what}: {:.2} us each, {all:.1} s with the simulator",
            report.events,
            each * 1e6
        );
        finished(&report);
    }
}

#[test]
fn ranks_that_sleep_leave_no_processor_idle() {
    let sleeper = Program { sleeps: Some(0.0), ..Program::new(MB, 5.0, Curve::Flat) };
    let report = run(&vec![sleeper; 200], Machine::new(4_000_000_000, 2));
    assert!(report.time < 60.0, "{} s, one after the other on two processors 500", report.time);
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
        known in proptest::option::weighted(0.3, prop_oneof![Just(1.0), 0.2..5.0]),
    ) -> Program {
        let peak = peak * MB;
        let work = f64::max(seconds, curve.steepest() * peak / 1e9);
        let declared = declared.map(|factor| (peak / factor) as u64);
        let known = known.map(|factor| (peak * factor) as u64);
        Program { declared, known, ..Program::new(peak, work, curve) }
    }
}

prop_compose! {
    fn machines()(
        budget in 600_u64..1200, processors in 1_u32..9, resident in 1_u32..20, disk in 0.2..2.0, latency in 0.002..0.03,
        holding in 0.001..0.01, seed in 1_u64..,
        alive in proptest::option::weighted(0.2, 1_u32..10),
    ) -> Machine {
        let machine = Machine::new(budget * 1_000_000, processors);
        let limits = Limits { resident, alive: alive.unwrap_or(u32::MAX), ..machine.limits };
        // What costs most of the time of a job is done less often where there are many.
        let check = if is_soak() { 50 } else { 1 };
        Machine { limits, disk: disk * 1e9, latency, holding, seed, check, ..machine }
    }
}

/// What the programs that can compute at one moment can grow by, bytes a second.
fn growth(programs: &[Program], machine: &Machine) -> f64 {
    let mut fastest: Vec<f64> = programs.iter().map(Program::fastest).collect();
    fastest.sort_by(|one, other| other.total_cmp(one));
    fastest.iter().take(machine.limits.processors as usize).sum()
}

/// From growth until an order takes effect: the shortest time between looks, and until the ranks stand still,
/// seconds.
fn reaction(machine: &Machine) -> f64 {
    0.004 + machine.latency.max(machine.holding)
}

/// The most bytes of RAM that may be used at once: what grows until an order takes effect may exceed the
/// budget, unless that is little. One that is larger than the budget grows before it stands to leave, comes
/// back with that, and grows again until parts of it leave.
fn promised(programs: &[Program], machine: &Machine) -> f64 {
    let budget = machine.limits.budget as f64;
    let grows = growth(programs, machine) * reaction(machine);
    let larger = programs.iter().filter(|program| program.peak > budget).map(Program::fastest);
    let again = larger.fold(0.0, f64::max) * reaction(machine);
    budget + if grows <= budget / 128.0 { 0.0 } else { grows + again }
}

proptest! {
    #![proptest_config(config())]

    /// Where all can be paged nobody is stopped, the budget holds but for what grows before an order takes
    /// effect, and nobody goes out and in for ever.
    #[test]
    fn the_budget_holds(programs in proptest::collection::vec(programs(), 1..40), machine in machines()) {
        let report = run(&programs, machine);
        prop_assert_eq!((report.stops, report.overdrafts, report.over_limit), (0, 0, 0));
        let most = promised(&programs, &machine);
        prop_assert!(report.peak <= most, "peak {} of {}, {:?}", report.peak, most, report);
        prop_assert!(report.most_evictions <= 20, "{:?}", report);
    }

    /// Ranks come while it runs: all of them end, within the same bounds.
    #[test]
    fn jobs_to_which_ranks_come_end(
        programs in proptest::collection::vec(programs(), 1..40), machine in machines(),
        comes in prop_oneof![0.001..0.1, 0.1..3.0], chaos in 0_u8..100, shared in any::<bool>(),
    ) {
        // Of those that are read from a list while it is written nothing is known.
        let unknown = |program| Program { declared: None, known: None, ..program };
        let programs: Vec<_> = if shared { programs } else { programs.into_iter().map(unknown).collect() };
        let machine = Machine { comes, chaos, shared, ..machine };
        let report = run(&programs, machine);
        prop_assert_eq!(report.end, Some(Effect::Finish));
        prop_assert_eq!((report.stops, report.overdrafts, report.over_limit), (0, 0, 0));
        prop_assert_eq!(report.order.len(), programs.len());
        prop_assert!(report.time >= comes * programs.len() as f64, "the last has come by then");
        if chaos == 0 {
            let most = promised(&programs, &machine);
            prop_assert!(report.peak <= most, "peak {} of {}, {:?}", report.peak, most, report);
        }
    }

    /// Whatever goes wrong, every rank ends, and only those that may not go on are killed. Where ranks can be
    /// held, there is room on scratch and no measure is late, the budget holds as well, or it is said that it
    /// does not. That the oldest is never stopped, and that somebody goes on at any moment, is checked after
    /// every event.
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
        // Those who wait for each other in a circle would wait for ever: by a drawn order each waits for one
        // before it, be that one older or younger.
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
        let limits = Limits { enforce, rank_limit, ..machine.limits };
        for program in &mut programs {
            program.can = Can { evict: may_page, hold: may_freeze, rerun: may_stop, ..Can::PROGRAM };
        }
        let scratch = scratch.map_or(f64::INFINITY, |scratch| scratch * MB);
        let machine = Machine { limits, refused, late, chaos, scratch, ..machine };
        let report = run(&programs, machine);
        let over = |program: &&Program| rank_limit.is_some_and(|limit| program.peak > limit as f64);
        // Only where nobody can be paged, and nobody may be stopped, or nobody else for one that was.
        let can_page = may_page && may_freeze && refused == 0 && scratch.is_infinite();
        let can_page = can_page && programs.iter().all(Program::is_pageable);
        let sure = may_stop || can_page;
        let over = programs.iter().filter(over).count() as u64;
        prop_assert!((enforce && !sure) || report.over_limit <= over, "{:?}", report);
        prop_assert!(!can_page || report.overdrafts == 0, "{:?}", report);
        prop_assert!(!may_stop || report.stops > 0 || report.overdrafts == 0, "{:?}", report);
        prop_assert!(report.stops <= 20 * programs.len() as u64, "{:?}", report);
        let holds = may_freeze && scratch.is_infinite() && late == 0 && report.overdrafts == 0;
        let most = promised(&programs, &machine);
        prop_assert!(!holds || report.peak <= most, "peak {} of {}, {:?}", report.peak, most, report);
    }

    /// Single ranks that need more than there is: run in parts, or told, or, enforced, killed.
    #[test]
    fn ranks_larger_than_the_budget_end(
        programs in proptest::collection::vec(programs(), 1..20), machine in machines(), factor in 1.0..4.0,
        may_page: bool, enforce: bool,
    ) {
        let programs: Vec<Program> = programs.into_iter()
            .map(|program| Program { peak: program.peak * factor, work: program.work * factor, ..program })
            .map(|program| Program { can: Can { evict: may_page, ..program.can }, ..program })
            .collect();
        let limits = Limits { enforce, ..machine.limits };
        let report = run(&programs, Machine { limits, ..machine });
        let budget = machine.limits.budget as f64;
        let larger = programs.iter().filter(|program| program.peak > budget).count() as u64;
        let (killed, told) = if enforce { (larger, 0) } else { (0, larger) };
        if may_page {
            prop_assert_eq!((report.over_limit, report.overdrafts, report.stops), (0, 0, 0));
            let most = promised(&programs, &machine) + machine.disk / 8.0 * reaction(&machine);
            prop_assert!(report.peak <= most, "peak {} of {}, {:?}", report.peak, most, report);
        } else {
            prop_assert!(report.over_limit <= killed && report.overdrafts <= told, "{:?}", report);
        }
    }
}

/// More jobs than in the suite are asked for.
fn is_soak() -> bool {
    std::env::var_os("RESIDENCY_CASES").is_some()
}

/// With `RESIDENCY_CASES` so many jobs of each kind, drawn anew; else always the same ones.
fn config() -> ProptestConfig {
    let cases = std::env::var("RESIDENCY_CASES").ok().and_then(|cases| cases.parse().ok());
    match cases {
        Some(cases) => ProptestConfig { cases, ..ProptestConfig::default() },
        None => ProptestConfig { cases: 100, rng_seed: RngSeed::Fixed(13), ..ProptestConfig::default() },
    }
}

/// Whether something is so, in so many of all cases.
fn weighted(part: f64) -> impl Strategy<Value = bool> {
    proptest::bool::weighted(part)
}

/// What is wrong with a program.
#[derive(Debug, Clone)]
struct Fault {
    fixed: Option<f64>,
    silent: bool,
    sleeps: Option<f64>,
    unpageable: bool,
    waits_for: Option<Rank>,
    polls: f64,
}

impl Fault {
    fn of(self, program: Program) -> Program {
        let Self { fixed, silent, sleeps, unpageable, waits_for, polls } = self;
        let fixed = fixed.map_or(0.0, |part| part * program.peak);
        Program { fixed, silent, sleeps, unpageable, waits_for, polls, ..program }
    }
}

prop_compose! {
    /// Faults of the next of `np` programs. It may wait for one of them.
    fn faults(np: usize)(
        fixed in proptest::option::weighted(0.2, 0.0..1.0),
        silent in weighted(0.5),
        sleeps in proptest::option::weighted(0.2, 0.0..0.1),
        unpageable in weighted(0.2),
        waits_for in proptest::option::weighted(0.4, 0..np as Rank),
        polls in prop_oneof![Just(0.0), 0.0..0.08],
    ) -> Fault {
        Fault { fixed, silent, sleeps, unpageable, waits_for, polls }
    }
}

prop_compose! {
    /// A rank that asks for up to 60 MB in phases of up to 0.1 s, and meets the others.
    fn natives()(
        asks in 0_u64..60, growth in 0_u64..12, chunk in 1_u64..24, shrinks: bool, phases in 1_u32..6, seconds in 0.001..0.1,
        other in prop_oneof![Just(0.0), 0.0..20.0], curve in curves(), preempt: bool, mute in weighted(0.3),
        known in proptest::option::weighted(0.3, 1_u64..80), ending in prop_oneof![Just(0.0), 0.0..0.2],
    ) -> Program {
        let scale = 1_000_000;
        let work = f64::max(seconds * f64::from(phases), curve.steepest() * other * MB / 1e9);
        Program {
            asks: asks * scale, growth: growth * scale, chunk: chunk * scale, shrinks, work,
            peak: other * MB, curve, can: Can { preempt, ..Can::NATIVE }, mute: mute && preempt,
            known: known.map(|bytes| bytes * scale), ending,
            ..Program::native(0, phases, Exchange::Nothing)
        }
    }
}

fn exchanges() -> impl Strategy<Value = Exchange> {
    prop_oneof![Just(Exchange::Nothing), Just(Exchange::Barrier), Just(Exchange::Ring), Just(Exchange::Token)]
}

prop_compose! {
    /// Memory for few of these, and whatever goes wrong.
    fn small_machines()(
        machine in machines(), budget in 20_u64..300, first_reserve in 0_u64..40, moves in 1_u32..6, part in 1_u64..40, ahead in 0_u64..100,
        lag in prop_oneof![Just(0.0), 0.0..0.02], refused in prop_oneof![Just(0_u8), 0_u8..60], denied in 0_u8..120, unseen: u8,
        chaos in 0_u8..60, leaves in 0_u8..120, late in prop_oneof![Just(0), 0_u8..100],
        elastic in prop_oneof![2 => Just(0), 1 => 0_u8..60],
    ) -> Machine {
        let mb = 1_000_000;
        let limits = Limits {
            budget: budget * mb, first_reserve: first_reserve * mb, moves, part: part * mb, ahead: ahead * mb, ..machine.limits
        };
        Machine { limits, lag, refused, denied, unseen, chaos, leaves, late, elastic, ..machine }
    }
}

proptest! {
    #![proptest_config(config())]

    /// Ranks that ask and tell: whatever goes wrong, the job ends well; no rank waits unreasonably long.
    #[test]
    fn every_native_job_ends(
        mut programs in proptest::collection::vec(natives(), 1..40), exchange in exchanges(), message in 0_u64..3_000_000,
        machine in small_machines(), other: bool,
    ) {
        for program in &mut programs {
            *program = Program { exchange, message, phases: programs_phases(exchange, program.phases), ..program.clone() };
            if !other {
                program.peak = 0.0;
            }
        }
        let machine = of_ranks(exchange, machine);
        let report = run(&programs, machine);
        prop_assert!(ends_well(&report, &machine), "{:?}", report);
        // Who does not tell when it waits passes others again and again.
        let mute = programs.iter().any(|program| program.mute);
        prop_assert!(mute || report.longest_wait <= 4 * programs.len() as u64 + 8, "{:?}", report);
        let budget = machine.limits.budget as f64;
        prop_assert!(other || report.peak <= budget || report.overdrafts > 0, "{:?}", report);
    }

    /// With little scratch a job ends well or says that scratch is full; with an enforced limit it is never
    /// exceeded.
    #[test]
    fn scarce_scratch_and_enforced_limits(
        mut programs in proptest::collection::vec(natives(), 1..40), exchange in exchanges(), message in 0_u64..3_000_000,
        machine in small_machines(), scratch in 0.0..300.0, enforce: bool,
    ) {
        for program in &mut programs {
            *program = Program { exchange, message, peak: 0.0, phases: programs_phases(exchange, program.phases), ..program.clone() };
        }
        let machine = of_ranks(exchange, machine);
        let limits = Limits { enforce, ..machine.limits };
        let report = run(&programs, Machine { limits, scratch: scratch * MB, ..machine });
        let legal = match &report.end {
            Some(Effect::Finish | Effect::Fail(Failure::ScratchFull { .. })) => true,
            Some(Effect::Fail(Failure::RankTooLarge { .. })) => enforce,
            Some(Effect::Fail(Failure::Unpageable { .. })) => machine.refused > 0,
            _ => false,
        };
        prop_assert!(legal, "{:?}", report);
        prop_assert!(!enforce || report.peak <= limits.budget as f64, "{:?}", report);
    }
}

/// Of ranks that talk to one another all are alive at once.
fn of_ranks(exchange: Exchange, machine: Machine) -> Machine {
    let alive = if exchange == Exchange::Nothing { machine.limits.alive } else { u32::MAX };
    Machine { limits: Limits { alive, ..machine.limits }, ..machine }
}

/// A job whose ranks refuse to leave may have no place for another.
fn ends_well(report: &Report, machine: &Machine) -> bool {
    let unpageable = matches!(report.end, Some(Effect::Fail(Failure::Unpageable { .. })));
    report.end == Some(Effect::Finish) || (machine.refused > 0 && unpageable)
}

/// Those that meet have the same number of phases.
fn programs_phases(exchange: Exchange, phases: u32) -> u32 {
    if exchange == Exchange::Nothing { phases } else { 4 }
}

/// A rank of any kind.
fn anybody(np: usize) -> impl Strategy<Value = Program> {
    let program = (programs(), faults(np), weighted(0.8), weighted(0.8), weighted(0.3), 0..30_u32);
    let program = program.prop_map(|(program, fault, evict, hold, rerun, fails)| {
        let fails = fails.saturating_sub(27);
        let can = Can { evict, hold, rerun, ..Can::PROGRAM };
        fault.of(Program { can, fails, peak: program.peak / 8.0, work: program.work / 8.0, ..program })
    });
    let joins = (programs(), natives(), 0.05..0.9).prop_map(|(program, native, joins)| {
        let can = Can::PROGRAM;
        let (peak, work) = (program.peak / 8.0, program.work / 8.0 + native.work);
        Program { can, joins: Some(joins), curve: program.curve, peak, work, ..native }
    });
    prop_oneof![3 => program, 3 => natives(), 2 => joins]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: if is_soak() { config().cases } else { 10 }, ..config() })]

    /// All kinds in one job, that wait for one another in both directions: it ends, nobody waits for ever,
    /// and the budget is kept, or it is said that it is not.
    #[test]
    fn every_mixed_job_ends(
        mut programs in (1_usize..24).prop_flat_map(|np| proptest::collection::vec(anybody(np), np)),
        exchange in exchanges(), message in 0_u64..3_000_000, machine in small_machines(), natives_wait: bool,
    ) {
        // Who meets waits for all that meet. So nobody waits for one of them who is waited for: by a drawn
        // order each waits for one before it, and all that meet stand at one place of it.
        let mut draw = Draw::new(machine.seed);
        let mut place: Vec<u64> = programs.iter().map(|_| 1 + draw.below(1000)).collect();
        for (program, place) in programs.iter_mut().zip(&mut place) {
            if program.can.tells || program.joins.is_some() {
                program.exchange = exchange;
                program.message = message;
                program.phases = programs_phases(exchange, program.phases);
                *place = if natives_wait { 1001 } else { 0 };
            }
        }
        for rank in 0..programs.len() {
            let waits_for = programs[rank].waits_for;
            programs[rank].waits_for = waits_for.filter(|&other| place[other as usize] < place[rank]);
        }
        let machine = of_ranks(exchange, machine);
        let report = run(&programs, machine);
        let stays = |program: &Program| program.unpageable || !program.can.evict || program.fixed > 0.0;
        let no_place = programs.iter().any(stays) && matches!(report.end, Some(Effect::Fail(Failure::Unpageable { .. })));
        prop_assert!(no_place || ends_well(&report, &machine), "{:?}", report);
        let mute = programs.iter().any(|program| program.mute);
        prop_assert!(mute || report.longest_wait <= 8 * programs.len() as u64 + 16, "{:?}", report);
        let holds = machine.late == 0 && report.overdrafts == 0 && programs.iter().all(|program| program.can.asks || program.can.hold);
        // What those that tell take without asking nobody can stop before they wait, unless they can be
        // interrupted.
        let tells = |program: &Program| program.can.asks || program.joins.is_some();
        let stops = |program: &Program| program.can.preempt || program.mute;
        let unstopped = |program: &&Program| tells(program) && !stops(program);
        let unasked: f64 = programs.iter().filter(unstopped).map(|program| program.peak).sum();
        // Those are looked at every 20 ms, and go on until the order takes effect.
        let interrupted: Vec<Program> = programs.iter().filter(|program| tells(program) && stops(program)).cloned().collect();
        let seldom = growth(&interrupted, &machine) * (0.02 + reaction(&machine));
        let most = promised(&programs, &machine) + unasked + seldom;
        prop_assert!(!holds || report.peak <= most, "peak {} of {}, {:?}", report.peak, most, report);
    }
}

/// Ranks that ask for little and take much besides: who computes is interrupted, so that the budget holds.
#[test]
fn ranks_that_compute_are_interrupted_for_what_others_took_unasked() {
    let rank = |preempt| Program {
        can: Can { preempt, ..Can::NATIVE },
        peak: 60.0 * MB,
        curve: Curve::Even,
        work: 2.0,
        ..Program::native(MIB, 1, Exchange::Nothing)
    };
    let machine = Machine::new(200 * MIB, 4);
    let without = run(&vec![rank(false); 8], machine);
    finished(&without);
    assert!(without.overdrafts > 0 && without.peak > 300.0 * MB, "{without:?}");
    let report = run(&vec![rank(true); 8], machine);
    finished(&report);
    assert!(report.preemptions > 0 && report.overdrafts == 0, "{report:?}");
    assert!(report.peak <= machine.limits.budget as f64, "{report:?}");
}
