//! Orders of graphs of real Dask programs, beside the order that Dask runs them in (`dask.order`, 2026.8).
//! The graphs in `tests/data` were exported by `tests/data/export.py`, which says how.

#[path = "common/bdg.rs"]
mod bdg;

use std::path::{Path, PathBuf};
use std::process::Command;

use bdrun_graph::order::{self, Effort};
use bdrun_graph::passes::{Keeping, cull, fuse, inline};

fn data() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data")
}

/// The peak of this crate's order, divided by that of Dask's.
fn ratio(path: &Path) -> f64 {
    let (graph, dask) = bdg::read(path);
    order::check(&graph, &dask).expect("Dask's order is one");
    let found = order::order(&graph, Effort { visits: 10_000_000, ..Effort::default() });
    order::check(&graph, &found.tasks).expect("an order");
    assert_eq!(order::peak(&graph, &found.tasks), found.peak);
    found.peak.bytes as f64 / order::peak(&graph, &dask).bytes as f64
}

/// Issue 17: in all no more than Dask's order, in the median at most 0.7 times.
#[test]
fn peaks_are_at_most_those_of_dask() {
    let mut ratios: Vec<(f64, String)> = Vec::new();
    for entry in std::fs::read_dir(data()).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "bdg") {
            ratios.push((ratio(&path), path.file_stem().unwrap().to_string_lossy().into_owned()));
        }
    }
    ratios.sort_by(|one, other| one.0.total_cmp(&other.0));
    assert!(ratios.len() >= 10, "{ratios:?}");
    println!("{ratios:?}");
    assert!(ratios.iter().all(|(ratio, _)| *ratio <= 1.0), "{ratios:?}");
    assert!(ratios[ratios.len() / 2].0 <= 0.7, "{ratios:?}");
}

/// The fail case of Dask's first scheduler, AᵀB − mean(B): blocks of the product are not kept for a mean that
/// is computed last. It takes no more than 1.2 times the product alone.
#[test]
fn the_mean_is_computed_before_all_blocks_wait_for_it() {
    let peak = |name: &str| {
        let (graph, _) = bdg::read(&data().join(name));
        order::order(&graph, Effort { visits: 10_000_000, ..Effort::default() }).peak.bytes as f64
    };
    let (with, without) = (peak("fail_case-3.bdg"), peak("product-3.bdg"));
    assert!(with <= 1.2 * without, "{with} bytes, the product alone {without}");
}

/// Where all blocks are needed twice no order takes less than all blocks. To read them twice does.
#[test]
fn inlining_reads_again_what_would_be_kept() {
    for name in ["anomaly-3.bdg", "reductions-3.bdg"] {
        let (graph, dask) = bdg::read(&data().join(name));
        let culled = cull(&graph);
        let inlined = inline(&culled.graph, Keeping::default(), |task| culled.graph.is_source(task));
        let fused = fuse(&inlined.graph).graph;
        let found = order::order(&fused, Effort { visits: 1_000_000, ..Effort::default() });
        let ratio = found.peak.bytes as f64 / order::peak(&graph, &dask).bytes as f64;
        println!("{name}: {ratio:.3}, {} tasks of {}", fused.len(), graph.len());
        assert!(ratio <= 0.35, "{name}: {ratio}");
    }
}

/// The same of a graph that is exported now, by the Dask that is there: `BDRUN_SDDP_PYTHON`, or `python3`.
#[test]
fn a_graph_of_this_machines_dask() {
    let python = std::env::var("BDRUN_SDDP_PYTHON").unwrap_or_else(|_| "python3".into());
    let import = "import dask.array, dask._task_spec, dask.order";
    let found = Command::new(&python).args(["-c", import]).output();
    if !found.is_ok_and(|output| output.status.success()) {
        bdrun_skipped::skipped("dask", format!("{python} has no dask"));
        return;
    }
    let directory = std::env::temp_dir().join(format!("bdrun-graph-dask-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let script = data().join("export.py");
    let output = Command::new(python).arg(script).arg(&directory).args(["product", "gram"]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    for name in ["product-1.bdg", "gram-1.bdg"] {
        assert!(ratio(&directory.join(name)) <= 1.0, "{name}");
    }
    std::fs::remove_dir_all(&directory).unwrap();
}
