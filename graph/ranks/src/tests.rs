//! Graphs on ranks that are threads of this process.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use bdrun_graph::order::{self, Effort};
use bdrun_graph::plan::{Plan, plan};
use bdrun_graph::run::{
    Call, Event, Failure, FileStore, Lend, Lent, Program, Progress, RunError, Spill, Threads, What,
};
use bdrun_graph::{Builder, FunctionId, Graph, Inputs, Output, Task, TaskId};
use bdrun_worker::local;
use proptest::prelude::*;

use crate::desk::Desk;
use crate::{Error, Ranks};

type Value = Arc<Vec<u8>>;

/// A graph: of each task its bytes, its inputs among those before it, and what becomes of it.
#[derive(Clone, Debug)]
struct Drawn(Vec<(u64, Vec<prop::sample::Index>, Output, bool)>);

fn drawn() -> impl Strategy<Value = Drawn> {
    let bytes = prop_oneof![0_u64..100, 4_000_u64..4_200, 5_000_u64..60_000];
    let output = prop_oneof![3 => Just(Output::No), 1 => Just(Output::Kept), 1 => Just(Output::Stored)];
    let inputs = prop::collection::vec(any::<prop::sample::Index>(), 0..4);
    prop::collection::vec((bytes, inputs, output, any::<bool>()), 1..40).prop_map(Drawn)
}

impl Drawn {
    fn graph(&self) -> Graph {
        let mut builder = Builder::default();
        for (at, (bytes, inputs, output, source)) in self.0.iter().enumerate() {
            let names: Vec<String> =
                inputs.iter().filter(|_| at > 0).map(|i| i.index(at).to_string()).collect();
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            let key = at.to_string();
            let task = Task::new(&key, FunctionId(at as u32 % 3), Inputs::Keys(&names));
            let source = *source && names.is_empty();
            builder.add(Task { bytes: *bytes, output: *output, source, ..task }).unwrap();
        }
        builder.build().unwrap()
    }
}

/// Bytes that depend on the task and all it was given.
fn value(task: TaskId, inputs: &[Value], bytes: u64) -> Value {
    let mut hasher = DefaultHasher::new();
    (task.index(), inputs).hash(&mut hasher);
    let seed = hasher.finish();
    Arc::new((0..bytes).map(|at| (seed >> (8 * (at % 8))) as u8 ^ at as u8).collect())
}

/// A plan with so much of what is between the least budget and the peak, in a hundred parts.
fn planned(graph: &Graph, part: u64) -> Plan {
    let order = order::order(graph, Effort::default());
    let least = graph.tasks().map(|task| graph.need(task)).max().unwrap_or(0);
    let budget = least + (order.peak.bytes.max(least) - least) * part / 100;
    plan(graph, &order.tasks, budget).unwrap()
}

