//! What the program tells about its memory, what it is told, and collections: over every combination of
//! parts.

use crate::MIB;
use crate::common::{Block, apart, arena, combinations, own_pages};
use crate::moves::Moves;
use allocator_api2::alloc::Allocator;
use sbmalloc::{
    Advice, Arena, ArenaOptions, CHUNK, GRANULE, HugePolicy, NotOurs, PAGE, SbAlloc, SbBox, SbVec, StoreKind,
    TrackerKind, advise, discard,
};
use std::alloc::Layout;

#[test]
fn discarded_content_is_zero_and_gone() {
    if apart() {
        return;
    }
    for parts in combinations() {
        // Discarded while resident for the first time, while out, and while resident again.
        for when in 0..3 {
            let (set, arena) = arena(parts);
            let mut block = Block::new(&arena, 12 * MIB);
            block.fill(1);
            let mut model = block.bytes().to_vec();
            if when > 0 {
                set.page_out().expect("evict");
            }
            if when > 1 {
                set.page_in().expect("restore");
            }
            // In the middle of chunks; whole granules; inside one chunk; nothing.
            for range in [1000..3 * MIB + 77, 4 * MIB..8 * MIB, 9 * MIB + 5..9 * MIB + 500, 7..7] {
                discard(&mut block.bytes_mut()[range.clone()]).expect("ours");
                model[range].fill(0);
            }
            assert_eq!(own_pages(block.at.as_ptr().wrapping_add(4 * MIB), 4 * MIB), 0, "{parts:?} {when}");
            assert!(block.bytes() == model, "{parts:?} {when}");
            assert_eq!(arena.held_bytes(), 12 * MIB, "it stays charged");
            if when == 1 {
                set.page_in().expect("restore");
                assert!(block.bytes() == model, "{parts:?}: discarded while out, and restored");
            }
            let out = set.page_out().expect("evict");
            let stored = arena.stats().stored_blocks;
            // But for the blocks whose ends were cleared, nothing of it is written or kept.
            let whole = (12 * MIB - (3 * MIB - CHUNK) - 4 * MIB) / CHUNK;
            assert_eq!(stored, whole, "{parts:?} {when}: {out:?}");
            assert!(block.bytes() == model, "{parts:?} {when}: out");
            set.page_in().expect("restore");
            assert!(block.bytes() == model, "{parts:?} {when}: restored");
            block.bytes_mut()[5 * MIB] = 9;
            model[5 * MIB] = 9;
            set.page_out().expect("evict");
            set.page_in().expect("restore");
            assert!(block.bytes() == model, "{parts:?} {when}: written again");
        }
    }
}

#[test]
fn discarding_gives_space_on_scratch_back() {
    for store in [StoreKind::Auto, StoreKind::Buffered, StoreKind::Memory] {
        let (set, arena) = arena((TrackerKind::Hash, store, HugePolicy::Never));
        let mut block = Block::new(&arena, 24 * MIB);
        block.fill(1);
        set.page_out().expect("evict");
        let before = arena.stats();
        assert!(before.on_scratch >= 24 * MIB as u64, "{before:?}");
        assert_eq!(before.stored_blocks, 24 * MIB / CHUNK);
        // Below 16 MiB it may be kept.
        discard(&mut block.bytes_mut()[MIB..23 * MIB]).expect("ours");
        let after = arena.stats();
        assert!(after.on_scratch + 22 * MIB as u64 <= before.on_scratch, "{after:?}");
        assert_eq!(after.stored_blocks, 2 * MIB / CHUNK);
        assert_eq!(set.page_in().expect("restore").bytes, 2 * MIB as u64);
    }
}

#[test]
fn advice_changes_no_content() {
    for parts in combinations() {
        let (set, arena) = arena(parts);
        let mut block = Block::new(&arena, 9 * MIB);
        block.fill(1);
        for round in 0..3 {
            let (front, back) = block.bytes().split_at(4 * MIB);
            advise(front, if round % 2 == 0 { Advice::WillNeed } else { Advice::DontNeed }).expect("ours");
            advise(back, if round % 2 == 0 { Advice::DontNeed } else { Advice::WillNeed }).expect("ours");
            if round % 2 == 0 { set.page_out() } else { set.page_in() }.expect("moved");
            block.check(1);
        }
    }
}

