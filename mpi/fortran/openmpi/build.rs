//! Generates from the table: the declarations of C's functions, what converts, and the names of both.

use std::error::Error;
use std::path::Path;

use bdrun_mpi_table::{constants, fortran, functions};

#[path = "../common/link.rs"]
mod link;

/// What `MPI_SIZEOF` is for, and its bytes.
const SIZES: [(&str, usize); 13] = [
    ("character", 1),
    ("complex32", 8),
    ("complex64", 16),
    ("complex128", 32),
    ("int8", 1),
    ("int16", 2),
    ("int32", 4),
    ("int64", 8),
    ("logical", 4),
    ("real16", 2),
    ("real32", 4),
    ("real64", 8),
    ("real128", 16),
];

/// The predefined functions of attributes, which have no name for profiling.
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

/// As compilers spell a name: `mpi_send`, `mpi_send_`, `mpi_send__`, `MPI_SEND`.
fn spelled(prefix: &str, name: &str) -> [String; 4] {
    let all = format!("{prefix}{name}");
    let small = all.to_lowercase();
    [format!("{small}_"), format!("{small}__"), small, all.to_uppercase()]
}

/// The names that Open MPI has for a function: those of compilers, those that the modules call, and those
/// that its profiling layers are made of.
fn exported(prefix: &str, name: &str) -> Vec<String> {
    let mut all = vec![format!("o{prefix}{name}_f").to_lowercase()];
    for profiled in ["", "P"] {
        let prefix = format!("{profiled}{prefix}");
        all.extend(spelled(&prefix, name));
        all.push(format!("{prefix}{name}_f"));
        all.push(format!("{prefix}{name}_f08"));
    }
    all
}

fn exports() -> Result<String, Box<dyn Error>> {
    let (mut all, table) = (vec![], functions()?);
    for (name, function) in fortran::names(&table) {
        let mut named = exported("MPI_", &name);
        // Functions of `mpi_f08` that give a `TYPE(C_PTR)`, which is an address as well.
        if matches!(&*name, "Alloc_mem" | "Win_allocate" | "Win_allocate_shared" | "Win_shared_query") {
            named.extend(exported("MPI_", &format!("{name}_cptr")));
        }
        // Version 4.1 has what the standard has adopted since under another name.
        let is_collective = table.iter().any(|one| one.name == name && one.chapter == "collectives");
        if is_collective && name.ends_with("_init") {
            named.extend(exported("MPIX_", &name));
        }
        all.extend(named.into_iter().map(|exported| (exported, function.clone())));
    }
    for name in PREDEFINED {
        all.extend(spelled("MPI_", name).map(|exported| (exported, name.to_owned())));
    }
    for (kind, bytes) in SIZES {
        for rank in std::iter::once("scalar".to_owned()).chain((1..=15).map(|rank| format!("r{rank}"))) {
            for prefix in ["mpi", "pmpi"] {
                all.push((format!("{prefix}_sizeof_{kind}_{rank}_"), format!("sizeof_{bytes}")));
            }
        }
    }
    Ok(fortran::exports(all))
}

fn main() -> Result<(), Box<dyn Error>> {
    let to = std::env::var("OUT_DIR")?;
    let to = Path::new(&to);
    std::fs::write(to.join("c.rs"), fortran::declarations(&functions()?, "PMPI_"))?;
    std::fs::write(to.join("functions.rs"), fortran::functions(&functions()?))?;
    let numbers = fortran::numbers(&constants()?, |constant| constant.openmpi.as_ref(), &link::NUMBERS);
    std::fs::write(to.join("constants.rs"), numbers)?;
    std::fs::write(to.join("exports.rs"), exports()?)?;
    link::link(to, "libmpi_mpifh.so.40", "libmpi.so.40")
}
