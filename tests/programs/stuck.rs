//! Jobs that cannot go on, or were never set up: said at once and by name, never a hang.

use std::process::Command;

use crate::common::{LIMIT, Outcome, bdrun, limited, program};

fn is_deadlock<'a>(outcome: &'a Outcome, waiting: &str, words: &[&str]) -> &'a Outcome {
    outcome.failed_with(119, &["deadlock", waiting, "nobody can wake another"]).failed_with(119, words);
    assert_eq!(outcome.stats().status, "deadlock");
    outcome
}

#[test]
fn everybody_receives_from_everybody() {
    let waits = "is waiting for a message from rank 1, tag 7";
    for options in ["", "--processors 1", "--resident 1", "--resident 2"] {
        let outcome = bdrun(&format!("-np 3 {options} deadlock")).run();
        is_deadlock(&outcome, "3 ranks wait", &[waits]);
    }
    // Out of core: whoever has left RAM is seen to wait all the same.
    let outcome = bdrun("-np 4 --memory 20M deadlock all 16").run();
    is_deadlock(&outcome, "4 ranks wait", &[waits, "evicted"]);
}

/// Exit code 0 does not hide that the others can never go on.
#[test]
fn a_rank_that_leaves_early() {
    for options in ["-np 3", "-np 3 --resident 1", "-np 3 --memory 20M"] {
        let outcome = bdrun(&format!("{options} deadlock early 16")).run();
        is_deadlock(&outcome, "2 ranks wait", &["waiting in collective 1, to which rank 0 has not come"]);
        assert_eq!(outcome.stats().ranks[0].status, "ok");
    }
}

/// Of many ranks the one for which all others wait is said first, and by its number.
#[test]
fn the_one_for_which_all_wait_is_named() {
    let culprit = "rank 32 is waiting for a message from rank 33, tag 7";
    let victims = "ranks 0-31, 33-63 are waiting in collective 1, to which rank 32 has not come";
    for options in ["", "--resident 8", "--memory 16M"] {
        let outcome = bdrun(&format!("-np 64 {options} deadlock one 1")).run();
        is_deadlock(&outcome, "64 ranks wait", &[culprit, victims]);
        let place = |words: &str| outcome.stderr.find(words);
        assert!(place(culprit) < place(victims), "{outcome:?}");
    }
}

/// What nobody has received is said at the end of a job that went well, wherever it was by then.
#[test]
fn messages_that_nobody_has_received_are_said() {
    for options in ["-np 4", "-np 4 --resident 1", "-np 4 --memory 9M"] {
        let outcome = bdrun(&format!("{options} deadlock unread 2")).succeed();
        let said = "5 messages were never received: 4 with tag 7 (16.0 KiB) from ranks 0-3 to ranks 0-3; \
                    1 with tag 9 (1 B) from rank 0 to rank 1";
        assert!(outcome.stderr.contains(said), "{outcome:?}");
    }
    let outcome = bdrun("-np 4 hello").succeed();
    assert!(!outcome.stderr.contains("never received"), "{outcome:?}");
}

/// Alone there is nobody to receive from but oneself.
#[test]
fn one_rank_that_waits_for_itself() {
    let outcome = bdrun("-np 1 deadlock").run();
    is_deadlock(&outcome, "1 ranks wait", &["rank 0 is waiting for a message from rank 0"]);
}

/// Long silence is no deadlock: whoever sleeps or computes will wake the others.
#[test]
fn a_slow_rank_is_no_deadlock() {
    for options in ["-np 4", "-np 4 --resident 1", "-np 4 --memory 20M"] {
        bdrun(&format!("{options} idle 8 2")).succeed();
    }
    // Programs that never join a communicator wait for nobody.
    bdrun("-np 3 sleep 2").succeed();
}

/// `hello` as `bdrun` would start it, with this environment.
fn start_badly(environment: &[(&str, &str)], script: &str) -> (Option<i32>, String) {
    let mut command = Command::new("sh");
    command.args(["-c", script, "sh"]).arg(program("hello"));
    let output = limited(command.envs(environment.iter().copied()), LIMIT);
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn an_environment_that_is_not_ours() {
    let with = |fds| [("BDRUN_RANK", "0"), ("BDRUN_SIZE", "1"), ("BDRUN_FDS", fds)];
    let null = "exec 6</dev/null; exec \"$1\"";
    let file = "exec 6<\"$1\"; exec \"$1\"";
    for (environment, script, word) in [
        (&with("garbage")[..], "exec \"$1\"", "not the number of a socket"),
        // That of bdrun up to protocol 4.
        (&with("6,7,8,9"), "exec \"$1\"", "bdrun is of another version"),
        (&with("6"), "exec \"$1\"", "descriptor 6 is not open"),
        (&with("0"), "exec \"$1\"", "descriptor 0 is not open"),
        (&with("6"), null, "control socket"),
        (&with("6"), file, "control socket"),
        (&[("BDRUN_FDS", "6")], "exec \"$1\"", "BDRUN_RANK is missing"),
    ] {
        let (code, text) = start_badly(environment, script);
        assert_eq!(code, Some(1), "{environment:?} {script}: {text}");
        assert!(text.starts_with("hello: bdrun") && text.contains(word), "{environment:?} {script}: {text}");
    }
}

/// Two processes of one rank would take each other's messages.
#[test]
fn a_second_process_of_a_rank_is_refused() {
    let script = "\"$1\" && \"$1\"";
    let hello = program("hello");
    let args = ["-np", "1", "sh", "-c", script, "sh", hello.to_str().expect("a path")];
    let outcome = crate::common::bdrun_args(args).run();
    outcome.failed_with(1, &["another process of rank 0 has attached already"]);
    // The script is the rank where it is preloaded; what it executes is the next image of it.
    let started = |script| {
        let args = ["-np", "1", "--preload", "always", "sh", "-c", script, "sh"];
        crate::common::bdrun_args(args.into_iter().chain(hello.to_str())).run()
    };
    started("\"$1\"; exit $?")
        .failed_with(1, &["rank 0 has attached already", "has to `exec` its last program"]);
    assert_eq!(started("true; exec \"$1\"").code, Some(0));
}

#[test]
fn a_scratch_directory_that_cannot_be_used() {
    for directory in ["/no/such/directory", "/dev/null", "/proc"] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_bdrun"));
        let output = limited(command.args(["--scratch", directory]).arg(program("hello")), LIMIT);
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(120), "{directory}: {text}");
        assert!(text.contains(directory) && text.contains("scratch"), "{text}");
    }
}
