use super::*;
use crate::body::{Argument, FunctionId};
use crate::graph::Output;
use crate::order::{exact, peak};
use crate::testing::{Random, chains, random_graph};

/// What each task computes if functions are of small numbers.
fn values(graph: &Graph) -> Vec<u64> {
    let mut values = vec![0; graph.len()];
    for task in crate::order::depth::topological(graph) {
        let inputs: Vec<u64> = graph.inputs(task).map(|input| values[input.index()]).collect();
        let call = |function: FunctionId, arguments: Vec<u64>| {
            let mut value = u64::from(function.0) + 1;
            for (place, argument) in arguments.iter().enumerate() {
                value = value.wrapping_mul(31).wrapping_add(argument.wrapping_mul(place as u64 + 1));
            }
            Ok::<u64, ()>(value)
        };
        values[task.index()] = graph.programs().evaluate(graph.body(task), inputs, call).unwrap();
    }
    values
}

/// Outputs by key.
fn outputs(graph: &Graph) -> Vec<(String, u64, Output)> {
    let values = values(graph);
    let outputs = graph.tasks().filter(|&task| graph.output(task) != Output::No);
    outputs.map(|task| (graph.key(task).into(), values[task.index()], graph.output(task))).collect()
}

fn least_peak(graph: &Graph) -> u64 {
    peak(graph, &exact(graph, usize::MAX).unwrap()).bytes
}

/// What is live at most inside a task: its steps one after the other, with sizes of the graph that they are
/// of. An input that nobody else needs is released after its last use.
fn inside(former: &Graph, rewritten: &Rewritten, task: TaskId) -> u64 {
    let graph = &rewritten.graph;
    let inputs: Vec<TaskId> = graph.inputs(task).collect();
    let steps = graph.programs().steps(graph.body(task), inputs.len());
    let input_of = |argument: &Argument| match argument {
        Argument::Input(at) => Some(inputs[*at as usize]),
        Argument::Step(_) => None,
    };
    let mut most = 0;
    for at in 0..steps.len() {
        let later = |input: TaskId| {
            steps[at..]
                .iter()
                .flat_map(|step| &step.arguments)
                .any(|argument| input_of(argument) == Some(input))
        };
        let is_shared =
            |input: TaskId| graph.output(input) == Output::Kept || graph.consumers(input).len() > 1;
        let held = graph.needs(task).filter(|&input| is_shared(input) || later(input));
        let mut live: u64 = held.map(|input| graph.bytes(input)).sum();
        for (other, _) in steps[..at].iter().enumerate() {
            let is_used =
                steps[at..].iter().any(|step| step.arguments.contains(&Argument::Step(other as u32)));
            live += if is_used { former.bytes(rewritten.origin(task, other)) } else { 0 };
        }
        let of = rewritten.origin(task, at);
        most = most.max(live + former.bytes(of) + former.work(of));
    }
    most
}

