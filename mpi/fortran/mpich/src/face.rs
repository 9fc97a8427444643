//! Arguments.

use std::ffi::{c_int, c_void};
use std::ptr;

use bdrun_mpi_fortran::args::{Handle, Statuses, end, is_one_of, read};
use bdrun_mpi_fortran::exports::Common;

use crate::constants::*;

macro_rules! handles {
    ($($name:ident,)*) => {
        $(
            /// A number in C as well.
            #[repr(transparent)]
            #[derive(Debug, Clone, Copy, PartialEq)]
            pub struct $name(c_int);

            impl Handle for $name {
                const NOTHING: Self = Self(0);

                #[inline(always)]
                fn of(number: c_int) -> Self {
                    Self(number)
                }

                #[inline(always)]
                fn number(self) -> c_int {
                    self.0
                }
            }
        )*
    };
}

handles! { Comm, Datatype, Errhandler, Group, Info, Message, Op, Request, Session, Win, }

/// An address.
#[repr(transparent)]
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct File(*mut c_void);

unsafe extern "C" {
    safe fn MPI_File_f2c(number: c_int) -> File;
    fn MPI_File_c2f(handle: File) -> c_int;
    /// What C has for `MPI_UNWEIGHTED`.
    static MPI_UNWEIGHTED: usize;
    /// What C has for `MPI_WEIGHTS_EMPTY`.
    static MPI_WEIGHTS_EMPTY: usize;
}

impl Handle for File {
    const NOTHING: Self = Self(ptr::null_mut());

    fn of(number: c_int) -> Self {
        MPI_File_f2c(number)
    }

    fn number(self) -> c_int {
        // SAFETY: C has given it, or it is null.
        unsafe { MPI_File_c2f(self) }
    }
}

macro_rules! commons {
    ($($name:ident $bytes:literal)*) => {
        $(
            #[unsafe(no_mangle)]
            #[allow(non_upper_case_globals, reason = "as gfortran spells it")]
            pub static $name: Common<$bytes> = Common::new();
        )*
    };
}

commons! {
    // MPI_BOTTOM, MPI_IN_PLACE, MPI_STATUS_IGNORE
    mpipriv1_ 28
    // MPI_STATUSES_IGNORE, MPI_ERRCODES_IGNORE
    mpipriv2_ 24
    // MPI_ARGVS_NULL, MPI_ARGV_NULL
    mpiprivc_ 2
    // MPI_UNWEIGHTED
    mpifcmb5_ 4
    // MPI_WEIGHTS_EMPTY
    mpifcmb9_ 4
}

/// A buffer as C has it.
#[inline(always)]
pub fn buffer(at: *mut c_void) -> *mut c_void {
    match at.cast_const() {
        at if at == mpipriv1_.at(4) => ptr::without_provenance_mut(usize::MAX),
        at if at == mpipriv1_.at(0) => ptr::null_mut(),
        at => at.cast_mut(),
    }
}

/// `MPI_IN_PLACE`.
pub fn is_in_place(at: *mut c_void) -> bool {
    is_one_of(at, &[mpipriv1_.at(4)])
}

/// Weights as C has them.
pub fn weights(at: *mut c_int) -> *mut c_int {
    // SAFETY: C's objects, which nobody writes.
    let (without, empty) = unsafe { (MPI_UNWEIGHTED, MPI_WEIGHTS_EMPTY) };
    match at.cast_const().cast() {
        at if at == mpifcmb5_.at(0) => ptr::with_exposed_provenance_mut(without),
        at if at == mpifcmb9_.at(0) => ptr::with_exposed_provenance_mut(empty),
        _ => at,
    }
}

/// `MPI_Status`.
pub type Status = [c_int; 5];

/// Statuses as C has them.
#[inline(always)]
pub unsafe fn statuses(at: *mut c_int, len: usize) -> Statuses<Status> {
    if is_one_of(at.cast(), &[mpipriv1_.at(8), mpipriv2_.at(0)]) {
        return Statuses::ignored(ptr::without_provenance_mut(1));
    }
    // SAFETY: the caller's.
    unsafe { Statuses::new(at, len) }
}

pub fn is_errcodes_ignore(at: *const c_void) -> bool {
    is_one_of(at, &[mpipriv2_.at(20)])
}

pub fn has_no_arguments(argv: *const c_void) -> bool {
    is_one_of(argv, &[mpiprivc_.at(1)])
}

pub fn has_no_arguments_at_all(argvs: *const c_void) -> bool {
    is_one_of(argvs, &[mpiprivc_.at(0)])
}

const PREDEFINED: [c_int; 12] = [
    TAG_UB,
    HOST,
    IO,
    WTIME_IS_GLOBAL,
    APPNUM,
    LASTUSEDCODE,
    UNIVERSE_SIZE,
    WIN_BASE,
    WIN_SIZE,
    WIN_DISP_UNIT,
    WIN_CREATE_FLAVOR,
    WIN_MODEL,
];

/// A key in C: what is predefined has numbers there that are less by one.
#[inline(always)]
pub fn keyval(number: c_int) -> c_int {
    let less = number.wrapping_sub(1);
    if PREDEFINED.contains(&less) { less } else { number }
}

/// Whether two handles are one.
pub unsafe extern "C" fn are_equal(one: *const c_int, other: *const c_int) -> c_int {
    // SAFETY: the caller's.
    unsafe { (read(one) == read(other)).into() }
}

/// Whether they are not.
pub unsafe extern "C" fn differ(one: *const c_int, other: *const c_int) -> c_int {
    // SAFETY: the caller's.
    unsafe { (read(one) != read(other)).into() }
}

macro_rules! sizes {
    ($($name:ident $bytes:literal)*) => {
        $(
            /// `MPI_SIZEOF` of what has so many bytes.
            pub unsafe extern "C" fn $name(_: *const c_void, size: *mut c_int, ierror: *mut c_int) {
                // SAFETY: the caller's.
                unsafe {
                    size.write_unaligned($bytes);
                    end(ierror, 0);
                }
            }
        )*
    };
}

sizes! {
    sizeof_1 1
    sizeof_2 2
    sizeof_4 4
    sizeof_8 8
}
