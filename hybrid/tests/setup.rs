//! A whole hybrid rank: what it is set up with, in the environments in which it is.

mod common;

use common::{PROGRAM, command, output, shm, succeed};

/// The variables that say something of threads and schedulers, which the machine of the tests may have.
const OTHERS: [&str; 6] = [
    "RAYON_NUM_THREADS",
    "SLURM_CPUS_PER_TASK",
    "SLURM_JOB_ID",
    "PBS_JOBID",
    "BDRUN_EXPECTED_RANKS",
    "OMP_NUM_THREADS",
];

/// Standard output and error of one process, and whether it was well.
fn alone(environment: &[(&str, &str)]) -> (String, String, bool) {
    let mut command = command(PROGRAM);
    OTHERS.iter().for_each(|name| _ = command.env_remove(name));
    command.arg("setup").envs(environment.iter().copied());
    let output = output(command.spawn().expect("start"));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr), output.status.success())
}

#[test]
fn one_process() {
    let (said, log, well) = alone(&[]);
    assert!(well && said == "1 threads in all\n", "{said}{log}");
    let lines: Vec<&str> = log.lines().collect();
    assert_eq!(lines[0], "1 rank on 1 node by local (nothing says otherwise)");
    assert_eq!(lines[1], "1 thread in each (the default), 1 in all");
    assert!(log.contains("solvers: OMP_NUM_THREADS=1 (was not set)"), "{log}");
    let slurm = [("SLURM_JOB_ID", "7"), ("SLURM_CPUS_PER_TASK", "3"), ("OMP_NUM_THREADS", "8")];
    let (said, log, _) = alone(&slurm);
    assert!(said == "3 threads in all\n" && log.contains("3 threads in each (SLURM_CPUS_PER_TASK)"), "{log}");
    assert!(log.contains("scheduler: Slurm, job 7 (3 processors each)"), "{log}");
    assert!(log.contains("solvers: OMP_NUM_THREADS=1 (was 8)"), "{log}");
    let (said, log, _) = alone(&[&slurm[..], &[("RAYON_NUM_THREADS", "2")]].concat());
    assert!(said == "2 threads in all\n" && log.contains("(RAYON_NUM_THREADS)"), "{log}");
    let set = [("HIGHS_PARALLEL", "false"), ("MKL_NUM_THREADS", "1"), ("OMP_NUM_THREADS", "1")];
    assert!(!alone(&set).1.contains("solvers:"), "nothing was to be set");
}

#[test]
fn what_is_wrong_is_told() {
    for (environment, words) in [
        (("RAYON_NUM_THREADS", "all"), "RAYON_NUM_THREADS=all: it must be a number from 1 to 65535"),
        (("BDRUN_EXPECTED_RANKS", "4"), "1 ranks by local, and 4 are expected (BDRUN_EXPECTED_RANKS)"),
        (("BDRUN_EXPECTED_RANKS", "four"), "BDRUN_EXPECTED_RANKS=four: it must be a number of ranks"),
        (("BDRUN_COMM", "tcp"), "BDRUN_COMM=tcp: this program has local, bdrun, mpi, shm, or auto"),
        (("BDRUN_COMM", "shm"), "shm (BDRUN_COMM): BDRUN_SHM_NAME is not set"),
    ] {
        let (_, log, well) = alone(&[environment]);
        assert!(!well && log.contains(words), "{log}");
    }
    // So it is of a communicator without the rest.
    let mut command = command(PROGRAM);
    let output = output(command.env("BDRUN_EXPECTED_RANKS", "4").spawn().expect("start"));
    let log = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && log.contains("1 ranks by local, and 4 are expected"), "{log}");
}

#[test]
fn ranks_of_shared_memory_and_of_bdrun() {
    let two = [("RAYON_NUM_THREADS", "2"), ("BDRUN_EXPECTED_RANKS", "2")];
    let outputs = shm(2, "setup", &two, |_| {});
    let said: Vec<String> = outputs.iter().map(succeed).collect();
    assert_eq!(said, ["4 threads in all\n", ""]);
    let log = String::from_utf8_lossy(&outputs[0].stderr).into_owned();
    assert!(log.starts_with("2 ranks on 1 node by shm (BDRUN_SHM_NAME)\n"), "{log}");
    assert!(outputs[1].stderr.is_empty(), "rank 0 alone says it");
    let mut command = command(bdrun_skipped::bdrun_beside(PROGRAM));
    command.args(["-np", "2", "--memory", "1G", PROGRAM, "setup"]).envs(two);
    let output = output(command.spawn().expect("start bdrun"));
    assert!(succeed(&output).contains("4 threads in all"));
    let log = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(log.contains("2 ranks on 1 node by bdrun (BDRUN_FDS)"), "{log}");
}
