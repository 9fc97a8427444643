//! Memory that programs map themselves: by the page, in RAM and out, with rights of their own, over forks.
//!
//! One process, moved by each test: they take turns.

mod moves;

use moves::Moves;
use sbmalloc::{CHUNK, PAGE, PROCESS, mapping, pager, raw};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether the memory is in RAM or out while something is done to it.
#[derive(Clone, Copy, Debug)]
enum At {
    Home,
    Out,
    Back,
}

const EVERYWHERE: [At; 3] = [At::Home, At::Out, At::Back];

impl At {
    fn go(self) {
        if !matches!(self, Self::Home) {
            PROCESS.page_out().unwrap();
        }
        if matches!(self, Self::Back) {
            PROCESS.page_in().unwrap();
        }
    }
}

fn map(len: usize) -> usize {
    mapping::map(len).expect("memory").as_ptr() as usize
}

fn fill(range: Range<usize>, with: u8) {
    // SAFETY: mapped by the test.
    unsafe { std::ptr::write_bytes(range.start as *mut u8, with, range.len()) };
}

#[track_caller]
fn assert_is(range: Range<usize>, byte: u8) {
    // SAFETY: mapped by the test, and not written meanwhile.
    let bytes = unsafe { std::slice::from_raw_parts(range.start as *const u8, range.len()) };
    let wrong = bytes.iter().position(|&b| b != byte);
    assert_eq!(wrong, None, "the first byte that is not {byte}, of {}", range.len());
}

fn unmap(range: Range<usize>) {
    let part = mapping::part(range.start, range.len()).expect("in the arena");
    assert_eq!(part, range);
    // SAFETY: the test's own, and not used again.
    unsafe { mapping::unmap(range) };
}

fn empty(range: Range<usize>) {
    assert_eq!(mapping::part_in_any_arena(range.start, range.len()), Some(range.clone()));
    // SAFETY: the test's own.
    unsafe { mapping::empty(range) };
}

#[test]
fn parts_are_unmapped_and_the_rest_stays() {
    let _turn = turn();
    for at in EVERYWHERE {
        let before = sbmalloc::held_bytes();
        let start = map(10 * CHUNK + PAGE);
        let end = start + 10 * CHUNK + PAGE;
        assert_eq!(sbmalloc::held_bytes() - before, 11 * CHUNK, "whole chunks are charged");
        assert_is(start..end, 0);
        fill(start..end, 7);
        at.go();
        unmap(start..start + PAGE);
        unmap(start + 3 * CHUNK - PAGE..start + 5 * CHUNK + PAGE);
        assert_eq!(sbmalloc::held_bytes() - before, 9 * CHUNK, "{at:?}: two chunks are gone");
        assert_is(start + PAGE..start + 3 * CHUNK - PAGE, 7);
        assert_is(start + 5 * CHUNK + PAGE..end, 7);
        assert!(!mapping::is_mapped(start..start + CHUNK) && mapping::is_mapped(end - PAGE..end));
        // What was left of chunks goes with the rest, and twice is as good as once.
        unmap(start..end);
        unmap(start..end);
        assert_eq!(sbmalloc::held_bytes(), before, "{at:?}");
        let again = map(11 * CHUNK);
        assert_is(again..again + 11 * CHUNK, 0);
        unmap(again..again + 11 * CHUNK);
        PROCESS.page_in().unwrap();
    }
}

