//! The job: index phase, merge phase, join, layers, summary; the same code on every rank.

use std::marker::PhantomData;
use std::path::PathBuf;

use bdrun_worker::Communicator;

use crate::claim::Claim;
use crate::error::{Error, Result, agree};
use crate::exchange;
use crate::graph::{self, Texts};
use crate::index;
use crate::input::spool::Spool;
use crate::input::tally::Tallies;
use crate::input::{Inputs, read};
use crate::join::{self, border};
use crate::layer::format::{Kind, Place};
use crate::layer::{self, Ids, Runs, path, unitigs, write_kmers, write_sources};
use crate::old::{self, Old};
use crate::pieces::Pieces;
use crate::plan::{Plan, plan, spool};
use crate::sequence::kmer::Lengths;
use crate::sequence::minimizer::Partitions;
use crate::sequence::packed;
use crate::sets::Sets;
use crate::summary::{self, Share, Summary};
use crate::superkmer::route::{Router, window};
use crate::superkmer::store::Store;
use crate::threads::Threads;

/// Length of k-mers and minimizers unless said otherwise.
pub const DEFAULT: Lengths = Lengths { k: 31, m: 11 };

/// No more memory is held for each k-mer that a rank is given, repeats included, in the phases that threads
/// take part in.
const BYTES_PER_KMER: u64 = 16;

/// Tells whoever watches: label, done, total.
pub type Progress<'a> = dyn Fn(&str, u64, u64) + 'a;

/// What to merge, and how.
#[derive(Clone, Debug, Default)]
pub struct MergeOptions {
    /// Length of the k-mers; by default that of the indexes among the inputs, or 31.
    pub k: Option<usize>,
    /// Length of the minimizers; by default 11, or that of the index added to.
    pub m: Option<usize>,
    /// Directory of the new index.
    pub out: PathBuf,
    /// Replace an index that is there.
    pub force: bool,
    /// Add to the index that is there.
    pub add: bool,
    /// Sequence files and indexes, or `@FILE` for a list of them; none: the bundled genomes.
    pub inputs: Vec<PathBuf>,
    /// Each record of a FASTA file is a source of its own, named by its identifier.
    pub each_record: bool,
    /// K-mers that occur less often in a source of sequences are left out of it; 0 and 1: none are.
    pub min_count: u32,
    /// The job's memory budget in bytes, if it has one: messages are gathered accordingly.
    pub budget: Option<u64>,
    /// Bytes gathered before an exchange; by default chosen by the budget.
    pub window: Option<usize>,
    /// Tell on standard error how long the phases take.
    pub verbose: bool,
    /// The node of this rank: of what ranks of another than rank 0's have written, only they themselves can
    /// know that it is on the disk.
    pub node: u32,
    /// Threads of each rank; by default as many as there are processors for it, if the budget has room.
    #[doc(hidden)]
    pub threads: Option<usize>,
}

/// Merge the inputs into an index. Every rank calls this with the same options (but for its node) and gets
/// the same summary, or an error: its own, or [`Error::Elsewhere`] where another rank has it. Nothing is left
/// behind after an error.
pub fn merge(comm: &Communicator, progress: &Progress<'_>, options: &MergeOptions) -> Result<Summary> {
    let mut claim = None;
    let (plan, mut own) = match comm.rank() {
        0 => match plan(comm.size(), options) {
            Ok((plan, claimed)) => {
                claim = Some(claimed);
                (Some(Ok(plan)), None)
            }
            Err(error) => (Some(Err(error.to_string())), Some(error)),
        },
        _ => (None, None),
    };
    let plan: Plan = match comm.broadcast_value::<std::result::Result<Plan, String>>(0, plan)? {
        Ok(plan) => plan,
        Err(message) => return Err(own.take().unwrap_or(Error::Elsewhere { rank: 0, message })),
    };
    let run = if plan.lengths.is_wide() { run::<u128> } else { run::<u64> };
    let result = run(comm, progress, options, &plan, &mut claim);
    // Of a job that failed nothing is left when any rank returns.
    drop(claim);
    if result.as_ref().is_err_and(|error| !matches!(error, Error::Communication(_))) {
        // What this rank failed at is told, and not that the others went on with something else.
        _ = comm.barrier();
    }
    result
}

/// Phases with the processor time of all threads and the time that passes.
struct Clock(Option<(f64, f64)>);

impl Clock {
    fn new(on: bool) -> Self {
        Self(on.then(Self::now))
    }

    fn now() -> (f64, f64) {
        use rustix::time::{ClockId, clock_gettime};
        let seconds = |clock| {
            let time = clock_gettime(clock);
            time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
        };
        (seconds(ClockId::ProcessCPUTime), seconds(ClockId::Monotonic))
    }

