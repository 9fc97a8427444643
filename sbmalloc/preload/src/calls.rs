//! Calls other than allocations that are scheduling points: a program that has its buffers reads and writes,
//! and asks for no memory for minutes.
//!
//! Each looks at the flag and passes on to the C library's function, which stays the cancellation point it
//! is.

use std::ffi::{c_int, c_void};

use crate::start::scheduling_point;
use crate::sys::{Next, set_errno};

macro_rules! pass_on {
    ($($name:ident($($arg:ident: $type:ty),*) -> $result:ty, else $failed:expr;)*) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C-unwind" fn $name($($arg: $type),*) -> $result {
            const NAME: &std::ffi::CStr =
                match std::ffi::CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                    Ok(name) => name,
                    Err(_) => c"",
                };
            static NEXT: Next = Next::new(NAME);
            scheduling_point();
            let next = NEXT.get();
            if next.is_null() {
                set_errno(libc::ENOSYS);
                return $failed;
            }
            // SAFETY: the function of that name takes the same arguments; the caller's contract.
            unsafe {
                let next: unsafe extern "C-unwind" fn($($type),*) -> $result = std::mem::transmute(next);
                next($($arg),*)
            }
        }
    )*};
}

pass_on! {
    read(fd: c_int, to: *mut c_void, count: usize) -> isize, else -1;
    write(fd: c_int, from: *const c_void, count: usize) -> isize, else -1;
    pread64(fd: c_int, to: *mut c_void, count: usize, at: i64) -> isize, else -1;
    pwrite64(fd: c_int, from: *const c_void, count: usize, at: i64) -> isize, else -1;
    readv(fd: c_int, parts: *const c_void, count: c_int) -> isize, else -1;
    writev(fd: c_int, parts: *const c_void, count: c_int) -> isize, else -1;
    fread(to: *mut c_void, size: usize, count: usize, file: *mut c_void) -> usize, else 0;
    fread_unlocked(to: *mut c_void, size: usize, count: usize, file: *mut c_void) -> usize, else 0;
    fwrite(from: *const c_void, size: usize, count: usize, file: *mut c_void) -> usize, else 0;
    fwrite_unlocked(from: *const c_void, size: usize, count: usize, file: *mut c_void) -> usize, else 0;
    nanosleep(time: *const c_void, left: *mut c_void) -> c_int, else -1;
    clock_nanosleep(clock: c_int, flags: c_int, time: *const c_void, left: *mut c_void) -> c_int, else libc::ENOSYS;
    sched_yield() -> c_int, else -1;
}
