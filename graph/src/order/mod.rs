//! In which order to run a graph, so that little is live at once.

pub(crate) mod depth;
mod exact;
mod goal;
mod memory;
mod parts;
mod search;
mod state;

pub use exact::{EXACT, exact};
pub use memory::{Peak, check, least, peak, profile};

use crate::graph::{Graph, TaskId};
use search::{WAYS, by_parts, search};

/// How much to look for a better order.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// Visits of tasks, some 25 ns each.
    pub visits: u64,
}

impl Default for Effort {
    fn default() -> Self {
        Self { visits: 60_000_000 }
    }
}

/// An order that takes little memory.
pub fn order(graph: &Graph, effort: Effort) -> Vec<TaskId> {
    if graph.is_empty() {
        return Vec::new();
    }
    let least = least(graph);
    let timed = std::env::var("TIMED").is_ok();
    let mut best: Option<(u64, Vec<TaskId>)> = None;
    let mut last = usize::MAX;
    for (turn, small) in [0, least / 256, least / 32, least / 8].into_iter().enumerate() {
        let begin = std::time::Instant::now();
        let mut visits = effort.visits / 4;
        let count = parts::parts(graph, small).rows();
        if count == last {
            continue;
        }
        last = count;
        let order = match by_parts(graph, small, &mut visits) {
            Some(order) => order,
            None => search(graph, WAYS, 0, &mut visits).order,
        };
        let bytes = peak(graph, &order).bytes;
        if timed {
            println!("    small {small}: {count} parts, peak {bytes}, visits left {visits} {:?}", begin.elapsed());
        }
        if best.as_ref().is_none_or(|best| bytes < best.0) {
            best = Some((bytes, order));
        }
        let _ = turn;
    }
    best.map(|best| best.1).unwrap_or_default()
}
