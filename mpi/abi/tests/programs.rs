//! Programs in C, compiled against declarations from the table and linked to `libmpi_abi.so.1`.

use std::collections::BTreeSet;
use std::error::Error;
use std::fmt::Write;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use bdrun_mpi_table::{Value, c, constants, functions};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Types that have a shape: what the programs here use.
const SHAPES: &str = "\
#pragma once
#include <stdint.h>
typedef int64_t MPI_Aint, MPI_Count, MPI_Offset;
typedef int MPI_Fint;
typedef struct { int MPI_SOURCE, MPI_TAG, MPI_ERROR, internal[5]; } MPI_Status;
typedef struct MPI_Datatype_s *MPI_Datatype;
typedef void MPI_User_function(void *, void *, int *, MPI_Datatype *);
typedef void MPI_User_function_c(void *, void *, MPI_Count *, MPI_Datatype *);
typedef int MPI_Type_copy_attr_function(MPI_Datatype, int, void *, void *, void *, int *);
typedef int MPI_Type_delete_attr_function(MPI_Datatype, int, void *, void *);
";

/// A header for them: all functions, and the constants that are numbers.
fn header() -> Result<String> {
    let declarations = c::declarations(&functions()?, "MPI_");
    let words: BTreeSet<&str> = declarations.split(|c: char| !c.is_alphanumeric() && c != '_').collect();
    let is_called = |word: &str| declarations.contains(&format!(" {word}("));
    let has_shape =
        |word: &str| SHAPES.split(|c: char| !c.is_alphanumeric() && c != '_').any(|known| known == word);
    let mut text = SHAPES.to_owned();
    for word in words.into_iter().filter(|word| word.starts_with("MPI_")) {
        if is_called(word) || has_shape(word) {
            continue;
        }
        let is_function = word.trim_end_matches("_c").ends_with("function");
        let _ = match is_function {
            true => writeln!(text, "typedef void {word}(void);"),
            false => writeln!(text, "typedef struct {word}_s *{word};"),
        };
    }
    text.push_str(&declarations);
    for constant in constants()? {
        let Some(Value::Number(number)) = constant.standard else { continue };
        let kind = match constant.c_type.as_str() {
            "int" | "int*" | "void*" => constant.c_type.clone(),
            kind => format!("MPI_{kind}"),
        };
        let _ = writeln!(text, "#define {} (({kind}) {number})", constant.name);
    }
    Ok(text)
}

/// The library that was built for this test.
fn library() -> Result<PathBuf> {
    let mut folder = std::env::current_exe()?;
    folder.pop();
    Ok(folder.join("libmpi_abi.so"))
}

/// Compiles a program of this folder, and runs it; what it says.
fn run(name: &str) -> Result<String> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder)?;
    std::fs::write(folder.join("mpi_test.h"), header()?)?;
    let soname = folder.join("libmpi_abi.so.1");
    symlink(library()?, &soname)?;
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(name).with_extension("c");
    let program = folder.join("program");
    let compiled = Command::new("cc")
        .args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-O1"])
        .arg("-I")
        .arg(&folder)
        .arg(source)
        .arg(&soname)
        .arg("-o")
        .arg(&program)
        .output()?;
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    let ran = Command::new(program).env("LD_LIBRARY_PATH", &folder).output()?;
    assert!(ran.status.success(), "{:?} {}", ran.status, String::from_utf8_lossy(&ran.stderr));
    Ok(String::from_utf8(ran.stdout)?)
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
    assert_eq!(run("datatypes")?, expected);
    Ok(())
}
