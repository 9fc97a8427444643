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
use crate::graph::{Graph, Path, Stop};
use crate::kmer::{Lengths, Oriented};
use crate::layer::Runs;
use crate::packed::{self, Packed};
use crate::word::Word;

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

/// Where pieces touch other partitions.
#[derive(Default)]
pub struct Borders<W> {
    /// Owned k-mers at an end whose junction belongs to another partition.
    pub foreign: Vec<(W, End)>,
    /// Ghosts that an end joins.
    pub ghost_links: Vec<(W, End)>,
    /// All ghosts.
    pub ghosts: Vec<W>,
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
    pub fn for_each_kmer<W: Word>(&self, k: usize, mut each: impl FnMut(u32, Oriented<W>)) {
        for_each_kmer(&self.starts, self.bases.bytes(), k, &mut each);
    }
}

/// Every k-mer of packed pieces with its position.
pub fn for_each_kmer<W: Word>(
    starts: &[u32],
    bases: &[u8],
    k: usize,
    each: &mut impl FnMut(u32, Oriented<W>),
) {
    for piece in starts.windows(2) {
        let mut kmer = Oriented::new(packed::word(bases, piece[0] as usize, k - 1), k);
        for at in piece[0] as usize + k - 1..piece[1] as usize {
            kmer = kmer.right(packed::get(bases, at), k);
            each((at + 1 - k) as u32, kmer);
        }
    }
}

/// A piece as found, before the numbering.
struct Raw<W> {
    key: W,
    at: u32,
    bases: u32,
    /// Where its sets begin in the list of all.
    sets: u32,
    cyclic: bool,
}

/// All pieces of a graph.
pub fn find<W: Word>(graph: &impl Graph<W>, lengths: Lengths) -> Result<(Pieces, Borders<W>)> {
    let k = lengths.k;
    let mut raw: Vec<Raw<W>> = Vec::new();
    let mut texts = Packed::default();
    let mut pieces = Pieces::default();
    let mut borders = Borders::default();
    let mut empty: Vec<(W, W)> = Vec::new();
    // Sets of consecutive k-mers: how many, and which.
    let mut sets: Vec<(u32, u32)> = Vec::new();
    let mut codes = Vec::new();
    let mut add = |path: Path<'_, W>| {
        let word = |codes: &[u8]| W::from_codes(&codes[..k]);
        let (mut turn, first_set) = (false, sets.len());
        codes.clear();
        let mut stops = [Stop::End; 2];
        match path.stops {
            None => turn = circle(&path, k, &mut codes, &mut sets),
            Some(found) => {
                codes.extend_from_slice(path.codes);
                stops = found;
                let last = Oriented::new(word(&codes[codes.len() - k..]), k);
                if last.reverse < word(&codes) {
                    packed::reverse_complement(&mut codes);
                    stops.swap(0, 1);
                    turn = true;
                }
                push_sets(path.sets.iter().copied(), &mut sets);
            }
        }
        if turn {
            sets[first_set..].reverse();
        }
        for (side, stop) in stops.iter().enumerate() {
            let end = (raw.len() * 2 + side) as u32;
            match stop {
                Stop::Foreign(kmer) => borders.foreign.push((*kmer, end)),
                Stop::Ghost(kmer) => borders.ghost_links.push((*kmer, end)),
                Stop::End => {}
            }
        }
        raw.push(Raw {
            key: word(&codes),
            at: texts.len() as u32,
            bases: codes.len() as u32,
            sets: first_set as u32,
            cyclic: path.stops.is_none(),
        });
        texts.push(&codes);
    };
    graph.paths(&mut add, &mut |a, b| empty.push((a, b)));
    graph.ghosts(&mut |kmer| borders.ghosts.push(kmer));
    if texts.len() > u32::MAX as usize || raw.len() + empty.len() >= (u32::MAX / 4) as usize {
        return Err(Error::Limit("a partition has more than 4 G bases: run with more ranks (-np)".into()));
    }
    number(raw, &texts, &sets, empty, k, &mut pieces, &mut borders);
    Ok((pieces, borders))
}

/// Append the sets of consecutive k-mers.
fn push_sets(of_kmers: impl Iterator<Item = u32>, sets: &mut Vec<(u32, u32)>) {
    let begin = sets.len();
    for set in of_kmers {
        match sets[begin..].last_mut() {
            Some(last) if last.1 == set => last.0 += 1,
            _ => sets.push((1, set)),
        }
    }
}

/// The canonical text of a circle and the sets of its k-mers in that order; whether these are still to be turned.
fn circle<W: Word>(path: &Path<'_, W>, k: usize, codes: &mut Vec<u8>, sets: &mut Vec<(u32, u32)>) -> bool {
    let n = path.sets.len();
    // One code per k-mer: the text without the overlap of its two ends.
    codes.extend_from_slice(&cycle::canonical(&path.codes[..n], k));
    // Which of the k-mers it begins with, and in which direction.
    let first = W::from_codes(&codes[..k]);
    let mut kmer = Oriented::new(W::from_codes(&path.codes[..k]), k);
    let mut begin = 0;
    while kmer.forward != first && kmer.reverse != first && begin + 1 < n {
        kmer = kmer.right(path.codes[begin + k], k);
        begin += 1;
    }
    let backward = kmer.forward != first;
    if backward {
        // Turned later, it must end with its first.
        begin += 1;
    }
    push_sets((0..n).map(|i| path.sets[(begin + i) % n]), sets);
    backward
}

/// Sort, renumber the ends, and lay texts and sets out in order.
fn number<W: Word>(
    raw: Vec<Raw<W>>,
    texts: &Packed,
    sets: &[(u32, u32)],
    mut empty: Vec<(W, W)>,
    k: usize,
    pieces: &mut Pieces,
    borders: &mut Borders<W>,
) {
    let mut order: Vec<(W, u32)> = raw.iter().enumerate().map(|(i, piece)| (piece.key, i as u32)).collect();
    order.sort_unstable();
    let mut number = vec![0u32; raw.len()];
    pieces.bases = Packed::with_capacity(texts.len());
    pieces.starts = Vec::with_capacity(raw.len() + 1);
    let mut codes = Vec::new();
    for (new, &(_, old)) in order.iter().enumerate() {
        number[old as usize] = new as u32;
        let piece = &raw[old as usize];
        let mut position = pieces.bases.len() as u32;
        pieces.starts.push(position);
        let mut kmers = piece.bases - (k as u32 - 1);
        for &(count, set) in &sets[piece.sets as usize..] {
            pieces.runs.push_many(position, set, count);
            position += count;
            kmers -= count;
            if kmers == 0 {
                break;
            }
        }
        codes.clear();
        packed::unpack(texts.bytes(), piece.at as usize, piece.bases as usize, &mut codes);
        pieces.bases.push(&codes);
        if piece.cyclic {
            pieces.cyclic.push(new as u32);
        }
    }
    pieces.starts.push(pieces.bases.len() as u32);
    for (_, end) in borders.foreign.iter_mut().chain(&mut borders.ghost_links) {
        *end = number[(*end / 2) as usize] * 2 + (*end & 1);
    }
    empty.sort_unstable();
    pieces.empty = empty.len();
    for (i, (a, b)) in empty.into_iter().enumerate() {
        let end = ((raw.len() + i) * 2) as u32;
        borders.ghost_links.push((a, end));
        borders.ghost_links.push((b, end + 1));
    }
}
