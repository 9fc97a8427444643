//! The package of Python, by the Python that has Dask: `BDRUN_SDDP_PYTHON`, or `python3`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

fn python() -> Option<PathBuf> {
    python_with("dask", "import dask.array, dask.bag, cloudpickle")
}

fn python_with(need: &str, import: &str) -> Option<PathBuf> {
    /// What has been looked for: Dask takes seconds to be imported, and a test does that once more anyway.
    static FOUND: Mutex<BTreeMap<String, bool>> = Mutex::new(BTreeMap::new());
    let python = std::env::var_os("BDRUN_SDDP_PYTHON").map_or_else(|| "python3".into(), PathBuf::from);
    let found = *FOUND.lock().unwrap().entry(import.into()).or_insert_with(|| {
        let looked = Command::new(&python).args(["-c", import]).output();
        looked.is_ok_and(|output| output.status.success())
    });
    if found {
        return Some(python);
    }
    bdrun_skipped::skipped(need, format!("{} has no {need} as is needed", python.display()));
    None
}

fn command(program: &Path) -> Command {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let library = std::env::current_exe().unwrap();
    let library = library.ancestors().nth(2).unwrap().join("libbdrun_python.so");
    assert!(library.is_file(), "no {}: cargo build --workspace", library.display());
    let mut command = Command::new(program);
    command.env("BDRUN_PYTHON_LIBRARY", library).env("PYTHONPATH", here);
    command.env_remove("BDRUN_BUDGET_BYTES").env_remove("BDRUN_SCRATCH");
    // Tests run beside one another; threads of BLAS would wait by turning in circles.
    command.env("OMP_NUM_THREADS", "1").env("OPENBLAS_NUM_THREADS", "1");
    command
}

fn is_right(mut command: Command) {
    was_right(&command.output().unwrap());
}

fn was_right(output: &Output) {
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.trim_end().ends_with("right"), "{said}{}", String::from_utf8_lossy(&output.stderr));
}

/// A file of `graphs/`.
fn graphs(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/graphs").join(file).with_extension("py")
}

fn run(file: &str, name: &str) {
    if let Some(python) = python() {
        let mut command = command(&python);
        command.arg(graphs(file)).arg(name);
        is_right(command);
    }
}

fn run_numpy(script: &str, arguments: &[&str]) {
    if let Some(python) = python_with("numpy", NUMPY) {
        let mut command = command(&python);
        command.arg(tests(script)).args(arguments);
        is_right(command);
    }
}

const NUMPY: &str = "import numpy; assert numpy.__version__ > '2.1'";

fn tests(script: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(script)
}

/// The same where it needs h5py.
fn run_h5py(script: &str, arguments: &[&str]) {
    // With a library of HDF5 for ours, too: that of BDRUN_HDF5, or one that is installed.
    if python_with("h5py", "import h5py").is_some() {
        run_numpy(script, arguments);
    }
}

/// More of them: `ARRAY_CASES=10000 ARRAY_SEED=2`.
#[test]
fn random_expressions_are_numpys() {
    run_numpy("expressions.py", &[]);
}

#[test]
fn arrays_from_and_to_files() {
    run_numpy("arrays.py", &["files"]);
}

#[test]
fn memory_of_results_is_numpys() {
    run_numpy("arrays.py", &["memory"]);
}

#[test]
fn what_arrays_cannot_is_said() {
    run_numpy("arrays.py", &["errors"]);
}

#[test]
fn names_may_be_bytes() {
    run_numpy("origins.py", &["names"]);
}

#[test]
fn errors_name_the_line_that_failed() {
    run_numpy("origins.py", &["lines"]);
}

#[test]
fn what_would_look_right_is_right() {
    run_numpy("arrays.py", &["differences"]);
}

#[test]
fn what_is_no_argument_is_refused() {
    run_numpy("arrays.py", &["arguments"]);
    run_numpy("arrays.py", &["old_numpy"]);
}

#[test]
fn results_are_there_at_the_end_of_the_program() {
    run_numpy("arrays.py", &["at_exit"]);
    run_numpy("arrays.py", &["masks"]);
    run_numpy("arrays.py", &["modules"]);
}

#[test]
fn a_computation_is_interrupted() {
    run_numpy("arrays.py", &["interrupted"]);
    run_numpy("arrays.py", &["interrupted_at_once"]);
}

