//! Where a k-mer lies in the texts of a partition's pieces, or that it does not.
//!
//! A table of the [anchors](crate::lookup::anchor) of all k-mers: for each run of consecutive k-mers with the
//! same occurrence of their anchor, the position of that occurrence. A k-mer is looked up by the hash of its
//! own anchor: at each position found, the text is compared with the k-mer, in both directions, and must lie
//! within one piece. So the answer is exact, and no k-mer is stored but in the texts.
//!
//! An anchor that occurs at very many places would make its k-mers slow to find: buckets of more than
//! `CROWDED` entries are left empty, and their k-mers go, one by one, into a second table by the hash of the
//! k-mer itself.

pub mod anchor;
pub mod prefetch;
pub mod search;
pub mod table;

use std::ops::Range;

use crate::error::Result;
use crate::layer::bounds::Bounds;
use crate::pieces::Pieces;
use crate::sequence::kmer::Oriented;
use crate::sequence::minimizer::order;
use crate::sequence::packed;
use crate::sequence::simd::{self, Level};
use crate::sequence::word::Word;
use crate::threads::Threads;
use anchor::Anchor;
use table::{Built, Table};

/// More entries than this are too many for a bucket; the mean is eight.
const CROWDED: u32 = 64;

/// Places at which the text is asked for in advance.
const MOST: usize = 6;

/// The hash of a canonical k-mer in the second table.
#[inline]
fn hash_of_kmer<W: Word>(kmer: W) -> u32 {
    (order(kmer.fold()) >> 32) as u32
}

/// The tables of a partition.
pub struct Tables {
    /// By the hash of the anchor.
    pub anchors: Built,
    /// By the hash of the k-mer, those of crowded anchors.
    pub kmers: Built,
}

/// Pieces whose anchors one thread finds at a time, if there are several threads.
const TOGETHER: usize = 1 << 14;

/// Build the tables of these pieces.
///
/// # Errors
/// Threads cannot be started.
pub fn build<W: Word>(pieces: &Pieces, k: usize, threads: Threads) -> Result<Tables> {
    let bits = table::position_bits(pieces.bases.len());
    // About two entries for a piece of zymo13's length, and one for every (k − m) / 2 k-mers of longer ones.
    let kmers = pieces.bases.len().saturating_sub(pieces.len() * (k - 1));
    let mut items = Vec::with_capacity(pieces.len() + 2 * kmers / (k - anchor::len(k) + 1));
    if threads == Threads::ONE {
        anchors(pieces, k, 0..pieces.len(), &mut items);
    } else {
        let parts = (0..pieces.len()).step_by(TOGETHER);
        let work = |first: usize| {
            let mut items = Vec::new();
            anchors(pieces, k, first..(first + TOGETHER).min(pieces.len()), &mut items);
            items
        };
        threads.in_order(parts, work, |part| {
            items.extend(part);
            Ok(())
        })?;
    }
    let mut anchors = table::build(&items, bits, CROWDED, threads)?;
    drop(items);
    let crowded = std::mem::take(&mut anchors.refused);
    let kmers = table::build(&kmers_at::<W>(pieces, k, &crowded), bits, u32::MAX, Threads::ONE)?;
    Ok(Tables { anchors, kmers })
}

/// Append the anchors of some pieces, as items.
fn anchors(pieces: &Pieces, k: usize, range: Range<usize>, items: &mut Vec<u64>) {
    /// Many have a few dozen bases: hashed together, what lies across two of them for nothing.
    const AT_ONCE: usize = 64;
    const { assert!(anchor::MOST <= packed::FOLLOWING) };
    let (m, bases) = (anchor::len(k), pieces.bases.bytes());
    let (mut words, mut all) = (Vec::new(), Vec::new());
    for first in range.clone().step_by(AT_ONCE) {
        let starts = &pieces.starts[first..=(first + AT_ONCE).min(range.end)];
        let (begin, end) = (starts[0], starts[starts.len() - 1]);
        packed::words_from(bases, begin as usize..end as usize, &mut words);
        all.resize(words.len(), 0);
        simd::anchors(Level::widest(), &words, m, &mut all);
        for piece in starts.windows(2) {
            let hashes = &all[(piece[0] - begin) as usize..(piece[1] - begin) as usize + 1 - m];
            anchors_of(piece[0], hashes, k + 1 - m, items);
        }
    }
}

