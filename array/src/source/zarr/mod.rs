//! Arrays of Zarr (version 3): a directory with a description, `zarr.json`, and a file for each chunk.
//!
//! What is neither compressed nor converted is read and written where it lies, in and out of blocks at once;
//! of other chunks as many are unpacked at a time as threads read. Of arrays in shards (`sharding_indexed`)
//! the chunks in them are read, not whole shards.
//!
//! An array is written to a directory beside its place, and put there when all is written.

mod blosc;
mod chain;
mod groups;
mod json;
mod metadata;
mod number;
mod packing;
mod writer;

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use super::pieces::pieces;
use super::{Source, never_again};
use crate::block::Block;
use crate::dtype::DType;
use crate::error::Error;
use crate::shape::Region;
use chain::{Stored, Wanted};
use metadata::Metadata;

pub use writer::{Compression, ZarrArray, ZarrWriter};

fn wrong(text: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, text.into())
}

/// Whether a name is that of an array of Zarr: one that is there, or one whose directory or a directory that
/// it is in ends in `.zarr` (but for NumPy's files).
pub fn is_zarr(path: &Path) -> bool {
    let is_named = |part: &Path, ending: &str| part.extension().is_some_and(|is| is == ending);
    let is_there = || [NAME, OLD, OLD_GROUP].iter().any(|name| path.join(name).is_file());
    !is_named(path, "npy") && (path.ancestors().any(|part| is_named(part, "zarr")) || is_there())
}

/// What an array says of itself.
const NAME: &str = "zarr.json";
/// The same in version 2.
const OLD: &str = ".zarray";
const OLD_GROUP: &str = ".zgroup";
/// What a group of version 2 says of all that is in it.
const OLD_COPIES: &str = ".zmetadata";

/// An array to read from.
#[derive(Debug)]
pub struct Zarr {
    /// As it was given.
    name: PathBuf,
    /// Wherever this program goes.
    path: PathBuf,
    /// Which file its description was.
    opened: Vec<u8>,
    metadata: Metadata,
    unit: Vec<usize>,
}

impl Zarr {
    /// Opens it: its directory.
    ///
    /// # Errors
    /// If there is none, or it is stored in a way that is not known here.
    pub fn open(path: &Path) -> Result<Self, Error> {
        Self::open_array(path).map_err(|error| Error::file(path, error))
    }

    fn open_array(name: &Path) -> io::Result<Self> {
        let path = &*std::path::absolute(name)?;
        let described = description(path).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound if path.join(OLD).exists() || path.join(OLD_GROUP).exists() => {
                wrong("it is of version 2 of Zarr; `zarr migrate v3` (zarr-python) makes version 3 of it")
            }
            io::ErrorKind::NotFound if path.is_dir() => wrong("it is no array of Zarr: it has no zarr.json"),
            _ => error,
        })?;
        Self::described(name, path, described)
    }

    fn described(name: &Path, path: &Path, (text, opened): Described) -> io::Result<Self> {
        let metadata = Metadata::parse(&text).map_err(|error| {
            let inside = arrays_in(path);
            let hint =
                if inside.is_empty() { String::new() } else { format!("; in it are {}", inside.join(", ")) };
            wrong(format!("{error}{hint}"))
        })?;
        let unit = metadata.chain.unit(&metadata.chunk).to_vec();
        Ok(Self { name: name.into(), path: path.into(), opened, metadata, unit })
    }

    /// That it is still what was opened: what is not there would else be taken for what was never written.
    fn is_there(&self) -> io::Result<()> {
        let path = self.path.join(NAME);
        let is_same = std::fs::metadata(&path).is_ok_and(|data| mark(&path, &data) == self.opened);
        if is_same { Ok(()) } else { Err(wrong("it was replaced or removed since it was opened")) }
    }

    fn read_chunk(&self, place: &[usize], wanted: Wanted<'_>, to: &mut [u8]) -> io::Result<()> {
        let name = self.metadata.keys.name(place);
        let mut read = || {
            let path = self.path.join(&name);
            let (file, len) = match open_file(&path) {
                Ok((file, data)) => (file, data.len()),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    // What was not fetched (git-annex) was written.
                    return match path.symlink_metadata() {
                        Ok(_) => Err(wrong("a link to nothing")),
                        Err(_) => wanted.fill(to),
                    };
                }
                Err(error) => return Err(error),
            };
            let stored = Stored::File { file: &file, offset: 0, len };
            self.metadata.chain.read(&stored, wanted, to)
        };
        read().map_err(|error| io::Error::new(error.kind(), format!("chunk {name}: {error}")))
    }
}

/// A file and what the system says of it; nothing else that may have its name, and be waited for.
fn open_file(path: &Path) -> io::Result<(File, std::fs::Metadata)> {
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
    let data = file.metadata()?;
    if data.is_file() { Ok((file, data)) } else { Err(wrong("it is no file")) }
}

