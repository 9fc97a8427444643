//! Independent partitions as users of GNU parallel start them: parts, placeholders, files, order.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::common::{Directory, LIMIT, bdrun_args, first_of, limited, skipped};

/// Prints each of its arguments in angle brackets.
const SHOW: &str = r#"printf '<%s>' "$@"; echo"#;

fn write(dir: &Directory, name: &str, text: &str) -> String {
    let path = dir.path().join(name);
    fs::write(&path, text).expect("write a file");
    path.to_str().expect("UTF-8").to_owned()
}

fn read(path: impl AsRef<Path>) -> String {
    fs::read_to_string(path).expect("read a file")
}

fn at(dir: &Directory, name: &str) -> String {
    dir.path().join(name).to_str().expect("UTF-8").to_owned()
}

#[test]
fn one_rank_for_each_line() {
    let dir = Directory::new("parts");
    let parts = write(&dir, "parts.tsv", "in\tbytes\na file's $HOME\t1M\n\n\"*\"\t2M\r\n");
    let args = ["--parts", &parts, "--header", "--keep-order", "sh", "-c", SHOW, "sh"];
    let theirs = ["{in}", "x{2}x", "{rank}/{size}", "{print $1}", "${rank}", "{{in}}"];
    let outcome = bdrun_args(args.into_iter().chain(theirs)).succeed();
    assert_eq!(
        outcome.stdout,
        "<a file's $HOME><x1Mx><0/2><{print $1}><${rank}><{in}>\n\
         <\"*\"><x2Mx><1/2><{print $1}><${rank}><{in}>\n"
    );
    assert_eq!(outcome.stats().np, 2);
    // Nothing says where the line goes: it comes last. It is in the environment in any case.
    let script = r#"echo "$# $1 $BDRUN_PART $BDRUN_RANK/$BDRUN_SIZE""#;
    let args = ["--parts", &parts, "--colsep", ",", "--keep-order", "sh", "-c", script, "sh"];
    let outcome = bdrun_args(args).succeed();
    assert_eq!(
        outcome.stdout,
        "1 in\tbytes in\tbytes 0/3\n1 a file's $HOME\t1M a file's $HOME\t1M 1/3\n1 \"*\"\t2M \"*\"\t2M 2/3\n"
    );
}

/// Names that are no column, most of them misspelt, do not become arguments.
#[test]
fn a_placeholder_that_names_no_column_is_an_error() {
    let dir = Directory::new("no-column");
    let parts = write(&dir, "parts.tsv", "\u{feff}path\tbytes\n/etc/hostname\t1\n");
    let with = |args: &[&str]| bdrun_args(["--parts", &parts, "--header"].iter().chain(args));
    with(&["wc", "-c", "{paht}"]).run().failed_with(118, &["{paht}", "{path}", "'bytes'", "{{paht}}"]);
    // The whole line is the name of the only column.
    with(&["--colsep", ",", "wc", "-c", "{path}"]).run().failed_with(118, &["{path}", "--colsep"]);
    with(&["wc", "-c", "{pth/}"]).run().failed_with(118, &["{path}"]);
    let outcome =
        with(&["sh", "-c", SHOW, "sh", "{path}", "{{paht}}", "{print $1}", "{a:1}", "{2,3}"]).succeed();
    assert_eq!(outcome.stdout, "</etc/hostname><{paht}><{print $1}><{a:1}><{2,3}>\n");
}

#[test]
fn the_list_may_come_through_standard_input() {
    let dir = Directory::new("parts-stdin");
    let list = write(&dir, "list", "one\ntwo\nthree\n");
    let args = ["--parts", "-", "--keep-order", "sh", "-c", "echo $0; cat"];
    let input = fs::File::open(list).unwrap();
    let outcome = bdrun_args(args).with(|command| command.stdin(Stdio::from(input))).succeed();
    assert_eq!(outcome.stdout, "one\ntwo\nthree\n");
    bdrun_args(["--parts", "-", "true"]).run().failed_with(120, &["standard input", "nothing to run"]);
}

