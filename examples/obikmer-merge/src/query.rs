//! `query`: for each record of a file, how many of its k-mers each source of an index holds.

use std::io::Write;
use std::ops::Range;
use std::path::Path;

use rayon::prelude::*;

use crate::error::{Context, Error, Result};
use crate::index::Index;
use crate::input::read::{for_each_record, open_records};
use crate::lookup::search::{Buffers, Partitions, Search};
use crate::sequence::word::Word;

pub use crate::lookup::search::Counts;

/// Letters gathered before they are looked up together.
const BATCH: usize = 16 << 20;
/// K-mers of a record that are looked up by one thread; of longer records parts go to several.
const PART: usize = 1 << 17;

/// An index to be asked. Its files are mapped, a partition's when they are first needed.
pub struct Query {
    k: usize,
    sources: Vec<String>,
    partitions: Width,
}

/// K-mers of 64 or 128 bits.
enum Width {
    Narrow(Partitions<u64>),
    Wide(Partitions<u128>),
}

/// The same for both widths.
macro_rules! either {
    ($width:expr, $partitions:ident => $body:expr) => {
        match $width {
            Width::Narrow($partitions) => $body,
            Width::Wide($partitions) => $body,
        }
    };
}

impl Query {
    /// Open an index.
    pub fn open(dir: &Path) -> Result<Self> {
        let index = Index::open(dir)?;
        let (k, sources) = (index.meta.k, index.meta.sources.clone());
        let partitions = if index.meta.lengths()?.is_wide() {
            Width::Wide(Partitions::new(index)?)
        } else {
            Width::Narrow(Partitions::new(index)?)
        };
        Ok(Self { k, sources, partitions })
    }

    /// Length of the k-mers.
    pub fn k(&self) -> usize {
        self.k
    }

    /// Names of the sources.
    pub fn sources(&self) -> &[String] {
        &self.sources
    }

    /// Look up k-mers (two bits a base, the last in the lowest; either direction): calls `each` for each in
    /// the order given, with its sources, ascending, or `None` if it is not in the index. Several are on
    /// their way at once, so many should be given together; threads may do it at the same time.
    ///
    /// # Errors
    /// A partition cannot be opened, or is damaged.
    pub fn look_up(
        &self,
        kmers: impl IntoIterator<Item = u128>,
        each: impl FnMut(Option<&[u32]>),
    ) -> Result<()> {
        fn narrow<W: Word>(kmer: u128, k: usize) -> W {
            W::from_be(&kmer.to_be_bytes()[16 - W::BITS / 8..]) & W::mask(k)
        }
        let (k, kmers) = (self.k, kmers.into_iter());
        either!(&self.partitions, p => Search::new(p).find(kmers.map(|kmer| narrow(kmer, k)), each))
    }

    /// Count the k-mers of a sequence.
    ///
    /// # Errors
    /// A partition cannot be opened, or is damaged.
    pub fn count(&self, letters: &[u8]) -> Result<Counts> {
        Ok(self.count_all(&[letters])?.remove(0))
    }

    /// Count the k-mers of sequences.
    fn count_all(&self, sequences: &[&[u8]]) -> Result<Vec<Counts>> {
        either!(&self.partitions, p => self.count_in(&Search::new(p), sequences))
    }

    fn count_in<W: Word>(&self, search: &Search<'_, W>, sequences: &[&[u8]]) -> Result<Vec<Counts>> {
        let none = Counts { by_source: vec![0; self.sources.len()], ..Counts::default() };
        let parts: Vec<(usize, Range<usize>)> = (0..)
            .zip(sequences)
            .flat_map(|(number, letters)| {
                (0..letters.len())
                    .step_by(PART)
                    .map(move |begin| (number, begin..letters.len().min(begin + PART + self.k - 1)))
            })
            .collect();
        let counts = parts
            .par_iter()
            .map_init(Buffers::default, |buffers, (number, range)| {
                let mut counts = none.clone();
                search.count(&sequences[*number][range.clone()], buffers, &mut counts)?;
                Ok(counts)
            })
            .collect::<Result<Vec<_>>>()?;
        let mut sums = vec![none; sequences.len()];
        for ((number, _), counts) in parts.iter().zip(&counts) {
            sums[*number].add(counts);
        }
        Ok(sums)
    }

    /// Answer for a file: a table with a line for each record.
    ///
    /// # Errors
    /// The file cannot be read, the answer not written, or a partition not opened, or it is damaged.
    pub fn answer(&self, file: &Path, out: &mut impl Write) -> Result<()> {
        let written = |r: std::io::Result<()>| r.context(|| "cannot write the answer".into());
        written(writeln!(out, "record\tkmers\tfound\t{}", self.sources.join("\t")))?;
        let mut reader = open_records(file, file)?;
        let mut batch: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
        let mut gathered = 0;
        for_each_record(file, &mut *reader, &mut |name, letters| {
            gathered += letters.len();
            batch.push((name.to_vec(), letters.to_vec()));
            if gathered < BATCH {
                return Ok(());
            }
            gathered = 0;
            self.flush(&mut batch, out)
        })?;
        self.flush(&mut batch, out)
    }

    fn flush(&self, batch: &mut Vec<(Vec<u8>, Vec<u8>)>, out: &mut impl Write) -> Result<()> {
        let sequences: Vec<&[u8]> = batch.iter().map(|(_, letters)| &letters[..]).collect();
        let counts = self.count_all(&sequences)?;
        let mut text = String::new();
        for ((name, _), counts) in batch.drain(..).zip(counts) {
            text.push_str(&format!("{}\t{}\t{}", String::from_utf8_lossy(&name), counts.kmers, counts.found));
            for count in counts.by_source {
                text.push('\t');
                text.push_str(&count.to_string());
            }
            text.push('\n');
        }
        out.write_all(text.as_bytes())
            .map_err(|source| Error::Io { what: "cannot write the answer".into(), source })
    }
}
