//! Random programs whose memory is packed now and then, against a model in plain memory.
//!
//! As in the conformance suite, but that nothing is touched between an evict after a wait and the restore of
//! what was packed. Each combination of parts gets `PROPTEST_CASES` programs (10 unless told).

use crate::common::{Block, Combination, Faulty, apart, with_stores};
use crate::moves::Moves;
use crate::{Data, packing};
use proptest::prelude::*;
use proptest::test_runner::{TestCaseError, TestError, TestRunner};
use sbmalloc::pager::PagerError;
use sbmalloc::{Advice, Arena, ArenaOptions, ArenaSet, Errno, PAGE, StoreKind, advise, discard};
use std::cell::Cell;
use std::sync::atomic::Ordering;

#[derive(Debug, Clone)]
enum Op {
    Alloc {
        bytes: usize,
        align: usize,
        data: usize,
    },
    Free {
        which: usize,
    },
    Write {
        which: usize,
        at: usize,
        len: usize,
        data: usize,
    },
    Discard {
        which: usize,
        at: usize,
        len: usize,
    },
    Advise {
        which: usize,
        needed: bool,
    },
    /// A wait at a site: down to so many bytes, in two goes, perhaps with a block freed meanwhile; then back
    /// as far as there is room. On a store that can fail so many writes and reads succeed before.
    Wait {
        target: usize,
        then: usize,
        site: u64,
        room: usize,
        free: Option<usize>,
        writes: i64,
        reads: i64,
    },
    /// Without a promise: raw.
    Evict,
    Restore,
    BeginPhase {
        site: u64,
    },
    Check,
}

fn op() -> impl Strategy<Value = Op> {
    let size = prop_oneof![1usize..5000, 60_000usize..70_000, 100_000usize..5_000_000];
    let align = prop_oneof![6 => Just(64usize), 1 => Just(4096), 1 => Just(2 << 20)];
    let site = || prop_oneof![3 => 0..3u64, 1 => 0..30u64];
    let any = any::<usize>;
    let few = || prop_oneof![3 => Just(-1i64), 1 => 0..9i64];
    let target = || prop_oneof![2 => Just(0usize), 1 => 0..9usize << 20];
    prop_oneof![
        4 => (size, align, 0..4usize).prop_map(|(bytes, align, data)| Op::Alloc { bytes, align, data }),
        1 => any().prop_map(|which| Op::Free { which }),
        5 => (any(), any(), 1..300_000usize, 0..5usize)
            .prop_map(|(which, at, len, data)| Op::Write { which, at, len, data }),
        1 => (any(), any(), 1..1_500_000usize).prop_map(|(which, at, len)| Op::Discard { which, at, len }),
        1 => (any(), proptest::bool::ANY).prop_map(|(which, needed)| Op::Advise { which, needed }),
        8 => (target(), target(), site(), target(), proptest::option::weighted(0.2, any()), few(), few()).prop_map(
            |(target, then, site, room, free, writes, reads)| Op::Wait { target, then, site, room, free, writes, reads }
        ),
        1 => Just(Op::Evict),
        1 => Just(Op::Restore),
        3 => site().prop_map(|site| Op::BeginPhase { site }),
        1 => Just(Op::Check),
    ]
}

struct Machine<'a> {
    set: &'static ArenaSet,
    arena: Arena,
    faulty: Option<&'static Faulty>,
    live: Vec<(Block, Vec<u8>)>,
    seed: u64,
    /// Waits at which something was packed.
    packed: &'a Cell<usize>,
}

