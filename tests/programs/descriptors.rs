//! Open files of the master: what it holds is what was predicted, and what cannot be had is said first.

use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;

use bdrun::descriptors::{Demand, FIXED, LIVING, MEASURED};

use crate::common::refused::without;
use crate::common::{Bdrun, Directory, Job, LIMIT, bdrun, bdrun_args, first_of, poll, proc};

/// `CAP_SYS_RESOURCE`, from linux/capability.h.
const SYS_RESOURCE: libc::c_ulong = 24;

/// With these limits of open files, and no right to raise them.
fn limited(command: &mut Command, soft: u64, hard: u64) -> &mut Command {
    let limit = move || {
        let limit = libc::rlimit { rlim_cur: soft, rlim_max: hard };
        // SAFETY: a number, and a pointer to a local. Who has not the right to give up a right has not that
        // one either.
        let done = unsafe {
            libc::prctl(libc::PR_CAPBSET_DROP, SYS_RESOURCE, 0, 0, 0);
            libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit)
        };
        if done == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
    };
    // SAFETY: the closure makes system calls only.
    unsafe { command.pre_exec(limit) }
}

fn under(job: Bdrun, limit: u64) -> Bdrun {
    job.with(|command| limited(command, limit, limit))
}

fn native(ranks: u32) -> Demand {
    Demand { ranks, least: ranks, native: true, scratch: 1 }
}

/// What it holds when nothing is open for a moment.
fn at_rest(job: &Job) -> u64 {
    let look = |_| {
        std::thread::sleep(Duration::from_millis(10));
        proc::open_files(job.pid())
    };
    let rests = || {
        let looks: Vec<u64> = (0..100).map(look).collect();
        let least = *looks.iter().min()?;
        // Not while they become more.
        (looks.iter().filter(|&&open| open == least).count() >= 10).then_some(least)
    };
    poll(LIMIT, rests).expect("as much for a while")
}

/// What ranks take is what is set aside for them, no more and no less; and the rest does with [`FIXED`].
#[test]
fn the_master_holds_what_was_predicted() {
    // They stay until somebody ends them.
    let held = |ranks: u32, limit: u64, more_than: u64| {
        let job = under(bdrun(&format!("-np {ranks} --resident 4 hello 600")), limit).start();
        job.wait_for_output(&format!("{ranks} ranks met"));
        let held = poll(LIMIT, || Some(at_rest(&job)).filter(|&held| held > more_than));
        job.signal(libc::SIGTERM);
        assert_eq!(job.wait().code, Some(143));
        held.expect("more than that")
    };
    let few = held(20, native(20).needed(), 0);
    assert!(few > 20 * LIVING && few < 20 * LIVING + FIXED / 2, "{few}");
    let many = held(60, native(60).needed(), 0);
    assert_eq!(many - few, 40 * LIVING, "{few}, {many}");
    // With room for it files stay open for each to be measured, once it has been.
    let wide = held(60, native(60).wished(), many);
    assert!(wide <= many + 60 * MEASURED, "{many}, {wide}");
}

/// To the last descriptor a job works, and pages.
#[test]
fn ranks_that_just_fit_run_and_are_paged() {
    let outcome = under(bdrun("-np 40 --resident 4 idle 1 0"), native(40).needed()).succeed();
    assert!(outcome.stats().ranks.iter().any(|rank| rank.evicted_bytes > 0), "{outcome:?}");
}

#[test]
fn one_rank_too_many_is_said_before_the_first_begins() {
    let limit = native(40).needed();
    let outcome = under(bdrun("-np 41 hello"), limit).run();
    outcome.failed_with(120, &["41 ranks that live at once take 420 open files", "416", "-np 40 or fewer"]);
    assert_eq!(outcome.stdout, "");
    let script = ["-np", "41", "--preload", "always", "sh", "-c", "echo began"];
    let outcome = under(bdrun_args(script), limit).run();
    outcome.failed_with(120, &["41 ranks that live at once", "nothing was started"]);
    assert_eq!(outcome.stdout, "");
    let outcome = under(bdrun("-np 8 true"), 64).run();
    outcome.failed_with(120, &["bdrun and a rank take", "the hard limit here is 64 (ulimit -Hn)"]);
}

/// Independent ranks wait until others have ended.
#[test]
fn of_independent_ranks_as_many_live_as_there_are_descriptors_for() {
    let three = Demand { ranks: 12, least: 3, native: false, scratch: 1 }.needed();
    // They hardly compute, so that more of them are begun than there are processors.
    let sleepers = ["sh", "-c", "sleep 0.3; echo done"];
    let outcome = under(bdrun_args(["-np", "12"].iter().chain(&sleepers)), three).succeed();
    assert_eq!(outcome.stdout, "done\n".repeat(12));
    assert!((1..=3).contains(&outcome.stats().max_running), "{outcome:?}");
    let outcome = under(bdrun_args(["-np", "12", "-j", "4"].iter().chain(&sleepers)), three).run();
    outcome.failed_with(120, &["4 ranks that live at once take", "-j 3 or fewer"]);
    first_of(["0.3", "3", "30"], |seconds| {
        let sleepers = ["-np", "12", "-j", "3", "sleep", seconds];
        let outcome = under(bdrun_args(sleepers), three).succeed();
        let most = outcome.stats().max_running;
        assert!(most <= 3, "{outcome:?}");
        (most == 3).then_some(()).ok_or(format!("{outcome:?}"))
    });
}

