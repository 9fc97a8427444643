//! What an index directory says of itself: `index.json`, and the identities of all its files, by which each
//! is known to be the one that belongs to the others, whenever it is opened.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::error::{Context, Error, Result};
use crate::layer::format::{Kind, Mapped, Place, Writer};
use crate::layer::identity::Id;
use crate::layer::unitigs::Unitigs;
use crate::layer::{Ids, KINDS, Layer, path};
use crate::sequence::kmer::Lengths;
use crate::sequence::word::Word;

/// The file in an index directory.
pub const FILE: &str = "index.json";
/// The file of the identities of all others.
pub const IDENTITIES: &str = "identities";
const FORMAT: &str = "obikmer-index";
const VERSION: u32 = 3;
/// How often an index is opened anew that is replaced meanwhile.
const TRIES: usize = 5;

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
    /// The identity of the file of identities.
    identity: String,
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
    /// What the files hold, by layer and partition.
    ids: Vec<Ids>,
}

impl Meta {
    /// k and m.
    pub fn lengths(&self) -> Result<Lengths> {
        Lengths::new(self.k, self.m)
    }
}

impl Index {
    /// Is there an index in this directory?
    pub fn is_there(dir: &Path) -> bool {
        dir.join(FILE).is_file()
    }

    /// Read what it says.
    pub fn open(dir: &Path) -> Result<Self> {
        let mut meta = read_meta(dir)?;
        for _ in 0..TRIES {
            let error = match read_ids(dir, &meta) {
                Ok(ids) => return Ok(Self { dir: dir.to_path_buf(), meta, ids }),
                Err(error) => error,
            };
            // Another index may have got the name between the two files.
            let now = read_meta(dir)?;
            if now.identity == meta.identity {
                return Err(error);
            }
            meta = now;
        }
        Err(replaced(dir))
    }

    /// The version of its format.
    pub fn version(&self) -> u32 {
        self.meta.version
    }

    /// What all its files hold, as a number in hexadecimal digits.
    pub fn identity(&self) -> &str {
        &self.meta.identity
    }

    /// What the files of a partition of a layer hold.
    pub fn ids(&self, layer: usize, partition: usize) -> &Ids {
        &self.ids[layer * self.meta.partitions + partition]
    }

    /// Open a partition of a layer.
    pub fn layer<W: Word>(&self, layer: usize, partition: usize) -> Result<Layer<W>> {
        let (place, ids) = (self.place(partition)?, self.ids(layer, partition));
        self.opened(|| Layer::open(&self.dir, layer, place, Some(ids)))
    }

    /// Open the unitigs of a partition of a layer.
    pub fn unitigs(&self, layer: usize, partition: usize) -> Result<Unitigs> {
        let (place, ids) = (self.place(partition)?, self.ids(layer, partition));
        self.opened(|| Unitigs::open(&self.dir, layer, place, Some(ids)))
    }

    /// Open something of this index, or say that it is not there any more.
    fn opened<T>(&self, open: impl Fn() -> Result<T>) -> Result<T> {
        open().or_else(|error| match read_meta(&self.dir) {
            Ok(now) if now.identity != self.meta.identity => Err(replaced(&self.dir)),
            // One like it may have come back meanwhile.
            Ok(_) => open(),
            Err(_) => Err(error),
        })
    }

    /// A partition of it.
    pub fn place(&self, partition: usize) -> Result<Place> {
        Ok(Place { lengths: self.meta.lengths()?, partition, partitions: self.meta.partitions })
    }
}

/// Does a directory say that it is an index, of whatever version?
pub fn says_so(dir: &Path) -> bool {
    #[derive(Deserialize)]
    struct Format {
        format: String,
    }
    let file = std::fs::File::open(dir.join(FILE)).map(std::io::BufReader::new);
    file.is_ok_and(|file| serde_json::from_reader(file).is_ok_and(|Format { format }| format == FORMAT))
}

/// Another index got the name while this one was read.
pub(crate) fn replaced(dir: &Path) -> Error {
    let what = "another job has replaced this index while it was read: start this one again";
    Error::Index { path: dir.to_path_buf(), what: what.into() }
}

fn read_meta(dir: &Path) -> Result<Meta> {
    /// What every version says.
    #[derive(Deserialize)]
    struct Version {
        format: String,
        version: u32,
    }
    let path = dir.join(FILE);
    let text = std::fs::read(&path).context(|| format!("cannot read {}", path.display()))?;
    let bad = |what: String| Error::Index { path: path.clone(), what };
    let Version { format, version } = serde_json::from_slice(&text).map_err(|e| bad(e.to_string()))?;
    if format != FORMAT || version != VERSION {
        let what = format!(
            "format {format} {version}, not {FORMAT} {VERSION}: make the index anew with this program"
        );
        return Err(bad(what));
    }
    let meta: Meta = serde_json::from_slice(&text).map_err(|e| bad(e.to_string()))?;
    if meta.partitions == 0 {
        return Err(bad("no partitions".into()));
    }
    meta.lengths().map_err(|e| bad(e.to_string()))?;
    Ok(meta)
}

fn read_ids(dir: &Path, meta: &Meta) -> Result<Vec<Ids>> {
    let path = path(dir, 0, 0, Kind::Identities);
    let identity = meta.identity.parse();
    let identity = identity.map_err(|_| Error::Index { path: dir.join(FILE), what: "no identity".into() })?;
    let place = Place { lengths: meta.lengths()?, partition: 0, partitions: meta.partitions };
    let mapped = Mapped::open(&path, Kind::Identities, place, Some(identity))?;
    let (ids, rest) = mapped.bytes(0).as_chunks::<16>();
    let (ids, more) = ids.as_chunks::<{ KINDS.len() }>();
    if meta.layers.checked_mul(meta.partitions) != Some(ids.len()) || !more.is_empty() || !rest.is_empty() {
        return Err(mapped.bad("not one identity for each file"));
    }
    Ok(ids.iter().map(|ids| ids.map(Id::from_bytes)).collect())
}

/// Write into a directory what the index says of itself: `ids` are those of each partition's layers.
pub fn write(dir: &Path, lengths: Lengths, layers: usize, sources: &[String], ids: &[&[Ids]]) -> Result<()> {
    let partitions = ids.len();
    let mut bytes = Vec::new();
    for layer in 0..layers {
        for (partition, ids) in ids.iter().enumerate() {
            let lost = || Error::Internal(format!("layer {layer} of partition {partition} was not written"));
            let ids = ids.get(layer).filter(|ids| !ids.contains(&Id::default())).ok_or_else(lost)?;
            bytes.extend(ids.iter().flat_map(|id| id.to_bytes()));
        }
    }
    let place = Place { lengths, partition: 0, partitions };
    let mut writer = Writer::create(&path(dir, 0, 0, Kind::Identities), Kind::Identities, place, 1)?;
    writer.section(&bytes)?;
    let identity = writer.finish()?.id.to_string();
    let Lengths { k, m } = lengths;
    let sources = sources.to_vec();
    let meta = Meta { format: FORMAT.into(), version: VERSION, k, m, partitions, layers, identity, sources };
    write_json(&dir.join(FILE), &meta)
}

/// Pretty JSON with a final newline.
pub fn write_json(path: &Path, value: &impl Serialize) -> Result<()> {
    let mut text = serde_json::to_string_pretty(value).map_err(|e| Error::Internal(e.to_string()))?;
    text.push('\n');
    std::fs::write(path, text).context(|| format!("cannot write {}", path.display()))
}
