//! Timeouts pass while a program is stopped again and again, or is out; and each only once.

use crate::driver::{PATIENCE, Subject, command, list};
use sbmalloc::other::{self, Image, Refusal};
use std::io::Write;
use std::time::{Duration, Instant};

const MS: Duration = Duration::from_millis(1);
/// Between two stops: much less than any of the timeouts.
const EVERY: Duration = Duration::from_millis(20);
/// So many stops.
const ENOUGH: usize = 25;
const LIMIT: Duration = Duration::from_secs(600);

fn waits(program: &str, ms: u32, times: u32) -> Subject {
    let settings = [("WAIT_MS", ms.to_string()), ("WAIT_TIMES", times.to_string())];
    let mut subject = Subject::spawn(command(program).envs(settings));
    subject.wait_for("ready");
    subject
}

fn hold(pid: i32) -> Result<other::Held, Refusal> {
    other::hold(pid, &mut || list(pid), PATIENCE)
}

/// Until each thread of a program was seen asleep some times in a row; whether it has not ended before that.
fn all_wait(subject: &mut Subject) -> bool {
    let pid = subject.pid();
    let is_asleep = |tid: &str| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/task/{tid}/stat")).unwrap_or_default();
        stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('S'))
    };
    let mut seen = 0;
    while seen < 5 && !subject.has_ended() {
        std::thread::sleep(20 * MS);
        let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).expect("threads");
        let all = tasks.flatten().all(|task| is_asleep(&task.file_name().to_string_lossy()));
        seen = if all { seen + 1 } else { 0 };
    }
    seen == 5
}

/// An attempt with a timeout of this, and with longer ones: on a busy machine a program is not held in time,
/// and nothing was tried.
fn in_time(wait: Duration, attempt: impl Fn(Duration) -> bool) {
    assert!([1, 4, 16].into_iter().any(|times| attempt(wait * times)), "it was never in time");
}

/// Holds a program and lets it go every 20 ms until it has ended; how often. Its input ends once that was
/// often enough. By a thread of its own, which has no children.
fn stop_and_go(subject: &mut Subject) -> usize {
    let (pid, begun, mut stops, mut input) = (subject.pid(), Instant::now(), 0, Some(subject.input()));
    while !subject.has_ended() {
        if begun.elapsed() > LIMIT {
            // SAFETY: a signal to a process group of our own child, which was not waited for.
            unsafe { libc::kill(-pid, libc::SIGKILL) };
            panic!("it waits for ever");
        }
        std::thread::sleep(EVERY);
        let once = || match hold(pid) {
            Ok(held) => held.release().map(|()| true).expect("released"),
            Err(Refusal::Gone) => false,
            Err(refusal) if !refusal.is_lasting() => false,
            Err(refusal) => panic!("{refusal}"),
        };
        stops += usize::from(std::thread::scope(|s| s.spawn(once).join().expect("no panic")));
        if stops == ENOUGH {
            drop(input.take());
        }
    }
    stops
}

fn is_right(subject: Subject) {
    let said = subject.succeed();
    println!("{said}");
    assert!(said.contains("all after ") && !said.contains("WRONG"), "{said}");
}

#[test]
fn they_pass_under_many_stops() {
    let mut subject = waits("waits", 300, 3);
    let stops = stop_and_go(&mut subject);
    println!("{stops} stops");
    is_right(subject);
}

#[test]
fn they_begin_anew_with_each_call() {
    let mut subject = Subject::start("fed");
    subject.wait_for("ready");
    let stops = stop_and_go(&mut subject);
    println!("{stops} stops");
    let said = subject.succeed();
    assert!(stops >= ENOUGH && said.contains("right"), "{stops}: {said}");
}

