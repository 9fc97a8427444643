//! What MPI-3.0 has removed from the standard, and MPICH's and Open MPI's ABI still have: a module of both
//! faces.

use std::ffi::{c_int, c_void};
use std::ptr;

use crate::face;

macro_rules! removed {
    ($($name:ident $profiled:ident($($argument:ident: $type:ty),*) $now:expr;)*) => {
        $(
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name($($argument: $type),*) -> c_int {
                // SAFETY: the caller's, who has what the standard said that it has.
                unsafe { $now }
            }

            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $profiled($($argument: $type),*) -> c_int {
                // SAFETY: the caller's, who has what the standard said that it has.
                unsafe { $now }
            }
        )*
    };
}

removed! {
    MPI_Address PMPI_Address(location: *mut c_void, address: *mut i64)
        crate::PMPI_Get_address(location, address);
    MPI_Type_hvector PMPI_Type_hvector(
        count: c_int, length: c_int, stride: i64, oldtype: face::Datatype, newtype: *mut face::Datatype
    ) crate::PMPI_Type_create_hvector(count, length, stride, oldtype, newtype);
    MPI_Type_hindexed PMPI_Type_hindexed(
        count: c_int, lengths: *const c_int, displacements: *const i64, oldtype: face::Datatype,
        newtype: *mut face::Datatype
    ) crate::PMPI_Type_create_hindexed(count, lengths, displacements, oldtype, newtype);
    MPI_Type_struct PMPI_Type_struct(
        count: c_int, lengths: *const c_int, displacements: *const i64, types: *const face::Datatype,
        newtype: *mut face::Datatype
    ) crate::PMPI_Type_create_struct(count, lengths, displacements, types, newtype);
    MPI_Type_extent PMPI_Type_extent(datatype: face::Datatype, extent: *mut i64)
        crate::PMPI_Type_get_extent(datatype, ptr::null_mut(), extent);
    MPI_Type_lb PMPI_Type_lb(datatype: face::Datatype, displacement: *mut i64)
        crate::PMPI_Type_get_extent(datatype, displacement, ptr::null_mut());
    MPI_Type_ub PMPI_Type_ub(datatype: face::Datatype, displacement: *mut i64)
        upper(datatype, displacement);
    MPI_Errhandler_create PMPI_Errhandler_create(function: *mut c_void, errhandler: *mut face::Errhandler)
        crate::PMPI_Comm_create_errhandler(function, errhandler);
    MPI_Errhandler_get PMPI_Errhandler_get(comm: face::Comm, errhandler: *mut face::Errhandler)
        crate::PMPI_Comm_get_errhandler(comm, errhandler);
    MPI_Errhandler_set PMPI_Errhandler_set(comm: face::Comm, errhandler: face::Errhandler)
        crate::PMPI_Comm_set_errhandler(comm, errhandler);
}

/// Where a datatype ends.
unsafe fn upper(datatype: face::Datatype, to: *mut i64) -> c_int {
    let (mut lower, mut extent) = (0, 0);
    // SAFETY: the caller's: a datatype.
    let code = unsafe { crate::PMPI_Type_get_extent(datatype, &raw mut lower, &raw mut extent) };
    if code == 0 && !to.is_null() {
        // SAFETY: the caller's: there is room for it.
        unsafe { to.write(lower + extent) };
    }
    code
}
