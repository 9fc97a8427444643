//! Random programs that use memory in every way there is while it is moved, against a model in plain memory.
//!
//! Each combination of parts gets `PROPTEST_CASES` programs (10 unless told); a failing one is shrunk and
//! printed.

use crate::common::{Block, Combination, Faulty, STORES, apart, arena, own_pages, with_stores};
use crate::moves::Moves;
use proptest::prelude::*;
use proptest::test_runner::{TestCaseError, TestError, TestRunner};
use sbmalloc::pager::PagerError;
use sbmalloc::{Advice, Arena, ArenaOptions, ArenaSet, Errno, PAGE, StoreKind, advise, discard};
use std::fs::File;
use std::os::fd::FromRawFd;
use std::os::unix::fs::FileExt;
use std::sync::atomic::Ordering;

/// A place in one of the blocks that live, whichever do.
#[derive(Debug, Clone, Copy)]
struct Place {
    which: usize,
    at: usize,
    len: usize,
}

#[derive(Debug, Clone)]
enum Op {
    Alloc {
        arena: usize,
        bytes: usize,
        align: usize,
    },
    Free {
        which: usize,
    },
    Resize {
        which: usize,
        bytes: usize,
    },
    Write {
        place: Place,
        byte: u8,
    },
    /// By another thread.
    WriteBeside {
        place: Place,
        byte: u8,
    },
    /// By the kernel, from a file.
    Read {
        place: Place,
        from: usize,
    },
    /// From this memory to a file, by the kernel.
    Send {
        place: Place,
    },
    Discard {
        place: Place,
    },
    Advise {
        place: Place,
        needed: bool,
    },
    Evict,
    /// Down to so many bytes, after the wait at a site.
    EvictTo {
        target: usize,
        site: u64,
    },
    /// On a store that can fail: so many writes succeed.
    EvictWithRoom {
        writes: i64,
    },
    Restore,
    /// What is likely to be used after the wait at a site, while there is room for so many bytes.
    RestoreFor {
        site: u64,
        room: usize,
    },
    BeginPhase {
        site: u64,
    },
    Verify,
    /// On a store that can fail: so many reads succeed.
    RestoreWithErrors {
        reads: i64,
    },
    Check,
}

fn op() -> impl Strategy<Value = Op> {
    let size = prop_oneof![1usize..5000, 60_000usize..70_000, 100_000usize..3_000_000];
    let align = prop_oneof![6 => Just(64usize), 1 => Just(4096), 1 => Just(1 << 20), 1 => Just(4 << 20)];
    let place = |most: usize| {
        (any::<usize>(), any::<usize>(), 1..most).prop_map(|(which, at, len)| Place { which, at, len })
    };
    // More than are remembered, and some again and again.
    let site = || prop_oneof![3 => 0..3u64, 1 => 0..30u64];
    let room = prop_oneof![Just(usize::MAX), 0..9usize << 20];
    let byte = || prop_oneof![Just(0u8), any::<u8>()];
    prop_oneof![
        4 => (0..2usize, size.clone(), align).prop_map(|(arena, bytes, align)| Op::Alloc { arena, bytes, align }),
        2 => any::<usize>().prop_map(|which| Op::Free { which }),
        1 => (any::<usize>(), size).prop_map(|(which, bytes)| Op::Resize { which, bytes }),
        5 => (place(200_000), byte()).prop_map(|(place, byte)| Op::Write { place, byte }),
        1 => (place(200_000), byte()).prop_map(|(place, byte)| Op::WriteBeside { place, byte }),
        2 => (place(200_000), 0..SOURCE - 200_000).prop_map(|(place, from)| Op::Read { place, from }),
        1 => place(200_000).prop_map(|place| Op::Send { place }),
        2 => place(1_500_000).prop_map(|place| Op::Discard { place }),
        1 => (place(5_000_000), any::<bool>()).prop_map(|(place, needed)| Op::Advise { place, needed }),
        4 => Just(Op::Evict),
        3 => (0..9usize << 20, site()).prop_map(|(target, site)| Op::EvictTo { target, site }),
        1 => (0..9i64).prop_map(|writes| Op::EvictWithRoom { writes }),
        3 => Just(Op::Restore),
        3 => (site(), room).prop_map(|(site, room)| Op::RestoreFor { site, room }),
        2 => site().prop_map(|site| Op::BeginPhase { site }),
        1 => Just(Op::Verify),
        1 => (0..9i64).prop_map(|reads| Op::RestoreWithErrors { reads }),
        1 => Just(Op::Check),
    ]
}

