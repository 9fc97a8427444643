//! Random graphs, run in mind: what is done when is random, and each effect is checked against what is
//! where.

use super::{Effect, Event, Online, Place};
use crate::graph::{Graph, Output, TaskId};
use crate::order::{Effort, least};
use crate::testing::{Random, chains, random_graph};
use crate::{Builder, FunctionId, Inputs, Task};

/// Where results are, and what runs.
#[derive(Default)]
struct Model {
    memory: Vec<bool>,
    scratch: Vec<bool>,
    runs: Vec<TaskId>,
    /// What was asked for and not answered.
    asked: Vec<Effect>,
    ran: Vec<u32>,
    done: Vec<bool>,
    died: u32,
    too_large: u32,
}

impl Model {
    fn bytes(&self, graph: &Graph) -> u64 {
        let here = graph.tasks().filter(|task| self.memory[task.index()]).map(|task| graph.bytes(task));
        // While a result is stored the worker has it as well, and nothing else.
        let work = |task: TaskId| if self.done[task.index()] { 0 } else { graph.work(task) };
        let runs = self.runs.iter().map(|&task| graph.bytes(task) + work(task));
        here.sum::<u64>() + runs.sum::<u64>()
    }
}

/// What of a run is different from others.
#[derive(Clone, Copy)]
struct Way {
    budget: u64,
    workers: usize,
    /// Sizes are known before.
    known: bool,
    /// One of so many tasks dies when it runs for the first time; 0: none.
    die: u64,
    /// The budget changes.
    elastic: bool,
}

/// Runs a graph; `graph` has the true sizes.
fn run(graph: &Graph, groups: Vec<u32>, way: Way, random: &mut Random) -> (Model, super::Counts) {
    let effort = Effort { visits: 2_000, exact: 6, threads: 1 };
    let mut online = Online::new(graph.clone(), groups, way.budget, way.workers, effort);
    if way.known {
        graph.tasks().for_each(|task| online.learn(task, graph.bytes(task), took(graph, task)));
    }
    online.begin();
    let tasks = graph.len();
    let mut model = Model {
        memory: vec![false; tasks],
        scratch: vec![false; tasks],
        ran: vec![0; tasks],
        done: vec![false; tasks],
        ..Model::default()
    };
    let mut budget = way.budget;
    let mut steps = 0_u64;
    loop {
        let effects: Vec<Effect> = online.effects().collect();
        for effect in effects {
            match effect {
                Effect::Run { task, too_large } => {
                    assert!(graph.needs(task).all(|input| model.memory[input.index()]));
                    model.runs.push(task);
                    model.ran[task.index()] += 1;
                    model.too_large += u32::from(too_large);
                    if too_large {
                        assert_eq!(model.runs.len(), 1, "what is too large runs alone");
                    }
                    assert!(model.runs.len() <= way.workers);
                }
                Effect::Store(task, place) => {
                    assert!(model.runs.contains(&task));
                    if place == Place::Memory {
                        model.memory[task.index()] = true;
                    }
                }
                Effect::Write(task) => assert!(model.memory[task.index()] && !model.scratch[task.index()]),
                Effect::Read(task) => {
                    assert!(!model.memory[task.index()] && model.scratch[task.index()]);
                    model.memory[task.index()] = true;
                }
                Effect::Forget(task, place) => {
                    let used = model.runs.iter().any(|&run| graph.needs(run).any(|input| input == task));
                    assert!(!used || place == Place::Scratch, "what is used stays");
                    let of = if place == Place::Memory { &mut model.memory } else { &mut model.scratch };
                    assert!(std::mem::replace(&mut of[task.index()], false));
                }
            }
            if !matches!(effect, Effect::Forget(..)) {
                model.asked.push(effect);
            }
        }
        let bytes = model.bytes(graph);
        if way.known && !way.elastic && model.too_large == 0 && way.die == 0 {
            assert!(bytes <= way.budget, "{bytes} of {}", way.budget);
            assert!(bytes <= online.used(), "{bytes} and {} are counted", online.used());
        }
        if online.is_done() {
            break;
        }
        assert!(
            !model.asked.is_empty(),
            "stuck with {} of {budget} used: {:?}",
            online.used(),
            online.states
        );
        let at = random.below(model.asked.len() as u64) as usize;
        steps += 1;
        if way.elastic && random.below(10) == 0 {
            budget = way.budget / (1 + random.below(3));
            online.handle(Event::Budget(budget));
            continue;
        }
        let event = match model.asked.swap_remove(at) {
            Effect::Run { task, .. } => {
                if way.die > 0 && model.ran[task.index()] == 1 && random.below(way.die) == 0 {
                    model.runs.retain(|&other| other != task);
                    model.died += 1;
                    Event::Died(task)
                } else if random.below(8) == 0 {
                    model.asked.push(Effect::Run { task, too_large: false });
                    Event::Took(task, random.below(took(graph, task) + 1))
                } else {
                    model.done[task.index()] = true;
                    Event::Done { task, bytes: graph.bytes(task), took: took(graph, task) }
                }
            }
            Effect::Store(task, place)
                if way.die > 0 && model.ran[task.index()] == 1 && random.below(way.die) == 0 =>
            {
                model.runs.retain(|&other| other != task);
                model.done[task.index()] = false;
                if place == Place::Memory {
                    model.memory[task.index()] = false;
                }
                model.died += 1;
                Event::Died(task)
            }
            Effect::Store(task, place) => {
                model.runs.retain(|&other| other != task);
                if place == Place::Scratch {
                    model.scratch[task.index()] = true;
                }
                Event::Stored(task)
            }
            Effect::Write(task) => {
                model.scratch[task.index()] = true;
                Event::Written(task)
            }
            Effect::Read(task) => Event::Read(task),
            Effect::Forget(..) => unreachable!(),
        };
        online.handle(event);
        assert!(steps < 1_000 + 100 * tasks as u64, "it goes on for ever");
    }
    for task in graph.tasks() {
        assert!(model.ran[task.index()] >= 1);
        let kept = model.memory[task.index()] || model.scratch[task.index()];
        assert_eq!(kept, graph.output(task) == Output::Kept, "{task:?}");
        assert_eq!(online.place(task).is_some(), kept);
    }
    assert_eq!(model.ran.iter().sum::<u32>(), tasks as u32 + model.died);
    assert!(model.asked.is_empty() && model.runs.is_empty());
    assert_eq!(online.used(), model.bytes(graph));
    (model, online.counts())
}

