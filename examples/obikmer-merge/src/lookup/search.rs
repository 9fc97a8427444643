//! Many k-mers looked up at once: what one needs from memory is asked for while others are looked at.
//!
//! A look-up touches memory at five places that depend on one another: the bounds of a bucket, its entries,
//! the text and the bounds of pieces there, the runs of sets there, their numbers. Done one after another
//! that is five cache misses. So each k-mer (or, along a sequence, each run of k-mers with one anchor) goes
//! through stages, `APART` others between each two.

use std::ops::Range;
use std::sync::OnceLock;

use crate::error::{Error, Result};
use crate::index::Index;
use crate::layer::{Layer, View};
use crate::lookup::Hit;
use crate::lookup::anchor::{self, Anchor};
use crate::sequence::kmer::{BREAK, CODE, Lengths, Oriented};
use crate::sequence::minimizer::{self, Windows, partition};
use crate::sequence::word::Word;

/// Look-ups between two stages of one.
const APART: usize = 8;
/// Stages in which memory is asked for.
const STAGES: usize = 5;
/// Spans of k-mers found whose sets are looked at together.
const SPANS: usize = 256;
/// Look-ups on their way; a power of two.
const RING: usize = 64;
const _: () = assert!(RING > APART * STAGES && RING.is_power_of_two());

/// What a sequence has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Its k-mers, repeats included.
    pub kmers: u64,
    /// Those that are in the index.
    pub found: u64,
    /// Those that each source holds.
    pub by_source: Vec<u64>,
}

impl Counts {
    /// Add others of the same sources.
    pub fn add(&mut self, other: &Self) {
        self.kmers += other.kmers;
        self.found += other.found;
        self.by_source.iter_mut().zip(&other.by_source).for_each(|(sum, n)| *sum += n);
    }
}

/// The partitions of an index, opened when first needed.
pub struct Partitions<W> {
    index: Index,
    lengths: Lengths,
    opened: Vec<OnceLock<Result<Vec<Layer<W>>>>>,
}

impl<W: Word> Partitions<W> {
    /// Of this index.
    pub fn new(index: Index) -> Result<Self> {
        let lengths = index.meta.lengths()?;
        let opened = std::iter::repeat_with(OnceLock::new).take(index.meta.partitions).collect();
        Ok(Self { index, lengths, opened })
    }

    fn layers(&self, partition: usize) -> Result<&[Layer<W>]> {
        let opened = self.opened[partition].get_or_init(|| {
            (0..self.index.meta.layers).map(|layer| self.index.layer(layer, partition)).collect()
        });
        match opened {
            Ok(layers) => Ok(layers),
            Err(error) => Err(Error::Index { path: self.index.dir.clone(), what: error.to_string() }),
        }
    }
}

/// Looks k-mers up; may be shared by threads.
pub struct Search<'a, W> {
    partitions: &'a Partitions<W>,
    views: Vec<OnceLock<Vec<View<'a>>>>,
}

/// Buffers of one thread.
#[derive(Default)]
pub struct Buffers {
    codes: Vec<u8>,
    windows: Windows,
    hashes: Vec<u32>,
    stretches: Vec<Stretch>,
}

/// Consecutive k-mers of a sequence with one partition and one occurrence of their anchor.
struct Stretch {
    kmers: Range<u32>,
    /// Where the anchor begins.
    at: u32,
    hash: u32,
    partition: u32,
}

impl Stretch {
    fn anchor(&self, kmer: u32) -> Anchor {
        Anchor { hash: self.hash, offset: self.at - kmer }
    }
}

/// A k-mer on its way.
#[derive(Clone, Copy, Default)]
struct Probe<W> {
    kmer: W,
    anchor: Anchor,
    partition: u32,
    /// Layer and position.
    found: Option<(u32, u32)>,
}

/// Consecutive positions of k-mers found.
struct Span<'v, 'a> {
    view: &'v View<'a>,
    positions: Range<u32>,
}

