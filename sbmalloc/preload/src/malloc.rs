//! The C functions, with the semantics of glibc's.

use std::ffi::c_void;
use std::ptr;

use heap::raw;

use crate::deep::realloc_of_glibc;
use crate::start::scheduling_point;
use crate::sys::{Next, PAGE, keeping_errno, set_errno};

/// What `malloc` aligns to, as far as an object of that size can need it.
#[inline(always)]
pub(crate) const fn natural(size: usize) -> usize {
    if size > 8 { 16 } else { 8 }
}

/// More no object may have.
const MOST: usize = isize::MAX as usize - PAGE;

type Realloc = unsafe extern "C" fn(*mut c_void, usize) -> *mut c_void;

/// A block, or null with errno set.
#[inline(always)]
pub(crate) fn get(size: usize, align: usize, zeroed: bool) -> *mut c_void {
    scheduling_point();
    let at: *mut c_void = match () {
        () if size > MOST || align > MOST => ptr::null_mut(),
        () if zeroed => raw::alloc_zeroed(size, align).cast(),
        () => raw::alloc(size, align).cast(),
    };
    if at.is_null() {
        set_errno(libc::ENOMEM);
    }
    at
}

/// Frees a block; what is not ours (the dynamic linker's own first blocks) is left alone.
///
/// # Safety
/// As for `free`.
#[inline(always)]
pub(crate) unsafe fn put(at: *mut c_void) {
    scheduling_point();
    // SAFETY: as for `free`.
    keeping_errno(|| unsafe { raw::free_owned(at.cast()) });
}

#[unsafe(no_mangle)]
extern "C" fn malloc(size: usize) -> *mut c_void {
    get(size, natural(size), false)
}

#[unsafe(no_mangle)]
extern "C" fn calloc(count: usize, size: usize) -> *mut c_void {
    let size = count.saturating_mul(size);
    get(size, natural(size), true)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn free(at: *mut c_void) {
    // SAFETY: the caller's contract.
    unsafe { put(at) };
}

/// Of programs that were linked before glibc 2.26.
#[unsafe(no_mangle)]
unsafe extern "C" fn cfree(at: *mut c_void) {
    // SAFETY: the caller's contract.
    unsafe { put(at) };
}

/// C23, glibc 2.43. The size is known here.
#[unsafe(no_mangle)]
unsafe extern "C" fn free_sized(at: *mut c_void, _: usize) {
    // SAFETY: the caller's contract.
    unsafe { put(at) };
}

/// C23, glibc 2.43.
#[unsafe(no_mangle)]
unsafe extern "C" fn free_aligned_sized(at: *mut c_void, _: usize, _: usize) {
    // SAFETY: the caller's contract.
    unsafe { put(at) };
}

#[unsafe(no_mangle)]
unsafe extern "C" fn realloc(at: *mut c_void, size: usize) -> *mut c_void {
    if at.is_null() {
        return get(size, natural(size), false);
    }
    if size == 0 {
        // SAFETY: the caller's contract.
        unsafe { put(at) };
        return ptr::null_mut();
    }
    scheduling_point();
    if !raw::owns(at.cast()) {
        static NEXT: Next = Next::new(c"realloc");
        let glibc = Some(realloc_of_glibc()).filter(|found| !found.is_null()).unwrap_or_else(|| NEXT.get());
        // SAFETY: the caller's contract; whoever it came from knows its size.
        return unsafe { std::mem::transmute::<*mut c_void, Realloc>(glibc)(at, size) };
    }
    let to = match size {
        ..=MOST => {
            // SAFETY: the caller's contract.
            unsafe { raw::realloc(at.cast(), size, natural(size)) }
        }
        _ => ptr::null_mut(),
    };
    if to.is_null() {
        set_errno(libc::ENOMEM);
    }
    to.cast()
}

#[unsafe(no_mangle)]
unsafe extern "C" fn reallocarray(at: *mut c_void, count: usize, size: usize) -> *mut c_void {
    let Some(bytes) = count.checked_mul(size) else {
        set_errno(libc::ENOMEM);
        return ptr::null_mut();
    };
    // SAFETY: the caller's contract.
    unsafe { realloc(at, bytes) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn posix_memalign(to: *mut *mut c_void, align: usize, size: usize) -> i32 {
    if !align.is_power_of_two() || !align.is_multiple_of(size_of::<usize>()) {
        return libc::EINVAL;
    }
    let at = keeping_errno(|| get(size, align.max(16), false));
    if at.is_null() {
        return libc::ENOMEM;
    }
    // SAFETY: the caller gives a place for a pointer.
    unsafe { *to = at };
    0
}

/// glibc takes any alignment, as the next power of two.
fn aligned(align: usize, size: usize) -> *mut c_void {
    get(size, align.max(16).checked_next_power_of_two().unwrap_or(usize::MAX), false)
}

#[unsafe(no_mangle)]
extern "C" fn aligned_alloc(align: usize, size: usize) -> *mut c_void {
    aligned(align, size)
}

#[unsafe(no_mangle)]
extern "C" fn memalign(align: usize, size: usize) -> *mut c_void {
    aligned(align, size)
}

#[unsafe(no_mangle)]
extern "C" fn valloc(size: usize) -> *mut c_void {
    get(size, PAGE, false)
}

#[unsafe(no_mangle)]
extern "C" fn pvalloc(size: usize) -> *mut c_void {
    get(size.checked_next_multiple_of(PAGE).unwrap_or(usize::MAX), PAGE, false)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn malloc_usable_size(at: *mut c_void) -> usize {
    if !raw::owns(at.cast()) {
        return 0;
    }
    // SAFETY: the caller's contract.
    unsafe { raw::usable_size(at.cast()) }
}

/// The names under which programs reach past an allocator in front of them; glibc's own must not be mixed
/// with ours.
mod by_glibc_name {
    use super::*;

    #[unsafe(no_mangle)]
    extern "C" fn __libc_malloc(size: usize) -> *mut c_void {
        malloc(size)
    }
    #[unsafe(no_mangle)]
    extern "C" fn __libc_calloc(count: usize, size: usize) -> *mut c_void {
        calloc(count, size)
    }
    #[unsafe(no_mangle)]
    unsafe extern "C" fn __libc_realloc(at: *mut c_void, size: usize) -> *mut c_void {
        // SAFETY: the caller's contract.
        unsafe { realloc(at, size) }
    }
    #[unsafe(no_mangle)]
    unsafe extern "C" fn __libc_free(at: *mut c_void) {
        // SAFETY: the caller's contract.
        unsafe { put(at) }
    }
    #[unsafe(no_mangle)]
    extern "C" fn __libc_memalign(align: usize, size: usize) -> *mut c_void {
        aligned(align, size)
    }
    #[unsafe(no_mangle)]
    extern "C" fn __libc_valloc(size: usize) -> *mut c_void {
        valloc(size)
    }
    #[unsafe(no_mangle)]
    extern "C" fn __libc_pvalloc(size: usize) -> *mut c_void {
        pvalloc(size)
    }
    #[unsafe(no_mangle)]
    unsafe extern "C" fn __posix_memalign(to: *mut *mut c_void, align: usize, size: usize) -> i32 {
        // SAFETY: the caller's contract.
        unsafe { posix_memalign(to, align, size) }
    }
}