#[test]
fn what_is_emptied_reads_as_zeros_wherever_it_is() {
    let _turn = turn();
    for at in EVERYWHERE {
        let start = map(8 * CHUNK);
        let all = start..start + 8 * CHUNK;
        let heap = raw::alloc(4 * CHUNK, CHUNK) as usize;
        fill(all.clone(), 3);
        fill(heap..heap + 4 * CHUNK, 4);
        at.go();
        let inner = start + CHUNK + PAGE..start + 6 * CHUNK - PAGE;
        empty(inner.clone());
        empty(heap + PAGE..heap + 2 * PAGE);
        let check = || {
            assert_is(start..inner.start, 3);
            assert_is(inner.clone(), 0);
            assert_is(inner.end..all.end, 3);
            assert_is(heap..heap + PAGE, 4);
            assert_is(heap + PAGE..heap + 2 * PAGE, 0);
            assert_is(heap + 2 * PAGE..heap + 4 * CHUNK, 4);
        };
        check();
        // Nothing of it comes back, neither from the file nor at the next move.
        PROCESS.page_in().unwrap();
        check();
        PROCESS.page_out().unwrap();
        check();
        fill(inner.clone(), 9);
        PROCESS.page_in().unwrap();
        assert_is(inner, 9);
        unmap(all);
        // SAFETY: allocated above.
        unsafe { raw::free(heap as *mut u8) };
    }
}

/// The rights of the mapping an address lies in, as the kernel has them.
fn rights(at: usize) -> String {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let holds = |line: &&str| {
        let (from, rest) = line.split_once('-').unwrap();
        let (to, _) = rest.split_once(' ').unwrap();
        let number = |text| usize::from_str_radix(text, 16).unwrap();
        (number(from)..number(to)).contains(&at)
    };
    maps.lines().find(holds).map(|line| line.split(' ').nth(1).unwrap()[..3].to_owned()).unwrap_or_default()
}

#[test]
fn rights_outlast_moves() {
    let _turn = turn();
    let (none, read, both) = (libc::PROT_NONE, libc::PROT_READ, libc::PROT_READ | libc::PROT_WRITE);
    // SAFETY: the test's own, opened before it is touched.
    let protect = |range: Range<usize>, to: i32| unsafe { mapping::protect(range, to) }.unwrap();
    for at in EVERYWHERE {
        let start = map(8 * CHUNK);
        let page = |n: usize| start + n * PAGE;
        fill(start..start + 8 * CHUNK, 5);
        at.go();
        protect(page(10)..page(40), none);
        protect(page(50)..page(60), read);
        // In the middle of another, over its end, and back.
        protect(page(20)..page(22), read);
        protect(page(38)..page(42), read);
        protect(page(15)..page(16), both);
        let check = |when: &str| {
            let seen: Vec<String> =
                [9, 10, 15, 16, 20, 22, 37, 38, 41, 42, 50, 59, 60].map(|n| rights(page(n))).into();
            let wanted =
                ["rw-", "---", "rw-", "---", "r--", "---", "---", "r--", "r--", "rw-", "r--", "r--", "rw-"];
            assert_eq!(seen, wanted, "{at:?}, {when}");
        };
        check("at once");
        PROCESS.page_out().unwrap();
        check("out");
        PROCESS.page_in().unwrap();
        check("back");
        // Emptied all the same.
        empty(page(20)..page(22));
        check("emptied");
        protect(start..start + 8 * CHUNK, both);
        assert_eq!(rights(page(30)), "rw-");
        assert_is(page(0)..page(20), 5);
        assert_is(page(20)..page(22), 0);
        assert_is(page(22)..start + 8 * CHUNK, 5);
        protect(page(0)..page(16), none);
        unmap(start..start + 8 * CHUNK);
        let again = map(8 * CHUNK);
        fill(again..again + 8 * CHUNK, 1);
        unmap(again..again + 8 * CHUNK);
    }
}

#[test]
fn too_many_rights_are_refused() {
    let _turn = turn();
    let len = 10_000 * PAGE;
    let start = map(len.next_multiple_of(CHUNK));
    // SAFETY: the test's own; opened below.
    let each =
        |n: usize| unsafe { mapping::protect(start + n * PAGE..start + (n + 1) * PAGE, libc::PROT_READ) };
    let refused = (0..10_000).step_by(2).find_map(|n| each(n).err().map(|errno| (n, errno.0)));
    assert!(matches!(refused, Some((8000.., libc::ENOMEM))), "{refused:?}");
    PROCESS.page_out().unwrap();
    assert_eq!((rights(start), rights(start + PAGE)), ("r--".into(), "rw-".into()));
    PROCESS.page_in().unwrap();
    unmap(start..start + len.next_multiple_of(CHUNK));
    assert_eq!(rights(start), "rw-");
}

