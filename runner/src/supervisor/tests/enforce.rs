//! The memory cgroup.

use super::*;
use crate::cgroups::{lock, remove_stale};
use crate::supervisor::reaper::machine_kills;

/// One group per process: the tests that make one take turns.
pub(super) static ONE: std::sync::Mutex<()> = std::sync::Mutex::new(());

fn permitted() -> Option<std::sync::MutexGuard<'static, ()>> {
    let guard = ONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    match MemoryCgroup::create(1 << 30) {
        Ok(_) => Some(guard),
        Err(error) => {
            bdrun_skipped::skipped("cgroup", error);
            None
        }
    }
}

#[test]
fn a_rank_beyond_the_limit_is_killed_and_named() {
    let Some(_guard) = permitted() else { return };
    let before = machine_kills();
    let rig = rig(Config { cgroup_limit: Some(64 << 20), ..grouped() });
    let path = rig.supervisor.cgroup().unwrap().path().to_owned();
    rig.shell(1, "sleep 1000");
    assert!(matches!(rig.next(), Happening::Spawned { rank: 1, .. }));
    // Keeps its input until the end, which does not come.
    rig.shell(0, "exec tail /dev/zero");
    let ends = rig.ends(1);
    assert_eq!(ends[0], (0, Ending::Signal { signal: libc::SIGKILL, core: false }, OomKill::JobLimit));
    // A kill by somebody else is not blamed on the limit.
    // The other one's shell may not have begun its child yet.
    let procs = || std::fs::read_to_string(path.join("cgroup.procs")).unwrap();
    let deadline = Instant::now() + LIMIT;
    while procs().lines().count() < 2 {
        assert!(Instant::now() < deadline, "{}", procs());
        std::thread::sleep(Duration::from_millis(5));
    }
    rig.shell(2, "kill -KILL $$");
    let ends = rig.ends(1);
    // Unless the kernel has killed somebody else on this machine just then.
    let elsewhere = machine_kills() > before + 1;
    assert_eq!(ends[0].0, 2);
    assert!(ends[0].2 == OomKill::No || (elsewhere && ends[0].2 == OomKill::Outside), "{ends:?}");
    let (_, _, farewell) = rig.finish();
    let usage = farewell.cgroup.unwrap();
    assert_eq!(usage.oom_kills, 1);
    assert!(usage.peak.is_none_or(|peak| (32 << 20..=64 << 20).contains(&peak)), "{usage:?}");
    assert_eq!(farewell.cgroup_left, None);
    assert!(!path.exists());
}

#[test]
fn the_masters_memory_is_not_charged_to_the_ranks() {
    let Some(_guard) = permitted() else { return };
    let rig = rig(Config { cgroup_limit: Some(256 << 20), ..grouped() });
    let group = rig.supervisor.cgroup().unwrap();
    let before = group.usage().current;
    let block = std::hint::black_box(vec![1_u8; 64 << 20]);
    assert!(group.usage().current < before + (8 << 20));
    drop(block);
    for rank in 0..100 {
        rig.shell(rank, "read x < /dev/null; exec sleep 1000");
    }
    let mut there = 0;
    while there < 100 {
        there += usize::from(matches!(rig.next(), Happening::Spawned { .. }));
    }
    std::thread::sleep(Duration::from_millis(300));
    let current = group.usage().current;
    println!("100 sleeping ranks: {} KiB each in their cgroup", (current - before) / 102_400);
    assert!(current > before);
    // The next test needs the name of its cgroup.
    assert_eq!(rig.finish().2.cgroup_left, None);
}

/// A group's name: of a process with a number above any, and of no other run of these tests.
fn of_nobody(which: u32) -> String {
    format!("bdrun-{}", which * 10_000_000 + std::process::id())
}

#[test]
fn a_stale_group_is_removed_and_a_living_one_is_not() {
    let Some(_guard) = permitted() else { return };
    let group = MemoryCgroup::create(1 << 30).unwrap();
    let parent = group.path().parent().unwrap().to_owned();
    let stale = parent.join(of_nobody(7));
    std::fs::create_dir(&stale).unwrap();
    drop(group);
    let group = MemoryCgroup::create(1 << 30).unwrap();
    // Another process may have been at it at the same time.
    let deadline = Instant::now() + LIMIT;
    while stale.exists() && Instant::now() < deadline {
        remove_stale(&parent);
    }
    assert!(!stale.exists());
    assert!(group.path().exists());
    let path = group.path().to_owned();
    drop(group);
    assert!(!path.exists());
}

/// Of a group of this process.
fn v2_name(suffix: &str) -> String {
    format!("bdrun-test-v2-{}{suffix}", std::process::id())
}

