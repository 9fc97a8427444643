//! A simulated job that is recorded and simulated again does the same; whatever decides, jobs end.

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{RngSeed, TestRunner};

use super::record::{RankRecord, Record};
use super::show::{Answer, text};
use super::{Job, Outcome, Rates, Setting};
use crate::history::{Leg, On};
use crate::residency::sim::{self, Curve, Did, Machine, Policy, Program, Recorder, Report, Step, Then};
use crate::residency::{Can, Effect, Limits, Rank};

const MB: u64 = 1_000_000;

/// A job of ranks that compute, exchange messages and meet.
#[derive(Debug, Clone)]
struct Drawn {
    programs: Vec<Program>,
    largest: u64,
    all: u64,
}

prop_compose! {
    /// Up to 24 ranks; in each of up to six phases each computes, holds something, and then all meet, or each
    /// waits for the one before it, or nobody for anybody.
    /// `steady`: each holds the same all the time, and takes it at once.
    fn jobs(steady: bool)(
        ranks in proptest::collection::vec((1_u64..40, 1_u64..400, 0.0..1.0), 2..24),
        meets in proptest::collection::vec(0_u8..3, 1..6),
        starting in 0.001..0.02, ending in 0.0..0.02, fill in 0.3..1.0, dirty in 0.3..1.0,
    ) -> Drawn {
        let np = ranks.len() as u32;
        let mut gates = 0;
        let mut scripts = vec![Vec::new(); ranks.len()];
        for (phase, meet) in meets.iter().enumerate() {
            let first = gates;
            gates += match meet { 0 => 0, 1 => 1, _ => np };
            for (rank, (size, millis, part)) in (0..np).zip(&ranks) {
                let holds = size * MB;
                let more = holds as f64 * part * if phase % 2 == 0 { 1.0 } else { 0.2 };
                let most = if steady { holds } else { holds + more as u64 };
                let (opens, then) = match meet {
                    // Nobody waits for anybody, but each does, as for a disk.
                    0 => (vec![], Then::Pause(0.002 + f64::from(rank % 5) * 0.003)),
                    1 => (vec![first], Then::Gate { gate: first, from: None }),
                    _ => {
                        let from = (rank + np - 1) % np;
                        (vec![first + rank], Then::Gate { gate: first + from, from: Some(from) })
                    }
                };
                let work = *millis as f64 / 1e3 * (1.0 + f64::from(rank) * 0.01);
                scripts[rank as usize].push(Step { work, most, holds, needs: 0, opens, then });
            }
        }
        let chunk = if steady { u64::MAX } else { MB };
        let programs: Vec<Program> = scripts.into_iter().map(|script| Program {
            can: Can::NATIVE, script: script.clone().into(), tokens: true, starting, ending, fill, dirty, chunk,
            ..Program::new(0.0, script.iter().map(|step: &Step| step.work).sum(), Curve::Flat)
        }).collect();
        let most = |program: &Program| program.script.iter().map(|step| step.most).max().unwrap_or(0);
        let sizes: Vec<u64> = programs.iter().map(most).collect();
        Drawn { largest: sizes.iter().copied().max().unwrap_or(0), all: sizes.iter().sum(), programs }
    }
}

fn machine(budget: u64, processors: u32) -> Machine {
    let machine = Machine {
        disk: 1.5e9,
        read: 0.7e9,
        beside: (0.002, 0.001),
        hears: 0.0005,
        group: 64 << 20,
        check: 1,
        ..Machine::new(budget, processors)
    };
    Machine { limits: Limits { ahead: budget / 3, moves: 2 * processors, ..machine.limits }, ..machine }
}

