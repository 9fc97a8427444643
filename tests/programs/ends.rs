//! How ranks and jobs end: what `--halt`, tries of a rank, signals and the last things of a job do to one
//! another.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::process::Stdio;

use crate::common::libraries::libraries;
use crate::common::{
    Directory, LIMIT, Outcome, bdrun_args, bdrun_on, first_of, poll, program as program_path, skipped,
};
use crate::full_disk::SmallDisk;
use crate::journal::Bench;

/// Nobody else is begun, so nobody takes what is read of the list: whoever reads it must not be waited for.
#[test]
fn a_list_that_goes_on_is_not_waited_for_after_a_halt() {
    for options in [&["--parts", "-"][..], &["--pipe", "--block", "1k"]] {
        let (reader, mut writer) = std::io::pipe().unwrap();
        let writing = std::thread::spawn(move || while writer.write_all(b"one more line\n").is_ok() {});
        let words = options.iter().copied().chain(["--halt", "soon,fail=1", "--", "false"]);
        let outcome = bdrun_args(words).with(|command| command.stdin(Stdio::from(reader))).run();
        outcome.failed_with(1, &["no other rank is begun (--halt soon,fail=1)"]);
        writing.join().unwrap();
    }
}

/// Those that still run then run to their end, and change nothing.
#[test]
fn a_job_that_was_halted_for_success_has_it() {
    let dir = Directory::new("success");
    let at = |name: &str| dir.path().join(name).display().to_string();
    let script = "if [ $1 = 0 ]; then until [ -e $0 ]; do sleep 0.01; done
         else : > $0; until grep -q 'no other rank is begun' $0.said; do sleep 0.01; done; exit 3; fi";
    let (begun, said) = (at("begun"), at("begun.said"));
    let options = ["-np", "2", "--processors", "2", "--halt", "soon,success=1", "--", "sh", "-c"];
    let words = options.into_iter().chain([script, &begun, "{rank}"]);
    let outcome = bdrun_args(words).with(|command| command.stderr(File::create(&said).unwrap())).run();
    let text = fs::read_to_string(&said).unwrap();
    assert_eq!(outcome.code, Some(0), "{text}");
    assert!(text.contains("rank 1 failed with exit code 3"), "{text}");
}

#[test]
fn failures_and_successes_end_the_job_when_they_are_enough() {
    let run = |halt: &str, script: &str| {
        // No more at a time, however little they compute.
        let args = ["-np", "8", "-j", "2", "--halt", halt, "sh", "-c", script, "{rank}"];
        bdrun_args(args).run()
    };
    let status = |outcome: &Outcome, wanted: &str| {
        outcome.stats().ranks.iter().filter(|rank| rank.status == wanted).count()
    };
    let second_and_third_fail = "sleep 0.1; [ $0 != 1 ] && [ $0 != 2 ] || exit 9";
    let never = run("never", second_and_third_fail);
    assert_eq!((never.code, status(&never, "ok"), status(&never, "exit 9")), (Some(9), 6, 2), "{never:?}");
    // The first runs until that is said.
    let dir = Directory::new("soon");
    let said = dir.path().join("said").display().to_string();
    let script =
        "case $0 in 1|2) exit 9;; *) until grep -q 'no other rank is begun' $1; do sleep 0.01; done; esac";
    let words = ["-j", "2", "--halt", "soon,fail=2", "sh", "-c", script, "{rank}", &said];
    let soon = bdrun_args(["-np", "64"].iter().chain(&words));
    let soon = soon.with(|command| command.stderr(fs::File::create(&said).unwrap())).run();
    let text = fs::read_to_string(&said).unwrap();
    for words in ["no other rank is begun (--halt soon,fail=2)", "2 failed", "never began"] {
        assert!(text.contains(words), "{text}");
    }
    let ends = ["exit 9", "ok", "unborn", "stopped"].map(|wanted| status(&soon, wanted));
    assert_eq!((soon.code, ends), (Some(9), [2, 1, 61, 0]), "{text}");
    // Not even in the place of the one that failed.
    let one = [
        "-np",
        "4",
        "-j",
        "1",
        "--halt",
        "soon,fail=1",
        "sh",
        "-c",
        "echo $0; [ $0 != 1 ] || exit 9",
        "{rank}",
    ];
    let one = bdrun_args(one).run();
    assert_eq!((one.code, one.stdout.as_str()), (Some(9), "0\n1\n"), "{one:?}");
    let now = run("now,fail=25%", "[ $0 = 0 ] && sleep 1000; exit 9");
    now.failed_with(9, &["were stopped"]);
    assert_eq!((status(&now, "exit 9"), status(&now, "stopped") >= 1), (2, true), "{now:?}");
    // The first to find it is enough. It does when the ends of those that did not have been heard.
    let dir = Directory::new("found");
    let script = format!(
        "gone() {{ [ -s {0}.$1 ] && [ ! -e /proc/$(cat {0}.$1) ]; }}
        case $0 in
            0|1) echo $$ > {0}.$0; exit 1;;
            2) sleep 1000;;
            3) until gone 0 && gone 1; do sleep 0.01; done; exit 0;;
        esac",
        dir.path().join("failed").display()
    );
    let found = run("now,success=1", &script);
    assert_eq!(found.code, Some(0), "{found:?}");
    assert!(found.stderr.contains("1 of 8 ranks have ended well (--halt now,success=1)"), "{found:?}");
    assert_eq!((status(&found, "ok"), status(&found, "exit 1")), (1, 2), "{found:?}");
    run("sometimes", "exit 0").failed_with(118, &["WHEN,WHY=COUNT"]);
}

