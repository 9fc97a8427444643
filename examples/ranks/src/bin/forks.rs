//! A rank whose child of fork frees what both have, and more: the rank's account must not notice.
//!
//! `bdrun -np 1 --memory 64M forks`: holds 48 MiB, has a child free them and allocate others, and then takes
//! 48 MiB more, which do not fit the budget.

use std::process::ExitCode;

use nix::libc;

#[global_allocator]
static HEAP: sbmalloc::SbHeap = sbmalloc::SbHeap;

const MIB: usize = 1 << 20;

fn main() -> ExitCode {
    let world = match bdrun_worker::init() {
        Ok(world) => world,
        Err(error) => {
            eprintln!("forks: {error}");
            return ExitCode::FAILURE;
        }
    };
    let first = vec![3u8; 48 * MIB];
    // SAFETY: the child uses the heap, which may be used in children, and ends at once.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let right = first.iter().all(|&b| b == 3);
        drop(first);
        let own = vec![5u8; 40 * MIB];
        let right = right && own.iter().all(|&b| b == 5);
        // SAFETY: ends the child.
        unsafe { libc::_exit(if right { 0 } else { 1 }) };
    }
    let mut status = -1;
    // SAFETY: waits for the child.
    let ended = unsafe { libc::waitpid(child, &mut status, 0) };
    let second = vec![7u8; 48 * MIB];
    let intact = first.iter().all(|&b| b == 3) && second.iter().all(|&b| b == 7);
    let sum = world.communicator().allreduce(&[u64::from(intact)], |a: u64, b| a + b);
    println!("child {} intact {intact}", ended == child && status == 0);
    if sum.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
