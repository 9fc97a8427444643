//! Pieces: the unitigs of one partition, as far as it owns their k-mers.
//!
//! A piece ends where its unitig ends, where the next k-mer is owned by another partition, or where the junction
//! belongs to another partition. Pieces are numbered in the order of their texts, each in the direction of its smaller
//! one, so that the numbers do not depend on the order in which anything arrived.
//!
//! A junction that joins two ghosts (k-mers owned by others) gives an *empty* piece: no text, but two ends, and a
//! number after those of the others.

use crate::cycle;
use crate::error::{Error, Result};
use crate::graph::{Graph, Right};
use crate::kmer::{Lengths, Oriented, mask};
use crate::packed::{self, Packed};
use crate::store::{LOCAL_LEFT, LOCAL_RIGHT, OWNED};

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
    /// Number of empty pieces.
    pub empty: usize,
    /// Owned k-mers at an end whose junction belongs to another partition.
    pub foreign: Vec<(u64, End)>,
    /// Ghosts that an end joins.
    pub ghost_links: Vec<(u64, End)>,
    /// All ghosts.
    pub ghosts: Vec<u64>,
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

    /// Every k-mer with its position in `bases`, in order.
    pub fn for_each_kmer(&self, k: usize, mut each: impl FnMut(u32, Oriented)) {
        for_each_kmer(&self.starts, self.bases.bytes(), k, &mut each);
    }
}

/// Every k-mer of packed pieces with its position.
pub fn for_each_kmer(starts: &[u32], bases: &[u8], k: usize, each: &mut impl FnMut(u32, Oriented)) {
    for piece in starts.windows(2) {
        let mut kmer = Oriented::new(packed::word(bases, piece[0] as usize, k - 1), k);
        for at in piece[0] as usize + k - 1..piece[1] as usize {
            kmer = kmer.right(u64::from(packed::get(bases, at)), k);
            each((at + 1 - k) as u32, kmer);
        }
    }
}

/// What a walk ran into.
enum Stop {
    End,
    Foreign(u64),
    Ghost(u64),
    /// The k-mer it began with.
    Circle,
}

/// A piece as found, before the numbering.
struct Raw {
    key: u64,
    at: u32,
    bases: u32,
    cyclic: bool,
}

/// Walk to the right of `from`, which is visited; the codes passed are appended.
fn walk(graph: &impl Graph, from: Oriented, codes: &mut Vec<u8>) -> Stop {
    let mut kmer = from;
    loop {
        match graph.right(kmer) {
            Right::End => return Stop::End,
            Right::Foreign => return Stop::Foreign(kmer.canonical()),
            Right::Joins(next, false) => return Stop::Ghost(next.canonical()),
            Right::Joins(next, true) => {
                if !graph.visit(next.canonical()) {
                    return Stop::Circle;
                }
                codes.push((next.forward & 3) as u8);
                kmer = next;
            }
        }
    }
}

/// All pieces of a graph.
pub fn find(graph: &impl Graph, lengths: Lengths) -> Result<Pieces> {
    let k = lengths.k;
    let mut raw: Vec<Raw> = Vec::new();
    let mut texts = Packed::default();
    let mut pieces = Pieces::default();
    let mut empty: Vec<(u64, u64)> = Vec::new();
    let (mut codes, mut left) = (Vec::new(), Vec::new());
    graph.for_each(&mut |kmer, marks| {
        let start = Oriented::new(kmer, k);
        if marks & OWNED == 0 {
            pieces.ghosts.push(kmer);
            let facing = if marks & LOCAL_RIGHT != 0 { start } else { start.flipped() };
            if marks & (LOCAL_LEFT | LOCAL_RIGHT) != 0
                && let Right::Joins(other, false) = graph.right(facing)
                && kmer < other.canonical()
            {
                empty.push((kmer, other.canonical()));
            }
            return;
        }
        if !graph.visit(kmer) {
            return;
        }
        // To the left first, then its complement, the k-mer, and on to the right.
        codes.clear();
        left.clear();
        let mut stops = [walk(graph, start.flipped(), &mut left), Stop::Circle];
        codes.extend(left.iter().rev().map(|c| 3 - c));
        codes.extend((0..k).rev().map(|i| (kmer >> (2 * i)) as u8 & 3));
        let cyclic = matches!(stops[0], Stop::Circle);
        if cyclic {
            // One code per k-mer: the text without the overlap of its two ends.
            codes.truncate(codes.len() + 1 - k);
            let text = cycle::canonical(&codes, k);
            codes.clear();
            codes.extend_from_slice(&text);
        } else {
            stops[1] = walk(graph, start, &mut codes);
        }
        let word = |codes: &[u8]| codes[..k].iter().fold(0, |w, &c| (w << 2) | u64::from(c));
        let first = word(&codes);
        let last = Oriented::new(word(&codes[codes.len() - k..]), k);
        let turn = !cyclic && last.reverse < first;
        if turn {
            packed::reverse_complement(&mut codes);
            stops.swap(0, 1);
        }
        for (side, stop) in stops.iter().enumerate() {
            let end = (raw.len() * 2 + side) as u32;
            match stop {
                Stop::Foreign(kmer) => pieces.foreign.push((*kmer, end)),
                Stop::Ghost(kmer) => pieces.ghost_links.push((*kmer, end)),
                Stop::End | Stop::Circle => {}
            }
        }
        let key = if turn { last.reverse } else { first };
        raw.push(Raw { key: key & mask(k), at: texts.len() as u32, bases: codes.len() as u32, cyclic });
        texts.push(&codes);
    });
    if texts.len() > u32::MAX as usize || raw.len() + empty.len() >= (u32::MAX / 4) as usize {
        return Err(Error::Limit("a partition has more than 4 G bases: run with more ranks (-np)".into()));
    }
    number(raw, &texts, empty, &mut pieces);
    Ok(pieces)
}

/// Sort, renumber the ends, and lay the texts out in order.
fn number(raw: Vec<Raw>, texts: &Packed, mut empty: Vec<(u64, u64)>, pieces: &mut Pieces) {
    let mut order: Vec<u32> = (0..raw.len() as u32).collect();
    order.sort_unstable_by_key(|&i| raw[i as usize].key);
    let mut number = vec![0u32; raw.len()];
    pieces.bases = Packed::with_capacity(texts.len());
    pieces.starts = Vec::with_capacity(raw.len() + 1);
    let mut codes = Vec::new();
    for (new, &old) in order.iter().enumerate() {
        number[old as usize] = new as u32;
        let piece = &raw[old as usize];
        pieces.starts.push(pieces.bases.len() as u32);
        codes.clear();
        packed::unpack(texts.bytes(), piece.at as usize, piece.bases as usize, &mut codes);
        pieces.bases.push(&codes);
        if piece.cyclic {
            pieces.cyclic.push(new as u32);
        }
    }
    pieces.starts.push(pieces.bases.len() as u32);
    for (_, end) in pieces.foreign.iter_mut().chain(&mut pieces.ghost_links) {
        *end = number[(*end / 2) as usize] * 2 + (*end & 1);
    }
    empty.sort_unstable();
    pieces.empty = empty.len();
    for (i, (a, b)) in empty.into_iter().enumerate() {
        let end = ((raw.len() + i) * 2) as u32;
        pieces.ghost_links.push((a, end));
        pieces.ghost_links.push((b, end + 1));
    }
}
