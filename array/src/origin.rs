//! Where in the user's program an expression is.

use std::cell::RefCell;
use std::fmt;
use std::panic::Location;
use std::sync::Arc;

thread_local! {
    static OTHER: RefCell<Option<Arc<str>>> = const { RefCell::new(None) };
}

/// A file and line: of Rust, or of whatever language calls this crate.
#[derive(Clone, Debug)]
pub(crate) enum Origin {
    Rust(&'static Location<'static>),
    Other(Arc<str>),
}

impl Origin {
    pub(crate) fn of(caller: &'static Location<'static>) -> Self {
        let other = OTHER.with(|other| other.borrow().clone());
        other.map_or(Self::Rust(caller), Self::Other)
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rust(location) => write!(out, "{}:{}", location.file(), location.line()),
            Self::Other(text) => out.write_str(text),
        }
    }
}

/// Expressions that are made meanwhile, by this thread, come from there: for callers in other languages. What
/// goes wrong with one names it.
///
/// ```
/// use bdrun_array::{Array, DType, Settings, from_origin};
///
/// let x = from_origin("script.py:3", || Array::full(&[4], 2, DType::I64));
/// let x = from_origin("script.py:4", || Array::full(&[4], 2, DType::I64).power(-1))?;
/// # let _ = x;
/// # Ok::<(), bdrun_array::Error>(())
/// ```
pub fn from_origin<T>(origin: &str, work: impl FnOnce() -> T) -> T {
    struct Before(Option<Arc<str>>);
    impl Drop for Before {
        fn drop(&mut self) {
            let before = self.0.take();
            OTHER.with(|other| *other.borrow_mut() = before);
        }
    }
    let _before = Before(OTHER.with(|other| other.borrow_mut().replace(origin.into())));
    work()
}