/// Count the k-mers of these and forget them.
fn tally(spans: &mut Vec<Span<'_, '_>>, counts: &mut Counts) -> Result<()> {
    for ahead in 0..spans.len() + 2 * APART {
        if let Some(span) = spans.get(ahead) {
            span.view.runs.prefetch(span.positions.start);
        }
        if let Some(span) = ahead.checked_sub(APART).and_then(|i| spans.get(i)) {
            span.view.runs.prefetch_run(span.positions.start);
        }
        let Some(Span { view, positions }) = ahead.checked_sub(2 * APART).and_then(|i| spans.get(i)) else {
            continue;
        };
        counts.found += positions.len() as u64;
        let mut at = positions.start;
        while at < positions.end {
            let (set, around) = view.set_at(at)?;
            // At least this position, whatever a damaged index says.
            let until = around.end.min(positions.end).max(at + 1);
            for &source in view.members(set)? {
                let count = counts.by_source.get_mut(source as usize);
                *count.ok_or_else(|| view.no_source(source))? += u64::from(until - at);
            }
            at = until;
        }
    }
    spans.clear();
    Ok(())
}

impl<'a, W: Word> Search<'a, W> {
    /// In these partitions.
    pub fn new(partitions: &'a Partitions<W>) -> Self {
        let views = std::iter::repeat_with(OnceLock::new).take(partitions.opened.len()).collect();
        Self { partitions, views }
    }

    /// Open a partition, if that has not been done.
    #[inline]
    fn open(&self, partition: usize) -> Result<()> {
        if self.views[partition].get().is_none() {
            let layers = self.partitions.layers(partition)?;
            let views = layers.iter().map(Layer::view).collect::<Result<Vec<_>>>()?;
            // Another thread may have been faster; its views are the same.
            let _ = self.views[partition].set(views);
        }
        Ok(())
    }

    /// The layers of a partition that is open.
    #[inline]
    fn views(&self, partition: u32) -> &[View<'a>] {
        self.views[partition as usize].get().map_or(&[], |views| views)
    }

    /// One of the first three stages of a look-up.
    #[inline]
    fn prefetch(&self, stage: usize, partition: u32, anchor: Anchor) {
        for view in self.views(partition) {
            match stage {
                0 => view.lookup.prefetch(anchor),
                1 => view.lookup.prefetch_entries(anchor),
                _ => view.lookup.prefetch_text(anchor),
            }
        }
    }

