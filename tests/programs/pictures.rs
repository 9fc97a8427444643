//! `--report` and `--trace`: what they say is what happened.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::common::{Directory, bdrun_args, first_of, limited, program, skipped};

/// What a page was given.
fn data(page: &Path) -> Value {
    let text = fs::read_to_string(page).expect("the page");
    let (_, rest) = text.split_once("<script type=\"application/json\" id=\"data\">").expect("its data");
    let (data, _) = rest.split_once("</script>").expect("the end of its data");
    serde_json::from_str(data).expect("JSON")
}

fn path(dir: &Directory, name: &str) -> String {
    dir.path().join(name).display().to_string()
}

/// Seconds that ranks spent so, all together.
fn spent(history: &Value, state: &str) -> f64 {
    let number = history["states"].as_array().unwrap().iter().position(|name| name == state).unwrap();
    let lanes = history["ranks"].as_array().unwrap().iter();
    let spans = |lane: &Value| -> Vec<f64> {
        lane.as_array().unwrap().iter().map(|value| value.as_f64().unwrap()).collect()
    };
    let spans: Vec<f64> = lanes.flat_map(spans).collect();
    spans.chunks(3).filter(|span| span[2] == number as f64).map(|span| span[1] - span[0]).sum()
}

#[test]
fn a_job_that_is_paged_shows_it() {
    // Its samples are of moments: of a short job there may be none that shows much.
    first_of([3, 15, 75], |rounds| {
        let dir = Directory::new("pictures");
        let (page, trace) = (path(&dir, "page.html"), path(&dir, "trace.json"));
        let phases = program("phases").display().to_string();
        let line =
            format!("-np 8 --memory 120M --report {page} --trace {trace} -- {phases} 32 {rounds} rw 64 1");
        let outcome = bdrun_args(line.split(' ')).succeed();
        let stats = outcome.stats();
        let data = data(Path::new(&page));
        let command = format!("phases 32 {rounds} rw 64 1");
        assert!(data["line"].as_str().unwrap().contains(&command), "{}", data["line"]);
        assert_eq!(data["stats"]["evicted_bytes"].as_u64(), Some(stats.evicted_bytes));
        let history = &data["history"];
        let column = |name: &str| -> Vec<u64> {
            history[name].as_array().unwrap().iter().map(|value| value.as_u64().unwrap()).collect()
        };
        let (held, written) = (column("held"), column("written"));
        assert_eq!(held.len(), history["t"].as_array().unwrap().len());
        let most = *held.iter().max().unwrap();
        assert!(most <= stats.peak_resident_bytes, "{most}: {stats:?}");
        assert!(column("budget").iter().all(|&budget| budget == stats.budget_bytes));
        assert!(written.is_sorted() && *written.last().unwrap() <= stats.scratch_written_bytes);
        assert_eq!(history["ranks"].as_array().unwrap().len(), 8);
        assert!(spent(history, "out") > 0.0 && spent(history, "running") > 0.0);
        let lived = |lane: &Value| lane[0].as_f64().unwrap() < 1.0 + stats.wall_s;
        assert!(history["ranks"].as_array().unwrap().iter().all(lived));

        let trace: Value = serde_json::from_slice(&fs::read(trace).unwrap()).unwrap();
        let events = trace["traceEvents"].as_array().unwrap();
        let outs = events.iter().filter(|event| event["ph"] == "X" && event["name"] == "out");
        let out: f64 = outs.map(|event| event["dur"].as_f64().unwrap()).sum();
        // Each time is rounded.
        assert!((out / 1e6 - spent(history, "out")).abs() < 0.1 * f64::from(rounds / 3), "{out}");
        (most > stats.budget_bytes / 2).then_some(()).ok_or(format!("{most}: {stats:?}"))
    });
}

