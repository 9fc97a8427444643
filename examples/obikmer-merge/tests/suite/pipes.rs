//! What can be read only once: pipes as sources and as lists, what is given as a descriptor, blank lines
//! before all.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::common::compressed::{gzip, xz, zstd};
use crate::common::{Naive, kmers, merge, merge_all, options};
use obikmer_merge::query::answer::Form;
use obikmer_merge::{MergeOptions, Summary};

const SEQUENCE: &str = "ACGTTGCATGTCGCATGATGCATGAGAGCTACGTTGCATGTCGCATGATG";
const OTHER: &str = "TTGCAGGACCATTACGGATCAACGTAGGATTTACAGCACATTAGACCAGATTA";

fn fasta() -> Vec<u8> {
    format!(">r\n{SEQUENCE}\n>s\n{OTHER}\n").into_bytes()
}

fn fastq() -> Vec<u8> {
    let record = |s: &str| format!("@r\n{s}\n+\n{}\n", "I".repeat(s.len()));
    (record(SEQUENCE) + &record(OTHER)).into_bytes()
}

fn expected(k: usize) -> Vec<String> {
    Naive::new(k, &[vec![SEQUENCE.into(), OTHER.into()]]).kmers.into_keys().collect()
}

/// A new one, also where there was one: while another test starts a program, that has for a moment the end of
/// it that was read last, and is taken for a reader by who writes next.
fn pipe(path: &Path) {
    if path.exists() {
        std::fs::remove_file(path).expect("removed");
    }
    assert!(Command::new("mkfifo").arg(path).status().expect("mkfifo").success());
}

/// Merge what somebody writes into a pipe once.
fn merge_pipe(ranks: usize, options: &MergeOptions, input: &Path, bytes: Vec<u8>) -> Summary {
    pipe(input);
    let to = input.to_path_buf();
    let writer = std::thread::spawn(move || std::fs::write(to, bytes));
    let summary = merge(ranks, options);
    writer.join().expect("ended").expect("all of it was read");
    summary
}

#[test]
fn a_pipe_is_read_whole_and_once_whatever_comes_through_it() {
    let dir = tempfile::tempdir().expect("a directory");
    let input = dir.path().join("p.fa");
    // More than a pipe holds, and split among ranks.
    let long = [fasta(), format!(">t\n{}\n", SEQUENCE.repeat(5000)).into_bytes()].concat();
    let plain = dir.path().join("plain.fa");
    std::fs::write(&plain, &long).expect("written");
    for (number, bytes) in
        [fasta(), fastq(), gzip(&fasta()), gzip(&fastq()), xz(&fasta()), zstd(&fastq()), long]
            .into_iter()
            .enumerate()
    {
        for ranks in [1, 3, 7] {
            let out = dir.path().join(format!("{number}-{ranks}"));
            let inputs = std::slice::from_ref(&input);
            let summary = merge_pipe(ranks, &options(21, 7, &out, inputs), &input, bytes.clone());
            assert_eq!(summary.sources.len(), 1);
            assert_eq!(summary.sources[0].name, "p.fa");
            if number < 6 {
                assert_eq!(kmers(&out), expected(21), "{number} on {ranks}");
            } else {
                let same = dir.path().join(format!("plain-{ranks}"));
                merge(ranks, &options(21, 7, &same, std::slice::from_ref(&plain)));
                assert_eq!(kmers(&out), kmers(&same), "on {ranks}");
            }
            assert!(!out.join("spool").exists());
        }
    }
    let out = dir.path().join("records");
    let records = MergeOptions { each_record: true, ..options(21, 7, &out, std::slice::from_ref(&input)) };
    let summary = merge_pipe(2, &records, &input, fasta());
    let names: Vec<&str> = summary.sources.iter().map(|s| &s.name[..]).collect();
    assert_eq!(names, ["r", "s"]);
}

