//! What every combination of tracker, store and huge pages has to do alike.

mod children;
mod common;
mod content;
mod faults;
mod injection;
#[path = "../moves/mod.rs"]
mod moves;
mod partial;
mod programs;
mod trackers;

use common::{Block, Random, arena, combinations, own_pages};
use moves::Moves;
use sbmalloc::{ArenaOptions, CHUNK, GRANULE, HugePolicy, PAGE, StoreKind, TrackerKind};

/// Bytes.
const MIB: usize = 1 << 20;

#[test]
fn round_trips_with_random_writes() {
    for parts in combinations() {
        let (set, arena) = arena(parts);
        let mut block = Block::new(&arena, 9 * MIB + 12345);
        let mut model = vec![0u8; block.len];
        let mut random = Random(1);
        for round in 0..6 {
            for _ in 0..40 {
                let len = 1 + random.below(if round % 2 == 0 { 100_000 } else { 300 });
                let at = random.below(model.len() - len);
                let byte = random.next() as u8;
                model[at..at + len].fill(byte);
                block.bytes_mut()[at..at + len].fill(byte);
            }
            set.page_out().unwrap_or_else(|e| panic!("{parts:?}: {e}"));
            assert!(set.is_evicted());
            if round % 3 == 1 {
                assert!(block.bytes() == model, "{parts:?}: read while out");
            }
            set.page_in().unwrap_or_else(|e| panic!("{parts:?}: {e}"));
            assert!(!set.is_evicted());
            assert!(block.bytes() == model, "{parts:?}: round {round}");
        }
    }
}

#[test]
fn unmodified_memory_is_not_written_again() {
    for parts in combinations() {
        let (set, arena) = arena(parts);
        let mut block = Block::new(&arena, 6 * MIB);
        block.fill(7);
        let first = set.page_out().expect("evict");
        assert_eq!(first.bytes, block.len as u64, "{parts:?}");
        assert_eq!(set.page_out().expect("evict of what is out"), Default::default());
        let back = set.page_in().expect("restore");
        assert_eq!(back.bytes, block.len as u64);
        block.check(7);
        let second = set.page_out().expect("evict");
        assert_eq!((second.bytes, second.punched), (0, 0), "{parts:?}");
        assert!(second.freed_or_filled >= block.len as u64, "{parts:?}");
        if parts.0 == TrackerKind::Uffd {
            assert_eq!(second.scanned, 0, "a tracker that knows need not look");
        }
        set.page_in().expect("restore");
        block.check(7);
    }
}

#[test]
fn only_dirty_blocks_are_written() {
    for parts in combinations() {
        let (set, arena) = arena(parts);
        let mut block = Block::new(&arena, 16 * MIB);
        block.fill(3);
        set.page_out().expect("evict");
        set.page_in().expect("restore");
        for i in [0, 5, 6, 100, 255] {
            block.bytes_mut()[i * CHUNK + 777] ^= 0xff;
        }
        assert_eq!(set.page_out().expect("evict").bytes, 5 * CHUNK as u64, "{parts:?}");
        set.page_in().expect("restore");
        for i in [0, 5, 6, 100, 255] {
            block.bytes_mut()[i * CHUNK + 777] ^= 0xff;
        }
        block.check(3);
    }
}

#[test]
fn zeroed_blocks_are_punched_and_old_bytes_never_return() {
    for parts in combinations() {
        let (set, arena) = arena(parts);
        let mut block = Block::new(&arena, 4 * MIB);
        block.fill(11);
        set.page_out().expect("evict");
        set.page_in().expect("restore");
        block.bytes_mut()[MIB..2 * MIB].fill(0);
        let out = set.page_out().expect("evict");
        assert_eq!((out.bytes, out.punched), (0, MIB as u64), "{parts:?}");
        assert!(block.bytes()[MIB..2 * MIB].iter().all(|&b| b == 0), "{parts:?}: while out");
        assert!(block.bytes()[..MIB].iter().any(|&b| b != 0));
        assert_eq!(set.page_in().expect("restore").bytes, 3 * MIB as u64);
        assert!(block.bytes()[MIB..2 * MIB].iter().all(|&b| b == 0), "{parts:?}");
        assert_eq!(set.page_out().expect("evict").punched, 0, "{parts:?}: a hole already");
    }
}

