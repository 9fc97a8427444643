//! One layer of one partition, as files: written after the join, mapped for queries.
//!
//! See `docs/format.md` for the sections.

use std::marker::PhantomData;
use std::path::{Path, PathBuf};

use crate::error::Result;
use crate::format::{Kind, Mapped, Place, Writer};
use crate::kmer::Oriented;
use crate::mphf::Mphf;
use crate::packed;
use crate::pieces::{Pieces, for_each_kmer};
use crate::sets::{EMPTY, Sets};
use crate::word::Word;

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
    for section in [&offsets, &members, &runs.starts, &numbered] {
        writer.section(bytemuck::cast_slice(section))?;
    }
    writer.finish()
}

/// Write the k-mers of a layer: pieces, evidence, perfect hash. Bytes written.
pub fn write_kmers<W: Word>(path: &Path, place: Place, pieces: &Pieces) -> Result<u64> {
    let k = place.lengths.k;
    let mut kmers = Vec::with_capacity(pieces.bases.len().saturating_sub(pieces.len() * (k - 1)));
    pieces.for_each_kmer::<W>(k, |_, kmer| kmers.push(kmer.canonical().fold()));
    let mut evidence = vec![0u32; kmers.len()];
    let mut hash = Vec::new();
    if !kmers.is_empty() {
        let mphf = Mphf::build(&kmers)?;
        let mut index = 0;
        pieces.for_each_kmer::<W>(k, |at, _| {
            evidence[mphf.slot(kmers[index])] = at;
            index += 1;
        });
        hash = mphf.to_bytes()?;
    }
    drop(kmers);
    let mut writer = Writer::create(path, Kind::Kmers, place, 5)?;
    writer.section(bytemuck::cast_slice(&pieces.starts))?;
    writer.section(&[])?;
    writer.section(pieces.bases.bytes())?;
    writer.section(bytemuck::cast_slice(&evidence))?;
    writer.section(&hash)?;
    writer.finish()
}

/// A layer of a partition, open.
pub struct Layer<W> {
    k: usize,
    word: PhantomData<W>,
    kmers: Mapped,
    sources: Mapped,
    mphf: Option<Mphf>,
}

impl<W: Word> Layer<W> {
    /// Open it.
    pub fn open(dir: &Path, layer: usize, place: Place) -> Result<Self> {
        let open = |kind| Mapped::open(&path(dir, layer, place.partition, kind), kind, place);
        let (kmers, sources) = (open(Kind::Kmers)?, open(Kind::Sources)?);
        let mphf = match kmers.bytes(4) {
            [] => None,
            bytes => Some(Mphf::from_bytes(bytes).map_err(|e| kmers.bad(format!("perfect hash: {e}")))?),
        };
        let layer = Self { k: place.lengths.k, word: PhantomData, kmers, sources, mphf };
        layer.check()?;
        Ok(layer)
    }

    /// What later accesses rely on.
    fn check(&self) -> Result<()> {
        let (starts, bases) = (self.starts()?, self.bases().len() * 4);
        let ordered = starts.windows(2).all(|w| w[1] >= w[0] && (w[1] - w[0]) as usize >= self.k);
        if !ordered || starts.first() != Some(&0) || starts.last().is_none_or(|&l| l as usize > bases) {
            return Err(self.kmers.bad("the pieces are not in order"));
        }
        let (offsets, members) = (self.sources.slice::<u32>(0)?, self.sources.slice::<u32>(1)?);
        let sets = offsets.len().saturating_sub(1);
        let (run_starts, run_sets) = (self.sources.slice::<u32>(2)?, self.sources.slice::<u32>(3)?);
        let good = offsets.windows(2).all(|w| w[0] <= w[1])
            && offsets.last().is_some_and(|&l| l as usize == members.len())
            && run_starts.len() == run_sets.len()
            && run_sets.iter().all(|&s| (s as usize) < sets);
        if good { Ok(()) } else { Err(self.sources.bad("the sets are not in order")) }
    }

    fn starts(&self) -> Result<&[u32]> {
        self.kmers.slice(0)
    }

    fn bases(&self) -> &[u8] {
        self.kmers.bytes(2)
    }

