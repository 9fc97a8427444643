//! One suite over every back end: threads here, processes of `hybrid-conformance` with what starts them.

mod common;

use std::collections::BTreeMap;
use std::process::{Command, Output};
use std::sync::Mutex;
use std::time::Duration;

use bdrun_hybrid::{
    BdrunBackend, LocalBackend, ReduceOp, Result, SharedMemory, ShmBackend, ShmSpec, conformance,
};
use bdrun_skipped::skipped;
use common::{PROGRAM, command, name, output, shm, succeed};
use proptest::prelude::*;

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
        conformance::suite(&BdrunBackend::on(comm), true).expect("the suite")
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
        let said: Vec<_> = shm(size, "suite", &[], |_| {}).iter().map(succeed).collect();
        same_everywhere(size, "shm", &said[0]);
    }
}

#[test]
fn the_same_in_threads() {
    let name = name();
    for size in [3, 5] {
        std::thread::scope(|scope| {
            for rank in 0..size {
                let spec = ShmSpec::new(format!("{name}-{size}"), rank, size);
                scope.spawn(move || {
                    let comm = ShmBackend::join(&spec).expect("join");
                    conformance::suite(&comm, true).expect("the suite");
                });
            }
        });
    }
}

/// What a rank does in a program that is drawn.
#[derive(Debug, Clone)]
enum Step {
    Broadcast { root: usize, len: usize },
    Reduce { len: usize, op: ReduceOp },
    Gather { counts: Vec<usize> },
    Shift { by: usize, len: usize },
    Region { len: usize },
}

fn step() -> impl Strategy<Value = Step> {
    // Around the bytes of a slot, a ring, and what each rank folds by itself.
    let len =
        || prop_oneof![0usize..4, 120usize..140, 1_020usize..1_030, 8_180usize..8_200, 65_530usize..65_540,];
    let op = prop_oneof![Just(ReduceOp::Sum), Just(ReduceOp::Min), Just(ReduceOp::Max)];
    prop_oneof![
        (0usize..8, len()).prop_map(|(root, len)| Step::Broadcast { root, len }),
        (len(), op).prop_map(|(len, op)| Step::Reduce { len, op }),
        proptest::collection::vec(len(), 8).prop_map(|counts| Step::Gather { counts }),
        (0usize..8, len()).prop_map(|(by, len)| Step::Shift { by, len }),
        len().prop_map(|len| Step::Region { len }),
    ]
}

/// All bits that a rank has got in a program.
fn perform<C: SharedMemory>(comm: &C, program: &[Step]) -> Result<Vec<u64>> {
    let (rank, size) = (comm.rank(), comm.size());
    let number = |rank: usize, at: usize| [1.0, 1e16, -1e16][(rank + at) % 3] + (rank * 7 + at) as f64;
    let mine = |len: usize| (0..len).map(|at| number(rank, at)).collect::<Vec<f64>>();
    let mut seen = Vec::new();
    for (at, step) in program.iter().enumerate() {
        let got = match step {
            Step::Broadcast { root, len } => {
                let mut data = mine(*len);
                comm.broadcast(&mut data, root % size)?;
                data
            }
            Step::Reduce { len, op } => {
                let mut sums = vec![0.0; *len];
                comm.allreduce(&mine(*len), &mut sums, *op)?;
                sums
            }
            Step::Gather { counts } => {
                let counts = &counts[..size];
                let displs: Vec<usize> = (0..size).map(|rank| counts[..rank].iter().sum()).collect();
                let mut all = vec![0.0; counts.iter().sum()];
                comm.allgatherv(&mine(counts[rank]), &mut all, counts, &displs)?;
                all
            }
            // All send first: no back end here waits for ever then.
            Step::Shift { by, len } => {
                let mut data = vec![0.0; *len];
                comm.send(&mine(*len), (rank + by) % size, at as u32)?;
                comm.recv(&mut data, (rank + 8 * size - by) % size, at as u32)?;
                data
            }
            Step::Region { len } => {
                let mut region = comm.create_shared_region::<f64>(*len)?;
                region.update(|all| all.copy_from_slice(&mine(*len)))?;
                region.as_slice().to_vec()
            }
        };
        seen.extend(got.into_iter().map(f64::to_bits));
    }
    Ok(seen)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]

    /// Whatever program, whatever number of ranks: shared memory and bdrun's worker give the same bits.
    #[test]
    fn programs_that_are_drawn_give_the_same(size in 1usize..=5, program in proptest::collection::vec(step(), 0..12)) {
        let name = name();
        let worker = bdrun_worker::local::run(size, |comm| perform(&BdrunBackend::on(comm), &program).expect("worker"));
        let shm = std::thread::scope(|scope| {
            let start = |rank| {
                let (spec, program) = (ShmSpec::new(&name, rank, size), &program);
                scope.spawn(move || perform(&ShmBackend::join(&spec).expect("join"), program).expect("shm"))
            };
            let threads: Vec<_> = (0..size).map(start).collect();
            threads.into_iter().map(|thread| thread.join().expect("no panic")).collect::<Vec<_>>()
        });
        prop_assert!(worker == shm);
    }
}

