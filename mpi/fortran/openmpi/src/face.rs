//! Arguments.

use std::ffi::{c_int, c_void};
use std::ptr;

use bdrun_mpi_fortran::args::{Handle, Statuses, is_one_of};
use bdrun_mpi_fortran::exports::Common;

macro_rules! handles {
    ($($name:ident $to:ident $from:ident,)*) => {
        $(
            /// An address.
            #[repr(transparent)]
            #[derive(Debug, Clone, Copy, PartialEq)]
            pub struct $name(*mut c_void);

            unsafe extern "C" {
                safe fn $from(number: c_int) -> $name;
                fn $to(handle: $name) -> c_int;
            }

            impl Handle for $name {
                const NOTHING: Self = Self(ptr::null_mut());

                #[inline(always)]
                fn of(number: c_int) -> Self {
                    $from(number)
                }

                #[inline(always)]
                fn number(self) -> c_int {
                    // SAFETY: C has given it, or it is null.
                    unsafe { $to(self) }
                }
            }
        )*
    };
}

handles! {
    Comm PMPI_Comm_c2f PMPI_Comm_f2c,
    Datatype PMPI_Type_c2f PMPI_Type_f2c,
    Errhandler PMPI_Errhandler_c2f PMPI_Errhandler_f2c,
    File PMPI_File_c2f PMPI_File_f2c,
    Group PMPI_Group_c2f PMPI_Group_f2c,
    Info PMPI_Info_c2f PMPI_Info_f2c,
    Message PMPI_Message_c2f PMPI_Message_f2c,
    Op PMPI_Op_c2f PMPI_Op_f2c,
    Request PMPI_Request_c2f PMPI_Request_f2c,
    Session PMPI_Session_c2f PMPI_Session_f2c,
    Win PMPI_Win_c2f PMPI_Win_f2c,
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
    mpi_fortran_bottom_ 4
    mpi_fortran_in_place_ 4
    mpi_fortran_argv_null_ 1
    mpi_fortran_argvs_null_ 1
    mpi_fortran_errcodes_ignore_ 4
    mpi_fortran_status_ignore_ 24
    mpi_fortran_statuses_ignore_ 24
    mpi_fortran_unweighted_ 4
    mpi_fortran_weights_empty_ 4
}

/// A buffer as C has it.
#[inline(always)]
pub fn buffer(at: *mut c_void) -> *mut c_void {
    match at.cast_const() {
        at if at == mpi_fortran_in_place_.at(0) => ptr::without_provenance_mut(1),
        at if at == mpi_fortran_bottom_.at(0) => ptr::null_mut(),
        at => at.cast_mut(),
    }
}

/// `MPI_IN_PLACE`.
pub fn is_in_place(at: *mut c_void) -> bool {
    is_one_of(at, &[mpi_fortran_in_place_.at(0)])
}

/// Weights as C has them.
pub fn weights(at: *mut c_int) -> *mut c_int {
    match at.cast_const().cast() {
        at if at == mpi_fortran_unweighted_.at(0) => ptr::without_provenance_mut(2),
        at if at == mpi_fortran_weights_empty_.at(0) => ptr::without_provenance_mut(3),
        _ => at,
    }
}

/// `MPI_Status`.
pub type Status = [u64; 3];

/// Statuses as C has them.
#[inline(always)]
pub unsafe fn statuses(at: *mut c_int, len: usize) -> Statuses<Status> {
    if is_one_of(at.cast(), &[mpi_fortran_status_ignore_.at(0), mpi_fortran_statuses_ignore_.at(0)]) {
        return Statuses::ignored(ptr::null_mut());
    }
    // SAFETY: the caller's.
    unsafe { Statuses::new(at, len) }
}

pub fn is_errcodes_ignore(at: *const c_void) -> bool {
    is_one_of(at, &[mpi_fortran_errcodes_ignore_.at(0)])
}

pub fn has_no_arguments(argv: *const c_void) -> bool {
    is_one_of(argv, &[mpi_fortran_argv_null_.at(0)])
}

pub fn has_no_arguments_at_all(argvs: *const c_void) -> bool {
    is_one_of(argvs, &[mpi_fortran_argvs_null_.at(0)])
}

/// A key: the same in both languages.
#[inline(always)]
pub const fn keyval(number: c_int) -> c_int {
    number
}

macro_rules! sizes {
    ($($name:ident $bytes:literal)*) => {
        $(
            /// `MPI_SIZEOF` of what has so many bytes.
            pub unsafe extern "C" fn $name(_: *const c_void, size: *mut c_int, ierror: *mut c_int) {
                // SAFETY: the caller's.
                unsafe {
                    size.write_unaligned($bytes);
                    bdrun_mpi_fortran::args::end(ierror, 0);
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
    sizeof_16 16
    sizeof_32 32
}