    fn tick(&mut self, what: impl FnOnce() -> String) {
        if let Some(begin) = &mut self.0 {
            let now = Self::now();
            eprintln!("{:8.3} s CPU, {:8.3} s  {}", now.0 - begin.0, now.1 - begin.1, what());
            *begin = now;
        }
    }
}

/// One rank's side of a job.
struct Job<'a, W> {
    comm: &'a Communicator,
    progress: &'a Progress<'a>,
    options: &'a MergeOptions,
    plan: &'a Plan,
    place: Place,
    word: PhantomData<W>,
}

fn run<W: Texts>(
    comm: &Communicator,
    progress: &Progress<'_>,
    options: &MergeOptions,
    plan: &Plan,
    claim: &mut Option<Claim>,
) -> Result<Summary> {
    let place = Place { lengths: plan.lengths, partition: comm.rank(), partitions: comm.size() };
    let job = Job::<W> { comm, progress, options, plan, place, word: PhantomData };
    let mut share = Share::default();
    let mut result = Ok(());
    for (number, inputs) in plan.stages.iter().enumerate() {
        let layer = plan.kept_layers() + number;
        let last = number + 1 == plan.stages.len();
        // What an old layer counts is known only once the new sources are added to it.
        let mut uncounted = Share::default();
        result = job.layer(inputs, layer, last, if last { &mut share } else { &mut uncounted })?;
        if !last {
            agree(comm, std::mem::replace(&mut result, Ok(())))?;
        }
    }
    finish_all(comm, options, plan, claim, result.map(|()| share))
}

/// Rank 0 learns what every rank has, and completes the index; all learn the outcome.
fn finish_all(
    comm: &Communicator,
    options: &MergeOptions,
    plan: &Plan,
    claim: &mut Option<Claim>,
    mine: Result<Share>,
) -> Result<Summary> {
    let mine = mine.and_then(|share| {
        if options.node != plan.node {
            // Rank 0 syncs all of its own node at once, which costs less than one file after another.
            layer::sync(&plan.partial, plan.layers(), comm.rank())?;
        }
        Ok(share)
    });
    let sent: std::result::Result<&Share, String> = mine.as_ref().map_err(ToString::to_string);
    let shares = comm.gather_value(0, &sent.cloned())?;
    let mut own = None;
    let outcome = shares.map(|shares| {
        let mut good = Vec::with_capacity(shares.len());
        for (rank, share) in shares.into_iter().enumerate() {
            good.push(share.map_err(|message| (rank, message))?);
        }
        let summary = Summary::new(plan.lengths.k, plan.sources(), &good);
        warn(plan, options, &good, &summary);
        match finish(plan, claim.take(), &good, &summary) {
            Ok(()) => Ok(summary),
            Err(error) => {
                let message = error.to_string();
                own = Some(error);
                Err((0, message))
            }
        }
    });
    match comm.broadcast_value(0, outcome)? {
        Ok(summary) => Ok(summary),
        Err((rank, _)) if rank == comm.rank() => {
            let lost = || Error::Internal("a rank failed without an error".into());
            Err(mine.err().or(own).unwrap_or_else(lost))
        }
        Err((rank, message)) => Err(Error::Elsewhere { rank, message }),
    }
}

/// Rank 0: what is suspicious about the sources.
fn warn(plan: &Plan, options: &MergeOptions, shares: &[Share], summary: &Summary) {
    let Some(inputs) = plan.stages.last() else { return };
    let mut tallies = Tallies::default();
    shares.iter().for_each(|share| tallies.append(&share.tallies));
    let kmers: Vec<u64> = summary.sources.iter().map(|source| source.kmers).collect();
    for warning in tallies.warnings(inputs, plan.lengths, options.min_count, &kmers) {
        eprintln!("obikmer-merge: warning: {warning}");
    }
}

/// Rank 0, when all files are written: give the directory its name.
fn finish(plan: &Plan, claim: Option<Claim>, shares: &[Share], summary: &Summary) -> Result<()> {
    let claim = claim.ok_or_else(|| Error::Internal("an index without a claim on it".into()))?;
    let ids: Vec<&[Ids]> = shares.iter().map(|share| &share.ids[..]).collect();
    index::write(&plan.partial, plan.lengths, plan.layers(), plan.sources(), &ids)?;
    index::write_json(&plan.partial.join(summary::FILE), summary)?;
    Spool::remove(&spool(&plan.partial))?;
    claim.publish()
}

