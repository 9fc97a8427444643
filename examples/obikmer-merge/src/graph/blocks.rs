//! All pieces of a rank. Several threads take blocks of consecutive virtual partitions, each with a graph and
//! sets of its own; what they find is put together in order, so that it is what one thread finds.

use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::{Graph, Texts};
use crate::error::Result;
use crate::pieces::{Assembly, Found};
use crate::sequence::kmer::Lengths;
use crate::sequence::minimizer::Partitions;
use crate::sets::Sets;
use crate::superkmer::store::Sorted;
use crate::threads::Threads;

/// Virtual partitions of a block: some half a million k-mers.
const BLOCK: usize = 8;

/// What is asked for: whose pieces, and of what.
pub struct Task<'a> {
    /// The lengths.
    pub lengths: Lengths,
    /// The partitions.
    pub partitions: Partitions,
    /// This rank.
    pub rank: usize,
    /// The super-k-mers.
    pub store: &'a Sorted,
    /// How many threads.
    pub threads: Threads,
}

/// A graph with the sets that its pieces have.
struct Worker<W: Texts> {
    graph: Graph<W>,
    sets: Sets,
    /// Their numbers among the sets of all.
    numbers: Vec<u32>,
}

impl Task<'_> {
    /// The pieces of this rank, with the sets of their k-mers in `sets`; `report` is told how many k-mers are
    /// done with.
    ///
    /// # Errors
    /// More pieces or bases than numbers for them, or threads cannot be started.
    pub fn pieces<W: Texts>(&self, sets: &mut Sets, report: &mut dyn FnMut(u64)) -> Result<Found<W>> {
        let all = 0..self.partitions.subs();
        if self.threads == Threads::ONE {
            let mut found = self.assembly();
            self.find(all, &mut self.graph(), sets, &mut found, report)?;
            return Ok(found.finish());
        }
        let (shared, idle) = (Mutex::new(sets), Mutex::new(Vec::<Worker<W>>::new()));
        let work = |block: Range<usize>| -> Result<_> {
            let worker = locked(&idle).pop();
            let new = || Worker { graph: self.graph(), sets: Sets::default(), numbers: Vec::new() };
            let mut worker = worker.unwrap_or_else(new);
            let (mut found, mut kmers) = (self.assembly(), 0);
            self.find(block, &mut worker.graph, &mut worker.sets, &mut found, &mut |n| kmers += n)?;
            locked(&shared).adopt(&worker.sets, &mut worker.numbers);
            found.complete(&worker.numbers);
            locked(&idle).push(worker);
            Ok((found, kmers))
        };
        let mut found = self.assembly();
        let blocks = all.clone().step_by(BLOCK).map(|first| first..(first + BLOCK).min(all.end));
        self.threads.in_order(blocks, work, |block| {
            let (block, kmers) = block?;
            found.append(block)?;
            report(kmers);
            Ok(())
        })?;
        Ok(found.finish())
    }

    fn graph<W: Texts>(&self) -> Graph<W> {
        Graph::new(self.lengths, self.partitions, self.rank)
    }

    fn assembly<W: Texts>(&self) -> Assembly<W> {
        Assembly::new(self.lengths, self.partitions)
    }

    /// The pieces of some virtual partitions.
    fn find<W: Texts>(
        &self,
        subs: Range<usize>,
        graph: &mut Graph<W>,
        sets: &mut Sets,
        out: &mut Assembly<W>,
        report: &mut dyn FnMut(u64),
    ) -> Result<()> {
        for sub in subs {
            report(graph.pieces(sub, self.store, sets, out)?);
        }
        Ok(())
    }
}

/// A thread that panics while it has the lock is passed on anyway.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
