//! Each operation on each datatype against plain arithmetic; functions of a program.

use std::ffi::{c_int, c_void};
use std::sync::Mutex;

use bdrun_mpi_core::datatype::{Basic, Scalar};
use bdrun_mpi_core::error::Class;
use bdrun_mpi_core::operation::Operation;
use bdrun_mpi_table::{Constant, Value};

use super::{handle, predefined};
use crate::Mpi;
use crate::args::Buffer;
use crate::calls::{Datatypes as _, Operations as _};
use crate::failure::Answer;
use crate::handle::{Datatype, Op};

const INT: Datatype = Datatype(0x209);

fn reduce(mpi: &Mpi, from: &mut [u8], to: &mut [u8], count: i64, datatype: Datatype, op: Op) -> Answer<()> {
    let (from, to) = (Buffer::At(from.as_mut_ptr()), Buffer::At(to.as_mut_ptr()));
    // SAFETY: both have so many elements.
    unsafe { mpi.reduce_local(from, to, count, datatype, op) }
}

/// The standard's tables (section 6.9.2), by the names of datatypes.
const C_INTEGER: &str = "INT LONG SHORT UNSIGNED_SHORT UNSIGNED UNSIGNED_LONG LONG_LONG UNSIGNED_LONG_LONG \
                         SIGNED_CHAR UNSIGNED_CHAR INT8_T INT16_T INT32_T INT64_T UINT8_T UINT16_T UINT32_T UINT64_T";
/// Not in the tables; libraries have it.
const LETTER: &str = "CHAR";
const FORTRAN_INTEGER: &str = "INTEGER INTEGER1 INTEGER2 INTEGER4 INTEGER8 INTEGER16";
const FLOATING: &str = "FLOAT DOUBLE REAL DOUBLE_PRECISION LONG_DOUBLE REAL2 REAL4 REAL8 REAL16";
const LOGICAL: &str = "LOGICAL C_BOOL CXX_BOOL LOGICAL1 LOGICAL2 LOGICAL4 LOGICAL8 LOGICAL16";
const COMPLEX: &str = "COMPLEX C_FLOAT_COMPLEX C_DOUBLE_COMPLEX C_LONG_DOUBLE_COMPLEX CXX_FLOAT_COMPLEX \
                       CXX_DOUBLE_COMPLEX CXX_LONG_DOUBLE_COMPLEX DOUBLE_COMPLEX COMPLEX4 COMPLEX8 COMPLEX16 \
                       COMPLEX32";
const BYTE: &str = "BYTE";
const MULTI: &str = "AINT OFFSET COUNT";
const PAIRS: &str =
    "FLOAT_INT DOUBLE_INT LONG_INT 2INT SHORT_INT LONG_DOUBLE_INT 2REAL 2DOUBLE_PRECISION 2INTEGER";

fn legal(operation: Operation) -> Vec<&'static str> {
    let sets: &[&str] = match operation {
        Operation::Max | Operation::Min => &[C_INTEGER, LETTER, FORTRAN_INTEGER, FLOATING, MULTI],
        Operation::Sum | Operation::Product => {
            &[C_INTEGER, LETTER, FORTRAN_INTEGER, FLOATING, COMPLEX, MULTI]
        }
        // Of Fortran's and all languages' integers the standard says nothing; libraries have it.
        Operation::LogicalAnd | Operation::LogicalOr | Operation::LogicalXor => {
            &[C_INTEGER, LETTER, LOGICAL, FORTRAN_INTEGER, MULTI]
        }
        Operation::BitAnd | Operation::BitOr | Operation::BitXor => {
            &[C_INTEGER, LETTER, FORTRAN_INTEGER, BYTE, MULTI]
        }
        Operation::MaxLocation | Operation::MinLocation => &[PAIRS],
        Operation::Replace | Operation::Nothing => &[],
    };
    sets.iter().flat_map(|set| set.split_whitespace()).collect()
}