/// Errors name the pipe, not its copy, and are told before a second reading would wait for ever.
#[test]
fn errors_name_the_pipe() {
    let dir = tempfile::tempdir().expect("a directory");
    let input = dir.path().join("p.fa");
    let out = dir.path().join("out");
    for (bytes, words) in [
        (&b">one\nACGT\n>two\nAC GT\n"[..], &["/p.fa", "two", "unexpected byte"][..]),
        (b"hello\n", &["/p.fa", "neither FASTA"]),
        (b"", &["/p.fa", "empty"]),
    ] {
        pipe(&input);
        let (to, bytes) = (input.clone(), bytes.to_vec());
        let writer = std::thread::spawn(move || std::fs::write(to, bytes));
        let results = merge_all(2, &options(3, 2, &out, std::slice::from_ref(&input)));
        let _ = writer.join().expect("ended");
        let errors: Vec<String> = results.into_iter().map(|r| r.expect_err("an error").to_string()).collect();
        for word in words {
            assert!(errors.iter().all(|e| e.contains(word) && !e.contains("partial")), "{errors:?}");
        }
    }
    // Named twice: told after the first reading, which has a writer, and without a second one, which has
    // none.
    pipe(&input);
    let to = input.clone();
    let writer = std::thread::spawn(move || std::fs::write(to, fasta()));
    let results = merge_all(1, &options(3, 2, &out, &[input.clone(), input.clone()]));
    writer.join().expect("ended").expect("read");
    assert!(results[0].as_ref().expect_err("twice").to_string().contains("already"));
    // And where records are the sources.
    pipe(&input);
    let to = input.clone();
    let writer = std::thread::spawn(move || std::fs::write(to, fasta()));
    let both = options(3, 2, &out, &[input.clone(), input]);
    let results = merge_all(1, &MergeOptions { each_record: true, ..both });
    writer.join().expect("ended").expect("read");
    let error = results[0].as_ref().expect_err("twice").to_string();
    assert!(error.contains("p.fa: a pipe that was given twice"), "{error}");
    assert!(!out.exists());
}

/// All ranks are told of paths, as text.
#[test]
fn a_path_that_is_no_text_is_named() {
    let dir = tempfile::tempdir().expect("a directory");
    let folder = dir.path().join(std::ffi::OsStr::from_bytes(b"fol\xffder"));
    std::fs::create_dir(&folder).expect("made");
    let (odd, plain) = (folder.join("x.fa"), dir.path().join("x.fa"));
    for path in [&odd, &plain] {
        std::fs::write(path, fasta()).expect("written");
    }
    for (input, out) in [(&odd, dir.path().join("out")), (&plain, folder.join("out"))] {
        for result in merge_all(2, &options(21, 7, &out, std::slice::from_ref(input))) {
            let error = result.expect_err("no text").to_string();
            assert!(error.contains("fol") && error.contains("the path is not UTF-8"), "{error}");
        }
        assert!(!out.exists());
    }
}

