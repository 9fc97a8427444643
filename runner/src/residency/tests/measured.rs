//! Programs that neither ask nor tell.

use super::bench::*;
use super::*;

#[test]
fn the_youngest_over_what_was_expected_leaves_first_and_the_oldest_never() {
    // 125 MB are expected of each.
    let mut bench = Bench::running(limits(4), 4, 4);
    assert_eq!(bench.look(&[(0, 400), (1, 250), (2, 200), (3, 100)]), []);
    assert_eq!(bench.look(&[(0, 425), (1, 250), (2, 200), (3, 100)]), [evict(2)]);
    assert_eq!(bench.look(&[(0, 430), (1, 250), (3, 100)]), [], "what leaves counts as gone");
    assert_eq!(bench.out(2, 200), []);
    assert_eq!(bench.look(&[(0, 625), (1, 250), (3, 100)]), [evict(1)]);
    assert_eq!(bench.out(1, 250), []);
    assert_eq!(bench.look(&[(0, 875), (3, 100)]), [evict(3)], "the oldest is over what was expected too");
}

#[test]
fn several_leave_if_one_is_not_enough() {
    let mut bench = Bench::running(limits(4), 4, 4);
    assert_eq!(bench.look(&[(0, 400), (1, 150), (2, 150), (3, 150)]), []);
    let gone = bench.tell(Event::LimitChanged { budget: 600 * MB });
    assert_eq!(gone, [evict(3), evict(2)]);
}

#[test]
fn those_out_come_back_oldest_first_before_anybody_is_admitted() {
    let mut bench = Bench::running(limits(4), 9, 4);
    assert_eq!(bench.look(&[(0, 565), (1, 150), (2, 130), (3, 130)]), [evict(3)]);
    assert_eq!(bench.out(3, 130), []);
    assert_eq!(bench.look(&[(0, 695), (1, 150), (2, 130)]), [evict(2)]);
    assert_eq!(bench.out(2, 130), []);
    assert_eq!(bench.exit(1, 150), [], "the others may have grown");
    assert_eq!(bench.core.next_look(), pace::SOONEST);
    assert_eq!(bench.look(&[]), [restore(2)], "for the other there is no room, and nobody passes it");
    bench.tell(done(2, Outcome::Restored));
    bench.exit(0, 695);
    let next = bench.look(&[]);
    assert_eq!(next[0], restore(3));
    assert!(next[1..].iter().all(|effect| matches!(effect, Effect::Start { .. })), "{next:?}");
}

#[test]
fn the_only_one_comes_back_whatever_it_needs() {
    let mut bench = Bench::running(limits(2), 2, 2);
    assert_eq!(bench.look(&[(0, 480), (1, 500)]), [evict(1)]);
    assert_eq!(bench.out(1, 500), []);
    bench.tell(Event::LimitChanged { budget: 100 * MB });
    assert_eq!(bench.exit(0, 480), [restore(1)]);
}

/// `--processors 4294967295`.
#[test]
fn however_many_processors_there_are_it_can_be_said_why_one_is_out() {
    let mut bench = Bench::running(Given { processors: u32::MAX, ..limits(2) }, 2, 2);
    assert_eq!(bench.look(&[(0, 480), (1, 500)]), [evict(1)]);
    assert_eq!(bench.out(1, 500), []);
    let hindrance = bench.core.situation(1).unwrap().hindrance;
    assert!(matches!(hindrance, Hindrance::Memory { .. }), "{hindrance:?}");
}

#[test]
fn who_refuses_for_good_is_not_asked_again_who_cannot_now_is_asked_later() {
    let mut bench = Bench::running(limits(3), 3, 3);
    let held = [(0, 325), (1, 325), (2, 325)];
    assert_eq!(bench.look(&held), [evict(2)]);
    assert_eq!(bench.tell(done(2, Outcome::Refused { lasting: true })), [evict(1)]);
    assert_eq!(bench.tell(done(1, Outcome::Refused { lasting: false })), []);
    let mut asked = Vec::new();
    for _ in 0..8 {
        asked.extend(bench.look(&held));
    }
    assert_eq!(asked, [evict(1)]);
}

