//! `MPI_Get_version`: it depends on nothing else.

use std::ffi::c_int;

use bdrun_mpi::face::Object;
use bdrun_mpi::failure::Answer;
use bdrun_mpi_core::error::Class;

use crate::call;

/// Functions under both names.
macro_rules! both {
    ($($name:ident $profiled:ident ($($argument:ident: $type:ty),* $(,)?) $on:expr => $body:block)*) => {
        $(
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name($($argument: $type),*) -> c_int {
                // SAFETY: the caller's, who has what the standard says that it has.
                unsafe { call(&stringify!($name), || $on, || $body) }
            }

            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $profiled($($argument: $type),*) -> c_int {
                // SAFETY: the caller's, who has what the standard says that it has.
                unsafe { call(&stringify!($name), || $on, || $body) }
            }
        )*
    };
}

both! {
    MPI_Get_version PMPI_Get_version(version: *mut c_int, subversion: *mut c_int) Object::Nothing => {
        put(version, crate::FACE.version.0 as c_int)?;
        put(subversion, crate::FACE.version.1 as c_int)
    }

}

/// Writes what must have a place.
unsafe fn put(at: *mut c_int, value: c_int) -> Answer<()> {
    if at.is_null() {
        return Err(Class::Arg.into());
    }
    // SAFETY: the caller's: there is room.
    unsafe { at.write(value) };
    Ok(())
}

/// Of `mpi-ext.h`: whether buffers may lie in a graphics card.
#[unsafe(no_mangle)]
pub extern "C" fn MPIX_Query_cuda_support() -> c_int {
    0
}