/// Each pass on random graphs: outputs are the same, and the best order takes no more than before.
#[test]
fn passes_keep_what_is_computed_and_do_not_raise_the_peak() {
    let (mut culled_tasks, mut fused_tasks, mut inlined_tasks, mut lower) = (0, 0, 0, 0);
    for seed in 0..3000 {
        let mut random = Random::new(seed);
        let count = 1 + random.below(13) as usize;
        let graph = if seed % 3 == 0 { random_graph(&mut random, count) } else { chains(&mut random, count) };
        let before = outputs(&graph);
        let culled = cull(&graph);
        assert_eq!(outputs(&culled.graph), before, "seed {seed}");
        assert!(least_peak(&culled.graph) <= least_peak(&graph), "seed {seed}: cull");
        culled_tasks += graph.len() - culled.graph.len();
        let fused = fuse(&culled.graph).after(&culled);
        assert_eq!(outputs(&fused.graph), before, "seed {seed}");
        assert!(least_peak(&fused.graph) <= least_peak(&culled.graph), "seed {seed}: fuse");
        fused_tasks += culled.graph.len() - fused.graph.len();
        let fast: Vec<bool> = fused.graph.tasks().map(|_| random.below(2) == 0).collect();
        let inlined = inline(&fused.graph, Keeping::default(), |task| fast[task.index()]).after(&fused);
        assert_eq!(outputs(&inlined.graph), before, "seed {seed}");
        let (new, old) = (least_peak(&inlined.graph), least_peak(&fused.graph));
        assert!(new <= old, "seed {seed}: inline {new} > {old}");
        lower += usize::from(new < old);
        inlined_tasks += fused.graph.len() - inlined.graph.len();
        // Each step knows which task it was.
        for task in inlined.graph.tasks() {
            let body =
                inlined.graph.programs().steps(inlined.graph.body(task), inlined.graph.inputs(task).len());
            assert_eq!(inlined.steps.row(task.index()).len(), body.len());
            let (inside, need) = (inside(&graph, &inlined, task), inlined.graph.need(task));
            assert!(inside <= need, "seed {seed}: {} takes {inside}, not {need}", inlined.graph.key(task));
            assert_eq!(graph.key(inlined.origin(task, body.len() - 1)), inlined.graph.key(task));
            for (step, call) in body.iter().enumerate() {
                assert_eq!(graph.body(inlined.origin(task, step)), crate::BodyId::function(call.function));
            }
        }
    }
    assert!(
        culled_tasks > 100 && fused_tasks > 100 && inlined_tasks > 100 && lower > 10,
        "{culled_tasks} {fused_tasks} {inlined_tasks} {lower}"
    );
}

/// A chain from a source to an output becomes one task.
#[test]
fn a_chain_becomes_one_task() {
    use crate::{Builder, Inputs, Task};
    let mut builder = Builder::default();
    let chain = [("x", &[][..]), ("y", &["x", "x"][..]), ("z", &["y"][..])];
    for (place, (key, inputs)) in chain.into_iter().enumerate() {
        let output = if key == "z" { Output::Kept } else { Output::No };
        let task = Task::new(key, FunctionId(place as u32), Inputs::Keys(inputs));
        builder.add(Task { bytes: 8, output, source: inputs.is_empty(), seconds: 1.0, ..task }).unwrap();
    }
    let graph = builder.build().unwrap();
    let fused = fuse(&graph);
    assert_eq!(fused.graph.len(), 1);
    let task = TaskId(0);
    assert_eq!((fused.graph.key(task), fused.graph.seconds(task)), ("z", 3.0));
    assert!(fused.graph.is_source(task));
    // While y is made of x both are there.
    assert_eq!((fused.graph.need(task), least_peak(&graph)), (16, 16));
    assert_eq!(outputs(&fused.graph), outputs(&graph));
    assert_eq!(fused.steps.row(0), [0, 1, 2]);
}

/// A transposed slice that two products need is read and transposed for each.
#[test]
fn what_is_cheap_is_made_again() {
    use crate::{Builder, Inputs, Task};
    let mut builder = Builder::default();
    let tasks =
        [("a", &[][..], 0.01), ("t", &["a"][..], 0.01), ("p", &["t"][..], 9.0), ("q", &["t", "a"][..], 9.0)];
    for (place, (key, inputs, seconds)) in tasks.into_iter().enumerate() {
        let output = if inputs.is_empty() || key == "t" { Output::No } else { Output::Stored };
        let task = Task::new(key, FunctionId(place as u32), Inputs::Keys(inputs));
        builder.add(Task { bytes: 1 << 20, output, source: inputs.is_empty(), seconds, ..task }).unwrap();
    }
    let graph = builder.build().unwrap();
    let dear = inline(&graph, Keeping { seconds_per_byte: 1e-9 }, |_| false);
    assert_eq!(dear.graph.len(), 4);
    let cheap = inline(&graph, Keeping { seconds_per_byte: 1e-7 }, |_| false);
    assert_eq!(cheap.graph.len(), 2);
    assert_eq!(outputs(&cheap.graph), outputs(&graph));
    assert!((cheap.graph.seconds(TaskId(0)) - 9.02).abs() < 1e-5);
    assert_eq!(inline(&graph, Keeping { seconds_per_byte: 0.0 }, |task| task.0 < 2).graph.len(), 2);
}

