//! A program that was compiled against Open MPI's header runs with our library: position-independent or not,
//! and linked to either library.
//!
//! The header is looked for where Debian has it; `BDRUN_OPENMPI_INCLUDE` names other folders, separated by
//! colons.

mod library;

use std::collections::HashSet;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use bdrun_mpi_table::Value;

const EXPECTED: &str = "\
version 4.0
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

/// The folders with headers, unless something is missing.
fn headers_or_skip() -> Vec<PathBuf> {
    if Command::new("gcc").arg("--version").output().is_err() {
        bdrun_skipped::skipped("gcc", "there is no gcc");
        return vec![];
    }
    let headers = headers();
    if headers.is_empty() {
        bdrun_skipped::skipped("openmpi", "there is no mpi.h of Open MPI (BDRUN_OPENMPI_INCLUDE)");
    }
    headers
}

fn folder(name: &str) -> PathBuf {
    let folder =
        Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("openmpi-{name}-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("a folder");
    folder
}

#[test]
fn numbers_are_those_of_the_header() {
    let headers = headers_or_skip();
    let folder = folder("numbers");
    for header in &headers {
        let text = fs::read_to_string(header.join("mpi.h")).expect("text");
        let words: HashSet<&str> = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').collect();
        let mut program = "#include <mpi.h>\n".to_owned();
        let mut count = 0;
        for constant in bdrun_mpi_table::constants().expect("well-formed") {
            let (Some(Value::Number(number)), name) = (constant.openmpi, &*constant.name) else { continue };
            let is_number = ["int", "Offset"].contains(&&*constant.c_type);
            // Of what was removed, the header only says so.
            let is_removed = name.starts_with("MPI_COMBINER_") && name.ends_with("_INTEGER");
            if is_number && words.contains(name) && !is_removed {
                writeln!(program, "_Static_assert((long){name} == {number}, \"{name}\");").expect("a string");
                count += 1;
            }
        }
        assert!(count > 180, "{count}");
        let file = folder.join("numbers.c");
        fs::write(&file, program).expect("a file");
        run(Command::new("gcc").args(["-std=c11", "-fsyntax-only", "-I"]).arg(header).arg(&file));
    }
    fs::remove_dir_all(&folder).expect("it is ours");
}

#[test]
fn programs_see_the_same_handles_as_we_do() {
    let headers = headers_or_skip();
    let folder = folder("programs");
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
