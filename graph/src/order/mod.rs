//! In which order to run a graph, so that little is live at once.
//!
//! The order of least peak is hard to find (Sethi 1975, Complete register allocation problems), and no rule
//! is best for all graphs. So many are tried, each one's peak is known exactly before anything runs, and the
//! best is taken:
//!
//! | module | answers |
//! |---|---|
//! | `memory` | what an order takes; no order takes less than [`least`] |
//! | `bound` | what it takes when several run at once |
//! | `exact` | the best order of a small graph |
//! | `depth` | depth first, inputs of a task as is best for trees |
//! | `goal` | from what is live, the goal that frees most |
//! | `state` | what has run; what can run at no price |
//! | `parts` | what of a graph has little to do with the rest |
//! | `search` | which ways to try, on the whole and on parts |
//! | `together` | several looks at the same time |

mod bound;
pub(crate) mod depth;
mod exact;
mod goal;
mod memory;
mod parts;
mod search;
mod state;
#[cfg(test)]
mod tests;
mod together;

pub use bound::bound;
pub use exact::{EXACT, exact};
pub use memory::{Peak, check, least, peak, profile};

use crate::graph::{Graph, TaskId};
use search::{WAYS, by_parts, search};
use together::all_at_once;

/// How much to look for a better order. The order found depends on it, and on nothing else but the graph.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// Visits of tasks, of some 25 ns each, beyond what a few ways take at least (some µs for each task).
    pub visits: u64,
    /// Graphs of up to so many tasks are searched exactly if that does not take too long; at most [`EXACT`].
    pub exact: usize,
    /// Threads that look at the same time; fewer where the system has none left.
    pub threads: usize,
}

impl Default for Effort {
    fn default() -> Self {
        Self { visits: 40_000_000, exact: EXACT, threads: 2 }
    }
}

/// An order, and what it takes.
#[derive(Clone, Debug)]
pub struct Order {
    /// All tasks, each behind its inputs.
    pub tasks: Vec<TaskId>,
    /// What is live at most if they run one after the other.
    pub peak: Peak,
}

/// An order that takes little memory: the best that was found.
pub fn order(graph: &Graph, effort: Effort) -> Order {
    let least = least(graph);
    if graph.len() <= effort.exact.min(EXACT) {
        // Parts that are best each need not be the best together.
        let tasks = search(graph, WAYS, 0, &mut { effort }).order;
        return Order { peak: peak(graph, &tasks), tasks };
    }
    // Results so small that it does not matter whether they wait for other parts. What falls into the same
    // parts is looked at once.
    let mut cuts: Vec<(u64, usize)> = Vec::new();
    for small in [0, least / 256, least / 32, least / 8] {
        let parts = parts::parts(graph, small);
        let largest = (0..parts.rows()).map(|part| parts.row(part).len()).max().unwrap_or(0);
        let is_like =
            |last: usize| last == parts.rows() || (graph.len() >= LARGE && largest * 2 > graph.len());
        if cuts.last().is_none_or(|&(_, last)| !is_like(last)) {
            cuts.push((small, parts.rows()));
        }
    }
    if graph.len() >= LARGE {
        cuts.truncate(2);
    }
    let share = effort.visits / cuts.len().max(1) as u64;
    let look = |small: u64| {
        let threads = if cuts.len() > 1 { 1 } else { effort.threads };
        let mut effort = Effort { visits: share, threads, ..effort };
        let tasks = match by_parts(graph, small, &mut effort) {
            Some(order) => order,
            None => search(graph, WAYS, 0, &mut effort).order,
        };
        Order { peak: peak(graph, &tasks), tasks }
    };
    let mut found: Vec<Order> = Vec::new();
    if graph.len() < THREADED {
        for &(small, _) in &cuts {
            found.push(look(small));
            if found.last().is_some_and(|found| found.peak.bytes <= least) {
                break;
            }
        }
    } else {
        for cuts in cuts.chunks(effort.threads.max(1)) {
            found.extend(all_at_once(cuts, |&(small, _)| look(small)));
        }
    }
    found
        .into_iter()
        .min_by_key(|found| found.peak.bytes)
        .unwrap_or(Order { tasks: Vec::new(), peak: Peak::default() })
}

/// Tasks as they were added, but each behind its inputs.
pub fn as_added(graph: &Graph) -> Vec<TaskId> {
    let wish: Vec<TaskId> = graph.tasks().collect();
    state::smooth(graph, &depth::Ground::new(graph), &wish, 0)
}

/// From so many tasks on fewer cuts are tried.
const LARGE: usize = 100_000;
/// From so many tasks on cuts, or ways, are tried at the same time.
const THREADED: usize = 10_000;