/// What it is not known to cost is not done again, whatever it is put together of.
#[test]
fn what_may_cost_anything_is_kept() {
    use crate::{Builder, Inputs, Task};
    // The costs of a source, and of what is made of it alone, which two tasks need.
    let graph = |read: f32, turn: f32| {
        let mut builder = Builder::default();
        let tasks =
            [("a", &[][..], read), ("t", &["a"][..], turn), ("p", &["t"][..], 9.0), ("q", &["t"][..], 9.0)];
        for (place, (key, inputs, seconds)) in tasks.into_iter().enumerate() {
            let output = if place < 2 { Output::No } else { Output::Stored };
            let task = Task::new(key, FunctionId(place as u32), Inputs::Keys(inputs));
            builder.add(Task { bytes: 1 << 20, output, source: place == 0, seconds, ..task }).unwrap();
        }
        builder.build().unwrap()
    };
    let keeping = Keeping { seconds_per_byte: 1e-7 };
    for (read, turn, left) in [(0.0, 0.0, 3), (0.0, 0.01, 3), (0.01, 0.0, 3), (0.01, 0.01, 2)] {
        let graph = graph(read, turn);
        // The source has one user. What it becomes part of is not known either.
        assert_eq!(inline(&graph, keeping, |_| false).graph.len(), left, "{read} {turn}");
        let fused = fuse(&graph);
        assert_eq!((fused.graph.len(), inline(&fused.graph, keeping, |_| false).graph.len()), (3, left));
    }
    // It is said of both, or of one whose other's cost is known; or it was measured.
    let mut plain = graph(0.0, 0.0);
    assert_eq!(inline(&plain, keeping, |task| task.0 < 2).graph.len(), 2);
    assert_eq!(inline(&graph(0.0, 0.01), keeping, |task| task.0 == 0).graph.len(), 2);
    for task in plain.tasks() {
        plain.measured(task, 1 << 20, 0.0).unwrap();
    }
    assert_eq!(inline(&plain, keeping, |_| false).graph.len(), 2);
}

/// A chain of so many tasks.
fn chain(tasks: u32) -> Graph {
    let mut builder = crate::Builder::default();
    for task in 0..tasks {
        let (key, before) = (task.to_string(), task.checked_sub(1).map(TaskId));
        let output = if task + 1 == tasks { Output::Kept } else { Output::No };
        let of = crate::Task::new(&key, FunctionId(task % 7), crate::Inputs::Tasks(before.as_slice()));
        builder.add(crate::Task { bytes: 8, output, source: task == 0, ..of }).unwrap();
    }
    builder.build().unwrap()
}

/// One task of so many sources.
fn fan(sources: u32) -> Graph {
    let mut builder = crate::Builder::default();
    let mut inputs: Vec<TaskId> = Vec::new();
    for task in 0..sources {
        let key = task.to_string();
        let of = crate::Task::new(&key, FunctionId(task % 7), crate::Inputs::Tasks(&[]));
        inputs.push(builder.add(crate::Task { bytes: 8, source: true, ..of }).unwrap());
    }
    // One of them is given twice.
    inputs.push(inputs[1]);
    let of = crate::Task::new("all", FunctionId(9), crate::Inputs::Tasks(&inputs));
    builder.add(crate::Task { bytes: 8, output: Output::Kept, ..of }).unwrap();
    builder.build().unwrap()
}

/// What becomes one task is moved once, not once for each of its parts: minutes then.
#[test]
fn very_many_tasks_become_one() {
    let graph = chain(100_000);
    let rewritten = fuse(&graph);
    assert_eq!((rewritten.graph.len(), rewritten.steps.row(0).len()), (1, 100_000));
    assert!(rewritten.graph.is_source(TaskId(0)));
    assert_eq!(outputs(&rewritten.graph), outputs(&graph));
    let graph = fan(100_000);
    let rewritten = inline(&graph, Keeping::default(), |_| true);
    assert_eq!((rewritten.graph.len(), rewritten.steps.row(0).len()), (1, 100_001));
    assert!(rewritten.graph.is_source(TaskId(0)));
    assert_eq!(outputs(&rewritten.graph), outputs(&graph));
}

