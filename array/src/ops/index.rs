//! Slices.

use crate::array::Array;
use crate::error::Error;
use crate::shape::Chunks;

/// What is taken along an axis, as between Python's brackets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Index {
    /// One element, counted from the end if it is negative; the axis is gone.
    At(isize),
    /// `start:stop:step`.
    Range(Option<isize>, Option<isize>, isize),
    /// A new axis of length 1.
    New,
    /// As many whole axes as are missing.
    Ellipsis,
}

impl From<isize> for Index {
    fn from(at: isize) -> Self {
        Self::At(at)
    }
}

impl From<std::ops::Range<isize>> for Index {
    fn from(range: std::ops::Range<isize>) -> Self {
        Self::Range(Some(range.start), Some(range.end), 1)
    }
}

impl From<std::ops::RangeFull> for Index {
    fn from(_: std::ops::RangeFull) -> Self {
        Self::Range(None, None, 1)
    }
}

/// Where a range begins, and how many it has, as `slice.indices` has it.
fn bounds(start: Option<isize>, stop: Option<isize>, step: isize, length: usize) -> (usize, usize) {
    let length = length as isize;
    let (low, high) = if step < 0 { (-1, length - 1) } else { (0, length) };
    let clamp = |at: isize| (if at < 0 { at.saturating_add(length) } else { at }).clamp(low, high);
    let start = start.map_or(if step < 0 { high } else { low }, clamp);
    let stop = stop.map_or(if step < 0 { low } else { high }, clamp);
    let distance = if step < 0 { start - stop } else { stop - start };
    let count = if distance <= 0 { 0 } else { (distance as usize).div_ceil(step.unsigned_abs()) };
    (start.max(0) as usize, count)
}

/// How many elements of each block a range takes, in the range's order.
fn lengths(blocks: &[usize], start: usize, step: isize, count: usize) -> Vec<usize> {
    let mut lengths = Vec::new();
    let mut at = start as isize;
    let mut left = count;
    let ends: Vec<usize> = blocks
        .iter()
        .scan(0, |end, length| {
            *end += length;
            Some(*end)
        })
        .collect();
    while left > 0 {
        let block = ends.partition_point(|&end| end <= at as usize);
        let room = if step > 0 {
            (ends[block] as isize - at) as usize
        } else {
            (at + 1) as usize - (ends[block] - blocks[block])
        };
        let taken = room.div_ceil(step.unsigned_abs()).min(left);
        lengths.push(taken);
        left -= taken;
        // Behind the last one there may be no number.
        at = at.saturating_add(step.saturating_mul(taken as isize));
    }
    if lengths.is_empty() { vec![0] } else { lengths }
}

impl Array {
    /// A part of it: `x.index(&[Index::At(-1), (2..5).into()])` is `x[-1, 2:5]`.
    ///
    /// # Errors
    /// If there are more indices than axes, one is out of range, or a step is 0.
    #[track_caller]
    pub fn index(&self, indices: &[Index]) -> Result<Self, Error> {
        let named = indices.iter().filter(|index| matches!(index, Index::At(_) | Index::Range(..))).count();
        let ellipses = indices.iter().filter(|index| matches!(index, Index::Ellipsis)).count();
        let dimensions = self.dimensions();
        if named > dimensions || ellipses > 1 {
            return Err(Error::Index { index: named as isize, axis: dimensions, length: dimensions });
        }
        let whole = Index::Range(None, None, 1);
        let mut all: Vec<Index> = Vec::with_capacity(indices.len() + dimensions);
        for &index in indices {
            match index {
                Index::Ellipsis => all.extend(std::iter::repeat_n(whole, dimensions - named)),
                other => all.push(other),
            }
        }
        if ellipses == 0 {
            all.extend(std::iter::repeat_n(whole, dimensions - named));
        }
        let (mut from, mut cut) = (Vec::with_capacity(dimensions), Vec::with_capacity(dimensions));
        // Axes that are gone, and where new ones come: in the numbers of the slice's axes.
        let (mut gone, mut new) = (Vec::new(), Vec::new());
        let mut left = 0;
        for index in all {
            let axis = from.len();
            match index {
                Index::New => {
                    new.push(left);
                    left += 1;
                }
                Index::Ellipsis => {}
                Index::At(index) => {
                    let length = self.shape()[axis];
                    let at = if index < 0 { index + length as isize } else { index };
                    if !(0..length as isize).contains(&at) {
                        return Err(Error::Index { index, axis, length });
                    }
                    from.push((at as usize, 1));
                    cut.push(vec![1]);
                    gone.push(axis);
                }
                Index::Range(start, stop, step) => {
                    if step == 0 {
                        return Err(Error::Value("slice step cannot be zero".into()));
                    }
                    let (start, count) = bounds(start, stop, step, self.shape()[axis]);
                    // Of one element no other is so far away that there is no number for it.
                    from.push((if count == 0 { 0 } else { start }, if count > 1 { step } else { 1 }));
                    cut.push(lengths(&self.chunks().lengths()[axis], start, step, count));
                    left += 1;
                }
            }
        }
        let every = from.iter().zip(self.shape()).zip(&cut);
        let is_all = every
            .clone()
            .all(|((&from, &length), cut)| from == (0, 1) && cut.iter().sum::<usize>() == length);
        let mut result = if is_all { self.clone() } else { self.sliced(&from, Chunks::from_lengths(cut)) };
        result = result.without(&gone);
        for at in new {
            result = result.expand_dims(at as isize)?;
        }
        Ok(result)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_pythons() {
        // range(n)[start:stop:step]: first and count.
        for length in 0..6_usize {
            for step in [-3, -2, -1, 1, 2, 3] {
                for start in [None, Some(-7), Some(-2), Some(0), Some(1), Some(4), Some(9)] {
                    for stop in [None, Some(-7), Some(-2), Some(0), Some(1), Some(4), Some(9)] {
                        let at = |given: Option<isize>, default: isize, low: isize, high: isize| {
                            let Some(given) = given else { return default };
                            (if given < 0 { given + length as isize } else { given }).max(low).min(high)
                        };
                        let end = length as isize;
                        let (first, last) = if step > 0 {
                            (at(start, 0, 0, end), at(stop, end, 0, end))
                        } else {
                            (at(start, end - 1, -1, end - 1), at(stop, -1, -1, end - 1))
                        };
                        let mut seen = Vec::new();
                        let mut place = first;
                        while if step > 0 { place < last } else { place > last } {
                            seen.push(place);
                            place += step;
                        }
                        let (start, count) = bounds(start, stop, step, length);
                        assert_eq!(count, seen.len());
                        assert!(count == 0 || start as isize == seen[0]);
                    }
                }
            }
        }
    }

    #[test]
    fn a_slice_has_a_block_for_each_one_that_it_takes_from() {
        assert_eq!(lengths(&[3, 3, 2], 1, 1, 7), [2, 3, 2]);
        assert_eq!(lengths(&[3, 3, 2], 1, 3, 3), [1, 1, 1]);
        assert_eq!(lengths(&[3, 3, 2], 7, -2, 4), [1, 2, 1]);
        assert_eq!(lengths(&[3, 3, 2], 0, 5, 2), [1, 1]);
        assert_eq!(lengths(&[3], 0, 1, 0), [0]);
    }
}
