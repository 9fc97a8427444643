//! The predefined functions of attributes. In this ABI they are functions that can be called as any other.

use std::ffi::{c_int, c_void};

use crate::face;

macro_rules! predefined {
    ($($kind:ident $copy:ident $dup:ident $delete:ident,)*) => {
        $(
            /// The attribute is not copied.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $copy(
                _: face::$kind, _: c_int, _: *mut c_void, _: *mut c_void, _: *mut c_void, flag: *mut c_int,
            ) -> c_int {
                // SAFETY: the caller's: there is room for the flag.
                unsafe { flag.write(0) };
                0
            }

            /// The copy has the same value.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $dup(
                _: face::$kind, _: c_int, _: *mut c_void, value: *mut c_void, to: *mut c_void, flag: *mut c_int,
            ) -> c_int {
                // SAFETY: the caller's: there is room for the flag and the value.
                unsafe {
                    flag.write(1);
                    to.cast::<*mut c_void>().write(value);
                }
                0
            }

            /// Nothing is to be done.
            #[unsafe(no_mangle)]
            pub extern "C" fn $delete(_: face::$kind, _: c_int, _: *mut c_void, _: *mut c_void) -> c_int {
                0
            }
        )*
    };
}

predefined! {
    Comm OMPI_C_MPI_COMM_NULL_COPY_FN OMPI_C_MPI_COMM_DUP_FN OMPI_C_MPI_COMM_NULL_DELETE_FN,
    Datatype OMPI_C_MPI_TYPE_NULL_COPY_FN OMPI_C_MPI_TYPE_DUP_FN OMPI_C_MPI_TYPE_NULL_DELETE_FN,
    Win OMPI_C_MPI_WIN_NULL_COPY_FN OMPI_C_MPI_WIN_DUP_FN OMPI_C_MPI_WIN_NULL_DELETE_FN,
    Comm OMPI_C_MPI_NULL_COPY_FN OMPI_C_MPI_DUP_FN OMPI_C_MPI_NULL_DELETE_FN,
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ptr;

    #[test]
    fn they_do_what_the_standard_says() {
        let (mut flag, mut to) = (7, ptr::null_mut::<c_void>());
        let value: *mut c_void = ptr::without_provenance_mut(0x55);
        let comm = face::comm_null();
        // SAFETY: there is room for what they write.
        let code = unsafe {
            OMPI_C_MPI_COMM_NULL_COPY_FN(comm, 0, ptr::null_mut(), value, (&raw mut to).cast(), &raw mut flag)
        };
        assert_eq!((code, flag, to.is_null()), (0, 0, true));
        // SAFETY: there is room for what they write.
        let code = unsafe {
            OMPI_C_MPI_COMM_DUP_FN(comm, 0, ptr::null_mut(), value, (&raw mut to).cast(), &raw mut flag)
        };
        assert_eq!((code, flag, to), (0, 1, value));
        assert_eq!(OMPI_C_MPI_COMM_NULL_DELETE_FN(comm, 0, value, ptr::null_mut()), 0);
    }
}
