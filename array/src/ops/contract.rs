//! Products that sum over axes.

use crate::array::{Array, Op};
use crate::error::Error;
use crate::kernel::Roles;
use crate::shape::{Chunks, axis, broadcast, possible};

impl Array {
    /// Sums products over pairs of axes: of this one, and of the other (`numpy.tensordot`). The result has
    /// the other axes of this one, then those of the other.
    ///
    /// # Errors
    /// If the axes are not as many, are named twice, are not there, or have different lengths.
    #[track_caller]
    pub fn tensordot(&self, other: &Self, own: &[isize], others: &[isize]) -> Result<Self, Error> {
        let differ =
            || Error::Shapes { what: "tensordot", shapes: vec![self.shape().into(), other.shape().into()] };
        if own.len() != others.len() {
            return Err(differ());
        }
        let named = |array: &Self, named: &[isize]| {
            crate::shape::axes(named, array.dimensions())?;
            named.iter().map(|&at| axis(at, array.dimensions())).collect::<Result<Vec<usize>, Error>>()
        };
        let summed = [named(self, own)?, named(other, others)?];
        if summed[0].iter().zip(&summed[1]).any(|(&one, &two)| self.shape()[one] != other.shape()[two]) {
            return Err(differ());
        }
        let roles = |array: &Self, summed: &[usize]| Roles {
            batch: Vec::new(),
            own: (0..array.dimensions()).filter(|axis| !summed.contains(axis)).collect(),
            summed: summed.to_vec(),
        };
        self.contract(other, [roles(self, &summed[0]), roles(other, &summed[1])])
    }

    /// `numpy.dot`: of vectors the sum of products, of matrices their product, else over the last axis of
    /// this one and the last but one of the other.
    ///
    /// # Errors
    /// If those have different lengths.
    #[track_caller]
    pub fn dot(&self, other: &Self) -> Result<Self, Error> {
        if self.dimensions() == 0 || other.dimensions() == 0 {
            return self.multiply(other);
        }
        let last = self.dimensions() as isize - 1;
        let before = if other.dimensions() == 1 { 0 } else { other.dimensions() as isize - 2 };
        self.tensordot(other, &[last], &[before])
    }

    /// `numpy.matmul`: products of matrices, stacked along all axes but the last two, which stretch.
    ///
    /// # Errors
    /// If one of them has no axis, or their lengths do not fit.
    #[track_caller]
    pub fn matmul(&self, other: &Self) -> Result<Self, Error> {
        let differ =
            || Error::Shapes { what: "matmul", shapes: vec![self.shape().into(), other.shape().into()] };
        if self.dimensions() == 0 || other.dimensions() == 0 {
            return Err(differ());
        }
        if self.dimensions() <= 2 && other.dimensions() <= 2 {
            return self.dot(other);
        }
        // A vector is a matrix of one row or column, which the result does not have.
        let one = if self.dimensions() == 1 { self.expand_dims(0)? } else { self.clone() };
        let two = if other.dimensions() == 1 { other.expand_dims(1)? } else { other.clone() };
        let stack = |array: &Self| array.shape()[..array.dimensions() - 2].to_vec();
        let (left, right) = (stack(&one), stack(&two));
        if one.shape()[left.len() + 1] != two.shape()[right.len()] {
            return Err(differ());
        }
        let batch = broadcast("matmul", &[&left, &right])?;
        let widened = |mut array: Self| {
            while array.dimensions() < batch.len() + 2 {
                array = array.expand_dims(0)?;
            }
            Ok::<_, Error>(array)
        };
        let count = batch.len();
        let roles = |own: usize, summed: usize| Roles {
            batch: (0..count).collect(),
            own: vec![own],
            summed: vec![summed],
        };
        let result =
            widened(one)?.contract(&widened(two)?, [roles(count, count + 1), roles(count + 1, count)])?;
        let mut gone = Vec::new();
        if self.dimensions() == 1 {
            gone.push(count);
        }
        if other.dimensions() == 1 {
            gone.push(count + 1);
        }
        Ok(result.without(&gone))
    }

