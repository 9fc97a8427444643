//! A rank that asks for its memory, and neither sends nor receives: what such a rank is among others that
//! know nothing of bdrun.
//!
//! `bdrun -np 2 --memory 96M solo 64 4` (MiB, rounds in which all of it is checked and changed)

use std::process::ExitCode;

#[global_allocator]
static HEAP: sbmalloc::SbHeap = sbmalloc::SbHeap;

fn main() -> ExitCode {
    let args: Vec<u64> = std::env::args().skip(1).filter_map(|arg| arg.parse().ok()).collect();
    let &[mib, rounds] = &args[..] else {
        eprintln!("usage: solo MIB ROUNDS");
        return ExitCode::from(2);
    };
    if let Err(error) = bdrun_worker::init() {
        eprintln!("solo: {error}");
        return ExitCode::FAILURE;
    }
    let value = |i: u64, round: u64| i.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(round);
    let mut words = Vec::new();
    for i in 0..(mib << 20) / 8 {
        words.push(value(i, 0));
    }
    let mut wrong = 0;
    for round in 0..rounds {
        for (i, word) in (0..).zip(&mut words) {
            wrong += u64::from(*word != value(i, round));
            *word = value(i, round + 1);
        }
    }
    println!("solo {mib} MiB, {rounds} rounds, {wrong} wrong");
    if wrong == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