#[test]
fn one_rank_for_each_path() {
    let dir = Directory::new("glob");
    for name in ["b c.bin", "a.bin", "x.txt"] {
        write(&dir, name, name);
    }
    let pattern = at(&dir, "*.bin");
    let outcome =
        bdrun_args(["--glob", &pattern, "--keep-order", "sh", "-c", SHOW, "sh", "{/}", "{/.}"]).succeed();
    assert_eq!(outcome.stdout, "<a.bin><a>\n<b c.bin><b c>\n");
    let outcome = bdrun_args(["--glob", &pattern, "--keep-order", "cat"]).succeed();
    assert_eq!(outcome.stdout, "a.binb c.bin", "the path is the last argument, and nothing is added");
    bdrun_args(["--glob", &at(&dir, "*.none"), "cat"]).run().failed_with(120, &["nothing matches"]);
}

/// Names that are no text, names that would be options, links that lead back, and files that are hidden.
#[test]
fn a_pattern_finds_what_a_shell_finds_and_names_that_are_no_text() {
    use std::os::unix::ffi::OsStrExt;
    let dir = Directory::new("glob-names");
    let inside = dir.path().join("in");
    fs::create_dir(&inside).unwrap();
    for name in [&b"a\xff.txt"[..], b"-rf.txt", b".part.txt"] {
        fs::write(inside.join(std::ffi::OsStr::from_bytes(name)), "x").unwrap();
    }
    std::os::unix::fs::symlink(".", inside.join("loop")).unwrap();
    let found = |pattern: &str| {
        let words = ["--glob", pattern, "--keep-order", "--", "sh", "-c", "echo \"$1\" | od -An -c", "sh"];
        let outcome = bdrun_args(words).with(|command| command.current_dir(&inside)).succeed();
        outcome.stdout.lines().map(|line| line.replace(' ', "")).collect::<Vec<_>>()
    };
    assert_eq!(found("./*.txt"), ["./-rf.txt\\n", "./a377.txt\\n"]);
    assert_eq!(found("**/*.txt"), ["-rf.txt\\n", "a377.txt\\n"]);
    assert_eq!(found(".*.txt"), [".part.txt\\n"]);
}

/// The original as the judge, where it is installed.
#[test]
fn placeholders_mean_what_they_mean_to_gnu_parallel() {
    let known = Command::new("parallel").arg("--version").output();
    if !known.is_ok_and(|output| String::from_utf8_lossy(&output.stdout).starts_with("GNU parallel")) {
        return skipped("parallel", "GNU parallel is not installed");
    }
    let dir = Directory::new("parallel");
    let components = ["a", "b.c", ".d", "e.", "x y", "f.tar.gz", "..", "it's $HOME", "\"*\"\\n", "é"];
    let mut lines = String::new();
    for (at, first) in components.iter().enumerate() {
        for (other, second) in components.iter().enumerate() {
            let root = if (at + other) % 3 == 0 { "/" } else { "" };
            let end = if (at + 2 * other) % 5 == 0 { "/" } else { "" };
            lines += &format!("{root}{first}/{second}{end}\t{second}\n");
        }
    }
    let list = write(&dir, "list", &lines);
    let all = ["{1}", "{2}", "{1.}", "{1/}", "{1//}", "{1/.}", "{2.}", "{2//}", "x{1}y{2/}z{#}"];
    let theirs = limited(
        Command::new("parallel").args(["-k", "--colsep", "\t", "-a", &list, "printf", "'<%s>'"]).args(all),
        LIMIT,
    );
    let args = ["--parts", &list, "--keep-order", "--preload", "never", "printf", "<%s>"];
    let ours = bdrun_args(args.into_iter().chain(all.iter().copied())).succeed();
    let theirs = String::from_utf8(theirs.stdout).expect("UTF-8");
    // Without newlines of their own, ours end each rank's output with one.
    assert_eq!(ours.stdout.replace('\n', ""), theirs);
    assert_eq!(theirs.matches('<').count(), components.len().pow(2) * all.len());
    for whole in ["{}", "{.}", "{/}", "{//}", "{/.}"] {
        let theirs =
            limited(Command::new("parallel").args(["-k", "-a", &list, "printf", "'<%s>'", whole]), LIMIT);
        let ours = bdrun_args(args.into_iter().chain([whole])).succeed();
        assert_eq!(ours.stdout.replace('\n', ""), String::from_utf8_lossy(&theirs.stdout), "{whole}");
    }
}