/// Append the anchors of the windows of a piece that begins there, as items.
fn anchors_of(start: u32, hashes: &[u32], width: usize, items: &mut Vec<u64>) {
    let first = items.len();
    let tied = anchor::for_each_run(hashes, width, |at, _| {
        items.push(table::item(hashes[at], start + at as u32));
    });
    if tied {
        // The last ones too.
        let last = hashes.len() - 1;
        let turned: Vec<u32> = hashes.iter().rev().copied().collect();
        anchor::for_each_run(&turned, width, |at, _| {
            items.push(table::item(turned[at], start + (last - at) as u32));
        });
        items[first..].sort_unstable_by_key(|&item| item as u32);
        let mut kept = first;
        for i in first..items.len() {
            if i == first || items[i] != items[kept - 1] {
                items[kept] = items[i];
                kept += 1;
            }
        }
        items.truncate(kept);
    }
}

/// The k-mers whose first anchor, in the direction of the text, lies at one of these places; as items.
fn kmers_at<W: Word>(pieces: &Pieces, k: usize, anchors: &[u64]) -> Vec<u64> {
    let m = anchor::len(k);
    let mut items = Vec::new();
    for at in anchors.iter().map(|&item| item as u32 as usize) {
        let piece = pieces.starts.partition_point(|&start| start as usize <= at) - 1;
        let (begin, end) = (pieces.starts[piece] as usize, pieces.starts[piece + 1] as usize);
        for first in begin.max((at + m).saturating_sub(k))..=at.min(end - k) {
            let kmer = Oriented::<W>::new(packed::word(pieces.bases.bytes(), first, k), k);
            if anchor::of_kmer(kmer, k).offset as usize == at - first {
                items.push(table::item(hash_of_kmer(kmer.canonical()), first as u32));
            }
        }
    }
    items
}

/// A k-mer found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hit {
    /// Where it begins in the text.
    pub at: u32,
    /// Is its direction, as given, that of the text?
    pub forward: bool,
}

/// The tables and texts as stored.
#[derive(Clone, Copy)]
pub struct Lookup<'a> {
    k: usize,
    text: &'a [u8],
    bounds: Bounds<'a>,
    anchors: Table<'a>,
    kmers: Table<'a>,
}

impl<'a> Lookup<'a> {
    /// From the parts of a layer. The text has at least the bases that the bounds are of.
    pub fn new(k: usize, text: &'a [u8], bounds: Bounds<'a>, anchors: Table<'a>, kmers: Table<'a>) -> Self {
        Self { k, text, bounds, anchors, kmers }
    }

    /// Have the first thing needed brought near; then [`prefetch_entries`](Self::prefetch_entries) and
    /// [`prefetch_text`](Self::prefetch_text), each some time after the one before.
    #[inline]
    pub fn prefetch(&self, anchor: Anchor) {
        self.anchors.prefetch_bounds(anchor.hash);
    }

    /// The second.
    #[inline]
    pub fn prefetch_entries(&self, anchor: Anchor) {
        self.anchors.prefetch_bucket(anchor.hash);
    }

    /// The third: the text at each place where the k-mer may be.
    #[inline]
    pub fn prefetch_text(&self, anchor: Anchor) {
        let bucket = self.anchors.bucket(anchor.hash);
        for at in self.anchors.positions(bucket, anchor.hash).take(MOST) {
            let at = at.saturating_sub(anchor.offset) as usize;
            crate::lookup::prefetch::read(self.text, at / 4);
            self.bounds.prefetch(at);
        }
    }

    /// Find a k-mer by its anchor.
    #[inline]
    pub fn find<W: Word>(&self, kmer: Oriented<W>, anchor: Anchor) -> Option<Hit> {
        let bucket = self.anchors.bucket(anchor.hash);
        let (before, after) = (anchor.offset, (self.k - anchor::len(self.k)) as u32 - anchor.offset);
        for at in self.anchors.positions(bucket, anchor.hash) {
            let hit = self.compare(at.checked_sub(before), kmer.forward, true);
            let hit = hit.or_else(|| self.compare(at.checked_sub(after), kmer.reverse, false));
            if hit.is_some() {
                return hit;
            }
        }
        if bucket.is_empty() && !self.kmers.is_empty() { self.find_crowded(kmer) } else { None }
    }

