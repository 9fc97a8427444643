//! What tasks were called before passes made them part of others.

use super::Rewritten;
use crate::csr::Csr;
use crate::graph::{Graph, Keys, TaskId};
use crate::run::{Named, RunError};

/// The key and origin of each step of a graph's tasks, without the rest of the graph that it was made from.
#[derive(Clone, Debug)]
pub struct Origins {
    steps: Csr,
    keys: Keys,
    origins: Vec<u32>,
    names: Keys,
}

impl Rewritten {
    /// The graph, and where its steps came from in the former one.
    pub fn apart(self, former: Graph) -> (Graph, Origins) {
        let (keys, origins, names) = (former.keys, former.origins, former.origin_names);
        (self.graph, Origins { steps: self.steps, keys, origins, names })
    }
}

impl Origins {
    /// What a step of a task's body was.
    pub fn of(&self, task: TaskId, step: usize) -> Named {
        let former = self.steps.row(task.index())[step] as usize;
        let origin = self.names.get(self.origins[former] as usize);
        Named { key: self.keys.get(former).into(), origin: origin.into() }
    }

    /// The same error, but that it names the step that failed: a task has key and origin of its last one.
    #[must_use]
    pub fn named(&self, mut error: RunError) -> RunError {
        if let RunError::Task(failure) = &mut error {
            failure.task = self.of(failure.id, failure.step);
        }
        error
    }
}
