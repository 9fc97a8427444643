//! A graph under revision.

use super::Rewritten;
use crate::body::{Argument, BodyId, Programs, Step};
use crate::csr::Csr;
use crate::graph::{Graph, Keys, TaskId};

/// A task that is not as it was.
#[derive(Clone, Debug)]
pub(super) struct Change {
    pub(super) steps: Vec<Step>,
    /// Tasks of the former graph, in the order of arguments.
    pub(super) inputs: Vec<TaskId>,
    pub(super) work: u64,
    pub(super) seconds: f32,
    pub(super) source: bool,
    /// Of each step the task of the former graph.
    pub(super) computes: Vec<u32>,
}

impl Change {
    /// Puts a body before this one: what was given of `other` is computed here.
    pub(super) fn absorb(&mut self, other: TaskId, before: &Change) {
        let shift = before.steps.len() as u32;
        let place = before.inputs.len() as u32;
        // The inputs of both, what this one had behind the others, and `other` itself nowhere.
        let mut moved = Vec::with_capacity(self.inputs.len());
        let mut inputs = before.inputs.clone();
        for &input in &self.inputs {
            moved.push((input != other).then_some(place + (inputs.len() as u32 - place)));
            if input != other {
                inputs.push(input);
            }
        }
        let mut steps = before.steps.clone();
        for step in &self.steps {
            let arguments = step.arguments.iter().map(|&argument| match argument {
                Argument::Step(at) => Argument::Step(at + shift),
                Argument::Input(at) => match moved[at as usize] {
                    Some(at) => Argument::Input(at),
                    None => Argument::Step(shift - 1),
                },
            });
            steps.push(Step { function: step.function, arguments: arguments.collect() });
        }
        self.steps = steps;
        self.inputs = inputs;
        self.seconds += before.seconds;
        self.computes.splice(0..0, before.computes.iter().copied());
    }
}

/// A graph, and what is to be changed of it.
pub(super) struct Draft<'a> {
    graph: &'a Graph,
    removed: Vec<bool>,
    changes: Vec<Option<Box<Change>>>,
}

impl<'a> Draft<'a> {
    pub(super) fn new(graph: &'a Graph) -> Self {
        let changes = std::iter::repeat_with(|| None).take(graph.len()).collect();
        Self { graph, removed: vec![false; graph.len()], changes }
    }

    pub(super) fn remove(&mut self, task: TaskId) {
        self.removed[task.index()] = true;
        self.changes[task.index()] = None;
    }

    pub(super) fn is_removed(&self, task: TaskId) -> bool {
        self.removed[task.index()]
    }

    /// The task as it is now.
    pub(super) fn current(&self, task: TaskId) -> Change {
        match &self.changes[task.index()] {
            Some(change) => (**change).clone(),
            None => Change {
                steps: self.graph.programs().steps(self.graph.body(task), self.graph.inputs(task).len()),
                inputs: self.graph.inputs(task).collect(),
                work: self.graph.work(task),
                seconds: self.graph.seconds[task.index()],
                source: self.graph.is_source(task),
                computes: Vec::new(),
            }
            .computing(task),
        }
    }

    pub(super) fn change(&mut self, task: TaskId, change: Change) {
        self.changes[task.index()] = Some(Box::new(change));
    }

    /// What the task needs now, each once.
    pub(super) fn needs(&self, task: TaskId) -> Vec<TaskId> {
        match &self.changes[task.index()] {
            Some(change) => {
                let mut needs = change.inputs.clone();
                needs.sort_unstable();
                needs.dedup();
                needs
            }
            None => self.graph.needs(task).collect(),
        }
    }

    /// Bytes of work of the task now.
    pub(super) fn work(&self, task: TaskId) -> u64 {
        self.changes[task.index()].as_ref().map_or(self.graph.work(task), |change| change.work)
    }

    /// Its cost now, in seconds.
    pub(super) fn seconds(&self, task: TaskId) -> f64 {
        self.changes[task.index()]
            .as_ref()
            .map_or(self.graph.seconds(task), |change| f64::from(change.seconds))
    }

    /// Whether it is a source now.
    pub(super) fn is_source(&self, task: TaskId) -> bool {
        self.changes[task.index()].as_ref().map_or(self.graph.is_source(task), |change| change.source)
    }

    /// The graph as it is now.
    pub(super) fn finish(self) -> Rewritten {
        let graph = self.graph;
        let rest: Vec<TaskId> = graph.tasks().filter(|&task| !self.is_removed(task)).collect();
        let mut numbers = vec![u32::MAX; graph.len()];
        for (number, task) in rest.iter().enumerate() {
            numbers[task.index()] = number as u32;
        }
        let mut programs = Programs::default();
        let (mut keys, mut bodies) = (Keys::default(), Vec::<BodyId>::with_capacity(rest.len()));
        let mut inputs = Csr::with_capacity(rest.len(), graph.inputs.entries());
        let mut steps = Csr::with_capacity(rest.len(), graph.len());
        for &task in &rest {
            keys.push(graph.key(task));
            let number = |input: TaskId| {
                let number = numbers[input.index()];
                debug_assert!(number != u32::MAX, "an input was removed");
                number
            };
            match &self.changes[task.index()] {
                Some(change) => {
                    bodies.push(programs.intern_task(&change.steps, change.inputs.len()));
                    inputs.push(change.inputs.iter().map(|&input| number(input)));
                    steps.push(change.computes.iter().copied());
                }
                None => {
                    let all = graph.programs().steps(graph.body(task), graph.inputs(task).len());
                    bodies.push(programs.intern_task(&all, graph.inputs(task).len()));
                    inputs.push(graph.inputs(task).map(number));
                    steps.push(std::iter::repeat_n(task.0, all.len()));
                }
            }
        }
        let needs = inputs.distinct();
        let consumers = needs.transposed(rest.len());
        let made = Graph {
            keys,
            bodies,
            bytes: rest.iter().map(|&task| graph.bytes(task)).collect(),
            work: rest.iter().map(|&task| self.work(task)).collect(),
            seconds: rest.iter().map(|&task| self.seconds(task) as f32).collect(),
            outputs: rest.iter().map(|&task| graph.output(task)).collect(),
            sources: rest.iter().map(|&task| self.is_source(task)).collect(),
            origins: rest.iter().map(|task| graph.origins[task.index()]).collect(),
            origin_names: graph.origin_names.clone(),
            inputs,
            needs,
            consumers,
            programs,
        };
        Rewritten { graph: made, steps }
    }
}

impl Change {
    /// Each step so far computes part of `task`.
    fn computing(mut self, task: TaskId) -> Self {
        self.computes = vec![task.0; self.steps.len()];
        self
    }
}
