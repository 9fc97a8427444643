//! One suite over every back end: threads here, processes of `hybrid-conformance` with what starts them.

mod common;

use std::collections::BTreeMap;
use std::process::{Command, Output};
use std::sync::Mutex;

use bdrun_hybrid::{LocalBackend, ShmBackend, ShmSpec, conformance};
use bdrun_skipped::skipped;
use common::{PROGRAM, bdrun, command, name, output, shm, succeed};

const SIZES: [usize; 4] = [1, 2, 4, 8];

/// What all back ends must have seen with so many ranks, whichever is first.
fn same_everywhere(size: usize, kind: &str, said: &str) {
    static DIGESTS: Mutex<BTreeMap<usize, String>> = Mutex::new(BTreeMap::new());
    let head = format!("{size} ranks conform on {kind}: ");
    let line = said.lines().find_map(|line| line.strip_prefix(&head)).unwrap_or_else(|| panic!("{said}"));
    let (digest, how) = line.split_once(", ").expect("two words");
    assert_eq!(how, if size > 1 { "shared" } else { "copied" }, "{kind}");
    // What one process that plays all the ranks as threads has seen.
    let mut digests = DIGESTS.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let expected = digests.entry(size).or_insert_with(|| format!("{:016x}", in_threads(size)));
    assert_eq!(digest, expected, "{size} ranks of {kind}");
}

fn in_threads(size: usize) -> u64 {
    let seen = bdrun_worker::local::run(size, |comm| {
        conformance::suite(&bdrun_hybrid::BdrunBackend::on(comm), true).expect("the suite")
    });
    assert!(seen.iter().all(|each| *each == seen[0] && each.shared == (size > 1)));
    seen[0].digest
}

#[test]
fn one_process_and_threads_of_the_worker_see_the_same() {
    let alone = conformance::suite(&LocalBackend, true).expect("the suite");
    assert!(!alone.shared);
    assert_eq!(alone.digest, in_threads(1));
    for size in [2, 3, 5] {
        in_threads(size);
    }
    let said = succeed(&output(command(PROGRAM).spawn().expect("start")));
    same_everywhere(1, "local", &said);
}

#[test]
fn processes_of_one_machine() {
    for size in SIZES {
        let said: Vec<_> = shm(size, "suite", &[]).iter().map(succeed).collect();
        same_everywhere(size, "shm", &said[0]);
    }
}

#[test]
fn the_same_in_threads() {
    let name = name();
    for size in [3, 5] {
        std::thread::scope(|scope| {
            for rank in 0..size {
                let spec = ShmSpec { name: format!("{name}-{size}"), rank, size };
                scope.spawn(move || {
                    let comm = ShmBackend::join(&spec).expect("join");
                    conformance::suite(&comm, true).expect("the suite");
                });
            }
        });
    }
}

/// A rank that ends is noticed by those that wait for it, in a message and in a collective.
#[test]
fn a_rank_of_shared_memory_that_ends_is_told_of() {
    let outputs = shm(3, "die", &[]);
    assert_eq!(outputs[2].status.code(), Some(9));
    for (rank, call) in [(0, "recv"), (1, "barrier")] {
        let said = succeed(&outputs[rank]);
        // Rank 1 may also wait for rank 0, which has ended by then.
        let lost = [0, 2].map(|peer| format!("rank {rank}: rank {rank}: {call}: rank {peer} has ended"));
        assert!(lost.iter().any(|lost| said.contains(lost)), "{said}");
    }
}

#[test]
fn a_rank_of_shared_memory_that_aborts_is_told_of() {
    let outputs = shm(3, "abort", &[]);
    assert_eq!(outputs[0].status.code(), Some(7));
    for (rank, output) in outputs.iter().enumerate().skip(1) {
        assert_eq!(output.status.code(), Some(3));
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(
            said.contains(&format!("rank {rank}: barrier: rank 0 has ended the job with code 7")),
            "{said}"
        );
    }
}

