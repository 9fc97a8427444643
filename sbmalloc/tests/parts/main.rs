//! Programs that run with most of their memory out, a few of their pages at a time, and must not notice.
//!
//! The programs are in this binary: it runs itself again with `OUTSIDE` set to the name of one. Needs root
//! (`CAP_SYS_PTRACE`); else says `skipped: why`.

#[path = "../outside/driver.rs"]
#[allow(dead_code, reason = "shared with the tests of whole moves")]
mod driver;
mod limits;
#[path = "../model/mod.rs"]
mod model;
mod programs;

use driver::{PATIENCE, Subject, list};
use sbmalloc::other::{self, Held, Image, OtherError, Parts, PartsMoved, Refusal, Shrunk};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const MIB: u64 = 1 << 20;

/// Not a test: where the programs begin.
#[test]
fn program() {
    if let Ok(name) = std::env::var("OUTSIDE") {
        programs::run(&name);
    }
}

/// From here on it stands until it is let go; only then it goes on from where it is ready.
fn hold(subject: &Subject) -> Result<Held, Refusal> {
    let held = other::hold(subject.pid(), &mut || list(subject.pid()), PATIENCE)?;
    subject.tell();
    Ok(held)
}

/// Has a program run in parts as long as something is done with it; `None` where that is not permitted.
fn in_parts<T: Send>(subject: &Subject, f: impl FnOnce(&mut Parts) -> T + Send) -> Option<T> {
    let run = || -> Result<T, Refusal> {
        let mut parts = hold(subject)?.into_parts(Image::new().expect("scratch"))?;
        Ok(f(&mut parts))
    };
    match std::thread::scope(|s| s.spawn(run).join().expect("no panic")) {
        Ok(done) => Some(done),
        Err(refusal @ Refusal::NotInParts { .. }) => {
            bdrun_skipped::skipped("parts", refusal);
            None
        }
        Err(refusal) => panic!("{refusal}"),
    }
}

/// What was seen of a program.
#[derive(Debug, Default)]
struct Seen {
    moved: PartsMoved,
    /// The most it held after it was first made smaller.
    most: u64,
    /// The most that was out.
    out: u64,
}

/// Has a program run in parts until it ends; `None` where that is not permitted.
fn run_in_parts(subject: &Subject, target: u64) -> Option<Seen> {
    let run = || -> Result<Seen, Refusal> {
        let mut parts = hold(subject)?.into_parts(Image::new().expect("scratch"))?;
        let mut freed = 0;
        let shrunk = parts.shrink(target, &mut |bytes| freed = bytes).expect("shrunk");
        assert!(shrunk.out > 0 && freed > 0 && shrunk.left <= target, "{shrunk:?}");
        parts.resume();
        Ok(mind(&mut parts))
    };
    std::thread::scope(|s| s.spawn(run).join().expect("no panic")).map_or_else(
        |refusal| match refusal {
            Refusal::NotInParts { .. } => {
                bdrun_skipped::skipped("parts", refusal);
                None
            }
            refusal => panic!("{refusal}"),
        },
        Some,
    )
}

fn mind(parts: &mut Parts) -> Seen {
    let (mut seen, mut moved_at) = (Seen::default(), Instant::now());
    while parts.mind(Duration::from_millis(1)).expect("minded") {
        // On a busy machine it may take long, but it moves.
        let moved = parts.moved();
        if moved.faults != seen.moved.faults {
            moved_at = Instant::now();
        }
        seen.moved = moved;
        assert!(moved_at.elapsed() < Duration::from_secs(300), "stuck: {seen:?}");
        seen.most = seen.most.max(parts.resident());
        seen.out = seen.out.max(parts.out());
    }
    seen.moved = parts.moved();
    seen
}

/// The program says "ready" when it has its memory, and at its end "right". What was seen is handed to
/// `judge`.
fn goes_on(program: &str, target: u64, judge: impl FnOnce(&Seen)) {
    let mut subject = Subject::start(program);
    subject.wait_for("ready");
    let Some(seen) = run_in_parts(&subject, target) else { return subject.kill() };
    println!("{seen:?}");
    let text = subject.succeed();
    assert!(text.contains("right"), "{text}");
    judge(&seen);
}

