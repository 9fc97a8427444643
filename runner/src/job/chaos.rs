//! `--chaos MS`: every so often a rank is paged out although nobody needs its memory. A test of programs, and
//! of ourselves.
//!
//! One that waits is taken at once. If nobody does, one that runs is asked to wait at its next scheduling
//! point (see `RankBlock::yield_wanted`), and taken when it has got there. Who runs must have had a processor
//! since it came back ([`Chaos::has_gone_on`]), and for some part of the time that its way took: on a busy
//! machine a rank would otherwise be sent out again before it had done anything, each time, and a program of
//! 0.3 s did not end in ten minutes: it was on its way for seconds, and then there for 0.1 s.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

use bdrun_ipc::state::State;

use super::Job;
use super::record::Record;
use crate::measure::processor_time;
use crate::residency::{Event, Wait};

/// Of the time from one eviction to the next, a rank must have used this part of a processor in between…
const USED: u32 = 4;
/// …and such a part of the time that it was on its way out and back;
const OF_WAY: u32 = 20;
/// or, where it does not use any because it sleeps, have been there for so many of them…
const SLEPT: u32 = 8;
/// …and for such a part of its way: it may also be that it gets no processor.
const SLEPT_OF_WAY: u32 = 2;
/// So many ranks are looked at each time: most have gone on.
const LOOKED_AT: usize = 16;

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
    /// Ranks that were sent out, and when.
    sent: BTreeMap<u32, Instant>,
    back: BTreeMap<u32, Back>,
}

/// A rank that is there.
#[derive(Clone, Copy)]
struct Back {
    /// What it had used when it was first seen to be back, and when that was.
    used: Duration,
    since: Instant,
    /// How long it had been on its way.
    way: Duration,
}

impl Chaos {
    pub fn new(every: Option<Duration>, begin: Instant) -> Self {
        let next = every.map(|every| begin + every);
        Self {
            every,
            next,
            at: 0,
            evictions: 0,
            asked: BTreeSet::new(),
            sent: BTreeMap::new(),
            back: BTreeMap::new(),
        }
    }

    /// Of a rank that runs, with the processor time of its process: whether it has done something since it
    /// was paged out last. Then it may be paged out again, and is.
    pub fn has_gone_on(&mut self, rank: u32, used: Option<Duration>, now: Instant) -> bool {
        let (Some(every), Some(used)) = (self.every, used) else { return false };
        let sent = &mut self.sent;
        let back = *self.back.entry(rank).or_insert_with(|| {
            let way = sent.remove(&rank).map_or(Duration::ZERO, |sent| now - sent);
            Back { used, since: now, way }
        });
        let uses = used >= back.used + (every / USED).max(back.way / OF_WAY);
        let gone_on = uses || now >= back.since + (every * SLEPT).max(back.way / SLEPT_OF_WAY);
        if gone_on {
            self.back.remove(&rank);
            self.sent.insert(rank, now);
        }
        gone_on
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
        if self.chaos_stranger(now) || segment.is_wide() {
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
            |rank: &u32| is(*rank, State::Running) && attached(*rank) && !self.chaos.asked.contains(rank);
        let running: Vec<u32> = ranks().filter(can_be_asked).take(LOOKED_AT).collect();
        if let Some(rank) = running.into_iter().find(|&rank| self.has_gone_on(rank, now)) {
            self.chaos.asked.insert(rank);
            segment.rank(rank).yield_wanted.store(1, SeqCst);
        }
    }

    /// For those that nobody has written for bdrun: pages out the next that runs. Whether there are such
    /// ranks at all.
    fn chaos_stranger(&mut self, now: Instant) -> bool {
        let watch = &self.watch;
        let can_go = |(rank, record): &(u32, &Record)| {
            record.group.is_some()
                && record.holder.is_none()
                && !watch.accounts.is_adopted(*rank)
                && !record.fixed
        };
        let can_go: Vec<u32> = self.ranks.iter().filter(can_go).map(|(rank, _)| rank).collect();
        let next = can_go.partition_point(|&rank| rank < self.chaos.at);
        let in_turn = can_go[next..].iter().chain(&can_go[..next]).take(LOOKED_AT);
        if let Some(rank) = in_turn.copied().find(|&rank| self.has_gone_on(rank, now)) {
            self.events.push(Event::Chaos { rank });
        }
        !can_go.is_empty()
    }

    fn has_gone_on(&mut self, rank: u32, now: Instant) -> bool {
        let record = &self.ranks[rank as usize];
        // Of one that works in other processes than its first, what they were last seen to have used.
        let used = record.pid.and_then(processor_time).map(|used| used.max(record.last.cpu));
        self.chaos.has_gone_on(rank, used, now)
    }

    /// A rank waits for memory: if it was asked to, it leaves before it gets any.
    pub(super) fn chaos_instead_of_memory(&mut self, rank: u32) {
        if self.chaos.asked.remove(&rank) && self.chaos.every.is_some() {
            self.events.push(Event::Blocked { rank, wait: Wait::Other });
            self.events.push(Event::Chaos { rank });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_came_back_and_did_nothing_is_left_alone() {
        let begin = Instant::now();
        let ms = Duration::from_millis;
        let mut chaos = Chaos::new(Some(ms(20)), begin);
        let mut ask = |rank, used, at| chaos.has_gone_on(rank, Some(ms(used)), begin + ms(at));
        assert!(!ask(0, 100, 0), "first seen");
        assert!(!ask(0, 104, 20), "it waits for a processor");
        assert!(!ask(1, 7, 20), "each has its own");
        assert!(ask(0, 105, 40));
        assert!(!ask(0, 150, 60), "it was asked, and is back");
        assert!(ask(1, 7, 180), "it sleeps");
        assert!(ask(0, 155, 200));
        assert!(!ask(0, 155, 4200), "it was on its way for four seconds");
        assert!(!ask(0, 354, 4400) && ask(0, 355, 4420), "a twentieth of that it has used");
        assert!(!ask(1, 7, 4420) && !ask(1, 7, 6520) && ask(1, 7, 6540), "or slept for half of it");
        assert!(!chaos.has_gone_on(2, None, begin + ms(9000)), "it has ended");
        assert!(!Chaos::new(None, begin).has_gone_on(0, Some(ms(1000)), begin + ms(1000)), "no chaos");
    }
}
