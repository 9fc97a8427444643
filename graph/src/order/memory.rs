//! What an order takes: how many bytes are live when.
//!
//! The model. A task's result takes its bytes from the task's start; its inputs are there until its end, and
//! its work bytes only meanwhile. A result is released when the last task that needs it has run, if nobody
//! asked to keep it.

use crate::error::OrderError;
use crate::graph::{Graph, Output, TaskId};

/// The most that is live, and when.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Peak {
    /// Bytes.
    pub bytes: u64,
    /// The place in the order at which they are first live.
    pub place: usize,
}

/// Bytes that are live as tasks run one after the other.
#[derive(Clone, Debug)]
pub(crate) struct Live<'a> {
    graph: &'a Graph,
    /// Of each task, how many have yet to use its result.
    left: Vec<u32>,
    /// Bytes that are live now.
    pub(crate) bytes: u64,
}

impl<'a> Live<'a> {
    pub(crate) fn new(graph: &'a Graph) -> Self {
        let left = graph.tasks().map(|task| graph.consumers(task).len() as u32).collect();
        Self { graph, left, bytes: 0 }
    }

    /// Runs a task, and returns what was live meanwhile.
    #[inline]
    pub(crate) fn run(&mut self, task: TaskId) -> u64 {
        let graph = self.graph;
        self.bytes += graph.bytes(task);
        let during = self.bytes + graph.work(task);
        for input in graph.needs(task) {
            let left = &mut self.left[input.index()];
            *left -= 1;
            if *left == 0 && graph.output(input) != Output::Kept {
                self.bytes -= graph.bytes(input);
            }
        }
        if self.left[task.index()] == 0 && graph.output(task) != Output::Kept {
            self.bytes -= graph.bytes(task);
        }
        during
    }
}

/// The most that is live if tasks run one after the other in this order, which must be one ([`check`]).
pub fn peak(graph: &Graph, order: &[TaskId]) -> Peak {
    let mut live = Live::new(graph);
    let mut peak = Peak::default();
    for (place, &task) in order.iter().enumerate() {
        let bytes = live.run(task);
        if bytes > peak.bytes {
            peak = Peak { bytes, place };
        }
    }
    peak
}

/// Bytes that are live while each task of the order runs.
pub fn profile(graph: &Graph, order: &[TaskId]) -> Vec<u64> {
    let mut live = Live::new(graph);
    order.iter().map(|&task| live.run(task)).collect()
}

/// Whether the graph can be run in this order: each task once, none before its inputs.
///
/// # Errors
/// The first place at which it cannot.
pub fn check(graph: &Graph, order: &[TaskId]) -> Result<(), OrderError> {
    if order.len() != graph.len() {
        return Err(OrderError::Count { named: order.len(), tasks: graph.len() });
    }
    let mut ran = vec![false; graph.len()];
    for (place, &task) in order.iter().enumerate() {
        if ran.get(task.index()).is_none_or(|&ran| ran) {
            return Err(OrderError::Repeated { place });
        }
        if graph.needs(task).any(|input| !ran[input.index()]) {
            return Err(OrderError::TooEarly { place });
        }
        ran[task.index()] = true;
    }
    Ok(())
}

/// No order takes less: what the task needs that needs most, or what is kept at the end.
pub fn least(graph: &Graph) -> u64 {
    let kept = graph.tasks().filter(|&task| graph.output(task) == Output::Kept);
    let kept = kept.map(|task| graph.bytes(task)).sum();
    graph.tasks().map(|task| graph.need(task)).max().unwrap_or(0).max(kept)
}
