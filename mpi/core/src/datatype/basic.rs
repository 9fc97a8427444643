//! Predefined datatypes (MPI-5.0, sections 3.2.2 and 6.9.2, annex A.1.1): what their elements are, and which
//! operations they may be used in.

/// One element, as the processor sees it; the number is its size in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Scalar {
    /// An integer with a sign.
    Int(u8),
    /// An integer without one.
    Uint(u8),
    /// A number of 2, 4 or 8 bytes as in IEEE 754; of 16: `long double` of the platform.
    Float(u8),
    /// Two of these, each half as large.
    Complex(u8),
    /// A number of 16 bytes as in IEEE 754, or two.
    Quad(u8),
    /// A truth value of C or C++.
    Bool,
    /// A truth value of Fortran.
    Logical(u8),
    /// A letter, which is a small integer in C.
    Char,
    /// A letter of the platform's wide characters.
    WChar,
    /// Eight bits that mean nothing.
    Byte,
}

impl Scalar {
    /// Its size in memory, bytes.
    #[must_use]
    pub const fn size(self) -> usize {
        match self {
            Self::Int(bytes) | Self::Uint(bytes) | Self::Float(bytes) | Self::Quad(bytes) => bytes as usize,
            Self::Complex(bytes) | Self::Logical(bytes) => bytes as usize,
            Self::WChar => 4,
            Self::Bool | Self::Char | Self::Byte => 1,
        }
    }

    /// What its address is a multiple of, as compilers lay it out.
    #[must_use]
    pub const fn align(self) -> usize {
        match self {
            Self::Complex(bytes) => bytes as usize / 2,
            Self::Quad(_) => 16,
            _ => self.size(),
        }
    }

    /// Bytes that differ in their order between machines: those of each number in it.
    #[must_use]
    pub const fn word(self) -> usize {
        match self {
            Self::Complex(bytes) => bytes as usize / 2,
            Self::Quad(_) => 16,
            _ => self.size(),
        }
    }
}

/// What an operation may do with a datatype (MPI-5.0, section 6.9.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Class {
    /// Of C, of Fortran, or of several languages: `MPI_AINT` and the like.
    Integer,
    /// `MPI_CHAR`: a letter to the standard, an integer to C and to libraries.
    Char,
    /// A real number.
    Float,
    /// A complex one.
    Complex,
    /// A truth value.
    Logical,
    /// Bits.
    Byte,
    /// A value and an index, for `MPI_MAXLOC` and `MPI_MINLOC`.
    Pair,
    /// None: other letters, and bytes that may be anything.
    Opaque,
}

macro_rules! basics {
    ($($variant:ident = $name:literal, $class:ident, $first:expr $(, $second:expr)?;)*) => {
        /// A predefined datatype. Two with the same elements are still different ones.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[expect(missing_docs, reason = "the standard's names")]
        pub enum Basic { $($variant,)* }

        impl Basic {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$variant,)*];

            /// Its name in the standard, and what `MPI_Type_get_name` tells at first.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }

            /// What may be computed with it.
            #[must_use]
            pub const fn class(self) -> Class {
                match self { $(Self::$variant => Class::$class,)* }
            }

            /// What it is made of: one element, or of a pair both.
            #[must_use]
            pub const fn elements(self) -> (Scalar, Option<Scalar>) {
                match self { $(Self::$variant => ($first, basics!(@ $($second)?)),)* }
            }
        }
    };
    (@) => { None };
    (@ $second:expr) => { Some($second) };
}

use Scalar::{Bool, Byte, Char, Complex, Float, Int, Logical, Quad, Uint, WChar};