/// `MODEL_SEEDS` (default 3) programs of `MODEL_OPS` (default 8,000) operations, from `MODEL_FIRST` on, in
/// `MODEL_ROOM` MiB (default 6); `MODEL_RARE`: as of those moved whole. `answers`: what the kernel seems to
/// answer now and then. `moves`: they mostly move, unmap and fork.
fn models(answers: &[i32], moves: bool) {
    let slower = if answers.is_empty() { 1 } else { 8 };
    for seed in model::seeds() {
        let mut subject = Subject::spawn(
            driver::command("model").env("OUTSIDE_MODEL", model::arguments(seed, slower, moves)),
        );
        subject.wait_for("ready");
        let run = || -> Result<Seen, Refusal> {
            // It may be starting a program just now.
            let held = loop {
                match hold(&subject) {
                    Err(Refusal::Vfork { .. } | Refusal::Busy { .. }) => {
                        std::thread::sleep(Duration::from_millis(5))
                    }
                    held => break held?,
                }
            };
            let mut parts = held.into_parts(Image::new().expect("scratch"))?;
            parts.interfere(answers, seed);
            let _ = parts.shrink(model::number("MODEL_ROOM", 6) * MIB, &mut |_| {}).expect("shrunk");
            parts.resume();
            Ok(mind(&mut parts))
        };
        let seen = std::thread::scope(|s| s.spawn(run).join().expect("no panic"));
        match seen {
            Ok(seen) => println!("seed {seed}: {seen:?}"),
            Err(refusal @ Refusal::NotInParts { .. }) => {
                bdrun_skipped::skipped("parts", refusal);
                return subject.kill();
            }
            Err(refusal) => panic!("{refusal}"),
        }
        let text = subject.succeed();
        assert!(text.contains("right"), "seed {seed}: {text}");
    }
}

#[test]
fn random_programs_keep_every_byte() {
    models(&[], false);
}

/// What one thread moves and unmaps while another forks, and in which order, is not told.
#[test]
fn threads_that_move_their_memory_and_fork() {
    models(&[], true);
}

/// Each answer after which the kernel may be asked again, at some of the calls, before anything was placed or
/// after a part was.
#[test]
fn whatever_the_kernel_answers() {
    models(&[libc::EAGAIN, libc::ENOMEM, libc::ENOENT, 0], false);
}

#[test]
fn a_sweep_through_four_times_the_room() {
    goes_on("sweep", 32 * MIB, |seen| {
        assert!(seen.most <= 56 * MIB && seen.out >= 80 * MIB, "{seen:?}");
        assert!(seen.moved.filled >= 200 * MIB && seen.moved.freed >= 200 * MIB, "{seen:?}");
    });
}

#[test]
fn what_is_only_read_is_written_once() {
    goes_on("look", 32 * MIB, |seen| {
        assert!(seen.moved.written <= 160 * MIB && seen.moved.read >= 200 * MIB, "{seen:?}");
    });
}

#[test]
fn here_and_there() {
    goes_on("random", 32 * MIB, |seen| assert!(seen.moved.faults > 100, "{seen:?}"));
}

#[test]
fn threads_side_by_side() {
    goes_on("threads", 24 * MIB, |seen| assert!(seen.moved.faults > 100, "{seen:?}"));
}

#[test]
fn children_see_what_was_when_they_were_made() {
    goes_on("forks", 24 * MIB, |seen| assert!(seen.moved.faults > 100, "{seen:?}"));
}

#[test]
fn addresses_change_hands() {
    goes_on("addresses", 24 * MIB, |seen| assert!(seen.moved.faults > 100, "{seen:?}"));
}

#[test]
fn what_is_locked_moves_and_grows() {
    goes_on("locked", 16 * MIB, |seen| assert!(seen.moved.faults > 100, "{seen:?}"));
}

#[test]
fn the_kernel_reads_and_writes_what_is_out() {
    goes_on("calls", 16 * MIB, |seen| assert!(seen.moved.faults > 100, "{seen:?}"));
}

#[test]
fn a_heap_that_grows() {
    goes_on("grow", 24 * MIB, |seen| {
        assert!(seen.most <= 64 * MIB && seen.out >= 64 * MIB, "{seen:?}");
    });
}

struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

#[test]
fn signals_arrive_meanwhile() {
    let mut subject = Subject::start("signals");
    subject.wait_for("ready");
    let (pid, done) = (subject.pid(), AtomicBool::new(false));
    let seen = std::thread::scope(|s| {
        s.spawn(|| {
            while !done.load(Ordering::SeqCst) {
                for signal in [libc::SIGSTOP, libc::SIGCONT, libc::SIGUSR1] {
                    // SAFETY: a signal to a child that was not waited for.
                    unsafe { libc::kill(pid, signal) };
                    std::thread::sleep(Duration::from_millis(20));
                }
            }
        });
        // Also if it panics: else nobody would end them.
        let _ends = Ends(&done);
        run_in_parts(&subject, 24 * MIB)
    });
    if seen.is_none() {
        return subject.kill();
    }
    let text = subject.succeed();
    assert!(text.contains("right"), "{text}");
}

