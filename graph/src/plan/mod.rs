//! What is done when, within a budget: runs, and what is written to scratch and read again between them.
//!
//! The order is known, so it is known when each result is needed next. What is needed furthest away makes
//! room first (Belady 1966, A study of replacement algorithms for a virtual-storage computer). That is the
//! optimum if all results have one size and cost the same; here those that must be written before they can go
//! have their distance halved, for they cost a write and a read, where a source or what is on scratch already
//! costs a read alone.

mod belady;
mod gather;
#[cfg(test)]
mod tests;

pub use belady::plan;
pub use gather::least_moved;

use crate::body::Body;
use crate::graph::{Graph, Output, TaskId};
use crate::passes::Keeping;

/// Whether a result is read from its source again rather than written to scratch: nobody asked for it,
/// running the source beside what a task needs takes no more than that task then takes, and it is not dear.
/// What is kept is written: at the end it has to be somewhere; and what is stored would be stored twice.
///
/// A function that is said to be a source is run again whatever it costs: that is what was said. What passes
/// have put together of one and of others is if it is known to cost no more than to write the result and to
/// read it ([`Keeping`]).
pub fn is_again(graph: &Graph, task: TaskId) -> bool {
    let room = |consumer: TaskId| graph.bytes(consumer) + graph.work(consumer);
    let is_source = graph.is_source(task) && graph.output(task) == Output::No;
    is_source
        && is_cheap(graph, task)
        && graph.consumers(task).all(|consumer| graph.work(task) <= room(consumer))
}

fn is_cheap(graph: &Graph, task: TaskId) -> bool {
    let kept = graph.bytes(task) as f64 * Keeping::default().seconds_per_byte;
    match graph.body(task).body() {
        Body::Function(_) => true,
        Body::Program(_) => graph.is_cost_known(task) && graph.seconds(task) <= kept,
    }
}

/// One thing to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Run the task. Its inputs are in memory.
    Run(TaskId),
    /// Write the task's result to scratch, and release it.
    Write(TaskId),
    /// Release the task's result, which is on scratch or can be read from its source again.
    Drop(TaskId),
    /// Bring the task's result into memory again: from scratch, or if it was never written by running the
    /// source.
    Read(TaskId),
}

/// What to do, one after the other. A result is released, without an action, when the last task that needs it
/// has run, if it is not to be kept.
#[derive(Clone, Debug)]
pub struct Plan {
    /// In this order.
    pub actions: Vec<Action>,
    /// Bytes within which it can be done.
    pub budget: u64,
    /// Bytes that are live at most, one action after the other.
    pub peak: u64,
    /// Bytes that are written to scratch.
    pub written: u64,
    /// Bytes that are read from scratch.
    pub read: u64,
    /// Bytes of results of sources that are run again: what of storage they read for that may be more, or
    /// less.
    pub again: u64,
}

impl Plan {
    /// All bytes that are moved because the budget is less than the peak of the order.
    pub fn moved(&self) -> u64 {
        self.written.saturating_add(self.read).saturating_add(self.again)
    }

    /// In which order the tasks run.
    pub fn order(&self) -> impl Iterator<Item = TaskId> + '_ {
        self.actions.iter().filter_map(|action| match action {
            Action::Run(task) => Some(*task),
            _ => None,
        })
    }

    /// Does the plan in mind, to see that it can be done: each input is in memory when a task runs, each
    /// result is where it is read from, and no more is live than the budget. Returns what is live at most.
    ///
    /// # Errors
    /// In words, what cannot be done, by its place.
    pub fn verify(&self, graph: &Graph) -> Result<u64, String> {
        let mut left: Vec<usize> = graph.tasks().map(|task| graph.consumers(task).len()).collect();
        let (mut here, mut ran) = (vec![false; graph.len()], vec![false; graph.len()]);
        let mut written = vec![false; graph.len()];
        let (mut live, mut peak, mut runs) = (0_u64, 0, 0);
        for (place, &action) in self.actions.iter().enumerate() {
            let wrong =
                |what: &str, task: TaskId| Err(format!("{place}: {action:?}: {what} {}", graph.key(task)));
            match action {
                Action::Run(task) => {
                    if ran[task.index()] {
                        return wrong("again", task);
                    }
                    if let Some(input) = graph.needs(task).find(|input| !here[input.index()]) {
                        return wrong("not there:", input);
                    }
                    (ran[task.index()], here[task.index()]) = (true, true);
                    runs += 1;
                    live += graph.bytes(task);
                    peak = peak.max(live + graph.work(task));
                    let inputs =
                        graph.needs(task).inspect(|input| left[input.index()] -= 1).collect::<Vec<_>>();
                    for other in inputs.into_iter().chain([task]) {
                        if left[other.index()] == 0 && graph.output(other) != Output::Kept {
                            here[other.index()] = false;
                            live -= graph.bytes(other);
                        }
                    }
                }
                Action::Write(task) | Action::Drop(task) => {
                    if !std::mem::replace(&mut here[task.index()], false) {
                        return wrong("not there:", task);
                    }
                    if matches!(action, Action::Write(_)) {
                        written[task.index()] = true;
                    } else if !(written[task.index()] || is_again(graph, task)) {
                        return wrong("would be lost:", task);
                    }
                    live -= graph.bytes(task);
                }
                Action::Read(task) => {
                    let is_somewhere = ran[task.index()] && (written[task.index()] || is_again(graph, task));
                    if std::mem::replace(&mut here[task.index()], true) || !is_somewhere {
                        return wrong("cannot be read:", task);
                    }
                    live += graph.bytes(task);
                    // A source is run.
                    peak = peak.max(live + if written[task.index()] { 0 } else { graph.work(task) });
                }
            }
            if peak > self.budget {
                return Err(format!("{place}: {action:?}: {peak} bytes are live, of {}", self.budget));
            }
        }
        if runs == graph.len() { Ok(peak) } else { Err(format!("{runs} tasks of {} run", graph.len())) }
    }
}
