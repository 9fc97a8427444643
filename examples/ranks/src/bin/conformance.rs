//! The communicator's conformance suite (`worker/tests/suite`) on processes: `bdrun -np 9 conformance`. Each
//! rank holds some memory meanwhile, which it checks after every round, so that with a small `--memory` the
//! suite runs out of core.

#[path = "../../../../worker/tests/suite/mod.rs"]
mod suite;

#[global_allocator]
static HEAP: sbmalloc::SbHeap = sbmalloc::SbHeap;

fn main() {
    let mut args =
        std::env::args().skip(1).map(|a| a.parse().expect("a number: bytes per rank, then rounds"));
    let (bytes, rounds) = (args.next().unwrap_or(0), args.next().unwrap_or(1));
    let world = bdrun_worker::init().expect("join the job");
    let comm = world.communicator();
    let ballast: Vec<u64> = (0..bytes as u64 / 8).map(|i| i * 0x9e37_79b9 + comm.rank() as u64).collect();
    for round in 0..rounds {
        suite::all(comm);
        let wrong =
            ballast.iter().enumerate().filter(|(i, x)| **x != *i as u64 * 0x9e37_79b9 + comm.rank() as u64);
        assert_eq!(wrong.count(), 0, "memory changed in round {round}");
    }
    if comm.rank() == 0 {
        println!("{} ranks conform", comm.size());
    }
}
