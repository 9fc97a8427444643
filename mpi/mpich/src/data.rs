//! Objects that programs refer to.

use std::ffi::{c_int, c_void};

/// An address that is looked at, and nothing there.
#[repr(transparent)]
#[derive(Debug)]
pub struct Address(pub *const c_void);

// SAFETY: only the address is used.
unsafe impl Sync for Address {}

static NOBODY: [[c_int; 5]; 5] = [[0; 5]; 5];

const fn address(n: usize) -> Address {
    Address((&raw const NOBODY[n]).cast())
}

#[unsafe(no_mangle)]
pub static MPI_UNWEIGHTED: Address = address(0);
#[unsafe(no_mangle)]
pub static MPI_WEIGHTS_EMPTY: Address = address(1);
#[unsafe(no_mangle)]
pub static MPI_F_STATUS_IGNORE: Address = Address(std::ptr::dangling());
#[unsafe(no_mangle)]
pub static MPI_F_STATUSES_IGNORE: Address = Address(std::ptr::dangling());
#[unsafe(no_mangle)]
pub static MPI_F08_STATUS_IGNORE: Address = address(2);
#[unsafe(no_mangle)]
pub static MPI_F08_STATUSES_IGNORE: Address = address(3);
#[unsafe(no_mangle)]
pub static MPI_T_PVAR_ALL_HANDLES: Address = address(4);

/// `MPI_COMM_DUP_FN` and its like.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn MPIR_Dup_fn(
    _: c_int,
    _: c_int,
    _: *mut c_void,
    value: *mut c_void,
    copy: *mut *mut c_void,
    flag: *mut c_int,
) -> c_int {
    // SAFETY: the caller's: there is room for both.
    unsafe {
        copy.write(value);
        flag.write(1);
    }
    0
}
