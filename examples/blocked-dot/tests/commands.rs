//! The four commands, beside NumPy, in little memory.

use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const MAKE: &str = r#"
import sys, numpy as np
folder, columns = sys.argv[1], int(sys.argv[2])
rng = np.random.default_rng(1)
a, b = rng.standard_normal((400, columns)), rng.standard_normal((400, 400))
np.save(f"{folder}/a.npy", a)
np.save(f"{folder}/b.npy", b)
if "zarr" in sys.argv[3:]:
    import zarr
    zarr.create_array(f"{folder}/a.zarr", data=a, chunks=(50, 50))
    zarr.create_group(f"{folder}/group").create_array("B", data=b, chunks=(50, 50), shards=(100, 400), compressors=None)
if "hdf5" in sys.argv[3:]:
    import h5py
    with h5py.File(f"{folder}/ab.h5", "w") as f:
        f.create_dataset("A", data=a, chunks=(50, 50))
        f.create_dataset("B", data=b, chunks=(50, 50))
"#;

const CHECK: &str = r#"
import sys, numpy as np
folder, name, expression = sys.argv[1:]
A, B = np.load(f"{folder}/a.npy"), np.load(f"{folder}/b.npy")
if name.endswith(".npy"):
    x = np.load(f"{folder}/{name}")
elif name.endswith(".zarr"):
    import zarr
    x = zarr.open_array(f"{folder}/{name}", mode="r")
    assert x.chunks == (50, 50), x.chunks
    x = x[...]
else:
    import h5py
    f = h5py.File(f"{folder}/{name}")
    assert f["C"].chunks == (50, 50), f["C"].chunks
    x = f["C"][...]
y = eval(expression)
assert x.dtype == y.dtype and x.shape == y.shape
np.testing.assert_allclose(x, y, rtol=1e-9, atol=1e-9 * np.abs(y).max())
print("equal")
"#;

struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("bdrun-blocked-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(&self.0).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A file, or a directory with all that is in it.
fn remove(path: &Path) {
    if path.is_dir() { std::fs::remove_dir_all(path) } else { std::fs::remove_file(path) }.unwrap();
}

fn python() -> String {
    std::env::var("BDRUN_SDDP_PYTHON").unwrap_or_else(|_| "python3".into())
}

fn script(text: &str, arguments: &[&str]) -> Output {
    Command::new(python()).args(["-c", text]).args(arguments).output().unwrap()
}

fn has(module: &str) -> bool {
    let output = Command::new(python()).args(["-c", &format!("import {module}")]).output();
    output.is_ok_and(|output| output.status.success())
}

/// Runs a command in a directory, as one rank of bdrun would be with this budget.
fn run(program: &str, folder: &Path, arguments: &[&str], budget: Option<u64>) -> Output {
    let mut command = Command::new(program);
    command.args(arguments).current_dir(folder).env_remove("BDRUN_SCRATCH").args(["--scratch", "."]);
    match budget {
        Some(budget) => command.env("BDRUN_BUDGET_BYTES", budget.to_string()).env("BDRUN_SIZE", "1"),
        None => command.env_remove("BDRUN_BUDGET_BYTES").env_remove("BDRUN_SIZE"),
    };
    command.output().unwrap()
}

const DOT: &str = env!("CARGO_BIN_EXE_blocked-dot");

fn commands(names: &[&str; 3]) -> Vec<(&'static str, Vec<String>, &'static str)> {
    let [a, b, c] = names.map(str::to_owned);
    let two = |one: &str| vec![one.to_owned(), c.clone()];
    let three = vec![a.clone(), b.clone(), c.clone()];
    vec![
        (DOT, three.clone(), "A.T.dot(B)"),
        (env!("CARGO_BIN_EXE_blocked-cube"), two(&a), "((A + 1) * 2) ** 3"),
        (env!("CARGO_BIN_EXE_blocked-centre"), two(&b), "(B - B.mean(axis=0)) + (B.T / B.std())"),
        (env!("CARGO_BIN_EXE_blocked-departure"), three, "A.T.dot(B) - B.mean(axis=0)"),
    ]
}

/// Runs a command in a directory on so many ranks.
fn on_ranks(ranks: &str, memory: &str, program: &str, folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(bdrun_skipped::bdrun_beside(DOT));
    command.args(["-np", ranks, "--memory", memory, "--output", "quiet", "--", program]).args(arguments);
    command.args(["--scratch", "."]).current_dir(folder);
    command
}

fn equal(directory: &Directory, names: &[&str; 3], budget: Option<u64>) {
    equal_by(directory, names, |program, arguments| run(program, &directory.0, arguments, budget));
}

/// Each command computes what NumPy does, however it is run.
fn equal_by(directory: &Directory, names: &[&str; 3], run: impl Fn(&str, &[&str]) -> Output) {
    let before = directory.names().len();
    for (program, arguments, expression) in commands(names) {
        let mut arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        arguments.extend(["--block", "20000"]);
        let output = run(program, &arguments);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{program}: {said}");
        assert!(said.contains("tasks; blocks take at most") && said.contains("done in"), "{said}");
        let file = names[2].split("::").next().unwrap();
        let output = script(CHECK, &[&directory.0.to_string_lossy(), file, expression]);
        let equal = String::from_utf8_lossy(&output.stdout);
        assert_eq!(equal.trim(), "equal", "{expression}: {}", String::from_utf8_lossy(&output.stderr));
        remove(&directory.0.join(file));
        // No scratch, nothing half written.
        assert_eq!(directory.names().len(), before);
    }
}

#[test]
fn numpys_files() {
    if !has("numpy") {
        return bdrun_skipped::skipped("numpy", "there is no NumPy");
    }
    let directory = Directory::new("npy");
    let made = script(MAKE, &[&directory.0.to_string_lossy(), "900"]);
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    equal(&directory, &["a.npy", "b.npy", "c.npy"], None);
    // Less than B takes: what does not fit is read again, or is kept in scratch.
    equal(&directory, &["a.npy", "b.npy", "c.npy"], Some(48 << 20));
}

#[test]
fn a_run_is_drawn() {
    if !has("numpy") {
        return bdrun_skipped::skipped("numpy", "there is no NumPy");
    }
    let directory = Directory::new("draw");
    let made = script(MAKE, &[&directory.0.to_string_lossy(), "900"]);
    assert!(made.status.success());
    let arguments = ["a.npy", "b.npy", "c.npy", "--block", "200000", "--draw", "run.html"];
    let output = run(DOT, &directory.0, &arguments, None);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let page = std::fs::read_to_string(directory.0.join("run.html")).unwrap();
    let tasks = page.matches("<circle cx").count();
    assert!(tasks > 50 && tasks == page.matches("<rect x").count(), "{tasks}");
    let events = page.split("const events = [").nth(1).unwrap().split("], profile").next().unwrap();
    for kind in ["0", "1"] {
        let of_kind = events.split("],[").filter(|event| event.split(',').nth(1) == Some(kind));
        assert_eq!(of_kind.count(), tasks, "{kind}");
    }
    // Where it cannot be written nothing is done.
    let output = run(DOT, &directory.0, &["a.npy", "b.npy", "d.npy", "--draw", "none/run.html"], None);
    assert!(!output.status.success() && !directory.0.join("d.npy").exists());
}

#[test]
fn datasets_of_hdf5_files() {
    if !has("h5py") {
        return bdrun_skipped::skipped("h5py", "there is no h5py");
    }
    let directory = Directory::new("hdf5");
    let made = script(MAKE, &[&directory.0.to_string_lossy(), "900", "hdf5"]);
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    equal(&directory, &["ab.h5::/A", "ab.h5::/B", "c.h5::/C"], None);
}

#[test]
fn arrays_of_zarr() {
    if !has("zarr.codecs") {
        return bdrun_skipped::skipped("zarr", "there is no zarr-python of version 3");
    }
    let directory = Directory::new("zarr");
    let made = script(MAKE, &[&directory.0.to_string_lossy(), "900", "zarr"]);
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    equal(&directory, &["a.zarr", "group/B", "c.zarr"], None);
    // What is in a directory that is no array is not replaced.
    std::fs::create_dir(directory.0.join("mine.zarr")).unwrap();
    std::fs::write(directory.0.join("mine.zarr/thesis"), "all of it").unwrap();
    for (arguments, words) in [
        (&["a.zarr", "group/B", "mine.zarr", "--force"][..], "no array of Zarr is there"),
        (&["a.zarr", "group", "c.zarr"], "in it are B"),
        (&["a.zarr", "group/B", "a.zarr"], "a.zarr is there; --force replaces it"),
    ] {
        let output = run(DOT, &directory.0, arguments, None);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && said.contains(words), "{said}");
    }
    assert_eq!(std::fs::read(directory.0.join("mine.zarr/thesis")).unwrap(), b"all of it");
}

