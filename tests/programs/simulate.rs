//! `bdrun simulate`: a real job is recorded and simulated. How near that comes is measured by
//! `benches/simulate`.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

use crate::common::{Directory, bdrun_args, first_of, program};
use crate::parts::with_input;

fn simulate(args: &[&str]) -> Output {
    Command::new(program("bdrun")).arg("simulate").args(args).output().expect("bdrun simulate")
}

fn answer(args: &[&str]) -> Value {
    let output = simulate(&[args, &["--json"]].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("JSON")
}

fn rows(answer: &Value) -> &Vec<Value> {
    answer["rows"].as_array().expect("rows")
}

/// All ranks end within the budget, and where everything fits nothing moves.
fn is_sane(answer: &Value, np: u64) {
    assert_eq!(answer["ranks"].as_u64(), Some(np));
    for row in rows(answer) {
        assert_eq!(row["ends"], true, "{row}");
        assert!(row["wall_s"].as_f64().unwrap() > 0.0 && row["busy"].as_f64().unwrap() > 0.0, "{row}");
        assert!(row["max_resident"].as_u64().unwrap() <= np, "{row}");
        if row["what"] == "all in RAM" {
            assert_eq!(
                (&row["fits"], &row["written_bytes"], &row["read_bytes"]),
                (&true.into(), &0.into(), &0.into())
            );
        }
    }
    let budget = |what: &str| {
        rows(answer).iter().find(|row| row["what"] == what).map(|row| row["budget_bytes"].as_u64().unwrap())
    };
    let (was, smallest) =
        (budget("as it was").unwrap(), budget("the smallest").expect("one in which it ends"));
    assert_eq!(budget("× 2"), Some(2 * was));
    assert!(smallest <= budget("all in RAM").unwrap());
}

fn record(dir: &Directory, name: &str, line: &str) -> String {
    let trace = dir.path().join(name).display().to_string();
    let args = format!("--trace {trace} {line}");
    bdrun_args(args.split(' ')).succeed();
    trace
}

#[test]
fn a_recorded_job_is_simulated_with_other_memory() {
    let dir = Directory::new("simulate");
    let phases = program("phases").display().to_string();
    let trace = record(&dir, "trace", &format!("-np 8 --memory 120M -- {phases} 32 3 rw 64 1"));
    let told = answer(&[&trace, "--policy", "ours,fifo,lru"]);
    is_sane(&told, 8);
    let recorded = &told["recorded"];
    assert!(recorded["line"].as_str().unwrap().contains("phases 32 3 rw 64 1"));
    let was = &rows(&told)[0];
    assert!(recorded["written_bytes"].as_u64().unwrap() > 0 && was["written_bytes"].as_u64().unwrap() > 0);
    let policies: Vec<&str> = rows(&told).iter().map(|row| row["policy"].as_str().unwrap()).collect();
    assert!(["ours", "fifo", "lru"].iter().all(|policy| policies.contains(policy)), "{policies:?}");

    let told = answer(&[&trace, "--memory", "120M,1G", "--processors", "1", "--disk", "100M,100M"]);
    let budgets: Vec<u64> = rows(&told).iter().map(|row| row["budget_bytes"].as_u64().unwrap()).collect();
    assert_eq!(budgets, [120 << 20, 1 << 30]);
    assert!(rows(&told).iter().all(|row| row["processors"] == 1 && row["busy"].as_f64().unwrap() <= 1.0001));
    assert!(rows(&told)[0]["wall_s"].as_f64() > rows(&told)[1]["wall_s"].as_f64());

    // As people read it.
    let output = simulate(&[&trace]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    for word in ["recorded", "as it was", "all in RAM", "the smallest", "memory moves out at"] {
        assert!(text.contains(word), "{word}: {text}");
    }
    // What it is read from is still a trace.
    let trace: Value = serde_json::from_slice(&fs::read(trace).unwrap()).unwrap();
    assert!(trace["traceEvents"].as_array().unwrap().len() > 8);
}

#[test]
fn programs_that_do_not_tell_are_simulated() {
    let dir = Directory::new("simulate-parts");
    let partition = program("partition").display().to_string();
    let trace = record(&dir, "trace", &format!("-np 6 --memory 1G -- {partition} steady 24M 7"));
    let told = answer(&[&trace]);
    is_sane(&told, 6);
    assert_eq!(told["recorded"]["status"], "ok");
}

#[test]
fn a_job_that_is_made_up() {
    let options =
        ["--synthetic", "64", "--size", "100M", "--spread", "1.3", "--outliers", "2", "--seconds", "1"];
    for shape in ["independent", "bulk", "ring", "pipeline"] {
        let told = answer(&[&options[..], &["--shape", shape]].concat());
        assert!(told["recorded"].is_null());
        for row in rows(&told) {
            assert_eq!(row["ends"], true, "{shape}: {row}");
            if row["what"] == "all in RAM" {
                assert_eq!(row["written_bytes"], 0, "{shape}: {row}");
            }
        }
    }
}

#[test]
fn what_is_no_record_is_refused_with_a_sentence() {
    let dir = Directory::new("no-record");
    let refused = |text: &[u8], says: &str| {
        let path = dir.path().join("file");
        fs::write(&path, text).unwrap();
        let output = simulate(&[&path.display().to_string()]);
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && told.contains(says), "{told}");
        assert!(output.stdout.is_empty());
    };
    refused(b"", "ends in the middle");
    refused(b"{\"traceEvents\":[{\"ph\":\"X\"", "ends in the middle");
    refused(b"{\"traceEvents\":[]}", "is a trace, but not of a job that ran under this version");
    refused(b"{\"version\":1,\"wall_s\":1.0,\"ranks\":[]}", "is what --stats writes");
    refused(b"[1]", "is no record of bdrun");
    refused(b"\x7fELF", "is no record of bdrun");
    let missing = Path::new("/no/such/record").display().to_string();
    let output = simulate(&[&missing]);
    assert!(String::from_utf8_lossy(&output.stderr).contains("/no/such/record cannot be read"));
    // The record of another job, cut off where a disk was full.
    let phases = program("phases").display().to_string();
    let whole = record(&dir, "whole", &format!("-np 2 --memory 64M -- {phases} 4 1 rw 4 1"));
    let whole = fs::read(whole).unwrap();
    refused(&whole[..whole.len() - 40], "ends in the middle");
}

/// What each part held over time is recorded, also of parts that are not known at the beginning.
#[test]
fn parts_that_come_are_recorded_like_others() {
    let dir = Directory::new("simulate-come");
    let trace = dir.path().join("trace").display().to_string();
    let partition = program("partition").display().to_string();
    // A part that nobody looked at while it ran shows nothing.
    first_of(["1", "20", "400"], |times| {
        let args =
            ["--trace", &trace, "--memory", "1G", "--parts", "-", "--", &partition, "steady", "24M", "{}"];
        let input = with_input(b"1\n2\n3\n".to_vec());
        bdrun_args(args.into_iter().chain([times])).with(|command| command.stdin(input)).succeed();
        let told: Value = serde_json::from_slice(&fs::read(&trace).unwrap()).unwrap();
        let ranks = told["bdrun_record"]["ranks"].as_array().unwrap();
        assert_eq!(ranks.len(), 3);
        let seen = |rank: &Value| rank["sizes"].as_array().is_some_and(|sizes| !sizes.is_empty());
        ranks.iter().all(seen).then_some(()).ok_or(format!("{ranks:?}"))
    });
    is_sane(&answer(&[&trace]), 3);
}

/// `-j` is what is tried by `--processors`, not a limit that stays.
#[test]
fn a_job_with_jobs_is_simulated_with_more_processors() {
    let dir = Directory::new("simulate-jobs");
    let partition = program("partition").display().to_string();
    let trace = record(&dir, "trace", &format!("-np 4 -j 1 --memory 1G -- {partition} steady 24M 7"));
    let wall = |processors: &str| {
        let told = answer(&[&trace, "--memory", "1G", "--processors", processors]);
        rows(&told)[0]["wall_s"].as_f64().unwrap()
    };
    let [one, four] = ["1", "4"].map(wall);
    assert!(four < one, "{four} of {one}");
}
