//! Jobs that go on where they stopped, and what is written down of them.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::{Directory, LIMIT, Outcome, bdrun_args, first_of, poll, program, skipped};

/// A folder with a list of parts, and a program that says in `ran` that it runs, does what `$there/do-PART`
/// says, if there is one, and prints a result.
pub(crate) struct Bench {
    dir: Directory,
    list: String,
    program: String,
}

impl Bench {
    pub(crate) fn new(name: &str, parts: &[&str]) -> Self {
        let dir = Directory::new(name);
        let at = |name: &str| dir.path().join(name).display().to_string();
        fs::create_dir(at("out")).unwrap();
        fs::write(at("list"), parts.join("\n")).unwrap();
        let script = "#!/bin/bash
            there=${0%/*}
            echo \"$1\" >> $there/ran
            [ ! -e $there/do-$1 ] || . $there/do-$1
            echo \"result of $1\"\n";
        let program = dir.script("program", script).display().to_string();
        Self { list: at("list"), program, dir }
    }

    pub(crate) fn at(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        fs::write(self.at(name), text).unwrap();
    }

    pub(crate) fn read(&self, name: &str) -> String {
        fs::read_to_string(self.at(name)).unwrap_or_default()
    }

    /// `option` names the journal.
    fn args(&self, option: &str, more: &[&str]) -> Vec<String> {
        let path = |name: &str| self.at(name).display().to_string();
        let files = path("out/{}");
        let mut args = vec![
            option.into(),
            path("journal"),
            "--parts".into(),
            self.list.clone(),
            "--output-files".into(),
            files,
        ];
        args.extend(more.iter().map(|&arg| arg.to_owned()));
        args.extend(["--".into(), self.program.clone(), "{}".into()]);
        args
    }

    pub(crate) fn run(&self, option: &str, more: &[&str]) -> Outcome {
        bdrun_args(self.args(option, more)).run()
    }

    /// How often each part was run, in order of their names.
    pub(crate) fn ran(&self) -> Vec<(String, usize)> {
        let text = self.read("ran");
        let mut parts: Vec<&str> = text.lines().collect();
        parts.sort_unstable();
        parts.chunk_by(|a, b| a == b).map(|same| (same[0].to_owned(), same.len())).collect()
    }

    pub(crate) fn files(&self) -> Vec<String> {
        let entries = fs::read_dir(self.at("out")).unwrap().flatten();
        let mut names: Vec<_> = entries.map(|entry| entry.file_name().into_string().unwrap()).collect();
        names.sort_unstable();
        names
    }

    pub(crate) fn has_all(&self, parts: &[&str]) {
        assert_eq!(self.files(), parts);
        for part in parts {
            assert_eq!(self.read(&format!("out/{part}")), format!("result of {part}\n"));
        }
    }
}

fn counts(parts: &[(&str, usize)]) -> Vec<(String, usize)> {
    parts.iter().map(|&(part, count)| (part.to_owned(), count)).collect()
}

#[test]
fn what_is_done_is_not_run_again() {
    let bench = Bench::new("resume", &["a", "b", "c"]);
    // The others are done before it fails, or they would be stopped.
    bench.write(
        "do-b",
        "until [ -e $there/out/a -a -e $there/out/c ]; do sleep 0.01; done; sleep 0.5; exit 7",
    );
    let first = bench.run("--journal", &["--processors", "3"]);
    first.failed_with(7, &["b (line 2, rank 1) failed with exit code 7"]);
    let left = "of 3 ranks 2 ended well, 1 failed; to go on: ";
    let line = first.stderr.lines().find_map(|line| line.split_once(left)).expect("what is left").1;
    assert!(line.contains(" --resume ") && line.contains("--parts") && !line.contains("--journal"), "{line}");
    assert_eq!(bench.files(), ["a", "b.unfinished", "c"]);

    // A new journal must be new.
    bench.run("--journal", &[]).failed_with(120, &["--resume", "goes on with it"]);
    // A dry run shows what is left, and runs nothing.
    let shown = bench.run("--resume", &["--dry-run"]);
    assert_eq!(shown.code, Some(0), "{shown:?}");
    assert!(shown.stdout.contains("# rank 1") && shown.stdout.lines().count() == 1, "{shown:?}");

    fs::remove_file(bench.at("do-b")).unwrap();
    let second = bench.run("--resume", &[]);
    assert_eq!(second.code, Some(0), "{second:?}");
    assert!(second.stderr.contains("2 of 3 ranks were done before"), "{second:?}");
    let ranks = &first.stats().ranks;
    let failed = ranks[1].process.expect("it ran");
    assert_eq!((failed.exit_code, failed.signal), (7, 0));
    assert!(failed.end - failed.start > 0.5 && failed.start > 1.7e9, "{failed:?}");
    assert_eq!((ranks[1].part.as_deref(), ranks[1].argv.last().map(String::as_str)), (Some("b"), Some("b")));
    let status: Vec<_> = second.stats().ranks.iter().map(|rank| rank.status.as_str()).collect();
    assert_eq!(status, ["earlier", "ok", "earlier"]);
    bench.has_all(&["a", "b", "c"]);
    assert_eq!(bench.ran(), counts(&[("a", 1), ("b", 2), ("c", 1)]));

    // All is done; then there is more to do, in front of the rest; then one output is gone.
    assert_eq!(bench.run("--resume", &[]).code, Some(0));
    bench.write("list", "d\na\nb\nc\n");
    assert_eq!(bench.run("--resume", &[]).code, Some(0));
    fs::remove_file(bench.at("out/c")).unwrap();
    assert_eq!(bench.run("--resume", &[]).code, Some(0));
    bench.has_all(&["a", "b", "c", "d"]);
    assert_eq!(bench.ran(), counts(&[("a", 1), ("b", 2), ("c", 2), ("d", 1)]));
}

/// Killed at any moment, also while the journal is written, by whatever was started then.
#[test]
fn killed_again_and_again_it_comes_to_its_end() {
    let parts: Vec<String> = (0..40).map(|part| format!("part{part}")).collect();
    let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
    let bench = Bench::new("killed", &parts);
    for part in &parts {
        bench.write(&format!("do-{part}"), "sleep 0.05; echo half of it; sleep 0.05");
    }
    let mut finished: Vec<String> = Vec::new();
    // Those whose line was torn run again, beside the output that has its name: whoever has that need not be
    // done.
    let mut torn_parts: Vec<String> = Vec::new();
    for round in 0..12 {
        let mut job = bdrun_args(bench.args("--resume", &["--processors", "4"])).start();
        job.wait_for_ranks(1);
        std::thread::sleep(std::time::Duration::from_millis(60 + 37 * round));
        job.signal(libc::SIGKILL);
        drop(job.wait());
        // What has its name was whole, and is not run again.
        for part in &finished {
            assert_eq!(bench.read(&format!("out/{part}")), format!("half of it\nresult of {part}\n"));
        }
        finished = bench.files().into_iter().filter(|name| !name.ends_with("unfinished")).collect();
        finished.retain(|part| !torn_parts.contains(part));
        bench.write("ran-until-now", &bench.read("ran"));
        // A torn line.
        if round % 3 == 0 {
            let journal = bench.read("journal");
            let torn = journal.trim_end().len().saturating_sub(round as usize % 7);
            if journal.lines().count() > 1 {
                let last = journal.lines().last().unwrap_or_default();
                let is_torn = |part: &String| last.contains(&format!("\"{part}\""));
                torn_parts.extend(finished.extract_if(.., |part| is_torn(part)));
                fs::write(bench.at("journal"), &journal[..torn]).unwrap();
            }
        }
        let before = bench.ran();
        let check = bdrun_args(bench.args("--resume", &["--dry-run"])).succeed();
        assert_eq!(bench.ran(), before);
        for part in &finished {
            assert!(!check.stdout.contains(&format!("/out/{part} ")), "{part} would be run again: {check:?}");
        }
    }
    let last = bench.run("--resume", &[]);
    assert_eq!(last.code, Some(0), "{last:?}");
    assert_eq!(bench.files().len(), parts.len());
    for part in &parts {
        assert_eq!(bench.read(&format!("out/{part}")), format!("half of it\nresult of {part}\n"));
    }
}

/// Killed between the line in the journal and the file's new name.
#[test]
fn an_output_that_was_done_takes_its_name_later() {
    let bench = Bench::new("unnamed", &["a", "b"]);
    assert_eq!(bench.run("--journal", &[]).code, Some(0));
    fs::rename(bench.at("out/b"), bench.at("out/b.unfinished")).unwrap();
    assert_eq!(bench.run("--resume", &[]).code, Some(0));
    bench.has_all(&["a", "b"]);
    assert_eq!(bench.ran(), counts(&[("a", 1), ("b", 1)]));
}

/// Its output was removed, it was run again for that, and that was broken off: what it has written by then is
/// no output, although a line says that it once was done.
#[test]
fn half_an_output_of_a_second_time_is_none() {
    let bench = Bench::new("second-time", &["a", "b"]);
    assert_eq!(bench.run("--journal", &[]).code, Some(0));
    fs::remove_file(bench.at("out/a")).unwrap();
    bench.write("do-a", "echo half; : > $there/runs; sleep 1000");
    let job = bdrun_args(bench.args("--resume", &[])).start();
    assert!(poll(LIMIT, || bench.at("runs").exists().then_some(())).is_some());
    job.signal(libc::SIGKILL);
    drop(job.wait());
    assert_eq!(bench.read("out/a.unfinished"), "half\n");
    let shown = bench.run("--resume", &["--dry-run"]);
    assert!(shown.stdout.contains("# rank 0") && !shown.stdout.contains("# rank 1"), "{shown:?}");
    fs::remove_file(bench.at("do-a")).unwrap();
    assert_eq!(bench.run("--resume", &[]).code, Some(0));
    bench.has_all(&["a", "b"]);
    assert_eq!(bench.ran(), counts(&[("a", 3), ("b", 1)]));
    // From then on it is done again.
    assert_eq!(bench.run("--resume", &[]).code, Some(0));
    assert_eq!(bench.ran(), counts(&[("a", 3), ("b", 1)]));
}

/// One that is told to end, and says that all is well, is not done.
#[test]
fn who_ends_because_the_job_does_is_not_done() {
    let bench = Bench::new("told", &["a", "b"]);
    bench.write(
        "do-a",
        "trap 'echo stopped early; exit 0' TERM; : > $there/waits; while :; do sleep 0.1; done",
    );
    let job = bdrun_args(bench.args("--journal", &[])).start();
    assert!(poll(LIMIT, || bench.at("waits").exists().then_some(())).is_some());
    assert!(poll(LIMIT, || bench.at("out/b").exists().then_some(())).is_some());
    job.signal(libc::SIGTERM);
    let outcome = job.wait();
    assert_eq!(outcome.code, Some(143), "{outcome:?}");
    assert!(outcome.stderr.contains("of 2 ranks 1 ended well"), "{outcome:?}");
    assert_eq!(bench.files(), ["a.unfinished", "b"]);
    fs::remove_file(bench.at("do-a")).unwrap();
    assert_eq!(bench.run("--resume", &[]).code, Some(0));
    bench.has_all(&["a", "b"]);
}

#[test]
fn another_job_is_refused_with_the_difference() {
    let bench = Bench::new("differs", &["a", "b"]);
    assert_eq!(bench.run("--journal", &[]).code, Some(0));
    let wants = |more: &[&str], words: &[&str]| {
        bench.run("--resume", more).failed_with(118, words);
    };
    wants(&["--env", "A=1"], &["--env A was nothing, and is \"1\"", "name another journal"]);
    let other = |name: &str| bench.at(name).display().to_string();
    wants(&["--error-files", &other("{}.err")], &["--error-files was nothing"]);
    // Not ours at all; nothing of it is touched.
    bench.write("journal", "somebody's text\n");
    bench.run("--resume", &[]).failed_with(120, &["is no journal of bdrun's"]);
    bench.run("--journal", &[]).failed_with(120, &["is no journal of bdrun's"]);
    assert_eq!(bench.read("journal"), "somebody's text\n");
    assert_eq!(bench.ran(), counts(&[("a", 1), ("b", 1)]));
    // Ranks that talk to one another.
    let journal = other("new");
    bdrun_args(["-np", "2", "--journal", &journal, "sweep", "1M", "1"])
        .run()
        .failed_with(118, &["may talk to one another"]);
    assert!(!Path::new(&journal).exists());
    // The same, which is seen only when they run.
    let script = bench.dir.script("around", &format!("#!/bin/sh\n{} 1M 1\n", program("sweep").display()));
    let script = script.display().to_string();
    for option in [&["--journal", &*journal][..], &["--halt", "soon,fail=1"], &["--rank-timeout", "1h"]] {
        let outcome = bdrun_args(["-np", "2"].iter().chain(option).chain(&[&*script])).run();
        outcome.failed_with(118, &["may talk to one another", option[0]]);
    }
    bdrun_args(["-np", "2", &script]).succeed();
}

#[test]
fn one_at_a_time_has_a_journal() {
    let bench = Bench::new("locked", &["a"]);
    bench.write("do-a", ": > $there/runs; until [ -e $there/go ]; do sleep 0.01; done");
    let job = bdrun_args(bench.args("--journal", &[])).start();
    assert!(poll(LIMIT, || bench.at("runs").exists().then_some(())).is_some());
    let first = format!("is in use: process {} (bdrun) has it", job.pid());
    bench.run("--resume", &[]).failed_with(120, &["--resume: ", "journal", &first]);
    bench.write("go", "");
    assert_eq!(job.wait().code, Some(0));
    bench.has_all(&["a"]);
}

/// Neither what is being written nor what has been, before anything starts where it is known then.
#[test]
fn what_a_living_job_writes_is_not_written_by_another() {
    let bench = Bench::new("same-outputs", &["a", "b"]);
    bench.write("do-b", "echo begun; : > $there/runs; until [ -e $there/go ]; do sleep 0.01; done");
    let path = |name: &str| bench.at(name).display().to_string();
    let (files, log, other) = (path("out/{}"), path("log"), path("other"));
    let writing = |list: &str, more: &[&str]| {
        let args = ["--parts", list, "-j", "1", "--output-files", &files];
        bdrun_args(args.iter().chain(more).chain(&["--", &*bench.program, "{}"]))
    };
    let job = writing(&bench.list, &["--joblog", &log]).start();
    assert!(poll(LIMIT, || bench.at("runs").exists().then_some(())).is_some());
    let has_it = format!("is in use: process {} (bdrun) has it: wait until that has ended", job.pid());
    for more in [&[][..], &["--resume", &other]] {
        writing(&bench.list, more).run().failed_with(120, &["out/b, which a rank is to write, ", &has_it]);
    }
    bdrun_args(["--joblog", &*log, "true"]).run().failed_with(120, &["--joblog: ", &has_it]);
    assert_eq!(bench.ran(), counts(&[("a", 1), ("b", 1)]));

    // A list that goes on while the job runs.
    let (list, mut more) = std::io::pipe().unwrap();
    let second = writing("-", &[]).with(|command| command.stdin(list)).start();
    writeln!(more, "c").unwrap();
    assert!(poll(LIMIT, || (bench.read("out/c") == "result of c\n").then_some(())).is_some());
    writeln!(more, "b").unwrap();
    drop(more);
    let said = "cannot be started: cannot write";
    second.wait().failed_with(120, &[said, "out/b as its standard output", &has_it]);

    bench.write("go", "");
    assert_eq!(job.wait().code, Some(0));
    assert_eq!(bench.read("out/b"), "begun\nresult of b\n");
    assert_eq!(bench.read("log").lines().count(), 3, "{}", bench.read("log"));
    assert_eq!(bench.ran(), counts(&[("a", 1), ("b", 1), ("c", 1)]));
}

/// Some process of a job that was killed may not have ended yet, and have its output open.
#[test]
fn what_is_left_of_an_earlier_try_writes_to_a_file_of_its_own() {
    let bench = Bench::new("earlier", &["a"]);
    let mut left = fs::File::create(bench.at("out/a.unfinished")).unwrap();
    assert_eq!(bench.run("--resume", &[]).code, Some(0));
    left.write_all(b"too late\n").unwrap();
    bench.has_all(&["a"]);
}

#[test]
fn without_parts_ranks_are_known_by_their_numbers() {
    let dir = Directory::new("numbers");
    let journal = dir.path().join("journal").display().to_string();
    let script = format!("echo $0 >> {0}/ran; [ $0 != 1 ] || [ -e {0}/well ]", dir.path().display());
    let args = |option: &'static str| {
        [option, &journal, "-np", "3", "--keep-going", "--keep-order", "sh", "-c", &script, "{rank}"]
            .map(str::to_owned)
    };
    assert_eq!(bdrun_args(args("--journal")).run().code, Some(1));
    fs::write(dir.path().join("well"), "").unwrap();
    bdrun_args(args("--resume")).succeed();
    let mut ran: Vec<String> =
        fs::read_to_string(dir.path().join("ran")).unwrap().lines().map(str::to_owned).collect();
    ran.sort_unstable();
    assert_eq!(ran, ["0", "1", "1", "2"]);
}

#[test]
fn a_disk_that_is_full_ends_the_job_and_nothing_is_taken_for_done() {
    let bench = Bench::new("journal-full", &["a", "b"]);
    let full = bdrun_args(["-np", "2", "--joblog", "/dev/full", "sh", "-c", "exit 0"]).run();
    full.failed_with(120, &["--joblog: /dev/full cannot be used: No space left on device"]);
    // The output of one that ended well has gone by the time it is to be made durable.
    bench.write("do-a", "rm $there/out/a.unfinished");
    let outcome = bench.run("--journal", &["--processors", "1"]);
    outcome.failed_with(120, &["a.unfinished, cannot be written: No such file"]);
    fs::remove_file(bench.at("do-a")).unwrap();
    assert_eq!(bench.run("--resume", &[]).code, Some(0));
    bench.has_all(&["a", "b"]);
}

#[test]
fn the_job_log_has_parallels_columns() {
    let bench = Bench::new("joblog", &["a", "b", "c d"]);
    bench.write("do-b", "kill -KILL $$");
    let log = bench.at("log").display().to_string();
    let failed = bench.run("--journal", &["--joblog", &log, "--keep-going"]);
    assert_eq!(failed.code, Some(137), "{failed:?}");
    let text = bench.read("log");
    let mut lines: Vec<Vec<&str>> = text.lines().map(|line| line.split('\t').collect()).collect();
    let header =
        ["Seq", "Host", "Starttime", "JobRuntime", "Send", "Receive", "Exitval", "Signal", "Command"];
    assert_eq!(lines.remove(0), header);
    lines.sort_unstable();
    let ends: Vec<_> = lines.iter().map(|line| (line[0], line[6], line[7])).collect();
    assert_eq!(ends, [("1", "0", "0"), ("2", "0", "9"), ("3", "0", "0")]);
    assert!(lines[2][8].ends_with(" 'c d'"), "{lines:?}");
    let number = |text: &str| text.trim().parse::<f64>().unwrap();
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs_f64();
    assert!((now - number(lines[0][2])).abs() < 3600.0 && number(lines[0][3]) > 0.0, "{lines:?}");
    // It goes on, too.
    fs::remove_file(bench.at("do-b")).unwrap();
    assert_eq!(bench.run("--resume", &["--joblog", &log]).code, Some(0));
    assert_eq!(bench.read("log").lines().count(), 5);
    // GNU parallel reads it, and finds nothing to do.
    let mut parallel = Command::new("parallel");
    parallel.args(["--will-cite", "--resume", "--joblog", &log, "echo", "{}", ":::", "a", "b", "c d"]);
    match parallel.env("HOME", bench.dir.path()).output() {
        Ok(output) => assert!(output.status.success() && output.stdout.is_empty(), "{output:?}"),
        Err(_) => skipped("parallel", "there is no GNU parallel"),
    }
    bench.write("log-of-another", "old\n");
    let other = bench.at("log-of-another").display().to_string();
    bdrun_args(["--joblog", &other, "true"]).succeed();
    assert!(
        bench.read("log-of-another").starts_with("Seq\t") && !bench.read("log-of-another").contains("old")
    );
}

/// What it says of itself, 0, would pass for done.
#[test]
fn who_was_told_to_end_is_not_done_in_the_job_log() {
    let dir = Directory::new("joblog-stopped");
    let log = dir.path().join("log").display().to_string();
    let script = "trap 'exit 0' TERM; while :; do sleep 0.01; done";
    first_of(["0.3", "5", "50"], |limit| {
        let options = ["--keep-going", "--rank-timeout", limit, "--joblog", &log];
        let words = ["sh", "-c", script, "sh", "{}", ":::", "a", "b"];
        let outcome = bdrun_args(options.iter().chain(&words)).run();
        outcome.failed_with(117, &["--rank-timeout"]);
        let text = fs::read_to_string(&log).unwrap();
        let ends: Vec<_> =
            text.lines().skip(1).map(|line| line.split('\t').skip(6).take(2).collect::<Vec<_>>()).collect();
        // One that takes too long to hear of it is killed.
        let right = |end: &Vec<&str>| *end == ["-1", "0"] || *end == ["0", "9"];
        // Before it can hear of it the signal ends it.
        let early = |end: &Vec<&str>| *end == ["0", "15"];
        assert!(ends.len() == 2 && ends.iter().all(|end| right(end) || early(end)), "{text}");
        ends.iter().all(right).then_some(()).ok_or(text)
    });
}

#[test]
fn who_fails_is_run_again_as_often_as_was_asked() {
    let bench = Bench::new("retry", &["a", "b"]);
    // The third time it is well.
    bench.write("do-a", "echo half; [ $(grep -c a $there/ran) = 3 ] || exit 5; exec > $there/out/a");
    let output = bench.at("out/{}").display().to_string();
    let run = |retry: &str| {
        let (list, program) = (&*bench.list, &*bench.program);
        bdrun_args(["--retry", retry, "--parts", list, "--output-files", &output, "--", program, "{}"]).run()
    };
    run("1")
        .failed_with(5, &["a (line 1, rank 0) failed with exit code 5: it is run again (0 tries are left"]);
    assert_eq!(bench.ran().first(), Some(&("a".to_owned(), 2)));
    fs::remove_file(bench.at("ran")).unwrap();
    let outcome = run("2");
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    assert_eq!(bench.ran(), counts(&[("a", 3), ("b", 1)]));
    bench.has_all(&["a", "b"]);
    let nothing = bdrun_args(["--retry", "1", "-np", "2", "false"]).run();
    nothing.failed_with(118, &["--output-files"]);
    // Of those that talk to one another none is run again.
    let files = bench.at("out/{rank}").display().to_string();
    bdrun_args(["-np", "2", "--retry", "1", "--output-files", &files, "sweep", "1M", "1"])
        .run()
        .failed_with(118, &["--retry is for independent ranks"]);
}

/// Those that tell what they do are all begun at once, but for those that were done.
#[test]
fn what_is_done_is_not_run_again_with_a_library_in_front() {
    crate::common::libraries::libraries();
    let dir = Directory::new("journal-preload");
    let at = |name: &str| dir.path().join(name).display().to_string();
    fs::write(at("list"), "a\nb\nc\n").unwrap();
    let script = format!("echo $0 >>{}; [ $0 != c ] || [ -e {} ]", at("ran"), at("second"));
    let run = || {
        let (list, journal) = (at("list"), at("journal"));
        let args = ["--preload", "always", "--keep-going", "--resume", &journal, "--parts", &list, "--"];
        bdrun_args(args.into_iter().chain(["sh", "-c", &script, "{}"])).run()
    };
    assert_eq!(run().code, Some(1));
    fs::write(at("second"), "").unwrap();
    let second = run();
    assert_eq!(second.code, Some(0), "{second:?}");
    let ran = fs::read_to_string(at("ran")).unwrap();
    let mut ran: Vec<&str> = ran.lines().collect();
    ran.sort_unstable();
    assert_eq!(ran, ["a", "b", "c", "c"], "{second:?}");
}
