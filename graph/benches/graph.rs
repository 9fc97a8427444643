//! Figures of bdrun-graph: `cargo bench -p bdrun-graph -- WHAT…`; the script `benches/graph` says more.
//!
//!     orders FILE…      peaks of orders beside Dask's, of graphs that tests/data/export.py wrote
//!     spills FILE…      bytes that are moved in little memory, of such graphs
//!     online FILE…      the same if sizes are found out while they run
//!     large [TASKS]     how long it takes to order graphs of so many tasks
//!     overhead [TASKS [THREADS]]   what a task costs that does nothing

#[path = "../tests/common/bdg.rs"]
mod bdg;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::path::Path;
use std::time::Instant;

use bdrun_graph::online::{Counts, Effect, Event, Online, Place};
use bdrun_graph::order::{self, Effort};
use bdrun_graph::plan::{least_moved, plan};
use bdrun_graph::run::{Block, Call, NoStore, Progress, Threads};
use bdrun_graph::{Builder, FunctionId, Graph, Inputs, Output, Task, TaskId};

fn main() {
    let words: Vec<String> = std::env::args().skip(1).filter(|word| word != "--bench").collect();
    let number =
        |at: usize, default: usize| words.get(at).map_or(default, |word| word.parse().expect("a number"));
    match words.first().map(String::as_str) {
        Some("orders") => orders(&words[1..]),
        Some("spills") => spills(&words[1..]),
        Some("online") => learning(&words[1..]),
        Some("large") => large(number(1, 1_000_000)),
        Some("overhead") => overhead(number(1, 1_000_000), number(2, 2)),
        _ => println!(
            "usage: orders FILE… | spills FILE… | online FILE… | large [TASKS] | overhead [TASKS [THREADS]]"
        ),
    }
}

/// Seconds of processor that this process has used: the machine may be busy with other things.
fn processor() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks = |at: usize| fields.get(at).and_then(|field| field.parse::<f64>().ok()).unwrap_or_default();
    (ticks(11) + ticks(12)) / 100.0
}

fn orders(files: &[String]) {
    println!(
        "| graph | tasks | Dask's peak, bytes | bdrun's | ratio | two threads' bound | no order less than | seconds |\n|---|---|---|---|---|---|---|---|"
    );
    let mut ratios = Vec::new();
    for file in files {
        let (graph, dask) = bdg::read(Path::new(file));
        order::check(&graph, &dask).expect("Dask's order is one");
        let dask = order::peak(&graph, &dask).bytes;
        let begin = Instant::now();
        let found = order::order(&graph, Effort::default());
        let seconds = begin.elapsed().as_secs_f64();
        order::check(&graph, &found.tasks).expect("an order");
        let ratio = found.peak.bytes as f64 / dask as f64;
        ratios.push(ratio);
        let name = Path::new(file).file_stem().unwrap_or_default().to_string_lossy();
        let least = order::least(&graph) as f64 / dask as f64;
        let two = order::bound(&graph, &found.tasks, 2) as f64 / dask as f64;
        println!(
            "| {name} | {} | {dask} | {} | {ratio:.3} | {two:.3} | {least:.3} | {seconds:.2} |",
            graph.len(),
            found.peak.bytes
        );
    }
    ratios.sort_by(f64::total_cmp);
    if !ratios.is_empty() {
        println!("median {:.3}, most {:.3}", ratios[ratios.len() / 2], ratios[ratios.len() - 1]);
    }
}

/// Bytes that are moved in a part of the way from the largest need to the order's peak.
fn spills(files: &[String]) {
    println!(
        "| graph | tasks | part of the way | moved, bytes | users gathered | ratio | seconds |\n|---|---|---|---|---|---|---|"
    );
    for file in files {
        let (graph, _) = bdg::read(Path::new(file));
        let found = order::order(&graph, Effort::default());
        let largest = graph.tasks().map(|task| graph.need(task)).max().unwrap_or(0);
        let name = Path::new(file).file_stem().unwrap_or_default().to_string_lossy();
        for part in [0.05, 0.2, 0.5] {
            let budget = largest + (found.peak.bytes.saturating_sub(largest) as f64 * part) as u64;
            let alone = plan(&graph, &found.tasks, budget).expect("all fits").moved();
            let begin = Instant::now();
            let less = least_moved(&graph, &found.tasks, budget).expect("all fits");
            let seconds = begin.elapsed().as_secs_f64();
            less.verify(&graph).expect("a plan");
            println!(
                "| {name} | {} | {part} | {alone} | {} | {:.3} | {seconds:.2} |",
                graph.len(),
                less.moved(),
                less.moved() as f64 / alone.max(1) as f64
            );
        }
    }
}

