//! What is known of ranks before they begin.

use super::bench::{Bench, MB, limits};
use super::*;
use crate::residency::sim::{Curve, Draw, Machine, Program, run};

fn starts(effects: &[Effect]) -> Vec<(Rank, u64)> {
    let one = |effect: &Effect| match effect {
        Effect::Start { rank, reserve } => Some((*rank, reserve / MB)),
        _ => None,
    };
    effects.iter().filter_map(one).collect()
}

fn bench(given: super::bench::Given, sizes: &[Option<u64>], informed: Informed) -> Bench {
    let bench = Bench::new(given, sizes);
    Bench { core: bench.core.informed(&informed) }
}

#[test]
fn who_is_known_to_need_most_begins_first_and_so_much_is_set_aside() {
    let known = vec![(0, 100 * MB), (1, 300 * MB), (2, 550 * MB), (9, 1)];
    let informed = Informed { known: known.clone(), largest_first: true, ..Informed::default() };
    let mut bench = bench(limits(3), &[None; 4], informed);
    // Of the last nothing is known: half of its share, 166 MB, for which there is no room beside these.
    assert_eq!(starts(&bench.look(&[])), [(2, 550), (1, 300), (0, 100)]);
    let informed = Informed { known, ..Informed::default() };
    let mut bench = self::bench(limits(3), &[None; 4], informed);
    assert_eq!(starts(&bench.look(&[])), [(0, 100), (1, 300), (2, 550)], "by number");
}

#[test]
fn what_others_needed_is_expected_of_those_of_whom_nothing_is_known() {
    let peaks = vec![(Some(10), 20 * MB), (Some(100), 200 * MB), (None, 7 * MB)];
    let informed = Informed { peaks, ..Informed::default() };
    let mut bench = bench(limits(2), &[Some(50), Some(60)], informed);
    let started = starts(&bench.look(&[]));
    // 2 MB for each unit: nobody need be a pilot.
    assert_eq!(started.len(), 2);
    assert!(started[0].0 == 1 && started[0].1.abs_diff(120) < 3, "{started:?}");
}

/// The options of seed 002.
#[test]
fn the_digest_has_a_default_a_lower_bound_and_a_floor_of_tmpfs() {
    let given = super::bench::Given { rank_limit: Some(400 * MB), ..limits(2) };
    let first = |expect: Expect, peaks: &[u64]| {
        let peaks = peaks.iter().map(|&peak| (None, peak * MB)).collect();
        let mut bench = bench(given, &[None], Informed { expect, peaks, ..Informed::default() });
        starts(&bench.look(&[]))[0].1
    };
    let expect = Expect::default();
    assert_eq!(first(expect, &[]), 200, "half of the limit");
    assert_eq!(first(Expect { default_value: 0.25, ..expect }, &[]), 100);
    assert_eq!(first(expect, &[1]), 20, "a twentieth of the limit, at least");
    assert_eq!(first(Expect { lower_bound: 0.5, ..expect }, &[1]), 200);
    assert_eq!(first(Expect { tmpfs_size: 333 * MB, ..expect }, &[1]), 333);
    let many: Vec<u64> = (1..=100).collect();
    assert!(first(expect, &many).abs_diff(95) <= 1);
    assert!(first(Expect { quantile: 0.5, ..expect }, &many).abs_diff(50) <= 1);
    assert_eq!(first(expect, &[900]), 400, "never more than a rank may hold");
}

/// Of 200 ranks one in ten needs five times what is declared of it; a second run knows what each needed.
#[test]
fn what_is_known_of_each_rank_is_worth_more_than_what_they_declare() {
    let curves = [(Curve::Even, 600), (Curve::Late, 600), (Curve::Flat, 600), (Curve::Flat, 1000)];
    for (curve, budget) in curves {
        let mut ratios = Vec::new();
        for seed in 1..10 {
            let mut draw = Draw::new(seed);
            let first: Vec<Program> = (0..200)
                .map(|at| {
                    let declared = (20 + draw.below(30)) as f64 * 1e6;
                    let peak = declared * if at % 10 == 3 { 5.0 } else { 1.0 };
                    let program = Program::new(peak, peak / 25e6, curve);
                    Program { declared: Some(declared as u64), ..program }
                })
                .collect();
            let machine = Machine { check: 0, disk: 3e8, ..Machine::new(budget * MB, 8) };
            let know = |program: &Program| Program { known: Some(program.peak as u64), ..program.clone() };
            let second: Vec<Program> = first.iter().map(know).collect();
            let (before, after) = (run(&first, machine), run(&second, machine));
            ratios.push(after.time / before.time);
        }
        ratios.sort_by(f64::total_cmp);
        println!(
            "{curve:?}, {budget} MB: {:.3} of the time ({:.3} to {:.3})",
            ratios[4], ratios[0], ratios[8]
        );
        assert!(ratios[4] < 0.95 && ratios[8] < 1.1, "{curve:?}: {ratios:?}");
    }
}

