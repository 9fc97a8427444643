//! The functions and handles of an MPI library that is loaded when the program runs: MPICH's, Open MPI's, or
//! the standard's ABI (MPI 5.0, chapter 20). Nothing of MPI is needed to build.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::mem::transmute_copy;

/// A status, of which only the library knows what is where; the largest of the three has 32 bytes.
#[repr(C, align(8))]
#[derive(Debug)]
pub struct Status([u8; 64]);

impl Status {
    /// Room for one.
    pub const fn new() -> Self {
        Self([0; 64])
    }
}

/// A handle: a number in MPICH's ABI, a pointer in the others.
pub trait Handle: Copy + 'static {}
impl Handle for c_int {}
impl Handle for *mut c_void {}

/// MPI_Init_thread.
type InitThread = unsafe extern "C" fn(*mut c_int, *mut *mut *mut c_char, c_int, *mut c_int) -> c_int;
/// MPI_Initialized, MPI_Finalized, MPI_Query_thread, MPI_Is_thread_main.
type Ask = unsafe extern "C" fn(*mut c_int) -> c_int;
/// MPI_Comm_rank, MPI_Comm_size.
type AskOf<H> = unsafe extern "C" fn(H, *mut c_int) -> c_int;
/// MPI_Comm_split.
type Split<H> = unsafe extern "C" fn(H, c_int, c_int, *mut H) -> c_int;
/// MPI_Comm_dup.
type Dup<H> = unsafe extern "C" fn(H, *mut H) -> c_int;
/// MPI_Bcast.
type Bcast<H> = unsafe extern "C" fn(*mut c_void, c_int, H, c_int, H) -> c_int;
/// MPI_Allgatherv.
type Allgatherv<H> =
    unsafe extern "C" fn(*const c_void, c_int, H, *mut c_void, *const c_int, *const c_int, H, H) -> c_int;
/// MPI_Alltoallv.
type Alltoallv<H> = unsafe extern "C" fn(
    *const c_void,
    *const c_int,
    *const c_int,
    H,
    *mut c_void,
    *const c_int,
    *const c_int,
    H,
    H,
) -> c_int;
/// MPI_Send.
type Send<H> = unsafe extern "C" fn(*const c_void, c_int, H, c_int, c_int, H) -> c_int;
/// MPI_Recv.
type Recv<H> = unsafe extern "C" fn(*mut c_void, c_int, H, c_int, c_int, H, *mut Status) -> c_int;

macro_rules! table {
    ($($field:ident: $name:literal, $type:ty;)*) => {
        /// A library: its functions, and those of its handles that are used here.
        #[derive(Debug)]
        pub struct Table<H: Handle> {
            pub world: H,
            pub byte: H,
            pub errors_return: H,
            /// MPI_THREAD_FUNNELED.
            pub funneled: c_int,
            $(pub $field: $type,)*
        }

        impl<H: Handle> Table<H> {
            /// With its functions.
            fn load(library: Library, handles: [H; 3], funneled: c_int) -> Result<Self, String> {
                let [world, byte, errors_return] = handles;
                Ok(Self {
                    world,
                    byte,
                    errors_return,
                    funneled,
                    $($field: {
                        let found = library.symbol($name).ok_or_else(|| {
                            format!("{} has no {}", library.file(), $name.to_string_lossy())
                        })?;
                        // SAFETY: the function of MPI that has this name, whose type is the standard's; `H`
                        // is what handles are in the library's ABI. A pointer to data and one to a function
                        // are alike (POSIX, dlsym).
                        unsafe { transmute_copy::<*mut c_void, $type>(&found) }
                    },)*
                })
            }
        }
    };
}

