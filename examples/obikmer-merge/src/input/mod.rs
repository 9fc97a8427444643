//! What there is to read, and who reads it: rank 0 looks at the inputs and shares the work out by bytes.

pub mod begin;
pub mod compressed;
pub mod fasta;
pub mod read;
pub mod records;
pub mod spool;
pub mod tally;

use std::collections::HashSet;
use std::fs::{File, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::error::{Context, Error, Result};
use crate::fields::shown;
use crate::index::Index;
use crate::layer;
use crate::sequence::kmer::Lengths;
use crate::superkmer::frequent::Least;
use begin::Kind;
use spool::Spool;

/// The genomes bundled with this crate.
pub static BUNDLED: [(&str, &[u8]); 6] = [
    ("ELS37.fa.gz", include_bytes!("../../data/hpylori6/ELS37.fa.gz")),
    ("G27.fa.gz", include_bytes!("../../data/hpylori6/G27.fa.gz")),
    ("Gambia94_24.fa.gz", include_bytes!("../../data/hpylori6/Gambia94_24.fa.gz")),
    ("Puno120.fa.gz", include_bytes!("../../data/hpylori6/Puno120.fa.gz")),
    ("SJM180.fa.gz", include_bytes!("../../data/hpylori6/SJM180.fa.gz")),
    ("SJM180_contigs.fa.gz", include_bytes!("../../data/hpylori6/SJM180_contigs.fa.gz")),
];

/// Something one rank reads from beginning to end.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Unit {
    /// The windows that begin in this range of bytes of a plain FASTA file.
    Fasta {
        /// Index into [`Inputs::files`].
        file: usize,
        /// Number of the source.
        source: u32,
        /// First byte.
        begin: u64,
        /// Behind the last byte.
        end: u64,
    },
    /// A file that cannot be split: FASTQ, or compressed.
    Whole {
        /// Index into [`Inputs::files`].
        file: usize,
        /// Number of the source.
        source: u32,
    },
    /// One of [`BUNDLED`].
    Bundled {
        /// Which; also the number of the source.
        which: usize,
    },
    /// One layer of a partition of an index.
    Layer {
        /// Index into [`Inputs::indexes`].
        index: usize,
        /// The layer.
        layer: usize,
        /// The partition.
        partition: usize,
    },
}

/// A file of sequences.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SequenceFile {
    /// What it is called by those who gave it.
    pub name: PathBuf,
    /// Where it is read: there, or a copy of it.
    pub path: PathBuf,
    /// How it was when the work was shared out.
    seen: Seen,
}

/// By which a file is seen to have changed. Not its number: that may be another on each node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Seen {
    bytes: u64,
    /// Seconds and nanoseconds.
    modified: (i64, i64),
}

impl SequenceFile {
    /// Of a file with this name, read at this path, as it is now.
    pub fn new(name: PathBuf, path: PathBuf, now: &Metadata) -> Self {
        Self { name, path, seen: Seen::of(now) }
    }

    /// Its size.
    pub fn bytes(&self) -> u64 {
        self.seen.bytes
    }

    /// Open it as it was.
    ///
    /// # Errors
    /// It cannot be opened, or has changed.
    pub fn open(&self) -> Result<File> {
        let file = File::open(&self.path).context(|| format!("cannot open {}", self.name.display()))?;
        self.check(&file)?;
        Ok(file)
    }

    /// Is it still as it was?
    ///
    /// # Errors
    /// It is not.
    pub fn check(&self, file: &File) -> Result<()> {
        let now = file.metadata().context(|| format!("cannot read {}", self.name.display()))?;
        if Seen::of(&now) == self.seen {
            return Ok(());
        }
        let what =
            "the file was changed since the job began: start it again when nobody writes there any more";
        Err(Error::Usage(format!("{}: {what}", self.name.display())))
    }
}

impl Seen {
    fn of(meta: &Metadata) -> Self {
        Self { bytes: meta.len(), modified: (meta.mtime(), meta.mtime_nsec()) }
    }
}

/// All inputs of a job.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Inputs {
    /// Names of the sources.
    pub sources: Vec<String>,
    /// Sequence files.
    pub files: Vec<SequenceFile>,
    /// Indexes, with the number of each's first source.
    pub indexes: Vec<(Index, u32)>,
    /// What to read, with its weight in bytes.
    units: Vec<(Unit, u64)>,
    /// The names again, to find one that is there already.
    #[serde(skip)]
    names: HashSet<String>,
}

/// Endings of compressed files, which are no part of a source's name.
const ENDINGS: [&str; 3] = [".gz", ".xz", ".zst"];

/// The name of a file's source.
fn source_name(path: &Path) -> Result<String> {
    let name = path.file_name().and_then(|n| n.to_str());
    let name = name.ok_or_else(|| Error::Usage(format!("{}: no name for a source", path.display())))?;
    let plain = ENDINGS.iter().find_map(|ending| name.strip_suffix(ending));
    Ok(plain.unwrap_or(name).to_string())
}

