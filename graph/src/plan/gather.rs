//! Orders that move less where not everything fits.
//!
//! An order of little peak takes a result up again whenever the next task that uses it is due. If it had to
//! leave in between it is read each time as a whole, for what is perhaps a hundredth of it. So what uses a
//! result is run while the result is there, if it is small beside it: then the small results wait, or are
//! written and read, instead of the large one. How small, and how many at a time, depends on the graph; a few
//! ways are planned, and the one that moves least is taken.

use super::{Plan, plan};
use crate::csr::Csr;
use crate::error::TooLarge;
use crate::graph::{Graph, Output, TaskId};
use crate::order::{self, Effort};

/// How much is run early.
#[derive(Clone, Copy, Debug)]
struct Way {
    /// What is so many times smaller than the result that it uses.
    smaller: u64,
    /// Until it is together so many times the result, in eighths, each time the result is there.
    eighths: u64,
}

const WAYS: &[Way] = &[
    Way { smaller: 1, eighths: 8 },
    Way { smaller: 4, eighths: 8 },
    Way { smaller: 4, eighths: 64 },
    Way { smaller: 16, eighths: 2 },
    Way { smaller: 16, eighths: 32 },
];

/// So many tasks are planned, in all orders together.
const PLANNED: usize = 500_000;
/// So many of those that use a result, and are not run, are looked at each time.
const LOOKS: usize = 64;

/// A plan within a budget, as [`plan`] makes it, of the order or of one that moves less. If the order's peak
/// is within the budget it stays as it is. Up to eighteen orders are planned, fewer of large graphs.
///
/// # Errors
/// As [`plan`]'s.
pub fn least_moved(graph: &Graph, order: &[TaskId], budget: u64) -> Result<Plan, TooLarge> {
    let mut best = plan(graph, order, budget)?;
    if best.moved() == 0 {
        return Ok(best);
    }
    let mut left = (PLANNED / graph.len()).max(2);
    let mut take = |order: &[TaskId]| -> Result<(), TooLarge> {
        let plan = plan(graph, order, budget)?;
        if plan.moved() < best.moved() {
            best = plan;
        }
        Ok(())
    };
    for &way in WAYS.iter().take(left) {
        take(&gather(graph, order, way))?;
        left -= 1;
    }
    // What takes little at most need not be what moves least.
    let simpler = || order::order(graph, Effort { visits: 0, threads: 1, ..Effort::default() }).tasks;
    let others: [&dyn Fn() -> Vec<TaskId>; 2] = [&simpler, &|| order::as_added(graph)];
    for other in others {
        if left <= WAYS.len() {
            break;
        }
        left -= 1 + WAYS.len();
        let order = other();
        take(&order)?;
        for &way in WAYS {
            take(&gather(graph, &order, way))?;
        }
    }
    Ok(best)
}

struct Gather<'a> {
    graph: &'a Graph,
    way: Way,
    /// Of each result the tasks that use it, as they are in the order, and the first that has not run.
    uses: Csr,
    first: Vec<u32>,
    ran: Vec<bool>,
    /// Inputs that are not made; uses that are left.
    missing: Vec<u32>,
    left: Vec<u32>,
    order: Vec<TaskId>,
}

fn gather(graph: &Graph, order: &[TaskId], way: Way) -> Vec<TaskId> {
    let mut places = vec![0_u32; graph.len()];
    for (place, task) in order.iter().enumerate() {
        places[task.index()] = place as u32;
    }
    let mut uses = Csr::with_capacity(graph.len(), graph.consumers.entries());
    for task in graph.tasks() {
        uses.push(graph.consumers.row(task.index()).iter().copied());
        uses.row_mut(task.index()).sort_unstable_by_key(|&consumer| places[consumer as usize]);
    }
    let mut gather = Gather {
        graph,
        way,
        uses,
        first: vec![0; graph.len()],
        ran: vec![false; graph.len()],
        missing: graph.tasks().map(|task| graph.needs(task).len() as u32).collect(),
        left: graph.tasks().map(|task| graph.consumers(task).len() as u32).collect(),
        order: Vec::with_capacity(graph.len()),
    };
    for &task in order {
        if !gather.ran[task.index()] {
            gather.run(task);
            for input in graph.needs(task).chain([task]) {
                gather.users_of(input);
            }
        }
    }
    gather.order
}

impl Gather<'_> {
    fn run(&mut self, task: TaskId) {
        self.ran[task.index()] = true;
        self.order.push(task);
        for input in self.graph.needs(task) {
            self.left[input.index()] -= 1;
        }
        for consumer in self.graph.consumers(task) {
            self.missing[consumer.index()] -= 1;
        }
    }

    /// Runs what uses a result that is there, and small sources that it lacks.
    fn users_of(&mut self, result: TaskId) {
        let bytes = self.graph.bytes(result);
        let mut most = (bytes / 8).saturating_mul(self.way.eighths);
        // Behind those at the front that have run.
        let row = self.uses.row(result.index());
        let first = &mut self.first[result.index()];
        while row.get(*first as usize).is_some_and(|&user| self.ran[user as usize]) {
            *first += 1;
        }
        let (mut at, mut looks) = (*first as usize, LOOKS);
        while looks > 0
            && let Some(&user) = self.uses.row(result.index()).get(at)
        {
            let user = TaskId(user);
            at += 1;
            let takes = self.graph.bytes(user);
            let is_last = self.left[result.index()] == 1 && takes <= bytes;
            let is_small = takes.saturating_mul(self.way.smaller) <= bytes && takes <= most;
            let is_right = !self.ran[user.index()] && (is_small || is_last);
            if !is_right || !self.can_run(user, takes.max(bytes / 64)) {
                looks -= 1;
                continue;
            }
            most = most.saturating_sub(takes);
            for input in self.graph.needs(user) {
                if !self.ran[input.index()] {
                    self.run(input);
                }
            }
            self.run(user);
            self.follow(user);
        }
    }

    /// Whether a task lacks nothing but sources that take no more than so much. (What has many inputs is
    /// looked at often.)
    fn can_run(&self, task: TaskId, most: u64) -> bool {
        if self.missing[task.index()] == 0 || self.graph.needs(task).len() > LOOKS {
            return self.missing[task.index()] == 0;
        }
        let mut missing = self.graph.needs(task).filter(|input| !self.ran[input.index()]);
        let mut bytes = 0;
        missing.all(|input| {
            bytes += self.graph.bytes(input) + self.graph.work(input);
            self.graph.needs(input).len() == 0 && bytes <= most
        })
    }

    /// Runs what leaves no more than it frees.
    fn follow(&mut self, task: TaskId) {
        let mut next = vec![task];
        while let Some(task) = next.pop() {
            let users = self.uses.row(task.index()).len().min(LOOKS);
            for at in 0..users {
                let user = TaskId(self.uses.row(task.index())[at]);
                if self.ran[user.index()] || self.missing[user.index()] > 0 {
                    continue;
                }
                let is_freed = |input: &TaskId| {
                    self.left[input.index()] == 1 && self.graph.output(*input) != Output::Kept
                };
                let freed: u64 =
                    self.graph.needs(user).filter(is_freed).map(|input| self.graph.bytes(input)).sum();
                if self.graph.bytes(user) <= freed {
                    self.run(user);
                    next.push(user);
                }
            }
        }
    }
}
