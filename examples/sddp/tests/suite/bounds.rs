//! That the bounds are those of the problem: against its deterministic equivalent, by us and by SciPy.

use std::process::Command;

use bdrun_skipped::skipped;

use super::{bundled, command, has_highs, output, sddp, succeed, text};

/// The number behind a word in a line of output.
fn number(said: &str, word: &str) -> f64 {
    let line =
        said.lines().find_map(|line| line.strip_prefix(word)).unwrap_or_else(|| panic!("{word}: {said}"));
    line.split_whitespace().next().and_then(|number| number.parse().ok()).unwrap_or_else(|| panic!("{line}"))
}

/// Lower bound and all else of the last iteration.
fn last(policy: &std::path::Path) -> serde_json::Value {
    let text = std::fs::read_to_string(policy).expect("a policy");
    let document: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    document["history"].as_array().and_then(|history| history.last().cloned()).expect("an iteration")
}

fn close(a: f64, b: f64, relative: f64) -> bool {
    (a - b).abs() <= relative * b.abs()
}

/// A small system that nobody has looked at, in a file.
fn generated(
    folder: &tempfile::TempDir,
    [reservoirs, stages, openings, seed]: [usize; 4],
) -> std::path::PathBuf {
    let numbers = [reservoirs, stages, openings, seed].map(|number| number.to_string());
    let [r, t, o, s] = &numbers;
    let arguments =
        ["generate", "--reservoirs", r, "--thermals", "2", "--stages", t, "--openings", o, "--seed", s];
    let path = folder.path().join(format!("{r}-{t}-{o}-{s}.toml"));
    std::fs::write(&path, succeed(&sddp(&arguments))).expect("write");
    path
}

#[test]
fn the_lower_bound_becomes_the_deterministic_equivalent() {
    if !has_highs() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let mut cases = vec![bundled("tiny.toml")];
    cases.extend([[3, 3, 4, 1], [1, 5, 3, 2], [5, 3, 5, 3]].map(|size| generated(&folder, size)));
    for case in &cases {
        let exact = number(&succeed(&sddp(&["bound-exact", text(case)])), "least cost ");
        let policy = folder.path().join("policy.json");
        let arguments =
            ["train", text(case), "--iterations", "25", "--forward", "8", "--policy", text(&policy)];
        succeed(&sddp(&arguments));
        let lower = last(&policy)["lower"].as_f64().expect("a number");
        assert!(close(lower, exact, 1e-6), "{}: {lower}, not {exact}", case.display());
    }
}

#[test]
fn scipy_finds_the_same_with_a_program_of_its_own() {
    if !has_highs() {
        return;
    }
    let python = std::env::var("BDRUN_SDDP_PYTHON").unwrap_or_else(|_| "python3".into());
    let has = Command::new(&python).args(["-c", "import numpy, scipy, tomllib"]).output();
    if !has.is_ok_and(|output| output.status.success()) {
        return skipped(
            "scipy",
            format!("{python} has no scipy, or no tomllib (BDRUN_SDDP_PYTHON says which)"),
        );
    }
    let folder = tempfile::tempdir().expect("a folder");
    for case in [bundled("tiny.toml"), generated(&folder, [3, 4, 3, 5])] {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/equivalent.py");
        let said = succeed(&output(command(&python).arg(script).arg(&case).spawn().expect("start")));
        let theirs: f64 = said.trim().parse().expect("a number");
        let ours = number(&succeed(&sddp(&["bound-exact", text(&case)])), "least cost ");
        // Ours is printed with six digits behind the point.
        assert!((ours - theirs).abs() <= 1e-6 * theirs.abs(), "{}: {ours}, not {theirs}", case.display());
    }
}

#[test]
fn what_a_good_policy_costs_is_near_its_bound() {
    if !has_highs() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let (case, policy) = (bundled("tiny.toml"), folder.path().join("policy.json"));
    let plot = folder.path().join("bounds.svg");
    succeed(&sddp(&[
        "train",
        text(&case),
        "--iterations",
        "30",
        "--forward",
        "8",
        "--policy",
        text(&policy),
        "--plot",
        text(&plot),
    ]));
    let picture = std::fs::read_to_string(&plot).expect("a picture");
    assert!(picture.starts_with("<svg") && picture.contains("polyline"), "{picture}");
    let lower = last(&policy)["lower"].as_f64().expect("a number");
    let simulate = |more: &[&str]| {
        let arguments = ["simulate", text(&case), "--policy", text(&policy), "--scenarios", "1000"];
        let said = succeed(&sddp(&[&arguments, more].concat()));
        let half: f64 =
            said.split('±').nth(1).and_then(|rest| rest.split_whitespace().next()?.parse().ok()).expect("±");
        (number(&said, "cost "), half)
    };
    // The policy is the best one: the mean is that of its cost. Four standard errors are never seen.
    let (mean, half) = simulate(&[]);
    assert!(half > 0.0 && (mean - lower).abs() < 4.0 / 1.96 * half, "{mean} ± {half}, bound {lower}");
    assert_eq!(simulate(&["--threads", "2"]), (mean, half));
    assert_ne!(simulate(&["--seed", "2"]).0, mean);
    // Other inflows than those of its tree it does not serve better than that in the mean.
    let (fresh, half) = simulate(&["--fresh"]);
    assert!(fresh + 4.0 / 1.96 * half > 0.5 * lower, "{fresh} ± {half}");
    assert_ne!(fresh, mean);
}

#[test]
fn training_stops_early_when_told_so() {
    if !has_highs() {
        return;
    }
    let case = bundled("tiny.toml");
    let said = succeed(&sddp(&["train", text(&case), "--forward", "8", "--stall", "1e-9", "--window", "4"]));
    assert!(said.contains("the lower bound has stalled"), "{said}");
    let said = succeed(&sddp(&["train", text(&case), "--forward", "200", "--gap", "0.1"]));
    assert!(said.contains("the gap is as small"), "{said}");
}

#[test]
fn a_tree_that_is_too_large_is_refused() {
    let said = super::complaint(&sddp(&["bound-exact", text(&bundled("cascade.toml"))]));
    assert!(said.contains("24 stages with 20 openings") && said.contains("the limit is 200000"), "{said}");
}
