//! Jobs that cannot go on, to see that `bdrun` says so instead of hanging.
//!
//! `bdrun -np 3 deadlock all` (every rank receives from its neighbour, nobody sends; also without a word),
//! `deadlock early` (rank 0 ends with exit code 0 while the others wait for it in a barrier), `deadlock one`
//! (all wait in a barrier, but one in the middle receives), `deadlock asleep` (none: rank 0 sleeps for a
//! thousand seconds, and they wait for it), `deadlock unread` (none: messages that nobody receives). A second
//! argument makes every rank hold that many MiB.

#[global_allocator]
static HEAP: sbmalloc::SbHeap = sbmalloc::SbHeap;

fn main() -> bdrun_worker::Result<()> {
    let mut args = std::env::args().skip(1);
    let mode = args.next().unwrap_or("all".into());
    let mib = args.next().map_or(Ok(0_usize), |mib| mib.parse());
    let (Ok(mib), "all" | "early" | "one" | "asleep" | "unread") = (mib, &*mode) else {
        eprintln!("usage: deadlock [all|early|one|asleep|unread [MIB]]");
        std::process::exit(2);
    };
    let world = bdrun_worker::init()?;
    let comm = world.communicator();
    let ballast = vec![1u8; mib << 20];
    comm.barrier()?;
    if mode == "asleep" && comm.rank() == 0 {
        std::thread::sleep(std::time::Duration::from_secs(1000));
    }
    let neighbour = (comm.rank() + 1) % comm.size();
    if mode == "unread" {
        // Of each two, a small and a large one, the first is received, and the second seen.
        comm.send(neighbour, 7, &[1u8])?;
        comm.send(neighbour, 7, &[2u8; 4096])?;
        comm.recv::<u8>(bdrun_worker::Source::Any, 7)?;
        comm.probe(bdrun_worker::Source::Any, 7)?;
        comm.barrier()?;
        if comm.rank() == 0 {
            comm.send(neighbour, 9, &[3u8])?;
        }
    } else if mode == "one" && comm.rank() != comm.size() / 2 {
        comm.barrier()?;
    } else if mode == "early" {
        if comm.rank() > 0 {
            comm.barrier()?;
        }
    } else {
        comm.recv::<u8>(neighbour, 7)?;
    }
    std::hint::black_box(&ballast);
    Ok(())
}
