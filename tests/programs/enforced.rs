//! Limits that the kernel keeps: those of `--enforce`, and those that bdrun itself runs under.

use crate::common::cap::Cap;
use crate::common::chaos::{PYTHON, UNTIL_PAGED, python_with};
use crate::common::{Directory, LIMIT, bdrun, bdrun_args, poll, skipped};

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
    let outcome = bdrun("-np 2 --memory 40M --enforce sweep 48M 2").run();
    outcome.failed_with(123, &["--enforce permits no more", "raise --memory"]);
    assert!((0..2).any(|rank| outcome.stderr.contains(&format!("error: rank {rank} needs"))), "{outcome:?}");
    assert_eq!(outcome.stats().status, "memory");
}

/// A program that knows nothing of us, and has nothing of ours in front of it, runs within the kernel's limit
/// in parts. It grows by no more than 8 MiB/s, and near the limit by half a MiB/s until parts have left: of
/// one that grows as fast as it can a busy machine may see too late that it does, and the kernel does not
/// wait.
#[test]
fn any_program_runs_within_the_limit() {
    if let Some(why) = not_permitted() {
        return skipped("cgroup", why);
    }
    if !python_with("time") {
        return;
    }
    const GROWS: &str = "
memory = bytearray()
for quarters in range(400):
    memory.extend(b'x' * (1 << 18))
    time.sleep(0.5 if 160 < quarters < 4 * (holds() - 4) else 0.03)
print(len(memory), memory.count(b'x'))
";
    let options = format!("-np 1 --memory 64M --enforce --preload never -- {PYTHON} -c");
    let outcome =
        bdrun_args(options.split(' ').map(String::from).chain([UNTIL_PAGED.to_owned() + GROWS])).succeed();
    assert_eq!(outcome.stdout, "104857600 104857600\n");
    assert!(outcome.stderr.contains("it runs within it, paged in parts"), "{outcome:?}");
}

#[test]
fn a_limit_below_the_fixed_cost_is_refused() {
    if let Some(why) = not_permitted() {
        return skipped("cgroup", why);
    }
    bdrun("-np 100 --memory 16M --enforce hello").run().failed_with(120, &["fixed cost of 100 processes"]);
}

/// After a SIGKILL of the master nobody but its keepers can remove the group.
#[test]
fn the_group_does_not_outlive_the_master() {
    let here = match std::fs::read_to_string("/proc/self/cgroup") {
        Ok(text) if not_permitted().is_none() => text,
        _ => return skipped("cgroup", not_permitted().unwrap_or_else(|| "no cgroups".into())),
    };
    let mut job = bdrun("-np 4 --memory 64M --enforce idle 8 1000").start();
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
    assert!(poll(LIMIT, || left().is_empty().then_some(())).is_some(), "{}", left());
}

/// Of many small ranks of which only some live at a time, and of some large ones: what cannot be is refused
/// before anything starts, and what is begun is not killed.
#[test]
fn many_ranks_under_a_cap_of_the_kernel_are_refused_or_all_end() {
    let cap = match Cap::new(256 * MIB) {
        Ok(cap) => cap,
        Err(why) => return skipped("cgroup", why),
    };
    let dir = Directory::new("many");
    let begun = dir.path().join("begun");
    let says = format!("echo x >> {}; x=$(printf %500000s x); echo ${{#x}}", begun.display());
    let many = |options: &str| {
        let words = format!("-np 256 --memory 240M --preload never {options} -- sh -c");
        bdrun_args(words.split_whitespace().map(String::from).chain([says.clone()])).under(&cap)
    };
    many("--processors 256").run().failed_with(120, &["less than 1 MiB for each of the 256 ranks"]);
    let native = bdrun("-np 2000 --memory 64M hello").under(&cap).run();
    native.failed_with(120, &["2000 processes take at least", "allows"]);
    assert!(native.stdout.is_empty() && !begun.exists(), "refused, and begun: {native:?}");

    let outcome = many("").succeed();
    assert_eq!(outcome.stdout.matches("500000").count(), 256);
    assert_eq!(std::fs::read_to_string(&begun).expect("what has begun").lines().count(), 256);
    assert_eq!(cap.oom_kills(), 0, "{outcome:?}");

    // These see themselves to it that what they read is right.
    let native = bdrun("-np 8 --memory 200M sweep 40M 1").under(&cap).succeed();
    assert!(native.stats().demand_bytes > 256 * MIB, "{native:?}");
    assert_eq!(cap.oom_kills(), 0, "{native:?}");
}

/// Small ranks, each of them smaller than bdrun itself, take more than there is: the kernel takes one of them
/// all the same, and bdrun lives to say which, and why.
#[test]
fn a_rank_that_is_killed_for_memory_is_named_by_a_master_that_lives() {
    let cap = match Cap::new(128 * MIB) {
        Ok(cap) => cap,
        Err(why) => return skipped("cgroup", why),
    };
    let holds = "x=$(printf %3000000s x); sleep 500; echo ${#x}";
    let words = "-np 64 --memory 8G --processors 64 --preload never -- sh -c".split(' ').chain([holds]);
    let outcome = bdrun_args(words).under(&cap).run();
    assert!(cap.oom_kills() > 0, "nobody was killed: {outcome:?}");
    outcome.failed_with(137, &["was killed by SIGKILL", "memory is exhausted", "remedy", "--memory"]);
    assert!(outcome.stderr.contains("the kernel may kill them"), "nor was it said before: {outcome:?}");
    let killed: Vec<u32> =
        (0..64).filter(|rank| outcome.stderr.contains(&format!("error: rank {rank} was killed"))).collect();
    assert_eq!(killed.len(), 1, "{outcome:?}");
    assert_eq!(outcome.stats().ranks[killed[0] as usize].status, "signal 9");
}

/// It takes too much the first time only.
#[test]
fn a_rank_that_is_killed_for_memory_is_run_again_if_that_is_asked_for() {
    let cap = match Cap::new(128 * MIB) {
        Ok(cap) => cap,
        Err(why) => return skipped("cgroup", why),
    };
    let dir = Directory::new("retry-memory");
    let at = |name: &str| dir.path().join(name).display().to_string();
    let script = "import mmap, os, sys
first = not os.path.exists(sys.argv[1])
open(sys.argv[1], 'w')
memory = mmap.mmap(-1, 300 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
for page in range(0, len(memory) if first else 1, 4096): memory[page] = 1
print('done')";
    let (marker, output) = (at("begun"), at("out"));
    let options = "-np 1 --memory 8G --preload never --retry-memory 1 --output-files".split(' ');
    let words = options.chain([&*output, "--", PYTHON, "-c", script, &marker]);
    let outcome = bdrun_args(words).under(&cap).run();
    assert_eq!((outcome.code, cap.oom_kills()), (Some(0), 1), "{outcome:?}");
    assert!(
        outcome.stderr.contains("memory is exhausted): it is run again (0 tries are left"),
        "{outcome:?}"
    );
    assert_eq!(std::fs::read_to_string(output).unwrap(), "done\n");
}
