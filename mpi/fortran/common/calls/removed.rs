//! What MPI-3.0 has removed from the standard: numbers of the size of an `INTEGER` where there are now those
//! of an address.

use std::ffi::{c_int, c_void};

use bdrun_mpi_fortran::args::{Handle, end, len, read, read_all};

use crate::c;
use crate::face::{Datatype, buffer};

pub unsafe extern "C" fn address(location: *mut c_void, address: *mut c_int, ierror: *mut c_int) {
    let mut own = 0;
    // SAFETY: the caller's.
    unsafe {
        let code = c::get_address(buffer(location), &raw mut own);
        if code == 0 {
            address.write_unaligned(own as c_int);
        }
        end(ierror, code);
    }
}

/// What a datatype's constructor has made.
unsafe fn made(code: c_int, own: Datatype, to: *mut c_int, ierror: *mut c_int) {
    // SAFETY: the caller's.
    unsafe {
        if code == 0 {
            to.write_unaligned(own.number());
        }
        end(ierror, code);
    }
}

pub unsafe extern "C" fn type_hvector(
    count: *mut c_int,
    length: *mut c_int,
    stride: *mut c_int,
    oldtype: *mut c_int,
    newtype: *mut c_int,
    ierror: *mut c_int,
) {
    let mut own = Datatype::NOTHING;
    // SAFETY: the caller's.
    unsafe {
        let (oldtype, stride) = (Datatype::of(read(oldtype)), i64::from(read(stride)));
        let code = c::type_create_hvector(read(count), read(length), stride, oldtype, &raw mut own);
        made(code, own, newtype, ierror);
    }
}

/// So many numbers.
unsafe fn large(at: *mut c_int, len: usize) -> Vec<i64> {
    // SAFETY: the caller's.
    (0..len).map(|index| i64::from(unsafe { read(at.add(index)) })).collect()
}

pub unsafe extern "C" fn type_hindexed(
    count: *mut c_int,
    lengths: *mut c_int,
    displacements: *mut c_int,
    oldtype: *mut c_int,
    newtype: *mut c_int,
    ierror: *mut c_int,
) {
    let mut own = Datatype::NOTHING;
    // SAFETY: the caller's.
    unsafe {
        let mut displacements = large(displacements, len(count));
        let (at, oldtype) = (displacements.as_mut_ptr(), Datatype::of(read(oldtype)));
        let code = c::type_create_hindexed(read(count), lengths, at, oldtype, &raw mut own);
        made(code, own, newtype, ierror);
    }
}

pub unsafe extern "C" fn type_struct(
    count: *mut c_int,
    lengths: *mut c_int,
    displacements: *mut c_int,
    types: *mut c_int,
    newtype: *mut c_int,
    ierror: *mut c_int,
) {
    let mut own = Datatype::NOTHING;
    // SAFETY: the caller's.
    unsafe {
        let mut displacements = large(displacements, len(count));
        let mut types: Vec<Datatype> = read_all(types, len(count));
        let (at, types) = (displacements.as_mut_ptr(), types.as_mut_ptr());
        let code = c::type_create_struct(read(count), lengths, at, types, &raw mut own);
        made(code, own, newtype, ierror);
    }
}

/// Something of a datatype's bounds.
unsafe fn bound(datatype: *mut c_int, which: fn(i64, i64) -> i64, to: *mut c_int, ierror: *mut c_int) {
    let (mut lower, mut extent) = (0, 0);
    // SAFETY: the caller's.
    unsafe {
        let code = c::type_get_extent(Datatype::of(read(datatype)), &raw mut lower, &raw mut extent);
        if code == 0 {
            to.write_unaligned(which(lower, extent) as c_int);
        }
        end(ierror, code);
    }
}

pub unsafe extern "C" fn type_extent(datatype: *mut c_int, extent: *mut c_int, ierror: *mut c_int) {
    // SAFETY: the caller's.
    unsafe { bound(datatype, |_, extent| extent, extent, ierror) }
}

pub unsafe extern "C" fn type_lb(datatype: *mut c_int, displacement: *mut c_int, ierror: *mut c_int) {
    // SAFETY: the caller's.
    unsafe { bound(datatype, |lower, _| lower, displacement, ierror) }
}

pub unsafe extern "C" fn type_ub(datatype: *mut c_int, displacement: *mut c_int, ierror: *mut c_int) {
    // SAFETY: the caller's.
    unsafe { bound(datatype, |lower, extent| lower + extent, displacement, ierror) }
}
