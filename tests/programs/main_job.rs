//! The main job on real genomes: exact whatever the number of ranks and the budget, bigger than its memory,
//! and gone without a trace whenever it is killed. The truth comes from independent tools
//! (`examples/obikmer-merge/data/truth.json`).

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;

use crate::common::cap::Cap;
use crate::common::{Directory, LIMIT, Outcome, bdrun, first_of, limited, poll, proc, program, skipped};

/// Runs that are ended at a random moment, of each kind.
const KILLS: u32 = 8;

fn truth(k: u32) -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/obikmer-merge/data/truth.json");
    let all: Value = serde_json::from_slice(&std::fs::read(path).expect("the truth")).expect("JSON");
    all["hpylori6"][format!("k{k}")].clone()
}

/// The job on the bundled genomes, into `out`.
fn merge(options: &str, k: u32, out: &Path) -> Outcome {
    bdrun(&format!("{options} obikmer-merge -k {k} --force --out {}", out.display())).succeed()
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value} is no number"))
}

/// The counts in the summary are those of the truth.
fn check_counts(out: &Path, k: u32) {
    let summary: Value =
        serde_json::from_slice(&std::fs::read(out.join("summary.json")).expect("summary.json"))
            .expect("JSON");
    let truth = truth(k);
    assert_eq!(number(&summary["k"]), u64::from(k));
    for (ours, theirs) in [
        ("distinct_kmers", "distinct_kmers"),
        ("unitigs", "unitigs"),
        ("total_unitig_bases", "total_unitig_bases"),
        ("in_all_sources", "in_all_sources"),
        ("in_one_source", "in_one_source"),
    ] {
        assert_eq!(number(&summary[ours]), number(&truth[theirs]), "{ours}, k = {k}");
    }
    let sources = summary["sources"].as_array().expect("sources");
    let expected = truth["sources"].as_object().expect("sources");
    assert_eq!(sources.len(), expected.len());
    for source in sources {
        let name = source["name"].as_str().expect("a name");
        assert_eq!(source["kmers"], expected[name], "{name}");
    }
}

/// SHA-256 of the sorted lines of a dump.
fn digest(what: &str, index: &Path) -> String {
    let dump = Command::new(program("obikmer-merge")).args(["dump", what]).arg(index).output().expect("dump");
    assert!(dump.status.success(), "{}", String::from_utf8_lossy(&dump.stderr));
    let mut lines: Vec<&[u8]> = dump.stdout.split_inclusive(|&b| b == b'\n').collect();
    lines.sort_unstable();
    let mut sum =
        Command::new("sha256sum").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("sha256sum");
    sum.stdin.take().expect("its input").write_all(&lines.concat()).expect("write to sha256sum");
    let out = sum.wait_with_output().expect("its output").stdout;
    String::from_utf8_lossy(&out).chars().take(64).collect()
}

fn check_digests(out: &Path, k: u32) {
    let truth = truth(k);
    for (what, name) in [("--kmers", "sha256_kmers"), ("--unitigs", "sha256_unitigs")] {
        assert_eq!(digest(what, out), truth[name].as_str().expect("a digest"), "{what}, k = {k}");
    }
}

#[test]
fn exact_whatever_the_number_of_ranks_and_the_budget() {
    let dir = Directory::new("index");
    for (options, k) in [("-np 1", 31), ("-np 64 --resident 4 --memory 32M", 31), ("-np 7 --memory 24M", 21)]
    {
        let out = dir.path().join("index");
        merge(options, k, &out);
        check_counts(&out, k);
        check_digests(&out, k);
    }
}

/// README's command: a budget that the job exceeds at least four times.
#[test]
fn bigger_than_its_memory() {
    let dir = Directory::new("index");
    let out = dir.path().join("index");
    let outcome = merge("-np 256 --resident 16 --memory 48M", 31, &out);
    check_counts(&out, 31);
    check_digests(&out, 31);
    let stats = outcome.stats();
    assert!(stats.demand_bytes >= 4 * stats.budget_bytes, "{} of {}", stats.demand_bytes, stats.budget_bytes);
    assert!(stats.peak_resident_bytes <= stats.budget_bytes, "{}", stats.peak_resident_bytes);
    assert!(stats.evicted_bytes >= stats.demand_bytes - stats.budget_bytes, "{}", stats.evicted_bytes);
    assert!(stats.max_resident <= 16, "{}", stats.max_resident);
}

