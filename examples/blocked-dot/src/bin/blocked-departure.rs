//! `A.T.dot(B) - B.mean(axis=0)` of arrays that do not fit in memory.

use std::process::ExitCode;

use bdrun_blocked_dot::{Options, run};
use clap::Parser;

/// A.T.dot(B) - B.mean(axis=0) of matrices that do not fit in memory: what Dask's first scheduler failed at.
#[derive(Parser)]
#[command(version, max_term_width = 100)]
struct Command {
    /// A matrix: FILE.npy, FILE.h5::/DATASET or DIR.zarr
    a: String,
    /// Another one with as many rows
    b: String,
    /// Where the result goes
    c: String,
    #[command(flatten)]
    options: Options,
}

fn main() -> ExitCode {
    let Command { a, b, c, options } = Command::parse();
    run(&[&a, &b], &c, &options, |arrays| {
        let (a, b) = (&arrays[0], &arrays[1]);
        a.t().dot(b)?.subtract(b.mean(Some(&[0]))?)
    })
}
