//! Reductions: of each block a *partial* result, partial results merged, and the end of it.
//!
//! A partial result has an axis in front, with a *plane* for each thing that is carried along; axes that are
//! reduced have length 1.
//!
//! | reduction | planes |
//! |---|---|
//! | sum, product, minimum, maximum, any, all | 1 |
//! | mean | 1: the sum |
//! | variance | 2: mean, and sum of squared distances from it (of complex numbers 3: the mean has two parts) |
//! | argmin, argmax | 2: index, and the bits of the value (of complex numbers 3) |

use bytemuck::Zeroable;

use super::number::{Number, Ordered};
use super::walk::{Walk, dense};
use super::{Failure, failure};
use crate::block::Block;
use crate::dtype::{Complex, DType, Element, Truth, with_type};

/// What is made of elements along axes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "they are named as in NumPy")]
pub enum Reduction {
    Sum,
    Prod,
    Min,
    Max,
    Any,
    All,
    Mean,
    /// With what is taken from the count.
    Var(u64),
    /// Its root.
    Std(u64),
    ArgMin,
    ArgMax,
}

impl Reduction {
    /// The type of the partial results of elements of a type.
    pub(crate) fn state(self, of: DType) -> DType {
        match self {
            Self::Sum | Self::Prod => match of {
                DType::Bool | DType::I32 | DType::I64 => DType::I64,
                DType::F32 | DType::F64 => DType::F64,
                DType::C64 => DType::C64,
            },
            Self::Mean if of == DType::C64 => DType::C64,
            Self::Mean | Self::Var(_) | Self::Std(_) => DType::F64,
            Self::Min | Self::Max => of,
            Self::Any | Self::All => DType::Bool,
            Self::ArgMin | Self::ArgMax => DType::I64,
        }
    }

    /// How many planes they have.
    pub(crate) fn planes(self, of: DType) -> usize {
        match self {
            Self::Var(_) | Self::Std(_) | Self::ArgMin | Self::ArgMax => 2 + usize::from(of == DType::C64),
            _ => 1,
        }
    }
}

/// Where elements of a block are counted from, for indices: the first one's index, and how much further each
/// axis' next one is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Indices {
    pub(crate) first: usize,
    pub(crate) steps: Vec<usize>,
}

/// Sums of so many elements are made one by one in a few lanes, longer ones of two halves: the error grows
/// with the logarithm of the length (Higham 1993, The accuracy of floating point summation).
const LEAF: usize = 128;

fn sum<T: Element, A: Number>(row: &[T]) -> A {
    if row.len() > LEAF {
        let (one, two) = row.split_at(row.len() / 2 / 8 * 8);
        return sum::<T, A>(one).plus(sum(two));
    }
    let mut lanes = [A::zeroed(); 8];
    let (chunks, rest) = row.as_chunks::<8>();
    for chunk in chunks {
        for (lane, x) in lanes.iter_mut().zip(chunk) {
            *lane = lane.plus(x.cast());
        }
    }
    for (lane, x) in lanes.iter_mut().zip(rest) {
        *lane = lane.plus(x.cast());
    }
    let [a, b, c, d, e, f, g, h] = lanes;
    a.plus(b).plus(c.plus(d)).plus(e.plus(f).plus(g.plus(h)))
}

/// The shape of a partial result without its planes, and the distances there of a block's neighbours.
fn reduced(shape: &[usize], axes: &[usize]) -> (Vec<usize>, Vec<isize>) {
    let mut left = shape.to_vec();
    axes.iter().for_each(|&axis| left[axis] = 1);
    let mut steps = dense(&left);
    axes.iter().for_each(|&axis| steps[axis] = 0);
    (left, steps)
}

/// Goes over a block in rows: for each `whole` is called if it becomes one element, else `each`.
fn fold<T: Element, A: Element>(
    input: &Block,
    steps: &[isize],
    to: &mut [A],
    whole: impl Fn(A, &[T]) -> A,
    each: impl Fn(A, T) -> A,
) {
    let from = input.elements::<T>();
    let walk = Walk::new(input.shape(), [&dense(input.shape()), steps]);
    walk.rows([0, 0], |[at, out]| {
        let row = &from[at..at + walk.row];
        if walk.step[1] == 0 {
            to[out] = whole(to[out], row);
        } else {
            for (to, x) in to[out..out + walk.row].iter_mut().zip(row) {
                *to = each(*to, *x);
            }
        }
    });
}