    #[track_caller]
    fn contract(&self, other: &Self, mut roles: [Roles; 2]) -> Result<Self, Error> {
        let dtype = self.dtype().promote(other.dtype());
        let mut operands = [self.astype(dtype), other.astype(dtype)];
        // Transposed blocks are multiplied as they lie.
        for (operand, roles) in operands.iter_mut().zip(&mut roles) {
            if let Op::Transpose(order, of) = &operand.0.op {
                for axes in [&mut roles.batch, &mut roles.own, &mut roles.summed] {
                    axes.iter_mut().for_each(|axis| *axis = order[*axis]);
                }
                *operand = of.clone();
            }
        }
        // Before its blocks are listed.
        let lengths = |array: &Self, axes: &[usize]| -> Vec<usize> {
            axes.iter().map(|&axis| array.shape()[axis]).collect()
        };
        let batch = roles[0].batch.iter().zip(&roles[1].batch);
        let batch =
            batch.map(|(&one, &two)| operands[0].shape()[one].max(operands[1].shape()[two])).collect();
        let own = [0, 1].map(|of| lengths(&operands[of], &roles[of].own));
        possible("a product", &[batch, own[0].clone(), own[1].clone()].concat())?;
        let (chunks, operands) = chunked(operands, &roles);
        Ok(Self::new(Op::Contract { roles, operands }, dtype, chunks))
    }
}

/// Operands in chunks that fit each other, and the chunks of the result.
#[track_caller]
fn chunked(operands: [Array; 2], roles: &[Roles; 2]) -> (Chunks, [Array; 2]) {
    let [one, two] = &operands;
    let lengths = |array: &Array, axis: usize| array.chunks().lengths()[axis].clone();
    // Along axes that both have, as the larger one.
    let by_size = if one.len() >= two.len() { [0, 1] } else { [1, 0] };
    let common = |axes: [usize; 2]| {
        // What has length 1 stretches.
        let is_whole = |&of: &usize| operands[of].shape()[axes[of]] != 1;
        let of = by_size.into_iter().find(is_whole).unwrap_or(0);
        lengths(&operands[of], axes[of])
    };
    let batch: Vec<Vec<usize>> =
        roles[0].batch.iter().zip(&roles[1].batch).map(|(&one, &two)| common([one, two])).collect();
    let summed: Vec<Vec<usize>> =
        roles[0].summed.iter().zip(&roles[1].summed).map(|(&one, &two)| common([one, two])).collect();
    let own = |of: usize| roles[of].own.iter().map(|&axis| lengths(&operands[of], axis)).collect::<Vec<_>>();
    let result = Chunks::from_lengths([batch, own(0), own(1)].concat());
    let result = result.limited(one.chunks().largest().max(two.chunks().largest()));
    let counts = [roles[0].batch.len(), roles[0].own.len()];
    let part = |of: usize| {
        let array = &operands[of];
        let first_own = counts[0] + if of == 0 { 0 } else { counts[1] };
        let mut cut = vec![Vec::new(); array.dimensions()];
        for (at, &axis) in roles[of].batch.iter().enumerate() {
            let of_result = &result.lengths()[at];
            let is_whole = of_result.iter().sum::<usize>() == array.shape()[axis];
            cut[axis] = if is_whole { of_result.clone() } else { vec![array.shape()[axis]] };
        }
        for (at, &axis) in roles[of].own.iter().enumerate() {
            cut[axis].clone_from(&result.lengths()[first_own + at]);
        }
        for (lengths, &axis) in summed.iter().zip(&roles[of].summed) {
            cut[axis].clone_from(lengths);
        }
        array.in_chunks(&Chunks::from_lengths(cut))
    };
    let operands = [part(0), part(1)];
    (result, operands)
}