/// An error about a file that is none of those that can be read.
fn neither(file: &Path) -> Error {
    let what = "neither FASTA nor FASTQ, plain or compressed by gzip, xz or zstd: it begins with none of >, @ and their marks";
    Error::Sequence { file: file.to_path_buf(), record: "1".into(), what: what.into() }
}

impl Inputs {
    /// The bundled genomes.
    pub fn bundled() -> Result<Self> {
        let mut inputs = Self::default();
        for (which, (name, bytes)) in BUNDLED.iter().enumerate() {
            inputs.source(source_name(Path::new(name))?, Path::new(name))?;
            inputs.units.push((Unit::Bundled { which }, bytes.len() as u64));
        }
        Ok(inputs)
    }

    fn source(&mut self, name: String, path: &Path) -> Result<u32> {
        if !self.names.insert(name.clone()) {
            return Err(Error::Usage(format!(
                "{}: there is a source named {name} already; sources are told apart by their names: rename one",
                path.display()
            )));
        }
        self.sources.push(name);
        Ok(self.sources.len() as u32 - 1)
    }

    /// Names of sources without anything to read.
    pub fn reserve_sources(&mut self, names: &[String]) {
        self.sources.extend_from_slice(names);
        self.names.extend(names.iter().cloned());
    }

    /// Add what a path names: a sequence file, a pipe, or an index. With `each_record` each record of a plain
    /// FASTA file is a source of its own.
    pub fn add(&mut self, path: &Path, lengths: Lengths, each_record: bool, spool: &mut Spool) -> Result<()> {
        // All ranks are told of it, as text.
        if path.to_str().is_none() {
            return Err(Error::Usage(format!("{}: the path is not UTF-8", path.display())));
        }
        if path.is_dir() {
            if !Index::is_there(path) {
                return Err(Error::Usage(format!("{}: a directory, but no index", path.display())));
            }
            let index = Index::open(path)?;
            if index.meta.k != lengths.k {
                let what = format!("an index of {}-mers, not of {}-mers", index.meta.k, lengths.k);
                return Err(Error::Index { path: path.to_path_buf(), what });
            }
            let first = self.sources.len() as u32;
            for name in &index.meta.sources {
                self.source(name.clone(), path)?;
            }
            let layers = 0..index.meta.layers;
            return self.add_layers(index, first, layers);
        }
        // Before anything is read: a pipe that was given twice has an end only once.
        let source = if each_record { None } else { Some(self.source(source_name(path)?, path)?) };
        let name = path.to_path_buf();
        let path = spool.file(path)?;
        let mut opened = File::open(&path).context(|| format!("cannot open {}", path.display()))?;
        let reading = || format!("cannot read {}", path.display());
        let seen = opened.metadata().context(reading)?;
        let bytes = seen.len();
        let kind = begin::kind(&mut opened).context(reading)?;
        let file = self.files.len();
        self.files.push(SequenceFile::new(name.clone(), path.clone(), &seen));
        let (unit, weight) = match (kind, source) {
            (Kind::Empty, _) => {
                return Err(Error::Sequence {
                    file: name,
                    record: "1".into(),
                    what: "the file is empty".into(),
                });
            }
            (Kind::Other, _) => return Err(neither(&name)),
            (Kind::Fasta(_), None) => return self.add_records(file, opened),
            (_, None) => {
                return Err(Error::Usage(format!(
                    "{}: --each-record reads plain FASTA only: decompress or convert it",
                    name.display()
                )));
            }
            (Kind::Fasta(begin), Some(source)) => {
                (Unit::Fasta { file, source, begin, end: bytes }, bytes - begin)
            }
            (Kind::Compressed(format), Some(source)) => {
                (Unit::Whole { file, source }, bytes.saturating_mul(format.expansion()))
            }
            (Kind::Fastq, Some(source)) => (Unit::Whole { file, source }, bytes / 2),
        };
        self.units.push((unit, weight));
        Ok(())
    }

    /// Every record of a plain FASTA file as a source.
    fn add_records(&mut self, number: usize, opened: File) -> Result<()> {
        let name = self.files[number].name.clone();
        let mut begin = None;
        let end = records::headers(&name, opened, &mut |at, record| {
            self.end_record(begin, at);
            let source = self.source(record.to_owned(), &name)?;
            begin = Some((number, source, at));
            Ok(())
        })?;
        self.end_record(begin, end);
        Ok(())
    }

    fn end_record(&mut self, begun: Option<(usize, u32, u64)>, end: u64) {
        if let Some((file, source, begin)) = begun {
            self.units.push((Unit::Fasta { file, source, begin, end }, end - begin));
        }
    }

    /// Add layers of an index whose sources have numbers from `first` on.
    pub fn add_layers(&mut self, index: Index, first: u32, layers: std::ops::Range<usize>) -> Result<()> {
        for layer in layers {
            for partition in 0..index.meta.partitions {
                let path = layer::path(&index.dir, layer, partition, crate::layer::format::Kind::Kmers);
                let bytes =
                    std::fs::metadata(&path).context(|| format!("cannot open {}", path.display()))?.len();
                self.units.push((Unit::Layer { index: self.indexes.len(), layer, partition }, bytes));
            }
        }
        self.indexes.push((index, first));
        Ok(())
    }

