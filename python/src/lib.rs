//! What Python calls, by `ctypes`: one library for all versions of Python. `bdrun/_library.py` has the other
//! side of each function.
//!
//! Errors are told by what is returned (null, or a negative number), and [`bdrun_error`] has the text.

mod arrays;
mod copy;
mod graph;
mod picture;

use std::cell::RefCell;
use std::ffi::{CString, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};

thread_local! {
    static ERROR: RefCell<CString> = RefCell::default();
}

/// What the last call of this thread that failed has to say; until the next one fails.
#[unsafe(no_mangle)]
pub extern "C" fn bdrun_error() -> *const c_char {
    ERROR.with(|error| error.borrow().as_ptr())
}

fn set_error(text: impl ToString) {
    let text = text.to_string().replace('\0', " ");
    ERROR.with(|error| *error.borrow_mut() = CString::new(text).unwrap_or_default());
}

/// How many threads can run at a time: as many as there are processors that this process may use, or as its
/// quota (of a cgroup, which containers are) has. Where nobody knows, one.
#[unsafe(no_mangle)]
pub extern "C" fn bdrun_processors() -> u32 {
    std::thread::available_parallelism().map_or(1, |count| u32::try_from(count.get()).unwrap_or(u32::MAX))
}

/// Does it, and returns `failed` where that is an error or a panic.
fn guarded<T>(failed: T, work: impl FnOnce() -> Result<T, String>) -> T {
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(Ok(value)) => value,
        Ok(Err(error)) => {
            set_error(error);
            failed
        }
        Err(panic) => {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("a defect");
            set_error(format!("a defect of bdrun: {text}"));
            failed
        }
    }
}
