//! `((A + 1) * 2) ** 3` of an array that does not fit in memory.

use std::process::ExitCode;

use bdrun_blocked_dot::{Options, run};
use clap::Parser;

/// ((A + 1) * 2) ** 3 of an array that does not fit in memory: each block by itself.
#[derive(Parser)]
#[command(version, max_term_width = 100)]
struct Command {
    /// An array: FILE.npy, FILE.h5::/DATASET or DIR.zarr
    a: String,
    /// Where the result goes
    c: String,
    #[command(flatten)]
    options: Options,
}

fn main() -> ExitCode {
    let Command { a, c, options } = Command::parse();
    run(&[&a], &c, &options, |arrays| arrays[0].add(1)?.multiply(2)?.power(3))
}
