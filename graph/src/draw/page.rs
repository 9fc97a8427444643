//! A run as a page: the graph, what is in memory at each moment of it, and how much that is.

use std::fmt::Write;

use super::{bytes, marked, places};
use crate::graph::{Graph, Output, TaskId};
use crate::order;
use crate::run::{Event, Step, What};

/// So many tasks are drawn at most: more cannot be told apart.
pub const MOST: usize = 20_000;

/// A graph that is too large for a picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0} tasks cannot be told apart in a picture, which has {MOST} at most")]
pub struct TooMany(
    /// So many tasks it has.
    pub usize,
);

/// A page that needs nothing else, with a slider: circles are tasks, red while they run, blue when they have;
/// boxes are results, red while they are in memory, violet while they are on scratch (what is kept may be so
/// to the end) or in their source only, blue when they are released for good. Below it the bytes that are
/// live at each moment, and what was foretold for the order, one task after the other.
///
/// # Errors
/// If there are more than [`MOST`] tasks.
pub fn page(graph: &Graph, order: &[TaskId], events: &[Event], budget: u64) -> Result<String, TooMany> {
    if graph.len() > MOST {
        return Err(TooMany(graph.len()));
    }
    let places = places(graph, order);
    let at = |task: TaskId| (places[task.index()].1 * 30 + 20, places[task.index()].0 * 48 + 20);
    let width = graph.tasks().map(|task| at(task).0).max().unwrap_or(0) + 20;
    let height = graph.tasks().map(|task| at(task).1).max().unwrap_or(0) + 44;
    // The first tasks are at the bottom. A String takes whatever is written.
    let (mut lines, mut shapes) = (String::new(), String::new());
    for task in graph.tasks() {
        let (x, y) = at(task);
        let flip = |y: usize| height - y;
        for input in graph.needs(task) {
            let (from, below) = at(input);
            _ = write!(lines, "M{from} {}L{x} {}", flip(below + 24), flip(y));
        }
        let mut title = format!("{}, {}", graph.key(task), bytes(graph.bytes(task)));
        if !graph.origin(task).is_empty() {
            _ = write!(title, ", {}", graph.origin(task));
        }
        let title = marked(&title);
        _ = writeln!(
            shapes,
            "<g><title>{title}</title><circle cx=\"{x}\" cy=\"{}\" r=\"6\"/><rect x=\"{}\" y=\"{}\" width=\"12\" height=\"12\"/></g>",
            flip(y),
            x - 6,
            flip(y + 30),
        );
    }
    let mut told = String::new();
    for event in events {
        let (kind, task) = match event.what {
            What::Begin(Step::Run(task)) => (0, task),
            What::End(Step::Run(task)) => (1, task),
            What::Release(task) => (2, task),
            What::Begin(Step::Read(task)) => (3, task),
            What::Begin(Step::Write(task)) | What::End(Step::Read(task) | Step::Write(task)) => (4, task),
        };
        _ = write!(told, "[{},{kind},{},{}],", event.at.as_micros(), task.0, event.live);
    }
    let profile: Vec<String> = order::profile(graph, order).iter().map(u64::to_string).collect();
    let most = events.iter().map(|event| event.live).max().unwrap_or(0);
    let seconds = events.last().map_or(0.0, |event| event.at.as_secs_f64());
    let summary = format!(
        "{} tasks in {seconds:.2} s; at most {} of blocks live, within {}",
        graph.len(),
        bytes(most),
        bytes(budget)
    );
    let kept = graph.tasks().filter(|&task| graph.output(task) == Output::Kept);
    let kept: Vec<String> = kept.map(|task| task.0.to_string()).collect();
    Ok(TEMPLATE
        .replace("{width}", &width.to_string())
        .replace("{height}", &height.to_string())
        .replace("{lines}", &lines)
        .replace("{summary}", &marked(&summary))
        .replace("{events}", &told)
        .replace("{profile}", &profile.join(","))
        .replace("{budget}", &budget.to_string())
        .replace("{kept}", &kept.join(","))
        // Last, for the user's texts are in it, and whatever stands there is not replaced.
        .replace("{shapes}", &shapes))
}

const TEMPLATE: &str = include_str!("page.html");

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Builder, FunctionId, Inputs, Task};

    fn graph(keys: [&str; 2]) -> Graph {
        let mut builder = Builder::default();
        for key in keys {
            let task = Task::new(key, FunctionId(0), Inputs::Keys(&[]));
            let output = if key == keys[1] { Output::Kept } else { Output::Stored };
            builder
                .add(Task { bytes: 8, output, origin: if key == "x" { "job.rs:1" } else { "" }, ..task })
                .unwrap();
        }
        builder.build().unwrap()
    }

    /// What is kept and has left memory is on scratch: nothing that is left says so otherwise.
    #[test]
    fn a_page_says_what_is_kept() {
        let graph = graph(["x", "y"]);
        let order: Vec<TaskId> = graph.tasks().collect();
        let page = page(&graph, &order, &[], 16).unwrap();
        assert!(page.contains("kept = new Set([1]);"), "{page}");
        assert!(page.contains(r#"--left[task] > 0 || kept.has(task) ? "out" : "gone""#), "{page}");
        assert!(page.contains("<title>x, 8 B, job.rs:1</title>") && page.contains("<title>y, 8 B</title>"));
    }

    #[test]
    fn what_users_write_stays_as_it_is() {
        let graph = graph(["{events}{kept}", "{summary}{budget}"]);
        let order: Vec<TaskId> = graph.tasks().collect();
        let event = Event { at: std::time::Duration::ZERO, what: What::Release(TaskId(0)), live: 8 };
        let page = page(&graph, &order, &[event], 16).unwrap();
        for key in ["{events}{kept}", "{summary}{budget}"] {
            assert_eq!(page.matches(&format!("<title>{key}, 8 B</title>")).count(), 1, "{page}");
        }
    }
}
