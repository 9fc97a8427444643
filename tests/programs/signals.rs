//! Signals to the master while ranks are held, out, or paged in parts: what a terminal, a batch system or
//! `nohup` sends.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::common::chaos::{PYTHON, python_with};
use crate::common::{Bdrun, Directory, Job, LIMIT, bdrun_args, first_of, poll, proc};

/// Fills its memory, says that it is ready, looks at all of it again and again until a file is there and once
/// more after that, and says whether it is right. Told to end it says so.
const LOOKS: &str = "
import os, signal, sys
name, pages, go = sys.argv[1], int(sys.argv[2]) << 8, sys.argv[3]
def told(*_):
    os.write(1, b'told %s\\n' % name.encode())
    os._exit(7)
signal.signal(signal.SIGTERM, told)
memory = bytearray(pages << 12)
for page in range(pages):
    memory[page << 12] = page % 251
os.write(1, b'ready %s\\n' % name.encode())
last = False
while not last:
    last = os.path.exists(go)
    for page in range(0, pages, 7):
        if memory[page << 12] != page % 251:
            sys.exit('wrong')
os.write(1, b'right %s\\n' % name.encode())
";

/// So many ranks of so many MiB within a budget, each computing until this file is there.
fn looks(ranks: u32, mib: u32, budget: u32, go: &Path) -> Bdrun {
    let options = format!("-np {ranks} --processors 2 --memory {budget}M --preload never -- {PYTHON} -c");
    let program = [LOOKS.to_owned(), "{rank}".into(), mib.to_string(), go.display().to_string()];
    bdrun_args(options.split(' ').map(String::from).chain(program))
}

/// Two that do not fit side by side: one runs, and the other is held or out, once both have begun.
fn two_of_which_one_fits(go: &Path) -> Bdrun {
    looks(2, 60, 100, go)
}

/// Stopped, by a signal or by whoever traces it; or frozen in its cgroup, as who cannot be traced in time.
fn stands(pid: i32) -> bool {
    let wchan = || std::fs::read_to_string(format!("/proc/{pid}/wchan")).unwrap_or_default();
    matches!(proc::state(pid), 'T' | 't') || wchan() == "do_freezer_trap"
}

/// ^Z and `fg`: the master and all that it has started stand, and nothing is lost.
fn pause_and_continue(job: &Job, apart: Duration) {
    let all_stand = || stands(job.pid()) && job.ranks().iter().all(|&(_, pid)| stands(pid));
    // The master waits ten seconds for those that it has to serve before they can stand, and stands then.
    let stand = (0..20).find_map(|_| {
        std::thread::sleep(apart);
        job.signal(libc::SIGTSTP);
        let stand = poll(LIMIT / 20, || all_stand().then_some(()));
        if stand.is_none() {
            eprintln!("somebody runs:\n{}", proc::tree(job.pid()));
            job.signal(libc::SIGCONT);
        }
        stand
    });
    assert!(stand.is_some(), "somebody runs");
    let time = || -> u64 { job.ranks().iter().map(|&(_, pid)| proc::ticks(pid)).sum() };
    let before = time();
    std::thread::sleep(Duration::from_millis(100));
    assert!(all_stand() && time() == before, "somebody went on");
    job.signal(libc::SIGCONT);
}

#[test]
fn a_job_that_is_paused_while_ranks_are_held_or_out_goes_on() {
    if !python_with("signal") {
        return;
    }
    // One that gets no processor when it is to leave is only held, until the other has ended.
    first_of(0..3, |_| {
        let dir = Directory::new("paused");
        let go = dir.path().join("go");
        let job = two_of_which_one_fits(&go).start();
        job.wait_for_output("ready 0");
        assert!(job.sees_held_or_out(), "{}", job.situation());
        for apart in [0, 110, 230] {
            pause_and_continue(&job, Duration::from_millis(apart));
        }
        let out = poll(LIMIT / 10, || job.has_one_out().then_some(()));
        std::fs::write(go, "").expect("a file");
        let outcome = job.wait();
        assert_eq!(outcome.code, Some(0), "{outcome:?}");
        assert!(outcome.stdout.contains("right 0") && outcome.stdout.contains("right 1"), "{outcome:?}");
        out.ok_or(format!("none was out: {outcome:?}"))?;
        let stats = outcome.stats();
        let moved = stats.evictions > 0 || stats.measured.as_ref().is_some_and(|m| m.out_bytes > 0);
        assert!(moved, "{stats:?}");
        Ok(())
    });
}

