//! The same on the ranks of a job: rank 0 writes the result and says who computes what, the others compute.

use std::collections::HashSet;
use std::io;
use std::path::Path;
use std::sync::Mutex;

use bdrun_array::source::Sink;
use bdrun_array::{Block, Prepared, Progress, Region, Report};
use bdrun_graph_ranks::{Error, Ranks};
use bdrun_worker::World;
use serde::{Deserialize, Serialize};

use crate::Wrong;

/// The job that this process is a rank of, if it has more than one.
pub(crate) fn join() -> Result<Option<World>, Wrong> {
    if std::env::var("BDRUN_SIZE").is_ok_and(|ranks| ranks != "1") {
        let world = bdrun_worker::init().map_err(|error| error.to_string())?;
        return Ok((world.communicator().size() > 1).then_some(world));
    }
    Ok(None)
}

/// What rank 0 tells the others before they begin.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Told {
    /// Bytes of blocks, and which regions of the result are stored already: where they begin, and lengths.
    Goes { budget: u64, stored: Vec<(Vec<usize>, Vec<usize>)> },
    /// There is nothing to do.
    Ends,
}

/// What rank 0 tells (a collective).
pub(crate) fn tell(world: &World, told: Option<Told>) -> Result<Told, Wrong> {
    world.communicator().broadcast_value(0, told).map_err(|error| error.to_string())
}

/// On rank 0: the result, and what of it was asked for and is there.
pub(crate) struct Noting<'a> {
    sink: &'a dyn Sink,
    stored: Mutex<Vec<(Vec<usize>, Vec<usize>)>>,
}

impl<'a> Noting<'a> {
    pub fn new(sink: &'a dyn Sink) -> Self {
        Self { sink, stored: Mutex::default() }
    }

    pub fn stored(&self) -> Vec<(Vec<usize>, Vec<usize>)> {
        self.stored.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone()
    }
}

impl Sink for Noting<'_> {
    fn name(&self) -> String {
        self.sink.name()
    }

    fn has(&self, region: &Region) -> bool {
        let is_there = self.sink.has(region);
        if is_there {
            let mut stored = self.stored.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            stored.push((region.start.clone(), region.shape.clone()));
        }
        is_there
    }

    fn work(&self, region: &Region) -> u64 {
        self.sink.work(region)
    }

    fn write(&self, region: &Region, block: &Block) -> io::Result<()> {
        self.sink.write(region, block)
    }

    fn finish(&self) -> io::Result<()> {
        self.sink.finish()
    }
}

/// On the others: they never write, and know what is stored.
pub(crate) struct Elsewhere(pub HashSet<(Vec<usize>, Vec<usize>)>);

impl Sink for Elsewhere {
    fn name(&self) -> String {
        "the result, which rank 0 writes".into()
    }

    fn has(&self, region: &Region) -> bool {
        self.0.contains(&(region.start.clone(), region.shape.clone()))
    }

    fn write(&self, _: &Region, _: &Block) -> io::Result<()> {
        Err(io::Error::other("only rank 0 has it open"))
    }

    fn finish(&self) -> io::Result<()> {
        Ok(())
    }
}

/// Runs what is prepared; on rank 0 what was done.
pub(crate) fn run(
    world: &World,
    (prepared, data): (&Prepared<'_>, u128),
    scratch: &Path,
    progress: &Progress,
) -> Result<Option<Report>, Wrong> {
    let ranks = Ranks::of(world).scratch(scratch).data(data).at_home(|_, task| prepared.writes(task));
    let call = |call, inputs: Vec<Block>| prepared.call(call, inputs);
    let outcome = match ranks.run(&prepared.graph, &prepared.plan, progress, call) {
        Ok(Some(outcome)) => outcome,
        // Rank 0 says what went wrong.
        Ok(None) | Err(Error::Elsewhere(_)) => return Ok(None),
        Err(Error::Run(error)) => return Err(prepared.named(error).to_string()),
        Err(error) => return Err(error.to_string()),
    };
    prepared.finish().map_err(|error| error.to_string())?;
    Ok(Some(prepared.report(outcome.peak)))
}
