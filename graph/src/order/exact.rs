//! The order that takes least, by search over all sets of tasks that can have run.

use crate::graph::{Graph, Output, TaskId};

/// The largest graph that [`exact`] searches: it looks at 2^20 sets at most.
pub const EXACT: usize = 20;

/// An order of least peak, for a graph of up to [`EXACT`] tasks, or none if it would look at more than
/// `limit` sets.
///
/// For each set of tasks that can have run (closed under inputs) what is live then does not depend on their
/// order, so the least peak of a set is the least over its last tasks: Bellman's principle on a lattice. Sets
/// are visited by ascending peak (Dijkstra's algorithm for bottlenecks), and the first time all tasks have
/// run is the best.
pub fn exact(graph: &Graph, limit: usize) -> Option<Vec<TaskId>> {
    exact_within(graph, &mut (limit as u64))
}

/// The same, which takes the sets it looks at from `limit`.
pub(super) fn exact_within(graph: &Graph, limit: &mut u64) -> Option<Vec<TaskId>> {
    let tasks = graph.len();
    if tasks > EXACT {
        return None;
    }
    let mask = |row: &mut dyn Iterator<Item = TaskId>| row.fold(0_u32, |mask, task| mask | 1 << task.0);
    let needs: Vec<u32> = graph.tasks().map(|task| mask(&mut graph.needs(task))).collect();
    let consumers: Vec<u32> = graph.tasks().map(|task| mask(&mut graph.consumers(task))).collect();
    let full = if tasks == 0 { 0 } else { u32::MAX >> (32 - tasks) };
    let live = |ran: u32| -> u64 {
        let is_live = |task: &TaskId| {
            let at = task.index();
            ran >> at & 1 == 1 && (consumers[at] & !ran != 0 || graph.output(*task) == Output::Kept)
        };
        graph.tasks().filter(is_live).map(|task| graph.bytes(task)).sum()
    };
    // Peak and last task of each set; who has settled is not looked at again.
    let mut best = hashbrown::HashMap::<u32, (u64, u8)>::new();
    let mut queue = std::collections::BinaryHeap::new();
    best.insert(0, (0, u8::MAX));
    // Among equal peaks the larger set first: that is nearer to the end.
    queue.push((std::cmp::Reverse(0_u64), 0_u32.count_ones(), 0_u32));
    while let Some((std::cmp::Reverse(peak), _, ran)) = queue.pop() {
        if best[&ran].0 < peak {
            continue;
        }
        if ran == full {
            return Some(unwind(&best, full));
        }
        *limit = limit.checked_sub(1)?;
        let bytes = live(ran);
        for (task, &needed) in needs.iter().enumerate() {
            let bit = 1_u32 << task;
            if ran & bit != 0 || needed & !ran != 0 {
                continue;
            }
            let id = TaskId(task as u32);
            let then = peak.max(bytes + graph.bytes(id) + graph.work(id));
            let next = ran | bit;
            let known = best.entry(next).or_insert((u64::MAX, 0));
            if then < known.0 {
                *known = (then, task as u8);
                queue.push((std::cmp::Reverse(then), next.count_ones(), next));
            }
        }
    }
    unreachable!("a graph without circles can be run")
}

fn unwind(best: &hashbrown::HashMap<u32, (u64, u8)>, full: u32) -> Vec<TaskId> {
    let mut order = Vec::new();
    let mut ran = full;
    while ran != 0 {
        let last = best[&ran].1;
        order.push(TaskId(u32::from(last)));
        ran &= !(1 << last);
    }
    order.reverse();
    order
}