/// What fails within a task that was put together is named by what it was.
#[test]
fn a_step_has_the_name_of_its_own_task() {
    use crate::run::{NoStore, Progress, RunError, Threads};
    let mut builder = crate::Builder::default();
    for (number, key) in ["a", "b", "c"].into_iter().enumerate() {
        let before: Vec<&str> = ["a", "b", "c"][..number].last().copied().into_iter().collect();
        let task = crate::Task::new(key, FunctionId(number as u32), crate::Inputs::Keys(&before));
        let output = if number == 2 { Output::Stored } else { Output::No };
        let origin = ["x.py:1", "x.py:2", "x.py:3"][number];
        builder.add(crate::Task { bytes: 8, output, origin, ..task }).unwrap();
    }
    let former = builder.build().unwrap();
    let (graph, origins) = fuse(&former).apart(former);
    assert_eq!((graph.len(), graph.key(TaskId(0)), graph.origin(TaskId(0))), (1, "c", "x.py:3"));
    let plan = crate::plan::plan(&graph, &[TaskId(0)], 100).unwrap();
    for failing in 0..3 {
        let call = |call: crate::run::Call, _: Vec<std::sync::Arc<Vec<u8>>>| {
            if call.function == FunctionId(failing) { Err("no".into()) } else { Ok(vec![0; 8].into()) }
        };
        let threads = Threads { compute: 1, transfer: 1 };
        let error = threads.run(&graph, &plan, &NoStore, &Progress::default(), call).err().unwrap();
        let RunError::Task(failure) = origins.named(error) else { panic!("a task failed") };
        let wanted = ["a (x.py:1)", "b (x.py:2)", "c (x.py:3)"][failing as usize];
        assert_eq!(failure.task.to_string(), wanted);
        // And what it was given, not what all of them together are.
        let given = [
            "",
            "; it was given a (x.py:1); that was made from a (x.py:1)",
            "; it was given b (x.py:2); that was made from a (x.py:1)",
        ];
        assert_eq!(failure.to_string(), format!("task {wanted} failed: no{}", given[failing as usize]));
    }
}

/// What is inlined into one task is moved there, not copied: of a chain everything is, at each of its tasks.
#[test]
fn a_chain_that_is_inlined_is_copied_nowhere() {
    let copied = |graph: &Graph| {
        draft::COPIED.set(0);
        let rewritten = inline(graph, Keeping::default(), |_| false);
        (rewritten, draft::COPIED.get())
    };
    for tasks in [3_000, 100_000] {
        let graph = chain(tasks);
        let (rewritten, copied) = copied(&graph);
        assert_eq!((rewritten.graph.len(), rewritten.steps.row(0).len()), (1, tasks as usize));
        assert!(rewritten.graph.is_source(TaskId(0)));
        // By copies at each task that were 4,498,500 steps of 3,000, and more than there is memory of the
        // rest.
        assert_eq!(copied, 0, "{tasks}");
        assert_eq!(outputs(&rewritten.graph), outputs(&graph));
    }
    // A part with two users is copied for one of them.
    let mut builder = crate::Builder::default();
    let tasks = [("a", &[][..]), ("b", &["a"][..]), ("c", &["b"]), ("d", &["b"])];
    for (number, (key, inputs)) in tasks.into_iter().enumerate() {
        let output = if number < 2 { Output::No } else { Output::Kept };
        let task = crate::Task::new(key, FunctionId(number as u32), crate::Inputs::Keys(inputs));
        let costs = crate::Task { bytes: 1 << 20, seconds: 1e-6, output, source: number == 0, ..task };
        builder.add(costs).unwrap();
    }
    let graph = builder.build().unwrap();
    let (rewritten, copied) = copied(&graph);
    assert_eq!((rewritten.graph.len(), copied), (2, 2));
    assert_eq!(outputs(&rewritten.graph), outputs(&graph));
}
