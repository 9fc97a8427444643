//! Shapes, and how they are cut into blocks.

use crate::error::Error;

/// The shape to which all of these stretch: axes of length 1 repeat, missing ones are put in front.
///
/// # Errors
/// If there is none.
pub(crate) fn broadcast(what: &'static str, shapes: &[&[usize]]) -> Result<Vec<usize>, Error> {
    let dimensions = shapes.iter().map(|shape| shape.len()).max().unwrap_or(0);
    let mut result = vec![1; dimensions];
    for shape in shapes {
        let skipped = dimensions - shape.len();
        for (axis, &length) in shape.iter().enumerate() {
            let at = &mut result[skipped + axis];
            if *at == 1 {
                *at = length;
            } else if length != 1 && length != *at {
                let shapes = shapes.iter().map(|shape| shape.to_vec()).collect();
                return Err(Error::Shapes { what, shapes });
            }
        }
    }
    possible(what, &result)?;
    Ok(result)
}

/// That an array that is made of others is no larger than one that is read can be.
///
/// # Errors
/// If it is: there is no memory for it.
pub(crate) fn possible(what: &'static str, shape: &[usize]) -> Result<(), Error> {
    if is_possible(shape, 1) {
        return Ok(());
    }
    let why = format!("{} has more than 2^48 elements", crate::error::shape_text(shape));
    Err(Error::no_memory(format!("{what} of arrays"), &why))
}

/// An axis by its number, or counted from the last (−1).
///
/// # Errors
/// If there is none.
pub(crate) fn axis(axis: isize, dimensions: usize) -> Result<usize, Error> {
    let found = if axis < 0 { axis + dimensions as isize } else { axis };
    if (0..dimensions as isize).contains(&found) {
        Ok(found as usize)
    } else {
        Err(Error::Axis { axis, dimensions })
    }
}

/// Axes, each once, in ascending order.
///
/// # Errors
/// If one is there twice, or there is none of that number.
pub(crate) fn axes(given: &[isize], dimensions: usize) -> Result<Vec<usize>, Error> {
    let mut found: Vec<usize> =
        given.iter().map(|&given| axis(given, dimensions)).collect::<Result<_, _>>()?;
    found.sort_unstable();
    if found.windows(2).any(|pair| pair[0] == pair[1]) {
        return Err(Error::Value("an axis is named twice".into()));
    }
    Ok(found)
}

/// How far apart in memory neighbours along each axis are, in elements, if an array lies there in C order.
pub(crate) fn strides(shape: &[usize]) -> Vec<usize> {
    let mut strides = vec![1; shape.len()];
    for axis in (1..shape.len()).rev() {
        strides[axis - 1] = strides[axis] * shape[axis];
    }
    strides
}

/// Goes to the next place in C order. Returns whether there is one.
pub(crate) fn next(place: &mut [usize], shape: &[usize]) -> bool {
    for axis in (0..shape.len()).rev() {
        place[axis] += 1;
        if place[axis] < shape[axis] {
            return true;
        }
        place[axis] = 0;
    }
    false
}

/// All places of a shape in C order.
pub(crate) fn places(shape: &[usize]) -> impl Iterator<Item = Vec<usize>> + use<> {
    let shape = shape.to_vec();
    let mut at = if shape.contains(&0) { None } else { Some(vec![0; shape.len()]) };
    std::iter::from_fn(move || {
        let place = at.clone()?;
        if !at.as_mut().is_some_and(|at| next(at, &shape)) {
            at = None;
        }
        Some(place)
    })
}

/// A part of an array: from where, and how many, along each axis.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Region {
    /// The first one along each axis.
    pub start: Vec<usize>,
    /// How many along each.
    pub shape: Vec<usize>,
}

/// How many elements a shape has; as many as a number can say if there are more.
pub(crate) fn count(shape: &[usize]) -> usize {
    if shape.contains(&0) {
        return 0;
    }
    shape.iter().fold(1, |count: usize, &length| count.saturating_mul(length))
}

/// So many blocks an array has at most that is cut regularly, and so many tasks there are: each takes some
/// hundred bytes, which are in no budget.
pub const MOST_BLOCKS: usize = 1 << 24;

/// So many elements an array has at most that is read: its blocks have to be listed.
const MOST: usize = 1 << 48;

