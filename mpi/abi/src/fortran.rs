//! Handles and statuses of Fortran. The standard's ABI has none of it, but `MPI_X_toint` and `MPI_X_fromint`;
//! programs call these all the same.

use std::ffi::c_int;

use bdrun_mpi_core::error::Class;

use crate::face;
use crate::{Object, call};

macro_rules! handles {
    ($($name:ident: $to:ident $from:ident = $toint:ident $fromint:ident,)*) => {
        $(
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $to(handle: face::$name) -> c_int {
                // SAFETY: the caller's.
                unsafe { crate::$toint(handle) }
            }

            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $from(handle: c_int) -> face::$name {
                // SAFETY: the caller's.
                unsafe { crate::$fromint(handle) }
            }
        )*
    };
}

handles! {
    Comm: MPI_Comm_c2f MPI_Comm_f2c = PMPI_Comm_toint PMPI_Comm_fromint,
    Comm: PMPI_Comm_c2f PMPI_Comm_f2c = PMPI_Comm_toint PMPI_Comm_fromint,
    Errhandler: MPI_Errhandler_c2f MPI_Errhandler_f2c = PMPI_Errhandler_toint PMPI_Errhandler_fromint,
    Errhandler: PMPI_Errhandler_c2f PMPI_Errhandler_f2c = PMPI_Errhandler_toint PMPI_Errhandler_fromint,
    File: MPI_File_c2f MPI_File_f2c = PMPI_File_toint PMPI_File_fromint,
    File: PMPI_File_c2f PMPI_File_f2c = PMPI_File_toint PMPI_File_fromint,
    Group: MPI_Group_c2f MPI_Group_f2c = PMPI_Group_toint PMPI_Group_fromint,
    Group: PMPI_Group_c2f PMPI_Group_f2c = PMPI_Group_toint PMPI_Group_fromint,
    Info: MPI_Info_c2f MPI_Info_f2c = PMPI_Info_toint PMPI_Info_fromint,
    Info: PMPI_Info_c2f PMPI_Info_f2c = PMPI_Info_toint PMPI_Info_fromint,
    Message: MPI_Message_c2f MPI_Message_f2c = PMPI_Message_toint PMPI_Message_fromint,
    Message: PMPI_Message_c2f PMPI_Message_f2c = PMPI_Message_toint PMPI_Message_fromint,
    Op: MPI_Op_c2f MPI_Op_f2c = PMPI_Op_toint PMPI_Op_fromint,
    Op: PMPI_Op_c2f PMPI_Op_f2c = PMPI_Op_toint PMPI_Op_fromint,
    Request: MPI_Request_c2f MPI_Request_f2c = PMPI_Request_toint PMPI_Request_fromint,
    Request: PMPI_Request_c2f PMPI_Request_f2c = PMPI_Request_toint PMPI_Request_fromint,
    Session: MPI_Session_c2f MPI_Session_f2c = PMPI_Session_toint PMPI_Session_fromint,
    Session: PMPI_Session_c2f PMPI_Session_f2c = PMPI_Session_toint PMPI_Session_fromint,
    Datatype: MPI_Type_c2f MPI_Type_f2c = PMPI_Type_toint PMPI_Type_fromint,
    Datatype: PMPI_Type_c2f PMPI_Type_f2c = PMPI_Type_toint PMPI_Type_fromint,
    Win: MPI_Win_c2f MPI_Win_f2c = PMPI_Win_toint PMPI_Win_fromint,
    Win: PMPI_Win_c2f PMPI_Win_f2c = PMPI_Win_toint PMPI_Win_fromint,
}

/// Copies a status: Fortran's is eight numbers, the same.
unsafe fn copied(from: *const face::Status, to: *mut face::Status) -> c_int {
    // One that is ignored is no status.
    if from.is_null() || to.is_null() {
        return call(&"MPI_Status_f2c", || Object::Nothing, || Err(Class::Arg.into()));
    }
    // SAFETY: the caller's: a status, and room for one.
    unsafe { to.write_unaligned(from.read_unaligned()) };
    0
}

macro_rules! statuses {
    ($($name:ident)*) => {
        $(
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name(from: *const face::Status, to: *mut face::Status) -> c_int {
                // SAFETY: the caller's.
                unsafe { copied(from, to) }
            }
        )*
    };
}

statuses! { MPI_Status_c2f PMPI_Status_c2f MPI_Status_f2c PMPI_Status_f2c }
