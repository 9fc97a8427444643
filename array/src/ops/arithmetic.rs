//! Functions of single elements.

use crate::array::{Array, Op};
use crate::dtype::{DType, Scalar};
use crate::error::Error;
use crate::kernel::{Binary, Unary};
use crate::shape::{Chunks, broadcast};

/// An operand: an array, or a number that takes its type from the array it meets.
#[derive(Clone, Debug)]
pub enum Operand {
    /// An array.
    Array(Array),
    /// A number.
    Scalar(Scalar),
}

impl From<&Array> for Operand {
    fn from(array: &Array) -> Self {
        Self::Array(array.clone())
    }
}

impl From<Array> for Operand {
    fn from(array: Array) -> Self {
        Self::Array(array)
    }
}

impl<T: Into<Scalar>> From<T> for Operand {
    fn from(value: T) -> Self {
        Self::Scalar(value.into())
    }
}

impl Unary {
    fn name(self) -> &'static str {
        match self {
            Self::Cast => "astype",
            Self::Negative => "negative",
            Self::Absolute => "absolute",
            Self::Sign => "sign",
            Self::Square => "square",
            Self::Sqrt => "sqrt",
            Self::Exp => "exp",
            Self::Expm1 => "expm1",
            Self::Log => "log",
            Self::Log10 => "log10",
            Self::Log1p => "log1p",
            Self::Sin => "sin",
            Self::Cos => "cos",
            Self::Tan => "tan",
            Self::Sinh => "sinh",
            Self::Cosh => "cosh",
            Self::Tanh => "tanh",
            Self::Arctan => "arctan",
            Self::Floor => "floor",
            Self::Ceil => "ceil",
            Self::Trunc => "trunc",
            Self::Rint => "rint",
            Self::IsNan => "isnan",
            Self::IsFinite => "isfinite",
            Self::IsInf => "isinf",
            Self::LogicalNot => "logical_not",
            Self::Invert => "invert",
            Self::Conj => "conj",
            Self::Real => "real",
            Self::Imag => "imag",
        }
    }

    /// The type of its values; None: they are what they were.
    fn dtype(self, of: DType) -> Result<Option<DType>, Error> {
        let what = self.name();
        let refused = || Err(Error::Type { what, dtype: of });
        let is_real = of != DType::C64;
        Ok(Some(match self {
            Self::Cast => of,
            Self::Negative | Self::Sign if of == DType::Bool => return refused(),
            Self::Negative | Self::Sign => of,
            Self::Absolute if of == DType::Bool => return Ok(None),
            Self::Absolute => {
                if is_real {
                    of
                } else {
                    DType::F64
                }
            }
            Self::Square | Self::Conj if of == DType::Bool => return Err(Error::no_such_type(what, "int8")),
            Self::Square => of,
            Self::Floor | Self::Ceil | Self::Trunc => match of {
                DType::C64 => return refused(),
                DType::F32 | DType::F64 => of,
                _ => return Ok(None),
            },
            Self::IsNan | Self::IsFinite | Self::IsInf | Self::LogicalNot => DType::Bool,
            Self::Invert if of == DType::Bool || of.is_integer() => of,
            Self::Invert => return refused(),
            Self::Conj | Self::Real if is_real => return Ok(None),
            Self::Conj => of,
            Self::Real | Self::Imag => DType::F64,
            _ => of.inexact(what)?,
        }))
    }
}

