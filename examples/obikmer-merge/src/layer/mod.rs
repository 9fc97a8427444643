//! One layer of one partition, as files: written after the join, mapped for queries.
//!
//! See `docs/format.md` for the sections.

pub mod bounds;
pub mod format;
pub mod identity;
pub mod runs;
pub mod unitigs;

use std::fs::File;
use std::marker::PhantomData;
use std::ops::Range;
use std::path::{Path, PathBuf};

use crate::error::{Context, Error, Result};
use crate::index;
use crate::layer::format::{Kind, Mapped, Place, Writer, Wrote};
use crate::layer::identity::Id;
use crate::lookup::anchor;
use crate::lookup::table::{self, Table};
use crate::lookup::{self, Lookup};
use crate::pieces::Pieces;
use crate::sequence::kmer::Oriented;
use crate::sequence::packed;
use crate::sequence::word::Word;
use crate::sets::{EMPTY, Sets};
use crate::threads::Threads;
use bounds::Bounds;

/// The kinds of files that each partition of each layer has.
pub const KINDS: [Kind; 3] = [Kind::Kmers, Kind::Sources, Kind::Unitigs];

/// What those files hold, in the order of [`KINDS`].
pub type Ids = [Id; KINDS.len()];

/// The path of a file of an index.
pub fn path(dir: &Path, layer: usize, partition: usize, kind: Kind) -> PathBuf {
    let name = match kind {
        Kind::Kmers => "kmers",
        Kind::Sources => "sources",
        Kind::Unitigs => "unitigs",
        Kind::Identities => return dir.join(index::IDENTITIES),
    };
    dir.join(format!("layer-{layer:03}")).join(format!("part-{partition:05}.{name}"))
}

/// Is it the name of a layer's directory?
pub fn is_directory(name: &str) -> bool {
    name.strip_prefix("layer-").is_some_and(|number| is_number(number, 3))
}

/// Is it the name of a file in one?
pub fn is_file(name: &str) -> bool {
    let rest = name.strip_prefix("part-").and_then(|rest| rest.split_once('.'));
    rest.is_some_and(|(number, kind)| is_number(number, 5) && ["kmers", "sources", "unitigs"].contains(&kind))
}

/// Digits, so many at least.
fn is_number(text: &str, digits: usize) -> bool {
    text.len() >= digits && text.bytes().all(|b| b.is_ascii_digit())
}

/// Bring the files of a partition to the disk, those of so many layers.
pub fn sync(dir: &Path, layers: usize, partition: usize) -> Result<()> {
    for (layer, kind) in (0..layers).flat_map(|layer| KINDS.map(|kind| (layer, kind))) {
        let path = path(dir, layer, partition, kind);
        let synced = File::open(&path).and_then(|file| file.sync_all());
        synced.context(|| format!("cannot bring {} to the disk", path.display()))?;
    }
    Ok(())
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

    /// Each position at which the set changes, and that set.
    pub fn iter(&self) -> impl Iterator<Item = (u32, u32)> {
        self.starts.iter().copied().zip(self.sets.iter().copied())
    }

    /// Give the sets other numbers.
    pub fn renumber(&mut self, numbers: &[u32]) {
        for set in &mut self.sets {
            *set = numbers[*set as usize];
        }
        let counts = std::mem::take(&mut self.counts);
        for (set, kmers) in counts.into_iter().enumerate() {
            self.count(numbers[set], kmers);
        }
    }

    /// Append others, with positions that are so many higher here, all beyond those before.
    pub fn append(&mut self, other: &Self, position: u32) {
        let same = !other.sets.is_empty() && self.sets.last() == other.sets.first();
        self.starts.extend(other.starts[usize::from(same)..].iter().map(|start| start + position));
        self.sets.extend_from_slice(&other.sets[usize::from(same)..]);
        for (set, &kmers) in other.counts.iter().enumerate() {
            self.count(set as u32, kmers);
        }
    }

    #[inline]
    fn count(&mut self, set: u32, kmers: u64) {
        if self.counts.len() <= set as usize {
            self.counts.resize(set as usize + 1, 0);
        }
        self.counts[set as usize] += kmers;
    }
}

