//! Ranks that finish one after the other: each fills its memory when its left neighbour has, and ends when
//! that has ended. So a job that does not fit can go on as long as somebody in RAM can finish.
//!
//! `bdrun -np 4 --memory 64M relay 24 1` (MiB per rank, seconds that rank 0 takes)

use std::process::ExitCode;
use std::time::Duration;

#[global_allocator]
static HEAP: sbmalloc::SbHeap = sbmalloc::SbHeap;

const FILLED: u32 = 1;
const ENDED: u32 = 2;

fn run(mib: usize, seconds: f64) -> bdrun_worker::Result<()> {
    let world = bdrun_worker::init()?;
    let comm = world.communicator();
    let (rank, last) = (comm.rank(), comm.size() - 1);
    if rank > 0 {
        comm.recv::<u8>(rank - 1, FILLED)?;
    }
    let value = |i: usize| (i as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ rank as u64;
    let data: Vec<u64> = (0..(mib << 20) / 8).map(value).collect();
    if rank < last {
        comm.send(rank + 1, FILLED, &[0u8])?;
    }
    if rank > 0 {
        comm.recv::<u8>(rank - 1, ENDED)?;
    } else {
        std::thread::sleep(Duration::from_secs_f64(seconds));
    }
    assert!(data.iter().enumerate().all(|(i, &x)| x == value(i)), "memory changed");
    if rank < last {
        comm.send(rank + 1, ENDED, &[0u8])?;
    } else {
        println!("{} ranks ended in turn", comm.size());
    }
    Ok(())
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let mib = args.first().and_then(|a| a.parse().ok());
    let seconds = args.get(1).and_then(|a| a.parse().ok());
    let (Some(mib), Some(seconds)) = (mib, seconds) else {
        eprintln!("usage: relay MIB_PER_RANK SECONDS");
        return ExitCode::from(2);
    };
    match run(mib, seconds) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("relay: {error}");
            ExitCode::FAILURE
        }
    }
}
