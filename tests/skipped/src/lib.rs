//! A test that lacks something says so here and does nothing, instead of looking as if it had passed.
//!
//! In the environment:
//! - `BDRUN_REQUIRE=root,gdb,…`: what must be there. A test that lacks one of these fails. `.ci/prepare`
//!   names all that a Debian machine can have.
//! - `BDRUN_SKIPS=FILE`: a line for each skip is added to it: need, test program, test, reason, separated by
//!   tabs.

use std::fmt::Display;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What a test can lack, for `BDRUN_REQUIRE`.
pub const NEEDS: &[&str] = &[
    // What a user or a container may be without.
    "root",
    "mount",
    "namespace",
    "cgroup",
    "cgroup2",
    "cgroup-v1",
    "locked",
    "parts",
    "processors",
    "seccomp",
    "pty",
    "userfaultfd",
    // What the kernel or the machine may not give even to root; nobody requires these.
    "aio",
    "io-uring",
    "kernel",
    // Programs.
    "bcalm",
    "browser",
    "dask",
    "docker",
    "g++",
    "gawk",
    "gcc",
    "gdb",
    "gfortran",
    "ghc",
    "go",
    "h5py",
    "highs",
    "hyperqueue",
    "java",
    "kmc",
    "libc-static",
    "mpich",
    "node",
    "numpy",
    "openmpi",
    "parallel",
    "perl",
    "php",
    "pkg-config",
    "pypy3",
    "python3",
    "ruby",
    "scipy",
    "sh",
    "slurm",
    "snakemake",
    "strace",
    "xz",
    "zarr",
    "zstd",
];

/// Says why a test does nothing here, for want of `need`, one of [`NEEDS`].
///
/// # Panics
/// If `BDRUN_REQUIRE` names `need` or something unknown, or the file `BDRUN_SKIPS` cannot be written.
#[track_caller]
pub fn skipped(need: &str, why: impl Display) {
    assert!(NEEDS.contains(&need), "'{need}' is none of the needs that tests/skipped knows");
    let required = std::env::var("BDRUN_REQUIRE").unwrap_or_default();
    if let Err(error) = permitted(need, &required) {
        panic!("{error}: {why}");
    }
    println!("skipped: {why}");
    if let Some(file) = std::env::var_os("BDRUN_SKIPS") {
        let mut options = std::fs::OpenOptions::new();
        // One write, so that lines of test programs that run at the same time do not mix.
        let added = options.append(true).create(true).open(&file);
        let added = added.and_then(|mut file| file.write_all(line(need, &why.to_string()).as_bytes()));
        if let Err(error) = added {
            panic!("BDRUN_SKIPS={}: {error}", file.display());
        }
    }
}

fn permitted(need: &str, required: &str) -> Result<(), String> {
    for name in required.split(',').map(str::trim).filter(|name| !name.is_empty()) {
        if !NEEDS.contains(&name) {
            return Err(format!("BDRUN_REQUIRE: '{name}' is none of {NEEDS:?}"));
        }
        if name == need {
            return Err(format!("this test must not be skipped (BDRUN_REQUIRE names '{need}')"));
        }
    }
    Ok(())
}

fn line(need: &str, why: &str) -> String {
    let program = std::env::current_exe().ok();
    let program = program.as_deref().and_then(|path| path.file_name()).unwrap_or_default().to_string_lossy();
    // Without the hash that cargo puts behind it.
    let program = program.rsplit_once('-').map_or(&*program, |(name, _)| name).to_owned();
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("?");
    let why = why.replace(['\n', '\t'], " ");
    format!("{need}\t{program}\t{test}\t{why}\n")
}

/// `bdrun`, beside a program of another crate of the workspace; built if it is not there.
///
/// # Panics
/// If it cannot be built.
#[must_use]
pub fn bdrun_beside(program: &str) -> PathBuf {
    let path = Path::new(program).with_file_name("bdrun");
    if let Some(cargo) = std::env::var_os("CARGO").filter(|_| !path.is_file()) {
        let mut build = Command::new(cargo);
        build.args(["build", "--quiet", "-p", "bdrun"]).current_dir(env!("CARGO_MANIFEST_DIR"));
        build.args(path.parent().is_some_and(|folder| folder.ends_with("release")).then_some("--release"));
        assert!(build.status().expect("start cargo").success(), "bdrun was not built");
    }
    assert!(path.is_file(), "no {}: cargo build -p bdrun", path.display());
    path
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn what_is_required_may_not_be_skipped() {
        assert_eq!(permitted("root", ""), Ok(()));
        assert_eq!(permitted("root", "gdb,cgroup"), Ok(()));
        assert!(permitted("root", "gdb, root").is_err_and(|error| error.contains("'root'")));
        assert!(permitted("root", "gbd").is_err_and(|error| error.contains("'gbd'")));
    }

    #[test]
    fn a_skip_is_one_line() {
        let line = line("gdb", "there is\nno gdb");
        let fields: Vec<&str> = line.trim_end().split('\t').collect();
        let me = "tests::a_skip_is_one_line";
        // One thread runs all tests where that is asked for.
        assert!(fields[2] == me || fields[2] == "main", "{line}");
        assert_eq!((fields[0], fields[1], fields[3]), ("gdb", "bdrun_skipped", "there is no gdb"));
        assert_eq!(line.matches('\n').count(), 1);
    }

    fn sources(dir: &Path, found: &mut Vec<String>) {
        for entry in std::fs::read_dir(dir).unwrap().flatten() {
            let (path, name) = (entry.path(), entry.file_name());
            if path.is_dir()
                && name != "target"
                && name != "skipped"
                && !name.to_string_lossy().starts_with('.')
            {
                sources(&path, found);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                // Others may be editing them.
                found.extend(std::fs::read_to_string(&path).ok());
            }
        }
    }

    /// A name that is spelt wrong would never be required, and its test be skipped for good.
    #[test]
    fn every_need_is_known() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let mut texts = Vec::new();
        sources(&root, &mut texts);
        let mut calls = 0;
        for text in &texts {
            let after = text.split("skipped(").skip(1).filter_map(|rest| rest.trim_start().strip_prefix('"'));
            for need in after.filter_map(|rest| rest.split('"').next()) {
                assert!(NEEDS.contains(&need), "skipped(\"{need}\", …)");
                calls += 1;
            }
            // A benchmark is no test.
            let other = text.contains("println!(\"skipped: ") && !text.contains("fn main()");
            assert!(!other, "to be said by skipped(): {text}");
        }
        assert!(calls > 20, "{calls}");
        let script = std::fs::read_to_string(root.join(".ci/prepare")).unwrap();
        let required = script.lines().find_map(|line| line.trim().strip_prefix("require=")).unwrap();
        for name in required.split(',') {
            assert!(NEEDS.contains(&name), "'{name}' of .ci/prepare");
        }
    }
}
