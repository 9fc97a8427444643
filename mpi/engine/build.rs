//! Generates the traits of all calls from the table.

use std::error::Error;
use std::path::Path;

fn main() -> Result<(), Box<dyn Error>> {
    let to = std::env::var("OUT_DIR")?;
    std::fs::write(
        Path::new(&to).join("calls.rs"),
        bdrun_mpi_table::rust::calls(&bdrun_mpi_table::functions()?),
    )?;
    println!("cargo::rerun-if-changed=build.rs");
    Ok(())
}