#[test]
fn advice_is_heeded() {
    if apart() {
        return;
    }
    for parts in combinations() {
        let (set, arena) = arena(parts);
        let mut block = Block::aligned(&arena, 32 * MIB, GRANULE);
        block.fill(1);
        let part = |i: usize| &block.bytes()[i * 8 * MIB..(i + 1) * 8 * MIB];
        let here = |i: usize| own_pages(part(i).as_ptr(), 8 * MIB) * PAGE / MIB;
        let is_here = |mib: [usize; 4]| {
            assert_eq!([0, 1, 2, 3].map(here), mib, "{parts:?}");
            assert_eq!(set.in_ram(), mib.iter().sum::<usize>() * MIB, "{parts:?}");
        };
        // What is not needed goes first and comes last, what is needed comes first, if there is not room for
        // all.
        advise(part(2), Advice::DontNeed).expect("ours");
        set.page_out_to(24 * MIB, 1, &mut |_| {}).expect("evict");
        is_here([8, 8, 0, 8]);
        set.page_out().expect("evict");
        advise(part(1), Advice::WillNeed).expect("ours");
        set.page_in_for(1, &mut |_| 8 * MIB).map(|(moved, _)| moved).expect("restore");
        is_here([0, 8, 0, 0]);
        set.page_in_for(1, &mut |_| usize::MAX).map(|(moved, _)| moved).expect("restore");
        is_here([8, 8, 0, 8]);
        assert_eq!(arena.stats().out, 8 * MIB);
        // For a granule that was touched the advice has had its time; and a whole restore heeds none.
        assert!(part(2)[..8] != [0; 8]);
        set.page_out().expect("evict");
        set.page_in_for(1, &mut |_| usize::MAX).map(|(moved, _)| moved).expect("restore");
        is_here([8, 8, 2, 8]);
        advise(block.bytes(), Advice::DontNeed).expect("ours");
        set.page_out().expect("evict");
        set.page_in().expect("restore");
        assert!(!set.is_evicted());
        block.check(1);
    }
}

/// Pages of a range that are in RAM in whatever way, the page cache included.
fn cached_pages(bytes: &[u8]) -> usize {
    let mut pages = vec![0u8; bytes.len() / PAGE];
    // SAFETY: one byte for each page of a mapped range.
    assert_eq!(unsafe { libc::mincore(bytes.as_ptr() as *mut _, bytes.len(), pages.as_mut_ptr()) }, 0);
    pages.iter().filter(|&&p| p & 1 == 1).count()
}

