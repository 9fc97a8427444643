//! The container of the index's binary files: a header, and sections that can be mapped. All numbers
//! little-endian.
//!
//! ```text
//! 0    8 bytes   "OBIKMER\0"
//! 8    u32       version of the format (3)
//! 12   u32       kind of file
//! 16   u32 × 4   k, m, partition, partitions
//! 32   u32, u32  number of sections, 0
//! 40   16 bytes  identity: a number made of all that the file holds
//! 56   u64 × 2   for each section: offset, bytes
//! ```
//!
//! Sections begin at multiples of 64 bytes.

use std::fs::File;
use std::io::{BufWriter, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use memmap2::Mmap;

use crate::error::{Context, Error, Result};
use crate::layer::identity::{Hasher, Id};
use crate::sequence::kmer::Lengths;

const MAGIC: [u8; 8] = *b"OBIKMER\0";
const VERSION: u32 = 3;
const IDENTITY: usize = 40;
const HEADER: usize = IDENTITY + 16;
const ALIGN: u64 = 64;

/// The kinds of files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Kind {
    /// Pieces, and where each k-mer is in them.
    Kmers = 1,
    /// Which sources hold which k-mers.
    Sources = 2,
    /// Joined unitigs.
    Unitigs = 3,
    /// Identities of all other files.
    Identities = 4,
}

/// What a file belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// k and m.
    pub lengths: Lengths,
    /// The partition.
    pub partition: usize,
    /// Of how many.
    pub partitions: usize,
}

/// A file that has been written.
#[derive(Clone, Copy, Debug, Default)]
pub struct Wrote {
    /// Its bytes.
    pub bytes: u64,
    /// What it holds.
    pub id: Id,
}

/// Writes a file, section by section.
pub struct Writer {
    path: PathBuf,
    file: BufWriter<File>,
    kind: Kind,
    place: Place,
    count: usize,
    sections: Vec<(u64, u64)>,
    at: u64,
    hasher: Hasher,
}

impl Writer {
    /// A new file for so many sections.
    pub fn create(path: &Path, kind: Kind, place: Place, count: usize) -> Result<Self> {
        let file = File::create(path).context(|| format!("cannot create {}", path.display()))?;
        let mut writer = Self {
            path: path.to_path_buf(),
            file: BufWriter::with_capacity(1 << 16, file),
            kind,
            place,
            count,
            sections: Vec::new(),
            at: 0,
            hasher: Hasher::default(),
        };
        writer.raw(&vec![0; HEADER + 16 * count])?;
        Ok(writer)
    }

    fn raw(&mut self, bytes: &[u8]) -> Result<()> {
        self.at += bytes.len() as u64;
        self.hasher.update(bytes);
        self.file.write_all(bytes).context(|| format!("cannot write {}", self.path.display()))
    }

    /// Begin a section, to be filled by [`append`](Self::append).
    pub fn begin(&mut self) -> Result<()> {
        let gap = self.at.next_multiple_of(ALIGN) - self.at;
        self.raw(&[0; ALIGN as usize][..gap as usize])?;
        self.sections.push((self.at, 0));
        Ok(())
    }

    /// Bytes for the section begun.
    pub fn append(&mut self, bytes: &[u8]) -> Result<()> {
        self.raw(bytes)?;
        if let Some(last) = self.sections.last_mut() {
            last.1 += bytes.len() as u64;
        }
        Ok(())
    }

    /// A whole section.
    pub fn section(&mut self, bytes: &[u8]) -> Result<()> {
        self.begin()?;
        self.append(bytes)
    }

