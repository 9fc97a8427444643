//! Arrays that are written.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use super::metadata::{Keys, Metadata, written};
use super::packing::{Packing, pack};
use super::{NAME, OLD, groups, wrong};
use crate::block::Block;
use crate::dtype::DType;
use crate::error::Error;
use crate::shape::{Region, count};
use crate::source::Sink;
use crate::source::aside::{Aside, Identity};
use crate::source::pieces::{self, Piece, pieces};

/// The description of an array that is not whole: not its own name, by which others that look what is in a
/// group would find it.
const BEGUN: &str = ".zarr.json";

/// How often groups are made anew that others take away.
const TRIES: u32 = 100;

/// What is done to chunks before they are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Compression {
    /// Nothing.
    #[default]
    None,
    /// `gzip`, of a level from 0 to 9.
    Gzip(u32),
    /// `zstd`, as fast as it can be.
    Zstd,
}

/// What an array is to be.
#[derive(Clone, Copy, Debug)]
pub struct ZarrArray<'a> {
    /// The type of its elements.
    pub dtype: DType,
    /// How many there are along each axis.
    pub shape: &'a [usize],
    /// How many a chunk has along each.
    pub chunk: &'a [usize],
    /// What is done to chunks. What is compressed is written in whole chunks: blocks that are stored begin
    /// and end where chunks do ([`Array::aligned`](crate::Array::aligned)).
    pub compression: Compression,
}

/// An array that is written to: beside its place, where it is put when all is written.
pub struct ZarrWriter {
    to: Aside,
    path: PathBuf,
    shape: Vec<usize>,
    chunk: Vec<usize>,
    /// Bytes of an element.
    size: usize,
    keys: Keys,
    packings: Vec<Packing>,
    /// Behind what is in them.
    _groups: groups::Made,
}

impl std::fmt::Debug for ZarrWriter {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "ZarrWriter({})", Sink::name(self))
    }
}

impl ZarrWriter {
    /// Begins an array; with an identity, one that can be gone on with if it is interrupted, or goes on with
    /// it. An array of Zarr that is there is replaced when all is written. Groups that it is to be in are
    /// made if they are not there (`STORE.zarr/GROUP/ARRAY`).
    ///
    /// # Errors
    /// If none can be made there, something else is there, or what is there is of another identity.
    pub fn create(path: &Path, array: ZarrArray<'_>, identity: Option<Identity>) -> Result<Self, Error> {
        Self::begin(path, array, identity).map_err(|error| Error::file(path, error))
    }

    fn begin(path: &Path, array: ZarrArray<'_>, identity: Option<Identity>) -> io::Result<Self> {
        let ZarrArray { dtype, shape, chunk, compression } = array;
        let path = &*std::path::absolute(path)?;
        if chunk.len() != shape.len() {
            let (given, axes) = (chunk.len(), shape.len());
            return Err(wrong(format!("chunks along {given} axes, of an array of {axes}")));
        }
        let chunk: Vec<usize> =
            chunk.iter().zip(shape).map(|(&chunk, &length)| chunk.clamp(1, length.max(1))).collect();
        let (text, packings) = written(dtype, shape, &chunk, compression);
        groups::check(path)?;
        let format = format!("zarr {} {shape:?} {chunk:?} {compression:?}", dtype.name());
        let begin = || {
            let made = groups::make(path)?;
            let begun = Aside::begin_folder(path, identity, &format, Box::new(can_be_replaced))?;
            io::Result::Ok((made, begun))
        };
        let mut tries = TRIES;
        let (made, (to, is_there)) = loop {
            match begin() {
                // Another one, which had made a group, failed just now, and took it away again.
                Err(error) if error.kind() == io::ErrorKind::NotFound && tries > 0 => tries -= 1,
                begun => break begun?,
            }
        };
        let begun = to.aside.join(BEGUN);
        if is_there {
            // One that was interrupted while it was put in its place has its own name already.
            let told =
                std::fs::read_to_string(&begun).or_else(|_| std::fs::read_to_string(to.aside.join(NAME)));
            if told? != text {
                return Err(wrong("what was begun is described in another way"));
            }
        } else {
            std::fs::write(begun, &text)?;
            to.ready()?;
        }
        let keys = Metadata::parse(&text)?.keys;
        let (path, shape, size) = (path.into(), shape.to_vec(), dtype.size());
        Ok(Self { to, path, shape, chunk, size, keys, packings, _groups: made })
    }

