//! What becomes of orders and executions where the system has no thread left.

#[path = "common/no_threads.rs"]
mod no_threads;

use std::sync::Arc;

use bdrun_graph::order::{self, Effort};
use bdrun_graph::plan::plan;
use bdrun_graph::run::{Call, FileStore, Progress, Threads};
use bdrun_graph::{Builder, FunctionId, Graph, Inputs, Output, Task, TaskId};
use no_threads::without_threads;

/// Layers of tasks each of which needs up to three of the layer before.
fn layers(tasks: usize, width: usize, kept: bool) -> Graph {
    let mut builder = Builder::default();
    let mut seed = 1_u64;
    let mut random = move |end: u64| {
        seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (seed >> 33) % end
    };
    for task in 0..tasks {
        let inputs: Vec<TaskId> = match task.checked_sub(width) {
            None => Vec::new(),
            Some(above) => (0..1 + random(3))
                .map(|_| TaskId((above + random(5) as usize).min(task - 1) as u32))
                .collect(),
        };
        let key = task.to_string();
        let output = if kept && task + width >= tasks { Output::Kept } else { Output::No };
        let task = Task::new(&key, FunctionId(0), Inputs::Tasks(&inputs));
        let bytes = 100 + if kept { random(100) } else { 0 };
        builder.add(Task { bytes, output, ..task }).unwrap();
    }
    builder.build().unwrap()
}

/// What is computed there is that of a task's number and its inputs.
fn run(graph: &Graph) -> (Vec<Vec<u8>>, usize) {
    let order = order::order(graph, Effort { visits: 10_000, ..Effort::default() });
    let most = graph.tasks().map(|task| graph.need(task)).max().unwrap();
    let kept: u64 =
        graph.tasks().filter(|&task| graph.output(task) == Output::Kept).map(|task| graph.bytes(task)).sum();
    // Not all fits: there is something for threads that transfer.
    let plan = plan(graph, &order.tasks, most.max(kept / 2)).unwrap();
    assert!(plan.written > 0);
    let store = FileStore::new(&std::env::temp_dir()).unwrap();
    let call = |call: Call, inputs: Vec<Arc<Vec<u8>>>| {
        let sum = inputs
            .iter()
            .map(|input| u64::from_le_bytes(input[..8].try_into().unwrap()))
            .fold(0, u64::wrapping_add);
        let value = sum.wrapping_mul(31).wrapping_add(u64::from(call.task.0));
        Ok(Arc::new(value.to_le_bytes().to_vec()))
    };
    let threads = Threads { compute: 3, transfer: 2 };
    let mut outcome = threads.run(graph, &plan, &store, &Progress::default(), call).unwrap();
    let values = graph.tasks().filter_map(|task| outcome.take(task).unwrap()).map(|value| value.to_vec());
    (values.collect(), outcome.lacked)
}

#[test]
fn an_execution_goes_on_with_the_threads_that_there_are() {
    let graph = layers(300, 20, true);
    let (values, lacked) = run(&graph);
    assert_eq!((values.len(), lacked), (20, 0));
    let Some(alone) = without_threads(|| run(&graph)) else { return };
    assert_eq!(alone, (values, 4));
}

#[test]
fn orders_are_the_same() {
    // So many tasks that cuts are tried at the same time, and where there is one cut, ways.
    let graphs = [layers(12_000, 100, true), layers(12_000, 100, false)];
    for graph in &graphs {
        let effort = Effort { visits: 100_000, ..Effort::default() };
        let order = order::order(graph, effort);
        let Some(alone) = without_threads(|| order::order(graph, effort)) else { return };
        order::check(graph, &alone.tasks).unwrap();
        assert_eq!((alone.peak, alone.tasks), (order.peak, order.tasks));
    }
}
