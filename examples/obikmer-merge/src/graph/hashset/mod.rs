//! The graph of seed 000: hash sets of k-mers. Kept as the reference for the other one, and as the load that needs much
//! memory: the sets of all virtual partitions of a rank are there at once.

mod table;
mod walk;

use super::Graph;
use crate::error::Result;
use crate::pieces::{Assembly, Stop};
use crate::sequence::cycle;
use crate::sequence::kmer::{Lengths, Oriented};
use crate::sequence::minimizer::{Partitions, of_word};
use crate::sequence::packed::{self, Packed};
use crate::sequence::word::Word;
use crate::sets::Sets;
use crate::superkmer::store::{Sorted, marked_kmers};
use table::KmerSet;
use walk::Path;

/// See the module.
pub struct HashSetGraph<W> {
    lengths: Lengths,
    partitions: Partitions,
    rank: usize,
    sets: Vec<Option<KmerSet<W>>>,
}

impl<W: Word> Graph<W> for HashSetGraph<W> {
    const WHOLE: bool = true;

    fn new(lengths: Lengths, partitions: Partitions, rank: usize) -> Self {
        let sets = std::iter::repeat_with(|| None).take(partitions.subs()).collect();
        Self { lengths, partitions, rank, sets }
    }

    fn fill(&mut self, sub: usize, store: &Sorted, sets: &mut Sets) -> u64 {
        let k = self.lengths.k;
        let mut table = KmerSet::new(k);
        let mut kmers = 0;
        store.drain(sub, |source, record| {
            kmers += record.kmers as u64;
            marked_kmers(record, k, |kmer, marks| table.add(kmer, marks, source, sets));
        });
        table.seal(sets);
        self.sets[sub] = Some(table);
        kmers
    }

    fn pieces(&mut self, sub: usize, _: &mut Sets, out: &mut Assembly<W>) -> Result<()> {
        let Some(table) = self.sets[sub].take() else { return Ok(()) };
        let home = self.rank * self.partitions.subs() + sub;
        let mut paths = Paths::new(self.lengths.k);
        table.paths(&mut |path| paths.add(&path), &mut |a, b| {
            out.pair([a, b].map(|kmer| (kmer, self.owner(kmer))));
        });
        table.ghosts(&mut |kmer| out.ghost(kmer, self.owner(kmer)));
        drop(table);
        paths.order(out, |stop| match stop {
            walk::Stop::End => Stop::End,
            walk::Stop::Ghost(kmer) => Stop::Ghost { kmer, rank: self.owner(kmer) },
            walk::Stop::Foreign(kmer) => Stop::Foreign { kmer, junction: self.other(kmer, home) },
        })
    }
}

impl<W: Word> HashSetGraph<W> {
    fn rank_of(&self, hash: u32) -> u32 {
        self.partitions.rank_of(self.partitions.virtual_of(hash)) as u32
    }

    fn owner(&self, kmer: W) -> u32 {
        self.rank_of(of_word(kmer, self.lengths.k, self.lengths.m))
    }

    /// That junction of a border k-mer that is not in virtual partition `home`.
    fn other(&self, kmer: W, home: usize) -> W {
        let Lengths { k, m } = self.lengths;
        let (left, right) = (kmer >> 2, kmer & W::mask(k - 1));
        if self.partitions.virtual_of(of_word(left, k - 1, m)) != home { left } else { right }
    }
}

/// A path as found, in its canonical direction.
struct Raw<W> {
    key: W,
    at: u32,
    bases: u32,
    /// Where its sets begin in the list of all.
    sets: u32,
    stops: [walk::Stop<W>; 2],
    cyclic: bool,
}

/// Paths, before they are put in order.
struct Paths<W> {
    k: usize,
    raw: Vec<Raw<W>>,
    texts: Packed,
    /// Sets of consecutive k-mers: how many, and which.
    sets: Vec<(u32, u32)>,
    codes: Vec<u8>,
}

impl<W: Word> Paths<W> {
    fn new(k: usize) -> Self {
        Self { k, raw: Vec::new(), texts: Packed::default(), sets: Vec::new(), codes: Vec::new() }
    }

    fn add(&mut self, path: &Path<'_, W>) {
        let k = self.k;
        let (mut turn, first_set) = (false, self.sets.len());
        self.codes.clear();
        let mut stops = [walk::Stop::End; 2];
        match path.stops {
            None => turn = self.circle(path),
            Some(found) => {
                self.codes.extend_from_slice(path.codes);
                stops = found;
                let last = W::from_codes(&self.codes[self.codes.len() - k..]);
                if last.revcomp(k) < W::from_codes(&self.codes[..k]) {
                    packed::reverse_complement(&mut self.codes);
                    stops.swap(0, 1);
                    turn = true;
                }
                push_sets(path.sets.iter().copied(), &mut self.sets);
            }
        }
        if turn {
            self.sets[first_set..].reverse();
        }
        self.raw.push(Raw {
            key: W::from_codes(&self.codes[..k]),
            at: self.texts.len() as u32,
            bases: self.codes.len() as u32,
            sets: first_set as u32,
            stops,
            cyclic: path.stops.is_none(),
        });
        self.texts.push(&self.codes);
    }

    /// The canonical text of a circle and the sets of its k-mers in that order; whether these are still to be turned.
    fn circle(&mut self, path: &Path<'_, W>) -> bool {
        let (n, k) = (path.sets.len(), self.k);
        // One code per k-mer: the text without the overlap of its two ends.
        self.codes.extend_from_slice(&cycle::canonical(&path.codes[..n], k));
        // Which of the k-mers it begins with, and in which direction.
        let first = W::from_codes(&self.codes[..k]);
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
        push_sets((0..n).map(|i| path.sets[(begin + i) % n]), &mut self.sets);
        backward
    }

    /// Sorted by their texts into `out`.
    fn order(mut self, out: &mut Assembly<W>, stop: impl Fn(walk::Stop<W>) -> Stop<W>) -> Result<()> {
        self.raw.sort_unstable_by_key(|raw| raw.key);
        for piece in &self.raw {
            out.begin()?;
            let mut kmers = piece.bases - (self.k as u32 - 1);
            for &(count, set) in &self.sets[piece.sets as usize..] {
                out.sets(count, set);
                kmers -= count;
                if kmers == 0 {
                    break;
                }
            }
            self.codes.clear();
            packed::unpack(self.texts.bytes(), piece.at as usize, piece.bases as usize, &mut self.codes);
            out.bases().push(&self.codes);
            out.end(piece.stops.map(&stop), piece.cyclic);
        }
        Ok(())
    }
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
