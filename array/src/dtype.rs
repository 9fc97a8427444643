//! Types of elements, and what becomes of two of them.

use std::fmt;

use bytemuck::{Pod, Zeroable};

use crate::error::Error;

/// A complex number of two `f64`: NumPy's complex128.
pub type Complex = num_complex::Complex<f64>;

/// The type of an array's elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DType {
    /// One byte, 0 or 1.
    Bool,
    /// 32 bits.
    I32,
    /// 64 bits.
    I64,
    /// 32 bits.
    F32,
    /// 64 bits.
    F64,
    /// Two `f64`.
    C64,
}

impl DType {
    /// All of them.
    pub const ALL: [Self; 6] = [Self::Bool, Self::I32, Self::I64, Self::F32, Self::F64, Self::C64];

    /// Bytes of an element.
    pub fn size(self) -> usize {
        match self {
            Self::Bool => 1,
            Self::I32 | Self::F32 => 4,
            Self::I64 | Self::F64 => 8,
            Self::C64 => 16,
        }
    }

    /// NumPy's name of it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Bool => "bool",
            Self::I32 => "int32",
            Self::I64 => "int64",
            Self::F32 => "float32",
            Self::F64 => "float64",
            Self::C64 => "complex128",
        }
    }

    /// The smallest type that holds the values of both, as `numpy.promote_types` has it.
    #[must_use]
    pub fn promote(self, other: Self) -> Self {
        let (low, high) = (self.min(other), self.max(other));
        // The mantissa of an f32 is too short for either kind of integer.
        if high == Self::F32 && low.is_integer() { Self::F64 } else { high }
    }

    /// Whether it is `I32` or `I64`.
    pub fn is_integer(self) -> bool {
        matches!(self, Self::I32 | Self::I64)
    }

    /// Whether it is `F32` or `F64`.
    pub fn is_float(self) -> bool {
        matches!(self, Self::F32 | Self::F64)
    }

    /// The type in which functions of real numbers are computed: of integers `F64`.
    ///
    /// # Errors
    /// Of `Bool` NumPy makes float16, which there is not here.
    pub(crate) fn inexact(self, what: &'static str) -> Result<Self, Error> {
        match self {
            Self::Bool => Err(Error::no_such_type(what, "float16")),
            Self::I32 | Self::I64 => Ok(Self::F64),
            other => Ok(other),
        }
    }
}

impl fmt::Display for DType {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name())
    }
}

/// `bool` as it lies in memory: a byte that is 0 or 1. Any other byte that is read counts as true.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(transparent)]
pub struct Truth(u8);

impl From<bool> for Truth {
    fn from(value: bool) -> Self {
        Self(u8::from(value))
    }
}

impl From<Truth> for bool {
    fn from(value: Truth) -> Self {
        value.0 != 0
    }
}

impl std::ops::BitAnd for Truth {
    type Output = Self;

    fn bitand(self, other: Self) -> Self {
        (bool::from(self) & bool::from(other)).into()
    }
}

impl std::ops::BitOr for Truth {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        (bool::from(self) | bool::from(other)).into()
    }
}

impl std::ops::BitXor for Truth {
    type Output = Self;

    fn bitxor(self, other: Self) -> Self {
        (bool::from(self) ^ bool::from(other)).into()
    }
}

impl PartialEq for Truth {
    fn eq(&self, other: &Self) -> bool {
        bool::from(*self) == bool::from(*other)
    }
}

/// What an array may consist of. Conversions are C's, as NumPy's `astype` has them: real numbers that an
/// integer type does not hold become its least value, of complex numbers the imaginary part is dropped.
pub trait Element: Pod + PartialEq + fmt::Debug + Send + Sync {
    /// Which it is.
    const DTYPE: DType;

    /// Of a truth value.
    fn from_bool(value: bool) -> Self;
    /// Of an integer.
    fn from_i64(value: i64) -> Self;
    /// Of a real number.
    fn from_f64(value: f64) -> Self;
    /// Of a complex number.
    fn from_complex(value: Complex) -> Self {
        Self::from_f64(value.re)
    }
    /// As another type.
    fn cast<T: Element>(self) -> T;
    /// Of a scalar.
    fn from_scalar(value: Scalar) -> Self {
        match value {
            Scalar::Bool(value) => Self::from_bool(value),
            Scalar::Int(value) => Self::from_i64(value),
            Scalar::Float(value) => Self::from_f64(value),
            Scalar::Complex(value) => Self::from_complex(value),
        }
    }
}

impl Element for Truth {
    const DTYPE: DType = DType::Bool;

    fn from_bool(value: bool) -> Self {
        value.into()
    }

    fn from_i64(value: i64) -> Self {
        (value != 0).into()
    }

    fn from_f64(value: f64) -> Self {
        (value != 0.0).into()
    }

    fn from_complex(value: Complex) -> Self {
        (value.re != 0.0 || value.im != 0.0).into()
    }

    fn cast<T: Element>(self) -> T {
        T::from_bool(self.into())
    }
}

