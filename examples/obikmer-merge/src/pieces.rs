//! Pieces: the unitigs of one partition, as far as it owns their k-mers.
//!
//! A piece ends where its unitig ends, where the next k-mer is owned by another virtual partition, or where
//! the junction belongs to one. Pieces are numbered by virtual partition and there in the order of their
//! texts, each in the direction of its smaller one, so that the numbers do not depend on the order in which
//! anything arrived.
//!
//! A junction that joins two ghosts (k-mers owned by others) gives an *empty* piece: no text, but two ends,
//! and a number after those of the others.

use crate::error::{Error, Result};
use crate::layer::Runs;
use crate::sequence::kmer::Lengths;
use crate::sequence::minimizer::{Partitions, of_words, partition};
use crate::sequence::packed::Packed;
use crate::sequence::word::Word;

/// An end of a piece: twice the piece's number, plus one for the right end.
pub type End = u32;

/// The pieces of a partition.
#[derive(Default)]
pub struct Pieces {
    /// Where each begins in `bases`; one more entry for the end.
    pub starts: Vec<u32>,
    /// Their texts, one after another.
    pub bases: Packed,
    /// Pieces that are cyclic unitigs, ascending.
    pub cyclic: Vec<u32>,
    /// The sources of their k-mers.
    pub runs: Runs,
    /// Number of empty pieces.
    pub empty: usize,
}

impl Pieces {
    /// Number of pieces with text.
    pub fn len(&self) -> usize {
        self.starts.len() - 1
    }

    /// Is there none?
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Number of k-mers of a piece.
    pub fn kmers(&self, piece: usize, k: usize) -> u32 {
        match self.starts.get(piece + 1) {
            Some(end) => end - self.starts[piece] - (k as u32 - 1),
            None => 0,
        }
    }
}

/// Why a piece stops at one of its ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop<W> {
    /// Nothing joins: a dead end, a branch, or a hairpin.
    End,
    /// The junction belongs to another virtual partition, which knows.
    Foreign {
        /// The k-mer at this end, canonical.
        kmer: W,
        /// The junction, in either direction.
        junction: W,
    },
    /// A k-mer joins that another virtual partition owns.
    Ghost {
        /// That k-mer, canonical.
        kmer: W,
        /// Its rank.
        rank: u32,
    },
}

/// A k-mer with one junction here and one in another virtual partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Border<W> {
    /// The other's rank.
    pub rank: u32,
    /// The k-mer, canonical.
    pub kmer: W,
    /// The end here, or [`NO_END`].
    pub end: End,
}

/// Of a ghost: no piece ends at it. Higher than any end.
pub const NO_END: End = End::MAX;

/// Most pieces: the two ends of each fit into an [`End`], with room for the empty ones.
const MOST: usize = 1 << 30;

/// Foreign junctions whose ranks are found together.
const TOGETHER: usize = 512;

/// Pieces as they are found, in order.
pub struct Assembly<W> {
    lengths: Lengths,
    partitions: Partitions,
    pieces: Pieces,
    own: Vec<Border<W>>,
    /// Junctions of the last of `own`, whose ranks are not known yet; and their hashes.
    junctions: Vec<W>,
    hashes: Vec<u32>,
    ghosts: Vec<Border<W>>,
    pairs: Vec<[(W, u32); 2]>,
    position: u32,
}

/// All pieces of a rank, and where they touch other virtual partitions.
#[derive(Default)]
pub struct Found<W> {
    /// The pieces.
    pub pieces: Pieces,
    /// Owned k-mers at an end whose junction belongs to another virtual partition. Not sorted.
    pub own: Vec<Border<W>>,
    /// Ghosts, some more than once: with their end, or with none. Not sorted.
    pub ghosts: Vec<Border<W>>,
}

/// Is there room for a piece behind so many bases, there being so many places where one begins or the last
/// one ends?
fn check_room(bases: usize, starts: usize) -> Result<()> {
    // No piece is longer than the room that is left for one.
    if bases > u32::MAX as usize / 2 || starts >= MOST {
        return Err(Error::Limit(
            "a partition has more than 2 G bases or 1 G pieces: run with more ranks (-np)".into(),
        ));
    }
    Ok(())
}

impl<W: Word> Assembly<W> {
    /// No pieces yet.
    pub fn new(lengths: Lengths, partitions: Partitions) -> Self {
        let pieces = Pieces { starts: vec![0], ..Pieces::default() };
        Self {
            lengths,
            partitions,
            pieces,
            own: Vec::new(),
            junctions: Vec::new(),
            hashes: Vec::new(),
            ghosts: Vec::new(),
            pairs: Vec::new(),
            position: 0,
        }
    }