/// Whether an array can have this shape, which a file or somebody says, of elements of so many bytes: its
/// blocks can be listed. Beside an axis without elements others are no longer than NumPy has them, so that
/// products of lengths are numbers.
pub fn is_possible(shape: &[usize], size: usize) -> bool {
    let mut lengths = shape.iter().filter(|&&length| length > 0);
    let bytes = lengths.try_fold(size, |bytes, &length| bytes.checked_mul(length));
    bytes.is_some_and(|bytes| bytes <= isize::MAX as usize) && count(shape) <= MOST
}

impl Region {
    /// How many elements it has.
    pub fn len(&self) -> usize {
        count(&self.shape)
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Along each axis the lengths of blocks, one behind the other. An axis of length 0 has one block of length
/// 0.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Chunks(Vec<Vec<usize>>);

impl Chunks {
    /// From lengths that add up to the shape.
    ///
    /// # Errors
    /// If they do not.
    pub fn new(shape: &[usize], lengths: Vec<Vec<usize>>) -> Result<Self, Error> {
        let is_right = |(lengths, &length): (&Vec<usize>, &usize)| {
            lengths.iter().sum::<usize>() == length
                && !lengths.is_empty()
                && (lengths.iter().all(|&length| length > 0) || lengths[..] == [0])
        };
        if lengths.len() != shape.len() || !lengths.iter().zip(shape).all(is_right) {
            let shape = crate::error::shape_text(shape);
            return Err(Error::Value(format!("chunks {lengths:?} do not add up to the shape {shape}")));
        }
        Ok(Self(lengths))
    }

    /// Of one length along each axis, the last ones may be shorter; 0 is the whole axis. What has no elements
    /// is one block.
    pub fn regular(shape: &[usize], chunk: &[usize]) -> Self {
        if shape.contains(&0) {
            // No limit of elements says how long its other axes are.
            return Self::whole(shape);
        }
        let cut = |(&length, &chunk): (&usize, &usize)| {
            let chunk = if chunk == 0 { length } else { chunk };
            let mut lengths = vec![chunk; length / chunk];
            if length % chunk > 0 {
                lengths.push(length % chunk);
            }
            lengths
        };
        Self(shape.iter().zip(chunk).map(cut).collect())
    }

    /// Of at most so many elements each, as near to cubes as can be, each side a multiple of `unit`'s (a
    /// file's chunks).
    pub fn of_at_most(shape: &[usize], elements: usize, unit: &[usize]) -> Self {
        if shape.contains(&0) {
            return Self::whole(shape);
        }
        // Each side is so long when the shortest one that is not whole is: units at once, of which there may
        // be very many.
        let sides = |least: usize| {
            let side = |(&length, &unit): (&usize, &usize)| {
                let (first, unit) = (unit.clamp(1, length), unit.max(1));
                let units = least.saturating_sub(first).div_ceil(unit);
                first.saturating_add(units.saturating_mul(unit)).min(length)
            };
            shape.iter().zip(unit).map(side).collect::<Vec<usize>>()
        };
        // So long at least, and not so long.
        let (mut least, mut most) = (1, shape.iter().copied().max().unwrap_or(1) + 1);
        while least + 1 < most {
            let middle = least.midpoint(most);
            *(if count(&sides(middle)) > elements.max(1) { &mut most } else { &mut least }) = middle;
        }
        let mut chunk = sides(least);
        loop {
            // The shortest side that is not whole grows, if the block still is not too large.
            let candidates = (0..shape.len()).filter(|&axis| chunk[axis] < shape[axis]);
            let Some(axis) = candidates.min_by_key(|&axis| chunk[axis]) else { break };
            let longer = (chunk[axis] + unit[axis].max(1)).min(shape[axis]);
            if chunk.iter().product::<usize>() / chunk[axis] * longer > elements.max(1) {
                break;
            }
            chunk[axis] = longer;
        }
        Self::regular(shape, &chunk)
    }

    /// Blocks that begin and end where pieces of so many elements do: each the nearest before.
    pub(crate) fn aligned(&self, unit: &[usize]) -> Self {
        let along = |(starts, &unit): (Vec<usize>, &usize)| {
            let (end, starts) = starts.split_last().expect("an end behind the last block");
            let mut bounds: Vec<usize> = starts.iter().map(|start| start - start % unit.max(1)).collect();
            bounds.dedup();
            bounds.push(*end);
            bounds.windows(2).map(|pair| pair[1] - pair[0]).collect()
        };
        Self(self.starts().into_iter().zip(unit).map(along).collect())
    }

    /// Everything in one block.
    pub fn whole(shape: &[usize]) -> Self {
        Self(shape.iter().map(|&length| vec![length]).collect())
    }

    /// The lengths along each axis.
    pub fn lengths(&self) -> &[Vec<usize>] {
        &self.0
    }

    pub(crate) fn from_lengths(lengths: Vec<Vec<usize>>) -> Self {
        Self(lengths)
    }

    /// How many blocks there are along each axis.
    pub fn grid(&self) -> Vec<usize> {
        self.0.iter().map(Vec::len).collect()
    }

    /// What they add up to.
    pub fn shape(&self) -> Vec<usize> {
        self.0.iter().map(|lengths| lengths.iter().sum()).collect()
    }

    /// The shape of a block.
    pub fn block(&self, place: &[usize]) -> Vec<usize> {
        self.0.iter().zip(place).map(|(lengths, &at)| lengths[at]).collect()
    }

    /// Where the blocks begin along each axis, and the end.
    pub(crate) fn starts(&self) -> Vec<Vec<usize>> {
        let starts = |lengths: &Vec<usize>| {
            let mut starts = vec![0];
            for length in lengths {
                starts.push(starts[starts.len() - 1] + length);
            }
            starts
        };
        self.0.iter().map(starts).collect()
    }

    /// All blocks, in C order of their places.
    pub fn regions(&self) -> impl Iterator<Item = Region> + use<> {
        let starts = self.starts();
        let chunks = self.clone();
        places(&self.grid()).map(move |place| Region {
            start: starts.iter().zip(&place).map(|(starts, &at)| starts[at]).collect(),
            shape: chunks.block(&place),
        })
    }

    /// The most elements a block has.
    pub fn largest(&self) -> usize {
        self.0.iter().map(|lengths| lengths.iter().copied().max().unwrap_or(0)).product()
    }

    /// The chunks that operands of one result are cut into, whose shapes stretch to `shape`: along each axis
    /// those of the operand that is largest there, so that the most need not be cut anew.
    pub(crate) fn common(shape: &[usize], operands: &[&Chunks]) -> Self {
        let axis = |axis: usize| {
            let mut best: Option<(usize, &Vec<usize>)> = None;
            for chunks in operands {
                let Some(at) = (axis + chunks.0.len()).checked_sub(shape.len()) else { continue };
                let lengths = &chunks.0[at];
                if lengths.iter().sum::<usize>() != shape[axis] {
                    continue;
                }
                let size = chunks.shape().iter().product();
                if best.is_none_or(|(largest, _)| size > largest) {
                    best = Some((size, lengths));
                }
            }
            best.map_or_else(|| vec![shape[axis]], |(_, lengths)| lengths.clone())
        };
        Self((0..shape.len()).map(axis).collect())
    }

    /// The same if no block has more than so many elements (or 2^20); else the longest ones are cut in halves
    /// until none has.
    pub(crate) fn limited(mut self, elements: usize) -> Self {
        let most = elements.max(1 << 20);
        while self.largest() > most {
            let longest = |lengths: &Vec<usize>| lengths.iter().copied().max().unwrap_or(0);
            let Some(axis) = (0..self.0.len()).max_by_key(|&axis| longest(&self.0[axis])) else { break };
            let half = longest(&self.0[axis]).div_ceil(2);
            let cut = |&length: &usize| {
                let pieces = length.div_ceil(half.max(1)).max(1);
                (0..pieces).map(move |piece| length / pieces + usize::from(piece < length % pieces))
            };
            self.0[axis] = self.0[axis].iter().flat_map(cut).collect();
        }
        self
    }

    /// These as an operand of a result with `result` chunks: whole along axes that stretch.
    pub(crate) fn as_operand(shape: &[usize], result: &Chunks) -> Self {
        let skipped = result.0.len() - shape.len();
        let along = |(axis, &length): (usize, &usize)| {
            let lengths = &result.0[skipped + axis];
            if lengths.iter().sum::<usize>() == length { lengths.clone() } else { vec![length] }
        };
        Self(shape.iter().enumerate().map(along).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_stretch_as_numpy_has_it() {
        let of = |shapes: &[&[usize]]| broadcast("add", shapes).ok();
        assert_eq!(of(&[&[3, 1], &[4]]), Some(vec![3, 4]));
        assert_eq!(of(&[&[], &[2, 0]]), Some(vec![2, 0]));
        assert_eq!(of(&[&[1], &[0]]), Some(vec![0]));
        assert_eq!(of(&[&[3], &[4]]), None);
        assert_eq!(of(&[&[2], &[0]]), None);
    }

    #[test]
    fn blocks_cover_an_array() {
        let chunks = Chunks::regular(&[5, 4, 3], &[2, 4, 0]);
        assert_eq!(chunks.lengths(), [vec![2, 2, 1], vec![4], vec![3]]);
        assert_eq!(chunks.shape(), [5, 4, 3]);
        let starts: Vec<usize> = chunks.regions().map(|region| region.start[0]).collect();
        assert_eq!(starts, [0, 2, 4]);
        assert!(Chunks::new(&[5], vec![vec![3, 3]]).is_err());
        assert!(Chunks::new(&[0], vec![vec![]]).is_err());
        assert_eq!(Chunks::of_at_most(&[4000, 200_000], 1 << 20, &[250, 250]).block(&[0, 0]), [1000, 1000]);
        assert_eq!(Chunks::of_at_most(&[10, 100_000], 1 << 20, &[1, 1]).block(&[0, 0]), [10, 100_000]);
        let aligned = |lengths: &[usize], unit: usize| {
            let shape = [lengths.iter().sum()];
            Chunks::new(&shape, vec![lengths.to_vec()]).unwrap().aligned(&[unit]).lengths()[0].clone()
        };
        assert_eq!(aligned(&[5, 5, 5], 5), [5, 5, 5]);
        assert_eq!(aligned(&[4, 4, 4, 4], 3), [3, 3, 6, 4]);
        assert_eq!(aligned(&[2, 2, 2], 10), [6]);
        assert_eq!(aligned(&[7, 1, 8], 8), [8, 8]);
        assert_eq!(aligned(&[0], 3), [0]);
        assert_eq!(places(&[]).count(), 1);
        assert_eq!(places(&[2, 0]).count(), 0);
    }

    /// The same blocks as when sides grow by a unit at a time, as which they were made first.
    #[test]
    fn blocks_of_very_many_units_are_found_at_once() {
        let slow = |shape: &[usize], elements: usize, unit: &[usize]| {
            let mut chunk: Vec<usize> =
                shape.iter().zip(unit).map(|(&length, &unit)| unit.clamp(1, length)).collect();
            loop {
                let candidates = (0..shape.len()).filter(|&axis| chunk[axis] < shape[axis]);
                let Some(axis) = candidates.min_by_key(|&axis| chunk[axis]) else { return chunk };
                let longer = (chunk[axis] + unit[axis].max(1)).min(shape[axis]);
                if chunk.iter().product::<usize>() / chunk[axis] * longer > elements.max(1) {
                    return chunk;
                }
                chunk[axis] = longer;
            }
        };
        let mut seed = 1_u64;
        let mut below = |end: usize| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) as usize % end
        };
        for _ in 0..3000 {
            let axes = below(4);
            let shape: Vec<usize> = (0..axes).map(|_| 1 + below(40)).collect();
            let unit: Vec<usize> = (0..axes).map(|_| below(9)).collect();
            let elements = below(2000);
            let first: Vec<usize> = Chunks::of_at_most(&shape, elements, &unit)
                .lengths()
                .iter()
                .map(|lengths| lengths[0])
                .collect();
            assert_eq!(first, slow(&shape, elements, &unit), "{shape:?} {elements} {unit:?}");
        }
        assert_eq!(Chunks::of_at_most(&[1 << 45], 1 << 44, &[1]).lengths(), [vec![1 << 44; 2]]);
        let chunks = Chunks::of_at_most(&[1 << 24, 1 << 24], 1 << 46, &[7, 1]);
        assert_eq!((chunks.block(&[0, 0]), chunks.grid()), (vec![(1 << 23) + 3, (1 << 23) - 3], vec![2, 3]));
    }

    /// A file may say any length beside an axis without elements.
    #[test]
    fn what_has_no_elements_is_one_block() {
        let shape = [0, 1 << 50];
        let whole = [vec![0], vec![1 << 50]];
        assert_eq!(Chunks::regular(&shape, &[1, 1]).lengths(), whole);
        assert_eq!(Chunks::of_at_most(&shape, 1 << 20, &[1, 1]).lengths(), whole);
        assert!(is_possible(&shape, 8) && is_possible(&[1 << 48], 8) && is_possible(&[], 16));
        assert!(!is_possible(&[0, 1 << 62], 8) && !is_possible(&[(1 << 48) + 1], 1));
        assert!(!is_possible(&[0, 1 << 40, 1 << 40], 1));
    }
}
