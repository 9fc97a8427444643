//! Programs not written for us: the same results as ranks that are moved out of RAM and in again all the time
//! as without bdrun.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use super::{Directory, LIMIT, bdrun_args, first_of, limited, skipped};

/// Debian's, which has numpy; others may be scripts around it.
pub const PYTHON: &str = "/usr/bin/python3";

/// In Python: waits until parts of so many MiB that were written have left, two minutes at most. How soon is
/// a matter of the machine's load, and the kernel, where it has a bound, waits for nobody.
pub const UNTIL_PAGED: &str = "
import time
def holds():
    return int(open('/proc/self/status').read().split('RssAnon:')[1].split()[0]) >> 10
def until_paged(mib):
    end = time.monotonic() + 120
    while holds() > mib - 4 and time.monotonic() < end:
        time.sleep(0.01)
";

/// How much is done, and how often each rank must have been moved.
pub struct Chaos {
    pub np: usize,
    /// `--chaos`, ms.
    pub every: u32,
    pub least: u64,
    /// Work, as a multiple of what the program takes for little.
    pub work: usize,
    /// `--preload`.
    pub preload: &'static str,
    /// As the user "nobody", which takes root.
    pub nobody: bool,
    /// Longest time a job may take.
    pub limit: Duration,
}

impl Chaos {
    /// Runs a program plainly and as a job under chaos: the output must be the same, each rank moved, and on
    /// average often. How long a program takes depends on the machine: if it ends too soon it is given more
    /// to do.
    pub fn same_output(&self, command: impl Fn(usize) -> Vec<String>) {
        let Self { np, every, least, work, preload, nobody, limit } = *self;
        first_of([1, 3, 9, 27], |more| {
            let args = command(work * more);
            let begin = Instant::now();
            let expected = text(&plainly(&args).stdout);
            let plain = begin.elapsed().as_secs_f64();
            assert!(!expected.is_empty());
            let options = format!("-np {np} --chaos {every} --preload {preload} --");
            let job = bdrun_args(options.split(' ').map(String::from).chain(args.clone())).within(limit);
            let outcome = if nobody { job.by_nobody() } else { job }.succeed();
            assert_eq!(lines(&outcome.stdout, 1), lines(&expected, np), "{args:?}");
            let moved: Vec<u64> = outcome.stats().ranks.iter().map(|rank| rank.evictions).collect();
            let held = outcome.stats().ranks.iter().map(|rank| rank.peak_bytes).max().unwrap_or(0) >> 20;
            let wall = outcome.wall.as_secs_f64();
            eprintln!(
                "{args:?}: {plain:.1} s plainly, {np} ranks {wall:.1} s ({:.1} x), {held} MiB a rank, moved {moved:?} times",
                wall / plain
            );
            // On a busy machine one of them may have run while the other was moved.
            let enough =
                moved.iter().all(|&count| count > 0) && moved.iter().sum::<u64>() >= least * np as u64;
            enough.then_some(()).ok_or(format!("{args:?}: moved only {moved:?} times: {outcome:?}"))
        });
    }
}

/// Output as text.
pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The output of a program that must end well, without bdrun.
pub fn plainly(args: &[String]) -> Output {
    let output = limited(Command::new(&args[0]).args(&args[1..]), LIMIT);
    assert!(output.status.success(), "{args:?}: {}", text(&output.stderr));
    output
}

/// The lines of a job whose ranks print the same; sorted, as they come in any order.
pub fn lines(stdout: &str, times: usize) -> Vec<&str> {
    let mut lines: Vec<&str> = stdout.lines().flat_map(|line| std::iter::repeat_n(line, times)).collect();
    lines.sort_unstable();
    lines
}

/// A command of words of any kind.
pub fn args<const N: usize>(words: [&dyn std::fmt::Display; N]) -> Vec<String> {
    words.iter().map(ToString::to_string).collect()
}

/// A program's source, below `tests/programs`.
pub fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs").join(name)
}

/// Whether Debian's Python has this module; said, if not.
pub fn python_with(module: &str) -> bool {
    let found = Command::new(PYTHON).args(["-c", &format!("import {module}")]).output();
    let there = found.is_ok_and(|output| output.status.success());
    if !there {
        skipped(if module == "numpy" { module } else { "python3" }, format!("no {PYTHON} with {module}"));
    }
    there
}

/// Runs a compiler; said, where there is none. That it fails is no reason to skip anything.
pub fn compiles(compiler: &mut Command) -> bool {
    match compiler.output() {
        Err(error) => {
            let name = compiler.get_program().to_string_lossy();
            skipped(if name == "javac" { "java" } else { &name }, format!("cannot start {name}: {error}"));
            false
        }
        Ok(output) => {
            assert!(output.status.success(), "{}", text(&output.stderr));
            true
        }
    }
}

/// Compiles a source of C or C++ below `tests/programs`; `None`, said, where there is no compiler.
pub fn compiled(dir: &Directory, name: &str, flags: &[&str]) -> Option<PathBuf> {
    let cxx = name.ends_with(".cc");
    let to = dir.path().join(name.replace(['.', '/'], "-"));
    let mut command = Command::new(if cxx { "g++" } else { "gcc" });
    command.args(["-O1", "-pthread"]).args(cxx.then_some("-std=c++17"));
    command.arg(source(name)).arg("-o").arg(&to).args(flags);
    compiles(&mut command).then_some(to)
}

/// A file of so many pseudo-random lines, about 25 bytes each.
pub fn text_file(dir: &Directory, lines: usize) -> PathBuf {
    let path = dir.path().join(format!("lines-{lines}"));
    let mut state = 1u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state >> 33
    };
    let lines: String = (0..lines).map(|i| format!("{} line {i} {}\n", next(), next() % 100)).collect();
    std::fs::write(&path, lines).expect("write a file");
    path
}
