//! Programs of every kind, unchanged and without anything preloaded: moved out of RAM and in again from
//! outside, at any moment, they give the same results; and when the master is killed meanwhile, nothing of
//! them is left.
//!
//! Sources that `preload` does not have are in `outside/`. In the environment: `BDRUN_OUTSIDE_FULL=1` for the
//! sizes and counts of the project's bar, which takes minutes (`benches/outside`), `BDRUN_OUTSIDE_NOBODY=1`
//! to run all jobs as the user "nobody" (from root), `BDRUN_OUTSIDE_KILLS=50` for the number of killed
//! masters.

use std::collections::BTreeMap;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::common::chaos::{
    Chaos, PYTHON, args, compiled, compiles, plainly, python_with, source, text, text_file,
};
use crate::common::{Directory, LIMIT, bdrun_args, first_of, limited, poll, proc, program, skipped};

fn is_full() -> bool {
    std::env::var_os("BDRUN_OUTSIDE_FULL").is_some()
}

/// The first in the bar's size, else the second.
fn size(full: usize, little: usize) -> usize {
    if is_full() { full } else { little }
}

fn is_root() -> bool {
    // SAFETY: touches no memory and cannot fail.
    unsafe { libc::geteuid() == 0 }
}

fn scale() -> Chaos {
    let (every, least, limit) = if is_full() { (50, 50, 8 * LIMIT) } else { (20, 8, LIMIT) };
    let nobody = std::env::var_os("BDRUN_OUTSIDE_NOBODY").is_some();
    Chaos { np: 2, every, least, work: 1, preload: "never", nobody, limit }
}

fn same_from_outside(command: impl Fn(usize) -> Vec<String>) {
    let scale = scale();
    if !scale.nobody || nobody_can_run_it() {
        scale.same_output(command);
    }
}

/// Whether "nobody" may start bdrun; said, if not.
fn nobody_can_run_it() -> bool {
    use std::os::unix::process::CommandExt;
    let there = is_root() && {
        let mut command = Command::new(env!("CARGO_BIN_EXE_bdrun"));
        command.arg("--version").uid(65534).gid(65534);
        command.output().is_ok_and(|output| output.status.success())
    };
    if !there {
        skipped("root", "not root, or bdrun lies where the user nobody cannot reach it");
    }
    there
}

/// Whether a program is there; said, if not.
fn has(name: &str, version: &str) -> bool {
    let there = Command::new(name).arg(version).output().is_ok_and(|output| output.status.success());
    if !there {
        skipped(name, format!("no {name}"));
    }
    there
}

/// A file four times what sort may hold, by way of files of its own, and a pipe to a second process.
#[test]
fn sort() {
    let dir = Directory::new("outside");
    dir.open_to_all();
    let script = dir.script("sort", "#!/bin/sh\nLC_ALL=C sort -S $2 -T $3 $1 | sha256sum\n");
    same_from_outside(|work| {
        let lines = size(18_000_000, 500_000) * work;
        let file = text_file(&dir, lines);
        let memory = std::fs::metadata(&file).expect("its size").len() >> 12;
        args([&script.display(), &file.display(), &format!("{memory}K"), &dir.path().display()])
    });
}

#[test]
fn xz_with_threads() {
    if has("xz", "--version") {
        let dir = Directory::new("outside");
        let script = dir.script("xz", "#!/bin/sh\nxz -T2 $2 -c $1 | sha256sum\n");
        same_from_outside(|work| {
            let file = text_file(&dir, size(1_500_000, 30_000) * work);
            args([&script.display(), &file.display(), &(if is_full() { "-4" } else { "-2" })])
        });
    }
}

#[test]
fn numpy_arrays() {
    if python_with("numpy") {
        let script = source("preload/arrays.py");
        let (mib, rounds) = (size(256, 32), size(90, 25));
        same_from_outside(|work| args([&PYTHON, &script.display(), &mib, &(rounds * work)]));
    }
}

#[test]
fn python_objects() {
    if python_with("hashlib") {
        let script = source("preload/objects.py");
        same_from_outside(|work| args([&PYTHON, &script.display(), &(size(180, 3) * work)]));
    }
}

