//! What the commands have in common: arrays in files, a budget, an account of what it took.

mod ranks;

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bdrun_array::source::hdf5::Dataset;
use bdrun_array::source::zarr::{Compression, ZarrArray, is_zarr};
use bdrun_array::source::{Hdf5, Hdf5Writer, Npy, NpyWriter, Sink, Source, Zarr, ZarrWriter, hdf5};
use bdrun_array::{Array, Error, Prepared, Progress, Report, Settings, Threads};
use bdrun_graph::draw;
use bdrun_graph_ranks::pages;
use bdrun_worker::World;
use clap::Parser;

/// What each command is told beside its files.
#[derive(Parser)]
pub struct Options {
    /// Threads that compute [default: as many as there are processors; with ranks each has one]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
    /// Where what does not fit is kept meanwhile, on a disk [default: bdrun's scratch, TMPDIR if that is not
    /// memory, or /var/tmp]
    #[arg(long, value_name = "DIR")]
    scratch: Option<PathBuf>,
    /// Bytes of a block at most [default: a twelfth of the budget, 8 MiB at most]
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u64).range(8..))]
    block: Option<u64>,
    /// Replace the result if it is there
    #[arg(long)]
    force: bool,
    /// Keep what is stored if it is interrupted, and go on with it the next time this is asked for
    #[arg(long)]
    resume: bool,
    /// Write a page that shows what was in memory when
    #[arg(long, value_name = "FILE.html")]
    draw: Option<PathBuf>,
    /// Say what it would take, and do nothing
    #[arg(long)]
    dry_run: bool,
    /// Say nothing but what is wrong
    #[arg(short, long)]
    quiet: bool,
}

/// What is wrong, in a sentence.
type Wrong = String;

/// An array of a file: `FILE.npy`, `FILE.h5::/DATASET`, or the directory of one of Zarr.
fn open(name: &str) -> Result<Arc<dyn Source>, Wrong> {
    let path = Path::new(name);
    let opened: Result<Arc<dyn Source>, Error> = match hdf5::split(name) {
        Some((file, dataset)) => Hdf5::open(file, dataset).map(|source| Arc::new(source) as Arc<dyn Source>),
        None if is_zarr(path) => Zarr::open(path).map(|source| Arc::new(source) as Arc<dyn Source>),
        None => Npy::open(path).map(|source| Arc::new(source) as Arc<dyn Source>),
    };
    opened.map_err(|error| {
        let hint = if hdf5::split(name).is_none() && !is_zarr(path) && !name.ends_with(".npy") {
            "; a dataset of an HDF5 file is named FILE::/DATASET"
        } else {
            ""
        };
        format!("{error}{hint}")
    })
}

/// Where a result goes, in pieces like those of what it is made of.
fn create(name: &str, array: &Array, unit: &[usize], options: &Options) -> Result<Box<dyn Sink>, Wrong> {
    let file = hdf5::split(name).map_or(Path::new(name), |(file, _)| file);
    if file.exists() && !options.force {
        return Err(format!("{} is there; --force replaces it", file.display()));
    }
    let (dtype, shape) = (array.dtype(), array.shape());
    let identity = options.resume.then(|| array.identity());
    let created: Result<Box<dyn Sink>, Error> = match hdf5::split(name) {
        Some((file, name)) => Hdf5Writer::create(file, Dataset { name, dtype, shape, chunk: unit }, identity)
            .map(|sink| Box::new(sink) as Box<dyn Sink>),
        None if is_zarr(file) => {
            let array = ZarrArray { dtype, shape, chunk: unit, compression: Compression::None };
            ZarrWriter::create(file, array, identity).map(|sink| Box::new(sink) as Box<dyn Sink>)
        }
        None => NpyWriter::create(file, dtype, shape, identity).map(|sink| Box::new(sink) as Box<dyn Sink>),
    };
    created.map_err(|error| error.to_string())
}

/// Blocks of so many bytes at most, whatever the budget.
const BLOCK: u64 = 8 << 20;

/// The budget of the job, if it is one of bdrun's.
fn budget() -> Option<u64> {
    std::env::var("BDRUN_BUDGET_BYTES").ok().and_then(|text| text.parse().ok())
}

/// Bytes of this process that are in memory: all, and those of files, which others share.
fn resident() -> (u64, u64) {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let bytes = |field| statm.split(' ').nth(field).and_then(|pages| pages.parse().ok()).unwrap_or(0) * 4096;
    (bytes(1), bytes(2))
}

/// Computes an expression over arrays in files. `expression` is given them in the order of their names.
#[must_use]
pub fn run(
    inputs: &[&str],
    output: &str,
    options: &Options,
    expression: impl Fn(&[Array]) -> Result<Array, Error>,
) -> ExitCode {
    match try_run(inputs, output, options, expression) {
        Ok(()) => ExitCode::SUCCESS,
        Err(wrong) => {
            eprintln!("error: {wrong}");
            ExitCode::FAILURE
        }
    }
}

