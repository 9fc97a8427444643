//! `--enforce`: a limit that the kernel keeps.

use crate::common::cap::Cap;
use crate::common::{alone, bdrun, poll, skipped};

const MIB: u64 = 1 << 20;

/// Why `--enforce` cannot be tried here.
fn not_permitted() -> Option<String> {
    // As bdrun does it: where we may make a group, it may.
    Cap::new(64 * MIB).err()
}

#[test]
fn a_job_within_its_limit_runs_out_of_core() {
    if let Some(why) = not_permitted() {
        return skipped("cgroup", why);
    }
    let _machine = alone();
    let expected = bdrun("-np 8 --memory 8G sweep 32M 2").succeed().stdout;
    let outcome = bdrun("-np 8 --memory 80M --enforce sweep 32M 2").succeed();
    assert_eq!(outcome.stdout, expected);
    let stats = outcome.stats();
    assert!(stats.budget_bytes < 80 * MIB && stats.peak_resident_bytes <= stats.budget_bytes, "{stats:?}");
    let peak = stats.cgroup_peak_bytes.expect("the kernel's own count");
    assert!(peak <= 80 * MIB && peak > 16 * MIB, "{stats:?}");
}

#[test]
fn a_rank_larger_than_the_limit_fails() {
    if let Some(why) = not_permitted() {
        return skipped("cgroup", why);
    }
    let _machine = alone();
    let outcome = bdrun("-np 2 --memory 40M --enforce sweep 48M 2").run();
    outcome.failed_with(123, &["--enforce permits no more", "raise --memory"]);
    assert!((0..2).any(|rank| outcome.stderr.contains(&format!("error: rank {rank} needs"))), "{outcome:?}");
    assert_eq!(outcome.stats().status, "memory");
}

/// A program that knows nothing of us, and has nothing of ours in front of it, runs within the kernel's limit in parts.
#[test]
fn any_program_runs_within_the_limit() {
    if let Some(why) = not_permitted() {
        return skipped("cgroup", why);
    }
    let _machine = alone();
    // Holds 200 MiB in a variable.
    let outcome = crate::common::bdrun_args([
        "-np",
        "1",
        "--memory",
        "64M",
        "--enforce",
        "--preload",
        "never",
        "sh",
        "-c",
        "x=$(head -c 200000000 /dev/zero | tr '\\0' x); echo ${#x}",
    ])
    .succeed();
    assert_eq!(outcome.stdout, "200000000\n");
    assert!(outcome.stderr.contains("it runs within it, paged in parts"), "{outcome:?}");
}

#[test]
fn a_limit_below_the_fixed_cost_is_refused() {
    if let Some(why) = not_permitted() {
        return skipped("cgroup", why);
    }
    let _machine = alone();
    bdrun("-np 100 --memory 16M --enforce hello").run().failed_with(120, &["fixed cost of 100 processes"]);
}

/// After a SIGKILL of the master nobody but its keepers can remove the group.
#[test]
fn the_group_does_not_outlive_the_master() {
    let here = match std::fs::read_to_string("/proc/self/cgroup") {
        Ok(text) if not_permitted().is_none() => text,
        _ => return skipped("cgroup", not_permitted().unwrap_or_else(|| "no cgroups".into())),
    };
    let _machine = alone();
    let mut job = bdrun("-np 4 --memory 64M --enforce idle 8 60").start();
    let rank = job.wait_for_ranks(1)[0].1;
    let of = |pid: i32| std::fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
    let group =
        of(rank).lines().find(|line| line.contains(&format!("/bdrun-{}", job.pid()))).map(str::to_owned);
    let group = group.unwrap_or_else(|| panic!("rank 0 is not in a group of the job: {} {here}", of(rank)));
    let name = group.rsplit('/').next().unwrap_or_default().to_owned();
    job.signal(libc::SIGKILL);
    let outcome = job.wait();
    assert_eq!(outcome.signal, Some(libc::SIGKILL), "{outcome:?}");
    let left = || {
        let found = std::process::Command::new("find")
            .args(["/sys/fs/cgroup", "-name", &name])
            .output()
            .expect("find");
        String::from_utf8_lossy(&found.stdout).into_owned()
    };
    assert!(
        poll(std::time::Duration::from_secs(15), || left().is_empty().then_some(())).is_some(),
        "{}",
        left()
    );
}