/// What running a graph moves whose sizes are found out while it runs, on two workers, beside what a plan
/// moves that knows them. A task takes a unit of time, and so does a sixteenth of the budget on its way.
fn learning(files: &[String]) {
    println!(
        "| graph | part of the way | planned, bytes | found out, written | read | ratio | orders | time |\n|---|---|---|---|---|---|---|---|"
    );
    for file in files {
        let (graph, _) = bdg::read(Path::new(file));
        let found = order::order(&graph, Effort::default());
        let largest = graph.tasks().map(|task| graph.need(task) + graph.bytes(task)).max().unwrap_or(0);
        let name = Path::new(file).file_stem().unwrap_or_default().to_string_lossy();
        for part in [0.05, 0.2, 0.5] {
            let budget = largest + (found.peak.bytes.saturating_sub(largest) as f64 * part) as u64;
            let least = least_moved(&graph, &found.tasks, budget).expect("all fits");
            let (counts, time) = learn(&graph, budget);
            println!(
                "| {name} | {part} | {} | {} | {} | {:.2} | {} | {time:.2} |",
                least.moved(),
                counts.written,
                counts.read,
                (counts.written + counts.read) as f64 / least.moved().max(1) as f64,
                counts.orders
            );
        }
    }
}

/// What it did, and how long it took beside what two workers take for so many tasks.
fn learn(graph: &Graph, budget: u64) -> (Counts, f64) {
    let mut numbers = HashMap::new();
    let mut kind = |task| {
        let next = numbers.len() as u32;
        *numbers.entry(graph.body(task)).or_insert(next)
    };
    let kinds = graph.tasks().map(&mut kind).collect();
    let effort = Effort { visits: 10_000_000, ..Effort::default() };
    let mut online = Online::new(graph.clone(), kinds, budget, 2, effort);
    online.begin();
    let (mut heap, mut events) = (BinaryHeap::new(), Vec::new());
    let (mut now, mut disk) = (0_u64, 0_u64);
    // In units of bytes that are moved in the time.
    let unit = budget / 16;
    while !online.is_done() {
        let effects: Vec<Effect> = online.effects().collect();
        for effect in effects {
            let mut moved = |task: TaskId| {
                disk = disk.max(now) + graph.bytes(task);
                disk
            };
            let (time, event) = match effect {
                Effect::Run { task, .. } => {
                    let bytes = graph.bytes(task);
                    (now + unit, Event::Done { task, bytes, took: bytes + graph.work(task) })
                }
                Effect::Store(task, Place::Memory) => (now, Event::Stored(task)),
                Effect::Store(task, Place::Scratch) => (moved(task), Event::Stored(task)),
                Effect::Write(task) => (moved(task), Event::Written(task)),
                Effect::Read(task) => (moved(task), Event::Read(task)),
                Effect::Forget(..) => continue,
            };
            heap.push(Reverse((time, events.len())));
            events.push(event);
        }
        let Reverse((time, number)) = heap.pop().expect("something is on its way");
        now = time;
        online.handle(events[number]);
    }
    (online.counts(), now as f64 / (unit as f64 * graph.len() as f64 / 2.0))
}

