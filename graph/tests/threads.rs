//! Executions on threads: results, budgets, failures.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use bdrun_graph::order::{self, Effort};
use bdrun_graph::passes::{Keeping, cull, fuse, inline};
use bdrun_graph::plan::{Action, Plan, plan};
use bdrun_graph::run::{
    Block, Event, Failure, FileStore, Fill, NoStore, Progress, RunError, Spill, Step, Store, Threads, What,
};
use bdrun_graph::{Builder, FunctionId, Graph, Inputs, Output, Task, TaskId};
use proptest::prelude::*;

/// A block that counts itself: how many bytes all blocks have that are alive.
#[derive(Clone, Debug)]
struct Counted(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    bytes: Vec<u8>,
    alive: Arc<AtomicU64>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.alive.fetch_sub(self.bytes.len() as u64, Ordering::SeqCst);
    }
}

impl Counted {
    fn new(bytes: Vec<u8>, alive: &Arc<AtomicU64>) -> Self {
        alive.fetch_add(bytes.len() as u64, Ordering::SeqCst);
        Self(Arc::new(Inner { bytes, alive: alive.clone() }))
    }
}

impl Block for Counted {
    fn bytes(&self) -> u64 {
        self.0.bytes.len() as u64
    }
}

impl Spill for Counted {
    type Head = Arc<AtomicU64>;

    fn spill(&self) -> (Self::Head, &[u8]) {
        (self.0.alive.clone(), &self.0.bytes)
    }

    fn restore(head: &Self::Head, len: usize, fill: &mut Fill<'_>) -> std::io::Result<Self> {
        let mut bytes = vec![0; len];
        fill(&mut bytes)?;
        Ok(Self::new(bytes, head))
    }
}

/// What a function makes of its arguments: bytes that depend on all of them.
fn mixed(function: u32, arguments: &[&[u8]], len: usize) -> Vec<u8> {
    let mut hash = u64::from(function) + 1;
    for argument in arguments {
        for byte in *argument {
            hash = (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01B3);
        }
        hash = hash.rotate_left(7);
    }
    (0..len).map(|at| (hash.wrapping_mul(at as u64 * 2 + 1) >> 32) as u8).collect()
}

#[derive(Clone, Debug)]
struct Spec {
    bytes: u64,
    inputs: Vec<usize>,
    kept: u8,
    source: bool,
}

fn specs() -> impl Strategy<Value = Vec<Spec>> {
    let spec = (1_u64..200, prop::collection::vec(1_usize..12, 0..4), 0_u8..6, any::<bool>());
    prop::collection::vec(spec, 1..60).prop_map(|specs| {
        let make = |(task, (bytes, back, kept, source)): (usize, (u64, Vec<usize>, u8, bool))| {
            let inputs: Vec<usize> = back.iter().filter_map(|back| task.checked_sub(*back)).collect();
            Spec { bytes, source: source && inputs.is_empty(), inputs, kept }
        };
        specs.into_iter().enumerate().map(make).collect()
    })
}

fn build(specs: &[Spec]) -> Graph {
    let mut builder = Builder::default();
    for (number, spec) in specs.iter().enumerate() {
        let inputs: Vec<TaskId> = spec.inputs.iter().map(|&input| TaskId(input as u32)).collect();
        let (key, output) = (
            format!("t{number}"),
            match spec.kept {
                0 => Output::Kept,
                1 => Output::Stored,
                _ if number + 1 == specs.len() => Output::Kept,
                _ => Output::No,
            },
        );
        let task = Task::new(&key, FunctionId(number as u32), Inputs::Tasks(&inputs));
        // Costs are known, so that sources are made part of others.
        let (bytes, source) = (spec.bytes, spec.source);
        builder.add(Task { bytes, output, source, seconds: 0.5, ..task }).unwrap();
    }
    builder.build().unwrap()
}