fn took(graph: &Graph, task: TaskId) -> u64 {
    graph.bytes(task) + graph.work(task)
}

/// What no task can do without here: inputs, what it takes, and the result a second time.
fn need(graph: &Graph) -> u64 {
    graph.tasks().map(|task| graph.need(task) + graph.bytes(task)).max().unwrap_or(0)
}

fn graphs(seeds: u64, mut each: impl FnMut(&Graph, &mut Random)) {
    for seed in 0..seeds {
        let random = &mut Random::new(seed);
        let tasks = 1 + random.below(60) as usize;
        let graph = if seed % 3 == 0 { chains(random, tasks) } else { random_graph(random, tasks) };
        each(&graph, random);
    }
}

const SEEDS: u64 = 3_000;

#[test]
fn the_budget_is_kept_if_sizes_are_known() {
    let mut written = 0;
    graphs(SEEDS, |graph, random| {
        let budget = need(graph) + random.below(least(graph));
        let way = Way { budget, workers: 1 + random.below(4) as usize, known: true, die: 0, elastic: false };
        let (model, counts) = run(graph, (0..graph.len() as u32).collect(), way, random);
        assert_eq!(model.too_large, 0);
        assert!(counts.most <= budget, "{} of {budget}", counts.most);
        written += counts.written;
    });
    assert!(written > 0);
}

#[test]
fn all_ends_whatever_sizes_are() {
    graphs(SEEDS, |graph, random| {
        let budget = 1 + random.below(2 * need(graph));
        let (workers, die) = (1 + random.below(4) as usize, random.below(3) * 7);
        let way = Way { budget, workers, known: false, die, elastic: random.below(2) == 0 };
        let groups = graph.tasks().map(|task| task.0 % 7).collect();
        run(graph, groups, way, random);
    });
}

/// What is learned changes the order: of two ways through a graph that differ only by sizes the one that
/// takes less.
#[test]
fn what_is_learned_makes_a_better_order() {
    use crate::{Builder, FunctionId, Inputs, Task};
    // Large blocks, each of which becomes small; all of the small ones are summed. By itself nothing says
    // whether to make all large ones first.
    let mut builder = Builder::default();
    let (mut ends, mut groups) = (Vec::new(), Vec::new());
    for at in 0..100 {
        let keys = [format!("large{at}"), format!("small{at}")];
        let large = Task { bytes: 1000, ..Task::new(&keys[0], FunctionId(0), Inputs::Tasks(&[])) };
        let large = builder.add(large).unwrap();
        let inputs = [large];
        let small = Task { bytes: 1, ..Task::new(&keys[1], FunctionId(1), Inputs::Tasks(&inputs)) };
        ends.push(builder.add(small).unwrap());
        groups.extend([0, 1]);
    }
    let sum =
        Task { bytes: 1, output: Output::Kept, ..Task::new("sum", FunctionId(2), Inputs::Tasks(&ends)) };
    builder.add(sum).unwrap();
    groups.push(2);
    let graph = builder.build().unwrap();
    let way = Way { budget: 20_000, workers: 2, known: false, die: 0, elastic: false };
    let (_, counts) = run(&graph, groups, way, &mut Random::new(1));
    assert_eq!(counts.written, 0);
    assert!(counts.most < 20_000, "{}", counts.most);
}

