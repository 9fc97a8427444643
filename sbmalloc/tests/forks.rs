//! What a child of fork must find. One test after the other, in a program of their own: a child inherits the
//! locks that other threads hold, the pager's among them.

#[path = "conformance/common.rs"]
#[expect(dead_code, reason = "it serves other test programs too")]
mod common;
mod moves;

use common::{Block, Random};
use moves::Moves;
use sbmalloc::{Arena, ArenaOptions, HugePolicy, PROCESS, TrackerKind};
use std::io::Write;

/// Bytes.
const MIB: usize = 1 << 20;
const HUGE: [HugePolicy; 2] = [HugePolicy::Never, HugePolicy::Always];

/// Ends the calling process at once: a child of a threaded process may not do more.
fn end(code: i32) -> ! {
    // SAFETY: ends the process.
    unsafe { libc::_exit(code) }
}

/// Closes every descriptor that is a userfaultfd; without a heap. How many there were.
fn close_userfaultfds() -> usize {
    let mut closed = 0;
    for fd in 3..1024 {
        let (mut path, mut name) = ([0u8; 32], [0u8; 64]);
        let mut at = &mut path[..];
        let _ = write!(at, "/proc/self/fd/{fd}");
        // SAFETY: the path is terminated by the zeros behind it, the buffer as long as said.
        let n = unsafe { libc::readlink(path.as_ptr().cast(), name.as_mut_ptr().cast(), name.len()) };
        if n > 0 && name[..n as usize].ends_with(b"[userfaultfd]") {
            // SAFETY: it belongs to the tracker, which is to bear it.
            unsafe { libc::close(fd) };
            closed += 1;
        }
    }
    closed
}

/// Both in one, so that no fork of the other finds this thread at work.
#[test]
fn a_forked_child_has_a_tracker_and_memory_of_its_own() {
    a_forked_child_has_memory_of_its_own();
    a_forked_child_has_a_tracker_of_its_own();
}

fn a_forked_child_has_memory_of_its_own() {
    let options = ArenaOptions { huge: HugePolicy::Always, ..Default::default() };
    let arena = Arena::new(&options).expect("arena");
    let mut block = Block::new(&arena, 9 * MIB);
    block.fill(1);
    PROCESS.page_out().expect("evict");
    PROCESS.page_in().expect("restore");
    block.check(1);
    // SAFETY: the child calls nothing that takes a lock another thread may have held.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let mut random = Random(1);
        if !block.words_mut().iter().all(|&w| w == random.next()) {
            end(2);
        }
        block.bytes_mut().fill(7);
        PROCESS.page_out().unwrap_or_else(|_| end(3));
        PROCESS.page_in().unwrap_or_else(|_| end(4));
        end(if block.bytes().iter().all(|&b| b == 7) { 0 } else { 5 });
    }
    assert!(child > 0);
    block.bytes_mut()[MIB] ^= 1;
    let mut status = 0;
    // SAFETY: waits for our own child.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert_eq!(status, 0, "exit code {}", status >> 8);
    block.bytes_mut()[MIB] ^= 1;
    block.check(1);
    PROCESS.page_out().expect("evict");
    PROCESS.page_in().expect("restore");
    block.check(1);
}

fn a_forked_child_has_a_tracker_of_its_own() {
    for (tracker, huge) in [TrackerKind::Auto, TrackerKind::Hash, TrackerKind::Uffd]
        .into_iter()
        .flat_map(|t| HUGE.map(|h| (t, h)))
    {
        // Only what belongs to the process is brought in before a fork.
        let set = &PROCESS;
        let options = ArenaOptions { tracker: Some(tracker), huge, ..Default::default() };
        let arena = Arena::new(&options).expect("arena");
        let mut block = Block::new(&arena, 8 * MIB);
        block.fill(1);
        set.page_out().expect("evict");
        set.page_in().expect("restore");
        block.bytes_mut()[3 * MIB] ^= 1;
        // SAFETY: the child calls nothing that takes a lock another thread may have held.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let same = |block: &Block, marks: &[usize]| {
                let mut random = Random(1);
                block.bytes().chunks_exact(8).enumerate().all(|(i, word)| {
                    let mut want = random.next().to_ne_bytes();
                    marks.iter().filter(|&&m| m / 8 == i).for_each(|m| want[m % 8] ^= 1);
                    word == want
                })
            };
            // The file was the parent's: all of it goes to one of the child's own.
            let moved = set.page_out().unwrap_or_else(|_| end(2));
            if moved.bytes < block.len as u64 {
                end(3);
            }
            set.page_in().unwrap_or_else(|_| end(4));
            if !same(&block, &[3 * MIB]) {
                end(5);
            }
            block.bytes_mut()[5 * MIB] ^= 1;
            let closed = close_userfaultfds();
            if tracker == TrackerKind::Uffd && closed == 0 {
                end(6);
            }
            block.bytes_mut()[6 * MIB] ^= 1;
            for _ in 0..2 {
                set.page_out().unwrap_or_else(|_| end(7));
                set.page_in().unwrap_or_else(|_| end(8));
                if !same(&block, &[3 * MIB, 5 * MIB, 6 * MIB]) {
                    end(9);
                }
            }
            end(0);
        }
        assert!(child > 0);
        let mut status = 0;
        // SAFETY: waits for our own child.
        assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
        assert_eq!(status, 0, "{tracker:?} {huge:?}: exit code {}", status >> 8);
        // The parent's tracking did not suffer.
        block.bytes_mut()[3 * MIB] ^= 1;
        block.bytes_mut()[7 * MIB] ^= 1;
        set.page_out().expect("evict");
        set.page_in().expect("restore");
        block.bytes_mut()[7 * MIB] ^= 1;
        block.check(1);
    }
}
