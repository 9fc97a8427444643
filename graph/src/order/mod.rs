//! In which order to run a graph, so that little is live at once.

pub(crate) mod depth;
mod exact;
pub(crate) mod goal;
mod memory;

pub use exact::{EXACT, exact};
pub use memory::{Peak, check, least, peak, profile};

use crate::graph::{Graph, TaskId};
use depth::Ground;
use goal::{Rule, Sight};

/// All candidates, by name: experiment.
pub fn candidates(graph: &Graph) -> Vec<(String, Vec<TaskId>)> {
    let ground = Ground::new(graph);
    let mut all = vec![
        ("depth".to_owned(), depth::depth_first(graph, &ground, false)),
        ("htped".to_owned(), depth::depth_first(graph, &ground, true)),
    ];
    let mut best = all.iter().map(|(_, order)| peak(graph, order).bytes).min().unwrap_or(0);
    let timed = std::env::var("TIMED").is_ok();
    for rule in [Rule::Net, Rule::Rate] {
        for (goals, tasks) in [(1, 64), (4, 64), (8, 256)] {
            for share in [0.0, 0.3, 0.5, 0.7, 0.9] {
                let budget = (best as f64 * share) as u64;
                let begin = std::time::Instant::now();
                let order = goal::goals(graph, &ground, Sight { goals, tasks, rule, budget, reverse: false });
                let bytes = peak(graph, &order).bytes;
                best = best.min(bytes);
                let again = goal::repeated(graph, &ground, &order);
                if timed {
                    println!("{rule:?}-{goals}-{tasks}-{share}: {bytes} again {} in {:?}", peak(graph, &again).bytes, begin.elapsed());
                }
                all.push((format!("{rule:?}-{goals}-{tasks}-{share}"), order));
                all.push((format!("again-{rule:?}-{goals}-{tasks}-{share}"), again));
            }
        }
    }
    all
}