/// The states of a process's threads, a letter for each.
fn states(pid: i32) -> String {
    let state = |entry: std::fs::DirEntry| {
        let stat = std::fs::read_to_string(entry.path().join("stat")).expect("a thread");
        stat.rsplit(") ").next().and_then(|rest| rest.chars().next()).expect("its state")
    };
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).expect("its threads");
    threads.map(|entry| state(entry.expect("an entry"))).collect()
}

#[test]
fn it_stands_and_goes_on() {
    let mut subject = Subject::start("sweep");
    subject.wait_for("ready");
    let run = || -> Result<(), Refusal> {
        let mut parts = hold(&subject)?.into_parts(Image::new().expect("scratch"))?;
        parts.shrink(32 * MIB, &mut |_| {}).expect("shrunk");
        parts.resume();
        let mut stood = 0;
        while stood < 20 {
            for _ in 0..5 {
                parts.mind(Duration::from_millis(1)).expect("minded");
            }
            match parts.stop() {
                Ok(()) => stood += 1,
                // A thread of it got no processor for so long.
                Err(OtherError::Busy) => continue,
                Err(OtherError::Gone) => break,
                Err(e) => panic!("{e}"),
            }
            // A page that it waited for when it was stopped may still come.
            for _ in 0..3 {
                assert_eq!(states(subject.pid()), "tt", "it runs");
                parts.mind(Duration::from_millis(2)).expect("held");
            }
            parts.resume();
        }
        mind(&mut parts);
        Ok(())
    };
    match std::thread::scope(|s| s.spawn(run).join().expect("no panic")) {
        Err(refusal @ Refusal::NotInParts { .. }) => {
            bdrun_skipped::skipped("parts", refusal);
            subject.kill();
        }
        Err(refusal) => panic!("{refusal}"),
        Ok(()) => assert!(subject.succeed().contains("right")),
    }
}

/// However little it is to hold: what it shares with others may be all there is room for.
#[test]
fn all_that_can_leaves_if_nothing_is_to_stay() {
    let mut subject = Subject::start("sweep");
    subject.wait_for("ready");
    let run = || -> Result<Shrunk, Refusal> {
        let mut parts = hold(&subject)?.into_parts(Image::new().expect("scratch"))?;
        parts.shrink(32 * MIB, &mut |_| {}).expect("shrunk");
        let most = parts.shrink(0, &mut |_| {}).expect("shrunk");
        parts.shrink(32 * MIB, &mut |_| {}).expect("shrunk");
        parts.resume();
        mind(&mut parts);
        Ok(most)
    };
    match std::thread::scope(|s| s.spawn(run).join().expect("no panic")) {
        Err(refusal @ Refusal::NotInParts { .. }) => {
            bdrun_skipped::skipped("parts", refusal);
            subject.kill();
        }
        Err(refusal) => panic!("{refusal}"),
        Ok(most) => {
            assert!(most.left < MIB && most.out > 32 * MIB, "{most:?}");
            assert!(subject.succeed().contains("right"));
        }
    }
}

/// The keeper of the parts is killed: the program never goes on with zeros for what is out.
#[test]
fn it_dies_with_its_keeper() {
    for round in 0..8 {
        let mut subject = Subject::start("sentry");
        subject.wait_for("ready");
        let pid = subject.pid().to_string();
        let mut keeper = Subject::spawn(driver::command("keeper").env("KEPT", pid));
        // Until all of it stands it would only be let go.
        let refused = keeper.line_with("kept");
        if !refused.is_empty() {
            bdrun_skipped::skipped("parts", refused);
            keeper.kill();
            return subject.kill();
        }
        subject.tell();
        std::thread::sleep(Duration::from_millis(17 * round * round));
        assert!(!keeper.has_ended(), "it is kept no more");
        keeper.kill();
        let (status, text) = subject.output();
        use std::os::unix::process::ExitStatusExt;
        assert_eq!(status.signal(), Some(libc::SIGKILL), "{status}: {text}");
        assert!(!text.contains("wrong"), "{text}");
    }
}

/// Not a test: keeps a program in parts until it is killed.
fn keeper() {
    let pid = std::env::var("KEPT").expect("a program").parse().expect("its number");
    let held = other::hold(pid, &mut || list(pid), PATIENCE);
    match held.and_then(|held| held.into_parts(Image::new().expect("scratch"))) {
        Err(refusal) => println!("kept not: {refusal}"),
        Ok(mut parts) => {
            println!("kept");
            if parts.shrink(8 * MIB, &mut |_| {}).is_ok() {
                parts.resume();
                while parts.mind(Duration::from_millis(1)) == Ok(true) {}
            }
        }
    }
}
