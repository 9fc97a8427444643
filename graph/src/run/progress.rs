//! How far an execution has come, and how to end it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::trace::{Event, Trace, What};

/// Shared with an execution: tells how far it is, and can cancel it.
#[derive(Debug)]
pub struct Progress {
    cancelled: AtomicBool,
    done: AtomicU64,
    total: AtomicU64,
    /// Costs in nanoseconds, declared or measured before.
    cost_done: AtomicU64,
    cost_total: AtomicU64,
    began: Instant,
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
            began: Instant::now(),
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
    /// Time that is left if what is left costs as much as what is done did; none before anything is done.
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
        let left = (part > 0.0).then(|| elapsed.mul_f64((1.0 - part).max(0.0) / part));
        Self { done, total, part, elapsed, left }
    }
}

impl Progress {
    /// One that notes what happens.
    pub fn traced() -> Self {
        Self { trace: Some(Trace::new()), ..Self::default() }
    }

    /// What has happened until now and was not taken yet, in order; nothing if it is not traced.
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
        Stage::new(done, total, load(&self.cost_done), load(&self.cost_total), self.began.elapsed())
    }

    /// By who executes: so many steps are to be done, of so many seconds.
    pub fn begin(&self, total: u64, seconds: f64) {
        self.total.store(total, Ordering::Relaxed);
        self.cost_total.store((seconds * 1e9) as u64, Ordering::Relaxed);
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
}
