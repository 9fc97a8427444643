//! Prints `mpi.h`. After a change of the tables:
//! `cargo run -p bdrun-mpi-table --example header > mpi/include/mpi.h`

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (functions, constants) = (bdrun_mpi_table::functions()?, bdrun_mpi_table::constants()?);
    print!("{}", bdrun_mpi_table::header::header(&functions, &constants));
    Ok(())
}
