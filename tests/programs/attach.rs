//! Looking at a job that runs: `bdrun top`, `bdrun explain`.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

use crate::common::{Job, LIMIT, bdrun_args, limited, poll};
use crate::parts::with_input;

/// Asked again where the master has waited for its question in vain: this process may have had no processor.
fn bdrun(args: &[&str]) -> Output {
    let ask = || limited(Command::new(env!("CARGO_BIN_EXE_bdrun")).args(args), LIMIT);
    let heard = |output: &Output| !String::from_utf8_lossy(&output.stderr).contains("does not answer");
    (0..5).map(|_| ask()).find(heard).unwrap_or_else(ask)
}

fn text(output: &Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    text(&output.stdout) + &text(&output.stderr)
}

#[test]
fn what_ranks_do_and_why_they_wait_is_told_while_they_do() {
    // So much is set aside for each that not all fit, though they hold next to nothing.
    let args =
        ["-np", "5", "--memory", "200M", "--rank-memory", "300M", "--processors", "4", "--", "sleep", "1000"];
    let mut job = bdrun_args(args).start();
    let pid = job.pid().to_string();
    job.wait_for_ranks(1);
    let top = || -> Value {
        let output = bdrun(&["top", "--json", "--job", &pid]);
        assert!(output.status.success(), "{}", text(&output));
        serde_json::from_slice(&output.stdout).expect("an answer")
    };
    let running = || {
        let answer = top();
        let ranks = answer["ranks"].as_array().unwrap().clone();
        let all_run = !ranks.is_empty() && ranks.iter().all(|rank| rank["activity"] == "running");
        all_run.then_some(answer)
    };
    let answer = poll(LIMIT, running).expect("some that run");
    assert_eq!((&answer["limits"]["np"], &answer["limits"]["budget"]), (&5.into(), &(200 << 20).into()));
    assert!(answer["line"].as_str().unwrap().ends_with("sleep 1000"), "{answer}");
    let live = answer["ranks"].as_array().unwrap().len();
    assert!(live < 5, "{answer}");

    let shown = text(&bdrun(&["top", "--once", "--job", &pid]));
    assert!(shown.contains("5 ranks: ") && shown.contains("running"), "{shown}");
    let explained = |rank: &str| text(&bdrun(&["explain", rank, "--job", &pid]));
    assert!(explained("0").contains("rank 0 runs: computing"), "{}", explained("0"));
    let last = explained("4");
    assert!(last.contains("rank 4 has not begun\n"), "{last}");
    assert!(last.contains("it is expected to need ") && last.contains(" are free for it"), "{last}");
    assert!(last.contains("it would run now with --memory "), "{last}");
    // All that do not run, those too that wait for their turn.
    let all = text(&bdrun(&["explain", "--job", &pid]));
    assert!(all.contains("rank 4 has not begun; it is expected to need "), "{all}");
    assert!(!all.contains("rank 0 "), "that one runs: {all}");
    assert!(explained("7").contains("there is no rank 7: the job has 5"), "{}", explained("7"));

    job.signal(libc::SIGTERM);
    drop(job.wait());
    let gone = bdrun(&["top", "--job", &pid]);
    assert_eq!(gone.status.code(), Some(120), "{}", text(&gone));
    assert!(text(&gone).contains("no job of bdrun runs as process"), "{}", text(&gone));
}

/// Of one that tells, what it waits for.
#[test]
fn what_a_rank_of_our_runtime_waits_for_is_explained() {
    let deadlock = crate::common::program("deadlock").display().to_string();
    let mut job = bdrun_args(["-np", "3", "--", &deadlock, "asleep"]).start();
    job.wait_for_ranks(3);
    let pid = job.pid().to_string();
    let explained = || {
        let said = text(&bdrun(&["explain", "1", "--job", &pid]));
        said.contains("waiting for a message from").then_some(said)
    };
    let said = poll(LIMIT, explained);
    job.signal(libc::SIGTERM);
    drop(job.wait());
    let said = said.expect("what it waits for");
    assert!(said.contains("it goes on by itself when that is there"), "{said}");
}

/// What a job says of a rank, once it says this.
fn explained(job: &Job, rank: &str, word: &str) -> String {
    let pid = job.pid().to_string();
    let said = || Some(text(&bdrun(&["explain", rank, "--job", &pid]))).filter(|said| said.contains(word));
    poll(LIMIT, said).unwrap_or_else(|| panic!("'{word}' is not said: {}", job.situation()))
}

