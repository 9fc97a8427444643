//! All processes stand still, and go on.

use super::*;
use crate::cgroups::{Hierarchy, Kind, RankGroups, hierarchies};

fn numbers(rig: &Rig) -> [u64; 2] {
    ["leader", "child"].map(|name| {
        loop {
            // Empty while it is being written.
            let text =
                std::fs::read_to_string(rig.directory.join("0").with_extension(name)).unwrap_or_default();
            if let Ok(number) = text.parse() {
                break number;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    })
}

fn advances(rig: &Rig, before: [u64; 2]) -> bool {
    let deadline = Instant::now() + LIMIT;
    while Instant::now() < deadline {
        let now = numbers(rig);
        if now[0] > before[0] && now[1] > before[1] {
            return true;
        }
    }
    false
}

fn stands_still_and_goes_on(rig: &Rig, group: &Group) {
    assert!(advances(rig, numbers(rig)));
    for _ in 0..5 {
        group.freeze(LIMIT).unwrap();
        // What a counter has begun to write may be empty for ever: then it is read as what it was.
        let read = |name: &str| std::fs::read(rig.directory.join("0").with_extension(name)).unwrap();
        let before = [read("leader"), read("child")];
        std::thread::sleep(Duration::from_millis(50));
        assert_eq!([read("leader"), read("child")], before);
        group.thaw().unwrap();
        assert!(advances(rig, numbers(rig)));
    }
}

#[test]
fn by_the_freezer() {
    let rig = rig(true);
    if !rig.in_cgroups() {
        return;
    }
    println!("{}", rig.supervisor.permits().freezer);
    let group = rig.start(0, "counter");
    stands_still_and_goes_on(&rig, &group);
    // A rank that is frozen can be killed.
    group.freeze(LIMIT).unwrap();
    rig.supervisor.signal(0, libc::SIGKILL);
    rig.usage(0);
    let deadline = Instant::now() + LIMIT;
    while !group.processes().unwrap().is_empty() {
        assert!(Instant::now() < deadline, "{:?} is left", group.processes());
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn by_signals() {
    let rig = rig(false);
    let group = rig.start(0, "counter");
    stands_still_and_goes_on(&rig, &group);
    // Somebody has continued them (`fg`): they stop again, and are let go once.
    group.freeze(LIMIT).unwrap();
    rig.supervisor.signal_all(libc::SIGCONT);
    assert!(advances(&rig, numbers(&rig)));
    stands_still_and_goes_on(&rig, &group);
}

/// The other hierarchies, which a supervisor takes only where there is no better one.
#[test]
fn whatever_the_hierarchy() {
    let (cgroups, mounts) = hierarchies().unwrap();
    let kinds = [
        (Kind::V2, Hierarchy::V2),
        (Kind::Freezer, Hierarchy::V1("freezer")),
        (Kind::List, Hierarchy::V1("pids")),
    ];
    for (kind, hierarchy) in kinds {
        let found = hierarchy.locate(&cgroups, &mounts).and_then(|own| RankGroups::create_below(kind, &own));
        let groups = match found {
            Ok(groups) => groups,
            Err(why) => {
                bdrun_skipped::skipped(if kind == Kind::V2 { "cgroup2" } else { "cgroup-v1" }, why);
                continue;
            }
        };
        let path = groups.path().to_owned();
        let cgroup = groups.create_rank(7).unwrap();
        // By writing its number, which is what a child does with 0.
        let mut child = Command::new("/bin/sleep").arg("1000").spawn().unwrap();
        let pid = child.id() as i32;
        use std::io::Write;
        cgroup.entrance().unwrap().write_all(pid.to_string().as_bytes()).unwrap();
        let group = Group::new(pid, Some(cgroup));
        assert_eq!(group.processes().unwrap(), [pid], "{kind:?}");
        group.freeze(LIMIT).unwrap();
        group.thaw().unwrap();
        group.freeze(LIMIT).unwrap();
        groups.retire(group.cgroup().unwrap());
        child.wait().unwrap();
        assert_eq!(group.processes().unwrap(), [0; 0], "{kind:?}");
        drop(groups);
        assert!(!path.exists(), "{kind:?}");
    }
}
