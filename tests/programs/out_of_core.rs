//! Jobs bigger than their memory: same results, within the budget, and no more moved than needed.

use std::time::{Duration, Instant};

use crate::common::cap::Cap;
use crate::common::{LIMIT, Outcome, bdrun, poll, proc, skipped};

const MIB: u64 = 1 << 20;

fn sweep(options: &str, job: &str) -> Outcome {
    bdrun(&format!("{options} sweep {job}")).succeed()
}

#[test]
fn four_times_the_memory_gives_the_same_result() {
    let job = "32M 3";
    let ample = sweep("-np 8 --memory 8G", job);
    assert!(ample.stdout.starts_with("check="), "{ample:?}");
    let free = ample.stats();
    assert_eq!(
        (free.evicted_bytes, free.restored_bytes, free.evictions),
        (0, 0, 0),
        "ample memory: {free:?}"
    );
    assert_eq!((free.scratch_written_bytes, free.spilled_message_bytes), (0, 0), "ample memory: {free:?}");
    assert!(free.demand_bytes >= 256 * MIB && free.peak_resident_bytes >= 256 * MIB, "{free:?}");

    for options in
        ["-np 8 --memory 64M", "-np 8 --memory 64M --processors 1", "-np 8 --memory 64M --resident 1"]
    {
        let tight = sweep(options, job);
        assert_eq!(tight.stdout, ample.stdout, "{options}");
        let stats = tight.stats();
        assert!(stats.demand_bytes >= 4 * stats.budget_bytes, "{options}: {stats:?}");
        assert!(stats.peak_resident_bytes <= stats.budget_bytes, "{options}: {stats:?}");
        assert!(stats.evicted_bytes >= stats.demand_bytes - stats.budget_bytes, "{options}: {stats:?}");
        assert!(stats.restored_bytes > 0 && stats.overdraft_rank.is_none(), "{options}: {stats:?}");
        // Three times through all memory in each of three phases, each time at most once out and once in.
        assert!(stats.evicted_bytes <= 12 * 256 * MIB, "{options}: moved more than needed: {stats:?}");
    }
}

#[test]
fn a_count_of_residents_is_kept() {
    let outcome = sweep("-np 6 --memory 8G --resident 2", "8M 3");
    let stats = outcome.stats();
    assert_eq!(stats.resident_limit, 2);
    assert!(stats.max_resident <= 2 && stats.evictions >= 4, "{stats:?}");
    // Two ranks' memory and all messages.
    assert!(stats.peak_resident_bytes <= 2 * 10 * MIB + 6 * 4 * MIB, "{stats:?}");
}

#[test]
fn what_is_only_read_is_not_written_again() {
    let outcome = sweep("-np 8 --memory 64M", "32M 4 read");
    let stats = outcome.stats();
    assert!(stats.scratch_read_bytes >= 4 * 128 * MIB, "{stats:?}");
    // Once, when it was first moved out.
    assert!(stats.scratch_written_bytes * 2 < stats.scratch_read_bytes, "{stats:?}");
}

#[test]
fn what_shrinks_is_compressed_and_the_result_is_the_same() {
    let raw = sweep("-np 4 --memory 64M --compress none", "32M 4 counts");
    let before = raw.stats();
    for options in ["--compress lz4", "--compress lz4 --tracker uffd", "--compress auto"] {
        let packed = sweep(&format!("-np 4 --memory 64M {options}"), "32M 4 counts");
        assert_eq!(packed.stdout, raw.stdout, "{options}");
        let stats = packed.stats();
        assert!(stats.peak_resident_bytes <= stats.budget_bytes, "{options}: {stats:?}");
        assert!(stats.restored_bytes > 0 && stats.scratch_read_bytes > 0, "{options}: {stats:?}");
        if !options.contains("auto") {
            let (now, then) = (stats.scratch_written_bytes, before.scratch_written_bytes);
            assert!(now * 4 < then * 3, "{options}: {now} bytes written, {then} as they are");
        }
    }
    // What does not shrink costs a look, and is written as it is.
    let noise = sweep("-np 4 --memory 64M --compress lz4", "32M 3");
    assert_eq!(noise.stdout, sweep("-np 4 --memory 64M --compress none", "32M 3").stdout);
}