    #[cold]
    fn find_crowded<W: Word>(&self, kmer: Oriented<W>) -> Option<Hit> {
        let hash = hash_of_kmer(kmer.canonical());
        self.kmers.positions(self.kmers.bucket(hash), hash).find_map(|at| {
            let hit = self.compare(Some(at), kmer.forward, true);
            hit.or_else(|| self.compare(Some(at), kmer.reverse, false))
        })
    }

    /// Is there this word at this place, within one piece?
    #[inline]
    fn compare<W: Word>(&self, at: Option<u32>, word: W, forward: bool) -> Option<Hit> {
        let start = at? as usize;
        let inside = start + self.k <= 4 * self.text.len();
        let there = inside && packed::word::<W>(self.text, start, self.k) == word;
        (there && self.bounds.none_in(start + 1..start + self.k)).then_some(Hit { at: start as u32, forward })
    }

    /// The next k-mer in the direction in which one was found, if the text goes on with it: `base` is its
    /// last base.
    #[inline]
    pub fn extend(&self, hit: Hit, base: u8) -> Option<Hit> {
        let (at, next, base) = if hit.forward {
            let next = hit.at as usize + self.k;
            (hit.at.checked_add(1)?, next..next + 1, base)
        } else {
            // A piece that begins where the hit does does not go on before it.
            let at = hit.at.checked_sub(1)?;
            (at, hit.at as usize..hit.at as usize + 1, 3 - base)
        };
        let place = if hit.forward { next.start } else { at as usize };
        let there = place < 4 * self.text.len() && packed::get(self.text, place) == base;
        (there && self.bounds.none_in(next)).then_some(Hit { at, forward: hit.forward })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::layer::bounds;

    /// Codes with much or little repetition in them.
    fn codes(seed: u64, len: usize) -> Vec<u8> {
        let random = |i: u64| order(seed << 32 | i);
        match seed % 4 {
            // Letters in any order, of two kinds only, and short repeats with a change now and then.
            0 => (0..len as u64).map(|i| random(i) as u8 & 3).collect(),
            1 => (0..len as u64).map(|i| random(i) as u8 & 3 & random(1 << 20) as u8).collect(),
            _ => {
                let period = 1 + random(0) % 5;
                let rare = if seed % 4 == 2 { u64::MAX } else { 20 };
                let change = |i| if random(i + 99) % rare == 0 { random(i + 199) } else { 0 };
                (0..len as u64).map(|i| (random(i % period) ^ change(i)) as u8 & 3).collect()
            }
        }
    }

    /// Pieces without any k-mer twice, as they are in a partition: of exactly k bases, and longer.
    fn pieces<W: Word>(seed: u64, k: usize, count: u64) -> (Pieces, Vec<W>) {
        let (mut pieces, mut seen, mut kmers) = (Pieces::default(), HashSet::new(), Vec::new());
        for i in 0..count {
            let len = k + [0, 1, 7, 200][(order(i + seed) % 4) as usize];
            let text = codes(seed * 1000 + i * 4 + seed % 4, len);
            let mut begin = 0;
            let mut add = |part: &[u8]| {
                pieces.starts.push(pieces.bases.len() as u32);
                pieces.bases.push(part);
            };
            for at in 0..=len - k {
                let kmer = Oriented::<W>::new(W::from_codes(&text[at..at + k]), k);
                if seen.insert(kmer.canonical()) {
                    kmers.push(kmer.canonical());
                } else {
                    if begin < at {
                        add(&text[begin..at + k - 1]);
                    }
                    begin = at + 1;
                }
            }
            if begin + k <= len {
                add(&text[begin..]);
            }
        }
        pieces.starts.push(pieces.bases.len() as u32);
        (pieces, kmers)
    }

    /// Every k-mer is found where it is; its neighbours, those across two pieces, and random ones only if
    /// they are there. Tells whether there were crowded anchors.
    fn check<W: Word>(seed: u64, k: usize, (pieces, kmers): (Pieces, Vec<W>)) -> bool {
        let threads = Threads::new(1 + seed as usize % 3);
        let Tables { anchors, kmers: crowded } = build::<W>(&pieces, k, threads).expect("built");
        let bits = table::position_bits(pieces.bases.len());
        let encoded = bounds::encode(&pieces.starts, k);
        let lookup = Lookup::new(
            k,
            pieces.bases.bytes(),
            Bounds::new(&encoded, k, pieces.bases.len()).expect("as many as needed"),
            Table::new(&anchors.offsets, &anchors.entries, bits),
            Table::new(&crowded.offsets, &crowded.entries, bits),
        );
        let within = |at: usize| {
            let piece = pieces.starts.partition_point(|&start| start as usize <= at);
            pieces.starts.get(piece).is_some_and(|&end| at + k <= end as usize)
        };
        let word = |at: usize| packed::word::<W>(pieces.bases.bytes(), at, k);
        let all: HashSet<W> = kmers.iter().copied().collect();
        let across = (0..(pieces.bases.len() + 1).saturating_sub(k)).map(word);
        let near = kmers.iter().map(|&kmer| Oriented::new(kmer, k).right(2, k).forward);
        let random = (0..200).map(|i| W::from_codes(&codes(4 * (seed + i), k)));
        for kmer in kmers.iter().copied().chain(across).chain(near).chain(random) {
            for kmer in [kmer, kmer.revcomp(k)].map(|kmer| Oriented::new(kmer, k)) {
                let anchor = anchor::of_kmer(kmer, k);
                lookup.prefetch(anchor);
                lookup.prefetch_entries(anchor);
                lookup.prefetch_text(anchor);
                let hit = lookup.find(kmer, anchor);
                assert_eq!(hit.is_some(), all.contains(&kmer.canonical()), "{seed} {k} {kmer:?}");
                let Some(hit) = hit else { continue };
                assert!(within(hit.at as usize));
                assert_eq!(word(hit.at as usize), if hit.forward { kmer.forward } else { kmer.reverse });
                for base in 0..4 {
                    let next = if hit.forward { Some(hit.at + 1) } else { hit.at.checked_sub(1) };
                    let next = next.filter(|&at| within(at as usize)).filter(|&at| {
                        let kmer = kmer.right(base, k);
                        word(at as usize) == if hit.forward { kmer.forward } else { kmer.reverse }
                    });
                    assert_eq!(lookup.extend(hit, base).map(|hit| hit.at), next, "{seed} {k} {hit:?}");
                }
            }
        }
        !crowded.entries.is_empty()
    }

    #[test]
    fn exactly_the_kmers_of_the_pieces_are_found() {
        let mut crowded = false;
        for seed in 0..24 {
            for count in [0, 1, 9, 90] {
                for k in (3..32).step_by(2) {
                    crowded |= check(seed, k, pieces::<u64>(seed, k, count));
                }
                for k in [33, 47, 63] {
                    crowded |= check(seed, k, pieces::<u128>(seed, k, count));
                }
            }
        }
        assert!(crowded, "no crowded anchors were among them");
    }

    /// Pieces of one k-mer each around one word.
    fn around<W: Word>(k: usize) -> (Pieces, Vec<W>) {
        let middle = codes(4, anchor::len(k));
        let side = (k - middle.len()) / 2;
        let (mut pieces, mut kmers) = (Pieces::default(), HashSet::new());
        for i in 0..2000 {
            let text = [&codes(8 + 4 * i, side)[..], &middle, &codes(40_004 + 4 * i, side)].concat();
            if kmers.insert(Oriented::new(W::from_codes(&text), k).canonical()) {
                pieces.starts.push(pieces.bases.len() as u32);
                pieces.bases.push(&text);
            }
        }
        pieces.starts.push(pieces.bases.len() as u32);
        (pieces, kmers.into_iter().collect())
    }

    #[test]
    fn one_anchor_for_many_kmers() {
        assert!(check(0, 21, around::<u64>(21)));
        assert!(check(0, 31, around::<u64>(31)));
        assert!(check(0, 63, around::<u128>(63)));
    }
}
