//! C++ `new` and `delete`, under the names of the Itanium ABI.
//!
//! Without memory the C++ library's own operator is asked, which finds none either and then calls the
//! new-handler or throws `std::bad_alloc`, as the standard says. It is looked up only then, so no C program
//! needs that library. The exception passes through our frame, which has nothing to clean up (`C-unwind`).

use std::ffi::{CStr, c_void};

use crate::malloc::{get, natural, put};
use crate::sys::Next;

/// The next operator of that name; the program ends as it would with an uncaught exception if there is none.
#[cold]
fn next(name: &'static CStr) -> *mut c_void {
    let next = Next::new(name).get();
    if next.is_null() {
        // SAFETY: has no preconditions.
        unsafe { libc::abort() };
    }
    next
}

macro_rules! operators_new {
    ($($name:ident($size:ident $(, align $align:ident)? $(, tag $tag:ident)?);)*) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C-unwind" fn $name(
            $size: usize $(, $align: usize)? $(, $tag: *const c_void)?
        ) -> *mut c_void {
            #[allow(unused_mut, unused_assignments, reason = "only some have an alignment")]
            let mut align = natural($size);
            $(align = align.max($align);)?
            let at = get($size, align, false);
            if !at.is_null() {
                return at;
            }
            const NAME: &CStr =
                match CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                    Ok(name) => name,
                    Err(_) => c"",
                };
            // SAFETY: the function of that name takes the same arguments.
            unsafe {
                let next: unsafe extern "C-unwind" fn(usize $(, operators_new!(@usize $align))? $(, operators_new!(@tag $tag))?) -> *mut c_void =
                    std::mem::transmute(next(NAME));
                next($size $(, $align)? $(, $tag)?)
            }
        }
    )*};
    (@usize $x:ident) => { usize };
    (@tag $x:ident) => { *const c_void };
}

operators_new! {
    _Znwm(size);
    _Znam(size);
    _ZnwmRKSt9nothrow_t(size, tag tag);
    _ZnamRKSt9nothrow_t(size, tag tag);
    _ZnwmSt11align_val_t(size, align align);
    _ZnamSt11align_val_t(size, align align);
    _ZnwmSt11align_val_tRKSt9nothrow_t(size, align align, tag tag);
    _ZnamSt11align_val_tRKSt9nothrow_t(size, align align, tag tag);
}

macro_rules! operators_delete {
    ($($name:ident($($rest:ident),*);)*) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name(at: *mut c_void $(, $rest: usize)*) {
            $(let _ = $rest;)*
            // SAFETY: the caller's contract: it comes from `new`.
            unsafe { put(at) };
        }
    )*};
}

// Sizes and alignments are not needed; the tag of the last ones is a reference, as large as a size.
operators_delete! {
    _ZdlPv();
    _ZdaPv();
    _ZdlPvm(size);
    _ZdaPvm(size);
    _ZdlPvSt11align_val_t(align);
    _ZdaPvSt11align_val_t(align);
    _ZdlPvmSt11align_val_t(size, align);
    _ZdaPvmSt11align_val_t(size, align);
    _ZdlPvRKSt9nothrow_t(tag);
    _ZdaPvRKSt9nothrow_t(tag);
    _ZdlPvSt11align_val_tRKSt9nothrow_t(align, tag);
    _ZdaPvSt11align_val_tRKSt9nothrow_t(align, tag);
}
