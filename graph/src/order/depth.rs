//! Depth first: each result right before it is needed, the inputs of a task in the order that is best for
//! trees.

use crate::csr::Csr;
use crate::graph::{Graph, Output, TaskId};

/// What orders of a graph are made with: computed once.
#[derive(Clone, Debug)]
pub(crate) struct Ground {
    /// Of each task, bytes that are live at most while it is made from nothing, were the graph a tree.
    pub(crate) hill: Vec<u64>,
    /// The needs of each task in the order in which to make them.
    pub(crate) needs: Csr,
    /// All tasks, each behind its inputs.
    pub(crate) topological: Vec<TaskId>,
    /// No order takes less.
    pub(crate) least: u64,
}

impl Ground {
    pub(crate) fn new(graph: &Graph) -> Self {
        let topological = topological(graph);
        let mut hill = vec![0_u64; graph.len()];
        let mut rows: Csr = graph.needs.clone();
        for &task in &topological {
            // Liu 1986 (An application of generalized tree pebbling to sparse matrix factorization), in its
            // simple form without interleaving: first what leaves least of what it took.
            let row = rows.row_mut(task.index());
            let falls = |&input: &u32| hill[input as usize] - graph.bytes(TaskId(input));
            row.sort_by_key(|input| std::cmp::Reverse(falls(input)));
            let (mut held, mut most) = (0_u64, 0);
            for &input in &*row {
                most = most.max(held.saturating_add(hill[input as usize]));
                held += graph.bytes(TaskId(input));
            }
            hill[task.index()] = most.max(held + graph.bytes(task) + graph.work(task));
        }
        Self { hill, needs: rows, topological, least: super::least(graph) }
    }
}

/// All tasks, each behind its inputs; otherwise in the order in which they were added.
pub(crate) fn topological(graph: &Graph) -> Vec<TaskId> {
    let mut missing: Vec<u32> = graph.tasks().map(|task| graph.needs(task).len() as u32).collect();
    let mut order: Vec<TaskId> = graph.tasks().filter(|task| missing[task.index()] == 0).collect();
    let mut at = 0;
    while at < order.len() {
        for consumer in graph.consumers(order[at]) {
            missing[consumer.index()] -= 1;
            if missing[consumer.index()] == 0 {
                order.push(consumer);
            }
        }
        at += 1;
    }
    order
}

/// Adds to `order` what has to run for `target`, inputs in the order of `needs`, each at most once.
pub(crate) fn descend(needs: &Csr, target: TaskId, ran: &mut [bool], order: &mut Vec<TaskId>) {
    let mut path: Vec<(u32, u32)> = vec![(target.0, 0)];
    if ran[target.index()] {
        return;
    }
    while let Some((task, place)) = path.last_mut() {
        let row = needs.row(*task as usize);
        match row.get(*place as usize) {
            Some(&input) => {
                *place += 1;
                if !ran[input as usize] {
                    path.push((input, 0));
                }
            }
            None => {
                ran[*task as usize] = true;
                order.push(TaskId(*task));
                path.pop();
            }
        }
    }
}

/// For each task of `ends` all it needs, each task once.
pub(crate) fn depth_first(graph: &Graph, ground: &Ground, ends: &[TaskId]) -> Vec<TaskId> {
    let mut ran = vec![false; graph.len()];
    let mut order = Vec::with_capacity(graph.len());
    for &end in ends {
        descend(&ground.needs, end, &mut ran, &mut order);
    }
    order
}

/// Tasks that nobody needs, in the order of `order`.
pub(crate) fn ends(graph: &Graph, order: &[TaskId]) -> Vec<TaskId> {
    order.iter().copied().filter(|&task| graph.consumers(task).len() == 0).collect()
}

/// What of a result stays when nobody needs it.
#[inline]
pub(crate) fn stays(graph: &Graph, task: TaskId) -> bool {
    graph.output(task) == Output::Kept
}
