//! What needs a look inside; see `other::tests`.

use super::evict::Found;
use super::uffd::Interference;
use super::*;
use crate::pager::other::check;
use crate::pager::other::tests::{BEFORE_COPY, PATIENCE, Program, fill, holds, list, map, traced, wait};
use crate::pager::other::writer;
use crate::pager::other::{hold, stop};
use crate::sys::{self, Fd};
use std::os::fd::{IntoRawFd, OwnedFd};
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
        Ok("family") => family(),
        Ok("scarce") => scarce(),
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

/// Does something while this process finds no descriptor free.
fn without_descriptors<T>(f: impl FnOnce() -> T) -> T {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the kernel fills in two numbers.
    assert_eq!(unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) }, 0);
    let set = |rlim_cur| {
        let limit = libc::rlimit { rlim_cur, ..limit };
        // SAFETY: reads two numbers.
        assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) }, 0);
    };
    set(0);
    let done = f();
    set(limit.rlim_cur);
    done
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
        without_descriptors(|| parts.choose_callers());
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

/// Looks at itself, for a moment without a descriptor; in a process by itself.
fn scarce() {
    let own = std::process::id() as i32;
    let mut actors = actors::Actors::new(own);
    assert_eq!(without_descriptors(|| actors.callers()), [], "nobody is seen");
    let begun = Instant::now();
    while actors.callers().is_empty() {
        assert!(begun.elapsed() < PATIENCE, "of the first thread, which waits, nothing is seen any more");
    }
    let refusal = without_descriptors(|| check::written_by_others(&[own]));
    assert!(matches!(refusal, Some(Refusal::Busy { .. })), "{refusal:?}");
    assert_eq!(check::written_by_others(&[own]), None);
}

#[test]
fn what_could_not_be_looked_at_for_a_moment_is_not_taken_for_nothing() {
    start("scarce").hear("right");
}

