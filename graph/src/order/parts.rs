//! Parts of a graph that have little to do with each other, to be run one after the other.

use crate::csr::Csr;
use crate::graph::{Graph, Keys, Output, TaskId};

/// Of each part its tasks, ascending. Two tasks are in one part if one needs the result of the other and that
/// is larger than `small` bytes. Parts are in the order of their first tasks.
pub(crate) fn parts(graph: &Graph, small: u64) -> Csr {
    let mut above: Vec<u32> = (0..graph.len() as u32).collect();
    fn root(above: &mut [u32], mut at: u32) -> u32 {
        while above[at as usize] != at {
            above[at as usize] = above[above[at as usize] as usize];
            at = above[at as usize];
        }
        at
    }
    for task in graph.tasks() {
        for input in graph.needs(task).filter(|&input| graph.bytes(input) > small) {
            let (one, other) = (root(&mut above, task.0), root(&mut above, input.0));
            above[one.max(other) as usize] = one.min(other);
        }
    }
    // A root is the first task of its part.
    let mut part = vec![0; graph.len()];
    let mut count = 0;
    for task in 0..graph.len() as u32 {
        let root = root(&mut above, task);
        if root == task {
            part[task as usize] = count;
            count += 1;
        } else {
            part[task as usize] = part[root as usize];
        }
    }
    let mut membership = Csr::with_capacity(graph.len(), graph.len());
    part.iter().for_each(|&part| membership.push([part]));
    membership.transposed(count as usize)
}

/// Some tasks of a graph, ascending, as a graph of their own, without keys and bodies: what they need of
/// others is not there, and what others need of them stays. `numbers` is one for each task of the graph, for
/// use in here.
pub(crate) fn alone(graph: &Graph, tasks: &[u32], numbers: &mut [u32]) -> Graph {
    for (number, &task) in tasks.iter().enumerate() {
        numbers[task as usize] = number as u32;
    }
    let mut needs = Csr::with_capacity(tasks.len(), tasks.len());
    let number = |of: &u32| {
        let number = numbers[*of as usize];
        (tasks.get(number as usize) == Some(of)).then_some(number)
    };
    for &task in tasks {
        needs.push(graph.needs.row(task as usize).iter().filter_map(number));
    }
    let consumers = needs.transposed(tasks.len());
    let outputs = tasks.iter().enumerate().map(|(place, &task)| {
        let elsewhere = graph.consumers(TaskId(task)).len() > consumers.row(place).len();
        if elsewhere { Output::Kept } else { graph.output(TaskId(task)) }
    });
    Graph {
        keys: Keys::default(),
        bodies: Vec::new(),
        bytes: tasks.iter().map(|&task| graph.bytes[task as usize]).collect(),
        work: tasks.iter().map(|&task| graph.work[task as usize]).collect(),
        total: graph.total,
        seconds: Vec::new(),
        costed: Vec::new(),
        outputs: outputs.collect(),
        sources: Vec::new(),
        origins: Vec::new(),
        origin_names: Keys::default(),
        inputs: Csr::default(),
        needs,
        consumers,
        programs: crate::body::Programs::default(),
    }
}