#[test]
fn a_rank_larger_than_the_budget_runs_alone() {
    let expected = sweep("-np 3 --memory 8G", "48M 2").stdout;
    let outcome = sweep("-np 3 --memory 32M", "48M 2");
    assert_eq!(outcome.stdout, expected);
    let stats = outcome.stats();
    let rank = stats.overdraft_rank.expect("somebody needed more than the budget");
    assert!(rank < 3 && stats.peak_resident_bytes > stats.budget_bytes, "{stats:?}");
    // Never two of them at once.
    assert!(stats.peak_resident_bytes < 96 * MIB, "{stats:?}");
    assert!(
        outcome.stderr.contains("alone needs") && outcome.stderr.contains("it runs alone"),
        "{outcome:?}"
    );
}

#[test]
fn what_a_child_of_a_rank_frees_the_rank_still_holds() {
    let outcome = bdrun("-np 1 --memory 64M forks").succeed();
    assert_eq!(outcome.stdout, "child true intact true\n");
    let stats = outcome.stats();
    // 96 MiB of 64: were the child's frees counted, they would fit. Besides, the child may be seen with 40 of
    // its own.
    assert_eq!(stats.overdraft_rank, Some(0), "{stats:?}");
    assert!(stats.demand_bytes >= 96 * MIB && stats.demand_bytes < 150 * MIB, "{stats:?}");
}

#[test]
fn a_rank_over_its_own_limit_is_named() {
    let outcome = bdrun("-np 3 --memory 8G --rank-memory 16M sweep 24M 2").run();
    outcome.failed_with(123, &["memory limit exceeded", "--rank-memory"]);
    assert!((0..3).any(|rank| outcome.stderr.contains(&format!("error: rank {rank}: "))), "{outcome:?}");
    assert_eq!(outcome.stats().status, "memory");
    sweep("-np 3 --memory 8G --rank-memory 32M", "24M 2");
}

/// The kernel agrees that the budget is kept: the same job under a cap runs with it, and is killed without
/// it.
#[test]
fn four_times_a_kernel_memory_cap() {
    let cap = match Cap::new(128 * MIB) {
        Ok(cap) => cap,
        Err(why) => return skipped("cgroup", why),
    };
    let job = "-np 16 sweep 32M 2";
    let expected = bdrun(&format!("--memory 8G {job}")).succeed().stdout;
    let inside = bdrun(&format!("--memory 64M {job}")).under(&cap).succeed();
    assert_eq!(inside.stdout, expected);
    assert_eq!(cap.oom_kills(), 0);
    assert!(inside.stats().demand_bytes >= 4 * 128 * MIB, "{:?}", inside.stats());

    // The default budget sees the cap and stays below it.
    let default = bdrun(job).under(&cap).succeed();
    assert_eq!((default.stdout.as_str(), cap.oom_kills()), (expected.as_str(), 0));
    assert!(default.stats().budget_bytes <= 64 * MIB, "{:?}", default.stats());

    let outside = bdrun(&format!("--memory 8G {job}")).under(&cap).run();
    assert!(cap.oom_kills() > 0, "a job bigger than the cap was not killed by it: {outside:?}");
    outside.failed_with(137, &["was killed by SIGKILL", "memory is exhausted"]);
}

/// Ranks that wait, in RAM or out of it, and the master that has nothing to do.
#[test]
fn who_waits_uses_no_processor() {
    let mut job = bdrun("-np 8 --memory 64M idle 32 1000").start();
    let ranks = job.wait_for_ranks(8);
    assert_eq!(ranks.len(), 8, "{ranks:?}");
    job.wait_for_output("asleep");
    // The others are still on their way from one barrier to the next; soon there is nothing left to do.
    let used = || (ranks.iter().map(|&(_, pid)| proc::ticks(pid)).sum::<u64>(), proc::ticks(job.pid()));
    // Who waits for the disk uses no processor either: so many are out by then.
    let out = || ranks.iter().filter(|&&(_, pid)| proc::anonymous_bytes(pid) < 8 * MIB).count();
    let idle = poll(LIMIT, || {
        let (before, begin) = ((used(), out()), Instant::now());
        std::thread::sleep(Duration::from_secs(1));
        let (after, took) = (used(), begin.elapsed().as_secs_f64());
        (before.1 >= 6 && after.0 == before.0.0).then_some(((after.1 - before.0.1) as f64 / took, took))
    });
    let Some((master, took)) = idle else {
        panic!("no second in which no rank used the processor, with {} of 8 out of RAM", out())
    };
    assert!(master <= 5.0, "the master used {master} ticks of 10 ms a second in {took} s without work");
    job.signal(libc::SIGTERM);
    assert_eq!(job.wait().code, Some(143));
}