/// Whether a process has a descriptor of that name before long.
fn gets(pid: i32, name: &str) -> bool {
    let begun = Instant::now();
    let is_it = |entry: std::fs::DirEntry| {
        std::fs::read_link(entry.path()).is_ok_and(|target| target.as_os_str() == name)
    };
    while begun.elapsed() < PATIENCE {
        let mut all = std::fs::read_dir(format!("/proc/{pid}/fd")).expect("its descriptors").flatten();
        if all.any(is_it) {
            return true;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    false
}

/// It has less room for descriptors than there must be before it looks of its own accord which are of no use.
#[test]
fn a_guard_without_room_lets_go_of_what_is_no_more() {
    let mut program = start("forks");
    program.hear("ready");
    let pid = program.pid();
    let kept = traced(|| {
        let parts = parts_of(pid)?;
        let uffd = parts.shared.lock().served[0].as_ref().map(|served| Arc::clone(&served.uffd));
        // The program is killed when they go.
        Some((Arc::clone(&parts.shared), uffd.expect("it is served")))
    });
    let Some((shared, uffd)) = kept else { return };
    let begun = Instant::now();
    while uffd.is_alive() {
        assert!(begun.elapsed() < PATIENCE, "it lives");
    }
    let state = shared.lock();
    // It has what it keeps at first, and nothing else: before that it needs more room.
    let open = || std::fs::read_dir(format!("/proc/{}/fd", state.guard.pid())).expect("it lives").count();
    while open() > 3 {
        assert!(begun.elapsed() < PATIENCE, "it holds {} descriptors", open());
        std::thread::sleep(Duration::from_millis(1));
    }
    let limit = libc::rlimit { rlim_cur: 16, rlim_max: 16 };
    // SAFETY: reads two numbers; a child of ours.
    let set = unsafe { libc::prlimit(state.guard.pid(), libc::RLIMIT_NOFILE, &limit, std::ptr::null_mut()) };
    assert_eq!(set, 0);
    for _ in 0..20 {
        state.guard.hold(&uffd.0).expect("sent");
    }
    // What is none at all is kept.
    let (reader, _writer) = std::io::pipe().expect("a pipe");
    let reader = Fd(OwnedFd::from(reader).into_raw_fd());
    let name = std::fs::read_link(format!("/proc/self/fd/{}", reader.0)).expect("its name");
    for _ in 0..2 {
        state.guard.hold(&reader).expect("sent");
    }
    assert!(gets(state.guard.pid(), name.to_str().expect("text")), "it is not guarded");
}

/// Has a child, which stays as it is.
fn family() {
    map(16 * MIB);
    println!("ready");
    wait();
    // SAFETY: the child waits for a signal.
    unsafe {
        let child = libc::fork();
        if child == 0 {
            libc::pause();
            libc::_exit(1);
        }
        println!("made");
        wait();
        libc::kill(child, libc::SIGKILL);
        assert_eq!(libc::waitpid(child, std::ptr::null_mut(), 0), child);
    }
}

/// Only of a process that has pages wherever it can is that said.
#[test]
fn who_could_not_be_tried_for_a_moment_is_not_full() {
    let mut program = start("family");
    program.hear("ready");
    let pid = program.pid();
    let (tell, told) = mpsc::channel();
    let tracer = std::thread::spawn(move || {
        let Some(mut parts) = parts_of(pid) else { return };
        parts.shrink(4 * MIB as u64, &mut |_| {}).expect("shrunk");
        parts.resume();
        tell.send(()).expect("heard");
        let (begun, moment) = (Instant::now(), Duration::from_millis(1));
        while parts.threads.processes().len() < 2 || parts.stop().is_err() {
            assert!(parts.mind(moment).expect("minded") && begun.elapsed() < PATIENCE, "it has no child");
        }
        assert!(parts.shared.lock().settle_all());
        let child = parts.threads.processes().into_iter().find(|&other| other != pid).expect("a child");
        let space = Space::open(child, parts.threads.parked(child).expect("it stands")).expect("seen");
        // A copy of which no page can be tried.
        let (silent, _kept) = std::io::pipe().expect("a pipe");
        let mut full = Served::new(Uffd(Fd(OwnedFd::from(silent).into_raw_fd())), 0);
        full.pid = None;
        let full = parts.shared.lock().add(full);
        let (mut numbers, mut unknown) = (0, 0);
        for seed in 1..40_u64 {
            let mut state = parts.shared.lock();
            let found = state.served.iter_mut().flatten().filter(|served| served.pid == Some(child));
            found.for_each(|served| served.pid = None);
            state.interference = Interference::new(&[libc::EAGAIN], seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
            drop(state);
            match parts.number_of(child, &space) {
                Found::Number(_) => numbers += 1,
                Found::Nothing => unknown += 1,
                Found::Full => panic!("it is taken for a full one, seed {seed}"),
            }
        }
        assert!(numbers > 0 && unknown > 0, "{numbers} {unknown}");
        let set = |of: Option<i32>, to: Option<i32>| {
            let mut state = parts.shared.lock();
            let found = state.served.iter_mut().enumerate().filter(|(number, _)| *number != full);
            found.filter_map(|(_, served)| served.as_mut()).filter(|s| s.pid == of).for_each(|s| s.pid = to);
        };
        // As if its own were another's.
        parts.shared.lock().interference = Interference::default();
        set(Some(child), Some(-1));
        set(None, Some(-1));
        assert!(matches!(parts.number_of(child, &space), Found::Full));
        set(Some(-1), None);
        parts.shared.lock().served[full] = None;
        parts.resume();
        tell.send(()).expect("heard");
        while parts.mind(moment).expect("minded") {}
    });
    if told.recv().is_ok() {
        program.tell();
        program.hear("made");
        if told.recv().is_ok() {
            program.tell();
            program.hear("right");
        }
    }
    tracer.join().expect("no panic");
}
