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
        let all = order::candidates(&graph);
        let took = t.elapsed();
        let mut list: Vec<(f64, String)> = all.iter().map(|(name, o)| {
            order::check(&graph, o).unwrap();
            (order::peak(&graph, o).bytes as f64 / base.bytes as f64, name.clone())
        }).collect();
        list.sort_by(|a, b| a.0.total_cmp(&b.0));
        let text: Vec<String> = list.iter().take(6).map(|(r, n)| format!("{n} {r:.3}")).collect();
        println!("   {} | least {:.3} in {:?}", text.join("  "), order::least(&graph) as f64 / base.bytes as f64, took);
    }
}
