//! Functions of single elements, of one, two or three blocks that stretch to one shape.

use std::io;

use bytemuck::Zeroable;

use super::number::{Inexact, Number, Ordered, Real, Signed};
use super::walk::{Walk, dense, stretched};
use super::{Failure, Unsuitable, failure};
use crate::block::Block;
use crate::dtype::{Complex, DType, Element, Truth, with_type};

/// A function of one element.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "they are named as in NumPy")]
pub enum Unary {
    /// Another type.
    Cast,
    Negative,
    Absolute,
    Sign,
    Square,
    Sqrt,
    Exp,
    Expm1,
    Log,
    Log10,
    Log1p,
    Sin,
    Cos,
    Tan,
    Sinh,
    Cosh,
    Tanh,
    Arctan,
    Floor,
    Ceil,
    Trunc,
    Rint,
    IsNan,
    IsFinite,
    IsInf,
    LogicalNot,
    Invert,
    Conj,
    Real,
    Imag,
}

/// A function of two elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "they are named as in NumPy")]
pub enum Binary {
    Add,
    Subtract,
    Multiply,
    Divide,
    FloorDivide,
    Remainder,
    Power,
    Minimum,
    Maximum,
    Arctan2,
    Less,
    LessEqual,
    Equal,
    NotEqual,
    LogicalAnd,
    LogicalOr,
    LogicalXor,
    BitwiseAnd,
    BitwiseOr,
    BitwiseXor,
}

/// So many elements at a time: they stay in the first cache.
const PIECE: usize = 512;

/// An operand: a block, or the one that the result is written over.
enum Operand<'a> {
    Block(&'a Block),
    Result,
}

/// `row` elements from `at`, `step` (0 or 1) apart, as `T`.
fn load<'a, T: Element>(block: &'a Block, at: usize, step: isize, row: usize, piece: &'a mut [T]) -> &'a [T] {
    if step == 1 && block.dtype() == T::DTYPE {
        return &block.elements::<T>()[at..at + row];
    }
    with_type!(block.dtype(), S => {
        let from = block.elements::<S>();
        if step == 0 {
            piece[..row].fill(from[at].cast());
        } else {
            piece.iter_mut().zip(&from[at..at + row]).for_each(|(to, from)| *to = from.cast());
        }
    });
    &piece[..row]
}

/// The same of an operand, where the result is written from `to`.
fn fetch<'a, T: Element, U: Element>(
    operand: &'a Operand<'_>,
    (at, step): (usize, isize),
    result: &[U],
    piece: &'a mut [T],
) -> &'a [T] {
    match operand {
        Operand::Block(block) => load(block, at, step, result.len(), piece),
        Operand::Result => {
            piece.iter_mut().zip(result).for_each(|(to, from)| *to = from.cast());
            &piece[..result.len()]
        }
    }
}

/// Takes one of the inputs as the result, if nobody else has it and its type and shape are right; else zeros.
fn result(inputs: Vec<Block>, shape: &[usize], dtype: DType) -> io::Result<(Block, Vec<Option<Block>>)> {
    let mut inputs: Vec<Option<Block>> = inputs.into_iter().map(Some).collect();
    for input in &mut inputs {
        let fits = |block: &mut Block| block.dtype() == dtype && block.shape() == shape && block.is_own();
        if let Some(block) = input.take_if(fits) {
            return Ok((block, inputs));
        }
    }
    Ok((Block::zeros(dtype, shape)?, inputs))
}

fn operands<const N: usize>(inputs: &[Option<Block>]) -> [Operand<'_>; N] {
    std::array::from_fn(|at| inputs[at].as_ref().map_or(Operand::Result, Operand::Block))
}

