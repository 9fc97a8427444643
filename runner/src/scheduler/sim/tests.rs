//! Random and chosen jobs in the simulator.

use proptest::prelude::*;

use super::{Chaos, Exchange, Job, Outcome, run};
use crate::scheduler::{Effect, Failure, Limits};

const MIB: u64 = 1 << 20;

fn limits(budget: u64, resident: u32) -> Limits {
    Limits {
        budget,
        resident,
        enforce: false,
        rank_limit: None,
        first_reserve: MIB,
        moves: 2,
        part: MIB,
        ahead: budget / 4,
    }
}

fn finished(outcome: &Outcome) {
    assert_eq!(outcome.end, Effect::Finish, "{outcome:?}");
}

#[test]
fn cyclic_sweep_moves_no_more_than_belady() {
    let (np, resident, phases, bytes) = (64, 16, 11, 10 * MIB);
    for by_count in [true, false] {
        let cap = if by_count { limits(1 << 40, resident) } else { limits(u64::from(resident) * bytes, np) };
        let job = |phases| Job::sweep(np, bytes, phases);
        let cap = Limits { first_reserve: bytes, ..cap };
        let (one, all) =
            (run(&job(1), cap, Chaos::default(), true), run(&job(phases), cap, Chaos::default(), true));
        finished(&one);
        finished(&all);
        let moved = (all.restored_bytes - one.restored_bytes) / u64::from(phases - 1);
        let least = u64::from(np - resident) * bytes;
        assert!(
            moved <= least + least / 20,
            "moved {moved} a phase, {least} would do (by count: {by_count})"
        );
        assert_eq!(all.needless, 0);
    }
}

#[test]
fn token_in_a_ring_keeps_most_ranks_in_place() {
    let job = Job { exchange: Exchange::Token, ..Job::sweep(32, 10 * MIB, 20) };
    let outcome = run(&job, limits(1 << 40, 16), Chaos::default(), true);
    finished(&outcome);
    let a_phase = outcome.restored_bytes / 19;
    assert!(a_phase <= 20 * 10 * MIB, "{a_phase} bytes a phase, 32 ranks of which 16 fit");
}

#[test]
fn a_job_that_fits_moves_nothing() {
    for exchange in [Exchange::Barrier, Exchange::Ring, Exchange::Token, Exchange::Nothing] {
        let job = Job { exchange, ..Job::sweep(100, MIB, 5) };
        let outcome = run(&job, limits(101 * MIB, 100), Chaos::default(), true);
        finished(&outcome);
        assert_eq!((outcome.evicted_bytes, outcome.overdrafts), (0, 0));
    }
}

#[test]
fn a_hundred_thousand_ranks() {
    let job = Job::sweep(100_000, MIB, 3);
    let outcome = run(&job, limits(10_000 * MIB, 20_000), Chaos::default(), false);
    finished(&outcome);
    assert!(outcome.evicted_bytes <= 4 * 90_000 * MIB);
}

#[test]
fn a_hanging_job_is_called_a_deadlock() {
    let job = Job { exchange: Exchange::Hang, ..Job::sweep(9, MIB, 1) };
    let outcome = run(&job, limits(3 * MIB, 2), Chaos::default(), true);
    assert_eq!(outcome.end, Effect::Fail(Failure::Deadlock { waiting: 9 }));
}

#[test]
fn unpageable_independent_ranks_run_through() {
    let job = Job { exchange: Exchange::Nothing, pageable: false, ..Job::sweep(50, MIB, 1) };
    let outcome = run(&job, limits(7 * MIB, 50), Chaos::default(), true);
    finished(&outcome);
    assert_eq!((outcome.evictions, outcome.peak), (0, 7 * MIB));
}

