//! The communicator's conformance suite on processes, with and without memory for all of them.

use bdrun::stats::Stats;

use crate::common::{bdrun, first_of};

/// Memory that each rank holds besides, and checks.
const BALLAST: u64 = 1 << 20;

/// The suite with these options; the statistics.
fn conform(np: u64, options: &str) -> Stats {
    let outcome = bdrun(&format!("-np {np} {options} conformance {BALLAST}")).succeed();
    assert_eq!(outcome.stdout, format!("{np} ranks conform\n"), "{options}");
    let stats = outcome.stats().clone();
    assert!(stats.ranks.iter().all(|rank| rank.status == "ok"), "{options}: {stats:?}");
    stats
}

fn all_modes(np: u64) {
    let ample = conform(np, "--memory 8G");
    assert_eq!((ample.evicted_bytes, ample.evictions), (0, 0), "{ample:?}");

    let two = conform(np, "--memory 8G --resident 2");
    assert!(two.max_resident <= 2, "{two:?}");
    assert!(np <= 2 || two.evictions > 0, "{two:?}");

    // Of what the ranks hold themselves. What the job needs counts messages, too, that nobody has received
    // yet, and how many these are is a matter of how busy the machine is: of 24 ranks 210 to 330 MB in all,
    // and a third of that may suffice.
    let tight_budget = ample.ranks.iter().map(|rank| rank.peak_bytes).sum::<u64>() / 3;
    let tight = conform(np, &format!("--memory {tight_budget}"));
    // A single rank that needs more runs alone, which is the only way to need more.
    assert!(tight.peak_resident_bytes <= tight_budget || tight.overdraft_rank.is_some(), "{tight:?}");
    assert!(np == 1 || tight.evictions > 0, "{tight:?}");

    let one = conform(np, "--memory 8G --processors 1");
    assert_eq!(one.max_running, 1, "{one:?}");

    // What was sent does not depend on any of this.
    for other in [&two, &tight, &one] {
        assert_eq!(other.message_bytes, ample.message_bytes, "{other:?}");
    }
}

#[test]
fn np_1() {
    all_modes(1);
}

#[test]
fn np_2() {
    all_modes(2);
}

#[test]
fn np_3() {
    all_modes(3);
}

#[test]
fn np_9() {
    all_modes(9);
}

#[test]
fn np_24() {
    all_modes(24);
}

/// Paged out and in again at any moment although there is memory for all: nobody notices.
#[test]
fn under_chaos() {
    first_of([4, 12, 36], |rounds| {
        let outcome = bdrun(&format!("-np 6 --memory 8G --chaos 1 conformance {BALLAST} {rounds}")).succeed();
        assert_eq!(outcome.stdout, "6 ranks conform\n");
        let stats = outcome.stats();
        let enough = stats.chaos_evictions >= 50 && stats.evictions >= 50;
        enough.then_some(()).ok_or(format!("{stats:?}"))
    });
    first_of([6, 18, 54], |phases| {
        let calm = bdrun(&format!("-np 8 --memory 8G sweep 8M {phases}")).succeed();
        let chaotic = bdrun(&format!("-np 8 --memory 8G --chaos 2 sweep 8M {phases}")).succeed();
        assert_eq!(chaotic.stdout, calm.stdout);
        assert_eq!(calm.stats().evictions, 0);
        (chaotic.stats().evictions >= 10).then_some(()).ok_or(format!("{:?}", chaotic.stats()))
    });
}
