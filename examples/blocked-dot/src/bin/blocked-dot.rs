//! `A.T.dot(B)` of arrays that do not fit in memory.

use std::process::ExitCode;

use bdrun_blocked_dot::{Options, run};
use clap::Parser;

/// A.T.dot(B) of arrays that do not fit in memory.
///
/// Arrays are FILE.npy, FILE.h5::/DATASET or DIR.zarr (Zarr 3). Run by bdrun, blocks and all else stay
/// within its budget:
/// `bdrun --memory 100M blocked-dot a.h5::/A b.h5::/B c.h5::/C`.
#[derive(Parser)]
#[command(version, max_term_width = 100)]
struct Command {
    /// A matrix, or an array of more axes, the first of which is summed over
    a: String,
    /// Another one whose first axis is as long
    b: String,
    /// Where the product goes
    c: String,
    #[command(flatten)]
    options: Options,
}

fn main() -> ExitCode {
    let Command { a, b, c, options } = Command::parse();
    run(&[&a, &b], &c, &options, |arrays| arrays[0].t().dot(&arrays[1]))
}
