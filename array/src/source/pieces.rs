//! Arrays that lie in files in pieces: elements in C order, each piece as long as any other.

use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut};

use crate::shape::{Region, places, strides};

/// Nowhere in a file.
pub(super) const NOWHERE: u64 = u64::MAX;

fn wrong(text: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, text)
}

/// Calls `each` for all pieces of a shape that have elements of a region: with their place among the pieces,
/// and their first element.
pub(super) fn pieces(
    region: &Region,
    shape: &[usize],
    mut each: impl FnMut(&[usize], &[usize]) -> io::Result<()>,
) -> io::Result<()> {
    let along = |(&start, &shape): (&usize, &usize)| start / shape;
    let first: Vec<usize> = region.start.iter().zip(shape).map(along).collect();
    let ends = region.start.iter().zip(&region.shape).map(|(start, count)| start + count);
    let counts: Vec<usize> =
        ends.zip(shape).zip(&first).map(|((end, shape), first)| end.div_ceil(*shape) - first).collect();
    for place in places(&counts) {
        let place: Vec<usize> = place.iter().zip(&first).map(|(at, first)| at + first).collect();
        let origin: Vec<usize> = place.iter().zip(shape).map(|(at, shape)| at * shape).collect();
        each(&place, &origin)?;
    }
    Ok(())
}

/// Bytes that lie together in a file: from where, and where each of their rows is in the block.
pub(super) struct Rows {
    /// [`NOWHERE`]: they were never written.
    pub(super) from: u64,
    at: Vec<usize>,
    len: usize,
}

impl Rows {
    /// Every element of a block's rows becomes this one.
    pub(super) fn fill(&self, element: &[u8], to: &mut [u8]) {
        for &at in &self.at {
            to[at..at + self.len]
                .chunks_exact_mut(element.len())
                .for_each(|there| there.copy_from_slice(element));
        }
    }

    /// Copies rows out of bytes that hold what the file would.
    pub(super) fn copy(&self, from: &[u8], to: &mut [u8]) {
        for (&at, row) in self.at.iter().zip(from[self.from as usize..].chunks_exact(self.len)) {
            to[at..at + self.len].copy_from_slice(row);
        }
    }

    /// Copies a block's rows to bytes that hold what the file is to have.
    pub(super) fn put(&self, from: &[u8], to: &mut [u8]) {
        for (&at, row) in self.at.iter().zip(to[self.from as usize..].chunks_exact_mut(self.len)) {
            row.copy_from_slice(&from[at..at + self.len]);
        }
    }
}

/// A chunk, or all of it: its first element, its shape, and where it lies.
pub(super) struct Piece<'a> {
    pub(super) origin: &'a [usize],
    pub(super) shape: &'a [usize],
    pub(super) offset: u64,
}

impl Piece<'_> {
    /// Calls `each` for all that lies together of a region, whose elements have so many bytes.
    pub(super) fn rows(
        &self,
        region: &Region,
        size: usize,
        each: &mut impl FnMut(&Rows) -> io::Result<()>,
    ) -> io::Result<()> {
        let axes = self.shape.len();
        // What of the region is in it, in its own coordinates and in those of the block.
        let low: Vec<usize> = (0..axes).map(|axis| region.start[axis].max(self.origin[axis])).collect();
        let count: Vec<usize> = (0..axes)
            .map(|axis| {
                let end = (region.start[axis] + region.shape[axis]).min(self.origin[axis] + self.shape[axis]);
                end - low[axis]
            })
            .collect();
        let (there, here) = (strides(self.shape), strides(&region.shape));
        let last = axes.saturating_sub(1);
        let len = if axes == 0 { size } else { count[last] * size };
        let mut rows = Rows { from: NOWHERE, at: Vec::new(), len };
        let mut end = NOWHERE;
        for place in places(&count[..last]) {
            let mut at = [0, 0];
            for axis in 0..axes {
                let step = place.get(axis).copied().unwrap_or(0);
                at[0] += (low[axis] - self.origin[axis] + step) * there[axis];
                at[1] += (low[axis] - region.start[axis] + step) * here[axis];
            }
            let from = if self.offset == NOWHERE { NOWHERE } else { self.offset + (at[0] * size) as u64 };
            let is_apart = from != end && self.offset != NOWHERE;
            if !rows.at.is_empty() && (is_apart || rows.at.len() == MANY) {
                each(&rows)?;
                rows.at.clear();
            }
            if rows.at.is_empty() {
                rows.from = from;
            }
            rows.at.push(at[1] * size);
            end = from.wrapping_add(len as u64);
        }
        if rows.at.is_empty() { Ok(()) } else { each(&rows) }
    }
}

/// So many rows are read or written at a time: `IOV_MAX` of Linux.
const MANY: usize = 1024;

/// Reads rows into a block's bytes.
pub(super) fn read(file: &File, rows: &Rows, to: &mut [u8]) -> io::Result<()> {
    if rows.from == NOWHERE {
        return Err(wrong("it has no place in the file"));
    }
    // Rows come in the order in which they lie in the block.
    let mut slices = Vec::with_capacity(rows.at.len());
    let (mut rest, mut done) = (to, 0);
    for &at in &rows.at {
        let (_, behind) = rest.split_at_mut(at - done);
        let (row, behind) = behind.split_at_mut(rows.len);
        slices.push(IoSliceMut::new(row));
        (rest, done) = (behind, at + rows.len);
    }
    let mut left = &mut slices[..];
    let mut from = rows.from;
    while !left.is_empty() {
        match rustix::io::preadv(file, left, from) {
            Ok(0) => return Err(wrong("the file ends before its elements do")),
            Ok(count) => {
                from += count as u64;
                IoSliceMut::advance_slices(&mut left, count);
            }
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Writes rows of a block's bytes.
pub(super) fn write(file: &File, rows: &Rows, from: &[u8]) -> io::Result<()> {
    if rows.from == NOWHERE {
        return Err(wrong("a chunk has no place in the file"));
    }
    let mut slices: Vec<IoSlice<'_>> =
        rows.at.iter().map(|&at| IoSlice::new(&from[at..at + rows.len])).collect();
    let mut left = &mut slices[..];
    let mut to = rows.from;
    while !left.is_empty() {
        match rustix::io::pwritev(file, left, to) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => {
                to += count as u64;
                IoSlice::advance_slices(&mut left, count);
            }
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}