macro_rules! integer {
    ($type:ty, $dtype:expr) => {
        impl Element for $type {
            const DTYPE: DType = $dtype;

            fn from_bool(value: bool) -> Self {
                Self::from(value)
            }

            fn from_i64(value: i64) -> Self {
                value as Self
            }

            fn from_f64(value: f64) -> Self {
                // The bounds are powers of two, which are exact.
                let bound = -(Self::MIN as f64);
                if value > -bound - 1.0 && value < bound { value as Self } else { Self::MIN }
            }

            fn cast<T: Element>(self) -> T {
                T::from_i64(self.into())
            }
        }
    };
}

integer!(i32, DType::I32);
integer!(i64, DType::I64);

impl Element for f32 {
    const DTYPE: DType = DType::F32;

    fn from_bool(value: bool) -> Self {
        f32::from(u8::from(value))
    }

    fn from_i64(value: i64) -> Self {
        value as f32
    }

    fn from_f64(value: f64) -> Self {
        value as f32
    }

    fn cast<T: Element>(self) -> T {
        T::from_f64(self.into())
    }
}

impl Element for f64 {
    const DTYPE: DType = DType::F64;

    fn from_bool(value: bool) -> Self {
        f64::from(u8::from(value))
    }

    fn from_i64(value: i64) -> Self {
        value as f64
    }

    fn from_f64(value: f64) -> Self {
        value
    }

    fn cast<T: Element>(self) -> T {
        T::from_f64(self)
    }
}

impl Element for Complex {
    const DTYPE: DType = DType::C64;

    fn from_bool(value: bool) -> Self {
        f64::from_bool(value).into()
    }

    fn from_i64(value: i64) -> Self {
        (value as f64).into()
    }

    fn from_f64(value: f64) -> Self {
        value.into()
    }

    fn from_complex(value: Complex) -> Self {
        value
    }

    fn cast<T: Element>(self) -> T {
        T::from_complex(self)
    }
}

/// A number that takes the type of the array it meets, where that holds its kind (NumPy's NEP 50).
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Scalar {
    /// A truth value.
    Bool(bool),
    /// An integer.
    Int(i64),
    /// A real number.
    Float(f64),
    /// A complex number.
    Complex(Complex),
}

impl Scalar {
    /// The type it has beside an array of this type.
    pub(crate) fn beside(self, other: DType) -> Result<DType, Error> {
        match self {
            Self::Bool(_) => Ok(other),
            Self::Int(value) => match other {
                DType::Bool => Ok(DType::I64),
                DType::I32 if i32::try_from(value).is_err() => {
                    Err(Error::Overflow { value: value.to_string(), dtype: other })
                }
                _ => Ok(other),
            },
            Self::Float(_) if other < DType::F32 => Ok(DType::F64),
            Self::Float(_) => Ok(other),
            Self::Complex(_) if other == DType::F32 => {
                Err(Error::no_such_type("a complex scalar", "complex64"))
            }
            Self::Complex(_) => Ok(DType::C64),
        }
    }

    /// The type of an array of it.
    pub fn dtype(self) -> DType {
        match self {
            Self::Bool(_) => DType::Bool,
            Self::Int(_) => DType::I64,
            Self::Float(_) => DType::F64,
            Self::Complex(_) => DType::C64,
        }
    }
}

macro_rules! scalar {
    ($($type:ty => $kind:ident),*) => {
        $(impl From<$type> for Scalar {
            fn from(value: $type) -> Self {
                Self::$kind(value.into())
            }
        })*
    };
}

scalar!(bool => Bool, i32 => Int, i64 => Int, f32 => Float, f64 => Float, Complex => Complex);

/// Does something with `$T` as the type that `$dtype` names.
macro_rules! with_type {
    ($dtype:expr, $T:ident => $body:expr) => {
        match $dtype {
            $crate::dtype::DType::Bool => {
                type $T = $crate::dtype::Truth;
                $body
            }
            $crate::dtype::DType::I32 => {
                type $T = i32;
                $body
            }
            $crate::dtype::DType::I64 => {
                type $T = i64;
                $body
            }
            $crate::dtype::DType::F32 => {
                type $T = f32;
                $body
            }
            $crate::dtype::DType::F64 => {
                type $T = f64;
                $body
            }
            $crate::dtype::DType::C64 => {
                type $T = $crate::dtype::Complex;
                $body
            }
        }
    };
}
pub(crate) use with_type;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_promoted_as_numpy_does() {
        use DType::{Bool, C64, F32, F64, I32, I64};
        // numpy.promote_types of each pair, in the order of `ALL`.
        let table = [
            [Bool, I32, I64, F32, F64, C64],
            [I32, I32, I64, F64, F64, C64],
            [I64, I64, I64, F64, F64, C64],
            [F32, F64, F64, F32, F64, C64],
            [F64, F64, F64, F64, F64, C64],
            [C64; 6],
        ];
        for (row, one) in DType::ALL.into_iter().enumerate() {
            for (column, other) in DType::ALL.into_iter().enumerate() {
                assert_eq!(one.promote(other), table[row][column], "{one} and {other}");
            }
        }
    }

    #[test]
    fn what_an_integer_does_not_hold_is_its_least() {
        assert_eq!(
            [2147483647.9, -2147483648.9, 2147483648.0, f64::NAN].map(i32::from_f64),
            [i32::MAX, i32::MIN, i32::MIN, i32::MIN]
        );
        assert_eq!([9.3e18, -9.3e18, 1.5].map(i64::from_f64), [i64::MIN, i64::MIN, 1]);
    }
}