#[test]
fn a_full_disk_is_left_alone_until_somebody_ends() {
    let mut bench = Bench::running(limits(4), 4, 4);
    assert_eq!(bench.look(&[(0, 245), (1, 245), (2, 245), (3, 240)]), [evict(3)]);
    assert_eq!(bench.tell(done(3, Outcome::Full { need: 1, part: None })), []);
    assert_eq!(bench.look(&[(0, 248), (1, 245), (2, 245), (3, 240)]), [], "it was asked once");
    assert_eq!(bench.exit(2, 245), []);
    assert_eq!(bench.look(&[(0, 490), (1, 245), (3, 240)]), [evict(3)]);
    let memory = |other| Memory { asked: 0, other: other * MB };
    let full = done(3, Outcome::Full { need: 1, part: Some((memory(140), memory(240))) });
    assert_eq!(bench.tell(full), []);
    assert_eq!(bench.core.counts().out, 1, "what is out in part stands still");
    bench.exit(0, 490);
    assert_eq!(bench.look(&[]), [restore(3)]);
}

#[test]
fn where_nothing_can_be_paged_the_youngest_stand_still_and_go_on_later() {
    let limits = Given { may_page: false, ..limits(3) };
    let mut bench = Bench::running(limits, 3, 3);
    assert_eq!(bench.look(&[(0, 300), (1, 320), (2, 340)]), []);
    assert_eq!(bench.look(&[(0, 302), (1, 322), (2, 348)]), [Effect::Hold { rank: 2 }]);
    bench.tell(done(2, Outcome::Held));
    assert_eq!(bench.look(&[(0, 304), (1, 324), (2, 348)]), [Effect::Hold { rank: 1 }]);
    bench.tell(done(1, Outcome::Held));
    assert_eq!(bench.look(&[(0, 305), (1, 324), (2, 348)]), [], "the oldest goes on");
    assert_eq!(bench.exit(0, 305), [Effect::Resume { rank: 1 }]);
    bench.tell(done(1, Outcome::Resumed));
    assert_eq!(bench.look(&[(1, 324), (2, 348)]), [Effect::Resume { rank: 2 }]);
}

#[test]
fn the_youngest_is_stopped_last_of_all_and_comes_again_with_more() {
    let limits = Given { may_page: false, ..limits(2) };
    let mut bench = Bench::running(limits, 2, 2);
    assert_eq!(bench.look(&[(0, 580), (1, 395)]), [Effect::Hold { rank: 1 }]);
    bench.tell(done(1, Outcome::Held));
    assert_eq!(bench.look(&[(0, 590), (1, 395)]), [Effect::Stop { rank: 1, used: 395 * MB }]);
    assert_eq!(bench.look(&[(0, 591)]), [], "once");
    assert_eq!(bench.tell(Event::Exited { rank: 1, peak: 395 * MB, next: Next::Stopped }), []);
    assert_eq!(bench.core.counts().unborn, 1);
    assert_eq!(reserves(&bench.exit(0, 591)), [(1, 434)], "1.1 times what it held");
}

#[test]
fn if_leaving_takes_too_long_those_that_grow_stand_still_the_oldest_last() {
    let mut bench = Bench::running(limits(3), 3, 3);
    assert_eq!(bench.look(&[(0, 320), (1, 320), (2, 320)]), []);
    let stands = bench.look(&[(0, 325), (1, 325), (2, 340)]);
    assert_eq!(stands, [evict(2), Effect::Hold { rank: 1 }]);
    bench.tell(done(1, Outcome::Held));
    assert_eq!(bench.look(&[(0, 335), (1, 325)]), [Effect::Hold { rank: 0 }]);
    bench.tell(done(0, Outcome::Held));
    bench.tell(Event::Freed { rank: 2, bytes: 200 * MB });
    assert_eq!(bench.look(&[]), [Effect::Resume { rank: 0 }]);
    bench.tell(done(0, Outcome::Resumed));
    assert_eq!(bench.look(&[(0, 335)]), [Effect::Resume { rank: 1 }]);
}

