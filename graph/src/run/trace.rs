//! What an execution did when, for pictures.

use std::sync::{Mutex, PoisonError};
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
pub(super) struct Trace {
    began: Instant,
    events: Mutex<Vec<Event>>,
}

impl Trace {
    pub(super) fn new() -> Self {
        Self { began: Instant::now(), events: Mutex::default() }
    }

    pub(super) fn note(&self, what: What, live: u64) {
        let event = Event { at: self.began.elapsed(), what, live };
        self.events.lock().unwrap_or_else(PoisonError::into_inner).push(event);
    }

    pub(super) fn take(&self) -> Vec<Event> {
        std::mem::take(&mut *self.events.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
