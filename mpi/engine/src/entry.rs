//! How a program's call comes in, for all faces.

use std::ffi::c_int;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering::Relaxed};

use bdrun_mpi_core::error::Class;

use crate::Mpi;
use crate::face::{Face, Object};
use crate::failure::{Answer, Failure};
use crate::groups::UNDEFINED;

static MPI: Mpi = Mpi::new();

/// What the calls are made on.
#[inline(always)]
pub fn calls() -> &'static Mpi {
    &MPI
}

/// Programs speak this face's ABI. The first one stays: a process has one MPI.
pub fn begin(face: &'static Face) {
    let _ = MPI.face.set(face);
}

/// Where the name of the call is that the program is in.
static CALLED: AtomicPtr<&'static str> = AtomicPtr::new(ptr::null_mut());

/// The program is in a call until this is dropped.
struct Called;

/// The program calls this. Where several threads do it is the last one that is known: it is for people, and
/// for the pager to learn what is used after it.
#[inline(always)]
#[must_use]
fn called(name: &'static &'static str) -> Called {
    bdrun_worker::front::enter(ptr::from_ref(name).addr() as u64);
    CALLED.store(ptr::from_ref(name).cast_mut(), Relaxed);
    Called
}

impl Drop for Called {
    #[inline(always)]
    fn drop(&mut self) {
        CALLED.store(ptr::null_mut(), Relaxed);
    }
}

/// The call that the program is in.
pub(crate) fn current_call() -> Option<&'static str> {
    // SAFETY: null, or of a `&'static`.
    unsafe { CALLED.load(Relaxed).as_ref() }.copied()
}

/// Makes a call of a function with this name; what it returns to the program.
#[inline(always)]
pub fn call(
    name: &'static &'static str,
    on: impl FnOnce() -> Object,
    body: impl FnOnce() -> Answer<()>,
) -> c_int {
    let _called = called(name);
    match body() {
        Ok(()) => 0,
        Err(failure) => failed(on(), &failure),
    }
}

#[cold]
fn failed(on: Object, failure: &Failure) -> c_int {
    MPI.face().code(MPI.tell(on, failure))
}

/// Makes a call that has no error code to return.
#[inline(always)]
pub fn answer<T>(body: impl FnOnce() -> Answer<T>) -> Option<T> {
    match body() {
        Ok(value) => Some(value),
        Err(failure) => {
            failed(Object::Nothing, &failure);
            None
        }
    }
}

/// What stands at an address that must not be null.
///
/// # Safety
/// It is null or can be read.
///
/// # Errors
/// `MPI_ERR_ARG`: it is null.
#[inline(always)]
pub unsafe fn read<T: Copy>(at: *const T) -> Answer<T> {
    if at.is_null() {
        return Err(Class::Arg.into());
    }
    // SAFETY: the caller's.
    Ok(unsafe { at.read() })
}

/// A handle that stands at an address; zeros if there is none.
///
/// # Safety
/// It is null or can be read; zeros are a value of it.
pub unsafe fn at<T: Copy>(at: *const T) -> T {
    // SAFETY: the caller's.
    unsafe { if at.is_null() { std::mem::zeroed() } else { at.read() } }
}

/// A number as an `int`.
///
/// # Errors
/// `MPI_ERR_VALUE_TOO_LARGE`: it does not fit.
#[inline(always)]
pub fn fit(value: i64) -> Answer<c_int> {
    c_int::try_from(value).map_err(|_| Class::ValueTooLarge.into())
}

/// A number as an `int`, `MPI_UNDEFINED` if it does not fit: where the standard has it so, as in
/// `MPI_Type_size`.
#[inline(always)]
pub fn fit_or_undefined(value: i64) -> c_int {
    c_int::try_from(value).unwrap_or(UNDEFINED as c_int)
}