#[test]
fn what_is_wrong_is_said() {
    if !has("numpy") {
        return bdrun_skipped::skipped("numpy", "there is no NumPy");
    }
    let directory = Directory::new("wrong");
    let made = script(MAKE, &[&directory.0.to_string_lossy(), "900"]);
    assert!(made.status.success());
    std::fs::write(directory.0.join("there.npy"), "mine").unwrap();
    std::fs::write(directory.0.join("text.txt"), "no array").unwrap();
    let before = directory.names();
    for (arguments, budget, words) in [
        (&["a.npy", "b.npy", "there.npy"][..], None, "there.npy is there; --force replaces it"),
        (&["a.npy", "none.npy", "c.npy"], None, "none.npy: No such file"),
        (&["a.npy", "text.txt", "c.npy"], None, "named FILE::/DATASET"),
        (&["b.npy", "a.npy", "none/c.npy"], None, "No such file"),
        (&["a.npy", "b.npy", "c.npy"], Some(1 << 20), "--block makes blocks smaller"),
    ] {
        let output = run(DOT, &directory.0, arguments, budget);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.starts_with("error: ") && said.contains(words), "{said}");
        assert_eq!(directory.names(), before);
    }
    let output = run(DOT, &directory.0, &["a.npy", "b.npy", "c.npy", "--dry-run"], None);
    assert!(output.status.success());
    assert_eq!(directory.names(), before);
}

