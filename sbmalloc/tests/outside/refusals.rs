//! What cannot be moved is recognised, and goes on unharmed; what only looks like it is moved.

use crate::driver::{PATIENCE, Subject, list, once};
use sbmalloc::other::{self, Image, Refusal};
use std::time::{Duration, Instant};

/// Starts a program that does something special; `None` where that is not possible.
fn start(program: &str) -> Option<Subject> {
    let mut subject = Subject::start(program);
    let said = subject.line_with("here");
    if said.is_empty() {
        return Some(subject);
    }
    let need = if program.starts_with("ring") { "io-uring" } else { program };
    bdrun_skipped::skipped(need, format!("{program}: {said}"));
    subject.succeed();
    None
}

/// What comes to be before long, once.
fn until<T>(what: &str, mut is: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(it) = is() {
            return it;
        }
        assert!(begun.elapsed() < Duration::from_secs(600), "not even now: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn refused(program: &str, is_right: impl Fn(&Refusal) -> bool) {
    let Some(subject) = start(program) else { return };
    let pid = subject.pid();
    let said = other::check(&list(pid).expect("list")).expect_err(program);
    assert!(is_right(&said) && said.to_string().contains(&pid.to_string()), "{said}");
    let held = std::thread::spawn(move || other::hold(pid, &mut || list(pid), PATIENCE).map(drop));
    let held = held.join().expect("hold").expect_err(program);
    assert_eq!(held, said);
    assert!(subject.succeed().contains("right"));
}

#[test]
fn what_cannot_be_moved_is_left_alone() {
    // Of processes, which may end or do something else: none is lasting.
    let now = |refusal: &Refusal| !refusal.is_lasting() && !refusal.is_momentary();
    refused("locked", |r| matches!(r, Refusal::Locked { bytes: 4096.., .. }) && now(r));
    refused("aio", |r| matches!(r, Refusal::Aio { .. }) && now(r));
    refused("userfaultfd", |r| matches!(r, Refusal::Userfaultfd { .. }) && now(r));
    refused("seccomp", |r| matches!(r, Refusal::Seccomp { .. }) && now(r));
    refused("ring idle", |r| matches!(r, Refusal::IoUring { .. }) && now(r));
    refused("ring busy", |r| matches!(r, Refusal::IoUring { .. }) && now(r));
    refused("ring pinned", |r| matches!(r, Refusal::Pinned { .. } | Refusal::IoUring { .. }));
}

/// A few locked pages stay, and the rest moves.
#[test]
fn a_locked_page_is_no_obstacle() {
    let Some(subject) = start("locked a little") else { return };
    let pid = subject.pid();
    other::check(&[pid]).expect("one page");
    let mut image = Image::new().expect("scratch");
    for _ in 0..20 {
        let moved = once(pid, &mut image, Duration::ZERO);
        assert!(moved.freed >= 8 << 20);
    }
    assert!(subject.succeed().contains("right"));
}

#[test]
fn a_parent_in_vfork_is_left_alone_until_it_is_through() {
    let Some(mut subject) = start("vfork") else { return };
    let pid = subject.pid();
    let hold = move || {
        std::thread::spawn(move || other::hold(pid, &mut || list(pid), PATIENCE).map(drop))
            .join()
            .expect("hold")
    };
    // It enters, and leaves, when it has a processor.
    let refusal = until("it is in vfork", || hold().err());
    assert!(matches!(refusal, Refusal::Vfork { .. }) && !refusal.is_lasting(), "{refusal}");
    assert!(hold().is_err(), "it stays there");
    let mut input = subject.input();
    std::io::Write::write_all(&mut input, b"x").expect("written");
    until("it is through", || hold().ok());
    drop(input);
    assert!(subject.succeed().contains("right"));
}

#[test]
fn what_is_held_by_another_is_left_alone() {
    let mut subject = Subject::start("small sum");
    subject.wait_for("ready");
    let pid = subject.pid();
    let held = std::thread::scope(|s| {
        s.spawn(move || {
            let held = other::hold(pid, &mut || list(pid), PATIENCE).expect("held");
            let second = std::thread::spawn(move || other::hold(pid, &mut || list(pid), PATIENCE).map(drop));
            let refusal = second.join().expect("second");
            held.release().expect("released");
            refusal
        })
        .join()
        .expect("first")
    });
    assert!(matches!(held, Err(Refusal::Traced { .. })), "{held:?}");
    assert!(subject.succeed().contains("right"));
}

#[test]
fn what_has_ended_is_said_to_be_gone() {
    let subject = Subject::spawn(&mut std::process::Command::new("true"));
    let pid = subject.pid();
    // Nobody has waited for it.
    let state = || std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("stat");
    until("it has ended", || state().contains(") Z ").then_some(()));
    assert_eq!(other::hold(pid, &mut || Ok(vec![pid]), PATIENCE).map(drop), Err(Refusal::Gone));
    assert!(subject.output().0.success());
}

#[test]
fn a_process_of_32_bits_or_of_others_is_refused_in_words() {
    for refusal in
        [Refusal::Foreign { pid: 7 }, Refusal::Forbidden { pid: 7, errno: sbmalloc::Errno(libc::EPERM) }]
    {
        assert!(refusal.to_string().contains("process 7"), "{refusal}");
    }
}