    /// Number of its k-mers.
    pub fn len(&self) -> u64 {
        self.kmers.bytes(3).len() as u64 / 4
    }

    /// Has it none?
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Where a canonical k-mer lies, or `None` if it is not in this layer: the evidence is compared.
    #[inline]
    pub fn position(&self, kmer: W) -> Option<u32> {
        let slot = self.mphf.as_ref()?.slot(kmer.fold());
        let evidence = self.kmers.bytes(3).get(4 * slot..4 * slot + 4)?;
        let at = u32::from_le_bytes([evidence[0], evidence[1], evidence[2], evidence[3]]);
        let there = Oriented::<W>::new(packed::word(self.bases(), at as usize, self.k), self.k);
        (there.canonical() == kmer).then_some(at)
    }

    /// The number of the set of the k-mer at a position.
    pub fn set_at(&self, position: u32) -> Result<u32> {
        let starts = self.sources.slice::<u32>(2)?;
        let run = starts.partition_point(|&s| s <= position);
        let run = run.checked_sub(1).ok_or_else(|| self.sources.bad("a k-mer without sources"))?;
        Ok(self.sources.slice::<u32>(3)?[run])
    }

    /// The members of a set, ascending.
    pub fn members(&self, set: u32) -> Result<&[u32]> {
        let offsets = self.sources.slice::<u32>(0)?;
        let bounds = offsets.get(set as usize..set as usize + 2);
        let bounds = bounds.ok_or_else(|| self.sources.bad("a set that does not exist"))?;
        Ok(&self.sources.slice::<u32>(1)?[bounds[0] as usize..bounds[1] as usize])
    }

    /// Number of sets.
    pub fn sets(&self) -> Result<usize> {
        Ok(self.sources.slice::<u32>(0)?.len() - 1)
    }

    /// Every k-mer in order of position, with its set.
    pub fn for_each_kmer(&self, mut each: impl FnMut(u32, Oriented<W>, u32)) -> Result<()> {
        let (starts, sets) = (self.sources.slice::<u32>(2)?, self.sources.slice::<u32>(3)?);
        let mut run = 0;
        for_each_kmer(self.starts()?, self.bases(), self.k, &mut |at, kmer| {
            while run + 1 < starts.len() && starts[run + 1] <= at {
                run += 1;
            }
            each(at, kmer, sets.get(run).copied().unwrap_or(EMPTY));
        });
        Ok(())
    }

    /// Stretches of consecutive k-mers of one piece with one set: the codes of their text, and the set.
    pub fn for_each_stretch(&self, mut each: impl FnMut(&[u8], u32) -> Result<()>) -> Result<()> {
        let (starts, sets) = (self.sources.slice::<u32>(2)?, self.sources.slice::<u32>(3)?);
        let mut codes = Vec::new();
        let mut run = 0;
        for piece in self.starts()?.windows(2) {
            let end = piece[1] - (self.k as u32 - 1);
            let mut at = piece[0];
            while at < end {
                while run + 1 < starts.len() && starts[run + 1] <= at {
                    run += 1;
                }
                let until = starts.get(run + 1).map_or(end, |&s| s.min(end));
                codes.clear();
                packed::unpack(self.bases(), at as usize, (until - at) as usize + self.k - 1, &mut codes);
                let set = *sets.get(run).ok_or_else(|| self.sources.bad("a k-mer without sources"))?;
                each(&codes, set)?;
                at = until;
            }
        }
        Ok(())
    }

    /// The sources of every position, as numbers in `sets`, for adding to them. Positions without a k-mer: empty.
    pub fn expand(&self, sets: &mut Sets) -> Result<Vec<u32>> {
        let numbers = (0..self.sets()? as u32)
            .map(|set| Ok(sets.of_members(self.members(set)?)))
            .collect::<Result<Vec<u32>>>()?;
        let bases = self.starts()?.last().copied().unwrap_or(0);
        let mut by_position = vec![EMPTY; bases as usize];
        self.for_each_kmer(|at, _, set| by_position[at as usize] = numbers[set as usize])?;
        Ok(by_position)
    }
}
