//! A rank that is larger than the budget all by itself: it runs within it, paged in parts.

use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

use sbmalloc::other::PartsMoved;

use crate::display::units::Bytes;
use crate::outside::{InParts, Order};
use crate::overdraft::Event;

use super::Job;
use super::independent::{Ordered, What};

/// What is kept of a rank that runs in parts.
pub(super) struct Partial {
    since: Instant,
    /// How long it ran so, when that has ended.
    ran: Option<Duration>,
    moved: PartsMoved,
}

impl Partial {
    fn begin() -> Self {
        Self { since: Instant::now(), ran: None, moved: PartsMoved::default() }
    }

    /// The rank has ended.
    pub fn end(&mut self) {
        self.ran = Some(self.since.elapsed());
    }

    fn ran(&self) -> Duration {
        self.ran.unwrap_or_else(|| self.since.elapsed())
    }

    /// Times it waited for a page, and seconds it ran so.
    pub fn account(&self) -> (u64, f64) {
        (self.moved.faults, self.ran().as_secs_f64())
    }
}

impl Job<'_> {
    /// Has parts of it leave, until it holds no more than `target` bytes.
    pub(super) fn shrink(&mut self, rank: u32, target: u64) {
        let Some(outside) = &mut self.outside else { return };
        let record = &mut outside.ranks[rank as usize];
        record.order = Some(Ordered::new(What::Shrink));
        let fixed = record.last.resident().saturating_sub(record.last.private);
        let order = Order::Shrink { target: target.saturating_sub(fixed) };
        match &record.mover {
            Some(mover) => mover.order(order),
            None => self.start_mover(rank, Some(order)),
        }
    }

    /// What has become of that.
    pub(super) fn moved_in_parts(&mut self, rank: u32, report: InParts) {
        let budget = self.setup.segment.header().pool.budget();
        let Some(outside) = &mut self.outside else { return };
        let record = &mut outside.ranks[rank as usize];
        if record.group.is_none() {
            // It has ended.
            return;
        }
        record.stand(false);
        match report {
            InParts::Shrunk { out, left } => {
                let left = left + record.last.resident().saturating_sub(record.last.private);
                if record.partial.is_none() {
                    record.partial = Some(Partial::begin());
                    self.note(&format!(
                        "rank {rank} alone needs more than the budget of {}: it runs within it, paged in parts",
                        Bytes(budget)
                    ));
                }
                self.charge(rank, left, out);
                self.tell_outside(Event::Shrunk { rank, out, left });
            }
            InParts::Refused { why, lasting } => {
                if record.partial.is_none() {
                    record.mover = None;
                }
                if lasting {
                    self.note(&format!("rank {rank} cannot be paged in parts: {why}"));
                }
                self.tell_outside(Event::ShrinkRefused { rank, lasting });
            }
            InParts::Full { .. } => {
                // Parts may be out already, so it is traced from now on in any case.
                record.partial.get_or_insert_with(Partial::begin);
                self.tell_outside(Event::DiskFull { rank, out: 0 });
            }
            InParts::Moved { out, moved } => {
                let block = self.setup.segment.rank(rank);
                let Some(partial) = &mut record.partial else { return };
                let before = std::mem::replace(&mut partial.moved, moved);
                block.evicted.fetch_add(moved.freed - before.freed, SeqCst);
                block.restored.fetch_add(moved.filled - before.filled, SeqCst);
                block.written.fetch_add(moved.written - before.written, SeqCst);
                block.read.fetch_add(moved.read - before.read, SeqCst);
                let waited = (moved.serving + moved.standing) - (before.serving + before.standing);
                block.paging_ns.fetch_add(waited.as_nanos() as u64, SeqCst);
                let bytes = record.charged;
                self.charge(rank, bytes, out);
            }
        }
    }

    /// The rank has ended: says how fast it was, if it ran in parts.
    pub(super) fn note_parts(&self, rank: u32) {
        let Some(outside) = &self.outside else { return };
        let Some(partial) = &outside.ranks[rank as usize].partial else { return };
        let needs = self.setup.segment.rank(rank).peak.load(SeqCst);
        self.note(&describe(rank, needs, &partial.moved, partial.ran()));
    }
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
    }
}
