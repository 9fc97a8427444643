//! Leaving out what no output needs.

use super::Rewritten;
use super::draft::Draft;
use crate::graph::{Graph, Output};

/// The graph without tasks that no output needs. The order of the others remains.
pub fn cull(graph: &Graph) -> Rewritten {
    let mut needed = vec![false; graph.len()];
    let mut path = Vec::new();
    for output in graph.tasks().filter(|&task| graph.output(task) != Output::No) {
        if !needed[output.index()] {
            needed[output.index()] = true;
            path.push(output);
        }
        while let Some(task) = path.pop() {
            for input in graph.needs(task) {
                if !needed[input.index()] {
                    needed[input.index()] = true;
                    path.push(input);
                }
            }
        }
    }
    let mut draft = Draft::new(graph);
    graph.tasks().filter(|task| !needed[task.index()]).for_each(|task| draft.remove(task));
    draft.finish()
}
