//! How far an execution has come, and how to end it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::trace::{Event, Trace, What};

/// Shared with an execution: tells how far it is, and can cancel it. With one after the other it tells of the
/// last one that began.
#[derive(Debug)]
pub struct Progress {
    cancelled: AtomicBool,
    done: AtomicU64,
    total: AtomicU64,
    /// Costs in nanoseconds, declared or measured before.
    cost_done: AtomicU64,
    cost_total: AtomicU64,
    began: Mutex<Instant>,
    trace: Option<Trace>,
}

impl Default for Progress {
    fn default() -> Self {
        let zero = || AtomicU64::new(0);
        Self {
            cancelled: AtomicBool::new(false),
            done: zero(),
            total: zero(),
            cost_done: zero(),
            cost_total: zero(),
            began: Mutex::new(Instant::now()),
            trace: None,
        }
    }
}

/// How far an execution is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stage {
    /// Steps that have finished: runs of tasks, and transfers.
    pub done: u64,
    /// All of them.
    pub total: u64,
    /// The part of all costs whose tasks have run; by steps where no costs are known.
    pub part: f64,
    /// Time since the beginning.
    pub elapsed: Duration,
    /// Time that is left if what is left costs as much as what is done did; none before anything is done, or
    /// if it would be longer than can be said.
    pub left: Option<Duration>,
}

impl Stage {
    /// From counts and costs (of any unit), and the time since the beginning.
    pub fn new(done: u64, total: u64, cost_done: u64, cost_total: u64, elapsed: Duration) -> Self {
        let part = match (cost_total, total) {
            (0, 0) => 1.0,
            (0, _) => done as f64 / total as f64,
            (costs, _) => cost_done as f64 / costs as f64,
        };
        let seconds = elapsed.as_secs_f64() * ((1.0 - part).max(0.0) / part);
        let left = if part > 0.0 { Duration::try_from_secs_f64(seconds).ok() } else { None };
        Self { done, total, part, elapsed, left }
    }
}

impl Progress {
    /// One that notes what happens.
    pub fn traced() -> Self {
        Self { trace: Some(Trace::new()), ..Self::default() }
    }

    /// What has happened until now in the execution that began last, and was not taken yet, in order; nothing
    /// if it is not traced.
    pub fn take_events(&self) -> Vec<Event> {
        self.trace.as_ref().map(Trace::take).unwrap_or_default()
    }

    /// Notes that something has happened, if that is noted; `live` as in [`Event`].
    pub fn note(&self, what: What, live: u64) {
        if let Some(trace) = &self.trace {
            trace.note(what, live);
        }
    }

    /// Whether what happens is noted.
    pub(super) fn trace(&self) -> Option<&Trace> {
        self.trace.as_ref()
    }

    /// Makes the execution end: no step starts any more. Those that run are finished.
    pub fn cancel(&self) {
        self.cancelled.store(true, Ordering::Relaxed);
    }

    /// Whether it was cancelled.
    pub fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Relaxed)
    }

    /// How far it is.
    pub fn stage(&self) -> Stage {
        let load = |number: &AtomicU64| number.load(Ordering::Relaxed);
        let (done, total) = (load(&self.done), load(&self.total));
        let began = *self.began.lock().unwrap_or_else(PoisonError::into_inner);
        Stage::new(done, total, load(&self.cost_done), load(&self.cost_total), began.elapsed())
    }

    /// By who executes: it begins, and so many steps are to be done, of so many seconds.
    pub fn begin(&self, total: u64, seconds: f64) {
        *self.began.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
        if let Some(trace) = &self.trace {
            trace.begin();
        }
        for (number, value) in [
            (&self.done, 0),
            (&self.cost_done, 0),
            (&self.total, total),
            (&self.cost_total, (seconds * 1e9) as u64),
        ] {
            number.store(value, Ordering::Relaxed);
        }
    }

    /// By who executes: a step of so many seconds is done.
    pub fn finish(&self, seconds: f64) {
        self.done.fetch_add(1, Ordering::Relaxed);
        self.cost_done.fetch_add((seconds * 1e9) as u64, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_left_is_by_costs() {
        let second = Duration::from_secs(1);
        let stage = Stage::new(1, 10, 300, 400, 3 * second);
        assert_eq!((stage.part, stage.left), (0.75, Some(second)));
        assert_eq!(Stage::new(5, 10, 0, 0, 4 * second).left, Some(4 * second));
        assert_eq!(Stage::new(0, 10, 0, 400, second).left, None);
        assert_eq!(Stage::new(10, 10, 400, 400, second).left, Some(Duration::ZERO));
    }

    #[test]
    fn what_would_take_for_ever_has_no_time_that_is_left() {
        let second = Duration::from_secs(1);
        assert_eq!(Stage::new(1, 2, 1, u64::MAX, 1000 * second).left, None);
        assert!(Stage::new(1, 2, 1, 1 << 60, second).left.is_some());
        // As a task of a nanosecond, beside one that costs more than can be counted.
        let progress = Progress::default();
        progress.begin(2, 1e30);
        progress.finish(1e-9);
        assert_eq!(progress.stage().done, 1);
    }

    #[test]
    fn the_second_execution_begins_anew() {
        let progress = Progress::traced();
        for _ in 0..2 {
            let before = Instant::now();
            progress.begin(2, 4.0);
            assert_eq!((progress.stage().done, progress.stage().part), (0, 0.0));
            assert!(progress.stage().elapsed <= before.elapsed());
            progress.finish(1.0);
            assert_eq!((progress.stage().done, progress.stage().total, progress.stage().part), (1, 2, 0.25));
            progress.note(What::Release(crate::TaskId(0)), 0);
            assert!(progress.take_events()[0].at <= before.elapsed());
            progress.finish(3.0);
            assert_eq!(progress.stage().part, 1.0);
        }
    }
}
