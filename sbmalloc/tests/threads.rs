//! Threads that write, and system calls under way, while the memory is moved: no write is ever lost.
//!
//! `SBMALLOC_STRESS_CYCLES` evicts and restores over all (300 unless told).

#[path = "conformance/common.rs"]
#[expect(dead_code, reason = "shared with the conformance suite")]
mod common;
mod moves;

use common::{Block, Combination, Faulty, Random, STORES, arena, with_stores};
use moves::Moves;
use sbmalloc::{PAGE, StoreKind};
use std::fs::File;
use std::io::Write;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use twox_hash::XxHash3_64;

fn cycles() -> u64 {
    std::env::var("SBMALLOC_STRESS_CYCLES").ok().and_then(|n| n.parse().ok()).unwrap_or(300)
}

/// Ends the threads of a scope also when the test fails, or it would wait for them for ever.
struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Evicts and restores, with pauses in and out, until each thread has done some work and `cycles` are over.
fn move_about(set: &'static sbmalloc::ArenaSet, cycles: u64, work: &[AtomicU64]) {
    let mut random = Random(cycles);
    let mut pause = || std::thread::sleep(Duration::from_micros(random.below(600) as u64));
    let mut done = 0;
    while done < cycles || work.iter().any(|w| w.load(Ordering::Relaxed) < 3) {
        let (site, held) = (done % 3, set.in_ram());
        // All of it, or a part.
        set.page_out_to(held * [0, 0, 30, 80][done as usize % 4] / 100, site, &mut |_| {}).expect("evict");
        pause();
        if done % 3 == 0 {
            set.page_in_for(site, &mut |_| held / 2).expect("restore");
            set.begin_phase(site);
            pause();
            set.verified().expect("sound");
        }
        set.page_in().expect("restore");
        pause();
        done += 1;
    }
}

/// The bytes of a stream from `from` on.
fn stream(from: u64, to: &mut [u8]) {
    for (i, b) in to.iter_mut().enumerate() {
        let at = from + i as u64;
        *b = ((at >> 3).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (8 * (at & 7)) >> 1) as u8;
    }
}

fn pipe() -> (OwnedFd, OwnedFd) {
    let mut ends = [0; 2];
    // SAFETY: makes two new descriptors.
    unsafe {
        assert_eq!(libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC), 0);
        (OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1]))
    }
}

/// Allocates, fills, checks and frees; and counts in words that lie apart, so that a page lost is a count
/// lost.
fn allocate(arena: &sbmalloc::Arena, seed: u64, stop: &AtomicBool, work: &AtomicU64) {
    let mut random = Random(seed);
    let mut live: Vec<(Block, u64)> = vec![];
    let mut counters = Block::new(arena, 1 << 20);
    let mut turns = 0u64;
    while !stop.load(Ordering::Relaxed) {
        turns += 1;
        counters.words_mut().iter_mut().step_by(509).for_each(|w| *w += 1);
        let mut block = Block::new(arena, 1000 + random.below(600_000));
        assert!(block.bytes().iter().all(|&b| b == 0), "a fresh run is zero");
        let seed = random.next();
        block.fill(seed);
        live.push((block, seed));
        if live.len() > 12 {
            let (mut old, seed) = live.swap_remove(random.below(12));
            old.check(seed);
        }
        if turns.is_multiple_of(5)
            && let Some((block, seed)) = live.last_mut()
        {
            sbmalloc::discard(block.bytes_mut()).expect("ours");
            assert!(block.bytes().iter().all(|&b| b == 0), "discarded memory is zero");
            block.fill(*seed);
        }
        work.fetch_add(1, Ordering::Relaxed);
    }
    live.iter_mut().for_each(|(b, seed)| b.check(*seed));
    assert!(counters.words_mut().iter().step_by(509).all(|&w| w == turns), "a write was lost");
}

/// Fills a block from a pipe again and again: a `read(2)` sleeps in it most of the time.
fn read_pipe(arena: &sbmalloc::Arena, end: &OwnedFd, work: &AtomicU64) {
    let mut block = Block::new(arena, 3 << 20 | 777);
    let mut expected = vec![0; block.len];
    let (mut at, mut filled) = (0, 0);
    loop {
        let room = &mut block.bytes_mut()[filled..];
        // SAFETY: reads into the rest of the block.
        let n = unsafe { libc::read(end.as_raw_fd(), room.as_mut_ptr().cast(), room.len()) };
        assert!(n >= 0, "read(2): {}", std::io::Error::last_os_error());
        filled += n as usize;
        if filled == block.len || n == 0 {
            stream(at, &mut expected[..filled]);
            assert!(block.bytes()[..filled] == expected[..filled], "a read(2) from a pipe was lost");
            (at, filled) = (at + filled as u64, 0);
            work.fetch_add(1, Ordering::Relaxed);
        }
        if n == 0 {
            return;
        }
    }
}

fn write_pipe(mut end: File, stop: &AtomicBool) {
    let mut random = Random(5);
    let (mut at, mut piece) = (0, vec![0; 150_000]);
    while !stop.load(Ordering::Relaxed) {
        let piece = &mut piece[..1 + random.below(150_000)];
        stream(at, piece);
        end.write_all(piece).expect("write");
        at += piece.len() as u64;
    }
}

