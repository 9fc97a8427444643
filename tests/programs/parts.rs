//! Parts that come while the job runs, very many of them, and standard input in blocks.

use std::fs;
use std::io::Write;
use std::process::{Command, Stdio};
use std::thread::JoinHandle;

use crate::common::{Directory, LIMIT, bdrun_args, limited, poll, program, skipped};

/// A standard input, and who writes it.
fn written(write: impl FnOnce(&mut dyn Write) + Send + 'static) -> (Stdio, JoinHandle<()>) {
    let (reader, mut writer) = std::io::pipe().expect("a pipe");
    (reader.into(), std::thread::spawn(move || write(&mut writer)))
}

pub(crate) fn with_input(text: Vec<u8>) -> Stdio {
    // Whoever ends early does not read all of it.
    written(move |out| drop(out.write_all(&text))).0
}

#[test]
fn ranks_begin_before_their_list_ends() {
    let dir = Directory::new("stream");
    let at = dir.path().to_owned();
    let (input, writer) = written(move |out| {
        for part in ["one", "two", "three"] {
            writeln!(out, "{part}\n").expect("it is read");
            // The list goes on only once this one has ended.
            let ended = || fs::read_to_string(at.join(part)).ok().filter(|text| !text.is_empty());
            assert!(poll(LIMIT, ended).is_some(), "{part} has not run");
        }
    });
    let out = dir.path().join("{}");
    let args = [
        "--parts",
        "-",
        "--output-files",
        out.to_str().unwrap(),
        "--",
        "sh",
        "-c",
        "echo $BDRUN_RANK-$BDRUN_SIZE {}",
    ];
    let outcome = bdrun_args(args).with(|command| command.stdin(input)).succeed();
    writer.join().expect("all ran in time");
    assert_eq!(outcome.stats().np, 3);
    let ranks: Vec<_> = outcome.stats().ranks.iter().map(|rank| rank.part.clone().unwrap()).collect();
    assert_eq!(ranks, ["one", "two", "three"]);
    // How many there will be is not known.
    assert_eq!(fs::read_to_string(dir.path().join("three")).unwrap(), "2-0 three\n");
}

#[test]
fn a_list_without_an_end_is_read_as_far_as_it_is_needed() {
    let (input, writer) = written(|out| while out.write_all(b"x\n").is_ok() {});
    let args = ["--parts", "-", "--halt", "now,success=20", "--", "true"];
    let outcome = bdrun_args(args).with(|command| command.stdin(input)).succeed();
    writer.join().expect("it was no longer read");
    let stats = outcome.stats();
    let well = stats.ranks.iter().filter(|rank| rank.status == "ok").count();
    assert!(well >= 20 && (stats.np as usize) < well + 8192, "{well} of {}", stats.np);
    assert!(outcome.stderr.contains("have ended well"), "{}", outcome.stderr);
}

/// Whoever is to write the list hangs: there is no job yet that could end.
#[test]
fn the_time_of_a_job_passes_while_its_list_is_waited_for() {
    let dir = Directory::new("late-list");
    let pipe = dir.path().join("pipe").display().to_string();
    assert!(limited(Command::new("mkfifo").arg(&pipe), LIMIT).status.success());
    for (options, begins) in [
        (&["--parts", "-"][..], ""),
        (&["--parts", "-", "--size-column", "2"], "a\t1M\n"),
        // Nobody opens it.
        (&["--parts", &pipe], ""),
    ] {
        let (reader, mut writer) = std::io::pipe().expect("a pipe");
        writer.write_all(begins.as_bytes()).expect("room for it");
        let words = ["--timeout", "0.5"].iter().chain(options).chain(&["--", "true"]);
        let outcome = bdrun_args(words).with(|command| command.stdin(reader)).run();
        outcome.failed_with(124, &["--timeout"]);
        drop(writer);
    }
    // It is read to its end as ever.
    let writing = {
        let pipe = pipe.clone();
        std::thread::spawn(move || fs::write(pipe, "one\ntwo\n"))
    };
    let words = ["--timeout", "600", "--parts", &pipe, "--keep-order", "--", "echo"];
    assert_eq!(bdrun_args(words).succeed().stdout, "one\ntwo\n");
    writing.join().unwrap().unwrap();
}