/// What such a job would have told of itself.
fn record(programs: &[Program], machine: &Machine, report: &Report, told: &Recorder) -> Record {
    let mut ranks = vec![RankRecord { can: Can::NATIVE, ..RankRecord::default() }; programs.len()];
    let mut open: Vec<Option<Leg>> = vec![None; programs.len()];
    for &(t, rank, did) in told {
        let (rank, open) = (&mut ranks[rank as usize], &mut open[rank as usize]);
        match did {
            Did::Start(after) => {
                (rank.ordered, rank.begun) = (t, t + after);
                *open = Some(Leg { began: t + after, ..Leg::default() });
            }
            Did::Wait { then, held, most } => {
                let on = match then {
                    Then::Nothing => On::Memory,
                    Then::Gate { gate, from: None } => On::Collective { comm: 0, number: u64::from(gate) },
                    Then::Gate { from, .. } => On::Message { from },
                    Then::Pause(_) => On::Other,
                };
                *open = Some(Leg { began: t, on, held, most, ..Leg::default() });
            }
            Did::Woken(by) => {
                if let Some(open) = open {
                    (open.woken, open.waker) = (t, Some(by));
                }
            }
            Did::Rested => {
                if let Some(open) = open {
                    open.woken = t;
                }
            }
            Did::Run => {
                if let Some(leg) = open.take() {
                    let woken = if leg.woken > leg.began { leg.woken } else { t };
                    rank.legs.push(Leg { ran: t, woken, ..leg });
                }
            }
            Did::Done { held, most } => {
                rank.legs.push(Leg { began: t, woken: t, ran: t, held, most, ..Leg::default() })
            }
            Did::Gone => rank.ended = t,
        }
    }
    for (rank, program) in ranks.iter_mut().zip(programs) {
        // As if of what was moved so much had been of use.
        if let Some(last) = rank.legs.last_mut() {
            last.moved = [(program.fill * 1e9) as u64, 0, 0, 0, 1_000_000_000];
        }
    }
    let (moved_out, moved_in) = (report.moved_out as u64, report.moved_in as u64);
    Record {
        version: 1,
        line: String::new(),
        status: "ok".into(),
        wall_s: report.time,
        around_s: 0.0,
        limits: machine.limits,
        budgets: None,
        evicted: moved_out,
        restored: moved_in,
        written: report.written as u64,
        read: moved_in,
        rates: Rates {
            out: machine.disk,
            back: machine.read,
            out_s: machine.beside.0,
            back_s: machine.beside.1,
            hears_s: machine.hears,
        },
        max_resident: report.resident,
        running_s: report.used,
        ranks,
    }
}

/// What looks at a rank that does not tell would have seen.
fn seen(program: &Program) -> RankRecord {
    let at = |n: u32| {
        let part = f64::from(n) / 40.0;
        (program.work * part, (program.peak * part) as u64)
    };
    RankRecord {
        can: program.can,
        begun: program.starting,
        ended: program.work + program.starting,
        ran_s: program.work,
        peak: program.peak as u64,
        sizes: (0..=40).map(at).collect(),
        ..RankRecord::default()
    }
}

fn again(programs: &[Program], machine: Machine) -> (Report, Outcome) {
    let (report, told) = sim::run_recorded(programs, machine, Some(Recorder::new()));
    assert_eq!(report.end, Some(Effect::Finish), "{report:?}");
    let record = record(programs, &machine, &report, &told.unwrap_or_default());
    // As it is written and read back.
    let text = serde_json::to_string(&record).unwrap();
    let record: Record = serde_json::from_str(&text).unwrap();
    let job = Job::recorded(&record);
    (report, job.run(job.as_it_was()))
}

fn is_near(a: f64, b: f64, part: f64, least: f64) -> bool {
    (a - b).abs() <= part * a.max(b) + least
}