/// What each rank returns; of rank 0 the results that are kept, and the peak.
#[allow(clippy::type_complexity, reason = "it is taken apart at once")]
fn on_ranks(
    ranks: usize,
    graph: &Graph,
    plan: &Plan,
    call: impl Fn(usize, Call, Vec<Value>) -> Result<Value, Failure> + Sync,
) -> Vec<Result<Option<(Vec<Option<Value>>, u64)>, Error>> {
    local::run(ranks, |comm| {
        let call = |this: Call, inputs| call(comm.rank(), this, inputs);
        let outcome = Ranks::on(&comm).run(graph, plan, &Progress::default(), call)?;
        Ok(outcome.map(|mut outcome| {
            let kept = graph.tasks().map(|task| outcome.take(task).unwrap()).collect();
            (kept, outcome.peak)
        }))
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn ranks_compute_what_threads_do_within_the_budget(
        drawn in drawn(),
        ranks in 1_usize..6,
        part in 0_u64..130,
    ) {
        let graph = drawn.graph();
        let plan = planned(&graph, part);
        let compute = |call: Call, inputs: &[Value]| value(call.task, inputs, graph.bytes(call.task));
        let store = FileStore::new(&std::env::temp_dir()).unwrap();
        let threads = Threads { compute: 1, transfer: 0 };
        let call = |call: Call, inputs: Vec<Value>| Ok(compute(call, &inputs));
        let mut expected = threads.run(&graph, &plan, &store, &Progress::default(), call).unwrap();
        let mut all = on_ranks(ranks, &graph, &plan, |_, call, inputs| Ok(compute(call, &inputs)));
        let (kept, peak) = all.remove(0).unwrap().unwrap();
        prop_assert!(peak <= plan.budget);
        for (task, found) in graph.tasks().zip(kept) {
            prop_assert_eq!(found, expected.take(task).unwrap());
        }
        prop_assert!(all.into_iter().all(|other| matches!(other, Ok(None))));
    }
}

/// `x`, `y`, their sum of 50,000 bytes, kept.
fn sum() -> (Graph, TaskId) {
    let mut builder = Builder::default();
    for key in ["x", "y"] {
        builder.add(Task { bytes: 50_000, ..Task::new(key, FunctionId(0), Inputs::Keys(&[])) }).unwrap();
    }
    let task = Task::new("sum", FunctionId(1), Inputs::Keys(&["x", "y"]));
    let sum = builder.add(Task { bytes: 50_000, output: Output::Kept, origin: "job.rs:7", ..task }).unwrap();
    (builder.build().unwrap(), sum)
}

/// What rank 0 and each other say of it.
fn said(call: impl Fn(usize, Call, Vec<Value>) -> Result<Value, Failure> + Sync) -> String {
    let (graph, _) = sum();
    let mut all = on_ranks(4, &graph, &planned(&graph, 100), call);
    let first = all.remove(0).unwrap_err().to_string();
    for other in all {
        assert_eq!(other.unwrap_err().to_string(), format!("rank 0 says: {first}"));
    }
    first
}

#[test]
fn what_goes_wrong_is_said_by_all_and_names_the_rank() {
    let read = |_: usize, call: Call, _| match call.function {
        FunctionId(0) => Ok(Arc::new(vec![1; 50_000])),
        _ => Err("no sum".into()),
    };
    let text = said(read);
    assert!(text.starts_with("task sum (job.rs:7) failed: no sum (on rank "), "{text}");
    assert!(text.contains("; it was given x, y; that was made from x, y"), "{text}");
    let text = said(|rank, _, _| if rank > 0 { panic!("of rank {rank}") } else { Ok(Arc::default()) });
    assert!(text.contains("it panicked: of rank ") && text.contains("(on rank "), "{text}");
    let text = said(|_, _, _| Ok(Arc::new(vec![0; 50_001])));
    assert!(text.contains("has 50001 bytes, and the graph says 50000"), "{text}");
}

/// Bytes as they were lent.
#[derive(Clone)]
enum Seen {
    Own(Value),
    Lent(Lent),
}

impl Seen {
    fn bytes(&self) -> &[u8] {
        match self {
            Self::Own(bytes) => bytes,
            Self::Lent(lent) => lent.bytes(),
        }
    }
}

impl bdrun_graph::run::Block for Seen {
    fn bytes(&self) -> u64 {
        self.bytes().len() as u64
    }
}

impl Spill for Seen {
    type Head = u8;

    fn spill(&self) -> (u8, &[u8]) {
        (7, self.bytes())
    }

    fn restore(&head: &u8, len: usize, fill: &mut bdrun_graph::run::Fill<'_>) -> std::io::Result<Self> {
        assert_eq!(head, 7);
        Ok(Self::Own(<Value as Spill>::restore(&(), len, fill)?))
    }
}

impl Lend for Seen {
    fn encode(&head: &u8) -> Vec<u8> {
        vec![head]
    }

    fn decode(head: &[u8]) -> std::io::Result<u8> {
        head.first().copied().ok_or_else(|| std::io::ErrorKind::InvalidData.into())
    }

    fn borrow(&head: &u8, bytes: Lent) -> std::io::Result<Self> {
        assert_eq!(head, 7);
        Ok(Self::Lent(bytes))
    }
}

#[test]
fn who_returns_its_input_gives_a_copy_and_who_keeps_it_is_told_so() {
    let (graph, sum) = sum();
    let plan = planned(&graph, 100);
    let all = local::run(3, |comm| {
        let call = |call: Call, mut inputs: Vec<Seen>| match call.function {
            FunctionId(0) => Ok(Seen::Own(value(call.task, &[], 50_000))),
            _ => Ok(inputs.remove(1)),
        };
        let outcome = Ranks::on(&comm).run(&graph, &plan, &Progress::default(), call).unwrap();
        outcome.map(|mut outcome| outcome.take::<Seen>(sum).unwrap().unwrap().bytes().to_vec())
    });
    assert_eq!(all[0].as_deref(), Some(&value(TaskId(1), &[], 50_000)[..]));

    let kept = std::sync::Mutex::new(Vec::new());
    let all = local::run(3, |comm| {
        let call = |call: Call, inputs: Vec<Seen>| {
            kept.lock().unwrap().extend(inputs);
            Ok(Seen::Own(value(call.task, &[], 50_000)))
        };
        Ranks::on(&comm).run(&graph, &plan, &Progress::default(), call).map(|_| ())
    });
    let text = all[0].as_ref().unwrap_err().to_string();
    assert!(text.contains("sum") && text.contains("the function has kept what it was given"), "{text}");
    assert!(all[1..].iter().all(|other| matches!(other, Err(Error::Elsewhere(_)))));
    assert_eq!(
        kept.into_inner().unwrap()[0].bytes(),
        &value(TaskId(0), &[], 50_000)[..],
        "it is still there"
    );

    // Also if the function fails.
    let kept = std::sync::Mutex::new(Vec::new());
    let all = local::run(3, |comm| {
        let call = |call: Call, inputs: Vec<Seen>| match call.function {
            FunctionId(0) => Ok(Seen::Own(value(call.task, &[], 50_000))),
            _ => {
                kept.lock().unwrap().extend(inputs);
                Err("no sum".into())
            }
        };
        Ranks::on(&comm).run(&graph, &plan, &Progress::default(), call).map(|_| ())
    });
    assert!(all[0].as_ref().unwrap_err().to_string().contains("no sum"), "{all:?}");
    assert_eq!(kept.into_inner().unwrap()[1].bytes(), &value(TaskId(1), &[], 50_000)[..]);
}

#[test]
fn rank_0_runs_what_is_at_home_there_and_nothing_else() {
    let (graph, _) = sum();
    let plan = planned(&graph, 100);
    let ran = [AtomicU64::new(0), AtomicU64::new(0)];
    let all = local::run(3, |comm| {
        let call = |call: Call, inputs: Vec<Value>| {
            let is_home = comm.rank() == 0;
            assert_eq!(is_home, call.function == FunctionId(1), "{call:?}");
            ran[usize::from(is_home)].fetch_add(1, SeqCst);
            Ok(value(call.task, &inputs, 50_000))
        };
        let ranks = Ranks::on(&comm).at_home(|graph, task| graph.needs(task).len() > 0);
        ranks.run(&graph, &plan, &Progress::default(), call).map(|_| ()).unwrap();
    });
    assert_eq!((all.len(), ran.map(AtomicU64::into_inner)), (3, [2, 1]));
}

#[test]
fn a_cancelled_run_ends_and_says_so() {
    let (graph, _) = sum();
    let plan = planned(&graph, 100);
    let all = local::run(2, |comm| {
        let progress = Progress::default();
        progress.cancel();
        let call = |_: Call, _: Vec<Value>| -> Result<Value, Failure> { panic!("nothing starts") };
        Ranks::on(&comm).run(&graph, &plan, &progress, call).map(|_| ())
    });
    assert!(matches!(all[0], Err(Error::Run(RunError::Cancelled))), "{:?}", all[0]);
    assert_eq!(all[1].as_ref().unwrap_err().to_string(), "rank 0 says: cancelled");
}

#[test]
fn ranks_that_run_something_else_are_named() {
    let (graph, _) = sum();
    let all = local::run(3, |comm| {
        let plan = planned(&graph, if comm.rank() == 2 { 99 } else { 100 });
        let plan = Plan { budget: plan.budget + u64::from(comm.rank() == 2), ..plan };
        let call = |call: Call, inputs: Vec<Value>| Ok(value(call.task, &inputs, 50_000));
        Ranks::on(&comm).run(&graph, &plan, &Progress::default(), call).map(|_| ())
    });
    let text = all[0].as_ref().unwrap_err().to_string();
    assert!(text.starts_with("rank 2 runs another graph or plan than rank 0"), "{text}");
    for other in &all[1..] {
        assert_eq!(other.as_ref().unwrap_err().to_string(), format!("rank 0 says: {text}"));
    }
    // Other functions, or other data, in the same order.
    let all = local::run(2, |comm| {
        let mut builder = Builder::default();
        let task = Task::new("x", FunctionId(comm.rank() as u32), Inputs::Keys(&[]));
        builder.add(Task { output: Output::Stored, ..task }).unwrap();
        let graph = builder.build().unwrap();
        let call = |_: Call, _: Vec<Value>| Ok(Value::default());
        Ranks::on(&comm).run(&graph, &planned(&graph, 100), &Progress::default(), call).map(|_| ())
    });
    assert!(matches!(all[0], Err(Error::Differ { rank: 1, .. })), "{:?}", all[0]);
    let (graph, _) = sum();
    let plan = planned(&graph, 100);
    let all = local::run(2, |comm| {
        let call = |call: Call, inputs: Vec<Value>| Ok(value(call.task, &inputs, 50_000));
        let ranks = Ranks::on(&comm).data(comm.rank() as u128);
        ranks.run(&graph, &plan, &Progress::default(), call).map(|_| ())
    });
    assert_eq!(all[0].as_ref().unwrap_err().to_string(), "rank 1 reads other data than rank 0");
}

#[test]
fn messages_of_the_program_are_its_own() {
    let (graph, sum) = sum();
    let plan = planned(&graph, 100);
    local::run(3, |comm| {
        for tag in 0..5 {
            comm.send(0, tag, &[tag]).unwrap();
        }
        for _ in 0..2 {
            let call = |call: Call, inputs: Vec<Value>| Ok(value(call.task, &inputs, 50_000));
            let outcome = Ranks::on(&comm).run(&graph, &plan, &Progress::default(), call).unwrap();
            assert!(outcome.is_none_or(|mut outcome| outcome.take::<Value>(sum).unwrap().is_some()));
        }
        for tag in (0..5).filter(|_| comm.rank() == 0) {
            (0..3).for_each(|from| assert_eq!(comm.recv::<u32>(from, tag).unwrap().0, [tag]));
        }
    });
}

/// What spills more than it says that it takes.
#[derive(Clone)]
struct Liar(Value);

impl bdrun_graph::run::Block for Liar {
    fn bytes(&self) -> u64 {
        1
    }
}

impl Spill for Liar {
    type Head = ();

    fn spill(&self) -> ((), &[u8]) {
        ((), &self.0)
    }

    fn restore(head: &(), len: usize, fill: &mut bdrun_graph::run::Fill<'_>) -> std::io::Result<Self> {
        Value::restore(head, len, fill).map(Self)
    }
}

impl Lend for Liar {
    fn encode((): &()) -> Vec<u8> {
        Vec::new()
    }

    fn decode(_: &[u8]) -> std::io::Result<()> {
        Ok(())
    }

    fn borrow(head: &(), bytes: Lent) -> std::io::Result<Self> {
        Value::borrow(head, bytes).map(Self)
    }
}

#[test]
fn what_is_larger_than_its_place_is_not_written_there() {
    let (graph, _) = sum();
    let plan = planned(&graph, 100);
    let all = local::run(2, |comm| {
        let call = |_: Call, _: Vec<Liar>| Ok(Liar(Arc::new(vec![7; 60_000])));
        Ranks::on(&comm).run(&graph, &plan, &Progress::default(), call).map(|_| ())
    });
    assert!(matches!(all[0], Err(Error::Run(RunError::Size { bytes: 60_000, .. }))), "{:?}", all[0]);
}

#[test]
fn scratch_that_cannot_be_had_is_an_error_on_all() {
    let (graph, _) = sum();
    let plan = planned(&graph, 100);
    let all = local::run(2, |comm| {
        let call = |call: Call, inputs: Vec<Value>| Ok(value(call.task, &inputs, 50_000));
        let ranks = Ranks::on(&comm).scratch("/nowhere/at/all".as_ref());
        ranks.run(&graph, &plan, &Progress::default(), call).map(|_| ())
    });
    assert!(matches!(all[0], Err(Error::Shared { what: "made", .. })), "{:?}", all[0]);
    assert!(matches!(all[1], Err(Error::Elsewhere(_))));
}

#[test]
fn scratch_is_where_that_of_others_is() {
    local::run(1, |comm| {
        let said = format!("{:?}", Ranks::on(&comm));
        let directory = bdrun_graph::run::scratch_directory().display().to_string();
        assert!(said.ends_with(&format!("scratch on {directory}")), "{said}");
    });
}

#[test]
fn that_there_are_no_addresses_is_said() {
    let (graph, _) = sum();
    let plan = planned(&graph, 100);
    let program = Program::new(&graph, &plan);
    let mut desk = Desk::new(&graph, &program, (plan.budget, 50_000), 2, |_| false);
    assert!(desk.next().is_none() && desk.has_failed());
    let text = desk.into_kept().unwrap_err().to_string();
    assert!(text.contains("task x cannot be given room in shared memory"), "{text}");
    assert!(text.contains("no 50000 bytes of addresses"), "{text}");
}

/// Of the budget only what is kept is counted when all has run, and no more of it than was not taken.
#[test]
fn what_is_kept_is_counted_until_it_is_taken() {
    let (graph, sum) = sum();
    let plan = planned(&graph, 100);
    for ranks in [1, 3] {
        local::run(ranks, |comm| {
            let call = |call: Call, inputs: Vec<Value>| Ok(value(call.task, &inputs, 50_000));
            let outcome = Ranks::on(&comm).run(&graph, &plan, &Progress::default(), call).unwrap();
            let Some(mut outcome) = outcome else { return };
            assert_eq!(outcome.shared.counted.bytes, 13 * 4096);
            assert!(outcome.take::<Value>(TaskId(0)).unwrap().is_none());
            assert_eq!(outcome.shared.counted.bytes, 13 * 4096);
            let inputs = [TaskId(0), TaskId(1)].map(|task| value(task, &[], 50_000));
            assert_eq!(outcome.take(sum).unwrap(), Some(value(sum, &inputs, 50_000)));
            assert_eq!(outcome.shared.counted.bytes, 0);
        });
    }
}

#[test]
fn what_happens_is_noted_in_order() {
    let (graph, sum) = sum();
    let plan = planned(&graph, 100);
    let all = local::run(2, |comm| {
        let progress = Progress::traced();
        let call = |call: Call, inputs: Vec<Value>| Ok(value(call.task, &inputs, 50_000));
        Ranks::on(&comm).run(&graph, &plan, &progress, call).unwrap();
        (progress.take_events(), progress.stage().done)
    });
    let (events, done) = &all[0];
    let of = |what: What| events.iter().position(|event: &Event| event.what == what).unwrap();
    let run = |task: u32| bdrun_graph::run::Step::Run(TaskId(task));
    assert!(of(What::End(run(0))) < of(What::Begin(run(sum.0))));
    assert!(of(What::End(run(sum.0))) < of(What::Release(TaskId(0))));
    assert_eq!((*done, events.iter().map(|event| event.live).max()), (3, Some(150_000)));
    assert!(all[1].0.is_empty());
}