    /// The next piece begins.
    pub fn begin(&mut self) -> Result<()> {
        check_room(self.pieces.bases.len(), self.pieces.starts.len())?;
        self.position = self.pieces.bases.len() as u32;
        Ok(())
    }

    /// Its next k-mers have this set of sources.
    #[inline]
    pub fn sets(&mut self, kmers: u32, set: u32) {
        self.pieces.runs.push_many(self.position, set, kmers);
        self.position += kmers;
    }

    /// Where its text goes.
    #[inline]
    pub fn bases(&mut self) -> &mut Packed {
        &mut self.pieces.bases
    }

    /// Its text is complete.
    #[inline]
    pub fn end(&mut self, stops: [Stop<W>; 2], cyclic: bool) {
        let piece = self.pieces.starts.len() as u32 - 1;
        for (side, stop) in stops.into_iter().enumerate() {
            let end = 2 * piece + side as u32;
            match stop {
                Stop::End => {}
                Stop::Foreign { kmer, junction } => {
                    self.own.push(Border { rank: 0, kmer, end });
                    self.junctions.push(junction);
                }
                Stop::Ghost { kmer, rank } => self.ghosts.push(Border { rank, kmer, end }),
            }
        }
        if self.junctions.len() >= TOGETHER {
            self.find_ranks();
        }
        if cyclic {
            self.pieces.cyclic.push(piece);
        }
        self.pieces.starts.push(self.pieces.bases.len() as u32);
    }

    /// The ranks of the last foreign junctions, many at a time.
    fn find_ranks(&mut self) {
        let Lengths { k, m } = self.lengths;
        of_words(&self.junctions, k - 1, m, &mut self.hashes);
        let first = self.own.len() - self.junctions.len();
        for (border, &hash) in self.own[first..].iter_mut().zip(&self.hashes) {
            border.rank = partition(hash, self.partitions.ranks()) as u32;
        }
        self.junctions.clear();
    }

    /// There is this ghost, whether a piece ends at it or not.
    #[inline]
    pub fn ghost(&mut self, kmer: W, rank: u32) {
        self.ghosts.push(Border { rank, kmer, end: NO_END });
    }

    /// Two ghosts join: an empty piece. It may be told of more than once.
    pub fn pair(&mut self, mut pair: [(W, u32); 2]) {
        pair.sort_unstable();
        self.pairs.push(pair);
    }

    /// Nothing comes after; the sets get these numbers.
    pub fn complete(&mut self, numbers: &[u32]) {
        self.find_ranks();
        self.pieces.runs.renumber(numbers);
    }

    /// The pieces of another that is [complete](Self::complete) come next.
    pub fn append(&mut self, mut other: Self) -> Result<()> {
        debug_assert!(self.junctions.is_empty() && other.junctions.is_empty(), "all ranks are known");
        let (first, position) = (self.pieces.len(), self.pieces.bases.len());
        if let Some(last) = other.pieces.len().checked_sub(1) {
            check_room(position + other.pieces.starts[last] as usize, self.pieces.starts.len() + last)?;
        }
        for (all, borders) in [(&mut self.own, &mut other.own), (&mut self.ghosts, &mut other.ghosts)] {
            all.extend(borders.drain(..).map(|border| match border.end {
                NO_END => border,
                end => Border { end: end + 2 * first as u32, ..border },
            }));
        }
        self.pairs.append(&mut other.pairs);
        let Pieces { starts, bases, cyclic, runs, .. } = other.pieces;
        self.pieces.starts.extend(starts[1..].iter().map(|start| start + position as u32));
        self.pieces.bases.append(bases.text());
        self.pieces.cyclic.extend(cyclic.iter().map(|piece| piece + first as u32));
        self.pieces.runs.append(&runs, position as u32);
        Ok(())
    }

    /// All are found.
    pub fn finish(mut self) -> Found<W> {
        self.find_ranks();
        let Self { mut pieces, own, mut ghosts, mut pairs, lengths, .. } = self;
        debug_assert!(pieces.bases.len() >= pieces.len() * lengths.k, "a piece has a k-mer at least");
        pairs.sort_unstable();
        pairs.dedup();
        pieces.empty = pairs.len();
        let first = 2 * pieces.len() as u32;
        for (number, pair) in pairs.into_iter().enumerate() {
            for (side, (kmer, rank)) in pair.into_iter().enumerate() {
                ghosts.push(Border { rank, kmer, end: first + (2 * number + side) as u32 });
            }
        }
        Found { pieces, own, ghosts }
    }
}
