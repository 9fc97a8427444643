//! From the bytes of a chunk to the elements of a block.

use std::borrow::Cow;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use super::number::Kind;
use super::packing::{Packing, checked, most_packed, room_for, unpack};
use super::wrong;
use crate::shape::{Region, count, places, strides};
use crate::source::pieces::{self, NOWHERE, Piece, pieces};

/// Codecs: what was made of a chunk's elements.
#[derive(Debug)]
pub(super) struct Chain {
    /// In which order its axes lie, if that is another.
    pub order: Option<Vec<usize>>,
    pub inner: Inner,
    /// What was done then, one after the other.
    pub packings: Vec<Packing>,
}

/// How elements became bytes.
#[derive(Debug)]
pub(super) enum Inner {
    /// One behind the other.
    Bytes { is_big: bool },
    /// In chunks of their own.
    Shards(Box<Shards>),
}

/// Chunks in a chunk, with an index that says where each is.
#[derive(Debug)]
pub(super) struct Shards {
    pub chunk: Vec<usize>,
    pub chain: Chain,
    /// Whether the index comes first.
    pub at_start: bool,
    pub is_big: bool,
    /// Sums behind the index.
    pub sums: usize,
}

/// Bytes that are in a file, or in memory.
pub(super) enum Stored<'a> {
    File { file: &'a File, offset: u64, len: u64 },
    Memory(&'a [u8]),
}

impl Stored<'_> {
    fn len(&self) -> u64 {
        match self {
            Self::File { len, .. } => *len,
            Self::Memory(bytes) => bytes.len() as u64,
        }
    }

    fn part(&self, from: u64, len: u64) -> io::Result<Stored<'_>> {
        let end = from.checked_add(len).filter(|&end| end <= self.len());
        let end = end.ok_or_else(|| wrong("the index of a shard says that a chunk is beyond its end"))?;
        Ok(match self {
            Self::File { file, offset, .. } => Stored::File { file, offset: offset + from, len },
            Self::Memory(bytes) => Stored::Memory(&bytes[from as usize..end as usize]),
        })
    }

    /// All of them, of which there are to be so many at most.
    fn all(&self, most: usize) -> io::Result<Cow<'_, [u8]>> {
        if self.len() > most as u64 {
            return Err(wrong(format!("{} bytes, which is more than its elements can take", self.len())));
        }
        match self {
            Self::File { file, offset, len } => {
                let mut bytes = room_for(*len as usize)?;
                bytes.resize(*len as usize, 0);
                file.read_exact_at(&mut bytes, *offset)?;
                Ok(bytes.into())
            }
            Self::Memory(bytes) => Ok((*bytes).into()),
        }
    }
}

/// What is read: the part of a region that is in a chunk, whose first element is at `origin`.
#[derive(Clone, Copy)]
pub(super) struct Wanted<'a> {
    pub region: &'a Region,
    pub origin: &'a [usize],
    pub chunk: &'a [usize],
    pub kind: Kind,
    /// What elements are that were never written.
    pub fill: &'a [u8],
}

