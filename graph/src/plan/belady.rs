//! What makes room, and when.

use std::collections::BinaryHeap;

use super::{Action, Plan, is_again};
use crate::csr::Csr;
use crate::error::TooLarge;
use crate::graph::{Graph, Output, TaskId};

/// Who makes room first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Policy {
    /// What is needed furthest away.
    Furthest,
    /// What was used longest ago, to compare.
    #[cfg(test)]
    LeastRecent,
}

/// A plan of the order, which must be one of the graph, within a budget of bytes: what to write to scratch,
/// and what to read again. If the order's peak is within the budget nothing is moved.
///
/// # Errors
/// The task that needs most, if that is more than the budget: inputs, result and work of a task must fit
/// together. Nothing else can fail, for everything but what a task needs can be moved out for it.
pub fn plan(graph: &Graph, order: &[TaskId], budget: u64) -> Result<Plan, TooLarge> {
    plan_by(graph, order, budget, Policy::Furthest)
}

pub(super) fn plan_by(
    graph: &Graph,
    order: &[TaskId],
    budget: u64,
    policy: Policy,
) -> Result<Plan, TooLarge> {
    let largest = graph.tasks().max_by_key(|&task| graph.need(task));
    if let Some(task) = largest.filter(|&task| graph.need(task) > budget) {
        return Err(TooLarge {
            key: graph.key(task).into(),
            origin: graph.origin(task).into(),
            needed: graph.need(task),
            inputs: graph.need(task) - graph.bytes(task) - graph.work(task),
            result: graph.bytes(task),
            work: graph.work(task),
            budget,
        });
    }
    let mut planner = Planner::new(graph, order, budget, policy);
    for (place, &task) in order.iter().enumerate() {
        planner.run(place as u32, task);
    }
    Ok(planner.plan)
}

/// No further use.
const NEVER: u32 = u32::MAX;

struct Planner<'a> {
    graph: &'a Graph,
    policy: Policy,
    /// The places in the order at which each result is used, ascending, and which is next.
    uses: Csr,
    next: Vec<u32>,
    /// The rank with which each was noted last.
    rank: Vec<u32>,
    here: Vec<bool>,
    written: Vec<bool>,
    /// Which are sources to be read again.
    again: Vec<bool>,
    /// What is in memory, by the place of its next use (or the policy's): what must be written before it can
    /// go, and what need not. Entries may be out of date.
    dirty: BinaryHeap<(u32, u32)>,
    clean: BinaryHeap<(u32, u32)>,
    /// For whom no room may be made by releasing.
    held: Vec<bool>,
    live: u64,
    plan: Plan,
}

impl<'a> Planner<'a> {
    fn new(graph: &'a Graph, order: &[TaskId], budget: u64, policy: Policy) -> Self {
        let mut places = vec![0_u32; graph.len()];
        for (place, task) in order.iter().enumerate() {
            places[task.index()] = place as u32;
        }
        let mut uses = Csr::with_capacity(graph.len(), graph.consumers.entries());
        for task in graph.tasks() {
            uses.push(graph.consumers(task).map(|consumer| places[consumer.index()]));
            uses.row_mut(task.index()).sort_unstable();
        }
        let actions = Vec::with_capacity(graph.len());
        Self {
            graph,
            policy,
            uses,
            next: vec![0; graph.len()],
            rank: vec![0; graph.len()],
            here: vec![false; graph.len()],
            written: vec![false; graph.len()],
            again: graph.tasks().map(|task| is_again(graph, task)).collect(),
            dirty: BinaryHeap::new(),
            clean: BinaryHeap::new(),
            held: vec![false; graph.len()],
            live: 0,
            plan: Plan { actions, budget, peak: 0, written: 0, read: 0, again: 0 },
        }
    }

    /// The place of a result's next use.
    fn next_use(&self, task: TaskId) -> u32 {
        self.uses.row(task.index()).get(self.next[task.index()] as usize).copied().unwrap_or(NEVER)
    }

    fn is_clean(&self, task: TaskId) -> bool {
        self.written[task.index()] || self.again[task.index()]
    }

