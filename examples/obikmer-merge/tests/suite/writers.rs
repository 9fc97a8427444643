//! Several jobs and one index: nothing is lost, whoever comes first, and nothing is left of those that were
//! killed.

use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use obikmer_merge::MergeOptions;

fn command(dir: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_obikmer-merge"));
    command.current_dir(dir).args(arguments);
    command
}

fn run(dir: &Path, arguments: &[&str]) -> Output {
    command(dir, arguments).output().expect("started")
}

fn succeed(dir: &Path, arguments: &[&str]) {
    let out = run(dir, arguments);
    assert!(out.status.success(), "{}", text(&out.stderr));
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn sources(dir: &Path) -> Vec<String> {
    let text = std::fs::read(dir.join("ix/index.json")).expect("an index");
    let meta: serde_json::Value = serde_json::from_slice(&text).expect("JSON");
    serde_json::from_value(meta["sources"].clone()).expect("names")
}

fn beside(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).expect("listed");
    let names = entries.map(|e| e.expect("an entry").file_name().to_string_lossy().into_owned());
    let mut names: Vec<String> = names.filter(|name| name.starts_with("ix")).collect();
    names.sort();
    names
}

/// `base.fa`, `a.fa`, `b.fa`; and a pipe `slow.fa`: a job that reads it has its claim and goes on when the
/// test says so.
fn prepared() -> tempfile::TempDir {
    let dir = tempfile::tempdir().expect("a directory");
    for (name, sequence) in [
        ("base.fa", "ACGTTGCATGTCGCATGATGCATGAGAGCTACGTTGCATGTCGCATGATG"),
        ("a.fa", "TTGCAGGACCATTACGGATCAACGTAGGATTTACAGCACATTAGACCAGATTA"),
        ("b.fa", "GGATCCTTAGACCAATGACGATAGCAGGGACTTTACAGCAACGGACAATTTAC"),
    ] {
        std::fs::write(dir.path().join(name), format!(">r\n{sequence}\n")).expect("written");
    }
    let made = Command::new("mkfifo").arg(dir.path().join("slow.fa")).status().expect("mkfifo");
    assert!(made.success());
    dir
}

/// A job that reads `slow.fa`, and what it waits for: it has its claim when this returns.
fn slow(dir: &Path, arguments: &[&str]) -> (Child, std::fs::File) {
    let mut command = command(dir, &[arguments, &["slow.fa"]].concat());
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("started");
    // Opening a pipe fails while nobody reads it.
    let flags = rustix::fs::OFlags::NONBLOCK.bits() as i32;
    let mut pipe = loop {
        match std::fs::OpenOptions::new().write(true).custom_flags(flags).open(dir.join("slow.fa")) {
            Ok(pipe) => break pipe,
            Err(_) if matches!(child.try_wait(), Ok(None)) => std::thread::sleep(Duration::from_millis(5)),
            Err(error) => panic!("the job does not read its pipe: {error}"),
        }
    };
    pipe.write_all(b">s\nTTTGGCATCAGACTTA").expect("read");
    (child, pipe)
}

/// What becomes of it when all of `slow.fa` has come.
fn end(child: Child, mut pipe: std::fs::File) -> Output {
    pipe.write_all(b"CAGGATTACAGGCATTAGGACCCATTAACA\n").expect("read");
    drop(pipe);
    child.wait_with_output().expect("ended")
}

fn go_on(child: Child, pipe: std::fs::File) {
    let out = end(child, pipe);
    assert!(out.status.success(), "{}", text(&out.stderr));
}

/// A script in this folder, which succeeds.
fn shell(dir: &Path, script: &str) {
    let done = Command::new("bash").current_dir(dir).args(["-euc", script]).output().expect("bash");
    assert!(done.status.success(), "{script}: {}", text(&done.stderr));
}

