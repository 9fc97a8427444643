//! Graphs of Dask programs, as `tests/data/export.py` writes them.

use std::io::Read;
use std::path::Path;

use bdrun_graph::{Builder, FunctionId, Graph, Inputs, Output, Task, TaskId};

/// A graph, whose functions are kinds of tasks, and the order that Dask runs it in.
pub fn read(path: &Path) -> (Graph, Vec<TaskId>) {
    let file = std::fs::File::open(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut data = Vec::new();
    flate2::read::GzDecoder::new(file).read_to_end(&mut data).expect("gzip");
    // The first version had no kinds of tasks.
    let has_kinds = match &data[..4] {
        b"bdg1" => false,
        b"bdg2" => true,
        _ => panic!("{}: not a graph", path.display()),
    };
    let word = |at: usize| u32::from_le_bytes(data[at..at + 4].try_into().expect("four bytes"));
    let (tasks, edges) = (word(4) as usize, word(8) as usize);
    let sizes = 12;
    let seconds = sizes + 8 * tasks;
    let outputs = seconds + 4 * tasks;
    let counts = outputs + tasks;
    let inputs = counts + 4 * tasks;
    let places = inputs + 4 * edges;
    let kinds = places + 4 * tasks;
    assert_eq!(data.len(), kinds + if has_kinds { 4 * tasks } else { 0 });
    let kind = |task: usize| FunctionId(if has_kinds { word(kinds + 4 * task) } else { 0 });
    // Inputs may have been added behind: by keys.
    let keys: Vec<String> = (0..tasks).map(|task| task.to_string()).collect();
    let mut builder = Builder::default();
    let mut edge = 0;
    for task in 0..tasks {
        let count = word(counts + 4 * task) as usize;
        let list: Vec<&str> = (edge..edge + count)
            .map(|edge| &*keys[task.wrapping_sub(word(inputs + 4 * edge) as i32 as usize)])
            .collect();
        edge += count;
        let at = sizes + 8 * task;
        builder
            .add(Task {
                bytes: u64::from_le_bytes(data[at..at + 8].try_into().expect("eight bytes")),
                seconds: f32::from_bits(word(seconds + 4 * task)),
                output: if data[outputs + task] == 1 { Output::Stored } else { Output::No },
                source: count == 0,
                ..Task::new(&keys[task], kind(task), Inputs::Keys(&list))
            })
            .expect("a task");
    }
    let mut order = vec![TaskId(0); tasks];
    for task in 0..tasks {
        order[word(places + 4 * task) as usize] = TaskId(task as u32);
    }
    (builder.build().expect("a graph"), order)
}
