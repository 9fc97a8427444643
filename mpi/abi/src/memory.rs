//! Memory that lies on storage (`bdrun.h`): of the program's own heap, which is in arenas where
//! `libsbmalloc.so` is preloaded; without it plain memory, which is moved from outside if at all.

use std::collections::BTreeMap;
use std::ffi::{c_int, c_void};
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use bdrun_mpi::Owns;
use bdrun_mpi_core::error::Class;

use crate::{Object, call};

/// What tells the program's heap, if that lies on storage.
fn heap() -> Option<Owns> {
    static OWNS: OnceLock<Option<Owns>> = OnceLock::new();
    *OWNS.get_or_init(bdrun_mpi::preloaded_heap)
}

/// Blocks of plain memory, by address, and their bytes: so that what is no such block is told.
fn plain() -> MutexGuard<'static, BTreeMap<usize, usize>> {
    static BLOCKS: Mutex<BTreeMap<usize, usize>> = Mutex::new(BTreeMap::new());
    BLOCKS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A new block of so many bytes.
fn known(at: *mut c_void, size: usize) -> *mut c_void {
    if !at.is_null() && heap().is_none() {
        plain().insert(at.addr(), size);
    }
    at
}

/// Whether an address is of memory that was given out here.
fn owns(at: *const c_void) -> bool {
    match heap() {
        Some(owns) => owns(at),
        None => plain()
            .range(..=at.addr())
            .next_back()
            .is_some_and(|(&from, &size)| at.addr() - from < size.max(1)),
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn bdrun_malloc(size: usize) -> *mut c_void {
    // SAFETY: no preconditions.
    known(unsafe { libc::malloc(size) }, size)
}

#[unsafe(no_mangle)]
pub extern "C" fn bdrun_calloc(count: usize, size: usize) -> *mut c_void {
    // SAFETY: no preconditions.
    known(unsafe { libc::calloc(count, size) }, count.saturating_mul(size))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn bdrun_realloc(at: *mut c_void, size: usize) -> *mut c_void {
    if at.is_null() {
        return bdrun_malloc(size);
    }
    if !owns(at) {
        return std::ptr::null_mut();
    }
    let old = at.addr();
    // SAFETY: a block given out here, and the caller's: it is used no more.
    let new = unsafe { libc::realloc(at, size) };
    if heap().is_none() && (!new.is_null() || size == 0) {
        plain().remove(&old);
    }
    known(new, size)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn bdrun_free(at: *mut c_void) {
    if at.is_null() || !owns(at) {
        return;
    }
    if heap().is_none() {
        plain().remove(&at.addr());
    }
    // SAFETY: a block given out here, and the caller's: it is used no more.
    unsafe { libc::free(at) };
}

/// The whole pages among so many bytes.
fn pages(at: *mut c_void, size: usize) -> Range<usize> {
    const PAGE: usize = 4096;
    let (from, to) = (at.addr().next_multiple_of(PAGE), at.addr().saturating_add(size) / PAGE * PAGE);
    from..to.max(from)
}

/// Makes bytes zeros, whole pages of them without writing any.
///
/// # Safety
/// They are there, and nobody else uses them now.
unsafe fn empty(at: *mut c_void, size: usize) {
    let pages = pages(at, size);
    // SAFETY: the caller's; what cannot be emptied is zeroed.
    unsafe {
        let is_empty = !pages.is_empty()
            && libc::madvise(at.with_addr(pages.start), pages.len(), libc::MADV_DONTNEED) == 0;
        let whole = if is_empty { pages } else { at.addr()..at.addr() };
        at.cast::<u8>().write_bytes(0, whole.start - at.addr());
        let end = at.addr() + size;
        at.with_addr(whole.end).cast::<u8>().write_bytes(0, end - whole.end);
    }
}

/// Says something of memory that was given out here.
fn said(name: &'static &'static str, at: *const c_void, size: usize, say: impl FnOnce()) -> c_int {
    let body = || {
        if size > 0 {
            if !owns(at) {
                return Err(Class::Arg.into());
            }
            say();
        }
        Ok(())
    };
    call(name, || Object::Nothing, body)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn bdrun_discard(at: *mut c_void, size: usize) -> c_int {
    // SAFETY: given out here (seen before), and the caller's: so many bytes, which nobody else uses now.
    said(&"bdrun_discard", at, size, || unsafe { empty(at, size) })
}

/// A hint: the pager learns by itself what is used.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bdrun_will_need(at: *const c_void, size: usize) -> c_int {
    said(&"bdrun_will_need", at, size, || {})
}

/// The same.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bdrun_dont_need(at: *const c_void, size: usize) -> c_int {
    said(&"bdrun_dont_need", at, size, || {})
}
