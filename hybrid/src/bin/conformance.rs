//! The conformance suite on the back end that is found.
//!
//!     hybrid-conformance [STEP]
//!
//! | `STEP` | what |
//! |---|---|
//! | `suite` | the suite, if nothing is said |
//! | `abort` | rank 0 ends the job with code 7 |
//! | `die` | the last rank ends in the middle, without a word |
//! | `die-with-child` | the same, and a child that it has forked lives on |
//! | `panic` | rank 0 panics |
//! | `fail` | rank 0's work fails |
//! | `node` | how many ranks share memory |
//! | `hold BYTES` | a region of so many bytes |
//! | `setup` | a whole hybrid rank |
//! | `measure` | what calls take |
//! | `finalized LIBRARY` | the program itself initialises MPI, and finalises it too early |

use std::error::Error;
use std::ffi::{CStr, CString, c_int, c_void};
use std::mem::transmute;
use std::ptr::null_mut;
use std::time::Instant;

use bdrun_hybrid::{
    AnyCommunicator, Communicator, Hybrid, HybridConfig, InitError, Kind, ReduceOp, SOLVER_VARIABLES,
    SharedMemory, conformance, create_communicator,
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

/// The number of a child that lives on, for a minute at most, and writes nothing.
fn leave_child() -> libc::pid_t {
    // SAFETY: the child calls nothing but what a child of threads may call (signal-safety(7)), and does not
    // come back.
    unsafe {
        let child = libc::fork();
        if child == 0 {
            libc::close(1);
            libc::close(2);
            libc::alarm(60);
            loop {
                libc::pause();
            }
        }
        child
    }
}

/// Says what calls take, of the middle of five times.
fn measure(comm: &AnyCommunicator) -> Result<(), Box<dyn Error>> {
    let time = |times: u32, call: &mut dyn FnMut() -> bdrun_hybrid::Result<()>| {
        let mut all = Vec::new();
        for _ in 0..5 {
            comm.barrier()?;
            let begun = Instant::now();
            (0..times).try_for_each(|_| call())?;
            all.push(begun.elapsed() / times);
        }
        all.sort();
        Ok::<_, bdrun_hybrid::Error>(all[2].as_secs_f64())
    };
    let (rank, size) = (comm.rank(), comm.size());
    let barrier = time(1_000, &mut || comm.barrier())?;
    let mut one = [0.0];
    let sum = time(1_000, &mut || comm.allreduce(&[1.0], &mut one, ReduceOp::Sum))?;
    const LONG: usize = 1 << 20;
    let (mut data, mut sums) = (vec![1.0f64; LONG], vec![0.0; LONG]);
    let reduced = time(5, &mut || comm.allreduce(&data, &mut sums, ReduceOp::Sum))?;
    let broadcast = time(5, &mut || comm.broadcast(&mut data, 0))?;
    let mine = vec![1.0f64; LONG / size];
    let gathered = time(5, &mut || comm.allgather(&mine).map(drop))?;
    let to_and_fro = |data: &mut [f64]| match rank {
        0 => comm.send(data, 1, 0).and_then(|()| comm.recv(data, 1, 0)),
        1 => comm.recv(data, 0, 0).and_then(|()| comm.send(data, 0, 0)),
        _ => Ok(()),
    };
    let (short, long) = match size {
        1 => (0.0, 0.0),
        _ => {
            (time(1_000, &mut || to_and_fro(&mut one))? / 2.0, time(5, &mut || to_and_fro(&mut data))? / 2.0)
        }
    };
    if rank == 0 {
        let rate = |seconds: f64| (LONG * 8) as f64 / seconds / 1e9;
        println!("{size} ranks, {}", comm.kind());
        println!(
            "barrier {:.1} us, allreduce of 1 {:.1} us, message of 1 {:.1} us",
            barrier * 1e6,
            sum * 1e6,
            short * 1e6
        );
        let (reduced, broadcast, gathered) = (rate(reduced), rate(broadcast), rate(gathered));
        println!(
            "8 MiB, GB/s: allreduce {reduced:.2}, broadcast {broadcast:.2}, allgather {gathered:.2}, message {:.2}",
            rate(long)
        );
    }
    Ok(())
}

/// A program with an MPI of its own, which it finalises while there is a communicator still.
fn finalized(library: &str) -> Result<(), Box<dyn Error>> {
    let name = CString::new(library)?;
    // SAFETY: a name that ends; the library's initialisers run, as those of any that is linked.
    let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_GLOBAL) };
    let function = |name: &CStr| {
        // SAFETY: what was loaded, and a name that ends.
        let found = unsafe { libc::dlsym(handle, name.as_ptr()) };
        assert!(!handle.is_null() && !found.is_null(), "{library} has {name:?}");
        found
    };
    type Init = unsafe extern "C" fn(*mut c_void, *mut c_void, c_int, *mut c_int) -> c_int;
    // SAFETY: the function of MPI of this name, with the standard's type.
    let init = unsafe { transmute::<*mut c_void, Init>(function(c"MPI_Init_thread")) };
    // SAFETY: the same.
    let finalize =
        unsafe { transmute::<*mut c_void, unsafe extern "C" fn() -> c_int>(function(c"MPI_Finalize")) };
    // MPI_THREAD_FUNNELED of MPICH and Open MPI.
    let (funneled, mut level) = (1, 0);
    // SAFETY: without the program's arguments, which the standard permits; it stores a number.
    assert_eq!(unsafe { init(null_mut(), null_mut(), funneled, &raw mut level) }, 0);
    let comm = create_communicator()?;
    let node = comm.split_local()?;
    comm.barrier()?;
    // SAFETY: MPI is initialised, and nothing is under way.
    assert_eq!(unsafe { finalize() }, 0);
    println!("rank {}: {}", comm.rank(), comm.barrier().expect_err("MPI was finalised"));
    drop((comm, node));
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.first().is_some_and(|step| step == "setup") {
        return setup();
    }
    if let [step, library] = &arguments[..]
        && step == "finalized"
    {
        return finalized(library);
    }
    if arguments.first().is_some_and(|step| step == "fail") {
        let config = HybridConfig { quiet: true, ..HybridConfig::default() };
        Hybrid::init(config)?.run(|hybrid| {
            hybrid.comm().barrier().map_err(|error| error.to_string())?;
            if hybrid.comm().rank() == 0 {
                return Err("it has no input".into());
            }
            hybrid.comm().barrier().map_err(|error| error.to_string())
        });
        return Ok(());
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
        "die" | "die-with-child" => {
            comm.barrier()?;
            if rank == size - 1 {
                if arguments[0] == "die-with-child" {
                    println!("{}", leave_child());
                }
                // SAFETY: ends the process at once.
                unsafe { libc::_exit(9) };
            }
            let told = if rank == 0 { comm.recv(&mut [0u8], size - 1, 0) } else { comm.barrier() };
            println!("rank {rank}: {}", told.map_or_else(|error| error.to_string(), |()| "nothing".into()));
        }
        "measure" => measure(&comm)?,
        "node" => println!("rank {rank} shares memory with {} of {size}", comm.split_local()?.size()),
        "panic" => {
            comm.barrier()?;
            assert!(rank != 0, "rank 0 panics");
            comm.barrier()?;
        }
        "hold" => {
            let bytes: usize = arguments.get(1).ok_or("hold BYTES")?.parse()?;
            let node = comm.split_local()?;
            let mut region = node.create_shared_region::<u8>(bytes)?;
            region.update(|all| all.fill(1))?;
            comm.barrier()?;
            let sum: u64 = region.as_slice().iter().map(|&byte| u64::from(byte)).sum();
            assert_eq!(sum, bytes as u64, "rank {rank}");
            if rank == 0 {
                println!("{sum} bytes, {}", if region.is_shared() { "shared" } else { "copied" });
            }
        }
        other => {
            return Err(format!(
                "{other}: suite, abort, die, die-with-child, panic, fail, node, hold BYTES, setup, measure, \
                 finalized LIBRARY"
            )
            .into());
        }
    }
    Ok(())
}
