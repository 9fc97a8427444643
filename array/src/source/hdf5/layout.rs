//! Where a dataset's elements lie in its file.

use std::ffi::{c_int, c_uint, c_void};
use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut};

use super::library::{Locked, Visit};
use super::object::{Object, dataset_type};
use super::wrong;
use crate::dtype::DType;
use crate::shape::{Region, count, places, strides};

/// Nowhere: `HADDR_UNDEF`.
const NOWHERE: u64 = u64::MAX;

/// Elements in C order, of all of it or of chunks.
pub(super) enum Layout {
    /// From here.
    Contiguous(u64),
    /// In chunks of a shape, all of one size, whose places are in C order. What has no place was never
    /// written: it is the fill value.
    Chunked { chunk: Vec<usize>, grid: Vec<usize>, places: Vec<u64>, fill: Vec<u8> },
}

pub(super) fn contiguous(Locked { library, .. }: &Locked, dataset: &Object) -> Option<Layout> {
    // SAFETY: the dataset is open.
    let offset = unsafe { (library.H5Dget_offset)(dataset.id) };
    (offset != NOWHERE).then_some(Layout::Contiguous(offset))
}

pub(super) fn chunked(
    locked: &Locked,
    dataset: &Object,
    created: &Object,
    dtype: DType,
    shape: &[usize],
    chunk: &[usize],
) -> io::Result<Layout> {
    let library = &locked.library;
    let grid: Vec<usize> = shape.iter().zip(chunk).map(|(&length, &chunk)| length.div_ceil(chunk)).collect();
    let bytes = count(chunk).saturating_mul(dtype.size());
    let addresses = match library.H5Dchunk_iter {
        Some(visit) => visited(visit, dataset, Found::new(chunk, &grid, bytes))?,
        None => asked(locked, dataset, chunk, &grid, bytes)?,
    };
    let mut fill = vec![0; dtype.size()];
    let memory = dataset_type(locked, dtype, true)?;
    // SAFETY: there is room for an element of the type.
    let code =
        unsafe { (library.H5Pget_fill_value)(created.id, memory.id(), fill.as_mut_ptr().cast::<c_void>()) };
    if code < 0 {
        return Err(wrong("its fill value cannot be read"));
    }
    Ok(Layout::Chunked { chunk: chunk.to_vec(), grid, places: addresses, fill })
}

/// Whether the library looks at all chunks for each one that it is asked for, and there are so many that to
/// ask for each takes long.
pub(super) fn takes_long(locked: &Locked, shape: &[usize], chunk: &[usize]) -> bool {
    let chunks = shape.iter().zip(chunk).map(|(&length, &chunk)| length.div_ceil(chunk));
    locked.library.H5Dchunk_iter.is_none() && chunks.product::<usize>() > ASKED
}

/// Some seconds.
const ASKED: usize = 1 << 14;

fn wrong_chunk() -> io::Error {
    wrong("a chunk has no place, or another size than it should: the file is damaged")
}

/// Where chunks lie, as it is told.
struct Found<'a> {
    chunk: &'a [usize],
    grid: &'a [usize],
    steps: Vec<usize>,
    bytes: usize,
    places: Vec<u64>,
    is_right: bool,
}

impl<'a> Found<'a> {
    fn new(chunk: &'a [usize], grid: &'a [usize], bytes: usize) -> Self {
        let places = vec![NOWHERE; count(grid)];
        Self { chunk, grid, steps: strides(grid), bytes, places, is_right: true }
    }

    fn note(&mut self, first: &[u64], address: u64, size: u64) {
        let mut number = 0;
        self.is_right &= size == self.bytes as u64;
        for (axis, &first) in first.iter().enumerate() {
            let (at, chunk) = (first as usize / self.chunk[axis], self.chunk[axis]);
            // What a damaged file says may be any number.
            if !(first as usize).is_multiple_of(chunk) || at >= self.grid[axis] {
                self.is_right = false;
                return;
            }
            number += at * self.steps[axis];
        }
        self.places[number] = address;
    }
}

/// All at once.
fn visited(visit: Visit, dataset: &Object, mut found: Found<'_>) -> io::Result<Vec<u64>> {
    unsafe extern "C" fn told(
        first: *const u64,
        _: c_uint,
        address: u64,
        size: u64,
        to: *mut c_void,
    ) -> c_int {
        // SAFETY: it is what `visited` gave, which nobody else uses meanwhile; the library gives as many
        // numbers as there are axes.
        let (found, first) = unsafe {
            let found = &mut *to.cast::<Found<'_>>();
            let axes = found.grid.len();
            (found, std::slice::from_raw_parts(first, axes))
        };
        found.note(first, address, size);
        // On to the next one, or that is enough.
        c_int::from(!found.is_right)
    }
    let to = (&raw mut found).cast::<c_void>();
    // SAFETY: the dataset is open; `told` is called before it returns, with `found`.
    let code = unsafe { visit(dataset.id, 0, told, to) };
    if code < 0 || !found.is_right { Err(wrong_chunk()) } else { Ok(found.places) }
}

