//! Ranks whose other threads allocate while the first one waits, or computes.
//!
//! `bdrun -np 4 --memory 96M threads 40` (MiB that a thread of each rank fills, while its first thread holds
//! as many; with a second argument, `fork`, it makes copies of the rank instead, which check what they have)

use std::process::ExitCode;

#[global_allocator]
static HEAP: sbmalloc::SbHeap = sbmalloc::SbHeap;

fn fill(mib: usize, salt: u64) -> Vec<u64> {
    (0..(mib << 20) as u64 / 8).map(|i| i.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ salt).collect()
}

/// Copies of the process, each of which checks its memory.
fn copies(memory: &[u64], mib: usize, salt: u64) -> bool {
    (0..20).all(|_| {
        std::thread::sleep(std::time::Duration::from_millis(30));
        // SAFETY: the child uses the heap, which may be used in children, and ends at once.
        let child = unsafe { nix::libc::fork() };
        if child == 0 {
            let right = *memory == fill(mib, salt);
            // SAFETY: ends the child.
            unsafe { nix::libc::_exit(i32::from(!right)) };
        }
        let mut status = -1;
        // SAFETY: waits for the child.
        let ended = unsafe { nix::libc::waitpid(child, &mut status, 0) };
        child > 0 && ended == child && status == 0
    })
}

fn run(mib: usize, forks: bool) -> Result<bool, Box<dyn std::error::Error>> {
    let world = bdrun_worker::init()?;
    let comm = world.communicator();
    let salt = comm.rank() as u64;
    let first: &[u64] = fill(mib, salt).leak();
    comm.barrier()?;
    let (sender, receiver) = std::sync::mpsc::channel();
    let other = std::thread::spawn(move || {
        if forks {
            let _ = sender.send(copies(first, mib, salt));
            return;
        }
        let mut pieces = vec![];
        for piece in 0..mib as u64 {
            pieces.push(fill(1, piece ^ salt << 32));
        }
        let right = (0..).zip(&pieces).all(|(piece, words)| *words == fill(1, piece ^ salt << 32));
        let _ = sender.send(right);
    });
    // Waits for the others as a rank, while its thread allocates.
    comm.barrier()?;
    let threads = receiver.recv()?;
    other.join().map_err(|_| "a thread failed")?;
    let right = threads && *first == fill(mib, salt);
    let wrong = comm.allreduce(&[u64::from(!right)], |a, b| a + b)?[0];
    if comm.rank() == 0 {
        println!("{} ranks, {wrong} wrong", comm.size());
    }
    Ok(right)
}

fn main() -> ExitCode {
    let Some(mib) = std::env::args().nth(1).and_then(|arg| arg.parse().ok()) else {
        eprintln!("usage: threads MIB [fork]");
        return ExitCode::from(2);
    };
    match run(mib, std::env::args().nth(2).is_some_and(|arg| arg == "fork")) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("threads: {error}");
            ExitCode::FAILURE
        }
    }
}
