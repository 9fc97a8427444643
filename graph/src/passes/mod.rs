//! Graphs made into others that compute the same outputs.
//!
//! Functions are taken to be pure: what they return depends on nothing but what they are given (of sources:
//! on storage, which does not change meanwhile). None of these passes raises the least peak in which a graph
//! can be run; why is said at each, and tests compare the optima of small graphs.

mod cull;
mod draft;
mod fuse;
mod inline;
mod origins;
#[cfg(test)]
mod tests;

pub use cull::cull;
pub use fuse::{fuse, fuse_where};
pub use inline::{Keeping, inline};
pub use origins::Origins;

use crate::csr::Csr;
use crate::graph::{Graph, TaskId};

/// A graph, and what became of the tasks it was made from.
#[derive(Clone, Debug)]
pub struct Rewritten {
    /// The graph.
    pub graph: Graph,
    /// Of each task of it, by number, the tasks of the former graph that it computes, one for each step of
    /// its body, the last of which has its key.
    pub steps: Csr,
}

impl Rewritten {
    /// This one's tasks in terms of the graph that the former was made from.
    #[must_use]
    pub fn after(self, former: &Rewritten) -> Self {
        let mut steps = Csr::with_capacity(self.steps.rows(), self.steps.entries());
        for task in 0..self.steps.rows() {
            let row = self.steps.row(task);
            // A body is always there whole: its steps one after the other.
            let mut place = 0;
            steps.push(row.iter().enumerate().map(|(at, &step)| {
                place = if at > 0 && row[at - 1] == step { place + 1 } else { 0 };
                let body = former.steps.row(step as usize);
                body[place % body.len()]
            }));
        }
        Self { graph: self.graph, steps }
    }

    /// Which task of the former graph a step of a task's body computes.
    pub fn origin(&self, task: TaskId, step: usize) -> TaskId {
        TaskId(self.steps.row(task.index())[step])
    }
}
