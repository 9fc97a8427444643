//! Ranks that ask and tell.

use super::*;

const MIB: u64 = 1 << 20;

fn limits(budget: u64, resident: u32) -> Limits {
    Limits {
        alive: u32::MAX,
        budget,
        resident,
        processors: 2,
        enforce: false,
        rank_limit: None,
        first_reserve: MIB,
        moves: 2,
        part: budget + 1,
        ahead: 0,
    }
}

/// A core whose pool is kept by hand, checked after every event.
struct Bench {
    core: Core,
    free: i64,
    /// Bytes.
    messages: u64,
}

impl Bench {
    fn new(np: u32, limits: Limits) -> Self {
        let core = Core::new(limits, &vec![(Can::NATIVE, None); np as usize]);
        Self { core, free: signed(limits.budget), messages: 0 }
    }

    /// Feeds one batch and returns what was ordered, with the pool kept as if all was carried out.
    fn tell(&mut self, events: &[Event]) -> Vec<Effect> {
        let mut effects = Vec::new();
        let messages = self.messages;
        let asked =
            u64::try_from(signed(self.core.limits.budget) - self.free).unwrap_or(0).saturating_sub(messages);
        self.core.handle(Event::Pool { asked, messages, measured: 0, kept: 0 }, &mut effects);
        self.core.sanity_check();
        for event in events {
            self.core.handle(*event, &mut effects);
            self.core.sanity_check();
        }
        // That is told besides.
        effects.retain(|effect| !matches!(effect, Effect::Overdraft { .. }));
        for effect in &effects {
            match *effect {
                Effect::Start { reserve: bytes, .. }
                | Effect::Restore { bytes, .. }
                | Effect::Grant { bytes, .. } => self.free -= signed(bytes),
                _ => {}
            }
        }
        effects
    }

    /// Starts ranks 0..n and lets each hold `bytes`.
    fn start(&mut self, n: u32, bytes: u64) {
        self.tell(&[]);
        let mut events = Vec::new();
        for rank in 0..n {
            events.extend([started(rank), Event::Granted { rank, bytes }]);
            self.free -= signed(bytes) - signed(self.core.limits().first_reserve);
        }
        self.tell(&events);
    }

    fn evicted(&mut self, rank: Rank, held: u64) -> Vec<Effect> {
        self.free += signed(held);
        self.tell(&[evicted(rank, held)])
    }
}

fn evicted(rank: Rank, held: u64) -> Event {
    let all = Memory { asked: held, other: 0 };
    done(rank, Outcome::Evicted { left: Memory::default(), all })
}

fn blocked(rank: Rank, missing: u32) -> Event {
    Event::Blocked { rank, wait: Wait::Collective { missing } }
}

fn evict(rank: Rank) -> Effect {
    Effect::Evict { rank, keep: 0, preempt: false }
}

fn restore(rank: Rank, bytes: u64) -> Effect {
    Effect::Restore { rank, bytes, all: bytes, overdraft: false }
}

fn needs(rank: Rank, bytes: u64) -> Event {
    Event::NeedsMemory { rank, bytes }
}

#[test]
fn chaos_evicts_only_who_waits() {
    let mut bench = Bench::new(3, limits(100 * MIB, 3));
    bench.start(3, MIB);
    assert_eq!(bench.tell(&[Event::Chaos { rank: 0 }]), [], "it runs");
    assert_eq!(bench.tell(&[Event::Chaos { rank: 9 }]), [], "there is none");
    assert_eq!(bench.tell(&[blocked(1, 2), Event::Chaos { rank: 1 }]), [evict(1)]);
    assert_eq!(bench.tell(&[Event::Chaos { rank: 1 }]), [], "it is on its way");
    assert_eq!(bench.evicted(1, MIB), [], "it comes back when it is runnable");
    let back = restore(1, MIB);
    assert_eq!(bench.tell(&[Event::Runnable { rank: 1 }]), [back]);
}

#[test]
fn admits_up_to_the_count_and_the_budget() {
    let mut bench = Bench::new(10, limits(100 * MIB, 3));
    let spawned = bench.tell(&[]);
    assert_eq!(spawned, (0..3).map(|rank| Effect::Start { rank, reserve: MIB }).collect::<Vec<_>>());
    assert_eq!(bench.tell(&[]), []);
    assert!(bench.core.wants_room());

    let mut bench = Bench::new(10, limits(2 * MIB + 1, 10));
    assert_eq!(bench.tell(&[]).len(), 2);
}

