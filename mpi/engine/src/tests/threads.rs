//! Several threads of one process.

use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

use super::messages::{INT, WORLD, at, into};
use super::run;
use crate::calls::Messages;
use crate::messages::ANY_TAG;

const LIMIT: Duration = Duration::from_secs(600);

/// Whoever looks for messages takes in also what another thread waits for without having posted a receive:
/// that one may sleep, and is told.
#[test]
fn who_probes_is_told_of_what_another_thread_takes_in() {
    const LAST: i64 = 1;
    run(1, |mpi, _| {
        let job = super::job();
        let probe_and_receive = || {
            // SAFETY: a buffer of the size that is said.
            while unsafe {
                let (message, status) = mpi.mprobe(0, ANY_TAG, WORLD).expect("it comes");
                mpi.mrecv(into(&mut [0_i32]), 1, INT, message).expect("it is there");
                status.tag != LAST
            } {}
        };
        // SAFETY: a buffer of the size that is said.
        let send = |tag| unsafe { mpi.send(at(&[7_i32]), 1, INT, 0, tag, WORLD) }.expect("sent");
        std::thread::scope(|scope| {
            scope.spawn(probe_and_receive);
            let begun = Instant::now();
            // The other thread may get no processor for long; it is told once it sleeps.
            let found = loop {
                send(0);
                // SAFETY: nothing is given.
                let found = unsafe { mpi.iprobe(0, LAST, WORLD) }.expect("it is looked");
                assert!(!found.0, "nothing has that tag");
                if job.nudges.load(SeqCst) > 0 || begun.elapsed() > LIMIT {
                    break job.nudges.load(SeqCst) > 0;
                }
                std::thread::sleep(Duration::from_millis(1));
            };
            send(LAST);
            assert!(found, "nobody was told");
        });
    });
}

/// It may take in what another one waits for.
#[test]
fn a_thread_that_only_looks_or_sends_is_one_of_several() {
    run(1, |mpi, _| {
        // SAFETY: a buffer of the size that is said.
        let send = || unsafe { mpi.send(at(&[7_i32]), 1, INT, 0, 0, WORLD) }.expect("sent");
        send();
        assert!(mpi.threads.is_one());
        std::thread::scope(|scope| scope.spawn(send).join()).expect("it does not panic");
        assert!(!mpi.threads.is_one());
    });
    run(1, |mpi, _| {
        // SAFETY: nothing is given.
        let look = || unsafe { mpi.iprobe(0, 0, WORLD) }.map(|found| found.0);
        assert_eq!(look(), Ok(false));
        assert!(mpi.threads.is_one());
        let found = std::thread::scope(|scope| scope.spawn(look).join()).expect("it does not panic");
        assert!(found == Ok(false) && !mpi.threads.is_one());
    });
}