/// A small number as each type has it.
fn encode(scalar: Scalar, value: i64) -> Vec<u8> {
    match scalar {
        Scalar::Float(2) => {
            // Those of the test, in IEEE's 16 bits.
            let bits: u16 = match value {
                0 => 0,
                1 => 0x3c00,
                2 => 0x4000,
                3 => 0x4200,
                4 => 0x4400,
                5 => 0x4500,
                6 => 0x4600,
                12 => 0x4a00,
                _ => panic!("{value} is not in the table"),
            };
            bits.to_ne_bytes().to_vec()
        }
        Scalar::Float(4) => (value as f32).to_ne_bytes().to_vec(),
        Scalar::Float(8) => (value as f64).to_ne_bytes().to_vec(),
        Scalar::Float(_) => {
            let mut bytes = [0; 16];
            if value != 0 {
                let zeros = value.leading_zeros();
                bytes[..8].copy_from_slice(&(value << zeros).to_le_bytes());
                bytes[8..10].copy_from_slice(&(16383 + 63 - zeros as u16).to_le_bytes());
            }
            bytes.to_vec()
        }
        Scalar::Quad(16) => {
            // Only the exponent and some bits of the fraction of a double precision number.
            let bits = u128::from((value as f64).to_bits());
            let wide = if value == 0 { 0 } else { (bits + ((16_383 - 1023) << 52)) << 60 };
            wide.to_le_bytes().to_vec()
        }
        Scalar::Quad(_) => encode(Scalar::Quad(16), value).repeat(2),
        Scalar::Complex(bytes) => {
            [encode(Scalar::Float(bytes / 2), value), encode(Scalar::Float(bytes / 2), value)].concat()
        }
        _ => i128::from(value).to_le_bytes()[..scalar.size()].to_vec(),
    }
}

fn element(basic: Basic, value: i64, index: i64) -> Vec<u8> {
    let (first, second) = basic.elements();
    let mut bytes = vec![0; basic.extent()];
    bytes[..first.size()].copy_from_slice(&encode(first, value));
    if let Some(second) = second {
        bytes[basic.second_at()..][..second.size()].copy_from_slice(&encode(second, index));
    }
    bytes
}

fn expected(operation: Operation, basic: Basic, a: i64, b: i64) -> Vec<u8> {
    let truth = |value| i64::from(value);
    let value = match operation {
        Operation::Max => a.max(b),
        Operation::Min => a.min(b),
        Operation::Sum => a + b,
        Operation::Product => {
            if let Scalar::Complex(bytes) = basic.elements().0 {
                // (a + ai)(b + bi) = 2abi
                let part = |value| encode(Scalar::Float(bytes / 2), value);
                return [part(0), part(2 * a * b)].concat();
            }
            if basic.elements().0 == Scalar::Quad(32) {
                return [0, 2 * a * b].map(|value| encode(Scalar::Quad(16), value)).concat();
            }
            a * b
        }
        Operation::LogicalAnd => truth(a != 0 && b != 0),
        Operation::LogicalOr => truth(a != 0 || b != 0),
        Operation::LogicalXor => truth((a != 0) != (b != 0)),
        Operation::BitAnd => a & b,
        Operation::BitOr => a | b,
        Operation::BitXor => a ^ b,
        // The index of the first is 5, of the second 4; of equal values the lower one.
        Operation::MaxLocation if a > b => return element(basic, a, 5),
        Operation::MinLocation if a < b => return element(basic, a, 5),
        Operation::MaxLocation | Operation::MinLocation => return element(basic, b, 4),
        Operation::Replace | Operation::Nothing => unreachable!("for accumulates"),
    };
    element(basic, value, 0)
}

#[test]
fn predefined_ones_have_the_standards_handles() {
    let constants = bdrun_mpi_table::constants().expect("well-formed");
    for operation in Operation::ALL {
        let constant = constants.iter().find(|constant| constant.name == operation.name()).expect("there");
        assert_eq!(constant.standard, Some(Value::Number(handle(operation).0 as i64)), "{operation:?}");
        assert_eq!(predefined(handle(operation)), Some(operation));
    }
    assert_eq!(predefined(Op::NULL), None);
}

fn datatype(constants: &[Constant], basic: Basic) -> Datatype {
    let constant = constants.iter().find(|constant| constant.name == basic.name()).expect("there");
    let Some(Value::Number(number)) = constant.standard else { panic!("{basic:?} has no number") };
    Datatype(number as u64)
}