/// With a library in front of them too, until one of them may talk to others.
#[test]
fn failures_of_ranks_with_a_library_in_front_end_the_job_when_they_are_enough() {
    libraries();
    let run = |options: &[&str], program: &[&str]| {
        bdrun_args(["-np", "3", "--preload", "always"].iter().chain(options).chain(program)).run()
    };
    let status = |outcome: &Outcome| -> Vec<String> {
        outcome.stats().ranks.iter().map(|rank| rank.status.clone()).collect()
    };
    let dir = Directory::new("in-front");
    let failed = dir.path().join("failed").display().to_string();
    // The others end after the first has failed.
    let script = "if [ $0 = 1 ]; then : >$1; exit 9; fi; until [ -e $1 ]; do sleep 0.01; done; sleep 0.5";
    let program = ["sh", "-c", script, "{rank}", &failed];
    for option in [&["--keep-going"][..], &["--halt", "never"], &["--halt", "now,fail=2"]] {
        let outcome = run(option, &program);
        assert_eq!(
            (outcome.code, status(&outcome)),
            (Some(9), ["ok", "exit 9", "ok"].map(String::from).into())
        );
        std::fs::remove_file(&failed).unwrap();
    }
    let success = "[ $0 = 1 ] || { while :; do sleep 0.05; done; }";
    let outcome = run(&["--halt", "now,success=1"], &["sh", "-c", success, "{rank}"]);
    assert_eq!((outcome.code, status(&outcome)[1].as_str()), (Some(0), "ok"), "{outcome:?}");
    // Of the runtime, and of an MPI, which is seen when they run.
    let sweep = program_path("sweep").display().to_string();
    let around = dir.script("around", &format!("#!/bin/sh\nexec {sweep} 1M 1\n")).display().to_string();
    for program in [&["sweep", "1M", "1"][..], &[&around]] {
        for options in [&["--preload", "always", "--keep-going"][..], &["--keep-going"]] {
            let outcome = bdrun_args(["-np", "2"].iter().chain(options).chain(program)).run();
            outcome.failed_with(118, &["--keep-going is for independent ranks", "may talk to one another"]);
        }
    }
}

#[test]
fn a_rank_that_takes_too_long_fails() {
    let script = "[ $0 = 1 ] || exit 0; trap 'echo told; exit 0' TERM; while :; do sleep 0.05; done";
    // On a busy machine another may take as long, or this one not listen yet.
    first_of([3, 15, 55], |limit| {
        let seconds = limit.to_string();
        let args = ["-np", "3", "--rank-timeout", &seconds, "--keep-going", "sh", "-c", script, "{rank}"];
        let outcome = bdrun_args(args).run();
        outcome.failed_with(117, &[&format!("did not end within {limit}.0 s (--rank-timeout)")]);
        let status: Vec<_> = outcome.stats().ranks.iter().map(|rank| rank.status.as_str()).collect();
        let right = status == ["ok", "timeout", "ok"] && outcome.stdout == "told\n";
        right.then(|| outcome.failed_with(117, &["rank 1 did"])).map(drop).ok_or(format!("{outcome:?}"))
    });
    // One that does not listen is killed.
    let script = "trap '' TERM; echo deaf; while :; do sleep 0.05; done";
    first_of(["0.2", "5.0", "50.0"], |limit| {
        let outcome = bdrun_args(["--rank-timeout", limit, "sh", "-c", script]).run();
        outcome.failed_with(117, &[&format!("rank 0 did not end within {limit} s")]);
        (outcome.stdout == "deaf\n").then_some(()).ok_or("it still listened".into())
    });
}