#[test]
fn nothing_is_evicted_while_everything_fits() {
    let mut bench = Bench::new(2, limits(100 * MIB, 2));
    bench.start(2, 10 * MIB);
    assert_eq!(bench.tell(&[blocked(0, 1), blocked(1, 0)]), []);
    assert!(bench.core.is_quiet() && !bench.core.wants_room());
}

#[test]
fn blocked_rank_makes_room_for_an_unborn_one_and_comes_back_when_runnable() {
    let mut bench = Bench::new(2, limits(100 * MIB, 1));
    bench.start(1, 10 * MIB);
    assert_eq!(bench.tell(&[blocked(0, 1)]), [evict(0)]);
    assert_eq!(bench.evicted(0, 10 * MIB), [Effect::Start { rank: 1, reserve: MIB }]);
    assert_eq!(bench.tell(&[started(1)]), []);
    assert_eq!(bench.tell(&[Event::Runnable { rank: 0 }]), [], "rank 1 runs in the only place");
    assert_eq!(bench.tell(&[blocked(1, 1)]), [evict(1)]);
    let back = restore(0, 10 * MIB);
    assert_eq!(bench.evicted(1, MIB), [back]);
}

#[test]
fn a_wake_up_during_eviction_is_not_lost() {
    let mut bench = Bench::new(2, limits(100 * MIB, 1));
    bench.start(1, MIB);
    bench.tell(&[blocked(0, 1)]);
    assert_eq!(bench.tell(&[Event::Runnable { rank: 0 }, blocked(0, 1)]), []);
    // Rank 1 is unborn and waits longer, but what was begun goes on first.
    assert_eq!(bench.evicted(0, MIB), [restore(0, MIB)]);
}

#[test]
fn a_lost_race_chooses_another_victim() {
    let mut bench = Bench::new(3, limits(100 * MIB, 2));
    bench.start(2, MIB);
    assert_eq!(bench.tell(&[blocked(0, 2), blocked(1, 2)]), [evict(0)]);
    assert_eq!(bench.tell(&[done(0, Outcome::Lost)]), [evict(1)]);
}

#[test]
fn the_furthest_goes_first() {
    let mut bench = Bench::new(12, limits(100 * MIB, 4));
    bench.start(4, MIB);
    let from = |rank, from| Event::Blocked { rank, wait: Wait::Message { from: Some(from) } };
    // 0 runs; 1 waits for it, 2 for a rank not born, 3 for one that is on its way out. Two may go at once.
    assert_eq!(bench.tell(&[from(1, 0)]), [evict(1)], "the only one");
    let mut effects = Vec::new();
    bench.core.limits.moves = 1;
    for event in [from(3, 1), from(2, 4)] {
        bench.core.handle(event, &mut effects);
    }
    assert_eq!(effects, []);
    // 1 stays: 3, which waits for it, is nearer than was thought.
    assert_eq!(bench.tell(&[done(1, Outcome::Refused { lasting: false })]), [evict(2)]);
}

#[test]
fn of_those_at_the_same_distance_the_last_to_block_goes() {
    let mut bench = Bench::new(5, limits(100 * MIB, 4));
    bench.start(4, MIB);
    let mut last = Vec::new();
    // Lag: all block before the scheduler may act.
    let mut effects = Vec::new();
    for rank in 0..4 {
        let wait = Wait::Message { from: None };
        bench.core.handle(Event::Blocked { rank, wait }, &mut effects);
        last.append(&mut effects);
    }
    assert_eq!(last, [evict(0)], "room is made as soon as it can be");
    assert_eq!(bench.tell(&[done(0, Outcome::Refused { lasting: false })]), [evict(3)]);
}

#[test]
fn ranks_that_cannot_leave_are_never_evicted() {
    let mut bench = Bench::new(2, limits(100 * MIB, 1));
    bench.tell(&[Event::Can { rank: 0, can: Can { evict: false, ..Can::NATIVE } }]);
    assert_eq!(bench.tell(&[started(0), blocked(0, 1)]), []);
    assert_eq!(bench.tell(&[exited(0)]), [Effect::Start { rank: 1, reserve: MIB }]);
    assert_eq!(bench.tell(&[exited(1)]), [Effect::Finish]);
}

