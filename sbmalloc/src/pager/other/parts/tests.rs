//! What needs a look inside; see `other::tests`.

use super::*;
use crate::pager::other::tests::{BEFORE_COPY, PATIENCE, Program, fill, holds, list, map, traced, wait};
use crate::pager::other::writer;
use crate::pager::other::{hold, stop};
use crate::sys::{self, Fd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;

const MIB: usize = 1 << 20;

fn start(name: &str) -> Program {
    Program::start("pager::other::parts::tests::program", name)
}

/// Not a test: where the programs begin.
#[test]
fn program() {
    match std::env::var("OTHER").as_deref() {
        Ok("lazy") => lazy(),
        Ok("vanished") => vanished(),
        Ok("forks") => forks(),
        Ok("two") => two(),
        Ok("keeper") => keeper(),
        Ok(name) => panic!("no program {name}"),
        Err(_) => return,
    }
    println!("right");
}

/// A program in parts, which stands; `None` where that may not be.
fn parts_of(pid: i32) -> Option<Parts> {
    let held = hold(pid, &mut || list(pid), PATIENCE).expect("held");
    match held.into_parts(Image::new().expect("scratch")) {
        Ok(parts) => Some(parts),
        Err(refusal @ Refusal::NotInParts { .. }) => {
            bdrun_skipped::skipped("parts", refusal);
            None
        }
        Err(refusal) => panic!("{refusal}"),
    }
}

const LAZY: usize = 4 * MIB;

/// Has memory that the kernel may take back at any moment, and some that it may not.
fn lazy() {
    let kept = map(8 * MIB);
    let at = sys::map_anon_aligned(LAZY, PAGE).expect("memory");
    // In small pages, so that one can be taken back alone.
    sys::advise(at, LAZY, libc::MADV_NOHUGEPAGE).unwrap_or_default();
    fill(at, LAZY);
    sys::advise(at, LAZY, libc::MADV_FREE).expect("advised");
    println!("ready {at}");
    wait();
    for page in 0..LAZY / PAGE {
        assert!(matches!(holds(at, page), Ok(()) | Err(true)), "page {page}");
    }
    for page in 0..8 * MIB / PAGE {
        assert_eq!(holds(kept, page), Ok(()), "page {page}");
    }
}

/// The kernel takes a page back between the moments in which it is seen and copied: whoever copies it must
/// not wait for it, as nobody could bring it.
#[test]
fn what_the_kernel_takes_back_is_not_waited_for() {
    let mut program = start("lazy");
    let at: u64 = program.hear("ready ").parse().expect("an address");
    let pid = program.pid();
    let (tell, told) = mpsc::channel();
    let tracer = std::thread::spawn(move || {
        let Some(mut parts) = parts_of(pid) else { return };
        let is_taken = Arc::new(AtomicBool::new(false));
        let taken = Arc::clone(&is_taken);
        BEFORE_COPY.set(Some(Box::new(move |space, ranges| {
            if ranges.iter().any(|range| range.contains(&at)) && take_back(pid, at) {
                taken.store(space.is_there(at) == Some(false), Ordering::Relaxed);
            }
        })));
        let shrunk = parts.shrink(0, &mut |_| {}).expect("shrunk");
        tell.send((is_taken.load(Ordering::Relaxed), shrunk)).expect("heard");
        parts.resume();
        while parts.mind(Duration::from_millis(1)).expect("minded") {}
    });
    match told.recv_timeout(PATIENCE) {
        Ok((true, shrunk)) => assert!(shrunk.out >= 8 * MIB as u64, "{shrunk:?}"),
        Ok((false, _)) => bdrun_skipped::skipped("kernel", "no page can be taken back from outside"),
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("it waits for what was taken back"),
        Err(mpsc::RecvTimeoutError::Disconnected) => return tracer.join().expect("no panic"),
    }
    program.tell();
    program.hear("right");
    tracer.join().expect("no panic");
}

/// Has the kernel take back a page of a process.
fn take_back(pid: i32, at: u64) -> bool {
    let range = libc::iovec { iov_base: at as *mut _, iov_len: PAGE };
    // SAFETY: makes a descriptor, which is closed on drop.
    let process = Fd(unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) } as i32);
    let (advice, one, flags) = (libc::MADV_PAGEOUT, 1_usize, 0_usize);
    // SAFETY: advice about another process's memory; reads one range.
    let done =
        unsafe { libc::syscall(libc::SYS_process_madvise, process.0, &raw const range, one, advice, flags) };
    done > 0
}

/// Reads memory of its own as that of another, of which a page is not there, and would be waited for.
fn vanished() {
    let (at, page) = (map(2 * PAGE), PAGE as u64);
    sys::advise(at + PAGE, PAGE, libc::MADV_DONTNEED).expect("advised");
    // SAFETY: makes a descriptor, which is closed on drop.
    let fd = unsafe { libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC | libc::O_NONBLOCK) };
    let uffd = (fd >= 0).then(|| Uffd::agree(Fd(fd as i32)).ok()).flatten();
    let Some(uffd) = uffd else { return println!("served by nobody") };
    let range = at as u64..at as u64 + 2 * page;
    uffd.register(&range).expect("registered");
    println!("served by itself");
    let space = Space::open(std::process::id() as i32, stop::own_tid()).expect("our own");
    let mut bytes = vec![1_u64; 2 * PAGE / 8];
    writer::peek(&space, &range, bytemuck::cast_slice_mut(&mut bytes)).expect("read");
    assert!(bytes[PAGE / 8..].iter().all(|&word| word == 0));
    assert_eq!(holds(bytes.as_ptr() as usize, 0), Ok(()));
}

