//! Computing expressions within a budget.

use std::path::PathBuf;
use std::sync::Arc;

use bdrun_graph::order::{self, Effort};
use bdrun_graph::passes::{self, Origins};
use bdrun_graph::plan::{Plan, least_moved};
use bdrun_graph::run::{Call, Failure, FileStore, Progress, RunError, Threads, scratch_directory};
use bdrun_graph::{Graph, TaskId};

use crate::array::Array;
use crate::block::Block;
use crate::dtype::DType;
use crate::error::Error;
use crate::kernel::{Kernel, failure};
use crate::lower::lower;
use crate::source::{Held, Sink, Source};

/// How to compute.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Bytes of blocks that may be in memory at a time. None: as many as the order that was found takes with
    /// so many threads ([`Prepared::bound`]).
    pub budget: Option<u64>,
    /// On how many threads.
    pub threads: Threads,
    /// A directory on a disk for what does not fit; what is written to one in memory stays there, beside the
    /// budget. Default: [`scratch_directory`].
    pub scratch: PathBuf,
    /// How much to look for an order that takes little.
    pub effort: Effort,
    /// Whether to store is a task of its own, which can run elsewhere than what computes.
    pub store_apart: bool,
}

impl Default for Settings {
    fn default() -> Self {
        let (threads, effort) = (Threads::default(), Effort::default());
        Self { budget: None, threads, scratch: scratch_directory(), effort, store_apart: false }
    }
}

/// What is to be done, before anything is.
pub struct Prepared<'a> {
    /// The tasks, fused.
    pub graph: Graph,
    /// In which order, and what is written out and read again between them.
    pub plan: Plan,
    /// Bytes that are live at most if the tasks run one after the other with all the memory there is.
    pub peak: u64,
    /// Bytes within which the threads do not wait for memory.
    pub bound: u64,
    /// The order that takes least; that of the plan may be another one, which moves less.
    order: Vec<TaskId>,
    /// What each step of a task was before it became part of it.
    origins: Origins,
    kernels: Vec<Kernel>,
    sources: Vec<Arc<dyn Source>>,
    sinks: Vec<&'a dyn Sink>,
    /// Bytes that a thread keeps beside blocks, once it has multiplied some.
    packed: u64,
    settings: Settings,
}

/// Of each thread that computes or transfers: as much of its stack as it uses, and of its own heap.
const THREAD: u64 = 1 << 20;

/// What was done.
#[derive(Clone, Copy, Debug)]
pub struct Report {
    /// Bytes of blocks that were in memory at most.
    pub peak: u64,
    /// Bytes that were written to scratch.
    pub written: u64,
    /// Bytes that were read from there.
    pub read: u64,
    /// Bytes of blocks that were made of sources once more, instead of being written to scratch.
    pub again: u64,
    /// Threads that were asked for and that the system did not have: it went on without them.
    pub lacked: usize,
}

impl Settings {
    /// Prepares to compute arrays, each of which goes to a sink.
    ///
    /// # Errors
    /// If a task takes more than the budget.
    pub fn prepare<'a>(&self, outputs: &[(Array, &'a dyn Sink)]) -> Result<Prepared<'a>, Error> {
        let lowered = lower(outputs)?;
        let culled = passes::cull(&lowered.graph).graph;
        let may = |task| !(self.store_apart && writes(&culled, &lowered.kernels, task));
        let (graph, origins) = passes::fuse_where(&culled, may).apart(culled);
        let order = order::order(&graph, self.effort);
        let bound = order::bound(&graph, &order.tasks, self.threads.compute);
        let plan = least_moved(&graph, &order.tasks, self.budget.unwrap_or(bound))?;
        Ok(Prepared {
            graph,
            plan,
            peak: order.peak.bytes,
            bound,
            order: order.tasks,
            origins,
            kernels: lowered.kernels,
            sources: lowered.sources,
            sinks: outputs.iter().map(|&(_, sink)| sink).collect(),
            packed: lowered.packed,
            settings: self.clone(),
        })
    }

    /// Computes arrays, and holds them in memory (which is not counted in the budget).
    ///
    /// # Errors
    /// If a task takes more than the budget, or something goes wrong while it runs.
    pub fn compute(&self, arrays: &[&Array]) -> Result<Vec<Block>, Error> {
        let held = |array: &&Array| Held::new(array.dtype(), array.shape());
        let no_memory = |error| Error::File { path: "memory for the result".into(), error };
        let sinks: Vec<Held> = arrays.iter().map(held).collect::<Result<_, _>>().map_err(no_memory)?;
        let outputs: Vec<(Array, &dyn Sink)> =
            arrays.iter().zip(&sinks).map(|(&array, sink)| (array.clone(), sink as &dyn Sink)).collect();
        self.prepare(&outputs)?.run(&Progress::default())?;
        Ok(sinks.into_iter().map(Held::into_block).collect())
    }
}

