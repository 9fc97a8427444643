//! The library of the MPI that is there, loaded when it is needed.
//!
//! Libraries differ in their binary interface. Of the three that there are it needs these:
//!
//! | | MPICH's (`libmpi.so.12`, `libmpich.so.12`) | Open MPI's (`libmpi.so.40`) | the standard's (`libmpi_abi.so`) |
//! |---|---|---|---|
//! | handles | numbers | addresses of exported objects | small numbers in pointers |
//! | `MPI_COMM_WORLD`, `MPI_BYTE` | 0x44000000, 0x4c00010d | `ompi_mpi_comm_world`, `ompi_mpi_byte` | 0x101, 0x247 |
//! | `MPI_ANY_SOURCE`, `MPI_ANY_TAG` | −2, −1 | −1, −1 | −1, −2 |
//! | source in a status | word 2 | word 0 | word 0 |
//! | `MPI_ERRORS_RETURN` | 0x54000001 | `ompi_mpi_errors_return` | 0x143 |

use std::ffi::{CStr, CString, c_int, c_void};

use crate::nodes::transport::{Result, TransportError};

/// A handle of any of the interfaces: a pointer, of which those with numbers take the lower half.
pub(super) type Handle = *mut c_void;
/// Long enough for a status of any of them.
pub(super) type Status = [c_int; 16];

type InitThread = unsafe extern "C" fn(*mut c_int, *mut c_void, c_int, *mut c_int) -> c_int;
type Finalize = unsafe extern "C" fn() -> c_int;
type Ask = unsafe extern "C" fn(Handle, *mut c_int) -> c_int;
type Isend = unsafe extern "C" fn(*const c_void, c_int, Handle, c_int, c_int, Handle, *mut Handle) -> c_int;
type Irecv = unsafe extern "C" fn(*mut c_void, c_int, Handle, c_int, c_int, Handle, *mut Handle) -> c_int;
type Test = unsafe extern "C" fn(*mut Handle, *mut c_int, *mut Status) -> c_int;
type Improbe = unsafe extern "C" fn(c_int, c_int, Handle, *mut c_int, *mut Handle, *mut Status) -> c_int;
type Imrecv = unsafe extern "C" fn(*mut c_void, c_int, Handle, *mut Handle, *mut Handle) -> c_int;
type SetErrhandler = unsafe extern "C" fn(Handle, Handle) -> c_int;
type AbiVersion = unsafe extern "C" fn(*mut c_int, *mut c_int) -> c_int;
type GetCount = unsafe extern "C" fn(*const Status, Handle, *mut c_int) -> c_int;

pub(super) struct Functions {
    pub init_thread: InitThread,
    pub finalize: Finalize,
    pub comm_rank: Ask,
    pub comm_size: Ask,
    pub isend: Isend,
    pub irecv: Irecv,
    pub test: Test,
    pub improbe: Improbe,
    pub imrecv: Imrecv,
    pub set_errhandler: SetErrhandler,
    pub get_count: GetCount,
}

/// An interface.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Abi {
    Mpich,
    OpenMpi,
    Standard,
}

impl Abi {
    /// That of a library which says that it is of this version of the standard's interface, or has Open MPI's
    /// objects. From MPICH 4.3 on both of its libraries can say that; that of its own interface says -1.
    fn of(standard: Option<c_int>, has_objects: bool) -> Self {
        match standard {
            Some(1..) => Self::Standard,
            _ if has_objects => Self::OpenMpi,
            _ => Self::Mpich,
        }
    }

    /// `MPI_THREAD_FUNNELED` (the standard's: MPI 5.0, appendix A.1).
    pub fn funneled(self) -> c_int {
        if self == Self::Standard { 1024 } else { 1 }
    }
}

/// Where libraries are looked for, with their interface.
const LIBRARIES: [(&str, Abi); 5] = [
    ("libmpi.so.40", Abi::OpenMpi),
    ("libmpi.so.12", Abi::Mpich),
    ("libmpich.so.12", Abi::Mpich),
    ("libmpi_abi.so.0", Abi::Standard),
    ("libmpi_abi.so.1", Abi::Standard),
];

/// A library that was loaded.
pub(super) struct Library {
    pub functions: Functions,
    pub abi: Abi,
    pub world: Handle,
    pub byte: Handle,
    pub errors_return: Handle,
    pub name: String,
}

pub(super) fn error(text: String) -> TransportError {
    TransportError::Broken(text)
}

