//! No lock of the library is held in a child of fork, whatever other threads were doing. Each round is a
//! process of its own, since what is looked for happens once in a life: the first allocation, the first
//! arena.

mod moves;

use moves::Moves;
use sbmalloc::{Arena, ArenaOptions, Config, PROCESS, TrackerKind, mapping, pager, raw};
use std::process::Command;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};

/// Says which part a process of this program plays.
const ROLE: &str = "FORK_LOCKS_ROLE";
const MIB: usize = 1 << 20;

/// Forks; the exit code of the child, which does `work` and is ended if it hangs.
fn in_child(work: impl FnOnce() -> bool) -> i32 {
    // SAFETY: the child calls what a child of a process with threads may, and what this library promises to
    // work there.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "fork");
    if child == 0 {
        // SAFETY: ends a child that hangs.
        unsafe { libc::alarm(600) };
        let right = work();
        // SAFETY: ends the child at once.
        unsafe { libc::_exit(if right { 0 } else { 1 }) };
    }
    wait(child)
}

/// The exit code of a child; beyond 128 the signal that ended it.
fn wait(child: i32) -> i32 {
    let mut status = 0;
    // SAFETY: waits for our own child.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    if libc::WIFSIGNALED(status) { 128 + libc::WTERMSIG(status) } else { libc::WEXITSTATUS(status) }
}

fn allocate() -> bool {
    [24, 70_000, 9 * MIB].into_iter().all(|size| {
        let at = raw::alloc(size, 16);
        // SAFETY: as long as asked for, and freed once.
        !at.is_null()
            && unsafe {
                at.write_bytes(1, size);
                raw::free(at);
                true
            }
    })
}

/// Something of everything that takes a lock.
fn use_all() -> bool {
    let options =
        |tracker| ArenaOptions { tracker: Some(tracker), reserve: 64 * MIB, ..ArenaOptions::default() };
    let arenas = [TrackerKind::Hash, TrackerKind::Uffd].map(|t| Arena::new(&options(t)));
    let _ = sbmalloc::configure(Config::default());
    let Some(at) = mapping::map(4 << 16) else { return false };
    let range = at.as_ptr() as usize..at.as_ptr() as usize + (4 << 16);
    // SAFETY: just mapped, and of nobody else's.
    let protected = unsafe {
        let rights = mapping::protect(range.clone(), libc::PROT_READ).is_ok();
        rights && mapping::protect(range.clone(), libc::PROT_READ | libc::PROT_WRITE).is_ok()
    };
    // SAFETY: as above.
    unsafe { mapping::unmap(range) };
    protected && allocate() && arenas.into_iter().all(|arena| arena.is_ok_and(|a| a.alloc(MIB, 64).is_some()))
}

/// A process in which `work` is done for the first time by two threads while a third forks.
fn race(work: fn() -> bool, forks: usize) {
    let (start, stop) = (Barrier::new(3), AtomicBool::new(false));
    std::thread::scope(|s| {
        for _ in 0..2 {
            s.spawn(|| {
                start.wait();
                while !stop.load(Ordering::Relaxed) {
                    assert!(work());
                }
            });
        }
        start.wait();
        let codes: Vec<i32> = (0..forks).map(|_| in_child(work)).collect();
        stop.store(true, Ordering::Relaxed);
        assert!(codes.iter().all(|&code| code == 0), "142: a child hung; {codes:?}");
    });
}

/// Runs this program again in a role, some times.
fn play(role: &str, times: usize) {
    for round in 0..times {
        let me = std::env::current_exe().expect("this program");
        let out =
            Command::new(me).args(["--exact", "roles", "--nocapture"]).env(ROLE, role).output().expect("run");
        let text = String::from_utf8_lossy(&out.stdout).into_owned() + &String::from_utf8_lossy(&out.stderr);
        assert!(out.status.success(), "{role}, round {round}: {text}");
    }
}

/// What the processes do that the other tests start.
#[test]
fn roles() {
    match std::env::var(ROLE).as_deref() {
        Ok("first") => race(allocate, 3),
        Ok("all") => race(use_all, 20),
        Ok("left") => left_out(),
        _ => {}
    }
}

#[test]
fn a_fork_during_the_first_allocation_of_another_thread() {
    play("first", 150);
}

#[test]
fn a_fork_while_other_threads_take_every_lock() {
    play("all", 5);
}

#[test]
fn what_could_not_be_brought_in_before_a_fork_the_child_brings_in() {
    play("left", 1);
}

/// A thread that cannot be stopped keeps the parent from bringing its memory in.
fn left_out() {
    const WORDS: usize = MIB;
    let options = ArenaOptions { tracker: Some(TrackerKind::Hash), ..ArenaOptions::default() };
    let arena = Arena::new(&options).expect("arena");
    let at = arena.alloc(WORDS * 8, 8).expect("memory").as_ptr().cast::<u64>();
    // SAFETY: as many words as allocated, of this function alone.
    let fill = |mark: u64| (0..WORDS).for_each(|i| unsafe { at.add(i).write(i as u64 ^ mark) });
    // SAFETY: as above.
    let is = |mark: u64| (0..WORDS).all(|i| unsafe { at.add(i).read() } == i as u64 ^ mark);
    fill(7 << 32);
    PROCESS.page_out().expect("evict");
    let (deaf, stop) = (Barrier::new(2), AtomicBool::new(false));
    std::thread::scope(|s| {
        s.spawn(|| {
            // SAFETY: valid masks of this thread.
            unsafe {
                let mut all = std::mem::zeroed();
                libc::sigfillset(&mut all);
                libc::pthread_sigmask(libc::SIG_SETMASK, &all, std::ptr::null_mut());
            }
            deaf.wait();
            while !stop.load(Ordering::Relaxed) {
                std::thread::sleep(std::time::Duration::from_millis(5));
            }
        });
        deaf.wait();
        assert!(PROCESS.page_in_at_once().is_err(), "a thread is deaf");
        let mut go = [0; 2];
        // SAFETY: the kernel writes two numbers.
        assert_eq!(unsafe { libc::pipe(go.as_mut_ptr()) }, 0);
        // SAFETY: see `in_child`.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let mut byte = 0u8;
            // SAFETY: reads a byte; ends the child.
            unsafe {
                libc::alarm(600);
                // After the parent has written something else to its scratch file.
                libc::read(go[0], (&raw mut byte).cast(), 1);
                libc::_exit(if is(7 << 32) && !pager::is_evicted() { 0 } else { 1 });
            }
        }
        stop.store(true, Ordering::Relaxed);
        std::thread::sleep(std::time::Duration::from_millis(50));
        fill(9 << 32);
        while PROCESS.page_out().is_err() {}
        // SAFETY: writes a byte.
        assert_eq!(unsafe { libc::write(go[1], (&raw const go).cast(), 1) }, 1);
        assert_eq!(wait(child), 0, "the child has what was there when it was made");
        PROCESS.page_in().expect("restore");
        assert!(is(9 << 32));
    });
}
