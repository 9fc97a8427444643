//! Memory that is compressed on its way out: content, forms in the file, damage, full disks.
//! (`packed_processes`: who may not.)

#[path = "../conformance/common.rs"]
#[allow(dead_code, reason = "the conformance suite uses the rest")]
mod common;
mod data;
mod faults;
#[path = "../moves/mod.rs"]
mod moves;
mod programs;

use common::{Block, Combination, Random, apart, arena, combinations, own_pages};
use data::Data;
use moves::Moves;
use sbmalloc::pager::Moved;
use sbmalloc::{Advice, Arena, ArenaSet, CHUNK, Compression, Config, GRANULE, advise, configure};

const MIB: usize = 1 << 20;

/// An arena whose memory may be compressed, and always is if it shrinks.
fn packing(parts: Combination) -> (&'static ArenaSet, Arena) {
    configure(Config { compression: Compression::Lz4, ..Config::default() }).expect("a configuration");
    let (set, arena) = arena(parts);
    set.expect_restores();
    (set, arena)
}

fn out(set: &'static ArenaSet, site: u64) -> Moved {
    set.page_out_to(0, site, &mut |_| {}).expect("evict")
}

fn back(set: &'static ArenaSet, site: u64) -> Moved {
    let (moved, all) = set.page_in_for(site, &mut |_| usize::MAX).expect("restore");
    assert!(all && !set.is_packed());
    moved
}

/// Everything the crate offers, but for stores that differ in how files are opened only.
fn parts() -> Vec<Combination> {
    combinations().into_iter().filter(|p| !matches!(p.1, sbmalloc::StoreKind::Buffered)).collect()
}

#[test]
fn what_shrinks_is_packed_and_comes_back() {
    if apart() {
        return;
    }
    for parts in parts() {
        for data in [Data::Counters, Data::Sparse, Data::Noise, Data::Mixed] {
            let (set, arena) = packing(parts);
            let mut block = Block::new(&arena, 7 * MIB + 4321);
            data.fill(block.bytes_mut(), 1);
            let mut model = block.bytes().to_vec();
            let mut random = Random(2);
            for round in 0..4 {
                let moved = out(set, 0);
                let is_packed = data != Data::Noise;
                assert_eq!(set.is_packed(), is_packed, "{parts:?} {data:?}");
                assert_eq!(
                    own_pages(block.at.as_ptr(), block.len),
                    0,
                    "{parts:?} {data:?}: RAM is given back"
                );
                if round == 0 {
                    let (most, least) = match data {
                        _ if !is_packed => (100, 75),
                        Data::Counters => (60, 25),
                        Data::Sparse => (15, 1),
                        _ => (80, 30),
                    };
                    let percent = moved.bytes as usize * 100 / block.len;
                    assert!((least..=most).contains(&percent), "{parts:?} {data:?}: {percent} % written");
                }
                let read = back(set, 0);
                assert!(block.bytes() == model, "{parts:?} {data:?}: round {round}");
                if is_packed {
                    assert!(read.bytes < read.freed_or_filled, "{parts:?} {data:?}: {read:?}");
                    assert!(own_pages(block.at.as_ptr(), 4 * MIB) > 0);
                }
                for _ in 0..round {
                    let (at, len) = (random.below(block.len - 9000), 1 + random.below(9000));
                    let byte = random.next() as u8;
                    model[at..at + len].fill(byte);
                    block.bytes_mut()[at..at + len].fill(byte);
                }
            }
        }
    }
}

#[test]
fn what_has_not_changed_is_not_written_again_and_one_block_writes_its_granule() {
    for parts in parts() {
        let (set, arena) = packing(parts);
        let mut block = Block::aligned(&arena, 16 * MIB, GRANULE);
        Data::Counters.fill(block.bytes_mut(), 1);
        let first = out(set, 0);
        assert!(set.is_packed());
        assert_eq!(out(set, 0), Moved::default(), "{parts:?}: it is out");
        back(set, 0);
        // Eighths of the granules are left out now and then to see whether they are used; those would go raw.
        let second = out(set, 1 << 40);
        assert!(set.is_packed());
        assert_eq!(second.bytes, 0, "{parts:?}");
        back(set, 1 << 40);
        block.bytes_mut()[5 * MIB] ^= 1;
        let third = out(set, 2 << 40);
        assert!(third.bytes > 0 && third.bytes <= first.bytes / 7, "{parts:?}: {third:?} of {first:?}");
        back(set, 2 << 40);
        block.bytes_mut()[5 * MIB] ^= 1;
        let mut model = vec![0; block.len];
        Data::Counters.fill(&mut model, 1);
        assert!(block.bytes() == model, "{parts:?}");
    }
}