#[test]
fn perl() {
    let script = source("preload/words.pl");
    same_from_outside(|work| args([&"/usr/bin/perl", &script.display(), &(size(80, 2) * work)]));
}

#[test]
fn gawk() {
    if has("gawk", "--version") {
        let script = source("outside/groups.awk");
        same_from_outside(|work| {
            args([&"gawk", &"-v", &format!("rounds={}", size(35, 1) * work), &"-f", &script.display()])
        });
    }
}

#[test]
fn threads_of_cpp() {
    let dir = Directory::new("outside");
    if let Some(program) = compiled(&dir, "preload/threads.cc", &["-O2"]) {
        same_from_outside(|work| args([&program.display(), &(size(4500, 60) * work)]));
    }
}

#[test]
fn rust() {
    let partition = program("partition");
    same_from_outside(|work| {
        let (mib, times) = (size(190, 48), size(8, 1) * work);
        args([&partition.display(), &"steady", &format!("{mib}M"), &1, &times])
    });
}

#[test]
fn go_linked_statically() {
    let dir = Directory::new("outside");
    let to = dir.path().join("heap-go");
    let mut build = Command::new("go");
    build.env("GO111MODULE", "off").env("CGO_ENABLED", "0").env("GOCACHE", dir.path().join("cache"));
    if compiles(build.args(["build", "-o"]).arg(&to).arg(source("outside/heap.go"))) {
        same_from_outside(|work| args([&to.display(), &(size(80, 5) * work), &size(50_000, 20_000)]));
    }
}

#[test]
fn node() {
    if has("node", "--version") {
        let script = source("outside/heap.js");
        same_from_outside(|work| {
            args([&"node", &script.display(), &(size(80, 3) * work), &size(100_000, 40_000)])
        });
    }
}

#[test]
fn java() {
    let dir = Directory::new("outside");
    if has("java", "-version")
        && compiles(Command::new("javac").arg("-d").arg(dir.path()).arg(source("outside/Heap.java")))
    {
        let (heap, records) = if is_full() { ("-Xmx400m", 100_000) } else { ("-Xmx100m", 20_000) };
        same_from_outside(|work| {
            let rounds = size(18, 3) * work;
            args([
                &"java",
                &"-XX:-UsePerfData",
                &heap,
                &"-cp",
                &dir.path().display(),
                &"Heap",
                &rounds,
                &records,
            ])
        });
    }
}

/// All tests of this file do so with `BDRUN_OUTSIDE_NOBODY`; this one always.
#[test]
fn as_a_user_without_rights() {
    if nobody_can_run_it() && python_with("hashlib") {
        let script = source("preload/objects.py");
        let scale = Chaos { nobody: true, ..scale() };
        scale.same_output(|work| args([&PYTHON, &script.display(), &(size(180, 3) * work)]));
    }
}

/// Each rank has a child, a child it forgets, and as root a descendant that has made itself a daemon and goes
/// on starting processes. Results appear under their names when they are whole.
const FAMILY: &str = r#"#!/bin/bash
partition=$1 results=$2 rank=$3 daemon=$4 times=$5
forever='while :; do "$0" steady 12M 1; done'
if [ $daemon = 1 ]; then (setsid bash -c "$forever" $partition </dev/null >/dev/null 2>&1 &); fi
bash -c "$forever" $partition >/dev/null &
$partition steady $((4 + 4 * rank))M $rank $times >$results/.$rank &&
    mv $results/.$rank $results/$rank
"#;

