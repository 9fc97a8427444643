//! IEEE's number of 128 bits (`REAL*16` of Fortran, `__float128` of C), with which the platform's library
//! computes: what the compiler of a program calls as well, so each bit is the same.

#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::__m128i;

use super::number::{Number, Ordered, Signed};

/// One of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(transparent)]
pub(super) struct Quad(pub u128);

const SIGN: u128 = 1 << 127;
const INFINITE: u128 = 0x7fff << 112;

impl Ordered for Quad {
    fn is_less(self, other: Self) -> bool {
        // Without sign: larger numbers have larger ones.
        let (a, b) = (self.0 & !SIGN, other.0 & !SIGN);
        if a > INFINITE || b > INFINITE {
            return false;
        }
        match (self.0 & SIGN != 0, other.0 & SIGN != 0) {
            (false, false) => a < b,
            (true, true) => a > b,
            (negative, _) => negative && (a != 0 || b != 0),
        }
    }

    fn is_equal(self, other: Self) -> bool {
        let (a, b) = (self.0 & !SIGN, other.0 & !SIGN);
        a <= INFINITE && a == b && (a == 0 || self.0 == other.0)
    }
}

impl Signed for Quad {
    fn negative(self) -> Self {
        Self(self.0 ^ SIGN)
    }
}

// Such a number goes where a vector of sixteen bytes goes, for which a declaration has no type.
#[cfg(target_arch = "x86_64")]
unsafe extern "C" {
    fn __addtf3();
    fn __multf3();
}

#[cfg(target_arch = "x86_64")]
macro_rules! compute {
    ($function:ident, $a:expr, $b:expr) => {{
        let result: __m128i;
        // SAFETY: a function of the platform, given two numbers in the registers in which it takes them; both
        // types are sixteen bytes, and any bytes are one of each.
        unsafe {
            std::arch::asm!(
                "call {function}",
                function = sym $function,
                inout("xmm0") std::mem::transmute::<u128, __m128i>($a.0) => result,
                in("xmm1") std::mem::transmute::<u128, __m128i>($b.0),
                clobber_abi("C"),
            );
            Quad(std::mem::transmute::<__m128i, u128>(result))
        }
    }};
}

#[cfg(target_arch = "x86_64")]
impl Number for Quad {
    fn add(self, other: Self) -> Self {
        compute!(__addtf3, self, other)
    }

    fn multiply(self, other: Self) -> Self {
        compute!(__multf3, self, other)
    }
}

#[cfg(not(target_arch = "x86_64"))]
compile_error!("how do such numbers go to the platform's library? (mpi/core/src/operation/quad.rs)");

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A whole number of up to 113 bits, which is exact.
    fn whole(value: i128) -> Quad {
        let (sign, magnitude) = (if value < 0 { SIGN } else { 0 }, value.unsigned_abs());
        if magnitude == 0 {
            return Quad(0);
        }
        let top = magnitude.ilog2();
        assert!(top <= 112);
        Quad(sign | u128::from(16_383 + top) << 112 | (magnitude << (112 - top)) & ((1 << 112) - 1))
    }

    /// This power of two.
    fn power(exponent: i32) -> Quad {
        Quad(((16_383 + exponent) as u128) << 112)
    }

    proptest! {
        #[test]
        fn whole_numbers_are_exact(a: i64, b: i64, c in -(1_i128 << 56)..1 << 56, d in -(1_i128 << 55)..1 << 55) {
            let (x, y) = (i128::from(a), i128::from(b));
            prop_assert_eq!(whole(x).add(whole(y)), whole(x + y));
            if c * d != 0 {
                prop_assert_eq!(whole(c).multiply(whole(d)), whole(c * d));
            }
            prop_assert_eq!(whole(x).is_less(whole(y)), x < y);
        }
    }

    #[test]
    fn it_is_rounded_to_the_nearest_and_the_even_one() {
        let (one, after) = (power(0), Quad(power(0).0 + 1));
        assert_eq!(one.add(power(-112)), after);
        assert_eq!(one.add(power(-113)), one);
        assert_eq!(after.add(power(-113)), Quad(one.0 + 2));
        // A third, and thrice that.
        let third = Quad(0x3ffd_5555_5555_5555_5555_5555_5555_5555);
        assert_eq!(third.multiply(whole(3)), one);
    }

    #[test]
    fn what_is_no_number_is_in_no_order() {
        let (none, infinite) = (Quad(INFINITE | 1 << 111), Quad(INFINITE));
        assert!(!none.is_less(infinite) && !infinite.is_less(none));
        assert!(whole(1).is_less(infinite) && infinite.negative().is_less(whole(-1)));
        assert!(infinite.is_equal(infinite) && Quad(0).is_equal(Quad(SIGN)) && !none.is_equal(none));
        assert!(!whole(1).is_equal(whole(-1)) && !whole(1).is_equal(whole(2)));
        assert!(!Quad(0).is_less(Quad(SIGN)) && !Quad(SIGN).is_less(Quad(0)), "zeros are equal");
        assert_eq!(infinite.add(whole(1)), infinite);
        let difference = infinite.add(infinite.negative());
        assert!(difference.0 & !SIGN > INFINITE, "it is no number");
    }
}