/// The kernel takes long to end a process, and nobody waits for that: but its memory is not free before.
#[test]
fn who_is_about_to_end_keeps_its_memory_and_no_place() {
    let mut bench = Bench::new(3, limits(100 * MIB, 1));
    bench.tell(&[started(0)]);
    assert_eq!(bench.tell(&[Event::Ending { rank: 0 }]), [Effect::Start { rank: 1, reserve: MIB }]);
    assert_eq!(bench.tell(&[started(1)]), [], "there is one place");
    assert_eq!(bench.tell(&[exited(0)]), []);
    assert_eq!(
        bench.tell(&[Event::Ending { rank: 0 }, exited(1)]),
        [Effect::Start { rank: 2, reserve: MIB }]
    );

    let mut bench = Bench::new(2, limits(100 * MIB, 1));
    bench.start(1, 100 * MIB);
    assert_eq!(bench.tell(&[Event::Ending { rank: 0 }]), []);
    bench.free += signed(100 * MIB);
    assert_eq!(bench.tell(&[exited(0)]), [Effect::Start { rank: 1, reserve: MIB }]);
}

#[test]
fn memory_goes_to_the_one_that_waits_longest() {
    let mut bench = Bench::new(2, limits(100 * MIB, 2));
    bench.start(2, 50 * MIB);
    assert_eq!(bench.tell(&[needs(1, 10 * MIB)]), [], "rank 0 runs and may give some back");
    assert_eq!(bench.tell(&[needs(0, 10 * MIB)]), [evict(0)]);
    let grant = Effect::Grant { rank: 1, bytes: 10 * MIB, overdraft: false };
    assert_eq!(bench.evicted(0, 50 * MIB), [grant]);
    bench.tell(&[Event::Running { rank: 1 }]);
    bench.free += signed(60 * MIB);
    let back = restore(0, 60 * MIB);
    assert_eq!(bench.tell(&[exited(1)]), [back]);
}

#[test]
fn a_rank_larger_than_the_budget_runs_alone() {
    let mut bench = Bench::new(2, limits(100 * MIB, 2));
    bench.start(2, 20 * MIB);
    assert_eq!(bench.tell(&[needs(0, 150 * MIB)]), []);
    assert_eq!(bench.tell(&[blocked(1, 1)]), [evict(1)]);
    let grant = Effect::Grant { rank: 0, bytes: 150 * MIB, overdraft: true };
    assert_eq!(bench.evicted(1, 20 * MIB), [grant]);
    assert_eq!(bench.core.overdraft_rank(), Some(0));
    // It waits; the other is wanted; it leaves, and comes back alone.
    bench.tell(&[Event::Running { rank: 0 }, Event::Runnable { rank: 1 }]);
    assert_eq!(bench.tell(&[blocked(0, 1)]), [evict(0)]);
    bench.evicted(0, 170 * MIB);
    bench.tell(&[done(1, Outcome::Restored), Event::Runnable { rank: 0 }]);
    assert_eq!(bench.tell(&[blocked(1, 1)]), [evict(1)]);
    let restore = Effect::Restore { rank: 0, bytes: 170 * MIB, all: 170 * MIB, overdraft: true };
    assert_eq!(bench.evicted(1, 20 * MIB), [restore]);
}

/// One that refuses to leave, and holds nothing, has the only place.
#[test]
fn an_empty_place_is_in_nobodys_way() {
    for held in [0, MIB] {
        let mut bench = Bench::new(2, limits(100 * MIB, 1));
        bench.start(1, 20 * MIB);
        let grant = Effect::Grant { rank: 0, bytes: 150 * MIB, overdraft: true };
        assert_eq!(bench.tell(&[needs(0, 150 * MIB)]), [grant]);
        assert_eq!(bench.tell(&[Event::Running { rank: 0 }, blocked(0, 1)]), [evict(0)]);
        assert_eq!(bench.evicted(0, 170 * MIB), [Effect::Start { rank: 1, reserve: MIB }]);
        bench.free += signed(MIB - held);
        bench.tell(&[started(1), Event::Granted { rank: 1, bytes: held }]);
        (bench.messages, bench.free) = (90 * MIB, bench.free - signed(90 * MIB));
        assert_eq!(bench.tell(&[Event::Runnable { rank: 0 }]), []);
        assert_eq!(bench.tell(&[needs(1, 20 * MIB)]), [evict(1)]);
        assert_eq!(bench.tell(&[done(1, Outcome::Refused { lasting: true })]), []);
        let effects = bench.tell(&[Event::Settled]);
        let restore = Effect::Restore { rank: 0, bytes: 170 * MIB, all: 170 * MIB, overdraft: true };
        match held {
            0 => assert_eq!(effects, [Effect::Crowded { rank: 0, resident: 2 }, restore]),
            _ => assert!(matches!(effects[..], [Effect::Fail(Failure::Unpageable { .. })]), "{effects:?}"),
        }
    }
}