/// What a directory says of itself, as a text, and which file that was.
type Described = (String, Vec<u8>);

fn description(path: &Path) -> io::Result<Described> {
    let path = path.join(NAME);
    let (file, data) = open_file(&path)?;
    if data.len() > LONGEST {
        return Err(wrong(format!("zarr.json has {} bytes", data.len())));
    }
    let mut text = String::new();
    file.take(LONGEST).read_to_string(&mut text)?;
    // Of the file that was read: another one may have its name now.
    Ok((text, mark(&path, &data)))
}

/// Bytes of a description at most, consolidated ones among them.
const LONGEST: u64 = 64 << 20;

/// Arrays in a group, a few of them.
fn arrays_in(path: &Path) -> Vec<String> {
    let inside = std::fs::read_dir(path).into_iter().flatten().flatten();
    let arrays = inside.filter(|entry| entry.path().join(NAME).is_file());
    let names = arrays.map(|entry| entry.file_name().to_string_lossy().into_owned());
    // What is hidden is not whole.
    let mut names: Vec<String> = names.filter(|name| !name.starts_with('.')).collect();
    names.sort_unstable();
    names.truncate(10);
    names
}

impl Source for Zarr {
    fn dtype(&self) -> DType {
        self.metadata.kind.dtype()
    }

    fn shape(&self) -> &[usize] {
        &self.metadata.shape
    }

    fn unit(&self) -> Vec<usize> {
        self.unit.clone()
    }

    fn name(&self) -> String {
        self.name.display().to_string()
    }

    /// Of all its files: a chunk that is written again changes nothing else.
    fn stamp(&self) -> String {
        let mut hasher = twox_hash::xxhash3_128::Hasher::new();
        match files_below(&self.path) {
            Ok(files) => files.iter().for_each(|file| hasher.write(file)),
            // It can be read for all that, by the names of its files: what is in them may be anything.
            Err(_) => return never_again(),
        }
        format!("{:x}", hasher.finish_128())
    }

    fn work(&self, region: &Region) -> u64 {
        let Metadata { chunk, kind, chain, .. } = &self.metadata;
        if region.is_empty() { 0 } else { chain.work(chunk, *kind) }
    }

    fn read(&self, region: &Region) -> io::Result<Block> {
        let Metadata { kind, chunk, fill, .. } = &self.metadata;
        let mut block = Block::zeros(kind.dtype(), &region.shape)?;
        if block.is_empty() {
            return Ok(block);
        }
        let read = pieces(region, chunk, |place, origin| {
            let wanted = Wanted { region, origin, chunk, kind: *kind, fill };
            self.read_chunk(place, wanted, block.bytes_mut())
        });
        self.is_there()?;
        read.map(|()| block)
    }
}

/// A file's name, length and time, and which file it is.
fn mark(path: &Path, data: &std::fs::Metadata) -> Vec<u8> {
    let mut mark = path.as_os_str().as_bytes().to_vec();
    let numbers = [data.len() as i64, data.mtime(), data.mtime_nsec(), data.ino() as i64];
    mark.extend(numbers.iter().flat_map(|number| number.to_le_bytes()));
    mark
}

/// The marks of all files of a directory, in an order that depends on nothing else.
fn files_below(path: &Path) -> io::Result<Vec<Vec<u8>>> {
    let mut found = Vec::new();
    let mut folders = vec![path.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder)? {
            let path = entry?.path();
            // What links lead to, if they do.
            let data = std::fs::metadata(&path).or_else(|_| std::fs::symlink_metadata(&path))?;
            if data.is_dir() {
                folders.push(path);
            } else {
                // One that was copied with its time over another of the same length is changed all the same.
                let changed = [data.ctime(), data.ctime_nsec()].map(i64::to_le_bytes);
                found.push([mark(&path, &data), changed.concat()].concat());
            }
        }
    }
    found.sort_unstable();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::Sink;

    #[test]
    fn what_is_replaced_while_it_is_opened_is_not_read_as_what_it_was() {
        let folder = std::env::temp_dir().join(format!("bdrun-array-zarr-opened-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("x.zarr");
        let write = |chunk: &[usize], value: f64| {
            let compression = Compression::None;
            let array = ZarrArray { dtype: DType::F64, shape: &[6], chunk, compression };
            let sink = ZarrWriter::create(&path, array, None).unwrap();
            let whole = Region { start: vec![0], shape: vec![6] };
            sink.write(&whole, &Block::from_slice(&[6], &[value; 6]).unwrap()).unwrap();
            sink.finish().unwrap();
            whole
        };
        write(&[6], 1.0);
        let described = description(&path).unwrap();
        let whole = write(&[2], 2.0);
        let opened = Zarr::described(&path, &path, described).unwrap();
        let error = opened.read(&whole).unwrap_err().to_string();
        assert!(error.contains("replaced"), "{error}");
        assert_eq!(Zarr::open(&path).unwrap().read(&whole).unwrap().elements::<f64>(), [2.0; 6]);
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