fn sums<T: Element, A: Number>(input: &Block, steps: &[isize], to: &mut [A]) {
    fold(input, steps, to, |sum_, row: &[T]| sum_.plus(sum(row)), |sum, x: T| sum.plus(x.cast()));
}

/// The partial result of a block.
pub(super) fn partial(
    reduction: Reduction,
    axes: &[usize],
    indices: Option<&Indices>,
    input: &Block,
) -> Result<Block, Failure> {
    let of = input.dtype();
    let (state, planes) = (reduction.state(of), reduction.planes(of));
    let (left, steps) = reduced(input.shape(), axes);
    let mut out = Block::zeros(state, &[&[planes], &left[..]].concat())?;
    match reduction {
        Reduction::Sum | Reduction::Mean => with_type!(of, T => match state {
            DType::I64 => sums::<T, i64>(input, &steps, out.elements_mut()),
            DType::F64 => sums::<T, f64>(input, &steps, out.elements_mut()),
            _ => sums::<T, Complex>(input, &steps, out.elements_mut()),
        }),
        Reduction::Prod => with_type!(of, T => match state {
            DType::I64 => products::<T, i64>(input, &steps, out.elements_mut()),
            DType::F64 => products::<T, f64>(input, &steps, out.elements_mut()),
            _ => products::<T, Complex>(input, &steps, out.elements_mut()),
        }),
        Reduction::Any => with_type!(of, T => {
            let is_true = |x: T| x != T::zeroed();
            fold(input, &steps, out.elements_mut(),
                |any: Truth, row: &[T]| (bool::from(any) || row.iter().any(|&x| is_true(x))).into(),
                |any: Truth, x: T| (bool::from(any) || is_true(x)).into());
        }),
        Reduction::All => with_type!(of, T => {
            let is_true = |x: T| x != T::zeroed();
            out.elements_mut().fill(Truth::from(true));
            fold(input, &steps, out.elements_mut(),
                |all: Truth, row: &[T]| (bool::from(all) && row.iter().all(|&x| is_true(x))).into(),
                |all: Truth, x: T| (bool::from(all) && is_true(x)).into());
        }),
        Reduction::Min => with_type!(of, T => extremes::<T>(input, &steps, out.elements_mut(), T::least)),
        Reduction::Max => with_type!(of, T => extremes::<T>(input, &steps, out.elements_mut(), T::most)),
        Reduction::ArgMin | Reduction::ArgMax => {
            let indices =
                indices.ok_or_else(|| failure("without indices: a defect of bdrun-array".into()))?;
            let is_max = reduction == Reduction::ArgMax;
            with_type!(of, T => places::<T>(input, &steps, indices, is_max, out.elements_mut()));
        }
        Reduction::Var(_) | Reduction::Std(_) => {
            let count: usize = axes.iter().map(|&axis| input.shape()[axis]).product();
            if of == DType::C64 {
                spread_complex(input, &steps, count, out.elements_mut());
            } else {
                with_type!(of, T => spread::<T>(input, &steps, count, out.elements_mut()));
            }
        }
    }
    Ok(out)
}

fn products<T: Element, A: Number>(input: &Block, steps: &[isize], to: &mut [A]) {
    to.fill(A::from_bool(true));
    let whole = |product: A, row: &[T]| row.iter().fold(product, |product, x| product.times(x.cast()));
    fold(input, steps, to, whole, |product, x: T| product.times(x.cast()));
}

/// The best of each row, by `better`, which returns one of two. Each element of `to` begins as the first one
/// that becomes part of it.
fn extremes<T: Ordered>(input: &Block, steps: &[isize], to: &mut [T], better: impl Fn(T, T) -> T) {
    if input.is_empty() {
        return;
    }
    let first = firsts(input.shape(), steps);
    let from = input.elements::<T>();
    first.rows([0, 0], |[at, out]| {
        for step in 0..first.row {
            to[out + step] = from[at + step * first.step[0] as usize];
        }
    });
    let whole = |best: T, row: &[T]| row.iter().fold(best, |best, &x| better(best, x));
    fold(input, steps, to, whole, &better);
}

/// The first elements of all that are reduced to one: offsets in the block and in the result.
fn firsts(shape: &[usize], steps: &[isize]) -> Walk<2> {
    let kept: Vec<usize> =
        shape.iter().zip(steps).map(|(&length, &step)| if step == 0 { 1 } else { length }).collect();
    Walk::new(&kept, [&dense(shape), steps])
}

/// A value as integers: its bits.
trait Bits: Ordered {
    fn bits(self) -> [i64; 2];
    fn of_bits(bits: [i64; 2]) -> Self;
}

