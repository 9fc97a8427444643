//! `libhdf5`, loaded when it is first needed: the functions of its C API that are used here, unchanged from
//! version 1.10.5 on. Nothing is needed to build this crate, and nothing where no such file is opened.

use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use super::object::Group;

/// `hid_t`: something of the library's, negative if it is not there.
pub(super) type Id = i64;

/// What is told of each chunk: its first element, its filters, where it lies, how long it is there.
pub(super) type Told = unsafe extern "C" fn(*const u64, c_uint, u64, u64, *mut c_void) -> c_int;

/// What is called for each attribute: of what, its name, what it is, what was given.
pub(super) type Said = unsafe extern "C" fn(Id, *const c_char, *const c_void, *mut c_void) -> c_int;

/// `H5Dchunk_iter`, which tells of all chunks of a dataset, each once.
pub(super) type Visit = unsafe extern "C" fn(Id, Id, Told, *mut c_void) -> c_int;

/// Declares the table of functions and of variables, and how it is filled.
macro_rules! table {
    (functions { $($name:ident: fn($($argument:ty),*) -> $result:ty;)* } variables { $($variable:ident)* }) => {
        /// Its functions, and ids that are variables of it.
        #[expect(non_snake_case, reason = "names of the C API")]
        pub(super) struct Library {
            $(pub(super) $name: unsafe extern "C" fn($($argument),*) -> $result,)*
            $(pub(super) $variable: Id,)*
            /// Of newer versions; see [`Visit`].
            pub(super) H5Dchunk_iter: Option<Visit>,
        }

        impl Library {
            /// # Safety
            /// `handle` is of a library whose functions of these names have these types.
            unsafe fn of(handle: *mut c_void) -> Result<Self, String> {
                let symbol = |name: &str| {
                    let text = CString::new(name).map_err(|error| error.to_string())?;
                    // SAFETY: `handle` is of `dlopen`, `text` ends in 0.
                    let address = unsafe { libc::dlsym(handle, text.as_ptr()) };
                    if address.is_null() { Err(format!("it has no {name}: is it older than 1.10.5?")) } else { Ok(address) }
                };
                type Plain = unsafe extern "C" fn() -> c_int;
                let [stay, open] = [symbol("H5dont_atexit")?, symbol("H5open")?];
                // SAFETY: the caller says what their types are. Whatever is open is closed here, and what the
                // library does at the end of a process does not always end. `H5open` makes the variables.
                let code = unsafe {
                    std::mem::transmute::<*mut c_void, Plain>(stay)();
                    std::mem::transmute::<*mut c_void, Plain>(open)()
                };
                if code < 0 {
                    return Err("H5open failed".into());
                }
                Ok(Self {
                    $($name: {
                        let address = symbol(stringify!($name))?;
                        // SAFETY: the caller says that functions of these names have these types.
                        unsafe {
                            std::mem::transmute::<*mut c_void, unsafe extern "C" fn($($argument),*) -> $result>(address)
                        }
                    },)*
                    $($variable: {
                        let address = symbol(stringify!($variable))?;
                        // SAFETY: it is an id, which `H5open` has set, and which does not change.
                        unsafe { address.cast::<Id>().read() }
                    },)*
                    H5Dchunk_iter: {
                        // SAFETY: the caller says that functions of these names have these types.
                        let visit = |address| unsafe { std::mem::transmute::<*mut c_void, Visit>(address) };
                        symbol("H5Dchunk_iter").ok().map(visit)
                    },
                })
            }
        }
    };
}