#[test]
fn ranks_of_a_job_compute_the_same() {
    if !has("h5py") {
        return bdrun_skipped::skipped("h5py", "there is no h5py");
    }
    let directory = Directory::new("ranks");
    let made = script(MAKE, &[&directory.0.to_string_lossy(), "900", "hdf5"]);
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let npy = ["a.npy", "b.npy", "c.npy"];
    for (ranks, memory, names) in [("2", "1G", &npy), ("4", "1G", &["ab.h5::/A", "ab.h5::/B", "c.h5::/C"])] {
        equal_by(&directory, names, |program, arguments| {
            on_ranks(ranks, memory, program, &directory.0, arguments).output().unwrap()
        });
    }
    // In the least memory in which it is begun, to a quarter of a MiB, B does not fit.
    let centre = |kib: u32| {
        let (memory, program) = (format!("{kib}K"), env!("CARGO_BIN_EXE_blocked-centre"));
        let arguments = ["b.npy", "c.npy", "--block", "20000", "--force"];
        let output = on_ranks("3", &memory, program, &directory.0, &arguments).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success() || said.contains("--block makes blocks smaller"), "{memory}: {said}");
        output.status.success().then_some(said)
    };
    let (mut little, mut enough) = (8 << 10, 64 << 10);
    let mut said = centre(enough).expect("in 64 MiB it runs");
    while enough - little > 256 {
        let middle = (little + enough) / 2;
        match centre(middle) {
            Some(run) => (said, enough) = (run, middle),
            None => little = middle,
        }
    }
    assert!(said.contains("read from files once more"), "{said}");
    let expression = "(B - B.mean(axis=0)) + (B.T / B.std())";
    let equal = script(CHECK, &[&directory.0.to_string_lossy(), "c.npy", expression]);
    assert_eq!(String::from_utf8_lossy(&equal.stdout).trim(), "equal");
    std::fs::remove_file(directory.0.join("c.npy")).unwrap();

    let before = directory.names();
    let output = on_ranks("3", "1G", DOT, &directory.0, &["a.npy", "b.npy", "c.npy", "--dry-run"]).output();
    let output = output.unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.matches("tasks; blocks take").count() == 1, "{said}");
    // Rank 0 says what is wrong, and the job ends.
    std::fs::write(directory.0.join("there.npy"), "mine").unwrap();
    let output = on_ranks("3", "1G", DOT, &directory.0, &["a.npy", "b.npy", "there.npy"]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.matches("there.npy is there").count() == 1, "{said}");
    std::fs::remove_file(directory.0.join("there.npy")).unwrap();
    // Ranks that compute something else, if only from other files.
    let script =
        "if [ $BDRUN_RANK = 2 ]; then exec \"$0\" b.npy a.npy c.npy; else exec \"$0\" a.npy b.npy c.npy; fi";
    for other in [script, &script.replace("b.npy a.npy", "ab.h5::/A b.npy")] {
        let mut command = Command::new(bdrun_skipped::bdrun_beside(DOT));
        command.args(["-np", "3", "--memory", "1G", "--output", "quiet", "--", "sh", "-c", other, DOT]);
        let output = command.current_dir(&directory.0).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        let differs = said.contains("rank 2 reads other data") || said.contains("rank 2 runs another graph");
        assert!(!output.status.success() && differs, "{said}");
        assert!(!directory.0.join("c.npy").exists());
    }
    assert_eq!(directory.names(), before);
}

/// A job that is killed is gone on with, by other ranks or by none.
#[test]
fn a_killed_job_is_gone_on_with() {
    if !has("numpy") {
        return bdrun_skipped::skipped("numpy", "there is no NumPy");
    }
    let directory = Directory::new("killed");
    let made = script(MAKE, &[&directory.0.to_string_lossy(), "6000"]);
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let before = directory.names();
    let arguments = ["a.npy", "b.npy", "c.npy", "--block", "20000", "--resume"];
    let stored = || {
        let text = std::fs::read_to_string(directory.0.join(".c.npy.part.stored")).unwrap_or_default();
        text.lines().skip(1).count()
    };
    let killed = || {
        let (mut most, mut kills) = (0, 0);
        for ranks in ["3", "2", "4"] {
            let mut job = on_ranks(ranks, "1G", DOT, &directory.0, &arguments);
            let mut job = job.stderr(std::process::Stdio::null()).spawn().unwrap();
            // Something new is stored before it is killed, however long that takes.
            while stored() <= most && job.try_wait().unwrap().is_none() {
                std::thread::sleep(std::time::Duration::from_millis(5));
            }
            job.kill().unwrap();
            if job.wait().unwrap().success() {
                break;
            }
            // Its ranks end with it, but not at once: one of them writes.
            let Ok(ledger) = std::fs::File::open(directory.0.join(".c.npy.part.stored")) else {
                // It was done by then.
                assert!(directory.0.join("c.npy").exists());
                break;
            };
            for _ in 0..60_000 {
                if ledger.try_lock().is_ok() {
                    break;
                }
                std::thread::sleep(std::time::Duration::from_millis(10));
            }
            // A program that another test starts just now may have a copy, and the lock as long as that.
            let _ = ledger.unlock();
            drop(ledger);
            if directory.0.join("c.npy").exists() {
                break;
            }
            assert!(stored() > most, "what was stored stays stored");
            (most, kills) = (stored(), kills + 1);
        }
        kills
    };
    // Where this process is late the first one is done before it is killed, and leaves nothing to go on with.
    let is_killed = (0..5).any(|_| {
        let _ = std::fs::remove_file(directory.0.join("c.npy"));
        killed() > 0
    });
    assert!(is_killed, "the first one of three ranks was done at once");
    if !directory.0.join("c.npy").exists() {
        let last = on_ranks("3", "1G", DOT, &directory.0, &arguments).output().unwrap();
        assert!(last.status.success(), "{}", String::from_utf8_lossy(&last.stderr));
    }
    let equal = script(CHECK, &[&directory.0.to_string_lossy(), "c.npy", "A.T.dot(B)"]);
    assert_eq!(String::from_utf8_lossy(&equal.stdout).trim(), "equal");
    std::fs::remove_file(directory.0.join("c.npy")).unwrap();
    assert_eq!(directory.names(), before);
}