prop_compose! {
    fn jobs()(
        np in 1_u32..40,
        phases in 1_u32..6,
        bytes in 0_u64..30,
        spread in 0_u64..20,
        growth in 0_u64..6,
        chunk in 1_u64..12,
        shrinks: bool,
        exchange in prop_oneof![
            Just(Exchange::Nothing), Just(Exchange::Barrier), Just(Exchange::Ring), Just(Exchange::Token)
        ],
        message in 0_u64..3,
        huge in proptest::option::weighted(0.3, (0_u32..40, 100_u64..400)),
    ) -> Job {
        let huge = huge.filter(|&(rank, _)| rank < np);
        Job {
            np, phases, bytes, spread, growth, chunk, shrinks, exchange, message, huge,
            fails: None, pageable: true,
        }
    }
}

prop_compose! {
    fn caps()(
        budget in 1_u64..300, resident in 1_u32..20, first_reserve in 0_u64..40, moves in 1_u32..6,
        part in 1_u64..40, ahead in 0_u64..100,
    ) -> Limits {
        Limits { budget, resident, enforce: false, rank_limit: None, first_reserve, moves, part, ahead }
    }
}

prop_compose! {
    fn chaos()(
        seed in 1_u64.., lag in 0_u32..12, refused in 0_u8..120, denied in 0_u8..120, unseen: u8, unasked in 0_u8..60, leaves in 0_u8..120
    ) -> Chaos {
        Chaos { seed, lag, refused, denied, unseen, unasked, leaves, scratch: None }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, ..ProptestConfig::default() })]

    /// Whatever the job and whatever goes wrong, it ends well; no rank waits unreasonably long for its turn.
    #[test]
    fn every_job_ends(job in jobs(), limits in caps(), chaos in chaos()) {
        let chaos = Chaos { refused: chaos.refused / 4, ..chaos };
        let outcome = run(&job, limits, chaos, true);
        let unpageable = matches!(outcome.end, Effect::Fail(Failure::Unpageable { .. }));
        prop_assert!(outcome.end == Effect::Finish || (chaos.refused > 0 && unpageable), "{:?}", outcome);
        prop_assert!(outcome.longest_wait <= u64::from(job.np) * 4 + 8, "{:?}", outcome);
    }

    /// The same without refusals: nothing is an excuse.
    #[test]
    fn lost_races_and_denials_only_delay(job in jobs(), limits in caps(), chaos in chaos()) {
        let outcome = run(&job, limits, Chaos { refused: 0, ..chaos }, true);
        prop_assert_eq!(&outcome.end, &Effect::Finish);
        let largest = (0..job.np).map(|rank| job.size(rank, job.phases - 1)).max().unwrap_or(0);
        prop_assert!(
            outcome.peak <= limits.budget || outcome.overdrafts > 0,
            "peak {} of {}", outcome.peak, limits.budget
        );
        if largest + u64::from(job.np) * job.message * u64::from(job.phases) <= limits.budget {
            prop_assert_eq!(outcome.overdrafts, 0);
        }
    }

    /// With little scratch a job ends well or says that scratch is full; with an enforced limit it is never exceeded.
    #[test]
    fn scarce_scratch_and_enforced_limits(
        job in jobs(), limits in caps(), chaos in chaos(), scratch in 0_u64..300, enforce: bool
    ) {
        let limits = Limits { enforce, ..limits };
        let outcome = run(&job, limits, Chaos { scratch: Some(scratch), ..chaos }, true);
        let legal = match &outcome.end {
            Effect::Finish => true,
            Effect::Fail(Failure::ScratchFull { .. }) => true,
            Effect::Fail(Failure::RankTooLarge { .. }) => enforce,
            Effect::Fail(Failure::Unpageable { .. }) => chaos.refused > 0,
            _ => false,
        };
        prop_assert!(legal, "{:?}", outcome);
        prop_assert!(!enforce || outcome.peak <= limits.budget);
    }

    /// A rank that fails ends the job, at once and with its name.
    #[test]
    fn a_failing_rank_is_named(job in jobs(), limits in caps(), chaos in chaos(), rank in 0_u32..40) {
        let rank = rank % job.np;
        let job = Job { fails: Some((rank, 0)), ..job };
        let outcome = run(&job, limits, Chaos { refused: 0, ..chaos }, true);
        prop_assert_eq!(outcome.end, Effect::Fail(Failure::RankFailed { rank }));
    }
}
