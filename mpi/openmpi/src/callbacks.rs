//! Functions that the program has given, called as this ABI has them: with its handles and numbers. They are
//! for the engine to call, which has only the function's address.

use std::ffi::{c_int, c_void};

use bdrun_mpi::args::Status;
use bdrun_mpi::face::Object;
use bdrun_mpi::handle::Datatype;

use crate::attributes::{Copy, Delete};
use crate::{face, numbers};

/// A function of an operation, in its two forms.
type User = unsafe extern "C" fn(*mut c_void, *mut c_void, *mut c_int, *mut face::Datatype);
type UserLarge = unsafe extern "C" fn(*mut c_void, *mut c_void, *mut i64, *mut face::Datatype);
/// An error handler.
type Handler = unsafe extern "C" fn(*mut *mut c_void, *mut c_int, ...);
/// Functions of generalized requests.
type Query = unsafe extern "C" fn(*mut c_void, *mut face::Status) -> c_int;
type Free = unsafe extern "C" fn(*mut c_void) -> c_int;
type Cancel = unsafe extern "C" fn(*mut c_void, c_int) -> c_int;
/// Functions of data representations.
type Extent = unsafe extern "C" fn(face::Datatype, *mut i64, *mut c_void) -> c_int;
type Convert =
    unsafe extern "C" fn(*mut c_void, face::Datatype, c_int, *mut c_void, i64, *mut c_void) -> c_int;
type ConvertLarge =
    unsafe extern "C" fn(*mut c_void, face::Datatype, i64, *mut c_void, i64, *mut c_void) -> c_int;

/// A function as the program gave it.
///
/// # Safety
/// It is one of type `F`.
unsafe fn function<F: std::marker::Copy>(at: *mut c_void) -> F {
    const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
    // SAFETY: the caller's.
    unsafe { std::mem::transmute_copy(&at) }
}

/// What an object is for the program.
fn handle_of(object: Object) -> Option<*mut c_void> {
    match object {
        Object::Comm(one) => Some(face::comm_out(one)),
        Object::Win(one) => Some(face::win_out(one)),
        Object::File(one) => Some(face::file_out(one)),
        Object::Session(one) => Some(face::session_out(one)),
        Object::Nothing => None,
    }
}

/// `MPI_User_function`: at most as many elements as fit into an `int` in the small form.
///
/// # Safety
/// It is such a function, and there are so many elements.
pub unsafe fn operate(at: *mut c_void, from: *mut c_void, to: *mut c_void, count: c_int, datatype: Datatype) {
    let (mut count, mut datatype) = (count, face::datatype_out(datatype));
    // SAFETY: the caller's.
    unsafe { function::<User>(at)(from, to, &raw mut count, &raw mut datatype) }
}

/// `MPI_User_function_c`.
///
/// # Safety
/// It is such a function, and there are so many elements.
pub unsafe fn operate_large(
    at: *mut c_void,
    from: *mut c_void,
    to: *mut c_void,
    count: i64,
    datatype: Datatype,
) {
    let (mut count, mut datatype) = (count, face::datatype_out(datatype));
    // SAFETY: the caller's.
    unsafe { function::<UserLarge>(at)(from, to, &raw mut count, &raw mut datatype) }
}

/// `MPI_Comm_errhandler_function` and its like. What code the program has left there.
///
/// # Safety
/// It is such a function, for this kind of object.
pub unsafe fn handle_error(at: *mut c_void, object: Object, code: i64) -> i64 {
    let Some(mut handle) = handle_of(object) else { return code };
    let mut code = numbers::error_out(code);
    // SAFETY: the caller's.
    unsafe { function::<Handler>(at)(&raw mut handle, &raw mut code) };
    numbers::error_in(code)
}

/// `MPI_Comm_copy_attr_function` and its like, for this handle of the program. The code, and the copy if
/// there is to be one.
///
/// # Safety
/// It is such a function, for this kind of object.
pub unsafe fn copy_attribute(
    at: *mut c_void,
    handle: *mut c_void,
    keyval: i64,
    extra: *mut c_void,
    value: *mut c_void,
) -> (i64, Option<*mut c_void>) {
    let (mut copy, mut flag) = (std::ptr::null_mut::<c_void>(), 0);
    let keyval = numbers::keyval_out(keyval);
    // SAFETY: the caller's; there is room for what it writes.
    let code =
        unsafe { function::<Copy>(at)(handle, keyval, extra, value, (&raw mut copy).cast(), &raw mut flag) };
    (numbers::error_in(code), (flag != 0).then_some(copy))
}

/// `MPI_Comm_delete_attr_function` and its like. The code.
///
/// # Safety
/// It is such a function, for this kind of object.
pub unsafe fn delete_attribute(
    at: *mut c_void,
    handle: *mut c_void,
    keyval: i64,
    value: *mut c_void,
    extra: *mut c_void,
) -> i64 {
    // SAFETY: the caller's.
    numbers::error_in(unsafe { function::<Delete>(at)(handle, numbers::keyval_out(keyval), value, extra) })
}

/// `MPI_Grequest_query_function`: the code, and the status with what it has set of it.
///
/// # Safety
/// It is such a function.
pub unsafe fn query(at: *mut c_void, extra: *mut c_void, status: &Status) -> (i64, Status) {
    let mut ours = face::Status::default();
    // SAFETY: room for a status; the caller's.
    unsafe {
        face::status_out(&raw mut ours, status);
        let code = function::<Query>(at)(extra, &raw mut ours);
        (numbers::error_in(code), face::status_in(&raw const ours))
    }
}

