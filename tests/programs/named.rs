//! What lies under the name of an output: with a journal the whole result of the rank whose it is, and
//! nothing else, whatever was there, and whatever else has written the same name.

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::FileTypeExt;

use crate::common::{Directory, LIMIT, Outcome, bdrun_args, limited};
use crate::journal::Bench;

/// A job of one part, whose output is named by its first word alone.
struct OneName(Directory);

impl OneName {
    fn new(name: &str) -> Self {
        let dir = Directory::new(name);
        dir.script("program", "#!/bin/sh\necho \"$1 $2\"\n[ ! -e ${0%/*}/fails ] || exit 3\n");
        Self(dir)
    }

    fn run(&self, journal: &str, part: &str) -> Outcome {
        let at = |name: &str| self.0.path().join(name).display().to_string();
        fs::write(at("list"), part).unwrap();
        let (list, out, journal, program) = (at("list"), at("{1}"), at(journal), at("program"));
        let options = ["--resume", &journal, "--parts", &list, "--colsep", " ", "--output-files", &out];
        bdrun_args(options.into_iter().chain(["--", &program, "{1}", "{2}"])).run()
    }

    fn runs(&self, journal: &str, part: &str) {
        let outcome = self.run(journal, part);
        assert_eq!(outcome.code, Some(0), "{outcome:?}");
        self.has(part);
    }

    fn has(&self, part: &str) {
        assert_eq!(fs::read_to_string(self.0.path().join("a")).unwrap(), format!("{part}\n"));
    }
}

/// What failed, and lies aside, takes nobody else's name.
#[test]
fn half_a_result_of_another_is_none() {
    let job = OneName::new("half-of-another");
    job.runs("j", "a 1");
    fs::write(job.0.path().join("fails"), "").unwrap();
    job.run("j", "a 2").failed_with(3, &[]);
    assert!(job.0.path().join("a.unfinished").exists());
    job.runs("j", "a 1");
    // Nor if it is of another job.
    job.run("of another", "a 3").failed_with(3, &[]);
    job.runs("j", "a 1");
}

/// The last that wrote the file has it: whoever wrote it before is run again.
#[test]
fn what_another_has_written_since_is_not_taken_for_done() {
    let job = OneName::new("of-another");
    for part in ["a 1", "a 2", "a 1", "a 1"] {
        job.runs("j", part);
    }
    // What is changed by others is theirs, and it is said.
    fs::write(job.0.path().join("a"), "changed\n").unwrap();
    let outcome = job.run("j", "a 1");
    assert!(outcome.stderr.contains("was changed after its rank had written it"), "{outcome:?}");
    assert_eq!(
        (outcome.code, fs::read_to_string(job.0.path().join("a")).unwrap()),
        (Some(0), "changed\n".into())
    );
}

#[test]
fn a_file_that_was_replaced_while_it_was_written_takes_no_name() {
    let bench = Bench::new("replaced", &["a"]);
    bench.write("do-a", "rm $there/out/a.unfinished; echo of nobody > $there/out/a.unfinished");
    let outcome = bench.run("--journal", &[]);
    outcome.failed_with(120, &["a.unfinished", "not the file that the rank wrote"]);
    assert_eq!(bench.files(), ["a.unfinished"]);
    fs::remove_file(bench.at("do-a")).unwrap();
    assert_eq!(bench.run("--resume", &[]).code, Some(0));
    bench.has_all(&["a"]);
}

