//! `info`: what an index is and holds.

use std::fmt;
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::error::{Context, Error, Result};
use crate::fields::shown;
use crate::index::{Index, replaced};
use crate::layer::format::Kind;
use crate::layer::{KINDS, path};
use crate::summary::{self, Summary};

/// Bytes of the files of an index, by what they hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Bytes {
    /// Pieces, and where k-mers are in them.
    pub kmers: u64,
    /// Which sources hold which.
    pub sources: u64,
    /// Unitigs.
    pub unitigs: u64,
    /// What the index says of itself.
    pub other: u64,
    /// All.
    pub total: u64,
}

/// What an index is and holds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Info {
    /// Its directory.
    pub index: PathBuf,
    /// The version of its format.
    pub version: u32,
    /// A number made of all that it holds.
    pub identity: String,
    /// Length of the minimizers.
    pub m: usize,
    /// Number of layers: one, and one more for each `--add`.
    pub layers: usize,
    /// Unitigs that are circles.
    pub cyclic_unitigs: u64,
    /// Its size.
    pub bytes: Bytes,
    /// The figures.
    #[serde(flatten)]
    pub summary: Summary,
}

impl Info {
    /// Of the index in this directory. Every file is opened, and so known to be this index's.
    ///
    /// # Errors
    /// There is none, files are missing or of another index, or `summary.json` does not tell of this one.
    pub fn new(dir: &Path) -> Result<Self> {
        let index = Index::open(dir)?;
        let size = |path: &Path| {
            let metadata = std::fs::metadata(path).context(|| format!("cannot read {}", path.display()))?;
            Ok::<u64, Error>(metadata.len())
        };
        let mut bytes = Bytes::default();
        let (mut kmers, mut unitigs, mut bases, mut cyclic_unitigs) = (0, 0, 0, 0);
        for partition in 0..index.meta.partitions {
            for layer in 0..index.meta.layers {
                // The width does not matter to whoever only counts.
                kmers += index.layer::<u64>(layer, partition)?.count()?;
                let here = index.unitigs(layer, partition)?;
                unitigs += here.count()? as u64;
                bases += here.bases()?;
                cyclic_unitigs += here.cyclic() as u64;
                for (sum, kind) in
                    [&mut bytes.kmers, &mut bytes.sources, &mut bytes.unitigs].into_iter().zip(KINDS)
                {
                    *sum += size(&path(dir, layer, partition, kind))?;
                }
            }
        }
        let summary_path = dir.join(summary::FILE);
        for file in [&path(dir, 0, 0, Kind::Identities), &dir.join(crate::index::FILE), &summary_path] {
            bytes.other += size(file)?;
        }
        bytes.total = bytes.kmers + bytes.sources + bytes.unitigs + bytes.other;
        let bad = |what: String| Error::Index { path: summary_path.clone(), what };
        let text =
            std::fs::read(&summary_path).context(|| format!("cannot read {}", summary_path.display()))?;
        let summary: Summary = serde_json::from_slice(&text).map_err(|error| bad(error.to_string()))?;
        let told = (summary.k, summary.distinct_kmers, summary.unitigs, summary.total_unitig_bases);
        let names = summary.sources.iter().map(|source| &source.name);
        if told != (index.meta.k, kmers, unitigs, bases) || !names.eq(&index.meta.sources) {
            if Index::open(dir)?.identity() != index.identity() {
                return Err(replaced(dir));
            }
            return Err(bad("does not tell of the index beside it".into()));
        }
        Ok(Self {
            index: dir.to_path_buf(),
            version: index.version(),
            identity: index.identity().to_owned(),
            m: index.meta.m,
            layers: index.meta.layers,
            cyclic_unitigs,
            bytes,
            summary,
        })
    }
}

impl fmt::Display for Info {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { index, version, identity, m, layers, cyclic_unitigs, bytes, summary } = self;
        writeln!(f, "{:<22}{}", "index", shown(&index.display().to_string(), None))?;
        writeln!(f, "{:<22}obikmer-index, version {version}", "format")?;
        writeln!(f, "{:<22}{identity}", "identity")?;
        let Bytes { kmers, sources, unitigs, other, total } = *bytes;
        let numbers = [
            ("m", *m as u64),
            ("layers", *layers as u64),
            ("sources", summary.sources.len() as u64),
            ("cyclic_unitigs", *cyclic_unitigs),
            ("bytes of k-mers", kmers),
            ("bytes of sources", sources),
            ("bytes of unitigs", unitigs),
            ("bytes besides", other),
            ("bytes", total),
        ];
        for (name, number) in numbers {
            writeln!(f, "{name:<22}{number:>14}")?;
        }
        write!(f, "{summary}")
    }
}