/// ^Z while ranks are being started: whoever has just been made stands too, and does not run, unseen, for as
/// long as the master stands.
#[test]
fn nobody_runs_who_is_being_started_when_the_job_is_paused() {
    for later in 0..10 {
        let words = ["-np", "300", "--processors", "300", "--preload", "never", "sleep", "1000"];
        let mut job = bdrun_args(words).start();
        job.wait_for_ranks(1 + 20 * later);
        job.signal(libc::SIGTSTP);
        assert!(poll(LIMIT, || stands(job.pid()).then_some(())).is_some(), "the master runs");
        let ranks = job.ranks();
        let runs = || ranks.iter().find(|&&(_, pid)| !stands(pid) && proc::state(pid) != '?');
        let stand = poll(LIMIT, || runs().is_none().then_some(()));
        assert!(
            stand.is_some(),
            "of {} processes these run while the master stands: {:?}",
            ranks.len(),
            runs()
        );
        job.signal(libc::SIGCONT);
        job.signal(libc::SIGTERM);
        assert_eq!(job.wait().code, Some(143));
    }
}

/// One that is traced all the time, so that its stops are told to the master, which stands itself.
#[test]
fn a_job_that_is_paused_while_a_rank_is_paged_in_parts_goes_on() {
    if !python_with("signal") {
        return;
    }
    let dir = Directory::new("paused");
    let go = dir.path().join("go");
    let job = looks(1, 48, 40, &go).start();
    job.wait_for_output("ready 0");
    for apart in [0, 110, 230] {
        pause_and_continue(&job, Duration::from_millis(apart));
    }
    std::fs::write(go, "").expect("a file");
    let outcome = job.wait();
    assert_eq!((outcome.code, outcome.stdout.as_str()), (Some(0), "ready 0\nright 0\n"), "{outcome:?}");
}

/// In parts, and most of the time in the middle of a system call that writes to what is out, or gives memory
/// back, or is made to do that as parts leave: what it waits for only the master can give it, which must not
/// stop before that.
#[test]
fn a_rank_in_parts_stops_in_the_middle_of_a_system_call() {
    if !python_with("signal") {
        return;
    }
    const READS: &str = "
import os
memory = bytearray(os.urandom(64 << 20))
view, pages = memoryview(memory), len(memory) >> 12
os.write(1, b'ready\\n')
with open('/dev/urandom', 'rb', buffering=0) as source:
    while True:
        for page in range(0, pages, 7):
            source.readinto(view[page << 12:(page << 12) + 64])
";
    let options = format!("-np 1 --processors 2 --memory 30M --preload never -- {PYTHON} -c");
    let job = bdrun_args(options.split(' ').map(String::from).chain([READS.to_owned()])).start();
    job.wait_for_output("ready");
    for pause in 0..64 {
        pause_and_continue(&job, Duration::from_millis(13 + pause % 17 * 3));
    }
    job.signal(libc::SIGINT);
    job.wait().failed_with(128 + libc::SIGINT, &["SIGINT"]);
}

/// The terminal is gone: as SIGTERM. Who runs is told, who cannot answer is killed at once; nothing is left.
#[test]
fn a_hangup_ends_the_job_also_when_ranks_are_held_or_out() {
    if !python_with("signal") {
        return;
    }
    // The oldest runs, unless the other has just got its turn; or it has no processor while it is waited for.
    first_of(0..3, |_| {
        let job = two_of_which_one_fits(Path::new("/never/there")).with(with_hangups).start();
        job.wait_for_output("ready 0");
        assert!(job.sees_held_or_out(), "{}", job.situation());
        job.signal(libc::SIGHUP);
        let outcome = job.wait();
        outcome.failed_with(128 + libc::SIGHUP, &["SIGHUP"]);
        assert!(!outcome.stdout.contains("right"), "{outcome:?}");
        outcome.stdout.contains("told 0").then_some(()).ok_or(format!("the oldest was not told: {outcome:?}"))
    });
}

/// Started by `nohup` it goes on without a terminal, and so do its ranks. A terminal's new size is nobody's
/// concern, nor is `fg` of what runs.
#[test]
fn what_nobody_has_to_react_to_changes_nothing() {
    if !python_with("signal") {
        return;
    }
    let dir = Directory::new("goes-on");
    let go = dir.path().join("go");
    let job = two_of_which_one_fits(&go).with(without_hangups).start();
    job.wait_for_output("ready 0");
    assert!(job.sees_held_or_out(), "{}", job.situation());
    for signal in [libc::SIGHUP, libc::SIGWINCH, libc::SIGCONT].into_iter().cycle().take(9) {
        job.signal(signal);
        std::thread::sleep(Duration::from_millis(70));
    }
    std::fs::write(go, "").expect("a file");
    let outcome = job.wait();
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    assert!(outcome.stdout.contains("right 0") && outcome.stdout.contains("right 1"), "{outcome:?}");
    assert!(!outcome.stdout.contains("told"), "{outcome:?}");
}

