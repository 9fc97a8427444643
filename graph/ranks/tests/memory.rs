//! How much memory ranks share, as the kernel counts it. The only test of its process.

use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use bdrun_graph::plan::plan;
use bdrun_graph::run::{Call, Progress};
use bdrun_graph::{Builder, FunctionId, Inputs, Output, Task, order};
use bdrun_graph_ranks::{Ranks, pages};

/// Bytes of pages in memory that graphs of this process share.
fn shared() -> u64 {
    let mut found = std::collections::BTreeMap::new();
    for entry in std::fs::read_dir("/proc/self/fd").unwrap().flatten() {
        let is_ours = |path: std::path::PathBuf| path.to_string_lossy().contains("memfd:bdrun-graph");
        if std::fs::read_link(entry.path()).is_ok_and(is_ours)
            && let Ok(meta) = std::fs::metadata(entry.path())
        {
            found.insert(meta.ino(), meta.blocks() * 512);
        }
    }
    found.values().sum()
}

#[test]
fn pages_stay_within_the_budget_and_go_with_the_outcome() {
    // Chains of results of several sizes that meet at the end, in less than they take together.
    let mut builder = Builder::default();
    let mut ends = Vec::new();
    for chain in 0..24_u64 {
        for link in 0..6_u64 {
            let (key, before) = (format!("{chain}.{link}"), format!("{chain}.{}", link.saturating_sub(1)));
            let inputs: &[&str] = if link == 0 { &[] } else { &[&before] };
            let bytes = 4096 * (20 + (7 * chain + 5 * link) % 30) - 100 * (link % 3);
            builder.add(Task { bytes, ..Task::new(&key, FunctionId(0), Inputs::Keys(inputs)) }).unwrap();
        }
        ends.push(format!("{chain}.5"));
    }
    for (at, pair) in ends.chunks(4).enumerate() {
        let inputs: Vec<&str> = pair.iter().map(String::as_str).collect();
        let task = Task::new("", FunctionId(1), Inputs::Keys(&inputs));
        let (key, output) = (format!("end {at}"), Output::Kept);
        builder.add(Task { key: &key, bytes: 4096 * 30, output, ..task }).unwrap();
    }
    let graph = builder.build().unwrap();
    let order = order::order(&graph, order::Effort::default());
    let budget = order.peak.bytes * 2 / 3;
    let plan = plan(&graph, &order.tasks, budget).unwrap();
    assert!(plan.written > 0, "not all fits");

    let most = AtomicU64::new(0);
    bdrun_worker::local::run(4, |comm| {
        let call = |call: Call, _: Vec<Arc<Vec<u8>>>| {
            most.fetch_max(shared(), SeqCst);
            Ok(Arc::new(vec![1; graph.bytes(call.task) as usize]))
        };
        let outcome = Ranks::on(&comm).run(&graph, &plan, &Progress::default(), call).unwrap();
        if let Some(mut outcome) = outcome {
            let task = graph.tasks().last().unwrap();
            assert_eq!(outcome.take::<Arc<Vec<u8>>>(task).unwrap().unwrap().len(), 4096 * 30);
            assert!(outcome.take::<Arc<Vec<u8>>>(task).unwrap().is_none());
        }
        // It is there until all have ended.
        comm.barrier().unwrap();
    });
    let most = most.into_inner();
    let pages = pages(&graph, budget);
    assert!(pages > budget && most > budget / 2 && most <= pages, "{most} of {budget}, {pages}");
    assert_eq!(shared(), 0);
}
