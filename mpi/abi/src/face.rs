//! Conversions. The engine's values are this ABI's.

use std::ffi::{c_int, c_void};

use bdrun_mpi::args::{self, Buffer, Handles, Weights};
use bdrun_mpi::face::Object;
use bdrun_mpi::failure::Answer;
use bdrun_mpi::handle::{self, Handle};
pub use bdrun_mpi::standard::{Status, status_in, status_out};

macro_rules! handles {
    ($($name:ident $in:ident $out:ident $null:ident,)*) => {
        $(
            pub type $name = *mut c_void;

            #[inline(always)]
            pub fn $in(value: $name) -> Answer<handle::$name> {
                Ok(handle::$name(value as u64))
            }

            #[inline(always)]
            pub fn $out(value: handle::$name) -> $name {
                value.0 as $name
            }

            #[allow(dead_code, reason = "of those that MPI_X_fromint is for")]
            pub fn $null() -> $name {
                $out(handle::$name::NULL)
            }
        )*
    };
}

handles! {
    Comm comm_in comm_out comm_null,
    Datatype datatype_in datatype_out datatype_null,
    Group group_in group_out group_null,
    Op op_in op_out op_null,
    Request request_in request_out request_null,
    Win win_in win_out win_null,
    File file_in file_out file_null,
    Info info_in info_out info_null,
    Errhandler errhandler_in errhandler_out errhandler_null,
    Message message_in message_out message_null,
    Session session_in session_out session_null,
}

/// Handles of a program, one behind the other.
pub fn handles<T, K: Handle>(at: *const T) -> Handles<K> {
    unsafe fn read(at: *mut c_void, index: usize) -> Answer<u64> {
        // SAFETY: the caller's: there are so many.
        Ok(unsafe { at.cast::<u64>().add(index).read() })
    }
    unsafe fn write(at: *mut c_void, index: usize, value: u64) {
        // SAFETY: the caller's: there is room for so many.
        unsafe { at.cast::<u64>().add(index).write(value) }
    }
    Handles::new(at.cast_mut().cast(), read, write)
}

macro_rules! numbers {
    ($($in:ident $out:ident,)*) => {
        $(
            #[inline(always)]
            #[allow(dead_code, reason = "some are only read")]
            pub fn $in(value: c_int) -> Answer<i64> {
                Ok(i64::from(value))
            }

            #[inline(always)]
            #[allow(dead_code, reason = "some are only written")]
            pub fn $out(value: i64) -> c_int {
                value as c_int
            }
        )*
    };
}

numbers! {
    rank_in rank_out,
    tag_in tag_out,
    error_in error_out,
    keyval_in keyval_out,
    thread_in thread_out,
    order_in order_out,
    distribution_in distribution_out,
    combiner_in combiner_out,
    typeclass_in typeclass_out,
    comparison_in comparison_out,
    topology_in topology_out,
    splittype_in splittype_out,
    locktype_in locktype_out,
    assert_in assert_out,
    amode_in amode_out,
    whence_in whence_out,
    verbosity_in verbosity_out,
    bind_in bind_out,
    scope_in scope_out,
    pvarclass_in pvarclass_out,
}

pub fn darg_in(value: c_int) -> Answer<i64> {
    Ok(bdrun_mpi::standard::darg_in(value))
}

#[inline(always)]
pub fn displacement_in(value: i64) -> Answer<i64> {
    Ok(value)
}

#[inline(always)]
pub fn buffer(at: *const c_void) -> Buffer {
    // MPI_IN_PLACE
    if at as usize == 1 { Buffer::InPlace } else { Buffer::At(at.cast_mut().cast()) }
}

pub fn weights(at: *const c_int) -> Weights {
    match at as usize {
        10 => Weights::None,
        11 => Weights::Empty,
        _ => Weights::At(at),
    }
}

pub fn statuses(at: *mut Status) -> args::Statuses {
    unsafe fn write(at: *mut c_void, index: usize, status: &args::Status) {
        // SAFETY: the caller's: there is room for so many.
        unsafe { status_out(at.cast::<Status>().add(index), status) }
    }
    args::Statuses::new(at.cast(), write)
}

pub fn on_comm(value: Comm) -> Object {
    Object::Comm(handle::Comm(value as u64))
}

pub fn on_win(value: Win) -> Object {
    Object::Win(handle::Win(value as u64))
}

pub fn on_file(value: File) -> Object {
    Object::File(handle::File(value as u64))
}

pub fn on_session(value: Session) -> Object {
    Object::Session(handle::Session(value as u64))
}
