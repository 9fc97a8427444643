//! Conversions of arguments.

use std::ffi::{c_int, c_void};

use bdrun_mpi::args::{self, Buffer, Handles, Weights};
use bdrun_mpi::face::Object;
use bdrun_mpi::failure::Answer;
use bdrun_mpi::handle::{self};

use crate::numbers;
use crate::objects::{self, Kind};

macro_rules! handles {
    ($($name:ident $in:ident $out:ident $null:ident,)*) => {
        $(
            pub type $name = *mut c_void;

            #[inline(always)]
            pub fn $in(value: $name) -> Answer<handle::$name> {
                // SAFETY: the program's: a handle is one.
                Ok(unsafe { objects::taken(value) })
            }

            #[inline(always)]
            pub fn $out(value: handle::$name) -> $name {
                objects::given(value)
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
pub fn handles<T, K: Kind>(at: *const T) -> Handles<K> {
    unsafe fn read<K: Kind>(at: *mut c_void, index: usize) -> Answer<u64> {
        // SAFETY: the caller's: there are so many, and each is a handle.
        Ok(unsafe { objects::taken::<K>(at.cast::<*mut c_void>().add(index).read()) }.value())
    }
    unsafe fn write<K: Kind>(at: *mut c_void, index: usize, value: u64) {
        // SAFETY: the caller's: there is room for so many.
        unsafe { at.cast::<*mut c_void>().add(index).write(objects::given(K::new(value))) }
    }
    Handles::new(at.cast_mut().cast(), read::<K>, write::<K>)
}

macro_rules! numbers {
    ($($in:ident $out:ident: $how_in:expr, $how_out:expr;)*) => {
        $(
            #[inline(always)]
            #[allow(dead_code, reason = "some are only read")]
            pub fn $in(value: c_int) -> Answer<i64> {
                Ok($how_in(value))
            }

            #[inline(always)]
            #[allow(dead_code, reason = "some are only written")]
            pub fn $out(value: i64) -> c_int {
                $how_out(value)
            }
        )*
    };
    ($($in:ident $out:ident $table:ident $way_in:ident $way_out:ident,)*) => {
        numbers! {
            $($in $out: |value| numbers::$way_in(numbers::$table, value),
                |value| numbers::$way_out(numbers::$table, value);)*
        }
    };
}

numbers! {
    rank_in rank_out RANKS ordinary_in ordinary_out,
    tag_in tag_out TAGS ordinary_in ordinary_out,
    thread_in thread_out THREADS named_in named_out,
    order_in order_out ORDERS named_in named_out,
    distribution_in distribution_out DISTRIBUTIONS named_in named_out,
    combiner_in combiner_out COMBINERS named_in named_out,
    typeclass_in typeclass_out TYPECLASSES named_in named_out,
    comparison_in comparison_out COMPARISONS named_in named_out,
    topology_in topology_out TOPOLOGIES named_in named_out,
    splittype_in splittype_out SPLITTYPES named_in named_out,
    locktype_in locktype_out LOCKTYPES named_in named_out,
    assert_in assert_out ASSERTS bits_in bits_out,
    amode_in amode_out AMODES bits_in bits_out,
    whence_in whence_out WHENCES named_in named_out,
    verbosity_in verbosity_out VERBOSITIES named_in named_out,
    bind_in bind_out BINDS named_in named_out,
    scope_in scope_out SCOPES named_in named_out,
    pvarclass_in pvarclass_out PVARCLASSES named_in named_out,
}

numbers! {
    error_in error_out: numbers::error_in, numbers::error_out;
    keyval_in keyval_out: numbers::keyval_in, numbers::keyval_out;
    darg_in darg_out: numbers::darg_in, numbers::darg_out;
}

#[inline(always)]
pub fn displacement_in(value: i64) -> Answer<i64> {
    Ok(numbers::displacement_in(value))
}

#[inline(always)]
pub fn buffer(at: *const c_void) -> Buffer {
    // MPI_IN_PLACE
    if at as usize == 1 { Buffer::InPlace } else { Buffer::At(at.cast_mut().cast()) }
}

pub fn weights(at: *const c_int) -> Weights {
    match at as usize {
        2 => Weights::None,
        3 => Weights::Empty,
        _ => Weights::At(at),
    }
}

/// `MPI_Status`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct Status {
    source: c_int,
    tag: c_int,
    error: c_int,
    cancelled: c_int,
    bytes: usize,
}

pub unsafe fn status_in(at: *const Status) -> args::Status {
    if at.is_null() {
        return args::Status::EMPTY;
    }
    // SAFETY: the caller's: a status.
    let Status { source, tag, error, cancelled, bytes } = unsafe { at.read() };
    args::Status {
        source: numbers::ordinary_in(numbers::RANKS, source),
        tag: numbers::ordinary_in(numbers::TAGS, tag),
        error: Some(numbers::error_in(error)),
        count: bytes as i64,
        cancelled: cancelled != 0,
    }
}

pub unsafe fn status_out(at: *mut Status, status: &args::Status) {
    // SAFETY: the caller's: there is room for a status.
    unsafe {
        (*at).source = numbers::ordinary_out(numbers::RANKS, status.source);
        (*at).tag = numbers::ordinary_out(numbers::TAGS, status.tag);
        if let Some(error) = status.error {
            (*at).error = numbers::error_out(error);
        }
        (*at).cancelled = status.cancelled.into();
        (*at).bytes = status.count as usize;
    }
}

pub fn statuses(at: *mut Status) -> args::Statuses {
    unsafe fn write(at: *mut c_void, index: usize, status: &args::Status) {
        // SAFETY: the caller's: there is room for so many.
        unsafe { status_out(at.cast::<Status>().add(index), status) }
    }
    args::Statuses::new(at.cast(), write)
}

/// Whose error handler is told; of what is no handle, nobody's.
macro_rules! on {
    ($($name:ident $kind:ident,)*) => {
        $(pub fn $name(value: $kind) -> Object {
            // SAFETY: the program's: a handle is one.
            match unsafe { objects::taken(value) } {
                handle::$kind(0) => Object::Nothing,
                one => Object::$kind(one),
            }
        })*
    };
}

on! {
    on_comm Comm,
    on_win Win,
    on_file File,
    on_session Session,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_as_the_header_has_it_and_comes_back() {
        assert_eq!((size_of::<Status>(), std::mem::offset_of!(Status, bytes)), (24, 16));
        assert_eq!(std::mem::offset_of!(Status, cancelled), 12);
        for count in [0, 1, i64::from(u32::MAX) + 3, 1 << 62] {
            for cancelled in [false, true] {
                let status = args::Status { source: 5, tag: 9, error: Some(15), count, cancelled };
                let mut ours = Status::default();
                // SAFETY: room for a status.
                unsafe { status_out(&raw mut ours, &status) };
                // SAFETY: a status.
                assert_eq!(unsafe { status_in(&raw const ours) }, status);
            }
        }
    }

    #[test]
    fn an_empty_status_is_of_any_source_with_any_tag() {
        let mut ours = Status { error: 42, ..Status::default() };
        // SAFETY: room for a status.
        unsafe { status_out(&raw mut ours, &args::Status { error: None, ..args::Status::EMPTY }) };
        // What nobody said is left as it was.
        assert_eq!((ours.source, ours.tag, ours.error, ours.bytes), (-1, -1, 42, 0));
        // MPI_PROC_NULL; MPI_ERR_PENDING
        let status = args::Status { source: -3, error: Some(18), ..args::Status::EMPTY };
        // SAFETY: room for a status.
        unsafe { status_out(&raw mut ours, &status) };
        assert_eq!((ours.source, ours.error), (-2, 19));
    }

    #[test]
    fn many_handles_are_read_and_written_where_they_are() {
        let mut places = [datatype_null(), objects::given(handle::Datatype(0x209)), std::ptr::null_mut()];
        let all: Handles<handle::Datatype> = handles(places.as_mut_ptr());
        // SAFETY: there are three.
        let read = |index| unsafe { all.get(index) }.map(|handle| handle.0);
        assert_eq!([read(0), read(1), read(2)], [Ok(0x200), Ok(0x209), Ok(0)]);
        // SAFETY: there are three.
        unsafe { all.set(2, handle::Datatype(0x1005)) };
        assert_eq!(read(2), Ok(0x1005));
        assert_eq!(places[2], objects::given(handle::Datatype(0x1005)));
    }

    #[test]
    fn pointers_that_mean_something() {
        let mut byte = 0u8;
        assert_eq!(buffer(std::ptr::without_provenance(1)), Buffer::InPlace);
        assert_eq!(buffer(std::ptr::null()), Buffer::At(std::ptr::null_mut()));
        assert_eq!(buffer((&raw const byte).cast()), Buffer::At(&raw mut byte));
        assert_eq!(weights(std::ptr::without_provenance(2)), Weights::None);
        assert_eq!(weights(std::ptr::without_provenance(3)), Weights::Empty);
        assert_eq!(on_comm(std::ptr::null_mut()), Object::Nothing);
        assert_eq!(on_comm(comm_out(handle::Comm::SELF)), Object::Comm(handle::Comm::SELF));
    }
}
