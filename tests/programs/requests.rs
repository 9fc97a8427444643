//! Requests of MPI programs, between the processes of a job.

use crate::beyond_mpi::compiled;
use crate::common::{Directory, bdrun_args};

/// MPI allows any number of nonblocking collectives, and any order in which they are waited for.
#[test]
fn any_number_of_collectives_is_under_way() {
    let dir = Directory::new("requests");
    let Some(program) = compiled(&dir, "requests") else { return };
    let program = program.to_str().expect("a path in UTF-8");
    for options in ["-np 2 --memory 8G", "-np 5 --memory 8G", "-np 5 --memory 8G --processors 1"] {
        let outcome = bdrun_args(options.split_whitespace().chain([program])).run();
        assert_eq!((outcome.code, &*outcome.stdout), (Some(0), "wrong 0\n"), "{options}: {outcome:?}");
    }
}

/// A synchronous send that nobody receives is cancelled; there are more persistent collectives than places.
#[test]
fn what_is_cancelled_and_what_is_started_again() {
    let dir = Directory::new("requests");
    let Some(program) = compiled(&dir, "requests") else { return };
    let program = program.to_str().expect("a path in UTF-8");
    for options in ["-np 2 --memory 8G", "-np 5 --memory 8G", "-np 5 --memory 8G --processors 1"] {
        let outcome = bdrun_args(options.split_whitespace().chain([program, "more"])).run();
        assert_eq!((outcome.code, &*outcome.stdout), (Some(0), ""), "{options}: {outcome:?}");
    }
}

/// Each is told to whom it belongs; and what was printed before `MPI_Abort` is there.
#[test]
fn failures_are_told_to_whom_they_belong() {
    let dir = Directory::new("requests");
    let Some(program) = compiled(&dir, "requests") else { return };
    let outcome = bdrun_args(["-np", "1", program.to_str().expect("a path in UTF-8"), "fail"]).run();
    let said = "test 1 1 1, told 1 1 0\nnothing, told 2 1 1\n";
    assert_eq!((outcome.code, &*outcome.stdout), (Some(3), said), "{outcome:?}");
}