basics! {
    Char = "MPI_CHAR", Char, Char;
    SignedChar = "MPI_SIGNED_CHAR", Integer, Int(1);
    UnsignedChar = "MPI_UNSIGNED_CHAR", Integer, Uint(1);
    Byte = "MPI_BYTE", Byte, Byte;
    Packed = "MPI_PACKED", Opaque, Byte;
    WChar = "MPI_WCHAR", Opaque, WChar;
    Short = "MPI_SHORT", Integer, Int(2);
    UnsignedShort = "MPI_UNSIGNED_SHORT", Integer, Uint(2);
    Int = "MPI_INT", Integer, Int(4);
    Unsigned = "MPI_UNSIGNED", Integer, Uint(4);
    Long = "MPI_LONG", Integer, Int(8);
    UnsignedLong = "MPI_UNSIGNED_LONG", Integer, Uint(8);
    LongLong = "MPI_LONG_LONG", Integer, Int(8);
    UnsignedLongLong = "MPI_UNSIGNED_LONG_LONG", Integer, Uint(8);
    Float = "MPI_FLOAT", Float, Float(4);
    Double = "MPI_DOUBLE", Float, Float(8);
    LongDouble = "MPI_LONG_DOUBLE", Float, Float(16);
    Int8 = "MPI_INT8_T", Integer, Int(1);
    Int16 = "MPI_INT16_T", Integer, Int(2);
    Int32 = "MPI_INT32_T", Integer, Int(4);
    Int64 = "MPI_INT64_T", Integer, Int(8);
    Uint8 = "MPI_UINT8_T", Integer, Uint(1);
    Uint16 = "MPI_UINT16_T", Integer, Uint(2);
    Uint32 = "MPI_UINT32_T", Integer, Uint(4);
    Uint64 = "MPI_UINT64_T", Integer, Uint(8);
    Aint = "MPI_AINT", Integer, Int(8);
    Offset = "MPI_OFFSET", Integer, Int(8);
    Count = "MPI_COUNT", Integer, Int(8);
    CBool = "MPI_C_BOOL", Logical, Bool;
    CFloatComplex = "MPI_C_FLOAT_COMPLEX", Complex, Complex(8);
    CDoubleComplex = "MPI_C_DOUBLE_COMPLEX", Complex, Complex(16);
    CLongDoubleComplex = "MPI_C_LONG_DOUBLE_COMPLEX", Complex, Complex(32);
    CxxBool = "MPI_CXX_BOOL", Logical, Bool;
    CxxFloatComplex = "MPI_CXX_FLOAT_COMPLEX", Complex, Complex(8);
    CxxDoubleComplex = "MPI_CXX_DOUBLE_COMPLEX", Complex, Complex(16);
    CxxLongDoubleComplex = "MPI_CXX_LONG_DOUBLE_COMPLEX", Complex, Complex(32);
    FloatInt = "MPI_FLOAT_INT", Pair, Float(4), Int(4);
    DoubleInt = "MPI_DOUBLE_INT", Pair, Float(8), Int(4);
    LongInt = "MPI_LONG_INT", Pair, Int(8), Int(4);
    TwoInt = "MPI_2INT", Pair, Int(4), Int(4);
    ShortInt = "MPI_SHORT_INT", Pair, Int(2), Int(4);
    LongDoubleInt = "MPI_LONG_DOUBLE_INT", Pair, Float(16), Int(4);
    Character = "MPI_CHARACTER", Opaque, Char;
    Logical = "MPI_LOGICAL", Logical, Logical(4);
    Logical1 = "MPI_LOGICAL1", Logical, Logical(1);
    Logical2 = "MPI_LOGICAL2", Logical, Logical(2);
    Logical4 = "MPI_LOGICAL4", Logical, Logical(4);
    Logical8 = "MPI_LOGICAL8", Logical, Logical(8);
    Logical16 = "MPI_LOGICAL16", Logical, Logical(16);
    Integer = "MPI_INTEGER", Integer, Int(4);
    Integer1 = "MPI_INTEGER1", Integer, Int(1);
    Integer2 = "MPI_INTEGER2", Integer, Int(2);
    Integer4 = "MPI_INTEGER4", Integer, Int(4);
    Integer8 = "MPI_INTEGER8", Integer, Int(8);
    Integer16 = "MPI_INTEGER16", Integer, Int(16);
    Real = "MPI_REAL", Float, Float(4);
    Real2 = "MPI_REAL2", Float, Float(2);
    Real4 = "MPI_REAL4", Float, Float(4);
    Real8 = "MPI_REAL8", Float, Float(8);
    Real16 = "MPI_REAL16", Float, Quad(16);
    DoublePrecision = "MPI_DOUBLE_PRECISION", Float, Float(8);
    FComplex = "MPI_COMPLEX", Complex, Complex(8);
    DoubleComplex = "MPI_DOUBLE_COMPLEX", Complex, Complex(16);
    Complex4 = "MPI_COMPLEX4", Complex, Complex(4);
    Complex8 = "MPI_COMPLEX8", Complex, Complex(8);
    Complex16 = "MPI_COMPLEX16", Complex, Complex(16);
    Complex32 = "MPI_COMPLEX32", Complex, Quad(32);
    TwoReal = "MPI_2REAL", Pair, Float(4), Float(4);
    TwoDoublePrecision = "MPI_2DOUBLE_PRECISION", Pair, Float(8), Float(8);
    TwoInteger = "MPI_2INTEGER", Pair, Int(4), Int(4);
}

impl Basic {
    /// Bytes from its beginning to the next one's: of a pair what the compiler makes of a structure.
    #[must_use]
    pub fn extent(self) -> usize {
        let (first, second) = self.elements();
        let Some(second) = second else { return first.size() };
        let align = first.align().max(second.align());
        (self.second_at() + second.size()).next_multiple_of(align)
    }

    /// Where the index of a pair is, bytes from its beginning.
    #[must_use]
    pub fn second_at(self) -> usize {
        let (first, second) = self.elements();
        second.map_or(0, |second| first.size().next_multiple_of(second.align()))
    }

    /// Bytes that hold anything.
    #[must_use]
    pub fn size(self) -> usize {
        let (first, second) = self.elements();
        first.size() + second.map_or(0, Scalar::size)
    }

    /// What its address is a multiple of.
    #[must_use]
    pub fn align(self) -> usize {
        let (first, second) = self.elements();
        first.align().max(second.map_or(1, Scalar::align))
    }

    /// Bytes of each element in the representation "external32" (MPI-5.0, section 14.5.2).
    #[must_use]
    pub const fn external_sizes(self) -> (usize, usize) {
        let first = match self {
            Self::Long | Self::UnsignedLong => 4,
            Self::WChar => 2,
            Self::LongInt => 4,
            _ => self.elements().0.size(),
        };
        match self.elements().1 {
            Some(second) => (first, second.size()),
            None => (first, 0),
        }
    }
}
