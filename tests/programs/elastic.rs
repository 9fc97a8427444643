//! `--memory auto`: the budget follows a limit that others change while the job runs.

use std::fs;

use serde_json::Value;

use crate::common::cap::Cap;
use crate::common::{Directory, LIMIT, bdrun_args, poll, program, skipped};

const MIB: u64 = 1 << 20;

/// What the page of a job says its budget was, MiB, over time.
fn budgets(page: &str) -> Vec<u64> {
    let text = fs::read_to_string(page).expect("the page");
    let (_, rest) = text.split_once("id=\"data\">").expect("its data");
    let (data, _) = rest.split_once("</script>").expect("the end of its data");
    let data: Value = serde_json::from_str(data).expect("JSON");
    let budget = data["history"]["budget"].as_array().expect("a column").iter();
    budget.map(|value| value.as_u64().expect("bytes") / MIB).collect()
}

/// Halved from outside in the middle, and given back: nobody is killed, the result is right, and the page
/// shows it.
#[test]
fn a_limit_that_is_halved_and_given_back_is_followed() {
    let cap = match Cap::new(1024 * MIB) {
        Ok(cap) => cap,
        Err(why) => return skipped("cgroup", why),
    };
    let dir = Directory::new("elastic");
    let path = |name: &str| dir.path().join(name).display().to_string();
    let phases = program("phases").display().to_string();
    let alone =
        bdrun_args(["-np", "8", "--memory", "2G", "--", &phases, "64", "50", "rw", "64", "1"]).succeed();
    let line = format!(
        "-np 8 --memory auto --budget-fraction 0.4 --report {} -- {phases} 64 50 rw 64 1",
        path("page")
    );
    let job = bdrun_args(line.split(' ')).under(&cap).start();
    let budget = || -> Option<u64> {
        let pid = job.pid().to_string();
        let output = std::process::Command::new(env!("CARGO_BIN_EXE_bdrun"))
            .args(["top", "--json", "--job", &pid])
            .output()
            .expect("bdrun top");
        let answer: Value = serde_json::from_slice(&output.stdout).ok()?;
        Some(answer["limits"]["budget"].as_u64()? / MIB)
    };
    // Other tests may press on the machine's memory for a moment, which makes it less.
    poll(LIMIT, || budget().filter(|now| (330..=410).contains(now))).expect("the budget");
    // Once ranks hold what they may.
    poll(LIMIT, || (cap.anonymous_and_shared() > 300 * MIB).then_some(())).expect("memory in use");
    cap.set(512 * MIB);
    poll(LIMIT, || budget().filter(|&now| now < 240)).expect("less than before");
    poll(LIMIT, || (cap.anonymous_and_shared() < 280 * MIB).then_some(())).expect("memory given back");
    cap.set(1024 * MIB);
    poll(LIMIT, || budget().filter(|&now| now > 300)).expect("more again");
    let outcome = job.wait();
    assert_eq!((outcome.code, cap.oom_kills()), (Some(0), 0), "{outcome:?}");
    let result = |text: &str| {
        let line = text.lines().find(|line| line.contains("check=")).expect("a checksum");
        line.split("check=").nth(1).map(str::to_owned)
    };
    assert_eq!(result(&outcome.stdout), result(&alone.stdout));
    assert!(
        outcome.stderr.contains("the budget is ") && outcome.stderr.contains("--memory auto"),
        "{outcome:?}"
    );
    let budgets = budgets(&path("page"));
    let (least, last) = (*budgets.iter().min().unwrap(), *budgets.last().unwrap());
    assert!(budgets[0] > 330 && least < 240 && last > 300, "{budgets:?}");
}

#[test]
fn auto_and_a_limit_that_the_kernel_enforces_are_refused() {
    let outcome = bdrun_args(["--memory", "auto", "--enforce", "--", "true"]).run();
    outcome.failed_with(118, &["--memory auto", "--enforce"]);
    let stats = bdrun_args(["--memory", "auto", "--", "true"]).succeed().stats().clone();
    assert!(stats.budget_bytes > 64 * MIB, "{stats:?}");
}
