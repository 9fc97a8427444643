//! Predefined operations (MPI-5.0, section 6.9.2), on numbers one behind the other.

mod long_double;
mod number;
mod quad;
#[cfg(test)]
mod tests;

use std::ffi::c_char;

use crate::datatype::{Basic, Class, Scalar};
use long_double::LongDouble;
use number::{Bits, Complex, Half, Number, Ordered, Truth};
use quad::Quad;

/// A predefined operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the standard's names")]
pub enum Operation {
    Max,
    Min,
    Sum,
    Product,
    LogicalAnd,
    LogicalOr,
    LogicalXor,
    BitAnd,
    BitOr,
    BitXor,
    MaxLocation,
    MinLocation,
    Replace,
    Nothing,
}

impl Operation {
    /// All of them.
    pub const ALL: [Self; 14] = [
        Self::Max,
        Self::Min,
        Self::Sum,
        Self::Product,
        Self::LogicalAnd,
        Self::LogicalOr,
        Self::LogicalXor,
        Self::BitAnd,
        Self::BitOr,
        Self::BitXor,
        Self::MaxLocation,
        Self::MinLocation,
        Self::Replace,
        Self::Nothing,
    ];

    /// Its name in the standard.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Max => "MPI_MAX",
            Self::Min => "MPI_MIN",
            Self::Sum => "MPI_SUM",
            Self::Product => "MPI_PROD",
            Self::LogicalAnd => "MPI_LAND",
            Self::LogicalOr => "MPI_LOR",
            Self::LogicalXor => "MPI_LXOR",
            Self::BitAnd => "MPI_BAND",
            Self::BitOr => "MPI_BOR",
            Self::BitXor => "MPI_BXOR",
            Self::MaxLocation => "MPI_MAXLOC",
            Self::MinLocation => "MPI_MINLOC",
            Self::Replace => "MPI_REPLACE",
            Self::Nothing => "MPI_NO_OP",
        }
    }

    /// Whether only accumulates may use it (section 12.3.4).
    #[must_use]
    pub const fn is_for_accumulates(self) -> bool {
        matches!(self, Self::Replace | Self::Nothing)
    }

    /// Whether it is defined for such elements. More than the standard's table: logical operations also for
    /// integers of Fortran, and `MPI_CHAR` wherever integers of C are, as libraries have it.
    #[must_use]
    pub const fn is_defined(self, class: Class) -> bool {
        let class = match class {
            Class::Char => Class::Integer,
            other => other,
        };
        match self {
            Self::Max | Self::Min => matches!(class, Class::Integer | Class::Float),
            Self::Sum | Self::Product => matches!(class, Class::Integer | Class::Float | Class::Complex),
            Self::LogicalAnd | Self::LogicalOr | Self::LogicalXor => {
                matches!(class, Class::Integer | Class::Logical)
            }
            Self::BitAnd | Self::BitOr | Self::BitXor => matches!(class, Class::Integer | Class::Byte),
            Self::MaxLocation | Self::MinLocation => matches!(class, Class::Pair),
            Self::Replace | Self::Nothing => true,
        }
    }

    /// What does it for a predefined datatype, if it is defined for that.
    #[must_use]
    pub fn kernel(self, basic: Basic) -> Option<Kernel> {
        if !self.is_defined(basic.class()) {
            return None;
        }
        match self {
            Self::Nothing => Some(nothing),
            Self::Replace => Some(copy(basic)),
            Self::MaxLocation => pair(basic, true),
            Self::MinLocation => pair(basic, false),
            _ => number(self, basic.elements().0),
        }
    }
}

/// Combines `count` elements that lie one behind the other: each of the second becomes *first* op *second*.
///
/// # Safety
/// The first can be read, the second written, and nobody else uses them meanwhile; they do not overlap.
pub type Kernel = unsafe fn(*const u8, *mut u8, usize);

/// Applies `f` to each pair of numbers.
///
/// # Safety
/// As of [`Kernel`].
#[inline(always)]
unsafe fn each<T: Copy>(from: *const u8, to: *mut u8, count: usize, f: impl Fn(T, T) -> T) {
    let (from, to) = (from.cast::<T>(), to.cast::<T>());
    for i in 0..count {
        // SAFETY: the caller's promise. Addresses may be odd: programs say where their numbers are.
        unsafe {
            let value = f(from.add(i).read_unaligned(), to.add(i).read_unaligned());
            to.add(i).write_unaligned(value);
        }
    }
}

unsafe fn nothing(_: *const u8, _: *mut u8, _: usize) {}

fn copy(basic: Basic) -> Kernel {
    /// # Safety
    /// As of [`Kernel`].
    unsafe fn of<const BYTES: usize>(from: *const u8, to: *mut u8, count: usize) {
        // SAFETY: the caller's promise.
        unsafe { std::ptr::copy_nonoverlapping(from, to, BYTES * count) };
    }
    match basic.extent() {
        1 => of::<1>,
        2 => of::<2>,
        4 => of::<4>,
        8 => of::<8>,
        16 => of::<16>,
        _ => of::<32>,
    }
}

/// Of numbers of a type, one of these operations.
macro_rules! kernel {
    ($type:ty, $f:expr) => {{
        let kernel: Kernel = |from, to, count| {
            // SAFETY: the caller's promise.
            unsafe { each::<$type>(from, to, count, $f) }
        };
        Some(kernel)
    }};
}

