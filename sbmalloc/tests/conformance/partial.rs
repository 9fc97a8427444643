//! Moving a part: targets and limits, what is learnt of what is used, and what the kernel brings in by
//! itself.

use crate::MIB;
use crate::common::{Block, Faulty, Random, apart, arena, combinations, own_pages};
use crate::moves::Moves;
use sbmalloc::pager::{Moved, PagerError};
use sbmalloc::{ArenaSet, CHUNK, GRANULE, HugePolicy, PAGE, StoreKind, TrackerKind};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::sync::atomic::Ordering;

fn evict_to(set: &'static ArenaSet, target: usize, site: u64) -> Moved {
    let mut told = vec![];
    let moved = set.page_out_to(target, site, &mut |left| told.push(left)).expect("evict");
    assert!(!told.is_empty() && told.is_sorted_by(|a, b| a >= b), "{told:?}");
    assert!(told.last() <= Some(&target), "{told:?}");
    assert_eq!(told.last(), Some(&set.in_ram()), "{told:?}");
    moved
}

/// A wait at `site`, everything evicted in it, and what is likely restored after it.
fn wait(set: &'static ArenaSet, site: u64) -> (Moved, Moved) {
    let out = evict_to(set, 0, site);
    let (back, all) = set.page_in_for(site, &mut |_| usize::MAX).expect("restore");
    assert!(all);
    set.begin_phase(site);
    (out, back)
}

#[test]
fn ram_is_brought_down_to_the_target_and_up_to_the_limit() {
    if apart() {
        return;
    }
    for parts in combinations() {
        let (set, arena) = arena(parts);
        let mut block = Block::new(&arena, 40 * MIB);
        block.fill(1);
        let own = || own_pages(block.at.as_ptr(), block.len) * PAGE;
        assert_eq!(set.in_ram(), 40 * MIB);
        for target in [39 * MIB, 25 * MIB, 25 * MIB, 7 * MIB + 5, 1] {
            evict_to(set, target, 1);
            let left = set.in_ram();
            assert!(left <= target && left + GRANULE > target, "{parts:?}: {left} of {target}");
            assert_eq!(own(), left, "{parts:?}");
            assert!(set.is_evicted());
        }
        assert_eq!(set.likely(1), 40 * MIB);
        let mut limit = 10 * MIB;
        let (_, all) = set.page_in_for(1, &mut |_| limit).expect("restore");
        assert!(!all && set.in_ram() <= limit && set.in_ram() + GRANULE > limit, "{parts:?}");
        assert!(own() <= set.in_ram());
        let (_, all) = set
            .page_in_for(1, &mut |ram| {
                assert!(ram <= limit);
                limit += 4 * MIB;
                limit
            })
            .expect("restore");
        assert!(all && !set.is_evicted(), "{parts:?}");
        assert_eq!(own(), 40 * MIB, "{parts:?}");
        block.check(1);
    }
}

#[test]
fn what_stays_is_the_front() {
    let (set, arena) = arena((TrackerKind::Hash, StoreKind::Auto, HugePolicy::Never));
    let mut block = Block::new(&arena, 20 * MIB);
    block.fill(1);
    evict_to(set, 12 * MIB, 1);
    assert_eq!(own_pages(block.at.as_ptr(), 12 * MIB), 12 * MIB / PAGE);
    assert_eq!(own_pages(block.bytes()[12 * MIB..].as_ptr(), 8 * MIB), 0);
    block.check(1);
}

#[test]
fn touched_pages_count_and_are_given_back_first() {
    if apart() {
        return;
    }
    for parts in combinations() {
        let (set, arena) = arena(parts);
        let mut block = Block::new(&arena, 40 * MIB);
        block.fill(1);
        let mut model = block.bytes().to_vec();
        evict_to(set, 20 * MIB, 1);
        let here = set.in_ram();
        for at in [21 * MIB, 30 * MIB + 70_000, 39 * MIB] {
            block.bytes_mut()[at] ^= 1;
            model[at] ^= 1;
        }
        assert_eq!(set.in_ram(), here, "nobody has looked");
        // All of the resident part may stay: what the kernel brought in suffices.
        let mut told = vec![];
        let moved = set.page_out_to(here, 1, &mut |left| told.push(left)).expect("evict");
        assert_eq!(moved.bytes, 3 * CHUNK as u64, "{parts:?}");
        assert_eq!(set.in_ram(), here);
        assert_eq!(told.last(), Some(&here), "{parts:?}: {told:?}");
        assert_eq!(own_pages(block.at.as_ptr(), block.len) * PAGE, here, "{parts:?}");
        assert!(block.bytes() == model, "{parts:?}");
        set.page_in().expect("restore");
        assert!(block.bytes() == model, "{parts:?}");
    }
}

