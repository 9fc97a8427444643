//! What is said of ranks that do not run.

use super::bench::*;
use super::*;

fn hindrance(bench: &Bench, rank: Rank) -> Hindrance {
    bench.core.situation(rank).expect("it has not ended").hindrance
}

/// More processors would change nothing for who waits behind `-j`.
#[test]
fn who_waits_for_one_to_end_does_not_wait_for_processors() {
    let mut bench = Bench::new(limits(1), &[None; 4]);
    bench.core.limits.alive = 1;
    assert_eq!(ranks(&bench.look(&[])), [0]);
    bench.tell(started(0));
    assert_eq!(hindrance(&bench, 2), Hindrance::Alive { begun: 1, most: 1 });
    // Where that is no limit it is a processor that is waited for.
    bench.core.limits.alive = 9;
    assert_eq!(hindrance(&bench, 2), Hindrance::Processors { active: 1, wanted: 1 });
}

#[test]
fn any_number_of_processors_may_be_asked_about() {
    let mut bench = Bench::running(limits(u32::MAX), 2, 2);
    assert_eq!(bench.look(&[(0, 480), (1, 500)]), [evict(1)]);
    assert_eq!(bench.out(1, 500), []);
    let hindrance = hindrance(&bench, 1);
    assert!(matches!(hindrance, Hindrance::Memory { .. }), "{hindrance:?}");
    assert!(bench.core.is_kept(1) && !bench.core.is_kept(0));
}

#[test]
fn it_is_known_who_is_next_and_who_is_over() {
    let mut bench = Bench::running(limits(2), 9, 2);
    assert_eq!(bench.core.next_to_begin(3), [2, 3, 4]);
    assert_eq!(bench.core.next_to_begin(100).len(), 7);
    bench.exit(1, 1);
    assert!(bench.core.is_over(1) && bench.core.situation(1).is_none());
    assert!([0, 2, 8, 100].iter().all(|&rank| !bench.core.is_over(rank)));
}