macro_rules! bits {
    ($type:ty, $x:ident => $to:expr, $bits:ident => $from:expr) => {
        impl Bits for $type {
            fn bits(self) -> [i64; 2] {
                let $x = self;
                [$to, 0]
            }

            fn of_bits([$bits, _]: [i64; 2]) -> Self {
                $from
            }
        }
    };
}

bits!(Truth, x => i64::from(bool::from(x)), bits => (bits != 0).into());
bits!(i32, x => x.into(), bits => bits as i32);
bits!(i64, x => x, bits => bits);
bits!(f32, x => x.to_bits().into(), bits => f32::from_bits(bits as u32));
bits!(f64, x => x.to_bits() as i64, bits => f64::from_bits(bits as u64));

impl Bits for Complex {
    fn bits(self) -> [i64; 2] {
        [self.re.to_bits() as i64, self.im.to_bits() as i64]
    }

    fn of_bits([re, im]: [i64; 2]) -> Self {
        Self::new(f64::from_bits(re as u64), f64::from_bits(im as u64))
    }
}

/// Whether an element takes the place of the best one so far, which has a lower index or is that of a block
/// looked at before. What is no number wins, and of equals the one with the lowest index.
fn is_better<T: Ordered>(x: T, index: i64, best: T, best_index: i64, is_max: bool) -> bool {
    let is_beyond = |x: T, y: T| if is_max { y.less(x) } else { x.less(y) };
    match (x.is_nan(), best.is_nan()) {
        (true, true) => index < best_index,
        (true, false) => true,
        (false, true) => false,
        (false, false) => is_beyond(x, best) || (!is_beyond(best, x) && index < best_index),
    }
}

/// No element yet.
const NOWHERE: i64 = i64::MAX;

fn places<T: Bits>(input: &Block, steps: &[isize], indices: &Indices, is_max: bool, to: &mut [i64]) {
    let planes = 2 + usize::from(T::DTYPE == DType::C64);
    let size = to.len() / planes;
    to[..size].fill(NOWHERE);
    let from = input.elements::<T>();
    let counts: Vec<isize> = indices.steps.iter().map(|&step| step as isize).collect();
    let walk = Walk::new(input.shape(), [&dense(input.shape()), steps, &counts]);
    walk.rows([0, 0, indices.first as isize], |[at, out, index]| {
        for step in 0..walk.row {
            let out = out + step * walk.step[1] as usize;
            let index = index as i64 + step as i64 * walk.step[2] as i64;
            let (x, best_index) = (from[at + step], to[out]);
            if best_index == NOWHERE || is_better(x, index, value(to, size, out), best_index, is_max) {
                put(to, size, out, index, x);
            }
        }
    });
}

/// The value beside an index.
fn value<T: Bits>(planes: &[i64], size: usize, at: usize) -> T {
    T::of_bits([planes[size + at], planes.get(2 * size + at).copied().unwrap_or(0)])
}

fn put<T: Bits>(planes: &mut [i64], size: usize, at: usize, index: i64, x: T) {
    let [one, two] = x.bits();
    planes[at] = index;
    planes[size + at] = one;
    if T::DTYPE == DType::C64 {
        planes[2 * size + at] = two;
    }
}

/// Mean and sum of squared distances from it, in two passes over the block.
fn spread<T: Element>(input: &Block, steps: &[isize], count: usize, to: &mut [f64]) {
    let (mean, squares) = to.split_at_mut(to.len() / 2);
    sums::<T, f64>(input, steps, mean);
    mean.iter_mut().for_each(|mean| *mean /= count as f64);
    distances(input, steps, mean, squares, |x: T, mean| {
        let distance = x.cast::<f64>() - mean;
        distance * distance
    });
}

fn spread_complex(input: &Block, steps: &[isize], count: usize, to: &mut [f64]) {
    let size = to.len() / 3;
    let mut mean = vec![Complex::default(); size];
    sums::<Complex, Complex>(input, steps, &mut mean);
    mean.iter_mut().for_each(|mean| *mean /= count as f64);
    distances(input, steps, &mean, &mut to[2 * size..], |x: Complex, mean| (x - mean).norm_sqr());
    for (at, mean) in mean.into_iter().enumerate() {
        (to[at], to[size + at]) = (mean.re, mean.im);
    }
}