/// A rank is killed at some moment: the others end, and nothing is left.
#[test]
fn ranks_of_shared_memory_are_killed_at_any_moment() {
    for moment in 0..16u64 {
        let killed = (moment % 3) as usize;
        // Who comes only when the others have given up, and is killed then, leaves its file to nobody.
        let patience = if killed == 0 { "10" } else { "2" };
        let outputs = shm(3, "suite", &[("BDRUN_SHM_PATIENCE", patience)], |children| {
            std::thread::sleep(Duration::from_millis(moment * 3));
            children[killed].kill().expect("it is not waited for yet");
        });
        for (rank, output) in outputs.iter().enumerate().filter(|_| !outputs[killed].status.success()) {
            let said = String::from_utf8_lossy(&output.stderr);
            // Who was done before the kill, or began after it with nobody there, says so too.
            let is_told = ["has ended", "ranks have come", "has not come", "ended before all"]
                .iter()
                .any(|word| said.contains(word));
            assert!(rank == killed || is_told || output.status.success(), "{moment}: rank {rank}: {said}");
        }
    }
}

/// A rank that ends is noticed by those that wait for it, in a message and in a collective.
#[test]
fn a_rank_of_shared_memory_that_ends_is_told_of() {
    let outputs = shm(3, "die", &[], |_| {});
    assert_eq!(outputs[2].status.code(), Some(9));
    for (rank, call) in [(0, "recv"), (1, "barrier")] {
        let said = succeed(&outputs[rank]);
        // Rank 1 may also wait for rank 0, which has ended by then.
        let lost = [0, 2].map(|peer| format!("rank {rank}: rank {rank}: {call}: rank {peer} has ended"));
        assert!(lost.iter().any(|lost| said.contains(lost)), "{said}");
    }
}

/// A child that it has forked has what it had open, also what tells that it lives.
#[test]
fn a_rank_that_ends_is_told_of_though_a_child_of_it_lives() {
    let outputs = shm(3, "die-with-child", &[], |_| {});
    assert_eq!(outputs[2].status.code(), Some(9));
    let child: i32 = String::from_utf8_lossy(&outputs[2].stdout).trim().parse().expect("its number");
    // SAFETY: the child lives for a minute, and its number is nobody else's.
    assert_eq!(unsafe { libc::kill(child, libc::SIGKILL) }, 0, "it lives");
    for (rank, call) in [(0, "recv"), (1, "barrier")] {
        let said = succeed(&outputs[rank]);
        assert!(
            said.contains(&format!("rank {rank}: {call}: rank ")) && said.contains(" has ended"),
            "{said}"
        );
    }
}

#[test]
fn a_rank_of_shared_memory_that_aborts_is_told_of() {
    let outputs = shm(3, "abort", &[], |_| {});
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
    let mut command = command(bdrun_skipped::bdrun_beside(PROGRAM));
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
    let said = succeed(&under_bdrun("-np 2 --memory 1G --resident 1", "suite"));
    same_everywhere(2, "bdrun", &said);
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
    // Ranks that leave RAM at each wait find it as it was.
    let said = succeed(&under_bdrun("-np 4 --memory 128M --resident 1", &format!("hold {REGION}")));
    assert!(said.contains(&format!("{REGION} bytes, shared")), "{said}");
    // More than there can be.
    let output = under_bdrun("-np 2 --memory 32M", &format!("hold {REGION}"));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("to be shared, and the job's budget is"), "{said}");
}

#[test]
fn a_rank_of_bdrun_that_aborts_ends_the_job() {
    for step in ["abort", "fail"] {
        assert!(!under_bdrun("-np 3 --memory 1G", step).status.success(), "{step}");
    }
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
    // A rank that panics does not wait for the others in MPI_Finalize, who wait for it.
    for step in ["abort", "panic", "fail"] {
        let mut command = command(launcher);
        command.args(arguments).args(["-n", "3", PROGRAM, step]);
        let ended = output(command.spawn().expect("start mpiexec"));
        assert!(!ended.status.success(), "{step}");
        let said = String::from_utf8_lossy(&ended.stderr);
        assert!(step != "fail" || said.contains("rank 0: it has no input"), "{ended:?}");
    }
    // Nor does one that cannot be set up, or has no communicator.
    for (wrong, step) in [("RAYON_NUM_THREADS=all", "setup"), ("BDRUN_EXPECTED_RANKS=4", "suite")] {
        let one_is_wrong = format!(
            "if [ ${{PMI_RANK-$OMPI_COMM_WORLD_RANK}} = 2 ]; then export {wrong}; fi
            exec $0 {step}"
        );
        let mut command = command(launcher);
        command.args(arguments).args(["-n", "3", "sh", "-c", &one_is_wrong, PROGRAM]);
        let ended = output(command.spawn().expect("start mpiexec"));
        let said = String::from_utf8_lossy(&ended.stderr);
        let word = wrong.split('=').next().expect("a name");
        assert!(!ended.status.success() && said.contains(word), "{ended:?}");
    }
    let library = if need == "mpich" { "libmpich.so.12" } else { "libmpi.so.40" };
    let mut command = command(launcher);
    command.args(arguments).args(["-n", "2", PROGRAM, "finalized", library]);
    let said = succeed(&output(command.spawn().expect("start mpiexec")));
    assert_eq!(said.matches("the program has finalised MPI").count(), 2, "{said}");
}

#[test]
fn ranks_of_mpich() {
    under_mpi("mpich", &["mpiexec.mpich", "mpiexec.hydra", "mpiexec"], &[]);
}

#[test]
fn ranks_of_open_mpi() {
    // By default it makes and removes one directory in `/tmp` for all of a user, and two that begin and end
    // at the same time may fail at that ("File exists").
    let own = std::env::temp_dir().join(name());
    std::fs::create_dir(&own).expect("a directory");
    let path = own.to_str().expect("a path");
    let options = ["--allow-run-as-root", "--oversubscribe", "--mca", "orte_tmpdir_base", path];
    under_mpi("openmpi", &["mpiexec.openmpi", "mpiexec"], &options);
    std::fs::remove_dir_all(&own).expect("remove it");
}