    /// Notes that a result in memory could make room.
    fn note(&mut self, task: TaskId, now: u32) {
        let rank = match self.policy {
            Policy::Furthest => self.next_use(task),
            #[cfg(test)]
            Policy::LeastRecent => NEVER - now,
        };
        let _ = now;
        self.rank[task.index()] = rank;
        let heap = if self.is_clean(task) { &mut self.clean } else { &mut self.dirty };
        heap.push((rank, task.0));
    }

    fn distance(&self, rank: u32, now: u32) -> u32 {
        match self.policy {
            Policy::Furthest if rank == NEVER => NEVER,
            Policy::Furthest => rank - now,
            #[cfg(test)]
            Policy::LeastRecent => now - (NEVER - rank),
        }
    }

    /// The best of a heap, and its distance.
    fn first(&mut self, clean: bool, now: u32) -> Option<(u32, TaskId)> {
        loop {
            let heap = if clean { &self.clean } else { &self.dirty };
            let &(rank, at) = heap.peek()?;
            let task = TaskId(at);
            let is_current = rank == self.rank[task.index()] && self.here[task.index()];
            if is_current && self.is_clean(task) == clean && !self.held[task.index()] {
                return Some((self.distance(rank, now), task));
            }
            // Whoever is held is noted again afterwards.
            if clean {
                self.clean.pop()
            } else {
                self.dirty.pop()
            };
        }
    }

    /// Whether what must be written goes before what need not, by the distances of both.
    fn is_worth_writing(&self, clean: u32, dirty: u32) -> bool {
        match self.policy {
            Policy::Furthest => clean < dirty / 2 || dirty == NEVER,
            #[cfg(test)]
            Policy::LeastRecent => clean < dirty,
        }
    }

    fn make_room(&mut self, bytes: u64, now: u32) {
        while self.live + bytes > self.plan.budget {
            let (clean, dirty) = (self.first(true, now), self.first(false, now));
            let task = match (clean, dirty) {
                (Some((near, _)), Some((far, task))) if self.is_worth_writing(near, far) => task,
                (Some((_, task)), _) | (None, Some((_, task))) => task,
                (None, None) => unreachable!("everything that is not held can be moved out"),
            };
            self.here[task.index()] = false;
            let size = self.graph.bytes(task);
            self.live -= size;
            if self.is_clean(task) {
                self.plan.actions.push(Action::Drop(task));
            } else {
                self.written[task.index()] = true;
                // Once for each result, and they are fewer than 2^63 together.
                self.plan.written += size;
                self.plan.actions.push(Action::Write(task));
            }
        }
    }

    fn run(&mut self, now: u32, task: TaskId) {
        let graph = self.graph;
        graph.needs(task).for_each(|input| self.held[input.index()] = true);
        for input in graph.needs(task) {
            if self.here[input.index()] {
                continue;
            }
            let size = graph.bytes(input);
            // A source is run, which takes its work too.
            let work = if self.written[input.index()] { 0 } else { graph.work(input) };
            self.make_room(size + work, now);
            self.here[input.index()] = true;
            self.live += size;
            self.plan.peak = self.plan.peak.max(self.live + work);
            if self.written[input.index()] {
                self.plan.read = self.plan.read.saturating_add(size);
            } else {
                self.plan.again = self.plan.again.saturating_add(size);
            }
            self.plan.actions.push(Action::Read(input));
        }
        self.make_room(graph.bytes(task) + graph.work(task), now);
        self.plan.actions.push(Action::Run(task));
        self.live += graph.bytes(task);
        self.plan.peak = self.plan.peak.max(self.live + graph.work(task));
        self.here[task.index()] = true;
        for input in graph.needs(task) {
            self.held[input.index()] = false;
            self.next[input.index()] += 1;
            self.settle(input, now);
        }
        self.settle(task, now);
    }

    /// Releases what nobody needs any more; what stays may make room.
    fn settle(&mut self, task: TaskId, now: u32) {
        if self.next_use(task) == NEVER && self.graph.output(task) != Output::Kept {
            self.here[task.index()] = false;
            self.live -= self.graph.bytes(task);
        } else {
            self.note(task, now);
        }
    }
}
