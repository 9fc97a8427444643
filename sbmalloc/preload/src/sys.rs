//! errno, bare system calls, and the functions of the C library that ours stand in front of.

use std::ffi::{CStr, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};

pub(crate) const PAGE: usize = 4096;

pub(crate) fn set_errno(errno: i32) {
    // SAFETY: this thread's errno, which always exists.
    unsafe { *libc::__errno_location() = errno };
}

/// Keeps errno as it is over `f`.
#[inline(always)]
pub(crate) fn keeping_errno<R>(f: impl FnOnce() -> R) -> R {
    // SAFETY: this thread's errno, which always exists, and does not move.
    unsafe {
        let errno = libc::__errno_location();
        let before = *errno;
        let result = f();
        *errno = before;
        result
    }
}

/// The next definition of a function behind ours, looked up once. `dlsym` may allocate, which is fine: no
/// allocation looks anything up.
pub(crate) struct Next {
    name: &'static CStr,
    at: AtomicPtr<c_void>,
}

impl Next {
    pub const fn new(name: &'static CStr) -> Self {
        Self { name, at: AtomicPtr::new(std::ptr::null_mut()) }
    }

    /// Its address; null if there is none.
    pub fn get(&self) -> *mut c_void {
        let at = self.at.load(Ordering::Acquire);
        if !at.is_null() {
            return at;
        }
        // SAFETY: the name is terminated.
        let found = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) };
        self.at.store(found, Ordering::Release);
        found
    }
}
