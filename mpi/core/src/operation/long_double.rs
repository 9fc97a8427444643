//! `long double`: 80 bits on x86-64, which its old floating-point unit computes with; elsewhere IEEE's 128
//! bits, with which nothing is computed here.

use super::number::{Number, Ordered, Signed};

/// One of them, in the 16 bytes it has in memory.
#[derive(Debug, Clone, Copy)]
#[repr(C, align(16))]
pub(super) struct LongDouble(pub [u8; 16]);

impl LongDouble {
    fn sign(self) -> bool {
        self.0[9] & 0x80 != 0
    }

    /// Without sign: larger numbers have larger ones. `None` for what is no number.
    fn magnitude(self) -> Option<u128> {
        let exponent = u16::from_le_bytes([self.0[8], self.0[9]]) & 0x7fff;
        let fraction = u64::from_le_bytes(self.0[..8].try_into().expect("eight bytes"));
        let is_number = exponent != 0x7fff || fraction << 1 == 0;
        is_number.then_some(u128::from(exponent) << 64 | u128::from(fraction))
    }
}

impl Ordered for LongDouble {
    fn is_less(self, other: Self) -> bool {
        let (Some(a), Some(b)) = (self.magnitude(), other.magnitude()) else { return false };
        match (self.sign(), other.sign()) {
            (false, false) => a < b,
            (true, true) => a > b,
            (negative, _) => negative && (a != 0 || b != 0),
        }
    }

    fn is_equal(self, other: Self) -> bool {
        let (a, b) = (self.magnitude(), other.magnitude());
        a.is_some() && a == b && (a == Some(0) || self.sign() == other.sign())
    }
}

impl Signed for LongDouble {
    fn negative(mut self) -> Self {
        self.0[9] ^= 0x80;
        self
    }
}

#[cfg(target_arch = "x86_64")]
macro_rules! compute {
    ($instruction:literal, $a:expr, $b:expr) => {{
        let mut result = $a;
        // SAFETY: two numbers are loaded, one is stored, and the unit's stack is as before.
        unsafe {
            std::arch::asm!(
                "fld tbyte ptr [{a}]",
                "fld tbyte ptr [{b}]",
                $instruction,
                "fstp tbyte ptr [{a}]",
                a = in(reg) result.0.as_mut_ptr(),
                b = in(reg) $b.0.as_ptr(),
                out("st(0)") _, out("st(1)") _, out("st(2)") _, out("st(3)") _,
                out("st(4)") _, out("st(5)") _, out("st(6)") _, out("st(7)") _,
                options(nostack),
            );
        }
        result
    }};
}

#[cfg(target_arch = "x86_64")]
impl Number for LongDouble {
    fn add(self, other: Self) -> Self {
        compute!("faddp st(1), st", self, other)
    }

    fn multiply(self, other: Self) -> Self {
        compute!("fmulp st(1), st", self, other)
    }
}

#[cfg(not(target_arch = "x86_64"))]
compile_error!("how is `long double` computed with here? (mpi/core/src/operation/long_double.rs)");
