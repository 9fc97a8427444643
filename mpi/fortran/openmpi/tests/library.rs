//! `libmpi_mpifh.so.40` has what programs refer to, is loaded, and does for one what it should.

#[path = "../../common/tests/library/mod.rs"]
mod library;

use std::collections::BTreeSet;

use library::Library;

/// As Open MPI's `mpif.h` has it: numbers of handles, and where sentinels are.
fn ours() -> Library {
    let mut header = String::new();
    for line in include_str!("../../../openmpi/fortran.txt").lines().filter(|line| !line.starts_with('#')) {
        let (name, number) = line.split_once(' ').expect("two words");
        header.push_str(&format!("      integer, parameter :: {name}={number}\n"));
    }
    header.push_str(
        "      integer MPI_BOTTOM, MPI_IN_PLACE
      integer MPI_STATUS_IGNORE(MPI_STATUS_SIZE)
      integer MPI_STATUSES_IGNORE(MPI_STATUS_SIZE, 1)
      integer MPI_UNWEIGHTED(1), MPI_WEIGHTS_EMPTY(1)
      common /mpi_fortran_bottom/ MPI_BOTTOM
      common /mpi_fortran_in_place/ MPI_IN_PLACE
      common /mpi_fortran_status_ignore/ MPI_STATUS_IGNORE
      common /mpi_fortran_statuses_ignore/ MPI_STATUSES_IGNORE
      common /mpi_fortran_unweighted/ MPI_UNWEIGHTED
      common /mpi_fortran_weights_empty/ MPI_WEIGHTS_EMPTY
",
    );
    Library {
        fortran: ("libmpi_mpifh.so.40", "libmpi_mpifh.so"),
        c: ("libmpi.so.40", "libmpi_openmpi.so"),
        header,
        column: |constant| &constant.openmpi,
    }
}

/// The names of `exports.txt`.
fn wanted() -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    for line in include_str!("../exports.txt").lines().filter(|line| !line.starts_with('#')) {
        match line.split_once(' ') {
            Some((name, "*")) => {
                for name in [name.to_owned(), format!("P{name}")] {
                    let small = name.to_lowercase();
                    all.extend([format!("{small}_"), format!("{small}__"), small, name.to_uppercase()]);
                    all.extend([format!("{name}_f"), format!("{name}_f08")]);
                }
                all.insert(format!("o{name}_f").to_lowercase());
            }
            Some((name, "ranks")) => {
                for name in [name.to_owned(), format!("p{name}")] {
                    all.insert(format!("{name}_scalar_"));
                    all.extend((1..=15).map(|rank| format!("{name}_r{rank}_")));
                }
            }
            Some(_) => panic!("what is {line}?"),
            None => assert!(all.insert(line.into()), "{line} is there twice"),
        }
    }
    all
}

#[test]
fn all_that_programs_refer_to_is_there_and_nothing_else() {
    let wanted = wanted();
    assert!(wanted.len() > 5400, "{}", wanted.len());
    ours().exports(&wanted, &["mpi_", "pmpi_", "mpix_", "pmpix_", "ompi_", "ompix_"]);
}

#[test]
fn it_is_loaded_with_all_its_symbols() {
    ours().loads();
}

#[test]
fn a_program_in_fortran_gets_what_it_should() {
    ours().runs();
}