/// As many as `PROPTEST_CASES` says, or what takes a second.
fn cases() -> u32 {
    std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(120)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever graph, passes, budget and number of threads: kept results are what they are without all that,
    /// and the bytes of blocks that are alive are within the budget.
    #[test]
    fn results_are_right_within_the_budget(specs in specs(), threads in 1_usize..4, room in 0.0_f64..1.2, passes in any::<bool>()) {
        let plain = build(&specs);
        let mut expected: Vec<Vec<u8>> = Vec::new();
        for (number, spec) in specs.iter().enumerate() {
            let arguments: Vec<&[u8]> = spec.inputs.iter().map(|&input| &*expected[input]).collect();
            let value = mixed(number as u32, &arguments, spec.bytes as usize);
            expected.push(value);
        }
        let culled = cull(&plain);
        let rewritten = if passes {
            let fused = fuse(&culled.graph).after(&culled);
            inline(&fused.graph, Keeping { seconds_per_byte: 1.0 }, |_| false).after(&fused)
        } else {
            culled
        };
        let graph = &rewritten.graph;
        let order = order::order(graph, Effort { visits: 100_000, ..Effort::default() });
        let most = graph.tasks().map(|task| graph.need(task)).max().unwrap_or(0);
        let budget = most + ((order.peak.bytes - most) as f64 * room) as u64;
        let plan = plan(graph, &order.tasks, budget).unwrap();
        let alive = Arc::new(AtomicU64::new(0));
        let highest = AtomicU64::new(0);
        let store = FileStore::new(&std::env::temp_dir()).unwrap();
        let call = |call: bdrun_graph::run::Call, arguments: Vec<Counted>| -> Result<Counted, Failure> {
            let task = rewritten.origin(call.task, call.step);
            let bytes: Vec<&[u8]> = arguments.iter().map(|argument| &*argument.0.bytes).collect();
            let value = mixed(call.function.0, &bytes, plain.bytes(task) as usize);
            let value = Counted::new(value, &alive);
            highest.fetch_max(alive.load(Ordering::SeqCst), Ordering::SeqCst);
            Ok(value)
        };
        let progress = if passes { Progress::traced() } else { Progress::default() };
        let run = Threads { compute: threads, transfer: 1 };
        let mut outcome = run.run(graph, &plan, &store, &progress, call).unwrap();
        prop_assert!(outcome.peak <= budget);
        prop_assert!(highest.load(Ordering::SeqCst) <= budget, "{} bytes were alive, of {budget}", highest.load(Ordering::SeqCst));
        let stage = progress.stage();
        prop_assert_eq!((stage.done, stage.part), (stage.total, 1.0));
        for task in graph.tasks() {
            let found = outcome.take(task).unwrap();
            if graph.output(task) == Output::Kept {
                let original: usize = graph.key(task)[1..].parse().unwrap();
                prop_assert_eq!(&found.expect("it is kept").0.bytes, &expected[original]);
            } else {
                prop_assert!(found.is_none());
            }
        }
        drop(outcome);
        prop_assert_eq!(alive.load(Ordering::SeqCst), 0);
        prop_assert_eq!(store.used(), 0);
        let events = progress.take_events();
        prop_assert_eq!(events.is_empty(), !passes || graph.is_empty());
        told(graph, &plan, &events);
    }
}

/// What is told of a run: in order, each step once from its beginning to its end, memory given back as often
/// as it was taken (but for what is kept), and never more of it than the budget.
fn told(graph: &Graph, plan: &Plan, events: &[Event]) {
    let mut left: Vec<isize> = vec![0; graph.len()];
    let mut running = HashMap::new();
    let mut ran = vec![0; graph.len()];
    assert!(events.is_sorted_by_key(|event| event.at));
    for event in events {
        assert!(event.live <= plan.budget);
        match event.what {
            What::Begin(step) => {
                assert!(running.insert(format!("{step:?}"), ()).is_none());
                left[step.task().index()] += isize::from(!matches!(step, Step::Write(_)));
                ran[step.task().index()] += u32::from(matches!(step, Step::Run(_)));
            }
            What::End(step) => assert!(running.remove(&format!("{step:?}")).is_some()),
            What::Release(task) => left[task.index()] -= 1,
        }
    }
    assert!(running.is_empty());
    if !events.is_empty() {
        for task in graph.tasks() {
            assert!(ran[task.index()] >= 1);
            // A write's own stay has no memory, and ends with it.
            let writes =
                plan.actions.iter().filter(|&&action| action == Action::Write(task)).count() as isize;
            let kept = isize::from(graph.output(task) == Output::Kept);
            let rest = left[task.index()] + writes;
            assert!(rest == 0 || rest == kept, "{rest} of {}", graph.key(task));
        }
    }
}

