//! A rank of a program that was written for another library, which is a front to us: it makes messages and
//! collectives of its own out of what the segment has. Here is what it must not do by itself: attach, wait,
//! wake others, and tell what went wrong.

use std::time::Duration;

use bdrun_ipc::mail::Mail;
use bdrun_ipc::segment::{Segment, Waiting, monotonic_ns};

use crate::runtime::{Program, Runtime};
use crate::{Error, Result};

/// How often a thread looks that may not wait as the rank does.
const LOOK: Duration = Duration::from_micros(200);

/// This process as a rank of a job.
#[derive(Clone, Copy)]
pub struct Rank(&'static Runtime);

impl std::fmt::Debug for Rank {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "rank {} of {}", self.number(), self.size())
    }
}

impl Rank {
    /// Joins the job, if `bdrun` started this process. The calling thread is the one whose waits are the
    /// rank's.
    ///
    /// # Errors
    /// [`Error::Runtime`]: as of [`init`](crate::init).
    pub fn attach() -> Result<Option<Self>> {
        Ok(Runtime::attach(Program::Front)?.map(Self))
    }

    /// Its number, from 0.
    #[must_use]
    pub fn number(self) -> u32 {
        self.0.rank
    }

    /// How many there are.
    #[must_use]
    pub fn size(self) -> u32 {
        self.0.segment.np()
    }

    /// The job's shared memory.
    #[must_use]
    pub fn segment(self) -> &'static Segment {
        &self.0.segment
    }

    /// The job's mail.
    #[must_use]
    pub fn mail(self) -> &'static Mail {
        &self.0.mail
    }

    /// Waits until `satisfied`, which reads shared memory only, at most so long; may return early. Meanwhile
    /// other ranks compute, and this one's memory may be out. Another thread than the one that attached only
    /// looks again and again.
    pub fn wait(self, at_most: Option<Duration>, waiting: Waiting, satisfied: impl Fn() -> bool) {
        let until = at_most.map(|time| monotonic_ns() + time.as_nanos() as u64);
        if let Some(_turn) = self.0.turn() {
            self.0.wait_until(until, waiting, satisfied);
            return;
        }
        while !satisfied() && until.is_none_or(|until| monotonic_ns() < until) {
            std::thread::sleep(LOOK);
        }
    }

    /// Wakes a rank, if it waits.
    pub fn wake(self, rank: u32) {
        self.0.wake(rank);
    }

    /// What left the rank's own memory was right: before `data` leaves this process.
    pub fn vouch_for(self, data: &[&[u8]]) {
        self.0.vouch_for(data);
    }

    /// Finds memory for headers of messages (see [`bdrun_ipc::inbox::push`]).
    pub fn pay_for_headers(self, bytes: u64) {
        if bytes > 0 {
            self.0.pay_for_headers(bytes);
        }
    }

    /// Memory of the budget was given back.
    pub fn gave_memory(self) {
        self.0.gave_memory();
    }

    /// Turns an error of the layer below into one that can be told, and tells the master where that has to
    /// know.
    #[must_use]
    pub fn failed(self, error: bdrun_ipc::Error) -> Error {
        self.0.failed(error)
    }
}
