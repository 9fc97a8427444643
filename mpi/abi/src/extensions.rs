//! What is there beyond MPI: `mpi/include/bdrun.h`. Of this face alone: who includes that header compiles
//! with `bdcc`, and programs that were made for another MPI do not know of it.

use std::ffi::{c_int, c_void};
use std::slice;

use bdrun_mpi::extensions::Seat;
use bdrun_mpi::failure::Answer;
use bdrun_mpi_core::error::Class;
use sbmalloc::{Advice, NotOurs, raw};

use crate::face::{Comm, comm_in, comm_out, on_comm};
use crate::{Object, call, calls, fit};

/// Writes what a call gives.
unsafe fn told<T>(comm: Comm, at: *mut T, given: impl FnOnce() -> Answer<T>) -> c_int {
    let body = || {
        if at.is_null() {
            return Err(Class::Arg.into());
        }
        let given = given()?;
        // SAFETY: the caller's: there is room for it.
        unsafe { at.write(given) };
        Ok(())
    };
    call(|| on_comm(comm), body)
}

macro_rules! seats {
    ($($name:ident $field:ident,)*) => {
        $(
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name(comm: Comm, at: *mut c_int) -> c_int {
                let number = |seat: Seat| fit(seat.$field as i64);
                // SAFETY: the caller's.
                unsafe { told(comm, at, || calls().seat(comm_in(comm)?).and_then(number)) }
            }
        )*
    };
}

seats! {
    bdrun_local_rank local_rank,
    bdrun_local_size local_size,
    bdrun_local_root local_root,
    bdrun_node_rank node,
    bdrun_node_count nodes,
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn bdrun_comm_node(comm: Comm, newcomm: *mut Comm) -> c_int {
    // SAFETY: the caller's.
    unsafe { told(comm, newcomm, || calls().comm_of_node(comm_in(comm)?).map(comm_out)) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn bdrun_comm_cyclic(comm: Comm, newcomm: *mut Comm) -> c_int {
    // SAFETY: the caller's.
    unsafe { told(comm, newcomm, || calls().comm_by_turns(comm_in(comm)?).map(comm_out)) }
}

#[unsafe(no_mangle)]
pub extern "C" fn bdrun_enter_critical() -> c_int {
    call(|| Object::Nothing, || calls().enter_critical())
}

#[unsafe(no_mangle)]
pub extern "C" fn bdrun_exit_critical() -> c_int {
    call(|| Object::Nothing, || calls().exit_critical())
}

/// What `malloc` aligns to.
const ALIGNED: usize = 16;
/// More no object may have.
const MOST: usize = isize::MAX as usize - 4096;

#[unsafe(no_mangle)]
pub extern "C" fn bdrun_malloc(size: usize) -> *mut c_void {
    if size > MOST { std::ptr::null_mut() } else { raw::alloc(size, ALIGNED).cast() }
}

#[unsafe(no_mangle)]
pub extern "C" fn bdrun_calloc(count: usize, size: usize) -> *mut c_void {
    match count.checked_mul(size) {
        Some(size @ ..=MOST) => raw::alloc_zeroed(size, ALIGNED).cast(),
        _ => std::ptr::null_mut(),
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn bdrun_realloc(at: *mut c_void, size: usize) -> *mut c_void {
    if at.is_null() {
        return bdrun_malloc(size);
    }
    if size > MOST || !raw::owns(at.cast()) {
        return std::ptr::null_mut();
    }
    // SAFETY: of this heap, and the caller's: it is used no more.
    unsafe { raw::realloc(at.cast(), size, ALIGNED).cast() }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn bdrun_free(at: *mut c_void) {
    // SAFETY: the caller's: it is used no more. What is not of this heap is left alone.
    unsafe { raw::free_owned(at.cast()) };
}

/// Says something of memory of this heap.
fn said(at: *const c_void, size: usize, say: impl FnOnce() -> Result<(), NotOurs>) -> c_int {
    let body = || {
        if size > 0 && !raw::owns(at.cast()) {
            return Err(Class::Arg.into());
        }
        if size == 0 { Ok(()) } else { say().map_err(|_| Class::Arg.into()) }
    };
    call(|| Object::Nothing, body)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn bdrun_discard(at: *mut c_void, size: usize) -> c_int {
    // SAFETY: of this heap (seen before), and the caller's: so many bytes, which nobody else uses now.
    said(at, size, || sbmalloc::discard(unsafe { slice::from_raw_parts_mut(at.cast::<u8>(), size) }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn bdrun_will_need(at: *const c_void, size: usize) -> c_int {
    // SAFETY: of this heap (seen before), and the caller's: so many bytes.
    let bytes = || unsafe { slice::from_raw_parts(at.cast::<u8>(), size) };
    said(at, size, || sbmalloc::advise(bytes(), Advice::WillNeed))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn bdrun_dont_need(at: *const c_void, size: usize) -> c_int {
    // SAFETY: as in `bdrun_will_need`.
    let bytes = || unsafe { slice::from_raw_parts(at.cast::<u8>(), size) };
    said(at, size, || sbmalloc::advise(bytes(), Advice::DontNeed))
}
