//! `query`: for each record of a file, how many of its k-mers each source of an index holds.

use std::io::Write;
use std::path::Path;
use std::sync::OnceLock;

use rayon::prelude::*;

use crate::error::{Context, Error, Result};
use crate::index::Index;
use crate::kmer::{BREAK, CODE, Lengths, Oriented};
use crate::layer::Layer;
use crate::minimizer::{Windows, partition};
use crate::read::{for_each_record, sequence_error};
use crate::word::Word;

/// Letters gathered before they are looked up together.
const BATCH: usize = 4 << 20;

/// An index to be asked. Partitions are opened when first needed.
pub struct Query<W> {
    index: Index,
    lengths: Lengths,
    partitions: Vec<OnceLock<Result<Vec<Layer<W>>>>>,
}

/// What a record has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Its k-mers, repeats included.
    pub kmers: u64,
    /// Those that are in the index.
    pub found: u64,
    /// Those that each source holds.
    pub by_source: Vec<u64>,
}

impl<W: Word> Query<W> {
    /// Open an index.
    pub fn open(dir: &Path) -> Result<Self> {
        let index = Index::open(dir)?;
        let lengths = index.meta.lengths()?;
        let partitions = std::iter::repeat_with(OnceLock::new).take(index.meta.partitions).collect();
        Ok(Self { index, lengths, partitions })
    }

    /// Names of the sources.
    pub fn sources(&self) -> &[String] {
        &self.index.meta.sources
    }

    fn layers(&self, partition: usize) -> Result<&[Layer<W>]> {
        let opened = self.partitions[partition].get_or_init(|| {
            let place = self.index.place(partition)?;
            (0..self.index.meta.layers).map(|layer| Layer::open(&self.index.dir, layer, place)).collect()
        });
        match opened {
            Ok(layers) => Ok(layers),
            Err(error) => Err(Error::Index { path: self.index.dir.clone(), what: error.to_string() }),
        }
    }

    /// The sources of a canonical k-mer whose minimizer has this hash; `None` if it is not in the index.
    fn find(&self, kmer: W, hash: u32) -> Result<Option<&[u32]>> {
        for layer in self.layers(partition(hash, self.partitions.len()))? {
            if let Some(at) = layer.position(kmer) {
                return layer.members(layer.set_at(at)?).map(Some);
            }
        }
        Ok(None)
    }

    /// Count the k-mers of a sequence.
    pub fn count(&self, letters: &[u8]) -> Result<Counts> {
        let Lengths { k, m } = self.lengths;
        let mut counts = Counts { by_source: vec![0; self.sources().len()], ..Counts::default() };
        let codes: Vec<u8> = letters.iter().map(|&b| CODE[b as usize]).collect();
        let mut windows = Windows::default();
        for run in codes.split(|&c| c == BREAK).filter(|run| run.len() >= k) {
            windows.fill(run, k, m);
            let mut kmer = Oriented::new(W::from_codes(&run[..k - 1]), k);
            for (&code, &hash) in run[k - 1..].iter().zip(&windows.lowest) {
                kmer = kmer.right(code, k);
                counts.kmers += 1;
                if let Some(sources) = self.find(kmer.canonical(), hash)? {
                    counts.found += 1;
                    for &source in sources {
                        let count = counts.by_source.get_mut(source as usize);
                        *count.ok_or_else(|| Error::Index {
                            path: self.index.dir.clone(),
                            what: format!("source {source} does not exist"),
                        })? += 1;
                    }
                }
            }
        }
        Ok(counts)
    }

    /// Answer for a file: a table with a line for each record.
    pub fn answer(&self, file: &Path, out: &mut impl Write) -> Result<()> {
        let written = |r: std::io::Result<()>| r.context(|| "cannot write the answer".into());
        written(writeln!(out, "record\tkmers\tfound\t{}", self.sources().join("\t")))?;
        let mut reader = needletail::parse_fastx_file(file).map_err(|e| sequence_error(file, "1", &e))?;
        let mut batch: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
        let mut gathered = 0;
        for_each_record(file, &mut *reader, &mut |name, letters| {
            gathered += letters.len();
            batch.push((name.to_vec(), letters.to_vec()));
            if gathered < BATCH {
                return Ok(());
            }
            gathered = 0;
            written(self.flush(&mut batch, out)?)
        })?;
        written(self.flush(&mut batch, out)?)
    }

    fn flush(
        &self,
        batch: &mut Vec<(Vec<u8>, Vec<u8>)>,
        out: &mut impl Write,
    ) -> Result<std::io::Result<()>> {
        let counts = batch.par_iter().map(|(_, letters)| self.count(letters)).collect::<Result<Vec<_>>>()?;
        for ((name, _), counts) in batch.drain(..).zip(counts) {
            let mut line = format!("{}\t{}\t{}", String::from_utf8_lossy(&name), counts.kmers, counts.found);
            for count in counts.by_source {
                line.push('\t');
                line.push_str(&count.to_string());
            }
            line.push('\n');
            if let Err(error) = out.write_all(line.as_bytes()) {
                return Ok(Err(error));
            }
        }
        Ok(Ok(()))
    }
}
