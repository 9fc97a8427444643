//! The programs run without a launcher, as ranks of jobs of one. That they are run here also makes
//! `cargo test --workspace` build them, for the tests of the whole (`tests/programs`) find them beside
//! `bdrun`.

use std::process::{Command, Output};

fn run(program: &str, args: &[&str]) -> Output {
    let mut command = Command::new(program);
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("BDRUN_")) {
        command.env_remove(name);
    }
    command.args(args).output().expect("start the program")
}

#[test]
fn alone_they_are_rank_0_of_1() {
    for (program, args, expected) in [
        (env!("CARGO_BIN_EXE_hello"), &[][..], "1 ranks met\n"),
        (env!("CARGO_BIN_EXE_conformance"), &["100000"], "1 ranks conform\n"),
        (env!("CARGO_BIN_EXE_idle"), &["1", "0"], "asleep\n"),
        (env!("CARGO_BIN_EXE_relay"), &["1", "0"], "1 ranks ended in turn\n"),
    ] {
        let output = run(program, args);
        assert!(output.status.success(), "{program}: {output:?}");
        assert_eq!(String::from_utf8_lossy(&output.stdout), expected, "{program}");
    }
    let sweep = run(env!("CARGO_BIN_EXE_sweep"), &["1M", "2"]);
    assert!(sweep.status.success() && sweep.stdout.starts_with(b"check="), "{sweep:?}");
    assert_eq!(
        run(env!("CARGO_BIN_EXE_sweep"), &["1M", "2"]).stdout,
        sweep.stdout,
        "a job of one has one result"
    );
    let phases = run(env!("CARGO_BIN_EXE_phases"), &["1", "3", "rw", "4", "1"]);
    let last = String::from_utf8_lossy(&phases.stdout);
    // The value of `benches/tools/phases.c`, one rank.
    assert!(phases.status.success() && last.ends_with(" check=5bc13f2f1a4cab00\n"), "{phases:?}");
}

#[test]
fn a_wrong_command_line_says_how_it_is_used() {
    for program in [
        env!("CARGO_BIN_EXE_sweep"),
        env!("CARGO_BIN_EXE_phases"),
        env!("CARGO_BIN_EXE_idle"),
        env!("CARGO_BIN_EXE_relay"),
    ] {
        let output = run(program, &["x"]);
        assert_eq!(output.status.code(), Some(2), "{program}");
        assert!(output.stderr.starts_with(b"usage: "), "{output:?}");
    }
}

/// Nobody can ever send: an error, not a hang.
#[test]
fn alone_nobody_is_waited_for() {
    let output = run(env!("CARGO_BIN_EXE_deadlock"), &[]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
}
