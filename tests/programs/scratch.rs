//! Scratch that dies, forgets or fills up, limits of independent ranks, and jobs that end while ranks are
//! held or out: rows of `docs/failure-model.md`, each with a whole job. That nothing is left is checked for
//! every job (`common`).

use std::path::{Path, PathBuf};

use crate::common::chaos::{args, compiled, plainly, text};
use crate::common::{
    Bdrun, Directory, Job, LIMIT, Outcome, bdrun_args, bdrun_on, first_of, poll, program, skipped,
};
use crate::full_disk::SmallDisk;

/// How the scratch goes wrong (`scratch/faulty.c`), and how that is said of a file that another process reads
/// for the rank.
const FAULTS: [(&str, &str); 3] = [
    ("read", "cannot read the scratch file"),
    ("turned", "was damaged at offset"),
    ("write", "cannot write the scratch file"),
];

/// A scratch directory on a disk that dies.
struct Dying {
    scratch: Directory,
    _dir: Directory,
    shim: PathBuf,
}

impl Dying {
    /// Nothing where there is no compiler, which is said.
    fn new() -> Option<Self> {
        let dir = Directory::new("faulty");
        let shim = compiled(&dir, "scratch/faulty.c", &["-shared", "-fPIC"])?;
        Some(Self { scratch: Directory::new("scratch"), _dir: dir, shim })
    }

    fn job<S: AsRef<std::ffi::OsStr>>(&self, fault: &str, args: impl IntoIterator<Item = S>) -> Bdrun {
        bdrun_on(self.scratch.path(), args).with(|command| {
            let command = command.env("FAULTY", fault).env("FAULTY_DIR", self.scratch.path());
            command.env("LD_PRELOAD", &self.shim)
        })
    }
}

/// The job has ended with 122; a rank, the cause and the remedy are named.
fn broken(outcome: &Outcome, words: &[&str]) {
    outcome.failed_with(122, words);
    outcome.failed_with(122, &["error: rank ", "check the disk", "--scratch"]);
    assert_eq!(outcome.stats().status, "scratch-broken");
}

#[test]
fn ranks_that_page_themselves_end_with_122() {
    let Some(disk) = Dying::new() else { return };
    for (fault, words) in [
        ("read", ["its memory cannot be restored: cannot read", "Input/output error"]),
        ("turned", ["its memory cannot be restored: a block", "checksum does not match"]),
        ("write", ["its memory cannot be written to scratch: cannot ", "Input/output error"]),
    ] {
        let job = "-np 4 --memory 32M sweep 16M 20";
        let outcome = disk.job(fault, job.split(' ')).run();
        broken(&outcome, &words);
        assert_eq!(outcome.stdout, "", "it went on to its end");
    }
}

/// Several times, because a rank that is killed for it must not count as one that somebody else killed.
#[test]
fn ranks_that_are_moved_from_outside_end_with_122() {
    let Some(disk) = Dying::new() else { return };
    let directory = disk.scratch.path().display().to_string();
    let partition = program("partition");
    let job = "-np 3 --memory 2G --chaos 10 --preload never --";
    let words = |rank: &str, times: u32| args([&partition.display(), &"steady", &"24M", &rank, &times]);
    let right = |times| -> String {
        (0..3).map(|rank: u32| text(&plainly(&words(&rank.to_string(), times)).stdout)).collect()
    };
    let first = right(20);
    for (fault, word) in FAULTS.into_iter().cycle().take(10) {
        // On a busy machine all may be through before one is moved.
        first_of([20, 200, 1000], |times| {
            let words = words("{rank}", times);
            let outcome = disk.job(fault, job.split(' ').map(String::from).chain(words)).run();
            let right = if times == 20 { first.clone() } else { right(times) };
            assert!(outcome.stdout.lines().all(|line| right.contains(line)), "{outcome:?}");
            if outcome.code == Some(0) {
                return Err(format!("{fault}: {outcome:?}"));
            }
            broken(&outcome, &[word, &directory]);
            Ok(())
        });
    }
}

