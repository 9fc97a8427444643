//! Programs of all kinds go on as if nothing had been.

use crate::driver::{PATIENCE, Subject, list, move_about, once};
use sbmalloc::other::{self, Image};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::Duration;

const MS: Duration = Duration::from_millis(1);

/// Moves a program so many times, or until it ends, which must be a good end.
fn moved(program: &str, times: usize, least: usize, pause: Duration) {
    let mut subject = Subject::start(program);
    subject.wait_for("ready");
    let tally = move_about(&mut subject, times, pause);
    println!("{program}: {tally:?}");
    assert!(subject.succeed().contains("right"));
    assert!(tally.moves >= least, "{program}: {tally:?}");
}

#[test]
fn a_heap_is_the_same() {
    let mut subject = Subject::start("sum");
    subject.wait_for("ready");
    let tally = move_about(&mut subject, 30, 20 * MS);
    println!("{tally:?}");
    assert!(tally.moves == 30 && tally.moved.freed >= 64 << 20, "{tally:?}");
    assert!(subject.succeed().contains("right"));
}

#[test]
fn a_heap_of_huge_pages_is_the_same_and_huge() {
    let mut subject = Subject::start("huge sum");
    subject.wait_for("ready");
    let huge = |pid: i32| {
        let text = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).expect("smaps");
        let line = text.lines().find_map(|l| l.strip_prefix("AnonHugePages:")).expect("a line").to_owned();
        line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number")
    };
    let pid = subject.pid();
    let before = huge(pid);
    let tally = move_about(&mut subject, 20, 20 * MS);
    let after = huge(pid);
    println!("{tally:?}, huge {before} and {after} KiB");
    assert!(tally.moves == 20 && tally.moved.freed >= 96 << 20, "{tally:?}");
    // Where memory is in pieces there are fewer.
    assert!(before < 64 << 10 || after > before / 2, "{before} {after}");
    assert!(subject.succeed().contains("right"));
}

/// What lies on scratch as it is, is not written again: of memory of which every tenth page changed, a tenth.
#[test]
fn only_what_changed_is_written_again() {
    let mut subject = Subject::start("some change");
    let mut input = subject.input();
    subject.wait_for("ready");
    let mut image = Image::new().expect("scratch");
    let pid = subject.pid();
    let size = 64 << 20;
    for round in 0..12 {
        if round > 0 {
            writeln!(input).expect("told");
            subject.wait_for(&format!("changed {round}"));
        }
        let moved = once(pid, &mut image, 2 * MS);
        println!("round {round}: {moved:?}");
        assert!(moved.freed >= size, "{moved:?}");
        let most = if round == 0 { moved.freed } else { size * 15 / 100 };
        assert!(moved.bytes <= most, "round {round}: {moved:?}");
    }
    drop(input);
    assert!(subject.succeed().contains("right"));
}

#[test]
fn no_call_is_broken_off() {
    let mut subject = Subject::start("calls");
    subject.wait_for("ready");
    let tally = move_about(&mut subject, 100, 20 * MS);
    println!("calls: {tally:?}");
    assert_eq!(tally.moves, 100);
    let said = subject.succeed();
    let whole = said.lines().any(|line| line == "0 broken off");
    assert!(whole && !said.contains("failed"), "{said}");
}

#[test]
fn queued_signals_are_kept_in_order() {
    moved("signals", 100, 100, 10 * MS);
}

#[test]
fn threads_come_and_go() {
    moved("threads", 60, 60, 10 * MS);
}

#[test]
fn children_come_and_go() {
    moved("forks", 60, 60, 10 * MS);
}

#[test]
fn programs_become_others() {
    moved("execs", 60, 60, 10 * MS);
}

#[test]
fn content_of_every_kind_is_the_same() {
    moved("content", 60, 60, 10 * MS);
}

#[test]
fn what_lies_in_a_pipe_is_as_it_was_given() {
    moved("spliced", 60, 60, 10 * MS);
}