#[test]
fn freed_memory_comes_back_as_zeros() {
    for parts in combinations() {
        // Freed while resident, and while out; each then looked at while out, and after the next cycle.
        for (free_out, cycles) in [(false, 0), (false, 1), (true, 0), (true, 1), (true, 2)] {
            let (set, arena) = arena(parts);
            let mut keep = Block::new(&arena, 3 * CHUNK);
            keep.fill(1);
            let mut gone = Block::new(&arena, 40 * CHUNK + 5);
            gone.fill(2);
            let mut after = Block::new(&arena, 3 * CHUNK);
            after.fill(3);
            set.page_out().expect("evict");
            if !free_out {
                set.page_in().expect("restore");
            }
            let place = gone.at;
            drop(gone);
            for _ in 0..cycles {
                set.page_in().expect("restore");
                set.page_out().expect("evict");
            }
            let mut fresh = Block::new(&arena, 40 * CHUNK + 5);
            assert_eq!(fresh.at, place, "first fit");
            assert!(fresh.bytes().iter().all(|&b| b == 0), "{parts:?} {free_out} {cycles}");
            set.page_out().expect("evict");
            assert!(fresh.bytes().iter().all(|&b| b == 0), "{parts:?} {free_out} {cycles}: out");
            fresh.bytes_mut()[CHUNK] = 9;
            set.page_in().expect("restore");
            assert_eq!(fresh.bytes().iter().filter(|&&b| b != 0).count(), 1, "{parts:?} {free_out} {cycles}");
            keep.check(1);
            after.check(3);
        }
    }
}

#[test]
fn writes_while_out_are_kept() {
    for parts in combinations() {
        let (set, arena) = arena(parts);
        let mut block = Block::new(&arena, 8 * MIB);
        block.fill(5);
        let mut model = block.bytes().to_vec();
        for round in 0..4u8 {
            set.page_out().expect("evict");
            // By this thread, by another, and by the kernel.
            block.bytes_mut()[123_456] = round;
            model[123_456] = round;
            std::thread::scope(|s| {
                s.spawn(|| block.bytes_mut()[3 * MIB..3 * MIB + 70_000].fill(round + 1));
            });
            model[3 * MIB..3 * MIB + 70_000].fill(round + 1);
            let text = [round + 100; 5000];
            let mut pipe = [0; 2];
            // SAFETY: a pipe of our own; the target lies in the block.
            unsafe {
                assert_eq!(libc::pipe(pipe.as_mut_ptr()), 0);
                assert_eq!(libc::write(pipe[1], text.as_ptr().cast(), text.len()), 5000);
                let to = block.at.as_ptr().add(5 * MIB + 1000);
                assert_eq!(libc::read(pipe[0], to.cast(), 5000), 5000, "{parts:?}: read(2) into what is out");
                libc::close(pipe[0]);
                libc::close(pipe[1]);
            }
            model[5 * MIB + 1000..5 * MIB + 6000].fill(round + 100);
            assert!(block.bytes() == model, "{parts:?}: while out");
            set.page_in().expect("restore");
            assert!(block.bytes() == model, "{parts:?}: lost in the restore");
        }
        set.page_out().expect("evict");
        assert!(block.bytes() == model, "{parts:?}: lost in the next evict");
        set.page_in().expect("restore");
        assert!(block.bytes() == model);
    }
}

#[test]
fn system_calls_may_write_to_restored_memory() {
    for parts in combinations() {
        let (set, arena) = arena(parts);
        let mut block = Block::new(&arena, 3 * MIB);
        block.fill(5);
        set.page_out().expect("evict");
        set.page_in().expect("restore");
        let file = std::fs::File::open("/dev/zero").expect("/dev/zero");
        std::io::Read::read_exact(&mut &file, &mut block.bytes_mut()[1000..200_000]).expect("read");
        set.page_out().expect("evict");
        set.page_in().expect("restore");
        assert!(block.bytes()[1000..200_000].iter().all(|&b| b == 0), "{parts:?}");
    }
}

#[test]
fn memory_allocated_while_out_is_ordinary() {
    for parts in combinations() {
        let (set, arena) = arena(parts);
        let mut old = Block::new(&arena, 5 * MIB + 1);
        old.fill(1);
        set.page_out().expect("evict");
        let mut inside = Block::new(&arena, CHUNK); // in the last granule that is mapped
        let mut beyond = Block::new(&arena, 7 * MIB);
        assert!(inside.bytes().iter().chain(beyond.bytes()).all(|&b| b == 0));
        inside.fill(2);
        beyond.fill(3);
        let more = set.page_out().expect("evict of what came since");
        assert!(more.bytes > 0);
        beyond.check(3);
        set.page_in().expect("restore");
        old.check(1);
        inside.check(2);
        beyond.check(3);
        set.page_out().expect("evict");
        set.page_in().expect("restore");
        old.check(1);
        inside.check(2);
        beyond.check(3);
    }
}