type Bytes = Arc<Vec<u8>>;

fn chain() -> Graph {
    let mut builder = Builder::default();
    let tasks: [(&str, &[&str], &str); 5] = [
        ("load-a", &[], "job.py:1"),
        ("load-b", &[], "job.py:2"),
        ("sum", &["load-a", "load-b"], "job.py:5"),
        ("mean", &["sum"], "job.py:6"),
        ("out", &["mean", "sum"], "job.py:7"),
    ];
    for (place, (key, inputs, origin)) in tasks.into_iter().enumerate() {
        let task = Task::new(key, FunctionId(place as u32), Inputs::Keys(inputs));
        let output = if key == "out" { Output::Kept } else { Output::No };
        builder.add(Task { bytes: 8, output, origin, source: inputs.is_empty(), ..task }).unwrap();
    }
    builder.build().unwrap()
}

fn run_chain(
    call: impl Fn(u32) -> Result<Bytes, Failure> + Sync,
    progress: &Progress,
) -> Result<(), RunError> {
    let graph = chain();
    let order = order::order(&graph, Effort::default());
    let plan = plan(&graph, &order.tasks, order.peak.bytes).unwrap();
    let threads = Threads { compute: 2, transfer: 1 };
    threads.run(&graph, &plan, &NoStore, progress, |at, _: Vec<Bytes>| call(at.function.0)).map(drop)
}

#[test]
fn a_failure_names_the_task_and_where_it_came_from() {
    let call =
        |function| if function == 3 { Err("no such column".into()) } else { Ok(Bytes::new(vec![0; 8])) };
    let error = run_chain(call, &Progress::default()).unwrap_err();
    let text = "task mean (job.py:6) failed: no such column; it was given sum (job.py:5); that was made from \
                load-a (job.py:1), load-b (job.py:2)";
    assert_eq!(error.to_string(), text);
    let call = |function| {
        assert_ne!(function, 2, "two arrays that do not fit");
        Ok(Bytes::new(vec![0; 8]))
    };
    let error = run_chain(call, &Progress::default()).unwrap_err().to_string();
    assert!(error.starts_with("task sum (job.py:5) failed: it panicked: "), "{error}");
    assert!(error.contains("two arrays that do not fit"), "{error}");
}

#[test]
fn a_result_that_is_larger_than_declared_is_an_error() {
    let call = |function| Ok(Bytes::new(vec![0; if function == 2 { 9 } else { 7 }]));
    let error = run_chain(call, &Progress::default()).unwrap_err().to_string();
    assert_eq!(error, "the result of task sum (job.py:5) has 9 bytes, and the graph says 8");
}

#[test]
fn cancelled_is_ended_between_tasks() {
    let progress = Progress::default();
    let calls = AtomicUsize::new(0);
    let call = |function| {
        calls.fetch_add(1, Ordering::SeqCst);
        if function == 2 {
            progress.cancel();
        }
        Ok(Bytes::new(vec![0; 8]))
    };
    let error = run_chain(call, &progress).unwrap_err();
    assert!(matches!(error, RunError::Cancelled), "{error}");
    assert_eq!(calls.load(Ordering::SeqCst), 3);
    assert_eq!(progress.stage().done, 3);
}

/// A store whose scratch is full.
#[derive(Debug)]
struct Full;

impl Store<Bytes> for Full {
    type Place = ();

    fn write(&self, _: TaskId, _: &Bytes) -> std::io::Result<()> {
        Err(std::io::Error::from(std::io::ErrorKind::StorageFull))
    }

    fn read(&self, _: TaskId, (): &()) -> std::io::Result<Bytes> {
        unreachable!("nothing is written")
    }

    fn release(&self, (): ()) {}
}

