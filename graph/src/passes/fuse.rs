//! Making one task of two in a chain.

use super::Rewritten;
use super::draft::Draft;
use crate::graph::{Graph, Output, TaskId};
use crate::order::depth::topological;

/// Makes one task of two, again and again, where one needs nothing but the other's result, nobody else needs
/// that, and the least peak does not rise. Fewer tasks cost less to run, and a block goes through a chain
/// while it is in cache.
///
/// Let u come before v, with results of u and v bytes, and let *exclusive* inputs be those that only u needs,
/// which it is done with before v begins. In any order of the former graph that takes P, the fused task is
/// put
///
/// - **where u was**, if v ≤ u and v + work(v) ≤ exclusive(u) + work(u): while v runs right after u, instead
///   of u's exclusive inputs and work there are v and its work, which are no more; later there is v instead
///   of u. The fused task needs what u needed.
/// - **where v was**, if all inputs of u are exclusive, in(u) ≤ u and in(u) + work(u) ≤ v + work(v): until
///   then there are the inputs of u instead of u, which are no more, and while u runs right before v its
///   inputs and work instead of v and its work. The fused task needs what v needed.
///
/// So there is an order of the new graph that takes no more than P.
pub fn fuse(graph: &Graph) -> Rewritten {
    fuse_where(graph, |_| true)
}

/// The same, but that only these tasks of the graph become one with what they are made of: others may have
/// to run elsewhere.
pub fn fuse_where(graph: &Graph, may: impl Fn(TaskId) -> bool) -> Rewritten {
    let mut draft = Draft::new(graph);
    // Of each task the one it is part of.
    let mut part_of: Vec<TaskId> = graph.tasks().collect();
    for v in topological(graph) {
        let needs = draft.needs(v);
        let &[u] = &needs[..] else { continue };
        if !may(v) {
            continue;
        }
        if graph.consumers(u).len() != 1 || graph.output(u) != Output::No {
            continue;
        }
        let Some(work) = fused_work(graph, &draft, &mut part_of, u, v) else { continue };
        let source = draft.is_source(u);
        let mut change = draft.current(v);
        change.absorb([(u, draft.taken(u))]);
        (change.work, change.source) = (work, source);
        draft.change(v, change);
        part_of[u.index()] = v;
    }
    draft.finish()
}

/// The work of u and v as one task, if the peak does not rise.
fn fused_work(graph: &Graph, draft: &Draft<'_>, part_of: &mut [TaskId], u: TaskId, v: TaskId) -> Option<u64> {
    let inputs = draft.needs(u);
    let bytes = |task: TaskId| graph.bytes(task);
    let (work_u, work_v) = (draft.work(u), draft.work(v));
    let mut exclusive = |input: &&TaskId| {
        let mut consumers = graph.consumers(**input);
        graph.output(**input) != Output::Kept && consumers.all(|consumer| whole(part_of, consumer) == u)
    };
    let all: u64 = inputs.iter().map(|&input| bytes(input)).sum();
    let own: u64 = inputs.iter().filter(&mut exclusive).map(|&input| bytes(input)).sum();
    let where_u = bytes(v) <= bytes(u) && bytes(v) + work_v <= own + work_u;
    let where_v = own == all && all <= bytes(u) && all + work_u <= bytes(v) + work_v;
    if where_u {
        Some(bytes(u) + work_u - bytes(v))
    } else if where_v {
        let most = (bytes(u) + work_u).max(bytes(u) + bytes(v) + work_v - all);
        Some(most.saturating_sub(bytes(v)))
    } else {
        None
    }
}

/// The task that this one has become part of.
fn whole(part_of: &mut [TaskId], mut task: TaskId) -> TaskId {
    while part_of[task.index()] != task {
        let above = part_of[task.index()];
        part_of[task.index()] = part_of[above.index()];
        task = above;
    }
    task
}
