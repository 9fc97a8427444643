//! Handles and statuses of Fortran (MPI-3.1, section 17.2.4): `MPI_Fint` is `int`. What is predefined has the
//! numbers that Open MPI's Fortran has; what a program makes has the engine's value.

use std::ffi::{c_int, c_void};
use std::ptr;

use bdrun_mpi::handle::{self, MADE};
use bdrun_mpi_core::error::Class;

use crate::face;
use crate::objects::{self, Kind};

include!(concat!(env!("OUT_DIR"), "/fortran.rs"));

/// No number that is so large is believed: a program would have to have made as many objects.
const MOST: u64 = 1 << 28;

/// The number of a handle; -1 if it has none.
///
/// # Safety
/// It is a handle, or no possible address.
unsafe fn number<K: Kind>(handle: *mut c_void) -> c_int {
    // SAFETY: the caller's.
    let value = unsafe { objects::taken::<K>(handle) }.value();
    let known = usize::try_from(value).ok().and_then(|value| NUMBERS.get(value)).copied().unwrap_or(-1);
    match value {
        0 => -1,
        _ if known >= 0 => known.into(),
        // Those that Fortran has no number for, too: they lie above all numbers.
        _ => c_int::try_from(value).unwrap_or(-1),
    }
}

/// The handle of a number; that of nothing if it is no number of one.
fn numbered<K: Kind>(number: c_int, known: &[u16]) -> *mut c_void {
    let Ok(number) = usize::try_from(number) else { return objects::given(K::NONE) };
    match known.get(number) {
        Some(0) => objects::given(K::NONE),
        Some(&value) => objects::given(K::new(value.into())),
        None => match number as u64 {
            value @ MADE..MOST => objects::given(K::new(value)),
            value if is_kind::<K>(value) => objects::given(K::new(value)),
            _ => objects::given(K::NONE),
        },
    }
}

/// Whether a predefined value has an object of this kind.
fn is_kind<K: Kind>(value: u64) -> bool {
    // SAFETY: the address of an object, or null.
    objects::exists(value) && unsafe { objects::taken::<K>(objects::given(K::new(value))) }.value() == value
}

/// What stands for `MPI_STATUS_IGNORE` and `MPI_STATUSES_IGNORE` in Fortran: their addresses.
static IGNORED: [[c_int; 6]; 4] = [[0; 6]; 4];

/// The address of a status that is not wanted.
#[repr(transparent)]
pub struct Ignore(pub *const c_int);

// SAFETY: only its address is used.
unsafe impl Sync for Ignore {}

#[unsafe(no_mangle)]
pub static MPI_F_STATUS_IGNORE: Ignore = Ignore((&raw const IGNORED[0]).cast());
#[unsafe(no_mangle)]
pub static MPI_F_STATUSES_IGNORE: Ignore = Ignore((&raw const IGNORED[1]).cast());
#[unsafe(no_mangle)]
pub static MPI_F08_STATUS_IGNORE: Ignore = Ignore((&raw const IGNORED[2]).cast());
#[unsafe(no_mangle)]
pub static MPI_F08_STATUSES_IGNORE: Ignore = Ignore((&raw const IGNORED[3]).cast());

/// Copies a status: in all languages they are the same 24 bytes.
unsafe fn copied(from: *const face::Status, to: *mut face::Status) -> c_int {
    let is_ignored = IGNORED.iter().any(|one| ptr::addr_eq(one, from));
    if from.is_null() || to.is_null() || is_ignored {
        return crate::call(&"MPI_Status_f2c", || crate::Object::Nothing, || Err(Class::Arg.into()));
    }
    // SAFETY: the caller's: a status, and room for one. Those of Fortran begin at any fourth byte.
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
    fn numbers_are_those_of_fortran_and_come_back() {
        let world = face::comm_out(handle::Comm::WORLD);
        // SAFETY: handles.
        let numbers = unsafe {
            (
                MPI_Comm_c2f(world),
                MPI_Type_c2f(face::datatype_out(handle::Datatype(0x209))),
                MPI_Op_c2f(face::op_out(handle::Op(0x21))),
                MPI_Comm_c2f(ptr::null_mut()),
            )
        };
        // MPI_COMM_WORLD, MPI_INT, MPI_SUM, nothing
        assert_eq!(numbers, (0, 39, 3, -1));
        assert_eq!((MPI_Comm_f2c(0), MPI_Comm_f2c(1)), (world, face::comm_out(handle::Comm::SELF)));
        assert_eq!(
            [-7, 700, 39, 0x209, c_int::MAX].map(|number| MPI_Comm_f2c(number)),
            [face::comm_null(); 5]
        );
    }

    #[test]
    fn what_is_made_and_what_fortran_has_no_number_for_comes_back_as_well() {
        for value in [MADE, MADE + 7, MADE + 100_000] {
            let request = face::request_out(handle::Request(value));
            // SAFETY: a handle.
            assert_eq!(MPI_Request_f2c(unsafe { MPI_Request_c2f(request) }), request);
        }
        // MPI_ERRORS_ABORT
        let abort = face::errhandler_out(handle::Errhandler::ABORT);
        // SAFETY: a handle.
        assert_eq!(MPI_Errhandler_f2c(unsafe { MPI_Errhandler_c2f(abort) }), abort);
    }

    #[test]
    fn a_status_is_copied_unless_it_is_none() {
        let from = [1, 2, 3, 4, 5, 6];
        let mut to = [0; 6];
        // What fails returns: the only test here that has MPI initialised.
        use bdrun_mpi::calls::{Environment as _, Errors as _};
        // SAFETY: nothing is given but handles.
        unsafe {
            bdrun_mpi::entry::calls().init(ptr::null_mut(), ptr::null_mut()).expect("it begins");
            let own = handle::Comm::SELF;
            let returns = bdrun_mpi::entry::calls().comm_set_errhandler(own, handle::Errhandler::RETURN);
            returns.expect("it is there");
        }
        // SAFETY: a status, and room for one.
        assert_eq!(unsafe { MPI_Status_f2c(from.as_ptr().cast(), to.as_mut_ptr().cast()) }, 0);
        assert_eq!(to, from);
        // SAFETY: it is not read.
        let code = unsafe { MPI_Status_f2c(MPI_F_STATUS_IGNORE.0.cast(), to.as_mut_ptr().cast()) };
        assert_eq!((code, to), (13, from));
    }
}
