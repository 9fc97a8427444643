//! Many ways to order a graph, and which to try.

use super::depth::{Ground, depth_first, ends};
use super::exact::exact_within;
use super::goal::{Rule, Sight, goals};
use super::parts::{alone, parts};
use super::state::smooth;
use super::together::all_at_once;
use super::{EXACT, Effort, THREADED, least, peak};
use crate::graph::{Graph, Output, TaskId};

/// A way to order a graph.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Way {
    /// Depth first from outputs as they were added.
    Depth,
    /// By goals, and depth first from outputs as goals finished them.
    Goals {
        /// So many are compared.
        goals: usize,
        /// So many tasks of each.
        tasks: usize,
        /// By this rule.
        rule: Rule,
        /// With this part of the best peak so far as the budget.
        share: f64,
    },
}

const fn goals_way(goals: usize, tasks: usize, rule: Rule, share: f64) -> Way {
    Way::Goals { goals, tasks, rule, share }
}

/// All ways, the one first that most often was best for what it takes.
pub(crate) const WAYS: &[Way] = &[
    Way::Depth,
    goals_way(1, 64, Rule::Rate, 0.7),
    goals_way(4, 64, Rule::Rate, 0.7),
    goals_way(8, 256, Rule::Net, 0.9),
    goals_way(8, 256, Rule::Rate, 0.5),
    goals_way(1, 64, Rule::Net, 0.5),
    goals_way(8, 256, Rule::Rate, 0.3),
    goals_way(1, 64, Rule::Rate, 0.9),
    goals_way(8, 256, Rule::Rate, 0.9),
    goals_way(4, 64, Rule::Net, 0.5),
    goals_way(1, 64, Rule::Rate, 0.5),
    goals_way(4, 64, Rule::Rate, 0.9),
    goals_way(4, 64, Rule::Rate, 0.5),
    goals_way(8, 256, Rule::Net, 0.0),
    goals_way(8, 256, Rule::Rate, 0.7),
    goals_way(4, 64, Rule::Rate, 0.3),
    goals_way(4, 64, Rule::Net, 0.0),
];

/// An order of a part, and what it takes.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    pub(crate) order: Vec<TaskId>,
    pub(crate) peak: u64,
    /// The way it was found; none if it is known to be the best.
    pub(crate) way: Option<Way>,
}

/// What a way takes for each task besides what is looked at, in visits.
const FIXED: u64 = 16;
/// Visits for each task that looking may take at least.
const LOOKS: u64 = 8;
/// Visits that a set of an exact search counts as, and how many sets are looked at, at most.
const SET: u64 = 20;
const SETS: u64 = 1 << 14;

/// Orders one graph: tries `ways` until one takes no more than `enough`, or the effort is used up.
pub(crate) fn search(graph: &Graph, ways: &[Way], enough: u64, effort: &mut Effort) -> Found {
    let ground = Ground::new(graph);
    let outputs = ends(graph, &ground.topological);
    if graph.len() <= effort.exact.min(EXACT) {
        // What is good enough need not be searched for.
        let (found, _) = attempt(graph, &ground, &outputs, Way::Depth, u64::MAX, 0);
        if found.peak <= enough.max(ground.least) {
            return found;
        }
        let granted = (effort.visits / SET).min(SETS);
        let mut sets = granted;
        let order = exact_within(graph, &mut sets);
        effort.visits -= (granted - sets) * SET;
        if let Some(order) = order {
            return Found { peak: peak(graph, &order).bytes, order, way: None };
        }
    }
    let mut best = Found { order: Vec::new(), peak: u64::MAX, way: None };
    let mut tried = 0;
    while tried < ways.len() {
        if tried > 0 && best.peak <= enough.max(ground.least) || tried > 1 && effort.visits == 0 {
            break;
        }
        // The first one alone: the others have a part of what it takes as their budget.
        let at_once = if tried > 0 && graph.len() >= THREADED { effort.threads.max(1) } else { 1 };
        let together = &ways[tried..ways.len().min(tried + at_once)];
        tried += together.len();
        // One way may look at a fourth of what is left, and at least at what makes sense.
        let granted = (effort.visits / 4).max(LOOKS * graph.len() as u64);
        let so_far = best.peak;
        let attempt = |way: Way| attempt(graph, &ground, &outputs, way, so_far, granted);
        for (found, spent) in all_at_once(together, |&way| attempt(way)) {
            effort.visits = effort.visits.saturating_sub(spent);
            if found.peak < best.peak {
                best = found;
            }
        }
    }
    best
}

