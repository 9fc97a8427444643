//! What went wrong, and where it came from.

use std::fmt;

use crate::csr::Csr;
use crate::graph::{Graph, TaskId};

/// What a function says went wrong.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;

/// A task by key and origin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    /// Its key.
    pub key: String,
    /// Where in the user's program it came from.
    pub origin: String,
}

impl Named {
    /// A task of a graph.
    pub fn new(graph: &Graph, task: TaskId) -> Self {
        Self { key: graph.key(task).into(), origin: graph.origin(task).into() }
    }
}

impl fmt::Display for Named {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.origin.is_empty() {
            write!(out, "{}", self.key)
        } else {
            write!(out, "{} ({})", self.key, self.origin)
        }
    }
}

/// Why an execution ended early.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// A function failed or panicked.
    #[error(transparent)]
    Task(Box<TaskFailure>),
    /// A result is larger than the graph says, so that the budget would not be kept.
    #[error("the result of task {task} has {bytes} bytes, and the graph says {declared}")]
    Size {
        /// The task.
        task: Named,
        /// What its result has.
        bytes: u64,
        /// What was declared.
        declared: u64,
    },
    /// A result could not be written to scratch, or read from it.
    #[error("the result of task {task} cannot be {what} scratch: {error}")]
    Store {
        /// The task.
        task: Named,
        /// "written to" or "read from".
        what: &'static str,
        /// Why.
        error: std::io::Error,
    },
    /// It was cancelled.
    #[error("cancelled")]
    Cancelled,
    /// No step can start: a defect of this crate.
    #[error("no step of the plan can start, which is a defect of bdrun-graph")]
    Stuck,
}

/// A function that failed or panicked, and where what it was given came from.
#[derive(Debug, thiserror::Error)]
#[error("task {task} failed: {cause}{}{}", list("; it was given ", .inputs), list("; that was made from ", .sources))]
pub struct TaskFailure {
    /// The task.
    pub task: Named,
    /// Its number in the graph.
    pub id: TaskId,
    /// Which step of its body failed, from 0.
    pub step: usize,
    /// What its task was given; [`Origins`](crate::passes::Origins) know what the step was.
    pub inputs: Vec<Named>,
    /// Tasks without inputs that these were made from, the first [`SOURCES`] of them, and one more if there
    /// are more.
    pub sources: Vec<Named>,
    /// What went wrong.
    pub cause: Failure,
}

/// So many sources are named.
pub const SOURCES: usize = 8;

fn list(before: &str, tasks: &[Named]) -> String {
    if tasks.is_empty() {
        return String::new();
    }
    let names: Vec<String> = tasks.iter().take(SOURCES).map(Named::to_string).collect();
    format!("{before}{}{}", names.join(", "), if tasks.len() > SOURCES { ", …" } else { "" })
}

impl RunError {
    /// A function failed: that of this step of the task's body.
    pub fn task(graph: &Graph, task: TaskId, step: usize, cause: Failure) -> Self {
        let inputs = graph.needs(task).map(|input| Named::new(graph, input)).collect();
        let sources = sources(&graph.needs, task).into_iter().map(|source| Named::new(graph, source));
        let sources = sources.collect();
        let task = TaskFailure { task: Named::new(graph, task), id: task, step, inputs, sources, cause };
        Self::Task(Box::new(task))
    }
}

/// Tasks without inputs that a task's inputs are made from, nearest first, by what each task needs. One more
/// than [`SOURCES`] at most, which tells that there are more.
pub(crate) fn sources(needs: &Csr, task: TaskId) -> Vec<TaskId> {
    let mut seen = hashbrown::HashSet::new();
    let mut next: std::collections::VecDeque<u32> = needs.row(task.index()).iter().copied().collect();
    let mut found = Vec::new();
    while let Some(at) = next.pop_front() {
        if found.len() > SOURCES {
            break;
        }
        if !seen.insert(at) {
            continue;
        }
        let row = needs.row(at as usize);
        if row.is_empty() {
            found.push(TaskId(at));
        }
        next.extend(row);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Builder, FunctionId, Inputs, Task};

    #[test]
    fn that_there_are_more_sources_is_said() {
        for (count, more) in [(SOURCES, false), (SOURCES + 1, true), (5000, true)] {
            let mut builder = Builder::default();
            let keys: Vec<String> = (0..count).map(|at| format!("file-{at}")).collect();
            let names: Vec<&str> = keys.iter().map(String::as_str).collect();
            for key in &keys {
                builder.add(Task::new(key, FunctionId(0), Inputs::Keys(&[]))).unwrap();
            }
            builder.add(Task::new("all", FunctionId(0), Inputs::Keys(&names))).unwrap();
            let last = builder.add(Task::new("last", FunctionId(0), Inputs::Keys(&["all"]))).unwrap();
            let text = RunError::task(&builder.build().unwrap(), last, 0, "no".into()).to_string();
            let sources = text.split("; that was made from ").nth(1).unwrap();
            assert_eq!(sources.matches("file-").count(), SOURCES, "{text}");
            assert_eq!(sources.ends_with(", …"), more, "{text}");
        }
    }
}