#[test]
fn a_single_rank_that_does_not_fit_is_paged_in_parts() {
    let mut bench = Bench::running(limits(1), 2, 1);
    let Some(&Effect::Shrink { rank: 0, target }) = bench.look(&[(0, 990)]).first() else { panic!() };
    assert!(target < 960 * MB, "{target}");
    assert_eq!(bench.tell(done(0, Outcome::Shrunk { left: target })), []);
    let more = bench.look(&[(0, 950)]);
    assert_eq!(more, [Effect::Shrink { rank: 0, target: 1000 * MB / 32 * 31 }], "all but what it grows by");
    assert_eq!(bench.tell(done(0, Outcome::Shrunk { left: 950 * MB })), []);
    assert_eq!(bench.look(&[(0, 960)]), [], "nobody is admitted beside it");
    assert!(matches!(bench.look(&[(0, 990)])[..], [Effect::Shrink { rank: 0, .. }]));
}

/// Some of it is locked, say.
#[test]
fn parts_that_could_not_leave_are_not_asked_for_again_and_again() {
    let mut bench = Bench::running(limits(1), 2, 1);
    let Some(&Effect::Shrink { rank: 0, target }) = bench.look(&[(0, 990)]).first() else { panic!() };
    assert_eq!(bench.tell(done(0, Outcome::Shrunk { left: target + 40 * MB })), []);
    let bytes = target / MB + 40;
    let asked = |bench: &mut Bench| (0..100).position(|_| !bench.look(&[(0, bytes)]).is_empty());
    assert_eq!(asked(&mut bench), Some(31));
    assert_eq!(bench.tell(done(0, Outcome::Shrunk { left: target + 40 * MB })), []);
    assert_eq!(asked(&mut bench), Some(63), "later each time");
    // What it touches meanwhile beside what is known to stay is not worth an order.
    bench.tell(done(0, Outcome::Shrunk { left: target }));
    bench.sample(0, 990, 985);
    assert_eq!(bench.look(&[]), []);
}

/// Both stand still, and the younger is as small as it can be.
#[test]
fn the_oldest_runs_in_parts_before_another_is_stopped() {
    let mut bench = Bench::running(limits(2), 2, 2);
    assert_eq!(bench.look(&[(0, 500), (1, 480)]), [evict(1)]);
    assert_eq!(bench.look(&[(0, 515)]), [Effect::Hold { rank: 0 }]);
    bench.tell(done(0, Outcome::Held));
    assert_eq!(bench.tell(done(1, Outcome::Refused { lasting: true })), []);
    assert_eq!(bench.look(&[(0, 515), (1, 487)]), [Effect::Hold { rank: 1 }]);
    let orders = bench.tell(done(1, Outcome::Held));
    assert!(matches!(orders[..], [Effect::Shrink { rank: 0, .. }]), "{orders:?}");
}

/// The order is given by the last look, and at this one it has grown.
#[test]
fn what_it_grew_by_before_it_was_ordered_out_counts() {
    let mut bench = Bench::running(limits(2), 2, 2);
    assert_eq!(bench.look(&[(0, 580), (1, 395)]), [evict(1)]);
    bench.sample(1, 400, 0);
    assert_eq!(bench.core.used(), 980 * MB);
    bench.tell(Event::Freed { rank: 1, bytes: 100 * MB });
    assert_eq!(bench.core.used(), 880 * MB);
    bench.sample(1, 390, 0);
    assert_eq!(bench.core.used(), 880 * MB, "from here on its mover tells");
}

