//! Sudden ends at random moments of a job that is being paged: nothing is left, and the error says who died.

use std::collections::BTreeSet;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::common::{Job, LIMIT, Outcome, bdrun, bdrun_args, first_of, limited, poll, proc, skipped};

/// Moments tried of each kind.
const ROUNDS: u32 = 20;
/// The job would take hours: it always ends by what is done to it.
const JOB: &str = "-np 6 --memory 16M sweep 10M 1000000";

/// Numbers that differ from run to run; the seed is printed by a failing test.
struct Random(u64);

impl Random {
    fn new() -> Self {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        let seed = now.as_nanos() as u64 | 1;
        eprintln!("seed {seed}");
        Self(seed)
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

/// A job at a random moment, from its first process on; with its shared memory.
fn at_a_random_moment(random: &mut Random) -> (Job, BTreeSet<u64>) {
    let mut job = bdrun(JOB).start();
    job.wait_for_ranks(1);
    let memory = proc::memory_files(job.pid());
    assert!(!memory.is_empty(), "the job has a shared segment");
    // Half of the moments in the beginning, when ranks are being started.
    let longest = if random.below(2) == 0 { 40_000 } else { 700_000 };
    std::thread::sleep(Duration::from_micros(random.below(longest)));
    (job, memory)
}

/// The end of a job, and that nothing of it is left. Processes and files are checked for every job.
fn end(job: Job, memory: &BTreeSet<u64>) -> Outcome {
    let outcome = job.wait();
    let freed = poll(LIMIT, || proc::holders(memory).is_empty().then_some(()));
    assert!(freed.is_some(), "shared memory is left with {:?}: {outcome:?}", proc::holders(memory));
    let names = poll(LIMIT, || proc::named_shared_memory().is_empty().then_some(()));
    assert!(names.is_some(), "{:?}", proc::named_shared_memory());
    outcome
}

#[test]
fn a_killed_rank_is_named_and_nothing_is_left() {
    let mut random = Random::new();
    for round in 0..ROUNDS {
        let (job, memory) = at_a_random_moment(&mut random);
        let ranks = job.ranks();
        let (rank, pid) = ranks[random.below(ranks.len() as u64) as usize];
        // Every other one is killed once it tells what it does.
        let tells = round % 2 == 0;
        if tells {
            let is_told = job.sees(|other| other["rank"] == rank && !other["doing"].is_null());
            assert!(is_told, "{}", job.situation());
        }
        proc::kill(pid, libc::SIGKILL);
        let outcome = end(job, &memory);
        outcome.failed_with(137, &[&format!("rank {rank} was killed by SIGKILL")]);
        let stats = outcome.stats();
        assert_eq!((stats.status.as_str(), stats.overdraft_rank), ("rank-killed", None), "round {round}");
        for other in &stats.ranks {
            let expected: &[&str] = if other.rank == rank { &["signal 9"] } else { &["stopped", "unborn"] };
            assert!(expected.contains(&other.status.as_str()), "round {round}: {other:?}");
        }
        assert!(!tells || outcome.stderr.contains("SIGKILL while "), "round {round}: {outcome:?}");
    }
}

#[test]
fn what_the_killed_rank_was_waiting_for_is_said() {
    const WHERE: &str = "waiting in collective 1, to which rank 0 has not come";
    for options in ["-np 4", "-np 4 --memory 40M"] {
        let mut job = bdrun(&format!("{options} idle 12 1000")).start();
        let ranks = job.wait_for_ranks(4);
        job.wait_for_output("asleep");
        // It comes to wait for rank 0.
        let waits = poll(LIMIT, || {
            let mut explain = Command::new(env!("CARGO_BIN_EXE_bdrun"));
            let said = limited(explain.args(["explain", "2", "--job", &job.pid().to_string()]), LIMIT).stdout;
            String::from_utf8_lossy(&said).contains(WHERE).then_some(())
        });
        assert!(waits.is_some(), "rank 2 does not come to wait: {}", job.situation());
        proc::kill(ranks[2].1, libc::SIGKILL);
        let outcome = job.wait();
        outcome.failed_with(137, &[&format!("rank 2 was killed by SIGKILL while {WHERE}")]);
    }
}

#[test]
fn a_killed_master_takes_everything_along() {
    let mut random = Random::new();
    for _ in 0..ROUNDS {
        let (job, memory) = at_a_random_moment(&mut random);
        job.signal(libc::SIGKILL);
        let outcome = end(job, &memory);
        assert_eq!((outcome.signal, outcome.stats.is_some()), (Some(libc::SIGKILL), false), "{outcome:?}");
    }
}

#[test]
fn an_interrupted_job_ends_and_nothing_is_left() {
    let mut random = Random::new();
    for round in 0..ROUNDS {
        let (job, memory) = at_a_random_moment(&mut random);
        let (signal, code, name) = match round % 4 {
            0 => (libc::SIGTERM, 143, "SIGTERM"),
            _ => (libc::SIGINT, 130, "SIGINT"),
        };
        job.signal(signal);
        let outcome = end(job, &memory);
        outcome.failed_with(code, &[&format!("stopped by {name}")]);
        assert_eq!(outcome.stats().status, "interrupted");
        assert!(
            outcome.stats().ranks.iter().all(|r| r.status == "stopped" || r.status == "unborn"),
            "{outcome:?}"
        );
    }
}

/// Deaf to the signal: the second one kills at once.
#[test]
fn a_second_interrupt_kills() {
    let script = "trap '' INT TERM; echo deaf; while :; do sleep 1; done";
    // Without the second one it would take the grace period of 5 s; with it as long as a busy machine takes.
    first_of(0..3, |_| {
        let begin = Instant::now();
        let job = bdrun_args(["-np", "2", "sh", "-c", script]).start();
        job.wait_for_output("deaf\ndeaf\n");
        job.signal(libc::SIGINT);
        job.wait_for_error("kills them at once");
        // Sooner it would be taken for an echo of the first.
        std::thread::sleep(Duration::from_millis(200));
        let second = begin.elapsed();
        job.signal(libc::SIGINT);
        let outcome = job.wait();
        outcome.failed_with(130, &["stopped by SIGINT"]);
        let took = outcome.wall.saturating_sub(second);
        (took < Duration::from_secs(4)).then_some(()).ok_or(format!("{took:?}"))
    });
}

/// Whoever read the output is gone: the job ends, quietly, as programs do in a pipeline.
#[test]
fn a_closed_pipe_ends_the_job() {
    let (read, write) = std::io::pipe().expect("a pipe");
    let job = bdrun("-np 2 --output quiet yes").with(|command| command.stdout(write)).start();
    std::thread::sleep(Duration::from_millis(200));
    drop(read);
    let outcome = job.wait();
    assert_eq!(outcome.code, Some(141), "{outcome:?}");
}

/// Children that a rank starts and forgets end with the job.
#[test]
fn grandchildren_end_with_the_job() {
    // The check that nothing with the mark is left is part of every job.
    let script = "sleep 3000 & setsid sleep 3001 & echo started; test $BDRUN_RANK = 0 || sleep 3002";
    let job = crate::common::bdrun_args(["-np", "2", "sh", "-c", script]).start();
    job.wait_for_output("started\nstarted\n");
    job.signal(libc::SIGTERM);
    job.wait().failed_with(143, &[]);
    crate::common::bdrun_args(["sh", "-c", "sleep 3000 & exit 0"]).succeed();
}

/// What stands for a process that hangs in the system: one that is traced by somebody else is not reaped
/// before its tracer has seen its end.
#[test]
fn a_rank_that_cannot_be_ended_does_not_keep_the_job() {
    let script = "echo ready; exec sleep 1000";
    let mut job = bdrun_args(["-np", "1", "--preload", "never", "--", "sh", "-c", script]).start();
    let pid = job.wait_for_ranks(1)[0].1;
    job.wait_for_output("ready");
    let none = std::ptr::null_mut::<libc::c_void>();
    // SAFETY: no memory is involved.
    if unsafe { libc::ptrace(libc::PTRACE_SEIZE, pid, none, none) } != 0 {
        return skipped("parts", "no process may be traced here");
    }
    job.signal(libc::SIGTERM);
    let outcome = job.wait();
    outcome.failed_with(143, &["rank 0 was killed and has not ended", &pid.to_string()]);
    // SAFETY: the status is not wanted; it is our tracee until this.
    unsafe { libc::waitpid(pid, std::ptr::null_mut(), libc::__WALL) };
}
