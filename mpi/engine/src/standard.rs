//! The face of the standard's ABI, whose values are the engine's: until another has said its own.

use std::ffi::c_int;

use crate::args::Status as Told;
use crate::face::{DEFAULT_DARG, Face, Limits, Meaning, Statuses};

/// `libmpi_abi.so.1`.
pub static FACE: Face = Face {
    name: "MPI-5.0",
    limits: Limits {
        processor_name: 256,
        error_string: 512,
        object_name: 128,
        library_version: 8192,
        info_key: 256,
        info_value: 1024,
        port_name: 1024,
        datarep: 128,
        bsend_overhead: 512,
    },
    version: (5, 0),
    abi: (1, 0),
    handle: |_, handle| handle,
    number: |meaning, number| match meaning {
        Meaning::Darg => darg_out(number),
        _ => number as c_int,
    },
    error: |code| code.into(),
    status: Statuses { size: size_of::<Status>(), read, write },
    automatic: Some(2),
    duplicate: Some(1),
    all_handles: || 1,
};

/// `MPI_DISTRIBUTE_DFLT_DARG`.
const DARG: c_int = 19;

/// Of arguments of distributions: the only numbers that are others in the engine.
#[inline]
#[must_use]
pub fn darg_in(value: c_int) -> i64 {
    if value == DARG { DEFAULT_DARG } else { value.into() }
}

/// Back.
#[inline]
#[must_use]
pub const fn darg_out(value: i64) -> c_int {
    if value == DEFAULT_DARG { DARG } else { value as c_int }
}

/// `MPI_Status`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Status {
    source: c_int,
    tag: c_int,
    error: c_int,
    /// Bytes in two halves, and whether it was cancelled.
    internal: [c_int; 5],
}

/// What a status says; of none, what an empty one does.
///
/// # Safety
/// It is null or there is a status.
#[must_use]
pub unsafe fn status_in(at: *const Status) -> Told {
    if at.is_null() {
        return Told::EMPTY;
    }
    // SAFETY: the caller's: a status.
    let Status { source, tag, error, internal } = unsafe { at.read() };
    let count = i64::from(internal[0] as u32) | i64::from(internal[1]) << 32;
    Told {
        source: source.into(),
        tag: tag.into(),
        error: Some(error.into()),
        count,
        cancelled: internal[2] != 0,
    }
}

/// Writes a status.
///
/// # Safety
/// There is room for one.
pub unsafe fn status_out(at: *mut Status, status: &Told) {
    // SAFETY: the caller's: there is room for a status.
    unsafe {
        (*at).source = status.source as c_int;
        (*at).tag = status.tag as c_int;
        if let Some(error) = status.error {
            (*at).error = error as c_int;
        }
        (*at).internal =
            [status.count as c_int, (status.count >> 32) as c_int, status.cancelled.into(), 0, 0];
    }
}

unsafe fn read(at: *const u8) -> Told {
    // SAFETY: the caller's: a status, aligned.
    unsafe { status_in(at.cast()) }
}

unsafe fn write(at: *mut u8, status: &Told) {
    // SAFETY: the caller's: there is room for a status, aligned.
    unsafe { status_out(at.cast(), status) }
}