table! {
    init_thread: c"MPI_Init_thread", InitThread;
    initialized: c"MPI_Initialized", Ask;
    finalized: c"MPI_Finalized", Ask;
    query_thread: c"MPI_Query_thread", Ask;
    is_thread_main: c"MPI_Is_thread_main", Ask;
    finalize: c"MPI_Finalize", unsafe extern "C" fn() -> c_int;
    abort: c"MPI_Abort", unsafe extern "C" fn(H, c_int) -> c_int;
    comm_rank: c"MPI_Comm_rank", AskOf<H>;
    comm_size: c"MPI_Comm_size", AskOf<H>;
    comm_split: c"MPI_Comm_split", Split<H>;
    comm_dup: c"MPI_Comm_dup", Dup<H>;
    comm_free: c"MPI_Comm_free", unsafe extern "C" fn(*mut H) -> c_int;
    comm_set_errhandler: c"MPI_Comm_set_errhandler", unsafe extern "C" fn(H, H) -> c_int;
    barrier: c"MPI_Barrier", unsafe extern "C" fn(H) -> c_int;
    bcast: c"MPI_Bcast", Bcast<H>;
    allgatherv: c"MPI_Allgatherv", Allgatherv<H>;
    alltoallv: c"MPI_Alltoallv", Alltoallv<H>;
    send: c"MPI_Send", Send<H>;
    recv: c"MPI_Recv", Recv<H>;
    probe: c"MPI_Probe", unsafe extern "C" fn(c_int, c_int, H, *mut Status) -> c_int;
    get_count: c"MPI_Get_count", unsafe extern "C" fn(*const Status, H, *mut c_int) -> c_int;
    error_string: c"MPI_Error_string", unsafe extern "C" fn(c_int, *mut c_char, *mut c_int) -> c_int;
}

/// A library, of either kind of handles.
#[derive(Debug)]
pub enum AnyTable {
    /// MPICH's ABI.
    Numbers(Table<c_int>),
    /// Open MPI's, or the standard's.
    Pointers(Table<*mut c_void>),
}

/// Handles and constants of MPICH's ABI: MPI_COMM_WORLD, MPI_BYTE, MPI_ERRORS_RETURN, MPI_THREAD_FUNNELED.
const MPICH: ([c_int; 3], c_int) = ([0x4400_0000, 0x4c00_010d, 0x5400_0001], 1);
/// The same of the standard's.
const STANDARD: ([usize; 3], c_int) = ([257, 583, 323], 1024);
/// Those of Open MPI are addresses of these.
const OPEN_MPI: ([&CStr; 3], c_int) =
    ([c"ompi_mpi_comm_world", c"ompi_mpi_byte", c"ompi_mpi_errors_return"], 1);

/// The environment variable that names the library.
pub const LIBRARY: &str = "BDRUN_MPI_LIBRARY";

/// Libraries that may be the one whose launcher has started this process, likeliest first.
pub fn candidates(env: &dyn Fn(&str) -> Option<String>) -> Vec<String> {
    const OPEN_MPI: &[&str] = &["libmpi.so.40"];
    const MPICH: &[&str] = &["libmpi.so.12", "libmpich.so.12"];
    const STANDARD: &[&str] = &["libmpi_abi.so.1", "libmpi_abi.so.0"];
    if let Some(named) = env(LIBRARY) {
        return vec![named];
    }
    let order = if env("OMPI_COMM_WORLD_SIZE").is_some() {
        [OPEN_MPI, STANDARD, MPICH]
    } else if env("PMI_RANK").is_some() {
        [MPICH, STANDARD, OPEN_MPI]
    } else {
        [STANDARD, OPEN_MPI, MPICH]
    };
    order.concat().into_iter().map(str::to_owned).collect()
}

/// What is loaded and never unloaded.
#[derive(Debug, Clone, Copy)]
struct Library(*mut c_void);

impl Library {
    fn open(name: &str) -> Result<Self, String> {
        let name = CString::new(name).map_err(|error| error.to_string())?;
        // SAFETY: a name that ends. The library's initialisers run, as those of any that is linked. Its
        // symbols are for all: Open MPI's plugins look for them.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_GLOBAL) };
        if !handle.is_null() {
            return Ok(Self(handle));
        }
        // SAFETY: no preconditions; a text that ends, or null.
        let why = unsafe { libc::dlerror().as_ref().map(|text| CStr::from_ptr(text)) };
        Err(why.map_or_else(|| "it cannot be loaded".into(), |why| why.to_string_lossy().into_owned()))
    }

    fn symbol(self, name: &CStr) -> Option<*mut c_void> {
        // SAFETY: a library that is loaded, or the name for all that are; and a name that ends.
        let found = unsafe { libc::dlsym(self.0, name.as_ptr()) };
        (!found.is_null()).then_some(found)
    }

