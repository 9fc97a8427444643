//! MPI programs of several threads: none is taken for a deadlock while a thread of it may yet send something,
//! and one is where none will; what one thread takes in another waits for. And what is taken back that a
//! rank sends to one that has ended MPI.

use crate::beyond_mpi::compiled;
use crate::common::{Bdrun, Directory, Outcome, bdrun_args};
use crate::nodes::Launcher;

/// `threads.c`: a job with these options, of ranks that do this.
struct Threads {
    _dir: Directory,
    program: String,
}

impl Threads {
    /// None without a compiler.
    fn compiled() -> Option<Self> {
        let dir = Directory::new("threads");
        let program = compiled(&dir, "threads")?;
        let program = program.to_str().expect("a path in UTF-8").to_owned();
        Some(Self { _dir: dir, program })
    }

    fn job(&self, options: &str, what: &str) -> Bdrun {
        bdrun_args(options.split_whitespace().chain([&*self.program]).chain(what.split_whitespace()))
    }
}

fn lines(outcome: &Outcome) -> Vec<&str> {
    outcome.stdout.lines().collect()
}

/// Whether it sleeps, computes, or waits for another that sleeps.
#[test]
fn who_will_send_later_is_in_no_deadlock() {
    let Some(threads) = Threads::compiled() else { return };
    for options in ["-np 1", "-np 2", "-np 2 --preload never"] {
        for what in ["later", "chain"] {
            let outcome = threads.job(options, what).succeed();
            let expected = vec!["received 7"; if options == "-np 1" { 1 } else { 2 }];
            assert_eq!(lines(&outcome), expected, "{options} {what}: {outcome:?}");
        }
    }
    for what in ["later", "half"] {
        let Some(job) = Launcher::Mpich.on(2, threads.job("-np 2", what)) else { continue };
        assert_eq!(lines(&job.succeed()), ["received 7"; 2], "{what} on two nodes");
    }
}

/// Whatever is promised of threads.
#[test]
fn who_will_complete_a_request_later_is_in_no_deadlock() {
    let Some(threads) = Threads::compiled() else { return };
    for what in ["general", "general serialized"] {
        assert_eq!(lines(&threads.job("-np 2", what).succeed()), ["complete 1"; 2], "{what}");
    }
}

/// Though they are there, and one might call MPI.
#[test]
fn threads_that_wait_for_each_other_are_in_a_deadlock() {
    let Some(threads) = Threads::compiled() else { return };
    for (options, what) in [
        ("-np 1", "pool"),
        ("-np 2", "pool"),
        ("-np 2 --preload never", "pool"),
        ("-np 2 --memory 64M --resident 1", "pool"),
        ("-np 2", "joined"),
    ] {
        let outcome = threads.job(options, what).run();
        outcome
            .failed_with(119, &["deadlock", "in MPI_Recv, waiting for any rank, tag 0, on MPI_COMM_WORLD"]);
    }
    if let Some(job) = Launcher::Mpich.on(2, threads.job("-np 2", "pool")) {
        job.run().failed_with(119, &["deadlock", "in MPI_Recv, waiting for any rank"]);
    }
}

#[test]
fn who_waits_beside_threads_that_sleep_is_woken() {
    let Some(threads) = Threads::compiled() else { return };
    for options in ["-np 2", "-np 2 --resident 1"] {
        assert_eq!(lines(&threads.job(options, "woken").succeed()), ["received 7"], "{options}");
    }
}

#[test]
fn what_one_thread_takes_in_another_gets() {
    let Some(threads) = Threads::compiled() else { return };
    for (what, said) in [("probes", "answered"), ("looks", "answered"), ("early", "complete")] {
        assert_eq!(lines(&threads.job("-np 2", what).succeed()), [said; 2], "{what}");
    }
}

/// Whether its process ends as well, or goes on for long.
#[test]
fn what_was_sent_to_a_rank_that_has_ended_mpi_can_be_taken_back() {
    let dir = Directory::new("cancel");
    let Some(program) = compiled(&dir, "cancel") else { return };
    let (program, file) = (program.as_path(), dir.path().join("taken-back"));
    for options in [&["-np", "2"][..], &["-np", "2", "--check"]] {
        for file in [None, Some(file.as_path())] {
            let words = options.iter().map(AsRef::as_ref).chain([program.as_os_str()]);
            let outcome = bdrun_args(words.chain(file.map(AsRef::as_ref))).succeed();
            assert_eq!(lines(&outcome), ["cancelled 1"], "{outcome:?}");
            let _ = std::fs::remove_file(dir.path().join("taken-back"));
        }
    }
}