/// C = Aᵀ B in blocks: rows × columns blocks of C, each the sum of `inner` products.
fn product(rows: usize, columns: usize, inner: usize) -> Graph {
    let mut builder = Builder::default();
    let block = 8 << 10;
    let mut load = |name: &str, row: usize, column: usize| {
        let key = format!("{name}-{row}-{column}");
        let task = Task::new(&key, FunctionId(0), Inputs::Tasks(&[]));
        builder.add(Task { bytes: block, source: true, ..task }).expect("a task")
    };
    let a: Vec<TaskId> = (0..rows * inner).map(|at| load("a", at / inner, at % inner)).collect();
    let b: Vec<TaskId> = (0..columns * inner).map(|at| load("b", at / inner, at % inner)).collect();
    // Columns outside: not the order in which to run them.
    for column in 0..columns {
        for row in 0..rows {
            let parts: Vec<TaskId> = (0..inner)
                .map(|at| {
                    let inputs = [a[row * inner + at], b[column * inner + at]];
                    let key = format!("p-{row}-{column}-{at}");
                    let task = Task::new(&key, FunctionId(1), Inputs::Tasks(&inputs));
                    builder.add(Task { bytes: block, ..task }).expect("a task")
                })
                .collect();
            let key = format!("c-{row}-{column}");
            let task = Task::new(&key, FunctionId(2), Inputs::Tasks(&parts));
            builder.add(Task { bytes: block, output: Output::Stored, ..task }).expect("a task");
        }
    }
    builder.build().expect("a graph")
}

/// An anomaly: x - mean over rows of x, for each column of blocks, with a tree of means.
fn anomaly(rows: usize, columns: usize) -> Graph {
    let mut builder = Builder::default();
    for column in 0..columns {
        let mut add = |key: String, inputs: &[TaskId], bytes: u64, output: Output| {
            let task = Task::new(&key, FunctionId(1), Inputs::Tasks(inputs));
            builder.add(Task { bytes, output, source: inputs.is_empty(), ..task }).expect("a task")
        };
        let blocks: Vec<TaskId> =
            (0..rows).map(|row| add(format!("x-{row}-{column}"), &[], 8192, Output::No)).collect();
        let mut means: Vec<TaskId> =
            (0..rows).map(|row| add(format!("m-{row}-{column}"), &[blocks[row]], 512, Output::No)).collect();
        let mut level = 0;
        while means.len() > 1 {
            level += 1;
            means = means
                .chunks(4)
                .enumerate()
                .map(|(at, part)| add(format!("m{level}-{at}-{column}"), part, 512, Output::No))
                .collect();
        }
        for (row, block) in blocks.iter().enumerate() {
            add(format!("d-{row}-{column}"), &[*block, means[0]], 8192, Output::Stored);
        }
    }
    builder.build().expect("a graph")
}

/// Blocks in a square, each cut into nine pieces, and joined with pieces of its eight neighbours.
fn overlap(side: usize) -> Graph {
    let mut builder = Builder::default();
    let mut add = |key: String, inputs: &[TaskId], bytes: u64, output: Output| {
        let task = Task::new(&key, FunctionId(1), Inputs::Tasks(inputs));
        builder.add(Task { bytes, output, source: inputs.is_empty(), ..task }).expect("a task")
    };
    let at = |row: usize, column: usize| row * side + column;
    let blocks: Vec<TaskId> =
        (0..side * side).map(|block| add(format!("x-{block}"), &[], 8192, Output::No)).collect();
    for row in 0..side {
        for column in 0..side {
            let rows = row.saturating_sub(1)..(row + 2).min(side);
            let around = rows.flat_map(|row| {
                (column.saturating_sub(1)..(column + 2).min(side)).map(move |column| (row, column))
            });
            let pieces: Vec<TaskId> = around
                .map(|(other, beside)| {
                    let whole = (other, beside) == (row, column);
                    let key = format!("g-{row}-{column}-{other}-{beside}");
                    add(key, &[blocks[at(other, beside)]], if whole { 8192 } else { 512 }, Output::No)
                })
                .collect();
            let joined = add(format!("j-{row}-{column}"), &pieces, 10240, Output::No);
            let mapped = add(format!("f-{row}-{column}"), &[joined], 10240, Output::No);
            add(format!("t-{row}-{column}"), &[mapped], 8192, Output::Stored);
        }
    }
    builder.build().expect("a graph")
}