    /// The file of a chunk.
    fn open(&self, place: &[usize], options: &OpenOptions) -> io::Result<File> {
        let path = self.to.aside.join(self.keys.name(place));
        match options.open(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                std::fs::create_dir_all(path.parent().unwrap_or(&path))?;
                options.open(&path)
            }
            opened => opened,
        }
    }

    /// Part of a chunk, where it lies.
    fn write_plain(
        &self,
        place: &[usize],
        piece: &Piece<'_>,
        region: &Region,
        block: &Block,
    ) -> io::Result<()> {
        let size = self.size;
        let file = self.open(place, OpenOptions::new().write(true).create(true).truncate(false))?;
        // Chunks are whole, beyond the end of the array too.
        let len = count(&self.chunk) as u64 * size as u64;
        if file.metadata()?.len() != len {
            file.set_len(len)?;
        }
        piece.rows(region, size, &mut |rows| pieces::write(&file, rows, block.as_bytes()))
    }

    /// A whole chunk.
    fn write_packed(
        &self,
        place: &[usize],
        piece: &Piece<'_>,
        region: &Region,
        block: &Block,
    ) -> io::Result<()> {
        let is_whole = (0..self.chunk.len()).all(|axis| {
            let (first, start) = (piece.origin[axis], region.start[axis]);
            let end = (first + self.chunk[axis]).min(self.shape[axis]);
            start <= first && end <= start + region.shape[axis]
        });
        if !is_whole {
            return Err(wrong("what is compressed is written in whole chunks"));
        }
        let size = self.size;
        let mut bytes = vec![0; count(&self.chunk) * size];
        piece.rows(region, size, &mut |rows| {
            rows.put(block.as_bytes(), &mut bytes);
            Ok(())
        })?;
        let bytes = pack(&self.packings, bytes)?;
        let file = self.open(place, OpenOptions::new().write(true).create(true).truncate(true))?;
        file.write_all_at(&bytes, 0)
    }
}

/// What is there is an array, or nothing: whatever else is in a directory is not to be lost.
fn can_be_replaced(path: &Path) -> io::Result<()> {
    match path.symlink_metadata() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
        Ok(data) if !data.is_dir() => return Err(wrong("something that is no array of Zarr is there")),
        Ok(_) => {}
    }
    let is_old = path.join(OLD).is_file();
    if !is_old && !groups::is_array(path)? {
        return Err(wrong(
            "a directory that is no array of Zarr is there: an array in a group is named GROUP/ARRAY",
        ));
    }
    match groups::old_above(path) {
        // Who looks for it there would find what was never written, or nothing.
        Some(group) if is_old => Err(wrong(format!(
            "it is of version 2 of Zarr, and so is {}; `zarr migrate v3 --remove-v2-metadata` (zarr-python) \
             makes version 3 of that",
            group.display()
        ))),
        _ => Ok(()),
    }
}

impl Sink for ZarrWriter {
    fn name(&self) -> String {
        self.path.display().to_string()
    }

    fn has(&self, region: &Region) -> bool {
        self.to.has(region)
    }

    fn work(&self, region: &Region) -> u64 {
        // A chunk, and what is made of it.
        let bytes = |size: usize| 2 * count(&self.chunk) as u64 * size as u64;
        if self.packings.is_empty() || region.is_empty() { 0 } else { bytes(self.size) + PACKING }
    }

    fn write(&self, region: &Region, block: &Block) -> io::Result<()> {
        pieces(region, &self.chunk, |place, origin| {
            let piece = Piece { origin, shape: &self.chunk, offset: 0 };
            let written = if self.packings.is_empty() {
                self.write_plain(place, &piece, region, block)
            } else {
                self.write_packed(place, &piece, region, block)
            };
            let name = || self.keys.name(place);
            written.map_err(|error| io::Error::new(error.kind(), format!("chunk {}: {error}", name())))
        })?;
        self.to.wrote(region)
    }

    fn finish(&self) -> io::Result<()> {
        groups::forget(&self.path)?;
        let name = self.to.aside.join(NAME);
        match std::fs::rename(self.to.aside.join(BEGUN), &name) {
            // A second time, or after an interruption.
            Err(error) if error.kind() == io::ErrorKind::NotFound && name.is_file() => {}
            renamed => renamed?,
        }
        self.to.finish()
    }
}

/// An encoder's own tables, and its window.
const PACKING: u64 = 4 << 20;
