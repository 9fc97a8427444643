//! The program; what it does is in the library beside it.

mod cli;

use std::io::{BufWriter, ErrorKind, Write};
use std::process::ExitCode;

use clap::Parser;
use cli::{Cli, Command, Merge};
use obikmer_merge::query::Query;
use obikmer_merge::{Error, MergeOptions, dump};

/// The whole heap lives on storage, the graph's hash table included.
#[global_allocator]
static HEAP: sbmalloc::SbHeap = sbmalloc::SbHeap;

fn main() -> ExitCode {
    let cli = Cli::parse();
    match run(cli) {
        Ok(()) => ExitCode::SUCCESS,
        // Who reads our output may stop whenever he likes.
        Err(Error::Io { source, .. }) if source.kind() == ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        // The rank that has the error tells it.
        Err(Error::Elsewhere { .. }) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("obikmer-merge: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(cli: Cli) -> Result<(), Error> {
    let world = bdrun_worker::init()?;
    let comm = world.communicator();
    let Some(command) = cli.command else {
        let options = options(cli.merge, world.budget_bytes())?;
        if comm.rank() == 0 && options.inputs.is_empty() && !options.add {
            println!("no inputs: merging the six bundled genomes into {}", options.out.display());
        }
        let summary =
            obikmer_merge::merge(comm, &|label, done, total| world.progress(label, done, total), &options)?;
        if comm.rank() == 0 {
            print(|out| writeln!(out, "{summary}").map_err(writing))?;
        }
        return Ok(());
    };
    if comm.rank() != 0 {
        return Ok(());
    }
    match command {
        Command::Query { index, fasta } => print(|out| Query::open(&index)?.answer(&fasta, out)),
        Command::Dump { what, index } if what.kmers => print(|out| dump::kmers(&index, out)),
        Command::Dump { index, .. } => print(|out| dump::unitigs(&index, out)),
    }
}

fn options(merge: Merge, budget: Option<u64>) -> Result<MergeOptions, Error> {
    let Merge { k, m, out, force, add, verbose, inputs } = merge;
    let out = match out {
        Some(out) => out,
        None if inputs.is_empty() && !add => "obikmer-index".into(),
        None => return Err(Error::Usage("--out DIR is needed when there are inputs".into())),
    };
    Ok(MergeOptions { k, m, out, force, add, inputs, budget, window: None, verbose })
}

fn writing(source: std::io::Error) -> Error {
    Error::Io { what: "cannot write to standard output".into(), source }
}

fn print(
    write: impl FnOnce(&mut BufWriter<std::io::StdoutLock<'static>>) -> Result<(), Error>,
) -> Result<(), Error> {
    let mut out = BufWriter::with_capacity(1 << 16, std::io::stdout().lock());
    write(&mut out)?;
    out.flush().map_err(writing)
}
