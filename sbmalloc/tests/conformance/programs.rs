//! Random programs of allocations, writes, frees, evictions and restores, against a model in plain memory.

use crate::common::{self, Block, Faulty, arena};
use proptest::prelude::*;
use sbmalloc::{Arena, ArenaSet, FrameKind, HugePolicy, PAGE, StoreKind, TrackerKind};
use std::sync::atomic::{AtomicBool, Ordering};

#[derive(Debug, Clone)]
enum Op {
    Alloc {
        bytes: usize,
    },
    Free {
        which: usize,
    },
    Write {
        which: usize,
        at: usize,
        len: usize,
        byte: u8,
    },
    Resize {
        which: usize,
        bytes: usize,
    },
    Evict,
    Restore,
    /// To a share of what is held, in percent.
    EvictTo {
        percent: usize,
        site: u64,
    },
    RestoreFor {
        percent: usize,
        site: u64,
    },
    Phase {
        site: u64,
    },
    Verify,
    Check,
}

fn op() -> impl Strategy<Value = Op> {
    let size = prop_oneof![1usize..5000, 60_000usize..70_000, 100_000usize..3_000_000];
    prop_oneof![
        3 => size.clone().prop_map(|bytes| Op::Alloc { bytes }),
        2 => any::<usize>().prop_map(|which| Op::Free { which }),
        6 => (any::<usize>(), any::<usize>(), 1usize..200_000, prop_oneof![Just(0u8), any::<u8>()])
            .prop_map(|(which, at, len, byte)| Op::Write { which, at, len, byte }),
        1 => (any::<usize>(), size).prop_map(|(which, bytes)| Op::Resize { which, bytes }),
        3 => Just(Op::Evict),
        3 => Just(Op::Restore),
        3 => (0usize..110, 0u64..20).prop_map(|(percent, site)| Op::EvictTo { percent, site }),
        3 => (0usize..150, 0u64..20).prop_map(|(percent, site)| Op::RestoreFor { percent, site }),
        2 => (0u64..20).prop_map(|site| Op::Phase { site }),
        1 => Just(Op::Verify),
        1 => Just(Op::Check),
    ]
}

/// No more is in RAM than is said to be.
fn honest(set: &'static ArenaSet, live: &[(Block, Vec<u8>)]) {
    let own: usize = live.iter().map(|(b, _)| common::own_pages(b.at.as_ptr(), b.len / PAGE * PAGE)).sum();
    assert!(own * PAGE <= set.in_ram(), "{} bytes there, {} counted", own * PAGE, set.in_ram());
}

fn run(set: &'static ArenaSet, arena: &Arena, program: &[Op]) {
    let mut live: Vec<(Block, Vec<u8>)> = vec![];
    let check = |live: &[(Block, Vec<u8>)]| live.iter().for_each(|(b, m)| assert!(b.bytes() == m));
    for op in program {
        let pick = |which: usize| (!live.is_empty()).then(|| which % live.len());
        match *op {
            Op::Alloc { bytes } => {
                let block = Block::new(arena, bytes);
                assert!(block.bytes().iter().all(|&b| b == 0), "a fresh run is zero");
                live.push((block, vec![0; bytes]));
            }
            Op::Free { which } => {
                if let Some(i) = pick(which) {
                    live.swap_remove(i);
                }
            }
            Op::Write { which, at, len, byte } => {
                if let Some(i) = pick(which) {
                    let (block, model) = &mut live[i];
                    let at = at % block.len;
                    let end = (at + len).min(block.len);
                    block.bytes_mut()[at..end].fill(byte);
                    model[at..end].fill(byte);
                }
            }
            Op::Resize { which, bytes } => {
                if let Some(i) = pick(which) {
                    let (block, model) = &mut live[i];
                    // SAFETY: a live run; the block's length follows.
                    if unsafe { arena.resize(block.at, bytes) } {
                        block.len = bytes;
                        if bytes > model.len() {
                            // The rest of the old last chunk is unspecified: give it a value.
                            block.bytes_mut()[model.len()..].fill(0);
                        }
                        model.resize(bytes, 0);
                    }
                }
            }
            Op::Evict => drop(set.evict().expect("evict")),
            Op::Restore => drop(set.restore().expect("restore")),
            Op::EvictTo { percent, site } => {
                let target = arena.held_bytes() / 100 * percent;
                let mut told = usize::MAX;
                set.evict_to(target, site, &mut |left| told = left).expect("evict");
                assert!(told <= target && set.in_ram() == told);
                honest(set, &live);
            }
            Op::RestoreFor { percent, site } => {
                let limit = arena.held_bytes() / 100 * percent;
                let before = set.in_ram();
                let (_, all) = set.restore_for(site, &mut |_| limit).expect("restore");
                // Pages touched since the last look may be more than that already.
                assert!(before > limit || !all || set.likely(site) <= set.in_ram());
                honest(set, &live);
            }
            Op::Phase { site } => set.begin_phase(site),
            Op::Verify => set.verify_touched().expect("sound"),
            Op::Check => check(&live),
        }
    }
    check(&live);
    set.restore().expect("restore");
    check(&live);
    set.evict().expect("evict");
    set.restore().expect("restore");
    check(&live);
    drop(live);
    assert_eq!(arena.held_bytes(), 0);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn memory_behaves_like_memory(
        program in prop::collection::vec(op(), 1..60),
        mprotect: bool,
        store in 0..6,
        huge: bool,
    ) {
        let tracker = if mprotect { TrackerKind::Mprotect } else { TrackerKind::Hash };
        let huge = if huge { HugePolicy::Always } else { HugePolicy::Never };
        let store = match store {
            0 => StoreKind::Auto,
            1 => StoreKind::Memory,
            4 => StoreKind::Direct,
            5 => StoreKind::Custom(Faulty::beside(true, false)),
            2 => StoreKind::Custom(Faulty::new(true, false)),
            _ => StoreKind::Custom(Faulty::new(false, true)),
        };
        let (set, arena) = arena((tracker, store, FrameKind::Anon, huge));
        run(set, &arena, &program);
    }
}

