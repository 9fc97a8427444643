//! Generates from the table: the declarations of C's functions, what converts, and the names of both.

use std::error::Error;
use std::path::Path;

use bdrun_mpi_table::{constants, fortran, functions};

#[path = "../common/link.rs"]
mod link;

/// The predefined functions of attributes.
const PREDEFINED: [&str; 12] = [
    "comm_null_copy_fn",
    "comm_dup_fn",
    "comm_null_delete_fn",
    "type_null_copy_fn",
    "type_dup_fn",
    "type_null_delete_fn",
    "win_null_copy_fn",
    "win_dup_fn",
    "win_null_delete_fn",
    "null_copy_fn",
    "dup_fn",
    "null_delete_fn",
];

/// What the module `mpi` has of its own for each kind of handle: comparisons. They are numbers there as well.
const HANDLES: [&str; 10] =
    ["comm", "datatype", "errhandler", "file", "group", "info", "message", "op", "request", "win"];

/// What `MPI_SIZEOF` is for in the module `mpi`, and its bytes.
const SIZES: [(&str, usize); 9] =
    [("ch", 1), ("cx", 8), ("d", 8), ("i", 4), ("i1", 1), ("i2", 2), ("i8", 8), ("l", 4), ("r", 4)];

/// As compilers spell a name: `mpi_send`, `mpi_send_`, `mpi_send__`, `MPI_SEND`; and for profiling.
fn exported(name: &str) -> Vec<String> {
    let both = [format!("mpi_{name}"), format!("pmpi_{name}")].map(|name| name.to_lowercase());
    let spelled =
        |name: &String| [format!("{name}_"), format!("{name}__"), name.clone(), name.to_uppercase()];
    both.iter().flat_map(spelled).collect()
}

fn exports() -> Result<String, Box<dyn Error>> {
    let predefined = PREDEFINED.map(|name| (name.to_owned(), name.to_owned()));
    let names = fortran::names(&functions()?).into_iter().chain(predefined);
    let mut all: Vec<(String, String)> = names
        .flat_map(|(name, function)| {
            exported(&name).into_iter().map(move |exported| (exported, function.clone()))
        })
        .collect();
    for kind in HANDLES {
        all.push((format!("__mpi_constants_MOD_{kind}eq"), "are_equal".into()));
        all.push((format!("__mpi_constants_MOD_{kind}neq"), "differ".into()));
    }
    for (kind, bytes) in SIZES {
        for many in ["", "v"] {
            all.push((format!("__mpi_sizeofs_MOD_mpi_sizeof_{kind}{many}"), format!("sizeof_{bytes}")));
        }
    }
    Ok(fortran::exports(all))
}

fn main() -> Result<(), Box<dyn Error>> {
    let to = std::env::var("OUT_DIR")?;
    let to = Path::new(&to);
    let numbers = [&link::NUMBERS[..], &["WIN_BASE"]].concat();
    std::fs::write(to.join("c.rs"), fortran::declarations(&functions()?, "MPI_"))?;
    std::fs::write(to.join("functions.rs"), fortran::functions(&functions()?))?;
    let numbers = fortran::numbers(&constants()?, |constant| constant.mpich.as_ref(), &numbers);
    std::fs::write(to.join("constants.rs"), numbers)?;
    std::fs::write(to.join("exports.rs"), exports()?)?;
    link::link(to, "libmpifort.so.12", "libmpi.so.12")
}