#[test]
fn what_is_wrong_further_down_the_list_ends_the_job() {
    let list = |bad: &str| {
        let mut text: String = (0..40).map(|n| format!("{n}\ta\n")).collect();
        text.push_str(bad);
        with_input(text.into_bytes())
    };
    let with = |bad: &str| {
        let input = list(bad);
        bdrun_args(["--parts", "-", "--", "echo", "{2}"]).with(|command| command.stdin(input)).run()
    };
    with("short\n").failed_with(120, &["line 41: it has 1 columns, and {2} is asked for"]);
    with("a\0b\n").failed_with(120, &["line 41: a zero byte"]);
    let dir = Directory::new("twice");
    let out = dir.path().join("{1}");
    let input = list("7\tb\n");
    bdrun_args(["--parts", "-", "--output-files", out.to_str().unwrap(), "--", "echo", "{2}"])
        .with(|command| command.stdin(input))
        .run()
        .failed_with(118, &["ranks 7 and 40 would both write"]);
    let input = with_input(Vec::new());
    bdrun_args(["--parts", "-", "--", "true"])
        .with(|command| command.stdin(input))
        .run()
        .failed_with(120, &["standard input (--parts -) has no line"]);
}

/// Those that may talk to one another have to be known before the first begins.
#[test]
fn native_ranks_wait_for_the_end_of_their_list() {
    let input = with_input(b"a\nb\nc\n".to_vec());
    let hello = program("hello");
    let outcome = bdrun_args(["--parts", "-", "--literal", hello.to_str().unwrap()])
        .with(|command| command.stdin(input))
        .succeed();
    assert_eq!(outcome.stdout, "3 ranks met\n");
    let input = with_input(b"a\nb\nc\n".to_vec());
    let behind = ["--parts", "-", "--", "sh", "-c", "\"$0\"; exit 0", hello.to_str().unwrap()];
    bdrun_args(behind)
        .with(|command| command.stdin(input))
        .run()
        .failed_with(120, &["may talk to others", "known before the first begins"]);
}

#[test]
fn more_parts_than_ranks_that_may_talk_to_one_another() {
    let dir = Directory::new("many");
    let list = dir.path().join("list");
    let text: String = (0..70_000).map(|n| format!("p{n}\n")).collect();
    fs::write(&list, text).unwrap();
    let list = list.to_str().unwrap();
    let outcome =
        bdrun_args(["--parts", list, "--halt", "now,success=30", "--keep-order", "--", "echo", "{}"])
            .succeed();
    let stats = outcome.stats();
    assert_eq!((stats.np, stats.ranks.len()), (70_000, 70_000));
    let well: Vec<usize> = (0..70_000).filter(|&n| stats.ranks[n].status == "ok").collect();
    let number = |line: &str| line.strip_prefix('p').and_then(|n| n.parse().ok()).expect("a part");
    let heard: Vec<usize> = outcome.stdout.lines().map(number).collect();
    // One before them may have been ended before it wrote, or after.
    assert!(heard.is_sorted_by(|a, b| a < b), "in order, each once: {heard:?}");
    assert!(well.len() >= 30 && well.iter().all(|n| heard.contains(n)), "{well:?} {heard:?}");
    let hello = program("hello");
    bdrun_args(["--parts", list, "--literal", hello.to_str().unwrap()])
        .run()
        .failed_with(120, &["70000 ranks", "65536"]);
}

#[test]
fn directories_of_output_files_are_made() {
    let dir = Directory::new("mkdir");
    let out = dir.path().join("a/{}/out.txt");
    let args = ["--output-files", out.to_str().unwrap(), "echo", "<{}>", ":::", "x", "y"];
    bdrun_args(args).succeed();
    for part in ["x", "y"] {
        let path = dir.path().join(format!("a/{part}/out.txt"));
        assert_eq!(fs::read_to_string(path).unwrap(), format!("<{part}>\n"));
    }
}

