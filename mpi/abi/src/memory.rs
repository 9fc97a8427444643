//! Memory that lies on storage (`bdrun.h`): of the heap of this library, or, where `libsbmalloc.so` is preloaded,
//! which has the rank's runtime then, of the program's own.

use std::ffi::{c_int, c_void};
use std::slice;
use std::sync::OnceLock;

use bdrun_mpi::Owns;
use bdrun_mpi_core::error::Class;
use sbmalloc::{Advice, NotOurs, raw};

use crate::{Object, call};

/// What `malloc` aligns to.
const ALIGNED: usize = 16;
/// More no object may have.
const MOST: usize = isize::MAX as usize - 4096;

/// Whether the program's heap is one that lies on storage.
fn is_all_ours() -> bool {
    whole().is_some()
}

/// What tells the program's heap, if that lies on storage.
fn whole() -> Option<Owns> {
    static OWNS: OnceLock<Option<Owns>> = OnceLock::new();
    *OWNS.get_or_init(bdrun_mpi::preloaded_heap)
}

fn owns(at: *const c_void) -> bool {
    whole().map_or_else(|| raw::owns(at.cast()), |owns| owns(at))
}

#[unsafe(no_mangle)]
pub extern "C" fn bdrun_malloc(size: usize) -> *mut c_void {
    match () {
        () if size > MOST => std::ptr::null_mut(),
        // SAFETY: no preconditions.
        () if is_all_ours() => unsafe { libc::malloc(size) },
        () => raw::alloc(size, ALIGNED).cast(),
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn bdrun_calloc(count: usize, size: usize) -> *mut c_void {
    match count.checked_mul(size) {
        // SAFETY: no preconditions.
        Some(..=MOST) if is_all_ours() => unsafe { libc::calloc(count, size) },
        Some(size @ ..=MOST) => raw::alloc_zeroed(size, ALIGNED).cast(),
        _ => std::ptr::null_mut(),
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn bdrun_realloc(at: *mut c_void, size: usize) -> *mut c_void {
    if at.is_null() {
        return bdrun_malloc(size);
    }
    if is_all_ours() {
        // SAFETY: of that heap, and the caller's: it is used no more.
        return unsafe { libc::realloc(at, size) };
    }
    if size > MOST || !raw::owns(at.cast()) {
        return std::ptr::null_mut();
    }
    // SAFETY: of this heap, and the caller's: it is used no more.
    unsafe { raw::realloc(at.cast(), size, ALIGNED).cast() }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn bdrun_free(at: *mut c_void) {
    if is_all_ours() {
        // SAFETY: of that heap, and the caller's: it is used no more.
        return unsafe { libc::free(at) };
    }
    // SAFETY: the caller's: it is used no more. What is not of this heap is left alone.
    unsafe { raw::free_owned(at.cast()) };
}

/// The whole pages among so many bytes.
fn pages(at: *mut c_void, size: usize) -> std::ops::Range<usize> {
    const PAGE: usize = 4096;
    let (from, to) = (at.addr().next_multiple_of(PAGE), at.addr().saturating_add(size) / PAGE * PAGE);
    from..to.max(from)
}

/// Makes bytes of the program's heap zeros, whole pages of them without writing any.
///
/// # Safety
/// They are there, and nobody else uses them now.
unsafe fn empty(at: *mut c_void, size: usize) -> Result<(), NotOurs> {
    let pages = pages(at, size);
    // SAFETY: the caller's; what is emptied is zeroed if that fails.
    unsafe {
        let is_empty = !pages.is_empty()
            && libc::madvise(at.with_addr(pages.start), pages.len(), libc::MADV_DONTNEED) == 0;
        let whole = if is_empty { pages } else { at.addr()..at.addr() };
        at.cast::<u8>().write_bytes(0, whole.start - at.addr());
        let end = at.addr() + size;
        at.with_addr(whole.end).cast::<u8>().write_bytes(0, end - whole.end);
    }
    Ok(())
}

/// Says something of memory of this heap.
fn said(at: *const c_void, size: usize, say: impl FnOnce() -> Result<(), NotOurs>) -> c_int {
    let body = || {
        if size > 0 && !owns(at) {
            return Err(Class::Arg.into());
        }
        if size == 0 { Ok(()) } else { say().map_err(|_| Class::Arg.into()) }
    };
    call(&"bdrun_discard", || Object::Nothing, body)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn bdrun_discard(at: *mut c_void, size: usize) -> c_int {
    // SAFETY: of this heap (seen before), and the caller's: so many bytes, which nobody else uses now.
    said(at, size, || unsafe {
        if is_all_ours() {
            return empty(at, size);
        }
        sbmalloc::discard(slice::from_raw_parts_mut(at.cast::<u8>(), size))
    })
}

/// What is said is a hint: of the program's own heap the pager knows better.
///
/// # Safety
/// So many bytes are there.
unsafe fn advised(at: *const c_void, size: usize, advice: Advice) -> c_int {
    said(at, size, || {
        if is_all_ours() {
            return Ok(());
        }
        // SAFETY: of this heap (seen before), and the caller's.
        sbmalloc::advise(unsafe { slice::from_raw_parts(at.cast::<u8>(), size) }, advice)
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn bdrun_will_need(at: *const c_void, size: usize) -> c_int {
    // SAFETY: the caller's.
    unsafe { advised(at, size, Advice::WillNeed) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn bdrun_dont_need(at: *const c_void, size: usize) -> c_int {
    // SAFETY: the caller's.
    unsafe { advised(at, size, Advice::DontNeed) }
}