    /// The file that its `MPI_Init_thread` is in.
    fn file(self) -> String {
        let unknown = || "the MPI library".to_owned();
        let Some(function) = self.symbol(c"MPI_Init_thread") else { return unknown() };
        // SAFETY: pointers and nothing else, for which zeros are valid.
        let mut found: libc::Dl_info = unsafe { std::mem::zeroed() };
        // SAFETY: any address may be asked for; what it says of a library that stays loaded stays valid.
        unsafe {
            if libc::dladdr(function, &raw mut found) == 0 || found.dli_fname.is_null() {
                return unknown();
            }
            CStr::from_ptr(found.dli_fname).to_string_lossy().into_owned()
        }
    }
}

/// The library that the program is linked to, else the first of these that can be loaded.
pub fn load(candidates: &[String]) -> Result<(AnyTable, String), String> {
    let mut library = Library(libc::RTLD_DEFAULT);
    if library.symbol(c"MPI_Init_thread").is_none() {
        let mut failures = Vec::new();
        let mut opened = candidates.iter().map(|name| Library::open(name).map_err(|why| failures.push(why)));
        let Some(found) = opened.find_map(Result::ok) else {
            return Err(format!(
                "no MPI library can be loaded ({LIBRARY} names one): {}",
                failures.join("; ")
            ));
        };
        library = found;
    }
    let file = library.file();
    let objects = OPEN_MPI.0.map(|name| library.symbol(name));
    let name = file.rsplit('/').next().unwrap_or_default();
    let table = if name.starts_with("libmpi_abi") {
        let handles = STANDARD.0.map(std::ptr::without_provenance_mut);
        AnyTable::Pointers(Table::load(library, handles, STANDARD.1)?)
    } else if let [Some(world), Some(byte), Some(errors_return)] = objects {
        AnyTable::Pointers(Table::load(library, [world, byte, errors_return], OPEN_MPI.1)?)
    } else {
        AnyTable::Numbers(Table::load(library, MPICH.0, MPICH.1)?)
    };
    Ok((table, file))
}

#[cfg(test)]
mod tests {
    use super::*;
    use bdrun_mpi_table::Value;

    #[test]
    fn handles_are_those_of_the_tables_of_constants() {
        let constants = bdrun_mpi_table::constants().expect("well-formed");
        let names = ["MPI_COMM_WORLD", "MPI_BYTE", "MPI_ERRORS_RETURN", "MPI_THREAD_FUNNELED"];
        for (at, name) in names.into_iter().enumerate() {
            let constant = constants.iter().find(|constant| constant.name == name).expect("there");
            let number =
                |all: [i64; 3], last: c_int| Some(Value::Number([all[0], all[1], all[2], last.into()][at]));
            assert_eq!(constant.mpich, number(MPICH.0.map(i64::from), MPICH.1), "{name}");
            assert_eq!(
                constant.standard,
                number(STANDARD.0.map(|handle| handle as i64), STANDARD.1),
                "{name}"
            );
            let openmpi = match OPEN_MPI.0.get(at) {
                Some(object) => Value::Object(object.to_string_lossy().into_owned()),
                None => Value::Number(OPEN_MPI.1.into()),
            };
            assert_eq!(constant.openmpi, Some(openmpi), "{name}");
        }
    }

    #[test]
    fn the_launchers_own_library_comes_first_and_a_named_one_alone() {
        let order = |set: &[(&str, &str)]| {
            candidates(&|name| set.iter().find(|(is, _)| *is == name).map(|(_, value)| (*value).to_owned()))
        };
        assert_eq!(order(&[("OMPI_COMM_WORLD_SIZE", "2")])[0], "libmpi.so.40");
        assert_eq!(order(&[("PMI_RANK", "0")])[..2], ["libmpi.so.12", "libmpich.so.12"]);
        assert_eq!(order(&[])[0], "libmpi_abi.so.1");
        assert_eq!(order(&[("PMI_RANK", "0"), (LIBRARY, "/opt/libmpi.so")]), ["/opt/libmpi.so"]);
        for set in [&[][..], &[("PMI_RANK", "0")], &[("OMPI_COMM_WORLD_SIZE", "2")]] {
            let mut all = order(set);
            all.sort();
            assert_eq!(all.len(), 5, "each is tried");
            all.dedup();
            assert_eq!(all.len(), 5, "once");
        }
    }

    #[test]
    fn what_is_no_library_is_told() {
        let why = load(&["/nowhere/libmpi.so".into(), "libnothing.so.77".into()]).unwrap_err();
        assert!(why.contains("/nowhere/libmpi.so") && why.contains("libnothing.so.77"), "{why}");
        assert!(why.contains(LIBRARY));
    }
}
