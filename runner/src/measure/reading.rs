//! When what was read of a process is read again.

use std::time::{Duration, Instant};

use super::proc::Statm;

/// How often `status` is read at least, of a process that runs.
const STATUS: Duration = Duration::from_millis(500);
/// The same of a rank that asks, and of `stat`, while no process and no thread is made.
const SELDOM: Duration = Duration::from_secs(5);
/// `status` is read at once if mapped pages have changed by more than this.
const MAPPED_CHANGE: u64 = 1 << 20;
/// Of a rank that asks it is not read seldom if its anonymous memory has changed by more than this: then its
/// page tables have as well.
const CHANGE: u64 = 8 << 20;

/// What was known of a process when something of it was read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reading {
    pub(super) at: Instant,
    /// See [`Load`](super::proc::Load).
    pub(super) births: Option<u64>,
    pub(super) statm: Statm,
}

impl Reading {
    fn age(&self, now: &Self) -> Duration {
        now.at.saturating_duration_since(self.at)
    }

    /// No process and no thread has been made anywhere in between, and it is not long ago.
    pub(super) fn nobody_born(&self, now: &Self) -> bool {
        self.births.is_some() && self.births == now.births && self.age(now) < SELDOM
    }

    /// Whether `status`, read then, is to be read again. `asks`: of what it tells only page tables and the
    /// number of threads are reckoned. `spread`: so that not all are read at the same look.
    pub(super) fn status_is_old(&self, now: &Self, asks: bool, spread: Duration) -> bool {
        let is_due = self.age(now) >= STATUS + spread;
        let changed = |of: fn(Statm) -> u64, by| of(now.statm).abs_diff(of(self.statm)) > by;
        match asks {
            true => is_due && (changed(Statm::anonymous, CHANGE) || !self.nobody_born(now)),
            false => is_due || changed(|statm| statm.mapped, MAPPED_CHANGE),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One after so many milliseconds.
    fn after(first: Reading, millis: u64) -> Reading {
        Reading { at: first.at + Duration::from_millis(millis), ..first }
    }

    #[test]
    fn status_is_read_when_it_can_have_changed() {
        let first = Reading { at: Instant::now(), births: Some(7), statm: Statm::default() };
        let is_old = |now: Reading, asks| first.status_is_old(&now, asks, Duration::from_millis(10));
        assert!(!is_old(after(first, 509), false) && is_old(after(first, 510), false));
        // Who asks: only if somebody was born, which is not known where births are not.
        assert!(!is_old(after(first, 4_999), true) && is_old(after(first, 5_000), true));
        for births in [Some(8), None] {
            let born = Reading { births, ..first };
            assert!(!is_old(after(born, 509), true) && is_old(after(born, 510), true));
        }
        let unknown = Reading { births: None, ..first };
        assert!(unknown.status_is_old(&after(unknown, 510), true, Duration::ZERO));
        // Or if it is much larger or smaller than then.
        let grown = |bytes| Reading { statm: Statm { resident: bytes, ..first.statm }, ..first };
        assert!(!is_old(after(grown(CHANGE), 510), true) && is_old(after(grown(CHANGE + 1), 510), true));
        assert!(!is_old(after(grown(CHANGE + 1), 509), true));
        let mapped =
            |bytes| Reading { statm: Statm { resident: bytes, mapped: bytes, size: bytes }, ..first };
        assert!(is_old(mapped(MAPPED_CHANGE + 1), false) && !is_old(mapped(MAPPED_CHANGE), false));
        assert!(!is_old(mapped(MAPPED_CHANGE + 1), true));
    }
}