table! {
    functions {
    H5get_libversion: fn(*mut c_uint, *mut c_uint, *mut c_uint) -> c_int;
    H5garbage_collect: fn() -> c_int;
    H5Aiterate2: fn(Id, c_int, c_int, *mut u64, Said, *mut c_void) -> c_int;
    H5Eset_auto2: fn(Id, *const c_void, *mut c_void) -> c_int;
    H5Fopen: fn(*const c_char, c_uint, Id) -> Id;
    H5Fcreate: fn(*const c_char, c_uint, Id, Id) -> Id;
    H5Fclose: fn(Id) -> c_int;
    H5Fget_vfd_handle: fn(Id, Id, *mut *mut c_void) -> c_int;
    H5Fget_create_plist: fn(Id) -> Id;
    H5Fget_name: fn(Id, *mut c_char, usize) -> isize;
    H5Gget_info: fn(Id, *mut Group) -> c_int;
    H5Iget_file_id: fn(Id) -> Id;
    H5Iget_name: fn(Id, *mut c_char, usize) -> isize;
    H5Pget_userblock: fn(Id, *mut u64) -> c_int;
    H5Dopen2: fn(Id, *const c_char, Id) -> Id;
    H5Dcreate2: fn(Id, *const c_char, Id, Id, Id, Id, Id) -> Id;
    H5Dclose: fn(Id) -> c_int;
    H5Dget_space: fn(Id) -> Id;
    H5Dget_type: fn(Id) -> Id;
    H5Dget_create_plist: fn(Id) -> Id;
    H5Dget_offset: fn(Id) -> u64;
    H5Dget_chunk_info_by_coord: fn(Id, *const u64, *mut c_uint, *mut u64, *mut u64) -> c_int;
    H5Dread: fn(Id, Id, Id, Id, Id, *mut c_void) -> c_int;
    H5Screate: fn(c_int) -> Id;
    H5Screate_simple: fn(c_int, *const u64, *const u64) -> Id;
    H5Sget_simple_extent_type: fn(Id) -> c_int;
    H5Sget_simple_extent_ndims: fn(Id) -> c_int;
    H5Sget_simple_extent_dims: fn(Id, *mut u64, *mut u64) -> c_int;
    H5Sselect_hyperslab: fn(Id, c_int, *const u64, *const u64, *const u64, *const u64) -> c_int;
    H5Sclose: fn(Id) -> c_int;
    H5Tget_class: fn(Id) -> c_int;
    H5Tget_size: fn(Id) -> usize;
    H5Tget_sign: fn(Id) -> c_int;
    H5Tequal: fn(Id, Id) -> c_int;
    H5Tcreate: fn(c_int, usize) -> Id;
    H5Tinsert: fn(Id, *const c_char, usize, Id) -> c_int;
    H5Tenum_create: fn(Id) -> Id;
    H5Tenum_insert: fn(Id, *const c_char, *const c_void) -> c_int;
    H5Tclose: fn(Id) -> c_int;
    H5Pcreate: fn(Id) -> Id;
    H5Pget_layout: fn(Id) -> c_int;
    H5Pget_external_count: fn(Id) -> c_int;
    H5Pget_external: fn(Id, c_uint, usize, *mut c_char, *mut libc::off_t, *mut u64) -> c_int;
    H5Pget_virtual_count: fn(Id, *mut usize) -> c_int;
    H5Pget_virtual_filename: fn(Id, usize, *mut c_char, usize) -> isize;
    H5Pget_virtual_dsetname: fn(Id, usize, *mut c_char, usize) -> isize;
    H5Pget_chunk: fn(Id, c_int, *mut u64) -> c_int;
    H5Pset_chunk: fn(Id, c_int, *const u64) -> c_int;
    H5Pget_nfilters: fn(Id) -> c_int;
    H5Pget_fill_value: fn(Id, Id, *mut c_void) -> c_int;
    H5Pfill_value_defined: fn(Id, *mut c_int) -> c_int;
    H5Pget_fill_time: fn(Id, *mut c_int) -> c_int;
    H5Pset_chunk_cache: fn(Id, usize, usize, f64) -> c_int;
    H5Pset_alloc_time: fn(Id, c_int) -> c_int;
    H5Pset_fill_time: fn(Id, c_int) -> c_int;
    H5Pclose: fn(Id) -> c_int;
    }
    variables {
        H5T_NATIVE_INT8_g H5T_NATIVE_INT32_g H5T_NATIVE_INT64_g H5T_NATIVE_FLOAT_g H5T_NATIVE_DOUBLE_g
        H5P_CLS_DATASET_CREATE_ID_g H5P_CLS_DATASET_ACCESS_ID_g
    }
}

