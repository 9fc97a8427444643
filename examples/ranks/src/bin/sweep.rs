//! A bulk-synchronous job of any size: in each phase every rank checks and changes all of its memory, then
//! all meet in an allreduce and an exchange. Wrong memory ends it with an error; rank 0 prints a sum that
//! depends on every byte, and not on the budget or the number of evictions.
//!
//! `bdrun -np 8 --memory 256M sweep 128M 5` (bytes per rank, phases; with a third argument `read` it
//! only reads, with `counts` all words are small numbers, which can be compressed)

use std::process::ExitCode;

use twox_hash::XxHash3_64;

#[global_allocator]
static HEAP: sbmalloc::SbHeap = sbmalloc::SbHeap;

fn size(text: &str) -> Option<usize> {
    let (digits, unit) = match text.as_bytes().last()? {
        b'K' => (&text[..text.len() - 1], 10),
        b'M' => (&text[..text.len() - 1], 20),
        b'G' => (&text[..text.len() - 1], 30),
        _ => (text, 0),
    };
    digits.parse::<usize>().ok().map(|n| n << unit)
}

fn run(bytes: usize, phases: u64, write: bool, counts: bool) -> bdrun_worker::Result<()> {
    let world = bdrun_worker::init()?;
    let comm = world.communicator();
    let (rank, ranks) = (comm.rank() as u64, comm.size());
    let words = bytes / 8;
    const MIX: u64 = 0x9e37_79b9_7f4a_7c15;
    // Of small numbers the high bits of the product, which look random; they must change from phase to phase
    // too.
    let (step, shift) = if counts { (MIX, 56) } else { (1, 0) };
    let value = |i: u64, phase: u64| {
        (i ^ rank << 40).wrapping_mul(MIX).wrapping_add(phase.wrapping_mul(step)) >> shift
    };
    let mut data: Vec<u64> = (0..words as u64).map(|i| value(i, 0)).collect();
    let mut total = 0u64;
    for phase in 0..phases {
        let now = if write { phase } else { 0 };
        let mut sum = 0u64;
        for (i, word) in data.iter_mut().enumerate() {
            if *word != value(i as u64, now) {
                eprintln!("rank {rank}: word {i} is wrong in phase {phase}");
                std::process::exit(3);
            }
            sum = sum.rotate_left(5) ^ *word;
            if write {
                *word = value(i as u64, phase + 1);
            }
        }
        total = comm.allreduce(&[sum ^ total], |a: u64, b| a.rotate_left(1) ^ b)?[0];
        let part = words / 64 / ranks;
        let (got, _) = comm.alltoallv(&data[..part * ranks], &vec![part; ranks])?;
        total ^= comm.allreduce(&[XxHash3_64::oneshot(bytemuck_bytes(&got).as_slice())], |a: u64, b| {
            a.rotate_left(7) ^ b
        })?[0];
        world.progress("phases", phase + 1, phases);
    }
    if rank == 0 {
        println!("check={total:016x}");
    }
    Ok(())
}

fn bytemuck_bytes(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|w| w.to_le_bytes()).collect()
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let bytes = args.first().and_then(|a| size(a));
    let phases = args.get(1).and_then(|a| a.parse().ok());
    let (Some(bytes), Some(phases)) = (bytes, phases) else {
        eprintln!("usage: sweep BYTES_PER_RANK PHASES [read|counts]");
        return ExitCode::from(2);
    };
    let has = |word| args.get(2).is_some_and(|a| a == word);
    match run(bytes, phases, !has("read"), has("counts")) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("sweep: {error}");
            ExitCode::FAILURE
        }
    }
}
