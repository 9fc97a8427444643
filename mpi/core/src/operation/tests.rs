//! Every operation on every datatype it is defined for, against the same in the widest type.

use proptest::prelude::*;

use super::*;
use crate::datatype::Basic;

/// Small integers, which every type has exactly.
fn encode(scalar: Scalar, value: i64) -> Vec<u8> {
    match scalar {
        Scalar::Int(_)
        | Scalar::Uint(_)
        | Scalar::Byte
        | Scalar::Char
        | Scalar::Bool
        | Scalar::Logical(_) => i128::from(value).to_le_bytes()[..scalar.size()].to_vec(),
        Scalar::Float(2) => Half::near(value as f32).0.to_le_bytes().to_vec(),
        Scalar::Float(4) => (value as f32).to_le_bytes().to_vec(),
        Scalar::Float(8) => (value as f64).to_le_bytes().to_vec(),
        Scalar::Float(16) => {
            let mut bytes = [0; 16];
            if value != 0 {
                let zeros = value.unsigned_abs().leading_zeros();
                bytes[..8].copy_from_slice(&(value.unsigned_abs() << zeros).to_le_bytes());
                let sign = u16::from(value < 0) << 15;
                bytes[8..10].copy_from_slice(&((16383 + 63 - zeros as u16) | sign).to_le_bytes());
            }
            bytes.to_vec()
        }
        Scalar::Quad(16) => {
            let sign = if value < 0 { 1_u128 << 127 } else { 0 };
            let magnitude = u128::from(value.unsigned_abs());
            let top = magnitude.checked_ilog2();
            let bits =
                top.map_or(0, |top| u128::from(16_383 + top) << 112 | (magnitude ^ 1 << top) << (112 - top));
            (sign | bits).to_le_bytes().to_vec()
        }
        Scalar::Quad(_) => encode(Scalar::Quad(16), value).repeat(2),
        // With the same imaginary part.
        Scalar::Complex(bytes) => {
            [encode(Scalar::Float(bytes / 2), value), encode(Scalar::Float(bytes / 2), value)].concat()
        }
        _ => unreachable!("nothing is computed with it"),
    }
}

fn truth(value: i64) -> bool {
    value != 0
}

fn expected(operation: Operation, scalar: Scalar, a: i64, b: i64) -> Vec<u8> {
    let complex = matches!(scalar, Scalar::Complex(_));
    let value = match operation {
        Operation::Max => a.max(b),
        Operation::Min => a.min(b),
        Operation::Sum => a + b,
        // (a + ai)(b + bi) = 2abi
        Operation::Product if complex => {
            let Scalar::Complex(bytes) = scalar else { unreachable!() };
            return [encode(Scalar::Float(bytes / 2), 0), encode(Scalar::Float(bytes / 2), 2 * a * b)]
                .concat();
        }
        Operation::Product if scalar == Scalar::Quad(32) => {
            return [encode(Scalar::Quad(16), 0), encode(Scalar::Quad(16), 2 * a * b)].concat();
        }
        Operation::Product => a * b,
        Operation::LogicalAnd => i64::from(truth(a) && truth(b)),
        Operation::LogicalOr => i64::from(truth(a) || truth(b)),
        Operation::LogicalXor => i64::from(truth(a) != truth(b)),
        Operation::BitAnd => a & b,
        Operation::BitOr => a | b,
        Operation::BitXor => a ^ b,
        _ => unreachable!("tested otherwise"),
    };
    encode(scalar, value)
}

fn apply(kernel: Kernel, from: &[u8], to: &mut [u8], count: usize) {
    // SAFETY: both have so many elements.
    unsafe { kernel(from.as_ptr(), to.as_mut_ptr(), count) };
}

/// Values and indices of two pairs.
type Four = (i64, i64, i64, i64);