/// K-mers that are rare in a source are the same ones on ranks that have not the memory to count all at once.
#[test]
fn rare_kmers_are_left_out_within_the_budget() {
    let dir = Directory::new("counted");
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/obikmer-merge/data/hpylori6");
    // Two assemblies of one strain as one source: what both have occurs twice.
    let both = dir.path().join("both.fa.gz");
    let members = ["SJM180.fa.gz", "SJM180_contigs.fa.gz"].map(|name| std::fs::read(data.join(name)));
    std::fs::write(&both, members.map(|member| member.expect("a genome")).concat()).expect("written");
    let (alone, ranks) = (dir.path().join("alone"), dir.path().join("ranks"));
    let merge = format!("--min-count 2 {} --out", both.display());
    let one = Command::new(program("obikmer-merge")).args(merge.split(' ')).arg(&alone).output();
    let one = one.expect("started");
    assert!(one.status.success(), "{}", String::from_utf8_lossy(&one.stderr));
    bdrun(&format!("-np 32 --resident 4 --memory 10M obikmer-merge {merge} {}", ranks.display())).succeed();
    let summary = |index: &Path| -> Value {
        serde_json::from_slice(&std::fs::read(index.join("summary.json")).expect("summary")).expect("JSON")
    };
    let (alone_says, ranks_say) = (summary(&alone), summary(&ranks));
    for figure in ["sources", "distinct_kmers", "unitigs", "total_unitig_bases"] {
        assert_eq!(alone_says[figure], ranks_say[figure], "{figure}");
    }
    assert!(number(&ranks_say["distinct_kmers"]) > 1_000_000, "{ranks_say}");
    for what in ["--kmers", "--unitigs"] {
        assert_eq!(digest(what, &alone), digest(what, &ranks), "{what}");
    }
}

/// The kernel sees what `--stats` calls the demand.
#[test]
fn with_ample_memory_nothing_is_evicted() {
    let cap = match Cap::new(8 << 30) {
        Ok(cap) => cap,
        Err(why) => return skipped("cgroup", why),
    };
    let dir = Directory::new("index");
    let out = dir.path().join("index");
    let command = format!("-np 256 --memory 16G obikmer-merge --force --out {}", out.display());
    // The peak may be between two looks.
    first_of(0..5, |_| {
        let job = bdrun(&command).under(&cap).start();
        let mut highest = 0;
        let ended = poll(LIMIT, || {
            highest = highest.max(cap.anonymous_and_shared());
            job.has_ended().then_some(())
        });
        assert!(ended.is_some());
        let outcome = job.wait();
        assert_eq!(outcome.code, Some(0), "{outcome:?}");
        let stats = outcome.stats();
        assert_eq!((stats.evicted_bytes, stats.restored_bytes, stats.spilled_message_bytes), (0, 0, 0));
        let ratio = highest as f64 / stats.demand_bytes as f64;
        let said = format!("the kernel saw {highest} bytes, the demand was {}", stats.demand_bytes);
        (0.8..=1.2).contains(&ratio).then_some(()).ok_or(said)
    });
}

/// What a user sees who does as the title says, twice.
#[test]
fn an_index_that_is_there_is_not_replaced_unasked() {
    let dir = Directory::new("index");
    let run = |args: &str| {
        bdrun(&format!("-np 8 obikmer-merge {args}")).with(|command| command.current_dir(dir.path())).run()
    };
    let first = run("");
    assert_eq!(first.code, Some(0), "{first:?}");
    check_counts(&dir.path().join("obikmer-index"), 31);
    assert!(first.stdout.contains("bundled"), "{first:?}");
    let second = run("");
    assert_eq!(second.code, Some(1), "{second:?}");
    assert!(second.stderr.contains("--force"), "{second:?}");
    assert_eq!(run("--force").code, Some(0));
    let entries = std::fs::read_dir(dir.path()).expect("list").count();
    assert_eq!(entries, 1, "something is left beside the index");
}

fn random(below: u64) -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(0) % below
}

