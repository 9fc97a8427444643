//! The de Bruijn graph of one partition, behind a small trait: a table of another kind can stand beside the hash set.

mod hashset;
mod mixer;
mod walk;

pub use hashset::HashSetGraph;
pub use mixer::Mixer;

use crate::kmer::Oriented;
use crate::sets::Sets;
use crate::word::Word;

/// Why a path of owned k-mers stops at one of its ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop<W> {
    /// Nothing joins: a dead end, a branch, or a hairpin.
    End,
    /// The junction belongs to another partition, which knows. The k-mer at this end.
    Foreign(W),
    /// A k-mer joins that another partition owns: this one.
    Ghost(W),
}

/// Owned k-mers that join one another, as far as they do.
pub struct Path<'a, W> {
    /// The first k-mer, then one base for each further one.
    pub codes: &'a [u8],
    /// The set of sources of each k-mer.
    pub sets: &'a [u32],
    /// What is at the left and at the right end; nothing if the last k-mer joins the first.
    pub stops: Option<[Stop<W>; 2]>,
}

/// The k-mers of one partition, with what the unitigs need to know of them.
///
/// Marks are those of [`store`](crate::store). Whoever is not owned is a *ghost*: owned by another partition, here
/// because one of its junctions is.
pub trait Graph<W: Word> {
    /// Add a k-mer of a source; marks are for its canonical text. Sources come in ascending order.
    fn add(&mut self, kmer: Oriented<W>, marks: u8, source: u32);
    /// All k-mers are in; to be called before anything below.
    fn seal(&mut self);
    /// Take a k-mer out.
    fn remove(&mut self, kmer: W);
    /// Number of k-mers, ghosts included.
    fn len(&self) -> usize;
    /// Is there none?
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// All ghosts.
    fn ghosts(&self, each: &mut dyn FnMut(W));
    /// Every path once, in any order and direction; and every pair of ghosts that join. To be called once.
    fn paths(&self, path: &mut dyn FnMut(Path<'_, W>), ghosts: &mut dyn FnMut(W, W));
    /// What the sets' numbers mean.
    fn sets(&self) -> &Sets;
}