    /// What this rank reads. Units that cannot be split go, largest first, to the rank with the least; then
    /// the plain FASTA files, end to end, are cut so that all ranks come to the same level.
    pub fn share(&self, rank: usize, ranks: usize) -> Vec<Unit> {
        let mut loads = vec![0u64; ranks];
        let mut mine = Vec::new();
        let (mut whole, mut plain) = (Vec::new(), Vec::new());
        for (unit, weight) in &self.units {
            match unit {
                Unit::Fasta { .. } => plain.push((unit, *weight)),
                _ => whole.push((unit, *weight)),
            }
        }
        whole.sort_by_key(|(_, weight)| std::cmp::Reverse(*weight));
        let mut heap: std::collections::BinaryHeap<_> =
            (0..ranks).map(|r| std::cmp::Reverse((0u64, r))).collect();
        for (unit, weight) in whole {
            let Some(std::cmp::Reverse((load, to))) = heap.pop() else { break };
            loads[to] = load + weight;
            heap.push(std::cmp::Reverse((loads[to], to)));
            if to == rank {
                mine.push(unit.clone());
            }
        }
        let total: u64 = plain.iter().map(|p| p.1).sum();
        let room = fill_to_level(&loads, total);
        let begin: u64 = room[..rank].iter().sum();
        let end = begin + room[rank];
        let mut at = 0;
        for (unit, bytes) in plain {
            let (from, to) = (begin.max(at), end.min(at + bytes));
            if let (Unit::Fasta { file, source, begin, .. }, true) = (unit, from < to) {
                let offset = begin + from - at;
                let end = offset + (to - from);
                mine.push(Unit::Fasta { file: *file, source: *source, begin: offset, end });
            }
            at += bytes;
        }
        mine
    }

    /// All units of sequence files as they were given, before they are shared out, with their source and
    /// file.
    pub fn sequence_units(&self) -> impl Iterator<Item = (&Unit, u32, &SequenceFile)> {
        self.units.iter().filter_map(|(unit, _)| match *unit {
            Unit::Fasta { file, source, .. } | Unit::Whole { file, source } => {
                Some((unit, source, &self.files[file]))
            }
            Unit::Bundled { .. } | Unit::Layer { .. } => None,
        })
    }

    /// How often k-mers must occur: so often in sequences, while those of indexes are taken as they are.
    pub fn least(&self, count: u32) -> Least {
        let indexes = self.indexes.iter();
        Least::new(
            count,
            indexes.map(|(index, first)| *first..first + index.meta.sources.len() as u32).collect(),
        )
    }

    /// What a source is called in messages: by its file, and its record if that has named it.
    pub fn shown(&self, source: u32, file: &SequenceFile) -> String {
        let (name, source) = (file.name.display().to_string(), &self.sources[source as usize]);
        let name = match source_name(&file.name) {
            Ok(of_file) if of_file == *source => name,
            _ => format!("{name}: {source}"),
        };
        shown(&name, None)
    }

    /// Bytes of a unit, for showing progress.
    pub fn weight(&self, unit: &Unit) -> u64 {
        match unit {
            Unit::Fasta { begin, end, .. } => end - begin,
            Unit::Bundled { which } => BUNDLED[*which].1.len() as u64,
            Unit::Whole { file, .. } => self.files[*file].bytes(),
            Unit::Layer { index, layer, partition } => {
                let path = layer::path(
                    &self.indexes[*index].0.dir,
                    *layer,
                    *partition,
                    crate::layer::format::Kind::Kmers,
                );
                std::fs::metadata(path).map_or(0, |m| m.len())
            }
        }
    }
}

/// Pour `total` into columns of the given heights so that the lowest end up level; what each receives.
fn fill_to_level(heights: &[u64], total: u64) -> Vec<u64> {
    let mut sorted = heights.to_vec();
    sorted.sort_unstable();
    let (mut level, mut left, mut columns) = (sorted[0], total, 1u64);
    for &next in &sorted[1..] {
        let need = (next - level) * columns;
        if need >= left {
            break;
        }
        left -= need;
        level = next;
        columns += 1;
    }
    level += left / columns;
    let mut rest = left % columns;
    heights
        .iter()
        .map(|&h| {
            if h > level || (h == level && rest == 0) {
                return 0;
            }
            let extra = rest.min(1);
            rest -= extra;
            level - h + extra
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pours_everything() {
        for (heights, total) in [
            (vec![0, 0, 0], 10),
            (vec![5, 0, 100], 7),
            (vec![5, 0, 100], 1000),
            (vec![3], 4),
            (vec![2, 2, 9], 0),
        ] {
            let poured = fill_to_level(&heights, total);
            assert_eq!(poured.iter().sum::<u64>(), total, "{heights:?} {total}");
            let tops: Vec<u64> =
                heights.iter().zip(&poured).filter(|p| *p.1 > 0).map(|(h, p)| h + p).collect();
            if let (Some(low), Some(high)) = (tops.iter().min(), tops.iter().max()) {
                assert!(high - low <= 1);
            }
        }
    }
}
