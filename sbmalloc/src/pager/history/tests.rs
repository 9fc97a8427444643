//! What is learnt, over simulated processes.

use super::*;
use Plan::{Bring, Leave, Probe};
use proptest::prelude::*;

/// A process of which everything is evicted at every wait, in granules.
struct Sim {
    sites: Sites,
    history: Vec<[u8; SLOTS]>,
    /// Forgets a replaced slot's history.
    forgotten: usize,
}

/// What a visit moved, in granules: brought in, and come in by being touched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Moves {
    brought: usize,
    touched: usize,
}

impl Moves {
    fn all(self) -> usize {
        self.brought + self.touched
    }
}

impl Sim {
    /// Everything has just been filled, and evicted for the first time.
    fn new(granules: usize) -> Self {
        let mut sim = Self { sites: Sites::new(), history: vec![[0; SLOTS]; granules], forgotten: 0 };
        (0..granules).for_each(|g| sim.evicted(g, true));
        sim
    }

    fn evicted(&mut self, g: usize, changed: bool) {
        let bytes = self.history[g];
        for (slot, byte) in self.sites.past().resident(changed, |slot| bytes[slot]) {
            self.history[g][slot] = byte;
        }
    }

    /// A wait at `site`, the phase after it with its uses, and an evict of everything.
    fn visit(&mut self, site: u64, uses: impl Fn(usize) -> Seen) -> Moves {
        let outlook = self.sites.outlook(site);
        let bytes = self.history.clone();
        let brought: Vec<bool> =
            (0..bytes.len()).map(|g| outlook.plan(g, |slot| bytes[g][slot]) == Bring).collect();
        if let Some(slot) = self.sites.begin(site) {
            self.forgotten += 1;
            self.history.iter_mut().for_each(|h| h[slot] = NEVER);
        }
        let mut moves = Moves { brought: 0, touched: 0 };
        for g in (0..bytes.len()).filter(|&g| !brought[g]) {
            let h = self.history[g];
            for (slot, byte) in self.sites.out(uses(g), |slot| h[slot]) {
                self.history[g][slot] = byte;
            }
            moves.touched += (uses(g) != Seen::Untouched) as usize;
        }
        self.sites.close();
        for g in (0..bytes.len()).filter(|&g| brought[g]) {
            self.evicted(g, uses(g) == Seen::Written);
            moves.brought += 1;
        }
        moves
    }

    /// What `visits` visits moved all together.
    fn visits(&mut self, site: u64, visits: usize, uses: impl Fn(usize) -> Seen) -> Moves {
        let moves = (0..visits).map(|_| self.visit(site, &uses));
        moves.fold(Moves { brought: 0, touched: 0 }, |a, b| Moves {
            brought: a.brought + b.brought,
            touched: a.touched + b.touched,
        })
    }
}

const N: usize = 512;

/// `moved` is within `percent` of `ideal`.
fn near(moved: usize, ideal: usize, percent: usize) {
    let off = moved.abs_diff(ideal) * 100;
    assert!(off <= ideal * percent, "moved {moved}, ideal {ideal}");
}

#[test]
fn a_sweep_that_writes_everything_is_brought_in_whole() {
    let mut sim = Sim::new(N);
    for _ in 0..50 {
        assert_eq!(sim.visit(1, |_| Seen::Written), Moves { brought: N, touched: 0 });
    }
}

#[test]
fn a_tenth_used_is_a_tenth_moved() {
    for used in [Seen::Read, Seen::Written] {
        for scattered in [false, true] {
            let is_used = |g: usize| if scattered { g.is_multiple_of(10) } else { g < N / 10 };
            let uses = |g| if is_used(g) { used } else { Seen::Untouched };
            let ideal = (0..N).filter(|&g| is_used(g)).count();
            let mut sim = Sim::new(N);
            assert_eq!(sim.visit(1, uses).all(), N, "nothing is known yet");
            let first = sim.visits(1, 6, uses);
            assert!(first.all() < 6 * ideal + 2 * N, "{first:?}");
            let then = sim.visits(1, 100, uses);
            near(then.all(), 100 * ideal, 5);
            assert!(then.touched * 10 <= then.all(), "{then:?}");
        }
    }
}

#[test]
fn a_sweep_that_reads_everything_stays_eager() {
    let mut sim = Sim::new(N);
    let learning = sim.visits(1, 40, |_| Seen::Read);
    assert_eq!(learning.all(), 40 * N);
    assert!(learning.touched * 5 < learning.all(), "{learning:?}");
    let then = sim.visits(1, 400, |_| Seen::Read);
    assert!(then.touched * 25 < then.all(), "probes take few of the reads: {then:?}");
}

#[test]
fn alternating_sites_do_not_disturb_each_other() {
    let mut sim = Sim::new(N);
    let small = |g| if g < N / 50 { Seen::Written } else { Seen::Untouched };
    let big = |g| if g % 4 == 3 { Seen::Read } else { Seen::Written };
    for _ in 0..10 {
        sim.visit(7, small);
        sim.visit(8, big);
    }
    let (mut a, mut b) = (0, 0);
    for _ in 0..50 {
        a += sim.visit(7, small).all();
        b += sim.visit(8, big).all();
    }
    near(a, 50 * (N / 50), 5);
    near(b, 50 * N, 1);
}

