//! Ranks that need not be begun.

use super::bench::{Bench, MB, limits, ranks};
use super::*;

fn over(rank: Rank, peak: u64) -> Event {
    Event::Exited { rank, peak, next: Next::Over }
}

#[test]
fn what_was_done_before_is_not_begun_and_what_it_needed_is_known() {
    let mut bench = Bench::new(limits(2), &[Some(100), Some(200), Some(50), Some(1)]);
    assert_eq!(bench.tell(over(1, 400 * MB)), []);
    assert_eq!(bench.tell(over(3, 2 * MB)), []);
    assert_eq!(bench.core.counts().exited, 2);
    let started = bench.look(&[]);
    assert_eq!(ranks(&started), [0, 2], "{started:?}");
    // 2 MB for each unit, as in those that ended: nobody need be a pilot.
    let reserves: Vec<u64> = started
        .iter()
        .map(|effect| match effect {
            Effect::Start { reserve, .. } => *reserve,
            other => panic!("{other:?}"),
        })
        .collect();
    assert!(
        reserves.iter().zip([200, 100]).all(|(&got, mb)| got.abs_diff(mb * MB) < 10 * MB),
        "{reserves:?}"
    );
}

#[test]
fn where_all_was_done_before_nothing_is_left_to_do() {
    let mut bench = Bench::new(limits(2), &[None, None]);
    assert_eq!(bench.tell(over(0, 0)), []);
    assert_eq!(bench.tell(over(1, 0)), [Effect::Finish]);
}

#[test]
fn who_is_given_up_is_not_begun_any_more() {
    let mut bench = Bench::running(limits(1), 3, 1);
    assert_eq!(bench.tell(over(1, 0)), []);
    assert_eq!(bench.tell(over(2, 0)), []);
    assert_eq!(bench.tell(over(0, 5 * MB)), [Effect::Finish]);
}

#[test]
fn who_failed_is_begun_again_first_and_with_what_it_needs() {
    let mut bench = Bench::running(limits(2), 4, 2);
    let next = Next::Retry { least: 300 * MB };
    let started = bench.tell(Event::Exited { rank: 0, peak: 7 * MB, next });
    assert_eq!(started, [Effect::Start { rank: 0, reserve: 300 * MB }]);
}

#[test]
fn after_a_halt_nobody_is_begun() {
    let mut bench = Bench::running(limits(2), 5, 2);
    assert_eq!(bench.tell(Event::Halt), []);
    assert_eq!(bench.tell(Event::Exited { rank: 0, peak: 0, next: Next::Retry { least: 0 } }), []);
    assert_eq!(bench.look(&[]), []);
    assert_eq!(bench.tell(over(1, 0)), [Effect::Finish]);
}