#[test]
fn functions_of_complex_numbers_are_numpys() {
    run_numpy("arrays.py", &["complex_numbers"]);
}

#[test]
fn histograms_are_numpys() {
    run_numpy("arrays.py", &["histograms"]);
}

#[test]
fn threads_are_as_many_as_there_is_room_for() {
    run_numpy("budgets.py", &["threads"]);
    run_h5py("budgets.py", &["example"]);
}

#[test]
fn pages_of_files_are_not_in_the_budget() {
    run_numpy("budgets.py", &["pages"]);
}

#[test]
fn mistakes_are_those_of_who_makes_them() {
    run_numpy("refused.py", &["arguments"]);
    run_numpy("refused.py", &["numbers_of_errors"]);
}

#[test]
fn functions_of_others_are_not_numpys() {
    run_numpy("refused.py", &["functions"]);
}

#[test]
fn quantiles_are_of_numpys_types() {
    run_numpy("refused.py", &["quantiles"]);
}

#[test]
fn nothing_is_left_of_what_is_refused() {
    run_numpy("refused.py", &["groups"]);
}

#[test]
fn what_is_replaced_is_not_missed() {
    run_h5py("refused.py", &["replaced"]);
    run_h5py("refused.py", &["replaced_apart"]);
}

#[test]
fn arrays_are_computed_without_another_thread() {
    run_numpy("arrays.py", &["no_threads"]);
}

#[test]
fn what_workers_do_not_share_any_more_is_counted() {
    run("memory", "unshared");
}

#[test]
fn results_are_moved_without_another_thread() {
    run("memory", "no_threads");
}

#[test]
fn what_is_too_large_or_nothing() {
    run_numpy("arrays.py", &["edges"]);
}

#[test]
fn arrays_are_those_of_dask_in_little_memory() {
    run("results", "arrays");
}

#[test]
fn bags_and_delayed_functions() {
    run("results", "collections");
}

#[test]
fn graphs_by_hand() {
    run("results", "graphs");
}

#[test]
fn a_run_is_drawn() {
    run("results", "drawn");
}

#[test]
fn what_fails_is_named() {
    run("workers", "failures");
}

#[test]
fn a_worker_that_dies_is_replaced() {
    run("workers", "deaths");
}

#[test]
fn what_a_worker_remembers_does_not_change() {
    run("results", "caches");
}

#[test]
fn locks_are_those_of_all_workers() {
    run("locks", "locks");
}

#[test]
fn locks_are_those_of_all_threads() {
    run("locks", "locks_of_threads");
}

#[test]
fn locks_are_in_one_file() {
    run("locks", "locks_at_once");
}

#[test]
fn a_lock_that_is_held_is_no_deadlock() {
    run("locks", "locks_not_dead");
}

#[test]
fn workers_have_their_own_and_leave_nothing() {
    run("workers", "workers");
}

#[test]
fn whatever_surrounds_it() {
    run("results", "surroundings");
}

#[test]
fn callbacks_are_called() {
    run("results", "progress");
}

#[test]
fn nothing_is_left_of_what_is_ended() {
    run("workers", "interrupted");
}

#[test]
fn a_task_may_have_more_inputs_than_descriptors() {
    run("results", "inputs");
}

#[test]
fn chains_have_names_of_their_own() {
    run("results", "names");
}

#[test]
fn mapped_files_are_mapped_by_workers() {
    run("results", "mapped");
}

#[test]
fn a_file_that_is_replaced_is_not_taken_for_what_was_mapped() {
    run("results", "replaced");
}

#[test]
fn a_child_that_comes_back_does_not_speak_for_its_worker() {
    run("workers", "come_back");
}

#[test]
fn what_cannot_be_begun_leaves_nothing_open() {
    run("workers", "nothing_open");
}

#[test]
fn a_worker_may_end_while_it_is_measured() {
    run("workers", "dies_when_it_is_measured");
}

#[test]
fn workers_end_as_python_does() {
    run("workers", "leaving");
}

#[test]
fn many_small_results_are_no_small_matter() {
    run("memory", "small");
}

#[test]
fn a_result_of_less_than_a_page() {
    run("memory", "pages");
}

#[test]
fn workers_are_waited_for_without_a_descriptor() {
    run("workers", "no_descriptors");
}

#[test]
fn a_child_keeps_what_a_worker_that_died_was_given() {
    run("workers", "forked");
}