impl Binary {
    fn name(self) -> &'static str {
        match self {
            Self::Add => "add",
            Self::Subtract => "subtract",
            Self::Multiply => "multiply",
            Self::Divide => "divide",
            Self::FloorDivide => "floor_divide",
            Self::Remainder => "remainder",
            Self::Power => "power",
            Self::Minimum => "minimum",
            Self::Maximum => "maximum",
            Self::Arctan2 => "arctan2",
            Self::Less => "less",
            Self::LessEqual => "less_equal",
            Self::Equal => "equal",
            Self::NotEqual => "not_equal",
            Self::LogicalAnd => "logical_and",
            Self::LogicalOr => "logical_or",
            Self::LogicalXor => "logical_xor",
            Self::BitwiseAnd => "bitwise_and",
            Self::BitwiseOr => "bitwise_or",
            Self::BitwiseXor => "bitwise_xor",
        }
    }

    /// Whether it asks something of its operands, and so takes numbers of any size.
    fn is_question(self) -> bool {
        matches!(
            self,
            Self::Less
                | Self::LessEqual
                | Self::Equal
                | Self::NotEqual
                | Self::LogicalAnd
                | Self::LogicalOr
                | Self::LogicalXor
        )
    }

    fn is_quotient(self) -> bool {
        matches!(self, Self::Divide | Self::Arctan2)
    }

    /// The type in which operands of a common type are computed, and that of the result.
    fn dtypes(self, of: DType) -> Result<(DType, DType), Error> {
        let what = self.name();
        let refused = || Err(Error::Type { what, dtype: of });
        Ok(match self {
            Self::Add | Self::Multiply | Self::Minimum | Self::Maximum => (of, of),
            Self::Subtract if of == DType::Bool => return refused(),
            Self::Subtract => (of, of),
            Self::Divide => {
                let of = if of == DType::Bool { DType::F64 } else { of.inexact(what)? };
                (of, of)
            }
            Self::FloorDivide | Self::Remainder if of == DType::C64 => return refused(),
            Self::FloorDivide | Self::Remainder | Self::Power if of == DType::Bool => {
                return Err(Error::no_such_type(what, "int8"));
            }
            Self::FloorDivide | Self::Remainder | Self::Power => (of, of),
            Self::Arctan2 if of == DType::C64 => return refused(),
            Self::Arctan2 => {
                let of = of.inexact(what)?;
                (of, of)
            }
            Self::Less | Self::LessEqual | Self::Equal | Self::NotEqual => (of, DType::Bool),
            Self::LogicalAnd | Self::LogicalOr | Self::LogicalXor => (of, DType::Bool),
            Self::BitwiseAnd | Self::BitwiseOr | Self::BitwiseXor => {
                if of.is_float() || of == DType::C64 {
                    return refused();
                }
                (of, of)
            }
        })
    }
}

/// Operands in shapes that stretch to one, in chunks that fit, and the chunks of the result.
#[track_caller]
pub(crate) fn aligned<const N: usize>(
    what: &'static str,
    operands: [Array; N],
) -> Result<([Array; N], Chunks), Error> {
    let shapes: Vec<&[usize]> = operands.iter().map(Array::shape).collect();
    let shape = broadcast(what, &shapes)?;
    let all: Vec<&Chunks> = operands.iter().map(Array::chunks).collect();
    let largest = all.iter().map(|chunks| chunks.largest()).max().unwrap_or(0);
    let chunks = Chunks::common(&shape, &all).limited(largest);
    let operands = operands.map(|operand| {
        let own = Chunks::as_operand(operand.shape(), &chunks);
        operand.in_chunks(&own)
    });
    Ok((operands, chunks))
}

/// Two operands as arrays, and the type that holds both.
#[track_caller]
fn typed(operands: [Operand; 2], function: Option<Binary>) -> Result<([Array; 2], DType), Error> {
    let beside = |value: Scalar, dtype: DType| match value {
        // Whether it is larger than any can be asked of all, and what is divided is real.
        Scalar::Int(_) if dtype == DType::I32 && function.is_some_and(Binary::is_question) => Ok(DType::I64),
        Scalar::Int(_) if dtype < DType::F32 && function.is_some_and(Binary::is_quotient) => Ok(DType::F64),
        _ => value.beside(dtype),
    };
    let scalar = |value: Scalar, dtype: DType| Array::full(&[], value, dtype);
    Ok(match operands {
        [Operand::Array(x), Operand::Array(y)] => {
            let dtype = x.dtype().promote(y.dtype());
            ([x, y], dtype)
        }
        [Operand::Array(x), Operand::Scalar(y)] => {
            let dtype = beside(y, x.dtype())?;
            ([x, scalar(y, dtype)], dtype)
        }
        [Operand::Scalar(x), Operand::Array(y)] => {
            let dtype = beside(x, y.dtype())?;
            ([scalar(x, dtype), y], dtype)
        }
        [Operand::Scalar(x), Operand::Scalar(y)] => {
            let dtype = x.dtype().promote(y.dtype());
            ([scalar(x, dtype), scalar(y, dtype)], dtype)
        }
    })
}

impl Array {
    /// The elements as another type ([`crate::Element`] says how).
    #[must_use]
    #[track_caller]
    pub fn astype(&self, dtype: DType) -> Self {
        if dtype == self.dtype() {
            return self.clone();
        }
        Self::new(Op::Unary(Unary::Cast, self.clone()), dtype, self.chunks().clone())
    }

    /// A function of each element.
    ///
    /// # Errors
    /// If the type does not have it.
    #[track_caller]
    pub fn unary(&self, function: Unary) -> Result<Self, Error> {
        if function == Unary::Imag && self.dtype() != DType::C64 {
            return Ok(Self::new(Op::Full(Scalar::Bool(false)), self.dtype(), self.chunks().clone()));
        }
        match function.dtype(self.dtype())? {
            None => Ok(self.clone()),
            Some(dtype) => Ok(Self::new(Op::Unary(function, self.clone()), dtype, self.chunks().clone())),
        }
    }

