//! What the end of a rank does to the job: it goes on, begins nobody else, runs the rank again, or ends
//! (`--halt`, `--retry`, `--rank-timeout`).

use std::time::{Duration, Instant};

use super::record::Record;
use super::{GRACE, Job, LAST_WORDS};
use crate::cli::{Halt, When, Why};
use crate::exit::Ending;
use crate::residency::{Event, Next};
use crate::supervisor::{EscalationEvent, OomKill};

/// What is set aside for a rank that was killed for want of memory: twice what was, or what it held by then.
fn twice(peak: u64, reserve: u64) -> u64 {
    peak.max(reserve).saturating_mul(2)
}

impl Job<'_> {
    /// What ends the job. Of ranks that may talk to one another nothing but the first failure is taken
    /// (`resume`).
    pub(super) fn halt(&self) -> Halt {
        let given = &self.options.launch;
        if given.keep_going { Halt::NEVER } else { given.halt.unwrap_or(Halt::FIRST) }
    }

    /// Whether a rank that failed is run again, which is said.
    pub(super) fn retry(&mut self, rank: u32, failed: &Ending, oom: OomKill, peak: u64) -> Option<Next> {
        let given = &self.options.launch;
        let record = &mut self.ranks[rank as usize];
        // It has failed already: it was killed for that.
        if self.ending.is_some() || self.halted || record.failed {
            return None;
        }
        let by_memory = usize::from(oom != OomKill::No);
        let most = [given.retry, given.retry_memory];
        // The ones of the other kind are left where there are none of this.
        let kind = if by_memory == 1 && record.tries[1] < most[1] { 1 } else { 0 };
        if record.tries[kind] >= most[kind] {
            return None;
        }
        if self.reads_once(rank) {
            self.note(&format!(
                "{failed}: it is not run again, as what it has read of bdrun's standard input is gone (give it a file: --stdin FILE, \
                 < FILE; or nothing: < /dev/null)"
            ));
            return None;
        }
        let record = &mut self.ranks[rank as usize];
        record.tries[kind] += 1;
        let left = most[kind] - record.tries[kind];
        let least = if by_memory == 1 { twice(peak, record.reserve) } else { peak };
        self.note(&format!("{failed}: it is run again ({left} tries are left after that)"));
        Some(Next::Retry { least })
    }

    /// A rank has failed: so does the job, unless the others are to go on.
    pub(super) fn fail_rank(&mut self, rank: u32, ending: Ending) {
        let deals = self.setup.deals;
        let record = &mut self.ranks[rank as usize];
        let before = std::mem::replace(&mut record.failed, true);
        let ending = match record.reason.take() {
            Some(reason) => reason,
            None if before => return,
            None => ending,
        };
        if deals && record.status.is_none() {
            // It is being killed for that. The first node's master is told once it has ended.
            record.reason = Some(ending);
            return;
        }
        if self.rank_is_over(rank, Some(&ending)) {
            self.count_failure(ending);
        }
    }

    /// One has, here or elsewhere.
    pub(super) fn count_failure(&mut self, ending: Ending) {
        let halt = self.halt();
        self.failures += 1;
        if self.ending.is_some() {
            return;
        }
        if halt.when == When::Now && halt.is_reached(self.failures, self.well, self.np()) {
            self.ending.get_or_insert(self.first_failure.take().unwrap_or(ending));
            self.silence = Some(Instant::now() + LAST_WORDS);
            return;
        }
        self.note(&ending.to_string());
        // Those who run to their end after the job has done what it was to do change nothing of that.
        if !(self.halted && halt.why == Why::Success) {
            self.first_failure.get_or_insert(ending);
        }
        self.halt_soon(halt);
    }

    /// A rank has ended well.
    pub(super) fn rank_is_done(&mut self, rank: u32) {
        if self.rank_is_over(rank, None) {
            self.count_well();
        }
    }

    /// One has, here or elsewhere.
    pub(super) fn count_well(&mut self) {
        self.well += 1;
        let halt = self.halt();
        if self.ending.is_some() {
            // At another node, which had not heard that yet: it changes nothing.
        } else if halt.when == When::Now && halt.is_reached(self.failures, self.well, self.np()) {
            self.note(&format!(
                "{} of {} ranks have ended well (--halt {halt}): the others are ended",
                self.well,
                self.np()
            ));
            let failed = self.first_failure.take().filter(|_| halt.why == Why::Done);
            if self.ending.get_or_insert(failed.unwrap_or(Ending::Success)).is_success() {
                self.end_well_elsewhere();
            }
            self.escalate(EscalationEvent::End);
        } else {
            self.halt_soon(halt);
        }
    }

    /// Nobody else is begun, if that is so now.
    fn halt_soon(&mut self, halt: Halt) {
        let reached = halt.when == When::Soon && halt.is_reached(self.failures, self.well, self.np());
        if reached && !std::mem::replace(&mut self.halted, true) {
            self.note(&format!("no other rank is begun (--halt {halt})"));
            if halt.why == Why::Success {
                self.first_failure = None;
            }
            if self.setup.deals {
                return self.deal_no_more();
            }
            // Before the end that is the reason: another would be begun in the place of who has ended.
            self.events.insert(0, Event::Halt);
            self.begin_no_delayed();
            self.fail_who_waits();
            if self.coming.take().is_some() {
                // Who reads the list reads on as others begin, which is never again.
                self.events.push(Event::Came { ranks: self.np(), more: false });
            }
        }
    }

    /// Those whose last try has failed, and that would have been run again, have failed.
    fn fail_who_waits(&mut self) {
        let waits = |(rank, record): (u32, &Record)| record.retried.is_some().then_some(rank);
        let waiting: Vec<u32> = self.ranks.iter().filter_map(waits).collect();
        for rank in waiting {
            let record = &mut self.ranks[rank as usize];
            let Some((status, failed)) = record.retried.take() else { continue };
            record.status = Some(status);
            self.supervisor.is_over(rank);
            self.failures += 1;
            if self.halt().why != Why::Success {
                self.first_failure.get_or_insert(failed);
            }
            self.retire(rank);
        }
    }

    /// Ranks that take too long are told to end, and killed if they do not.
    pub(super) fn end_overdue(&mut self) {
        let Some(limit) = self.options.launch.rank_timeout else { return };
        let born: Vec<u32> =
            self.ranks.iter().filter(|(_, record)| record.born.is_some()).map(|(rank, _)| rank).collect();
        for rank in born {
            let record = &self.ranks[rank as usize];
            let Some(born) = record.born else { continue };
            match record.overdue {
                None => {
                    let stands = record.still.map_or(Duration::ZERO, |since| since.elapsed());
                    let still = record.still_for.saturating_sub(record.still_before) + stands;
                    // One that has ended did so in time, though it is not heard of yet.
                    if born.elapsed().saturating_sub(still) > limit
                        && self.supervisor.signal(rank, libc::SIGTERM)
                    {
                        self.ranks[rank as usize].overdue = Some(Instant::now());
                    }
                }
                Some(since) if since.elapsed() > GRACE => self.kill(rank),
                Some(_) => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each time killed where it held all that was set aside for it.
    #[test]
    fn each_try_has_twice_as_much_as_the_one_before() {
        let first = 1 << 30;
        let tries = std::iter::successors(Some(first), |&reserve| Some(twice(reserve, reserve)));
        assert!(tries.take(5).eq([1, 2, 4, 8, 16].map(|times| times * first)));
        assert_eq!((twice(first, 7), twice(7, first), twice(u64::MAX, 1)), (2 * first, 2 * first, u64::MAX));
    }
}
