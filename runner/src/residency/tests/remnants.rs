//! What of a rank that is out cannot be paged counts as well, beside whoever is in.

use super::bench::*;
use super::*;

/// Rank 1 is out, but for `left` MB; rank 0 is in and holds `held` MB, of which `fixed` cannot be paged.
fn beside(limits: Given, stays: u64, held: u64, fixed: u64) -> (Bench, Vec<Effect>) {
    let mut bench = Bench::running(limits, 2, 2);
    let sample = |rank, bytes, fixed| Event::Sample { rank, bytes: bytes * MB, fixed: fixed * MB };
    bench.tell(sample(1, 500, stays));
    assert_eq!(bench.look(&[(0, 490)]), [evict(1)]);
    bench.tell(evicted(1, (500 - stays) * MB, stays * MB));
    bench.tell(sample(0, held, fixed));
    let effects = bench.look(&[]);
    (bench, effects)
}

#[test]
fn whoever_fits_but_not_beside_remnants_is_told() {
    let limits = Given { may_stop: false, ..limits(2) };
    let (mut bench, effects) = beside(limits, 450, 560, 0);
    assert!(matches!(effects[..], [Effect::Shrink { rank: 0, .. }]), "parts of it can evict: {effects:?}");
    bench.tell(done(0, Outcome::Refused { lasting: true }));
    let told = [Effect::Overdraft { rank: 0, bytes: 600 * MB, beside: 450 * MB }];
    assert_eq!(bench.look(&[(0, 600)]), told);
    assert_eq!(bench.look(&[(0, 610)]), [], "once");
}

#[test]
fn what_does_not_fit_in_parts_either_is_told_and_is_smaller_all_the_same() {
    let (_, effects) = beside(Given { may_stop: false, ..limits(2) }, 450, 900, 600);
    let told = Effect::Overdraft { rank: 0, bytes: 900 * MB, beside: 450 * MB };
    assert_eq!(effects, [told, Effect::Shrink { rank: 0, target: 600 * MB }]);
}

#[test]
fn remnants_make_way_where_a_rank_may_be_ended() {
    for enforce in [false, true] {
        let limits = Given { may_stop: !enforce, enforce, resident: 2, ..limits(2) };
        let (mut bench, effects) = beside(limits, 450, 900, 600);
        let used = 450 * MB;
        let ends = match enforce {
            true => Effect::OverLimit { rank: 1, bytes: used, limit: 100 * MB },
            false => Effect::Stop { rank: 1, used },
        };
        assert_eq!(effects.first(), Some(&ends), "{effects:?}");
        bench.tell(Event::Exited {
            rank: 1,
            peak: 500 * MB,
            next: if enforce { Next::Over } else { Next::Stopped },
        });
        assert_eq!(bench.core.counts().unborn, u32::from(!enforce));
    }
}

#[test]
fn whoever_fits_beside_remnants_comes_first() {
    let mut bench = Bench::running(Given { may_stop: false, ..limits(3) }, 3, 3);
    for (rank, bytes, fixed) in [(0, 200, 0), (1, 800, 150), (2, 290, 280)] {
        bench.tell(Event::Sample { rank, bytes: bytes * MB, fixed: fixed * MB });
    }
    assert_eq!(bench.look(&[])[..2], [evict(2), evict(1)]);
    bench.tell(done(0, Outcome::Held));
    bench.tell(evicted(2, 10 * MB, 280 * MB));
    bench.tell(evicted(1, 650 * MB, 150 * MB));
    // Rank 1 is the older, but does not fit beside what is left of rank 2.
    assert_eq!(bench.exit(0, 600), [restore(2)]);
    bench.tell(done(2, Outcome::Restored));
    assert_eq!(bench.exit(2, 290), [restore(1)]);
}

#[test]
fn nobody_is_moved_for_chaos_who_could_not_come_back() {
    let mut bench = Bench::running(Given { may_stop: false, ..limits(2) }, 2, 2);
    bench.look(&[(0, 400), (1, 400)]);
    assert_eq!(bench.tell(Event::Chaos { rank: 1 }), [evict(1)]);
    bench.tell(done(1, Outcome::Refused { lasting: true }));
    assert_eq!(bench.tell(Event::Chaos { rank: 0 }), [evict(0)]);
    bench.out(0, 400);
    assert_eq!(bench.look(&[]), [restore(0)]);
    bench.tell(done(0, Outcome::Restored));
    bench.look(&[(0, 400), (1, 700)]);
    assert_eq!(bench.tell(Event::Chaos { rank: 0 }), []);
}