/// Where a budget rises and falls a part of a rank may come and go for ever: it does nothing by that, or
/// others would wait as long for their turn.
#[test]
fn parts_that_come_in_do_not_pass_for_progress() {
    let stays = Can { evict: false, hold: false, ..Can::PROGRAM };
    let limits = Limits { part: MIB, ..limits(100 * MIB, 2) };
    let mut core = Core::new(limits, &[(stays, None), (Can::NATIVE, None)]);
    let mut tell = |asked: u64, events: &[Event]| {
        let mut effects = Vec::new();
        core.handle(Event::Pool { asked, messages: 0, measured: 50 * MIB, kept: 0 }, &mut effects);
        events.iter().for_each(|event| core.handle(*event, &mut effects));
        core.sanity_check();
        (effects, core.pace.idle)
    };
    let look = |millis| {
        let elapsed = Duration::from_millis(millis);
        Event::Looked { elapsed, busy: 0.0, idle: 2.0, reaction: Duration::ZERO }
    };
    tell(0, &[look(0)]);
    tell(0, &[started(0), Event::Sample { rank: 0, bytes: 50 * MIB, fixed: 0 }, started(1)]);
    // So long that nothing seems to grow.
    tell(0, &[look(100_000)]);
    tell(40 * MIB, &[Event::Granted { rank: 1, bytes: 40 * MIB }, needs(1, 20 * MIB)]);
    let (effects, idle) = tell(40 * MIB, &[look(1000)]);
    assert_eq!((effects, idle), (vec![], Duration::from_secs(1)));
    let (effects, _) = tell(40 * MIB, &[Event::LimitChanged { budget: 80 * MIB }]);
    assert_eq!(effects, [evict(1)]);
    let (effects, _) = tell(0, &[evicted(1, 40 * MIB), needs(1, 20 * MIB)]);
    let [Effect::Restore { rank: 1, bytes, all, .. }] = effects[..] else { panic!("{effects:?}") };
    assert!(bytes < all, "a part");
    let (_, idle) = tell(bytes, &[look(20)]);
    assert_eq!(idle, Duration::from_secs(1), "it is on its way");
    let part = done(1, Outcome::RestoredPartly { asked: bytes, orders: 2 });
    let (_, idle) = tell(bytes, &[part, look(20)]);
    assert!(idle >= Duration::from_secs(1));
    // It runs.
    tell(bytes, &[exited(0)]);
    let (_, idle) = tell(60 * MIB, &[done(1, Outcome::Restored), look(20)]);
    assert_eq!(idle, Duration::ZERO);
}

#[test]
fn limits_that_cannot_be_kept_fail() {
    let mut bench = Bench::new(2, Limits { enforce: true, ..limits(100 * MIB, 2) });
    bench.start(2, 20 * MIB);
    let effects = bench.tell(&[needs(0, 81 * MIB)]);
    let failure = Failure::RankTooLarge { rank: 0, need: 101 * MIB, budget: 100 * MIB, messages: 0 };
    assert_eq!(effects, [Effect::Fail(failure)]);
    assert_eq!(bench.tell(&[blocked(1, 1)]), [], "nothing follows");

    // The other has a place and holds nothing: who finds no room beside messages is told of them.
    let mut bench = Bench::new(2, Limits { enforce: true, ..limits(100 * MIB, 2) });
    bench.start(2, 0);
    (bench.messages, bench.free) = (MIB, bench.free - signed(MIB));
    assert_eq!(bench.tell(&[blocked(1, 1), needs(0, 100 * MIB)]), []);
    let failure = Failure::RankTooLarge { rank: 0, need: 100 * MIB, budget: 100 * MIB, messages: MIB };
    assert_eq!(bench.tell(&[Event::Settled]), [Effect::Fail(failure)]);

    let mut bench = Bench::new(2, Limits { rank_limit: Some(30 * MIB), ..limits(100 * MIB, 2) });
    bench.start(2, 20 * MIB);
    let failure = Failure::RankOverLimit { rank: 1, need: 31 * MIB, limit: 30 * MIB };
    assert_eq!(bench.tell(&[needs(1, 11 * MIB)]), [Effect::Fail(failure)]);
}

#[test]
fn denied_orders_are_repeated_when_the_pool_has_enough() {
    let mut bench = Bench::new(1, limits(100 * MIB, 1));
    bench.start(1, 50 * MIB);
    let grant = Effect::Grant { rank: 0, bytes: 40 * MIB, overdraft: false };
    assert_eq!(bench.tell(&[needs(0, 40 * MIB)]), std::slice::from_ref(&grant));
    let mut effects = Vec::new();
    bench.core.handle(Event::Denied { rank: 0, bytes: 40 * MIB }, &mut effects);
    assert_eq!(effects, [], "not before the pool has told what it has");
    bench.free += signed(40 * MIB);
    assert_eq!(bench.tell(&[]), [grant]);
}