#[test]
fn what_will_be_needed_is_fetched_ahead() {
    let (set, arena) = arena((TrackerKind::Hash, StoreKind::Auto, HugePolicy::Never));
    let mut block = Block::new(&arena, 8 * MIB);
    block.fill(1);
    set.page_out().expect("evict");
    assert_eq!(cached_pages(block.bytes()), 0);
    advise(&block.bytes()[2 * MIB..2 * MIB + 10], Advice::WillNeed).expect("ours");
    // The kernel reads beside us.
    let granule = |i: usize| cached_pages(&block.bytes()[i * GRANULE..(i + 1) * GRANULE]);
    let begin = std::time::Instant::now();
    while granule(1) < GRANULE / PAGE && begin.elapsed().as_secs() < 600 {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    assert_eq!([0, 1, 2, 3].map(granule), [0, GRANULE / PAGE, 0, 0]);
    block.check(1);
    set.page_in().expect("restore");
    block.check(1);
}

#[test]
fn memory_of_others_is_refused() {
    let (_set, arena) = arena((TrackerKind::Hash, StoreKind::Auto, HugePolicy::Never));
    let mut foreign = vec![1u8; 3 * MIB];
    let expected = NotOurs { address: foreign.as_ptr() as usize, len: foreign.len() };
    assert_eq!(discard(&mut foreign), Err(expected));
    assert_eq!(advise(&foreign, Advice::WillNeed), Err(expected));
    assert!(foreign.iter().all(|&b| b == 1));
    assert!(expected.to_string().contains("3145728 bytes at 0x"), "{expected}");
    assert_eq!(discard::<u64>(&mut []), Ok(()));
    // From inside an arena to beyond what was ever handed out of it.
    let block = Block::new(&arena, MIB);
    // SAFETY: reserved address space, readable, and read by nobody.
    let beyond = unsafe { std::slice::from_raw_parts(block.at.as_ptr(), 100 * MIB) };
    assert!(advise(beyond, Advice::DontNeed).is_err());
    // One that has gone is not found any more. Another test's arena may come to lie there at any moment, so
    // only an address that we could take for ourselves is asked for.
    let told_of_gone = |_| {
        let (_set, arena) = crate::common::arena((TrackerKind::Hash, StoreKind::Auto, HugePolicy::Never));
        let block = Block::new(&arena, MIB);
        let (at, len) = (block.at.as_ptr(), block.len);
        drop((block, arena));
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
        // SAFETY: a new mapping where nothing is mapped, or an error.
        let ours = unsafe { libc::mmap(at.cast(), len, libc::PROT_NONE, flags, -1, 0) };
        // SAFETY: never read; the address is all that is looked at.
        let told = advise(unsafe { std::slice::from_raw_parts(at, len) }, Advice::DontNeed);
        let is_ours = ours == at.cast();
        if ours != libc::MAP_FAILED {
            // SAFETY: the mapping just made, which nobody else knows of.
            unsafe { libc::munmap(ours, len) };
        }
        is_ours.then_some(told)
    };
    assert!((0..100).find_map(told_of_gone).expect("an address that nobody else takes").is_err());
}

#[test]
fn statistics_tell_what_happened() {
    for parts in combinations() {
        let (set, arena) = arena(parts);
        let fresh = arena.stats();
        assert_eq!((fresh.held, fresh.out, fresh.on_scratch, fresh.evictions), (0, 0, 0, 0));
        assert_eq!(fresh.reserved, arena.reserved_bytes());
        let mut block = Block::new(&arena, 32 * MIB);
        let len = block.len as u64;
        assert_eq!(arena.stats().in_ram.unwrap_or(0), 0, "nothing touched yet");
        block.fill(1);
        let full = arena.stats();
        assert_eq!((full.held, full.out, full.stored_blocks), (32 * MIB, 0, 0));
        assert_eq!(full.in_ram.unwrap_or(32 * MIB), 32 * MIB);
        if parts.2 == HugePolicy::Never {
            assert_eq!(full.huge.unwrap_or(0), 0);
        }
        set.page_out().expect("evict");
        let out = arena.stats();
        assert_eq!(
            (out.held, out.out, out.stored_blocks),
            (32 * MIB, 32 * MIB, 32 * MIB / CHUNK),
            "{parts:?}"
        );
        assert_eq!((out.evictions, out.restores, out.written, out.evicted), (1, 0, len, len), "{parts:?}");
        assert_eq!((out.in_ram.unwrap_or(0), out.huge.unwrap_or(0)), (0, 0), "{parts:?}");
        set.page_in().expect("restore");
        let back = arena.stats();
        assert_eq!((back.out, back.restores, back.read, back.restored), (0, 1, len, len), "{parts:?}");
        assert_eq!(back.in_ram.unwrap_or(32 * MIB), 32 * MIB, "{parts:?}");
        set.page_out().expect("evict");
        assert_eq!((arena.stats().evictions, arena.stats().written), (2, len), "{parts:?}: nothing to write");
        assert_eq!(set.stats().collect::<Vec<_>>(), [arena.stats()]);
    }
}

#[test]
fn huge_pages_are_seen() {
    let (_set, arena) = arena((TrackerKind::Hash, StoreKind::Auto, HugePolicy::Always));
    let mut block = Block::new(&arena, 64 * MIB);
    block.fill(1);
    let smaps = std::fs::read_to_string("/proc/self/smaps").expect("smaps");
    let from = block.at.as_ptr() as usize;
    // The mappings that lie in the block.
    let (mut inside, mut kib) = (false, 0);
    for line in smaps.lines() {
        let start = line.split_once('-').and_then(|(a, _)| usize::from_str_radix(a, 16).ok());
        if let Some(start) = start {
            inside = (from..from + block.len).contains(&start);
        } else if let Some(n) = line.strip_prefix("AnonHugePages:").filter(|_| inside) {
            kib += n.trim().trim_end_matches(" kB").parse::<usize>().expect("number");
        }
    }
    match arena.stats().huge {
        Some(huge) => assert_eq!(huge, kib << 10),
        None => bdrun_skipped::skipped("kernel", "this kernel does not tell which pages are huge"),
    }
}

#[test]
fn boxes_and_other_collections_live_on_storage() {
    for parts in combinations() {
        let (set, arena) = arena(parts);
        let mut word = SbBox::new_in(7u64, &arena);
        let mut zeros = SbBox::<[u32]>::zeroed_in(MIB, &arena).expect("memory");
        zeros[5] = 5;
        let mut vector = SbVec::new_in(&arena);
        vector.extend(0..100_000u64);
        let slice: SbBox<[u64]> = vector.into();
        let mut map = hashbrown::HashMap::with_hasher_in(
            std::collections::hash_map::RandomState::new(),
            SbAlloc::in_arena(&arena),
        );
        map.extend((0..50_000u32).map(|i| (i, i * 2)));
        let mut list = allocator_api2::vec::Vec::new_in(SbAlloc::in_arena(&arena));
        list.extend(0..60_000u16);
        let object: SbBox<dyn Fn(u64) -> u64 + Send> = {
            let boxed = allocator_api2::boxed::Box::new_in(|x| x * 3, SbAlloc::in_arena(&arena));
            let boxed: allocator_api2::boxed::Box<dyn Fn(u64) -> u64 + Send, SbAlloc> =
                allocator_api2::unsize_box!(boxed);
            boxed.into()
        };
        set.page_out().expect("evict");
        for round in 0..2u64 {
            assert_eq!((*word, object(*word)), (7 + round, 3 * (7 + round)));
            *word += 1;
            map.insert(round as u32, 99);
            assert_eq!((map[&(round as u32)], map[&777], map.len()), (99, 1554, 50_000), "{parts:?}");
            assert!(list.iter().copied().eq(0..60_000));
            assert!(slice.iter().copied().eq(0..100_000));
            assert_eq!(zeros.iter().sum::<u32>(), 5);
            set.page_in().expect("restore");
        }
        let mut again = SbVec::from(slice.clone());
        again.push(100_000);
        assert!(again.iter().copied().eq(0..=100_000));
        assert_eq!(SbBox::into_inner(word), 9);
        drop((slice, zeros, map, list, object, again));
        assert_eq!(arena.held_bytes(), 0);
    }
    let refused = SbBox::<[u64]>::zeroed(usize::MAX / 8).map(|_| ()).unwrap_err();
    assert_eq!(refused.bytes, usize::MAX / 8 * 8);
    let tiny = Arena::new(&ArenaOptions { reserve: 64 << 20, ..ArenaOptions::default() }).expect("arena");
    assert!(SbBox::<[u8]>::zeroed_in(1 << 30, &tiny).is_err());
    assert_eq!(SbBox::<[u8]>::zeroed(0).expect("nothing").len(), 0);
}

#[test]
fn what_a_shrunk_block_no_longer_holds_leaves_ram() {
    for (tracker, store, _) in combinations() {
        let (set, arena) = arena((tracker, store, HugePolicy::Never));
        let heap = SbAlloc::in_arena(&arena);
        let layout = |pages: usize| Layout::from_size_align(pages * PAGE, PAGE).expect("a layout");
        // Within a chunk, over one, and to nothing but the first page.
        for (from, to) in [(16, 3), (40, 20), (33, 1)] {
            let at = heap.allocate(layout(from)).expect("memory").cast::<u8>();
            // SAFETY: as long as that, and given back as it came.
            unsafe {
                at.write_bytes(7, from * PAGE);
                assert_eq!(own_pages(at.as_ptr(), from * PAGE), from);
                let at = heap.shrink(at, layout(from), layout(to)).expect("it shrinks");
                assert_eq!(own_pages(at.as_ptr().cast(), from * PAGE), to, "{tracker:?} {store:?}");
                let at = at.cast::<u8>();
                set.page_out().expect("evict");
                set.page_in().expect("restore");
                assert!(std::slice::from_raw_parts(at.as_ptr(), to * PAGE).iter().all(|&byte| byte == 7));
                heap.deallocate(at, layout(to));
            }
        }
    }
}