/// What takes no room is stored at once, also while more is taken than there is.
#[test]
fn nothing_waits_for_no_room() {
    use crate::{Builder, FunctionId, Inputs, Task};
    let mut builder = Builder::default();
    let tasks = ["one", "other"].map(|key| {
        let task = Task { output: Output::Kept, ..Task::new(key, FunctionId(0), Inputs::Tasks(&[])) };
        builder.add(task).unwrap()
    });
    let effort = Effort { visits: 100, exact: 6, threads: 1 };
    let mut online = Online::new(builder.build().unwrap(), vec![0, 1], 100, 2, effort);
    online.begin();
    assert_eq!(online.effects().count(), 2, "both run");
    online.handle(Event::Took(tasks[0], 1000));
    online.handle(Event::Done { task: tasks[1], bytes: 0, took: 10 });
    assert!(online.effects().any(|effect| effect == Effect::Store(tasks[1], Place::Memory)));
    online.handle(Event::Stored(tasks[1]));
    online.handle(Event::Done { task: tasks[0], bytes: 1000, took: 1000 });
    assert!(online.effects().any(|effect| effect == Effect::Store(tasks[0], Place::Scratch)));
    online.handle(Event::Stored(tasks[0]));
    assert!(online.is_done());
}

/// Results of which only a fifth fits are all needed at the end: each task waits for others to be written,
/// which takes a fiftieth of its time, and not for those that run.
#[test]
fn full_memory_keeps_no_worker_idle() {
    let (tasks, bytes) = (200_u64, 10);
    let mut builder = Builder::default();
    for task in 0..tasks {
        let key = format!("t{task}");
        let task = Task::new(&key, FunctionId(0), Inputs::Tasks(&[]));
        builder.add(Task { bytes, output: Output::Kept, ..task }).unwrap();
    }
    let graph = builder.build().unwrap();
    for workers in [1, 2, 4, 16] {
        let budget = 40 * bytes;
        let effort = Effort { visits: 0, exact: 0, threads: 1 };
        let mut online = Online::new(graph.clone(), vec![0; tasks as usize], budget, workers, effort);
        online.learn(TaskId(0), bytes, bytes);
        online.begin();
        let mut events = std::collections::BTreeMap::new();
        let (mut now, mut number) = (0, 0);
        while !online.is_done() {
            let effects: Vec<Effect> = online.effects().collect();
            for effect in effects {
                let (takes, event) = match effect {
                    Effect::Run { task, .. } => (50, Event::Done { task, bytes, took: bytes }),
                    Effect::Store(task, _) => (0, Event::Stored(task)),
                    Effect::Write(task) => (1, Event::Written(task)),
                    Effect::Read(task) => (1, Event::Read(task)),
                    Effect::Forget(..) => continue,
                };
                number += 1;
                events.insert((now + takes, number), event);
            }
            let ((time, _), event) = events.pop_first().unwrap();
            now = time;
            online.handle(event);
        }
        let least = 50 * tasks / workers as u64;
        assert!(now <= least * 5 / 4 + 50, "{now} with {workers} workers, {least} at least");
    }
}

/// To find the next use of a result that many tasks share, each of them is passed once, and once for each new
/// order; to read it again asks only those that are staged.
#[test]
fn a_result_that_many_share_is_looked_at_once_for_each() {
    const USERS: u64 = 3000;
    let mut builder = Builder::default();
    let of = |key: &str, builder: &mut Builder, inputs: &[TaskId], output| {
        let task = Task::new(key, FunctionId(0), Inputs::Tasks(inputs));
        builder.add(Task { bytes: 64, output, ..task }).unwrap()
    };
    let shared = of("shared", &mut builder, &[], Output::No);
    let mut groups = vec![0];
    for user in 0..USERS {
        // Between two of them memory is short, and the shared one could leave.
        let large = of(&format!("x{user}"), &mut builder, &[], Output::No);
        let half = of(&format!("h{user}"), &mut builder, &[large], Output::No);
        of(&format!("y{user}"), &mut builder, &[half, shared], Output::Kept);
        groups.extend([1, 2, 3]);
    }
    let graph = builder.build().unwrap();
    let effort = Effort { visits: 2_000, exact: 6, threads: 1 };
    // Nearly all results leave.
    let mut online = Online::new(graph.clone(), groups, 1000, 1, effort);
    run_at_once(&mut online, |_| 64);
    let (counts, passed) = (online.counts(), online.passed);
    assert!(counts.written > USERS / 2 * 64, "{counts:?}");
    assert!(passed <= (counts.orders + 1) * USERS, "{passed} of {USERS}: {counts:?}");
}