/// Held for longer than it waits it does not wait again when it is let go; and then, the second time, it
/// waits as long as ever.
#[test]
fn they_pass_while_it_stands() {
    in_time(Duration::from_secs(4), |wait| {
        let begun = Instant::now();
        let mut subject = waits("waits", wait.as_millis() as u32, 2);
        let pid = subject.pid();
        let waited = all_wait(&mut subject);
        let stand = || {
            // It may have ended.
            let held = hold(pid).ok()?;
            if !waited || begun.elapsed() >= wait {
                return None;
            }
            std::thread::sleep(wait + 500 * MS);
            let released = Instant::now();
            held.release().expect("released");
            Some(released)
        };
        let released = std::thread::scope(|s| s.spawn(stand).join().expect("no panic"));
        let said = subject.succeed();
        println!("{said}");
        assert!(!said.contains("WRONG"), "{said}");
        let Some(took) = released.map(|released| released.elapsed()) else { return false };
        assert!(took >= wait - 100 * MS, "{took:?}: {said}");
        // The second wait, and no more: what begins the first anew takes as long again, each time.
        took < wait * 7 / 4
    });
}

/// What has come by then is found, rather than that the time is over.
#[test]
fn what_comes_while_it_stands_is_found() {
    in_time(Duration::from_secs(5), |wait| {
        let begun = Instant::now();
        let mut subject = Subject::spawn(command("met").env("WAIT_MS", wait.as_millis().to_string()));
        let semaphores: i32 = subject.line_with("semaphores ").trim().parse().expect("a number");
        let address = subject.line_with("address ");
        subject.wait_for("waits");
        let pid = subject.pid();
        let waited = all_wait(&mut subject);
        let mut input = subject.input();
        let mut meet = || {
            use std::os::linux::net::SocketAddrExt;
            let address = std::os::unix::net::SocketAddr::from_abstract_name(address.trim());
            let address = address.expect("address");
            let connection = std::os::unix::net::UnixStream::connect_addr(&address).expect("connected");
            input.write_all(b"x").expect("written");
            let mut op = libc::sembuf { sem_num: 0, sem_op: 1, sem_flg: 0 };
            // SAFETY: one operation; a signal to our own child.
            unsafe {
                assert_eq!(libc::semop(semaphores, &mut op, 1), 0);
                assert_eq!(libc::kill(pid, libc::SIGUSR2), 0);
            }
            connection
        };
        let stand = || {
            // It may have ended. All must wait still.
            let held = hold(pid).ok()?;
            if !waited || begun.elapsed() >= wait {
                return None;
            }
            let connection = meet();
            std::thread::sleep(wait + 500 * MS);
            held.release().expect("released");
            Some(connection)
        };
        let met = std::thread::scope(|s| s.spawn(stand).join().expect("no panic"));
        let said = subject.succeed();
        println!("{said}");
        assert!(met.is_none() || said.contains("all") && !said.contains("WRONG"), "{said}");
        met.is_some()
    });
}

/// The same for a rank of which parts are out.
#[test]
fn they_pass_in_parts() {
    let mut subject = waits("waits", 300, 3);
    let pid = subject.pid();
    let run = || -> Result<usize, Refusal> {
        let mut parts = hold(pid)?.into_parts(Image::new().expect("scratch"))?;
        // Most of the little that it has.
        let _ = parts.shrink(1 << 20, &mut |_| {});
        parts.resume();
        let (begun, mut stops, mut last) = (Instant::now(), 0, Instant::now());
        while parts.mind(MS).expect("minded") {
            assert!(begun.elapsed() < LIMIT, "it waits for ever");
            if last.elapsed() >= EVERY && parts.stop().is_ok() {
                parts.resume();
                stops += 1;
                last = Instant::now();
            }
        }
        Ok(stops)
    };
    match std::thread::scope(|s| s.spawn(run).join().expect("no panic")) {
        Ok(stops) => println!("{stops} stops"),
        Err(refusal @ Refusal::NotInParts { .. }) => {
            bdrun_skipped::skipped("parts", refusal);
            return subject.kill();
        }
        Err(refusal) => panic!("{refusal}"),
    }
    assert!(subject.has_ended());
    is_right(subject);
}
