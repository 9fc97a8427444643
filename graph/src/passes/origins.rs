//! What tasks were called before passes made them part of others.

use super::Rewritten;
use crate::csr::Csr;
use crate::graph::{Graph, Keys, TaskId};
use crate::run::{Named, RunError, sources};

/// The key and origin of each step of a graph's tasks, and what it was given, without the rest of the graph
/// that it was made from.
#[derive(Clone, Debug)]
pub struct Origins {
    steps: Csr,
    keys: Keys,
    origins: Vec<u32>,
    names: Keys,
    /// Of each task of the former graph those whose results it needs.
    needs: Csr,
}

impl Rewritten {
    /// The graph, and where its steps came from in the former one.
    pub fn apart(self, former: Graph) -> (Graph, Origins) {
        let Graph { keys, origins, origin_names: names, needs, .. } = former;
        (self.graph, Origins { steps: self.steps, keys, origins, names, needs })
    }
}

impl Origins {
    /// What a step of a task's body was.
    pub fn of(&self, task: TaskId, step: usize) -> Named {
        self.former(TaskId(self.steps.row(task.index())[step]))
    }

    /// A task of the former graph.
    fn former(&self, task: TaskId) -> Named {
        let origin = self.names.get(self.origins[task.index()] as usize);
        Named { key: self.keys.get(task.index()).into(), origin: origin.into() }
    }

    /// The same error, but that it names the step that failed, and what that was given: a task has key and
    /// origin of its last one, and what all of them are given.
    #[must_use]
    pub fn named(&self, mut error: RunError) -> RunError {
        if let RunError::Task(failure) = &mut error {
            let step = TaskId(self.steps.row(failure.id.index())[failure.step]);
            failure.task = self.former(step);
            let inputs = self.needs.row(step.index()).iter();
            failure.inputs = inputs.map(|&input| self.former(TaskId(input))).collect();
            let sources = sources(&self.needs, step).into_iter();
            failure.sources = sources.map(|source| self.former(source)).collect();
        }
        error
    }
}
