//! `mpi/include/mpi.h` is what is made of the table, and compilers understand it as that.

use std::error::Error;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use bdrun_mpi_table::{Constant, Value, constants, functions, header};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

fn include() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../include")
}

/// Compiles a source, and links it if it is to run; `None` where there is no such compiler.
fn compile(compiler: &str, options: &[&str], name: &str, source: &str) -> Result<Option<PathBuf>> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let (source_file, to) = (folder.join(name), folder.join(name).with_extension("out"));
    std::fs::write(&source_file, source)?;
    let output = Command::new(compiler)
        .args(["-Wall", "-Wextra", "-pedantic", "-Werror"])
        .args(options)
        .arg("-I")
        .arg(include())
        .arg(source_file)
        .arg("-o")
        .arg(&to)
        .output();
    let Ok(output) = output else {
        let need = if compiler == "c++" { "g++" } else { "gcc" };
        bdrun_skipped::skipped(need, format!("there is no {compiler}"));
        return Ok(None);
    };
    assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(Some(to))
}

/// The constants that the header has: name, type in C, value.
fn expected(all: &[Constant]) -> Vec<(&str, String, i64)> {
    let of_the_standard = all.iter().filter(|one| !one.name.starts_with("MPIX_"));
    let with_value = of_the_standard.filter_map(|constant| match constant.standard {
        Some(Value::Number(value)) => Some((constant, value)),
        _ => None,
    });
    let typed = with_value.map(|(constant, value)| {
        let c_type = match constant.c_type.as_str() {
            plain if plain.starts_with(|first: char| first.is_lowercase()) => plain.to_owned(),
            named => format!("MPI_{named}"),
        };
        (&*constant.name, c_type, value)
    });
    typed.collect()
}

#[test]
fn it_is_what_the_table_says_now() -> Result<()> {
    let committed = std::fs::read_to_string(include().join("mpi.h"))?;
    let now = header::header(&functions()?, &constants()?);
    let change = committed.lines().zip(now.lines()).find(|(before, after)| before != after);
    assert!(
        committed == now,
        "cargo run -p bdrun-mpi-table --example header > mpi/include/mpi.h; first: {change:?}"
    );
    Ok(())
}

#[test]
fn every_constant_has_its_value_and_type() -> Result<()> {
    let constants = constants()?;
    let expected = expected(&constants);
    assert!(expected.len() > 360, "{}", expected.len());
    let mut source =
        "#include <mpi.h>\n#include <stdio.h>\n#define SAY(type, name) do { type value = (name); \
         printf(#name \" %lld\\n\", (long long)(intptr_t)value); } while (0)\nint main(void)\n{\n"
            .to_owned();
    for (name, c_type, _) in &expected {
        writeln!(source, "    SAY({c_type}, {name});")?;
    }
    source.push_str("    return 0;\n}\n");
    let Some(program) = compile("cc", &["-std=c99"], "values.c", &source)? else { return Ok(()) };
    let said = Command::new(program).output()?;
    let said = String::from_utf8(said.stdout)?;
    let wanted: String = expected.iter().map(|(name, _, value)| format!("{name} {value}\n")).collect();
    let differs = said.lines().zip(wanted.lines()).find(|(said, wanted)| said != wanted);
    assert!(said == wanted, "said and wanted: {differs:?}");
    Ok(())
}

/// What must hold before anything is compiled to run, in C and in C++.
const SHAPES: &str = "\
HOLDS(sizeof(MPI_Status) == 32, \"\");
HOLDS(offsetof(MPI_Status, MPI_SOURCE) == 0, \"\");
HOLDS(offsetof(MPI_Status, MPI_TAG) == 4, \"\");
HOLDS(offsetof(MPI_Status, MPI_ERROR) == 8, \"\");
HOLDS(offsetof(MPI_Status, MPI_internal) == 12, \"\");
HOLDS(sizeof(MPI_Aint) == sizeof(void *), \"\");
HOLDS(sizeof(MPI_Offset) == 8 && sizeof(MPI_Count) == 8, \"\");
HOLDS(sizeof(MPI_Comm) == sizeof(void *) && sizeof(MPI_T_enum) == sizeof(void *), \"\");
HOLDS(sizeof(MPI_T_cb_safety) == sizeof(int) && sizeof(MPI_T_source_order) == sizeof(int), \"\");
HOLDS(MPI_VERSION == 5 && MPI_SUBVERSION == 0, \"\");
HOLDS(MPI_ABI_VERSION == 1 && MPI_ABI_SUBVERSION == 0, \"\");
HOLDS(MPI_UNDEFINED == -32766 && MPI_ERR_LASTCODE == 0x3fff, \"\");
#if MPI_VERSION < 5 || MPI_MAX_OBJECT_NAME != 128 || !defined MPI_IN_PLACE
#error \"a preprocessor does not know them\"
#endif
static MPI_Comm world = MPI_COMM_WORLD;
static MPI_Comm_copy_attr_function *copies[] = {MPI_COMM_NULL_COPY_FN, MPI_COMM_DUP_FN};
int use(double *buffer, const double *constant)
{
    MPI_Aint address;
    MPI_Status status;
    char **none = MPI_ARGV_NULL;
    return none || copies[0] || MPI_Get_address(constant, &address) ||
        MPI_Allreduce(MPI_IN_PLACE, buffer, 1, MPI_DOUBLE, MPI_SUM, world) ||
        MPI_Recv(buffer, 1, MPI_DOUBLE, MPI_ANY_SOURCE, MPI_ANY_TAG, world, &status) ||
        PMPI_Recv_c(buffer, 1, MPI_DOUBLE, MPI_PROC_NULL, 0, world, MPI_STATUS_IGNORE) ||
        MPI_Type_c2f(MPI_DOUBLE) != MPI_Type_toint(MPI_DOUBLE) || status.MPI_SOURCE == MPI_ROOT;
}
";

#[test]
fn compilers_understand_it() -> Result<()> {
    let with = |holds: &str| {
        format!("#include <mpi.h>\n#include <mpi.h>\n#include <stddef.h>\n#define HOLDS{holds}\n{SHAPES}")
    };
    let c = with(" _Static_assert");
    compile("cc", &["-std=c11", "-c"], "shapes.c", &c)?;
    // Nothing can be asserted before C11.
    let old = with("(what, why) extern char holds[(what) ? 1 : -1]");
    for standard in ["-std=c90", "-std=c99"] {
        compile("cc", &[standard, "-c"], "old.c", &old)?;
    }
    let cxx = c.replace("_Static_assert", "static_assert");
    for standard in ["-std=c++11", "-std=c++20"] {
        compile("c++", &[standard, "-c"], "shapes.cpp", &cxx)?;
    }
    Ok(())
}
