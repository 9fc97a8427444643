//! Handles and statuses of Fortran (MPI-3.1, section 17.2.4): `MPI_Fint` is `int`, and so is a handle of C;
//! but a file's.

use std::ffi::c_int;

use bdrun_mpi::handle::{self, MADE};
use bdrun_mpi_core::error::Class;

use crate::face::{self, Word};
use crate::{Object, call};

macro_rules! the_same {
    ($($name:ident)*) => {
        $(
            #[unsafe(no_mangle)]
            pub extern "C" fn $name(handle: c_int) -> c_int {
                handle
            }
        )*
    };
}

the_same! {
    MPI_Comm_c2f PMPI_Comm_c2f MPI_Comm_f2c PMPI_Comm_f2c
    MPI_Comm_toint PMPI_Comm_toint MPI_Comm_fromint PMPI_Comm_fromint
    MPI_Errhandler_c2f PMPI_Errhandler_c2f MPI_Errhandler_f2c PMPI_Errhandler_f2c
    MPI_Errhandler_toint PMPI_Errhandler_toint MPI_Errhandler_fromint PMPI_Errhandler_fromint
    MPI_Group_c2f PMPI_Group_c2f MPI_Group_f2c PMPI_Group_f2c
    MPI_Group_toint PMPI_Group_toint MPI_Group_fromint PMPI_Group_fromint
    MPI_Info_c2f PMPI_Info_c2f MPI_Info_f2c PMPI_Info_f2c
    MPI_Info_toint PMPI_Info_toint MPI_Info_fromint PMPI_Info_fromint
    MPI_Message_c2f PMPI_Message_c2f MPI_Message_f2c PMPI_Message_f2c
    MPI_Message_toint PMPI_Message_toint MPI_Message_fromint PMPI_Message_fromint
    MPI_Op_c2f PMPI_Op_c2f MPI_Op_f2c PMPI_Op_f2c
    MPI_Op_toint PMPI_Op_toint MPI_Op_fromint PMPI_Op_fromint
    MPI_Request_c2f PMPI_Request_c2f MPI_Request_f2c PMPI_Request_f2c
    MPI_Request_toint PMPI_Request_toint MPI_Request_fromint PMPI_Request_fromint
    MPI_Session_c2f PMPI_Session_c2f MPI_Session_f2c PMPI_Session_f2c
    MPI_Session_toint PMPI_Session_toint MPI_Session_fromint PMPI_Session_fromint
    MPI_Type_c2f PMPI_Type_c2f MPI_Type_f2c PMPI_Type_f2c
    MPI_Type_toint PMPI_Type_toint MPI_Type_fromint PMPI_Type_fromint
    MPI_Win_c2f PMPI_Win_c2f MPI_Win_f2c PMPI_Win_f2c
    MPI_Win_toint PMPI_Win_toint MPI_Win_fromint PMPI_Win_fromint
}

/// The number of a file: 0 of none, else that of its place.
fn number(file: face::File) -> c_int {
    let value = handle::File::of(file).0;
    value.checked_sub(MADE - 1).and_then(|place| c_int::try_from(place).ok()).unwrap_or(0)
}

fn numbered(number: c_int) -> face::File {
    match u64::try_from(number) {
        Ok(place @ 1..) => handle::File(MADE - 1 + place).out(),
        _ => std::ptr::null_mut(),
    }
}

macro_rules! files {
    ($($to:ident $from:ident)*) => {
        $(
            #[unsafe(no_mangle)]
            pub extern "C" fn $to(file: face::File) -> c_int {
                number(file)
            }

            #[unsafe(no_mangle)]
            pub extern "C" fn $from(file: c_int) -> face::File {
                numbered(file)
            }
        )*
    };
}

files! {
    MPI_File_c2f MPI_File_f2c
    PMPI_File_c2f PMPI_File_f2c
    MPI_File_toint MPI_File_fromint
    PMPI_File_toint PMPI_File_fromint
}

/// Copies a status: in all languages they are the same 20 bytes.
unsafe fn copied(from: *const face::Status, to: *mut face::Status) -> c_int {
    // One that is ignored is no status.
    if from as usize <= 1 || to as usize <= 1 {
        return call(&"MPI_Status_f2c", || Object::Nothing, || Err(Class::Arg.into()));
    }
    // SAFETY: the caller's: a status, and room for one.
    unsafe { to.write_unaligned(from.read_unaligned()) };
    0
}

macro_rules! statuses {
    ($($name:ident $profiled:ident,)*) => {
        $(
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name(from: *const face::Status, to: *mut face::Status) -> c_int {
                // SAFETY: the caller's.
                unsafe { copied(from, to) }
            }

            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $profiled(from: *const face::Status, to: *mut face::Status) -> c_int {
                // SAFETY: the caller's.
                unsafe { copied(from, to) }
            }
        )*
    };
}

statuses! {
    MPI_Status_c2f PMPI_Status_c2f,
    MPI_Status_f2c PMPI_Status_f2c,
    MPI_Status_c2f08 PMPI_Status_c2f08,
    MPI_Status_f082c PMPI_Status_f082c,
    MPI_Status_f082f PMPI_Status_f082f,
    MPI_Status_f2f08 PMPI_Status_f2f08,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_a_number() {
        assert_eq!((MPI_File_c2f(std::ptr::null_mut()), MPI_File_f2c(0).is_null()), (0, true));
        for place in [0, 1, 4711] {
            let file = handle::File(MADE + place).out();
            assert_eq!((MPI_File_c2f(file), MPI_File_f2c(place as c_int + 1)), (place as c_int + 1, file));
        }
        assert!(MPI_File_f2c(-3).is_null());
    }
}
