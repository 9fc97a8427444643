//! What `bdrun.h` has beyond MPI, in programs that `bdcc` has compiled.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::chaos::{compiles, source};
use crate::common::libraries::libraries;
use crate::common::{Directory, Outcome, bdrun_args, first_of};

/// Compiles a program; `None`, said, where there is no compiler.
pub fn compiled(dir: &Directory, name: &str) -> Option<PathBuf> {
    if !compiles(Command::new("gcc").arg("--version")) {
        return None;
    }
    // As installed: of all that was built, these.
    let library = dir.path().join("lib");
    std::fs::create_dir_all(&library).expect("make a folder");
    let _ = std::os::unix::fs::symlink(libraries().join("libmpi_abi.so"), library.join("libmpi_abi.so.1"));
    let to = dir.path().join(name);
    let mut command = Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("mpi/tools/bdcc"));
    command.env("BDRUN_CC", "gcc").env("BDRUN_MPI", library);
    command.args(["-O1", "-Wall", "-Wextra", "-Werror"]);
    command.arg(source(&format!("mpi/{name}.c"))).arg("-o").arg(&to);
    compiles(&mut command).then_some(to)
}

fn run(options: &[&str], most: &str, program: &Path, arguments: &[&str]) -> Outcome {
    let program = program.to_str().expect("a path in UTF-8");
    let most = format!("BDRUN_CRITICAL={most}");
    let own = ["--env", &most];
    let all = own.iter().chain(options).chain([&program]).chain(arguments);
    bdrun_args(all).run()
}

#[test]
fn no_more_than_may_are_in_the_critical_section() {
    let dir = Directory::new("critical");
    let Some(program) = compiled(&dir, "critical") else { return };
    for (most, times, long) in
        [("1", &["20"][..], "500"), ("3", &["10", "100", "1000"], "20000"), ("1", &["300"], "0")]
    {
        // On a busy machine fewer than may be in may have come at a time.
        first_of(times.iter(), |times| {
            let outcome = run(&["-np", "5"], most, &program, &[times, long]);
            let were = |most: &str| outcome.stdout == format!("most {most} seats 1\n");
            let fewer = most == "3" && ["1", "2"].into_iter().any(were);
            assert!(outcome.code == Some(0) && (fewer || were(most)), "{outcome:?}");
            (!fewer).then_some(()).ok_or(format!("{outcome:?}"))
        });
    }
    let outcome = run(&["-np", "2"], "none", &program, &["1", "0"]);
    assert!(outcome.code != Some(0) && outcome.stderr.contains("BDRUN_CRITICAL is none"), "{outcome:?}");
}

#[test]
fn who_waits_for_the_critical_section_for_ever_is_told() {
    let dir = Directory::new("inside");
    let Some(program) = compiled(&dir, "inside") else { return };
    let outcome = run(&["-np", "2"], "1", &program, &[]);
    assert_eq!(outcome.code, Some(119), "{outcome:?}");
    assert!(outcome.stderr.contains("rank 1 is waiting for the critical section"), "{outcome:?}");
}

#[test]
fn memory_on_storage_is_moved_and_keeps_its_content() {
    let dir = Directory::new("memory");
    let Some(program) = compiled(&dir, "memory") else { return };
    let alone = Command::new(&program).arg("8").env_remove("LD_LIBRARY_PATH").output().expect("it starts");
    assert_eq!((alone.status.code(), &*alone.stdout), (Some(0), &b"wrong 0\n"[..]), "{alone:?}");
    // Plain memory, moved from outside.
    let plain = run(&["-np", "4", "--memory", "100M", "--preload", "never"], "1", &program, &["48"]);
    assert_eq!((plain.code, &*plain.stdout), (Some(0), &*"wrong 0\n".repeat(4)), "{plain:?}");
    let outcome = run(&["-np", "4", "--memory", "100M"], "1", &program, &["48"]);
    assert_eq!((outcome.code, &*outcome.stdout), (Some(0), &*"wrong 0\n".repeat(4)), "{outcome:?}");
    let stats = outcome.stats();
    assert!(stats.evicted_bytes > 200 << 20, "they do not fit together: {stats:?}");
    assert!(stats.peak_resident_bytes <= 100 << 20, "{stats:?}");
}
