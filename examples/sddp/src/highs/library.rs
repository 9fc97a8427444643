//! `libhighs`, loaded when it is first needed: the functions of its C API (`interfaces/highs_c_api.h`) that
//! are used here, unchanged from version 1.5 on.

use std::ffi::{CStr, CString, c_char, c_void};
use std::sync::OnceLock;

use crate::error::{Error, Result};

/// `HighsInt`, as libraries are built unless told otherwise; checked when it is loaded.
pub type Int = i32;

/// Declares the table of functions, and how it is filled.
macro_rules! table {
    ($($name:ident: fn($($argument:ty),*) $(-> $result:ty)?;)*) => {
        /// Its functions.
        #[expect(non_snake_case, reason = "names of the C API")]
        pub struct Library {
            $(pub(super) $name: unsafe extern "C" fn($($argument),*) $(-> $result)?,)*
        }

        impl Library {
            /// # Safety
            /// `handle` is of a library whose functions of these names have these types.
            unsafe fn of(handle: *mut c_void) -> Result<Self, String> {
                let symbol = |name: &str| {
                    let text = CString::new(name).map_err(|error| error.to_string())?;
                    // SAFETY: `handle` is of `dlopen`, `text` ends in 0.
                    let address = unsafe { libc::dlsym(handle, text.as_ptr()) };
                    if address.is_null() { Err(format!("it has no {name}")) } else { Ok(address) }
                };
                Ok(Self {
                    $($name: {
                        let address = symbol(stringify!($name))?;
                        // SAFETY: the caller says that functions of these names have these types.
                        unsafe { std::mem::transmute::<*mut c_void, unsafe extern "C" fn($($argument),*) $(-> $result)?>(address) }
                    },)*
                })
            }
        }
    };
}

table! {
    Highs_create: fn() -> *mut c_void;
    Highs_destroy: fn(*mut c_void);
    Highs_version: fn() -> *const c_char;
    Highs_getSizeofHighsInt: fn(*const c_void) -> Int;
    Highs_setBoolOptionValue: fn(*mut c_void, *const c_char, Int) -> Int;
    Highs_setIntOptionValue: fn(*mut c_void, *const c_char, Int) -> Int;
    Highs_setDoubleOptionValue: fn(*mut c_void, *const c_char, f64) -> Int;
    Highs_setStringOptionValue: fn(*mut c_void, *const c_char, *const c_char) -> Int;
    Highs_passLp: fn(*mut c_void, Int, Int, Int, Int, Int, f64, *const f64, *const f64, *const f64, *const f64, *const f64, *const Int, *const Int, *const f64) -> Int;
    Highs_clearSolver: fn(*mut c_void) -> Int;
    Highs_setBasis: fn(*mut c_void, *const Int, *const Int) -> Int;
    Highs_getBasis: fn(*const c_void, *mut Int, *mut Int) -> Int;
    Highs_changeRowsBoundsByRange: fn(*mut c_void, Int, Int, *const f64, *const f64) -> Int;
    Highs_run: fn(*mut c_void) -> Int;
    Highs_getModelStatus: fn(*const c_void) -> Int;
    Highs_getObjectiveValue: fn(*const c_void) -> f64;
    Highs_getSolution: fn(*const c_void, *mut f64, *mut f64, *mut f64, *mut f64) -> Int;
}

impl Library {
    /// The library: that of `BDRUN_HIGHS` (a path), else `libhighs.so` or `libhighs.so.1` where the loader
    /// looks.
    ///
    /// # Errors
    /// If there is none, or it was built with integers of 64 bits.
    pub fn get() -> Result<&'static Self> {
        static LIBRARY: OnceLock<Result<Library, String>> = OnceLock::new();
        let loaded = LIBRARY.get_or_init(|| match std::env::var("BDRUN_HIGHS") {
            Ok(path) => Self::load(&path),
            Err(_) => {
                Self::load("libhighs.so").or_else(|first| Self::load("libhighs.so.1").map_err(|_| first))
            }
        });
        loaded.as_ref().map_err(|error| Error::Library(error.clone()))
    }

    /// Such as "1.15.1".
    pub fn version(&self) -> String {
        // SAFETY: the function takes nothing and returns text that stays.
        unsafe { CStr::from_ptr((self.Highs_version)()) }.to_string_lossy().into_owned()
    }

    fn load(path: &str) -> Result<Self, String> {
        let name = CString::new(path).map_err(|_| "a path with a zero in it".to_owned())?;
        // SAFETY: `name` ends in 0; the library's constructors do nothing but make its own statics. It is
        // never unloaded.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        if handle.is_null() {
            // SAFETY: `dlopen` failed on this thread just now, so there is a text, and it stays until the
            // next call.
            return Err(unsafe { CStr::from_ptr(libc::dlerror()) }.to_string_lossy().into_owned());
        }
        // SAFETY: the types are those of the header of every version that has the names, if integers have 32
        // bits.
        let library = unsafe { Self::of(handle) }.map_err(|error| format!("{path}: {error}"))?;
        // SAFETY: an instance is made, asked, and destroyed.
        let size = unsafe {
            let instance = (library.Highs_create)();
            let size = (library.Highs_getSizeofHighsInt)(instance);
            (library.Highs_destroy)(instance);
            size
        };
        if size as usize != size_of::<Int>() {
            return Err(format!("{path} was built with integers of {} bits, not 32", 8 * size));
        }
        Ok(library)
    }
}
