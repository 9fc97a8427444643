//! A single rank that needs more than the budget runs within it, paged in parts. Needs root
//! (`CAP_SYS_PTRACE`).

use std::ffi::OsStr;

use crate::common::chaos::{UNTIL_PAGED, compiled};
use crate::common::{Bdrun, Directory, Outcome, bdrun_args, cap::Cap, first_of, late::Lateness, skipped};

const MIB: u64 = 1 << 20;

/// Fills `argv[1]` MiB, then goes through all of it `argv[2]` times, changes each page, and tells what it
/// found.
const SWEEPS: &str = "
import sys, hashlib
size, rounds = int(sys.argv[1]) << 20, int(sys.argv[2])
memory = bytearray(size)
for at in range(0, size, 4096):
    memory[at:at + 8] = (at * 2654435761 % 2**61).to_bytes(8, 'little')
for turn in range(rounds):
    found = hashlib.blake2b()
    for at in range(0, size, 4096):
        found.update(memory[at:at + 32])
        memory[at + 8 + turn] = (at >> 12) % 251
    print(turn, found.hexdigest(), flush=True)
";

/// The same with a child that looks too, and with pages here and there.
const FORKS: &str = "
import os, sys, hashlib, random
size = int(sys.argv[1]) << 20
memory = bytearray(size)
for at in range(0, size, 4096):
    memory[at:at + 8] = (at * 2654435761 % 2**61).to_bytes(8, 'little')
def sum():
    found = hashlib.blake2b()
    for at in range(0, size, 4096):
        found.update(memory[at:at + 32])
    return found.hexdigest()
child = os.fork()
if child == 0:
    print('child', sum(), flush=True)
    os._exit(0)
draw = random.Random(5)
for turn in range(2000):
    at = draw.randrange(size // 4096) * 4096
    memory[at + 16] = turn % 256
os.waitpid(child, 0)
print('parent', sum(), flush=True)
";

fn python(budget: &str, program: &str, arguments: &[&str]) -> Bdrun {
    let head = ["-np", "1", "--memory", budget, "--", "python3", "-c", program];
    bdrun_args(head.iter().chain(arguments))
}

/// What it prints with all the memory it wants.
fn plainly(program: &str, arguments: &[&str]) -> String {
    let output = std::process::Command::new("python3").args(["-c", program]).args(arguments).output();
    let output = output.expect("python3");
    assert!(output.status.success(), "{output:?}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Whether it was permitted; said, if not.
fn ran_in_parts(outcome: &Outcome) -> bool {
    let refused =
        outcome.stderr.contains("cannot be paged in parts") || outcome.stderr.contains("cannot be paged");
    if refused {
        skipped("parts", "parts of a rank may not be paged here (CAP_SYS_PTRACE)");
    }
    !refused
}

#[test]
fn a_rank_of_four_times_the_budget_runs_within_it() {
    // On a busy machine it may be nearly through before it is looked at.
    first_of(["2", "10", "50"], |sweeps| {
        let late = Lateness::new();
        let outcome = python("128M", SWEEPS, &["512", sweeps]).succeed();
        let late = late.bytes();
        if !ran_in_parts(&outcome) {
            return Ok(());
        }
        assert_eq!(outcome.stdout, plainly(SWEEPS, &["512", sweeps]));
        let stats = outcome.stats();
        let measured = stats.measured.as_ref().expect("measured from outside");
        let unseen = (measured.longest_gap_s * (2_u64 << 30) as f64) as u64;
        let (peak, most) = (measured.measured_peak_bytes, 140 * MIB + late.max(unseen));
        assert!(peak <= most, "{} of at most {}", peak / MIB, most / MIB);
        if stats.evicted_bytes <= 512 * MIB || stats.restored_bytes <= 512 * MIB {
            return Err(format!("{stats:?}"));
        }
        assert!(outcome.stderr.contains("it runs within it, paged in parts"), "{}", outcome.stderr);
        assert!(outcome.stderr.contains("ran in parts for"), "{}", outcome.stderr);
        let rank = stats.ranks[0].measured.as_ref().expect("measured");
        assert!(rank.parts_faults > 100 && rank.parts_s > 0.0, "{rank:?}");
        Ok(())
    });
}

/// What leaves together may lie in both.
#[test]
fn its_scratch_may_be_spread_over_directories() {
    let second = Directory::new("scratch-2");
    let mut args = vec!["--scratch".as_ref(), second.path().as_os_str()];
    args.extend(["-np", "1", "--memory", "64M", "--", "python3", "-c", SWEEPS, "192", "2"].map(OsStr::new));
    let outcome = bdrun_args(args).succeed();
    if ran_in_parts(&outcome) {
        assert_eq!(outcome.stdout, plainly(SWEEPS, &["192", "2"]));
    }
}

#[test]
fn its_children_see_all_of_it() {
    let outcome = python("128M", FORKS, &["256"]).succeed();
    if ran_in_parts(&outcome) {
        assert_eq!(outcome.stdout, plainly(FORKS, &["256"]));
    }
}

/// Where the kernel would kill it: what it needs more must go by what has left.
#[test]
fn under_a_cap_of_the_kernel_nobody_is_killed() {
    let cap = match Cap::new(224 * MIB) {
        Ok(cap) => cap,
        Err(why) => return skipped("cgroup", why),
    };
    let fills = "    memory[at:at + 8]";
    let waits = format!("    if at == 176 << 20: until_paged(176)\n{fills}");
    let program = UNTIL_PAGED.to_owned() + &SWEEPS.replacen(fills, &waits, 1);
    assert!(program.contains(&waits));
    let outcome = python("160M", &program, &["512", "2"]).under(&cap).succeed();
    if ran_in_parts(&outcome) {
        assert_eq!(outcome.stdout, plainly(SWEEPS, &["512", "2"]));
        assert_eq!(cap.oom_kills(), 0);
    }
}

/// It is left alone from then on, with what it holds, and what is out it gets back; calls that were made for
/// it would be its end.
#[test]
fn a_program_that_filters_its_calls_once_it_is_in_parts_lives() {
    let dir = Directory::new("late-filter");
    let Some(program) = compiled(&dir, "outside/late_filter.c", &[]) else { return };
    let program = program.display().to_string();
    let options = ["-np", "1", "--memory", "60M", "--preload", "never", "--", &program, "traced"];
    let outcome = bdrun_args(options).succeed();
    assert_eq!(outcome.stdout, "wrong 0\n", "{}", outcome.stderr);
    assert!(outcome.stderr.contains("filters"), "{}", outcome.stderr);
}