#[test]
fn each_rank_may_have_its_own_program() {
    let dir = Directory::new("own-programs");
    dir.script("first", "#!/bin/sh\necho the first\n");
    dir.script("second", "#!/bin/sh\necho the second, with $1\n");
    let at = dir.path().display();
    let parts = write(&dir, "parts", "first\tx\nsecond\ty\n");
    let run =
        |parts: &str| bdrun_args(["--parts", parts, "--keep-order", &format!("{at}/{{1}}"), "{2}"]).run();
    assert_eq!(run(&parts).stdout, "the first\nthe second, with y\n");
    let missing = write(&dir, "missing", "first\tx\nthird\ty\n");
    let outcome = run(&missing);
    outcome.failed_with(127, &["/third"]);
    assert_eq!(outcome.stdout, "", "nothing was started");
}

#[test]
fn files_and_directories_of_their_own() {
    let dir = Directory::new("own-files");
    for (name, text) in [("a.in", "alpha"), ("b.in", "beta")] {
        write(&dir, name, text);
        fs::create_dir(dir.path().join(name.replace(".in", ""))).unwrap();
    }
    let parts = write(&dir, "parts", "a\nb\n");
    dir.script("tool", "#!/bin/sh\ncat; echo; basename \"$(pwd)\"; echo oops >&2; echo end\n");
    let args = ["--parts", &parts, "--stdin", "{}.in", "--chdir", "{}", "--output-files", "{}.out"];
    let run = |errors: &str| {
        let args = args.into_iter().chain(["--error-files", errors, "./tool"]);
        bdrun_args(args).with(|command| command.current_dir(dir.path())).succeed()
    };
    // Twice: what was there before is gone. Files are found from where bdrun is, so is the program.
    for _ in 0..2 {
        let outcome = run("{rank}.err");
        assert_eq!(outcome.stdout, "");
        assert!(!outcome.stderr.contains("oops"), "{}", outcome.stderr);
        assert_eq!(read(dir.path().join("a.out")), "alpha\na\nend\n");
        assert_eq!(read(dir.path().join("b.out")), "beta\nb\nend\n");
        assert_eq!(read(dir.path().join("1.err")), "oops\n");
    }
    run("{}.out");
    assert_eq!(read(dir.path().join("b.out")), "beta\nb\noops\nend\n", "one file for both");
}

#[test]
fn only_the_errors_into_files() {
    let dir = Directory::new("errors");
    let errors = at(&dir, "{rank}");
    let args = [
        "-np",
        "3",
        "--keep-order",
        "--error-files",
        &errors,
        "sh",
        "-c",
        "echo $0; echo bad $0 >&2",
        "{rank}",
    ];
    assert_eq!(bdrun_args(args).succeed().stdout, "0\n1\n2\n");
    assert_eq!(
        (0..3).map(|rank| read(at(&dir, &rank.to_string()))).collect::<String>(),
        "bad 0\nbad 1\nbad 2\n"
    );
    let quiet = ["-np", "3", "--output-files", "/dev/null", "sh", "-c", "echo $0", "{rank}"];
    assert_eq!(bdrun_args(quiet).succeed().stdout, "");
}

#[test]
fn what_cannot_be_is_said_before_anything_starts() {
    let dir = Directory::new("impossible");
    let parts = write(&dir, "parts", "x\t1\ny\n");
    let touched = at(&dir, "touched");
    for (options, code, words) in [
        (&["--parts", "/no/such/list"][..], 120, &["/no/such/list"][..]),
        (&["--parts", &parts, "--size-column", "2"], 120, &["line 2", "no column 2"]),
        (&["--parts", &parts, "--size-column", "1"], 120, &["line 1", "'x' is not a size"]),
        (&["--parts", &parts, "--size-column", "0"], 118, &["counted from 1"]),
        (&["--parts", &parts, "--env", "A={2}"], 120, &["line 2", "{2} is asked for"]),
        (&["--parts", &parts, "-np", "5"], 118, &["-np 5", "2 parts"]),
        (&["--parts", &parts, "--glob", "x"], 118, &["--glob"]),
        (&["--header"], 118, &["--parts"]),
        (&["--chdir", "/no/such/place"], 120, &["/no/such/place"]),
        (&["-np", "2", "--stdin", "/no/such/{rank}"], 120, &["/no/such/0"]),
        (&["-np", "2", "--output-files", "/var/tmp/one"], 118, &["ranks 0 and 1", "/var/tmp/one"]),
        (&["-np", "2", "--output-files", "/etc/passwd/{rank}"], 120, &["/etc/passwd is no directory"]),
    ] {
        let args = options.iter().copied().chain(["touch", &touched]);
        bdrun_args(args).run().failed_with(code, words);
    }
    assert!(!Path::new(&touched).exists());
}

