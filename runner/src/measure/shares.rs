//! Which pages the processes of a rank share: the part of the truth that is dear.
//!
//! The kernel's cheap counters count a page once for each process that maps it, so a rank that has forked seems to
//! hold everything twice. `smaps_rollup` divides each page among those who map it, but looks at every page for that
//! (a few milliseconds per GiB), holding a lock of the process meanwhile. So this is done by a thread of its own, for
//! one rank at a time, and that thread works a twentieth of the time at most.

use std::io;
use std::thread::JoinHandle;
use std::time::Instant;

use crossbeam_channel::{Receiver, Sender, bounded};

use super::proc;

/// To which rank, in which state of its list of processes, the answer belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ticket {
    pub(super) rank: u32,
    /// The meter it was asked for, so that a retried rank is not taken for the first.
    pub(super) watch: u64,
    pub(super) generation: u64,
}

/// Of one process, bytes: its anonymous memory in RAM, how much of that is its own by the kernel's division, and how
/// much of that nobody else has; and its share of the shared memory that it maps. Each at most as much as the one before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) pid: i32,
    pub(super) anonymous: u64,
    pub(super) share: u64,
    pub(super) alone: u64,
    pub(super) shared_share: u64,
}

/// The thread.
#[derive(Debug)]
pub(super) struct Divider {
    questions: Option<Sender<(Ticket, Vec<i32>)>>,
    answers: Receiver<(Ticket, Vec<Found>)>,
    thread: Option<JoinHandle<()>>,
}

impl Divider {
    pub(super) fn start() -> io::Result<Self> {
        // Nothing is queued: by the time it is read it would be old.
        let (questions, asked) = bounded::<(Ticket, Vec<i32>)>(0);
        let (sender, answers) = bounded(16);
        let thread = std::thread::Builder::new().name("bdrun-shares".into()).stack_size(256 << 10).spawn(
            move || {
                let _ = nix::sys::signal::SigSet::all().thread_block();
                for (ticket, pids) in asked {
                    let begin = Instant::now();
                    let found = pids.into_iter().filter_map(divide).collect();
                    let cost = begin.elapsed();
                    // Whoever does not listen is about to end.
                    let _ = sender.try_send((ticket, found));
                    std::thread::sleep(cost * 19);
                }
            },
        )?;
        Ok(Self { questions: Some(questions), answers, thread: Some(thread) })
    }

    /// Asks, unless the thread is at work or at rest.
    pub(super) fn ask(&self, ticket: Ticket, pids: Vec<i32>) -> bool {
        self.questions.as_ref().is_some_and(|questions| questions.try_send((ticket, pids)).is_ok())
    }

    /// What has been found out since.
    pub(super) fn answers(&self) -> impl Iterator<Item = (Ticket, Vec<Found>)> {
        self.answers.try_iter()
    }
}

impl Drop for Divider {
    fn drop(&mut self) {
        self.questions = None;
        // It may rest for seconds after a large process: it is not waited for, and ends by itself.
        self.thread = None;
    }
}

fn divide(pid: i32) -> Option<Found> {
    let proc::Shares { anonymous, anonymous_share, alone, shared_share } = proc::shares(pid)?;
    Some(Found { pid, anonymous, share: anonymous_share, alone, shared_share })
}