/// The best order of one way, and the visits it took. `so_far` is the best peak of others, `granted` the
/// visits that looking may take.
fn attempt(
    graph: &Graph,
    ground: &Ground,
    outputs: &[TaskId],
    way: Way,
    so_far: u64,
    granted: u64,
) -> (Found, u64) {
    let found = |order: Vec<TaskId>| Found { peak: peak(graph, &order).bytes, order, way: Some(way) };
    let Way::Goals { goals: compared, tasks, rule, share } = way else {
        return (found(depth_first(graph, ground, outputs)), 0);
    };
    let budget = (so_far.min(1 << 60) as f64 * share) as u64;
    let mut sight = Sight { goals: compared, tasks, rule, budget, effort: granted };
    let order = found(goals(graph, ground, outputs, &mut sight));
    let again = found(depth_first(graph, ground, &ends(graph, &order.order)));
    // What frees memory at once, as long as that takes less than the best.
    let limit = order.peak.min(again.peak).min(so_far).saturating_sub(1);
    let smoothed = found(smooth(graph, ground, &order.order, limit));
    let all = [again, order, smoothed];
    let best = all.into_iter().min_by_key(|found| found.peak).expect("three are compared");
    (best, granted - sight.effort + FIXED * graph.len() as u64)
}

/// Orders a graph by parts that share only results of up to `small` bytes. None if that is one part.
pub(crate) fn by_parts(graph: &Graph, small: u64, effort: &mut Effort) -> Option<Vec<TaskId>> {
    let parts = parts(graph, small);
    if parts.rows() == 1 {
        return None;
    }
    let mut numbers = vec![0; graph.len()];
    let mut largest: Vec<u32> = (0..parts.rows() as u32).collect();
    largest.sort_by_key(|&part| std::cmp::Reverse(parts.row(part as usize).len()));
    let mut ways = WAYS.to_vec();
    let mut enough = least(graph);
    let mut left = graph.len() as u64;
    // What each part takes beyond what stays of it, and its tasks.
    let mut found: Vec<(u64, u32, Vec<TaskId>)> = Vec::with_capacity(parts.rows());
    for &part in &largest {
        let tasks = parts.row(part as usize);
        let alone = alone(graph, tasks, &mut numbers);
        // The first one tells which ways are good.
        let share = (effort.visits as f64 * tasks.len() as f64 / left.max(1) as f64) as u64;
        let share = if found.is_empty() { share.max(effort.visits / 2) } else { share };
        let mut granted = Effort { visits: share, ..*effort };
        let best = search(&alone, &ways, enough, &mut granted);
        effort.visits -= share - granted.visits;
        left -= tasks.len() as u64;
        enough = enough.max(best.peak);
        if let Some(at) = best.way.and_then(|way| ways.iter().position(|&other| other == way)) {
            ways[..=at].rotate_right(1);
        }
        let stays = alone.tasks().filter(|&task| alone.output(task) == Output::Kept);
        let stays: u64 = stays.map(|task| alone.bytes(task)).sum();
        let order = best.order.iter().map(|task| TaskId(tasks[task.index()])).collect();
        found.push((best.peak.saturating_sub(stays), part, order));
    }
    // Liu's rule: first what gives most back. Or as the whole goes depth first: what small results of parts
    // become is then made early.
    let ground = Ground::new(graph);
    let outputs = ends(graph, &ground.topological);
    let mut place = vec![u32::MAX; parts.rows()];
    let depth = depth_first(graph, &ground, &outputs);
    for part in 0..parts.rows() {
        parts.row(part).iter().for_each(|&task| numbers[task as usize] = part as u32);
    }
    for (at, task) in depth.iter().enumerate() {
        let place = &mut place[numbers[task.index()] as usize];
        *place = (*place).min(at as u32);
    }
    let joined = |found: &[(u64, u32, Vec<TaskId>)]| {
        let wish: Vec<TaskId> = found.iter().flat_map(|(_, _, order)| order.iter().copied()).collect();
        let order = smooth(graph, &ground, &wish, enough);
        (peak(graph, &order).bytes, order)
    };
    found.sort_by_key(|&(falls, part, _)| (std::cmp::Reverse(falls), place[part as usize]));
    let (one, first) = joined(&found);
    found.sort_by_key(|&(_, part, _)| place[part as usize]);
    let (other, second) = joined(&found);
    Some(if one < other { first } else { second })
}