#[test]
fn a_file_that_cannot_be_opened_names_its_rank() {
    let dir = Directory::new("unopened");
    // A pipe without a reader: seen only when it is opened, and it must not hold anything up.
    let pipe = at(&dir, "pipe");
    assert!(limited(Command::new("mkfifo").arg(&pipe), LIMIT).status.success());
    let outcome = bdrun_args(["--output-files", &pipe, "true"]).run();
    outcome.failed_with(120, &["rank 0", "standard output", &pipe]);
}

/// Its directory could be made when the job began.
#[test]
fn a_rank_whose_directory_cannot_be_made_fails_alone() {
    let dir = Directory::new("no-directory");
    let taken = at(&dir, "out-1");
    let script = format!("[ $0 != 0 ] || : > {taken}; echo rank $0");
    let files = at(&dir, "out-{rank}/text");
    let args = ["-np", "3", "-j", "1", "--halt", "never", "--output-files", &files];
    let outcome = bdrun_args(args.iter().chain(&["sh", "-c", &script, "{rank}"])).run();
    let said =
        format!("rank 1 cannot be started: cannot make the directory {taken} for its standard output: ");
    outcome.failed_with(120, &[&said, "make it, or name another: --output-files"]);
    let status: Vec<_> = outcome.stats().ranks.iter().map(|rank| rank.status.as_str()).collect();
    assert_eq!(status, ["ok", "unborn", "ok"]);
    for rank in [0, 2] {
        assert_eq!(read(at(&dir, &format!("out-{rank}/text"))), format!("rank {rank}\n"));
    }
}

#[test]
fn order_is_kept_however_ranks_end() {
    // The first waits for the last, and each writes more than a pipe holds, half a line at the end.
    let dir = Directory::new("order");
    let script = r#"
        [ $1 = 0 ] && until [ -e done ]; do sleep 0.01; done
        seq -f "$1 %.0f" 40000; echo $1 bad >&2; printf "$1 half"
        [ $1 = 5 ] && touch done; true"#;
    for tag in [false, true] {
        let mut args = vec!["-np", "6", "--keep-order", "--chdir", dir.path().to_str().unwrap()];
        args.extend(tag.then_some("--tag-output"));
        let outcome = bdrun_args(args.into_iter().chain(["sh", "-c", script, "sh", "{rank}"])).succeed();
        let (mut expected, mut errors) = (String::new(), String::new());
        for rank in 0..6 {
            let prefix = if tag { format!("[{rank}] ") } else { String::new() };
            for line in 1..=40_000 {
                expected += &format!("{prefix}{rank} {line}\n");
            }
            // Nothing is added but before a tag, which stands at the beginning of a line.
            expected += &format!("{prefix}{rank} half{}", if tag && rank < 5 { "\n" } else { "" });
            errors += &format!("{prefix}{rank} bad\n");
        }
        assert!(outcome.stdout == expected, "tag {tag}: {} bytes", outcome.stdout.len());
        assert!(outcome.stderr.contains(&errors), "{}", outcome.stderr);
        fs::remove_file(dir.path().join("done")).unwrap();
    }
}

#[test]
fn in_order_output_of_the_one_whose_turn_it_is_comes_at_once() {
    let dir = Directory::new("live");
    let go = at(&dir, "go");
    let script =
        format!("echo $0 begins; [ $0 = 1 ] && until [ -e {go} ]; do sleep 0.01; done; echo $0 ends");
    let job = bdrun_args(["-np", "3", "--keep-order", "sh", "-c", &script, "{rank}"]).start();
    job.wait_for_output("1 begins\n");
    write(&dir, "go", "");
    assert_eq!(job.wait().stdout, "0 begins\n0 ends\n1 begins\n1 ends\n2 begins\n2 ends\n");
}

#[test]
fn what_was_held_back_is_told_when_a_rank_fails() {
    let dir = Directory::new("held-back");
    let script = format!(
        "echo $0 says; case $0 in
            0) : > {said}; sleep 1000;;
            2) until [ -e {said} ]; do sleep 0.01; done; echo broken >&2; exit 7;;
        esac",
        said = at(&dir, "said")
    );
    let outcome = bdrun_args(["-np", "4", "--keep-order", "sh", "-c", &script, "{rank}"]).run();
    outcome.failed_with(7, &["broken", "rank 2 failed with exit code 7"]);
    assert!(outcome.stdout.starts_with("0 says\n") && outcome.stdout.contains("2 says\n"), "{outcome:?}");
}