/// As they come: each block on the standard input of a rank, whole records only.
#[test]
fn standard_input_in_blocks() {
    let lines: Vec<String> = (0..30_000).map(|n| format!("{n} {}\n", "x".repeat(n % 90))).collect();
    let text = lines.concat();
    let pipe = |args: &[&str], text: &str| {
        let input = with_input(text.as_bytes().to_vec());
        bdrun_args(["--pipe"].iter().chain(args)).with(|command| command.stdin(input))
    };
    let outcome = pipe(&["--block", "64k", "--keep-order", "--", "sh", "-c", "cat"], &text).succeed();
    assert!(outcome.stdout == text, "{} bytes of {}", outcome.stdout.len(), text.len());
    let stats = outcome.stats();
    let blocks = text.len().div_ceil(64 << 10);
    assert!((2..=blocks as u32 + 1).contains(&stats.np), "{} blocks", stats.np);
    assert_eq!(stats.ranks[1].part.as_deref(), Some("block 2"));
    // A record is never cut, and the line end need not be what ends it.
    let outcome = pipe(&["--block", "1k", "--", "sh", "-c", "tail -n 1 | grep -c ^"], &text).succeed();
    assert!(outcome.stdout.lines().all(|line| line == "1"));
    let args =
        ["--block", "1", "--recend", "\\n//\\n", "--keep-order", "--", "sh", "-c", "echo \"[$(cat)]\""];
    let outcome = pipe(&args, "a\nb\n//\nc\n//\nd\n").succeed();
    assert_eq!(outcome.stdout, "[a\nb\n//]\n[c\n//]\n[d]\n");
    // Nothing is one block of nothing.
    assert_eq!(pipe(&["--", "wc", "-c"], "").succeed().stdout.trim(), "0");
    // One that fails is named, and reads its block again if it is run again.
    pipe(&["--", "sh", "-c", "exit 3"], "a\n")
        .run()
        .failed_with(3, &["block 1 (rank 0) failed with exit code 3"]);
    let dir = Directory::new("again");
    let (mark, out) = (dir.path().join("mark"), dir.path().join("out{#}"));
    let again = format!("cat; test -e {0} || {{ touch {0}; exit 1; }}", mark.display());
    pipe(&["--retry", "1", "--output-files", out.to_str().unwrap(), "--", "sh", "-c", &again], "a\nb\n")
        .succeed();
    assert_eq!(fs::read_to_string(dir.path().join("out1")).unwrap(), "a\nb\n");
    pipe(&["hello"], "").run().failed_with(118, &["--pipe is for independent ranks"]);
    pipe(&["--resume", "j", "cat"], "").run().failed_with(118, &["--pipe", "--resume"]);
}

/// bdrun has the file of a block open until its rank is over, also if that never began.
#[test]
fn the_block_of_a_rank_that_cannot_be_started_is_given_up() {
    let dir = Directory::new("given-up");
    let at = |name: &str| dir.path().join(name).display().to_string();
    // A directory, as far as can be seen before, in which no file can be made.
    std::os::unix::fs::symlink("/proc", at("out-1")).unwrap();
    let script = "for file in /proc/$PPID/fd/*; do
            case $(readlink $file) in *deleted*) head -c 4 $file;; esac
        done";
    let files = at("out-{rank}/text");
    let args = ["--pipe", "--block", "1", "-j", "1", "--halt", "never", "--output-files", &files];
    let job = bdrun_args(args.iter().chain(&["--", "sh", "-c", script]));
    let input = with_input(b"one\ntwo\nend\n".to_vec());
    job.with(|command| command.stdin(input)).run().failed_with(120, &["rank 1 cannot be started"]);
    let seen = |rank: u32, text: &str| {
        let bytes = fs::read(at(&format!("out-{rank}/text"))).unwrap();
        String::from_utf8_lossy(&bytes).contains(text)
    };
    assert!(seen(0, "one") && seen(2, "end"), "each sees its own");
    assert!(!seen(2, "two"));
}

/// It is read only as far as blocks may wait, and what is left is not waited for.
#[test]
fn an_endless_input_is_cut_as_far_as_it_is_needed() {
    let (input, writer) = written(|out| while out.write_all(&[b'\n'; 4096]).is_ok() {});
    let args = ["--pipe", "--block", "10k", "--halt", "now,success=5", "--", "wc", "-c"];
    let outcome = bdrun_args(args).with(|command| command.stdin(input)).succeed();
    writer.join().expect("it was no longer read");
    assert!(outcome.stats().np < 300, "{}", outcome.stats().np);
}

/// Compared with what people know.
#[test]
fn as_gnu_parallel_does() {
    if Command::new("parallel").arg("--version").output().is_err() {
        return skipped("parallel", "GNU parallel is not installed");
    }
    let text: Vec<u8> = (0..5000).flat_map(|n| format!("{n}\n").into_bytes()).collect();
    let input = with_input(text.clone());
    let parallel = Command::new("parallel")
        .args(["--pipe", "--block", "5k", "--keep-order", "sort", "-n"])
        .stdin(input)
        .output()
        .expect("parallel runs");
    let input = with_input(text);
    let ours = bdrun_args(["--pipe", "--block", "5k", "--keep-order", "--", "sort", "-n"])
        .with(|command| command.stdin(input))
        .succeed();
    assert_eq!(ours.stdout, String::from_utf8_lossy(&parallel.stdout));
}
