//! The program alone, without bdrun. That it is run here also makes `cargo test --workspace` build it, for
//! the tests of the whole (`tests/programs`) find it beside `bdrun`.

use std::process::{Command, Output};

fn partition(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_partition")).args(args).output().expect("start the program")
}

fn lines(args: &[&str]) -> Vec<String> {
    let output = partition(args);
    assert!(output.status.success() && output.stderr.is_empty(), "{args:?}: {output:?}");
    String::from_utf8(output.stdout).expect("text").lines().map(str::to_owned).collect()
}

#[test]
fn every_key_is_held() {
    // Runs of 2^17 keys of eight bytes: as many as fit.
    assert!(lines(&["late", "3M", "1"])[0].starts_with("late 1: 393216 keys, "));
    // A table that is seven eighths full after its last doubling, when it holds two thirds of the bytes.
    let steady = &lines(&["steady", "3M", "1"])[0];
    let keys: f64 = steady.split(' ').nth(2).and_then(|count| count.parse().ok()).expect("a count");
    let expected = f64::from(3 << 20) / 16.0 * 2.0 / 3.0 * 7.0 / 8.0;
    assert!((keys / expected - 1.0).abs() < 0.01, "{steady}: {expected}");
}

#[test]
fn the_seed_makes_the_result() {
    for mode in ["steady", "late"] {
        let twice = lines(&[mode, "1M", "7", "2"]);
        assert_eq!(twice, [lines(&[mode, "1M", "7"]), lines(&[mode, "1M", "8"])].concat());
        let digest = |line: &str| line.rsplit(' ').next().map(str::to_owned);
        assert_ne!(digest(&twice[0]), digest(&twice[1]));
    }
}

#[test]
fn a_wrong_command_line_says_how_it_is_used() {
    for args in [&["x"][..], &["late", "1M"], &["late", "1T", "1"], &["late", "1M", "1", "1", "1"]] {
        let output = partition(args);
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert!(!output.stderr.is_empty(), "{args:?}");
    }
}