/// `clone3` into a group, on whichever v2 hierarchy there is, with or without a memory controller.
#[test]
fn a_child_can_be_born_in_a_v2_group() {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    let Some(mount) = mounts.lines().find(|line| line.contains(" - cgroup2 ")) else {
        bdrun_skipped::skipped("cgroup2", "no cgroup2 mounted");
        return;
    };
    let directory = std::path::Path::new(mount.split(' ').nth(4).unwrap()).join(v2_name(""));
    if let Err(error) = std::fs::create_dir(&directory) {
        bdrun_skipped::skipped("cgroup2", format!("{}: {error}", directory.display()));
        return;
    }
    let rig = rig_in_v2(&directory, Config::default());
    rig.shell(0, "grep ^0: /proc/self/cgroup");
    assert_eq!(rig.ends(1)[0].1, Ending::Code(0));
    let start = Instant::now();
    for rank in 0..50 {
        rig.shell(rank, "exit 0");
    }
    rig.ends(50);
    println!("born in a v2 group: {:?} per rank", start.elapsed() / 50);
    let (out, ..) = rig.finish();
    assert!(out.ends_with(&format!("/{}\n", v2_name(""))), "{out}");
    assert!(!directory.exists());
}

/// Under its limit, were there one: below it. So does the group that ranks have in common.
#[test]
fn a_ranks_own_group_lies_below_the_jobs_v2_group() {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    let Some(mount) = mounts.lines().find(|line| line.contains(" - cgroup2 ")) else {
        bdrun_skipped::skipped("cgroup2", "no cgroup2 mounted");
        return;
    };
    let directory = std::path::Path::new(mount.split(' ').nth(4).unwrap()).join(v2_name("-ranks"));
    if let Err(error) = std::fs::create_dir(&directory) {
        bdrun_skipped::skipped("cgroup2", format!("{}: {error}", directory.display()));
        return;
    }
    for common_group in [false, true] {
        let _ = std::fs::create_dir(&directory);
        let config = Config { rank_groups: !common_group, common_group, ..Config::default() };
        let rig = rig_in_v2(&directory, config);
        rig.shell(5, "grep ^0: /proc/self/cgroup");
        assert_eq!(rig.ends(1)[0].1, Ending::Code(0));
        let (out, _, farewell) = rig.finish();
        let below = out.trim_end().split_once(&format!("/{}/rank-", v2_name("-ranks")));
        let is_its_own = |serial: &str| serial.parse::<u64>().is_ok();
        let right = |name: &str| match name.strip_prefix("5.") {
            Some(serial) => !common_group && is_its_own(serial),
            None => common_group && name == "all",
        };
        assert!(below.is_some_and(|(_, name)| right(name)), "{out}");
        assert_eq!(farewell.cgroup_left, None);
        assert!(!directory.exists());
    }
}

/// What has outlived a master and its keepers ends when the next job starts, groups within the group
/// included.
#[test]
fn what_lives_in_a_stale_group_is_killed() {
    if !has_group(&rig(grouped()).supervisor) {
        return;
    }
    // Found as a rank sees it: in the hierarchy in which groups are made here.
    let rig = rig(grouped());
    rig.shell(0, "echo $$; exec sleep 1000");
    let Happening::Spawned { pid, .. } = rig.next() else { panic!("no rank") };
    let path = rig.supervisor.shared.pen.path().expect("a group").to_owned();
    let parent = path.parent().unwrap();
    let stale = parent.join(of_nobody(8) + ".0");
    let building = made_and_locked(&stale);
    std::fs::create_dir_all(stale.join("rank-all/inner")).unwrap();
    let mut sleepers = ["rank-all", "rank-all/inner"].map(|below| {
        let sleeper = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        std::fs::write(stale.join(below).join("cgroup.procs"), sleeper.id().to_string()).unwrap();
        sleeper
    });
    // One that is locked belongs to a master that lives, wherever.
    let locked = parent.join(of_nobody(9) + ".0");
    let lock = made_and_locked(&locked);
    drop(building);
    // A program that another test starts has a copy of the lock for a moment.
    let deadline = Instant::now() + LIMIT;
    for sleeper in &mut sleepers {
        use std::os::unix::process::ExitStatusExt;
        let status = loop {
            remove_stale(parent);
            match sleeper.try_wait().unwrap() {
                Some(status) => break status,
                None => assert!(Instant::now() < deadline, "it lives"),
            }
        };
        assert_eq!(status.signal(), Some(libc::SIGKILL));
    }
    // Another test may have been at it at the same time, and waited no longer.
    while stale.exists() && Instant::now() < deadline {
        remove_stale(parent);
    }
    assert!(!stale.exists() && locked.exists());
    assert!(nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), None).is_ok(), "the job that lives");
    drop(lock);
    while locked.exists() && Instant::now() < deadline {
        remove_stale(parent);
    }
    assert!(!locked.exists());
}

/// Other tests, and other jobs, look for stale groups at any moment.
fn made_and_locked(group: &std::path::Path) -> std::fs::File {
    loop {
        let _ = std::fs::create_dir(group);
        if let Some(lock) = lock(group).filter(|_| group.exists()) {
            return lock;
        }
    }
}

fn rig_in_v2(directory: &std::path::Path, config: Config) -> Rig {
    rig_in(config, Some(MemoryCgroup::existing_v2(directory.to_owned())))
}
