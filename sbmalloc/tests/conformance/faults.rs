//! Full disks, read errors, damage, short and interrupted transfers, file systems without holes.

use crate::MIB;
use crate::common::{Block, Faulty, apart, arena, own_pages};
use crate::moves::Moves;
use sbmalloc::pager::PagerError;
use sbmalloc::{CHUNK, HugePolicy, PAGE, StoreKind, TrackerKind};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::sync::atomic::Ordering;

/// One transfer after the other, and beside.
const WAYS: [fn(bool, bool) -> &'static Faulty; 2] = [Faulty::new, Faulty::beside];

#[test]
fn a_full_disk_leaves_everything_resident_and_intact() {
    if apart() {
        return;
    }
    for tracker in [TrackerKind::Auto, TrackerKind::Hash, TrackerKind::Uffd] {
        for (room, make) in (0..3).flat_map(|room| WAYS.map(|make| (room, make))) {
            let store = make(false, false);
            let (set, arena) = arena((tracker, StoreKind::Custom(store), HugePolicy::Never));
            let mut block = Block::new(&arena, 20 * MIB);
            block.fill(1);
            store.room.store(room, Ordering::Relaxed);
            match set.page_out() {
                Err(PagerError::NoSpace { needed, .. }) => {
                    assert!(needed >= (block.len as u64).saturating_sub(room as u64 * 8 * MIB as u64));
                }
                other => panic!("{other:?}"),
            }
            assert!(!set.is_evicted());
            assert_eq!(own_pages(block.at.as_ptr(), block.len), block.len / PAGE);
            block.check(1);
            block.fill(2);
            assert!(matches!(set.page_out(), Err(PagerError::NoSpace { .. })));
            store.room.store(-1, Ordering::Relaxed);
            set.page_out().expect("room again");
            set.page_in().expect("restore");
            block.check(2);
        }
    }
}

#[test]
fn space_kept_for_zeros_is_given_back_before_the_disk_counts_as_full() {
    for make in WAYS {
        let store = make(false, false);
        let (set, arena) = arena((TrackerKind::Hash, StoreKind::Custom(store), HugePolicy::Never));
        let mut block = Block::new(&arena, 20 * MIB);
        block.fill(1);
        set.page_out().expect("evict");
        set.page_in().expect("restore");
        block.bytes_mut()[3 * MIB..5 * MIB].fill(0);
        set.page_out().expect("evict");
        set.page_in().expect("restore");
        block.bytes_mut()[6 * MIB..7 * MIB].fill(9);
        store.room.store(0, Ordering::Relaxed);
        store.kept.store(2 * MIB as u64, Ordering::Relaxed);
        set.page_out().expect("there is room once it is given back");
        set.page_in().expect("restore");
        let expected = |at: usize| {
            [(3, 5, 0), (6, 7, 9)].iter().find(|r| (r.0 * MIB..r.1 * MIB).contains(&at)).map(|r| r.2)
        };
        let mut model = Block::new(&arena, block.len);
        model.fill(1);
        assert!(
            block
                .bytes()
                .iter()
                .zip(model.bytes())
                .enumerate()
                .all(|(at, (b, m))| *b == expected(at).unwrap_or(*m))
        );
    }
}

#[test]
fn a_damaged_file_is_noticed() {
    if apart() {
        return;
    }
    for (tracker, make) in [TrackerKind::Auto, TrackerKind::Hash, TrackerKind::Uffd]
        .into_iter()
        .flat_map(|t| WAYS.map(|w| (t, w)))
    {
        let store = make(false, false);
        let (set, arena) = arena((tracker, StoreKind::Custom(store), HugePolicy::Never));
        let mut block = Block::new(&arena, 200 * MIB);
        block.fill(1);
        set.page_out().expect("evict");
        // Not through the descriptor itself, which may be direct.
        let path = format!("/proc/self/fd/{}", store.fd.as_raw_fd());
        let file = std::fs::File::options().read(true).write(true).open(path).expect("open");
        for offset in [MIB, 150 * MIB] {
            let at = (offset + 4321) as u64;
            let mut byte = [0u8];
            file.read_exact_at(&mut byte, at).expect("read");
            file.write_all_at(&[byte[0] ^ 1], at).expect("write");
            assert_eq!(set.page_in(), Err(PagerError::Corrupt { offset: offset as u64 }));
            assert!(set.is_evicted());
            file.write_all_at(&byte, at).expect("write");
        }
        set.page_in().expect("repaired");
        block.check(1);
    }
}

#[test]
fn what_is_read_wrong_is_read_again() {
    let store = Faulty::new(false, false);
    let (set, arena) = arena((TrackerKind::Hash, StoreKind::Custom(store), HugePolicy::Never));
    let mut block = Block::new(&arena, 9 * MIB);
    block.fill(1);
    // Once in a while it takes one more than once: there are three.
    for wrong in [1, 2, 3] {
        set.page_out().expect("evict");
        store.wrong_reads.store(wrong, Ordering::Relaxed);
        set.page_in().expect("right in the end");
        block.check(1);
    }
    set.page_out().expect("evict");
    store.wrong_reads.store(i64::MAX, Ordering::Relaxed);
    assert!(matches!(set.page_in(), Err(PagerError::Corrupt { .. })));
    store.wrong_reads.store(0, Ordering::Relaxed);
    set.page_in().expect("the file is right");
    block.check(1);
}

#[test]
fn read_errors_can_be_tried_again() {
    for make in WAYS {
        let store = make(false, false);
        let (set, arena) = arena((TrackerKind::Uffd, StoreKind::Custom(store), HugePolicy::Never));
        let mut block = Block::new(&arena, 200 * MIB);
        block.fill(1);
        set.page_out().expect("evict");
        // In the second run.
        let reads = if store.beside { 70 } else { 12 };
        store.readable.store(reads, Ordering::Relaxed);
        match set.page_in() {
            Err(PagerError::Io { errno, .. }) => assert_eq!(errno.0, libc::EIO),
            other => panic!("{other:?}"),
        }
        assert!(set.is_evicted(), "a part is out");
        block.bytes_mut()[MIB] ^= 1; // in the part that is in
        block.bytes_mut()[190 * MIB] ^= 1; // in the part that is out
        store.readable.store(-1, Ordering::Relaxed);
        assert!(set.page_out().expect("the part that is in").bytes >= CHUNK as u64);
        set.page_in().expect("restore");
        block.bytes_mut()[MIB] ^= 1;
        block.bytes_mut()[190 * MIB] ^= 1;
        block.check(1);
    }
}

#[test]
fn short_and_interrupted_transfers_and_missing_holes_are_dealt_with() {
    if apart() {
        return;
    }
    for (rough, no_holes, make) in
        [(true, false), (false, true), (true, true)].into_iter().flat_map(|(r, n)| WAYS.map(|w| (r, n, w)))
    {
        for tracker in [TrackerKind::Auto, TrackerKind::Hash, TrackerKind::Uffd] {
            let store = make(rough, no_holes);
            let (set, arena) = arena((tracker, StoreKind::Custom(store), HugePolicy::Never));
            let mut block = Block::new(&arena, 20 * MIB);
            let mut free = Block::new(&arena, 2 * MIB);
            block.fill(1);
            free.fill(2);
            set.page_out().expect("evict");
            drop(free); // while out, and perhaps without holes
            let fresh = Block::new(&arena, 2 * MIB);
            assert!(fresh.bytes().iter().all(|&b| b == 0));
            set.page_in().expect("restore");
            assert!(fresh.bytes().iter().all(|&b| b == 0));
            block.check(1);
            block.bytes_mut()[5 * MIB..6 * MIB].fill(0);
            set.page_out().expect("evict");
            assert!(block.bytes()[5 * MIB..6 * MIB].iter().all(|&b| b == 0));
            assert!(fresh.bytes().iter().all(|&b| b == 0));
            set.page_in().expect("restore");
            assert!(block.bytes()[5 * MIB..6 * MIB].iter().all(|&b| b == 0));
            assert!(fresh.bytes().iter().all(|&b| b == 0));
            assert_eq!(store.made_beside.load(Ordering::Relaxed) > 0, store.beside);
        }
    }
}