#[test]
fn full_disk_fails_only_when_nobody_can_go_on() {
    let mut bench = Bench::new(3, limits(100 * MIB, 2));
    bench.start(2, 20 * MIB);
    assert_eq!(bench.tell(&[blocked(0, 2)]), [evict(0)]);
    let full = done(0, Outcome::Full { need: 20 * MIB, part: None });
    assert_eq!(bench.tell(&[full]), []);
    assert_eq!(bench.tell(&[blocked(1, 2)]), [evict(1)], "nobody runs: the disk is asked again");
    assert_eq!(bench.tell(&[done(1, Outcome::Full { need: 20 * MIB, part: None })]), []);
    let failure = Failure::ScratchFull { rank: 1, need: 20 * MIB };
    assert_eq!(bench.tell(&[Event::Settled]), [Effect::Fail(failure)]);
}

/// The disk is full; then who could not leave gives all back by itself.
#[test]
fn a_full_disk_is_in_nobodys_way_where_nothing_is_held() {
    for enforce in [false, true] {
        let mut bench = Bench::new(2, Limits { enforce, ..limits(100 * MIB, 2) });
        bench.start(2, 20 * MIB);
        bench.messages = 5 * MIB;
        bench.free -= signed(5 * MIB);
        assert_eq!(bench.tell(&[blocked(0, 1), needs(1, 78 * MIB)]), [evict(0)]);
        let full = done(0, Outcome::Full { need: 20 * MIB, part: None });
        assert_eq!(bench.tell(&[full]), [evict(0)], "it is asked once more");
        assert_eq!(bench.tell(&[full]), []);
        bench.free += signed(20 * MIB);
        let gives = [Event::Runnable { rank: 0 }, Event::Granted { rank: 0, bytes: 0 }, blocked(0, 1)];
        assert_eq!(bench.tell(&gives), []);
        let expected = if enforce {
            let (need, budget) = (98 * MIB, 100 * MIB);
            Effect::Fail(Failure::RankTooLarge { rank: 1, need, budget, messages: 5 * MIB })
        } else {
            Effect::Grant { rank: 1, bytes: 78 * MIB, overdraft: true }
        };
        assert_eq!(bench.tell(&[Event::Settled]), [expected]);
    }
}

#[test]
fn an_exit_reopens_the_disk() {
    let mut bench = Bench::new(4, limits(100 * MIB, 3));
    bench.start(3, 20 * MIB);
    bench.tell(&[blocked(0, 3)]);
    assert_eq!(bench.tell(&[done(0, Outcome::Full { need: 1, part: None }), blocked(1, 3)]), []);
    bench.free += signed(20 * MIB);
    // And tells what the next will need.
    let [Effect::Start { rank: 3, reserve }] = bench.tell(&[exited(2)])[..] else { panic!("it starts") };
    assert!(reserve.abs_diff(20 * MIB) <= 20 * MIB / 50, "{reserve}");
}

#[test]
fn deadlock_is_called_only_when_all_is_settled() {
    let mut bench = Bench::new(2, limits(100 * MIB, 2));
    bench.start(2, MIB);
    let wait = |rank| Event::Blocked { rank, wait: Wait::Message { from: None } };
    assert_eq!(bench.tell(&[wait(0), Event::Settled]), []);
    assert_eq!(bench.tell(&[wait(1)]), []);
    assert_eq!(bench.tell(&[Event::Settled]), [Effect::Fail(Failure::Deadlock { waiting: 2 })]);
}

#[test]
fn a_lowered_budget_is_met() {
    let mut bench = Bench::new(2, limits(100 * MIB, 2));
    bench.start(2, 40 * MIB);
    bench.tell(&[blocked(0, 1)]);
    bench.free -= signed(50 * MIB);
    assert_eq!(bench.tell(&[Event::LimitChanged { budget: 50 * MIB }]), [evict(0)]);
}

#[test]
fn unborn_ranks_have_their_turn_though_others_wake_each_other_for_ever() {
    let mut bench = Bench::new(3, limits(100 * MIB, 1));
    bench.start(1, MIB);
    bench.tell(&[blocked(0, 1)]);
    bench.evicted(0, MIB);
    bench.tell(&[started(1)]);
    let (mut inside, mut outside) = (1, 0);
    for _ in 0..10 {
        bench.tell(&[Event::Runnable { rank: outside }]);
        assert_eq!(bench.tell(&[blocked(inside, 1)]), [evict(inside)]);
        let effects = bench.evicted(inside, MIB);
        if effects == [Effect::Start { rank: 2, reserve: MIB }] {
            return;
        }
        assert_eq!(effects, [restore(outside, MIB)]);
        bench.tell(&[done(outside, Outcome::Restored)]);
        std::mem::swap(&mut inside, &mut outside);
    }
    panic!("rank 2 never had its turn");
}

