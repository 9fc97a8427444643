//! A rank that is larger than the budget all by itself: it runs within it, paged in parts.

use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

use sbmalloc::other::PartsMoved;

use crate::holder::{self, Holder, InParts};
use crate::measure::Group;
use crate::residency::Outcome;
use crate::units::Bytes;

use super::Job;
use super::record::Record;

/// After so long it is first said, while it runs, how slow a rank in parts is.
const FIRST_NOTE: Duration = Duration::from_secs(5);

/// How long it is waited until a rank stands still again that was held when the job was paused.
const STOPS_AGAIN: Duration = Duration::from_secs(1);
/// For ^Z: how long what is under way with ranks in parts is waited for before it is looked again.
const STEP: Duration = Duration::from_millis(100);

/// What is kept of a rank that runs in parts.
pub(super) struct Partial {
    since: Instant,
    /// How long it ran so, when that has ended.
    ran: Option<Duration>,
    moved: PartsMoved,
    /// Bytes of private memory that cannot leave.
    stays: u64,
    /// Bytes of what is out that are still in RAM, and what the rank may hold together with these.
    recent: (u64, u64),
    /// How slow it is, is said when it has run so long.
    next_note: Duration,
}

impl Partial {
    fn begin() -> Self {
        Self {
            since: Instant::now(),
            ran: None,
            moved: PartsMoved::default(),
            stays: 0,
            recent: (0, 0),
            next_note: FIRST_NOTE,
        }
    }

    /// Whether it is time to say how slow it is: each time after twice as long.
    fn is_due(&mut self) -> bool {
        let due = self.ran() >= self.next_note;
        if due {
            self.next_note = self.ran() * 2;
        }
        due
    }

    /// The rank has ended.
    pub fn end(&mut self) {
        self.ran = Some(self.since.elapsed());
    }

    fn ran(&self) -> Duration {
        self.ran.unwrap_or_else(|| self.since.elapsed())
    }

    /// Bytes of private memory that cannot leave.
    pub fn stays(&self) -> u64 {
        self.stays
    }

    /// Bytes in RAM because of it when it holds so many bytes of private memory, of which some were evicted a
    /// moment ago. What it holds and what is told of these is not of the same moment; together they are never
    /// more than its target.
    pub fn in_ram(&self, private: u64) -> u64 {
        let (recent, target) = self.recent;
        private.max(target.min(private.saturating_add(recent)))
    }

    /// Times it waited for a page, and seconds it ran so.
    pub fn account(&self) -> (u64, f64) {
        (self.moved.faults, self.ran().as_secs_f64())
    }
}

impl Record {
    /// What its mover says tells whether it stands, and whether the mover must stay.
    fn hear_in_parts(&mut self, report: &InParts) {
        if report.is_answer() {
            self.stand(false);
        }
        match report {
            // Without its mover it would be killed: it is traced from now on, and parts may be out already.
            InParts::Busy | InParts::Full { .. } => {
                self.partial.get_or_insert_with(Partial::begin);
            }
            InParts::Refused { .. } if self.partial.is_none() => self.holder = None,
            _ => {}
        }
    }
}

impl Job<'_> {
    /// What has become of the order to let parts of it leave, or what is told of it since.
    pub(super) fn moved_in_parts(&mut self, rank: u32, report: InParts) {
        let budget = self.setup.segment.header().pool.budget();
        let record = &mut self.ranks[rank as usize];
        if record.group.is_none() {
            // It has ended.
            return;
        }
        record.hear_in_parts(&report);
        match report {
            InParts::Shrunk { out, left } => {
                let left = left + record.last.resident().saturating_sub(record.last.private);
                if record.partial.is_none() {
                    record.partial = Some(Partial::begin());
                    let how = match left > budget {
                        false => "it runs within it, paged in parts".into(),
                        true => format!("it is paged in parts, but {} of it stay in RAM", Bytes(left)),
                    };
                    self.note(&format!(
                        "rank {rank} alone needs more than the budget of {}: {how}",
                        Bytes(budget)
                    ));
                }
                self.charge(rank, left, out);
                self.done(rank, Outcome::Shrunk { left });
            }
            InParts::Refused { why, lasting } => {
                if lasting {
                    self.note(&format!("rank {rank} cannot be paged in parts: {why}"));
                }
                self.done(rank, Outcome::Refused { lasting });
            }
            InParts::Busy => self.done(rank, Outcome::Refused { lasting: false }),
            InParts::Full { .. } => {
                let need = record.last.private;
                self.done(rank, Outcome::Full { need, part: None });
            }
            InParts::Unserved { why } => {
                self.note(&format!(
                    "memory of rank {rank} cannot be paged in parts any more ({why}): it may hold more than the budget"
                ));
            }
            InParts::Moved { out, stays, recent, target, moved } => {
                let block = self.setup.segment.rank(rank);
                let Some(partial) = &mut record.partial else { return };
                let before = std::mem::replace(&mut partial.moved, moved);
                partial.stays = stays;
                partial.recent = (recent, target);
                let out = out.saturating_sub(recent);
                block.evicted.fetch_add(moved.freed - before.freed, SeqCst);
                block.restored.fetch_add(moved.filled - before.filled, SeqCst);
                block.written.fetch_add(moved.written - before.written, SeqCst);
                block.read.fetch_add(moved.read - before.read, SeqCst);
                let waited = (moved.serving + moved.standing) - (before.serving + before.standing);
                block.paging_ns.fetch_add(waited.as_nanos() as u64, SeqCst);
                let needs = block.peak.load(SeqCst);
                let slow = partial
                    .is_due()
                    .then(|| describe_slow(rank, needs, &partial.moved, partial.ran()))
                    .flatten();
                let bytes = self.watch.accounts.held_by(rank);
                self.charge(rank, bytes, out);
                slow.into_iter().for_each(|text| self.note(&text));
            }
        }
    }

    /// Stops the ranks and ourselves until somebody continues us. A rank in parts that waits for a page in
    /// the middle of a system call, or for us to hear of a `madvise`, cannot stop before it was served: it
    /// would run in circles, or hang, for as long as we stand. It also stands while it is traced, between two
    /// calls that are made in it: so nothing may be under way with it when we stop.
    pub(super) fn pause(&mut self) {
        // Also one that is to run in parts, of which that is not known yet.
        let served =
            self.ranks.iter().filter(|(_, record)| record.holder.as_ref().is_some_and(Holder::moves));
        let groups: Vec<_> = served.filter_map(|(_, record)| record.group.clone()).collect();
        let all_stand = || groups.iter().all(Group::stands);
        self.supervisor.pause(|| {
            // Its signals pass through our threads: they are held up only for the last look.
            let still = all_stand().then(|| holder::pause(STEP)).flatten()?;
            all_stand().then_some(still)
        });
        // That has continued also those that were held by a signal. One that does not stop again is held no
        // longer, though it is taken for that: it is let go when its turn comes.
        let held = self.ranks.iter().filter(|(_, record)| {
            record.still.is_some() && record.holder.as_ref().is_some_and(|holder| !holder.moves())
        });
        for group in held.filter_map(|(_, record)| record.group.as_ref()) {
            let _ = group.freeze(STOPS_AGAIN);
        }
    }

    /// The rank has ended: says how fast it was, if it ran in parts.
    pub(super) fn note_parts(&self, rank: u32) {
        let Some(partial) = &self.ranks[rank as usize].partial else { return };
        let needs = self.setup.segment.rank(rank).peak.load(SeqCst);
        self.note(&describe(rank, needs, &partial.moved, partial.ran()));
    }
}

