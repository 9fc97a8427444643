//! What cannot be paged in parts, or not just now: that is said, and nobody is lost by it.

use crate::driver::{self, Subject};
use crate::{MIB, in_parts, mind};
use sbmalloc::other::{OtherError, Parts};
use std::io::Write;
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

/// What a program that makes memory anew may only read of it, and not.
pub const ONLY_READ: u64 = 32 * MIB;
pub const LIKE_ANY: u64 = 64 * MIB;
/// However busy the machine is.
const LIMIT: Duration = Duration::from_secs(600);

/// Has a program run until something is so of it; it is made smaller again and again.
fn until(parts: &mut Parts, target: u64, what: &str, is: &mut dyn FnMut(&mut Parts) -> bool) {
    let begun = Instant::now();
    while !is(parts) {
        assert!(begun.elapsed() < LIMIT, "not even now: {what}; {} bytes are out", parts.out());
        assert!(parts.mind(Duration::from_millis(1)).expect("minded"), "it has ended: {what}");
        match parts.shrink(target, &mut |_| {}) {
            Ok(_) | Err(OtherError::Busy) => parts.resume(),
            Err(e) => panic!("{e}"),
        }
    }
}

#[test]
fn the_first_threads_stack_stays_and_that_is_said() {
    let mut subject = Subject::start("stack");
    let input = subject.input();
    subject.wait_for("ready");
    let told = in_parts(&subject, |parts| {
        let shrunk = parts.shrink(16 * MIB, &mut |_| {}).expect("shrunk");
        assert!(shrunk.left >= 64 * MIB, "{shrunk:?}");
        parts.resume();
        let told = (parts.stays(), parts.unserved());
        drop(input);
        mind(parts);
        told
    });
    let Some((stays, why)) = told else { return subject.kill() };
    assert!(subject.succeed().contains("right"));
    assert!(stays >= 64 * MIB && why.is_some_and(|why| why.contains("stack")), "{stays}");
}

/// What of a child must be out at least if it leaves: its parent has less.
const OUT: u64 = 44 * MIB;
/// Its parent has less, so that nothing has left, and so made room for holes, before it is there.
const ROOM: u64 = 48 * MIB;

/// A child whose lowest mappings are full, as its parent's are, is known all the same.
#[test]
fn a_child_without_a_hole_below_its_heap_leaves_too() {
    let mut subject = Subject::start("full");
    let input = subject.input();
    subject.wait_for("ready");
    let ran = in_parts(&subject, |parts| {
        writeln!(&input).expect("told");
        until(parts, ROOM, "the child's memory leaves", &mut |parts| parts.out() >= OUT);
        drop(input);
        mind(parts);
    });
    if ran.is_none() {
        return subject.kill();
    }
    assert!(subject.succeed().contains("right"));
}

#[test]
fn a_child_without_any_hole_stays_and_that_is_said() {
    let mut subject = Subject::start("all full");
    let input = subject.input();
    subject.wait_for("ready");
    let ran = in_parts(&subject, |parts| {
        writeln!(&input).expect("told");
        until(parts, ROOM, "something is said of the child", &mut |parts| {
            let is_said = parts.unserved().is_some_and(|why| why.contains("cannot be told"));
            // What it has with its parent would not become free.
            assert!(!is_said || parts.out() < 8 * MIB, "{} bytes of its parent are out", parts.out());
            // It may have got a hole by now; then it is known.
            is_said || parts.out() >= OUT
        });
        drop(input);
        mind(parts);
    });
    if ran.is_none() {
        return subject.kill();
    }
    assert!(subject.succeed().contains("right"));
}

/// It runs on, unserved, as does the rank.
#[test]
fn a_program_of_32_bits_is_begun() {
    if cfg!(not(target_arch = "x86_64")) {
        return bdrun_skipped::skipped("kernel", "the program is one for the 386");
    }
    let mut subject = Subject::start("foreign");
    let input = subject.input();
    subject.wait_for("ready");
    let ran = in_parts(&subject, |parts| {
        writeln!(&input).expect("told");
        let _ = parts.shrink(8 * MIB, &mut |_| {}).expect("shrunk");
        parts.resume();
        let begun = Instant::now();
        while parts.mind(Duration::from_millis(1)).expect("minded") {
            if parts.shrink(8 * MIB, &mut |_| {}).is_ok() {
                parts.resume();
            }
            if parts.unserved().is_some_and(|why| why.contains("32 bits")) {
                // It stands in its call, again and again.
                for _ in 0..5 {
                    std::thread::sleep(Duration::from_millis(10));
                    parts.mind(Duration::from_millis(1)).expect("minded");
                    if parts.shrink(8 * MIB, &mut |_| {}).is_ok() {
                        parts.resume();
                    }
                }
                drop(input);
                mind(parts);
                return;
            }
            assert!(begun.elapsed() < LIMIT, "nothing was said of it");
        }
    });
    if ran.is_none() {
        return subject.kill();
    }
    let text = subject.succeed();
    if text.contains("none: ") {
        bdrun_skipped::skipped("kernel", "no program of 32 bits can be executed");
    }
    assert!(text.contains("right"), "{text}");
}

