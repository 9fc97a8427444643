//! Putting a graph together, and what must hold of it.

use std::hash::BuildHasher;

use hashbrown::{DefaultHashBuilder, HashTable};

use crate::body::{BodyId, FunctionId, Programs};
use crate::csr::Csr;
use crate::error::GraphError;
use crate::graph::{Graph, Keys, MOST_BYTES, Output, TaskId};

/// What a task is given.
#[derive(Clone, Copy, Debug)]
pub enum Inputs<'a> {
    /// By keys, of tasks that may be added later.
    Keys(&'a [&'a str]),
    /// Tasks that were added before.
    Tasks(&'a [TaskId]),
}

/// A task to be added.
#[derive(Clone, Copy, Debug)]
pub struct Task<'a> {
    /// Its name.
    pub key: &'a str,
    /// What it computes.
    pub body: BodyId,
    /// Of what, in order.
    pub inputs: Inputs<'a>,
    /// The size of its result, in bytes.
    pub bytes: u64,
    /// Bytes that it takes while it runs, beyond inputs and result.
    pub work: u64,
    /// How long it takes, in seconds; 0 if that is not known.
    pub seconds: f32,
    /// What becomes of its result.
    pub output: Output,
    /// Whether it reads its result from storage, and so can be run again instead of being written out.
    pub source: bool,
    /// Where in the user's program it comes from: file and line, or the expression.
    pub origin: &'a str,
}

impl<'a> Task<'a> {
    /// A task with nothing but key, function and inputs.
    pub fn new(key: &'a str, function: FunctionId, inputs: Inputs<'a>) -> Self {
        let body = BodyId::function(function);
        let (bytes, work, seconds, output) = (0, 0, 0.0, Output::No);
        Self { key, body, inputs, bytes, work, seconds, output, source: false, origin: "" }
    }
}

/// Puts a graph together.
///
/// ```
/// use bdrun_graph::{Builder, FunctionId, Inputs, Output, Task};
///
/// let (read, add) = (FunctionId(0), FunctionId(1));
/// let mut builder = Builder::default();
/// let x = Task { bytes: 800, source: true, ..Task::new("x", read, Inputs::Keys(&[])) };
/// builder.add(x)?;
/// let sum = Task { bytes: 800, output: Output::Kept, ..Task::new("sum", add, Inputs::Keys(&["x", "x"])) };
/// builder.add(sum)?;
/// let graph = builder.build()?;
/// assert_eq!(graph.len(), 2);
/// # Ok::<(), bdrun_graph::GraphError>(())
/// ```
#[derive(Debug, Default)]
pub struct Builder {
    keys: Keys,
    index: HashTable<u32>,
    hasher: DefaultHashBuilder,
    bodies: Vec<BodyId>,
    bytes: Vec<u64>,
    work: Vec<u64>,
    seconds: Vec<f32>,
    outputs: Vec<Output>,
    sources: Vec<bool>,
    origins: Vec<u32>,
    origin_names: Keys,
    origin_index: HashTable<u32>,
    /// Tasks, or with the high bit set keys of `pending`.
    inputs: Csr,
    pending: Keys,
    programs: Programs,
}

const PENDING: u32 = 1 << 31;

impl Builder {
    /// The bodies that this graph's tasks may have.
    pub fn programs(&mut self) -> &mut Programs {
        &mut self.programs
    }

    /// The task with this key, if there is one yet.
    pub fn find(&self, key: &str) -> Option<TaskId> {
        let hash = self.hasher.hash_one(key);
        self.index.find(hash, |&at| self.keys.get(at as usize) == key).map(|&at| TaskId(at))
    }

    fn origin(&mut self, origin: &str) -> u32 {
        // Tasks of one expression come one after the other.
        if let Some(&last) = self.origins.last()
            && self.origin_names.get(last as usize) == origin
        {
            return last;
        }
        let names = &self.origin_names;
        let hash = self.hasher.hash_one(origin);
        if let Some(&found) = self.origin_index.find(hash, |&at| names.get(at as usize) == origin) {
            return found;
        }
        let at = names.len() as u32;
        self.origin_names.push(origin);
        let (names, hasher) = (&self.origin_names, &self.hasher);
        self.origin_index.insert_unique(hash, at, |&at| hasher.hash_one(names.get(at as usize)));
        at
    }