fn config() -> ProptestConfig {
    ProptestConfig { cases: 60, rng_seed: RngSeed::Fixed(21), ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(config())]

    /// A job that fits takes as long again, and moves nothing.
    #[test]
    fn a_job_that_fits_is_the_same_again(job in jobs(false), processors in 1_u32..6) {
        let machine = machine(2 * job.all + 64 * MB, processors);
        let (was, now) = again(&job.programs, machine);
        prop_assert!(is_near(was.time, now.wall_s, 0.01, 1e-4), "{} and {}", was.time, now.wall_s);
        prop_assert_eq!((was.moved_out, now.written_bytes, now.read_bytes), (0.0, 0, 0));
        prop_assert!(now.ends && now.fits && now.max_resident == was.resident);
    }

    /// Whoever decides, a job ends, and within its budget if its ranks do.
    #[test]
    fn jobs_end_under_every_policy(job in jobs(false), processors in 1_u32..6, part in 0.2..1.2, resident in 1_u32..30) {
        let budget = ((job.all as f64 * part) as u64).max(2 * job.largest);
        for policy in [Policy::Ours, Policy::Fifo, Policy::Lru] {
            let machine = Machine { policy, ..machine(budget, processors) };
            let machine = Machine { limits: Limits { resident, ..machine.limits }, ..machine };
            let report = sim::run(&job.programs, machine);
            prop_assert_eq!(report.end, Some(Effect::Finish), "{:?}", policy);
            prop_assert!(report.overdrafts > 0 || report.peak <= budget as f64, "{:?}: {:?}", policy, report);
        }
    }

    /// Programs that do not tell: from what they were seen to hold they are made again.
    #[test]
    fn strangers_are_the_same_again(
        ranks in proptest::collection::vec((20_u64..200, 100_u64..2000), 2..30), processors in 1_u32..5, part in 0.4..1.5,
    ) {
        let all: u64 = ranks.iter().map(|&(size, _)| size * MB).sum();
        let largest = ranks.iter().map(|&(size, _)| size * MB).max().unwrap_or(0);
        let programs: Vec<Program> = ranks.iter()
            .map(|&(size, millis)| Program::new((size * MB) as f64, millis as f64 / 1e3, Curve::Even))
            .collect();
        let machine = Machine { latency: 0.003, holding: 0.002, ..machine(((all as f64 * part) as u64).max(2 * largest), processors) };
        let report = sim::run(&programs, machine);
        let told = record(&[], &machine, &report, &Recorder::new());
        let record = Record { ranks: programs.iter().map(seen).collect(), ..told };
        let job = Job::recorded(&record);
        let now = job.run(job.as_it_was());
        prop_assert!(is_near(report.time, now.wall_s, 0.02, 1e-3), "{} and {}", report.time, now.wall_s);
        let bytes = (report.moved_in, now.read_bytes as f64);
        prop_assert!(is_near(bytes.0, bytes.1, 0.05, largest as f64 / 4.0), "{:?}", bytes);
        for policy in [Policy::Fifo, Policy::Lru] {
            let outcome = job.run(Setting { policy, ..job.as_it_was() });
            prop_assert!(outcome.ends, "{:?}", policy);
        }
    }
}

/// By how much of its time, and of the bytes that it wrote and read, each of these jobs differs if it is
/// simulated again; in order.
fn differences(steady: bool) -> [Vec<f64>; 3] {
    let mut runner = TestRunner::new(config());
    let mut all = <[Vec<f64>; 3]>::default();
    for _ in 0..200 {
        let drawn = (jobs(steady), 1_u32..6, 0.3..0.9).new_tree(&mut runner).unwrap().current();
        let (job, processors, part) = drawn;
        let budget = ((job.all as f64 * part) as u64).max(job.largest + 8 * MB);
        let (was, now) = again(&job.programs, machine(budget, processors));
        assert!(now.ends, "{job:?} {processors} {part}");
        let pairs = [
            (was.time, now.wall_s),
            (was.written, now.written_bytes as f64),
            (was.moved_in, now.read_bytes as f64),
        ];
        for (of, (was, now)) in all.iter_mut().zip(pairs) {
            if was.max(now) > 0.0 {
                of.push((now - was).abs() / was.max(now));
            }
        }
    }
    all.iter_mut().for_each(|of| of.sort_by(f64::total_cmp));
    all
}

/// Half of all, nine of ten, and all of them.
fn quantiles(sorted: &[f64]) -> [f64; 3] {
    [sorted.len() / 2, sorted.len() * 9 / 10, sorted.len() - 1].map(|at| sorted[at])
}

/// One that does not fit takes as long, and moves as much. Not always to the byte: who of two that come at
/// the same moment is first decides who leaves, and what follows from that. The bar of what is told to users
/// is 15 %.
#[test]
fn a_job_that_does_not_fit_is_the_same_again() {
    let all = differences(true).map(|of| quantiles(&of));
    for (of, most) in all.iter().zip([[1e-6, 0.01, 0.15], [1e-6, 0.01, 0.6], [1e-6, 0.01, 0.6]]) {
        assert!(of.iter().zip(most).all(|(of, most)| *of <= most), "{of:?} and {most:?} of {all:?}");
    }
}

