//! Axes in another order, more of them or fewer, and arrays behind each other.

use crate::array::{Array, Op};
use crate::error::Error;
use crate::shape::{Chunks, axes, axis, count, possible};

impl Array {
    /// With axes in another order: axis `k` of the result is this one's `order[k]`; without an order,
    /// reversed.
    ///
    /// # Errors
    /// If the order does not name each axis once.
    #[track_caller]
    pub fn transpose(&self, order: Option<&[isize]>) -> Result<Self, Error> {
        let dimensions = self.dimensions();
        let order: Vec<usize> = match order {
            None => (0..dimensions).rev().collect(),
            Some(order) => {
                if axes(order, dimensions)?.len() != dimensions {
                    return Err(Error::Value("axes do not match the array".into()));
                }
                order.iter().map(|&at| axis(at, dimensions)).collect::<Result<_, _>>()?
            }
        };
        Ok(self.transposed(order))
    }

    /// With axes reversed.
    #[must_use]
    #[track_caller]
    pub fn t(&self) -> Self {
        self.transposed((0..self.dimensions()).rev().collect())
    }

    #[track_caller]
    pub(crate) fn transposed(&self, order: Vec<usize>) -> Self {
        if order.iter().copied().eq(0..order.len()) {
            return self.clone();
        }
        if let Op::Transpose(before, of) = &self.0.op {
            return of.transposed(order.iter().map(|&at| before[at]).collect());
        }
        let lengths = order.iter().map(|&at| self.chunks().lengths()[at].clone()).collect();
        Self::new(Op::Transpose(order, self.clone()), self.dtype(), Chunks::from_lengths(lengths))
    }

    /// With two axes exchanged.
    ///
    /// # Errors
    /// If there is one of them not.
    #[track_caller]
    pub fn swapaxes(&self, one: isize, other: isize) -> Result<Self, Error> {
        let (one, other) = (axis(one, self.dimensions())?, axis(other, self.dimensions())?);
        let mut order: Vec<usize> = (0..self.dimensions()).collect();
        order.swap(one, other);
        Ok(self.transposed(order))
    }

    /// With an axis at another place, the others in their order.
    ///
    /// # Errors
    /// If there is one of them not.
    #[track_caller]
    pub fn moveaxis(&self, from: isize, to: isize) -> Result<Self, Error> {
        let (from, to) = (axis(from, self.dimensions())?, axis(to, self.dimensions())?);
        let mut order: Vec<usize> = (0..self.dimensions()).collect();
        let moved = order.remove(from);
        order.insert(to, moved);
        Ok(self.transposed(order))
    }

    /// With an axis of length 1 more, which is that of number `at` then.
    ///
    /// # Errors
    /// If there is none of that number then.
    #[track_caller]
    pub fn expand_dims(&self, at: isize) -> Result<Self, Error> {
        let at = axis(at, self.dimensions() + 1)?;
        let mut lengths = self.chunks().lengths().to_vec();
        lengths.insert(at, vec![1]);
        Ok(self.with_axes(lengths))
    }

    /// Without axes of length 1: all of them, or those that are named.
    ///
    /// # Errors
    /// If one that is named is longer, or is not there.
    #[track_caller]
    pub fn squeeze(&self, named: Option<&[isize]>) -> Result<Self, Error> {
        let gone: Vec<usize> = match named {
            // NumPy's: a scalar has one axis.
            Some([0 | -1]) if self.dimensions() == 0 => Vec::new(),
            Some(named) => axes(named, self.dimensions())?,
            None => (0..self.dimensions()).filter(|&axis| self.shape()[axis] == 1).collect(),
        };
        if gone.iter().any(|&axis| self.shape()[axis] != 1) {
            return Err(Error::Value(
                "cannot select an axis to squeeze out which has size not equal to one".into(),
            ));
        }
        Ok(self.without(&gone))
    }

    /// Without these axes, which have length 1.
    #[track_caller]
    pub(crate) fn without(&self, gone: &[usize]) -> Self {
        let kept = (0..self.dimensions()).filter(|axis| !gone.contains(axis));
        self.with_axes(kept.map(|axis| self.chunks().lengths()[axis].clone()).collect())
    }

    /// The same blocks in other shapes, as many of them.
    #[track_caller]
    fn with_axes(&self, lengths: Vec<Vec<usize>>) -> Self {
        if lengths == self.chunks().lengths() {
            return self.clone();
        }
        let of = match &self.0.op {
            Op::Axes(of) => of.clone(),
            _ => self.clone(),
        };
        Self::new(Op::Axes(of), self.dtype(), Chunks::from_lengths(lengths))
    }

