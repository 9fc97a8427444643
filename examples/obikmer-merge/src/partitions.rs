//! Virtual partitions (replaced by CUT's).

/// How hashes of minimizers are shared out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Partitions {
    ranks: usize,
    subs: usize,
}

impl Partitions {
    /// For so many ranks, each with `subs` virtual partitions.
    pub fn with_subs(ranks: usize, subs: usize) -> Self {
        Self { ranks, subs }
    }
    /// Ranks.
    pub fn ranks(self) -> usize {
        self.ranks
    }
    /// Virtual partitions of each rank.
    pub fn subs(self) -> usize {
        self.subs
    }
    /// The virtual partition of a minimizer's hash.
    #[inline]
    pub fn virtual_of(self, hash: u64) -> usize {
        crate::minimizer::partition(hash, self.ranks * self.subs)
    }
    /// The rank of a virtual partition.
    #[inline]
    pub fn rank_of(self, partition: usize) -> usize {
        partition / self.subs
    }
}