/// Whatever runs, so many bytes each: all that is asked for is done at once, one after the other.
fn run_at_once(online: &mut Online, bytes: impl Fn(TaskId) -> u64) {
    online.begin();
    let mut events = std::collections::VecDeque::new();
    while !online.is_done() {
        let effects: Vec<Effect> = online.effects().collect();
        events.extend(effects.into_iter().filter_map(|effect| match effect {
            Effect::Run { task, .. } => Some(Event::Done { task, bytes: bytes(task), took: bytes(task) }),
            Effect::Store(task, _) => Some(Event::Stored(task)),
            Effect::Write(task) => Some(Event::Written(task)),
            Effect::Read(task) => Some(Event::Read(task)),
            Effect::Forget(..) => None,
        }));
        online.handle(events.pop_front().expect("something is on its way"));
    }
}

/// Where thousands of results are in memory and one makes room for the next, not all are looked at each time.
#[test]
fn of_many_results_few_are_looked_at() {
    const MANY: u64 = 4000;
    let mut builder = Builder::default();
    let mut of = |key: &str, inputs: &[TaskId], output| {
        let task = Task::new(key, FunctionId(0), Inputs::Tasks(inputs));
        builder.add(Task { bytes: 64, output, ..task }).unwrap()
    };
    // Twice as many as fit, each of which is needed once more when the sum of all is known.
    let mut made = Vec::new();
    let mut sum = of("s", &[], Output::No);
    for one in 0..MANY {
        made.push(of(&format!("m{one}"), &[], Output::No));
        sum = of(&format!("s{one}"), &[sum, made[one as usize]], Output::No);
    }
    for (one, &made) in made.iter().enumerate() {
        of(&format!("u{one}"), &[made, sum], Output::Kept);
    }
    let graph = builder.build().unwrap();
    let groups = graph.tasks().map(|task| u32::from(graph.key(task).as_bytes()[0])).collect();
    let effort = Effort { visits: 0, exact: 0, threads: 1 };
    let mut online = Online::new(graph, groups, MANY / 2 * 64, 2, effort);
    run_at_once(&mut online, |_| 64);
    let (counts, looked) = (online.counts(), online.looked);
    assert!(counts.written > MANY / 4 * 64, "{counts:?}");
    assert!(looked < 20 * MANY, "{looked} of {MANY}: {counts:?}");
}

/// A task of very many inputs waits for room, and then for its inputs, while at each event others are asked
/// about too: its inputs are not summed up each time.
#[test]
fn what_has_many_inputs_is_summed_up_seldom() {
    const MANY: u64 = 1500;
    let mut builder = Builder::default();
    let mut of = |key: &str, inputs: &[TaskId], output| {
        let task = Task::new(key, FunctionId(0), Inputs::Tasks(inputs));
        builder.add(Task { bytes: 64, output, ..task }).unwrap()
    };
    let all = |of: &mut dyn FnMut(u64) -> TaskId| (0..MANY).map(of).collect::<Vec<_>>();
    let wide = all(&mut |at| of(&format!("s{at}"), &[], Output::No));
    let mut last = of("q", &wide, Output::No);
    // Twice what comes between lets them leave; what is made of it is needed until the end.
    for phase in ["m", "y"] {
        let first = last;
        let made = all(&mut |at| of(&format!("{phase}{at}"), &[first], Output::No));
        for (at, &one) in made.iter().enumerate() {
            last = of(&format!("t{phase}{at}"), &[last, one], Output::No);
        }
        let mut inputs = if phase == "y" { wide.clone() } else { Vec::new() };
        inputs.push(last);
        last = of(&format!("r{phase}"), &inputs, Output::No);
        for (at, &one) in made.iter().enumerate() {
            let output = if phase == "y" { Output::Kept } else { Output::No };
            let after = of(&format!("z{phase}{at}"), &[last, one], output);
            last = if phase == "m" { after } else { last };
        }
    }
    let graph = builder.build().unwrap();
    let groups = graph.tasks().map(|task| u32::from(graph.key(task).as_bytes()[0])).collect();
    let effort = Effort { visits: 0, exact: 0, threads: 1 };
    let mut online = Online::new(graph.clone(), groups, MANY * 64 * 5 / 4, 2, effort);
    run_at_once(&mut online, |_| 64);
    let (counts, added) = (online.counts(), online.added);
    assert!(counts.written > MANY * 64 && counts.read > MANY * 64, "{counts:?}");
    // Beside those of all tasks, once for each event of a task that runs.
    let edges: u64 = graph.tasks().map(|task| graph.needs(task).len() as u64).sum();
    assert!(added < 20 * edges, "{added} of {edges}: {counts:?}");
}