/// Writes of all kinds into what is out are never lost, whatever is evicted again before it is restored.
#[test]
fn pages_written_while_out_go_to_the_file() {
    if apart() {
        return;
    }
    for parts in combinations() {
        let (set, arena) = arena(parts);
        let mut block = Block::new(&arena, 12 * MIB);
        block.fill(1);
        let mut model = block.bytes().to_vec();
        let mut random = Random(7);
        set.page_out().expect("evict");
        for round in 0..6 {
            for _ in 0..30 {
                let len = [1, 300, PAGE, CHUNK, 3 * CHUNK][random.below(5)];
                let at = random.below(model.len() - len) / [1, PAGE, CHUNK][random.below(3)];
                let byte = [0, random.next() as u8][random.below(2)];
                block.bytes_mut()[at..at + len].fill(byte);
                model[at..at + len].fill(byte);
            }
            // A free in what is out, and fresh memory there.
            let fresh = Block::new(&arena, 2 * CHUNK);
            assert!(fresh.bytes().iter().all(|&b| b == 0), "{parts:?} {round}");
            set.page_out().expect("evict");
            assert_eq!(own_pages(block.at.as_ptr(), block.len), 0);
            assert!(block.bytes() == model, "{parts:?}: round {round}, out");
            let moved = set.page_out().expect("evict");
            assert_eq!(moved.bytes, 0, "{parts:?}: what was only read is not written");
        }
        set.page_in().expect("restore");
        assert!(block.bytes() == model, "{parts:?}");
    }
}

#[test]
fn a_tenth_used_is_a_tenth_moved() {
    if apart() {
        return;
    }
    let use_part = |block: &mut Block, write: bool, turn: usize| {
        let mut sum = 0u64;
        for g in (0..block.len / GRANULE).filter(|g| g % 10 == 4) {
            for at in (g * GRANULE..(g + 1) * GRANULE).step_by(PAGE) {
                sum = sum.wrapping_add(u64::from(block.bytes()[at]));
                if write {
                    block.bytes_mut()[at] = turn as u8;
                }
            }
        }
        std::hint::black_box(sum);
    };
    for write in [false, true] {
        let (set, arena) = arena((TrackerKind::Hash, StoreKind::Auto, HugePolicy::Auto));
        let mut block = Block::new(&arena, 200 * MIB);
        block.fill(1);
        let (mut read, mut written) = (0, 0);
        for turn in 0..24 {
            let (out, back) = wait(set, 5);
            if turn >= 12 {
                read += back.bytes;
                written += out.bytes;
            }
            use_part(&mut block, write, turn);
            set.verified().expect("sound");
        }
        let tenth = 12 * 20 * MIB as u64;
        assert!(read * 100 <= tenth * 105, "{read} read of {tenth}");
        assert_eq!(written, if write { tenth } else { 0 });
        assert!(set.likely(5) <= 20 * MIB, "{}", set.likely(5));
    }
}

