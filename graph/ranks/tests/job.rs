//! What is counted of the budget of a job: this test is also the program that the job runs.

use std::process::Command;
use std::sync::Arc;

use bdrun_graph::plan::plan;
use bdrun_graph::run::{Call, Progress};
use bdrun_graph::{Builder, FunctionId, Inputs, Output, Task, order};
use bdrun_graph_ranks::Ranks;

#[global_allocator]
static HEAP: bdrun_worker::SbHeap = bdrun_worker::SbHeap;

const NAME: &str = "what_is_taken_is_counted_once";
const BLOCK: u64 = 8 << 20;
const BLOCKS: u64 = 12;

/// Blocks that are all kept, and then taken.
fn rank() {
    let world = bdrun_worker::init().unwrap();
    let mut builder = Builder::default();
    for block in 0..BLOCKS {
        let key = block.to_string();
        let task = Task::new(&key, FunctionId(0), Inputs::Keys(&[]));
        builder.add(Task { bytes: BLOCK, output: Output::Kept, ..task }).unwrap();
    }
    let graph = builder.build().unwrap();
    let plan = plan(&graph, &order::as_added(&graph), (BLOCKS + 2) * BLOCK).unwrap();
    let call = |_: Call, _: Vec<Arc<Vec<u8>>>| Ok(Arc::new(vec![1; BLOCK as usize]));
    let outcome = Ranks::of(&world).run(&graph, &plan, &Progress::default(), call).unwrap();
    if let Some(mut outcome) = outcome {
        let take = |task| outcome.take::<Arc<Vec<u8>>>(task).unwrap().unwrap();
        let taken: Vec<_> = graph.tasks().map(take).collect();
        assert!(taken.iter().all(|block| block.iter().all(|&byte| byte == 1)));
        println!("\nall {} are taken", taken.len());
    }
    world.communicator().barrier().unwrap();
}

/// All kept results, in the memory that ranks share or taken from there, and what else ranks have, fit. Were
/// they counted in both places, they would not.
#[test]
fn what_is_taken_is_counted_once() {
    if std::env::var_os("BDRUN_SIZE").is_some() {
        return rank();
    }
    let program = std::env::current_exe().unwrap();
    let beside = program.ancestors().nth(2).unwrap().join("program");
    let stats = std::env::temp_dir().join(format!("bdrun-graph-ranks-{}.json", std::process::id()));
    let mut command = Command::new(bdrun_skipped::bdrun_beside(&beside.to_string_lossy()));
    command.args(["-np", "3", "--memory", "160M", "--stats"]).arg(&stats).arg("--").arg(&program);
    command.args([NAME, "--exact", "--nocapture", "--test-threads=1"]);
    let output = command.output().unwrap();
    let text = std::fs::read_to_string(&stats).unwrap_or_default();
    _ = std::fs::remove_file(&stats);
    let said = format!(
        "{}{}{text}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(output.status.success() && said.contains("all 12 are taken"), "{said}");
    assert!(!text.contains("overdraft_rank"), "{said}");
    let (_, rest) = text.split_once("\"peak_resident_bytes\":").expect(&said);
    let digits: String = rest.trim_start().chars().take_while(char::is_ascii_digit).collect();
    let most: u64 = digits.parse().expect(&said);
    assert!((BLOCKS * BLOCK..=160 << 20).contains(&most), "{said}");
}