/// SIGKILL of a random rank, SIGKILL of the master, SIGINT, each at random moments of a run.
#[test]
fn killed_at_any_moment_it_leaves_nothing() {
    let dir = Directory::new("index");
    let out = dir.path().join("index");
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/obikmer-merge/data/hpylori6");
    let command = format!(
        "-np 24 --resident 6 --memory 12M obikmer-merge --force --out {} {} {}",
        out.display(),
        data.join("G27.fa.gz").display(),
        data.join("SJM180.fa.gz").display()
    );
    let mut whole = bdrun(&command).succeed().wall;
    let (mut ended_before, mut memory_seen) = (0, 0);
    let mut round = 0;
    while round < 3 * KILLS {
        let mut job = bdrun(&command).start();
        job.wait_for_ranks(1);
        std::thread::sleep(Duration::from_micros(random(whole.as_micros() as u64 * 9 / 10)));
        let memory = proc::memory_files(job.pid());
        let ranks = job.ranks();
        match round % 3 {
            0 if ranks.is_empty() => {}
            0 => proc::kill(ranks[random(ranks.len() as u64) as usize].1, libc::SIGKILL),
            1 => job.signal(libc::SIGKILL),
            _ => job.signal(libc::SIGINT),
        }
        // Checks that no process and no scratch file is left.
        let outcome = job.wait();
        match (outcome.code, round % 3) {
            (Some(0), _) => {
                // The machine is less busy than it was. This one does not count.
                whole = whole.min(outcome.wall);
                ended_before += 1;
                assert!(ended_before <= 10 * KILLS, "{ended_before} runs ended before they were killed");
                continue;
            }
            (Some(137), 0) => {
                assert!(outcome.stderr.contains("was killed by SIGKILL"), "{outcome:?}");
                assert!(outcome.stderr.contains("error: rank "), "{outcome:?}");
                assert!(outcome.wall < LIMIT);
            }
            (None, 1) => assert_eq!(outcome.signal, Some(libc::SIGKILL)),
            (Some(130), 2) => {}
            // It came when nothing was left to be done but to say so, and that took longer than it then may.
            (None, 2) if outcome.signal == Some(libc::SIGINT) => {}
            _ => panic!("round {round}: {outcome:?}"),
        }
        memory_seen += usize::from(!memory.is_empty());
        round += 1;
        let left = poll(LIMIT, || proc::holders(&memory).is_empty().then_some(()));
        assert!(left.is_some(), "shared memory is still held by {:?}", proc::holders(&memory));
    }
    assert!(memory_seen >= KILLS as usize, "the shared memory was seen only {memory_seen} times");
    let names = poll(LIMIT, || proc::named_shared_memory().is_empty().then_some(()));
    assert!(names.is_some(), "{:?}", proc::named_shared_memory());
    // And the next run works, whatever the killed ones left of their output, and clears it away.
    merge("-np 64 --resident 8 --memory 32M", 31, &out);
    check_counts(&out, 31);
    let beside: Vec<PathBuf> =
        std::fs::read_dir(dir.path()).expect("list").flatten().map(|entry| entry.path()).collect();
    assert_eq!(beside, [out], "left beside the index");
}

#[test]
fn wrong_input_is_one_clear_error() {
    let dir = Directory::new("input");
    let bad = dir.path().join("bad.fa.gz");
    let bundled =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/obikmer-merge/data/hpylori6/G27.fa.gz");
    let whole = std::fs::read(&bundled).expect("a genome");
    std::fs::write(&bad, &whole[..whole.len() / 2]).expect("write half of it");
    let out = dir.path().join("index");
    let command =
        format!("-np 5 obikmer-merge --out {} {} {}", out.display(), bundled.display(), bad.display());
    let outcome = bdrun(&command).run();
    assert_eq!(outcome.code, Some(1), "{outcome:?}");
    assert!(outcome.stderr.contains("bad.fa.gz"), "{outcome:?}");
    assert_eq!(outcome.stderr.matches("bad.fa.gz").count(), 1, "told more than once: {outcome:?}");
    assert!(!out.exists());
    let help = limited(Command::new(program("obikmer-merge")).arg("--help"), LIMIT);
    assert!(help.status.success());
}
