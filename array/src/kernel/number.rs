//! What can be done with elements of each type. Where NumPy says something particular (wrapping integers,
//! floor division, not-a-number), it is said here.

use crate::dtype::{Complex, Element, Truth};

/// Elements that are added and multiplied. Integers wrap; of truth values a sum is "or", a product "and".
pub(crate) trait Number: Element {
    fn plus(self, other: Self) -> Self;
    fn minus(self, other: Self) -> Self;
    fn times(self, other: Self) -> Self;
}

/// Elements that are compared. Complex numbers by their real parts, then by their imaginary ones.
pub(crate) trait Ordered: Element {
    fn less(self, other: Self) -> bool;
    fn is_nan(self) -> bool;
    fn is_finite(self) -> bool;
    fn is_infinite(self) -> bool {
        !self.is_nan() && !self.is_finite()
    }

    fn least(self, other: Self) -> Self {
        if self.is_nan() || !(other.less(self) || other.is_nan()) { self } else { other }
    }

    fn most(self, other: Self) -> Self {
        if self.is_nan() || !(self.less(other) || other.is_nan()) { self } else { other }
    }
}

/// Real numbers, divided so that the remainder has the divisor's sign.
pub(crate) trait Real: Number + Ordered {
    fn floor_divide(self, other: Self) -> Self;
    fn remainder(self, other: Self) -> Self;
    fn floor(self) -> Self;
    fn ceil(self) -> Self;
    fn trunc(self) -> Self;
}

/// Numbers that have a sign and a power. What a power cannot be is looked for before.
pub(crate) trait Signed: Number {
    fn negative(self) -> Self;
    fn sign(self) -> Self;
    fn power(self, exponent: Self) -> Self;
}

/// Numbers that functions of analysis are computed of.
pub(crate) trait Inexact: Signed {
    fn divide(self, other: Self) -> Self;
    fn sqrt(self) -> Self;
    fn exp(self) -> Self;
    fn expm1(self) -> Self;
    fn log(self) -> Self;
    fn log10(self) -> Self;
    fn log1p(self) -> Self;
    fn sin(self) -> Self;
    fn cos(self) -> Self;
    fn tan(self) -> Self;
    fn sinh(self) -> Self;
    fn cosh(self) -> Self;
    fn tanh(self) -> Self;
    fn arctan(self) -> Self;
    fn rint(self) -> Self;
}

impl Number for Truth {
    fn plus(self, other: Self) -> Self {
        (self.into() || other.into()).into()
    }

    fn minus(self, other: Self) -> Self {
        (bool::from(self) != bool::from(other)).into()
    }

    fn times(self, other: Self) -> Self {
        (self.into() && other.into()).into()
    }
}

impl Ordered for Truth {
    fn less(self, other: Self) -> bool {
        !bool::from(self) && other.into()
    }

    fn is_nan(self) -> bool {
        false
    }

    fn is_finite(self) -> bool {
        true
    }
}

macro_rules! integer {
    ($type:ty) => {
        impl Number for $type {
            fn plus(self, other: Self) -> Self {
                self.wrapping_add(other)
            }

            fn minus(self, other: Self) -> Self {
                self.wrapping_sub(other)
            }

            fn times(self, other: Self) -> Self {
                self.wrapping_mul(other)
            }
        }

        impl Ordered for $type {
            fn less(self, other: Self) -> bool {
                self < other
            }

            fn is_nan(self) -> bool {
                false
            }

            fn is_finite(self) -> bool {
                true
            }
        }

        impl Real for $type {
            fn floor_divide(self, other: Self) -> Self {
                if other == 0 {
                    return 0;
                }
                let quotient = self.wrapping_div(other);
                let is_below = self.wrapping_rem(other) != 0 && (self < 0) != (other < 0);
                quotient - Self::from(is_below)
            }

            fn remainder(self, other: Self) -> Self {
                if other == 0 {
                    return 0;
                }
                let rest = self.wrapping_rem(other);
                if rest != 0 && (rest < 0) != (other < 0) { rest + other } else { rest }
            }

            fn floor(self) -> Self {
                self
            }

            fn ceil(self) -> Self {
                self
            }

            fn trunc(self) -> Self {
                self
            }
        }

        impl Signed for $type {
            fn negative(self) -> Self {
                self.wrapping_neg()
            }

            fn sign(self) -> Self {
                self.signum()
            }

            fn power(self, exponent: Self) -> Self {
                // Squares and products; the exponent is not negative.
                let (mut result, mut square, mut left): (Self, Self, Self) = (1, self, exponent);
                while left > 0 {
                    if left & 1 == 1 {
                        result = result.wrapping_mul(square);
                    }
                    square = square.wrapping_mul(square);
                    left >>= 1;
                }
                result
            }
        }
    };
}

integer!(i32);
integer!(i64);

