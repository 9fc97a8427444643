//! That results do not depend on ranks, threads or back end, to the bit: policies, which have all bounds and
//! cuts, are compared byte by byte.

use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use bdrun_skipped::skipped;

use super::{PROGRAM, bundled, command, has_highs, output, sddp, succeed, text};

/// What all train, with more.
const TRAIN: [&str; 6] = ["--iterations", "2", "--forward", "7", "--seed", "5"];

fn folder() -> &'static Path {
    static FOLDER: OnceLock<tempfile::TempDir> = OnceLock::new();
    FOLDER.get_or_init(|| tempfile::tempdir().expect("a folder")).path()
}

/// A name that no other test has.
fn fresh(what: &str) -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("sddp-{}-{}-{what}", std::process::id(), NEXT.fetch_add(1, Relaxed))
}

fn arguments(policy: &Path, more: &[&str]) -> Vec<String> {
    let case = bundled("cascade.toml");
    let first = ["train", text(&case)];
    first
        .iter()
        .chain(&TRAIN)
        .chain(more)
        .chain(&["--policy", text(policy)])
        .map(|word| (*word).to_owned())
        .collect()
}

/// What one process with one thread trains.
fn alone() -> &'static [u8] {
    static ALONE: OnceLock<Vec<u8>> = OnceLock::new();
    ALONE.get_or_init(|| {
        let policy = folder().join(fresh("alone"));
        let arguments = arguments(&policy, &[]);
        succeed(&sddp(&arguments.iter().map(String::as_str).collect::<Vec<_>>()));
        std::fs::read(&policy).expect("a policy")
    })
}

/// Runs it with what starts ranks, and compares.
fn same(what: &str, more: &[&str], start: impl FnOnce(&[String]) -> Vec<Child>) {
    let policy = folder().join(fresh(what));
    for child in start(&arguments(&policy, more)) {
        succeed(&output(child));
    }
    let trained = std::fs::read(&policy).expect("a policy");
    assert!(trained.len() > 10_000 && trained == alone(), "{what} {more:?}");
}

fn shm(size: usize, arguments: &[String]) -> Vec<Child> {
    let name = fresh("shm");
    let start = |rank: usize| {
        let mut command = command(PROGRAM);
        command.env("BDRUN_SHM_NAME", &name).env("BDRUN_SHM_SIZE", size.to_string());
        command.env("BDRUN_SHM_RANK", rank.to_string()).args(arguments).spawn().expect("start")
    };
    (0..size).map(start).collect()
}

#[test]
fn threads_of_one_process() {
    if !has_highs() {
        return;
    }
    for more in [&["--threads", "2"][..], &["--threads", "3"], &["--no-share"]] {
        same("threads", more, |arguments| vec![command(PROGRAM).args(arguments).spawn().expect("start")]);
    }
}

#[test]
fn processes_of_one_machine() {
    if !has_highs() {
        return;
    }
    for size in [1, 2, 4] {
        for threads in ["1", "2"] {
            same("shm", &["--threads", threads], |arguments| shm(size, arguments));
        }
    }
    same("shm", &["--no-share"], |arguments| shm(2, arguments));
    // More ranks than trajectories.
    same("shm", &[], |arguments| shm(9, arguments));
}

fn under_bdrun(options: &str, arguments: &[String]) -> Vec<Child> {
    let mut command = command(bdrun_skipped::bdrun_beside(PROGRAM));
    vec![command.args(options.split(' ')).arg(PROGRAM).args(arguments).spawn().expect("start bdrun")]
}

#[test]
fn ranks_of_bdrun() {
    if !has_highs() {
        return;
    }
    for (options, more) in [
        ("-np 1 --memory 1G", &[][..]),
        ("-np 2 --memory 1G", &["--threads", "2"]),
        ("-np 4 --memory 1G", &[]),
        // Each one leaves RAM whenever it waits.
        ("-np 4 --memory 1G --resident 1", &["--threads", "2"]),
        // Less than they need.
        ("-np 7 --memory 3M", &[]),
    ] {
        same("bdrun", more, |arguments| under_bdrun(options, arguments));
    }
}

/// MPICH's, if it is there.
fn launcher() -> Option<&'static str> {
    let is_mpich = |launcher: &&str| {
        let said = Command::new(launcher).arg("--version").output();
        said.is_ok_and(|output| String::from_utf8_lossy(&output.stdout).contains("HYDRA"))
    };
    let found = ["mpiexec.mpich", "mpiexec.hydra", "mpiexec"].into_iter().find(is_mpich);
    if found.is_none() {
        skipped("mpich", "there is no mpiexec of MPICH");
    }
    found
}

/// Masters of several nodes, each of which has its own pool of cuts.
#[test]
fn ranks_of_bdrun_on_several_nodes() {
    if !has_highs() {
        return;
    }
    let Some(launcher) = launcher() else { return };
    for (nodes, options, threads) in [
        ("2", "-np 2 --memory 1G", "2"),
        ("2", "-np 5 --memory 1G --resident 1", "1"),
        ("3", "-np 7 --memory 3M", "1"),
    ] {
        same("nodes", &["--threads", threads], |arguments| {
            let mut command = command(launcher);
            // A master that is late for as long as the machine is busy is not lost.
            command.env("BDRUN_SILENCE", "300");
            command.args(["-n", nodes]).arg(bdrun_skipped::bdrun_beside(PROGRAM)).args(options.split(' '));
            vec![command.arg(PROGRAM).args(arguments).spawn().expect("start mpiexec")]
        });
    }
}

#[test]
fn ranks_of_a_real_mpi() {
    if !has_highs() {
        return;
    }
    let Some(launcher) = launcher() else { return };
    for (size, threads) in [("1", "1"), ("2", "2"), ("3", "1")] {
        same("mpi", &["--threads", threads], |arguments| {
            let mut command = command(launcher);
            vec![command.args(["-n", size, PROGRAM]).args(arguments).spawn().expect("start mpiexec")]
        });
    }
}

#[test]
fn an_error_of_one_rank_ends_all() {
    if !has_highs() {
        return;
    }
    let policy = PathBuf::from("/nowhere/policy.json");
    let outputs: Vec<_> = shm(3, &arguments(&policy, &[])).into_iter().map(output).collect();
    let said: String = outputs.iter().map(|output| String::from_utf8_lossy(&output.stderr)).collect();
    assert!(said.contains("rank 0: /nowhere/policy.json: No such file"), "{said}");
    assert!(!outputs[0].status.success());
}
