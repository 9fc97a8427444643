//! Who is begun, in which order, and what is expected of it.

use super::bench::*;
use super::*;

#[test]
fn the_largest_runs_alone_first_and_tells_what_to_expect() {
    let mut sizes: Vec<_> = (1..20).map(Some).collect();
    sizes[4] = Some(50);
    let mut bench = Bench::new(limits(2), &sizes);
    assert_eq!(ranks(&bench.look(&[])), [4]);
    assert_eq!(bench.tell(started(4)), []);
    let next = bench.exit(4, 150);
    assert_eq!(ranks(&next), [18, 17], "then as many as processors, the largest first");
    // Three MB for each unit, within the error of the sketch.
    let near = |&(rank, reserve): &(Rank, u64)| reserve.abs_diff(3 * u64::from(rank + 1)) <= 1;
    assert!(reserves(&next).iter().all(near), "{next:?}");
}

#[test]
fn few_ranks_need_no_pilot_and_those_without_size_go_by_number_after_the_others() {
    let mut bench = Bench::new(limits(4), &[None, Some(3), None, Some(7)]);
    assert_eq!(ranks(&bench.look(&[])), [3, 1, 0, 2]);
}

#[test]
fn what_is_expected_before_there_is_data() {
    let mut bench = Bench::new(limits(4), &[None; 9]);
    assert_eq!(reserves(&bench.look(&[]))[0], (0, 125), "an equal share of half the budget");
    let limited = Given { rank_limit: Some(300 * MB), ..limits(4) };
    let mut bench = Bench::new(limited, &[None; 9]);
    assert_eq!(reserves(&bench.look(&[]))[0], (0, 150), "half of what a rank may hold");
    bench.tell(started(0));
    assert_eq!(reserves(&bench.exit(0, 1))[0].1, 15, "never less than a twentieth of that");
}

#[test]
fn what_is_expected_is_the_95th_percentile_and_never_more_than_there_is() {
    let mut bench = Bench::running(limits(1), 200, 1);
    for rank in 0..100 {
        let peak = if rank < 94 { 10 } else { 400 };
        let next = bench.exit(rank, peak);
        assert_eq!(ranks(&next), [rank + 1]);
        bench.tell(started(rank + 1));
        match reserves(&next)[0].1 {
            reserve if rank < 90 => assert!((9..=10).contains(&reserve), "{reserve}"),
            reserve if rank == 99 => assert!((396..=404).contains(&reserve), "{reserve}"),
            _ => {}
        }
    }
    for rank in 100..120 {
        let next = bench.exit(rank, 5000);
        assert!(reserves(&next)[0].1 <= 1000, "{next:?}");
        bench.tell(started(rank + 1));
    }
}

#[test]
fn when_nothing_is_active_the_first_in_line_is_admitted_whatever_it_costs() {
    let mut bench = Bench::running(Given { may_page: false, ..limits(2) }, 4, 2);
    bench.exit(0, 5000);
    // Whoever is next is expected to need all there is, and more is in use.
    assert_eq!(bench.core.counts().running, 1);
    assert_eq!(reserves(&bench.exit(1, 5000)), [(2, 1000)]);
    bench.tell(started(2));
    assert_eq!(bench.look(&[(2, 10)]), [], "nobody beside it");
}

#[test]
fn smaller_ones_pass_the_first_in_line_but_not_for_ever() {
    // The pilot says: 10 MB a unit. The largest of the others, 90 units, does not fit beside what runs.
    let mut sizes = vec![Some(100), Some(90), Some(89)];
    sizes.extend([Some(1); 60]);
    let mut bench = Bench::new(Given { may_page: false, ..limits(2) }, &sizes);
    bench.look(&[]);
    bench.tell(started(0));
    let next = bench.exit(0, 1000);
    assert_eq!(ranks(&next), [1, 3], "the third does not fit, a small one does");
    bench.tell(started(1));
    let mut passed = 1;
    for rank in 3.. {
        bench.tell(started(rank));
        match bench.exit(rank, 10)[..] {
            [Effect::Start { rank: next, .. }] => assert_eq!(next, rank + 1),
            ref nobody => {
                assert_eq!(nobody, []);
                break;
            }
        }
        passed += 1;
    }
    assert_eq!(passed, 16 * 2, "so many for each processor");
    assert_eq!(ranks(&bench.exit(1, 900))[0], 2, "it has waited long enough");
}

#[test]
fn ranks_that_wait_do_not_keep_processors_idle_but_places_count() {
    let limits = Given { resident: 6, rank_limit: Some(100 * MB), ..limits(2) };
    let mut bench = Bench::running(limits, 100, 2);
    let second = Duration::from_secs(1);
    let mut inside = 2;
    for _ in 0..10 {
        let more = bench.look_at(&[], 0.2, second);
        inside += more.len();
        for rank in ranks(&more) {
            bench.tell(started(rank));
        }
    }
    assert_eq!(inside, 6);
    // Busy again: those that end are not replaced until there are no more than processors.
    bench.look_at(&[], 2.0, second);
    for rank in 0..4 {
        assert_eq!(bench.exit(rank, 1), []);
        bench.look_at(&[], 2.0, second);
    }
    assert_eq!(ranks(&bench.exit(4, 1)), [6]);
}

/// They are not seen: they live shorter than from one look to the next. (A job of 65,000 had 9,980 at once.)
#[test]
fn where_ranks_that_nobody_sees_use_the_processors_no_more_are_begun() {
    let mut bench = Bench::running(Given { rank_limit: Some(MB), ..limits(2) }, 1000, 2);
    let mut look = |idle| {
        let look =
            Event::Looked { elapsed: Duration::from_secs(1), busy: 0.01, idle, reaction: Duration::ZERO };
        bench.tell(look)
    };
    for _ in 0..60 {
        assert_eq!(look(0.05), []);
    }
    assert!(!look(1.5).is_empty(), "those that sleep leave them to others");
}
