//! Programs in C on `libmpi_abi.so.1`.

mod compiled;

use std::path::Path;

use bdrun_mpi_table::{c, functions, header};
use compiled::Result;

/// Runs a program of this folder; what it says.
fn said(name: &str) -> Result<Option<String>> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(name).with_extension("c");
    let Some(ran) = compiled::run(&compiled::folder(name)?, &source, &["-Wall", "-Wextra", "-Werror"])?
    else {
        return Ok(None);
    };
    assert!(ran.status.success(), "{:?} {}", ran.status, String::from_utf8_lossy(&ran.stderr));
    Ok(Some(String::from_utf8(ran.stdout)?))
}

#[test]
fn datatypes() -> Result<()> {
    let expected = "\
struct: size 15 extent 16 null 1
packed: 30 of 30
unpacked: 1.5 7 ab -2.25 9 cd
not committed: 1
subarray: size 24 extent 80: 7 8 9 12 13 14
envelope: 8 0 1 1
huge: 1 34359738368 1
attribute: 42 1 calls 11
reduced: 13 26 39, in place: 1
freed: 1
";
    if let Some(said) = said("datatypes")? {
        assert_eq!(said, expected);
    }
    Ok(())
}

#[test]
fn handles_and_statuses_go_to_fortran_and_back() -> Result<()> {
    if let Some(said) = said("fortran")? {
        assert_eq!(said, "handles 1 made 1 statuses 1 7 8 3 null 1\n");
    }
    Ok(())
}

/// The program refers to each function of the header, and is bound to all when it starts.
#[test]
fn all_that_the_header_declares_is_there() -> Result<()> {
    let functions = functions()?;
    let mut all: Vec<String> =
        ["MPI_", "PMPI_"].iter().map(|prefix| c::declarations(&functions, prefix)).collect();
    all.extend(header::fortran());
    let names: Vec<&str> = all
        .iter()
        .flat_map(|text| text.lines())
        .filter_map(|line| line.split('(').next()?.split_whitespace().last())
        .collect();
    assert_eq!(names.len(), 2 * (662 + 24));
    let list: String = names.iter().map(|name| format!("(any *){name},\n")).collect();
    let source = format!(
        "#include <mpi.h>\n#include <stdio.h>\ntypedef void any(void);\nstatic any *const all[] = {{\n{list}}};\n\
         int main(void)\n{{\n    unsigned found = 0;\n    for (unsigned i = 0; i < sizeof all / sizeof *all; i++)\n        \
         found += all[i] != 0;\n    printf(\"%u\\n\", found);\n    return 0;\n}}\n"
    );
    let folder = compiled::folder("declared")?;
    let path = folder.join("program.c");
    std::fs::write(&path, source)?;
    if let Some(ran) = compiled::run(&folder, &path, &["-Wno-cast-function-type"])? {
        assert_eq!(String::from_utf8_lossy(&ran.stdout), format!("{}\n", names.len()), "{ran:?}");
    }
    Ok(())
}
