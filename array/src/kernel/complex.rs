//! Functions of complex numbers. Those of the C library, as NumPy has them: they keep to what C99 (annex G)
//! says of branch cuts, signs of zero and numbers that are not finite, and each part is exact by itself.

use super::number::{Inexact, Number, Signed};
use crate::dtype::Complex;

mod library {
    use crate::dtype::Complex;

    // SAFETY: functions of numbers alone, which write no memory. By the ABIs of x86-64 and AArch64 a complex
    // number is passed as a structure of two `double`s.
    #[cfg_attr(target_env = "gnu", link(name = "m"))]
    unsafe extern "C" {
        pub(super) safe fn csqrt(z: Complex) -> Complex;
        pub(super) safe fn cexp(z: Complex) -> Complex;
        pub(super) safe fn clog(z: Complex) -> Complex;
        pub(super) safe fn csin(z: Complex) -> Complex;
        pub(super) safe fn ccos(z: Complex) -> Complex;
        pub(super) safe fn ctan(z: Complex) -> Complex;
        pub(super) safe fn csinh(z: Complex) -> Complex;
        pub(super) safe fn ccosh(z: Complex) -> Complex;
        pub(super) safe fn ctanh(z: Complex) -> Complex;
        pub(super) safe fn catan(z: Complex) -> Complex;
        pub(super) safe fn cpow(z: Complex, exponent: Complex) -> Complex;
    }
}

impl Signed for Complex {
    fn negative(self) -> Self {
        -self
    }

    fn sign(self) -> Self {
        let is_finite = self.re.is_finite() && self.im.is_finite();
        let size = self.re.hypot(self.im);
        if is_finite && size.is_infinite() {
            // Its parts can be numbers where its size cannot.
            return Self::new(self.re / 4.0, self.im / 4.0).sign();
        }
        let none = f64::NAN;
        match (self.re.is_infinite(), self.im.is_infinite()) {
            _ if size == 0.0 => Self::new(0.0, 0.0),
            _ if size.is_finite() => Self::new(self.re / size, self.im / size),
            (true, false) => Self::new(1.0_f64.copysign(self.re), 0.0),
            (false, true) => Self::new(0.0, 1.0_f64.copysign(self.im)),
            _ => Self::new(none, none),
        }
    }

    fn power(self, exponent: Self) -> Self {
        if exponent == Self::from(0.0) {
            return 1.0.into();
        }
        if self == Self::from(0.0) {
            return if exponent.re > 0.0 { 0.0.into() } else { Self::new(f64::NAN, f64::NAN) };
        }
        let is_whole = exponent.im == 0.0 && exponent.re.fract() == 0.0 && exponent.re.abs() < 100.0;
        if !is_whole {
            return library::cpow(self, exponent);
        }
        // Whole powers are exact as long as the numbers are.
        match exponent.re as i32 {
            1 => self,
            2 => self.times(self),
            3 => self.times(self.times(self)),
            whole => {
                let (mut result, mut square, mut left) = (Self::from(1.0), self, whole.unsigned_abs());
                loop {
                    if left & 1 == 1 {
                        result = result.times(square);
                    }
                    left >>= 1;
                    if left == 0 {
                        break;
                    }
                    square = square.times(square);
                }
                if whole < 0 { Self::from(1.0).divide(result) } else { result }
            }
        }
    }
}

impl Inexact for Complex {
    fn divide(self, other: Self) -> Self {
        // Smith (1962), Algorithm 116: without squares, which may be too large or too small.
        if other.re.abs() >= other.im.abs() {
            if other.re == 0.0 && other.im == 0.0 {
                return Self::new(self.re / other.re.abs(), self.im / other.re.abs());
            }
            let ratio = other.im / other.re;
            let size = 1.0 / (other.re + other.im * ratio);
            Self::new((self.re + self.im * ratio) * size, (self.im - self.re * ratio) * size)
        } else {
            let ratio = other.re / other.im;
            let size = 1.0 / (other.re * ratio + other.im);
            Self::new((self.re * ratio + self.im) * size, (self.im * ratio - self.re) * size)
        }
    }

    fn sqrt(self) -> Self {
        library::csqrt(self)
    }

    fn exp(self) -> Self {
        library::cexp(self)
    }

    fn expm1(self) -> Self {
        // exp(x) cos(y) − 1 without taking 1 from what is near it.
        let half = (self.im / 2.0).sin();
        let real = self.re.exp_m1() * self.im.cos() - 2.0 * half * half;
        Self::new(real, self.re.exp() * self.im.sin())
    }

    fn log(self) -> Self {
        library::clog(self)
    }

    fn log10(self) -> Self {
        let value = library::clog(self);
        Self::new(value.re * std::f64::consts::LOG10_E, value.im * std::f64::consts::LOG10_E)
    }

    fn log1p(self) -> Self {
        (self + 1.0).ln()
    }

    fn sin(self) -> Self {
        library::csin(self)
    }

    fn cos(self) -> Self {
        library::ccos(self)
    }

    fn tan(self) -> Self {
        library::ctan(self)
    }

    fn sinh(self) -> Self {
        library::csinh(self)
    }

    fn cosh(self) -> Self {
        library::ccosh(self)
    }

    fn tanh(self) -> Self {
        library::ctanh(self)
    }

    fn arctan(self) -> Self {
        library::catan(self)
    }

    fn rint(self) -> Self {
        Self::new(self.re.round_ties_even(), self.im.round_ties_even())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Parts by their bits: zeros have signs.
    fn bits(z: Complex) -> [u64; 2] {
        [z.re.to_bits(), z.im.to_bits()]
    }

    #[test]
    fn cuts_are_by_the_sign_of_zero() {
        let z = Complex::new;
        for (one, other) in [
            (Inexact::sqrt(z(-4.0, 0.0)), z(0.0, 2.0)),
            (Inexact::sqrt(z(-4.0, -0.0)), z(0.0, -2.0)),
            (Inexact::log(z(-1.0, -0.0)), z(0.0, -std::f64::consts::PI)),
            (Inexact::arctan(z(0.0, -0.0)), z(0.0, -0.0)),
            (Inexact::arctan(z(0.0, 1e-10)), z(0.0, 1e-10)),
            (Signed::sign(z(-0.0, 0.0)), z(0.0, 0.0)),
            (Signed::power(z(0.0, 2.0), z(-1.0, 0.0)), z(0.0, -0.5)),
        ] {
            assert_eq!(bits(one), bits(other), "{one} instead of {other}");
        }
    }

    #[test]
    fn what_is_large_or_small_is_exact() {
        let large = Complex::new(1e300, 1e300);
        assert_eq!((Inexact::tanh(large).re, Inexact::tan(large).im), (1.0, 1.0));
        assert!((large.divide(large) - 1.0).norm() < 1e-15);
        for (re, im) in [(1e308, 1.7e308), (-f64::MAX, f64::MAX), (1.5e308, -1.5e308)] {
            let (size, sign) = ((re / 1e308).hypot(im / 1e308), Signed::sign(Complex::new(re, im)));
            let wanted = Complex::new(re / 1e308 / size, im / 1e308 / size);
            assert!((sign - wanted).norm() < 1e-15, "{sign} instead of {wanted}");
        }
        // Beside the circle where it is 0 a logarithm is of what is away from it.
        assert!((Inexact::log(Complex::new(1.0, 1e-10)).re / 0.5e-20 - 1.0).abs() < 1e-15);
        assert_eq!(Inexact::exp(Complex::new(1e300, 0.0)), Complex::new(f64::INFINITY, 0.0));
    }
}
