//! experiment
#[path = "../tests/common/bdg.rs"]
mod bdg;
use bdrun_graph::order;
use std::time::Instant;
fn main() {
    let args: Vec<String> = std::env::args().skip(1).filter(|a| a != "--bench").collect();
    for arg in &args {
        let t = Instant::now();
        let (graph, dask) = bdg::read(std::path::Path::new(arg));
        let read = t.elapsed();
        order::check(&graph, &dask).unwrap();
        let base = order::peak(&graph, &dask);
        println!("{arg}: {} tasks, read {read:?}; dask peak {} at {}, least {}", graph.len(), base.bytes, base.place, order::least(&graph));
        let t = Instant::now();
        let found = order::order(&graph, order::Effort::default()).tasks;
        let took = t.elapsed();
        order::check(&graph, &found).unwrap();
        println!("    ==== {:.3} | least {:.3} in {:?}", order::peak(&graph, &found).bytes as f64 / base.bytes as f64, order::least(&graph) as f64 / base.bytes as f64, took);
    }
}
