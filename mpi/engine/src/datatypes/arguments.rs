//! What the calls are given, and what they check of it.

use std::ffi::{CStr, c_char};

use bdrun_mpi_core::datatype::{Block, Combiner, Distribution, Order, Type, TypeError, Width};
use bdrun_mpi_core::error::Class;

use crate::args::{Buffer, Ints, IntsOut};
use crate::face::DEFAULT_DARG;
use crate::failure::{Answer, Failure};
use crate::handle::Comm;

impl From<TypeError> for Failure {
    fn from(error: TypeError) -> Self {
        let class = match error {
            TypeError::Count => Class::Count,
            TypeError::Argument(_) => Class::Arg,
            TypeError::Dimensions => Class::Dims,
            TypeError::TooLarge => Class::ValueTooLarge,
        };
        Self { text: Some(error.to_string()), ..class.into() }
    }
}

/// The form of a call.
pub const fn width(large: bool) -> Width {
    if large { Width::Large } else { Width::Small }
}

/// A count that is not negative.
pub fn counted(count: i64) -> Answer<usize> {
    usize::try_from(count).map_err(|_| Class::Count.into())
}

/// Numbers of the program.
///
/// # Safety
/// There are so many.
pub unsafe fn numbers(n: usize, at: Ints) -> Answer<Vec<i64>> {
    if n > 0 && at.is_null() {
        return Err(Class::Arg.into());
    }
    // SAFETY: the caller's.
    Ok((0..n).map(|i| unsafe { at.get(i) }).collect())
}

/// Blocks of the program.
///
/// # Safety
/// There are so many.
pub unsafe fn blocks(n: usize, counts: Ints, at: Ints) -> Answer<Vec<Block>> {
    // SAFETY: the caller's.
    let (counts, at) = unsafe { (numbers(n, counts)?, numbers(n, at)?) };
    Ok(counts.into_iter().zip(at).map(|(count, at)| Block { count, at }).collect())
}

/// `MPI_ORDER_C`, `MPI_ORDER_FORTRAN`.
pub fn order(order: i64) -> Answer<Order> {
    match order {
        12 => Ok(Order::C),
        15 => Ok(Order::Fortran),
        _ => Err(Class::Arg.into()),
    }
}

/// `MPI_DISTRIBUTE_NONE` and its like; an argument may be `MPI_DISTRIBUTE_DFLT_DARG`.
pub fn distribution(kind: i64, argument: i64) -> Answer<Distribution> {
    let argument = (argument != DEFAULT_DARG).then_some(argument);
    match kind {
        16 => Ok(Distribution::None),
        17 => Ok(Distribution::Block(argument)),
        18 => Ok(Distribution::Cyclic(argument)),
        _ => Err(Class::Arg.into()),
    }
}

/// `MPI_COMBINER_NAMED` and its like.
pub const fn combiner(combiner: Combiner) -> i64 {
    101 + combiner as i64
}

/// How many integers, addresses, counts and datatypes it was made of.
pub fn lengths(of: &Type) -> [i64; 4] {
    of.contents().map_or([0; 4], |contents| {
        let (integers, addresses) = (contents.integers.len(), contents.addresses.len());
        [integers, addresses, contents.counts.len(), contents.types.len()].map(|len| len as i64)
    })
}

/// Writes numbers to the program.
///
/// # Safety
/// There is room for them.
pub unsafe fn tell(values: &[i64], to: IntsOut) {
    for (i, &value) in values.iter().enumerate() {
        // SAFETY: the caller's.
        unsafe { to.set(i, value) };
    }
}

/// The communicator of a call that packs: it must be one. All processes are on one machine, so it says
/// nothing else.
pub fn some(comm: Comm) -> Answer<()> {
    if comm == Comm::NULL { Err(Class::Comm.into()) } else { Ok(()) }
}

/// The representation of a call: "external32" is the only one.
///
/// # Safety
/// It is null, or ends.
pub unsafe fn external(datarep: *const c_char) -> Answer<()> {
    if datarep.is_null() {
        return Err(Class::Arg.into());
    }
    // SAFETY: the caller's.
    let is_known = unsafe { CStr::from_ptr(datarep) } == c"external32";
    if is_known { Ok(()) } else { Err(Class::UnsupportedDatarep.into()) }
}

/// Where packed bytes go to or come from: behind `position`, of so many in all.
pub fn room(buffer: Buffer, size: i64, position: i64, bytes: i64) -> Answer<*mut u8> {
    let Buffer::At(at) = buffer else { return Err(Class::Buffer.into()) };
    if size < 0 || !(0..=size).contains(&position) {
        return Err(Class::Arg.into());
    }
    if size - position < bytes {
        return Err(Class::Truncate.into());
    }
    if at.is_null() && bytes > 0 {
        return Err(Class::Buffer.into());
    }
    Ok(at.wrapping_offset(position as isize))
}

/// Bytes of `count` in the representation "external32".
pub fn external_bytes(of: &Type, count: i64) -> Answer<i64> {
    let bytes = of.external_size().and_then(|size| size.checked_mul(count));
    bytes.ok_or_else(|| Class::ValueTooLarge.into())
}
