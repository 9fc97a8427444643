//! The conformance suite on the back end that is found.
//!
//!     hybrid-conformance [STEP]
//!
//! `STEP` is `suite` (if nothing is said); or what goes wrong: `abort` (rank 0 ends the job with code 7),
//! `die` (the last rank ends in the middle, without a word), `hold BYTES` (a region of so many bytes).

use std::error::Error;

use bdrun_hybrid::{Communicator, Kind, SharedMemory, conformance, create_communicator};

fn main() -> Result<(), Box<dyn Error>> {
    let comm = create_communicator()?;
    let (rank, size, kind) = (comm.rank(), comm.size(), comm.kind());
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.first().map_or("suite", String::as_str) {
        "suite" => {
            let seen = conformance::suite(&comm, kind != Kind::Mpi)?;
            if rank == 0 {
                let how = if seen.shared { "shared" } else { "copied" };
                println!("{size} ranks conform on {kind}: {:016x}, {how}", seen.digest);
            }
        }
        "abort" => {
            comm.barrier()?;
            if rank == 0 {
                comm.abort(7);
            }
            let told = comm.barrier();
            println!("rank {rank}: {}", told.map_or_else(|error| error.to_string(), |()| "nothing".into()));
            std::process::exit(3);
        }
        "die" => {
            comm.barrier()?;
            if rank == size - 1 {
                // SAFETY: ends the process at once.
                unsafe { libc::_exit(9) };
            }
            let told = if rank == 0 { comm.recv(&mut [0u8], size - 1, 0) } else { comm.barrier() };
            println!("rank {rank}: {}", told.map_or_else(|error| error.to_string(), |()| "nothing".into()));
        }
        "hold" => {
            let bytes = arguments.get(1).ok_or("hold BYTES")?.parse()?;
            let node = comm.split_local()?;
            let mut region = node.create_shared_region::<u8>(bytes)?;
            region.update(|all| all.fill(1))?;
            let sum: u64 = region.as_slice().iter().map(|&byte| u64::from(byte)).sum();
            if rank == 0 {
                println!("{sum} bytes, {}", if region.is_shared() { "shared" } else { "copied" });
            }
        }
        other => return Err(format!("{other}: suite, abort, die, hold BYTES").into()),
    }
    Ok(())
}
