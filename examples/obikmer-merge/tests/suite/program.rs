//! The program itself, started without bdrun: one rank.

use std::path::Path;
use std::process::{Command, Output};

fn run(dir: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_obikmer-merge"));
    command.current_dir(dir).args(arguments).output().expect("started")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn merges_what_is_bundled_and_answers() {
    let dir = tempfile::tempdir().expect("a directory");
    let made = run(dir.path(), &[]);
    let out = text(&made.stdout);
    assert!(made.status.success(), "{}", text(&made.stderr));
    assert!(out.contains("bundled") && out.contains("5378433") && out.contains("217343"), "{out}");
    let index = dir.path().join("obikmer-index");
    let summary: serde_json::Value =
        serde_json::from_slice(&std::fs::read(index.join("summary.json")).expect("read")).expect("JSON");
    let mut keys: Vec<&str> = summary.as_object().expect("an object").keys().map(String::as_str).collect();
    keys.sort_unstable();
    assert_eq!(
        keys,
        [
            "distinct_kmers",
            "in_all_sources",
            "in_one_source",
            "k",
            "partitions",
            "sources",
            "total_unitig_bases",
            "unitigs"
        ]
    );

    let again = run(dir.path(), &[]);
    assert!(!again.status.success() && text(&again.stderr).contains("--force"));

    let genome = Path::new(env!("CARGO_MANIFEST_DIR")).join("data/hpylori6/G27.fa.gz");
    let answer = run(dir.path(), &["query", "obikmer-index", genome.to_str().expect("UTF-8")]);
    let answer = text(&answer.stdout);
    let line: Vec<&str> = answer.lines().nth(1).expect("a record").split('\t').collect();
    // Every k-mer of the chromosome is found, and its own source holds all of them.
    assert_eq!(line[1], line[2]);
    assert_eq!(line[1], line[4]);
    assert!(answer.starts_with("record\tkmers\tfound\tELS37.fa\tG27.fa\t"));

    let dump = run(dir.path(), &["dump", "--unitigs", "obikmer-index"]);
    assert_eq!(text(&dump.stdout).lines().count(), 217_343);
    assert!(!run(dir.path(), &["dump", "obikmer-index"]).status.success());
}

/// The index is what was asked for, not what is said of it.
#[test]
fn what_nobody_reads_leaves_no_index_out() {
    let dir = tempfile::tempdir().expect("a directory");
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let mut command = Command::new(env!("CARGO_BIN_EXE_obikmer-merge"));
    let made = command.current_dir(dir.path()).stdout(writer).output().expect("started");
    assert_eq!(made.status.code(), Some(0), "{}", text(&made.stderr));
    assert!(dir.path().join("obikmer-index/index.json").exists(), "{}", text(&made.stderr));
}

/// What cannot be printed is an error, which says that the index is whole.
#[test]
fn an_index_whose_summary_cannot_be_printed_is_complete() {
    let dir = tempfile::tempdir().expect("a directory");
    std::fs::write(dir.path().join("f.fa"), ">r\nACGTTGCATGTCGCATGATGCATGAGAGCTACG\n").expect("written");
    let mut command = Command::new(env!("CARGO_BIN_EXE_obikmer-merge"));
    command.current_dir(dir.path()).args(["-k", "21", "--out", "ix", "f.fa"]);
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").expect("there");
    let made = command.stdout(full).output().expect("started");
    let said = text(&made.stderr);
    assert_eq!(made.status.code(), Some(1), "{said}");
    assert!(
        ["ix", "complete", "summary", "standard output"].iter().all(|word| said.contains(word)),
        "{said}"
    );
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(run(dir.path(), &["info", "ix"]).status.success());
}

/// No name makes a line that looks like another one.
#[test]
fn names_stay_in_their_lines() {
    let dir = tempfile::tempdir().expect("a directory");
    let name = "a\nunitigs              77";
    std::fs::write(dir.path().join(name), ">r\nACGTTGCATGTCGCATGATGCATGAGAGCTACG\n").expect("written");
    let made = run(dir.path(), &["-k", "21", "--out", "i\nx", name]);
    let info = run(dir.path(), &["info", "i\nx"]);
    for output in [made, info] {
        assert!(output.status.success(), "{}", text(&output.stderr));
        let said = text(&output.stdout);
        assert_eq!(said.lines().filter(|line| line.starts_with("unitigs ")).count(), 1, "{said}");
        assert!(said.contains(r"kmers in a\nunitigs") && !said.contains("\nx "), "{said}");
    }
    std::fs::write(dir.path().join("p\nobikmer-merge: all is well"), ">r\nNNNN\n").expect("written");
    let warned = run(dir.path(), &["-k", "21", "--out", "p", "p\nobikmer-merge: all is well"]);
    assert_eq!(text(&warned.stderr).lines().count(), 1, "{}", text(&warned.stderr));
}

#[test]
fn errors_are_told_once_and_leave_nothing() {
    let dir = tempfile::tempdir().expect("a directory");
    std::fs::write(dir.path().join("bad.fa"), b">one\nACGT\n>two\nAC GT\n").expect("written");
    let failed = run(dir.path(), &["--out", "index", "bad.fa"]);
    assert!(!failed.status.success());
    let error = text(&failed.stderr);
    assert!(error.lines().count() == 1 && error.contains("bad.fa") && error.contains("two"), "{error}");
    assert_eq!(std::fs::read_dir(dir.path()).expect("listed").count(), 1);
    let even = run(dir.path(), &["-k", "30", "--out", "index", "bad.fa"]);
    assert!(text(&even.stderr).contains("odd"));
    assert!(!run(dir.path(), &["bad.fa"]).status.success());
}

/// An index is not replaced by an empty one.
#[test]
fn empty_lists_are_refused_and_the_index_stays() {
    let dir = tempfile::tempdir().expect("a directory");
    std::fs::write(dir.path().join("f.fa"), ">r\nACGTTGCATGTCGCATGATGCATGAGAGCTACGTTGCATGTCGCATGATG\n")
        .expect("write");
    assert!(run(dir.path(), &["-k", "21", "--out", "ix", "f.fa"]).status.success());
    let before = std::fs::read(dir.path().join("ix/index.json")).expect("the index");
    std::fs::write(dir.path().join("empty.list"), "\n").expect("write");
    let refused = run(dir.path(), &["--force", "-k", "21", "--out", "ix", "@empty.list"]);
    let said = text(&refused.stderr);
    assert!(!refused.status.success() && said.contains("no sources"), "{said}");
    assert_eq!(std::fs::read(dir.path().join("ix/index.json")).expect("the index"), before);
    let names = std::fs::read_dir(dir.path()).expect("list").count();
    assert_eq!(names, 3, "nothing else is left");
}