/// What a first try has read of a pipe is gone: with the rest of it the next would make half a result, and
/// end well.
#[test]
fn who_has_read_a_pipe_is_not_run_again() {
    let dir = Directory::new("read-once");
    let at = |name: &str| dir.path().join(name).display().to_string();
    let script = "cat; [ -e $0 ] || { : > $0; exit 1; }";
    let (tried, out, input) = (at("tried"), at("out"), at("input"));
    let job = || {
        let _ = fs::remove_file(&tried);
        bdrun_args(["--retry", "1", "--output-files", &out, "--", "sh", "-c", script, &tried])
    };
    let (reader, mut writer) = std::io::pipe().unwrap();
    writer.write_all(b"1\n2\n").unwrap();
    drop(writer);
    let outcome = job().with(|command| command.stdin(Stdio::from(reader))).run();
    outcome.failed_with(1, &["it is not run again, as what it has read of bdrun's standard input is gone"]);
    // A file is read again.
    fs::write(&input, "1\n2\n").unwrap();
    job().with(|command| command.stdin(File::open(&input).unwrap())).succeed();
    assert_eq!(fs::read_to_string(&out).unwrap(), "1\n2\n");
    // And of nothing there is as much left.
    let (reader, writer) = std::io::pipe().unwrap();
    drop(writer);
    job().with(|command| command.stdin(Stdio::from(reader))).succeed();
    job().with(|command| command.stdin(Stdio::null())).succeed();
}

/// It failed, and what would have been its next try is not begun: that is a failure.
#[test]
fn who_waits_for_a_next_try_when_no_other_is_begun_has_failed() {
    let bench = Bench::new("no-next-try", &["a", "b"]);
    // The second try of b waits for its time; a fails for good before that.
    bench.write("do-b", "exit 4");
    bench.write(
        "do-a",
        "until grep -q 'b (line 2, rank 1).*it is run again' $there/said; do sleep 0.01; done; exit 5",
    );
    let said = bench.at("said");
    let (list, out) = (bench.at("list").display().to_string(), bench.at("out/{}").display().to_string());
    let program = bench.at("program").display().to_string();
    let options = ["--parts", &list, "-j", "2", "--retry", "1", "--halt", "soon,fail=1", "--delay", "3"];
    let words = options.into_iter().chain(["--output-files", &out, "--", &program, "{}"]);
    // Its first two begin without a delay between them if it is waited for.
    let outcome = bdrun_args(words).with(|command| command.stderr(File::create(&said).unwrap())).run();
    let text = fs::read_to_string(&said).unwrap();
    assert!(matches!(outcome.code, Some(4 | 5)), "{text}");
    assert!(text.contains("2 failed") && !text.contains("never began"), "{text}");
}

/// A job log may be a pipe that nobody reads: whoever asks for the end is heard, whether or not the job has
/// failed.
#[test]
fn a_log_that_nobody_reads_does_not_keep_a_job_from_its_end() {
    for (name, last, code) in [("unread-log", "true", 143), ("unread-log-of-failed", "exit 7", 7)] {
        let dir = Directory::new(name);
        let log = dir.path().join("log");
        nix::unistd::mkfifo(&log, nix::sys::stat::Mode::S_IRWXU).unwrap();
        // Whoever has it open, and does not read.
        let _reader = File::options().read(true).write(true).open(&log).unwrap();
        let log = log.display().to_string();
        let list: String = (0..700).map(|n| format!("{n}\n")).collect();
        let path = dir.path().join("list");
        fs::write(&path, list).unwrap();
        let list = path.display().to_string();
        let ran = dir.path().join("ran").display().to_string();
        let script = format!("printf x >> $0; [ $1 != 699 ] || {last}");
        let options = ["--parts", &list, "--joblog", &log, "--", "sh", "-c", &script, &ran, "{}"];
        let job = bdrun_args(options).start();
        let all_ran = || fs::metadata(&ran).is_ok_and(|ran| ran.len() == 700).then_some(());
        assert!(poll(LIMIT, all_ran).is_some(), "{}", job.situation());
        // Nobody is left to be killed.
        job.wait_for_all_ends();
        job.signal(libc::SIGTERM);
        let outcome = job.wait();
        assert_eq!(outcome.code, Some(code), "{outcome:?}");
    }
}

