//! One layer of one partition, as files: written after the join, mapped for queries.
//!
//! See `docs/format.md` for the sections.

use std::marker::PhantomData;
use std::ops::Range;
use std::path::{Path, PathBuf};

use crate::bounds::{self, Bounds};
use crate::error::{Error, Result};
use crate::format::{Kind, Mapped, Place, Writer};
use crate::kmer::Oriented;
use crate::lookup::{self, Lookup};
use crate::pieces::Pieces;
use crate::sets::{EMPTY, Sets};
use crate::table::{self, Table};
use crate::word::Word;
use crate::{anchor, packed, runs};

/// The path of a file of an index.
pub fn path(dir: &Path, layer: usize, partition: usize, kind: Kind) -> PathBuf {
    let name = match kind {
        Kind::Kmers => "kmers",
        Kind::Sources => "sources",
        Kind::Unitigs => "unitigs",
    };
    dir.join(format!("layer-{layer:03}")).join(format!("part-{partition:05}.{name}"))
}

/// Positions at which the set of sources changes, and the set from there on.
#[derive(Default)]
pub struct Runs {
    starts: Vec<u32>,
    sets: Vec<u32>,
    /// K-mers of each set.
    pub counts: Vec<u64>,
}

impl Runs {
    /// The set of the k-mer at this position, which is beyond those before.
    #[inline]
    pub fn push(&mut self, position: u32, set: u32) {
        self.push_many(position, set, 1);
    }

    /// The set of so many k-mers from this position on.
    #[inline]
    pub fn push_many(&mut self, position: u32, set: u32, kmers: u32) {
        if self.sets.last() != Some(&set) {
            self.starts.push(position);
            self.sets.push(set);
            if self.counts.len() <= set as usize {
                self.counts.resize(set as usize + 1, 0);
            }
        }
        self.counts[set as usize] += u64::from(kmers);
    }
}

/// Write the sources of a layer, its sets numbered by first appearance. Bytes written.
pub fn write_sources(path: &Path, place: Place, runs: &Runs, sets: &Sets) -> Result<u64> {
    let mut number = vec![u32::MAX; sets.len()];
    let (mut offsets, mut members) = (vec![0u32], Vec::new());
    let mut numbered = Vec::with_capacity(runs.sets.len());
    for &set in &runs.sets {
        let slot = &mut number[set as usize];
        if *slot == u32::MAX {
            *slot = offsets.len() as u32 - 1;
            members.extend(sets.members(set));
            offsets.push(members.len() as u32);
        }
        numbered.push(*slot);
    }
    let mut writer = Writer::create(path, Kind::Sources, place, 4)?;
    writer.section(bytemuck::cast_slice(&offsets))?;
    writer.section(bytemuck::cast_slice(&members))?;
    runs::write(&mut writer, &runs.starts, &numbered, offsets.len() - 1)?;
    writer.finish()
}

/// Write the k-mers of a layer: the texts of its pieces, where they begin, and where each k-mer is. Bytes written.
pub fn write_kmers<W: Word>(path: &Path, place: Place, pieces: &Pieces) -> Result<u64> {
    let k = place.lengths.k;
    let (bases, count) = (pieces.bases.len(), pieces.len());
    let tables = lookup::build::<W>(pieces, k);
    let mut writer = Writer::create(path, Kind::Kmers, place, 7)?;
    let numbers = [bases, count, bases - count * (k - 1)].map(|number| number as u64);
    writer.section(bytemuck::cast_slice(&numbers))?;
    writer.section(&bounds::encode(&pieces.starts, k))?;
    writer.section(pieces.bases.bytes())?;
    for table in [&tables.anchors, &tables.kmers] {
        writer.section(bytemuck::cast_slice(&table.offsets))?;
        writer.section(bytemuck::cast_slice(&table.entries))?;
    }
    writer.finish()
}

