//! What `libmpi_cxx.so.40`, the `MPI::` of C++ as a distribution has it, takes from its `libmpi.so.40` beyond
//! the ABI. Most programs that are linked to it call none of its functions, but it must load; what is called
//! does what Open MPI does.

#![allow(non_upper_case_globals, reason = "Open MPI's names")]

use std::cell::UnsafeCell;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::atomic::AtomicI32;

use bdrun_mpi::entry::calls;
use bdrun_mpi::face::Object;
use bdrun_mpi::failure::{Failure, code};
use bdrun_mpi::handle;
use bdrun_mpi::handlers::Kind as For;
use bdrun_mpi_core::error::{Class, Code};

use crate::face;
use crate::objects::{self, Kind};

/// How many codes of its own Open MPI has, which are negative: a failure that has one is `MPI_ERR_UNKNOWN`.
#[unsafe(no_mangle)]
pub static ompi_errcode_intern_lastused: AtomicI32 = AtomicI32::new(0);

/// An array of them, empty.
#[unsafe(no_mangle)]
pub static ompi_errcodes_intern: Words<15> = Words(UnsafeCell::new([0; 15]));

/// Words that the library in C++ reads.
#[repr(C, align(8))]
pub struct Words<const WORDS: usize>(UnsafeCell<[u64; WORDS]>);

// SAFETY: nobody writes them.
unsafe impl<const WORDS: usize> Sync for Words<WORDS> {}

/// A list. The library puts what it keeps for representations of files at its end, by itself.
#[repr(C)]
pub struct List {
    object: [usize; 2],
    /// An item that is its own neighbour while there is no other.
    end: [usize; 2],
    next: UnsafeCell<*const [usize; 2]>,
    previous: UnsafeCell<*const [usize; 2]>,
    is_freed: usize,
    length: UnsafeCell<usize>,
}

// SAFETY: only the library in C++ uses it, with a lock of its own.
unsafe impl Sync for List {}

/// Representations of files that were registered in C++.
#[unsafe(no_mangle)]
pub static ompi_registered_datareps: List = List {
    object: [0; 2],
    end: [0; 2],
    next: UnsafeCell::new(&raw const ompi_registered_datareps.end),
    previous: UnsafeCell::new(&raw const ompi_registered_datareps.end),
    is_freed: 0,
    length: UnsafeCell::new(0),
};

/// A key of attributes of communicators (1), datatypes (2) or windows (3), with functions in C of the library
/// in C++.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ompi_attr_create_keyval(
    kind: c_int,
    copy: *mut c_void,
    delete: *mut c_void,
    key: *mut c_int,
    extra: *mut c_void,
    _flags: c_int,
    _kept: *mut c_void,
) -> c_int {
    // SAFETY: the caller's: functions as the standard has them. The library's look at no argument more.
    unsafe {
        match kind {
            1 => crate::PMPI_Comm_create_keyval(copy, delete, key, extra),
            2 => crate::PMPI_Type_create_keyval(copy, delete, key, extra),
            3 => crate::PMPI_Win_create_keyval(copy, delete, key, extra),
            _ => face::error_out(calls().tell(Object::Nothing, &Class::Arg.into())),
        }
    }
}

/// What calls a program's operation in C++ gets the program's function as its last argument.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ompi_op_set_cxx_callback(op: face::Op, function: *mut c_void) {
    // SAFETY: the caller's: a handle.
    let op = unsafe { objects::taken::<handle::Op>(op) };
    if let Err(failure) = calls().op_with(op, function) {
        calls().tell(Object::Nothing, &failure);
    }
}

/// A handler in C++. The library writes into what it gets what calls the function.
#[repr(C, align(32))]
struct Handler {
    value: u64,
    mark: u64,
    function: *mut c_void,
    unused: [usize; 12],
    /// At byte 120, where Open MPI 4.1 has it.
    dispatch: UnsafeCell<Option<Dispatch>>,
    rest: [usize; 112],
}

type Dispatch = unsafe extern "C" fn(*mut c_void, *mut c_int, *const c_char, *mut c_void);

/// The engine calls this for all of them.
unsafe extern "C" fn dispatch(object: *mut c_void, code: *mut c_int, handler: *const Handler) {
    // SAFETY: the engine's: what was given with the function, which stays.
    unsafe {
        if let Some(dispatch) = *(*handler).dispatch.get() {
            dispatch(object, code, c"".as_ptr(), (*handler).function);
        }
    }
}

/// A handler of failures of communicators (1), windows (2) or files (3), in C++.
#[unsafe(no_mangle)]
pub extern "C" fn ompi_errhandler_create(
    kind: c_int,
    function: *mut c_void,
    _language: c_int,
) -> *mut c_void {
    let kind = match kind {
        1 => For::Comm,
        2 => For::Win,
        _ => For::File,
    };
    // It stays, as cells of handles do.
    let handler = Box::into_raw(Box::new(Handler {
        value: 0,
        mark: handle::Errhandler::MARK,
        function,
        unused: [0; 12],
        dispatch: UnsafeCell::new(None),
        rest: [0; 112],
    }));
    let made = calls().new_handler_with(kind, dispatch as *mut c_void, handler.cast());
    // SAFETY: it was just made.
    unsafe { (*handler).value = made.0 };
    handler.cast()
}

/// A call in C++ has failed by itself. Which handler is meant the engine knows better: what the library gives
/// here it has read from a communicator, where ours have nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ompi_errhandler_invoke(
    _handler: *mut c_void,
    object: *mut c_void,
    _kind: c_int,
    error: c_int,
    text: *const c_char,
) -> c_int {
    let on = [face::on_comm(object), face::on_win(object), face::on_file(object)]
        .into_iter()
        .find(|on| *on != Object::Nothing)
        .unwrap_or(Object::Nothing);
    let code = face::error_in(error).ok().and_then(code).unwrap_or(Code::Class(Class::Unknown));
    // SAFETY: the caller's: a text that ends, or nothing.
    let text = (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned());
    face::error_out(calls().tell(on, &Failure { text, ..code.into() }))
}
