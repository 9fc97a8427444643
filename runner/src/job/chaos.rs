//! `--chaos MS`: every so often a rank that waits is paged out although nobody needs its memory. A test of programs, and of
//! ourselves.

use std::time::{Duration, Instant};

use bdrun_ipc::state::State;

use super::Job;
use crate::scheduler::Event;

/// When the next eviction is due, and whom it hits.
pub(super) struct Chaos {
    every: Option<Duration>,
    /// None without `--chaos`.
    pub next: Option<Instant>,
    /// Where the search for a victim begins; stepped by a number prime to most counts of ranks, so that all get their turn.
    at: u32,
    /// Evictions ordered so far.
    pub evictions: u64,
}

impl Chaos {
    pub fn new(every: Option<Duration>, begin: Instant) -> Self {
        Self { every, next: every.map(|every| begin + every), at: 0, evictions: 0 }
    }
}

impl Job<'_> {
    /// If it is time, ask for the eviction of a rank that waits in RAM.
    pub(super) fn chaos(&mut self) {
        let now = Instant::now();
        let (Some(every), Some(next)) = (self.chaos.every, self.chaos.next) else { return };
        if now < next || self.ending.is_some() {
            return;
        }
        self.chaos.next = Some(now + every);
        let segment = self.setup.segment.clone();
        let np = segment.np();
        self.chaos.at = (self.chaos.at + 7919) % np;
        let waits = |rank: &u32| segment.rank(*rank).word.load().state() == State::Blocked;
        if let Some(rank) = (0..np).map(|i| (self.chaos.at + i) % np).find(waits) {
            // The scheduler has to know that it waits.
            self.forget(rank);
            self.observe(rank);
            self.events.push(Event::Chaos { rank });
        }
    }
}