    /// Adds a task.
    ///
    /// # Errors
    /// If there is one with this key, if a source has inputs, if its cost is negative or no number, if its
    /// body is none of [`Builder::programs`] or is given inputs that it has not, or if there are 2^31 tasks.
    ///
    /// # Panics
    /// If an input is a task that was not added.
    pub fn add(&mut self, task: Task<'_>) -> Result<TaskId, GraphError> {
        if let Some(first) = self.find(task.key) {
            return Err(GraphError::Duplicate {
                key: task.key.into(),
                first: self.origin_names.get(self.origins[first.index()] as usize).into(),
                second: task.origin.into(),
            });
        }
        let (key, origin) = (|| task.key.to_owned(), || task.origin.to_owned());
        if !(task.seconds >= 0.0 && task.seconds.is_finite()) {
            return Err(GraphError::Cost { key: key(), origin: origin(), seconds: task.seconds.to_string() });
        }
        let inputs = match task.inputs {
            Inputs::Keys(keys) => keys.len(),
            Inputs::Tasks(tasks) => tasks.len(),
        };
        if task.source && inputs > 0 {
            return Err(GraphError::SourceWithInputs { key: key(), origin: origin() });
        }
        if !self.programs.is_for(task.body, inputs) {
            return Err(GraphError::Body { key: key(), origin: origin() });
        }
        let id =
            u32::try_from(self.bodies.len()).ok().filter(|&id| id < PENDING).ok_or(GraphError::TooMany)?;
        match task.inputs {
            Inputs::Tasks(tasks) => {
                assert!(tasks.iter().all(|input| input.0 < id), "inputs of {} are added before it", task.key);
                self.inputs.push(tasks.iter().map(|input| input.0));
            }
            Inputs::Keys(keys) => {
                let mut row = Vec::with_capacity(keys.len());
                for key in keys {
                    row.push(match self.find(key) {
                        Some(found) => found.0,
                        None => {
                            self.pending.push(key);
                            (self.pending.len() - 1) as u32 | PENDING
                        }
                    });
                }
                self.inputs.push(row);
            }
        }
        let origin = self.origin(task.origin);
        self.keys.push(task.key);
        let (keys, hasher) = (&self.keys, &self.hasher);
        let hash = hasher.hash_one(task.key);
        self.index.insert_unique(hash, id, |&at| hasher.hash_one(keys.get(at as usize)));
        self.bodies.push(task.body);
        self.bytes.push(task.bytes);
        self.work.push(task.work);
        self.seconds.push(task.seconds);
        self.outputs.push(task.output);
        self.sources.push(task.source);
        self.origins.push(origin);
        Ok(TaskId(id))
    }

    /// Bytes and work of all tasks, or which of them is the first with which they are too many.
    fn total(&self) -> Result<u64, GraphError> {
        let mut total = 0_u64;
        for (task, (&bytes, &work)) in self.bytes.iter().zip(&self.work).enumerate() {
            let sum = total.checked_add(bytes).and_then(|sum| sum.checked_add(work));
            total = sum.filter(|&sum| sum <= MOST_BYTES).ok_or_else(|| GraphError::Bytes {
                key: self.keys.get(task).into(),
                origin: self.origin_names.get(self.origins[task] as usize).into(),
            })?;
        }
        Ok(total)
    }

    /// The graph.
    ///
    /// # Errors
    /// If a task needs a key that no task has, tasks need each other in a circle, or bytes and work of all
    /// tasks together are 2^63 or more.
    pub fn build(mut self) -> Result<Graph, GraphError> {
        let tasks = self.bodies.len();
        let total = self.total()?;
        if self.pending.len() > 0 {
            for task in 0..tasks {
                for place in 0..self.inputs.row(task).len() {
                    let input = self.inputs.row(task)[place];
                    if input & PENDING == 0 {
                        continue;
                    }
                    let key = self.pending.get((input & !PENDING) as usize);
                    let found = self.find(key).ok_or_else(|| GraphError::Unknown {
                        key: key.into(),
                        task: self.keys.get(task).into(),
                        origin: self.origin_names.get(self.origins[task] as usize).into(),
                    })?;
                    self.inputs.row_mut(task)[place] = found.0;
                }
            }
        }
        let needs = self.inputs.distinct();
        let consumers = needs.transposed(tasks);
        let graph = Graph {
            keys: self.keys,
            bodies: self.bodies,
            bytes: self.bytes,
            work: self.work,
            total,
            costed: self.seconds.iter().map(|&seconds| seconds > 0.0).collect(),
            seconds: self.seconds,
            outputs: self.outputs,
            sources: self.sources,
            origins: self.origins,
            origin_names: self.origin_names,
            inputs: if self.inputs.rows() == 0 { Csr::with_capacity(0, 0) } else { self.inputs },
            needs,
            consumers,
            programs: self.programs,
        };
        match circle(&graph) {
            Some(circle) => Err(GraphError::Cycle(
                circle.into_iter().map(|task| (graph.key(task).into(), graph.origin(task).into())).collect(),
            )),
            None => Ok(graph),
        }
    }
}

/// Tasks each of which needs the next, and the last the first.
fn circle(graph: &Graph) -> Option<Vec<TaskId>> {
    let mut missing: Vec<u32> = graph.tasks().map(|task| graph.needs(task).len() as u32).collect();
    let mut ready: Vec<TaskId> = graph.tasks().filter(|task| missing[task.index()] == 0).collect();
    let mut ran = 0;
    while let Some(task) = ready.pop() {
        ran += 1;
        for consumer in graph.consumers(task) {
            missing[consumer.index()] -= 1;
            if missing[consumer.index()] == 0 {
                ready.push(consumer);
            }
        }
    }
    if ran == graph.len() {
        return None;
    }
    // Every task that is left needs one that is left: whoever follows them comes back to where they were.
    let left = |task: &TaskId| missing[task.index()] > 0;
    let mut at = graph.tasks().find(left).expect("not all ran");
    let mut seen = vec![u32::MAX; graph.len()];
    let mut path = Vec::new();
    while seen[at.index()] == u32::MAX {
        seen[at.index()] = path.len() as u32;
        path.push(at);
        at = graph.needs(at).find(left).expect("what is left needs another that is left");
    }
    Some(path.split_off(seen[at.index()] as usize))
}