/// Who failed, and why, is what a page is looked at for.
#[test]
fn a_job_that_fails_has_its_page_as_well() {
    let dir = Directory::new("pictures-failed");
    let page = path(&dir, "page.html");
    fs::write(dir.path().join("list"), "good\nbad</script>\n").unwrap();
    let list = path(&dir, "list");
    let script = "case $1 in bad*) exit 3;; esac";
    let args = ["--parts", &list, "--keep-going", "--report", &page, "--", "sh", "-c", script, "sh", "{}"];
    let outcome = bdrun_args(args).run();
    assert_eq!(outcome.code, Some(3));
    let data = data(Path::new(&page));
    assert_eq!(data["stats"]["ranks"][1]["part"], "bad</script>");
    assert_eq!(data["stats"]["ranks"][1]["exit_code"], 3);
    assert_ne!(data["stats"]["status"], "ok");
    // Of one that never ran a rank, too.
    let page = path(&dir, "none.html");
    let outcome = bdrun_args(["--report", &page, "--", "no-such-program"]).run();
    assert_ne!(outcome.code, Some(0));
    let data = self::data(Path::new(&page));
    assert!(
        data["history"].is_null() && data["stats"]["error"].as_str().unwrap().contains("no-such-program")
    );
}

#[test]
fn a_page_that_cannot_be_written_is_said_before_anything_runs() {
    let dir = Directory::new("pictures-nowhere");
    for option in ["--report", "--trace"] {
        let mark = path(&dir, "ran");
        let outcome = bdrun_args([option, "/no/such/directory/page", "--", "touch", &mark]).run();
        outcome.failed_with(120, &[option, "/no/such/directory/page"]);
        assert!(!Path::new(&mark).exists());
    }
}

/// What a job leaves behind does not depend on one another; what cannot be written is said, also of a job
/// that has failed for another reason.
#[test]
fn what_cannot_be_written_at_the_end_is_said_each_by_itself() {
    let dir = Directory::new("pictures-gone");
    let run = |script: &str, gone: [&str; 2]| {
        for gone in gone {
            fs::create_dir_all(dir.path().join(gone)).unwrap();
        }
        let [first, second] = gone.map(|gone| path(&dir, gone));
        let (page, trace) = (format!("{first}/page"), format!("{second}/trace"));
        let learned = format!("{first}/learned");
        let line =
            ["--report", &page, "--trace", &trace, "--learn", &learned, "--", "sh", "-c", script, "sh"];
        let job = bdrun_args(line.into_iter().chain([&*first]));
        let stats = job.directory().to_owned();
        job.with(|command| command.env("STATS", stats)).run()
    };
    let outcome = run("rm -r \"$1\" \"$STATS\"; exit 3", ["one", "one"]);
    outcome.failed_with(3, &["--report: cannot write", "--trace: cannot write", "--learn: cannot write"]);
    outcome.failed_with(3, &["--stats: cannot write", "rank 0 failed with exit code 3"]);
    // The first of them is how a job ends that had ended well; the others are written, or said.
    let outcome = run("rm -r \"$1\"", ["two", "other"]);
    outcome.failed_with(120, &["error: --learn: cannot write", "--report: cannot write"]);
    assert!(fs::metadata(dir.path().join("other/trace")).is_ok_and(|trace| trace.len() > 0), "{outcome:?}");
    assert_eq!(outcome.stats().status, "setup-failed");
}

/// In a browser, at two widths and in two colour schemes: `tests/browser/report.py`.
#[test]
fn a_browser_shows_the_page_without_fault() {
    let dir = Directory::new("pictures-browser");
    let page = path(&dir, "page.html");
    let list: String = (0..300).map(|n| format!("part {n}\n")).collect();
    fs::write(dir.path().join("list"), list).unwrap();
    let list = path(&dir, "list");
    let script = "case $1 in *7) exit 3;; esac; exit 0";
    let args = ["--parts", &list, "--keep-going", "--report", &page, "--", "sh", "-c", script, "sh", "{}"];
    assert_eq!(bdrun_args(args).run().code, Some(3));
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/browser/report.py");
    let python = std::env::var_os("BDRUN_BROWSER_PYTHON").unwrap_or_else(|| "python3".into());
    let looked = limited(std::process::Command::new(python).arg(script).arg(&page), crate::common::LIMIT);
    let said =
        String::from_utf8_lossy(&looked.stdout).into_owned() + &String::from_utf8_lossy(&looked.stderr);
    match looked.status.code() {
        Some(0) => {}
        Some(77) => skipped("browser", said.trim()),
        code => panic!("{code:?}: {said}"),
    }
}