fn number(operation: Operation, scalar: Scalar) -> Option<Kernel> {
    match scalar {
        Scalar::Int(1) => integer::<i8>(operation),
        // With a sign or without one, as the platform's C has it.
        Scalar::Char => integer::<c_char>(operation),
        Scalar::Int(2) => integer::<i16>(operation),
        Scalar::Int(4) => integer::<i32>(operation),
        Scalar::Int(8) => integer::<i64>(operation),
        Scalar::Int(16) => integer::<i128>(operation),
        Scalar::Uint(1) | Scalar::Byte => integer::<u8>(operation),
        Scalar::Uint(2) => integer::<u16>(operation),
        Scalar::Uint(4) => integer::<u32>(operation),
        Scalar::Uint(8) => integer::<u64>(operation),
        Scalar::Float(2) => real::<Half>(operation),
        Scalar::Float(4) => real::<f32>(operation),
        Scalar::Float(8) => real::<f64>(operation),
        Scalar::Float(16) => real::<LongDouble>(operation),
        Scalar::Complex(4) => arithmetic::<Complex<Half>>(operation),
        Scalar::Complex(8) => arithmetic::<Complex<f32>>(operation),
        Scalar::Complex(16) => arithmetic::<Complex<f64>>(operation),
        Scalar::Complex(32) => arithmetic::<Complex<LongDouble>>(operation),
        Scalar::Quad(16) => real::<Quad>(operation),
        Scalar::Quad(32) => arithmetic::<Complex<Quad>>(operation),
        Scalar::Bool | Scalar::Logical(1) => logical::<u8>(operation),
        Scalar::Logical(2) => logical::<u16>(operation),
        Scalar::Logical(4) => logical::<u32>(operation),
        Scalar::Logical(8) => logical::<u64>(operation),
        Scalar::Logical(16) => logical::<u128>(operation),
        _ => None,
    }
}

fn arithmetic<T: Number>(operation: Operation) -> Option<Kernel> {
    match operation {
        Operation::Sum => kernel!(T, T::add),
        Operation::Product => kernel!(T, T::multiply),
        _ => None,
    }
}

fn real<T: Number + Ordered>(operation: Operation) -> Option<Kernel> {
    match operation {
        Operation::Max => kernel!(T, |a: T, b: T| if b.is_less(a) { a } else { b }),
        Operation::Min => kernel!(T, |a: T, b: T| if a.is_less(b) { a } else { b }),
        _ => arithmetic::<T>(operation),
    }
}

fn logical<T: Truth>(operation: Operation) -> Option<Kernel> {
    match operation {
        Operation::LogicalAnd => kernel!(T, |a: T, b: T| T::of(a.is_true() & b.is_true())),
        Operation::LogicalOr => kernel!(T, |a: T, b: T| T::of(a.is_true() | b.is_true())),
        Operation::LogicalXor => kernel!(T, |a: T, b: T| T::of(a.is_true() ^ b.is_true())),
        _ => None,
    }
}

fn integer<T: Number + Ordered + Truth + Bits>(operation: Operation) -> Option<Kernel> {
    match operation {
        Operation::BitAnd => kernel!(T, |a: T, b: T| a & b),
        Operation::BitOr => kernel!(T, |a: T, b: T| a | b),
        Operation::BitXor => kernel!(T, |a: T, b: T| a ^ b),
        _ => real::<T>(operation).or_else(|| logical::<T>(operation)),
    }
}

/// Of a value and an index: that of the better value, and the lower index of equal ones.
macro_rules! pairs {
    ($value:ty, $index:ty, $max:expr) => {{
        let max: Kernel = |from, to, count| {
            // SAFETY: the caller's promise.
            unsafe { locate::<$value, $index>(from, to, count, |a, b| b.is_less(a)) }
        };
        let min: Kernel = |from, to, count| {
            // SAFETY: the caller's promise.
            unsafe { locate::<$value, $index>(from, to, count, |a, b| a.is_less(b)) }
        };
        Some(if $max { max } else { min })
    }};
}

fn pair(basic: Basic, max: bool) -> Option<Kernel> {
    match basic.elements() {
        (Scalar::Float(4), Some(Scalar::Int(4))) => pairs!(f32, i32, max),
        (Scalar::Float(8), Some(Scalar::Int(4))) => pairs!(f64, i32, max),
        (Scalar::Float(16), Some(Scalar::Int(4))) => pairs!(LongDouble, i32, max),
        (Scalar::Int(2), Some(Scalar::Int(4))) => pairs!(i16, i32, max),
        (Scalar::Int(4), Some(Scalar::Int(4))) => pairs!(i32, i32, max),
        (Scalar::Int(8), Some(Scalar::Int(4))) => pairs!(i64, i32, max),
        (Scalar::Float(4), Some(Scalar::Float(4))) => pairs!(f32, f32, max),
        (Scalar::Float(8), Some(Scalar::Float(8))) => pairs!(f64, f64, max),
        _ => None,
    }
}

/// # Safety
/// As of [`Kernel`].
#[inline(always)]
unsafe fn locate<T: Ordered, I: Ordered>(
    from: *const u8,
    to: *mut u8,
    count: usize,
    is_better: impl Fn(T, T) -> bool,
) {
    let align = align_of::<T>().max(align_of::<I>());
    let second = size_of::<T>().next_multiple_of(align_of::<I>());
    let extent = (second + size_of::<I>()).next_multiple_of(align);
    for i in 0..count {
        // SAFETY: the caller's promise. What lies between is not touched.
        unsafe {
            let (from, to) = (from.add(i * extent), to.add(i * extent));
            let (a, b) = (from.cast::<T>().read_unaligned(), to.cast::<T>().read_unaligned());
            let (i, j) = (from.add(second).cast::<I>(), to.add(second).cast::<I>());
            if is_better(a, b) {
                to.cast::<T>().write_unaligned(a);
                j.write_unaligned(i.read_unaligned());
            // Of what is no number none is better, and none is equal.
            } else if a.is_equal(b) && i.read_unaligned().is_less(j.read_unaligned()) {
                j.write_unaligned(i.read_unaligned());
            }
        }
    }
}
