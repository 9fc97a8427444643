//! Sums and products up to each element.

use super::Failure;
use super::number::Number;
use crate::block::Block;
use crate::dtype::{DType, Element, with_type};

/// What is accumulated along an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "they are named as in NumPy")]
pub enum Scan {
    Sum,
    Prod,
}

/// Along an axis, in type `dtype`, on top of what comes before: the second input, whose axis has length 1.
pub(super) fn scan(scan: Scan, axis: usize, dtype: DType, inputs: &[Block]) -> Result<Block, Failure> {
    let mut out = Block::zeros(dtype, inputs[0].shape())?;
    if out.is_empty() {
        return Ok(out);
    }
    macro_rules! along {
        ($A:ty) => {
            with_type!(inputs[0].dtype(), T => match scan {
                Scan::Sum => along::<T, $A>(axis, inputs, out.elements_mut(), <$A>::plus),
                Scan::Prod => along::<T, $A>(axis, inputs, out.elements_mut(), <$A>::times),
            })
        };
    }
    match dtype {
        DType::Bool | DType::I32 | DType::I64 => along!(i64),
        DType::F32 => along!(f32),
        DType::F64 => along!(f64),
        DType::C64 => along!(crate::dtype::Complex),
    }
    Ok(out)
}

fn along<T: Element, A: Number>(axis: usize, inputs: &[Block], to: &mut [A], f: impl Fn(A, A) -> A) {
    let shape = inputs[0].shape();
    let from = inputs[0].elements::<T>();
    let inner: usize = shape[axis + 1..].iter().product();
    let length = shape[axis];
    for (outer, (to, from)) in
        to.chunks_exact_mut(length * inner).zip(from.chunks_exact(length * inner)).enumerate()
    {
        to.iter_mut().zip(from).for_each(|(to, from)| *to = from.cast());
        if let Some(before) = inputs.get(1) {
            let before = &before.elements::<A>()[outer * inner..][..inner];
            to[..inner].iter_mut().zip(before).for_each(|(to, before)| *to = f(*before, *to));
        }
        for at in inner..to.len() {
            to[at] = f(to[at - inner], to[at]);
        }
    }
}
