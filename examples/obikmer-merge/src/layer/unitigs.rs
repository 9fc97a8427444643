//! Joined unitigs of one partition of one layer, as a file: written while they are joined, mapped for
//! reading.
//!
//! See `docs/format.md` for the sections.

use std::path::Path;

use crate::error::Result;
use crate::layer::format::{self, Kind, Mapped, Place, Wrote};
use crate::layer::identity::Id;
use crate::layer::{Ids, path};
use crate::sequence::cycle;
use crate::sequence::packed::{Packed, Text};

/// Bases gathered before they are written.
const GATHERED: usize = 1 << 16;

/// What a [`Writer`] wrote.
#[derive(Default, Clone, Copy)]
pub struct Written {
    /// The file.
    pub file: Wrote,
    /// Unitigs.
    pub unitigs: u64,
    /// Cyclic ones among them.
    pub cyclic: u64,
    /// The sum of their lengths.
    pub bases: u64,
}

/// Writes unitigs as they come. An error stays with it until [`finish`](Self::finish): whoever makes the
/// unitigs has other ranks to talk to meanwhile.
pub struct Writer {
    file: Result<format::Writer>,
    k: usize,
    /// Not yet written.
    pending: Packed,
    bases: u64,
    kmers: Vec<u32>,
    cyclic: Vec<u32>,
    codes: Vec<u8>,
}

impl Writer {
    /// A new file.
    pub fn new(path: &Path, place: Place) -> Self {
        let file = format::Writer::create(path, Kind::Unitigs, place, 3).and_then(|mut file| {
            file.begin()?;
            Ok(file)
        });
        Self {
            file,
            k: place.lengths.k,
            pending: Packed::with_capacity(GATHERED),
            bases: 0,
            kmers: Vec::new(),
            cyclic: Vec::new(),
            codes: Vec::new(),
        }
    }

    /// A unitig with its text in either direction, at least k bases and at most 2^32 − 1 k-mers; of a cyclic
    /// one any rotation, the first k − 1 bases again at the end.
    pub fn push(&mut self, text: Text<'_>, cyclic: bool) {
        let kmers = text.len() + 1 - self.k;
        if cyclic {
            self.cyclic.push(self.kmers.len() as u32);
            self.codes.clear();
            text.cut(0, kmers).unpack(&mut self.codes);
            self.pending.push(&cycle::canonical(&self.codes, self.k));
        } else {
            self.pending.append(if text.is_canonical() { text } else { text.flipped() });
        }
        self.kmers.push(kmers as u32);
        self.bases += text.len() as u64;
        if self.pending.len() >= GATHERED {
            let file = &mut self.file;
            self.pending.take_full(|bytes| append(file, bytes));
        }
    }

    /// Write the rest.
    pub fn finish(mut self) -> Result<Written> {
        append(&mut self.file, self.pending.bytes());
        let mut file = self.file?;
        file.section(bytemuck::cast_slice(&self.kmers))?;
        file.section(bytemuck::cast_slice(&self.cyclic))?;
        Ok(Written {
            file: file.finish()?,
            unitigs: self.kmers.len() as u64,
            cyclic: self.cyclic.len() as u64,
            bases: self.bases,
        })
    }
}

fn append(file: &mut Result<format::Writer>, bytes: &[u8]) {
    let result = file.as_mut().map_or(Ok(()), |file| file.append(bytes));
    if let Err(error) = result {
        *file = Err(error);
    }
}

/// Joined unitigs, mapped.
pub struct Unitigs {
    mapped: Mapped,
    k: usize,
}

impl Unitigs {
    /// Open them; `ids` of an index, and none while it is made.
    pub fn open(dir: &Path, layer: usize, place: Place, ids: Option<&Ids>) -> Result<Self> {
        let path = path(dir, layer, place.partition, Kind::Unitigs);
        let mapped = Mapped::open(&path, Kind::Unitigs, place, ids.map(|ids| ids[2]))?;
        let unitigs = Self { mapped, k: place.lengths.k };
        let cyclic = unitigs.mapped.slice::<u32>(2)?;
        let inside =
            cyclic.last().is_none_or(|&last| (last as usize) < unitigs.kmers().map_or(0, <[u32]>::len));
        if unitigs.bases()?.div_ceil(4) != unitigs.mapped.bytes(0).len() as u64 || !inside {
            return Err(unitigs.mapped.bad("the unitigs do not fit their lengths"));
        }
        Ok(unitigs)
    }

    /// What their file holds.
    pub fn id(&self) -> Id {
        self.mapped.id()
    }

    fn kmers(&self) -> Result<&[u32]> {
        self.mapped.slice(1)
    }

    /// Number of unitigs.
    pub fn count(&self) -> Result<usize> {
        Ok(self.kmers()?.len())
    }

    /// How many of them are cyclic.
    pub fn cyclic(&self) -> usize {
        self.mapped.bytes(2).len() / 4
    }

    /// The sum of their lengths.
    pub fn bases(&self) -> Result<u64> {
        let kmers = self.kmers()?;
        Ok(kmers.iter().map(|&n| u64::from(n)).sum::<u64>() + (kmers.len() * (self.k - 1)) as u64)
    }

    /// The text of each.
    pub fn for_each(&self, mut each: impl FnMut(Text<'_>) -> Result<()>) -> Result<()> {
        let (bytes, mut at) = (self.mapped.bytes(0), 0);
        for &kmers in self.kmers()? {
            let len = kmers as usize + self.k - 1;
            each(Text::new(bytes, at, len))?;
            at += len;
        }
        Ok(())
    }
}