/// Bytes of the file that is read from.
const SOURCE: usize = 1 << 20;

/// A memory file that is gone when it is closed.
fn memory_file() -> File {
    // SAFETY: makes a new descriptor.
    unsafe { File::from_raw_fd(libc::memfd_create(c"test".as_ptr(), libc::MFD_CLOEXEC)) }
}

struct Machine<'a> {
    set: &'static ArenaSet,
    arenas: Vec<Arena>,
    faulty: Option<&'static Faulty>,
    /// Blocks, and what they must hold.
    live: Vec<(Block, Vec<u8>)>,
    source: &'a (File, Vec<u8>),
    sink: File,
}

impl Machine<'_> {
    /// A place as a block, its model, and a range inside.
    fn find(&mut self, place: Place) -> Option<(&mut Block, &mut Vec<u8>, std::ops::Range<usize>)> {
        let i = place.which.checked_rem(self.live.len())?;
        let (block, model) = &mut self.live[i];
        let at = place.at % block.len;
        let range = at..(at + place.len).min(block.len);
        Some((block, model, range))
    }

    fn step(&mut self, op: &Op) {
        match *op {
            Op::Alloc { arena, bytes, align } => {
                let block = Block::aligned(&self.arenas[arena % self.arenas.len()], bytes, align);
                assert!(block.bytes().iter().all(|&b| b == 0), "a fresh run is not zero");
                self.live.push((block, vec![0; bytes]));
            }
            Op::Free { which } => {
                if let Some(i) = which.checked_rem(self.live.len()) {
                    self.live.swap_remove(i);
                }
            }
            Op::Resize { which, bytes } => {
                let Some((block, model, _)) = self.find(Place { which, at: 0, len: 1 }) else { return };
                // SAFETY: a live run; the block's length follows.
                if unsafe { block.arena.clone().resize(block.at, bytes) } {
                    block.len = bytes;
                    if bytes > model.len() {
                        // The rest of the old last chunk is unspecified: give it a value.
                        block.bytes_mut()[model.len()..].fill(0);
                    }
                    model.resize(bytes, 0);
                }
            }
            Op::Write { place, byte } => {
                let Some((block, model, range)) = self.find(place) else { return };
                block.bytes_mut()[range.clone()].fill(byte);
                model[range].fill(byte);
            }
            Op::WriteBeside { place, byte } => {
                let Some((block, model, range)) = self.find(place) else { return };
                let to = &mut block.bytes_mut()[range.clone()];
                std::thread::scope(|s| s.spawn(|| to.fill(byte)).join()).expect("the other thread");
                model[range].fill(byte);
            }
            Op::Read { place, from } => {
                let (file, content) = self.source;
                let Some((block, model, range)) = self.find(place) else { return };
                let to = &mut block.bytes_mut()[range.clone()];
                file.read_exact_at(to, from as u64).expect("read(2)");
                model[range.clone()].copy_from_slice(&content[from..from + range.len()]);
            }
            Op::Send { place } => {
                let sink = self.sink.try_clone().expect("a descriptor");
                let Some((block, model, range)) = self.find(place) else { return };
                sink.write_all_at(&block.bytes()[range.clone()], 0).expect("write(2) of what may be out");
                let mut sent = vec![0; range.len()];
                sink.read_exact_at(&mut sent, 0).expect("read");
                assert!(sent == model[range], "write(2) saw other bytes");
            }
            Op::Discard { place } => {
                let Some((block, model, range)) = self.find(place) else { return };
                discard(&mut block.bytes_mut()[range.clone()]).expect("ours");
                model[range].fill(0);
            }
            Op::Advise { place, needed } => {
                let Some((block, _, range)) = self.find(place) else { return };
                let advice = if needed { Advice::WillNeed } else { Advice::DontNeed };
                advise(&block.bytes()[range], advice).expect("ours");
            }
            Op::Evict => {
                self.set.page_out().expect("evict");
            }
            Op::EvictWithRoom { writes } => {
                if let Some(faulty) = self.faulty {
                    faulty.room.store(writes, Ordering::Relaxed);
                    let made = self.set.page_out();
                    assert!(matches!(made, Ok(_) | Err(PagerError::NoSpace { .. })), "{made:?}");
                    faulty.room.store(-1, Ordering::Relaxed);
                }
            }
            Op::EvictTo { target, site } => {
                let mut last = usize::MAX;
                let mut progress = |left| {
                    assert!(left <= last, "{left} bytes in RAM after {last}");
                    last = left;
                };
                self.set.page_out_to(target, site, &mut progress).expect("evict");
                let left = self.set.in_ram();
                assert!(left <= target, "{left} bytes in RAM, not {target}");
                self.count();
            }
            Op::Restore => self.restore(),
            Op::RestoreFor { site, room } => {
                // What was in RAM before, with what was touched, is known when first asked.
                let mut before = None;
                let mut asked = |ram| {
                    before.get_or_insert(ram);
                    room
                };
                let (_, all) = self.set.page_in_for(site, &mut asked).expect("restore");
                let (now, most) = (self.set.in_ram(), before.map(|ram| room.max(ram)));
                let told = || format!("{now} bytes in RAM, {before:?} before, room for {room}");
                assert!(most.is_none_or(|most| now <= most), "{}", told());
                assert!(!all || self.set.likely(site) <= now, "{}, {}", told(), self.set.likely(site));
                self.count();
            }
            Op::BeginPhase { site } => self.set.begin_phase(site),
            Op::Verify => self.set.verified().expect("verify"),
            Op::RestoreWithErrors { reads } => {
                if let Some(faulty) = self.faulty {
                    faulty.readable.store(reads, Ordering::Relaxed);
                    let made = self.set.page_in();
                    let failed = matches!(made, Err(PagerError::Io { errno: Errno(libc::EIO), .. }));
                    assert!(made.is_ok() || failed, "{made:?}");
                    faulty.readable.store(-1, Ordering::Relaxed);
                }
            }
            Op::Check => self.check(),
        }
    }

    fn restore(&self) {
        self.set.page_in().expect("restore");
        assert!(!self.set.is_evicted());
        assert!(self.arenas.iter().all(|arena| arena.stats().out == 0));
    }

    /// No more is in RAM than is said to be.
    fn count(&self) {
        let own = |(b, _): &(Block, _)| own_pages(b.at.as_ptr(), b.len / PAGE * PAGE) * PAGE;
        let (own, said) = (self.live.iter().map(own).sum::<usize>(), self.set.in_ram());
        assert!(own <= said, "{own} bytes are in RAM, {said} are counted");
    }

    fn check(&self) {
        for (i, (block, model)) in self.live.iter().enumerate() {
            let wrong = || block.bytes().iter().zip(model).position(|(a, b)| a != b);
            assert!(block.bytes() == model, "block {i} of {} bytes is wrong at {:?}", block.len, wrong());
        }
        let held: usize = self.arenas.iter().map(Arena::held_bytes).sum();
        assert_eq!(held, self.live.iter().map(|(block, _)| block.len.next_multiple_of(PAGE)).sum::<usize>());
    }

    fn run(mut self, program: &[Op]) {
        program.iter().for_each(|op| self.step(op));
        self.check();
        self.restore();
        self.check();
        self.set.page_out().expect("evict");
        self.restore();
        self.check();
        self.live.clear();
        self.check();
    }
}

