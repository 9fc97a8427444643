//! What is expected of a task: what others of its group took.

use super::State;
use crate::graph::{Graph, TaskId};

/// What tasks of a group took, in bytes.
#[derive(Clone, Copy, Debug, Default)]
struct Group {
    done: u64,
    /// The sum of their results.
    bytes: f64,
    /// The largest result, and what one took at most.
    most_bytes: u64,
    most_took: u64,
}

#[derive(Debug)]
pub(super) struct Sizes {
    groups: Vec<u32>,
    of: Vec<Group>,
    /// What the first one of a group takes if nothing is known, and at most, whatever its inputs are.
    unknown: u64,
    most_unknown: u64,
}

/// So much of what is left must have another size than it was taken to have when that was last asked.
const CHANGED: u64 = 8;

impl Sizes {
    pub(super) fn new(groups: Vec<u32>, unknown: u64, most_unknown: u64) -> Self {
        let count = groups.iter().map(|&group| group as usize + 1).max().unwrap_or(0);
        Self { groups, of: vec![Group::default(); count], unknown, most_unknown }
    }

    fn group(&self, task: TaskId) -> &Group {
        &self.of[self.groups[task.index()] as usize]
    }

    /// Whether anything is known.
    pub(super) fn are_known(&self) -> bool {
        self.of.iter().any(|group| group.done > 0)
    }

    /// Whether two tasks are of one group, of which none was done.
    pub(super) fn are_alike_and_unknown(&self, task: TaskId, other: TaskId) -> bool {
        self.groups[task.index()] == self.groups[other.index()] && self.group(task).done == 0
    }

    pub(super) fn learn(&mut self, task: TaskId, bytes: u64, took: u64) {
        let group = &mut self.of[self.groups[task.index()] as usize];
        group.done += 1;
        group.bytes += bytes as f64;
        group.most_bytes = group.most_bytes.max(bytes);
        group.most_took = group.most_took.max(took);
    }

    /// What a task is expected to take beyond its inputs: what it took at most of its group while it ran, and
    /// its result once more, for that is copied. Of a group of which none was done: as much as its inputs,
    /// twice, but not more than a share of the budget: often what has many inputs makes little of them. What
    /// they have together is asked only then.
    pub(super) fn expected(&self, task: TaskId, inputs: impl FnOnce() -> u64) -> u64 {
        let group = self.group(task);
        if group.done > 0 {
            return group.most_took.max(group.most_bytes) + group.most_bytes;
        }
        let inputs = inputs();
        if inputs > 0 { inputs.saturating_mul(2).min(self.most_unknown) } else { self.unknown }
    }

    /// Sets the sizes of results that are not made: the mean of the group, or the largest input. Says
    /// whether that changes much of what is left.
    pub(super) fn guess(&mut self, graph: &mut Graph, states: &[State]) -> bool {
        let (mut changed, mut all) = (0, 0);
        // Inputs first: as the tasks can run, which need not be as they were added.
        let mut missing: Vec<u32> = graph.tasks().map(|task| graph.needs(task).len() as u32).collect();
        let mut ready: Vec<TaskId> = graph.tasks().filter(|task| missing[task.index()] == 0).collect();
        while let Some(task) = ready.pop() {
            if matches!(states[task.index()], State::Waits) {
                let group = self.group(task);
                let largest = graph.needs(task).map(|input| graph.bytes(input)).max();
                let guess = if group.done > 0 {
                    (group.bytes / group.done as f64) as u64
                } else {
                    largest.unwrap_or(self.unknown)
                };
                let guess = guess.max(1);
                changed += guess.abs_diff(graph.bytes(task));
                all += guess;
                graph.bytes[task.index()] = guess;
                graph.work[task.index()] = group.most_took.max(group.most_bytes);
            }
            for at in 0..graph.consumers.row(task.index()).len() {
                let consumer = graph.consumers.row(task.index())[at];
                missing[consumer as usize] -= 1;
                if missing[consumer as usize] == 0 {
                    ready.push(TaskId(consumer));
                }
            }
        }
        changed > all / CHANGED
    }
}