impl Wanted<'_> {
    /// All of it was never written.
    pub fn fill(&self, to: &mut [u8]) -> io::Result<()> {
        let piece = Piece { origin: self.origin, shape: self.chunk, offset: NOWHERE };
        piece.rows(self.region, self.fill.len(), &mut |rows| {
            rows.fill(self.fill, to);
            Ok(())
        })
    }

    /// It is in elements as they are stored, one behind the other, with the axes in this order.
    fn copy(&self, from: &[u8], is_big: bool, order: Option<&[usize]>, to: &mut [u8]) {
        let Self { region, origin, chunk, kind, .. } = *self;
        let axes = chunk.len();
        let mut there = strides(chunk);
        if let Some(order) = order {
            let lengths: Vec<usize> = order.iter().map(|&axis| chunk[axis]).collect();
            for (&axis, stride) in order.iter().zip(strides(&lengths)) {
                there[axis] = stride;
            }
        }
        let here = strides(&region.shape);
        let low: Vec<usize> = (0..axes).map(|axis| region.start[axis].max(origin[axis])).collect();
        let end = |axis: usize| (region.start[axis] + region.shape[axis]).min(origin[axis] + chunk[axis]);
        let lengths: Vec<usize> = (0..axes).map(|axis| end(axis) - low[axis]).collect();
        let last = axes.saturating_sub(1);
        let (row, step) = if axes == 0 { (1, 1) } else { (lengths[last], there[last]) };
        for place in places(&lengths[..last]) {
            let (mut get, mut put) = (0, 0);
            for axis in 0..axes {
                let at = low[axis] + place.get(axis).copied().unwrap_or(0);
                get += (at - origin[axis]) * there[axis];
                put += (at - region.start[axis]) * here[axis];
            }
            let size = kind.dtype().size();
            let to = &mut to[put * size..][..row * size];
            kind.convert(is_big, &from[get * kind.size()..], step * kind.size(), to);
        }
    }
}

impl Chain {
    /// Whether elements lie in a chunk as they do in memory.
    pub fn is_plain(&self, kind: Kind) -> bool {
        let little = match &self.inner {
            Inner::Bytes { is_big } => !is_big || kind.size() == 1,
            Inner::Shards(_) => false,
        };
        little && kind.is_native() && self.order.is_none() && self.packings.is_empty()
    }

    /// The shape of the smallest chunks that can be read by themselves.
    pub fn unit<'a>(&'a self, chunk: &'a [usize]) -> &'a [usize] {
        match &self.inner {
            Inner::Shards(shards) if self.packings.is_empty() => shards.chain.unit(&shards.chunk),
            _ => chunk,
        }
    }

    /// Bytes that are taken at a time to read of a chunk, beside the block that it becomes.
    pub fn work(&self, chunk: &[usize], kind: Kind) -> u64 {
        let bytes = (count(chunk) as u64).saturating_mul(kind.size() as u64);
        let room = bytes.saturating_mul(6).min(TABLES) + ROOM;
        let unpacked =
            if self.packings.is_empty() { 0 } else { COPIES.saturating_mul(bytes).saturating_add(room) };
        let inner = match &self.inner {
            Inner::Bytes { .. } if self.is_plain(kind) || unpacked > 0 => 0,
            Inner::Bytes { .. } => bytes,
            Inner::Shards(shards) => {
                let index = shards.index_len(chunk) as u64;
                shards.chain.work(&shards.chunk, kind).saturating_add(index)
            }
        };
        inner.saturating_add(unpacked)
    }

    /// Reads what is wanted of a chunk.
    pub fn read(&self, from: &Stored<'_>, wanted: Wanted<'_>, to: &mut [u8]) -> io::Result<()> {
        let kind = wanted.kind;
        let len = count(wanted.chunk).checked_mul(kind.size()).ok_or_else(too_large)?;
        if self.is_plain(kind) {
            return plain(from, wanted, len, to);
        }
        let (expected, is_exact) = match &self.inner {
            Inner::Bytes { .. } => (len, true),
            Inner::Shards(shards) => (most_packed(len).saturating_add(shards.index_len(wanted.chunk)), false),
        };
        let order = self.order.as_deref();
        if self.packings.is_empty() {
            return self.inner.read(from, wanted, order, to);
        }
        let most = self.packings.iter().fold(expected, |len, _| most_packed(len));
        let unpacked = unpack(&self.packings, from.all(most)?.into_owned(), expected, is_exact)?;
        self.inner.read(&Stored::Memory(&unpacked), wanted, order, to)
    }
}

/// As stored, as unpacked, and what the decoder holds.
const COPIES: u64 = 3;
/// A decoder's own tables, at least, and what they grow to with what is decoded.
const ROOM: u64 = 64 << 10;
const TABLES: u64 = 1 << 20;

fn too_large() -> io::Error {
    wrong("a chunk has more elements than there can be")
}