fn try_run(
    inputs: &[&str],
    output: &str,
    options: &Options,
    expression: impl Fn(&[Array]) -> Result<Array, Error>,
) -> Result<(), Wrong> {
    let begin = Instant::now();
    let (memory, world) = (budget(), ranks::join()?);
    let world = world.as_ref();
    let (rank, size) = world.map_or((0, 1), |w| (w.communicator().rank(), w.communicator().size()));
    let sources: Vec<Arc<dyn Source>> = inputs.iter().map(|name| open(name)).collect::<Result<_, _>>()?;
    let block = options.block.unwrap_or_else(|| memory.map_or(BLOCK, |memory| (memory / 12).min(BLOCK)));
    let arrays: Vec<Array> =
        sources.iter().map(|source| Array::from_source_in(source.clone(), block as usize)).collect();
    let result = expression(&arrays).map_err(|error| error.to_string())?;
    let mut settings = Settings::default();
    if let Some(threads) = options.threads {
        settings.threads = Threads { compute: threads.into(), transfer: 1 };
    }
    if size > 1 {
        // Rank 0 says what the others do, and writes.
        settings.threads = Threads { compute: size - 1, transfer: 1 };
        settings.store_apart = true;
    }
    if let Some(scratch) = &options.scratch {
        settings.scratch.clone_from(scratch);
    }
    if let Some(world) = world.filter(|_| rank > 0) {
        return follow(world, &settings, &result);
    }
    let unit = unit(&sources, &result);
    let nowhere = Nowhere;
    let sink = if options.dry_run { None } else { Some(create(output, &result, &unit, options)?) };
    let sink = ranks::Noting::new(sink.as_deref().unwrap_or(&nowhere));
    let outputs = [(result.clone(), &sink as &dyn Sink)];
    let mut prepared = settings.prepare(&outputs).map_err(|error| error.to_string())?;
    if let Some(memory) = memory {
        if size == 1 && options.threads.is_none() {
            // As many as there are processors may be more than there is room for.
            prepared = prepared.on_fewer(memory.saturating_sub(resident().0));
        }
        let (beside, threads) = (beside(&prepared, size), prepared.threads().compute);
        let left = memory.saturating_sub(beside);
        let too_little = |error: Error| {
            let fewer = if size == 1 && threads > 1 {
                format!("; --threads takes fewer than these {threads}")
            } else {
                String::new()
            };
            format!(
                "{error}; {} of the budget of {} are left for blocks, {} are taken by all else: --block makes \
                 blocks smaller{fewer}",
                mib(left),
                mib(memory),
                mib(beside)
            )
        };
        let within = left.min(prepared.bound);
        let planned = if size > 1 { in_pages(prepared, within, left) } else { prepared.within(within) };
        prepared = planned.map_err(too_little)?;
    }
    if !options.quiet {
        foretell(&prepared);
    }
    if let Some(world) = world {
        let goes = ranks::Told::Goes { budget: prepared.plan.budget, stored: sink.stored() };
        ranks::tell(world, Some(if options.dry_run { ranks::Told::Ends } else { goes }))?;
    }
    if options.dry_run {
        return Ok(());
    }
    let drawing = options.draw.as_deref().map(|path| Drawing::begin(path, &prepared)).transpose()?;
    let progress = if drawing.is_some() { Progress::traced() } else { Progress::default() };
    let report = with_bar(&progress, options.quiet, || match world {
        Some(world) => ranks::run(world, (&prepared, result.identity()), &settings.scratch, &progress),
        None => prepared.run(&progress).map(Some).map_err(|error| error.to_string()),
    })?;
    if let Some(drawing) = drawing {
        drawing.end(&prepared, &progress)?;
    }
    if let Some(report) = report.filter(|_| !options.quiet) {
        account(&report, begin.elapsed());
    }
    Ok(())
}