/// `MPI_Grequest_free_function`. The code.
///
/// # Safety
/// It is such a function.
pub unsafe fn free(at: *mut c_void, extra: *mut c_void) -> i64 {
    // SAFETY: the caller's.
    numbers::error_in(unsafe { function::<Free>(at)(extra) })
}

/// `MPI_Grequest_cancel_function`. The code.
///
/// # Safety
/// It is such a function.
pub unsafe fn cancel(at: *mut c_void, extra: *mut c_void, is_complete: bool) -> i64 {
    // SAFETY: the caller's.
    numbers::error_in(unsafe { function::<Cancel>(at)(extra, is_complete.into()) })
}

/// `MPI_Datarep_extent_function`: the code, and the extent in the file.
///
/// # Safety
/// It is such a function.
pub unsafe fn extent(at: *mut c_void, datatype: Datatype, extra: *mut c_void) -> (i64, i64) {
    let mut extent = 0;
    // SAFETY: the caller's.
    let code = unsafe { function::<Extent>(at)(face::datatype_out(datatype), &raw mut extent, extra) };
    (numbers::error_in(code), extent)
}

/// `MPI_Datarep_conversion_function`, or its form with `MPI_Count`. The code.
///
/// # Safety
/// It is such a function, and there are so many elements.
#[expect(clippy::too_many_arguments, reason = "the standard's")]
pub unsafe fn convert(
    at: *mut c_void,
    is_large: bool,
    user: *mut c_void,
    datatype: Datatype,
    count: i64,
    file: *mut c_void,
    position: i64,
    extra: *mut c_void,
) -> i64 {
    let datatype = face::datatype_out(datatype);
    // SAFETY: the caller's. Whoever has given the small form has fewer elements than an `int` can say.
    numbers::error_in(unsafe {
        match is_large {
            true => function::<ConvertLarge>(at)(user, datatype, count, file, position, extra),
            false => function::<Convert>(at)(user, datatype, count as c_int, file, position, extra),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use bdrun_mpi::handle::{Comm, Win};
    use std::ptr;

    unsafe extern "C" fn sum(from: *mut c_void, to: *mut c_void, count: *mut c_int, of: *mut face::Datatype) {
        // SAFETY: the test's: so many numbers.
        unsafe {
            assert_eq!(*of, face::datatype_out(Datatype(0x209)));
            for nth in 0..*count as usize {
                *to.cast::<c_int>().add(nth) += *from.cast::<c_int>().add(nth);
            }
        }
    }

    #[test]
    fn an_operation_is_called_with_our_datatype() {
        let (mut from, mut to) = ([1, 2, 3], [10, 20, 30]);
        // SAFETY: three numbers in each.
        unsafe {
            operate(sum as *mut c_void, from.as_mut_ptr().cast(), to.as_mut_ptr().cast(), 3, Datatype(0x209));
        }
        assert_eq!(to, [11, 22, 33]);
    }

    unsafe extern "C" fn handler(on: *mut *mut c_void, code: *mut c_int) {
        // SAFETY: the test's: a handle and a code.
        unsafe {
            assert_eq!((*on, *code), (face::comm_out(Comm::WORLD), 19));
            *code = 94;
        }
    }

    #[test]
    fn an_error_handler_is_called_with_our_code_and_can_change_it() {
        // SAFETY: a handler of communicators. MPI_ERR_PENDING; an added code.
        let code = unsafe { handle_error(handler as *mut c_void, Object::Comm(Comm::WORLD), 18) };
        assert_eq!(code, 0x4001);
    }

    unsafe extern "C" fn twice(
        of: *mut c_void,
        keyval: c_int,
        extra: *mut c_void,
        value: *mut c_void,
        to: *mut c_void,
        flag: *mut c_int,
    ) -> c_int {
        assert_eq!((of, keyval, extra as usize), (face::win_out(Win(0x1002)), 0x1001, 3));
        // SAFETY: the test's: room for both.
        unsafe {
            to.cast::<usize>().write(value as usize * 2);
            flag.write(1);
        }
        0
    }

    #[test]
    fn an_attribute_is_copied_and_deleted_with_our_handle() {
        let win = face::win_out(Win(0x1002));
        let (value, extra) = (ptr::without_provenance_mut(21), ptr::without_provenance_mut(3));
        // SAFETY: a function for windows.
        let copied = unsafe { copy_attribute(twice as *mut c_void, win, 0x1001, extra, value) };
        assert_eq!(copied, (0, Some(ptr::without_provenance_mut(42))));
        let dup = crate::attributes::OMPI_C_MPI_WIN_NULL_COPY_FN as *mut c_void;
        // SAFETY: a function for windows.
        assert_eq!(unsafe { copy_attribute(dup, win, 0x1001, extra, value) }, (0, None));
        let delete = crate::attributes::OMPI_C_MPI_WIN_NULL_DELETE_FN as *mut c_void;
        // SAFETY: a function for windows.
        assert_eq!(unsafe { delete_attribute(delete, win, 0x1001, value, extra) }, 0);
    }

    unsafe extern "C" fn told(extra: *mut c_void, status: *mut face::Status) -> c_int {
        // SAFETY: the test's: a status; sources and tags come first.
        unsafe { status.cast::<[c_int; 2]>().write([-2, 5]) };
        extra as usize as c_int
    }

    #[test]
    fn a_generalized_request_says_its_status_in_our_terms() {
        // MPI_ERR_PENDING
        let extra = ptr::without_provenance_mut(19);
        // SAFETY: a query function.
        let (code, status) = unsafe { query(told as *mut c_void, extra, &Status::EMPTY) };
        // MPI_PROC_NULL
        assert_eq!((code, status.source, status.tag), (18, -3, 5));
    }
}