#[test]
fn memory_is_given_back() {
    for parts in combinations() {
        let (set, arena) = arena(parts);
        let mut block = Block::new(&arena, 32 * MIB);
        block.fill(1);
        assert_eq!(own_pages(block.at.as_ptr(), block.len), block.len / PAGE);
        set.page_out().expect("evict");
        assert_eq!(own_pages(block.at.as_ptr(), block.len), 0, "{parts:?}");
        set.page_in().expect("restore");
        assert_eq!(own_pages(block.at.as_ptr(), block.len), block.len / PAGE, "{parts:?}");
        let (at, len) = (block.at.as_ptr(), block.len);
        drop(block);
        assert_eq!(own_pages(at, len), 0, "{parts:?}: freed");
        assert_eq!(arena.held_bytes(), 0);
    }
}

#[test]
fn untouched_ranges_cost_nothing() {
    let (set, arena) = arena((TrackerKind::Hash, StoreKind::Auto, HugePolicy::Never));
    let mut block = Block::new(&arena, 1 << 30);
    block.bytes_mut()[512 * MIB] = 1;
    let out = set.page_out().expect("evict");
    assert_eq!((out.bytes, out.scanned, out.freed_or_filled), (PAGE as u64, PAGE as u64, PAGE as u64));
    let back = set.page_in().expect("restore");
    assert_eq!(back.bytes, PAGE as u64);
    assert_eq!(own_pages(block.at.as_ptr(), block.len), 1);
    assert_eq!(block.bytes()[512 * MIB], 1);
}

#[test]
fn ends_of_blocks_come_and_go() {
    for parts in combinations() {
        let (set, arena) = arena(parts);
        let mut block = Block::new(&arena, 35 * CHUNK);
        let mut model = vec![0; block.len];
        for (round, pages) in [16, 3, 0, 13, 16, 2].into_iter().enumerate() {
            for (i, (bytes, model)) in
                block.bytes_mut().chunks_mut(CHUNK).zip(model.chunks_mut(CHUNK)).enumerate()
            {
                let end = (pages + i) % 17 * PAGE;
                for bytes in [bytes, model] {
                    bytes[..end].fill(round as u8 + 1);
                    bytes[end..].fill(0);
                }
            }
            set.page_out().expect("evict");
            if round % 2 == 0 {
                assert!(block.bytes() == model, "{parts:?}: round {round}, out");
                set.verified().expect("what the kernel brought in is what was written");
            }
            set.page_in().expect("restore");
            assert!(block.bytes() == model, "{parts:?}: round {round}");
        }
    }
}

#[test]
fn runs_grow_and_shrink_in_place() {
    let (set, arena) = arena((TrackerKind::Hash, StoreKind::Auto, HugePolicy::Auto));
    let at = arena.alloc(3 * MIB, 64).expect("memory");
    // SAFETY: `at` is a live run of this arena throughout, written within its size.
    unsafe {
        assert!(arena.resize(at, 30 * MIB));
        at.add(29 * MIB).write(1);
        set.page_out().expect("evict");
        assert!(arena.resize(at, MIB));
        assert!(arena.resize(at, 30 * MIB));
        assert_eq!(at.add(29 * MIB).read(), 0);
        let next = arena.alloc(1, 4096).expect("memory");
        assert!(!arena.resize(at, 31 * MIB), "in the way");
        assert_eq!(arena.held_bytes(), 30 * MIB + PAGE);
        arena.free(next);
        let aligned = arena.alloc(10, 8 * GRANULE).expect("memory");
        assert_eq!(aligned.as_ptr() as usize % (8 * GRANULE), 0);
        arena.free(aligned);
        arena.free(at);
    }
    assert_eq!(arena.held_bytes(), 0);
    set.page_in().expect("restore");
    assert!(arena.alloc(arena.reserved_bytes() + 1, 1).is_none());
    let whole = arena.alloc(arena.reserved_bytes(), 1).expect("all of it");
    // SAFETY: just allocated.
    unsafe { arena.free(whole) };
}

#[test]
fn an_arena_may_go_while_it_is_out() {
    for parts in combinations() {
        let (set, arena) = arena(parts);
        let held = sbmalloc::PROCESS.is_evicted();
        assert!(!held);
        let mut block = Block::new(&arena, MIB);
        block.fill(1);
        set.page_out().expect("evict");
        drop(block);
        drop(arena);
        assert_eq!(set.page_in().expect("nothing left"), Default::default());
        let options = ArenaOptions { reserve: 1 << 30, ..ArenaOptions::default() };
        drop(sbmalloc::Arena::new_in(&options, set).expect("the slot is free again"));
    }
}
