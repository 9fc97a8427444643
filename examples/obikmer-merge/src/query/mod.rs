//! `query`: for each record of a file, how many of its k-mers each source of an index holds.

pub mod answer;

use std::ops::Range;
use std::path::Path;

use rayon::prelude::*;

use crate::error::Result;
use crate::index::Index;
use crate::lookup::search::{Buffers, Partitions, Search};
use crate::sequence::word::Word;

pub use crate::lookup::search::Counts;

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
}
