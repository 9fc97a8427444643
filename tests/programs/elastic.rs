//! `--memory auto`: the budget follows a limit that others change while the job runs.

use std::fs;

use serde_json::Value;

use crate::common::cap::Cap;
use crate::common::{Directory, LIMIT, bdrun_args, first_of, poll, program, skipped};

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
    let phases = program("phases").display().to_string();
    // It goes on until all of that has been seen.
    first_of(["50", "200", "800"], |rounds| {
        cap.set(1024 * MIB);
        let dir = Directory::new("elastic");
        let path = |name: &str| dir.path().join(name).display().to_string();
        let words = [&*phases, "64", rounds, "rw", "64", "1"];
        let alone = bdrun_args(["-np", "8", "--memory", "2G", "--"].iter().chain(&words)).succeed();
        let page = path("page");
        let line = ["-np", "8", "--memory", "auto", "--budget-fraction", "0.4", "--report", &page, "--"];
        let job = bdrun_args(line.iter().chain(&words)).under(&cap).start();
        let seen = |what: &str, is_so: &dyn Fn() -> bool| {
            let look = || (is_so() || job.has_ended()).then(is_so);
            let seen = poll(LIMIT, look).unwrap_or_else(|| panic!("{what}: {}", job.situation()));
            if seen { Ok(()) } else { Err(format!("it had ended before {what}")) }
        };
        let budget = || job.top().and_then(|top| Some(top["limits"]["budget"].as_u64()? / MIB)).unwrap_or(0);
        // Other tests may press on the machine's memory for a moment, which makes it less.
        seen("the budget", &|| (330..=410).contains(&budget()))?;
        // Once ranks hold what they may.
        seen("memory in use", &|| cap.anonymous_and_shared() > 300 * MIB)?;
        cap.set(512 * MIB);
        seen("less than before", &|| (1..240).contains(&budget()))?;
        seen("memory given back", &|| cap.anonymous_and_shared() < 280 * MIB)?;
        cap.set(1024 * MIB);
        seen("more again", &|| budget() > 300)?;
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
        // As long as other tests do not press on it, later, too.
        let budgets = budgets(&page);
        let (before, after) = budgets.split_at(budgets.iter().take_while(|&&budget| budget >= 240).count());
        let most = |budgets: &[u64]| budgets.iter().copied().max().unwrap_or(0);
        assert!(most(before) > 330 && !after.is_empty() && most(after) > 300, "{budgets:?}");
        assert!(outcome.stats().most_budget() / MIB >= most(&budgets), "{outcome:?}");
        Ok(())
    });
}

#[test]
fn auto_and_a_limit_that_the_kernel_enforces_are_refused() {
    let outcome = bdrun_args(["--memory", "auto", "--enforce", "--", "true"]).run();
    outcome.failed_with(118, &["--memory auto", "--enforce"]);
    let stats = bdrun_args(["--memory", "auto", "--", "true"]).succeed().stats().clone();
    assert!(stats.budget_bytes > 64 * MIB, "{stats:?}");
}
