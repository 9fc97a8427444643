//! Generates the functions that programs call from the table.

use std::error::Error;
use std::path::Path;

fn main() -> Result<(), Box<dyn Error>> {
    // What the heap's C code calls is no part of the ABI, and must not be another library's (libsbmalloc.so).
    println!("cargo::rustc-cdylib-link-arg=-Wl,--exclude-libs,ALL");
    let to = std::env::var("OUT_DIR")?;
    let functions = bdrun_mpi_table::functions()?;
    std::fs::write(Path::new(&to).join("functions.rs"), bdrun_mpi_table::rust::functions(&functions))?;
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libmpi_abi.so.1");
    Ok(())
}