/// A layer of a partition, open. Opening reads the headers only; what is damaged beyond them gives errors or wrong
/// answers when it is met, but nothing worse.
pub struct Layer<W> {
    k: usize,
    word: PhantomData<W>,
    kmers: Mapped,
    sources: Mapped,
}

/// What a layer's files hold, at hand for many questions.
#[derive(Clone, Copy)]
pub struct View<'a> {
    k: usize,
    kmers: &'a Mapped,
    sources: &'a Mapped,
    text: &'a [u8],
    bounds: Bounds<'a>,
    /// Where k-mers are.
    pub lookup: Lookup<'a>,
    /// Which sets they have.
    pub runs: runs::Runs<'a>,
    offsets: &'a [u32],
    members: &'a [u32],
}

impl<'a> View<'a> {
    /// An error about a source that is beyond all.
    pub fn no_source(&self, source: u32) -> Error {
        self.sources.bad(format!("source {source} does not exist"))
    }

    fn no_sources(&self) -> Error {
        self.sources.bad("a k-mer without sources")
    }

    /// The set of the k-mer at a position, and positions around it with the same.
    #[inline]
    pub fn set_at(&self, position: u32) -> Result<(u32, Range<u32>)> {
        self.runs.at(position).ok_or_else(|| self.no_sources())
    }

    /// The members of a set, ascending.
    #[inline]
    pub fn members(&self, set: u32) -> Result<&'a [u32]> {
        let bounds = self.offsets.get(set as usize..set as usize + 2);
        let members = bounds.and_then(|b| self.members.get(b[0] as usize..b[1] as usize));
        members.ok_or_else(|| self.sources.bad("a set that does not exist"))
    }

    /// Stretches of consecutive positions of one piece whose k-mers have one set, and the set.
    fn for_each_stretch(&self, mut each: impl FnMut(Range<usize>, u32) -> Result<()>) -> Result<()> {
        let mut runs = self.runs.iter().peekable();
        let mut set = None;
        for piece in self.bounds.pieces() {
            if piece.len() < self.k {
                return Err(self.kmers.bad("the pieces are not in order"));
            }
            let end = piece.end + 1 - self.k;
            let mut at = piece.start;
            while at < end {
                while let Some((_, next)) = runs.next_if(|&(start, _)| start as usize <= at) {
                    set = Some(next);
                }
                let until = runs.peek().map_or(end, |&(start, _)| end.min(start as usize));
                each(at..until, set.ok_or_else(|| self.no_sources())?)?;
                at = until;
            }
        }
        Ok(())
    }
}

impl<W: Word> Layer<W> {
    /// Open it.
    pub fn open(dir: &Path, layer: usize, place: Place) -> Result<Self> {
        let open = |kind| Mapped::open(&path(dir, layer, place.partition, kind), kind, place);
        let (kmers, sources) = (open(Kind::Kmers)?, open(Kind::Sources)?);
        let layer = Self { k: place.lengths.k, word: PhantomData, kmers, sources };
        layer.view()?;
        Ok(layer)
    }

    /// Numbers of bases, pieces and k-mers.
    fn numbers(&self) -> Result<[u64; 3]> {
        match self.kmers.slice::<u64>(0)? {
            &[bases, pieces, kmers] => Ok([bases, pieces, kmers]),
            _ => Err(self.kmers.bad("the numbers of bases, pieces and k-mers are missing")),
        }
    }

