//! `--chaos MS`: every so often a rank is paged out although nobody needs its memory. A test of programs, and
//! of ourselves.
//!
//! One that waits is taken at once. If nobody does, one that runs is asked to wait at its next scheduling
//! point (see `RankBlock::yield_wanted`), and taken when it has got there.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

use bdrun_ipc::state::State;

use super::Job;
use crate::residency::{Event, Wait};

/// When the next eviction is due, and whom it hits.
pub(super) struct Chaos {
    every: Option<Duration>,
    /// None without `--chaos`.
    pub next: Option<Instant>,
    /// Where the search for a victim begins; stepped by a number prime to most counts of ranks, so that all
    /// get their turn.
    at: u32,
    /// Evictions ordered so far.
    pub evictions: u64,
    /// Ranks that were asked to wait and have not yet.
    asked: BTreeSet<u32>,
}

impl Chaos {
    pub fn new(every: Option<Duration>, begin: Instant) -> Self {
        Self { every, next: every.map(|every| begin + every), at: 0, evictions: 0, asked: BTreeSet::new() }
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
        let np = self.np();
        self.chaos.at = (self.chaos.at + 7919) % np;
        if self.chaos_stranger(self.chaos.at) || segment.is_wide() {
            return;
        }
        let ranks = || (0..np).map(|i| (self.chaos.at + i) % np);
        let is = |rank: u32, state: State| segment.rank(rank).word.load().state() == state;
        if let Some(rank) = ranks().find(|&rank| is(rank, State::Blocked)) {
            // The core has to know that it waits.
            self.forget(rank);
            self.observe(rank);
            self.events.push(Event::Chaos { rank });
            return;
        }
        let attached = |rank: u32| segment.rank(rank).attached.load(SeqCst) != 0;
        let can_be_asked =
            |&rank: &u32| is(rank, State::Running) && attached(rank) && !self.chaos.asked.contains(&rank);
        if let Some(rank) = ranks().find(can_be_asked) {
            self.chaos.asked.insert(rank);
            segment.rank(rank).yield_wanted.store(1, SeqCst);
        }
    }

    /// A rank waits for memory: if it was asked to, it leaves before it gets any.
    pub(super) fn chaos_instead_of_memory(&mut self, rank: u32) {
        if self.chaos.asked.remove(&rank) && self.chaos.every.is_some() {
            self.events.push(Event::Blocked { rank, wait: Wait::Other });
            self.events.push(Event::Chaos { rank });
        }
    }
}
