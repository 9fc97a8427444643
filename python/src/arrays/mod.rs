//! `bdrun-array` for `bdrun/array.py`: expressions are made one by one, each by a text in JSON that says what
//! it is, of others by their handles. Errors begin with the class that Python raises, and a colon.

mod compute;
mod make;

use std::ffi::{CStr, CString, c_char, c_void};
use std::io;

use bdrun_array::{Array, Block, DType, Error, Unsuitable};
use bdrun_graph::run::RunError;
use serde_json::Value;

use crate::guarded;

/// What goes wrong: the class, and in words.
pub(super) struct Raised(pub(super) String);

impl From<Error> for Raised {
    fn from(error: Error) -> Self {
        let class = match &error {
            Error::Shapes { .. } | Error::Value(_) => "ValueError",
            Error::Run(RunError::Task(failure)) => return Self::of(failure.cause.as_ref(), &error),
            Error::Run(RunError::Store { error: cause, .. }) => return Self::of(cause, &error),
            Error::Run(_) => "RuntimeError",
            Error::Axis { .. } => "AxisError",
            Error::Type { .. } => "TypeError",
            Error::Index { .. } => "IndexError",
            Error::Overflow { .. } => "OverflowError",
            Error::Unsupported(_) => "NotImplementedError",
            Error::TooLarge(_) => "MemoryError",
            Error::File { error: cause, .. } => return Self::of(cause, &error),
        };
        Self(format!("{class}:{error}"))
    }
}

impl Raised {
    /// Of the class of what a function says went wrong, as far as it has one.
    fn of(cause: &(dyn std::error::Error + 'static), error: &Error) -> Self {
        if let Some(unsuitable) = cause.downcast_ref::<Unsuitable>() {
            return Self(match unsuitable {
                Unsuitable::Value(_) => format!("ValueError:{error}"),
                Unsuitable::Linear(_) => format!("LinAlgError:{error}"),
            });
        }
        Self(match cause.downcast_ref::<io::Error>() {
            Some(cause) if cause.kind() == io::ErrorKind::OutOfMemory => format!("MemoryError:{error}"),
            Some(cause) => match number_of(cause) {
                // Python says the number itself.
                Some(number) => {
                    let text = error.to_string().replace(&format!(" (os error {number})"), "");
                    format!("OSError {number}:{text}")
                }
                None => format!("OSError:{error}"),
            },
            None => format!("RuntimeError:{error}"),
        })
    }
}

/// The number of an error of the system, by which Python has a class for it: also of one to which something
/// was added, as far as its kind says it.
fn number_of(error: &io::Error) -> Option<i32> {
    error.raw_os_error().or(match error.kind() {
        io::ErrorKind::NotFound => Some(libc::ENOENT),
        io::ErrorKind::PermissionDenied => Some(libc::EACCES),
        io::ErrorKind::AlreadyExists => Some(libc::EEXIST),
        io::ErrorKind::IsADirectory => Some(libc::EISDIR),
        io::ErrorKind::NotADirectory => Some(libc::ENOTDIR),
        io::ErrorKind::StorageFull => Some(libc::ENOSPC),
        io::ErrorKind::ReadOnlyFilesystem => Some(libc::EROFS),
        _ => None,
    })
}

impl From<Raised> for String {
    fn from(raised: Raised) -> Self {
        raised.0
    }
}

/// A call that `bdrun/array.py` does not make so.
pub(super) fn wrong(what: &str) -> Raised {
    Raised(format!("RuntimeError:{what}: a defect of bdrun"))
}

/// # Safety
/// It is null or a text with a zero behind it.
unsafe fn json(text: *const c_char) -> Result<Value, Raised> {
    if text.is_null() {
        return Err(wrong("no text"));
    }
    // SAFETY: as is asked for.
    let text = unsafe { CStr::from_ptr(text) };
    serde_json::from_slice(text.to_bytes()).map_err(|error| wrong(&error.to_string()))
}

/// # Safety
/// There are so many handles, of arrays that are not freed.
unsafe fn arrays(handles: *const *const Array, count: u32) -> Vec<Array> {
    // SAFETY: as is asked for.
    (0..count as usize).map(|at| unsafe { (**handles.add(at)).clone() }).collect()
}

pub(super) fn dtype(name: &str) -> Result<DType, Raised> {
    DType::ALL
        .into_iter()
        .find(|dtype| dtype.name() == name)
        .ok_or_else(|| Raised(format!("TypeError:there are no arrays of {name}; cast first")))
}

/// Makes expressions: as `what` says, of `count` others. Puts up to 3 handles into `made`, each of which is
/// given back to [`bdrun_array_free`], and says how many; -1 with an error.
///
/// # Safety
/// `what` is a text with a zero behind it, there are `count` handles, and room for 3.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bdrun_array_make(
    what: *const c_char,
    handles: *const *const Array,
    count: u32,
    made: *mut *mut Array,
) -> i32 {
    guarded(-1, || {
        // SAFETY: as is asked for.
        let (what, of) = unsafe { (json(what)?, arrays(handles, count)) };
        let origin = what["origin"].as_str().unwrap_or("Python").to_owned();
        let results = bdrun_array::from_origin(&origin, || make::make(&what, &of))?;
        let count = results.len() as i32;
        for (at, result) in results.into_iter().take(3).enumerate() {
            // SAFETY: there is room for three.
            unsafe { made.add(at).write(Box::into_raw(Box::new(result))) };
        }
        Ok(count)
    })
}