/// The same if memory is taken bit by bit, and what a rank holds is not the same at each wait: that is not
/// recorded, nor what it holds at a meeting to which it comes last. It is near in time, less so in bytes.
#[test]
fn what_is_not_recorded_makes_little_difference() {
    let [time, written, read] = differences(false).map(|of| quantiles(&of));
    let most = [0.01, 0.08, 0.25];
    assert!(time.iter().zip(most).all(|(of, most)| *of <= most), "{time:?} and {most:?}");
    assert!(written[0] <= 0.2 && read[0] <= 0.2, "half of all jobs: {written:?} {read:?}");
}

#[test]
fn with_less_memory_more_moves_and_with_all_of_it_nothing() {
    let size = 20 * MB;
    let np = 12;
    let script = |rank: Rank| -> Vec<Step> {
        let step = |gate| Step {
            work: 0.05 + f64::from(rank) * 1e-4,
            most: size,
            holds: size,
            needs: 0,
            opens: vec![gate],
            then: Then::Gate { gate, from: None },
        };
        (0..5).map(step).collect()
    };
    let programs: Vec<Program> = (0..np)
        .map(|rank| Program {
            can: Can::NATIVE,
            script: script(rank).into(),
            tokens: true,
            chunk: MB,
            ..Program::new(0.0, 5.0 * (0.05 + f64::from(rank) * 1e-4), Curve::Flat)
        })
        .collect();
    let machine = machine(6 * size, 2);
    let (report, told) = sim::run_recorded(&programs, machine, Some(Recorder::new()));
    let record = record(&programs, &machine, &report, &told.unwrap());
    let job = Job::recorded(&record);
    let was = job.as_it_was();
    let bytes = |budget_bytes: u64| job.run(Setting { budget_bytes, ..was }).written_bytes;
    let (half, whole, twice) =
        (bytes(was.budget_bytes / 2), bytes(was.budget_bytes), bytes(2 * was.budget_bytes));
    assert!(half > whole && whole > twice, "{half} {whole} {twice}");
    let all = job.run(job.in_ram(was));
    assert!(all.fits && all.written_bytes == 0 && all.wall_s < job.run(was).wall_s, "{all:?}");
    let (smallest, outcome) = job.smallest(was).unwrap();
    assert!(
        outcome.fits && smallest.budget_bytes >= size && smallest.budget_bytes < 3 * size,
        "{smallest:?}"
    );
    let slow = {
        let mut job = Job::recorded(&record);
        job.set_disk(1e8, 1e8);
        job.run(was)
    };
    assert!(slow.wall_s > 2.0 * job.run(was).wall_s, "{slow:?}");
}

/// Of a job with `-j` as many live as compute, whatever that is.
#[test]
fn a_job_with_jobs_is_tried_with_more_processors() {
    let programs: Vec<Program> = (0..8).map(|_| Program::new((20 * MB) as f64, 1.0, Curve::Even)).collect();
    let machine = machine(1000 * MB, 1);
    let machine = Machine { limits: Limits { alive: 1, ..machine.limits }, ..machine };
    let report = sim::run(&programs, machine);
    let told = record(&[], &machine, &report, &Recorder::new());
    let job = Job::recorded(&Record { ranks: programs.iter().map(seen).collect(), ..told });
    let with = |processors| job.run(Setting { processors, ..job.as_it_was() });
    let (was, more) = (with(1), with(4));
    assert!(was.ends && more.ends && more.wall_s < 0.5 * was.wall_s, "{was:?} {more:?}");
    assert_eq!((was.max_resident, more.max_resident), (1, 4));
}

/// The simulator knows one budget for a row.
#[test]
fn a_budget_that_changed_is_said() {
    let machine = machine(100 * MB, 1);
    let programs = [Program::new((20 * MB) as f64, 1.0, Curve::Even)];
    let told = record(&[], &machine, &sim::run(&programs, machine), &Recorder::new());
    let said = |budgets| {
        let record = Record { ranks: programs.iter().map(seen).collect(), budgets, ..told.clone() };
        text(&Answer::new(&Job::recorded(&record), Some(&record), vec![]))
    };
    assert!(!said(None).contains("--memory auto"));
    let changed = said(Some([64 << 20, 128 << 20]));
    assert!(changed.contains("between 64.0 MiB and 128.0 MiB while it ran (--memory auto)"), "{changed}");
}
