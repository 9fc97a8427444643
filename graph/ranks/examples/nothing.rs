//! What a task costs that does nothing, on the ranks of a job: `bdrun -np 3 nothing [TASKS [BYTES]]`. Half of
//! the tasks make results of so many bytes, each of which another takes.

use std::sync::Arc;
use std::time::Instant;

use bdrun_graph::order::{self, Effort};
use bdrun_graph::plan::plan;
use bdrun_graph::run::{Call, Progress};
use bdrun_graph::{Builder, FunctionId, Inputs, Output, Task};
use bdrun_graph_ranks::Ranks;

type Value = Arc<Vec<u8>>;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let number = |at, default| std::env::args().nth(at).map_or(Ok(default), |text| text.parse::<u64>());
    let (tasks, bytes) = (number(1, 100_000)?, number(2, 8)?);
    let world = bdrun_worker::init()?;
    let mut builder = Builder::default();
    for pair in 0..tasks / 2 {
        let (make, take) = (format!("make-{pair}"), format!("take-{pair}"));
        let task = Task::new(&make, FunctionId(0), Inputs::Keys(&[]));
        builder.add(Task { bytes, ..task })?;
        let inputs = [make.as_str()];
        let task = Task::new(&take, FunctionId(1), Inputs::Keys(&inputs));
        builder.add(Task { output: Output::Stored, ..task })?;
    }
    let graph = builder.build()?;
    let order = order::order(&graph, Effort::default());
    let budget = order::bound(&graph, &order.tasks, world.communicator().size());
    let plan = plan(&graph, &order.tasks, budget)?;
    let made: Value = Arc::new(vec![0; bytes as usize]);
    let nothing: Value = Arc::default();
    let call = |call: Call, _: Vec<Value>| match call.function {
        FunctionId(0) => Ok(made.clone()),
        _ => Ok(nothing.clone()),
    };
    world.communicator().barrier()?;
    let begin = Instant::now();
    let outcome = Ranks::of(&world).run(&graph, &plan, &Progress::default(), call)?;
    if let Some(outcome) = outcome {
        let micros = begin.elapsed().as_secs_f64() * 1e6 / graph.len() as f64;
        println!(
            "{} tasks on {} ranks: {micros:.2} us each; {outcome:?}",
            graph.len(),
            world.communicator().size()
        );
    }
    Ok(())
}
