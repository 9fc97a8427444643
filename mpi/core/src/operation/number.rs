//! What operations need of numbers.

/// Can be added and multiplied; integers wrap.
pub(super) trait Number: Copy {
    fn add(self, other: Self) -> Self;
    fn multiply(self, other: Self) -> Self;
}

/// Has an order.
pub(super) trait Ordered: Copy {
    fn is_less(self, other: Self) -> bool;
    /// Neither is less, and both are numbers.
    fn is_equal(self, other: Self) -> bool;
}

/// Is true or not.
pub(super) trait Truth: Copy {
    fn is_true(self) -> bool;
    fn of(value: bool) -> Self;
}

/// Has bits.
pub(super) trait Bits:
    Sized + std::ops::BitAnd<Output = Self> + std::ops::BitOr<Output = Self> + std::ops::BitXor<Output = Self>
{
}

macro_rules! integers {
    ($($type:ty)*) => { $(
        impl Number for $type {
            fn add(self, other: Self) -> Self {
                self.wrapping_add(other)
            }
            fn multiply(self, other: Self) -> Self {
                self.wrapping_mul(other)
            }
        }
        impl Ordered for $type {
            fn is_less(self, other: Self) -> bool {
                self < other
            }
            fn is_equal(self, other: Self) -> bool {
                self == other
            }
        }
        impl Truth for $type {
            fn is_true(self) -> bool {
                self != 0
            }
            fn of(value: bool) -> Self {
                Self::from(value)
            }
        }
        impl Bits for $type {}
    )* };
}

integers! { i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 }

macro_rules! floats {
    ($($type:ty)*) => { $(
        impl Number for $type {
            fn add(self, other: Self) -> Self {
                self + other
            }
            fn multiply(self, other: Self) -> Self {
                self * other
            }
        }
        impl Ordered for $type {
            fn is_less(self, other: Self) -> bool {
                self < other
            }
            fn is_equal(self, other: Self) -> bool {
                self == other
            }
        }
    )* };
}

floats! { f32 f64 }

/// A complex number, as C, C++ and Fortran have it.
#[derive(Debug, Clone, Copy, PartialEq)]
#[repr(C)]
pub(super) struct Complex<T> {
    pub re: T,
    pub im: T,
}

/// What the product of complex numbers needs besides.
pub(super) trait Signed: Number {
    fn negative(self) -> Self;
}

impl Signed for f32 {
    fn negative(self) -> Self {
        -self
    }
}

impl Signed for f64 {
    fn negative(self) -> Self {
        -self
    }
}

impl<T: Signed> Number for Complex<T> {
    fn add(self, other: Self) -> Self {
        Self { re: self.re.add(other.re), im: self.im.add(other.im) }
    }

    fn multiply(self, other: Self) -> Self {
        let re = self.re.multiply(other.re).add(self.im.multiply(other.im).negative());
        let im = self.re.multiply(other.im).add(self.im.multiply(other.re));
        Self { re, im }
    }
}

/// IEEE's number of 16 bits; it is computed with 32.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(transparent)]
pub(super) struct Half(pub u16);

impl Half {
    pub fn wide(self) -> f32 {
        let sign = u32::from(self.0 >> 15) << 31;
        let (exponent, fraction) = (u32::from(self.0 >> 10) & 31, u32::from(self.0) & 0x3ff);
        let bits = match (exponent, fraction) {
            (0, 0) => sign,
            (0, _) => {
                let value = fraction as f32 / 16_777_216.0;
                return if sign == 0 { value } else { -value };
            }
            (31, _) => sign | 0x7f80_0000 | fraction << 13,
            _ => sign | (exponent + 112) << 23 | fraction << 13,
        };
        f32::from_bits(bits)
    }

    /// The nearest there is; of two, the even one.
    pub fn near(value: f32) -> Self {
        let bits = value.to_bits();
        let sign = (bits >> 16) as u16 & 0x8000;
        let magnitude = bits & 0x7fff_ffff;
        if magnitude > 0x7f80_0000 {
            return Self(sign | 0x7e00);
        }
        // From here on it is rounded to infinity.
        if magnitude >= 0x477f_f000 {
            return Self(sign | 0x7c00);
        }
        if magnitude < 0x3880_0000 {
            // In units of the smallest number: adding so much leaves the bits that remain, rounded.
            let scaled = f32::from_bits(magnitude) + 0.5;
            return Self(sign | (scaled.to_bits() - 0x3f00_0000) as u16);
        }
        let even = magnitude >> 13 & 1;
        Self(sign | ((magnitude + 0xfff + even - (112 << 23)) >> 13) as u16)
    }
}

impl Number for Half {
    fn add(self, other: Self) -> Self {
        Self::near(self.wide() + other.wide())
    }
    fn multiply(self, other: Self) -> Self {
        Self::near(self.wide() * other.wide())
    }
}

impl Signed for Half {
    fn negative(self) -> Self {
        Self(self.0 ^ 0x8000)
    }
}

impl Ordered for Half {
    fn is_less(self, other: Self) -> bool {
        self.wide() < other.wide()
    }

    fn is_equal(self, other: Self) -> bool {
        self.wide() == other.wide()
    }
}
