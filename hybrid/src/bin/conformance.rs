//! The conformance suite on the back end that is found.
//!
//!     hybrid-conformance [STEP]
//!
//! `STEP` is `suite` (if nothing is said); or what goes wrong: `abort` (rank 0 ends the job with code 7),
//! `die` (the last rank ends in the middle, without a word), `hold BYTES` (a region of so many bytes); or
//! `setup` (a whole hybrid rank).

use std::error::Error;

use bdrun_hybrid::{
    Communicator, Hybrid, HybridConfig, InitError, Kind, ReduceOp, SOLVER_VARIABLES, SharedMemory,
    conformance, create_communicator,
};

/// Sets up a hybrid rank, and sees that all is as it should be.
fn setup() -> Result<(), Box<dyn Error>> {
    // SAFETY: gettid has no preconditions.
    let thread = || unsafe { libc::gettid() };
    let hybrid = Hybrid::init_with(HybridConfig::default(), |number| (number, thread()))?;
    let (threads, workspaces) = (hybrid.threads(), hybrid.workspaces());
    assert_eq!((workspaces.len(), rayon::current_num_threads()), (threads, threads));
    let right = rayon::broadcast(|own| workspaces.with(|mine| *mine == (own.index(), thread())));
    assert!(right.iter().all(|right| *right), "each thread has what it has made itself");
    let bad = |(name, value): &(&str, &str)| std::env::var(name).as_deref() != Ok(value);
    assert_eq!(SOLVER_VARIABLES.iter().find(|variable| bad(variable)), None);
    assert!(matches!(Hybrid::init(HybridConfig::default()), Err(InitError::Twice)));
    let mut all = [0u64];
    hybrid.comm().allreduce(&[threads as u64], &mut all, ReduceOp::Sum)?;
    assert_eq!(all[0] as usize, hybrid.summary().cores());
    if hybrid.comm().rank() == 0 {
        println!("{} threads in all", all[0]);
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.first().is_some_and(|step| step == "setup") {
        return setup();
    }
    let comm = create_communicator()?;
    let (rank, size, kind) = (comm.rank(), comm.size(), comm.kind());
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
        other => return Err(format!("{other}: suite, abort, die, hold BYTES, setup").into()),
    }
    Ok(())
}
