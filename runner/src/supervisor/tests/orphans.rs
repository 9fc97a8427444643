//! Nothing survives a SIGKILL of the master, whenever it comes.

use super::*;
use crate::cgroups::remove_stale;
use std::os::unix::process::ExitStatusExt;

/// Not a test by itself: a master that starts ranks without pause until it is killed.
#[test]
fn helper_master() {
    let Some(role) = role() else { return };
    let config = Config {
        common_group: role.contains("group"),
        cgroup_limit: role.contains("memory").then_some(1 << 30),
        ..Config::default()
    };
    let (sender, events) = channel::<Happening>();
    let supervisor = Supervisor::start(config, sender).unwrap();
    // A child, and a daemon that leaves group, session and parents.
    let script = "sleep 1000 & (setsid sleep 1000 &); sleep 1000";
    for rank in 0..24 {
        supervisor.spawn(shell(rank, script));
        supervisor.spawn(shell(rank + 1000, "exit 0"));
    }
    for happening in events {
        if let Happening::Exited { rank, .. } = happening {
            supervisor.spawn(shell(rank, "exit 0"));
        }
    }
}

/// The masters that were killed, and whether they had started anything but their keepers by then.
fn kill_at_random_moments(role: &str, tries: u64) -> Vec<(u32, bool)> {
    let mut slowest = Duration::ZERO;
    let mut killed = vec![];
    for attempt in 0..tries {
        let mark = format!("SUP_MARK={role}-{}-{attempt}", std::process::id());
        let mut master = again(module_path!(), "helper_master", role)
            .env("SUP_MARK", &mark[9..])
            .stdout(std::process::Stdio::null())
            .spawn()
            .unwrap();
        // From before its first thread to long after its last rank.
        std::thread::sleep(Duration::from_micros(attempt * attempt * 400));
        let seen = marked(&mark).len();
        killed.push((master.id(), seen > 1 + super::super::keeper::KEEPERS));
        master.kill().unwrap();
        let start = Instant::now();
        let status = master.wait().unwrap();
        assert_eq!(status.signal(), Some(libc::SIGKILL), "the master ended by itself: {status}");
        let left = wait_unmarked(&mark);
        slowest = slowest.max(start.elapsed());
        assert!(left.is_empty(), "{role}, attempt {attempt}, {seen} were there; left: {left:?}");
    }
    println!("{role}: {tries} kills, nothing left, slowest after {slowest:?}");
    killed
}

#[test]
fn nothing_survives_the_master_in_a_cgroup() {
    if has_group(&rig(grouped()).supervisor) {
        kill_at_random_moments("group", 25);
    }
}

#[test]
fn nothing_survives_the_master_without_one() {
    kill_at_random_moments("mark", 25);
}

#[test]
fn no_cgroup_survives_the_master() {
    let guard = enforce::ONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let probe = MemoryCgroup::create(1 << 30);
    let parent = match &probe {
        Ok(group) => group.path().parent().unwrap().to_owned(),
        Err(error) => {
            bdrun_skipped::skipped("cgroup", error);
            return;
        }
    };
    drop(probe);
    drop(guard);
    let killed = kill_at_random_moments("group-memory", 12);
    // Of these only: others that run at the same time, also in another run of the tests, kill masters of
    // their own.
    let left = |all: bool| {
        let masters = killed.iter().filter(|&&(_, started)| all || started);
        let names = masters.flat_map(|(master, _)| ["", ".master"].map(|end| format!("bdrun-{master}{end}")));
        names.filter(|name| parent.join(name).exists()).collect::<Vec<_>>()
    };
    let removed = |all: bool| {
        let deadline = Instant::now() + LIMIT;
        while !left(all).is_empty() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(10));
            if all {
                remove_stale(&parent);
            }
        }
        assert!(left(all).is_empty(), "{:?}, next job: {all}", left(all));
    };
    // Those by their keepers; what a master leaves that is killed before it has any by the next job.
    removed(false);
    removed(true);
}