fn last_error() -> String {
    // SAFETY: a text that lasts until the next call, or none.
    unsafe {
        let text = libc::dlerror();
        if text.is_null() { String::new() } else { CStr::from_ptr(text).to_string_lossy().into_owned() }
    }
}

impl Library {
    /// The first of these that can be loaded.
    pub fn load(wanted: Option<&str>, abis: &[Abi]) -> Result<Self> {
        let mut tried = vec![];
        let by_interface = |abi: &Abi| {
            let is_of = |known: &&(&str, Abi)| known.1 == *abi;
            LIBRARIES.iter().filter(is_of).map(|known| known.0.to_owned()).collect::<Vec<_>>()
        };
        let names: Vec<String> = match wanted {
            Some(path) => vec![path.to_owned()],
            None => abis.iter().flat_map(by_interface).collect(),
        };
        for name in names {
            let path = CString::new(name.as_str()).map_err(|_| error(format!("{name:?} is no library")))?;
            // SAFETY: an MPI's library, whose constructors are as safe as those of any; loaded for all, as
            // its parts look for each other's symbols.
            let library = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_GLOBAL) };
            if library.is_null() {
                tried.push(last_error());
                continue;
            }
            match Self::of(library, &name) {
                Some(found) => return Ok(found),
                None => tried.push(format!("{name} lacks functions of MPI-3")),
            }
        }
        let tried = tried.join("; ");
        Err(error(format!("no MPI library could be loaded ({tried}): name it with BDRUN_MPI_LIBRARY=PATH")))
    }

    fn of(library: *mut c_void, name: &str) -> Option<Self> {
        let find = |symbol: &CStr| {
            // SAFETY: of a library that stays loaded.
            let found = unsafe { libc::dlsym(library, symbol.as_ptr()) };
            (!found.is_null()).then_some(found)
        };
        macro_rules! function {
            ($name:literal, $type:ty) => {
                // SAFETY: MPI's functions of these names have these types, but for handles: numbers in lower
                // halves of registers, which those that expect numbers do not look beyond.
                unsafe { std::mem::transmute::<*mut c_void, $type>(find($name)?) }
            };
        }
        let functions = Functions {
            init_thread: function!(c"MPI_Init_thread", InitThread),
            finalize: function!(c"MPI_Finalize", Finalize),
            comm_rank: function!(c"MPI_Comm_rank", Ask),
            comm_size: function!(c"MPI_Comm_size", Ask),
            isend: function!(c"MPI_Isend", Isend),
            irecv: function!(c"MPI_Irecv", Irecv),
            test: function!(c"MPI_Test", Test),
            improbe: function!(c"MPI_Improbe", Improbe),
            imrecv: function!(c"MPI_Imrecv", Imrecv),
            set_errhandler: function!(c"MPI_Comm_set_errhandler", SetErrhandler),
            get_count: function!(c"MPI_Get_count", GetCount),
        };
        let standard = || -> Option<c_int> {
            let version = function!(c"MPI_Abi_get_version", AbiVersion);
            let (mut major, mut minor) = (0, 0);
            // SAFETY: may be called before `MPI_Init`; two numbers to write to.
            let code = unsafe { version(&raw mut major, &raw mut minor) };
            (code == 0).then_some(major)
        };
        let abi = Abi::of(standard(), find(c"ompi_mpi_comm_world").is_some());
        let (world, byte, errors_return) = match abi {
            Abi::Standard => (0x101 as Handle, 0x247 as Handle, 0x143 as Handle),
            Abi::OpenMpi => {
                (find(c"ompi_mpi_comm_world")?, find(c"ompi_mpi_byte")?, find(c"ompi_mpi_errors_return")?)
            }
            Abi::Mpich => (0x4400_0000 as Handle, 0x4c00_010d as Handle, 0x5400_0001 as Handle),
        };
        Some(Self { functions, abi, world, byte, errors_return, name: name.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_is_of_the_interface_that_it_says() {
        assert_eq!(Abi::of(None, true), Abi::OpenMpi);
        assert_eq!(Abi::of(None, false), Abi::Mpich);
        assert_eq!(Abi::of(Some(-1), false), Abi::Mpich, "4.3 and later, its own interface");
        assert_eq!(Abi::of(Some(1), false), Abi::Standard);
        assert_eq!(Abi::of(Some(1), true), Abi::Standard, "Open MPI's, which is linked to the other");
        assert_eq!(Abi::of(Some(-1), true), Abi::OpenMpi);
    }
}