proptest! {
    #[test]
    fn as_with_small_integers(pairs in proptest::collection::vec((0_i64..11, 0_i64..11), 1..9), negative: bool) {
        let scalars = |basic: &&Basic| basic.elements().1.is_none();
        for &basic in Basic::ALL.iter().filter(scalars) {
            let scalar = basic.elements().0;
            let signed = matches!(scalar, Scalar::Int(_) | Scalar::Float(_) | Scalar::Complex(_) | Scalar::Quad(_));
            let sign = if signed && negative { -1 } else { 1 };
            for operation in Operation::ALL {
                let Some(kernel) = operation.kernel(basic).filter(|_| !operation.is_for_accumulates()) else { continue };
                // One byte in front: addresses may be odd.
                let all = |f: &dyn Fn(i64, i64) -> Vec<u8>| {
                    let numbers = pairs.iter().flat_map(|&(a, b)| f(sign * a, b));
                    std::iter::once(7).chain(numbers).collect::<Vec<u8>>()
                };
                // A product with zero would have a sign.
                let other = |b: i64| if sign < 0 { b.max(1) } else { b };
                let (from, mut to) = (all(&|a, _| encode(scalar, a)), all(&|_, b| encode(scalar, other(b))));
                apply(kernel, &from[1..], &mut to[1..], pairs.len());
                let expected = all(&|a, b| expected(operation, scalar, a, other(b)));
                prop_assert_eq!(to, expected, "{:?} {:?}", operation, basic);
            }
        }
    }

    #[test]
    fn of_pairs_the_better_value_and_the_lower_index(pairs in proptest::collection::vec((-3_i64..4, 0_i64..5, -3_i64..4, 0_i64..5), 1..9)) {
        for &basic in Basic::ALL {
            let (first, Some(second)) = basic.elements() else { continue };
            let all = |f: &dyn Fn(&Four) -> (i64, i64)| {
                let element = |pair| {
                    let (value, index) = f(pair);
                    let mut bytes = vec![0xaa; basic.extent()];
                    bytes[..first.size()].copy_from_slice(&encode(first, value));
                    let at = basic.second_at();
                    bytes[at..at + second.size()].copy_from_slice(&encode(second, index));
                    bytes
                };
                pairs.iter().flat_map(element).collect::<Vec<u8>>()
            };
            for (operation, sign) in [(Operation::MaxLocation, 1), (Operation::MinLocation, -1)] {
                let (from, mut to) = (all(&|&(a, i, _, _)| (a, i)), all(&|&(_, _, b, j)| (b, j)));
                apply(operation.kernel(basic).expect("defined"), &from, &mut to, pairs.len());
                let expected = all(&|&(a, i, b, j)| match (sign * a).cmp(&(sign * b)) {
                    std::cmp::Ordering::Greater => (a, i),
                    std::cmp::Ordering::Equal => (a, i.min(j)),
                    std::cmp::Ordering::Less => (b, j),
                });
                prop_assert_eq!(to, expected, "{:?} {:?}", operation, basic);
            }
        }
    }

    #[test]
    fn halves_are_the_nearest(bits: u16, value in any::<f32>()) {
        let half = Half(bits);
        let wide = half.wide();
        prop_assert!(wide.is_nan() || Half::near(wide) == half, "{} {:?}", wide, Half::near(wide));
        let near = Half::near(value).wide();
        if value.is_nan() {
            prop_assert!(near.is_nan());
        } else if near.is_finite() {
            // No neighbour is nearer.
            let Half(bits) = Half::near(value);
            for other in [bits.wrapping_add(1), bits.wrapping_sub(1)] {
                let other = f64::from(Half(other).wide());
                let (value, near) = (f64::from(value), f64::from(near));
                prop_assert!(!other.is_finite() || (other - value).abs() >= (near - value).abs(), "{} {} {}", value, near, other);
            }
        } else {
            prop_assert!(value.abs() >= 65519.99, "{}", value);
        }
    }
}

#[test]
fn each_is_defined_for_what_the_standard_says() {
    let count = |operation: Operation| Basic::ALL.iter().filter(|&&b| operation.kernel(b).is_some()).count();
    let of = |class: Class| Basic::ALL.iter().filter(|basic| basic.class() == class).count();
    let (integers, floats) = (of(Class::Integer) + of(Class::Char), of(Class::Float));
    assert_eq!(count(Operation::Max), integers + floats);
    assert_eq!(count(Operation::Sum), integers + floats + of(Class::Complex));
    assert_eq!(count(Operation::LogicalXor), integers + of(Class::Logical));
    assert_eq!(count(Operation::BitOr), integers + of(Class::Byte));
    assert_eq!(count(Operation::MinLocation), of(Class::Pair));
    assert_eq!(count(Operation::Replace), Basic::ALL.len());
}

/// Not by the standard, but programs that were made for libraries count on it.
#[test]
fn letters_of_c_are_small_integers() {
    let same = if c_char::MIN < 0 { Basic::SignedChar } else { Basic::UnsignedChar };
    let all: Vec<u8> = (0..=255).collect();
    for operation in Operation::ALL {
        let Some(expected) = operation.kernel(same) else { continue };
        let kernel = operation.kernel(Basic::Char).expect("defined");
        for shift in [0, 1, 100, 200] {
            let from: Vec<u8> = all.iter().map(|byte| byte.wrapping_mul(3).wrapping_add(shift)).collect();
            let (mut to, mut wanted) = (all.clone(), all.clone());
            apply(kernel, &from, &mut to, 256);
            apply(expected, &from, &mut wanted, 256);
            assert_eq!(to, wanted, "{operation:?}");
        }
    }
    for (operation, expected) in [
        (Operation::Sum, [123, 5]),
        (Operation::LogicalAnd, [1, 0]),
        (Operation::LogicalOr, [1, 1]),
        (Operation::LogicalXor, [0, 1]),
    ] {
        let mut to = [120, 5];
        apply(operation.kernel(Basic::Char).expect("defined"), &[3, 0], &mut to, 2);
        assert_eq!(to, expected, "{operation:?}");
        assert!(operation.kernel(Basic::Character).is_none(), "{operation:?}: of Fortran's letters none is");
    }
}

#[test]
fn replace_copies_all_of_each() {
    for &basic in Basic::ALL {
        let bytes = 3 * basic.extent();
        let (from, mut to) = (vec![5; bytes], vec![0; bytes + 1]);
        apply(Operation::Replace.kernel(basic).expect("defined"), &from, &mut to[..bytes], 3);
        assert_eq!((&to[..bytes], to[bytes]), (&from[..], 0), "{basic:?}");
    }
}

/// What is no number is neither better nor equal: of it, too, the index stays with the value.
#[test]
fn a_value_that_is_no_number_keeps_its_index() {
    let pair = |value: f64, index: i32| {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&value.to_le_bytes());
        bytes[8..12].copy_from_slice(&index.to_le_bytes());
        bytes
    };
    for operation in [Operation::MaxLocation, Operation::MinLocation] {
        for (a, b) in [((f64::NAN, 0), (5.0, 1)), ((5.0, 0), (f64::NAN, 1)), ((f64::NAN, 0), (f64::NAN, 1))] {
            let (from, mut to) = (pair(a.0, a.1), pair(b.0, b.1));
            apply(operation.kernel(Basic::DoubleInt).expect("defined"), &from, &mut to, 1);
            assert!(to == from || to == pair(b.0, b.1), "{operation:?} {a:?} {b:?}: {to:?}");
        }
    }
}