/// Write the sources of a layer, its sets numbered by first appearance.
pub fn write_sources(path: &Path, place: Place, runs: &Runs, sets: &Sets) -> Result<Wrote> {
    let mut number = vec![u32::MAX; sets.len()];
    let (mut offsets, mut members) = (vec![0u32], Vec::new());
    let mut numbered = Vec::with_capacity(runs.sets.len());
    for &set in &runs.sets {
        let slot = &mut number[set as usize];
        if *slot == u32::MAX {
            *slot = offsets.len() as u32 - 1;
            members.extend(sets.members(set));
            offsets.push(end_of_set(members.len(), path)?);
        }
        numbered.push(*slot);
    }
    let mut writer = Writer::create(path, Kind::Sources, place, 4)?;
    writer.section(bytemuck::cast_slice(&offsets))?;
    writer.section(bytemuck::cast_slice(&members))?;
    runs::write(&mut writer, &runs.starts, &numbered, offsets.len() - 1)?;
    writer.finish()
}

/// Where the members of a set end, as it is stored.
fn end_of_set(members: usize, path: &Path) -> Result<u32> {
    u32::try_from(members).map_err(|_| {
        let what = "the sets of sources of one partition have 2^32 members or more: run with more ranks";
        Error::Limit(format!("{}: {what}", path.display()))
    })
}

/// Write the k-mers of a layer: the texts of its pieces, where they begin, and where each k-mer is.
pub fn write_kmers<W: Word>(path: &Path, place: Place, pieces: &Pieces, threads: Threads) -> Result<Wrote> {
    let k = place.lengths.k;
    let (bases, count) = (pieces.bases.len(), pieces.len());
    let tables = lookup::build::<W>(pieces, k, threads)?;
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

/// A layer of a partition, open. Opening reads the headers only; what is damaged beyond them gives errors or
/// wrong answers when it is met, but nothing worse.
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

    /// The members of a set, which are some of so many sources, in ascending order; or else an error.
    pub fn members_of(&self, set: u32, sources: usize) -> Result<&'a [u32]> {
        let members = self.members(set)?;
        if let Some(&beyond) = members.iter().find(|&&source| source as usize >= sources) {
            return Err(self.no_source(beyond));
        }
        if !members.is_sorted_by(|a, b| a < b) {
            return Err(self.sources.bad("the sources of a k-mer are not in order"));
        }
        if members.is_empty() { Err(self.no_sources()) } else { Ok(members) }
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
    /// Open it; `ids` of an index, and none while it is made.
    pub fn open(dir: &Path, layer: usize, place: Place, ids: Option<&Ids>) -> Result<Self> {
        let open = |number: usize| {
            let path = path(dir, layer, place.partition, KINDS[number]);
            Mapped::open(&path, KINDS[number], place, ids.map(|ids| ids[number]))
        };
        let (kmers, sources) = (open(0)?, open(1)?);
        let layer = Self { k: place.lengths.k, word: PhantomData, kmers, sources };
        layer.view()?;
        Ok(layer)
    }

    /// What the file of its k-mers holds.
    pub fn kmers_id(&self) -> Id {
        self.kmers.id()
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

    /// The members of a set, which are some of so many sources, ascending.
    pub fn members_of(&self, set: u32, sources: usize) -> Result<&[u32]> {
        self.view()?.members_of(set, sources)
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

    /// The sources of every position, some of so many, as numbers in `sets`, for adding to them. Positions
    /// without a k-mer: empty.
    pub fn expand(&self, sets: &mut Sets, sources: usize) -> Result<Vec<u32>> {
        let view = self.view()?;
        let numbers = (0..view.offsets.len().saturating_sub(1) as u32)
            .map(|set| Ok(sets.of_members(view.members_of(set, sources)?)))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_with_more_members_than_can_be_counted_are_told() {
        let path = Path::new("layer-000/part-00007.sources");
        assert_eq!(end_of_set(u32::MAX as usize, path).expect("fits"), u32::MAX);
        let error = end_of_set(1 << 32, path).expect_err("does not").to_string();
        assert!(error.contains("part-00007.sources") && error.contains("more ranks"), "{error}");
    }

    #[test]
    fn names_of_files_are_known_again() {
        for (layer, partition) in [(0, 0), (7, 12), (1000, 100_000)] {
            for kind in KINDS {
                let path = path(Path::new("x"), layer, partition, kind);
                let name =
                    |path: &Path| path.file_name().expect("a name").to_str().expect("UTF-8").to_owned();
                assert!(is_file(&name(&path)) && is_directory(&name(path.parent().expect("a layer"))));
            }
        }
        for other in ["part-0.kmers", "part-00000.kmers.bak", "part-00000", "part-0000x.kmers", "layer-000"] {
            assert!(!is_file(other), "{other}");
        }
        for other in ["layer-00", "layer-", "layer-0x0", "layers", "part-00000.kmers"] {
            assert!(!is_directory(other), "{other}");
        }
    }
}