/// Blocks that are all used twice, in more than the budget: two are written.
fn sweep() -> Graph {
    let mut builder = Builder::default();
    for block in 0..6 {
        let key = format!("b{block}");
        builder.add(Task { bytes: 10, ..Task::new(&key, FunctionId(0), Inputs::Tasks(&[])) }).unwrap();
    }
    let all: Vec<TaskId> = (0..6).map(TaskId).collect();
    let mut last = Vec::new();
    for round in 0..2 {
        for &block in &all {
            let key = format!("u{round}-{}", block.0);
            let inputs: Vec<TaskId> = [block].into_iter().chain(last.pop()).collect();
            last.push(
                builder
                    .add(Task { bytes: 1, ..Task::new(&key, FunctionId(1), Inputs::Tasks(&inputs)) })
                    .unwrap(),
            );
        }
    }
    builder.build().unwrap()
}

#[test]
fn a_full_scratch_names_what_could_not_be_written() {
    let graph = sweep();
    let order: Vec<TaskId> = graph.tasks().collect();
    let plan = plan(&graph, &order, 50).unwrap();
    assert!(plan.actions.iter().any(|action| matches!(action, Action::Write(_))));
    let call = |_: bdrun_graph::run::Call, _: Vec<Bytes>| Ok(Bytes::new(vec![1]));
    let run = Threads { compute: 2, transfer: 1 };
    let error = run.run(&graph, &plan, &Full, &Progress::default(), call).unwrap_err().to_string();
    assert!(
        error.starts_with("the result of task b") && error.contains(" cannot be written to scratch: "),
        "{error}"
    );
}

/// A store that panics ends the execution: no thread waits for its step for ever.
#[test]
fn a_store_that_panics_blocks_nobody() {
    #[derive(Debug)]
    struct Broken;
    impl Store<Bytes> for Broken {
        type Place = ();

        fn write(&self, _: TaskId, _: &Bytes) -> std::io::Result<()> {
            panic!("broken")
        }

        fn read(&self, _: TaskId, (): &()) -> std::io::Result<Bytes> {
            unreachable!("nothing is written")
        }

        fn release(&self, (): ()) {}
    }
    let graph = sweep();
    let order: Vec<TaskId> = graph.tasks().collect();
    let plan = plan(&graph, &order, 50).unwrap();
    let run = || {
        let call = |_: bdrun_graph::run::Call, _: Vec<Bytes>| Ok(Bytes::new(vec![1]));
        let threads = Threads { compute: 2, transfer: 1 };
        threads.run(&graph, &plan, &Broken, &Progress::default(), call).map(drop)
    };
    assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)).is_err());
}

/// A task whose inputs are out does not block others: while one is read, which takes until others have run,
/// these run.
#[test]
fn a_slow_read_blocks_nobody_else() {
    struct Slow(std::sync::Mutex<HashMap<u32, Bytes>>, Arc<AtomicUsize>);
    impl Store<Bytes> for Slow {
        type Place = u32;

        fn write(&self, task: TaskId, value: &Bytes) -> std::io::Result<u32> {
            self.0.lock().unwrap().insert(task.0, value.clone());
            Ok(task.0)
        }

        fn read(&self, _: TaskId, place: &u32) -> std::io::Result<Bytes> {
            // Up to a minute: until the others have run.
            for _ in 0..60_000 {
                if self.1.load(Ordering::SeqCst) > 1 {
                    return Ok(self.0.lock().unwrap()[place].clone());
                }
                std::thread::sleep(Duration::from_millis(1));
            }
            Err(std::io::Error::other("nothing ran while this was read"))
        }

        fn release(&self, _: u32) {}
    }
    let mut builder = Builder::default();
    let mut add = |key: &str, inputs: &[&str], bytes: u64, function: u32| {
        let task = Task::new(key, FunctionId(function), Inputs::Keys(inputs));
        builder.add(Task { bytes, output: Output::Stored, ..task }).unwrap();
    };
    add("a", &[], 60, 0);
    add("large", &[], 90, 0);
    add("uses-a", &["a"], 1, 0);
    add("one", &[], 5, 1);
    add("two", &[], 5, 1);
    add("three", &[], 5, 1);
    let graph = builder.build().unwrap();
    let order: Vec<TaskId> = graph.tasks().collect();
    let plan = plan(&graph, &order, 100).unwrap();
    assert!(plan.actions.contains(&Action::Read(TaskId(0))));
    let others = Arc::new(AtomicUsize::new(0));
    let store = Slow(std::sync::Mutex::default(), others.clone());
    let call = |call: bdrun_graph::run::Call, _: Vec<Bytes>| {
        others.fetch_add(call.function.0 as usize, Ordering::SeqCst);
        Ok(Bytes::new(vec![0; 1]))
    };
    let run = Threads { compute: 1, transfer: 1 };
    run.run(&graph, &plan, &store, &Progress::default(), call).unwrap();
    assert_eq!(others.load(Ordering::SeqCst), 3);
}