/// Reads pieces of a file to random places, through the page cache or past it, and looks at all of it after a
/// while.
fn read_file(arena: &sbmalloc::Arena, file: &File, seed: u64, stop: &AtomicBool, work: &AtomicU64) {
    let len = file.metadata().expect("metadata").len() as usize;
    let mut random = Random(seed);
    let mut block = Block::aligned(arena, 4 << 20, PAGE);
    let mut sums = vec![None; block.len / UNIT];
    const UNIT: usize = 64 << 10;
    while !stop.load(Ordering::Relaxed) {
        for _ in 0..8 {
            let units = 1 + random.below(16);
            let to = random.below(sums.len() - units);
            let from = random.below(len / UNIT - units);
            let target = &mut block.bytes_mut()[to * UNIT..(to + units) * UNIT];
            file.read_exact_at(target, (from * UNIT) as u64).expect("read(2)");
            for i in 0..units {
                let mut expected = vec![0; UNIT];
                stream(((from + i) * UNIT) as u64, &mut expected);
                sums[to + i] = Some(XxHash3_64::oneshot(&expected));
            }
        }
        for (i, sum) in sums.iter().enumerate() {
            let is = XxHash3_64::oneshot(&block.bytes()[i * UNIT..(i + 1) * UNIT]);
            assert!(sum.is_none_or(|sum| sum == is), "a read(2) from a file was lost");
        }
        work.fetch_add(1, Ordering::Relaxed);
    }
}

fn stress(parts: Combination, cycles: u64) {
    let dir = std::env::var("TMPDIR").unwrap_or("/var/tmp".into());
    let mut options = File::options();
    let mut cached = options.read(true).write(true).custom_flags(libc::O_TMPFILE).open(dir).expect("a file");
    let mut content = vec![0; 4 << 20];
    stream(0, &mut content);
    cached.write_all(&content).expect("write");
    cached.sync_all().expect("sync");
    let direct = File::options()
        .read(true)
        .custom_flags(libc::O_DIRECT)
        .open(format!("/proc/self/fd/{}", cached.as_raw_fd()))
        .expect("the same file, past the page cache");
    let (set, arena) = arena(parts);
    let (stop, work) = (AtomicBool::new(false), [const { AtomicU64::new(0) }; 5]);
    std::thread::scope(|s| {
        let (arena, stop) = (&arena, &stop);
        let [a, b, c, d, e] = &work;
        s.spawn(move || allocate(arena, 1, stop, a));
        s.spawn(move || allocate(arena, 2, stop, b));
        let (from, to) = pipe();
        s.spawn(move || write_pipe(to.into(), stop));
        s.spawn(move || read_pipe(arena, &from, c));
        let (cached, direct) = (&cached, &direct);
        s.spawn(move || read_file(arena, cached, 3, stop, d));
        s.spawn(move || read_file(arena, direct, 4, stop, e));
        let _stop = StopOnDrop(stop);
        move_about(set, cycles, &work);
    });
    assert_eq!(arena.held_bytes(), 0, "{parts:?}");
}

#[test]
fn writers_reads_in_flight_and_the_pager_get_along() {
    let mut all: Vec<_> = with_stores(STORES).into_iter().map(|parts| (parts, None)).collect();
    for faulty in [Faulty::new(false, true), Faulty::beside(true, false)] {
        let parts = with_stores(&[StoreKind::Custom(faulty)]);
        all.extend(parts.into_iter().map(|parts| (parts, Some(faulty))));
    }
    let each = (cycles() / all.len() as u64).max(1);
    for (parts, faulty) in all {
        if let Some(faulty) = faulty {
            faulty.reset();
        }
        stress(parts, each);
    }
}

/// A thread that counts in its words, starts one to go on after it, and ends at once.
fn generation(words: &'static mut [u64], turn: u64, stop: &'static AtomicBool, ended: &'static AtomicU64) {
    for _ in 0..3 {
        words.iter_mut().for_each(|w| *w += 1);
    }
    if stop.load(Ordering::Relaxed) {
        assert!(words.iter().all(|&w| w == 3 * turn), "a write was lost");
        ended.fetch_add(1, Ordering::Relaxed);
        return;
    }
    std::thread::spawn(move || generation(words, turn + 1, stop, ended));
}

/// One that ends while the kernel lists the threads hides those behind it, some of whom have just begun.
#[test]
fn threads_that_come_and_go_lose_nothing() {
    const CHAINS: usize = 24;
    static STOP: AtomicBool = AtomicBool::new(false);
    static ENDED: AtomicU64 = AtomicU64::new(0);
    let (set, arena) = arena(with_stores(STORES)[0]);
    let mut block = Block::new(&arena, CHAINS * (16 << 10));
    // SAFETY: the block stays until all of them have ended.
    let words: &'static mut [u64] = unsafe { std::mem::transmute(block.words_mut()) };
    let each = words.len() / CHAINS;
    for part in words.chunks_exact_mut(each) {
        std::thread::spawn(move || generation(part, 1, &STOP, &ENDED));
    }
    for _ in 0..cycles() / 10 {
        set.page_out().expect("evict");
        set.page_in().expect("restore");
    }
    STOP.store(true, Ordering::Relaxed);
    let begin = std::time::Instant::now();
    while ENDED.load(Ordering::Relaxed) < CHAINS as u64 {
        assert!(begin.elapsed() < Duration::from_secs(600), "one was lost on the way");
        std::thread::sleep(Duration::from_millis(1));
    }
}