/// Goes through `argv[1]` MiB `argv[2]` times, and tells each time what it found.
const SWEEPS: &str = "
import sys, hashlib
size, rounds = int(sys.argv[1]) << 20, int(sys.argv[2])
memory = bytearray(size)
for at in range(0, size, 4096):
    memory[at:at + 8] = (at * 2654435761 % 2**61).to_bytes(8, 'little')
for turn in range(rounds):
    found = hashlib.blake2b()
    for at in range(0, size, 4096):
        found.update(memory[at:at + 32])
        memory[at + 8 + turn % 1000] = (at >> 12) % 251
    print(turn, found.hexdigest(), flush=True)
";

/// A rank that needs several times the budget.
fn larger(rounds: &str) -> [&str; 11] {
    ["-np", "1", "--memory", "64M", "--preload", "never", "python3", "-c", SWEEPS, "192", rounds]
}

/// Whether a rank may run in parts here; said, if not.
fn ran_in_parts(outcome: &Outcome) -> bool {
    let refused = outcome.stderr.contains("cannot be paged");
    if refused {
        skipped("parts", "parts of a rank may not be paged here (CAP_SYS_PTRACE)");
    }
    !refused
}

#[test]
fn a_rank_in_parts_ends_with_122() {
    let Some(disk) = Dying::new() else { return };
    let directory = disk.scratch.path().display().to_string();
    // Rounds without end: on a busy machine many may pass before it is paged.
    let right = text(&plainly(&args([&"python3", &"-c", &SWEEPS, &192, &40])).stdout);
    for (fault, word) in FAULTS.into_iter().cycle().take(6) {
        let outcome = disk.job(fault, larger("1000000")).run();
        if !ran_in_parts(&outcome) {
            return;
        }
        broken(&outcome, &[word, &directory]);
        let said = &outcome.stdout;
        assert!(right.starts_with(said) || said.starts_with(&right), "{outcome:?}");
    }
}

/// It runs on with what it holds, to the right end; and says so.
#[test]
fn a_rank_in_parts_goes_on_when_scratch_is_full() {
    let disk = match SmallDisk::new(48) {
        Ok(disk) => disk,
        Err(why) => return skipped("mount", why),
    };
    first_of(["2", "20", "200"], |rounds| {
        let outcome = bdrun_on(disk.path(), larger(rounds)).run();
        if !ran_in_parts(&outcome) {
            return Ok(());
        }
        assert_eq!(outcome.code, Some(0), "{outcome:?}");
        let alone = plainly(&args([&"python3", &"-c", &SWEEPS, &192, &rounds]));
        assert_eq!(outcome.stdout, text(&alone.stdout));
        assert_eq!(disk.used(), 0);
        (outcome.stats().evicted_bytes > 0).then_some(()).ok_or(format!("{outcome:?}"))
    });
}

/// Who is out stays out until there is room, the others are held meanwhile, and all end rightly.
#[test]
fn independent_ranks_go_on_when_scratch_is_full() {
    let disk = match SmallDisk::new(8) {
        Ok(disk) => disk,
        Err(why) => return skipped("mount", why),
    };
    let partition = program("partition");
    let plain =
        |rank: usize| text(&plainly(&args([&partition.display(), &"late", &"40M", &rank, &2])).stdout);
    let job = "-np 4 --memory 100M --preload never --keep-order --";
    let words = args([&partition.display(), &"late", &"40M", &"{rank}", &2]);
    let outcome = bdrun_on(disk.path(), job.split(' ').map(String::from).chain(words)).run();
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    assert_eq!(outcome.stdout, (0..4).map(plain).collect::<String>());
    assert_eq!(disk.used(), 0);
}

/// Without `--keep-going` the whole job ends; with it (`outside`), the others go on.
#[test]
fn an_independent_rank_over_its_limit_ends_the_job() {
    let partition = program("partition");
    let script = "if [ $0 = 1 ]; then exec $1 steady 100M 1 1000; else sleep 1000; fi";
    let words = args([&"sh", &"-c", &script, &"{rank}", &partition.display()]);
    let job = "-np 3 --memory 2G --rank-memory 40M --preload never --";
    let outcome = bdrun_args(job.split(' ').map(String::from).chain(words)).run();
    outcome.failed_with(123, &["rank 1", "memory limit exceeded", "40.0 MiB", "--rank-memory"]);
    assert_eq!(outcome.stats().status, "memory");
}

