//! The program; what it does is in the library beside it.

mod cli;

use std::io::{BufWriter, ErrorKind, Write};
use std::path::Path;
use std::process::ExitCode;

use bdrun_worker::World;
use clap::Parser;
use cli::{Cli, Command, Merge, What};
use obikmer_merge::dump::graph::{Graph, MEMORY};
use obikmer_merge::info::Info;
use obikmer_merge::query::Query;
use obikmer_merge::query::answer::Form;
use obikmer_merge::{Error, MergeOptions, dump};

/// The whole heap lives on storage, the graph's tables included.
#[global_allocator]
static HEAP: sbmalloc::SbHeap = sbmalloc::SbHeap;

fn main() -> ExitCode {
    let world = match bdrun_worker::init() {
        Ok(world) => world,
        Err(error) => {
            eprintln!("obikmer-merge: {error}");
            return ExitCode::FAILURE;
        }
    };
    let first = world.communicator().rank() == 0;
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        // Help, or what is wrong with the arguments: the same on every rank.
        Err(error) => {
            if first {
                let _ = error.print();
            }
            return leave(&world, u8::try_from(error.exit_code()).unwrap_or(2));
        }
    };
    match run(&world, cli) {
        Ok(()) => ExitCode::SUCCESS,
        // Of an agreed error the rank that has it tells; of one that all have, the first.
        Err(Failure::Agreed(error)) => {
            if !matches!(error, Error::Elsewhere { .. }) {
                eprintln!("obikmer-merge: {error}");
            }
            leave(&world, 1)
        }
        Err(Failure::Ours(error)) => {
            eprintln!("obikmer-merge: {error}");
            ExitCode::FAILURE
        }
        Err(Failure::Everybodys(error)) => {
            if first {
                eprintln!("obikmer-merge: {error}");
            }
            leave(&world, 1)
        }
    }
}

/// Who has an error.
enum Failure {
    /// This rank, which the others do not wait for.
    Ours(Error),
    /// All ranks have the same.
    Everybodys(Error),
    /// All ranks know; one has the reason.
    Agreed(Error),
}

/// End with an exit code, but not before every rank is here: the launcher ends the others as soon as one has
/// failed, and the one that has something to tell must have told it.
fn leave(world: &World, code: u8) -> ExitCode {
    // Without the others there is nobody to wait for.
    let _ = world.communicator().barrier();
    ExitCode::from(code)
}

fn run(world: &World, cli: Cli) -> Result<(), Failure> {
    let comm = world.communicator();
    let Some(command) = cli.command else {
        let options = options(cli.merge, world).map_err(Failure::Everybodys)?;
        if comm.rank() == 0 && options.inputs.is_empty() && !options.add {
            let out = options.out.display();
            // What is merged is the index, whether or not this can be said.
            let _ = print(|to| {
                writeln!(to, "no inputs: merging the six bundled genomes into {out}").map_err(writing)
            });
        }
        let progress = |label: &str, done, total| world.progress(label, done, total);
        let summary = obikmer_merge::merge(comm, &progress, &options).map_err(|error| match error {
            Error::Communication(_) => Failure::Ours(error),
            _ => Failure::Agreed(error),
        })?;
        if comm.rank() == 0 {
            let printed = print(|out| writeln!(out, "{summary}").map_err(writing));
            printed.map_err(|error| Failure::Ours(unsaid(&options.out, error)))?;
        }
        return Ok(());
    };
    if comm.rank() != 0 {
        return Ok(());
    }
    let result = match command {
        Command::Query { threshold, json, index, files } => {
            print(|out| Query::open(&index)?.answer(&files, Form { threshold, json }, out))
        }
        Command::Info { json, index } => print(|out| info(&index, json, out)),
        Command::Dump { what, index } => {
            // Under a budget a part of it is for links.
            let memory = world.budget_bytes().map_or(MEMORY, |budget| MEMORY.min(budget as usize / 4));
            print(|out| dump(&what, &index, memory, out))
        }
    };
    result.map_err(Failure::Ours)
}

fn dump(what: &What, index: &Path, memory: usize, out: &mut impl Write) -> Result<(), Error> {
    match what {
        What { kmers: true, .. } => dump::kmers(index, out),
        What { fasta: true, .. } => Graph::open(index, memory)?.fasta(out),
        What { gfa: true, .. } => Graph::open(index, memory)?.gfa(out),
        What { matrix: true, .. } => dump::matrix(index, out),
        What { sources: true, .. } => dump::sources(index, out),
        What { .. } => dump::unitigs(index, out),
    }
}

fn info(index: &Path, json: bool, out: &mut impl Write) -> Result<(), Error> {
    let info = Info::new(index)?;
    if json {
        serde_json::to_writer(&mut *out, &info).map_err(|error| writing(error.into()))?;
        return writeln!(out).map_err(writing);
    }
    writeln!(out, "{info}").map_err(writing)
}

fn options(merge: Merge, world: &World) -> Result<MergeOptions, Error> {
    let Merge { k, m, out, force, add, verbose, each_record, min_count, inputs } = merge;
    let out = match out {
        Some(out) => out,
        None if inputs.is_empty() && !add => "obikmer-index".into(),
        None => return Err(Error::Usage("--out DIR is needed when there are inputs".into())),
    };
    let options = MergeOptions {
        k,
        m,
        out,
        force,
        add,
        inputs,
        budget: world.budget_bytes(),
        node: world.node(),
        each_record,
        min_count,
        verbose,
        ..Default::default()
    };
    Ok(options)
}

fn writing(source: std::io::Error) -> Error {
    Error::Io { what: "cannot write to standard output".into(), source }
}

/// What was asked for is there, and only this is wrong.
fn unsaid(index: &Path, error: Error) -> Error {
    match error {
        Error::Io { what, source } => {
            let what = format!("the index {} is complete, but not its summary: {what}", index.display());
            Error::Io { what, source }
        }
        error => error,
    }
}

/// The summary of an index that is there, or what was asked for: who reads it may stop whenever he likes.
fn print(
    write: impl FnOnce(&mut BufWriter<std::io::StdoutLock<'static>>) -> Result<(), Error>,
) -> Result<(), Error> {
    let mut out = BufWriter::with_capacity(1 << 16, std::io::stdout().lock());
    match write(&mut out).and_then(|()| out.flush().map_err(writing)) {
        Err(Error::Io { source, .. }) if source.kind() == ErrorKind::BrokenPipe => Ok(()),
        printed => printed,
    }
}