#[test]
fn a_killed_master_leaves_nothing_of_them() {
    const RANKS: u32 = 6;
    let kills = std::env::var("BDRUN_OUTSIDE_KILLS").map_or(3, |n| n.parse().expect("a number of kills"));
    let nobody = scale().nobody;
    if nobody && !nobody_can_run_it() {
        return;
    }
    let dir = Directory::new("outside");
    let (script, partition) = (dir.script("family", FAMILY), program("partition"));
    let alone = |times: usize| -> BTreeMap<u32, String> {
        let alone = |rank| {
            let command =
                args([&partition.display(), &"steady", &format!("{}M", 4 + 4 * rank), &rank, &times]);
            (rank, text(&plainly(&command).stdout))
        };
        (0..RANKS).map(alone).collect()
    };
    // Without root there is nobody to end a daemon when the master is dead: see the failure model.
    let daemon = if is_root() && !nobody { "1" } else { "0" };
    let job = |times: usize| {
        let results = Directory::new("results");
        results.open_to_all();
        let options = format!("-np {RANKS} --chaos 5 --preload never --output quiet --");
        let words = args([
            &script.display(),
            &partition.display(),
            &results.path().display(),
            &"{rank}",
            &daemon,
            &times,
        ]);
        let words = options.split(' ').map(String::from).chain(words);
        let job = bdrun_args(words);
        (if nobody { job.by_nobody() } else { job }, results)
    };
    // What is there must be right and whole.
    let check = |results: &Directory, expected: &BTreeMap<u32, String>| {
        let found: Vec<u32> =
            (0..RANKS).filter(|rank| results.path().join(rank.to_string()).exists()).collect();
        for rank in &found {
            let written = std::fs::read_to_string(results.path().join(rank.to_string())).expect("a result");
            assert_eq!(written, expected[rank], "rank {rank} had ended");
        }
        found.len()
    };
    // Undisturbed, and long enough for some to be moved.
    let (times, expected, wall) = first_of([1, 3, 9], |more| {
        let times = size(3, 1) * more;
        let (expected, (whole, results)) = (alone(times), job(times));
        let outcome = whole.succeed();
        assert_eq!(check(&results, &expected), RANKS as usize, "undisturbed");
        let moved = outcome.stats().ranks.iter().any(|rank| rank.evictions > 0);
        if moved { Ok((times, expected, outcome.wall)) } else { Err(format!("{outcome:?}")) }
    });

    let seed = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default().as_nanos() as u64;
    eprintln!("seed {seed}");
    let (mut ended, mut slowest, mut state) = (0, Duration::ZERO, seed | 1);
    for _ in 0..kills {
        let (job, results) = job(times);
        let mut job = job.start();
        job.wait_for_ranks(1);
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        std::thread::sleep(wall.mul_f64((state >> 33) as f64 / f64::from(1u32 << 31)));
        let begin = Instant::now();
        job.signal(libc::SIGKILL);
        let gone = poll(LIMIT, || job.processes().is_empty().then_some(()));
        let left = if gone.is_some() { Vec::new() } else { job.processes() };
        // Or they would go on for ever.
        left.iter().for_each(|&(pid, _)| proc::kill(pid, libc::SIGKILL));
        assert!(left.is_empty(), "{LIMIT:?} after the master's end there were still {left:?}");
        slowest = slowest.max(begin.elapsed());
        // That nothing is left in the scratch directory either is checked for every job.
        let end = job.wait();
        // The moment may have come after the end.
        assert!(end.signal == Some(libc::SIGKILL) || end.code == Some(0), "{end:?}");
        ended += check(&results, &expected);
    }
    eprintln!(
        "{kills} masters killed: all processes gone within {slowest:?}; {ended} ranks had ended, with the right results"
    );
    assert!(!is_full() || slowest < Duration::from_secs(2), "{slowest:?}");
}

/// Five times what it may hold; no process of the job is ever killed for memory.
#[test]
fn partitions_that_do_not_fit() {
    let partition = program("partition");
    let seeds: Vec<u64> = (0..12).collect();
    let plain = |mode: &str, seed: u64| {
        let bytes = format!("{}M", 40 + seed * 7 % 17);
        text(&limited(Command::new(&partition).args([mode, &bytes, &seed.to_string()]), LIMIT).stdout)
    };
    for mode in ["steady", "late"] {
        let dir = Directory::new("parts");
        let table: String = std::iter::once("seed\tbytes\n".to_owned())
            .chain(seeds.iter().map(|seed| format!("{seed}\t{}M\n", 40 + seed * 7 % 17)))
            .collect();
        let parts = dir.path().join("parts.tsv");
        std::fs::write(&parts, table).expect("write a file");
        let words = args([
            &"--memory",
            &"72M",
            &"--header",
            &"--parts",
            &parts.display(),
            &"--",
            &partition.display(),
        ]);
        let words = words.into_iter().chain(args([&mode, &"{bytes}", &"{seed}"]));
        let outcome = bdrun_args(words).succeed();
        let mut printed: Vec<&str> = outcome.stdout.lines().collect();
        printed.sort_unstable();
        let mut expected: Vec<String> =
            seeds.iter().map(|&seed| plain(mode, seed).trim_end().to_owned()).collect();
        expected.sort_unstable();
        assert_eq!(printed, expected);
        let stats = outcome.stats();
        let all: u64 = stats.ranks.iter().map(|rank| rank.peak_bytes).sum();
        assert!(all > 3 * stats.budget_bytes, "{stats:?}");
        // Of the first two, which nobody knew anything of, one had to go.
        assert!(stats.evictions > 0, "{stats:?}");
    }
}

