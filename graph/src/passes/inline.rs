//! Computing again what is cheaper to compute than to keep.

use super::Rewritten;
use super::draft::{Change, Draft};
use crate::graph::{Graph, MOST_BYTES, Output, TaskId};
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
/// `is_fast` names, and those that cost less, for all uses but one, than `keeping` their bytes. What it costs
/// has to be known for that: what is not could be anything, and is not done more than once. It is done with
/// sources and with what is made of such sources alone (a slice that is read and transposed): after that
/// nobody needs their results, and they can be made from storage any time. This is `inline` of the first Dask
/// (Rocklin 2015, Towards out-of-core ND-arrays).
///
/// The least peak does not rise: what is made part of a task takes, while that one runs, the bytes that its
/// result took as an input, and no bytes otherwise; it is done only where its own work is no more than the
/// task's result and work.
pub fn inline(graph: &Graph, keeping: Keeping, is_fast: impl Fn(TaskId) -> bool) -> Rewritten {
    let mut draft = Draft::new(graph);
    // Of each task its work with what has been made part of it, and at which place it became part of others.
    let mut work: Vec<u64> = graph.tasks().map(|task| graph.work(task)).collect();
    let mut part = vec![None; graph.len()];
    // Of what becomes part of others: how many have yet to get it.
    let mut left = vec![0_usize; graph.len()];
    let mut total = graph.total;
    for (place, u) in topological(graph).into_iter().enumerate() {
        // All at once: to put them before it one by one would move its body each time.
        let mut parts: Vec<TaskId> = graph.needs(u).filter(|input| part[input.index()].is_some()).collect();
        // The last one runs first: its work may be as much as what the others leave, which is not there yet.
        parts.sort_by_key(|input| std::cmp::Reverse(part[input.index()]));
        if !parts.is_empty() {
            let mut change = draft.current(u);
            // What is said to be fast does not make a cost unknown.
            change.absorb(parts.into_iter().map(|part| {
                left[part.index()] -= 1;
                // The last one gets it as it is: of a chain nothing is copied, and nothing stays of it.
                let before = match left[part.index()] {
                    0 => draft.taken(part),
                    _ => draft.current(part),
                };
                (part, Change { costed: before.costed || is_fast(part), ..before })
            }));
            change.work = work[u.index()];
            // Made of sources alone it is one too.
            change.source = change.inputs.is_empty();
            draft.change(u, change);
        }
        let users = graph.consumers(u).len();
        if users == 0 || graph.output(u) != Output::No || !draft.is_source(u) || !draft.needs(u).is_empty() {
            continue;
        }
        let again = draft.seconds(u) * (users - 1) as f64;
        let is_cheap =
            users == 1 || draft.is_cost_known(u) && again <= graph.bytes(u) as f64 * keeping.seconds_per_byte;
        if !is_fast(u) && !is_cheap {
            continue;
        }
        let own = work[u.index()];
        if graph.consumers(u).any(|user| own > graph.bytes(user) + work[user.index()]) {
            continue;
        }
        // Its bytes become work of each user.
        let more = graph.bytes(u).saturating_mul(users as u64);
        if more > MOST_BYTES - total {
            continue;
        }
        total += more;
        (part[u.index()], left[u.index()]) = (Some(place), users);
        graph.consumers(u).for_each(|user| work[user.index()] += graph.bytes(u));
    }
    draft.finish()
}
