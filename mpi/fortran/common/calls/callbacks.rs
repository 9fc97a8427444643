//! Functions in Fortran that MPI calls: operations, error handlers, generalized requests, data
//! representations.

use std::ffi::{c_int, c_void};

use bdrun_mpi_fortran::args::{Handle, end, read};
use bdrun_mpi_fortran::{pool, text};

use crate::c;
use crate::constants::ERR_NO_MEM;
use crate::face::{Comm, Datatype, Errhandler, File, Op, Request, Session, Status, Win};

pool! {
    operations(from: *mut c_void, to: *mut c_void, count: *mut c_int, datatype: *mut Datatype) |function| {
        type Function = unsafe extern "C" fn(*mut c_void, *mut c_void, *mut c_int, *mut c_int);
        // SAFETY: the program's word: such a function.
        let function: Function = unsafe { std::mem::transmute(function) };
        // SAFETY: as above; C gives a datatype.
        unsafe {
            let mut datatype = datatype.read().number();
            function(from, to, count, &raw mut datatype);
        }
    }
}

pub unsafe extern "C" fn op_create(
    function: *mut c_void,
    commute: *mut c_int,
    op: *mut c_int,
    ierror: *mut c_int,
) {
    let mut own = Op::NOTHING;
    // SAFETY: the caller's.
    unsafe {
        let code = match operations::of(function) {
            Some(function) => c::op_create(function, read(commute), &raw mut own),
            None => ERR_NO_MEM,
        };
        if code == 0 {
            op.write_unaligned(own.number());
        }
        end(ierror, code);
    }
}

macro_rules! handlers {
    ($($pool:ident $handle:ident $create:ident;)*) => {
        $(
            pool! {
                $pool(object: *mut $handle, code: *mut c_int) |function| {
                    type Function = unsafe extern "C" fn(*mut c_int, *mut c_int);
                    // SAFETY: the program's word: such a function.
                    let function: Function = unsafe { std::mem::transmute(function) };
                    // SAFETY: as above; C gives a handle.
                    unsafe {
                        let mut object = object.read().number();
                        function(&raw mut object, code);
                    }
                }
            }

            pub unsafe extern "C" fn $create(
                function: *mut c_void,
                errhandler: *mut c_int,
                ierror: *mut c_int,
            ) {
                let mut own = Errhandler::NOTHING;
                // SAFETY: the caller's.
                unsafe {
                    let code = match $pool::of(function) {
                        Some(function) => c::$create(function, &raw mut own),
                        None => ERR_NO_MEM,
                    };
                    if code == 0 {
                        errhandler.write_unaligned(own.number());
                    }
                    end(ierror, code);
                }
            }
        )*
    };
}

handlers! {
    of_communicators Comm comm_create_errhandler;
    of_files File file_create_errhandler;
    of_windows Win win_create_errhandler;
    of_sessions Session session_create_errhandler;
}

/// A generalized request's functions, and what they are given.
struct General {
    query: unsafe extern "C" fn(*mut i64, *mut Status, *mut c_int),
    free: unsafe extern "C" fn(*mut i64, *mut c_int),
    cancel: unsafe extern "C" fn(*mut i64, *mut c_int, *mut c_int),
    state: i64,
}

unsafe extern "C" fn query(general: *mut General, status: *mut Status) -> c_int {
    let mut code = 0;
    // SAFETY: `grequest_start` gave it, and it is not freed yet; the program's word: such a function.
    unsafe { ((*general).query)(&raw mut (*general).state, status, &raw mut code) };
    code
}

unsafe extern "C" fn free(general: *mut General) -> c_int {
    let mut code = 0;
    // SAFETY: `grequest_start` gave it, and this is the last that is called; the program's word: such a
    // function.
    unsafe {
        let mut general = Box::from_raw(general);
        (general.free)(&raw mut general.state, &raw mut code);
    }
    code
}

unsafe extern "C" fn cancel(general: *mut General, mut is_complete: c_int) -> c_int {
    let mut code = 0;
    // SAFETY: `grequest_start` gave it, and it is not freed yet; the program's word: such a function.
    unsafe { ((*general).cancel)(&raw mut (*general).state, &raw mut is_complete, &raw mut code) };
    code
}

