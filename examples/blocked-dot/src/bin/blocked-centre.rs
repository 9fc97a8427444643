//! `(B - B.mean(axis=0)) + (B.T / B.std())` of an array that does not fit in memory.

use std::process::ExitCode;

use bdrun_blocked_dot::{Options, run};
use clap::Parser;

/// (B - B.mean(axis=0)) + (B.T / B.std()) of a square matrix that does not fit in memory.
#[derive(Parser)]
#[command(version, max_term_width = 100)]
struct Command {
    /// A matrix: FILE.npy, FILE.h5::/DATASET or DIR.zarr
    b: String,
    /// Where the result goes
    c: String,
    #[command(flatten)]
    options: Options,
}

fn main() -> ExitCode {
    let Command { b, c, options } = Command::parse();
    run(&[&b], &c, &options, |arrays| {
        let b = &arrays[0];
        b.subtract(b.mean(Some(&[0]))?)?.add(b.t().divide(b.std(None, 0)?)?)
    })
}
