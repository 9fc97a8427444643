//! Timeouts pass while a program is stopped again and again, or is out; and each only once.

use crate::driver::{PATIENCE, Subject, command, list};
use sbmalloc::other::{self, Image, Refusal};
use std::io::Write;
use std::time::{Duration, Instant};

const MS: Duration = Duration::from_millis(1);
/// Between two stops: much less than any of the timeouts.
const EVERY: Duration = Duration::from_millis(20);
const LIMIT: Duration = Duration::from_secs(60);

fn waits(program: &str, ms: u32, times: u32) -> Subject {
    let settings = [("WAIT_MS", ms.to_string()), ("WAIT_TIMES", times.to_string())];
    let mut subject = Subject::spawn(command(program).envs(settings));
    subject.wait_for("ready");
    subject
}

fn hold(pid: i32) -> Result<other::Held, Refusal> {
    other::hold(pid, &mut || list(pid), PATIENCE)
}

/// Until each thread of a process was seen asleep some times in a row.
fn until_all_wait(pid: i32) {
    let is_asleep = |tid: &str| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/task/{tid}/stat")).unwrap_or_default();
        stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('S'))
    };
    let mut seen = 0;
    while seen < 5 {
        std::thread::sleep(20 * MS);
        let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).expect("threads");
        let all = tasks.flatten().all(|task| is_asleep(&task.file_name().to_string_lossy()));
        seen = if all { seen + 1 } else { 0 };
    }
}

/// Holds a program and lets it go every 20 ms until it has ended; how often. By a thread of its own, which
/// has no children.
fn stop_and_go(subject: &mut Subject) -> usize {
    let (pid, begun, mut stops) = (subject.pid(), Instant::now(), 0);
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
    assert!(stops > 20 && said.contains("right"), "{stops}: {said}");
}

/// Held for longer than it waits it does not wait again when it is let go; and then, the second time, it
/// waits as long as ever.
#[test]
fn they_pass_while_it_stands() {
    let wait = Duration::from_secs(4);
    let subject = waits("waits", wait.as_millis() as u32, 2);
    let pid = subject.pid();
    until_all_wait(pid);
    let stand = || {
        let held = hold(pid).expect("held");
        std::thread::sleep(wait + 500 * MS);
        held.release().expect("released");
    };
    std::thread::scope(|s| s.spawn(stand).join().expect("no panic"));
    let released = Instant::now();
    let said = subject.succeed();
    println!("{said}");
    assert!(!said.contains("WRONG"), "{said}");
    // The second wait, and no more: what begins the first anew takes as long again.
    let took = released.elapsed();
    assert!(took >= wait - 100 * MS && took < wait * 7 / 4, "{took:?}: {said}");
}

/// What has come by then is found, rather than that the time is over.
#[test]
fn what_comes_while_it_stands_is_found() {
    // Long enough for all to wait still when it is held.
    const WAIT: Duration = Duration::from_secs(5);
    let wait = WAIT.as_millis().to_string();
    let mut subject = Subject::spawn(command("met").env("WAIT_MS", wait));
    let semaphores: i32 = subject.line_with("semaphores ").trim().parse().expect("a number");
    let address = subject.line_with("address ");
    subject.wait_for("waits");
    let pid = subject.pid();
    until_all_wait(pid);
    let mut connection = None;
    let stand = |meet: &mut (dyn FnMut() + Send)| {
        let held = hold(pid).expect("held");
        meet();
        std::thread::sleep(WAIT + 500 * MS);
        held.release().expect("released");
    };
    let mut input = subject.input();
    let mut meet = || {
        use std::os::linux::net::SocketAddrExt;
        let address = std::os::unix::net::SocketAddr::from_abstract_name(address.trim()).expect("address");
        connection = Some(std::os::unix::net::UnixStream::connect_addr(&address).expect("connected"));
        input.write_all(b"x").expect("written");
        let mut op = libc::sembuf { sem_num: 0, sem_op: 1, sem_flg: 0 };
        // SAFETY: one operation; a signal to our own child.
        unsafe {
            assert_eq!(libc::semop(semaphores, &mut op, 1), 0);
            assert_eq!(libc::kill(pid, libc::SIGUSR2), 0);
        }
    };
    std::thread::scope(|s| s.spawn(|| stand(&mut meet)).join().expect("no panic"));
    let said = subject.succeed();
    println!("{said}");
    assert!(said.contains("all") && !said.contains("WRONG"), "{said}");
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
