//! Prints the declarations of all functions: to compare them with another header, say.
//! `cargo run -p bdrun-mpi-table --example declarations -- MPI_`

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let prefix = std::env::args().nth(1).unwrap_or_else(|| "MPI_".into());
    print!("{}", bdrun_mpi_table::c::declarations(&bdrun_mpi_table::functions()?, &prefix));
    Ok(())
}