#[test]
fn what_is_said_of_a_child_is_no_part_of_a_message() {
    run("workers", "amid");
}

#[test]
fn memory_without_room_is_not_scratch() {
    run("memory", "memory_full");
}

#[test]
fn scratch_is_not_in_memory() {
    run("memory", "memory_of_scratch");
}

#[test]
fn locks_are_waited_for_as_long_as_is_said() {
    run("locks", "locks_in_time");
}

#[test]
fn room_on_scratch_is_found() {
    run("memory", "extents");
}

#[test]
fn a_worker_taken_for_dead_is() {
    run("workers", "closed");
}

#[test]
fn profilers_are_given_what_they_need() {
    run("results", "profiled");
}

#[test]
fn values_are_the_same_again() {
    run("results", "values");
}

#[test]
fn the_budget_is_what_there_is() {
    run("memory", "budget");
}

/// Runs a program in a cgroup of which a file says something: of version 1 or 2, each with its folder, the
/// file, and what is written to it. None if there is no such group.
fn in_group(said: [[&str; 3]; 2], of: &Command) -> Option<Output> {
    static GROUPS: AtomicUsize = AtomicUsize::new(0);
    let number = GROUPS.fetch_add(1, Ordering::Relaxed);
    let folder = said.into_iter().find_map(|[folder, file, text]| {
        let folder = Path::new(folder).join(format!("bdrun-python-{}-{number}", std::process::id()));
        std::fs::create_dir(&folder).ok()?;
        let set = folder.join(file).exists() && std::fs::write(folder.join(file), text).is_ok();
        if !set {
            _ = std::fs::remove_dir(&folder);
        }
        set.then_some(folder)
    })?;
    let mut command = Command::new("sh");
    command.args(["-c", r#"echo $$ >"$0/cgroup.procs" && exec "$@""#]).arg(&folder);
    command.arg(of.get_program()).args(of.get_args());
    for (name, value) in of.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    let output = command.output().unwrap();
    // What ran in it is gone, which the kernel may notice later.
    let begun = std::time::Instant::now();
    while std::fs::remove_dir(&folder).is_err() {
        assert!(begun.elapsed().as_secs() < 600, "{} is in use", folder.display());
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    Some(output)
}

/// The same in a cgroup that has less than the machine.
#[test]
fn the_budget_is_what_a_cgroup_has() {
    let Some(python) = python() else { return };
    let mut command = command(&python);
    command.arg(graphs("memory")).args(["budget", "300000000"]);
    let limits = [
        ["/sys/fs/cgroup/memory", "memory.limit_in_bytes", "300000000"],
        ["/sys/fs/cgroup", "memory.max", "300000000"],
    ];
    let Some(output) = in_group(limits, &command) else {
        return bdrun_skipped::skipped("cgroup", "no cgroup with a limit of memory can be made");
    };
    was_right(&output);
}

/// Of a machine with many processors a container has few.
#[test]
fn processors_are_as_many_as_a_cgroup_has() {
    let Some(python) = python_with("numpy", NUMPY) else { return };
    let mut command = command(&python);
    command.arg(tests("budgets.py")).args(["quota", "1"]);
    if std::thread::available_parallelism().is_ok_and(|count| count.get() < 2) {
        return bdrun_skipped::skipped("processors", "there is one processor, with a quota or without");
    }
    let limits = [
        ["/sys/fs/cgroup/cpu", "cpu.cfs_quota_us", "100000"],
        ["/sys/fs/cgroup", "cpu.max", "100000 100000"],
    ];
    let Some(output) = in_group(limits, &command) else {
        return bdrun_skipped::skipped("cgroup", "no cgroup with a quota of processors can be made");
    };
    was_right(&output);
}

#[test]
fn a_full_scratch_is_said() {
    let Some(python) = python() else { return };
    let mut command = command(Path::new("unshare"));
    let mount = r#"mount -t tmpfs -o size=4m none /mnt && exec "$0" "$1" full /mnt"#;
    command.args(["--mount", "sh", "-c", mount]).arg(python).arg(graphs("memory"));
    let can = Command::new("unshare").args(["--mount", "mount", "-t", "tmpfs", "none", "/mnt"]).output();
    if !can.is_ok_and(|output| output.status.success()) {
        return bdrun_skipped::skipped("mount", "nothing may be mounted");
    }
    is_right(command);
}