#[test]
fn a_single_rank_that_can_not_is_told_once_or_killed() {
    for (enforce, unpageable) in [(false, false), (false, true), (true, false)] {
        let mut bench = Bench::running(Given { may_page: unpageable, enforce, ..limits(1) }, 2, 1);
        let mut told = bench.look(&[(0, 1100)]);
        if unpageable {
            assert!(matches!(told[..], [Effect::Shrink { .. }]));
            told = bench.tell(done(0, Outcome::Refused { lasting: true }));
            told.extend(bench.look(&[(0, 1100)]));
        }
        let bytes = 1100 * MB;
        let limit = 1000 * MB;
        let expected = if enforce {
            Effect::OverLimit { rank: 0, bytes, limit }
        } else {
            Effect::Overdraft { rank: 0, bytes, beside: 0 }
        };
        assert_eq!(told, [expected]);
        assert_eq!(bench.look(&[(0, 1200)]), [], "once");
    }
}

#[test]
fn one_that_cannot_be_paged_in_parts_can_leave_as_a_whole() {
    let mut bench = Bench::running(limits(1), 2, 1);
    assert!(matches!(bench.look(&[(0, 990)])[..], [Effect::Shrink { .. }]));
    bench.tell(done(0, Outcome::Refused { lasting: true }));
    bench.look(&[(0, 1100)]);
    assert_eq!(bench.tell(Event::Chaos { rank: 0 }), [], "it was just asked");
    (0..8).for_each(|_| drop(bench.look(&[(0, 1100)])));
    assert_eq!(bench.tell(Event::Chaos { rank: 0 }), [evict(0)]);
}

#[test]
fn a_rank_over_its_limit_is_killed() {
    let mut bench = Bench::running(Given { rank_limit: Some(200 * MB), ..limits(2) }, 2, 2);
    assert_eq!(bench.look(&[(0, 200)]), []);
    let over = Effect::OverLimit { rank: 0, bytes: 201 * MB, limit: 200 * MB };
    assert_eq!(bench.look(&[(0, 201)]), [over]);
    assert_eq!(bench.look(&[(0, 202)]), []);
    bench.exit(0, 202);
    assert_eq!(bench.core.counts().exited, 1);
}

#[test]
fn if_nobody_does_anything_another_has_its_turn() {
    let mut bench = Bench::running(limits(2), 2, 2);
    assert_eq!(bench.look(&[(0, 580), (1, 395)]), [evict(1)]);
    bench.out(1, 395);
    let second = Duration::from_secs(1);
    assert_eq!(bench.look_at(&[(0, 600)], 0.0, second), []);
    assert_eq!(bench.look_at(&[(0, 600)], 0.0, second), [evict(0)]);
    assert_eq!(bench.out(0, 600), [restore(1)]);
    bench.tell(done(1, Outcome::Restored));
    assert_eq!(bench.look_at(&[(1, 395)], 0.0, second), []);
    assert_eq!(bench.look_at(&[(1, 395)], 0.0, second), [evict(1)], "it turns on");
}

/// Before, not after, as fast as memory grows.
#[test]
fn enforced_the_youngest_fails_before_the_budget_is_exceeded() {
    let limits = Given { may_page: false, may_stop: false, enforce: true, ..limits(2) };
    let mut bench = Bench::running(limits, 2, 2);
    assert_eq!(bench.look(&[(0, 500), (1, 470)]), [Effect::Hold { rank: 1 }]);
    bench.tell(done(1, Outcome::Held));
    let soon = Duration::from_millis(20);
    assert_eq!(bench.look_at(&[(0, 505)], 1.0, soon), []);
    let fails = Effect::OverLimit { rank: 1, bytes: 470 * MB, limit: 475 * MB };
    assert_eq!(
        bench.look_at(&[(0, 525)], 1.0, soon),
        [fails],
        "1 GB/s for 30 ms are more than the 5 MB left"
    );
}

