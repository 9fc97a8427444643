//! Which ranks of a job are on which node: blocks of consecutive ranks, as equal as can be.

use std::ops::Range;

/// A node of a job that may be on several.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spread {
    /// Ranks of all nodes together.
    pub ranks: u32,
    /// How many nodes there are; at most as many as ranks.
    pub nodes: u32,
    /// Which of them this is, from 0.
    pub node: u32,
}

impl Spread {
    /// All on one node.
    #[must_use]
    pub const fn alone(ranks: u32) -> Self {
        Self { ranks, nodes: 1, node: 0 }
    }

    /// Is it one that can be?
    #[must_use]
    pub const fn is_valid(&self) -> bool {
        self.nodes > 0 && self.node < self.nodes && self.nodes <= self.ranks
    }

    /// The first rank of a node; that of one behind the last is the number of ranks.
    #[must_use]
    pub const fn first(&self, node: u32) -> u32 {
        (self.ranks as u64 * node as u64 / self.nodes as u64) as u32
    }

    /// The ranks of a node.
    #[must_use]
    pub const fn ranks_of(&self, node: u32) -> Range<u32> {
        self.first(node)..self.first(node + 1)
    }

    /// Those of this one.
    #[must_use]
    pub const fn here(&self) -> Range<u32> {
        self.ranks_of(self.node)
    }

    /// The node of a rank.
    #[must_use]
    pub const fn node_of(&self, rank: u32) -> u32 {
        (((rank as u64 + 1) * self.nodes as u64 - 1) / self.ranks as u64) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rank_is_on_one_node() {
        for ranks in 1..70 {
            for nodes in 1..=ranks {
                let spread = Spread { ranks, nodes, node: 0 };
                let mut next = 0;
                for node in 0..nodes {
                    let range = spread.ranks_of(node);
                    assert_eq!(range.start, next);
                    assert!(range.len() as u32 >= ranks / nodes && range.len() as u32 <= ranks / nodes + 1);
                    assert!(range.clone().all(|rank| spread.node_of(rank) == node), "{ranks} {nodes} {node}");
                    next = range.end;
                }
                assert_eq!(next, ranks);
            }
        }
    }
}
