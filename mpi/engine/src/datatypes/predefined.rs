//! Predefined datatypes: their handles (MPI-5.0, annex A.1.1), and which of them is meant by a size, a
//! precision or a pair.

use bdrun_mpi_core::datatype::Basic;

use crate::groups::UNDEFINED;
use crate::handle::Datatype;

/// Its handle, in the standard's ABI.
pub const fn handle(basic: Basic) -> Datatype {
    Datatype(match basic {
        Basic::Char => 0x243,
        Basic::SignedChar => 0x244,
        Basic::UnsignedChar => 0x245,
        Basic::Byte => 0x247,
        Basic::Packed => 0x207,
        Basic::WChar => 0x23c,
        Basic::Short => 0x208,
        Basic::UnsignedShort => 0x20c,
        Basic::Int => 0x209,
        Basic::Unsigned => 0x20d,
        Basic::Long => 0x20a,
        Basic::UnsignedLong => 0x20e,
        Basic::LongLong => 0x20b,
        Basic::UnsignedLongLong => 0x20f,
        Basic::Float => 0x210,
        Basic::Double => 0x214,
        Basic::LongDouble => 0x220,
        Basic::Int8 => 0x240,
        Basic::Int16 => 0x248,
        Basic::Int32 => 0x250,
        Basic::Int64 => 0x258,
        Basic::Uint8 => 0x241,
        Basic::Uint16 => 0x249,
        Basic::Uint32 => 0x251,
        Basic::Uint64 => 0x259,
        Basic::Aint => 0x201,
        Basic::Offset => 0x203,
        Basic::Count => 0x202,
        Basic::CBool => 0x238,
        Basic::CFloatComplex => 0x212,
        Basic::CDoubleComplex => 0x216,
        Basic::CLongDoubleComplex => 0x224,
        Basic::CxxBool => 0x239,
        Basic::CxxFloatComplex => 0x213,
        Basic::CxxDoubleComplex => 0x217,
        Basic::CxxLongDoubleComplex => 0x225,
        Basic::FloatInt => 0x228,
        Basic::DoubleInt => 0x229,
        Basic::LongInt => 0x22a,
        Basic::TwoInt => 0x22b,
        Basic::ShortInt => 0x22c,
        Basic::LongDoubleInt => 0x22d,
        Basic::Character => 0x21e,
        Basic::Logical => 0x218,
        Basic::Logical1 => 0x2c0,
        Basic::Logical2 => 0x2c8,
        Basic::Logical4 => 0x2d0,
        Basic::Logical8 => 0x2d8,
        Basic::Logical16 => 0x2e0,
        Basic::Integer => 0x219,
        Basic::Integer1 => 0x2c1,
        Basic::Integer2 => 0x2c9,
        Basic::Integer4 => 0x2d1,
        Basic::Integer8 => 0x2d9,
        Basic::Integer16 => 0x2e1,
        Basic::Real => 0x21a,
        Basic::Real2 => 0x2ca,
        Basic::Real4 => 0x2d2,
        Basic::Real8 => 0x2da,
        Basic::Real16 => 0x2e2,
        Basic::DoublePrecision => 0x21c,
        Basic::FComplex => 0x21b,
        Basic::DoubleComplex => 0x21d,
        Basic::Complex4 => 0x2d3,
        Basic::Complex8 => 0x2db,
        Basic::Complex16 => 0x2e3,
        Basic::Complex32 => 0x2eb,
        Basic::TwoReal => 0x230,
        Basic::TwoDoublePrecision => 0x231,
        Basic::TwoInteger => 0x232,
    })
}

/// The least of these that has so many digits and exponents: `MPI_Type_create_f90_real`.
/// Either number may be `MPI_UNDEFINED`, but not both.
fn least(all: [(i64, i64, Basic); 4], p: i64, r: i64) -> Option<Basic> {
    if p == UNDEFINED && r == UNDEFINED {
        return None;
    }
    let is_asked = |asked: i64| asked == UNDEFINED || asked >= 0;
    let found = all.into_iter().find(|&(digits, range, _)| p <= digits && r <= range);
    found.filter(|_| is_asked(p) && is_asked(r)).map(|(.., basic)| basic)
}

/// Digits and exponents of `long double`: gfortran has a real of it, kind 10 on x86-64. (Other compilers have
/// none, and for so many digits one of 128 bits.)
const LONG: (i64, i64) = if cfg!(target_arch = "x86_64") { (18, 4931) } else { (33, 4931) };

/// Of reals.
pub fn real(p: i64, r: i64) -> Option<Basic> {
    let (digits, range) = LONG;
    let long = (digits, range, Basic::LongDouble);
    least([(6, 37, Basic::Real4), (15, 307, Basic::Real8), long, (33, 4931, Basic::Real16)], p, r)
}

/// Of complex numbers.
pub fn complex(p: i64, r: i64) -> Option<Basic> {
    let (digits, range) = LONG;
    let long = (digits, range, Basic::CLongDoubleComplex);
    least([(6, 37, Basic::Complex8), (15, 307, Basic::Complex16), long, (33, 4931, Basic::Complex32)], p, r)
}

/// Of integers with so many digits.
pub const fn integer(r: i64) -> Option<Basic> {
    match r {
        0..=2 => Some(Basic::Integer1),
        3..=4 => Some(Basic::Integer2),
        5..=9 => Some(Basic::Integer4),
        10..=18 => Some(Basic::Integer8),
        19..=38 => Some(Basic::Integer16),
        _ => None,
    }
}

/// `MPI_Type_match_size`: of a class of types, by its number, the one of so many bytes.
pub const fn of_size(class: i64, size: i64) -> Option<Basic> {
    Some(match (class, size) {
        (192, 1) => Basic::Integer1,
        (192, 2) => Basic::Integer2,
        (192, 4) => Basic::Integer4,
        (192, 8) => Basic::Integer8,
        (192, 16) => Basic::Integer16,
        (193, 2) => Basic::Real2,
        (193, 4) => Basic::Real4,
        (193, 8) => Basic::Real8,
        (193, 16) => Basic::Real16,
        (194, 4) => Basic::Complex4,
        (194, 8) => Basic::Complex8,
        (194, 16) => Basic::Complex16,
        (194, 32) => Basic::Complex32,
        _ => return None,
    })
}

/// The pair of a value and an index, if there is one.
pub const fn pair(value: Basic, index: Basic) -> Option<Basic> {
    Some(match (value, index) {
        (Basic::Float, Basic::Int) => Basic::FloatInt,
        (Basic::Double, Basic::Int) => Basic::DoubleInt,
        (Basic::Long, Basic::Int) => Basic::LongInt,
        (Basic::Int, Basic::Int) => Basic::TwoInt,
        (Basic::Short, Basic::Int) => Basic::ShortInt,
        (Basic::LongDouble, Basic::Int) => Basic::LongDoubleInt,
        (Basic::Real, Basic::Real) => Basic::TwoReal,
        (Basic::DoublePrecision, Basic::DoublePrecision) => Basic::TwoDoublePrecision,
        (Basic::Integer, Basic::Integer) => Basic::TwoInteger,
        _ => return None,
    })
}