/// Elements lie as they do in memory.
fn plain(from: &Stored<'_>, wanted: Wanted<'_>, len: usize, to: &mut [u8]) -> io::Result<()> {
    if from.len() != len as u64 {
        return Err(wrong(format!("{} bytes instead of {len}", from.len())));
    }
    let offset = if let Stored::File { offset, .. } = from { *offset } else { 0 };
    let piece = Piece { origin: wanted.origin, shape: wanted.chunk, offset };
    piece.rows(wanted.region, wanted.kind.size(), &mut |rows| match from {
        Stored::File { file, .. } => pieces::read(file, rows, to),
        Stored::Memory(bytes) => {
            rows.copy(bytes, to);
            Ok(())
        }
    })
}

impl Inner {
    fn read(
        &self,
        from: &Stored<'_>,
        wanted: Wanted<'_>,
        order: Option<&[usize]>,
        to: &mut [u8],
    ) -> io::Result<()> {
        match self {
            Self::Bytes { is_big } => {
                let len = count(wanted.chunk) * wanted.kind.size();
                if from.len() != len as u64 {
                    return Err(wrong(format!("{} bytes instead of {len}", from.len())));
                }
                wanted.copy(&from.all(len)?, *is_big, order, to);
                Ok(())
            }
            Self::Shards(shards) => shards.read(from, wanted, to),
        }
    }
}

impl Shards {
    /// Bytes of the index of a chunk: where each chunk in it is, and how long.
    fn index_len(&self, chunk: &[usize]) -> usize {
        count(&self.grid(chunk)).saturating_mul(16).saturating_add(4 * self.sums)
    }

    fn grid(&self, chunk: &[usize]) -> Vec<usize> {
        chunk.iter().zip(&self.chunk).map(|(&length, &inner)| length / inner).collect()
    }

    fn read(&self, from: &Stored<'_>, wanted: Wanted<'_>, to: &mut [u8]) -> io::Result<()> {
        let (grid, len) = (self.grid(wanted.chunk), self.index_len(wanted.chunk));
        let at = if self.at_start { Some(0) } else { from.len().checked_sub(len as u64) };
        let index = at.and_then(|at| from.part(at, len as u64).ok());
        let index = index.ok_or_else(|| wrong("shorter than the index of a shard"))?;
        let index = index.all(len)?;
        let mut words = &index[..];
        for _ in 0..self.sums {
            words = checked(words)?;
        }
        let number = |at: usize| {
            let bytes = words.get(at * 8..).and_then(|rest| rest.first_chunk::<8>());
            let bytes = *bytes.ok_or_else(|| wrong("shorter than the index of a shard"))?;
            Ok::<u64, io::Error>(if self.is_big {
                u64::from_be_bytes(bytes)
            } else {
                u64::from_le_bytes(bytes)
            })
        };
        // What of the region is in the shard, as seen from its first element.
        let axes = 0..wanted.chunk.len();
        let start = |axis: usize| wanted.region.start[axis].max(wanted.origin[axis]) - wanted.origin[axis];
        let end = |axis: usize| {
            let end = wanted.region.start[axis] + wanted.region.shape[axis] - wanted.origin[axis];
            end.min(wanted.chunk[axis])
        };
        let inside = Region {
            start: axes.clone().map(start).collect(),
            shape: axes.map(|axis| end(axis) - start(axis)).collect(),
        };
        let steps = strides(&grid);
        pieces(&inside, &self.chunk, |place, first| {
            let at: usize = place.iter().zip(&steps).map(|(at, step)| at * step).sum();
            let (offset, len) = (number(2 * at)?, number(2 * at + 1)?);
            let origin: Vec<usize> =
                first.iter().zip(wanted.origin).map(|(at, origin)| at + origin).collect();
            let wanted = Wanted { origin: &origin, chunk: &self.chunk, ..wanted };
            if (offset, len) == (u64::MAX, u64::MAX) {
                return wanted.fill(to);
            }
            self.chain.read(&from.part(offset, len)?, wanted, to)
        })
    }
}