    /// What it holds, with the checks that need no look at all of it.
    pub fn view(&self) -> Result<View<'_>> {
        let [bases, pieces, kmers] = self.numbers()?;
        let text = self.kmers.bytes(2);
        let fits = bases <= u64::from(u32::MAX)
            && text.len() == packed::bytes_for(bases as usize)
            && pieces.checked_mul(self.k as u64 - 1).and_then(|n| n.checked_add(kmers)) == Some(bases);
        let bounds = Bounds::new(self.kmers.bytes(1), self.k, bases as usize).filter(|_| fits);
        let bounds = bounds.ok_or_else(|| self.kmers.bad("the text is not as long as it should be"))?;
        let bits = table::position_bits(bases as usize);
        let table =
            |at| -> Result<_> { Ok(Table::new(self.kmers.slice(at)?, self.kmers.slice(at + 1)?, bits)) };
        let offsets = self.sources.slice::<u32>(0)?;
        Ok(View {
            k: self.k,
            kmers: &self.kmers,
            sources: &self.sources,
            text,
            bounds,
            lookup: Lookup::new(self.k, text, bounds, table(3)?, table(5)?),
            runs: runs::Runs::new(&self.sources, 2, offsets.len().saturating_sub(1))?,
            offsets,
            members: self.sources.slice(1)?,
        })
    }

    /// Number of its k-mers.
    pub fn count(&self) -> Result<u64> {
        self.numbers().map(|numbers| numbers[2])
    }

    /// Where a canonical k-mer lies, or `None` if it is not in this layer.
    #[inline]
    pub fn position(&self, kmer: W) -> Option<u32> {
        let kmer = Oriented::new(kmer, self.k);
        let hit = self.view().ok()?.lookup.find(kmer, anchor::of_kmer(kmer, self.k))?;
        Some(hit.at)
    }

    /// The members of a set, ascending.
    pub fn members(&self, set: u32) -> Result<&[u32]> {
        self.view()?.members(set)
    }

    /// Every k-mer in order of position, with its set.
    pub fn for_each_kmer(&self, mut each: impl FnMut(u32, Oriented<W>, u32)) -> Result<()> {
        let (view, k) = (self.view()?, self.k);
        view.for_each_stretch(|positions, set| {
            let first = Oriented::<W>::new(packed::word(view.text, positions.start, k), k);
            each(positions.start as u32, first, set);
            let mut kmer = first;
            for (at, base) in positions
                .clone()
                .skip(1)
                .zip(packed::bases(view.text, positions.start + k..positions.end + k - 1))
            {
                kmer = kmer.right(base, k);
                each(at as u32, kmer, set);
            }
            Ok(())
        })
    }

    /// Stretches of consecutive k-mers of one piece with one set: the codes of their text, and the set.
    pub fn for_each_stretch(&self, mut each: impl FnMut(&[u8], u32) -> Result<()>) -> Result<()> {
        let view = self.view()?;
        let mut codes = Vec::new();
        view.for_each_stretch(|positions, set| {
            codes.clear();
            packed::unpack(view.text, positions.start, positions.len() + self.k - 1, &mut codes);
            each(&codes, set)
        })
    }

    /// The sources of every position, as numbers in `sets`, for adding to them. Positions without a k-mer: empty.
    pub fn expand(&self, sets: &mut Sets) -> Result<Vec<u32>> {
        let view = self.view()?;
        let numbers = (0..view.offsets.len().saturating_sub(1) as u32)
            .map(|set| Ok(sets.of_members(view.members(set)?)))
            .collect::<Result<Vec<u32>>>()?;
        let mut by_position = vec![EMPTY; self.numbers()?[0] as usize];
        view.for_each_stretch(|positions, set| {
            by_position[positions].fill(*numbers.get(set as usize).ok_or_else(|| view.no_sources())?);
            Ok(())
        })?;
        Ok(by_position)
    }

    /// Bytes of each part of its files, by name.
    pub fn parts(&self) -> [(&'static str, usize); 8] {
        let (kmers, sources) = (|i| self.kmers.bytes(i).len(), |i| self.sources.bytes(i).len());
        [
            ("bounds of pieces", kmers(1)),
            ("texts", kmers(2)),
            ("anchors: offsets", kmers(3)),
            ("anchors: entries", kmers(4)),
            ("crowded k-mers", kmers(5) + kmers(6)),
            ("sets", sources(0) + sources(1)),
            ("runs: blocks", sources(2)),
            ("runs: starts and sets", sources(3)),
        ]
    }
}

/// Joined unitigs of one partition of one layer.
pub struct Unitigs(Mapped);