#[test]
fn nonsense_changes_nothing() {
    let mut bench = Bench::new(1, limits(100 * MIB, 1));
    let rank = 7;
    let strangers = [started(rank), blocked(rank, 1), evicted(rank, 1)];
    assert_eq!(bench.tell(&strangers), [Effect::Start { rank: 0, reserve: MIB }]);
    let early = [Event::Runnable { rank: 0 }, evicted(0, 3), done(0, Outcome::Lost)];
    assert_eq!(bench.tell(&early), []);
    assert_eq!(bench.core.counts().resident, 1);
}

#[test]
fn while_another_runs_the_youngest_in_need_leaves_for_the_oldest() {
    let mut bench = Bench::new(3, limits(100 * MIB, 3));
    bench.start(3, 33 * MIB);
    assert_eq!(bench.tell(&[needs(1, 10 * MIB)]), []);
    assert_eq!(bench.tell(&[needs(0, 10 * MIB)]), [evict(0)], "rank 2 runs on");
}

#[test]
fn the_oldest_in_need_leaves_where_the_others_cannot() {
    let mut bench = Bench::new(3, limits(100 * MIB, 3));
    bench.start(3, 33 * MIB);
    bench.tell(&[needs(0, 10 * MIB), needs(1, 10 * MIB)]);
    // Rank 1 refuses, now and whenever it is asked again.
    bench.tell(&[done(1, Outcome::Refused { lasting: false })]);
    let effects = bench.tell(&[Event::Blocked { rank: 2, wait: Wait::Other }]);
    assert_eq!(effects, [evict(2)]);
    assert_eq!(bench.tell(&[done(2, Outcome::Refused { lasting: false })]), [evict(2)], "asked once more");
    assert_eq!(bench.tell(&[done(2, Outcome::Refused { lasting: false })]), [evict(1)], "this one too");
    assert_eq!(bench.tell(&[done(1, Outcome::Refused { lasting: false })]), [evict(0)]);
    let grant = Effect::Grant { rank: 1, bytes: 10 * MIB, overdraft: false };
    assert_eq!(bench.evicted(0, 33 * MIB), [grant]);
}

#[test]
fn a_denial_that_the_pool_has_overtaken_gives_nothing_back_twice() {
    let mut bench = Bench::new(2, limits(100 * MIB, 2));
    bench.start(2, 40 * MIB);
    let grant = |rank| Effect::Grant { rank, bytes: 15 * MIB, overdraft: false };
    assert_eq!(bench.tell(&[needs(0, 15 * MIB)]), [grant(0)]);
    // The order was dropped, so the pool still has its 20 MiB; 10 of them are taken by rank 1.
    bench.free += signed(15 * MIB) - signed(10 * MIB);
    assert_eq!(bench.tell(&[Event::Denied { rank: 0, bytes: 15 * MIB }]), [], "10 MiB are free, not 25");
    bench.free += signed(10 * MIB);
    assert_eq!(bench.tell(&[]), [grant(0)]);
    // Denied again, but by now there is enough: no reason to wait for the pool's next word.
    bench.free += signed(15 * MIB);
    assert_eq!(bench.tell(&[Event::Denied { rank: 0, bytes: 15 * MIB }]), [grant(0)]);
}

/// Two that fit, but not beside the margin that is kept free once one of them holds what it did not ask for:
/// it is not sent out for that alone, to come in again.
#[test]
fn the_margin_alone_sends_nobody_out() {
    let mut bench = Bench::new(2, limits(90 * MIB, 2));
    for rank in 0..2 {
        let can = Can { preempt: true, ..Can::NATIVE };
        bench.core.handle(Event::Can { rank, can }, &mut Vec::new());
    }
    bench.start(2, MIB);
    let (elapsed, reaction) = (Duration::from_millis(100), Duration::from_millis(50));
    let look = Event::Looked { elapsed, busy: 1.0, idle: 1.0, reaction };
    let other = 3 * MIB;
    bench.free -= signed(44 * MIB);
    let granted = Event::Granted { rank: 0, bytes: 45 * MIB };
    bench.tell(&[granted, Event::Sample { rank: 0, bytes: other, fixed: 0 }, look]);
    // That it grew is forgotten.
    bench.tell(&[look; 50]);
    assert_eq!(bench.tell(&[blocked(0, 1), needs(1, 40 * MIB)]), [evict(0)]);
    bench.free += signed(45 * MIB);
    let all = Memory { asked: 45 * MIB, other };
    let out = done(0, Outcome::Evicted { left: Memory::default(), all });
    assert_eq!(bench.tell(&[out]), [Effect::Grant { rank: 1, bytes: 40 * MIB, overdraft: false }]);
    bench.tell(&[Event::Granted { rank: 1, bytes: 41 * MIB }]);
    let back = Effect::Restore { rank: 0, bytes: 48 * MIB, all: 45 * MIB, overdraft: false };
    assert_eq!(bench.tell(&[Event::Runnable { rank: 0 }]), [back]);
    // What it did not ask for is measured.
    bench.free += signed(other);
    for _ in 0..3 {
        let sample = Event::Sample { rank: 0, bytes: other, fixed: 0 };
        assert_eq!(bench.tell(&[done(0, Outcome::Restored), sample, look]), []);
    }
}