    /// The same elements, in C order, in another shape; one length may be negative: what is left. Where more
    /// than axes of length 1 come and go, blocks are put together of whole rows (of all axes but the first)
    /// of one shape and then of the other, each of which has to fit in memory.
    ///
    /// # Errors
    /// If it has more or fewer elements.
    #[track_caller]
    pub fn reshape(&self, shape: &[isize]) -> Result<Self, Error> {
        let wrong = || {
            let (size, shape) = (self.len(), self.shape());
            Error::Value(format!("cannot reshape array of size {size} from {shape:?}"))
        };
        let given: Vec<usize> =
            shape.iter().filter(|&&length| length >= 0).map(|&length| length as usize).collect();
        // No array is empty that is as long as this along other axes (NumPy's limit).
        let lengths = given.iter().filter(|&&length| length > 0);
        if lengths.fold(1, |all: usize, &length| all.saturating_mul(length)) > isize::MAX as usize {
            return Err(wrong());
        }
        let known = count(&given);
        let unknown = shape.iter().filter(|&&length| length < 0).count();
        if unknown > 1 {
            return Err(wrong());
        }
        if unknown == 1 && (known == 0 || !self.len().is_multiple_of(known)) {
            return Err(wrong());
        }
        let rest = if unknown == 1 { self.len() / known } else { 1 };
        let shape: Vec<usize> =
            shape.iter().map(|&length| if length < 0 { rest } else { length as usize }).collect();
        if count(&shape) != self.len() {
            return Err(wrong());
        }
        if shape == self.shape() {
            return Ok(self.clone());
        }
        if self.is_empty() {
            let chunks = Chunks::whole(&shape);
            return Ok(Self::new(Op::Full(false.into()), self.dtype(), chunks));
        }
        // Axes of length 1 come and go without anything being moved.
        let long = |shape: &[usize]| shape.iter().copied().filter(|&length| length > 1).collect::<Vec<_>>();
        if long(&shape) == long(self.shape()) {
            let axes = (0..self.dimensions()).filter(|&axis| self.shape()[axis] > 1);
            let mut lengths = axes.map(|axis| self.chunks().lengths()[axis].clone());
            let one = || vec![1];
            let lengths = shape.iter().map(|&length| if length > 1 { lengths.next() } else { Some(one()) });
            return Ok(self.with_axes(lengths.flatten().collect()));
        }
        let most = self.chunks().largest();
        // Rows in one block, of one shape or the other: so many at a time.
        let height = |shape: &[usize]| {
            let row: usize = shape[1..].iter().product();
            (row, (most / row).clamp(1, shape[0]))
        };
        let whole = |shape: &[usize], height: usize| {
            let mut chunk = vec![0; shape.len()];
            chunk[0] = height;
            Chunks::regular(shape, &chunk)
        };
        let (row, rows) = height(self.shape());
        let tall = self.in_chunks(&whole(self.shape(), rows));
        let flat = tall.with_axes(vec![tall.chunks().lengths()[0].iter().map(|rows| rows * row).collect()]);
        let (row, rows) = height(&shape);
        let flat = flat.in_chunks(&Chunks::regular(&[self.len()], &[rows * row]));
        Ok(flat.with_axes(whole(&shape, rows).lengths().to_vec()))
    }

    /// In one axis.
    #[must_use]
    #[track_caller]
    pub fn ravel(&self) -> Self {
        self.reshape(&[-1]).unwrap_or_else(|_| self.clone())
    }

    /// One behind the other along an axis; of the type that holds all.
    ///
    /// # Errors
    /// If there are none, or they differ along other axes.
    #[track_caller]
    pub fn concatenate(arrays: &[Self], at: isize) -> Result<Self, Error> {
        let Some(first) = arrays.first() else {
            return Err(Error::Value("need at least one array to concatenate".into()));
        };
        if first.dimensions() == 0 {
            return Err(Error::Value("zero-dimensional arrays cannot be concatenated".into()));
        }
        let at = axis(at, first.dimensions())?;
        let is_like = |other: &Self| {
            let beside = |axis: usize| axis == at || other.shape()[axis] == first.shape()[axis];
            other.dimensions() == first.dimensions() && (0..first.dimensions()).all(beside)
        };
        if !arrays.iter().all(is_like) {
            let shapes = arrays.iter().map(|array| array.shape().to_vec()).collect();
            return Err(Error::Shapes { what: "concatenate", shapes });
        }
        let mut shape = first.shape().to_vec();
        shape[at] = arrays.iter().fold(0, |sum: usize, array| sum.saturating_add(array.shape()[at]));
        possible("concatenate", &shape)?;
        let dtype = arrays.iter().map(Self::dtype).reduce(crate::DType::promote).unwrap_or(first.dtype());
        // Those without elements add no blocks.
        let full: Vec<&Self> = arrays.iter().filter(|array| array.shape()[at] > 0).collect();
        let full = if full.is_empty() { vec![first] } else { full };
        let largest = full.iter().max_by_key(|array| array.len()).map_or(first, |largest| largest);
        let mut lengths = largest.chunks().lengths().to_vec();
        let parts: Vec<Self> = full
            .iter()
            .map(|array| {
                let mut own = lengths.clone();
                own[at].clone_from(&array.chunks().lengths()[at]);
                array.astype(dtype).in_chunks(&Chunks::from_lengths(own))
            })
            .collect();
        lengths[at] = parts.iter().flat_map(|part| part.chunks().lengths()[at].clone()).collect();
        if let [only] = &parts[..] {
            return Ok(only.clone());
        }
        Ok(Self::new(Op::Concatenate(at, parts), dtype, Chunks::from_lengths(lengths)))
    }

    /// Beside each other along a new axis.
    ///
    /// # Errors
    /// If there are none, or their shapes differ.
    #[track_caller]
    pub fn stack(arrays: &[Self], at: isize) -> Result<Self, Error> {
        let Some(first) = arrays.first() else {
            return Err(Error::Value("need at least one array to stack".into()));
        };
        if arrays.iter().any(|array| array.shape() != first.shape()) {
            return Err(Error::Value("all input arrays must have the same shape".into()));
        }
        let expanded: Vec<Self> =
            arrays.iter().map(|array| array.expand_dims(at)).collect::<Result<_, _>>()?;
        Self::concatenate(&expanded, at)
    }
}
