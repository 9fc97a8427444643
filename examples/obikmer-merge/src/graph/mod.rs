//! The de Bruijn graph of a rank's partition as junctions: identical super-k-mers merged, a table of
//! (k−1)-mers with the bases on both sides, pieces read off the super-k-mers. One virtual partition at a
//! time, in buffers that are used again.

mod blocks;
mod distinct;
mod mixer;
mod runs;
mod table;
mod text;

pub use blocks::Task;
pub use mixer::Mixer;
pub use text::Texts;

use crate::error::Result;
use crate::pieces::Assembly;
use crate::sequence::kmer::Lengths;
use crate::sequence::minimizer::Partitions;
use crate::sets::Sets;
use crate::superkmer::frequent::Frequent;
use crate::superkmer::store::Sorted;
use distinct::Distinct;
use runs::Runs;
use table::Table;

/// A super-k-mer.
#[derive(Clone, Copy)]
pub struct Record<'a> {
    /// The flags of [`cut`](crate::superkmer::cut).
    pub flags: u16,
    /// Its k-mers.
    pub kmers: usize,
    /// Its bases, packed.
    pub bases: &'a [u8],
}

/// See the module.
struct Graph<W: Texts> {
    distinct: Distinct<W>,
    table: Table<W>,
    runs: Runs<W>,
    frequent: Frequent<W>,
    /// The rank's first virtual partition.
    first: usize,
}

impl<W: Texts> Graph<W> {
    fn new(lengths: Lengths, partitions: Partitions, rank: usize) -> Self {
        let k = lengths.k;
        let runs = Runs::new(k, lengths.m, partitions);
        let (distinct, frequent) = (Distinct::new(k), Frequent::default());
        Self { distinct, table: Table::new(k), runs, frequent, first: rank * partitions.subs() }
    }

    /// The pieces of what `store` has for virtual partition `sub`, in the order of their texts. K-mers taken,
    /// repeats included.
    fn pieces(&mut self, sub: usize, store: &Sorted, sets: &mut Sets, out: &mut Assembly<W>) -> Result<u64> {
        self.distinct.clear();
        store.drain(sub, &mut self.frequent, |source, record| self.distinct.add(record, source, sets));
        self.distinct.complete(sets);
        self.table.fill(&self.distinct);
        self.runs.read(self.first + sub, &self.distinct, &self.table, sets, out)?;
        Ok(store.totals(sub).kmers)
    }
}