impl Machine<'_> {
    fn content(&mut self, len: usize, data: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.seed += 1;
        if let Some(data) = [Data::Counters, Data::Sparse, Data::Noise, Data::Mixed].get(data) {
            data.fill(&mut bytes, self.seed);
        }
        bytes
    }

    fn find(&mut self, which: usize) -> Option<&mut (Block, Vec<u8>)> {
        let i = which.checked_rem(self.live.len())?;
        self.live.get_mut(i)
    }

    fn step(&mut self, op: &Op) {
        match *op {
            Op::Alloc { bytes, align, data } => {
                let mut block = Block::aligned(&self.arena, bytes, align);
                assert!(block.bytes().iter().all(|&b| b == 0), "a fresh run is not zero");
                let model = self.content(bytes, data);
                block.bytes_mut().copy_from_slice(&model);
                self.live.push((block, model));
            }
            Op::Free { which } => {
                if let Some(i) = which.checked_rem(self.live.len()) {
                    self.live.swap_remove(i);
                }
            }
            Op::Write { which, at, len, data } => {
                let content = self.content(len, data);
                let Some((block, model)) = self.find(which) else { return };
                let at = at % block.len;
                let end = (at + len).min(block.len);
                block.bytes_mut()[at..end].copy_from_slice(&content[..end - at]);
                model[at..end].copy_from_slice(&content[..end - at]);
            }
            Op::Discard { which, at, len } => {
                let Some((block, model)) = self.find(which) else { return };
                let at = at % block.len;
                let end = (at + len).min(block.len);
                discard(&mut block.bytes_mut()[at..end]).expect("ours");
                model[at..end].fill(0);
            }
            Op::Advise { which, needed } => {
                let Some((block, _)) = self.find(which) else { return };
                let advice = if needed { Advice::WillNeed } else { Advice::DontNeed };
                advise(block.bytes(), advice).expect("ours");
            }
            Op::Wait { target, then, site, room, free, writes, reads } => {
                self.arm(writes, -1);
                for target in [target, target.min(then)] {
                    match self.set.page_out_to(target, site, &mut |_| {}) {
                        Ok(_) => assert!(self.set.in_ram() <= target),
                        Err(PagerError::NoSpace { .. }) if self.faulty.is_some() => {}
                        Err(e) => panic!("{e}"),
                    }
                }
                self.packed.set(self.packed.get() + usize::from(self.set.is_packed()));
                if let Some(i) = free.and_then(|which| which.checked_rem(self.live.len())) {
                    self.live.swap_remove(i);
                }
                self.arm(-1, reads);
                let made = self.set.page_in_for(site, &mut |_| room);
                let is_read_error = matches!(made, Err(PagerError::Io { errno: Errno(libc::EIO), .. }));
                assert!(made.is_ok() || self.faulty.is_some() && is_read_error, "{made:?}");
                self.arm(-1, -1);
                self.set.unpacked().expect("restore");
                assert!(!self.set.is_packed());
            }
            Op::Evict => {
                self.set.page_out().expect("evict");
                assert!(!self.set.is_packed());
            }
            Op::Restore => {
                self.set.page_in().expect("restore");
            }
            Op::BeginPhase { site } => self.set.begin_phase(site),
            Op::Check => self.check(),
        }
    }

    fn arm(&self, writes: i64, reads: i64) {
        if let Some(faulty) = self.faulty {
            faulty.room.store(writes, Ordering::Relaxed);
            faulty.readable.store(reads, Ordering::Relaxed);
        }
    }

    fn check(&self) {
        self.set.verified().expect("sound");
        for (i, (block, model)) in self.live.iter().enumerate() {
            let wrong = || block.bytes().iter().zip(model).position(|(a, b)| a != b);
            assert!(block.bytes() == model, "block {i} of {} bytes is wrong at {:?}", block.len, wrong());
        }
        let held: usize = self.live.iter().map(|(block, _)| block.len.next_multiple_of(PAGE)).sum();
        assert_eq!(self.arena.held_bytes(), held);
    }

    fn run(mut self, program: &[Op]) {
        program.iter().for_each(|op| self.step(op));
        self.check();
        self.set.page_out().expect("evict");
        self.check();
        self.set.page_in().expect("restore");
        self.check();
        self.live.clear();
        self.check();
    }
}

/// Runs random programs over one combination of parts, in one set.
fn programs(parts: Combination, faulty: Option<&'static Faulty>) {
    let (set, first) = packing(parts);
    drop(first);
    let (tracker, store, huge) = parts;
    let cases = std::env::var("PROPTEST_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(10);
    let config = ProptestConfig {
        cases,
        failure_persistence: None,
        max_shrink_iters: 4096,
        max_shrink_time: 60_000,
        ..ProptestConfig::default()
    };
    let packed = Cell::new(0);
    let outcome = TestRunner::new(config).run(&prop::collection::vec(op(), 1..60), |program| {
        if let Some(faulty) = faulty {
            faulty.reset();
        }
        let options = ArenaOptions { reserve: 1 << 30, tracker: Some(tracker), store: Some(store), huge };
        let arena = Arena::new_in(&options, set).expect("arena");
        let machine = Machine { set, arena, faulty, live: vec![], seed: 0, packed: &packed };
        let ran = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| machine.run(&program)));
        ran.map_err(|panic| {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(|s| s.to_string()));
            TestCaseError::fail(text.unwrap_or_default())
        })
    });
    match outcome {
        Err(TestError::Fail(why, program)) => {
            panic!("{parts:?}: {why}\nthe shortest program that fails:\n{program:#?}")
        }
        other => other.expect("cases"),
    }
    assert!(packed.get() > 0, "{parts:?}: never packed");
}

#[test]
fn memory_behaves_like_memory() {
    if apart() {
        return;
    }
    // The others differ in how files are opened only.
    for parts in with_stores(&[StoreKind::Auto, StoreKind::Memory]) {
        programs(parts, None);
    }
}

#[test]
fn memory_behaves_like_memory_on_bad_disks() {
    if apart() {
        return;
    }
    for faulty in [Faulty::new(true, false), Faulty::new(false, true), Faulty::beside(true, false)] {
        for parts in with_stores(&[StoreKind::Custom(faulty)]) {
            programs(parts, Some(faulty));
        }
    }
}
