//! Strings of C.

use std::ffi::c_char;

/// Writes as much of a text as there is room for, and its end; how many bytes of it.
///
/// # Safety
/// There is room for so many bytes, at least one.
pub unsafe fn write(to: *mut c_char, room: usize, text: &[u8]) -> usize {
    let len = text.len().min(room.saturating_sub(1));
    // SAFETY: the caller's; `len` is below `room`.
    unsafe {
        std::ptr::copy_nonoverlapping(text.as_ptr(), to.cast(), len);
        to.add(len).write(0);
    }
    len
}

/// The name of this machine.
pub fn host() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname")
        .map_or_else(|_| "localhost".into(), |name| name.trim().into())
}
