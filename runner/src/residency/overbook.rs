//! More ranks than are expected to fit, where processors would be idle without.
//!
//! Ranks seldom need the most they ever need at the same moment. So while processors have nothing to do, one
//! more is begun than fits by what is expected of all, if half of what is expected of each fits beside what
//! those that hold more hold now. If memory gets short it is the first to leave, and comes back when there is
//! room for certain. Whether that pays is measured: by how many ranks run meanwhile, more or fewer than would
//! fit for certain. So on a slow disk, or where all is taken at once, it ends by itself.

use std::time::Duration;

use super::index::Index;
use super::{Core, Limits, Rank};

/// The balance stays within this, seconds of one processor: what was long ago says little.
const MOST: f64 = 10.0;

/// After losses it is tried again, the later the larger they were: this part of the time that passes is
/// forgiven.
const FORGIVEN: f64 = 0.05;

/// What it has gained and lost so far.
#[derive(Debug, Default)]
pub(super) struct Overbooking {
    /// Processor seconds that were used, less those that would have been.
    balance: f64,
    /// The most that any rank held and could not be paged, bytes.
    fixed: u64,
}

impl Overbooking {
    /// Whether it has paid lately, or is to be tried again.
    const fn pays(&self) -> bool {
        self.balance >= 0.0
    }

    /// A rank holds so many bytes that cannot be paged.
    pub fn saw_fixed(&mut self, bytes: u64) {
        self.fixed = self.fixed.max(bytes);
    }

    /// For so long `running` ranks ran, where without any overbooked `fit` would have. None of them is
    /// overbooked if that is none.
    fn looked(&mut self, elapsed: Duration, running: f64, fit: Option<f64>) {
        let elapsed = elapsed.as_secs_f64();
        match fit {
            Some(fit) => self.balance = (self.balance + elapsed * (running - fit)).clamp(-MOST, MOST),
            None if self.balance < 0.0 => self.balance = (self.balance + FORGIVEN * elapsed).min(0.0),
            None => {}
        }
    }
}

impl Core {
    /// The next to be begun although it is not expected to fit, with what is expected of it, bytes.
    pub(super) fn overbook(&mut self) -> Option<(Rank, u64)> {
        let Limits { budget, processors, .. } = self.limits;
        let in_parts = self.index.inside.first().is_some_and(|&(_, rank)| self.ranks[rank as usize].partial);
        let (rank, _) = self.queue.head()?;
        let pageable = self.ranks[rank as usize].can.evict && self.disk_full.is_none();
        let possible = pageable && !in_parts && self.turn.is_none();
        // What cannot be paged stays when they leave.
        let begun = u64::from(self.index.places) + self.index.out.len() as u64;
        let stays = self.overbooking.fixed.saturating_mul(begun + 1);
        // Who was stopped because nobody could be paged would be again.
        let possible = possible && stays <= budget / 8 && !self.queue.has_stopped();
        if !possible || self.index.active >= processors || !self.overbooking.pays() {
            return None;
        }
        let free = self.room().saturating_sub(self.index.soon);
        self.queue.take(free.saturating_mul(2), false, 0, &self.ranks, &self.digest, &self.limits)
    }

    /// A look is complete: was it worth it since the last?
    pub(super) fn judge_overbooking(&mut self, elapsed: Duration) {
        let Index { expected, running, overbooked, .. } = self.index;
        let inside = self.index.inside.len() as f64;
        // As many as there would be room for, were all like these.
        let room = self.room() as f64;
        let fit = if expected as f64 > room { inside * room / expected as f64 } else { inside };
        let processors = f64::from(self.limits.processors);
        let fit = if overbooked > 0 { Some(fit.clamp(1.0, processors)) } else { None };
        self.overbooking.looked(elapsed, f64::from(running).min(processors), fit);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn it_ends_where_it_costs_more_than_it_gains_and_is_tried_again() {
        let mut booking = Overbooking::default();
        assert!(booking.pays(), "it is tried");
        booking.looked(seconds(3), 2.0, Some(1.0));
        booking.looked(seconds(2), 0.0, Some(1.0));
        assert!(booking.pays());
        booking.looked(seconds(2), 0.0, Some(1.0));
        assert!(!booking.pays(), "a second short");
        booking.looked(seconds(19), 5.0, None);
        assert!(!booking.pays());
        booking.looked(seconds(2), 5.0, None);
        assert!(booking.pays());
    }

    #[test]
    fn a_long_time_of_gain_does_not_hide_losses_for_ever() {
        let mut booking = Overbooking::default();
        booking.looked(seconds(1_000_000), 2.0, Some(1.0));
        booking.looked(seconds(11), 0.0, Some(1.0));
        assert!(!booking.pays());
    }
}