/// A pipe is written to, and what is behind a link is replaced, not the link.
#[test]
fn what_is_no_file_of_its_own_stays_what_it_is() {
    let bench = Bench::new("no-file", &["a", "b", "c"]);
    let at = |name: &str| bench.at(&format!("out/{name}"));
    nix::unistd::mkfifo(&at("a"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    std::os::unix::fs::symlink(bench.at("behind b"), at("b")).unwrap();
    fs::write(bench.at("behind b"), "old").unwrap();
    std::os::unix::fs::symlink("../behind c", at("c")).unwrap();
    let pipe = at("a");
    // To open a pipe that nobody reads yet is an error; and with this it is not at its end before that.
    let held = File::options().read(true).write(true).open(&pipe).unwrap();
    let mut ours = File::open(pipe).unwrap();
    let reader = std::thread::spawn(move || {
        let mut text = String::new();
        ours.read_to_string(&mut text).map(|_| text)
    });
    let outcome = bench.run("--journal", &["-j", "1"]);
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    drop(held);
    assert_eq!(reader.join().unwrap().unwrap(), "result of a\n");
    assert!(fs::symlink_metadata(at("a")).unwrap().file_type().is_fifo());
    for name in ["b", "c"] {
        assert!(fs::symlink_metadata(at(name)).unwrap().is_symlink());
        assert_eq!(bench.read(&format!("behind {name}")), format!("result of {name}\n"));
    }
    assert_eq!(bench.files(), ["a", "b", "c"]);
    assert_eq!(bench.run("--resume", &[]).code, Some(0));
    assert_eq!(bench.ran().iter().map(|(_, times)| times).sum::<usize>(), 3);
}

/// What was there before, and would have been replaced.
#[test]
fn what_is_older_than_the_result_is_not_taken_for_it() {
    let bench = Bench::new("older", &["a"]);
    assert_eq!(bench.run("--journal", &[]).code, Some(0));
    let out = File::create(bench.at("out/a")).unwrap();
    out.set_modified(std::time::UNIX_EPOCH).unwrap();
    let outcome = bench.run("--resume", &[]);
    assert!(!outcome.stderr.contains("was changed"), "{outcome:?}");
    bench.has_all(&["a"]);
    assert_eq!(bench.ran()[0].1, 2);
}

/// A link to nothing is one to a file later: it is the same file.
#[test]
fn what_another_has_written_through_the_same_link_is_not_taken_for_done() {
    let job = OneName::new("through-link");
    fs::create_dir(job.0.path().join("sub")).unwrap();
    std::os::unix::fs::symlink("sub/../it", job.0.path().join("a")).unwrap();
    for part in ["a 1", "a 2", "a 1"] {
        job.runs("j", part);
    }
}

#[test]
fn two_links_to_one_file_are_one_file() {
    let bench = Bench::new("two-links", &["a", "b"]);
    for name in ["a", "b"] {
        std::os::unix::fs::symlink("../both", bench.at("out").join(name)).unwrap();
    }
    for _ in 0..2 {
        bench.run("--journal", &[]).failed_with(118, &["ranks 0 and 1 would both write"]);
        bench.write("both", "");
    }
}

#[test]
fn one_file_for_both_streams_has_all_of_both_however_it_is_spelled() {
    let dir = Directory::new("spelled");
    for journal in [&[][..], &["--journal", "j"]] {
        let files = ["--output-files", "o{rank}", "--error-files", "./o{rank}"];
        let words = ["-np", "1"].into_iter().chain(files).chain(journal.iter().copied());
        let words = words.chain(["--", "sh", "-c", "echo out; echo err >&2; echo out"]);
        bdrun_args(words).with(|command| command.current_dir(dir.path())).succeed();
        assert_eq!(fs::read_to_string(dir.path().join("o0")).unwrap(), "out\nerr\nout\n");
    }
}

#[test]
fn a_journal_is_no_job_log() {
    let bench = Bench::new("no-log", &["a"]);
    let path = bench.at("journal").display().to_string();
    assert_eq!(bench.run("--journal", &[]).code, Some(0));
    let before = bench.read("journal");
    std::os::unix::fs::symlink(&path, bench.at("same")).unwrap();
    let same = bench.at("same").display().to_string();
    for log in [&path, &same] {
        bench.run("--resume", &["--joblog", log]).failed_with(118, &["is the job's journal"]);
        assert_eq!(bench.read("journal"), before);
    }
}

/// A limit of the shell's is an error that is told, and no end without a word.
#[test]
fn a_limit_of_file_sizes_is_named() {
    let program = crate::common::program("bdrun").display().to_string();
    let mut shell = std::process::Command::new("sh");
    shell.args(["-c", "ulimit -f 1000; exec \"$0\" -np 1 true", &program]);
    let output = limited(&mut shell, LIMIT);
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(120) && text.contains("ulimit -f"), "{output:?}");
}
