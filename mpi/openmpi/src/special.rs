//! Functions that are written by hand: `MPI_Get_version`, which depends on nothing else, and those that tell
//! what an error code means, as this ABI has classes that the standard has not.

use std::ffi::{c_char, c_int};

use bdrun_mpi::calls::Errors as _;
use bdrun_mpi::entry::calls;
use bdrun_mpi::face::Object;
use bdrun_mpi::failure::Answer;
use bdrun_mpi_core::error::Class;

use crate::{call, face};

/// `MPI_ERR_PROC_FAILED` and its like, of Open MPI 5.0: no call fails with one of them, as a job ends with
/// the first of its processes that fails.
const FAULTS: [(c_int, &[u8]); 3] = [
    (75, b"MPI_ERR_PROC_FAILED: a process has failed\0"),
    (76, b"MPI_ERR_PROC_FAILED_PENDING: a process has failed that a receive may match\0"),
    (77, b"MPI_ERR_REVOKED: the communicator was revoked\0"),
];

fn fault(code: c_int) -> Option<&'static [u8]> {
    FAULTS.iter().find(|(class, _)| *class == code).map(|(_, text)| *text)
}

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

    MPI_Error_class PMPI_Error_class(errorcode: c_int, errorclass: *mut c_int) Object::Nothing => {
        let class = match fault(errorcode) {
            Some(_) => errorcode,
            None => face::error_out(calls().error_class(face::error_in(errorcode)?)?),
        };
        put(errorclass, class)
    }

    MPI_Error_string PMPI_Error_string(
        errorcode: c_int,
        string: *mut c_char,
        resultlen: *mut c_int,
    ) Object::Nothing => {
        let length = match fault(errorcode) {
            Some(_) if string.is_null() => return Err(Class::Arg.into()),
            Some(text) => {
                string.copy_from_nonoverlapping(text.as_ptr().cast(), text.len());
                text.len() as i64 - 1
            }
            None => calls().error_string(face::error_in(errorcode)?, string)?,
        };
        put(resultlen, length as c_int)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_that_only_this_abi_has_are_their_own() {
        let constants = bdrun_mpi_table::constants().expect("well-formed");
        for (code, said) in FAULTS {
            let said = std::ffi::CStr::from_bytes_with_nul(said).expect("it ends");
            let (mut class, mut length, mut text) = (0, 0, [0; 256]);
            // SAFETY: there is room for the longest.
            let (told, asked) = unsafe {
                (
                    MPI_Error_string(code, text.as_mut_ptr(), &raw mut length),
                    MPI_Error_class(code, &raw mut class),
                )
            };
            assert_eq!((told, asked, class, length), (0, 0, code, said.to_bytes().len() as c_int));
            // SAFETY: it was written, and ends.
            let text = unsafe { std::ffi::CStr::from_ptr(text.as_ptr()) }.to_str().expect("ASCII");
            assert_eq!(text, said.to_str().expect("ASCII"));
            let name = text.split(':').next().expect("a name");
            let constant = constants.iter().find(|constant| constant.name == name).expect("there");
            assert_eq!(constant.openmpi, Some(bdrun_mpi_table::Value::Number(code.into())));
        }
        let mut class = 0;
        // SAFETY: as above. MPI_ERR_RANK
        assert_eq!((unsafe { MPI_Error_class(6, &raw mut class) }, class), (0, 6));
    }

    /// Tools may be first, and no error handler is told of what they do wrong: it would end the process.
    #[test]
    fn tools_are_told_before_mpi_begins() {
        let (mut number, mut class) = (0, 0);
        let nothing = std::ptr::null_mut();
        // SAFETY: there is room for what is wanted, and nothing else is written.
        unsafe {
            // MPI_T_ERR_NOT_INITIALIZED
            assert_eq!(crate::MPI_T_pvar_get_num(&raw mut number), 55);
            assert_eq!(crate::MPI_T_init_thread(0, std::ptr::null_mut()), 0);
            assert_eq!(crate::MPI_T_pvar_get_num(&raw mut number), 0);
            let info = |index, class| {
                let (length, verbosity) = (std::ptr::null_mut(), std::ptr::null_mut());
                let (text, of) = (std::ptr::null_mut(), std::ptr::null_mut());
                let [bind, readonly, continuous, atomic] = [std::ptr::null_mut(); 4];
                crate::MPI_T_pvar_get_info(
                    index, text, length, verbosity, class, of, nothing, text, length, bind, readonly,
                    continuous, atomic,
                )
            };
            // MPI_T_PVAR_CLASS_COUNTER; MPI_T_ERR_INVALID_INDEX
            assert_eq!((info(0, &raw mut class), class), (0, 6));
            assert_eq!(info(number, std::ptr::null_mut()), 57);
            assert_eq!(crate::MPI_T_finalize(), 0);
        }
    }
}
