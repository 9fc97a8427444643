//! What a collective itself costs: rounds of `alltoallv` with parts of one size, some of them empty, each
//! word of which is checked, or of barriers. Rank 0 prints the processor time and the wall time of one round,
//! without making and checking the data.
//!
//! `bdrun -np 256 collectives 20 6144 0.9` (rounds, bytes from each rank to each rank, the fraction of the
//! parts that is empty; `barrier` in the place of the bytes: barriers only)

use std::process::ExitCode;
use std::time::{Duration, Instant};

use bdrun_worker::{Communicator, Received};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeVal;

#[global_allocator]
static HEAP: sbmalloc::SbHeap = sbmalloc::SbHeap;

/// What this process has computed so far, in microseconds: in the program and in the kernel.
fn processor_time() -> [u64; 2] {
    let micros = |t: TimeVal| t.tv_sec() as u64 * 1_000_000 + t.tv_usec() as u64;
    getrusage(UsageWho::RUSAGE_SELF).map_or([0; 2], |u| [micros(u.user_time()), micros(u.system_time())])
}

fn mix(x: u64) -> u64 {
    let x = x.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (x ^ x >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9)
}

/// The first word of a part, and of how many it is: the same wherever it is asked.
fn part(round: u64, from: usize, to: usize, words: usize, empty: f64) -> (u64, usize) {
    let key = mix(mix(round << 40 ^ (from as u64) << 20 ^ to as u64));
    (key, if (key >> 11) as f64 / (1u64 << 53) as f64 >= empty { words } else { 0 })
}

/// Rounds of an exchange; what they took of the processors, in microseconds, and of the clock.
fn exchanges(
    comm: &Communicator,
    rounds: u64,
    bytes: usize,
    empty: f64,
) -> bdrun_worker::Result<([u64; 2], Duration)> {
    let (rank, size, words) = (comm.rank(), comm.size(), bytes.div_ceil(8));
    let (mut processors, mut clock) = ([0; 2], Duration::ZERO);
    let mut data: Vec<u64> = Vec::new();
    let mut received = Received::new();
    for round in 0..rounds {
        data.clear();
        let mut ends = vec![0];
        for to in 0..size {
            let (key, count) = part(round, rank, to, words, empty);
            data.extend((0..count as u64).map(|i| key.wrapping_add(i)));
            ends.push(data.len());
        }
        let parts = ends.windows(2).map(|ends| &data[ends[0]..ends[1]]);
        let (begin, before) = (Instant::now(), processor_time());
        comm.alltoallv_into(parts, &mut received)?;
        let after = processor_time();
        clock += begin.elapsed();
        processors = [0, 1].map(|i| processors[i] + after[i] - before[i]);
        for (from, part_here) in received.parts().enumerate() {
            let (key, count) = part(round, from, rank, words, empty);
            let good = |(i, &word): (usize, &u64)| word == key.wrapping_add(i as u64);
            if part_here.len() != count || !part_here.iter().enumerate().all(good) {
                eprintln!("rank {rank}: the part of rank {from} is wrong in round {round}");
                std::process::exit(3);
            }
        }
    }
    Ok((processors, clock))
}

fn run(rounds: u64, bytes: Option<usize>, empty: f64) -> bdrun_worker::Result<()> {
    let world = bdrun_worker::init()?;
    let comm = world.communicator();
    comm.barrier()?;
    let (processors, clock) = match bytes {
        Some(bytes) => exchanges(comm, rounds, bytes, empty)?,
        None => {
            let (begin, before) = (Instant::now(), processor_time());
            for _ in 0..rounds {
                comm.barrier()?;
            }
            let after = processor_time();
            ([0, 1].map(|i| after[i] - before[i]), begin.elapsed())
        }
    };
    let total = comm.reduce(0, &processors, |a: u64, b| a + b)?;
    if let Some(total) = total {
        let each = |micros: u64| micros as f64 / 1e3 / rounds as f64;
        println!(
            "cpu_ms={:.2} user_ms={:.2} system_ms={:.2} wall_ms={:.2}",
            each(total[0] + total[1]),
            each(total[0]),
            each(total[1]),
            each(clock.as_micros() as u64)
        );
    }
    Ok(())
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let rounds = args.first().and_then(|a| a.parse().ok()).filter(|&r| r > 0);
    let bytes = args.get(1).and_then(|a| if a == "barrier" { Some(None) } else { a.parse().ok().map(Some) });
    let empty = args.get(2).map_or(Some(0.0), |a| a.parse().ok());
    let (Some(rounds), Some(bytes), Some(empty)) = (rounds, bytes, empty) else {
        eprintln!("usage: collectives ROUNDS BYTES_PER_PAIR|barrier [EMPTY]");
        return ExitCode::from(2);
    };
    match run(rounds, bytes, empty) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("collectives: {error}");
            ExitCode::FAILURE
        }
    }
}
