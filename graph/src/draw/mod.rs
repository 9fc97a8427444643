//! Pictures of graphs, and of what was done with them.

mod page;

use std::fmt::Write;

pub use page::{MOST, TooMany, page};

use crate::graph::{Graph, Output, TaskId};

/// The graph in the language of Graphviz: circles are tasks, boxes their results, as in Dask's pictures;
/// sources are cylinders, outputs have a double border. For graphs of up to some hundred tasks (`dot -Tsvg`).
pub fn dot(graph: &Graph) -> String {
    let mut text =
        String::from("digraph tasks {\n  rankdir=BT;\n  node [fontname=\"sans-serif\", fontsize=10];\n");
    for task in graph.tasks() {
        let number = task.0;
        let origin = escaped(graph.origin(task));
        let tip = format!("{} s{}{}", graph.seconds(task), if origin.is_empty() { "" } else { ", " }, origin);
        let shape = if graph.is_source(task) { "cylinder" } else { "circle" };
        let border = if graph.output(task) == Output::No { 1 } else { 2 };
        let key = escaped(graph.key(task));
        // A String takes whatever is written.
        _ = writeln!(text, "  t{number} [shape={shape}, label=\"\", width=0.25, tooltip=\"{tip}\"];");
        let size = bytes(graph.bytes(task));
        _ = writeln!(text, "  r{number} [shape=box, peripheries={border}, label=\"{key}\\n{size}\"];");
        _ = writeln!(text, "  t{number} -> r{number};");
        for input in graph.needs(task) {
            _ = writeln!(text, "  r{} -> t{number};", input.0);
        }
    }
    text.push_str("}\n");
    text
}

fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '"' | '\\' => escaped.extend(['\\', letter]),
            '\n' | '\r' => escaped.push(' '),
            other => escaped.push(other),
        }
    }
    escaped
}

/// A size in the largest unit of which there is one.
fn bytes(size: u64) -> String {
    match size.checked_ilog2().unwrap_or(0) / 10 {
        0 => format!("{size} B"),
        unit => {
            let name = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"][unit as usize - 1];
            format!("{:.1} {name}", size as f64 / (1_u64 << (10 * unit)) as f64)
        }
    }
}

/// Where tasks stand in a drawing: columns by depth (the longest way from a task without inputs), rows in the
/// order of `order`.
fn places(graph: &Graph, order: &[TaskId]) -> Vec<(usize, usize)> {
    let mut places = vec![(0, 0); graph.len()];
    let mut rows: Vec<usize> = Vec::new();
    for &task in order {
        let depth = graph.needs(task).map(|input| places[input.index()].0 + 1).max().unwrap_or(0);
        if depth >= rows.len() {
            rows.resize(depth + 1, 0);
        }
        places[task.index()] = (depth, rows[depth]);
        rows[depth] += 1;
    }
    places
}

/// The graph after so many tasks of an order, as SVG: red boxes are in memory, blue ones were released, grey
/// ones are not there yet.
pub fn svg(graph: &Graph, order: &[TaskId], ran: usize) -> String {
    const STEP: (usize, usize) = (34, 22);
    let places = places(graph, order);
    let mut left: Vec<usize> = graph.tasks().map(|task| graph.consumers(task).len()).collect();
    let mut done = vec![false; graph.len()];
    for &task in &order[..ran.min(order.len())] {
        done[task.index()] = true;
        graph.needs(task).for_each(|input| left[input.index()] -= 1);
    }
    let at = |task: TaskId| (places[task.index()].1 * STEP.0 + 20, places[task.index()].0 * STEP.1 * 2 + 20);
    let width = graph.tasks().map(|task| at(task).0).max().unwrap_or(0) + 20;
    let height = graph.tasks().map(|task| at(task).1).max().unwrap_or(0) + 40;
    // The first tasks are at the bottom.
    let flip = |y: usize| height - y;
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\">\n"
    );
    for task in graph.tasks() {
        let (x, y) = at(task);
        for input in graph.needs(task) {
            let (from, under) = at(input);
            _ = writeln!(
                text,
                "<line x1=\"{from}\" y1=\"{}\" x2=\"{x}\" y2=\"{}\" stroke=\"#999\" stroke-width=\"0.6\"/>",
                flip(under + 20),
                flip(y)
            );
        }
    }
    for task in graph.tasks() {
        let (x, y) = at(task);
        let is_live = done[task.index()] && (left[task.index()] > 0 || graph.output(task) == Output::Kept);
        let (circle, result) = match (done[task.index()], is_live) {
            (true, true) => ("#3569b0", "#d33"),
            (true, false) => ("#3569b0", "#3569b0"),
            (false, _) => ("#ddd", "#ddd"),
        };
        let title = marked(&format!("{}, {}", graph.key(task), bytes(graph.bytes(task))));
        _ = writeln!(
            text,
            "<g><title>{title}</title><circle cx=\"{x}\" cy=\"{}\" r=\"6\" fill=\"{circle}\"/>",
            flip(y)
        );
        let (left, top) = (x - 6, flip(y + 26));
        _ = writeln!(
            text,
            "<rect x=\"{left}\" y=\"{top}\" width=\"12\" height=\"12\" fill=\"{result}\"/></g>"
        );
    }
    text.push_str("</svg>\n");
    text
}

fn marked(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Builder, FunctionId, Inputs, Task};

    fn graph() -> Graph {
        let mut builder = Builder::default();
        let x = Task { bytes: 1536, source: true, ..Task::new("x<\"0\">", FunctionId(0), Inputs::Keys(&[])) };
        builder.add(x).unwrap();
        let y = Task::new("y", FunctionId(1), Inputs::Keys(&["x<\"0\">", "x<\"0\">"]));
        builder.add(Task { bytes: 8, output: Output::Kept, origin: "job.py:3", seconds: 0.5, ..y }).unwrap();
        builder.build().unwrap()
    }

    #[test]
    fn dot_has_tasks_results_and_edges() {
        let text = dot(&graph());
        for line in [
            r#"  r0 [shape=box, peripheries=1, label="x<\"0\">\n1.5 KiB"];"#,
            r#"  t0 [shape=cylinder, label="", width=0.25, tooltip="0 s"];"#,
            r#"  t1 [shape=circle, label="", width=0.25, tooltip="0.5 s, job.py:3"];"#,
            "  r0 -> t1;",
            "  t1 -> r1;",
        ] {
            assert_eq!(text.lines().filter(|other| *other == line).count(), 1, "{line}\n{text}");
        }
    }

    #[test]
    fn svg_is_red_where_memory_is_used() {
        let graph = graph();
        let order: Vec<TaskId> = graph.tasks().collect();
        let colours = |ran| {
            let text = svg(&graph, &order, ran);
            let boxes = text.lines().filter(|line| line.starts_with("<rect"));
            boxes.map(|line| line.split("fill=\"").nth(1).unwrap()[..4].to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(colours(0), ["#ddd", "#ddd"]);
        assert_eq!(colours(1), ["#d33", "#ddd"]);
        assert_eq!(colours(2), ["#356", "#d33"]);
        assert!(svg(&graph, &order, 0).contains("<title>x&lt;\"0\"&gt;, 1.5 KiB</title>"));
    }
}
