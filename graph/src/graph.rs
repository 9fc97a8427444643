//! A graph of tasks, as data.

use crate::body::{BodyId, Programs};
use crate::csr::Csr;
use crate::error::GraphError;

/// A task of a graph, by its number: tasks are numbered in the order in which they were added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskId(pub u32);

impl TaskId {
    /// As an index into arrays over tasks.
    #[inline]
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// What becomes of a result when no task needs it any more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Output {
    /// It is released, and the task runs only if an output needs it.
    #[default]
    No,
    /// It was asked for, and is released like any other: its task has stored what matters.
    Stored,
    /// It was asked for, and is kept until the end.
    Kept,
}

/// Bytes and work of all tasks together are no more, so that whatever is summed of them is a number.
pub(crate) const MOST_BYTES: u64 = i64::MAX as u64;

/// Tasks over blocks: what each one computes, of what, how large the result is and what it costs. Validated
/// when it is built ([`crate::Builder`]): without circles, every input there, every key once, each body one
/// of the graph that is given what the task has, and all bytes together a number.
///
/// Arrays over all tasks and lists of numbers, no object for each task: about 100 bytes a task and its key's
/// text.
#[derive(Clone, Debug)]
pub struct Graph {
    pub(crate) keys: Keys,
    pub(crate) bodies: Vec<BodyId>,
    pub(crate) bytes: Vec<u64>,
    pub(crate) work: Vec<u64>,
    /// Both of all tasks together.
    pub(crate) total: u64,
    pub(crate) seconds: Vec<f32>,
    /// Whether that is all it costs: of what was put together it may be that of a part.
    pub(crate) costed: Vec<bool>,
    pub(crate) outputs: Vec<Output>,
    pub(crate) sources: Vec<bool>,
    pub(crate) origins: Vec<u32>,
    pub(crate) origin_names: Keys,
    pub(crate) inputs: Csr,
    pub(crate) needs: Csr,
    pub(crate) consumers: Csr,
    pub(crate) programs: Programs,
}

impl Graph {
    /// How many tasks there are.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// All tasks, in the order in which they were added.
    pub fn tasks(&self) -> impl DoubleEndedIterator<Item = TaskId> + ExactSizeIterator + use<> {
        (0..self.len() as u32).map(TaskId)
    }

    /// A task's name.
    pub fn key(&self, task: TaskId) -> &str {
        self.keys.get(task.index())
    }

    /// Where in the user's program the task came from.
    pub fn origin(&self, task: TaskId) -> &str {
        self.origin_names.get(self.origins[task.index()] as usize)
    }

    /// What the task computes: see [`Graph::programs`].
    pub fn body(&self, task: TaskId) -> BodyId {
        self.bodies[task.index()]
    }

    /// What bodies that passes have put together consist of.
    pub fn programs(&self) -> &Programs {
        &self.programs
    }

    /// The size of its result, in bytes.
    #[inline]
    pub fn bytes(&self, task: TaskId) -> u64 {
        self.bytes[task.index()]
    }

    /// Bytes that the task takes while it runs, beyond inputs and result.
    #[inline]
    pub fn work(&self, task: TaskId) -> u64 {
        self.work[task.index()]
    }

    /// How long it takes, in seconds, as far as it is known: see [`Graph::is_cost_known`].
    pub fn seconds(&self, task: TaskId) -> f64 {
        f64::from(self.seconds[task.index()])
    }

    /// Whether it is known how long it takes: it was declared or measured, of all that it is put together of.
    pub fn is_cost_known(&self, task: TaskId) -> bool {
        self.costed[task.index()]
    }

    /// What becomes of its result.
    #[inline]
    pub fn output(&self, task: TaskId) -> Output {
        self.outputs[task.index()]
    }

    /// Whether it reads its result from storage: it has no inputs, and can be run again instead of being
    /// written out.
    pub fn is_source(&self, task: TaskId) -> bool {
        self.sources[task.index()]
    }

    /// What it is given, in order; a task may be there more than once.
    pub fn inputs(&self, task: TaskId) -> impl ExactSizeIterator<Item = TaskId> + '_ {
        self.inputs.row(task.index()).iter().map(|&at| TaskId(at))
    }

    /// The tasks whose results it needs, each one once, ascending.
    pub fn needs(&self, task: TaskId) -> impl ExactSizeIterator<Item = TaskId> + '_ {
        self.needs.row(task.index()).iter().map(|&at| TaskId(at))
    }

    /// The tasks that need its result, each one once, ascending.
    pub fn consumers(&self, task: TaskId) -> impl ExactSizeIterator<Item = TaskId> + '_ {
        self.consumers.row(task.index()).iter().map(|&at| TaskId(at))
    }

    /// What it takes to run the task when nothing else is there: inputs, result and work, in bytes.
    pub fn need(&self, task: TaskId) -> u64 {
        self.needs(task).map(|input| self.bytes(input)).sum::<u64>() + self.bytes(task) + self.work(task)
    }

    /// Sets what was measured of a task: the size of its result in bytes, and how long it took in seconds.
    ///
    /// # Errors
    /// If with it all tasks together have 2^63 bytes or more. Nothing is changed then.
    pub fn measured(&mut self, task: TaskId, bytes: u64, seconds: f32) -> Result<(), GraphError> {
        let others = self.total.saturating_sub(self.bytes(task));
        if bytes > MOST_BYTES.saturating_sub(others) {
            return Err(GraphError::Bytes { key: self.key(task).into(), origin: self.origin(task).into() });
        }
        self.total = others + bytes;
        self.bytes[task.index()] = bytes;
        self.seconds[task.index()] = seconds;
        self.costed[task.index()] = true;
        Ok(())
    }

    /// All costs together, in seconds.
    pub fn total_seconds(&self) -> f64 {
        self.seconds.iter().map(|&seconds| f64::from(seconds)).sum()
    }
}

/// Texts, one behind the other.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Keys {
    text: String,
    ends: Vec<usize>,
}

impl Keys {
    pub(crate) fn push(&mut self, key: &str) {
        self.text.push_str(key);
        self.ends.push(self.text.len());
    }

    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    pub(crate) fn get(&self, at: usize) -> &str {
        let start = if at == 0 { 0 } else { self.ends[at - 1] };
        &self.text[start..self.ends[at]]
    }
}
