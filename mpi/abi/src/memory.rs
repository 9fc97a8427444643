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
    // SAFETY: a block given out here, and the caller's: it is used no more.
    moved(at, size, |at, size| unsafe { libc::realloc(at, size) })
}

/// A block that `reallocate` gives instead of one that was given out here.
fn moved(
    at: *mut c_void,
    size: usize,
    reallocate: impl FnOnce(*mut c_void, usize) -> *mut c_void,
) -> *mut c_void {
    if at.is_null() {
        return bdrun_malloc(size);
    }
    if !owns(at) {
        return std::ptr::null_mut();
    }
    // Before the block is freed: from then on another thread may be given its address, and makes it known.
    let old = if heap().is_none() { plain().remove(&at.addr()) } else { None };
    let new = reallocate(at, size);
    // It has failed, and the block stays.
    if let (Some(old), true) = (old, new.is_null() && size > 0) {
        plain().insert(at.addr(), old);
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

#[cfg(test)]
mod tests {
    use std::ptr::{null_mut, without_provenance_mut};

    use super::*;

    /// Another thread is given the address as soon as the block is freed, and its block is not forgotten.
    #[test]
    fn an_address_that_is_given_out_again_stays_known() {
        // Nobody reads or writes there, and no allocator has such addresses.
        let [old, new] = [0x1000, 0x2000].map(without_provenance_mut::<c_void>);
        known(old, 8);
        let given = moved(old, 16, |at, size| {
            assert_eq!((at, size, owns(at)), (old, 16, false));
            known(at, 32);
            new
        });
        assert_eq!((given, owns(old), owns(new)), (new, true, true));
        assert!(owns(old.wrapping_byte_add(31)) && owns(new.wrapping_byte_add(15)));
        // What is not moved stays as large as it was, until it is freed.
        assert_eq!(moved(new, 64, |_, _| null_mut()), null_mut());
        assert!(owns(new.wrapping_byte_add(15)) && !owns(new.wrapping_byte_add(16)));
        assert_eq!(moved(new, 0, |_, _| null_mut()), null_mut());
        assert!(!owns(new) && owns(old));
        assert_eq!(moved(new, 8, |_, _| unreachable!("it is no block")), null_mut());
    }
}