/// Who was interrupted left as it was, with what it asked for: it comes back as a whole, or not at all, also
/// where another would come in parts.
#[test]
fn who_was_interrupted_comes_back_as_a_whole() {
    let mut bench = Bench::new(3, Limits { part: MIB, ahead: 20 * MIB, ..limits(90 * MIB, 3) });
    for rank in 0..3 {
        let can = Can { preempt: true, ..Can::NATIVE };
        bench.core.handle(Event::Can { rank, can }, &mut Vec::new());
    }
    bench.start(3, MIB);
    let (elapsed, reaction) = (Duration::from_millis(20), Duration::from_millis(20));
    let look = Event::Looked { elapsed, busy: 2.0, idle: 0.0, reaction };
    bench.free -= signed(59 * MIB);
    bench.tell(&[Event::Granted { rank: 0, bytes: 40 * MIB }, Event::Granted { rank: 1, bytes: 21 * MIB }]);
    // Rank 0 takes more than there is, unasked.
    let grown = Event::Sample { rank: 0, bytes: 35 * MIB, fixed: 0 };
    let interrupt = |rank| Effect::Evict { rank, keep: 0, preempt: true };
    assert_eq!(bench.tell(&[grown, look]), [interrupt(2)]);
    bench.free += signed(MIB);
    let out = |asked| Outcome::Evicted { left: Memory::default(), all: Memory { asked, other: 0 } };
    assert_eq!(bench.tell(&[done(2, out(MIB)), look]), [interrupt(1)]);
    // 21 MiB were asked for, and fewer are free: nothing comes in of it, once nobody grows.
    bench.free += signed(21 * MIB);
    assert_eq!(bench.tell(&[done(1, out(21 * MIB))]), []);
    let back = Effect::Restore { rank: 2, bytes: MIB, all: MIB, overdraft: false };
    let slow = Event::Looked { elapsed: Duration::from_secs(1), busy: 2.0, idle: 0.0, reaction };
    assert_eq!(bench.tell(&[slow; 50]), [back]);
}

/// It was out in part before it could be interrupted: that is told after the order, and it left as one that
/// waits.
#[test]
fn who_left_before_it_could_be_interrupted_comes_back_in_parts() {
    for wait in [None, Some(Wait::Other)] {
        comes_back_in_parts(wait);
    }
}

/// `wait`: what it waited for when it had left.
fn comes_back_in_parts(wait: Option<Wait>) {
    let mut bench = Bench::new(3, Limits { part: MIB, ahead: 20 * MIB, ..limits(90 * MIB, 3) });
    for rank in 0..3 {
        let can = Can { preempt: true, ..Can::NATIVE };
        bench.core.handle(Event::Can { rank, can }, &mut Vec::new());
    }
    bench.start(3, MIB);
    let (elapsed, reaction) = (Duration::from_millis(20), Duration::from_millis(20));
    let look = Event::Looked { elapsed, busy: 2.0, idle: 0.0, reaction };
    bench.free -= signed(59 * MIB);
    bench.tell(&[Event::Granted { rank: 0, bytes: 40 * MIB }, Event::Granted { rank: 2, bytes: 21 * MIB }]);
    let grown = Event::Sample { rank: 0, bytes: 35 * MIB, fixed: 0 };
    assert_eq!(bench.tell(&[grown, look]), [Effect::Evict { rank: 2, keep: 0, preempt: true }]);
    bench.free += signed(21 * MIB);
    let left = Event::EvictedItself { rank: 2, wait, asked: 0, all: 21 * MIB };
    let out = Outcome::Evicted { left: Memory::default(), all: Memory { asked: 21 * MIB, other: 0 } };
    // Told twice: as it was seen, and as the order found it.
    bench.tell(&[left, left, done(2, out), look]);
    bench.tell(&[Event::Runnable { rank: 2 }]);
    // 21 MiB were asked for, and fewer are free.
    let slow = Event::Looked { elapsed: Duration::from_secs(1), busy: 2.0, idle: 0.0, reaction };
    let back = bench.tell(&[slow; 50]);
    let in_part = |effect: &Effect| match *effect {
        Effect::Restore { rank: 2, bytes, all, .. } => bytes < all && all == 21 * MIB,
        _ => false,
    };
    assert!(!back.is_empty() && back.iter().all(in_part), "{back:?}");
}

