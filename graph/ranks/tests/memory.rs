//! How much memory ranks share, as the kernel counts it. The only test of its process.

use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, OnceLock};

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

/// That memory once more.
fn open() -> std::fs::File {
    let mut files = std::fs::read_dir("/proc/self/fd").unwrap().flatten().map(|entry| entry.path());
    let is_it = |path: &std::path::PathBuf| {
        std::fs::read_link(path).is_ok_and(|link| link.to_string_lossy().contains("memfd:bdrun-graph"))
    };
    std::fs::File::open(files.find(is_it).unwrap()).unwrap()
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
    // As a rank that does not hear of the end for long: it has the memory open.
    let late = OnceLock::new();
    let ends: Vec<_> = graph.tasks().filter(|&task| graph.output(task) == Output::Kept).collect();
    bdrun_worker::local::run(4, |comm| {
        let call = |call: Call, _: Vec<Arc<Vec<u8>>>| {
            late.get_or_init(open);
            most.fetch_max(shared(), SeqCst);
            Ok(Arc::new(vec![1; graph.bytes(call.task) as usize]))
        };
        let outcome = Ranks::on(&comm).run(&graph, &plan, &Progress::default(), call).unwrap();
        if let Some(mut outcome) = outcome {
            // What is kept is there, or on scratch, and nothing else.
            let mut before = shared();
            assert!(before <= ends.len() as u64 * 4096 * 30, "{before}");
            for &task in &ends {
                assert_eq!(outcome.take::<Arc<Vec<u8>>>(task).unwrap().unwrap().len(), 4096 * 30);
                assert!(outcome.take::<Arc<Vec<u8>>>(task).unwrap().is_none());
                let now = shared();
                assert!(now == before || now + 4096 * 30 == before, "{now} of {before}");
                before = now;
            }
            assert_eq!(before, 0);
        }
        // It is there until all have ended.
        comm.barrier().unwrap();
    });
    let most = most.into_inner();
    let pages = pages(&graph, &plan);
    assert!(pages > budget && most > budget / 2 && most <= pages, "{most} of {budget}, {pages}");
    assert_eq!(shared(), 0);
    drop(late);

    // Whatever becomes of it, with its end nothing is there: of results that nobody has taken, or that were
    // there when something failed, no rank that still has them open keeps anything.
    for fails in [false, true] {
        let late = OnceLock::new();
        bdrun_worker::local::run(4, |comm| {
            let call = |call: Call, _: Vec<Arc<Vec<u8>>>| {
                late.get_or_init(open);
                if fails && call.function == FunctionId(1) {
                    assert!(shared() > 0);
                    return Err("no".into());
                }
                Ok(Arc::new(vec![1; graph.bytes(call.task) as usize]))
            };
            let outcome = Ranks::on(&comm).run(&graph, &plan, &Progress::default(), call);
            assert_eq!(outcome.is_err(), fails);
            let is_there = outcome.as_ref().is_ok_and(Option::is_some);
            assert_eq!(is_there && shared() > 0, is_there, "some results are in memory");
            drop(outcome);
            if comm.rank() == 0 {
                assert_eq!(shared(), 0, "{fails}");
            }
            comm.barrier().unwrap();
        });
        assert!(late.into_inner().is_some());
    }
}