#[test]
fn a_bad_prediction_turns_the_site_back_at_once() {
    let mut sim = Sim::new(N);
    let small = |g| if g < 10 { Seen::Written } else { Seen::Untouched };
    sim.visits(1, 10, small);
    assert_eq!(sim.visit(1, small).all(), 10);
    // Suddenly most of it is used.
    let most = |g| if g % 5 > 0 { Seen::Read } else { Seen::Untouched };
    assert!(sim.visit(1, most).touched > N / 2);
    assert_eq!(sim.visit(1, most), Moves { brought: N, touched: 0 });
    let then = sim.visits(1, 30, most);
    assert!(then.touched * 4 < then.all(), "{then:?}");
}

#[test]
fn a_new_site_goes_by_the_last_phase() {
    let mut sim = Sim::new(N);
    let small = |g| if g < 10 { Seen::Written } else { Seen::Untouched };
    sim.visits(1, 10, small);
    assert_eq!(sim.visit(99, small), Moves { brought: 10, touched: 0 });
    // Even if every site is new, over and over, nothing more is moved.
    for site in 1000..1100 {
        assert_eq!(sim.visit(site, small).all(), 10);
    }
    assert!(sim.forgotten >= 100);
}

#[test]
fn the_least_recently_used_site_is_replaced() {
    let mut sites = Sites::new();
    for site in 0..SITES as u64 {
        assert_eq!(sites.begin(site), Some(site as usize + 1));
        sites.close();
    }
    assert_eq!((sites.begin(0), sites.close()), (None, ()));
    assert_eq!(sites.begin(77), Some(2), "site 1 was");
    assert_eq!(sites.begin(78), None, "the phase goes on");
}

#[test]
fn probes_are_spread_and_fall_off() {
    let view = |visit| View { visit, ..View::default() };
    let probes = |byte: u8, visit| (0..4096).filter(|&g| view(visit).plan(byte, g) == Probe).count();
    for doubled in 0..=DOUBLINGS {
        let (byte, period) = (READ | doubled << 4, PERIOD << doubled);
        let all: usize = (0..period).map(|visit| probes(byte, visit)).sum();
        assert_eq!(all, 4096, "each once in a period");
        for visit in 0..period {
            assert!(probes(byte, visit) <= 4096 / period as usize * 3 + 64, "{doubled} {visit}");
        }
    }
    assert_eq!(after_out(READ, Seen::Read), READ | 1 << 4);
    assert_eq!(after_out(READ | DOUBLINGS << 4, Seen::Read), READ | DOUBLINGS << 4);
}

fn seen() -> impl Strategy<Value = Seen> {
    prop_oneof![Just(Seen::Untouched), Just(Seen::Read), Just(Seen::Written)]
}

proptest! {
    /// Whatever happened before: what is written every time is soon always brought in, what is never touched
    /// soon always left.
    #[test]
    fn steady_use_is_learnt(
        before in prop::collection::vec((0u64..20, prop::collection::vec(seen(), 64)), 0..40),
        steady in prop::collection::vec(prop_oneof![Just(Seen::Untouched), Just(Seen::Written)], 64),
    ) {
        let mut sim = Sim::new(64);
        for (site, uses) in &before {
            sim.visit(*site, |g| uses[g]);
        }
        sim.visits(3, 30, |g| steady[g]);
        let outlook = sim.sites.outlook(3);
        for (g, &used) in steady.iter().enumerate() {
            let plan = outlook.plan(g, |slot| sim.history[g][slot]);
            prop_assert_eq!(plan, if used == Seen::Written { Bring } else { Leave });
        }
    }
}

/// A sixty-fourth, until it turns out that bringing everything in was of little use.
#[test]
fn what_is_much_is_learnt() {
    const HELD: usize = 128 << 20;
    let mut sites = Sites::new();
    let least = |sites: &mut Sites, out| sites.much(HELD, out) >> 20;
    assert_eq!((least(&mut sites, HELD), least(&mut sites, HELD / 4)), (2, 1), "MiB");
    // Nothing was brought in.
    sites.changed(0, 100, 100);
    assert_eq!(least(&mut sites, HELD), 2);
    for expected in [4, 8, 16, 32, 64] {
        sites.turn_eager();
        sites.changed(49, 100, 100);
        assert_eq!(least(&mut sites, HELD), expected);
        // Once for each time.
        sites.changed(0, 100, 100);
        assert_eq!(least(&mut sites, HELD), expected);
    }
    // Half of the little that is out was touched.
    assert_eq!(least(&mut sites, HELD / 4), 16);
    sites.turn_eager();
    assert_eq!(least(&mut sites, HELD), 64);
    // Half of all: it goes through it.
    assert_eq!(least(&mut sites, HELD), 64);
    sites.turn_eager();
    assert_eq!(least(&mut sites, HELD), 2);
    sites.changed(0, 100, 100);
    assert_eq!(least(&mut sites, HELD), 4);
    // One that writes the little that was out does not: it may be all that it uses.
    sites.turn_eager();
    sites.changed(20, 20, 100);
    assert_eq!(least(&mut sites, HELD), 8);
    // But who writes most of what it holds does.
    sites.turn_eager();
    sites.changed(50, 100, 100);
    assert_eq!(least(&mut sites, HELD), 2);
}