/// What it takes without asking is looked for: seldom where it would take long to fill what is free.
#[test]
fn those_that_compute_are_looked_at_the_sooner_the_less_is_free() {
    let looked = |budget| {
        let can = Can { preempt: true, ..Can::NATIVE };
        let core = Core::new(limits(budget, 4), &[(can, None); 2]);
        let mut bench = Bench { core, free: signed(budget), messages: 0 };
        bench.start(2, 64 * MIB);
        let (elapsed, reaction) = (Duration::from_millis(20), Duration::from_millis(20));
        bench.tell(&[Event::Looked { elapsed, busy: 2.0, idle: 0.0, reaction }]);
        bench.core.next_look().as_millis()
    };
    assert_eq!([256, 512, 1024, 65536].map(|mib| looked(mib * MIB)), [20, 46, 100, 100]);
}

/// Their other threads are given some memory again as soon as they have left.
#[test]
fn who_needs_more_than_there_is_gets_it_though_others_never_hold_nothing() {
    const TAKEN: u64 = 64 << 10;
    for (need, enforce) in [(80 * MIB, false), (60 * MIB - TAKEN / 2, false), (80 * MIB, true)] {
        let mut bench = Bench::new(4, Limits { enforce, ..limits(60 * MIB, 4) });
        bench.start(4, MIB);
        let needs = |rank| Event::NeedsMemory { rank, bytes: need };
        let mut orders = bench.tell(&(0..4).map(needs).collect::<Vec<_>>());
        let mut held = [MIB; 4];
        let last = (0..100).find_map(|_| {
            let left: Vec<Rank> = (orders.iter())
                .filter_map(|order| match *order {
                    Effect::Evict { rank, .. } => Some(rank),
                    _ => None,
                })
                .collect();
            let over = |order: &&Effect| !matches!(order, Effect::Evict { .. });
            if let Some(other) = orders.iter().find(over) {
                return Some(*other);
            }
            orders = bench.tell(if left.is_empty() { &[Event::Settled] } else { &[] });
            for rank in left {
                let out = std::mem::replace(&mut held[rank as usize], TAKEN);
                bench.free += signed(out) - signed(TAKEN);
                let again = [evicted(rank, out), Event::Granted { rank, bytes: TAKEN }, needs(rank)];
                orders.extend(bench.tell(&again));
            }
            None
        });
        match last {
            Some(Effect::Restore { overdraft: true, .. } | Effect::Grant { overdraft: true, .. }) => {
                assert!(!enforce);
            }
            Some(Effect::Fail(Failure::RankTooLarge { .. })) => assert!(enforce),
            other => panic!("{need} {enforce}: {other:?}"),
        }
    }
}

#[test]
fn who_runs_alone_with_more_than_there_is_is_not_paged_out_for_a_little_besides() {
    let mut bench = Bench::new(2, limits(60 * MIB, 2));
    bench.start(2, MIB);
    let needs = |rank, bytes| Event::NeedsMemory { rank, bytes };
    let first = bench.tell(&[needs(0, 80 * MIB), needs(1, 80 * MIB)]);
    assert!(matches!(first[..], [Effect::Evict { rank: 1, .. }]), "{first:?}");
    let all = Effect::Grant { rank: 0, bytes: 80 * MIB, overdraft: true };
    assert_eq!(bench.evicted(1, MIB), [all]);
    let runs = |bytes| [Event::Granted { rank: 0, bytes }, Event::Running { rank: 0 }];
    bench.tell(&[needs(1, 80 * MIB)]);
    bench.tell(&runs(81 * MIB));
    let little = Effect::Grant { rank: 0, bytes: MIB, overdraft: true };
    assert_eq!(bench.tell(&[needs(0, MIB)]), [little]);
    bench.tell(&runs(82 * MIB));
    let much = bench.tell(&[needs(0, 4 * MIB)]);
    assert!(matches!(much[..], [Effect::Evict { rank: 0, .. }]), "it is the other's turn: {much:?}");
}