fn distances<T: Element, M: Copy>(
    input: &Block,
    steps: &[isize],
    mean: &[M],
    squares: &mut [f64],
    squared: impl Fn(T, M) -> f64,
) {
    let from = input.elements::<T>();
    let walk = Walk::new(input.shape(), [&dense(input.shape()), steps]);
    walk.rows([0, 0], |[at, out]| {
        let row = &from[at..at + walk.row];
        if walk.step[1] == 0 {
            let mean = mean[out];
            // In pieces, so that long rows are not summed one by one.
            squares[out] +=
                row.chunks(LEAF).map(|row| row.iter().map(|&x| squared(x, mean)).sum::<f64>()).sum::<f64>();
        } else {
            for (step, &x) in row.iter().enumerate() {
                squares[out + step] += squared(x, mean[out + step]);
            }
        }
    });
}

/// Partial results of one shape as one. `counts` are the elements that each one is of.
pub(super) fn merge(
    reduction: Reduction,
    of: DType,
    counts: &[u64],
    mut inputs: Vec<Block>,
) -> Result<Block, Failure> {
    let mut out = super::assemble::own(inputs.remove(0))?;
    let mut count = counts[0] as f64;
    for (input, &more) in inputs.iter().zip(&counts[1..]) {
        match reduction {
            Reduction::Sum | Reduction::Mean => with_type!(out.dtype(), T => both(&mut out, input, T::plus)),
            Reduction::Prod | Reduction::All => with_type!(out.dtype(), T => both(&mut out, input, T::times)),
            Reduction::Any => both(&mut out, input, Truth::plus),
            Reduction::Min => with_type!(out.dtype(), T => both(&mut out, input, T::least)),
            Reduction::Max => with_type!(out.dtype(), T => both(&mut out, input, T::most)),
            Reduction::ArgMin | Reduction::ArgMax => with_type!(of, T => {
                let (to, from) = (out.elements_mut::<i64>(), input.elements::<i64>());
                let size = to.len() / reduction.planes(of);
                for at in 0..size {
                    let (index, x) = (from[at], value::<T>(from, size, at));
                    if is_better(x, index, value(to, size, at), to[at], reduction == Reduction::ArgMax) {
                        put(to, size, at, index, x);
                    }
                }
            }),
            Reduction::Var(_) | Reduction::Std(_) => join(&mut out, input, count, more as f64),
        }
        count += more as f64;
    }
    Ok(out)
}

fn both<T: Element>(out: &mut Block, input: &Block, f: impl Fn(T, T) -> T) {
    out.elements_mut().iter_mut().zip(input.elements::<T>()).for_each(|(to, from)| *to = f(*to, *from));
}

/// Means and squared distances of two parts as those of both (Chan, Golub, LeVeque 1979, Updating formulae).
fn join(out: &mut Block, input: &Block, count: f64, more: f64) {
    let planes = out.shape()[0];
    let (to, from) = (out.elements_mut::<f64>(), input.elements::<f64>());
    let size = to.len() / planes;
    let last = (planes - 1) * size;
    for at in 0..size {
        let mut squared = 0.0;
        for mean in (0..last).step_by(size.max(1)).map(|plane| plane + at) {
            let distance = from[mean] - to[mean];
            to[mean] += distance * (more / (count + more));
            squared += distance * distance;
        }
        to[last + at] += from[last + at] + squared * (count * more / (count + more));
    }
}

/// The result, of type `dtype` and `shape`, from the partial one of all `count` elements.
pub(super) fn finish(
    reduction: Reduction,
    count: u64,
    dtype: DType,
    shape: &[usize],
    input: &Block,
) -> Result<Block, Failure> {
    let mut out = Block::zeros(dtype, shape)?;
    let size = out.len();
    match reduction {
        Reduction::Mean => match input.dtype() {
            DType::C64 => write(&mut out, input.elements::<Complex>(), |sum| sum / count as f64),
            _ => write(&mut out, input.elements::<f64>(), |sum| sum / count as f64),
        },
        Reduction::Var(less) | Reduction::Std(less) => {
            let squares = &input.elements::<f64>()[input.len() - size..];
            // As NumPy: none left is a division by zero, not by less.
            let count = count.saturating_sub(less) as f64;
            let is_root = matches!(reduction, Reduction::Std(_));
            write(&mut out, squares, |squares| {
                let variance = squares / count;
                if is_root { variance.sqrt() } else { variance }
            });
        }
        _ => with_type!(input.dtype(), T => write(&mut out, &input.elements::<T>()[..size], |x| x)),
    }
    Ok(out)
}

fn write<S: Element>(out: &mut Block, from: &[S], f: impl Fn(S) -> S) {
    with_type!(out.dtype(), T => {
        out.elements_mut::<T>().iter_mut().zip(from).for_each(|(to, from)| *to = f(*from).cast());
    });
}
