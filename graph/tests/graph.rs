//! Graphs as data: what is an error, and what it names.

use bdrun_graph::{Argument, Builder, FunctionId, Graph, GraphError, Inputs, Output, Step, Task, TaskId};

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

/// What nobody said where it comes from is named without it.
#[test]
fn who_came_from_nowhere_is_named_without_it() {
    let said = |error: GraphError| error.to_string();
    let mut builder = Builder::default();
    add(&mut builder, "x", &["y"], "").unwrap();
    assert_eq!(said(add(&mut builder, "x", &[], "").unwrap_err()), "task x is there twice");
    let one = said(add(&mut builder, "x", &[], "job.py:9").unwrap_err());
    assert_eq!(one, "task x is there twice: one is from job.py:9");
    assert_eq!(said(builder.build().unwrap_err()), "task x needs y, which no task makes");
    let mut builder = Builder::default();
    add(&mut builder, "a", &["b"], "").unwrap();
    add(&mut builder, "b", &["a"], "2").unwrap();
    let circle = "these tasks need each other in a circle: a needs b (2) needs a";
    assert_eq!(said(builder.build().unwrap_err()), circle);
    let mut builder = Builder::default();
    builder.add(Task { bytes: 7, ..Task::new("x", FunctionId(0), Inputs::Keys(&[])) }).unwrap();
    let graph = builder.build().unwrap();
    let error = bdrun_graph::plan::plan(&graph, &[TaskId(0)], 6).unwrap_err().to_string();
    assert!(error.starts_with("task x needs 7 bytes at once"), "{error}");
}

/// A body is one of the graph's, and is given nothing that its task has not.
#[test]
fn a_body_that_is_none_of_the_task() {
    let step = |function, arguments: &[Argument]| Step {
        function: FunctionId(function),
        arguments: arguments.to_vec(),
    };
    let steps = [step(0, &[Argument::Input(0)]), step(1, &[Argument::Input(1), Argument::Step(0)])];
    let mut builder = Builder::default();
    let body = builder.programs().intern(&steps);
    add(&mut builder, "x", &[], "").unwrap();
    let mut with = |key: &str, inputs: &[&str]| {
        builder.add(Task { body, origin: "l", ..Task::new(key, FunctionId(0), Inputs::Keys(inputs)) })
    };
    for (key, inputs) in [("none", &[][..]), ("one", &["x"])] {
        let error = with(key, inputs).unwrap_err();
        assert_eq!(error, GraphError::Body { key: key.into(), origin: "l".into() });
        assert!(error.to_string().contains(&format!("the body of task {key} (l)")), "{error}");
    }
    // Inputs that it does not use it may have.
    with("two", &["x", "x"]).unwrap();
    with("three", &["x", "x", "two"]).unwrap();
    assert_eq!(builder.build().unwrap().len(), 3);
    // One of another graph.
    let mut other = Builder::default();
    let task = Task { body, ..Task::new("y", FunctionId(0), Inputs::Keys(&["a", "b"])) };
    assert!(matches!(other.add(task), Err(GraphError::Body { .. })));
}

/// Together 2^64 bytes would be none, which fit anywhere.
#[test]
fn bytes_that_are_no_number_together() {
    let of = |sizes: &[(u64, u64)]| {
        let mut builder = Builder::default();
        let mut before: Vec<TaskId> = Vec::new();
        for (number, &(bytes, work)) in sizes.iter().enumerate() {
            let key = number.to_string();
            let task = Task::new(&key, FunctionId(0), Inputs::Tasks(&before));
            before = vec![builder.add(Task { bytes, work, origin: "l", ..task }).unwrap()];
        }
        builder.build()
    };
    let half = 1 << 62;
    for sizes in
        [&[(1 << 63, 0), (1 << 63, 0)][..], &[(half, 0), (half, 0)], &[(half, half)], &[(u64::MAX, 1)]]
    {
        let error = of(sizes).unwrap_err();
        let key = (sizes.len() - 1).to_string();
        let is_first = sizes[0].0 >= 1 << 63;
        let key = if is_first { "0".into() } else { key };
        assert_eq!(error, GraphError::Bytes { key, origin: "l".into() }, "{sizes:?}");
    }
    let mut graph = of(&[(half, 0), (half - 1, 0)]).unwrap();
    assert!(bdrun_graph::plan::plan(&graph, &[TaskId(0), TaskId(1)], 1000).is_err());
    assert!(graph.measured(TaskId(1), half, 1.0).is_err());
    assert_eq!((graph.bytes(TaskId(1)), graph.is_cost_known(TaskId(1))), (half - 1, false));
    graph.measured(TaskId(0), 1, 1.0).unwrap();
    graph.measured(TaskId(1), half, 1.0).unwrap();
    assert_eq!(graph.need(TaskId(1)), half + 1);
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