/// Rank 2 is started when the end of rank 1 has been seen, and rank 0 fails when rank 2 lets it.
#[test]
fn the_first_failure_counts_where_the_others_go_on() {
    let dir = Directory::new("turns");
    let script = "cd $1; case $0 in
        0) while [ ! -e over ]; do sleep 0.01; done; exit 3;;
        1) exit 7;;
        2) : >over; echo ok 2;;
        3) echo ok 3;;
    esac";
    let job = "-np 4 -j 2 --memory 2G --preload never --keep-going sh -c";
    let words = args([&script, &"{rank}", &dir.path().display()]);
    let outcome = bdrun_args(job.split(' ').map(String::from).chain(words)).run();
    outcome.failed_with(7, &["rank 1"]);
    let mut lines: Vec<&str> = outcome.stdout.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["ok 2", "ok 3"], "{outcome:?}");
}

/// Holds 60 MiB and never ends; deaf to the signal to end if asked to be.
const HOLDS: &str = "
import signal, sys
if sys.argv[1] == 'deaf':
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
memory = bytearray(60 << 20)
for at in range(0, len(memory), 4096):
    memory[at] = 1
print('ready', flush=True)
while True:
    sum(memory[::4096])
";

fn holding(scratch: &Path, options: &str, ears: &str) -> Job {
    let options = format!("-np 3 --processors 3 --memory 100M --preload never {options} python3 -c");
    let words = options.split_whitespace().map(String::from).chain(args([&HOLDS, &ears]));
    bdrun_on(scratch, words).start()
}

/// Waits until some rank has its memory and another is held or out; false if the job ends before.
fn one_stands(job: &Job) -> bool {
    let ready = poll(LIMIT, || (job.has_printed("ready") || job.has_ended()).then_some(()));
    ready.is_some() && job.sees_held_or_out()
}

#[test]
fn nothing_is_left_of_ranks_that_are_out_or_held_when_the_job_ends() {
    let roomy = Directory::new("scratch");
    // Where nothing can leave, who must stand still is held.
    let full = SmallDisk::new(1).map_err(|why| skipped("mount", why)).ok();
    for scratch in [Some(roomy.path()), full.as_ref().map(SmallDisk::path)].into_iter().flatten() {
        for ears in ["hears", "deaf"] {
            let job = holding(scratch, "", ears);
            assert!(one_stands(&job), "{}", job.situation());
            job.signal(libc::SIGTERM);
            let outcome = job.wait();
            outcome.failed_with(143, &["SIGTERM"]);
            assert_eq!(outcome.stats().status, "interrupted");
        }
        first_of(["3s", "30s", "300s"], |limit| {
            let job = holding(scratch, &format!("--timeout {limit}"), "hears");
            let stood = one_stands(&job);
            job.wait().failed_with(124, &["--timeout"]);
            stood.then_some(()).ok_or("nobody stood still by then".into())
        });
        let job = holding(scratch, "", "hears");
        assert!(one_stands(&job), "{}", job.situation());
        job.signal(libc::SIGKILL);
        assert_eq!(job.wait().signal, Some(libc::SIGKILL));
    }
    if let Some(disk) = full {
        assert_eq!(disk.used(), 0);
    }
}

#[test]
fn nothing_is_left_of_a_rank_in_parts_when_the_job_ends() {
    for (signal, code) in [(libc::SIGTERM, Some(143)), (libc::SIGINT, Some(130)), (libc::SIGKILL, None)] {
        let job = bdrun_args(larger("1000000")).start();
        // By then it has had more memory than the budget.
        job.wait_for_output("0 ");
        job.signal(signal);
        assert_eq!(job.wait().code, code);
    }
    first_of(["4s", "40s", "400s"], |limit| {
        let words = ["--timeout", limit].into_iter().chain(larger("1000000"));
        let outcome = bdrun_args(words).run();
        outcome.failed_with(124, &["--timeout"]);
        outcome.stdout.starts_with("0 ").then_some(()).ok_or("it had not filled its memory by then".into())
    });
}
