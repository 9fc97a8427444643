//! What an index directory says of itself: `index.json`.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::error::{Context, Error, Result};
use crate::layer::format::Place;
use crate::sequence::kmer::Lengths;

/// The file in an index directory.
pub const FILE: &str = "index.json";
const FORMAT: &str = "obikmer-index";
const VERSION: u32 = 2;

/// `index.json`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Meta {
    format: String,
    version: u32,
    /// Length of the k-mers.
    pub k: usize,
    /// Length of the minimizers.
    pub m: usize,
    /// Number of partitions.
    pub partitions: usize,
    /// Number of layers.
    pub layers: usize,
    /// Names of the sources; their numbers are their places here.
    pub sources: Vec<String>,
}

/// An index directory.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Index {
    /// Where it is.
    pub dir: PathBuf,
    /// What it says.
    pub meta: Meta,
}

impl Meta {
    /// Of a new index.
    pub fn new(lengths: Lengths, partitions: usize, layers: usize, sources: Vec<String>) -> Self {
        let Lengths { k, m } = lengths;
        Self { format: FORMAT.into(), version: VERSION, k, m, partitions, layers, sources }
    }

    /// k and m.
    pub fn lengths(&self) -> Result<Lengths> {
        Lengths::new(self.k, self.m)
    }

    /// Write it into a directory.
    pub fn write(&self, dir: &Path) -> Result<()> {
        write_json(&dir.join(FILE), self)
    }
}

impl Index {
    /// Is there an index in this directory?
    pub fn is_there(dir: &Path) -> bool {
        dir.join(FILE).is_file()
    }

    /// Read what it says.
    pub fn open(dir: &Path) -> Result<Self> {
        let path = dir.join(FILE);
        let text = std::fs::read(&path).context(|| format!("cannot read {}", path.display()))?;
        let bad = |what: String| Error::Index { path: path.clone(), what };
        let meta: Meta = serde_json::from_slice(&text).map_err(|e| bad(e.to_string()))?;
        if meta.format != FORMAT || meta.version != VERSION {
            return Err(bad(format!("format {} {}, not {FORMAT} {VERSION}", meta.format, meta.version)));
        }
        if meta.partitions == 0 {
            return Err(bad("no partitions".into()));
        }
        meta.lengths().map_err(|e| bad(e.to_string()))?;
        Ok(Self { dir: dir.to_path_buf(), meta })
    }

    /// A partition of it.
    pub fn place(&self, partition: usize) -> Result<Place> {
        Ok(Place { lengths: self.meta.lengths()?, partition, partitions: self.meta.partitions })
    }
}

/// Pretty JSON with a final newline.
pub fn write_json(path: &Path, value: &impl Serialize) -> Result<()> {
    let mut text = serde_json::to_string_pretty(value).map_err(|e| Error::Internal(e.to_string()))?;
    text.push('\n');
    std::fs::write(path, text).context(|| format!("cannot write {}", path.display()))
}