#[test]
fn what_was_taken_back_holds_zeros() {
    let mut program = start("vanished");
    if program.hear("served by ") == "nobody" {
        return bdrun_skipped::skipped("parts", "page faults may not be served");
    }
    program.hear("right");
}

/// Children that come and go, a few at a time.
fn forks() {
    map(16 * MIB);
    println!("ready");
    wait();
    for _ in 0..300 {
        // SAFETY: the child ends at once.
        unsafe {
            let child = libc::fork();
            if child == 0 {
                libc::_exit(0);
            }
            assert_eq!(libc::waitpid(child, std::ptr::null_mut(), 0), child);
        }
    }
    println!("forked");
    wait();
}

/// Each has had a descriptor here and one in the guard, though nothing was ever served through it.
#[test]
fn of_children_that_have_ended_no_descriptor_is_kept() {
    let mut program = start("forks");
    program.hear("ready");
    let (tell, told) = mpsc::channel();
    let pid = program.pid();
    let tracer = std::thread::spawn(move || {
        let Some(mut parts) = parts_of(pid) else { return };
        // From here on its memory is served, and it may grow as it likes.
        parts.shrink(4 * MIB as u64, &mut |_| {}).expect("shrunk");
        parts.shrink(1 << 40, &mut |_| {}).expect("shrunk");
        parts.resume();
        tell.send(Arc::clone(&parts.shared)).expect("heard");
        while parts.mind(Duration::from_millis(1)).expect("minded") {}
    });
    let Ok(shared) = told.recv() else { return tracer.join().expect("no panic") };
    program.tell();
    program.hear("forked");
    let here = shared.lock().served.iter().flatten().count();
    let guard = shared.lock().guard.pid();
    let there = std::fs::read_dir(format!("/proc/{guard}/fd")).expect("the guard").count();
    drop(shared);
    program.tell();
    program.hear("right");
    tracer.join().expect("no panic");
    assert!(here < 100 && there < 100, "{here} and {there} of 300");
}

/// Has another process with the same memory, and descriptors of its own.
fn two() {
    extern "C" fn second(_: *mut libc::c_void) -> i32 {
        loop {
            // SAFETY: waits for a signal.
            unsafe { libc::pause() };
        }
    }
    let stack = Box::leak(vec![0_u128; 4096].into_boxed_slice());
    let flags = libc::CLONE_VM | libc::SIGCHLD;
    // SAFETY: the other has a stack of its own.
    let pid =
        unsafe { libc::clone(second, stack.as_mut_ptr_range().end.cast(), flags, std::ptr::null_mut()) };
    assert!(pid > 0, "{}", std::io::Error::last_os_error());
    println!("ready {pid}");
    wait();
    // SAFETY: a child of ours.
    unsafe {
        libc::kill(pid, libc::SIGKILL);
        assert_eq!(libc::waitpid(pid, std::ptr::null_mut(), 0), pid);
    }
}

#[test]
fn a_descriptor_is_had_of_whoever_made_it() {
    let mut program = start("two");
    let second: i32 = program.hear("ready ").parse().expect("a number");
    let pid = program.pid();
    let had = traced(|| {
        let mut held = hold(pid, &mut || list(pid), PATIENCE).expect("held");
        assert_eq!((held.spaces.len(), held.spaces[0].processes[0]), (1, pid));
        held.spaces[0].choose(held.threads.parked(second).expect("it stands"));
        let had = descriptor::of(&held.threads, &held.spaces[0]).map(Uffd::agree);
        held.release().expect("released");
        had
    });
    match had {
        Ok(Err(Errno(libc::EPERM))) | Err(OtherError::Rank { errno: Errno(libc::EPERM), .. }) => {
            bdrun_skipped::skipped("parts", "page faults may not be served");
        }
        had => assert!(matches!(had, Ok(Ok(_))), "{had:?}"),
    }
    program.tell();
    program.hear("right");
}

/// Keeps a program in parts of which the thread has ended through which its memory is looked at, and finds no
/// descriptor free for another; in a process by itself, as that is so of all of one.
fn keeper() {
    let mut program = start("two");
    program.hear("ready ");
    let pid = program.pid();
    traced(|| {
        let Some(mut parts) = parts_of(pid) else { return };
        parts.spaces[0].1.via = i32::MAX;
        let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: the kernel fills in two numbers.
        assert_eq!(unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) }, 0);
        let set = |rlim_cur| {
            let limit = libc::rlimit { rlim_cur, ..limit };
            // SAFETY: reads two numbers.
            assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) }, 0);
        };
        set(0);
        parts.choose_callers();
        set(limit.rlim_cur);
        assert_eq!(parts.spaces[0].1.caller, 0, "nothing is done by what is no more");
        parts.choose_callers();
        let space = &parts.spaces[0].1;
        assert!(space.caller != 0 && parts.threads.has(space.via), "{}", space.via);
    });
}

#[test]
fn without_a_descriptor_an_address_space_is_left_alone() {
    // It says itself if it may not.
    start("keeper").hear("right");
}