/// Layers of tasks each of which needs up to three of the layer before, near its own place.
fn layers(tasks: usize) -> Graph {
    let width = 1000.min(tasks);
    let mut builder = Builder::default();
    let mut seed = 1_u64;
    let mut random = move |end: u64| {
        seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (seed >> 33) % end
    };
    for task in 0..tasks {
        let inputs: Vec<TaskId> = if task < width {
            Vec::new()
        } else {
            let near = |offset: u64| (task - width + offset as usize).saturating_sub(2).min(task - 1);
            (0..1 + random(3)).map(|_| TaskId(near(random(5)) as u32)).collect()
        };
        let key = task.to_string();
        let task = Task::new(&key, FunctionId(1), Inputs::Tasks(&inputs));
        builder.add(Task { bytes: 1 + random(1000), ..task }).expect("a task");
    }
    builder.build().expect("a graph")
}

fn large(tasks: usize) {
    let side = ((tasks / 5) as f64).sqrt() as usize;
    type Make = Box<dyn Fn() -> Graph>;
    let graphs: [(&str, Make); 5] = [
        ("product, square", Box::new(move || product(side, side, 4))),
        ("product, long", Box::new(move || product(tasks / 80, 16, 4))),
        ("anomaly", Box::new(move || anomaly(430, tasks / 1000))),
        ("layers", Box::new(move || layers(tasks))),
        ("overlap", Box::new(move || overlap(((tasks / 17) as f64).sqrt() as usize))),
    ];
    let only = std::env::var("ONLY").unwrap_or_default();
    for (name, make) in graphs.into_iter().filter(|(name, _)| name.contains(&only)) {
        let begin = Instant::now();
        let graph = make();
        let built = begin.elapsed().as_secs_f64();
        let (begin, used) = (Instant::now(), processor());
        let found = order::order(&graph, Effort::default());
        let (seconds, used) = (begin.elapsed().as_secs_f64(), processor() - used);
        order::check(&graph, &found.tasks).expect("an order");
        let added: Vec<TaskId> = graph.tasks().collect();
        let as_added = order::peak(&graph, &added).bytes as f64;
        println!(
            "{name}: {} tasks, built in {built:.2} s, ordered in {seconds:.2} s (processor {used:.2} s); peak {} bytes, {:.4} of that as added",
            graph.len(),
            found.peak.bytes,
            found.peak.bytes as f64 / as_added
        );
    }
}

/// A result of no size.
#[derive(Clone)]
struct Nothing;

impl Block for Nothing {
    fn bytes(&self) -> u64 {
        0
    }
}

/// What a task costs that does nothing: many that need nothing, a chain, and a tree of sums.
fn overhead(tasks: usize, threads: usize) {
    let graphs: [(&str, Graph); 3] =
        [("apart", wide(tasks, 0)), ("two chains", wide(tasks, 2)), ("layers", layers(tasks))];
    for (name, graph) in graphs {
        let order: Vec<TaskId> = graph.tasks().collect();
        let budget = order::bound(&graph, &order, threads);
        let (begin, used) = (Instant::now(), processor());
        let plan = plan(&graph, &order, budget).expect("it fits");
        let planned = begin.elapsed().as_secs_f64();
        let begin = Instant::now();
        let run = Threads { compute: threads, transfer: 0 };
        let call = |_: Call, _: Vec<Nothing>| Ok(Nothing);
        run.run(&graph, &plan, &NoStore, &Progress::default(), call).expect("nothing fails");
        let seconds = begin.elapsed().as_secs_f64();
        let each = 1e6 / graph.len() as f64;
        println!(
            "{name}: {} tasks on {threads} threads in {seconds:.2} s, {:.2} µs each (planned in {planned:.2} s; processor, with \
             planning, {:.2} µs each)",
            graph.len(),
            seconds * each,
            (processor() - used) * each
        );
    }
}

/// Tasks that need none, or the one so many before.
fn wide(tasks: usize, back: usize) -> Graph {
    let mut builder = Builder::default();
    for task in 0..tasks {
        let inputs: Vec<TaskId> = task
            .checked_sub(back)
            .filter(|_| back > 0)
            .into_iter()
            .map(|input| TaskId(input as u32))
            .collect();
        let key = task.to_string();
        builder
            .add(Task { bytes: 8, ..Task::new(&key, FunctionId(0), Inputs::Tasks(&inputs)) })
            .expect("a task");
    }
    builder.build().expect("a graph")
}