/// Handles what it is sent; grows when one file is there, and computes until another one is.
const HANDLES_USR: &str = "
import os, signal, sys, time
for number in (signal.SIGUSR1, signal.SIGUSR2):
    signal.signal(number, lambda *_: None)
print('ready', sys.argv[1], flush=True)
while not os.path.exists(sys.argv[2]):
    time.sleep(0.01)
memory = bytearray(60 << 20)
for at in range(0, len(memory), 4096):
    memory[at] = 1
x = 0
while not os.path.exists(sys.argv[3]):
    x += sum(memory[at] for at in range(0, len(memory), 65536))
print('ok', sys.argv[1], flush=True)
# At its end Python puts the actions of signals back, and one may still be under way.
os._exit(0)
";

/// Batch systems send them as a matter of course; who is held or out gets them when it goes on, and nobody is
/// killed.
#[test]
fn user_signals_to_bdrun_kill_nobody_who_is_held_or_out() {
    let args =
        ["-np", "2", "--processors", "2", "--memory", "100M", "--preload", "never", "--", "python3", "-c"];
    let dir = Directory::new("user-signals");
    let [grow, go] = ["grow", "go"].map(|name| dir.path().join(name).display().to_string());
    let job = bdrun_args(args.into_iter().chain([HANDLES_USR, "{rank}", &grow, &go])).start();
    // Before one of them has grown: who does not fit beside one that computes comes in when that ends.
    job.wait_for_output("ready 0");
    job.wait_for_output("ready 1");
    std::fs::write(grow, "").expect("a file");
    // Only one of them fits.
    assert!(job.sees_held_or_out(), "{}", job.situation());
    for signal in [libc::SIGUSR1, libc::SIGWINCH, libc::SIGUSR2, libc::SIGCONT] {
        job.signal(signal);
        std::thread::sleep(Duration::from_millis(50));
    }
    job.wait_until_out();
    std::fs::write(go, "").expect("a file");
    let outcome = job.wait();
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    assert!(outcome.stdout.contains("ok 0") && outcome.stdout.contains("ok 1"), "{outcome:?}");
    let stats = outcome.stats();
    assert!(stats.evictions > 0 || stats.measured.as_ref().is_some_and(|m| m.out_bytes > 0), "{stats:?}");
}

/// A rank that was killed for its size has failed once.
#[test]
fn a_rank_over_its_limit_counts_once() {
    let program = "
import sys, time
memory = bytearray((80 if sys.argv[1] == '1' else 5) << 20)
for at in range(0, len(memory), 4096):
    memory[at] = 1
time.sleep(1000 if sys.argv[1] == '1' else 0)
print('ok', sys.argv[1], flush=True)
";
    let args = ["-np", "3", "--memory", "2G", "--rank-memory", "40M", "--keep-going", "--preload", "never"];
    let outcome = bdrun_args(args.into_iter().chain(["--", "python3", "-c", program, "{rank}"])).run();
    outcome.failed_with(123, &["rank 1", "memory limit exceeded"]);
    assert!(!outcome.stderr.contains("ranks failed"), "{outcome:?}");
    assert!(outcome.stdout.contains("ok 0") && outcome.stdout.contains("ok 2"), "{outcome:?}");
}
