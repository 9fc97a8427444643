//! Our libraries for programs that know nothing of us, beside `bdrun`. Built here, because `cargo test` makes
//! programs, but no libraries for others.

use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;

/// What makes them, and what it makes: all that `--preload` and `--mpi` look for. One of them less, and bdrun
/// has no MPI at all.
const LIBRARIES: [(&str, &str); 6] = [
    ("sbmalloc-preload", "libsbmalloc.so"),
    ("bdrun-mpi-abi", "libmpi_abi.so"),
    ("bdrun-mpi-mpich", "libmpich_face.so"),
    ("bdrun-mpi-openmpi", "libmpi_openmpi.so"),
    ("bdrun-mpi-mpifort", "libmpifort.so"),
    ("bdrun-mpi-mpifh", "libmpi_mpifh.so"),
];

/// The folder they are in.
pub fn libraries() -> &'static Path {
    static BUILT: OnceLock<()> = OnceLock::new();
    let folder = Path::new(env!("CARGO_BIN_EXE_bdrun")).parent().expect("a folder");
    BUILT.get_or_init(|| {
        if let Some(cargo) = std::env::var_os("CARGO") {
            let mut command = Command::new(cargo);
            // With the features that `cargo test --workspace` settles on (an example brings in those that
            // only tests ask for): nearly all are built then, else all would be built once more.
            command.args(["build", "--quiet", "--workspace", "--lib", "--example", "manual"]);
            command.current_dir(env!("CARGO_MANIFEST_DIR"));
            command.args(folder.ends_with("release").then_some("--release"));
            assert!(command.status().expect("start cargo").success(), "the libraries were not built");
        }
        for (package, library) in LIBRARIES {
            assert!(folder.join(library).is_file(), "no {library}: cargo build -p {package}");
        }
    });
    folder
}