pub unsafe extern "C" fn grequest_start(
    its_query: unsafe extern "C" fn(*mut i64, *mut Status, *mut c_int),
    its_free: unsafe extern "C" fn(*mut i64, *mut c_int),
    its_cancel: unsafe extern "C" fn(*mut i64, *mut c_int, *mut c_int),
    state: *mut i64,
    request: *mut c_int,
    ierror: *mut c_int,
) {
    let mut own = Request::NOTHING;
    // SAFETY: the caller's; C's functions know what they are given.
    unsafe {
        let general = General { query: its_query, free: its_free, cancel: its_cancel, state: read(state) };
        let general = Box::into_raw(Box::new(general));
        let (query, free, cancel) = (query as *mut c_void, free as *mut c_void, cancel as *mut c_void);
        let code = c::grequest_start(query, free, cancel, general.cast(), &raw mut own);
        if code == 0 {
            request.write_unaligned(own.number());
        } else {
            drop(Box::from_raw(general));
        }
        end(ierror, code);
    }
}

type Converts =
    unsafe extern "C" fn(*mut c_void, *mut c_int, *mut c_int, *mut c_void, *mut i64, *mut i64, *mut c_int);
type Extends = unsafe extern "C" fn(*mut c_int, *mut i64, *mut i64, *mut c_int);

/// A data representation's functions, and what they are given. It is there until the end.
struct Representation {
    reads: Converts,
    writes: Converts,
    extends: Extends,
    state: i64,
}

/// What calls one of its functions.
unsafe fn convert(
    converts: Converts,
    of: *mut Representation,
    (here, datatype, mut count): (*mut c_void, Datatype, c_int),
    (there, mut position): (*mut c_void, i64),
) -> c_int {
    let (mut datatype, mut code) = (datatype.number(), 0);
    // SAFETY: `register_datarep` gave it; the program's word: such a function.
    unsafe {
        let state = &raw mut (*of).state;
        let (datatype, count, position) = (&raw mut datatype, &raw mut count, &raw mut position);
        converts(here, datatype, count, there, position, state, &raw mut code);
    }
    code
}

unsafe extern "C" fn reads(
    here: *mut c_void,
    datatype: Datatype,
    count: c_int,
    there: *mut c_void,
    position: i64,
    of: *mut Representation,
) -> c_int {
    // SAFETY: C's, and `register_datarep` gave the last.
    unsafe { convert((*of).reads, of, (here, datatype, count), (there, position)) }
}

unsafe extern "C" fn writes(
    here: *mut c_void,
    datatype: Datatype,
    count: c_int,
    there: *mut c_void,
    position: i64,
    of: *mut Representation,
) -> c_int {
    // SAFETY: C's, and `register_datarep` gave the last.
    unsafe { convert((*of).writes, of, (here, datatype, count), (there, position)) }
}

unsafe extern "C" fn extends(datatype: Datatype, extent: *mut i64, of: *mut Representation) -> c_int {
    let (mut datatype, mut code) = (datatype.number(), 0);
    // SAFETY: `register_datarep` gave it; the program's word: such a function.
    unsafe { ((*of).extends)(&raw mut datatype, extent, &raw mut (*of).state, &raw mut code) };
    code
}

/// `MPI_CONVERSION_FN_NULL`: C's is null, and whoever calls this gets nothing converted.
pub unsafe extern "C" fn conversion_fn_null(
    _: *mut c_void,
    _: *mut c_int,
    _: *mut c_int,
    _: *mut c_void,
    _: *mut i64,
    _: *mut i64,
    ierror: *mut c_int,
) {
    // SAFETY: the caller's.
    unsafe { end(ierror, 0) }
}

pub unsafe extern "C" fn register_datarep(
    datarep: *mut c_void,
    its_reads: Converts,
    its_writes: Converts,
    its_extends: Extends,
    state: *mut i64,
    ierror: *mut c_int,
    len_datarep: usize,
) {
    let null = crate::exports::mpi_conversion_fn_null_ as *const ();
    let is_null = |function: Converts| std::ptr::eq(function as *const (), null);
    let or_null = |function: *mut c_void, its| if is_null(its) { std::ptr::null_mut() } else { function };
    // SAFETY: the caller's; C's functions know what they are given.
    unsafe {
        let name = text::taken(datarep, len_datarep, false);
        let one =
            Representation { reads: its_reads, writes: its_writes, extends: its_extends, state: read(state) };
        let one = Box::into_raw(Box::new(one));
        let code = c::register_datarep(
            name.as_ptr().cast_mut().cast(),
            or_null(reads as *mut c_void, its_reads),
            or_null(writes as *mut c_void, its_writes),
            extends as *mut c_void,
            one.cast(),
        );
        if code != 0 {
            drop(Box::from_raw(one));
        }
        end(ierror, code);
    }
}
