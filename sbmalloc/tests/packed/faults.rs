//! Damage, full disks, read errors, short and interrupted transfers.

use crate::common::{Block, Combination, Faulty, Random, apart};
use crate::moves::Moves;
use crate::{Data, MIB, back, out, packing};
use sbmalloc::pager::PagerError;
use sbmalloc::{CHUNK, GRANULE, HugePolicy, StoreKind, TrackerKind};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::sync::atomic::Ordering;

/// One transfer after the other, and beside.
const WAYS: [fn(bool, bool) -> &'static Faulty; 2] = [Faulty::new, Faulty::beside];

fn on(store: &'static Faulty, tracker: TrackerKind) -> Combination {
    (tracker, StoreKind::Custom(store), HugePolicy::Always)
}

#[test]
fn damage_is_noticed_wherever_it_is() {
    if apart() {
        return;
    }
    for make in WAYS {
        let store = make(false, false);
        let (set, arena) = packing(on(store, TrackerKind::Hash));
        let mut block = Block::aligned(&arena, 24 * MIB, GRANULE);
        Data::Mixed.fill(block.bytes_mut(), 1);
        let model = block.bytes().to_vec();
        out(set, 0);
        // Not through the descriptor itself, which may be direct.
        let path = format!("/proc/self/fd/{}", store.fd.as_raw_fd());
        let file = std::fs::File::options().read(true).write(true).open(path).expect("open");
        let mut random = Random(5);
        for round in 0..60 {
            // Where images are.
            let at = (random.below(12) * GRANULE + random.below(750_000)) as u64;
            let mut was = [0u8; 16];
            file.read_exact_at(&mut was, at).expect("read");
            let mut now = was;
            match round % 3 {
                0 => now[0] ^= 1,
                1 => now = [0xff; 16], // lengths that go on and on
                _ => now = [0; 16],
            }
            if now == was {
                continue;
            }
            file.write_all_at(&now, at).expect("write");
            match set.page_in_for(0, &mut |_| usize::MAX) {
                Err(PagerError::Corrupt { offset }) => {
                    assert_eq!(offset as usize / GRANULE, at as usize / GRANULE, "the granule of it");
                    assert_eq!(offset as usize % CHUNK, 0);
                }
                other => panic!("round {round}, damage at {at}: {other:?}"),
            }
            assert!(set.is_packed());
            file.write_all_at(&was, at).expect("write");
            set.unpacked().expect("repaired");
            assert!(block.bytes() == model);
            out(set, (round + 1) << 40);
            assert!(set.is_packed());
        }
        back(set, 0);
        assert!(block.bytes() == model);
    }
}

#[test]
fn a_full_disk_loses_nothing() {
    if apart() {
        return;
    }
    for tracker in [TrackerKind::Hash, TrackerKind::Uffd] {
        for (room, make) in [0, 1, 2, 4, 7, 11].into_iter().flat_map(|room| WAYS.map(|make| (room, make))) {
            let store = make(false, false);
            let (set, arena) = packing(on(store, tracker));
            let mut block = Block::new(&arena, 20 * MIB);
            for (turn, data) in [Data::Counters, Data::Mixed, Data::Noise].into_iter().enumerate() {
                data.fill(block.bytes_mut(), turn as u64);
                let mut model = block.bytes().to_vec();
                store.room.store(room, Ordering::Relaxed);
                let site = (turn as u64) << 40;
                match set.page_out_to(0, site, &mut |_| {}) {
                    Ok(_) | Err(PagerError::NoSpace { .. }) => {}
                    other => panic!("{tracker:?}, {room} writes: {other:?}"),
                }
                store.room.store(-1, Ordering::Relaxed);
                set.unpacked().expect("restore");
                assert!(block.bytes() == model, "{tracker:?}, {room} writes: what was out");
                block.bytes_mut()[7 * MIB] ^= 1;
                model[7 * MIB] ^= 1;
                out(set, site);
                back(set, site);
                assert!(block.bytes() == model, "{tracker:?}, {room} writes: once there was room");
            }
        }
    }
}

#[test]
fn what_is_read_wrong_is_read_again() {
    let store = Faulty::new(false, false);
    let (set, arena) = packing(on(store, TrackerKind::Hash));
    let mut block = Block::new(&arena, 20 * MIB);
    Data::Mixed.fill(block.bytes_mut(), 1);
    let model = block.bytes().to_vec();
    for wrong in [1, 2, 3, i64::MAX] {
        out(set, 0);
        assert!(set.is_packed());
        store.wrong_reads.store(wrong, Ordering::Relaxed);
        if wrong == i64::MAX {
            let error = set.page_in_for(0, &mut |_| usize::MAX).err();
            assert!(matches!(error, Some(PagerError::Corrupt { .. })), "{error:?}");
            store.wrong_reads.store(0, Ordering::Relaxed);
        }
        back(set, 0);
        assert!(block.bytes() == model);
    }
}

#[test]
fn read_errors_can_be_tried_again() {
    if apart() {
        return;
    }
    for make in WAYS {
        let store = make(false, false);
        let (set, arena) = packing(on(store, TrackerKind::Hash));
        let mut block = Block::new(&arena, 40 * MIB);
        Data::Mixed.fill(block.bytes_mut(), 1);
        let model = block.bytes().to_vec();
        for reads in 0..18 {
            out(set, 0);
            store.readable.store(reads, Ordering::Relaxed);
            match set.page_in_for(0, &mut |_| usize::MAX) {
                Err(PagerError::Io { errno, .. }) => assert_eq!(errno.0, libc::EIO),
                other => panic!("{other:?}"),
            }
            assert!(set.is_packed());
            store.readable.store(-1, Ordering::Relaxed);
            if reads % 2 == 0 {
                out(set, 0); // the part that is in
            }
            back(set, 0);
            assert!(block.bytes() == model);
        }
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
            let (set, arena) = packing(on(store, tracker));
            let mut block = Block::new(&arena, 20 * MIB);
            for turn in 0..4u64 {
                [Data::Counters, Data::Noise, Data::Sparse, Data::Mixed][turn as usize]
                    .fill(block.bytes_mut(), turn);
                let model = block.bytes().to_vec();
                out(set, turn << 40);
                back(set, turn << 40);
                assert!(block.bytes() == model, "{tracker:?}, turn {turn}");
                set.page_out().expect("evict");
                assert!(block.bytes() == model, "{tracker:?}, turn {turn}: raw");
                set.page_in().expect("restore");
            }
            assert_eq!(store.made_beside.load(Ordering::Relaxed) > 0, store.beside);
        }
    }
}