/// For a rank that mostly waits for its pages, what to do about it, while it runs.
fn describe_slow(rank: u32, needs: u64, moved: &PartsMoved, ran: Duration) -> Option<String> {
    let waited = (moved.serving + moved.standing).as_secs_f64() / ran.as_secs_f64().max(1e-3);
    (waited > 0.5).then(|| {
        format!(
            "rank {rank} runs in parts for {:.0} s now, and waited for pages {:.0} % of that time, {} times; with --memory of more than \
             {} it would not",
            ran.as_secs_f64(),
            100.0 * waited.min(1.0),
            moved.faults,
            Bytes(needs)
        )
    })
}

fn describe(rank: u32, needs: u64, moved: &PartsMoved, ran: Duration) -> String {
    let seconds = ran.as_secs_f64().max(1e-3);
    let rate = (moved.freed + moved.filled) as f64 / seconds / f64::from(1 << 20);
    let waited = (moved.serving + moved.standing).as_secs_f64() / seconds;
    format!(
        "rank {rank} needed {} and ran in parts for {seconds:.1} s: {} out, {} back ({rate:.0} MiB/s); it waited for pages \
         {:.0} % of that time, {} times",
        Bytes(needs),
        Bytes(moved.freed),
        Bytes(moved.filled),
        100.0 * waited.min(1.0),
        moved.faults
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moved() -> InParts {
        InParts::Moved { out: 0, stays: 0, recent: 0, target: 0, moved: PartsMoved::default() }
    }

    #[test]
    fn one_that_stands_still_does_so_whatever_is_told_of_it() {
        let mut record = Record::default();
        record.stand(true);
        record.hear_in_parts(&moved());
        record.hear_in_parts(&InParts::Unserved { why: String::new() });
        assert!(record.still.is_some());
        record.hear_in_parts(&InParts::Shrunk { out: 0, left: 0 });
        assert!(record.still.is_none(), "to shrink is to run");
    }

    #[test]
    fn one_that_is_busy_when_first_paged_in_parts_keeps_its_mover() {
        let mut record = Record::default();
        record.hear_in_parts(&InParts::Refused { why: String::new(), lasting: false });
        assert!(record.partial.is_none(), "it was let go");
        record.hear_in_parts(&InParts::Busy);
        assert!(record.partial.is_some());
    }

    #[test]
    fn it_is_said_how_fast_it_was() {
        let moved = PartsMoved {
            faults: 17,
            filled: 3 << 30,
            freed: 1 << 30,
            serving: Duration::from_secs(2),
            standing: Duration::from_secs(3),
            ..PartsMoved::default()
        };
        let text = describe(3, 2 << 30, &moved, Duration::from_secs(10));
        assert!(text.contains("rank 3 needed 2.00 GiB") && text.contains("410 MiB/s"), "{text}");
        assert!(text.contains("50 % of that time, 17 times"), "{text}");
        let slow = |seconds| describe_slow(3, 2 << 30, &moved, Duration::from_secs(seconds));
        assert_eq!(slow(20), None, "it mostly computes");
        let text = slow(6).expect("it mostly waits");
        assert!(text.contains("83 %") && text.contains("more than 2.00 GiB"), "{text}");
    }
}
