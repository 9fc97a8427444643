//! A program that was compiled against Open MPI's header runs with our library: position-independent or not,
//! and linked to either library.
//!
//! The header is looked for where Debian has it; `BDRUN_OPENMPI_INCLUDE` names other folders, separated by
//! colons.

mod library;

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const EXPECTED: &str = "\
version 3.1
handles many
info there 1 1
group 0
error MPI_ERR_PENDING: the request has neither failed nor completed
added no beam
failures 0
";

fn headers() -> Vec<PathBuf> {
    let said = std::env::var("BDRUN_OPENMPI_INCLUDE")
        .unwrap_or_else(|_| "/usr/lib/x86_64-linux-gnu/openmpi/include".into());
    said.split(':').map(PathBuf::from).filter(|folder| folder.join("mpi.h").exists()).collect()
}

/// Open MPI's own library, as it lies beside its header.
fn original(header: &Path) -> Option<PathBuf> {
    ["../lib/libmpi.so.40", "../../libmpi.so.40"]
        .iter()
        .map(|place| header.join(place))
        .find(|place| place.exists())
}

/// `X(kind, name, number)` for each predefined handle that the header has.
fn constants() -> String {
    let table = bdrun_mpi_table::constants().expect("well-formed");
    let mut text = String::new();
    for line in include_str!("../fortran.txt").lines().filter(|line| !line.starts_with('#')) {
        let (name, number) = line.split_once(' ').expect("two words");
        // Removed: to name them is an error.
        if ["MPI_LB", "MPI_UB"].contains(&name) {
            continue;
        }
        let constant = table.iter().find(|constant| constant.name == name).expect("in the table");
        let kind = if constant.c_type == "Datatype" { "Type" } else { &constant.c_type };
        writeln!(text, "#ifdef {name}\nX({kind}, {name}, {number})\n#endif").expect("a string");
    }
    text
}

fn run(command: &mut Command) -> String {
    let output = command.output().expect("it can be started");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{command:?}: {text}{}", String::from_utf8_lossy(&output.stderr));
    text
}

#[test]
fn programs_see_the_same_handles_as_we_do() {
    if Command::new("gcc").arg("--version").output().is_err() {
        return bdrun_skipped::skipped("gcc", "there is no gcc");
    }
    let headers = headers();
    if headers.is_empty() {
        return bdrun_skipped::skipped("openmpi", "there is no mpi.h of Open MPI (BDRUN_OPENMPI_INCLUDE)");
    }
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("openmpi-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("a folder");
    let ours = folder.join("libmpi.so.40");
    std::os::unix::fs::symlink(library::path(), &ours).expect("a link");
    fs::write(folder.join("constants.h"), constants()).expect("a file");
    let program = folder.join("program");
    for header in &headers {
        for link_to in [Some(ours.clone()), original(header)].into_iter().flatten() {
            for (flags, copies) in [(["-fPIE", "-pie"], false), (["-fno-pic", "-no-pie"], true)] {
                run(Command::new("gcc")
                    .args(flags)
                    .args(["-O2", "-Wall", "-Werror", "-Wl,--unresolved-symbols=ignore-in-shared-libs", "-I"])
                    .arg(header)
                    .arg("-I")
                    .arg(&folder)
                    .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/program.c"))
                    .arg(&link_to)
                    .arg("-o")
                    .arg(&program));
                let relocations = run(Command::new("readelf").args(["-r", "-W"]).arg(&program));
                let has_copies = relocations.contains("R_X86_64_COPY");
                assert!(has_copies || !copies, "the program has no copies, so nothing is tested");
                let said = run(Command::new(&program).env("LD_LIBRARY_PATH", &folder));
                assert_eq!(said, EXPECTED, "{} {flags:?} {}", header.display(), link_to.display());
            }
        }
    }
    fs::remove_dir_all(&folder).expect("it is ours");
}