impl Unitigs {
    /// Open them.
    pub fn open(dir: &Path, layer: usize, place: Place) -> Result<Self> {
        let mapped = Mapped::open(&path(dir, layer, place.partition, Kind::Unitigs), Kind::Unitigs, place)?;
        let ends = mapped.slice::<u64>(1)?;
        let bases = mapped.bytes(3).len() as u64 * 4;
        if ends.windows(2).any(|w| w[0] > w[1]) || ends.last().is_some_and(|&e| e > bases) {
            return Err(mapped.bad("the unitigs are not in order"));
        }
        Ok(Self(mapped))
    }

    /// Number of unitigs.
    pub fn count(&self) -> Result<usize> {
        Ok(self.0.slice::<u64>(1)?.len())
    }

    /// How many of them are cyclic.
    pub fn cyclic(&self) -> usize {
        self.0.bytes(2).len() / 4
    }

    /// The sum of their lengths.
    pub fn bases(&self) -> Result<u64> {
        Ok(self.0.slice::<u64>(1)?.last().copied().unwrap_or(0))
    }

    /// The codes of each.
    pub fn for_each(&self, mut each: impl FnMut(&[u8]) -> Result<()>) -> Result<()> {
        let (mut codes, mut begin) = (Vec::new(), 0);
        for &end in self.0.slice::<u64>(1)? {
            codes.clear();
            packed::unpack(self.0.bytes(3), begin as usize, (end - begin) as usize, &mut codes);
            each(&codes)?;
            begin = end;
        }
        Ok(())
    }
}

/// What [`write_unitigs`] wrote.
#[derive(Default, Clone, Copy)]
pub struct Written {
    /// Bytes of the file.
    pub bytes: u64,
    /// Unitigs.
    pub unitigs: u64,
    /// Cyclic ones among them.
    pub cyclic: u64,
    /// The sum of their lengths.
    pub bases: u64,
}

/// Assemble this rank's unitigs, each in its canonical text, and write them in the order of their heads.
pub fn write_unitigs(
    path: &Path,
    place: Place,
    pieces: &Pieces,
    joined: &crate::join::Joined,
) -> Result<Written> {
    let k = place.lengths.k;
    let (mut heads, mut ends, mut cyclic) = (Vec::new(), Vec::new(), Vec::new());
    let mut bases = packed::Packed::default();
    let (mut codes, mut reverse) = (Vec::new(), Vec::new());
    for parts in joined.parts.chunk_by(|a, b| a.head == b.head) {
        codes.clear();
        let is_cyclic = parts[0].cyclic();
        let mut position = 0u64;
        for part in parts {
            // A cycle's positions count from behind its head.
            let expected =
                if is_cyclic { position.saturating_sub(u64::from(parts[0].kmers())) } else { position };
            if u64::from(part.position) != expected || part.cyclic() != is_cyclic {
                return Err(Error::Internal(format!("the unitig of piece {} has a gap", part.head)));
            }
            position += u64::from(part.kmers());
            joined.codes(part, pieces, k, &mut codes);
        }
        if is_cyclic {
            cyclic.push(heads.len() as u32);
            codes = crate::cycle::canonical(&codes, k);
        } else {
            reverse.clear();
            reverse.extend_from_slice(&codes);
            packed::reverse_complement(&mut reverse);
            if reverse < codes {
                std::mem::swap(&mut codes, &mut reverse);
            }
        }
        heads.push(parts[0].head);
        bases.push(&codes);
        ends.push(bases.len() as u64);
    }
    let mut writer = Writer::create(path, Kind::Unitigs, place, 4)?;
    writer.section(bytemuck::cast_slice(&heads))?;
    writer.section(bytemuck::cast_slice(&ends))?;
    writer.section(bytemuck::cast_slice(&cyclic))?;
    writer.section(bases.bytes())?;
    let bytes = writer.finish()?;
    Ok(Written { bytes, unitigs: heads.len() as u64, cyclic: cyclic.len() as u64, bases: bases.len() as u64 })
}