/// Goes over the result in pieces, for each with where the operands' elements are.
fn pieces<U: Element, const N: usize>(
    result: &mut Block,
    operands: &[Operand<'_>; N],
    mut each: impl FnMut(&mut [U], [(usize, isize); N]),
) {
    let shape = result.shape().to_vec();
    let strides: [Vec<isize>; N] = std::array::from_fn(|of| match operands[of] {
        Operand::Block(block) => stretched(block.shape(), &shape),
        Operand::Result => dense(&shape),
    });
    let to = result.elements_mut::<U>();
    let walk = Walk::new(&shape, std::array::from_fn(|of| &strides[of][..]));
    // Of what is written over only the order matters, which is the result's.
    let mut written = 0;
    walk.rows([0; N], |at| {
        let mut done = 0;
        while done < walk.row {
            let count = PIECE.min(walk.row - done);
            let places = std::array::from_fn(|of| {
                let step = walk.step[of];
                (if step == 0 { at[of] } else { at[of] + done }, step)
            });
            each(&mut to[written + done..written + done + count], places);
            done += count;
        }
        written += walk.row;
    });
}

fn map1<T: Element, U: Element>(result: &mut Block, from: &[Operand<'_>; 1], f: impl Fn(T) -> U) {
    let mut piece = [T::zeroed(); PIECE];
    pieces(result, from, |to: &mut [U], [at]| {
        let x = fetch(&from[0], at, to, &mut piece);
        to.iter_mut().zip(x).for_each(|(to, &x)| *to = f(x));
    });
}

fn map2<T: Element, U: Element>(result: &mut Block, from: &[Operand<'_>; 2], f: impl Fn(T, T) -> U) {
    let (mut one, mut two) = ([T::zeroed(); PIECE], [T::zeroed(); PIECE]);
    pieces(result, from, |to: &mut [U], [x, y]| {
        let x = fetch(&from[0], x, to, &mut one);
        let y = fetch(&from[1], y, to, &mut two);
        for (at, to) in to.iter_mut().enumerate() {
            *to = f(x[at], y[at]);
        }
    });
}

/// Does something with `$T` as the type, of those that are named.
macro_rules! with_some {
    ($dtype:expr, $T:ident in $($name:ident)* => $body:expr) => {
        match $dtype {
            $(DType::$name => {
                type $T = with_some!(type $name);
                $body
            })*
            #[allow(unreachable_patterns, reason = "all of them may be named")]
            other => return Err(failure(format!("not of {other}: a defect of bdrun-array"))),
        }
    };
    (type Bool) => { Truth };
    (type I32) => { i32 };
    (type I64) => { i64 };
    (type F32) => { f32 };
    (type F64) => { f64 };
    (type C64) => { Complex };
}

/// A function of each element; `dtype` is the result's type.
pub(super) fn unary(function: Unary, input: Block, dtype: DType) -> Result<Block, Failure> {
    let (of, shape) = (input.dtype(), input.shape().to_vec());
    if function == Unary::Cast && of == dtype {
        return Ok(input);
    }
    let (mut out, inputs) = result(vec![input], &shape, dtype)?;
    let from = operands::<1>(&inputs);
    macro_rules! inexact {
        ($method:ident) => {
            with_some!(dtype, T in F32 F64 C64 => map1(&mut out, &from, |x: T| Inexact::$method(x)))
        };
    }
    macro_rules! signed {
        ($method:ident) => {
            with_some!(dtype, T in I32 I64 F32 F64 C64 => map1(&mut out, &from, |x: T| Signed::$method(x)))
        };
    }
    macro_rules! real {
        ($method:ident) => {
            with_some!(dtype, T in I32 I64 F32 F64 => map1(&mut out, &from, |x: T| Real::$method(x)))
        };
    }
    macro_rules! test {
        ($method:ident) => {
            with_type!(of, T => map1(&mut out, &from, |x: T| Truth::from(Ordered::$method(x))))
        };
    }
    match function {
        Unary::Cast => with_type!(dtype, T => map1(&mut out, &from, |x: T| x)),
        Unary::Negative => signed!(negative),
        Unary::Sign => signed!(sign),
        Unary::Absolute if of == DType::C64 => map1(&mut out, &from, |x: Complex| x.norm()),
        Unary::Absolute => with_some!(dtype, T in I32 I64 F32 F64 => {
            map1(&mut out, &from, |x: T| if x.less(T::zeroed()) { x.negative() } else { x.plus(T::zeroed()) })
        }),
        Unary::Square => {
            with_some!(dtype, T in I32 I64 F32 F64 C64 => map1(&mut out, &from, |x: T| x.times(x)))
        }
        Unary::Sqrt => inexact!(sqrt),
        Unary::Exp => inexact!(exp),
        Unary::Expm1 => inexact!(expm1),
        Unary::Log => inexact!(log),
        Unary::Log10 => inexact!(log10),
        Unary::Log1p => inexact!(log1p),
        Unary::Sin => inexact!(sin),
        Unary::Cos => inexact!(cos),
        Unary::Tan => inexact!(tan),
        Unary::Sinh => inexact!(sinh),
        Unary::Cosh => inexact!(cosh),
        Unary::Tanh => inexact!(tanh),
        Unary::Arctan => inexact!(arctan),
        Unary::Floor => real!(floor),
        Unary::Ceil => real!(ceil),
        Unary::Trunc => real!(trunc),
        Unary::Rint => inexact!(rint),
        Unary::IsNan => test!(is_nan),
        Unary::IsFinite => test!(is_finite),
        Unary::IsInf => test!(is_infinite),
        Unary::LogicalNot => with_type!(of, T => map1(&mut out, &from, |x: T| Truth::from(x == T::zeroed()))),
        Unary::Invert if of == DType::Bool => map1(&mut out, &from, |x: Truth| Truth::from(!bool::from(x))),
        Unary::Invert => with_some!(dtype, T in I32 I64 => map1(&mut out, &from, |x: T| !x)),
        Unary::Conj => map1(&mut out, &from, |x: Complex| x.conj()),
        Unary::Real => map1(&mut out, &from, |x: Complex| x.re),
        Unary::Imag => map1(&mut out, &from, |x: Complex| x.im),
    }
    Ok(out)
}

/// A function of each pair of elements, computed in type `of`; `dtype` is the result's type.
pub(super) fn binary(
    function: Binary,
    inputs: Vec<Block>,
    of: DType,
    dtype: DType,
) -> Result<Block, Failure> {
    let shapes: Vec<&[usize]> = inputs.iter().map(Block::shape).collect();
    let shape = crate::shape::broadcast("blocks", &shapes)?;
    if function == Binary::Power && of.is_integer() && !shape.contains(&0) {
        with_some!(inputs[1].dtype(), T in Bool I32 I64 => {
            if inputs[1].elements::<T>().iter().any(|&x| x.cast::<i64>() < 0) {
                let why = "integers to negative integer powers are not allowed";
                return Err(Unsuitable::Value(why.into()).into());
            }
        });
    }
    let (mut out, inputs) = result(inputs, &shape, dtype)?;
    let from = operands::<2>(&inputs);
    macro_rules! number {
        ($method:ident) => {
            with_type!(of, T => map2(&mut out, &from, |x: T, y: T| Number::$method(x, y)))
        };
    }
    macro_rules! ordered {
        ($method:ident) => {
            with_type!(of, T => map2(&mut out, &from, |x: T, y: T| Ordered::$method(x, y)))
        };
    }
    macro_rules! real {
        ($method:ident) => {
            with_some!(of, T in I32 I64 F32 F64 => map2(&mut out, &from, |x: T, y: T| Real::$method(x, y)))
        };
    }
    macro_rules! compare {
        ($x:ident, $y:ident, $test:expr) => {
            with_type!(of, T => map2(&mut out, &from, |$x: T, $y: T| Truth::from($test)))
        };
    }
    macro_rules! bits {
        ($op:tt) => {
            with_some!(of, T in Bool I32 I64 => map2(&mut out, &from, |x: T, y: T| x $op y))
        };
    }
    match function {
        Binary::Add => number!(plus),
        Binary::Subtract => number!(minus),
        Binary::Multiply => number!(times),
        Binary::Divide => {
            with_some!(of, T in F32 F64 C64 => map2(&mut out, &from, |x: T, y: T| Inexact::divide(x, y)));
        }
        Binary::FloorDivide => real!(floor_divide),
        Binary::Remainder => real!(remainder),
        Binary::Power => {
            with_some!(of, T in I32 I64 F32 F64 C64 => map2(&mut out, &from, |x: T, y: T| Signed::power(x, y)));
        }
        Binary::Minimum => ordered!(least),
        Binary::Maximum => ordered!(most),
        Binary::Arctan2 => with_some!(of, T in F32 F64 => map2(&mut out, &from, |x: T, y: T| x.atan2(y))),
        Binary::Less => compare!(x, y, Ordered::less(x, y)),
        Binary::LessEqual => compare!(x, y, less_or_equal(x, y)),
        Binary::Equal => compare!(x, y, x == y),
        Binary::NotEqual => compare!(x, y, x != y),
        Binary::LogicalAnd => compare!(x, y, x != T::zeroed() && y != T::zeroed()),
        Binary::LogicalOr => compare!(x, y, x != T::zeroed() || y != T::zeroed()),
        Binary::LogicalXor => compare!(x, y, (x != T::zeroed()) != (y != T::zeroed())),
        Binary::BitwiseAnd => bits!(&),
        Binary::BitwiseOr => bits!(|),
        Binary::BitwiseXor => bits!(^),
    }
    Ok(out)
}

/// What is no number is neither less nor equal.
fn less_or_equal<T: Ordered>(x: T, y: T) -> bool {
    x == y || x.less(y)
}

/// Of each element of `inputs` the second where the first is true, else the third.
pub(super) fn select(inputs: Vec<Block>, dtype: DType) -> Result<Block, Failure> {
    let shapes: Vec<&[usize]> = inputs.iter().map(Block::shape).collect();
    let shape = crate::shape::broadcast("blocks", &shapes)?;
    let mut out = Block::zeros(dtype, &shape)?;
    let from = std::array::from_fn(|at| Operand::Block(&inputs[at]));
    with_type!(dtype, T => {
        let mut truth = [Truth::from(false); PIECE];
        let (mut one, mut two) = ([T::zeroed(); PIECE], [T::zeroed(); PIECE]);
        pieces(&mut out, &from, |to: &mut [T], [condition, x, y]| {
            let condition = fetch(&from[0], condition, to, &mut truth);
            let x = fetch(&from[1], x, to, &mut one);
            let y = fetch(&from[2], y, to, &mut two);
            for (at, to) in to.iter_mut().enumerate() {
                *to = if condition[at].into() { x[at] } else { y[at] };
            }
        });
    });
    Ok(out)
}
