//! `bdrun`: run a partitioned or MPI-style job that is bigger than memory. See `bdrun --help`.

use std::process::ExitCode;
use std::time::Instant;

fn main() -> ExitCode {
    let begun = Instant::now();
    bdrun::init::stand_in();
    let code = run();
    bdrun::nodes::mpi::stay_for_launcher(begun);
    code
}

fn run() -> ExitCode {
    let argv = match bdrun::cli::help::asked(std::env::args_os().collect(), bdrun::SUBCOMMANDS) {
        Ok(argv) => argv,
        Err(error) => return told(&error),
    };
    if let Some(code) = bdrun::attach::run(&argv).or_else(|| bdrun::simulate::run(&argv)) {
        return ExitCode::from(code);
    }
    match bdrun::cli::Options::from_args(argv) {
        Ok(options) => ExitCode::from(bdrun::job::run(options)),
        Err(error) => told(&error),
    }
}

fn told(error: &bdrun::cli::CliError) -> ExitCode {
    error.print();
    ExitCode::from(error.code())
}
