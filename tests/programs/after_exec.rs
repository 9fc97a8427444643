//! A rank that is paged in parts and becomes another program: that one is paged too, whoever executed it and
//! however it is linked.

use crate::common::chaos::{compiled, source};
use crate::common::{Bdrun, Directory, LIMIT, Outcome, bdrun_args, poll, skipped};

const KIB: u64 = 1 << 10;
/// The budget, what is held before, and what is held after; MiB.
const BUDGET: u64 = 40;
const BEFORE: u64 = 56;
const AFTER: u64 = 96;
/// What a program that is not paged holds at least: all. How far one gets before it is paged the first time
/// depends on the machine.
const LEAST: u64 = AFTER - 8;

/// A job of one rank that holds more than the budget, and then is, or starts, what holds still more.
fn job(path: &std::path::Path, way: &str) -> Bdrun {
    let words =
        format!("-np 1 --memory {BUDGET}M --preload never -- {} {BEFORE} {way} {AFTER}", path.display());
    bdrun_args(words.split(' '))
}

/// Whether a rank may be paged in parts here; said, if not.
fn ran_in_parts(said: &str) -> bool {
    let refused = said.contains("cannot be paged");
    if refused {
        skipped("parts", "parts of a rank may not be paged here (CAP_SYS_PTRACE)");
    }
    !refused
}

/// KiB that the last program held at most, as the kernel told it.
fn held_at_most(outcome: &Outcome) -> u64 {
    let most = outcome.stdout.trim().strip_prefix("held at most ").and_then(|rest| rest.strip_suffix(" KiB"));
    most.and_then(|kib| kib.parse().ok()).unwrap_or_else(|| panic!("{outcome:?}"))
}

/// The kernel says that the last program never held much more than the budget, and bdrun that it knew of all
/// of it.
fn stays_within(path: &std::path::Path, ways: &[&str]) {
    for way in ways {
        let outcome = job(path, way).succeed();
        if !ran_in_parts(&outcome.stderr) {
            return;
        }
        let most = held_at_most(&outcome);
        assert!(most < LEAST * KIB, "{way}: {most} KiB of {BUDGET} MiB; {outcome:?}");
        let stats = outcome.stats();
        assert!(stats.demand_bytes > AFTER << 20, "{way}: {stats:?}");
    }
}

/// The test's program, linked dynamically or with these flags.
fn program(flags: &[&str]) -> Option<(Directory, std::path::PathBuf)> {
    assert!(source("outside/exec.c").is_file());
    let dir = Directory::new("exec");
    let path = compiled(&dir, "outside/exec.c", flags)?;
    Some((dir, path))
}

#[test]
fn a_rank_in_parts_that_becomes_another_program_is_paged_in_parts() {
    if let Some((_dir, path)) = program(&[]) {
        stays_within(&path, &["leader", "thread"]);
    }
}

#[test]
fn a_child_of_a_rank_in_parts_that_becomes_another_program_is_paged_in_parts() {
    if let Some((_dir, path)) = program(&[]) {
        stays_within(&path, &["child", "spawn"]);
    }
}

#[test]
fn nor_does_it_matter_how_the_program_is_linked() {
    if let Some((_dir, path)) = program(&["-static"]) {
        stays_within(&path, &["leader"]);
    }
}

/// Where somebody else serves its page faults that cannot be, and is said while it runs; unless it was paged
/// before it began to.
#[test]
fn what_it_becomes_and_cannot_be_paged_is_said() {
    let Some((dir, path)) = program(&[]) else { return };
    let path = path.display().to_string();
    let file = dir.path().join("said");
    let words = ["it runs within it, paged in parts", "uses userfaultfd", "it may hold more than the budget"];
    let (before, after) = (BEFORE.to_string(), AFTER.to_string());
    let budget = format!("{BUDGET}M");
    let options = ["-np", "1", "--memory", &budget, "--preload", "never", "--"];
    let program = [path.as_str(), &before, "leader", &after, "watched"];
    let job =
        bdrun_args(options.into_iter().chain(program)).with(|command| command.env("SAID", &file)).start();
    let said = || {
        let (said, ended) = (job.situation(), job.has_ended());
        (ended || words.iter().all(|words| said.contains(words))).then_some(())
    };
    assert!(poll(LIMIT, said).is_some(), "{}", job.situation());
    std::fs::write(&file, "").expect("a file");
    let outcome = job.wait();
    if !ran_in_parts(&outcome.stderr.replace("cannot be paged in parts any more", "")) {
        return;
    }
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    let most = held_at_most(&outcome);
    if most < LEAST * KIB {
        return;
    }
    for said in words {
        assert!(outcome.stderr.contains(said), "'{said}' is not said: {outcome:?}");
    }
}
