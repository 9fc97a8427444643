//! No group is left, whatever ends.

use super::*;
use std::os::unix::process::ExitStatusExt;

/// The group of a process in the hierarchies of version 1 and 2, as directories that exist.
fn job_directory(pid: i32) -> Option<PathBuf> {
    let cgroups = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?;
    let line = cgroups.lines().find(|line| line.contains("/rank-"))?;
    let (_, group) = line.split_once(":/").or_else(|| line.rsplit_once(':'))?;
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").ok()?;
    let points =
        mounts.lines().filter(|line| line.contains(" - cgroup")).filter_map(|line| line.split(' ').nth(4));
    let path = points.map(|point| Path::new(point).join(group)).find(|path| path.exists())?;
    path.parent().map(Path::to_owned)
}

#[test]
fn a_group_goes_with_its_rank_and_the_jobs_with_the_job() {
    let rig = rig(true);
    if !rig.in_cgroups() {
        return;
    }
    let job = job_directory(rig.start(0, "nothing").leader()).expect("it is in a group of ours");
    rig.start(1, "nothing");
    let ranks = || {
        let entries = std::fs::read_dir(&job).unwrap().flatten();
        entries.filter(|entry| entry.file_type().unwrap().is_dir()).count()
    };
    assert_eq!(ranks(), 2);
    rig.supervisor.signal(0, libc::SIGKILL);
    rig.usage(0);
    assert_eq!(ranks(), 1, "the group of a rank that has ended");
    // A program that is not there leaves nothing behind either.
    rig.supervisor.spawn(SpawnSpec { program: "/no/such/program".into(), ..program(2, "", Path::new("x")) });
    while !matches!(rig.next(), Event::Happening(Happening::SpawnFailed { rank: 2, .. })) {}
    assert_eq!(ranks(), 1);
    rig.supervisor.kill_all();
    rig.usage(1);
    drop(rig);
    assert!(!job.exists());
}

/// Not a test by itself: a master with a daemon, a frozen rank and one that runs, until it is killed.
#[test]
fn helper_master() {
    if std::env::var_os("MEASURE_MASTER").is_none() {
        return;
    }
    let (sender, events) = channel::<Event>();
    let config = Config { rank_groups: true, outputs: None, ..Config::default() };
    let supervisor = Supervisor::start(config, sender.clone()).unwrap();
    let directory = PathBuf::from(std::env::var_os("MEASURE_DIRECTORY").unwrap());
    for (rank, role) in ["nothing", "nothing", "daemon"].into_iter().enumerate() {
        supervisor.spawn(program(rank as u32, role, &directory.join(format!("{rank}.ready"))));
    }
    let mut told = String::new();
    while told.lines().count() < 3 {
        if let Ok(Event::Happening(Happening::Spawned { rank, group, .. })) = events.recv() {
            while !directory.join(format!("{rank}.ready")).exists() {
                std::thread::sleep(Duration::from_millis(2));
            }
            if rank == 1 {
                group.freeze(LIMIT).unwrap();
            }
            for pid in group.processes().unwrap() {
                told += &format!("{pid} ");
            }
            told.push('\n');
        }
    }
    std::fs::write(directory.join("pids.new"), told).unwrap();
    std::fs::rename(directory.join("pids.new"), directory.join("pids")).unwrap();
    std::thread::sleep(Duration::from_secs(1000));
}

fn kill_the_master() {
    let rig = rig(true);
    if !rig.in_cgroups() {
        return;
    }
    let pids = rig.directory.join("pids");
    let mut master = again("removal::helper_master")
        .env("MEASURE_MASTER", "1")
        .env("MEASURE_DIRECTORY", &rig.directory)
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let deadline = Instant::now() + LIMIT;
    while !pids.exists() {
        assert!(Instant::now() < deadline && master.try_wait().unwrap().is_none(), "no ranks");
        std::thread::sleep(Duration::from_millis(2));
    }
    let text = std::fs::read_to_string(&pids).unwrap();
    let there: Vec<tree::Entry> =
        text.split_whitespace().filter_map(|pid| tree::entry(pid.parse().unwrap())).collect();
    assert_eq!(there.len(), 4, "three ranks and a daemon: {text}");
    let job = job_directory(there[0].pid).expect("it is in a group of ours");
    master.kill().unwrap();
    assert_eq!(master.wait().unwrap().signal(), Some(libc::SIGKILL));
    let lives =
        |one: &&tree::Entry| tree::entry(one.pid).is_some_and(|now| now.start == one.start && !now.ended());
    let begin = Instant::now();
    while there.iter().any(|one| lives(&one)) || job.exists() {
        let left: Vec<i32> = there.iter().filter(lives).map(|one| one.pid).collect();
        assert!(begin.elapsed() < LIMIT, "left: {left:?}, {}: {}", job.display(), job.exists());
        std::thread::sleep(Duration::from_millis(5));
    }
    println!("all gone after {:?}", begin.elapsed());
}

/// Frozen ranks and daemons too, which nothing but their group holds together.
#[test]
fn nothing_is_left_by_a_killed_master() {
    kill_the_master();
}