/// Those that another node gives to this one begin in the order of what is known of them, and only they.
#[test]
fn those_that_are_given_are_begun() {
    let limits = *bench(limits(2), &[None], Informed::default()).core.limits();
    let can = Can { evict: true, ..Can::PROGRAM };
    let known =
        Informed { known: vec![(1, 5 * MB), (7, 9 * MB)], largest_first: true, ..Informed::default() };
    let mut core = Core::shared_out(limits, can, 1000).informed(&known);
    let mut effects = Vec::new();
    let mut tell = |core: &mut Core, event| {
        core.handle(event, &mut effects);
        core.sanity_check();
        std::mem::take(&mut effects)
    };
    tell(&mut core, Event::Pool { asked: 0, messages: 0, measured: 0, kept: 0 });
    let look = Event::Looked { elapsed: Duration::ZERO, busy: 2.0, idle: 0.0, reaction: Duration::ZERO };
    assert_eq!((tell(&mut core, look), core.counts().exited), (vec![], 1000));
    let given = |rank, known| Event::Given { rank, declared: 0, known };
    let first = starts(&tell(&mut core, given(999, MB)));
    assert_eq!(first.iter().map(|start| start.0).collect::<Vec<_>>(), [999]);
    let second = starts(&tell(&mut core, given(3, MB)));
    assert_eq!(second.iter().map(|start| start.0).collect::<Vec<_>>(), [3]);
    for event in [given(1, 5 * MB), given(7, 9 * MB), given(7, 9 * MB), given(3, 0), given(1000, 0)] {
        assert_eq!(tell(&mut core, event), []);
    }
    assert_eq!((core.counts().unborn, core.line()), (2, vec![7, 1]));
    tell(&mut core, started(999));
    tell(&mut core, started(3));
    assert_eq!(starts(&tell(&mut core, exited(999)))[0].0, 7);
    // One that has ended here, and is to be run once more.
    assert_eq!(tell(&mut core, given(999, MB)), []);
    assert_eq!(core.counts().unborn, 2);
    tell(&mut core, Event::Halt);
    tell(&mut core, started(7));
    assert_eq!(tell(&mut core, given(999, MB)), [], "nobody else is begun");
    tell(&mut core, exited(3));
    assert_eq!(tell(&mut core, exited(7)), []);
    assert_eq!(tell(&mut core, Event::Came { ranks: 1000, more: false }), [Effect::Finish]);
}

/// A million that come one after another: only those that live are kept.
#[test]
fn those_that_come_and_those_that_have_ended_take_no_memory() {
    let limits = *bench(limits(2), &[None], Informed::default()).core.limits();
    let mut core = Core::open(limits, Can { evict: true, ..Can::PROGRAM });
    let mut effects = Vec::new();
    let mut tell = |core: &mut Core, event| {
        core.handle(event, &mut effects);
        std::mem::take(&mut effects)
    };
    tell(&mut core, Event::Pool { asked: 0, messages: 0, measured: 0, kept: 0 });
    let look = Event::Looked { elapsed: Duration::ZERO, busy: 2.0, idle: 0.0, reaction: Duration::ZERO };
    assert_eq!(tell(&mut core, look), []);
    let (all, chunk) = (20_000, 1000);
    let mut ended = 0;
    let mut live = std::collections::VecDeque::new();
    for came in (chunk..=all).step_by(chunk as usize) {
        let mut told = tell(&mut core, Event::Came { ranks: came, more: came < all });
        while ended < came {
            live.extend(starts(&told).into_iter().map(|(rank, _)| rank));
            let rank = live.pop_front().expect("somebody lives");
            tell(&mut core, started(rank));
            told = tell(&mut core, exited(rank));
            ended += 1;
            assert!(core.ranks.kept() <= 3, "{}", core.ranks.kept());
            assert_eq!(told.contains(&Effect::Finish), ended == all, "{told:?}");
        }
        core.sanity_check();
    }
}