    /// Look up k-mers, in either direction, in any order: calls `each` for each in the order given, with its
    /// sources or `None`.
    pub fn find(
        &self,
        kmers: impl Iterator<Item = W>,
        mut each: impl FnMut(Option<&'a [u32]>),
    ) -> Result<()> {
        let Lengths { k, m } = self.partitions.lengths;
        let sources = self.partitions.index.meta.sources.len();
        let mut ring = [Probe::<W>::default(); RING];
        let mut kmers = kmers.fuse();
        let (mut asked, mut at) = (0, 0);
        loop {
            match kmers.next() {
                Some(forward) => {
                    let kmer = Oriented::new(forward, k);
                    let partition = partition(minimizer::of_word(forward, k, m), self.views.len());
                    self.open(partition)?;
                    let anchor = anchor::of_kmer(kmer, k);
                    let probe = Probe { kmer: forward, anchor, partition: partition as u32, found: None };
                    ring[at % RING] = probe;
                    self.prefetch(0, probe.partition, anchor);
                    asked = at + 1;
                }
                None if at >= asked + APART * STAGES => return Ok(()),
                None => {}
            }
            for stage in 1..=STAGES {
                let Some(probe) = at.checked_sub(APART * stage).filter(|&i| i < asked) else { continue };
                let probe = &mut ring[probe % RING];
                let views = self.views(probe.partition);
                match stage {
                    3 => {
                        let kmer = Oriented::new(probe.kmer, k);
                        for (layer, view) in views.iter().enumerate() {
                            if let Some(hit) = view.lookup.find(kmer, probe.anchor) {
                                view.runs.prefetch(hit.at);
                                probe.found = Some((layer as u32, hit.at));
                                break;
                            }
                        }
                    }
                    4 => {
                        if let Some((layer, at)) = probe.found {
                            views[layer as usize].runs.prefetch_run(at);
                        }
                    }
                    5 => match probe.found {
                        None => each(None),
                        Some((layer, at)) => {
                            let view = &views[layer as usize];
                            each(Some(view.members_of(view.set_at(at)?.0, sources)?));
                        }
                    },
                    _ => self.prefetch(stage, probe.partition, probe.anchor),
                }
            }
            at += 1;
        }
    }

    /// Count the k-mers of a sequence of fewer than 2^32 letters.
    pub fn count(&self, letters: &[u8], buffers: &mut Buffers, counts: &mut Counts) -> Result<()> {
        let k = self.partitions.lengths.k;
        let mut codes = std::mem::take(&mut buffers.codes);
        codes.clear();
        codes.extend(letters.iter().map(|&b| CODE[b as usize]));
        let mut runs = codes.split(|&c| c == BREAK).filter(|run| run.len() >= k);
        let result = runs.try_for_each(|run| {
            self.cut(run, buffers)?;
            counts.kmers += (run.len() + 1 - k) as u64;
            self.count_stretches(run, &buffers.stretches, counts)
        });
        buffers.codes = codes;
        result
    }

    /// Cut a sequence without breaks into stretches.
    fn cut(&self, run: &[u8], buffers: &mut Buffers) -> Result<()> {
        let Lengths { k, m } = self.partitions.lengths;
        let Buffers { windows, hashes, stretches, .. } = buffers;
        windows.fill(run, k, m);
        let lowest = &windows.lowest;
        let m = anchor::len(k);
        hashes.clear();
        anchor::hashes(u64::from_codes(&run[..m - 1]), run[m - 1..].iter().copied(), m, hashes);
        stretches.clear();
        let mut owner = (lowest[0], partition(lowest[0], self.views.len()));
        self.open(owner.1)?;
        let mut state = Ok(());
        anchor::for_each_run(hashes, k + 1 - m, |at, windows| {
            let mut begin = windows.start;
            for group in lowest[windows].chunk_by(|a, b| a == b) {
                if group[0] != owner.0 {
                    owner = (group[0], partition(group[0], self.views.len()));
                    if state.is_ok() {
                        state = self.open(owner.1);
                    }
                }
                let end = begin + group.len();
                stretches.push(Stretch {
                    kmers: begin as u32..end as u32,
                    at: at as u32,
                    hash: hashes[at],
                    partition: owner.1 as u32,
                });
                begin = end;
            }
        });
        state
    }

    fn count_stretches(&self, run: &[u8], stretches: &[Stretch], counts: &mut Counts) -> Result<()> {
        let k = self.partitions.lengths.k;
        let mut kmer = Oriented::new(W::from_codes(&run[..k - 1]), k);
        let mut spans = Vec::with_capacity(SPANS);
        let mut before: Option<(&View<'a>, Hit)> = None;
        for ahead in 0..stretches.len() + APART * 3 {
            for stage in 0..3 {
                if let Some(s) = ahead.checked_sub(APART * stage).and_then(|i| stretches.get(i)) {
                    self.prefetch(stage, s.partition, s.anchor(s.kmers.start));
                }
            }
            let Some(stretch) = ahead.checked_sub(APART * 3).and_then(|i| stretches.get(i)) else { continue };
            for at in stretch.kmers.clone() {
                let base = run[at as usize + k - 1];
                kmer = kmer.right(base, k);
                // Mostly the text in which the last k-mer was goes on with this one.
                if let Some((view, hit)) = &mut before
                    && let Some(next) = view.lookup.extend(*hit, base)
                    && let Some(Span { positions, .. }) = spans.last_mut()
                {
                    if next.forward {
                        positions.end += 1
                    } else {
                        positions.start -= 1
                    }
                    *hit = next;
                    continue;
                }
                if spans.len() == SPANS {
                    tally(&mut spans, counts)?;
                }
                let anchor = stretch.anchor(at);
                let mut views = self.views(stretch.partition).iter();
                before = views.find_map(|view| Some((view, view.lookup.find(kmer, anchor)?)));
                if let Some((view, hit)) = before {
                    spans.push(Span { view, positions: hit.at..hit.at + 1 });
                }
            }
        }
        tally(&mut spans, counts)
    }
}