#[test]
fn who_stands_still_until_memory_comes_has_no_turn_meanwhile() {
    let mut bench = Bench::running(Given { may_stop: false, ..limits(2) }, 2, 2);
    bench.look(&[(0, 500), (1, 400)]);
    let soon = Duration::from_millis(20);
    assert_eq!(bench.look_at(&[(0, 550), (1, 445)], 2.0, soon), [evict(1), Effect::Hold { rank: 0 }]);
    bench.tell(done(0, Outcome::Held));
    bench.tell(done(1, Outcome::Refused { lasting: false }));
    assert_eq!(bench.look_at(&[(1, 450)], 1.0, soon), [Effect::Hold { rank: 1 }]);
    bench.tell(done(1, Outcome::Held));
    // Rank 1 is asked again four looks later, and may leave then.
    for _ in 0..2 {
        assert_eq!(bench.look_at(&[], 0.0, Duration::from_secs(1)), []);
    }
    assert_eq!(bench.look_at(&[], 0.0, Duration::from_secs(1)), [evict(1)]);
    assert_eq!(bench.out(1, 450), [Effect::Resume { rank: 0 }]);
}

/// On its way in it counts with its whole size, but once it is there it grows until it is held.
#[test]
fn the_oldest_stands_still_sooner_while_somebody_comes_in() {
    let mut bench = Bench::running(limits(2), 2, 2);
    assert_eq!(bench.look(&[(0, 500), (1, 480)]), [evict(1)]);
    bench.out(1, 480);
    assert_eq!(bench.look(&[(0, 300)]), [restore(1)]);
    assert_eq!(bench.look(&[(0, 500)]), []);
    assert_eq!(bench.look(&[(0, 506)]), [Effect::Hold { rank: 0 }]);
}

#[test]
fn whose_turn_it_is_comes_in_when_the_disk_has_a_place_for_it() {
    let mut bench = Bench::running(limits(6), 6, 6);
    bench.look(&[0, 1, 2, 3, 4, 5].map(|rank| (rank, 10)));
    for rank in 1..=4 {
        assert_eq!(bench.tell(Event::Chaos { rank }), [evict(rank)]);
        bench.out(rank, 10);
        assert_eq!(bench.look(&[]), [restore(rank)]);
    }
    assert_eq!(bench.tell(Event::Chaos { rank: 5 }), [evict(5)]);
    assert_eq!(bench.out(5, 10), [], "so many come in already");
    bench.core.begin_turn(5, turn::Cause::Idle);
    assert_eq!(bench.look(&[(0, 10)]), []);
    bench.tell(done(2, Outcome::Restored));
    assert_eq!(bench.look(&[]), [restore(5)]);
}

/// How long that other takes would else be waited for four times before the next turn, and four times that.
#[test]
fn who_goes_on_out_of_turn_makes_no_exchange_longer() {
    let mut bench = Bench::running(limits(4), 4, 4);
    bench.look(&[(0, 400), (1, 400), (2, 50), (3, 0)]);
    bench.tell(Event::Can { rank: 3, can: Can::NATIVE });
    bench.tell(Event::Granted { rank: 3, bytes: MB });
    bench.tell(Event::Blocked { rank: 3, wait: Wait::Collective { missing: 1 } });
    assert_eq!(bench.tell(Event::Chaos { rank: 3 }), [evict(3)]);
    bench.tell(done(3, Outcome::Evicted { left: Memory::default(), all: Memory { asked: MB, other: 0 } }));
    assert_eq!(bench.tell(Event::Chaos { rank: 1 })[0], evict(1));
    bench.tell(Event::Can { rank: 0, can: Can { evict: false, ..Can::NATIVE } });
    bench.sample(0, 700, 0);
    bench.tell(Event::Blocked { rank: 0, wait: Wait::Collective { missing: 1 } });
    assert_eq!(bench.out(1, 400), []);
    bench.core.begin_turn(1, turn::Cause::Idle);
    assert_eq!(bench.look(&[]), [evict(2)]);
    assert!(bench.core.turned.is_some());
    assert_eq!(bench.tell(Event::Runnable { rank: 3 }), [], "it is not its turn");
    let orders = bench.out(2, 50);
    assert_eq!(ranks(&orders), [3], "{orders:?}");
    assert_eq!(bench.core.turned, None);
}

