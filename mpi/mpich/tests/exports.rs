//! What `libmpi.so.12` exports is what programs refer to, and can be loaded.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::path::PathBuf;
use std::process::Command;

/// Beside the test: cargo has built it before.
fn library() -> PathBuf {
    let mut path = std::env::current_exe().expect("own path");
    path.set_file_name("libmpich_face.so");
    assert!(path.exists(), "{} is not there", path.display());
    path
}

/// Names, and the sizes of data.
fn wanted() -> BTreeMap<String, Option<u64>> {
    let line = |line: &str| match line.split_once(' ') {
        Some((name, bytes)) => (name.to_owned(), Some(bytes.parse().expect("a number"))),
        None => (line.to_owned(), None),
    };
    include_str!("../exports.txt").lines().filter(|line| !line.starts_with('#')).map(line).collect()
}

#[test]
fn all_that_mpich_exports_is_there_and_nothing_else() {
    let Ok(output) = Command::new("nm").args(["-D", "-S", "--defined-only"]).arg(library()).output() else {
        return bdrun_skipped::skipped("gcc", "there is no nm");
    };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).expect("names are UTF-8");
    let found: BTreeMap<String, Option<u64>> = text
        .lines()
        .filter_map(|line| match line.split_whitespace().collect::<Vec<_>>()[..] {
            [_, _, "T", name] => Some((name.to_owned(), None)),
            [_, bytes, _, name] => Some((name.to_owned(), u64::from_str_radix(bytes, 16).ok())),
            _ => None,
        })
        .collect();
    let wanted = wanted();
    assert!(wanted.len() > 1400, "{}", wanted.len());
    let missing: Vec<_> = wanted.iter().filter(|(name, bytes)| found.get(*name) != Some(bytes)).collect();
    let others: Vec<_> = found.keys().filter(|name| !wanted.contains_key(*name)).collect();
    assert!(missing.is_empty() && others.is_empty(), "missing {missing:?}, too many {others:?}");
}

#[test]
fn it_is_loaded_with_all_its_symbols() {
    let path = CString::new(library().into_os_string().into_encoded_bytes()).expect("no zero");
    // SAFETY: a path that ends; the library has no constructors but one that notes its face.
    let library = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    assert!(!library.is_null());
    // SAFETY: a name that ends.
    let size = unsafe { libc::dlsym(library, c"MPI_Type_size".as_ptr()) };
    assert!(!size.is_null());
    // SAFETY: its type.
    let size: extern "C" fn(i32, *mut i32) -> i32 = unsafe { std::mem::transmute(size) };
    let mut bytes = 0;
    // MPI_DOUBLE
    assert_eq!((size(0x4c00_080b, &raw mut bytes), bytes), (0, 8));
}