#[test]
fn a_second_writer_fails_at_once_and_nothing_is_lost() {
    let dir = prepared();
    let dir = dir.path();
    let first = slow(dir, &["-k", "21", "--out", "ix"]);
    for more in [&["base.fa"][..], &["--force", "base.fa"], &["--add", "base.fa"]] {
        let second = run(dir, &[&["-k", "21", "--out", "ix"], more].concat());
        let said = text(&second.stderr);
        assert_eq!(second.status.code(), Some(1), "{said}");
        assert!(said.contains("ix: another job") && said.contains("ix.lock"), "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
    }
    succeed(dir, &["-k", "21", "--out", "ix2", "b.fa"]);
    go_on(first.0, first.1);
    assert_eq!(sources(dir), ["slow.fa"]);

    succeed(dir, &["-k", "21", "--force", "--out", "ix", "base.fa"]);
    let first = slow(dir, &["--add", "--out", "ix"]);
    let second = run(dir, &["--add", "--out", "ix", "b.fa"]);
    assert!(!second.status.success() && text(&second.stderr).contains("another job"));
    go_on(first.0, first.1);
    succeed(dir, &["--add", "--out", "ix", "b.fa"]);
    assert_eq!(sources(dir), ["base.fa", "slow.fa", "b.fa"]);
    assert_eq!(beside(dir), ["ix", "ix2"]);
}

/// Two that begin at the same moment: both are in the index, or one says that it is not.
#[test]
fn of_two_at_the_same_moment_none_is_lost_silently() {
    let dir = prepared();
    let dir = dir.path();
    for round in 0..10 {
        succeed(dir, &["-k", "21", "--force", "--out", "ix", "base.fa"]);
        let children: Vec<(&str, Child)> = ["a.fa", "b.fa"]
            .into_iter()
            .map(|name| {
                let mut command = command(dir, &["--add", "--out", "ix", name]);
                (name, command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("started"))
            })
            .collect();
        let mut expected = vec!["base.fa".to_string()];
        for (name, child) in children {
            let out = child.wait_with_output().expect("ended");
            if out.status.success() {
                expected.push(name.into());
            } else {
                assert!(text(&out.stderr).contains("another job"), "{}", text(&out.stderr));
            }
        }
        assert!(expected.len() > 1, "round {round}: both failed");
        let mut found = sources(dir);
        found.sort();
        expected.sort();
        assert_eq!(found, expected, "round {round}");
        assert_eq!(beside(dir), ["ix"], "round {round}");
    }
}

/// A killed job's lock and directory do not keep the next one off, which removes them; what only looks like
/// them stays.
#[test]
fn what_a_killed_job_left_is_removed() {
    let dir = prepared();
    let dir = dir.path();
    succeed(dir, &["-k", "21", "--out", "ix", "base.fa"]);
    for name in ["ix.old-20251231", "ix.partial-mine"] {
        std::fs::create_dir(dir.join(name)).expect("made");
    }
    let (mut child, pipe) = slow(dir, &["--add", "--out", "ix"]);
    child.kill().expect("killed");
    child.wait().expect("ended");
    drop(pipe);
    assert_eq!(beside(dir).len(), 5, "{:?}", beside(dir));
    succeed(dir, &["--add", "--out", "ix", "a.fa"]);
    assert_eq!(sources(dir), ["base.fa", "a.fa"]);
    assert_eq!(beside(dir), ["ix", "ix.old-20251231", "ix.partial-mine"]);
}

/// Whatever lies under the index's name when the job is done, and did not when it began, stays; and so does
/// what somebody has put into the index.
#[test]
fn what_came_meanwhile_stays() {
    for (there, options, comes, left) in [
        ("", "", "mkdir ix; echo x > ix/thesis", "ix/thesis"),
        ("", "--force", "mkdir ix; echo x > ix/thesis", "ix/thesis"),
        ("", "", "mkdir ix", "ix"),
        ("", "", "echo x > ix", "ix"),
        ("", "--force", "cp -r other ix", "ix/index.json"),
        ("mkdir ix", "--force", "echo x > ix/thesis", "ix/thesis"),
        ("mkdir ix", "--force", "cp other/index.json ix/", "ix/index.json"),
        ("cp -r other ix", "--force", "mv ix kept; mkdir ix; echo x > ix/thesis", "ix/thesis"),
        ("cp -r other ix", "--force", "mv ix kept; echo x > ix", "ix"),
        ("cp -r other ix", "--force", "mv ix kept; cp -r other ix", "ix/index.json"),
        ("cp -r other ix", "--add", "cp third/* -r ix/", "ix/index.json"),
        ("cp -r other ix", "--force", "echo x > ix/thesis", "ix/thesis"),
        ("cp -r other ix", "--add", "echo x > ix/layer-000/thesis", "ix/layer-000/thesis"),
        ("cp -r other ix", "--add", "mkdir ix/thesis", "ix/thesis"),
    ] {
        let dir = prepared();
        let dir = dir.path();
        succeed(dir, &["-k", "21", "--out", "other", "base.fa"]);
        succeed(dir, &["-k", "21", "--out", "third", "a.fa"]);
        shell(dir, there);
        let arguments: Vec<&str> = ["--out", "ix"].into_iter().chain(options.split_whitespace()).collect();
        let arguments = if options == "--add" { arguments } else { [&["-k", "21"], &arguments[..]].concat() };
        let job = slow(dir, &arguments);
        shell(dir, comes);
        let list = || {
            let script = "find ix | xargs ls -di; cksum $(find ix -type f)";
            text(&Command::new("bash").current_dir(dir).args(["-c", script]).output().expect("bash").stdout)
        };
        let before = list();
        let out = end(job.0, job.1);
        let said = text(&out.stderr);
        assert_eq!(out.status.code(), Some(1), "{there}, {options}, {comes}: {said}");
        assert!(said.contains("/ix") && said.lines().count() == 1, "{there}, {options}, {comes}: {said}");
        assert!(dir.join(left).exists(), "{there}, {options}, {comes}");
        assert_eq!(list(), before, "{there}, {options}, {comes}");
        assert_eq!(beside(dir), ["ix"], "{there}, {options}, {comes}");
    }
}

/// What was to be replaced has gone meanwhile: nothing is lost.
#[test]
fn what_has_gone_meanwhile_is_not_missed() {
    let dir = prepared();
    let dir = dir.path();
    succeed(dir, &["-k", "21", "--out", "ix", "base.fa"]);
    let job = slow(dir, &["-k", "21", "--force", "--out", "ix"]);
    shell(dir, "mv ix kept");
    go_on(job.0, job.1);
    assert_eq!(sources(dir), ["slow.fa"]);
    assert_eq!(beside(dir), ["ix"]);
}

/// A lock's name is removed by its job, and not what somebody else has called so.
#[test]
fn a_lock_of_somebody_else_stays() {
    let dir = prepared();
    let dir = dir.path();
    let job = slow(dir, &["-k", "21", "--out", "ix"]);
    shell(dir, "rm ix.lock; echo mine > ix.lock");
    go_on(job.0, job.1);
    assert_eq!(std::fs::read_to_string(dir.join("ix.lock")).expect("there"), "mine\n");
}

/// Nobody can read meanwhile what nobody could read before.
#[test]
fn a_private_index_is_private_while_it_is_made_anew() {
    use std::os::unix::fs::PermissionsExt;
    let dir = prepared();
    let dir = dir.path();
    succeed(dir, &["-k", "21", "--out", "ix", "base.fa"]);
    for (mode, meanwhile) in [(0o700, 0o700), (0o500, 0o700), (0o750, 0o750)] {
        std::fs::set_permissions(dir.join("ix"), PermissionsExt::from_mode(mode)).expect("changed");
        let job = slow(dir, &["-k", "21", "--force", "--out", "ix"]);
        let partial = beside(dir).into_iter().find(|name| name.contains("partial")).expect("begun");
        let mode_of = |name: &str| {
            let mode = std::fs::metadata(dir.join(name)).expect("there").permissions().mode();
            mode & 0o7777
        };
        assert_eq!(mode_of(&partial), meanwhile);
        go_on(job.0, job.1);
        assert_eq!(mode_of("ix"), mode);
    }
}

/// What is appended to a file, or put in its place, after it was looked at is not passed over.
#[test]
fn a_file_that_is_changed_meanwhile_is_told() {
    for (name, change) in [
        ("a.fa", "cat b.fa >> a.fa"),
        ("a.fa", "cat a.fa b.fa > x; mv x a.fa"),
        ("a.fa", "head -c 20 a.fa > x; mv x a.fa"),
        ("a.fa", "tr ACGT TGCA < a.fa > x; touch -d 2001-01-01 x; mv x a.fa"),
        ("a.fa.gz", "gzip < b.fa >> a.fa.gz"),
        ("a.fq", "cat a.fq a.fq > x; mv x a.fq"),
    ] {
        let dir = prepared();
        let dir = dir.path();
        shell(
            dir,
            "gzip -k a.fa; printf '@r\nACGTTGCATGTCGCATGATGCATGAGAG\n+\nIIIIIIIIIIIIIIIIIIIIIIIIIIII\n' > a.fq",
        );
        let job = slow(dir, &["-k", "21", "--out", "ix", name]);
        shell(dir, change);
        let out = end(job.0, job.1);
        let said = text(&out.stderr);
        assert_eq!(out.status.code(), Some(1), "{change}: {said}");
        assert!(said.contains(name) && said.contains("changed"), "{change}: {said}");
        assert!(beside(dir).is_empty(), "{change}");
    }
}

/// What a rank of another node has written it brings to the disk before the index gets its name, and fails
/// where it cannot. Of rank 0's node that is done by rank 0, all at once.
#[test]
fn ranks_of_other_nodes_sync_their_files() {
    use crate::common::options;
    let dir = prepared();
    let dir = dir.path();
    let (out, input) = (dir.join("ix"), dir.join("base.fa"));
    let merged = |node: u32, lost: bool| {
        bdrun_worker::local::run(3, |comm| {
            let own = u32::from(comm.rank() == 1) * node;
            let options =
                MergeOptions { node: own, force: true, ..options(21, 7, &out, std::slice::from_ref(&input)) };
            let progress = |what: &str, _, _| {
                // Its files of k-mers and sources are written by then.
                if lost && comm.rank() == 1 && what == "join" {
                    let partial =
                        beside(dir).into_iter().find(|name| name.contains("partial")).expect("begun");
                    let _ = std::fs::remove_file(dir.join(partial).join("layer-000/part-00001.kmers"));
                }
            };
            obikmer_merge::merge(&comm, &progress, &options).map_err(|error| error.to_string())
        })
    };
    assert!(merged(1, false).iter().all(Result::is_ok));
    for result in merged(1, true) {
        let error = result.expect_err("not on the disk");
        assert!(error.contains("part-00001.kmers") && error.contains("to the disk"), "{error}");
    }
    assert_eq!(beside(dir), ["ix"]);
    assert!(merged(0, true).iter().all(Result::is_ok), "of one node");
}
