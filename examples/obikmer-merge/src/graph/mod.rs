//! The de Bruijn graph of a rank's partition, behind a small trait: two implementations with the same results.

mod blocks;
mod hashset;
mod junction;
mod mixer;

pub use blocks::Task;
pub use hashset::HashSetGraph;
pub use junction::{JunctionGraph, Texts};
pub use mixer::Mixer;

use crate::error::Result;
use crate::pieces::Assembly;
use crate::sequence::kmer::Lengths;
use crate::sequence::minimizer::Partitions;
use crate::sequence::word::Word;
use crate::sets::Sets;
use crate::superkmer::store::Sorted;

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

/// Which implementation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Kind {
    /// Tables of junctions, one virtual partition at a time.
    #[default]
    Junction,
    /// Sets of k-mers, all of a rank's at once, as in seed 000.
    Hashbrown,
}

/// The k-mers of one rank, with what the pieces of unitigs need to know of them.
pub trait Graph<W: Word>: Sized + Send {
    /// Are all virtual partitions filled before the pieces of the first are asked for? Otherwise each in turn.
    const WHOLE: bool;
    /// An empty graph of this rank.
    fn new(lengths: Lengths, partitions: Partitions, rank: usize) -> Self;
    /// Take in what `store` has for virtual partition `sub` of this rank. K-mers taken, repeats included.
    fn fill(&mut self, sub: usize, store: &Sorted, sets: &mut Sets) -> u64;
    /// The pieces of a virtual partition that was filled, in the order of their texts. To be called once for each.
    fn pieces(&mut self, sub: usize, sets: &mut Sets, out: &mut Assembly<W>) -> Result<()>;
}