#[test]
fn what_the_kernel_brought_in_is_verified() {
    for (make, buffered) in
        [(Faulty::new as fn(bool, bool) -> &'static Faulty, true), (Faulty::beside, false)]
    {
        for write_beside in [false, true] {
            let store = make(false, false);
            let (set, arena) = arena((TrackerKind::Hash, StoreKind::Custom(store), HugePolicy::Never));
            let mut block = Block::new(&arena, 20 * MIB);
            block.fill(1);
            assert_eq!(set.verified(), Ok(()), "nothing is out");
            set.page_out().expect("evict");
            let path = format!("/proc/self/fd/{}", store.fd.as_raw_fd());
            let file = std::fs::File::options().read(true).write(true).open(path).expect("open");
            let at = 7 * MIB + 4321;
            let mut byte = [0u8];
            file.read_exact_at(&mut byte, at as u64).expect("read");
            file.write_all_at(&[byte[0] ^ 1], at as u64).expect("write");
            std::hint::black_box(block.bytes()[3 * MIB]);
            assert_eq!(set.verified(), Ok(()), "an undamaged block");
            std::hint::black_box(block.bytes()[at]);
            if write_beside {
                block.bytes_mut()[7 * MIB + 3 * PAGE] ^= 1; // the same block
            }
            let damaged = PagerError::Corrupt { offset: 7 * MIB as u64 };
            assert_eq!(set.verified(), Err(damaged), "{buffered}");
            assert_eq!(set.verified(), Err(damaged), "nor is it believed later");
            assert_eq!(set.page_out(), Err(damaged), "nor dropped unseen");
            file.write_all_at(&byte, at as u64).expect("write");
            assert_eq!(set.verified(), Ok(()));
            set.page_in().expect("repaired");
            if write_beside {
                block.bytes_mut()[7 * MIB + 3 * PAGE] ^= 1;
            }
            block.check(1);
        }
    }
}

#[test]
fn a_disk_that_fills_up_leaves_a_part_out_and_the_rest_intact() {
    if apart() {
        return;
    }
    for make in [Faulty::new as fn(bool, bool) -> &'static Faulty, Faulty::beside] {
        for tracker in [TrackerKind::Hash, TrackerKind::Uffd] {
            let store = make(false, false);
            let (set, arena) = arena((tracker, StoreKind::Custom(store), HugePolicy::Never));
            let mut block = Block::new(&arena, 300 * MIB);
            block.fill(1);
            // In the third group.
            store.room.store(if store.beside { 150 } else { 20 }, Ordering::Relaxed);
            let mut told = vec![];
            match set.page_out_to(10 * MIB, 1, &mut |left| told.push(left)) {
                Err(PagerError::NoSpace { needed, .. }) => assert!(needed > 0),
                other => panic!("{other:?}"),
            }
            let left = set.in_ram();
            assert!(left > 100 * MIB && left < 300 * MIB && told.last() == Some(&left), "{told:?}");
            assert_eq!(own_pages(block.at.as_ptr(), block.len) * PAGE, left);
            block.check(1);
            // Full still; what was just read by the kernel can be given back all the same.
            assert!(matches!(set.page_out(), Err(PagerError::NoSpace { .. })));
            assert_eq!(set.in_ram(), left);
            block.bytes_mut()[20 * MIB] ^= 1;
            block.bytes_mut()[290 * MIB] ^= 1;
            store.room.store(-1, Ordering::Relaxed);
            set.page_out().expect("room again");
            assert_eq!(own_pages(block.at.as_ptr(), block.len), 0);
            set.page_in().expect("restore");
            block.bytes_mut()[20 * MIB] ^= 1;
            block.bytes_mut()[290 * MIB] ^= 1;
            block.check(1);
        }
    }
}

/// A disk that is full when pages written while out are to go to a hole in the file.
#[test]
fn a_full_disk_keeps_pages_written_while_out() {
    for make in [Faulty::new as fn(bool, bool) -> &'static Faulty, Faulty::beside] {
        let store = make(false, false);
        let (set, arena) = arena((TrackerKind::Hash, StoreKind::Custom(store), HugePolicy::Never));
        let mut block = Block::new(&arena, 6 * MIB);
        block.bytes_mut()[..MIB].fill(3);
        set.page_out().expect("evict");
        let mut model = block.bytes().to_vec();
        for (at, len) in [(5000, 1), (CHUNK, CHUNK), (2 * MIB + 9000, 20_000), (4 * MIB, 3 * CHUNK)] {
            block.bytes_mut()[at..at + len].fill(9);
            model[at..at + len].fill(9);
            for room in 0..3 {
                store.room.store(room, Ordering::Relaxed);
                let _ = set.page_out();
                assert!(block.bytes() == model, "{at} {room}");
            }
        }
        store.room.store(0, Ordering::Relaxed);
        block.bytes_mut()[5 * MIB] = 1;
        model[5 * MIB] = 1;
        assert!(matches!(set.page_out(), Err(PagerError::NoSpace { .. })));
        assert!(block.bytes() == model);
        set.page_in().expect("restore");
        assert!(block.bytes() == model);
        store.room.store(-1, Ordering::Relaxed);
        set.page_out().expect("evict");
        assert!(block.bytes() == model);
    }
}

/// A child of a process of which a part is out reads its parent's file, and is told so.
#[test]
fn a_child_of_a_partly_evicted_process_does_not_go_on() {
    let (set, arena) = arena((TrackerKind::Hash, StoreKind::Auto, HugePolicy::Never));
    let mut block = Block::new(&arena, 20 * MIB);
    block.fill(1);
    evict_to(set, 10 * MIB, 1);
    let refused = |set: &'static ArenaSet| match set.page_out_to(MIB, 1, &mut |_| {}) {
        Err(PagerError::Io { errno, .. }) => errno.0 == libc::ECHILD,
        _ => false,
    };
    assert!(in_child(|| refused(set)));
    assert!(in_child(|| set.page_in().is_ok() && set.page_out().is_ok() && set.page_in().is_ok()));
    block.check(1);
    set.page_in().expect("restore");
    block.check(1);
    // A child of a resident process gets a file of its own.
    let other = in_child(|| set.page_out_to(MIB, 1, &mut |_| {}).is_ok() && set.in_ram() <= MIB);
    assert!(other);
    set.page_out().expect("evict");
    block.check(1);
}

/// Whether `f` holds in a forked child, which does nothing else.
fn in_child(f: impl FnOnce() -> bool) -> bool {
    // SAFETY: the child calls the pager, which neither allocates nor takes locks of the allocator, and ends
    // at once.
    unsafe {
        match libc::fork() {
            0 => libc::_exit(if f() { 0 } else { 1 }),
            child => {
                assert!(child > 0);
                let mut status = 0;
                assert_eq!(libc::waitpid(child, &mut status, 0), child);
                libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0
            }
        }
    }
}
