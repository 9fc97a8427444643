//! What `libmpi.so.40` exports is what programs refer to, and can be loaded.

mod library;

use std::collections::HashMap;
use std::ffi::{CStr, CString};
use std::process::Command;

/// Names, and the sizes of data (`exports.txt`).
fn wanted() -> Vec<(&'static str, Option<u64>)> {
    include_str!("../exports.txt")
        .lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| match line.split_once(' ') {
            Some((name, bytes)) => (name, Some(bytes.parse().expect("a number"))),
            None => (line, None),
        })
        .collect()
}

/// Exported names, the sizes of what they name, and which letter `nm` has for it.
fn exported() -> Option<HashMap<String, (u64, String)>> {
    let output =
        Command::new("nm").args(["-D", "-S", "--defined-only"]).arg(library::path()).output().ok()?;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).expect("names are UTF-8");
    let symbols = text.lines().filter_map(|line| match line.split_whitespace().collect::<Vec<_>>()[..] {
        [_, bytes, letter, name] => {
            Some((name.to_owned(), (u64::from_str_radix(bytes, 16).ok()?, letter.to_owned())))
        }
        _ => None,
    });
    Some(symbols.collect())
}

#[test]
fn all_that_programs_refer_to_is_there_in_its_size() {
    let wanted = wanted();
    assert!(wanted.len() > 1200, "{}", wanted.len());
    let Some(exported) = exported() else {
        // Without nm: only that they are there.
        let library = open();
        let missing: Vec<&str> =
            wanted.iter().map(|(name, _)| *name).filter(|name| find(library, name).is_none()).collect();
        assert_eq!(missing, [""; 0]);
        return;
    };
    let wrong: Vec<String> = wanted
        .iter()
        .filter_map(|&(name, bytes)| match (exported.get(name), bytes) {
            (None, _) => Some(format!("{name} is not there")),
            // An executable has room for a copy of so many bytes, which are written if its functions are.
            (Some((is, letter)), Some(bytes)) if *is != bytes || !["B", "D"].contains(&letter.as_str()) => {
                Some(format!("{name} has {is} bytes ({letter}) instead of {bytes}"))
            }
            (Some((_, letter)), None) if letter != "T" => Some(format!("{name} is no function: {letter}")),
            _ => None,
        })
        .collect();
    assert_eq!(wrong, [""; 0]);
}

/// What `libmpi_cxx.so.40` refers to beside the ABI.
const OF_CXX: [&str; 7] = [
    "ompi_attr_create_keyval",
    "ompi_errcode_intern_lastused",
    "ompi_errcodes_intern",
    "ompi_errhandler_create",
    "ompi_errhandler_invoke",
    "ompi_op_set_cxx_callback",
    "ompi_registered_datareps",
];

#[test]
fn nothing_is_exported_but_the_abi() {
    let Some(exported) = exported() else { return bdrun_skipped::skipped("gcc", "there is no nm") };
    let is_ours = |name: &str| {
        ["MPI_", "PMPI_", "MPIX_", "OMPI_C_MPI_", "ompi_mpi_", "ompi_message_", "ompi_request_"]
            .iter()
            .any(|start| name.starts_with(start))
            || OF_CXX.contains(&name)
    };
    let others: Vec<&String> = exported.keys().filter(|name| !is_ours(name)).collect();
    assert!(others.is_empty(), "{others:?}");
}

fn open() -> *mut libc::c_void {
    let path = CString::new(library::path().into_os_string().into_encoded_bytes()).expect("no zero");
    // SAFETY: a path that ends; the library has no constructors but those of Rust's runtime.
    let library = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    assert!(!library.is_null(), "{:?}", {
        // SAFETY: dlopen has failed, so there is a text.
        unsafe { CStr::from_ptr(libc::dlerror()) }
    });
    library
}

fn find(library: *mut libc::c_void, name: &str) -> Option<*mut libc::c_void> {
    let name = CString::new(name).expect("no zero");
    // SAFETY: a library that is open, and a name that ends.
    let at = unsafe { libc::dlsym(library, name.as_ptr()) };
    (!at.is_null()).then_some(at)
}

#[test]
fn it_is_loaded_with_all_its_symbols() {
    let library = open();
    let world = find(library, "ompi_mpi_comm_world").expect("there").cast::<u64>();
    // SAFETY: it has 512 bytes.
    assert_eq!(unsafe { world.read() }, 0x101);
    let function = find(library, "MPI_Comm_f2c").expect("there");
    // SAFETY: its type.
    let function: extern "C" fn(libc::c_int) -> *mut u64 = unsafe { std::mem::transmute(function) };
    assert_eq!(function(0), world);
}

/// The function with a name, as what the caller says it is.
fn function<F: Copy>(library: *mut libc::c_void, name: &str) -> F {
    let at = find(library, name).expect("there");
    assert_eq!(size_of::<F>(), size_of_val(&at));
    // SAFETY: the caller's: the type is that of the function.
    unsafe { std::mem::transmute_copy(&at) }
}

