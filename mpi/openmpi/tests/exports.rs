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
