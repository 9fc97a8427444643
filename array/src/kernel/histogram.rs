//! Histograms: bounds of bins, and how many elements are in each. Of `f32` bounds are `f32`, and what is
//! rounded on the way is rounded as NumPy does it, since that decides between two bins.

use super::{Failure, Unsuitable, failure};
use crate::block::Block;
use crate::dtype::{DType, Element};

/// Numbers that bounds may be.
trait Bound: Element + PartialOrd {
    /// From the first to the second, as far from each other.
    fn bounds(low: Self, high: Self, to: &mut [Self]);
    /// Where this one is from `low` to `high`, in parts of their distance, times `bins`.
    fn place(self, low: Self, high: Self, bins: usize) -> usize;
    /// A half on either side.
    fn wider(low: Self, high: Self) -> (Self, Self);
}

macro_rules! bound {
    ($type:ty) => {
        impl Bound for $type {
            fn bounds(low: Self, high: Self, to: &mut [Self]) {
                let bins = (to.len() - 1) as Self;
                let step = (high - low) / bins;
                for (at, to) in to.iter_mut().enumerate() {
                    // Where a step is too small for a number the parts of the whole are not.
                    let from_low =
                        if step == 0.0 { at as Self / bins * (high - low) } else { at as Self * step };
                    *to = from_low + low;
                }
                // By the count, which as a number of this type may be another one (`f32` beyond 2^24).
                let last = to.len() - 1;
                to[last] = high;
            }

            fn place(self, low: Self, high: Self, bins: usize) -> usize {
                ((self - low) / (high - low) * bins as Self) as usize
            }

            fn wider(low: Self, high: Self) -> (Self, Self) {
                (low - 0.5, high + 0.5)
            }
        }
    };
}

bound!(f32);
bound!(f64);

/// The two ends that bins lie between: of a range of no width they are a half on either side.
fn ends<T: Bound + Into<f64>>(low: &Block, high: &Block) -> Result<(T, T), Failure> {
    let (low, high) = (low.elements::<T>()[0], high.elements::<T>()[0]);
    let (from, to): (f64, f64) = (low.into(), high.into());
    if !(from.is_finite() && to.is_finite()) {
        return Err(Unsuitable::Value(format!("the range from {from} to {to} is not finite")).into());
    }
    Ok(if low == high { T::wider(low, high) } else { (low, high) })
}

fn check<T: PartialOrd>(bounds: &[T]) -> Result<(), Failure> {
    if bounds.windows(2).any(|pair| pair[0] >= pair[1]) {
        let why = format!("Too many bins for data range: {} of them have no width", bounds.len() - 1);
        return Err(Unsuitable::Value(why).into());
    }
    Ok(())
}

/// The bounds of `bins` bins of one width from the first input to the second, which are of the bounds' type
/// or more exact.
pub(super) fn bounds(bins: usize, dtype: DType, inputs: &[Block]) -> Result<Block, Failure> {
    let mut out = Block::zeros(dtype, &[bins + 1])?;
    match (inputs[0].dtype(), dtype) {
        (DType::F32, DType::F32) => {
            let (low, high) = ends(&inputs[0], &inputs[1])?;
            f32::bounds(low, high, out.elements_mut());
            check(out.elements::<f32>())?;
        }
        (DType::F64, DType::F64) => {
            let (low, high) = ends(&inputs[0], &inputs[1])?;
            f64::bounds(low, high, out.elements_mut());
            check(out.elements::<f64>())?;
        }
        (DType::F64, DType::F32) => {
            // Each is rounded once.
            let (low, high) = ends(&inputs[0], &inputs[1])?;
            let mut exact = Block::zeros(DType::F64, &[bins + 1])?;
            f64::bounds(low, high, exact.elements_mut());
            for (to, from) in out.elements_mut::<f32>().iter_mut().zip(exact.elements::<f64>()) {
                *to = *from as f32;
            }
            check(out.elements::<f32>())?;
        }
        (of, _) => return Err(failure(format!("bounds of {of}: a defect of bdrun-array"))),
    }
    Ok(out)
}

/// How many elements of the first input are in each bin between the bounds that the last one has, from the
/// second to the third: each bin has its lower bound and not its upper one, which the last has too. Others
/// are not counted.
pub(super) fn histogram(inputs: &[Block]) -> Result<Block, Failure> {
    let [x, low, high, bounds] = inputs else {
        return Err(failure("a histogram is of four: a defect of bdrun-array".into()));
    };
    let bins = bounds.len() - 1;
    let mut out = Block::zeros(DType::I64, &[1, bins])?;
    let to = out.elements_mut::<i64>();
    match (low.dtype(), bounds.dtype()) {
        (DType::F32, DType::F32) => {
            let (low, high) = ends::<f32>(low, high)?;
            count(x, (low, high), bounds, to, |x| x.place(low, high, bins));
        }
        (DType::F64, DType::F64) => {
            let (low, high) = ends::<f64>(low, high)?;
            count(x, (low, high), bounds, to, |x| x.place(low, high, bins));
        }
        (DType::F64, DType::F32) => {
            let (low, high) = ends::<f64>(low, high)?;
            let near = low as f32;
            let place = |x: f32| (f64::from(x - near) / (high - low) * bins as f64) as usize;
            count(x, (near, high as f32), bounds, to, place);
        }
        (of, _) => return Err(failure(format!("bounds of {of}: a defect of bdrun-array"))),
    }
    Ok(out)
}

fn count<T: Bound>(
    x: &Block,
    (low, high): (T, T),
    bounds: &Block,
    to: &mut [i64],
    place: impl Fn(T) -> usize,
) {
    let (bounds, last) = (bounds.elements::<T>(), to.len() - 1);
    for &x in x.elements::<T>().iter().filter(|&x| (low..=high).contains(x)) {
        let mut at = place(x).min(last);
        // Rounding may have put it beside its bin.
        if x < bounds[at] {
            at = at.saturating_sub(1);
        } else if at < last && x >= bounds[at + 1] {
            at += 1;
        }
        to[at] += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2^24 + 3 bins are 2^24 + 4 as `f32`.
    #[test]
    fn more_bins_than_there_are_numbers_between_are_refused() {
        let mut bounds = vec![0.0; (1 << 24) + 4];
        f32::bounds(0.0, 1.0, &mut bounds);
        assert_eq!((bounds[0], bounds[bounds.len() - 1]), (0.0, 1.0));
        let why = check(&bounds).unwrap_err().to_string();
        assert!(why.contains("Too many bins for data range"), "{why}");
    }
}
