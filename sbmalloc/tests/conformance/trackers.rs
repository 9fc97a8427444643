//! What trackers must see, and what they may not: writes by system calls, by children, after descriptors are
//! gone.

use crate::MIB;
use crate::common::{Block, Random, TRACKERS, arena};
use crate::moves::Moves;
use sbmalloc::{CHUNK, HugePolicy, StoreKind, TrackerKind, measure_trackers};
use std::io::{Read, Write};

const HUGE: [HugePolicy; 2] = [HugePolicy::Never, HugePolicy::Always];

/// Whether the kernel can track by itself; says so if not.
fn kernel_tracks() -> bool {
    let measured = measure_trackers();
    let measured = measured
        .inspect_err(|e| bdrun_skipped::skipped("kernel", format!("no asynchronous write protection: {e}")));
    measured.is_ok()
}

#[test]
fn only_blocks_written_to_are_looked_at() {
    if !kernel_tracks() {
        return;
    }
    for huge in HUGE {
        let (set, arena) = arena((TrackerKind::Uffd, StoreKind::Auto, huge));
        let mut block = Block::new(&arena, 40 * MIB);
        block.fill(1);
        set.page_out().expect("evict");
        set.page_in().expect("restore");
        let moved = set.page_out().expect("evict");
        assert_eq!((moved.scanned, moved.bytes), (0, 0), "nothing was written");
        for _ in 0..3 {
            set.page_in().expect("restore");
            let blocks = [0, 77, 78, 639];
            blocks.iter().for_each(|i| block.bytes_mut()[i * CHUNK + 5000] ^= 1);
            let moved = set.page_out().expect("evict");
            assert_eq!((moved.scanned, moved.bytes), (4 * CHUNK as u64, 4 * CHUNK as u64), "{huge:?}");
            set.page_in().expect("restore");
            blocks.iter().for_each(|i| block.bytes_mut()[i * CHUNK + 5000] ^= 1);
            set.page_out().expect("evict");
        }
        set.page_in().expect("restore");
        block.check(1);
    }
}

#[test]
fn what_is_written_again_and_again_is_soon_left_alone() {
    if !kernel_tracks() {
        return;
    }
    let (set, arena) = arena((TrackerKind::Auto, StoreKind::Auto, HugePolicy::Always));
    let mut block = Block::new(&arena, 40 * MIB);
    let mut random = Random(7);
    for round in 0..20 {
        let seed = random.next();
        block.fill(seed);
        let moved = set.page_out().expect("evict");
        assert!(moved.bytes >= block.len as u64, "{round}");
        set.page_in().expect("restore");
        block.check(seed);
    }
    // And found again when it has become calm.
    for _ in 0..70 {
        set.page_out().expect("evict");
        set.page_in().expect("restore");
    }
    block.bytes_mut()[0] ^= 1;
    let moved = set.page_out().expect("evict");
    assert_eq!(moved.bytes, CHUNK as u64);
}

#[test]
fn system_calls_may_write_to_tracked_memory() {
    let source = vec![0xabu8; 3 * MIB];
    for (tracker, huge) in TRACKERS.iter().flat_map(|&t| HUGE.map(|h| (t, h))) {
        let (set, arena) = arena((tracker, StoreKind::Auto, huge));
        let mut block = Block::new(&arena, 16 * MIB);
        block.fill(3);
        let mut model = block.bytes().to_vec();
        for round in 0..3usize {
            set.page_out().expect("evict");
            set.page_in().expect("restore");
            let mut zeros = std::fs::File::open("/dev/zero").expect("/dev/zero");
            let at = round * 4096 + 100;
            zeros.read_exact(&mut block.bytes_mut()[at..at + 70_000]).expect("read(2)");
            model[at..at + 70_000].fill(0);
            let (mut from, mut to) = std::io::pipe().expect("pipe");
            to.write_all(&source[..5000]).expect("pipe");
            let at = 5 * MIB + round;
            from.read_exact(&mut block.bytes_mut()[at..at + 5000]).expect("read from a pipe");
            model[at..at + 5000].fill(0xab);
            let at = 9 * MIB + 77 * round;
            let local = libc::iovec { iov_base: source.as_ptr().cast_mut().cast(), iov_len: source.len() };
            let remote = libc::iovec { iov_base: block.bytes_mut()[at..].as_mut_ptr().cast(), ..local };
            // SAFETY: both ranges are ours, the target inside the block.
            let n = unsafe { libc::process_vm_writev(libc::getpid(), &local, 1, &remote, 1, 0) };
            assert_eq!(n, source.len() as isize, "{}", std::io::Error::last_os_error());
            model[at..at + source.len()].fill(0xab);
        }
        set.page_out().expect("evict");
        set.page_in().expect("restore");
        assert!(block.bytes() == model, "{tracker:?} {huge:?}");
    }
}
