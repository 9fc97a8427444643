//! What an execution did when, for pictures.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::program::Step;
use crate::graph::TaskId;

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// A step began: its result takes memory from now on.
    Begin(Step),
    /// It is done.
    End(Step),
    /// The memory of a task's result was given back.
    Release(TaskId),
}

/// Something that happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// Since the execution began.
    pub at: Duration,
    /// What.
    pub what: What,
    /// Bytes of results and work that are live then.
    pub live: u64,
}

/// Events as they come.
#[derive(Debug)]
pub(super) struct Trace(Mutex<Noted>);

#[derive(Debug)]
struct Noted {
    began: Instant,
    events: Vec<Event>,
}

impl Trace {
    pub(super) fn new() -> Self {
        Self(Mutex::new(Noted { began: Instant::now(), events: Vec::new() }))
    }

    fn lock(&self) -> MutexGuard<'_, Noted> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An execution begins. What was noted of one before it, and not taken, is not of this one.
    pub(super) fn begin(&self) {
        *self.lock() = Noted { began: Instant::now(), events: Vec::new() };
    }

    pub(super) fn note(&self, what: What, live: u64) {
        let mut noted = self.lock();
        // With the lock, so that they are in order.
        let at = noted.began.elapsed();
        noted.events.push(Event { at, what, live });
    }

    pub(super) fn take(&self) -> Vec<Event> {
        std::mem::take(&mut self.lock().events)
    }
}
