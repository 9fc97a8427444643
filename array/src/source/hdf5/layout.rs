//! Where a dataset's elements lie in its file.

use std::ffi::{c_int, c_uint, c_void};
use std::fs::File;
use std::io;

use super::super::pieces::{self, NOWHERE, Piece, Rows, pieces};
use super::library::{Locked, Visit};
use super::object::{Object, dataset_type};
use super::wrong;
use crate::dtype::DType;
use crate::shape::{Region, count, places, strides};

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

/// Nothing if there are more chunks than there is room for.
pub(super) fn chunked(
    locked: &Locked,
    dataset: &Object,
    created: &Object,
    dtype: DType,
    shape: &[usize],
    chunk: &[usize],
) -> io::Result<Option<Layout>> {
    let grid = grid(shape, chunk);
    let bytes = count(chunk).saturating_mul(dtype.size());
    let Some(room) = room(count(&grid)) else { return Ok(None) };
    let addresses = match locked.library.H5Dchunk_iter {
        Some(visit) => visited(visit, dataset, Found::new(chunk, &grid, bytes, room))?,
        None => asked(locked, dataset, chunk, &grid, bytes, room)?,
    };
    let fill = fill(locked, created, dtype)?;
    Ok(Some(Layout::Chunked { chunk: chunk.to_vec(), grid, places: addresses, fill }))
}

/// `H5D_FILL_VALUE_UNDEFINED`, and `H5D_FILL_TIME_NEVER`.
const UNDEFINED: c_int = 0;
const NEVER: c_int = 1;

/// What elements are that were never written. Nothing in particular, where there is no value for them, or
/// it is never used: then zeros, as the library leaves of what it reads into.
fn fill(locked: &Locked, created: &Object, dtype: DType) -> io::Result<Vec<u8>> {
    let library = &locked.library;
    let mut fill = vec![0; dtype.size()];
    let (mut defined, mut time) = (UNDEFINED, NEVER);
    // SAFETY: it is a property list of a dataset; each writes a number.
    let codes = unsafe {
        [
            (library.H5Pfill_value_defined)(created.id, &raw mut defined),
            (library.H5Pget_fill_time)(created.id, &raw mut time),
        ]
    };
    let mut is_known = codes.iter().all(|&code| code >= 0);
    if is_known && defined != UNDEFINED && time != NEVER {
        let memory = dataset_type(locked, dtype, true)?;
        let to = fill.as_mut_ptr().cast::<c_void>();
        // SAFETY: there is room for an element of the type.
        is_known = unsafe { (library.H5Pget_fill_value)(created.id, memory.id(), to) } >= 0;
    }
    if is_known { Ok(fill) } else { Err(wrong("its fill value cannot be read")) }
}

/// How many chunks there are along each axis.
fn grid(shape: &[usize], chunk: &[usize]) -> Vec<usize> {
    shape.iter().zip(chunk).map(|(&length, &chunk)| length.div_ceil(chunk)).collect()
}

/// Whether there are no more chunks than can be listed, where there is memory for it.
pub(super) fn are_listed(shape: &[usize], chunk: &[usize]) -> bool {
    count(&grid(shape, chunk)) <= LISTED
}

/// Room for the places of so many chunks. A file of a few bytes may say that there are any number of them.
fn room(chunks: usize) -> Option<Vec<u64>> {
    let mut places = Vec::new();
    let is_there = chunks <= LISTED && places.try_reserve_exact(chunks).is_ok();
    is_there.then_some(places)
}

/// Half a gigabyte of places.
pub(super) const LISTED: usize = 1 << 26;

/// Whether the library looks at all chunks for each one that it is asked for, and there are so many that to
/// ask for each takes long.
pub(super) fn takes_long(locked: &Locked, shape: &[usize], chunk: &[usize]) -> bool {
    locked.library.H5Dchunk_iter.is_none() && count(&grid(shape, chunk)) > ASKED
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
    /// In a list that there is room for.
    fn new(chunk: &'a [usize], grid: &'a [usize], bytes: usize, mut places: Vec<u64>) -> Self {
        places.resize(count(grid), NOWHERE);
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
    mut addresses: Vec<u64>,
) -> io::Result<Vec<u64>> {
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
        match self {
            Self::Contiguous(offset) => {
                let all = Piece { origin: &vec![0; shape.len()], shape, offset: *offset };
                all.rows(region, size, &mut each)
            }
            Self::Chunked { chunk, grid, places: addresses, .. } => {
                let steps = strides(grid);
                pieces(region, chunk, |place, origin| {
                    let number: usize = place.iter().zip(&steps).map(|(at, step)| at * step).sum();
                    Piece { origin, shape: chunk, offset: addresses[number] }.rows(region, size, &mut each)
                })
            }
        }
    }

    /// Reads rows into a block's bytes.
    pub(super) fn read(&self, file: &File, rows: &Rows, to: &mut [u8]) -> io::Result<()> {
        match self {
            Self::Chunked { fill, .. } if rows.from == NOWHERE => {
                rows.fill(fill, to);
                Ok(())
            }
            _ => pieces::read(file, rows, to),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_told_of_a_damaged_file_is_refused() {
        let (chunk, grid) = ([2, 3], [2, 4]);
        let mut found = Found::new(&chunk, &grid, 24, Vec::new());
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
            let mut found = Found::new(&chunk, &grid, 24, Vec::new());
            found.note(&first, 77, size);
            assert!(!found.is_right, "{first:?} {size}");
        }
    }

    #[test]
    fn places_that_there_is_no_room_for_are_not_listed() {
        assert!(room(1 << 35).is_none() && room(usize::MAX).is_none());
        assert!(room(8).is_some_and(|places| places.capacity() >= 8));
    }
}
