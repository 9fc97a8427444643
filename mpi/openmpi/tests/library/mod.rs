//! Where the library is.

use std::path::PathBuf;

/// Beside the test: cargo has built it before.
pub fn path() -> PathBuf {
    let mut path = std::env::current_exe().expect("own path");
    path.set_file_name("libmpi_openmpi.so");
    assert!(path.exists(), "{} is not there", path.display());
    path
}
