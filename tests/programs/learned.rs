//! What ranks needed, remembered from run to run (`--learn`).

use std::fs;

use crate::common::{Directory, Outcome, bdrun_args, first_of, skipped};

const MIB: u64 = 1 << 20;

/// Ten parts that hold what they are told to for so many seconds; one in five holds five times what it
/// declares.
struct Bench {
    dir: Directory,
    seconds: f64,
}

/// What was not looked at while it held its memory is not known.
const SECONDS: [f64; 3] = [0.5, 5.0, 40.0];

impl Bench {
    fn new(name: &str, seconds: f64) -> Self {
        let dir = Directory::new(name);
        let line = |at: usize| format!("p{at}\t{}M\t{}\n", 10 + at, Self::holds(at));
        fs::write(dir.path().join("list"), (0..10).map(line).collect::<String>()).unwrap();
        Self { dir, seconds }
    }

    /// MiB.
    fn holds(at: usize) -> usize {
        if at % 5 == 2 { 5 * (10 + at) } else { 10 + at }
    }

    /// Each was looked at while it held its memory.
    fn were_seen(outcome: &Outcome) -> Result<(), String> {
        let mut ranks = outcome.stats().ranks.iter().enumerate();
        let seen = ranks.all(|(at, rank)| rank.peak_bytes >= (Self::holds(at) as u64) * MIB);
        seen.then_some(()).ok_or(format!("{outcome:?}"))
    }

    fn path(&self, name: &str) -> String {
        self.dir.path().join(name).display().to_string()
    }

    fn run(&self, more: &[&str]) -> Outcome {
        let list = self.path("list");
        let program =
            "import sys, time; held = b'x' * (int(sys.argv[1]) << 20); time.sleep(float(sys.argv[2]))";
        let seconds = self.seconds.to_string();
        let mut args = vec!["--memory", "200M", "--parts", &list, "--size-column", "2"];
        args.extend(more);
        args.extend(["--", "python3", "-c", program, "{3}", &seconds]);
        bdrun_args(args).succeed()
    }
}

/// Not after hours, when all ranks have ended well.
#[test]
fn a_file_that_cannot_be_written_is_said_before_anything_runs() {
    let dir = Directory::new("learned-nowhere");
    let at = |name: &str| dir.path().join(name).display().to_string();
    let (nowhere, ran, journal) = (at("no/learned"), at("ran"), at("journal"));
    let run = |options: &[&str]| bdrun_args(options.iter().chain(&["touch", &ran])).run();
    run(&["-np", "1", "--learn", &nowhere]).failed_with(120, &["--learn: cannot write", "no/learned"]);
    // What lies beside a journal.
    std::os::unix::fs::symlink("no/learned", at("journal.learned")).unwrap();
    run(&["-np", "1", "--resume", &journal]).failed_with(120, &["--learn: cannot write", "journal.learned"]);
    assert!(!dir.path().join("ran").exists() && !dir.path().join("journal").exists());
}

fn has_python() -> bool {
    let there = std::process::Command::new("python3").arg("-c").arg("").status();
    let there = there.is_ok_and(|status| status.success());
    if !there {
        skipped("python3", "no Python");
    }
    there
}