/// Patience that grew by what was waited for would grow fourfold each time.
#[test]
fn what_was_waited_for_is_no_part_of_an_exchange() {
    let mut bench = Bench::running(limits(3), 3, 3);
    bench.look(&[(0, 400), (1, 400), (2, 50)]);
    assert_eq!(bench.tell(Event::Chaos { rank: 1 })[0], evict(1));
    bench.tell(Event::Can { rank: 0, can: Can { evict: false, ..Can::PROGRAM } });
    bench.sample(0, 700, 0);
    assert_eq!(bench.out(1, 400), []);
    bench.core.begin_turn(1, turn::Cause::Nobody);
    assert_eq!(bench.look(&[]), [evict(2)]);
    assert!(bench.core.turned.is_some());
    assert_eq!(bench.out(2, 50), []);
    let orders = bench.look_at(&[], 0.0, Duration::from_secs(3));
    assert_eq!(ranks(&orders), [1, 1], "{orders:?}");
    bench.tell(done(1, Outcome::Restored));
    assert_eq!(bench.core.exchange, Duration::ZERO);
}

#[test]
fn one_that_runs_in_parts_makes_room_for_whom_it_waits() {
    let mut bench = Bench::running(limits(2), 2, 2);
    assert_eq!(bench.look(&[(0, 580), (1, 395)]), [evict(1)]);
    bench.out(1, 395);
    let shrink = bench.look(&[(0, 990)]);
    let [Effect::Shrink { rank: 0, target }] = shrink[..] else { panic!("{shrink:?}") };
    bench.tell(done(0, Outcome::Shrunk { left: target }));
    let more = bench.look(&[(0, target / MB)]);
    let [Effect::Shrink { rank: 0, target }] = more[..] else { panic!("{more:?}") };
    bench.tell(done(0, Outcome::Shrunk { left: target }));
    let idle = Duration::from_secs(2);
    let shrink = bench.look_at(&[(0, target / MB)], 0.0, idle);
    let [Effect::Shrink { rank: 0, target }] = shrink[..] else { panic!("{shrink:?}") };
    assert!(target + 395 * MB <= 1000 * MB, "{target}");
    let orders = bench.tell(done(0, Outcome::Shrunk { left: target }));
    // At once, before what is free is used again.
    assert_eq!(orders[0], restore(1), "{orders:?}");
}

#[test]
fn chaos_sends_out_and_at_once_back() {
    let mut bench = Bench::running(limits(2), 9, 2);
    bench.look(&[(0, 100), (1, 100)]);
    let effects = bench.tell(Event::Chaos { rank: 0 });
    assert_eq!(effects[0], evict(0));
    assert_eq!(bench.tell(Event::Chaos { rank: 0 }), [], "it is on its way");
    bench.tell(evicted(0, 90 * MB, 10 * MB));
    assert_eq!(bench.look(&[]), [restore(0)]);
    assert_eq!(bench.tell(Event::Chaos { rank: 7 }), [], "not even started");
}

