//! Jobs that cannot go on, to see that `bdrun` says so instead of hanging.
//!
//! `bdrun -np 3 deadlock` (every rank receives from its neighbour, nobody sends), `deadlock early` (rank 0
//! ends with exit code 0 while the others wait for it in a barrier), `deadlock asleep` (none: rank 0 sleeps
//! for a thousand seconds, and they wait for it). A second argument makes every rank hold that many MiB.

#[global_allocator]
static HEAP: sbmalloc::SbHeap = sbmalloc::SbHeap;

fn main() -> bdrun_worker::Result<()> {
    let mut args = std::env::args().skip(1);
    let mode = args.next().unwrap_or_default();
    let mib: usize = args.next().and_then(|n| n.parse().ok()).unwrap_or(0);
    let world = bdrun_worker::init()?;
    let comm = world.communicator();
    let ballast = vec![1u8; mib << 20];
    comm.barrier()?;
    if mode == "asleep" && comm.rank() == 0 {
        std::thread::sleep(std::time::Duration::from_secs(1000));
    }
    if mode == "early" {
        if comm.rank() > 0 {
            comm.barrier()?;
        }
    } else {
        let neighbour = (comm.rank() + 1) % comm.size();
        comm.recv::<u8>(neighbour, 7)?;
    }
    std::hint::black_box(&ballast);
    Ok(())
}
