//! Generates the functions that programs call, and the conversions, from the table.

use std::error::Error;
use std::path::Path;

use bdrun_mpi_table::{Function, constants, convert, functions, rust};

fn main() -> Result<(), Box<dyn Error>> {
    // What the heap's C code calls is no part of the ABI, and must not be another library's (libsbmalloc.so).
    println!("cargo::rustc-cdylib-link-arg=-Wl,--exclude-libs,ALL");
    let to = std::env::var("OUT_DIR")?;
    // A handle is an int already: `fortran.rs`.
    let is_as_it_is =
        |function: &Function| function.name.ends_with("_toint") || function.name.ends_with("_fromint");
    let functions: Vec<Function> =
        functions()?.into_iter().filter(|function| !is_as_it_is(function)).collect();
    std::fs::write(Path::new(&to).join("functions.rs"), rust::functions(&functions))?;
    let conversions = convert::conversions(&constants()?, |constant| constant.mpich.as_ref());
    std::fs::write(Path::new(&to).join("convert.rs"), conversions)?;
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libmpi.so.12");
    Ok(())
}