/// `MODEL_SEEDS` (default 3) programs of `MODEL_OPS` (default 8,000) operations, from `MODEL_FIRST` on;
/// `MODEL_RARE` (default 1) times rarer moved than by default, and with so many times fewer children.
#[test]
fn random_programs_keep_every_byte() {
    for seed in crate::model::seeds() {
        let mut subject = Subject::spawn(
            crate::driver::command("model").env("OUTSIDE_MODEL", crate::model::arguments(seed, 1, false)),
        );
        subject.wait_for("ready");
        let tally = move_about(&mut subject, usize::MAX, 5 * MS * crate::model::rare());
        println!("seed {seed}: {tally:?}");
        let text = subject.succeed();
        assert!(text.contains("right"), "seed {seed}: {text}");
    }
}

/// What the kernel writes for a thread on which processor it runs (from Linux 6.19 on only where that has
/// changed) is not replaced by what was there before the thread made calls for us.
#[test]
fn what_the_kernel_wrote_meanwhile_is_kept() {
    let mut subject = Subject::start("small sum");
    subject.wait_for("ready");
    let pid = subject.pid();
    let mut image = Image::new().expect("scratch");
    let moved = std::thread::scope(|s| {
        s.spawn(|| {
            let mut held = other::hold(pid, &mut || list(pid), PATIENCE).expect("held");
            // One of its threads makes the calls: which, is not told.
            let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).expect("threads");
            let tids: Vec<i32> =
                tasks.flatten().filter_map(|task| task.file_name().to_str()?.parse().ok()).collect();
            let unused: Vec<u64> = tids.iter().filter_map(|&tid| behind_rseq(tid)).collect();
            held.evict(&mut image, &mut |_| {}).expect("out");
            let memory = std::fs::File::options().write(true).read(true).open(format!("/proc/{pid}/mem"));
            let memory = memory.expect("memory");
            unused.iter().for_each(|&at| memory.write_all_at(b"new!", at).expect("written"));
            held.restore(&mut image, &mut |_| {}).expect("in");
            let mut word = [0; 4];
            let kept = unused.iter().filter(|&&at| {
                memory.read_exact_at(&mut word, at).expect("read");
                let kept = &word == b"new!";
                memory.write_all_at(&[0; 4], at).expect("written");
                kept
            });
            let (kept, threads) = (kept.count(), unused.len());
            held.release().expect("released");
            (kept, threads)
        })
        .join()
        .expect("moved")
    });
    assert!(subject.succeed().contains("right"));
    match moved {
        (_, 0) => {
            bdrun_skipped::skipped("kernel", "the C library or the kernel has no restartable sequences")
        }
        (kept, _) => assert!(kept >= 1, "the page was replaced"),
    }
}

/// The address of the word behind what the kernel writes of a restartable sequence (struct rseq, 28 of 32
/// bytes), of a thread that this one holds.
fn behind_rseq(tid: i32) -> Option<u64> {
    const GET_RSEQ: libc::c_uint = 0x420f;
    let mut configuration = [0_u64; 3];
    // SAFETY: the kernel writes at most that many bytes.
    let n = unsafe { libc::ptrace(GET_RSEQ, tid, size_of_val(&configuration), configuration.as_mut_ptr()) };
    (n > 0 && configuration[0] != 0).then_some(configuration[0] + 28)
}

