//! How many ranks run at a time, and how soon after one another they begin; what is said of it all.

use std::time::{SystemTime, UNIX_EPOCH};

use crate::common::{Directory, bdrun_args, first_of, program};

/// Waits until three have begun.
const THREE: &str = "until [ $(grep -c + $0) -ge 3 ]; do sleep 0.05; done; sleep 0.5";

/// Ranks that say when they begin and end, and do this meanwhile: most at once.
fn most_at_once(more: &[&str], np: &str, what: &str) -> usize {
    let dir = Directory::new("pace");
    let log = dir.path().join("log").display().to_string();
    let script = "echo + >> $0; eval \"$1\"; echo - >> $0";
    let args =
        more.iter().copied().chain(["-np", np, "--memory", "1G", "--", "sh", "-c", script, &log, what]);
    bdrun_args(args).succeed();
    let text = std::fs::read_to_string(log).unwrap();
    let (mut now, mut most) = (0usize, 0);
    for line in text.lines() {
        now = if line == "+" { now + 1 } else { now - 1 };
        most = most.max(now);
    }
    assert_eq!((now, text.lines().count()), (0, 2 * np.parse::<usize>().unwrap()));
    most
}

#[test]
fn so_many_at_a_time_as_were_asked_for() {
    assert_eq!(most_at_once(&["-j", "1"], "4", "sleep 0.1"), 1);
    // They sleep: without -j others would be begun beside them.
    assert_eq!(most_at_once(&["--jobs", "3"], "12", THREE), 3);
    assert!(most_at_once(&["--processors", "2"], "12", THREE) > 2);
}

#[test]
fn ranks_that_need_each_other_all_live() {
    let hello = program("hello").display().to_string();
    let outcome = bdrun_args(["-j", "2", "-np", "4", "--", &hello]).run();
    outcome.failed_with(118, &["-j is for independent ranks"]);
    let outcome = bdrun_args(["-j", "2", "--processors", "3", "--", "true"]).run();
    outcome.failed_with(118, &["--processors"]);
}

#[test]
fn one_begins_so_long_after_the_other() {
    let args = ["-np", "4", "-j", "4", "--memory", "1G", "--delay", "300ms", "--", "true"];
    let before = SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock").as_secs_f64();
    let outcome = bdrun_args(args).succeed();
    let stats = outcome.stats();
    let mut starts: Vec<f64> = stats.ranks.iter().map(|rank| rank.process.expect("its life").start).collect();
    starts.sort_by(f64::total_cmp);
    // A start itself takes a moment, now longer, now shorter, so that one may come soon after the other.
    for (number, start) in starts.iter().enumerate() {
        assert!(start - before >= 0.3 * number as f64, "{before} {starts:?}");
    }
    assert!(stats.wall_s > 0.85, "{stats:?}");
    // All of them live, and wait for each other.
    let hello = program("hello").display().to_string();
    bdrun_args(["-np", "3", "--delay", "100ms", "--", &hello]).succeed();
}

/// Nobody else is begun, nor those whose time has not come.
#[test]
fn a_halt_is_also_for_those_that_were_to_begin_later() {
    let options = ["-np", "3", "-j", "3", "--memory", "1G", "--delay", "1h", "--halt", "soon,fail=1"];
    let script = ["--", "sh", "-c", "echo $0; exit 3", "{rank}"];
    let outcome = bdrun_args(options.into_iter().chain(script)).run();
    outcome.failed_with(3, &["no other rank is begun"]);
    assert_eq!(outcome.stdout, "0\n", "{outcome:?}");
    let unborn = outcome.stats().ranks.iter().filter(|rank| rank.status == "unborn").count();
    assert_eq!(unborn, 2, "{outcome:?}");
}

#[test]
fn a_job_that_is_not_paged_is_a_line_or_two_and_more_if_asked_for() {
    let said = |more: &[&str], seconds: &str| {
        bdrun_args(more.iter().copied().chain(["-np", "3", "--", "sleep", seconds])).succeed().stderr
    };
    let plain = said(&[], "1");
    assert!(plain.starts_with("bdrun: 3 ranks, ok after") && plain.lines().count() <= 2, "{plain}");
    // So long that each is seen: who lived from one look to the next has no peak.
    first_of(["1", "10", "60"], |seconds| {
        let verbose = said(&["-v"], seconds);
        if !verbose.contains("peaks of 3 ranks") {
            return Err(verbose);
        }
        for words in ["all ranks; peak in RAM", "memory that was expected and needed", "│"] {
            assert!(verbose.contains(words), "{words}: {verbose}");
        }
        Ok(())
    });
    assert_eq!(said(&["-q"], "1"), "");
    bdrun_args(["-q", "--output", "json", "--", "true"]).run().failed_with(118, &["--quiet"]);
}