#[test]
fn a_granule_may_change_its_form() {
    if apart() {
        return;
    }
    for parts in parts() {
        let (set, arena) = packing(parts);
        let mut block = Block::aligned(&arena, 8 * MIB, GRANULE);
        let mut model = vec![0; block.len];
        for round in 0..6u64 {
            let data = [Data::Counters, Data::Noise, Data::Mixed][round as usize % 3];
            // The first time and now and then; else nothing changes but the form.
            if round % 2 == 0 {
                data.fill(&mut model, round);
                block.bytes_mut().copy_from_slice(&model);
            }
            // What was in an image before must not be seen where there are zeros now.
            model[MIB..2 * MIB].fill(0);
            block.bytes_mut()[MIB..2 * MIB].fill(0);
            out(set, round << 40);
            let is_packed = [0, 2].contains(&round);
            assert!(set.is_packed() || !is_packed, "{parts:?}: round {round}");
            back(set, round << 40);
            assert!(block.bytes() == model, "{parts:?}: round {round}");
            set.page_out().expect("evict");
            assert!(!set.is_packed(), "{parts:?}: nobody said what comes after");
            assert!(block.bytes() == model, "{parts:?}: round {round}, out and raw");
            block.bytes_mut()[3 * MIB + round as usize] ^= 1;
            model[3 * MIB + round as usize] ^= 1;
            if round % 3 == 0 {
                out(set, round << 40);
                assert!(block.bytes() == model, "{parts:?}: raw and written while out, so it stays raw");
            }
            back(set, round << 40);
            set.page_in().expect("restore");
            assert!(block.bytes() == model, "{parts:?}: round {round}");
        }
    }
}

#[test]
fn what_is_not_likely_to_be_used_stays_legal_to_touch() {
    for parts in parts() {
        let (set, arena) = packing(parts);
        let mut block = Block::aligned(&arena, 16 * MIB, GRANULE);
        Data::Counters.fill(block.bytes_mut(), 1);
        let model = block.bytes().to_vec();
        advise(&block.bytes()[6 * MIB..], Advice::DontNeed).expect("ours");
        out(set, 0);
        assert!(set.is_packed());
        assert!(block.bytes()[6 * MIB..] == model[6 * MIB..], "{parts:?}: out and not packed");
        let likely = set.likely(0);
        assert!((6 * MIB..16 * MIB).contains(&likely), "{parts:?}: {likely}");
        // However little room there is, all that is packed comes in by itself.
        let (_, all) = set.page_in_for(0, &mut |ram| ram).expect("restore");
        assert!(!all && set.is_packed(), "{parts:?}");
        let moved = set.unpacked().expect("restore");
        assert!(!set.is_packed() && set.is_evicted(), "{parts:?}");
        assert!(moved.freed_or_filled >= 6 * MIB as u64 && moved.freed_or_filled < 7 * MIB as u64);
        assert_eq!(set.unpack(), Ok(Moved::default()));
        assert!(block.bytes() == model, "{parts:?}");
    }
}

#[test]
fn without_a_promise_nothing_is_packed() {
    configure(Config { compression: Compression::Lz4, ..Config::default() }).expect("a configuration");
    let (set, arena) = arena(parts()[0]);
    let mut block = Block::new(&arena, 8 * MIB);
    Data::Sparse.fill(block.bytes_mut(), 1);
    let model = block.bytes().to_vec();
    out(set, 0);
    assert!(!set.is_packed() && set.is_evicted());
    assert!(block.bytes() == model);
}

#[test]
fn freed_while_packed_it_comes_back_as_zeros() {
    for parts in parts() {
        let (set, arena) = packing(parts);
        let mut keep = Block::new(&arena, 3 * CHUNK);
        let mut gone = Block::new(&arena, 40 * CHUNK + 5);
        let mut after = Block::new(&arena, 70 * CHUNK);
        for block in [&mut keep, &mut gone, &mut after] {
            Data::Counters.fill(block.bytes_mut(), 3);
        }
        let model = after.bytes().to_vec();
        // Of this arena parts go out raw: those that are freed lie in both kinds.
        advise(&after.bytes()[..20 * CHUNK], Advice::DontNeed).expect("ours");
        out(set, 0);
        let (place, len) = (gone.at, gone.len);
        drop(gone);
        back(set, 0);
        let fresh = Block::new(&arena, len);
        assert_eq!(fresh.at, place, "first fit");
        assert!(fresh.bytes().iter().all(|&b| b == 0), "{parts:?}");
        for site in 1..3 {
            out(set, site << 40);
            back(set, site << 40);
            assert!(fresh.bytes().iter().all(|&b| b == 0), "{parts:?}");
            assert!(after.bytes() == model, "{parts:?}");
            assert!(keep.bytes() == &model[..3 * CHUNK], "{parts:?}");
        }
    }
}