/// A rank below its target is not listed anew: what it maps meanwhile could leave all the same.
#[test]
fn what_is_new_is_not_taken_for_what_stays() {
    let mut subject = Subject::start("anew");
    let (mut input, said) = (subject.input(), subject.out().as_raw_fd());
    subject.wait_for("ready");
    let stays = in_parts(&subject, |parts| {
        writeln!(input).expect("told");
        let _ = parts.shrink(512 * MIB, &mut |_| {}).expect("nothing leaves");
        parts.resume();
        let before = parts.stays();
        let begun = Instant::now();
        for _ in 0..2 {
            writeln!(input).expect("told");
            while !has_said(said) {
                assert!(begun.elapsed() < LIMIT, "it makes no memory");
                assert!(parts.mind(Duration::from_millis(1)).expect("minded"));
            }
        }
        // What may only be read cannot be served.
        while parts.stays() < before + ONLY_READ / 2 {
            assert!(begun.elapsed() < LIMIT, "nothing stays");
            assert!(parts.mind(Duration::from_millis(1)).expect("minded"));
        }
        let stays = parts.stays() - before;
        drop(input);
        mind(parts);
        stays
    });
    let Some(stays) = stays else { return subject.kill() };
    assert!(subject.succeed().contains("right"));
    assert!(stays <= ONLY_READ + 8 * MIB, "{stays} bytes stay");
}

/// As long as this is there this process finds no descriptor free.
struct Scarce(libc::rlimit);

impl Scarce {
    fn begin() -> Self {
        let next = std::fs::File::open("/dev/null").expect("one is free").as_raw_fd() as libc::rlim_t;
        let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: the kernel fills in two numbers.
        assert_eq!(unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) }, 0);
        Self::set(libc::rlimit { rlim_cur: next, ..limit });
        Self(limit)
    }

    fn set(limit: libc::rlimit) {
        // SAFETY: reads two numbers.
        assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) }, 0);
    }
}

impl Drop for Scarce {
    fn drop(&mut self) {
        Self::set(self.0);
    }
}

/// Whether something is to be read there, which is read then.
fn has_said(fd: i32) -> bool {
    let mut poll = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    let mut text = [0u8; 64];
    // SAFETY: one pollfd; the buffer is writable for its length.
    unsafe { libc::poll(&mut poll, 1, 0) > 0 && libc::read(fd, text.as_mut_ptr().cast(), text.len()) > 0 }
}

/// Keeps a program of its own in parts, and has no descriptor free now and then; in a process by itself, as
/// that is so of all of one.
pub fn scarce() {
    let mut subject = Subject::start("begins");
    subject.wait_for("ready");
    let (mut input, said) = (subject.input(), subject.out().as_raw_fd());
    let ran = in_parts(&subject, |parts| {
        writeln!(input).expect("told");
        let none = Scarce::begin();
        assert_eq!(parts.shrink(16 * MIB, &mut |_| {}), Err(OtherError::Busy));
        drop(none);
        let begun = Instant::now();
        while parts.shrink(16 * MIB, &mut |_| {}) == Err(OtherError::Busy) {
            assert!(begun.elapsed() < LIMIT, "it does not stand");
        }
        // By this its mappings are listed, and not again at once: only that what it holds cannot be looked at
        // is left to notice.
        std::thread::sleep(Duration::from_millis(200));
        let _ = parts.shrink(16 * MIB, &mut |_| {}).expect("shrunk");
        let none = Scarce::begin();
        assert_eq!(parts.shrink(8 * MIB, &mut |_| {}), Err(OtherError::Busy));
        assert!(parts.resident() > 8 * MIB, "{}", parts.resident());
        drop(none);
        // It has room for what it needs to begin threads.
        until(parts, 8 * MIB, "it is made smaller", &mut |parts| parts.resident() <= 8 * MIB);
        while parts.shrink(16 * MIB, &mut |_| {}) == Err(OtherError::Busy) {
            assert!(begun.elapsed() < LIMIT, "it does not stand again");
        }
        parts.resume();
        for _ in 0..20 {
            parts.mind(Duration::from_millis(1)).expect("minded");
            let none = Scarce::begin();
            writeln!(input).expect("told");
            let begun = Instant::now();
            while !has_said(said) {
                assert!(begun.elapsed() < LIMIT, "it does not begin a thread");
                assert!(parts.mind(Duration::from_millis(1)).expect("minded"));
            }
            // And what is to be heard of that thread.
            for _ in 0..20 {
                assert!(parts.mind(Duration::from_millis(1)).expect("minded"));
            }
            drop(none);
        }
        parts.mind(Duration::from_millis(1)).expect("minded");
        // Of what it is told by a descriptor becomes free.
        drop(input);
        let none = Scarce::begin();
        let begun = Instant::now();
        // It looks at all its memory, of which there is no more room than it was seen to have.
        while begun.elapsed() < Duration::from_millis(500) {
            assert!(parts.mind(Duration::from_millis(1)).expect("minded"), "it has ended");
        }
        drop(none);
        assert!(parts.resident() < 28 * MIB, "it holds {} bytes", parts.resident());
        let begun = Instant::now();
        while parts.mind(Duration::from_millis(1)).expect("minded") {
            assert!(begun.elapsed() < LIMIT, "a thread does not go on");
        }
    });
    match ran {
        Some(()) => assert!(subject.succeed().contains("right")),
        None => {
            subject.kill();
            println!("not here");
        }
    }
}

#[test]
fn who_finds_no_descriptor_free_loses_nobody() {
    let text = Subject::spawn(&mut driver::command("scarce")).succeed();
    if text.contains("not here") {
        return bdrun_skipped::skipped("parts", "it may not be run in parts");
    }
    assert!(text.contains("right"), "{text}");
}