/// To free much may take long: meanwhile another thread that finds nothing to do waits.
#[test]
fn who_gives_memory_back_is_waited_for() {
    #[derive(Clone)]
    struct Slow(#[expect(dead_code, reason = "it is dropped")] Arc<SlowInner>, u64);
    struct SlowInner(Vec<u8>);
    impl Drop for SlowInner {
        fn drop(&mut self) {
            if self.0.len() > 1 << 16 {
                std::thread::sleep(Duration::from_millis(20));
            }
        }
    }
    impl Block for Slow {
        fn bytes(&self) -> u64 {
            self.1
        }
    }
    let large = 1_u64 << 20;
    let mut builder = Builder::default();
    let mut actions = Vec::new();
    for at in 0..10 {
        for (name, bytes) in [("large", large), ("small", 8)] {
            let key = format!("{name}{at}");
            let task = Task::new(&key, FunctionId(u32::from(bytes == 8)), Inputs::Tasks(&[]));
            actions.push(builder.add(Task { bytes, output: Output::Stored, ..task }).unwrap());
        }
    }
    let graph = builder.build().unwrap();
    let plan = plan(&graph, &actions, large + 100).unwrap();
    let call = |call: bdrun_graph::run::Call, _: Vec<Slow>| {
        let bytes = match call.function {
            FunctionId(0) => large,
            _ => {
                std::thread::sleep(Duration::from_millis(10));
                8
            }
        };
        Ok(Slow(Arc::new(SlowInner(vec![0; bytes as usize])), bytes))
    };
    let threads = Threads { compute: 2, transfer: 1 };
    threads.run(&graph, &plan, &NoStore, &Progress::default(), call).unwrap();
}

/// What is given to a task for the last time it has alone, also if it is given twice; and there may be very
/// many of it (to look for each one among all others took minutes).
#[test]
fn very_many_inputs_are_handed_over() {
    let mut builder = Builder::default();
    let mut inputs: Vec<TaskId> = Vec::new();
    let of = |key: &str, builder: &mut Builder| {
        let task = Task::new(key, FunctionId(0), Inputs::Tasks(&[]));
        builder.add(Task { bytes: 1, ..task }).unwrap()
    };
    for at in 0..500_000 {
        inputs.push(of(&at.to_string(), &mut builder));
    }
    inputs.push(inputs[0]);
    let kept = Task::new("kept", FunctionId(0), Inputs::Tasks(&[]));
    let kept = builder.add(Task { bytes: 1, output: Output::Kept, ..kept }).unwrap();
    inputs.push(kept);
    let all = Task::new("all", FunctionId(1), Inputs::Tasks(&inputs));
    builder.add(Task { bytes: 1, output: Output::Kept, ..all }).unwrap();
    let graph = builder.build().unwrap();
    let order = order::as_added(&graph);
    let plan = plan(&graph, &order, 1 << 20).unwrap();
    let call = |call: bdrun_graph::run::Call, inputs: Vec<Arc<Vec<u8>>>| {
        if call.function == FunctionId(1) {
            let has = |input: &Arc<Vec<u8>>| Arc::strong_count(input);
            let alone = inputs.iter().filter(|input| has(input) == 1).count();
            assert_eq!(alone, 499_999);
            assert_eq!((has(&inputs[0]), has(&inputs[500_000]), has(&inputs[500_001])), (2, 2, 2));
        }
        Ok(Arc::new(vec![0]))
    };
    let threads = Threads { compute: 2, transfer: 0 };
    threads.run(&graph, &plan, &NoStore, &Progress::default(), call).unwrap();
}
