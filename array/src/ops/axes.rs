//! Axes in another order, more of them or fewer, and arrays behind each other.

use crate::array::{Array, Op};
use crate::error::Error;
use crate::shape::{Chunks, axes, axis};

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

    /// The same blocks with other axes of length 1.
    #[track_caller]
    fn with_axes(&self, lengths: Vec<Vec<usize>>) -> Self {
        if lengths.len() == self.dimensions() {
            return self.clone();
        }
        let of = match &self.0.op {
            Op::Axes(of) => of.clone(),
            _ => self.clone(),
        };
        Self::new(Op::Axes(of), self.dtype(), Chunks::from_lengths(lengths))
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