    /// Write the header.
    pub fn finish(mut self) -> Result<Wrote> {
        if self.sections.len() != self.count {
            let what =
                format!("{}: {} sections, not {}", self.path.display(), self.sections.len(), self.count);
            return Err(Error::Internal(what));
        }
        let mut header = Vec::with_capacity(HEADER + 16 * self.count);
        header.extend(MAGIC);
        let Place { lengths, partition, partitions } = self.place;
        let numbers = [
            VERSION,
            self.kind as u32,
            lengths.k as u32,
            lengths.m as u32,
            partition as u32,
            partitions as u32,
        ];
        for number in numbers.into_iter().chain([self.count as u32, 0]) {
            header.extend(number.to_le_bytes());
        }
        header.extend([0; HEADER - IDENTITY]);
        for (offset, bytes) in &self.sections {
            header.extend(offset.to_le_bytes());
            header.extend(bytes.to_le_bytes());
        }
        let mut hasher = self.hasher;
        hasher.update(&header);
        let id = hasher.finish();
        header[IDENTITY..HEADER].copy_from_slice(&id.to_bytes());
        let path = &self.path;
        let mut write = || {
            self.file.seek(SeekFrom::Start(0))?;
            self.file.write_all(&header)?;
            self.file.flush()
        };
        write().context(|| format!("cannot write {}", path.display()))?;
        Ok(Wrote { bytes: self.at, id })
    }
}

/// A mapped file.
pub struct Mapped {
    map: Mmap,
    sections: Vec<(usize, usize)>,
    path: PathBuf,
    id: Id,
}

impl Mapped {
    /// Map a file and check its header; if it is said what the file holds, that too.
    pub fn open(path: &Path, kind: Kind, place: Place, expected: Option<Id>) -> Result<Self> {
        let bad = |what: &str| Error::Index { path: path.to_path_buf(), what: what.into() };
        let file = File::open(path).context(|| format!("cannot open {}", path.display()))?;
        // SAFETY: the files of an index are not changed once its directory has its name: updates replace the
        // directory. Whoever truncates them by hand gets SIGBUS, as with every mapped file.
        let map = unsafe { Mmap::map(&file) }.context(|| format!("cannot map {}", path.display()))?;
        let word =
            |at: usize| map.get(at..at + 4).map_or(0, |b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]));
        let wide = |at: usize| u64::from(word(at + 4)) << 32 | u64::from(word(at));
        if map.get(..8) != Some(&MAGIC) {
            return Err(bad("not a file of an obikmer index"));
        }
        if word(8) != VERSION {
            let what = "of the format: make the index anew with this program, which knows";
            return Err(bad(&format!("version {} {what} {VERSION}", word(8))));
        }
        let Place { lengths, partition, partitions } = place;
        let here = [kind as u32, lengths.k as u32, lengths.m as u32, partition as u32, partitions as u32];
        if here != [word(12), word(16), word(20), word(24), word(28)] {
            return Err(bad("belongs to another place of an index"));
        }
        let mut id = [0; HEADER - IDENTITY];
        id.copy_from_slice(map.get(IDENTITY..HEADER).ok_or_else(|| bad("truncated"))?);
        let id = Id::from_bytes(id);
        if expected.is_some_and(|expected| expected != id) {
            return Err(bad("belongs to another index than the files beside it"));
        }
        let mut sections = Vec::new();
        for i in 0..word(32) as usize {
            let at = HEADER + 16 * i;
            let (offset, bytes) = (wide(at), wide(at + 8));
            let inside = at + 16 <= map.len()
                && offset.is_multiple_of(ALIGN)
                && offset.checked_add(bytes).is_some_and(|end| end <= map.len() as u64);
            if !inside {
                return Err(bad("truncated"));
            }
            sections.push((offset as usize, bytes as usize));
        }
        Ok(Self { map, sections, path: path.to_path_buf(), id })
    }

    /// What it holds.
    pub fn id(&self) -> Id {
        self.id
    }

    /// An error about this file.
    pub fn bad(&self, what: impl Into<String>) -> Error {
        Error::Index { path: self.path.clone(), what: what.into() }
    }

    /// A section as bytes; empty if there is none.
    pub fn bytes(&self, section: usize) -> &[u8] {
        self.sections.get(section).map_or(&[], |&(offset, bytes)| &self.map[offset..offset + bytes])
    }

    /// A section as numbers.
    pub fn slice<T: bytemuck::Pod>(&self, section: usize) -> Result<&[T]> {
        bytemuck::try_cast_slice(self.bytes(section)).map_err(|e| self.bad(format!("section {section}: {e}")))
    }
}