#[test]
fn a_stopped_program_stays_stopped() {
    let mut subject = Subject::start("small sum");
    subject.wait_for("ready");
    let pid = subject.pid();
    // SAFETY: signals to a child of ours, which was not waited for.
    let signal = |signal| unsafe { libc::kill(pid, signal) };
    let state = || {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("stat");
        stat.rsplit(") ").next().and_then(|s| s.chars().next()).expect("state")
    };
    // Whoever is to stop, or to stay so, needs a processor for that, and the machine may be busy.
    let stops = || {
        let begun = std::time::Instant::now();
        while state() != 'T' {
            assert!(begun.elapsed() < Duration::from_secs(600), "it does not stop: {}", state());
            std::thread::sleep(MS);
        }
    };
    let mut image = Image::new().expect("scratch");
    signal(libc::SIGSTOP);
    stops();
    for _ in 0..10 {
        once(pid, &mut image, MS);
        stops();
    }
    signal(libc::SIGCONT);
    // And one that is stopped, and goes on again, while it is away.
    for _ in 0..10 {
        let image = &mut image;
        std::thread::scope(|s| {
            let moves = s.spawn(move || once(pid, image, 20 * MS));
            std::thread::sleep(5 * MS);
            signal(libc::SIGSTOP);
            moves.join().expect("moved");
        });
        stops();
        signal(libc::SIGCONT);
    }
    assert!(subject.succeed().contains("right"));
}

#[test]
fn one_that_is_killed_while_it_is_held_ends() {
    for round in 0..10 {
        let mut subject = Subject::start(["calls", "sum"][round % 2]);
        subject.wait_for("ready");
        let pid = subject.pid();
        let tracer = std::thread::spawn(move || {
            let mut held = other::hold(pid, &mut || list(pid), PATIENCE).expect("held");
            let mut image = Image::new().expect("scratch");
            held.evict(&mut image, &mut |_| {}).expect("out");
            // SAFETY: a signal to the subject, which was not waited for.
            unsafe { libc::kill(pid, libc::SIGKILL) };
            let begun = std::time::Instant::now();
            while held.watch() {
                assert!(begun.elapsed() < Duration::from_secs(600), "it does not end");
                std::thread::sleep(MS);
            }
            if round < 5 {
                assert!(held.restore(&mut image, &mut |_| {}).is_err());
            }
        });
        tracer.join().expect("tracer");
        let (status, _) = subject.output();
        assert!(!status.success());
    }
}

#[test]
fn an_unprivileged_user_can_do_it_too() {
    // SAFETY: asks only.
    if unsafe { libc::geteuid() } != 0 {
        bdrun_skipped::skipped("root", "the other tests run as an unprivileged user already");
        return;
    }
    let mut command = Command::new(std::env::current_exe().expect("own path"));
    command.args(["content_of_every_kind", "a_heap_is", "queued_signals", "children_come", "--nocapture"]);
    command.uid(65534).gid(65534).env("BDRUN_SCRATCH", "/tmp").env_remove("OUTSIDE");
    let output = match command.stdin(Stdio::null()).output() {
        Ok(output) => output,
        Err(e) => return bdrun_skipped::skipped("root", format!("cannot run as another user: {e}")),
    };
    let said = String::from_utf8_lossy(&output.stdout);
    said.lines()
        .filter(|line| line.contains("Tally") || line.contains("panicked"))
        .for_each(|l| println!("{l}"));
    assert!(
        output.status.success() && said.contains("4 passed"),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

#[test]
fn other_programs_do_not_notice() {
    let text = "print(join(',', map { my $x = $_; my %h = map { $_ => $_ * $x } 1..20000; $h{777} } 1..60))";
    let programs: [(&str, &[&str]); 3] = [
        ("perl", &["-e", text]),
        ("python3", &["-c", "print(sum(hash(str(i)) % 7 * 0 + len(str(i)) for i in range(4000000)))"]),
        ("sh", &["-c", "i=0; while [ $i -lt 400 ]; do i=$((i+1)); /bin/echo $i; done | sort -n | cksum"]),
    ];
    for (program, args) in programs {
        let Ok(plain) = Command::new(program).args(args).output() else {
            bdrun_skipped::skipped(program, format!("no {program}"));
            continue;
        };
        let mut subject = Subject::spawn(Command::new(program).args(args));
        let tally = move_about(&mut subject, 200, 10 * MS);
        println!("{program}: {tally:?}");
        assert_eq!(subject.succeed().as_bytes(), plain.stdout, "{program}");
    }
}