/// Threads that allocate, write, check and free all the time, while this one moves the memory.
#[test]
fn writers_and_the_pager_get_along() {
    for tracker in [TrackerKind::Hash, TrackerKind::Mprotect] {
        for store in [
            StoreKind::Auto,
            StoreKind::Memory,
            StoreKind::Custom(Faulty::new(false, true)),
            StoreKind::Custom(Faulty::beside(true, false)),
        ] {
            let (set, arena) = arena((tracker, store, FrameKind::Anon, HugePolicy::Auto));
            let stop = AtomicBool::new(false);
            std::thread::scope(|s| {
                for t in 0..3u64 {
                    let (arena, stop) = (&arena, &stop);
                    s.spawn(move || {
                        let mut random = common::Random(t);
                        let mut live: Vec<(Block, u64)> = vec![];
                        let mut counters = Block::new(arena, 1 << 20);
                        let mut turns = 0u64;
                        while !stop.load(Ordering::Relaxed) {
                            turns += 1;
                            counters.words_mut().iter_mut().step_by(509).for_each(|w| *w += 1);
                            let mut block = Block::new(arena, 1000 + random.below(600_000));
                            assert!(block.bytes().iter().all(|&b| b == 0), "a fresh run is zero");
                            let seed = random.next();
                            block.fill(seed);
                            live.push((block, seed));
                            if live.len() > 12 {
                                let (mut old, seed) = live.swap_remove(random.below(12));
                                old.check(seed);
                            }
                        }
                        live.iter_mut().for_each(|(b, seed)| b.check(*seed));
                        assert!(
                            counters.words_mut().iter().step_by(509).all(|&w| w == turns),
                            "a write was lost"
                        );
                    });
                }
                let mut random = common::Random(77);
                let end = std::time::Instant::now() + std::time::Duration::from_millis(1500);
                while std::time::Instant::now() < end {
                    let (held, site) = (arena.held_bytes(), random.below(3) as u64);
                    let target = held * [0, 0, 30, 60, 90][random.below(5)] / 100;
                    set.evict_to(target, site, &mut |_| {}).expect("evict");
                    std::thread::sleep(std::time::Duration::from_micros(300));
                    match random.below(2) {
                        0 => drop(set.restore().expect("restore")),
                        _ => {
                            let limit = held * [50, 80, 1000][random.below(3)] / 100;
                            set.restore_for(site, &mut |_| limit).expect("restore");
                        }
                    }
                    set.begin_phase(site);
                    set.verify_touched().expect("sound");
                    std::thread::sleep(std::time::Duration::from_micros(300));
                }
                stop.store(true, Ordering::Relaxed);
            });
            assert_eq!(arena.held_bytes(), 0);
        }
    }
}