    /// A function of each pair of elements; shapes stretch to fit each other.
    ///
    /// # Errors
    /// If the type does not have it, the shapes do not fit, or a number is too large for the array's type.
    #[track_caller]
    pub fn binary(function: Binary, x: impl Into<Operand>, y: impl Into<Operand>) -> Result<Self, Error> {
        let (operands, dtype) = typed([x.into(), y.into()], Some(function))?;
        let (of, dtype) = function.dtypes(dtype)?;
        let (operands, chunks) = aligned(function.name(), operands)?;
        Ok(Self::new(Op::Binary { function, of, operands }, dtype, chunks))
    }

    /// Of each element that of `x` where the condition is true, else that of `y` (`numpy.where`).
    ///
    /// # Errors
    /// If the shapes do not fit, or a number is too large for the array's type.
    #[track_caller]
    pub fn select(condition: &Self, x: impl Into<Operand>, y: impl Into<Operand>) -> Result<Self, Error> {
        let (operands, dtype) = typed([x.into(), y.into()], None)?;
        let [x, y] = operands;
        let ([condition, x, y], chunks) = aligned("where", [condition.clone(), x, y])?;
        Ok(Self::new(Op::Select([condition, x, y]), dtype, chunks))
    }
}

macro_rules! unary {
    ($($method:ident $function:ident),* $(,)?) => {
        impl Array {
            $(
                #[doc = concat!("[`Unary::", stringify!($function), "`] of each element.")]
                ///
                /// # Errors
                /// If the type does not have it.
                #[track_caller]
                pub fn $method(&self) -> Result<Self, Error> {
                    self.unary(Unary::$function)
                }
            )*
        }
    };
}

unary!(
    negative Negative, abs Absolute, sign Sign, square Square, sqrt Sqrt, exp Exp, expm1 Expm1, log Log,
    log10 Log10, log1p Log1p, sin Sin, cos Cos, tan Tan, sinh Sinh, cosh Cosh, tanh Tanh, arctan Arctan,
    floor Floor, ceil Ceil, trunc Trunc, rint Rint, isnan IsNan, isfinite IsFinite, isinf IsInf,
    logical_not LogicalNot, invert Invert, conj Conj, real Real, imag Imag,
);

macro_rules! binary {
    ($($method:ident $function:ident),* $(,)?) => {
        impl Array {
            $(
                #[doc = concat!("[`Binary::", stringify!($function), "`] of this one's elements and others.")]
                ///
                /// # Errors
                /// If the type does not have it, or the shapes do not fit.
                #[track_caller]
                pub fn $method(&self, other: impl Into<Operand>) -> Result<Self, Error> {
                    Self::binary(Binary::$function, self, other)
                }
            )*
        }
    };
}

binary!(
    add Add, subtract Subtract, multiply Multiply, divide Divide, floor_divide FloorDivide,
    remainder Remainder, power Power, minimum Minimum, maximum Maximum, arctan2 Arctan2, less Less,
    less_equal LessEqual, equal Equal, not_equal NotEqual, logical_and LogicalAnd, logical_or LogicalOr,
    logical_xor LogicalXor, bitwise_and BitwiseAnd, bitwise_or BitwiseOr, bitwise_xor BitwiseXor,
);

impl Array {
    /// Whether each element is greater than the other.
    ///
    /// # Errors
    /// If the shapes do not fit.
    #[track_caller]
    pub fn greater(&self, other: impl Into<Operand>) -> Result<Self, Error> {
        Self::binary(Binary::Less, other, self)
    }

    /// Whether each element is no less than the other.
    ///
    /// # Errors
    /// If the shapes do not fit.
    #[track_caller]
    pub fn greater_equal(&self, other: impl Into<Operand>) -> Result<Self, Error> {
        Self::binary(Binary::LessEqual, other, self)
    }
}

macro_rules! operator {
    ($($trait:ident $method:ident $function:ident),*) => {
        $(
            impl<T: Into<Operand>> std::ops::$trait<T> for &Array {
                type Output = Array;

                /// # Panics
                /// If the method of the same name returns an error.
                #[track_caller]
                fn $method(self, other: T) -> Array {
                    Array::binary(Binary::$function, self, other).unwrap_or_else(|error| panic!("{error}"))
                }
            }

            impl<T: Into<Operand>> std::ops::$trait<T> for Array {
                type Output = Array;

                #[track_caller]
                fn $method(self, other: T) -> Array {
                    Array::binary(Binary::$function, self, other).unwrap_or_else(|error| panic!("{error}"))
                }
            }
        )*
    };
}

operator!(Add add Add, Sub sub Subtract, Mul mul Multiply, Div div Divide, Rem rem Remainder);