/// Killed at any moment, gone on with, killed again: what was stored is not computed again, and nothing is
/// wrong.
fn killed_run(name: &str, outputs: &[(&str, &str)]) {
    let directory = Directory::new(name);
    let made = script(MAKE, &[&directory.0.to_string_lossy(), "9000", "hdf5"]);
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let before = directory.names();
    for (output, part) in outputs {
        // Blocks of one chunk: many of them, so that there is time to be killed.
        let command = |block: &str| {
            let mut command = Command::new(DOT);
            command.args(["ab.h5::/A", "ab.h5::/B", output, "--block", block, "--resume", "--scratch", "."]);
            command.current_dir(&directory.0).env_remove("BDRUN_BUDGET_BYTES").env_remove("BDRUN_SIZE");
            command
        };
        let stored = || {
            let text =
                std::fs::read_to_string(directory.0.join(format!("{part}.stored"))).unwrap_or_default();
            text.lines().skip(1).count()
        };
        let file = output.split("::").next().unwrap();
        let (mut kills, mut most, mut run) = (0, 0, 0_u32);
        // A busy machine may let many be done before they are killed.
        while run < 20 || (kills <= 5 && run < 200) {
            let mut child = command("20000").stderr(std::process::Stdio::null()).spawn().unwrap();
            std::thread::sleep(std::time::Duration::from_millis(u64::from(run * 37 % 20) * 15));
            child.kill().unwrap();
            let status = child.wait().unwrap();
            if directory.0.join(file).exists() {
                // Done, or nearly so: all begins again.
                directory.names().iter().filter(|name| !before.contains(name)).for_each(|name| {
                    remove(&directory.0.join(name));
                });
                most = 0;
            } else {
                assert_eq!(status.signal(), Some(9), "{status}");
                kills += 1;
                // What was stored stays stored.
                assert!(stored() >= most);
                most = stored();
            }
            run += 1;
        }
        assert!(kills > 5, "{kills} of {run} were killed before they were done");
        // Something else does not go on with it, and changes nothing.
        if most > 0 {
            let refused = command("80000").output().unwrap();
            let said = String::from_utf8_lossy(&refused.stderr).into_owned();
            assert!(!refused.status.success() && said.contains("something else"), "{said}");
        }
        let last = command("20000").output().unwrap();
        assert!(last.status.success(), "{}", String::from_utf8_lossy(&last.stderr));
        let equal = script(CHECK, &[&directory.0.to_string_lossy(), file, "A.T.dot(B)"]);
        let said = String::from_utf8_lossy(&equal.stdout);
        assert_eq!(said.trim(), "equal", "{}", String::from_utf8_lossy(&equal.stderr));
        remove(&directory.0.join(file));
        assert_eq!(directory.names(), before);
    }
}

#[test]
fn a_killed_run_is_gone_on_with() {
    if !has("h5py") {
        return bdrun_skipped::skipped("h5py", "there is no h5py");
    }
    killed_run("resume", &[("c.npy", ".c.npy.part"), ("c.h5::/C", ".c.h5.part")]);
}

#[test]
fn a_killed_run_into_zarr_is_gone_on_with() {
    if !has("h5py") || !has("zarr.codecs") {
        return bdrun_skipped::skipped("zarr", "there is no h5py, or no zarr-python of version 3");
    }
    killed_run("resume-zarr", &[("c.zarr", ".c.zarr.part")]);
}
