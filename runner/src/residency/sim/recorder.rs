//! What ranks with scripts did, written down as it happens: what a recorded job tells of itself.

use super::{Then, World};
use crate::residency::Rank;

/// Something a rank did.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Did {
    /// It was ordered to begin, and will after so many seconds.
    Start(f64),
    /// It waits, holding so much, in RAM or out, and at most so much before.
    Wait {
        /// For what; nothing: for memory.
        then: Then,
        /// Bytes.
        held: u64,
        /// Bytes.
        most: u64,
    },
    /// What it waits for is there, by this rank.
    Woken(Rank),
    /// It has waited as long as it was to.
    Rested,
    /// It computes, if it did not.
    Run,
    /// It has done all, holding so much, and at most so much before.
    Done {
        /// Bytes.
        held: u64,
        /// Bytes.
        most: u64,
    },
    /// It is gone.
    Gone,
}

/// What ranks did: when, who, what.
pub type Recorder = Vec<(f64, Rank, Did)>;

impl World<'_> {
    fn record(&mut self, rank: Rank, did: Did) {
        let now = self.now();
        if let Some(recorder) = &mut self.recorder {
            recorder.push((now, rank, did));
        }
    }

    pub(super) fn record_start(&mut self, rank: Rank) {
        self.record(rank, Did::Start(self.programs[rank as usize].starting));
    }

    pub(super) fn record_end(&mut self, rank: Rank) {
        self.record(rank, Did::Gone);
    }

    pub(super) fn record_wait(&mut self, rank: Rank, then: Then) {
        let [held, most] = self.held_and_most(rank);
        self.record(rank, Did::Wait { then, held, most });
    }

    /// What it holds, wherever, and the most since it last waited.
    fn held_and_most(&mut self, rank: Rank) -> [u64; 2] {
        let process = &mut self.processes[rank as usize];
        let held = process.asked + process.away;
        [held, std::mem::replace(&mut process.most, held).max(held)]
    }

    pub(super) fn record_lack(&mut self, rank: Rank) {
        self.record_wait(rank, Then::Nothing);
    }

    pub(super) fn record_wake(&mut self, rank: Rank, by: Rank) {
        self.record(rank, Did::Woken(by));
    }

    pub(super) fn record_rest(&mut self, rank: Rank) {
        self.record(rank, Did::Rested);
    }

    pub(super) fn record_run(&mut self, rank: Rank) {
        self.record(rank, Did::Run);
    }

    pub(super) fn record_done(&mut self, rank: Rank) {
        let [held, most] = self.held_and_most(rank);
        self.record(rank, Did::Done { held, most });
    }
}