fn shell(dir: &Path, script: &str) -> Output {
    let program = PathBuf::from(env!("CARGO_BIN_EXE_obikmer-merge"));
    let mut command = Command::new("bash");
    command.current_dir(dir).args(["-c", script]).env("O", program).output().expect("bash")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn descriptors_standard_input_and_lists_through_pipes() {
    let dir = tempfile::tempdir().expect("a directory");
    std::fs::write(dir.path().join("f.fa"), fasta()).expect("written");
    for (name, bytes) in
        [("f.fa.gz", gzip(&fasta())), ("f.fa.xz", xz(&fasta())), ("f.fa.zst", zstd(&fasta()))]
    {
        std::fs::write(dir.path().join(name), bytes).expect("written");
    }
    for (number, inputs) in [
        "<(cat f.fa)",
        "<(cat f.fa.gz)",
        "<(cat f.fa.xz)",
        "/dev/stdin < f.fa.zst",
        "/dev/stdin < f.fa",
        "/dev/fd/5 5< f.fa",
        "/proc/self/fd/5 5< f.fa.gz",
        "@<(echo f.fa)",
        "@/dev/stdin <<< f.fa",
    ]
    .into_iter()
    .enumerate()
    {
        let out = shell(dir.path(), &format!("$O -k 21 --out {number} {inputs}"));
        assert!(out.status.success(), "{inputs}: {}", text(&out.stderr));
        assert_eq!(kmers(&dir.path().join(number.to_string())), expected(21), "{inputs}");
    }
    // The wrong thing in a list is told for what it is.
    let out = shell(dir.path(), "$O -k 21 --out x @<(echo f.fa; echo missing.fa)");
    assert!(!out.status.success() && text(&out.stderr).contains("missing.fa"), "{}", text(&out.stderr));
    let out = shell(dir.path(), "$O -k 21 --out x @<(echo)");
    assert!(!out.status.success() && text(&out.stderr).contains("no sources"), "{}", text(&out.stderr));
    // What has no end is not copied until the disk is full. (Not /dev/urandom: once in a hundred times it
    // begins as a source does.)
    let out = shell(
        dir.path(),
        "$O -k 21 --out x /dev/zero <<< ''; $O -k 21 --out x <(yes); $O -k 21 --out x <(yes P)",
    );
    assert_eq!(text(&out.stderr).matches("neither FASTA").count(), 3, "{}", text(&out.stderr));
    let out = shell(dir.path(), "trap '' XFSZ; ulimit -f 65536; $O -k 21 --out x <(yes '')");
    assert!(text(&out.stderr).contains("white space"), "{}", text(&out.stderr));
    // A disk that is full, or a limit: the pipe is named, and its copy; nothing is left.
    let long = format!(">t\n{}\n", SEQUENCE.repeat(20_000));
    std::fs::write(dir.path().join("long.fa"), long).expect("written");
    let before = std::fs::read_dir(dir.path()).expect("listed").count();
    let out = shell(dir.path(), "trap '' XFSZ; ulimit -f 64; $O -k 21 --out x <(cat long.fa)");
    let said = text(&out.stderr);
    assert!(
        !out.status.success() && said.contains("cannot copy /dev/fd/") && said.contains("x.partial-"),
        "{said}"
    );
    assert_eq!(std::fs::read_dir(dir.path()).expect("listed").count(), before);
    let answer = shell(dir.path(), "$O query 0 <(cat f.fa)");
    assert_eq!(text(&answer.stdout).lines().count(), 3, "{}", text(&answer.stderr));
}

#[test]
fn blank_lines_before_the_first_record_are_skipped() {
    let dir = tempfile::tempdir().expect("a directory");
    let blank = |bytes: Vec<u8>| [b"\n \r\n\t\n".to_vec(), bytes].concat();
    let index = dir.path().join("fasta.fa-1");
    for (name, bytes) in [
        ("fasta.fa", blank(fasta())),
        ("fastq.fq", blank(fastq())),
        ("fasta.fa.gz", gzip(&blank(fasta()))),
        ("fastq.fq.gz", gzip(&blank(fastq()))),
        ("fasta.fa.xz", xz(&blank(fasta()))),
        ("fastq.fq.zst", zstd(&blank(fastq()))),
        ("many.fa", [vec![b'\n'; 10_000], fasta()].concat()),
    ] {
        let input = dir.path().join(name);
        std::fs::write(&input, bytes).expect("written");
        for ranks in [1, 3] {
            let out = dir.path().join(format!("{name}-{ranks}"));
            merge(ranks, &options(21, 7, &out, std::slice::from_ref(&input)));
            assert_eq!(kmers(&out), expected(21), "{name} on {ranks}");
        }
        let mut answer = Vec::new();
        let query = obikmer_merge::query::Query::open(&index).expect("an index");
        query.answer(std::slice::from_ref(&input), Form::default(), &mut answer).expect("answered");
        assert_eq!(text(&answer).lines().count(), 3, "{name}");
    }
    let out = dir.path().join("records");
    let input = dir.path().join("many.fa");
    merge(2, &MergeOptions { each_record: true, ..options(21, 7, &out, &[input]) });
    assert_eq!(kmers(&out), expected(21));
}