#[test]
fn a_second_run_sets_aside_what_each_part_needed() {
    if !has_python() {
        return;
    }
    let (first, second) = first_of(SECONDS, |seconds| {
        let bench = Bench::new("learned", seconds);
        let learned = bench.path("learned.json");
        let first = bench.run(&["--learn", &learned]);
        Bench::were_seen(&first)?;
        let text = fs::read_to_string(&learned).unwrap();
        assert!(text.contains("\"p2\\t12M\\t60\""), "{text}");
        let second = bench.run(&["--learn", &learned]);
        Bench::were_seen(&second)?;
        // One that was seen in one run only has another peak in each: that of the kernel, files included.
        let near = |rank: &bdrun::stats::RankStats| {
            (rank.reserve_bytes as f64 / rank.peak_bytes as f64 - 1.05).abs() < 0.1
        };
        let far = second.stats().ranks.iter().find(|rank| !near(rank)).map(|rank| format!("{rank:?}"));
        far.map_or(Ok((first, second)), Err)
    });
    let (first, second) = (first.stats(), second.stats());
    for (rank, before) in second.ranks.iter().zip(&first.ranks) {
        // What was measured before is what is set aside now, with 5 % more.
        let set_aside = rank.reserve_bytes as f64;
        assert!((set_aside / before.peak_bytes as f64 - 1.05).abs() < 0.001, "{rank:?} {before:?}");
    }
    assert!(first.ranks.iter().any(|rank| rank.reserve_bytes < rank.peak_bytes / 2), "{first:?}");
    let user = second.user_job.expect("what was set aside");
    assert_eq!(user.memory_reserve, second.ranks.iter().map(|rank| rank.reserve_bytes).sum::<u64>());
    assert!(user.cumulative_memory_reserve > user.memory_reserve as f64 * 0.3, "{user:?}");
    let proxy = second.job_proxy.expect("our own share");
    let by = proxy.memory_reserve as f64 / proxy.estimated_memory.unwrap() as f64;
    assert!((0.5..=2.0).contains(&by) && by != 1.0, "{proxy:?}");
}

/// Beside the journal, where there is one; of a job that failed what ended well counts.
#[test]
fn a_job_with_a_journal_learns_without_being_told() {
    if !has_python() {
        return;
    }
    first_of(SECONDS, |seconds| {
        let bench = Bench::new("learned-journal", seconds);
        let journal = bench.path("journal");
        Bench::were_seen(&bench.run(&["--journal", &journal]))?;
        assert!(fs::read_to_string(bench.path("journal.learned")).unwrap().contains("python3"));
        Ok(())
    });
}

#[test]
fn ranks_of_our_own_runtime_are_learned_as_well() {
    let dir = Directory::new("learned-own");
    let learned = dir.path().join("learned").display().to_string();
    let phases = crate::common::program("phases").display().to_string();
    let run = || {
        bdrun_args(["-np", "4", "--memory", "400M", "--learn", &learned, "--", &phases, "32", "2"]).succeed()
    };
    let (first, second) = (run(), run());
    for (rank, before) in second.stats().ranks.iter().zip(&first.stats().ranks) {
        assert!(
            rank.reserve_bytes.abs_diff(before.peak_bytes) < before.peak_bytes / 10,
            "{rank:?} {before:?}"
        );
        assert!(before.peak_bytes > 32 * MIB && before.reserve_bytes < 8 * MIB, "{before:?}");
    }
}

/// The options of seed 002 under its names, with either kind of hyphen.
#[test]
fn the_options_of_the_digest() {
    let first = |options: &[&str]| {
        let outcome = bdrun_args(options.iter().copied().chain([
            "--memory",
            "200M",
            "--rank-memory",
            "100M",
            "--",
            "true",
        ]));
        outcome.succeed().stats().ranks[0].reserve_bytes / MIB
    };
    assert_eq!(first(&[]), 50);
    assert_eq!(first(&["--user_job_memory_digest_default_value", "0.3"]), 30);
    assert_eq!(first(&["--user-job-memory-digest-default-value=0.2"]), 20);
    assert_eq!(first(&["--memory_reserve_factor", "0.7"]), 70);
    assert_eq!(first(&["--tmpfs-size", "64M"]), 64);
    let wrong = bdrun_args(["--memory-reserve-factor", "2", "--", "true"]).run();
    wrong.failed_with(118, &["memory-reserve-factor"]);
    let wrong = bdrun_args(["--learn", "/etc/passwd", "--", "true"]).run();
    wrong.failed_with(120, &["--learn", "/etc/passwd"]);
}