/// Waits for a child; its exit code.
fn wait(child: i32) -> i32 {
    let mut status = 0;
    // SAFETY: our own child.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    if libc::WIFEXITED(status) { libc::WEXITSTATUS(status) } else { 128 + libc::WTERMSIG(status) }
}

/// Children of a process whose threads allocate, map and are moved all the time find a heap to use.
#[test]
fn children_go_on_whatever_the_threads_were_doing() {
    let _turn = turn();
    static STOP: AtomicBool = AtomicBool::new(false);
    static DONE: AtomicU64 = AtomicU64::new(0);
    let kept = raw::alloc(1 << 20, 16) as usize;
    fill(kept..kept + (1 << 20), 6);
    let threads: Vec<_> = (0..3)
        .map(|t| {
            std::thread::spawn(move || {
                let mut n = t;
                while !STOP.load(Ordering::Relaxed) {
                    n = (n * 5 + 1) % 1000;
                    let small = raw::alloc(n + 1, 8);
                    let large = raw::alloc(300_000 + n * 4096, 16);
                    let mapped = map(CHUNK * (1 + n % 5));
                    fill(mapped..mapped + CHUNK, 2);
                    // SAFETY: just allocated.
                    unsafe {
                        small.write(1);
                        raw::free(small);
                        raw::free(large);
                    }
                    unmap(mapped..mapped + CHUNK * (1 + n % 5));
                    DONE.fetch_add(1, Ordering::Relaxed);
                }
            })
        })
        .collect();
    let mut restored = 0;
    for round in 0..60 {
        if round % 3 == 0 {
            PROCESS.page_out().unwrap();
        }
        // SAFETY: the child uses the heap, which is in order, and ends by `_exit`.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: as above; what is checked is the child's copy of the parent's memory.
            unsafe {
                libc::alarm(600);
                let intact = (0..1 << 20).step_by(511).all(|i| *((kept + i) as *const u8) == 6);
                for n in 1..200 {
                    let at = raw::alloc(n * 1000, 16);
                    at.write_bytes(1, n * 1000);
                    raw::free(at);
                }
                let mapped = map(3 * CHUNK);
                fill(mapped..mapped + 3 * CHUNK, 1);
                // A file of its own.
                let moved = round % 10 != 0 || (PROCESS.page_out().is_ok() && PROCESS.page_in().is_ok());
                libc::_exit(if intact && moved { 0 } else { 1 });
            }
        }
        assert_eq!(wait(child), 0, "round {round}");
        // Unless a thread got no processor: then the child has brought it in by itself.
        restored += usize::from(round % 3 == 0 && !pager::is_evicted());
    }
    assert!(restored > 0, "restored before the fork");
    PROCESS.page_in().unwrap();
    STOP.store(true, Ordering::Relaxed);
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    assert!(DONE.load(Ordering::Relaxed) > 100);
    assert_is(kept..kept + (1 << 20), 6);
    // SAFETY: allocated above.
    unsafe { raw::free(kept as *mut u8) };
}

/// What came in by itself is verified before anything leaves the rank, and the program may have closed it.
#[test]
fn what_was_closed_after_it_came_in_is_verified() {
    let _turn = turn();
    let range = {
        let start = map(4 * CHUNK);
        start..start + 4 * CHUNK
    };
    fill(range.clone(), 7);
    PROCESS.page_out().unwrap();
    let page = range.start..range.start + PAGE;
    assert_is(page.clone(), 7);
    // SAFETY: the test's own, and open again before it is freed.
    let protect = |rights| unsafe { mapping::protect(page.clone(), rights) }.unwrap();
    protect(libc::PROT_NONE);
    PROCESS.verified().unwrap();
    protect(libc::PROT_READ | libc::PROT_WRITE);
    PROCESS.verified().unwrap();
    assert_is(range.clone(), 7);
    PROCESS.page_in().unwrap();
    unmap(range);
}
