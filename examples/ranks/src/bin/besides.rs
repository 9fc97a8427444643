//! Ranks that hold memory which bdrun's allocator did not give them: in each phase each of them checks and
//! changes both kinds, computes for a while, and all meet.
//!
//! `bdrun -np 8 --memory 256M besides 16 64 3 0.5` (MiB from the allocator, MiB besides, phases, seconds of
//! processor time a phase)

use std::num::NonZeroUsize;
use std::process::ExitCode;

use nix::sys::mman::{MapFlags, ProtFlags, mmap_anonymous};
use nix::sys::resource::{UsageWho, getrusage};

#[global_allocator]
static HEAP: sbmalloc::SbHeap = sbmalloc::SbHeap;

const MIX: u64 = 0x9e37_79b9_7f4a_7c15;

/// Words of memory that comes from the kernel.
fn besides(mib: usize) -> nix::Result<&'static mut [u64]> {
    let Some(bytes) = NonZeroUsize::new(mib << 20) else { return Ok(&mut []) };
    // SAFETY: a fresh mapping of zeros, never unmapped, and nobody else's.
    unsafe {
        let at =
            mmap_anonymous(None, bytes, ProtFlags::PROT_READ | ProtFlags::PROT_WRITE, MapFlags::MAP_PRIVATE)?;
        Ok(std::slice::from_raw_parts_mut(at.cast().as_ptr(), bytes.get() / 8))
    }
}

/// Sees that all words are of this phase, and makes them of the next. The wrong ones.
fn step(words: &mut [u64], salt: u64, phase: u64) -> usize {
    let value = |i: usize, phase: u64| (i as u64 ^ salt).wrapping_mul(MIX).wrapping_add(phase);
    let mut wrong = 0;
    for (i, word) in words.iter_mut().enumerate() {
        wrong += usize::from(*word != value(i, phase) && phase > 0);
        *word = value(i, phase + 1);
    }
    wrong
}

fn used() -> f64 {
    let seconds = |usage: nix::sys::resource::Usage| {
        nix::sys::time::TimeValLike::num_microseconds(&usage.user_time()) as f64 / 1e6
    };
    getrusage(UsageWho::RUSAGE_SELF).map_or(0.0, seconds)
}

fn run(mib: usize, more: usize, phases: u64, seconds: f64) -> Result<usize, Box<dyn std::error::Error>> {
    let world = bdrun_worker::init()?;
    let comm = world.communicator();
    let salt = (comm.rank() as u64) << 40;
    let mut own = vec![0_u64; (mib << 20) / 8];
    let other = besides(more)?;
    let mut wrong = 0;
    for phase in 0..phases {
        let until = used() + seconds;
        wrong += step(&mut own, salt, phase) + step(other, !salt, phase);
        let mut sum = 0_u64;
        while used() < until {
            sum = own.iter().chain(&*other).step_by(64).fold(sum, |sum, word| sum.rotate_left(1) ^ word);
        }
        std::hint::black_box(sum);
        comm.barrier()?;
    }
    wrong += step(&mut own, salt, phases) + step(other, !salt, phases);
    let all = comm.allreduce(&[wrong as u64], |a, b| a + b)?[0];
    if comm.rank() == 0 {
        println!("{} ranks, {all} words wrong", comm.size());
    }
    Ok(wrong)
}

fn main() -> ExitCode {
    let args: Vec<f64> = std::env::args().skip(1).filter_map(|arg| arg.parse().ok()).collect();
    let &[mib, more, phases, seconds] = &args[..] else {
        eprintln!("usage: besides MIB_PER_RANK MIB_BESIDES PHASES SECONDS");
        return ExitCode::from(2);
    };
    match run(mib as usize, more as usize, phases as u64, seconds) {
        Ok(0) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("besides: {error}");
            ExitCode::FAILURE
        }
    }
}