#[test]
fn each_operation_on_each_datatype_as_in_plain_arithmetic_or_refused() {
    let mpi = Mpi::new();
    let pairs = [(3, 2), (2, 3), (0, 1), (1, 1), (0, 0)];
    let all =
        |f: &dyn Fn(i64, i64) -> Vec<u8>| -> Vec<u8> { pairs.iter().flat_map(|&(a, b)| f(a, b)).collect() };
    let (mut done, mut refused) = (0, 0);
    let constants = bdrun_mpi_table::constants().expect("well-formed");
    for operation in Operation::ALL {
        let legal = legal(operation);
        for &basic in Basic::ALL {
            let datatype = datatype(&constants, basic);
            let is_legal = legal.contains(&basic.name().trim_start_matches("MPI_"));
            // What is refused is not touched.
            let (mut from, mut to, expected) = if is_legal {
                (
                    all(&|a, _| element(basic, a, 5)),
                    all(&|_, b| element(basic, b, 4)),
                    all(&|a, b| expected(operation, basic, a, b)),
                )
            } else {
                let bytes = vec![1; 5 * basic.extent()];
                (bytes.clone(), bytes.clone(), bytes)
            };
            let answer = reduce(&mpi, &mut from, &mut to, 5, datatype, handle(operation));
            assert_eq!(
                answer,
                if is_legal { Ok(()) } else { Err(Class::Op.into()) },
                "{operation:?} {basic:?}"
            );
            assert_eq!(to, expected, "{operation:?} {basic:?}");
            if is_legal { done += 1 } else { refused += 1 }
        }
    }
    assert!(done > 300 && refused > 300, "{done} {refused}");
}

#[test]
fn integers_wrap_and_fractions_are_added() {
    let mpi = Mpi::new();
    let (mut from, mut to) = (i32::MAX.to_ne_bytes(), 2_i32.to_ne_bytes());
    reduce(&mpi, &mut from, &mut to, 1, INT, Op(0x21)).expect("legal");
    assert_eq!(i32::from_ne_bytes(to), i32::MAX.wrapping_add(2));
    let (mut from, mut to) = (0.1_f64.to_ne_bytes(), 0.2_f64.to_ne_bytes());
    reduce(&mpi, &mut from, &mut to, 1, Datatype(0x214), Op(0x21)).expect("legal");
    assert_eq!(f64::from_ne_bytes(to), 0.1 + 0.2);
}

/// What a function of the program was told, told again in the second buffer: ints.
extern "C" fn small(from: *mut c_void, to: *mut c_void, len: *mut c_int, datatype: *mut u64) {
    // SAFETY: three ints each.
    unsafe {
        let (from, to) = (from.cast::<i32>(), to.cast::<i32>());
        *to = *from - *to;
        *to.add(1) = *len;
        *to.add(2) = *datatype as i32;
    }
}

extern "C" fn large(from: *mut c_void, to: *mut c_void, len: *mut i64, datatype: *mut u64) {
    // SAFETY: three ints each.
    unsafe {
        let (from, to) = (from.cast::<i32>(), to.cast::<i32>());
        *to -= *from;
        *to.add(1) = (*len >> 8) as i32;
        *to.add(2) = *datatype as i32;
    }
}

#[test]
fn functions_of_the_program_are_called_with_its_datatype() {
    let mpi = Mpi::new();
    let ints = |a: [i32; 3]| a.map(i32::to_ne_bytes).concat();
    // SAFETY: functions of the form that is said.
    unsafe {
        let minus = mpi.op_create(small as *mut c_void, false, false).expect("a function");
        let other = mpi.op_create(large as *mut c_void, true, true).expect("a function");
        assert_eq!((mpi.op_commutative(minus), mpi.op_commutative(other)), (Ok(false), Ok(true)));
        let (mut from, mut to) = (ints([7, 0, 0]), ints([2, 0, 0]));
        reduce(&mpi, &mut from, &mut to, 3, INT, minus).expect("legal");
        assert_eq!(to, ints([5, 3, 0x209]));
        let made = mpi.type_contiguous(3, INT, false).expect("legal");
        assert_eq!(reduce(&mpi, &mut from, &mut to, 1, made, minus), Err(Class::Type.into()));
        mpi.type_commit(made).expect("there");
        reduce(&mpi, &mut from, &mut to, 1, made, other).expect("legal");
        assert_eq!(to, ints([-2, 0, made.0 as i32]));
        // A predefined one is not defined for it; nothing of nothing is not asked.
        assert_eq!(reduce(&mpi, &mut from, &mut to, 1, made, Op(0x21)), Err(Class::Op.into()));
        reduce(&mpi, &mut from, &mut to, 0, made, minus).expect("legal");
        assert_eq!(to, ints([-2, 0, made.0 as i32]));
        let copy = mpi.type_dup(INT).expect("there");
        let (mut a, mut b) = (ints([1, 2, 3]), ints([4, 5, 6]));
        reduce(&mpi, &mut a, &mut b, 3, copy, Op(0x21)).expect("legal");
        assert_eq!(b, ints([5, 7, 9]));

        // Whoever folds goes on when the operation is freed.
        let fold = mpi.fold(minus, INT).expect("legal");
        assert_eq!(mpi.op_free(minus), Ok(Op::NULL));
        assert_eq!(mpi.op_free(minus), Err(Class::Op.into()));
        let (from, mut to) = (ints([9, 0, 0]), ints([1, 0, 0]));
        fold.apply(from.as_ptr(), to.as_mut_ptr(), 2);
        assert_eq!(to, ints([8, 2, 0x209]));
    }
}