/// What would let it begin is what the user has given: -j and --processors are never given together.
#[test]
fn who_waits_behind_jobs_is_told_so() {
    let mut job = bdrun_args(["-np", "3", "-j", "1", "--", "sleep", "1000"]).start();
    job.wait_for_ranks(1);
    let said = explained(&job, "1", "as many as may");
    assert!(said.contains("(-j 1)") && said.contains("with a larger -j (now 1)"), "{said}");
    assert!(!said.contains("processors"), "{said}");
    job.signal(libc::SIGTERM);
    drop(job.wait());
}

/// One that waits for its time (`--delay`) is neither being started nor in RAM.
#[test]
fn who_waits_for_its_time_is_not_being_started() {
    let args = ["-np", "3", "--processors", "3", "--delay", "1h", "--", "sleep", "1000"];
    let mut job = bdrun_args(args).start();
    job.wait_for_ranks(1);
    let said = explained(&job, "2", "(--delay)");
    assert!(said.starts_with("rank 2 has not begun: it waits for its time (--delay), 1 before it"), "{said}");
    let top = job.top().expect("an answer");
    let now = top["now"].as_str().unwrap();
    assert!(now.contains(" 1 resident,"), "{now}");
    let all = text(&bdrun(&["explain", "--job", &job.pid().to_string()]));
    assert!(all.contains("rank 1 has not begun: it waits for its time (--delay)\n"), "{all}");
    job.signal(libc::SIGTERM);
    let outcome = job.wait();
    assert_eq!(outcome.stats().max_resident, 1, "{outcome:?}");
}

/// Of a list that is read as it comes only some ranks are kept once they have ended, if nobody wants more.
#[test]
fn who_has_ended_long_ago_is_not_said_not_to_have_begun() {
    let parts: String = (0..700).map(|n| if n < 699 { "x\n" } else { "last\n" }).collect();
    let script = "case $1 in last) exec sleep 1000;; esac";
    let args = ["--parts", "-", "--", "sh", "-c", script, "sh", "{}"];
    // Without --stats, for which all are kept.
    let words = ["-c", "scratch=$2; shift 4; exec \"$0\" --scratch \"$scratch\" \"$@\""].map(str::to_owned);
    let job = bdrun_args(args).by(Path::new("/bin/sh"), words);
    let job = job.with(|command| command.stdin(with_input(parts.into_bytes()))).start();
    let over = || {
        let done = job.top().is_some_and(|top| top["now"].as_str().unwrap().contains(" 699 done"));
        (done || job.has_ended()).then_some(done)
    };
    assert_eq!(poll(LIMIT, over), Some(true), "{}", job.situation());
    let pid = job.pid().to_string();
    let said: Vec<String> =
        (100..120).map(|rank| text(&bdrun(&["explain", &rank.to_string(), "--job", &pid]))).collect();
    assert!(said.iter().all(|said| said.contains(" has ended")), "{said:?}");
    assert!(said.iter().any(|said| said.contains("what it did is not kept")), "{said:?}");
    job.signal(libc::SIGTERM);
    assert!(job.wait().stats.is_none());
}

/// Who asks wrongly disturbs nobody.
#[test]
fn strange_questions_are_not_answered() {
    use std::io::{Read, Write};
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::{SocketAddr, UnixStream};
    let mut job = bdrun_args(["sleep", "1000"]).start();
    job.wait_for_ranks(1);
    let pid = job.pid();
    let uid = nix::unistd::geteuid();
    let address = SocketAddr::from_abstract_name(format!("bdrun/{uid}/{pid}")).unwrap();
    let connected = poll(LIMIT, || UnixStream::connect_addr(&address).ok());
    for question in [&b"hello\n"[..], b"{\"version\":9,\"rank\":null}\n", &[b'x'; 10_000], b""] {
        let mut stream = UnixStream::connect_addr(&address).unwrap();
        // It may be closed before all of it is taken.
        let _ = stream.write_all(question);
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        assert!(answer.is_empty(), "{answer:?}");
    }
    drop(connected);
    // One that says nothing is waited for, but not for ever.
    let answered = bdrun(&["top", "--once", "--job", &pid.to_string()]);
    assert!(text(&answered).contains("1 ranks"), "{}", text(&answered));
    job.signal(libc::SIGTERM);
    drop(job.wait());
}