/// The library, one call at a time: it may have been built without locks of its own.
pub(super) struct Locked {
    pub(super) library: Library,
    lock: Mutex<()>,
}

impl Locked {
    /// Nobody else calls it meanwhile.
    pub(super) fn enter(&self) -> MutexGuard<'_, ()> {
        let guard = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: the default stack of errors, which some builds have for each thread: errors are returned,
        // and not printed.
        unsafe { (self.library.H5Eset_auto2)(0, std::ptr::null(), std::ptr::null_mut()) };
        guard
    }
}

/// As which others install it: that of programs, if there is one, and those of versions, the newest first.
/// Debian and those that come of it have one for MPI too, and call this one serial.
fn names() -> Vec<String> {
    let numbers = ["", ".320", ".310", ".200", ".103"];
    let both = |number: &str| ["libhdf5", "libhdf5_serial"].map(|name| format!("{name}.so{number}"));
    numbers.into_iter().flat_map(both).collect()
}

/// The library: that of `BDRUN_HDF5` (a path), else one of those that Debian and others install.
pub(super) fn get() -> Result<&'static Locked, String> {
    static LIBRARY: OnceLock<Result<Locked, String>> = OnceLock::new();
    let loaded = LIBRARY.get_or_init(|| match std::env::var("BDRUN_HDF5") {
        Ok(path) => load(&path),
        Err(_) => {
            let names = names();
            let first = load(&names[0]);
            names[1..].iter().fold(first, |found, name| found.or_else(|first| load(name).map_err(|_| first)))
        }
    });
    loaded.as_ref().map_err(|error| {
        format!(
            "libhdf5 cannot be loaded ({error}); install it (Debian: libhdf5-310, or libhdf5-103-1 before \
             version 13), or name it in BDRUN_HDF5"
        )
    })
}

fn load(path: &str) -> Result<Locked, String> {
    let name = CString::new(path).map_err(|_| "a path with a zero in it".to_owned())?;
    // SAFETY: `name` ends in 0; the library's constructors do nothing but make its own statics. It is never
    // unloaded.
    let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    if handle.is_null() {
        // SAFETY: `dlopen` failed on this thread just now, so there is a text, and it stays until the next
        // call.
        return Err(unsafe { CStr::from_ptr(libc::dlerror()) }.to_string_lossy().into_owned());
    }
    // SAFETY: the types are those of the headers from 1.10 on, which is asked for below before any is used
    // but `H5open`, whose type never changed.
    let mut library = unsafe { Library::of(handle) }.map_err(|error| format!("{path}: {error}"))?;
    let (mut major, mut minor, mut release) = (0, 0, 0);
    // SAFETY: it writes three numbers.
    unsafe { (library.H5get_libversion)(&raw mut major, &raw mut minor, &raw mut release) };
    // Ids had 32 bits before 1.10.
    if (major, minor, release) < (1, 10, 5) {
        return Err(format!("{path} is of version {major}.{minor}.{release}, and 1.10.5 is needed"));
    }
    // Before (1.13) it told of chunks in other units.
    let tells = match (major, minor) {
        (1, 10) => release >= 10,
        (1, 12) => release >= 3,
        version => version >= (1, 14),
    };
    if !tells {
        library.H5Dchunk_iter = None;
    }
    Ok(Locked { library, lock: Mutex::new(()) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_installed_has_one_of_the_names() {
        let names = names();
        // Debian 12 and 13, Fedora, Conda, h5py's own version.
        for name in ["libhdf5_serial.so.103", "libhdf5_serial.so.310", "libhdf5.so.200", "libhdf5.so.103"] {
            assert!(names.iter().any(|one| one == name), "{name}");
        }
        for name in
            ["libhdf5.so", "libhdf5_serial.so", "libhdf5.so.310", "libhdf5.so.320", "libhdf5_serial.so.320"]
        {
            assert!(names.iter().any(|one| one == name), "{name}");
        }
    }
}
