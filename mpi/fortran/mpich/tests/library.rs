//! `libmpifort.so.12` has what programs refer to, is loaded, and does for one what it should.

#[path = "../../common/tests/library/mod.rs"]
mod library;

use std::collections::BTreeSet;

use library::Library;

/// Keys that C has other numbers for.
const KEYS: [&str; 12] = [
    "MPI_TAG_UB",
    "MPI_HOST",
    "MPI_IO",
    "MPI_WTIME_IS_GLOBAL",
    "MPI_UNIVERSE_SIZE",
    "MPI_LASTUSEDCODE",
    "MPI_APPNUM",
    "MPI_WIN_BASE",
    "MPI_WIN_SIZE",
    "MPI_WIN_DISP_UNIT",
    "MPI_WIN_CREATE_FLAVOR",
    "MPI_WIN_MODEL",
];

/// As MPICH's `mpif.h` has it: numbers of keys, which are those from there on by two, and where sentinels
/// are.
fn ours() -> Library {
    let mut header = String::new();
    for (nth, name) in KEYS.iter().enumerate() {
        let number = match nth {
            0..7 => 1_681_915_906 + 2 * nth,
            _ => 1_711_276_034 + 2 * (nth - 7),
        };
        header.push_str(&format!("      integer, parameter :: {name}={number}\n"));
    }
    header.push_str(
        "      integer, parameter :: MPI_FILE_NULL=0
      integer MPI_BOTTOM, MPI_IN_PLACE
      integer MPI_UNWEIGHTED, MPI_WEIGHTS_EMPTY
      integer MPI_STATUS_IGNORE(MPI_STATUS_SIZE)
      integer MPI_STATUSES_IGNORE(MPI_STATUS_SIZE, 1)
      integer MPI_ERRCODES_IGNORE(1)
      common /mpipriv1/ MPI_BOTTOM, MPI_IN_PLACE, MPI_STATUS_IGNORE
      common /mpipriv2/ MPI_STATUSES_IGNORE, MPI_ERRCODES_IGNORE
      common /mpifcmb5/ MPI_UNWEIGHTED
      common /mpifcmb9/ MPI_WEIGHTS_EMPTY
",
    );
    Library {
        fortran: ("libmpifort.so.12", "libmpifort.so"),
        c: ("libmpi.so.12", "libmpich_face.so"),
        header,
        column: |constant| &constant.mpich,
    }
}

/// The names of `exports.txt`.
fn wanted() -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    for line in include_str!("../exports.txt").lines().filter(|line| !line.starts_with('#')) {
        match line.split_once(' ') {
            Some((name, "*")) => {
                for name in [name.to_owned(), format!("p{name}")] {
                    let large = name.to_uppercase();
                    all.extend([format!("{name}_"), format!("{name}__"), name, large]);
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
    assert!(wanted.len() > 3400, "{}", wanted.len());
    let module = ["__mpi_constants_mod_", "__mpi_sizeofs_mod_"];
    ours().exports(&wanted, &["mpi_", "pmpi_", "mpipriv", "mpifcmb", module[0], module[1]]);
}

#[test]
fn it_is_loaded_with_all_its_symbols() {
    ours().loads();
}

#[test]
fn a_program_in_fortran_gets_what_it_should() {
    ours().runs();
}
