//! The graph as junctions: identical super-k-mers merged, a table of (k−1)-mers with the bases on both sides, pieces read
//! off the super-k-mers. One virtual partition at a time, in buffers that are used again.

mod distinct;
mod runs;
mod table;
mod text;

pub use text::Texts;

use super::Graph;
use crate::error::Result;
use crate::pieces::Assembly;
use crate::sequence::kmer::Lengths;
use crate::sequence::minimizer::Partitions;
use crate::sets::Sets;
use crate::superkmer::store::Sorted;
use distinct::Distinct;
use runs::Runs;
use table::Table;

/// See the module.
pub struct JunctionGraph<W: Texts> {
    distinct: Distinct<W>,
    table: Table<W>,
    runs: Runs<W>,
    first: usize,
}

impl<W: Texts> Graph<W> for JunctionGraph<W> {
    const WHOLE: bool = false;

    fn new(lengths: Lengths, partitions: Partitions, rank: usize) -> Self {
        let k = lengths.k;
        let runs = Runs::new(k, lengths.m, partitions);
        Self { distinct: Distinct::new(k), table: Table::new(k), runs, first: rank * partitions.subs() }
    }

    fn fill(&mut self, sub: usize, store: &Sorted, sets: &mut Sets) -> u64 {
        self.distinct.clear();
        let mut kmers = 0;
        store.drain(sub, |source, record| {
            kmers += record.kmers as u64;
            self.distinct.add(record, source, sets);
        });
        self.table.fill(&self.distinct);
        kmers
    }

    fn pieces(&mut self, sub: usize, sets: &mut Sets, out: &mut Assembly<W>) -> Result<()> {
        self.runs.read(self.first + sub, &self.distinct, &self.table, sets, out)
    }
}
