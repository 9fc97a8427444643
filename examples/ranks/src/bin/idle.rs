//! Ranks that hold memory and wait, to see what waiting costs: all fill their memory and meet; rank 0 sleeps
//! while the others wait for it in a barrier; then all check their memory.
//!
//! `bdrun -np 8 --memory 64M idle 32 3` (MiB per rank, seconds)

use std::process::ExitCode;
use std::time::Duration;

#[global_allocator]
static HEAP: sbmalloc::SbHeap = sbmalloc::SbHeap;

fn run(mib: usize, seconds: f64) -> bdrun_worker::Result<()> {
    let world = bdrun_worker::init()?;
    let comm = world.communicator();
    let value = |i: usize| (i as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ comm.rank() as u64;
    let data: Vec<u64> = (0..(mib << 20) / 8).map(value).collect();
    comm.barrier()?;
    if comm.rank() == 0 {
        println!("asleep");
        std::thread::sleep(Duration::from_secs_f64(seconds));
    }
    comm.barrier()?;
    assert!(data.iter().enumerate().all(|(i, &x)| x == value(i)), "memory changed");
    Ok(())
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let mib = args.first().and_then(|a| a.parse().ok());
    let seconds = args.get(1).and_then(|a| a.parse().ok());
    let (Some(mib), Some(seconds)) = (mib, seconds) else {
        eprintln!("usage: idle MIB_PER_RANK SECONDS");
        return ExitCode::from(2);
    };
    match run(mib, seconds) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("idle: {error}");
            ExitCode::FAILURE
        }
    }
}
