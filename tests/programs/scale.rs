//! Many ranks: what they cost when they have nothing to do.

use std::time::{Duration, Instant};

use crate::common::cap::Cap;
use crate::common::{LIMIT, bdrun, poll, skipped};

const RANKS: u64 = 1000;

#[test]
fn a_thousand_ranks_meet_and_end() {
    let begin = Instant::now();
    let outcome = bdrun(&format!("-np {RANKS} hello")).succeed();
    assert_eq!(outcome.stdout, "1000 ranks met\n");
    let took = begin.elapsed();
    println!(
        "{RANKS} ranks: {:.2} s, {:.2} ms per rank",
        took.as_secs_f64(),
        took.as_secs_f64() * 1e3 / RANKS as f64
    );
    assert_eq!(outcome.stats().ranks.len(), RANKS as usize);
}

#[test]
fn an_idle_rank_costs_at_most_half_a_mebibyte() {
    let cap = match Cap::new(8 << 30) {
        Ok(cap) => cap,
        Err(why) => return skipped("cgroup", why),
    };
    let job = bdrun(&format!("-np {RANKS} hello 1000")).under(&cap).start();
    job.wait_for_output("1000 ranks met");
    // They go from the first barrier to the second; then nothing changes any more.
    let mut last = u64::MAX;
    let usage = poll(LIMIT, || {
        std::thread::sleep(Duration::from_millis(500));
        let now = cap.usage_without_files();
        let settled = now.abs_diff(last) < 1 << 20;
        last = now;
        settled.then_some(now)
    });
    let usage = usage.expect("memory comes to rest");
    assert_eq!(job.ranks().len(), RANKS as usize, "measured while all are there");
    job.signal(libc::SIGTERM);
    let outcome = job.wait();
    assert_eq!(outcome.code, Some(143), "{outcome:?}");
    let each = usage as f64 / RANKS as f64 / (1 << 20) as f64;
    println!(
        "{RANKS} idle ranks: {:.1} MiB, {each:.3} MiB per rank, the master included",
        usage as f64 / (1 << 20) as f64
    );
    assert!(each <= 0.5, "{each:.3} MiB per idle rank");
}

/// Far more ranks than memory: every one is brought in, and out again, in turn.
#[test]
fn many_ranks_take_turns() {
    let outcome = bdrun("-np 200 --memory 32M --resident 8 sweep 1M 2").succeed();
    let stats = outcome.stats();
    assert!(stats.max_resident <= 8 && stats.peak_resident_bytes <= stats.budget_bytes, "{stats:?}");
    assert_eq!(outcome.stdout, bdrun("-np 200 --memory 8G sweep 1M 2").succeed().stdout);
}