#[test]
fn a_dry_run_runs_nothing() {
    let dir = Directory::new("dry");
    let parts = write(&dir, "parts", "it's\t3M\nb\t\n");
    let touched = at(&dir, "touched {1}");
    let args = ["--parts", &parts, "--size-column", "2", "--dry-run", "touch", &touched];
    let outcome = bdrun_args(args).succeed();
    let lines: Vec<&str> = outcome.stdout.lines().collect();
    assert_eq!(lines.len(), 2, "{outcome:?}");
    assert!(lines[0].contains("# rank 0, 3.0 MiB expected"), "{outcome:?}");
    assert!(!dir.path().join("touched it's").exists());
    assert!(outcome.stats.is_none());
    for words in ["bdrun: plan: 2 ranks; budget ", "3.0 MiB at most: their size", "unknown: what 1 rank need"]
    {
        assert!(outcome.stderr.contains(words), "{words}: {outcome:?}");
    }
    // And is what would have been run.
    assert!(limited(Command::new("sh").args(["-c", &outcome.stdout]), LIMIT).status.success());
    assert!(dir.path().join("touched it's").exists() && dir.path().join("touched b").exists());
}

/// The plan is what is known: after a run with `--learn` all of it, the largest first, and a curve.
#[test]
fn a_dry_run_knows_what_was_learned() {
    if !crate::common::chaos::python_with("time") {
        return;
    }
    // What was not looked at while it held its memory is not known.
    first_of([1, 10, 60], |seconds| {
        let dir = Directory::new("dry-learned");
        let (parts, learned) = (write(&dir, "parts", "4\n24\n14\n"), at(&dir, "learned"));
        let script = format!(
            "import sys, time; x = bytearray(int(sys.argv[1]) << 20); x[::4096] = b'x' * (len(x) >> 12); time.sleep({seconds})"
        );
        let run = |more: &[&str]| {
            let line = ["--memory", "1G", "--learn", &learned, "--parts", &parts];
            bdrun_args(line.iter().chain(more).chain(&["python3", "-c", &script])).succeed()
        };
        let before = run(&["--dry-run"]);
        assert!(
            before.stderr.contains("unknown: what 3 ranks need (") && !before.stderr.contains("|###"),
            "{before:?}"
        );
        let ran = run(&[]);
        let peaks = ran.stats().ranks.iter().map(|rank| rank.peak_bytes >> 20);
        if !peaks.zip([4, 24, 14]).all(|(peak, holds)| peak >= holds) {
            return Err(format!("{ran:?}"));
        }
        let after = run(&["--dry-run"]);
        let order: Vec<&str> =
            after.stdout.lines().filter_map(|line| line.split("# ").nth(1)?.split(',').next()).collect();
        assert_eq!(order, ["rank 1", "rank 2", "rank 0"], "{after:?}");
        let known = after.stderr.contains("3 ranks expected to need ") && after.stderr.contains("|###");
        assert!(known && !after.stderr.contains("unknown"), "{after:?}");
        let quiet = run(&["--dry-run", "--quiet"]);
        assert_eq!((quiet.stdout, quiet.stderr.as_str()), (after.stdout, ""));
        Ok(())
    });
}

/// Lists of files as `find -print0` gives them, and short ones on the line itself, as GNU parallel takes
/// them.
#[test]
fn parts_with_zero_bytes_between_and_behind_three_colons() {
    let dir = Directory::new("lists");
    let list = dir.path().join("list");
    std::fs::write(&list, b"a\nb\0c d\r\0\0e\tf\0").unwrap();
    let list = list.display().to_string();
    let args = ["--parts", &list, "-0", "--keep-order", "--", "printf", "<%s|%s>", "{}", "{1}"];
    assert_eq!(bdrun_args(args).succeed().stdout, "<a\nb|a\nb><c d\r|c d\r><e\tf|e>");
    let args = ["--keep-order", "printf", "%s;", ":::", "b", "a", "c d", "b"];
    assert_eq!(bdrun_args(args).succeed().stdout, "b;a;c d;b;");
    let failed = bdrun_args(["sh", "-c", "exit 3", "sh", "{}", ":::", "some part"]).run();
    failed.failed_with(3, &["some part (rank 0)"]);
    bdrun_args(["echo", ":::"]).run().failed_with(120, &[":::", "nothing to run"]);
    bdrun_args(["-np", "3", "echo", ":::", "a", "b"]).run().failed_with(118, &["-np 3", "2 parts"]);
}