macro_rules! float {
    ($type:ty) => {
        impl Number for $type {
            fn plus(self, other: Self) -> Self {
                self + other
            }

            fn minus(self, other: Self) -> Self {
                self - other
            }

            fn times(self, other: Self) -> Self {
                self * other
            }
        }

        impl Ordered for $type {
            fn less(self, other: Self) -> bool {
                self < other
            }

            fn is_nan(self) -> bool {
                self.is_nan()
            }

            fn is_finite(self) -> bool {
                self.is_finite()
            }
        }

        impl Real for $type {
            fn floor_divide(self, other: Self) -> Self {
                if other == 0.0 {
                    return self / other;
                }
                // What is left over is subtracted first, so that the quotient is whole but for rounding.
                let rest = self % other;
                let mut quotient = (self - rest) / other;
                if rest != 0.0 && (rest < 0.0) != (other < 0.0) {
                    quotient -= 1.0;
                }
                if quotient == 0.0 {
                    return (0.0 as Self).copysign(self / other);
                }
                let whole = quotient.floor();
                if quotient - whole > 0.5 { whole + 1.0 } else { whole }
            }

            fn remainder(self, other: Self) -> Self {
                let rest = self % other;
                if other == 0.0 || rest.is_nan() {
                    rest
                } else if rest == 0.0 {
                    rest.copysign(other)
                } else if (rest < 0.0) != (other < 0.0) {
                    rest + other
                } else {
                    rest
                }
            }

            fn floor(self) -> Self {
                self.floor()
            }

            fn ceil(self) -> Self {
                self.ceil()
            }

            fn trunc(self) -> Self {
                self.trunc()
            }
        }

        impl Signed for $type {
            fn negative(self) -> Self {
                -self
            }

            fn sign(self) -> Self {
                // Of -0 as well it is 0.
                if self.is_nan() { self } else if self == 0.0 { 0.0 } else { self.signum() }
            }

            fn power(self, exponent: Self) -> Self {
                self.powf(exponent)
            }
        }

        impl Inexact for $type {
            float!(each $type: sqrt exp log10 sin cos tan sinh cosh tanh);

            fn divide(self, other: Self) -> Self {
                self / other
            }

            fn expm1(self) -> Self {
                self.exp_m1()
            }

            fn log(self) -> Self {
                self.ln()
            }

            fn log1p(self) -> Self {
                self.ln_1p()
            }

            fn arctan(self) -> Self {
                self.atan()
            }

            fn rint(self) -> Self {
                self.round_ties_even()
            }
        }
    };
    (each $type:ty: $($function:ident)*) => {
        $(fn $function(self) -> Self {
            <$type>::$function(self)
        })*
    };
}

float!(f32);
float!(f64);

impl Number for Complex {
    fn plus(self, other: Self) -> Self {
        self + other
    }

    fn minus(self, other: Self) -> Self {
        self - other
    }

    fn times(self, other: Self) -> Self {
        self * other
    }
}

impl Ordered for Complex {
    fn less(self, other: Self) -> bool {
        if self.re == other.re {
            self.im < other.im
        } else {
            self.re < other.re && !self.im.is_nan() && !other.im.is_nan()
        }
    }

    fn is_nan(self) -> bool {
        self.re.is_nan() || self.im.is_nan()
    }

    fn is_finite(self) -> bool {
        self.re.is_finite() && self.im.is_finite()
    }

    fn is_infinite(self) -> bool {
        self.re.is_infinite() || self.im.is_infinite()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn divisions_are_numpys() {
        assert_eq!([(7, 2), (-7, 2), (7, -2), (7, 0)].map(|(x, y)| i32::floor_divide(x, y)), [3, -4, -4, 0]);
        assert_eq!([(7, 2), (-7, 2), (7, -2), (7, 0)].map(|(x, y)| i32::remainder(x, y)), [1, 1, -1, 0]);
        assert_eq!((i32::MIN.floor_divide(-1), i32::MIN.remainder(-1)), (i32::MIN, 0));
        assert_eq!([(1.0, 0.1), (-1.0, 0.3)].map(|(x, y)| f64::floor_divide(x, y)), [9.0, -4.0]);
        assert_eq!(1.0_f64.floor_divide(0.0), f64::INFINITY);
        assert!((-1.0_f64).remainder(0.3) > 0.0 && 1.0_f64.remainder(0.0).is_nan());
        assert_eq!(3_i64.power(41), 3_i64.wrapping_pow(41));
    }

    #[test]
    fn what_is_no_number_wins() {
        assert!(f64::NAN.least(1.0).is_nan() && 1.0.least(f64::NAN).is_nan() && 1.0.most(f64::NAN).is_nan());
        let (one, two) = (Complex::new(1.0, 2.0), Complex::new(1.0, 3.0));
        assert_eq!((one.most(two), two.least(one)), (two, one));
    }
}