/// As `nohup` does.
fn without_hangups(command: &mut Command) -> &mut Command {
    disposed(command, libc::SIGHUP, libc::SIG_IGN)
}

/// Also where these tests were started by `nohup`.
fn with_hangups(command: &mut Command) -> &mut Command {
    disposed(command, libc::SIGHUP, libc::SIG_DFL)
}

fn disposed(command: &mut Command, signal: i32, disposition: libc::sighandler_t) -> &mut Command {
    let set = move || {
        // SAFETY: no handler is installed, and no memory involved.
        unsafe { libc::signal(signal, disposition) };
        Ok(())
    };
    // SAFETY: the closure makes one system call.
    unsafe { command.pre_exec(set) }
}

/// Who starts us may not want to hear of its children. We do.
#[test]
fn ends_are_heard_where_sigchld_was_ignored() {
    let script = "exit $((BDRUN_RANK * 3))";
    let job = bdrun_args(["-np", "2", "--preload", "never", "--halt", "never", "--", "sh", "-c", script])
        .with(|command| disposed(command, libc::SIGCHLD, libc::SIG_IGN));
    job.run().failed_with(3, &["rank 1", "exit code 3"]);
}

/// Who is told to end again and again says nevertheless how the job ended, and writes `--stats`.
#[test]
fn the_last_words_are_not_cut_off() {
    for _ in 0..8 {
        // Once all else is over, it has the time of its last words and no more.
        first_of(0..5, |_| {
            let words = ["-np", "4", "--preload", "never", "--", "sh", "-c", "echo ready; sleep 1000"];
            let mut job = bdrun_args(words).start();
            job.wait_for_output("ready");
            job.signal_until_it_ends(libc::SIGINT);
            let outcome = job.wait();
            if outcome.signal == Some(libc::SIGINT) {
                return Err(format!("{outcome:?}"));
            }
            assert_eq!(
                (outcome.code, outcome.stats().status.as_str()),
                (Some(130), "interrupted"),
                "{outcome:?}"
            );
            Ok(())
        });
    }
}

/// With nobody who reads its last words it ends nevertheless, and by the signal.
#[test]
fn who_cannot_say_its_last_words_ends_by_the_signal() {
    use std::io::Write;
    use std::os::unix::process::ExitStatusExt;
    for signal in [libc::SIGINT, libc::SIGTERM] {
        let (_reader, mut writer) = std::io::pipe().expect("a pipe");
        // SAFETY: asks the kernel for its size.
        let size = unsafe { libc::fcntl(std::os::fd::AsRawFd::as_raw_fd(&writer), libc::F_GETPIPE_SZ) };
        writer.write_all(&vec![b'.'; size as usize]).expect("fill the pipe");
        let mut bdrun = Command::new(env!("CARGO_BIN_EXE_bdrun"));
        let bdrun = bdrun.args(["-np", "2", "--preload", "never", "--", "true"]).stderr(writer);
        let mut bdrun = bdrun.spawn().expect("start bdrun");
        // What it has to say it cannot write.
        let pid = bdrun.id() as i32;
        let writes = format!(" {} 0x2 ", libc::SYS_write);
        let stands = poll(LIMIT, || proc::tree(pid).contains(&writes).then_some(()));
        assert!(stands.is_some(), "it says nothing: {}", proc::tree(pid));
        proc::kill(pid, signal);
        let status = poll(LIMIT, || bdrun.try_wait().expect("wait"));
        if status.is_none() {
            let _ = bdrun.kill();
        }
        assert_eq!(status.and_then(|status| status.signal()), Some(signal), "{status:?}");
    }
}

/// The first Ctrl-C asks, and says that the second does not.
#[test]
fn ctrl_c_says_that_again_kills_at_once() {
    let deaf = "trap '' INT TERM; echo deaf; while :; do sleep 0.05; done";
    // Five seconds after the first it would be killed in any case.
    first_of(0..5, |_| {
        let job = bdrun_args(["sh", "-c", deaf]).start();
        job.wait_for_output("deaf");
        let first = Instant::now();
        job.signal(libc::SIGINT);
        job.wait_for_error("once more (Ctrl-C) kills them at once");
        // Sooner it would be taken for an echo of the first.
        std::thread::sleep(Duration::from_millis(200));
        job.signal(libc::SIGINT);
        let outcome = job.wait();
        let took = first.elapsed();
        assert_eq!(outcome.code, Some(130), "{outcome:?}");
        assert_eq!(outcome.stats().ranks[0].status, "stopped");
        (took < Duration::from_secs(4)).then_some(()).ok_or(format!("{took:?}: {outcome:?}"))
    });
}