/// One that begins to ask on its way out leaves as it is, with what it asked for by then: it comes back as a
/// whole, with that, and what it needs is told when it is back.
#[test]
fn who_begins_to_ask_on_its_way_out_comes_back_as_it_left() {
    let mut bench = Bench::running(limits(2), 2, 2);
    bench.look(&[(0, 100), (1, 100)]);
    assert_eq!(bench.tell(Event::Chaos { rank: 1 })[0], evict(1));
    bench.tell(Event::Can { rank: 1, can: Can { preempt: true, ..Can::NATIVE } });
    bench.tell(Event::Interrupted { rank: 1 });
    let needs = Event::NeedsMemory { rank: 1, bytes: 5 * MB };
    assert_eq!(bench.tell(needs), []);
    let all = Memory { asked: 40 * MB, other: 60 * MB };
    let left = Memory { asked: 0, other: MB };
    let mut effects = Vec::new();
    bench.core.handle(done(1, Outcome::Evicted { left, all }), &mut effects);
    let back = Effect::Restore { rank: 1, bytes: 99 * MB, all: 40 * MB, overdraft: false };
    assert_eq!(effects, [back]);
    bench.tell(Event::Denied { rank: 1, bytes: 99 * MB });
    assert_eq!(bench.core.ranks[1].holds, left, "as a whole, or not at all");
    let pool = Event::Pool { asked: 0, messages: 0, measured: 101 * MB, kept: 0 };
    assert_eq!(bench.tell(pool), [restore(1)]);
    bench.tell(done(1, Outcome::Restored));
    bench.tell(Event::Pool { asked: 40 * MB, messages: 0, measured: 160 * MB, kept: 0 });
    let grant = Effect::Grant { rank: 1, bytes: 5 * MB, overdraft: false };
    assert_eq!((bench.tell(needs), bench.core.index.asked), (vec![grant], 45 * MB));
}

#[test]
fn from_the_first_that_tells_on_all_are_started() {
    let mut bench = Bench::running(limits(2), 9, 2);
    let started = bench.tell(Event::Can { rank: 1, can: Can::NATIVE });
    assert_eq!(ranks(&started), (2..9).collect::<Vec<_>>(), "they may be waited for");
}

#[test]
fn who_cannot_be_started_is_not_tried_again() {
    let mut bench = Bench::new(limits(1), &[None, None]);
    assert_eq!(ranks(&bench.look(&[])), [0]);
    assert_eq!(ranks(&bench.tell(done(0, Outcome::NotStarted))), [1]);
    assert_eq!(bench.tell(done(1, Outcome::NotStarted)), [Effect::Finish]);
    assert!(bench.core.is_ended());
}

#[test]
fn what_is_overtaken_changes_nothing() {
    let mut bench = Bench::running(limits(2), 2, 2);
    bench.look(&[(0, 500), (1, 480)]);
    bench.exit(1, 480);
    let before = bench.core.counts();
    let late = [
        evicted(1, 480 * MB, 0),
        Event::Freed { rank: 1, bytes: MB },
        done(0, Outcome::Restored),
        done(0, Outcome::Resumed),
        done(1, Outcome::Held),
        Event::Sample { rank: 1, bytes: 5000 * MB, fixed: 0 },
        Event::Exited { rank: 77, peak: 0, next: Next::Over },
        Event::Chaos { rank: 77 },
    ];
    for event in late {
        assert_eq!(bench.tell(event), [], "{event:?}");
    }
    assert_eq!(bench.core.counts(), before);
}

#[test]
fn looks_come_sooner_when_memory_gets_short() {
    let mut bench = Bench::running(limits(2), 2, 2);
    bench.look(&[(0, 100), (1, 100)]);
    let far = bench.core.next_look();
    bench.look(&[(0, 440), (1, 490)]);
    let near = bench.core.next_look();
    bench.look(&[(0, 478), (1, 505)]);
    let there = bench.core.next_look();
    assert!(far > near && near > there, "{far:?} {near:?} {there:?}");
    assert!(far <= Duration::from_millis(100) && there >= Duration::from_millis(2));
}

#[test]
fn fast_growth_is_given_way_early() {
    let mut bench = Bench::running(limits(2), 2, 2);
    let tenth = Duration::from_millis(100);
    assert_eq!(bench.look(&[(0, 300), (1, 300)]), []);
    // 1 GB/s: what grows until the next look and until an order takes effect must be free.
    assert_eq!(bench.look_at(&[(0, 350), (1, 350)], 2.0, tenth), []);
    for rank in 0..2 {
        bench.tell(Event::Sample { rank, bytes: 400 * MB, fixed: 0 });
    }
    let reaction = Duration::from_millis(200);
    let orders = bench.tell(Event::Looked { elapsed: tenth, busy: 2.0, idle: 0.0, reaction });
    assert_eq!(orders, [evict(1)]);
}