/// Plans within so many bytes, and within so many of whole pages, which are counted of what ranks share.
fn in_pages(mut prepared: Prepared<'_>, mut within: u64, left: u64) -> Result<Prepared<'_>, Error> {
    let least = prepared.graph.tasks().map(|task| prepared.graph.need(task)).max().unwrap_or(0);
    loop {
        prepared = prepared.within(within)?;
        let over = pages(&prepared.graph, &prepared.plan).saturating_sub(left);
        if over == 0 {
            return Ok(prepared);
        }
        // Where that is too little it may be enough for the largest task alone.
        let less = within.saturating_sub(over);
        within = if within > least { less.max(least) } else { less };
    }
}

/// Bytes that all processes of a job take beside blocks. Of ranks each holds the result of its task until
/// that lies where all have it.
fn beside(prepared: &Prepared<'_>, size: usize) -> u64 {
    let (all, shared) = resident();
    if size == 1 {
        return all + prepared.beside();
    }
    let graph = &prepared.graph;
    let largest = graph.tasks().map(|task| graph.bytes(task)).max().unwrap_or(0);
    shared + (all - shared.min(all) + prepared.per_thread() + largest) * size as u64
}

/// What ranks other than 0 do.
fn follow(world: &World, settings: &Settings, result: &Array) -> Result<(), Wrong> {
    let ranks::Told::Goes { budget, stored } = ranks::tell(world, None)? else { return Ok(()) };
    let sink = ranks::Elsewhere(stored.into_iter().collect());
    let prepared = settings.prepare(&[(result.clone(), &sink)]).and_then(|prepared| prepared.within(budget));
    let prepared = prepared.map_err(|error| error.to_string())?;
    let progress = Progress::default();
    ranks::run(world, (&prepared, result.identity()), &settings.scratch, &progress).map(|_| ())
}

/// A page that is written when all is done; that it can be is seen to before.
struct Drawing<'a>(&'a Path, File);

impl<'a> Drawing<'a> {
    fn begin(path: &'a Path, prepared: &Prepared<'_>) -> Result<Self, Wrong> {
        let tasks = prepared.graph.len();
        if tasks > draw::MOST {
            return Err(format!("--draw: {}; larger blocks make fewer tasks", draw::TooMany(tasks)));
        }
        let file = File::create(path).map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(Self(path, file))
    }

    fn end(mut self, prepared: &Prepared<'_>, progress: &Progress) -> Result<(), Wrong> {
        let (graph, events) = (&prepared.graph, progress.take_events());
        let order: Vec<_> = prepared.plan.order().collect();
        let page = draw::page(graph, &order, &events, prepared.plan.budget);
        let page = page.map_err(|error| error.to_string())?;
        self.1.write_all(page.as_bytes()).map_err(|error| format!("{}: {error}", self.0.display()))
    }
}

/// Writes nothing.
struct Nowhere;

impl Sink for Nowhere {
    fn name(&self) -> String {
        "nowhere".into()
    }

    fn write(&self, _: &bdrun_array::Region, _: &bdrun_array::Block) -> std::io::Result<()> {
        Ok(())
    }

    fn finish(&self) -> std::io::Result<()> {
        Ok(())
    }
}

/// In what pieces a result is stored: as the first array that is, as far as it has axes.
fn unit(sources: &[Arc<dyn Source>], result: &Array) -> Vec<usize> {
    let stored =
        sources.iter().map(|source| source.unit()).find(|unit| unit.iter().any(|&length| length > 1));
    let like = stored.filter(|unit| unit.len() == result.dimensions());
    // Else as its blocks are.
    like.unwrap_or_else(|| result.chunks().lengths().iter().map(|lengths| lengths[0]).collect())
}

fn mib(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20))
}

fn foretell(prepared: &Prepared<'_>) {
    let (plan, tasks) = (&prepared.plan, prepared.graph.len());
    eprintln!(
        "{tasks} tasks; blocks take at most {} one after the other, {} on its threads; within {}",
        mib(prepared.peak),
        mib(prepared.bound),
        mib(plan.budget)
    );
    if plan.moved() > 0 {
        let (written, read, again) = (mib(plan.written), mib(plan.read), mib(plan.again));
        eprintln!("to scratch {written}, from there {read}; read from files once more {again}");
    }
}

fn account(report: &Report, wall: Duration) {
    eprintln!("done in {:.1} s; blocks took at most {}", wall.as_secs_f64(), mib(report.peak));
    if report.lacked > 0 {
        eprintln!("threads that the system did not have (a limit of processes): {}", report.lacked);
    }
}

/// Does it, with a bar that shows how far it is, if standard error is a terminal.
fn with_bar<T>(progress: &Progress, quiet: bool, work: impl FnOnce() -> T) -> T {
    if quiet {
        return work();
    }
    let bar = indicatif::ProgressBar::new(1000);
    let is_over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (bar, over) = (&bar, &is_over);
        let show = move || {
            while !over.load(std::sync::atomic::Ordering::Acquire) {
                bar.set_position((progress.stage().part * 1000.0) as u64);
                std::thread::park_timeout(Duration::from_millis(100));
            }
            bar.finish_and_clear();
        };
        // Without a thread for it there is no bar.
        let shown = std::thread::Builder::new().spawn_scoped(scope, show).ok();
        // Whatever happens the bar's thread ends.
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
        is_over.store(true, std::sync::atomic::Ordering::Release);
        if let Some(shown) = shown {
            shown.thread().unpark();
        }
        done.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

#[cfg(test)]
#[path = "../../../graph/tests/common/no_threads.rs"]
mod no_threads;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_thread_for_it_there_is_no_bar() {
        let done = no_threads::without_threads(|| with_bar(&Progress::default(), false, || 7));
        assert!(done.is_none_or(|done| done == 7));
    }
}
