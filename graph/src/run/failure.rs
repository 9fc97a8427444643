//! What went wrong, and where it came from.

use std::fmt;

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
    /// What it was given.
    pub inputs: Vec<Named>,
    /// Tasks without inputs that these were made from, the first [`SOURCES`] of them.
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
        let sources = sources(graph, task).into_iter().map(|source| Named::new(graph, source)).collect();
        let task = TaskFailure { task: Named::new(graph, task), id: task, step, inputs, sources, cause };
        Self::Task(Box::new(task))
    }
}

/// Tasks without inputs that a task's inputs are made from, nearest first, at most [`SOURCES`].
fn sources(graph: &Graph, task: TaskId) -> Vec<TaskId> {
    let mut seen = hashbrown::HashSet::new();
    let mut next: std::collections::VecDeque<TaskId> = graph.needs(task).collect();
    let mut found = Vec::new();
    while let Some(at) = next.pop_front() {
        if found.len() == SOURCES {
            break;
        }
        if !seen.insert(at) {
            continue;
        }
        if graph.needs(at).len() == 0 {
            found.push(at);
        }
        next.extend(graph.needs(at));
    }
    found
}
