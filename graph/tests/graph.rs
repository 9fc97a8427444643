//! Graphs as data: what is an error, and what it names.

use bdrun_graph::{Builder, FunctionId, Graph, GraphError, Inputs, Output, Task, TaskId};

fn add(builder: &mut Builder, key: &str, inputs: &[&str], origin: &str) -> Result<TaskId, GraphError> {
    builder.add(Task { origin, ..Task::new(key, FunctionId(0), Inputs::Keys(inputs)) })
}

#[test]
fn a_key_that_is_there_twice() {
    let mut builder = Builder::default();
    add(&mut builder, "x", &[], "job.py:1").unwrap();
    let error = add(&mut builder, "x", &[], "job.py:9").unwrap_err().to_string();
    assert_eq!(error, "task x is there twice: from job.py:1 and from job.py:9");
}

#[test]
fn a_key_that_no_task_makes() {
    let mut builder = Builder::default();
    add(&mut builder, "sum", &["x"], "job.py:2").unwrap();
    assert_eq!(builder.build().unwrap_err().to_string(), "task sum (job.py:2) needs x, which no task makes");
}

#[test]
fn tasks_that_need_each_other() {
    let mut builder = Builder::default();
    add(&mut builder, "out", &["a"], "1").unwrap();
    add(&mut builder, "a", &["b", "in"], "2").unwrap();
    add(&mut builder, "b", &["in", "c"], "3").unwrap();
    add(&mut builder, "c", &["a"], "4").unwrap();
    add(&mut builder, "in", &[], "5").unwrap();
    let error = builder.build().unwrap_err().to_string();
    assert_eq!(error, "these tasks need each other in a circle: a (2) needs b (3) needs c (4) needs a");
    let mut builder = Builder::default();
    add(&mut builder, "a", &["a"], "1").unwrap();
    assert_eq!(builder.build().unwrap_err(), GraphError::Cycle(vec![("a".into(), "1".into())]));
}

#[test]
fn a_source_with_inputs_and_a_cost_that_is_none() {
    let mut builder = Builder::default();
    let task = Task { source: true, origin: "l", ..Task::new("x", FunctionId(0), Inputs::Keys(&["y"])) };
    let error = builder.add(task).unwrap_err();
    assert_eq!(error, GraphError::SourceWithInputs { key: "x".into(), origin: "l".into() });
    let task = Task { seconds: f32::NAN, ..Task::new("x", FunctionId(0), Inputs::Keys(&[])) };
    assert!(builder.add(task).unwrap_err().to_string().contains("NaN seconds"));
}

/// Inputs may be added behind; what is asked of a graph is what was said.
#[test]
fn a_graph_says_what_was_added() {
    let mut builder = Builder::default();
    let sum = Task {
        bytes: 8,
        work: 3,
        seconds: 0.5,
        output: Output::Kept,
        origin: "job.py:7",
        ..Task::new("sum", FunctionId(5), Inputs::Keys(&["y", "x", "y"]))
    };
    let sum = builder.add(sum).unwrap();
    let x = builder
        .add(Task { bytes: 16, source: true, ..Task::new("x", FunctionId(1), Inputs::Keys(&[])) })
        .unwrap();
    let inputs = [x];
    let y = Task { bytes: 32, ..Task::new("y", FunctionId(2), Inputs::Tasks(&inputs)) };
    let y = builder.add(y).unwrap();
    assert_eq!((builder.find("x"), builder.find("z")), (Some(x), None));
    let graph = builder.build().unwrap();
    assert_eq!(graph.inputs(sum).collect::<Vec<_>>(), [y, x, y]);
    assert_eq!(graph.needs(sum).collect::<Vec<_>>(), [x, y]);
    assert_eq!(graph.consumers(x).collect::<Vec<_>>(), [sum, y]);
    assert_eq!((graph.key(sum), graph.origin(sum), graph.origin(y)), ("sum", "job.py:7", ""));
    assert_eq!(
        (graph.need(sum), graph.seconds(sum), graph.output(sum)),
        (16 + 32 + 8 + 3, 0.5, Output::Kept)
    );
    assert!(graph.is_source(x) && !graph.is_source(y));
}

#[test]
fn a_graph_without_tasks() {
    let graph: Graph = Builder::default().build().unwrap();
    let order = bdrun_graph::order::order(&graph, Default::default());
    assert_eq!((graph.len(), order.tasks.len(), order.peak.bytes), (0, 0, 0));
    let plan = bdrun_graph::plan::plan(&graph, &order.tasks, 0).unwrap();
    use bdrun_graph::run::{NoStore, Progress, Threads};
    let call =
        |_: bdrun_graph::run::Call, _: Vec<std::sync::Arc<Vec<u8>>>| unreachable!("there are no tasks");
    Threads::default().run(&graph, &plan, &NoStore, &Progress::default(), call).unwrap();
}
