//! A pool of frames shared by processes: used again, given back by the dead, and done without when it is
//! empty.

#[path = "conformance/common.rs"]
#[expect(dead_code, reason = "it serves other test programs too")]
mod common;
mod moves;

use common::Block;
use moves::Moves;
use sbmalloc::{Arena, ArenaOptions, FrameKind, FramePool, GRANULE, HugePolicy, PROCESS};
use std::io::{BufRead, BufReader};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::process::{Child, Command, Stdio};

/// Bytes.
const MIB: usize = 1 << 20;
/// As which the child has frames.
const OWNER: u32 = 9;
const ROLE: &str = "SBMALLOC_TEST_ROLE";
/// The numbers of the pool's descriptors.
const POOL: &str = "SBMALLOC_TEST_POOL";

/// Starts this program again, to do what a role says, with the pool's descriptors.
fn child(role: &str, pool: &FramePool) -> Child {
    // SAFETY: makes descriptors that children inherit; they stay open for the rest of this test program.
    let fds = pool.fds().map(|fd| unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_DUPFD, 100) });
    let mut command = Command::new(std::env::current_exe().expect("a name"));
    command.args(["--exact", "what_a_child_does", "--nocapture"]);
    command.env(ROLE, role).env(POOL, format!("{},{}", fds[0], fds[1]));
    command.stdout(Stdio::piped()).spawn().expect("a child")
}

/// Reads what it prints until a line that begins with `word`.
fn wait_for(child: &mut Child, word: &str) {
    let out = BufReader::new(child.stdout.as_mut().expect("piped"));
    assert!(out.lines().any(|l| l.expect("text").contains(word)), "it never said {word}");
}

#[test]
fn what_a_child_does() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let numbers = std::env::var(POOL).expect("a pool");
    let mut fds = numbers.split(',').map(|number| {
        // SAFETY: inherited for this alone, and taken once.
        unsafe { OwnedFd::from_raw_fd(number.parse().expect("a number")) }
    });
    let (table, memory) = (fds.next().expect("a table"), fds.next().expect("frames"));
    // SAFETY: there is one child at a time, and the parent writes nothing.
    unsafe { sbmalloc::use_frames(table, memory, OWNER) }.expect("a pool of frames");
    let options = ArenaOptions { frames: FrameKind::Auto, huge: HugePolicy::Always, ..Default::default() };
    let arena = Arena::new(&options).expect("arena");
    let mut block = Block::new(&arena, 40 * MIB);
    for seed in 1..6 {
        block.fill(seed);
        block.bytes_mut()[20 * MIB..21 * MIB].fill(0);
        PROCESS.page_out().expect("evict");
        PROCESS.page_in().expect("restore");
        assert!(block.bytes()[20 * MIB..21 * MIB].iter().all(|&b| b == 0), "a used frame was not cleared");
        assert!(block.bytes()[21 * MIB..22 * MIB].iter().any(|&b| b != 0));
    }
    println!("\nrestored");
    if role == "die" {
        std::thread::sleep(std::time::Duration::from_secs(60));
    }
}

#[test]
fn frames_of_the_dead_are_used_again() {
    let pool = FramePool::create(64 * GRANULE as u64, 64 * GRANULE as u64).expect("pool");
    let mut dying = child("die", &pool);
    wait_for(&mut dying, "restored");
    if pool.used_bytes() == 0 {
        bdrun_skipped::skipped("huge-frames", "no huge frames here");
    } else {
        assert!(pool.used_bytes() >= 40 << 20, "{}", pool.used_bytes());
        // SAFETY: nobody is.
        assert_eq!(unsafe { pool.free_all_of(OWNER + 1) }, 0, "it has none");
    }
    let used = pool.used_bytes();
    dying.kill().expect("kill");
    dying.wait().expect("wait");
    // SAFETY: it is gone.
    assert_eq!(unsafe { pool.free_all_of(OWNER) } as u64 * GRANULE as u64, used);
    assert_eq!((pool.used_bytes(), pool.free_bytes() >= used), (0, true));
    let mut living = child("live", &pool);
    wait_for(&mut living, "restored");
    assert!(living.wait().expect("wait").success());
    // SAFETY: it is gone.
    unsafe { pool.free_all_of(OWNER) };
    pool.trim(0);
    assert_eq!((pool.used_bytes(), pool.free_bytes()), (0, 0));
}

#[test]
fn without_frames_memory_is_anonymous() {
    let pool = FramePool::create(5 * GRANULE as u64, 0).expect("pool");
    let mut child = child("live", &pool);
    wait_for(&mut child, "restored");
    assert!(child.wait().expect("wait").success());
}