/// As `libmpi_cxx.so.40` does it: its own function in C gets the program's in C++.
#[test]
fn functions_in_cxx_are_called_by_the_library_s_own_in_c() {
    use libc::{c_char, c_int, c_void};
    use std::ptr::null_mut;
    use std::sync::atomic::{AtomicI32, Ordering::Relaxed};
    static TOLD: AtomicI32 = AtomicI32::new(0);

    unsafe extern "C" fn operation(
        from: *const c_int,
        into: *mut c_int,
        count: *const c_int,
        _: *const c_void,
        of_program: extern "C" fn(c_int) -> c_int,
    ) {
        // SAFETY: as many ints as it says, and the function that was given.
        unsafe {
            for nth in 0..*count as usize {
                *into.add(nth) += of_program(*from.add(nth));
            }
        }
    }
    extern "C" fn of_program(number: c_int) -> c_int {
        number * 10
    }
    unsafe extern "C" fn dispatch(
        _: *mut c_void,
        code: *mut c_int,
        _: *const c_char,
        of_program: extern "C" fn(c_int) -> c_int,
    ) {
        // SAFETY: the engine's.
        TOLD.store(of_program(unsafe { *code }), Relaxed);
    }

    type Call1 = unsafe extern "C" fn(*mut c_void) -> c_int;
    type Call2 = unsafe extern "C" fn(*mut c_void, *mut c_void) -> c_int;
    let library = open();
    let world = find(library, "ompi_mpi_comm_world").expect("there");
    // SAFETY: all have the types of these functions, and what is given lives on.
    unsafe {
        assert_eq!(function::<Call2>(library, "MPI_Init")(null_mut(), null_mut()), 0);

        let mut op = null_mut::<c_void>();
        type Create = unsafe extern "C" fn(*mut c_void, c_int, *mut *mut c_void) -> c_int;
        assert_eq!(function::<Create>(library, "MPI_Op_create")(operation as *mut c_void, 1, &raw mut op), 0);
        function::<unsafe extern "C" fn(*mut c_void, *mut c_void)>(library, "ompi_op_set_cxx_callback")(
            op,
            of_program as *mut c_void,
        );
        let (from, mut into) = ([1, 2, 3], [4, 5, 6]);
        type Reduce =
            unsafe extern "C" fn(*const c_int, *mut c_int, c_int, *mut c_void, *mut c_void) -> c_int;
        let int = find(library, "ompi_mpi_int").expect("there");
        let reduce: Reduce = function(library, "MPI_Reduce_local");
        assert_eq!(reduce(from.as_ptr(), into.as_mut_ptr(), 3, int, op), 0);
        assert_eq!(into, [14, 25, 36]);

        type Make = unsafe extern "C" fn(c_int, *mut c_void, c_int) -> *mut *mut c_void;
        let handler = function::<Make>(library, "ompi_errhandler_create")(1, of_program as *mut c_void, 1);
        // Where the library writes it.
        *handler.add(15) = dispatch as *mut c_void;
        assert_eq!(function::<Call2>(library, "MPI_Comm_set_errhandler")(world, handler.cast()), 0);
        let rank = function::<unsafe extern "C" fn(*mut c_void, c_int) -> c_int>(
            library,
            "MPI_Comm_call_errhandler",
        );
        // MPI_ERR_RANK
        assert_eq!((rank(world, 6), TOLD.load(Relaxed)), (0, 60));
        type Invoke = unsafe extern "C" fn(*mut c_void, *mut c_void, c_int, c_int, *const c_char) -> c_int;
        let invoke: Invoke = function(library, "ompi_errhandler_invoke");
        // MPI_ERR_TAG
        assert_eq!(invoke(null_mut(), world, 1, 4, c"said".as_ptr()), 4);
        assert_eq!(TOLD.load(Relaxed), 40);

        type Key = unsafe extern "C" fn(
            c_int,
            *mut c_void,
            *mut c_void,
            *mut c_int,
            *mut c_void,
            c_int,
            *mut c_void,
        ) -> c_int;
        let create: Key = function(library, "ompi_attr_create_keyval");
        let nothing = find(library, "OMPI_C_MPI_NULL_DELETE_FN").expect("there");
        let none = find(library, "OMPI_C_MPI_NULL_COPY_FN").expect("there");
        let mut key = -1;
        assert_eq!(create(1, none, nothing, &raw mut key, null_mut(), 0, null_mut()), 0);
        type Set = unsafe extern "C" fn(*mut c_void, c_int, *mut c_void) -> c_int;
        assert_eq!(function::<Set>(library, "MPI_Comm_set_attr")(world, key, null_mut()), 0);
        assert_eq!(function::<Call1>(library, "MPI_Barrier")(world), 0);

        // An empty list: its end is its own neighbour.
        let list = find(library, "ompi_registered_datareps").expect("there").cast::<*const c_void>();
        assert_eq!([*list.add(4), *list.add(5)], [list.add(2).cast_const().cast(); 2]);
    }
}