/// A reduction that was begun goes on when its datatype is freed, and the function may ask about that.
#[test]
fn a_freed_datatype_is_what_its_function_is_told_until_that_has_ended() {
    let mpi = Mpi::new();
    let ints = |a: [i32; 3]| a.map(i32::to_ne_bytes).concat();
    // SAFETY: functions of the form that is said.
    unsafe {
        let op = mpi.op_create(small as *mut c_void, false, false).expect("a function");
        let made = |count: i64| {
            let made = mpi.type_contiguous(count, INT, false).expect("legal");
            mpi.type_commit(made).expect("there")
        };
        let datatype = made(3);
        let fold = mpi.fold(op, datatype).expect("legal");
        assert_eq!(mpi.type_free(datatype), Ok(Datatype::NULL));
        let others = [made(5), made(7)];
        let (from, mut to) = (ints([9, 0, 0]), ints([1, 0, 0]));
        fold.apply(from.as_ptr(), to.as_mut_ptr(), 1);
        let told = Datatype(i32::from_ne_bytes(to[8..].try_into().expect("a number")) as u64);
        assert_eq!((told, mpi.type_get_extent(told)), (datatype, Ok((0, 12))));
        // It is freed, and once.
        assert_eq!((mpi.type_free(datatype), mpi.types.left()), (Err(Class::Type.into()), 2));
        drop(fold);
        others.into_iter().for_each(|other| assert_eq!(mpi.type_free(other), Ok(Datatype::NULL)));
        assert_eq!(mpi.type_size(datatype), Err(Class::Type.into()));
        assert!(others.contains(&made(5)) || made(5) == datatype, "handles are used again");
    }
}

/// How it was called: both buffers, and how many elements.
static PARTS: Mutex<Vec<(usize, usize, c_int)>> = Mutex::new(vec![]);

extern "C" fn part(from: *mut c_void, to: *mut c_void, len: *mut c_int, _: *mut u64) {
    // SAFETY: the caller's: a number.
    PARTS.lock().expect("nobody panicked").push((from as usize, to as usize, unsafe { *len }));
}

#[test]
fn more_than_an_int_can_count_is_folded_in_parts() {
    let mpi = Mpi::new();
    // SAFETY: the function reads and writes nothing, wherever that is.
    unsafe {
        let op = mpi.op_create(part as *mut c_void, true, false).expect("a function");
        let (from, to) = (Buffer::At(0x1000 as *mut u8), Buffer::At(0x2000 as *mut u8));
        mpi.reduce_local(from, to, (1 << 31) + 5, INT, op).expect("legal");
    }
    let by = 4 * i32::MAX as usize;
    let parts = PARTS.lock().expect("nobody panicked");
    assert_eq!(*parts, [(0x1000, 0x2000, i32::MAX), (0x1000 + by, 0x2000 + by, 6)]);
}

#[test]
fn wrong_arguments_have_their_classes() {
    let mpi = Mpi::new();
    let (mut from, mut to) = ([0; 8], [0; 8]);
    let sum = handle(Operation::Sum);
    for op in [Op::NULL, Op(0), Op(0x1000), handle(Operation::Replace), handle(Operation::Nothing)] {
        assert_eq!(reduce(&mpi, &mut from, &mut to, 1, INT, op), Err(Class::Op.into()));
    }
    assert_eq!(reduce(&mpi, &mut from, &mut to, -1, INT, sum), Err(Class::Count.into()));
    assert_eq!(reduce(&mpi, &mut from, &mut to, 1, Datatype::NULL, sum), Err(Class::Type.into()));
    let at = Buffer::At(to.as_mut_ptr());
    // SAFETY: nothing is called or read.
    unsafe {
        for bad in [Buffer::InPlace, Buffer::At(std::ptr::null_mut())] {
            assert_eq!(mpi.reduce_local(bad, at, 1, INT, sum), Err(Class::Buffer.into()));
            assert_eq!(mpi.reduce_local(at, bad, 1, INT, sum), Err(Class::Buffer.into()));
        }
        assert_eq!(mpi.op_create(std::ptr::null_mut(), true, false), Err(Class::Arg.into()));
        assert_eq!(mpi.op_free(sum), Err(Class::Op.into()));
        assert_eq!(mpi.op_commutative(Op::NULL), Err(Class::Op.into()));
        assert_eq!(mpi.op_commutative(sum), Ok(true));
    }
}
