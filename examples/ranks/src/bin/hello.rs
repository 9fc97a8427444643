//! The shortest job: all ranks start, meet at a barrier and end. Rank 0 says how many met.
//!
//! `bdrun -np 1000 hello`

use std::process::ExitCode;

#[global_allocator]
static HEAP: sbmalloc::SbHeap = sbmalloc::SbHeap;

fn main() -> ExitCode {
    let met = bdrun_worker::init().and_then(|world| {
        let comm = world.communicator();
        comm.barrier()?;
        if comm.rank() == 0 {
            println!("{} ranks met", comm.size());
        }
        // With an argument: stay that many seconds, to be looked at.
        if let Some(seconds) = std::env::args().nth(1).and_then(|s| s.parse().ok()) {
            if comm.rank() == 0 {
                std::thread::sleep(std::time::Duration::from_secs_f64(seconds));
            }
            comm.barrier()?;
        }
        Ok(())
    });
    match met {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("hello: {error}");
            ExitCode::FAILURE
        }
    }
}
