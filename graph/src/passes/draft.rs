//! A graph under revision.

use hashbrown::HashMap;

use super::Rewritten;
use crate::body::{Argument, BodyId, Programs, Step};
use crate::csr::Csr;
use crate::graph::{Graph, Keys, TaskId};

#[cfg(test)]
thread_local! {
    /// Steps of tasks that are not as they were that were copied on this thread.
    pub(super) static COPIED: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// A task that is not as it was.
#[derive(Clone, Debug)]
pub(super) struct Change {
    pub(super) steps: Vec<Step>,
    /// Tasks of the former graph, in the order of arguments.
    pub(super) inputs: Vec<TaskId>,
    pub(super) work: u64,
    pub(super) seconds: f32,
    /// Whether the costs of all parts are known.
    pub(super) costed: bool,
    pub(super) source: bool,
    /// Of each step the task of the former graph.
    pub(super) computes: Vec<u32>,
}

impl Change {
    /// Puts bodies before this one: what was given of those tasks is computed here. Of the first one nothing
    /// is copied, so that a chain grows at its end.
    pub(super) fn absorb(&mut self, others: impl IntoIterator<Item = (TaskId, Change)>) {
        let mut others = others.into_iter();
        let Some((first, whole)) = others.next() else { return };
        let own = std::mem::replace(self, whole);
        // Of each task the step that computes it.
        let mut made = HashMap::from([(first, self.steps.len() as u32 - 1)]);
        for (task, before) in others {
            self.append(before, &HashMap::new());
            made.insert(task, self.steps.len() as u32 - 1);
        }
        (self.work, self.source) = (own.work, own.source);
        self.append(own, &made);
    }

    /// Puts a body behind this one, to be given the values of those steps for these tasks.
    fn append(&mut self, other: Change, made: &HashMap<TaskId, u32>) {
        let shift = self.steps.len() as u32;
        let inputs = &mut self.inputs;
        let place = |input: TaskId| match made.get(&input) {
            Some(&step) => Argument::Step(step),
            None => {
                inputs.push(input);
                Argument::Input(inputs.len() as u32 - 1)
            }
        };
        let places: Vec<Argument> = other.inputs.into_iter().map(place).collect();
        let moved = |argument: &mut Argument| match argument {
            Argument::Step(at) => *at += shift,
            Argument::Input(at) => *argument = places[*at as usize],
        };
        self.steps.extend(other.steps.into_iter().map(|mut step| {
            step.arguments.iter_mut().for_each(moved);
            step
        }));
        self.seconds += other.seconds;
        self.costed &= other.costed;
        self.computes.extend(other.computes);
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

    /// The task as it is now, which is removed.
    pub(super) fn taken(&mut self, task: TaskId) -> Change {
        let change = self.changes[task.index()].take().map_or_else(|| self.current(task), |change| *change);
        self.remove(task);
        change
    }

    /// The task as it is now.
    pub(super) fn current(&self, task: TaskId) -> Change {
        match &self.changes[task.index()] {
            Some(change) => {
                #[cfg(test)]
                COPIED.set(COPIED.get() + change.steps.len());
                (**change).clone()
            }
            None => Change {
                steps: self.graph.programs().steps(self.graph.body(task), self.graph.inputs(task).len()),
                inputs: self.graph.inputs(task).collect(),
                work: self.graph.work(task),
                seconds: self.graph.seconds[task.index()],
                costed: self.graph.is_cost_known(task),
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

    /// Whether that is all of it.
    pub(super) fn is_cost_known(&self, task: TaskId) -> bool {
        self.changes[task.index()].as_ref().map_or(self.graph.is_cost_known(task), |change| change.costed)
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
        let mut made = Graph {
            keys,
            bodies,
            bytes: rest.iter().map(|&task| graph.bytes(task)).collect(),
            work: rest.iter().map(|&task| self.work(task)).collect(),
            total: 0,
            seconds: rest.iter().map(|&task| self.seconds(task) as f32).collect(),
            costed: rest.iter().map(|&task| self.is_cost_known(task)).collect(),
            outputs: rest.iter().map(|&task| graph.output(task)).collect(),
            sources: rest.iter().map(|&task| self.is_source(task)).collect(),
            origins: rest.iter().map(|task| graph.origins[task.index()]).collect(),
            origin_names: graph.origin_names.clone(),
            inputs,
            needs,
            consumers,
            programs,
        };
        // No pass makes it more than it may be.
        made.total = made.bytes.iter().chain(&made.work).sum();
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
