use bytemuck::Pod;

/// How two elements become one.
///
/// Reductions combine in rank order, `((x0 ∘ x1) ∘ x2) ∘ …`, on every back end and for every length: their
/// results are the same to the bit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ReduceOp {
    /// Their sum. Of integers modulo 2^bits.
    Sum,
    /// The lesser one. Of floating point numbers NaN if one is NaN, and -0.0 is less than +0.0 (IEEE
    /// 754-2019, 9.6, `minimum`).
    Min,
    /// The greater one. Of floating point numbers NaN if one is NaN, and +0.0 is more than -0.0 (IEEE
    /// 754-2019, 9.6, `maximum`).
    Max,
}

mod sealed {
    pub trait Sealed {}
}

/// Numbers that can be reduced: the integers of fixed size, `usize`, `isize`, `f32`, `f64`.
pub trait Element: Pod + sealed::Sealed {
    /// The two as one.
    #[must_use]
    fn combine(self, other: Self, op: ReduceOp) -> Self;
}

macro_rules! integers {
    ($($integer:ty)*) => {$(
        impl sealed::Sealed for $integer {}
        impl Element for $integer {
            #[inline]
            fn combine(self, other: Self, op: ReduceOp) -> Self {
                match op {
                    ReduceOp::Sum => self.wrapping_add(other),
                    ReduceOp::Min => self.min(other),
                    ReduceOp::Max => self.max(other),
                }
            }
        }
    )*};
}

macro_rules! floats {
    ($($float:ty)*) => {$(
        impl sealed::Sealed for $float {}
        impl Element for $float {
            #[inline]
            fn combine(self, other: Self, op: ReduceOp) -> Self {
                match op {
                    ReduceOp::Sum => self + other,
                    _ if self.is_nan() => self,
                    _ if other.is_nan() => other,
                    ReduceOp::Min => if other.total_cmp(&self).is_lt() { other } else { self },
                    ReduceOp::Max => if other.total_cmp(&self).is_gt() { other } else { self },
                }
            }
        }
    )*};
}

integers!(u8 u16 u32 u64 u128 usize i8 i16 i32 i64 i128 isize);
floats!(f32 f64);

/// Each element of `with` into that of `into`.
pub(crate) fn combine_all<T: Element>(into: &mut [T], with: &[T], op: ReduceOp) {
    // One loop for each operation: the compiler makes vector instructions of it.
    macro_rules! each {
        ($op:expr) => {
            into.iter_mut().zip(with).for_each(|(a, b)| *a = a.combine(*b, $op))
        };
    }
    match op {
        ReduceOp::Sum => each!(ReduceOp::Sum),
        ReduceOp::Min => each!(ReduceOp::Min),
        ReduceOp::Max => each!(ReduceOp::Max),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn minimum_and_maximum_are_those_of_the_standard() {
        let (min, max) = (|a: f64, b| a.combine(b, ReduceOp::Min), |a: f64, b| a.combine(b, ReduceOp::Max));
        assert!(min(f64::NAN, 1.0).is_nan() && min(1.0, f64::NAN).is_nan());
        assert!(max(f64::NAN, 1.0).is_nan() && max(1.0, f64::NAN).is_nan());
        for (a, b) in [(0.0, -0.0), (-0.0, 0.0)] {
            assert!(min(a, b).is_sign_negative() && max(a, b).is_sign_positive());
        }
        assert_eq!((min(-1.0, f64::NEG_INFINITY), max(2.0, 1.0)), (f64::NEG_INFINITY, 2.0));
    }

    #[test]
    fn sums_of_integers_wrap() {
        assert_eq!(250u8.combine(10, ReduceOp::Sum), 4);
        assert_eq!(i32::MAX.combine(1, ReduceOp::Sum), i32::MIN);
    }
}
