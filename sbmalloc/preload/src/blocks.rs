//! Blocks without a size: until sbmalloc's heap knows it, a header in front of each block does.

use std::alloc::{GlobalAlloc, Layout};

const HEAP: heap::SbHeap = heap::SbHeap;

#[repr(C)]
struct Header {
    size: usize,
    align: usize,
}

fn layout(size: usize, align: usize) -> Option<Layout> {
    Layout::from_size_align(size.checked_add(align)?, align).ok()
}

fn header(at: *mut u8) -> *mut Header {
    at.wrapping_sub(size_of::<Header>()).cast()
}

fn finish(base: *mut u8, size: usize, align: usize) -> *mut u8 {
    if base.is_null() {
        return base;
    }
    // SAFETY: `align` bytes, at least a header's, precede the block.
    unsafe {
        let at = base.add(align);
        header(at).write(Header { size, align });
        at
    }
}

pub(crate) fn alloc(size: usize, align: usize) -> *mut u8 {
    let Some(layout) = layout(size, align) else { return std::ptr::null_mut() };
    // SAFETY: not of size 0.
    finish(unsafe { HEAP.alloc(layout) }, size, align)
}

pub(crate) fn alloc_zeroed(size: usize, align: usize) -> *mut u8 {
    let Some(layout) = layout(size, align) else { return std::ptr::null_mut() };
    // SAFETY: not of size 0.
    finish(unsafe { HEAP.alloc_zeroed(layout) }, size, align)
}

fn owns(at: *mut u8) -> bool {
    heap::mapping::part_in_any_arena(at as usize, 1).is_some()
}

/// # Safety
/// As for `free`.
pub(crate) unsafe fn free(at: *mut u8) {
    if !owns(at) {
        return;
    }
    // SAFETY: ours, so it has a header, which says how it was allocated.
    unsafe {
        let Header { size, align } = header(at).read();
        HEAP.dealloc(at.sub(align), Layout::from_size_align_unchecked(size + align, align));
    }
}

/// # Safety
/// As for `malloc_usable_size`.
pub(crate) unsafe fn usable_size(at: *mut u8) -> usize {
    // SAFETY: ours.
    unsafe { (*header(at)).size }
}

/// # Safety
/// As for `realloc`.
pub(crate) unsafe fn realloc(at: *mut u8, size: usize) -> *mut u8 {
    // SAFETY: ours.
    unsafe {
        let old = usable_size(at);
        let to = alloc(size, 16);
        if !to.is_null() {
            std::ptr::copy_nonoverlapping(at, to, old.min(size));
            free(at);
        }
        to
    }
}
