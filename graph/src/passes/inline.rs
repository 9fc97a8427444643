//! Computing again what is cheaper to compute than to keep.

use super::Rewritten;
use super::draft::Draft;
use crate::graph::{Graph, Output, TaskId};
use crate::order::depth::topological;

/// What it costs to keep a result, and what is known to be cheap.
#[derive(Clone, Copy, Debug)]
pub struct Keeping {
    /// Seconds for each byte that is kept: what it takes to write it to storage and to read it again, say.
    pub seconds_per_byte: f64,
}

impl Default for Keeping {
    /// A disk of 1 GB/s, there and back.
    fn default() -> Self {
        Self { seconds_per_byte: 2e-9 }
    }
}

/// Makes tasks part of all tasks that need them, where that is cheaper than to keep their results: those that
/// `is_fast` names, and those that cost less, for all uses but one, than `keeping` their bytes. It is done
/// with sources and with what is made of such sources alone (a slice that is read and transposed): after that
/// nobody needs their results, and they can be made from storage any time. This is `inline` of the first Dask
/// (Rocklin 2015, Towards out-of-core ND-arrays).
///
/// The least peak does not rise: what is made part of a task takes, while that one runs, the bytes that its
/// result took as an input, and no bytes otherwise; it is done only where its own work is no more than the
/// task's result and work.
pub fn inline(graph: &Graph, keeping: Keeping, is_fast: impl Fn(TaskId) -> bool) -> Rewritten {
    let mut draft = Draft::new(graph);
    for u in topological(graph) {
        let users = graph.consumers(u).len();
        if users == 0 || graph.output(u) != Output::No || !draft.is_source(u) || !draft.needs(u).is_empty() {
            continue;
        }
        let again = draft.seconds(u) * (users - 1) as f64;
        if !is_fast(u) && again > graph.bytes(u) as f64 * keeping.seconds_per_byte {
            continue;
        }
        let work = draft.work(u);
        if graph.consumers(u).any(|user| work > graph.bytes(user) + draft.work(user)) {
            continue;
        }
        let before = draft.current(u);
        for user in graph.consumers(u) {
            let mut change = draft.current(user);
            change.absorb(u, &before);
            change.work += graph.bytes(u);
            // Made of sources alone it is one too.
            change.source = change.inputs.is_empty();
            draft.change(user, change);
        }
        draft.remove(u);
    }
    draft.finish()
}
