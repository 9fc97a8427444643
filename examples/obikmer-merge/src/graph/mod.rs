//! The de Bruijn graph of one partition, behind a small trait: a table of another kind can stand beside the hash set.

mod hashset;

pub use hashset::{HashSetGraph, Mixer};

use crate::kmer::Oriented;
use crate::sets::Sets;

/// What lies beyond the right end of an oriented k-mer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Right {
    /// Nothing joins: a dead end, a branch, or a hairpin.
    End,
    /// The junction belongs to another partition, which knows.
    Foreign,
    /// The k-mer that joins, read in the same direction, and whether this partition owns it.
    Joins(Oriented, bool),
}

/// The k-mers of one partition, with what the unitigs need to know of them.
///
/// K-mers are canonical; marks are those of [`store`](crate::store). Whoever is not owned is a *ghost*: owned by
/// another partition, here because one of its junctions is.
pub trait Graph {
    /// Add a k-mer of a source. Sources come in ascending order.
    fn add(&mut self, kmer: u64, marks: u8, source: u32);
    /// Take a k-mer out.
    fn remove(&mut self, kmer: u64);
    /// Number of k-mers, ghosts included.
    fn len(&self) -> usize;
    /// Is there none?
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// The join on the right of a k-mer that is in the graph.
    fn right(&self, kmer: Oriented) -> Right;
    /// Mark an owned k-mer as being in a piece; `false` if it was already.
    fn visit(&self, kmer: u64) -> bool;
    /// All k-mers, with their marks.
    fn for_each(&self, each: &mut dyn FnMut(u64, u8));
    /// The number of the set of sources of a k-mer that is in the graph.
    fn set_of(&self, kmer: u64) -> u32;
    /// What the sets' numbers mean.
    fn sets(&self) -> &Sets;
}