/// An array of a copy of elements in memory: in C's order, `bytes` of them. Null with an error.
///
/// # Safety
/// `what` is a text with a zero behind it, and so many bytes are there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bdrun_array_copy(
    what: *const c_char,
    elements: *const u8,
    bytes: usize,
) -> *mut Array {
    guarded(std::ptr::null_mut(), || {
        // SAFETY: as is asked for.
        let what = unsafe { json(what)? };
        let shape = make::sizes(&what["shape"])?;
        let no_room = |error| Error::File { path: "memory for an array".into(), error };
        let mut block = Block::zeros(dtype(make::text(&what["dtype"])?)?, &shape)
            .map_err(|error| Raised::from(no_room(error)))?;
        let to = block.bytes_mut();
        if to.len() != bytes {
            return Err(wrong("another number of bytes").into());
        }
        if bytes > 0 {
            // SAFETY: so many are there, as is asked for, and the block's are others.
            unsafe { std::ptr::copy_nonoverlapping(elements, to.as_mut_ptr(), bytes) };
        }
        let origin = what["origin"].as_str().unwrap_or("Python").to_owned();
        Ok(Box::into_raw(Box::new(bdrun_array::from_origin(&origin, || Array::from_block(block)))))
    })
}

/// # Safety
/// It was made here, and is not used any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bdrun_array_free(array: *mut Array) {
    // SAFETY: as is asked for.
    drop(unsafe { Box::from_raw(array) });
}

/// What an array is, as JSON: shape, type, lengths of blocks. The text is this thread's until its next call.
///
/// # Safety
/// It was made here, and is not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bdrun_array_describe(array: *const Array) -> *const c_char {
    // SAFETY: as is asked for.
    let array = unsafe { &*array };
    let text = serde_json::json!({
        "shape": array.shape(),
        "dtype": array.dtype().name(),
        "chunks": array.chunks().lengths(),
    });
    thread_local! {
        static TEXT: std::cell::RefCell<CString> = std::cell::RefCell::default();
    }
    let text = CString::new(text.to_string()).unwrap_or_default();
    TEXT.with(|last| {
        *last.borrow_mut() = text;
        last.borrow().as_ptr()
    })
}

/// Where the elements of a result are, in C's order.
///
/// # Safety
/// It was made here, and is not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bdrun_block_elements(block: *mut Block) -> *mut c_void {
    // SAFETY: as is asked for.
    unsafe { (*block).bytes_mut().as_mut_ptr().cast() }
}

/// # Safety
/// It was made here, and is not used any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bdrun_block_free(block: *mut Block) {
    // SAFETY: as is asked for.
    drop(unsafe { Box::from_raw(block) });
}