fn cases() -> u32 {
    std::env::var("PROPTEST_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(10)
}

/// Runs random programs over one combination of parts, in one set.
fn programs(parts: Combination, faulty: Option<&'static Faulty>) {
    let (set, first) = arena(parts);
    drop(first);
    let text: Vec<u8> = (0..SOURCE).map(|i| (i * i % 251) as u8).collect();
    let source = (memory_file(), text);
    source.0.write_all_at(&source.1, 0).expect("a file to read from");
    let (tracker, store, huge) = parts;
    let config = ProptestConfig {
        cases: cases(),
        failure_persistence: None,
        max_shrink_iters: 4096,
        max_shrink_time: 60_000,
        ..ProptestConfig::default()
    };
    let outcome = TestRunner::new(config).run(&prop::collection::vec(op(), 1..70), |program| {
        if let Some(faulty) = faulty {
            faulty.reset();
        }
        let options = ArenaOptions { reserve: 1 << 30, tracker: Some(tracker), store: Some(store), huge };
        // A store of the caller's own has one file.
        let count = if faulty.is_some() { 1 } else { 2 };
        let arenas = (0..count).map(|_| Arena::new_in(&options, set).expect("arena")).collect();
        let (live, sink) = (vec![], memory_file());
        let machine = Machine { set, arenas, faulty, live, source: &source, sink };
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
}

#[test]
fn memory_behaves_like_memory() {
    if apart() {
        return;
    }
    for parts in with_stores(STORES) {
        programs(parts, None);
    }
}

/// On stores with short and interrupted transfers, or without holes, and that fill up or fail now and then.
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