/// One by one: for each the library looks at those before it.
fn asked(
    Locked { library, .. }: &Locked,
    dataset: &Object,
    chunk: &[usize],
    grid: &[usize],
    bytes: usize,
) -> io::Result<Vec<u64>> {
    let mut addresses = Vec::new();
    for place in places(grid) {
        let first: Vec<u64> = place.iter().zip(chunk).map(|(&at, &chunk)| (at * chunk) as u64).collect();
        let (mut mask, mut address, mut size) = (0, NOWHERE, 0);
        // SAFETY: there are as many coordinates as axes; it writes three numbers.
        let code = unsafe {
            (library.H5Dget_chunk_info_by_coord)(
                dataset.id,
                first.as_ptr(),
                &raw mut mask,
                &raw mut address,
                &raw mut size,
            )
        };
        if code < 0 || (address != NOWHERE && size != bytes as u64) {
            return Err(wrong_chunk());
        }
        addresses.push(address);
    }
    Ok(addresses)
}

/// Bytes that lie together in the file: from where, and where each of their rows is in the block.
pub(super) struct Rows {
    /// `NOWHERE`: they were never written.
    from: u64,
    at: Vec<usize>,
    len: usize,
}

impl Layout {
    /// Calls `each` for all that lies together of a region, whose elements have so many bytes.
    pub(super) fn rows(
        &self,
        shape: &[usize],
        region: &Region,
        size: usize,
        mut each: impl FnMut(&Rows) -> io::Result<()>,
    ) -> io::Result<()> {
        if region.is_empty() {
            return Ok(());
        }
        let whole = vec![1];
        match self {
            Self::Contiguous(offset) => {
                let all = Part { origin: &vec![0; shape.len()], shape, offset: *offset };
                all.rows(region, size, &mut each)
            }
            Self::Chunked { chunk, grid, places: addresses, .. } => {
                let chunk = if chunk.is_empty() { &whole } else { chunk };
                let first: Vec<usize> =
                    region.start.iter().zip(chunk).map(|(start, chunk)| start / chunk).collect();
                let ends = region.start.iter().zip(&region.shape).map(|(start, count)| start + count);
                let counts: Vec<usize> = ends
                    .zip(chunk)
                    .zip(&first)
                    .map(|((end, chunk), first)| end.div_ceil(*chunk) - first)
                    .collect();
                let steps = strides(grid);
                for place in places(&counts) {
                    let place: Vec<usize> = place.iter().zip(&first).map(|(at, first)| at + first).collect();
                    let number: usize = place.iter().zip(&steps).map(|(at, step)| at * step).sum();
                    let origin: Vec<usize> = place.iter().zip(chunk).map(|(at, chunk)| at * chunk).collect();
                    Part { origin: &origin, shape: chunk, offset: addresses[number] }
                        .rows(region, size, &mut each)?;
                }
                Ok(())
            }
        }
    }
}

/// A chunk, or all of it: its first element, its shape, and where it lies.
struct Part<'a> {
    origin: &'a [usize],
    shape: &'a [usize],
    offset: u64,
}

impl Part<'_> {
    fn rows(
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
pub(super) fn read(file: &File, layout: &Layout, size: usize, rows: &Rows, to: &mut [u8]) -> io::Result<()> {
    if rows.from == NOWHERE {
        let Layout::Chunked { fill, .. } = layout else { return Err(wrong("it has no place in the file")) };
        for &at in &rows.at {
            to[at..at + rows.len].chunks_exact_mut(size).for_each(|element| element.copy_from_slice(fill));
        }
        return Ok(());
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_told_of_a_damaged_file_is_refused() {
        let (chunk, grid) = ([2, 3], [2, 4]);
        let mut found = Found::new(&chunk, &grid, 24);
        found.note(&[2, 9], 77, 24);
        assert!(found.is_right);
        assert_eq!(found.places, [NOWHERE, NOWHERE, NOWHERE, NOWHERE, NOWHERE, NOWHERE, NOWHERE, 77]);
        let largest = u64::MAX - 1;
        for (first, size) in [
            ([4, 0], 24),
            ([0, 12], 24),
            ([1, 0], 24),
            ([0, 0], 25),
            ([largest, largest], 24),
            ([0, largest], 24),
        ] {
            let mut found = Found::new(&chunk, &grid, 24);
            found.note(&first, 77, size);
            assert!(!found.is_right, "{first:?} {size}");
        }
    }
}
