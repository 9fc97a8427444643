//! Programs in C, compiled with `mpi/include/mpi.h` and linked to the `libmpi_abi.so.1` that was built for
//! the test.

use std::error::Error;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

pub type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// The library that was built for this test.
pub fn library() -> Result<PathBuf> {
    let mut folder = std::env::current_exe()?;
    folder.pop();
    Ok(folder.join("libmpi_abi.so"))
}

/// An empty folder for a test.
pub fn folder(name: &str) -> Result<PathBuf> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder)?;
    Ok(folder)
}

/// Compiles a program in a folder, and runs it; what it says. None where there is no compiler.
pub fn run(folder: &Path, source: &Path, options: &[&str]) -> Result<Option<Output>> {
    let soname = folder.join("libmpi_abi.so.1");
    symlink(library()?, &soname)?;
    let program = folder.join("program");
    let compiled = Command::new("cc")
        .args(["-std=c11", "-O1"])
        .args(options)
        .arg("-I")
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("../include"))
        .arg(source)
        .arg(&soname)
        .arg("-o")
        .arg(&program)
        .output();
    let Ok(compiled) = compiled else {
        bdrun_skipped::skipped("gcc", "there is no cc");
        return Ok(None);
    };
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    let ran = Command::new(program).env("LD_LIBRARY_PATH", folder).env("LD_BIND_NOW", "1").output()?;
    Ok(Some(ran))
}