/// Who asked for nothing but the first result has it only once that is in the journal, and has its name.
#[test]
fn a_job_that_has_ended_well_waits_for_its_journal() {
    let bench = Bench::new("slow-journal", &["a", "b"]);
    let log_path = bench.at("log");
    nix::unistd::mkfifo(&log_path, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let mut reader = File::options().read(true).write(true).open(&log_path).unwrap();
    bench.write("do-b", "trap '' TERM; : > $there/trapped; while [ ! -e $there/out/a ]; do sleep 0.1; done");
    bench.write("do-a", "until [ -e $there/full ]; do sleep 0.01; done");
    let (list, journal) = (bench.at("list").display().to_string(), bench.at("journal").display().to_string());
    let (out, log) = (bench.at("out/{}").display().to_string(), log_path.display().to_string());
    let program = bench.at("program").display().to_string();
    let options = ["--parts", &list, "--journal", &journal, "--joblog", &log, "--output-files", &out];
    let halt = ["--processors", "2", "--halt", "now,success=1", "--", &program, "{}"];
    let job = bdrun_args(options.into_iter().chain(halt)).start();
    assert!(poll(LIMIT, || bench.at("trapped").exists().then_some(())).is_some(), "{}", job.situation());
    let mut writer = File::options().write(true).custom_flags(libc::O_NONBLOCK).open(&log_path).unwrap();
    for piece in [&[b'x'; 4096][..], b"x"] {
        while writer.write(piece).is_ok() {}
    }
    bench.write("full", "");
    let named = || bench.at("out/a").exists().then_some(());
    assert!(poll(LIMIT, named).is_some(), "{}", job.situation());
    assert!(poll(LIMIT, || job.ranks().is_empty().then_some(())).is_some(), "{}", job.situation());
    // Longer than it would be waited for after a signal.
    std::thread::sleep(std::time::Duration::from_secs(7));
    assert!(reader.read(&mut vec![0; 1 << 20]).unwrap() > 0);
    let outcome = job.wait();
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    assert!(!outcome.stderr.contains("not be written in time"), "{outcome:?}");
}

/// It had ended well but for what was to be written down of it.
#[test]
fn what_cannot_be_written_down_is_told_also_after_a_halt_for_success() {
    let bench = Bench::new("lost-journal", &["a", "b"]);
    // It takes its time to end after the other, whose file is of nobody.
    bench.write(
        "do-b",
        "trap '' TERM; : > $there/trapped; until [ -e $there/gone ]; do sleep 0.1; done; sleep 1",
    );
    bench.write(
        "do-a",
        "until [ -e $there/trapped ]; do sleep 0.01; done
         rm $there/out/a.unfinished; echo of nobody > $there/out/a.unfinished; : > $there/gone",
    );
    let outcome = bench.run("--journal", &["--processors", "2", "--halt", "now,success=1"]);
    outcome.failed_with(120, &["a.unfinished", "not the file that the rank wrote"]);
}

/// Output that could not be held back is lost: that is no good end, also if it turns out last of all.
#[test]
fn output_that_is_lost_at_the_end_is_told() {
    let disk = match SmallDisk::new(1) {
        Ok(disk) => disk,
        Err(why) => return skipped("mount", why),
    };
    // As much as a pipe holds: all but the first can end, whose output waits for a reader. They begin when
    // some of it was read, and could not be written: before that theirs could be read, and held back.
    let ended = Directory::new("have-printed");
    let script = "if [ $1 = 0 ]; then head -c 65537 /dev/zero; : > $0/waits; head -c 335000 /dev/zero
        else until [ -e $0/waits ]; do sleep 0.01; done; fi
        head -c 65536 /dev/zero; : > $0/$1";
    let place = ended.path().display().to_string();
    let options = ["-np", "32", "--processors", "32", "--keep-order", "--", "sh", "-c", script];
    let words = options.into_iter().chain([&*place, "{rank}"]);
    let (mut reader, mut writer) = std::io::pipe().unwrap();
    // SAFETY: asks the kernel for its size.
    let size = unsafe { libc::fcntl(writer.as_raw_fd(), libc::F_GETPIPE_SZ) };
    writer.write_all(&vec![b'.'; size as usize]).unwrap();
    let job = bdrun_on(disk.path(), words).with(|command| command.stdout(Stdio::from(writer))).start();
    let all_but_the_first = || (fs::read_dir(ended.path()).unwrap().count() == 32).then_some(());
    assert!(poll(LIMIT, all_but_the_first).is_some());
    std::io::copy(&mut reader, &mut std::io::sink()).unwrap();
    job.wait().failed_with(122, &["--keep-order: output cannot be held back"]);
}

/// What a rank prints stays in its place, whichever try prints it.
#[test]
fn tries_of_a_rank_are_heard_before_the_ranks_behind_it() {
    let bench = Bench::new("tries-in-order", &["0", "1"]);
    bench.write("do-1", "echo one >&2; : > $there/has-1");
    bench.write(
        "do-0",
        "[ -e $there/tried ] || { : > $there/tried; echo first >&2; exit 1; }
         until [ -e $there/has-1 ]; do sleep 0.01; done; sleep 0.2; echo second >&2",
    );
    let (list, out) = (bench.at("list").display().to_string(), bench.at("out/{}").display().to_string());
    let program = bench.at("program").display().to_string();
    let options = ["--parts", &list, "-j", "2", "--keep-order", "--retry", "1", "--output-files", &out];
    let outcome = bdrun_args(options.into_iter().chain(["--", &program, "{}"])).succeed();
    let ranks: Vec<_> = outcome.stderr.lines().filter(|line| !line.contains("bdrun")).collect();
    assert_eq!(ranks, ["first", "second", "one"], "{outcome:?}");
}