/// A program that uses `select` fails with numbers from 1024 on: the limits are raised for bdrun only.
#[test]
fn ranks_have_the_limits_they_would_have_without() {
    let job = bdrun_args(["-np", "3", "sh", "-c", "echo $(ulimit -Sn) $(ulimit -Hn)"]);
    let outcome = job.with(|command| limited(command, 250, 900)).succeed();
    assert_eq!(outcome.stdout, "250 900\n".repeat(3));
    let mut job = bdrun("-np 3 hello 600").with(|command| limited(command, 250, 900)).start();
    job.wait_for_output("3 ranks met");
    assert_eq!(proc::limit_of_open_files(job.pid()), [900; 2]);
    for (_, pid) in job.wait_for_ranks(3) {
        assert_eq!(proc::limit_of_open_files(pid), [250, 900]);
    }
    job.signal(libc::SIGTERM);
    job.wait();
}

/// Root may raise the hard limit too, up to the kernel's own.
#[test]
fn the_hard_limit_is_raised_where_that_is_allowed() {
    let status = std::fs::read_to_string("/proc/self/status").expect("status");
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:\t")).expect("capabilities");
    let may = u64::from_str_radix(effective, 16).expect("a number") >> SYS_RESOURCE & 1 == 1;
    let limit = move || {
        let limit = libc::rlimit { rlim_cur: 300, rlim_max: 300 };
        // SAFETY: a pointer to a local.
        match unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) } {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        }
    };
    // SAFETY: the closure makes a system call.
    let job = bdrun("-np 40 hello 600").with(|command| unsafe { command.pre_exec(limit) });
    if !may {
        job.run().failed_with(120, &["40 ranks that live at once take 416 open files"]);
        return;
    }
    let mut job = job.start();
    job.wait_for_output("40 ranks met");
    assert_eq!(proc::limit_of_open_files(job.pid()), [native(40).wished(); 2]);
    let all_have_theirs = |ranks: Vec<(u32, i32)>| {
        ranks.len() == 40 && ranks.iter().all(|(_, pid)| proc::limit_of_open_files(*pid) == [300; 2])
    };
    assert!(all_have_theirs(job.wait_for_ranks(40)));
    job.signal(libc::SIGTERM);
    job.wait();
}

/// A rank gets no copy of the master's table, but what bdrun was given to hand on, whatever its number; also
/// where the kernel does not copy the beginning of a table, or a shared one cannot be left at all, and under
/// limits that leave no room for that.
#[test]
fn what_bdrun_was_given_is_handed_on() {
    const NUMBER: i32 = 333;
    let dir = Directory::new("given");
    let path = dir.path().join("given");
    std::fs::write(&path, "given\n").expect("a file");
    let file = std::fs::File::open(&path).expect("a file");
    let number = file.as_raw_fd();
    let give = |command: &mut Command| {
        let give = move || {
            // SAFETY: two numbers.
            let done = unsafe { libc::dup2(number, NUMBER) };
            if done == NUMBER { Ok(()) } else { Err(std::io::Error::last_os_error()) }
        };
        // SAFETY: the closure makes a system call only.
        unsafe { command.pre_exec(give) };
    };
    let shell = ["sh", "-c", "echo $(ls /proc/self/fd | sort -n); cat /proc/self/fd/333"];
    // What this program was given goes on as well, and each rank has its socket.
    let mut alone = Command::new(shell[0]);
    alone.args(&shell[1..]);
    give(&mut alone);
    let alone = String::from_utf8(alone.output().expect("a shell").stdout).expect("text");
    let (numbers, rest) = alone.split_once('\n').expect("a line");
    let mut numbers: Vec<i32> = numbers.split(' ').map(|text| text.parse().expect("a number")).collect();
    numbers.push(203);
    numbers.sort_unstable();
    let numbers: Vec<String> = numbers.iter().map(i32::to_string).collect();
    let expected = format!("{}\n{rest}", numbers.join(" "));
    assert!(rest == "given\n" && numbers.contains(&NUMBER.to_string()), "{expected}");

    let job = |ranks: &str| {
        bdrun_args(["-np", ranks].iter().chain(&shell)).with(|command| {
            give(command);
            command
        })
    };
    let plainly = job("40").succeed();
    let refused = job("3").with(|command| without(libc::SYS_close_range, command)).succeed();
    let both = job("3").with(|command| without(libc::SYS_unshare, without(libc::SYS_close_range, command)));
    let both = both.succeed();
    let narrow = job("3").with(|command| limited(command, 400, 400)).succeed();
    for (outcome, ranks) in [(plainly, 40), (refused, 3), (both, 3), (narrow, 3)] {
        let mut lines: Vec<&str> = outcome.stdout.lines().collect();
        lines.sort_unstable();
        let all = expected.repeat(ranks);
        let mut all: Vec<&str> = all.lines().collect();
        all.sort_unstable();
        assert_eq!(lines, all, "{outcome:?}");
    }
}
