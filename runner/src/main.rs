//! `bdrun`: run a partitioned or MPI-style job that is bigger than memory. See `bdrun --help`.

use std::process::ExitCode;

fn main() -> ExitCode {
    match bdrun::cli::Options::from_args(std::env::args_os()) {
        Ok(options) => ExitCode::from(bdrun::job::run(options)),
        Err(error) => {
            error.print();
            ExitCode::from(error.code())
        }
    }
}
