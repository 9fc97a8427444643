//! Conversions of arguments.

use std::ffi::{c_int, c_void};
use std::ptr;

use bdrun_mpi::args::{self, Buffer, Handles, Weights};
use bdrun_mpi::face::Object;
use bdrun_mpi::failure::Answer;

use crate::data;
pub use crate::handles::*;
use crate::numbers;
pub use crate::numbers::*;

/// Handles of a program, one behind the other.
pub fn handles<T, K: Word>(at: *const T) -> Handles<K> {
    unsafe fn read<K: Word>(at: *mut c_void, index: usize) -> Answer<u64> {
        // SAFETY: the caller's: there are so many.
        Ok(K::of(unsafe { at.cast::<K::C>().add(index).read() }).value())
    }
    unsafe fn write<K: Word>(at: *mut c_void, index: usize, value: u64) {
        // SAFETY: the caller's: there is room for so many.
        unsafe { at.cast::<K::C>().add(index).write(K::new(value).out()) }
    }
    Handles::new(at.cast_mut().cast(), read::<K>, write::<K>)
}

#[inline(always)]
pub fn buffer(at: *const c_void) -> Buffer {
    // MPI_IN_PLACE
    if at as usize == usize::MAX { Buffer::InPlace } else { Buffer::At(at.cast_mut().cast()) }
}

pub fn weights(at: *const c_int) -> Weights {
    match at {
        _ if ptr::eq(at, data::MPI_UNWEIGHTED.0.cast()) => Weights::None,
        _ if ptr::eq(at, data::MPI_WEIGHTS_EMPTY.0.cast()) => Weights::Empty,
        _ => Weights::At(at),
    }
}

/// `MPI_Status`: of the bytes the lower half; the upper one, shifted, and whether it was cancelled.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct Status {
    bytes: u32,
    more: u32,
    source: c_int,
    tag: c_int,
    error: c_int,
}

/// `MPI_STATUS_IGNORE`
const IGNORED: usize = 1;

pub unsafe fn status_in(at: *const Status) -> args::Status {
    if at.is_null() || at as usize == IGNORED {
        return args::Status::EMPTY;
    }
    // SAFETY: the caller's: a status.
    let Status { bytes, more, source, tag, error } = unsafe { at.read() };
    // None of these fails.
    let number = |value: Answer<i64>| value.unwrap_or_default();
    args::Status {
        source: number(numbers::rank_in(source)),
        tag: number(numbers::tag_in(tag)),
        error: Some(number(numbers::error_in(error))),
        count: i64::from(more >> 1) << 32 | i64::from(bytes),
        cancelled: more & 1 != 0,
    }
}

pub unsafe fn status_out(at: *mut Status, status: &args::Status) {
    if at as usize == IGNORED {
        return;
    }
    // SAFETY: the caller's: there is room for a status.
    unsafe {
        (*at).source = numbers::rank_out(status.source);
        (*at).tag = numbers::tag_out(status.tag);
        if let Some(error) = status.error {
            (*at).error = numbers::error_out(error);
        }
        (*at).bytes = status.count as u32;
        (*at).more = ((status.count >> 32) as u32) << 1 | u32::from(status.cancelled);
    }
}

pub fn statuses(at: *mut Status) -> args::Statuses {
    unsafe fn write(at: *mut c_void, index: usize, status: &args::Status) {
        // SAFETY: the caller's: there is room for so many.
        unsafe { status_out(at.cast::<Status>().add(index), status) }
    }
    let is_ignored = at as usize == IGNORED;
    args::Statuses::new(if is_ignored { ptr::null_mut() } else { at.cast() }, write)
}

/// Whose error handler is told; of what is no handle, nobody's.
macro_rules! on {
    ($($name:ident $kind:ident,)*) => {
        $(pub fn $name(value: $kind) -> Object {
            if value as usize == 0 { Object::Nothing } else { Object::$kind(Word::of(value)) }
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
    use bdrun_mpi::handle;

    #[test]
    fn a_status_is_as_the_header_has_it_and_comes_back() {
        assert_eq!((size_of::<Status>(), std::mem::offset_of!(Status, source)), (20, 8));
        assert_eq!(std::mem::offset_of!(Status, error), 16);
        for count in [0, 1, i64::from(u32::MAX) + 3, 1 << 61] {
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
        assert_eq!((ours.source, ours.tag, ours.error, ours.bytes), (-2, -1, 42, 0));
        // MPI_PROC_NULL; MPI_ERR_PENDING
        let status = args::Status { source: -3, error: Some(18), ..args::Status::EMPTY };
        // SAFETY: room for a status.
        unsafe { status_out(&raw mut ours, &status) };
        assert_eq!((ours.source, ours.error), (-1, 18));
        // SAFETY: nobody wants it.
        unsafe { status_out(ptr::without_provenance_mut(IGNORED), &status) };
        // SAFETY: as above.
        unsafe { statuses(ptr::without_provenance_mut(IGNORED)).set(3, &status) };
    }

    #[test]
    fn many_handles_are_read_and_written_where_they_are() {
        let mut places = [handle::Datatype::NULL.out(), handle::Datatype(0x209).out(), 0];
        let all: Handles<handle::Datatype> = handles(places.as_mut_ptr());
        // SAFETY: there are three.
        let read = |index| unsafe { all.get(index) }.map(|handle| handle.0);
        assert_eq!([read(0), read(1), read(2)], [Ok(0x200), Ok(0x209), Ok(u64::MAX)]);
        // SAFETY: there are three.
        unsafe { all.set(2, handle::Datatype(0x1005)) };
        assert_eq!((read(2), places[2]), (Ok(0x1005), handle::Datatype(0x1005).out()));
    }

    #[test]
    fn pointers_that_mean_something() {
        let mut byte = 0u8;
        assert_eq!(buffer(ptr::without_provenance(usize::MAX)), Buffer::InPlace);
        assert_eq!(buffer(ptr::null()), Buffer::At(ptr::null_mut()));
        assert_eq!(buffer((&raw const byte).cast()), Buffer::At(&raw mut byte));
        assert_eq!(weights(data::MPI_UNWEIGHTED.0.cast()), Weights::None);
        assert_eq!(weights(data::MPI_WEIGHTS_EMPTY.0.cast()), Weights::Empty);
        assert_eq!(on_comm(0), Object::Nothing);
        assert_eq!(on_comm(0x4400_0001), Object::Comm(handle::Comm::SELF));
    }
}