fn under_bdrun(options: &str, step: &str) -> Output {
    let mut command = command(bdrun());
    command.args(options.split(' ')).arg(PROGRAM).args(step.split(' '));
    output(command.spawn().expect("start bdrun"))
}

#[test]
fn ranks_of_bdrun() {
    for size in SIZES {
        let said = succeed(&under_bdrun(&format!("-np {size} --memory 1G"), "suite"));
        same_everywhere(size, "bdrun", &said);
    }
    // The same when each rank leaves RAM whenever it waits.
    let said = succeed(&under_bdrun("-np 4 --memory 1G --resident 1", "suite"));
    same_everywhere(4, "bdrun", &said);
}

/// A region is counted once, however many ranks have mapped it, and not moved.
#[test]
fn a_region_is_counted_once_in_the_budget() {
    const REGION: u64 = 64 << 20;
    let stats = std::env::temp_dir().join(format!("bdrun-hybrid-{}.json", std::process::id()));
    // For eight copies there would be no room.
    let options = format!("-np 8 --memory 128M --stats {}", stats.display());
    let said = succeed(&under_bdrun(&options, &format!("hold {REGION}")));
    assert!(said.contains(&format!("{REGION} bytes, shared")), "{said}");
    let text = std::fs::read_to_string(&stats).expect("statistics");
    std::fs::remove_file(&stats).expect("remove it");
    let number = |name: &str| -> u64 {
        let (_, rest) = text.split_once(&format!("\"{name}\":")).unwrap_or_else(|| panic!("{name}: {text}"));
        let digits: String = rest.trim_start().chars().take_while(char::is_ascii_digit).collect();
        digits.parse().unwrap_or_else(|_| panic!("{name}: {text}"))
    };
    let (peak, demand) = (number("peak_resident_bytes"), number("demand_bytes"));
    assert!((REGION..2 * REGION).contains(&peak), "{peak}: {text}");
    assert!((REGION..2 * REGION).contains(&demand), "{demand}: {text}");
    assert!(number("evicted_bytes") < REGION, "{text}");
    // More than there can be.
    let output = under_bdrun("-np 2 --memory 32M", &format!("hold {REGION}"));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("to be shared, and the job's budget is"), "{said}");
}

#[test]
fn a_rank_of_bdrun_that_aborts_ends_the_job() {
    let output = under_bdrun("-np 3 --memory 1G", "abort");
    assert!(!output.status.success());
}

/// The launchers of one MPI, and the need whose lack they are.
fn under_mpi(need: &str, launcher: &[&str], arguments: &[&str]) {
    let version = |program: &str| Command::new(program).arg("--version").output().ok();
    let says = if need == "mpich" { "HYDRA" } else { "Open MPI" };
    let is_right = |program: &&&str| {
        version(program).is_some_and(|output| {
            let said = [output.stdout, output.stderr].concat();
            let said = String::from_utf8_lossy(&said).into_owned();
            said.contains(says) || (need == "openmpi" && said.contains("OpenRTE"))
        })
    };
    let Some(launcher) = launcher.iter().find(is_right) else {
        return skipped(need, format!("there is no mpiexec of {says}"));
    };
    // They look again and again while they wait: no more than twice as many as processors.
    for size in [1, 2, 4] {
        let mut command = command(launcher);
        command.args(arguments).arg("-n").arg(size.to_string()).arg(PROGRAM);
        let said = succeed(&output(command.spawn().expect("start mpiexec")));
        same_everywhere(size, "mpi", &said);
    }
    let mut command = command(launcher);
    command.args(arguments).args(["-n", "3", PROGRAM, "abort"]);
    assert!(!output(command.spawn().expect("start mpiexec")).status.success());
}

#[test]
fn ranks_of_mpich() {
    under_mpi("mpich", &["mpiexec.mpich", "mpiexec.hydra", "mpiexec"], &[]);
}

#[test]
fn ranks_of_open_mpi() {
    let root = ["--allow-run-as-root", "--oversubscribe"];
    under_mpi("openmpi", &["mpiexec.openmpi", "mpiexec"], &root);
}