impl Prepared<'_> {
    /// The same within another budget.
    ///
    /// # Errors
    /// If a task takes more.
    pub fn within(mut self, budget: u64) -> Result<Self, Error> {
        self.plan = least_moved(&self.graph, &self.order, budget)?;
        Ok(self)
    }

    /// Bytes that each thread that computes takes beside blocks: a stack, a heap, and what is packed of
    /// factors for products.
    pub fn per_thread(&self) -> u64 {
        THREAD + self.packed
    }

    /// On how many threads it runs.
    pub fn threads(&self) -> Threads {
        self.settings.threads
    }

    /// Bytes that all of its threads take beside blocks. Those for which there is no task have nothing to do.
    pub fn beside(&self) -> u64 {
        let Threads { compute, transfer } = self.settings.threads;
        let compute = compute.min(self.graph.len()).max(1) as u64;
        compute.saturating_mul(self.per_thread()).saturating_add(transfer as u64 * THREAD)
    }

    /// On no more threads than there are tasks, nor than leave half of so many bytes to blocks, and what the
    /// largest task needs; but on one.
    #[must_use]
    pub fn on_fewer(mut self, free: u64) -> Self {
        let least = self.graph.tasks().map(|task| self.graph.need(task)).max().unwrap_or(0);
        let transfer = self.settings.threads.transfer as u64 * THREAD;
        let room = (free / 2).min(free.saturating_sub(least)).saturating_sub(transfer);
        let most =
            usize::try_from(room / self.per_thread()).unwrap_or(usize::MAX).min(self.graph.len()).max(1);
        if most < self.settings.threads.compute {
            self.settings.threads.compute = most;
            self.bound = order::bound(&self.graph, &self.order, most);
        }
        self
    }

    /// Does it, and puts what was written in its place.
    ///
    /// # Errors
    /// If something goes wrong; nothing is put in its place then, but what was before it if the sink of
    /// another array fails at its end.
    pub fn run(&self, progress: &Progress) -> Result<Report, Error> {
        let store = FileStore::new(&self.settings.scratch)
            .map_err(|error| Error::file(&self.settings.scratch, error))?;
        let call = |call: Call, inputs: Vec<Block>| self.call(call, inputs);
        let outcome = self.settings.threads.run(&self.graph, &self.plan, &store, progress, call);
        let outcome = outcome.map_err(|error| self.named(error))?;
        self.finish()?;
        Ok(Report { lacked: outcome.lacked, ..self.report(outcome.peak) })
    }

    /// By who runs the plan: an error names the expression that failed, where several are one task.
    #[must_use]
    pub fn named(&self, error: RunError) -> RunError {
        self.origins.named(error)
    }

    /// What was done, by whoever ran the plan, with so many bytes of blocks in memory at most.
    pub fn report(&self, peak: u64) -> Report {
        let (written, read, again) = (self.plan.written, self.plan.read, self.plan.again);
        Report { peak, written, read, again, lacked: 0 }
    }

    /// By who runs the plan (on ranks, say), when all is done: puts what was written in its place.
    ///
    /// # Errors
    /// As of [`run`](Self::run).
    pub fn finish(&self) -> Result<(), Error> {
        for sink in &self.sinks {
            sink.finish().map_err(|error| Error::File { path: sink.name(), error })?;
        }
        Ok(())
    }

    /// Whether a task writes to a sink.
    pub fn writes(&self, task: TaskId) -> bool {
        writes(&self.graph, &self.kernels, task)
    }

    /// By who runs the plan: computes a function of a task.
    ///
    /// # Errors
    /// If it cannot be computed, read or written.
    pub fn call(&self, call: Call, mut inputs: Vec<Block>) -> Result<Block, Failure> {
        match &self.kernels[call.function.0 as usize] {
            Kernel::Read { source, region } => {
                let source = &self.sources[*source];
                let block = source.read(region).map_err(|error| named(&source.name(), &error))?;
                if block.shape() != region.shape || block.dtype() != source.dtype() {
                    return Err(failure(format!(
                        "{} gave another block than it was asked for",
                        source.name()
                    )));
                }
                Ok(block)
            }
            Kernel::Write { sink, region } => {
                let sink = self.sinks[*sink];
                let block = inputs.pop().ok_or_else(|| failure("nothing to write".into()))?;
                sink.write(region, &block).map_err(|error| named(&sink.name(), &error))?;
                Ok(Block::zeros(DType::Bool, &[0])?)
            }
            kernel => kernel.run(inputs),
        }
    }
}

/// Whether a task writes to a sink.
fn writes(graph: &Graph, kernels: &[Kernel], task: TaskId) -> bool {
    let steps = graph.programs().steps(graph.body(task), graph.inputs(task).len());
    steps.iter().any(|step| matches!(kernels[step.function.0 as usize], Kernel::Write { .. }))
}

/// The same error, with what it is of.
fn named(name: &str, error: &std::io::Error) -> std::io::Error {
    std::io::Error::new(error.kind(), format!("{name}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scratch_is_where_that_of_others_is() {
        assert_eq!(Settings::default().scratch, scratch_directory());
    }
}