impl<W: Texts> Job<'_, W> {
    /// Make one layer from its inputs. An outer error is known to all ranks; an inner one, of the writing at
    /// the end, only to this one.
    fn layer(&self, inputs: &Inputs, layer: usize, last: bool, share: &mut Share) -> Result<Result<()>> {
        let (comm, lengths) = (self.comm, self.plan.lengths);
        let mut clock = Clock::new(self.options.verbose && comm.rank() == 0);

        let partitions = Partitions::new(comm.size());
        let store = Store::new(lengths.k, inputs.sources.len(), partitions.subs());
        let store = store.require(inputs.least(self.options.min_count));
        let bytes = self.options.window.unwrap_or_else(|| window(comm.size(), self.options.budget));
        let mut router = Router::new(comm, partitions, lengths.k, store, bytes);
        let units = inputs.share(comm.rank(), comm.size());
        let report = |done, total| (self.progress)("read", done, total);
        let state = read::read(inputs, &units, lengths, partitions, &mut router, &report, &mut share.tallies);
        let (store, rounds) = router.finish(state)?;
        let kmers = store.as_ref().map_or(0, Store::kmers);
        clock.tick(|| format!("index phase, {rounds} exchanges, {kmers} k-mers here"));

        let filtered = last && layer > 0;
        let opened = store.and_then(|store| {
            let sources = inputs.sources.len();
            let old = if filtered { Some(self.open_old(layer, sources)?) } else { None };
            Ok((store, old))
        });
        // From here to the files of k-mers and sources no rank waits for another: the join has many blocking
        // points, and at each a rank would carry what it keeps out of memory and in again.
        let (store, old) = match opened {
            Ok((store, Some(mut old))) => (old.filter(comm, lengths, partitions, store)?, Some(old)),
            Ok((store, None)) => (Ok(store), None),
            // The others are in the exchange of the filter.
            Err(error) if filtered => return Err(exchange::failed(comm, error)),
            Err(error) => (Err(error), None),
        };
        let mut sets = Sets::default();
        let mut threads = Threads::ONE;
        let found = store.and_then(|store| {
            let store = store.sorted();
            let (mut done, total) = (0, store.kmers());
            threads = self.threads(total);
            let mut report = |kmers| {
                done += kmers;
                (self.progress)("merge", done, total);
            };
            let task = graph::Task { lengths, partitions, rank: comm.rank(), store: &store, threads };
            task.pieces::<W>(&mut sets, &mut report)
        });
        clock.tick(|| "pieces".into());
        let found = found.and_then(|mut found| {
            self.write_kmers(layer, &sets, &found.pieces, inputs.sources.len(), threads, share)?;
            found.pieces.runs = Runs::default();
            Ok(found)
        });
        drop(sets);
        clock.tick(|| "k-mers and sources written".into());
        let (pieces, links) = border::links(comm, found, threads)?;
        clock.tick(|| "borders, 1 exchange".into());
        let report = |done, total| (self.progress)("join", done, total);
        let path = path(&self.plan.partial, layer, self.place.partition, Kind::Unitigs);
        let mut unitigs = unitigs::Writer::new(&path, self.place);
        let mut push = |text: packed::Text<'_>, cyclic| unitigs.push(text, cyclic);
        let joined = join::join(comm, lengths.k, pieces, links, self.plan.few, &mut push, &report)?;
        clock.tick(|| format!("join, {} exchanges, {} bytes from here", joined.rounds, joined.bytes));
        let written = joined.state.and_then(|()| unitigs.finish());
        Ok(written.and_then(|written| {
            share.add_unitigs(layer, written);
            old.map_or(Ok(()), |old| old.write(&self.plan.partial, inputs.sources.len(), share))
        }))
    }

    /// The layers before this one, whose k-mers are not to be in it; those written by this job may have any
    /// of all `sources`.
    fn open_old(&self, layer: usize, sources: usize) -> Result<Old<W>> {
        let (dir, keep) = (&self.plan.partial, self.plan.keep.as_ref());
        if let Some(index) = keep {
            old::link(&index.dir, dir, layer, self.place.partition)?;
        }
        let sources = keep.map_or(sources, |index| index.meta.sources.len());
        Old::open(dir, layer, self.place, sources, keep)
    }

    /// How many threads for so many k-mers, repeats included.
    fn threads(&self, kmers: u64) -> Threads {
        let default = || Threads::of_rank(self.comm.size(), kmers * BYTES_PER_KMER, self.options.budget);
        self.options.threads.map_or_else(default, Threads::new)
    }

    /// What of a layer is made before the pieces are joined.
    fn write_kmers(
        &self,
        layer: usize,
        sets: &Sets,
        pieces: &Pieces,
        sources: usize,
        threads: Threads,
        share: &mut Share,
    ) -> Result<()> {
        let path = |kind| path(&self.plan.partial, layer, self.place.partition, kind);
        let wrote = write_sources(&path(Kind::Sources), self.place, &pieces.runs, sets)?;
        share.add_file(layer, Kind::Sources, wrote);
        share.add_kmers(&pieces.runs, sets, sources);
        let wrote = write_kmers::<W>(&path(Kind::Kmers), self.place, pieces, threads)?;
        share.add_file(layer, Kind::Kmers, wrote);
        Ok(())
    }
}
