//! `mpi.h` for the standard's ABI (MPI-5.0, chapter 20 and annex A): handles are pointers to structures that
//! are never defined, numbers are of one enumeration, what a preprocessor may ask for is a macro.

use std::fmt::Write;

use crate::rust::HANDLES;
use crate::{Constant, Function, Value};

const HEAD: &str = "\
/* mpi.h: MPI 5.0, the standard's ABI (libmpi_abi.so.1).
   Generated from mpi/table (cargo run -p bdrun-mpi-table --example header): what is changed here is lost. */
#ifndef BDRUN_MPI_H
#define BDRUN_MPI_H

#include <stdint.h>

#ifdef __cplusplus
extern \"C\" {
#endif
";

const TYPES: &str = "
/* Numbers and statuses */
typedef intptr_t MPI_Aint;
typedef int64_t MPI_Offset;
typedef int64_t MPI_Count;

typedef struct {
    int MPI_SOURCE;
    int MPI_TAG;
    int MPI_ERROR;
    int MPI_internal[5];
} MPI_Status;
";

const TAIL: &str = "
#ifdef __cplusplus
}
#endif

#endif
";

/// Handles of the interface for tools, and its types that are enumerations.
const TOOLS: [&str; 6] = [
    "T_enum",
    "T_cvar_handle",
    "T_pvar_handle",
    "T_pvar_session",
    "T_event_registration",
    "T_event_instance",
];
const ENUMERATIONS: [&str; 2] = ["T_cb_safety", "T_source_order"];

/// What has the old names of error handlers' types (MPI-2.2).
const WITH_OLD_NAME: [&str; 4] = ["Comm", "File", "Win", "Session"];

/// The functions of programs that MPI calls, as C declares them.
fn callbacks() -> impl Iterator<Item = &'static str> {
    include_str!("../callbacks.txt").lines().filter(|line| !line.starts_with('#'))
}

/// What is converted to Fortran's numbers and back: the standard's ABI has `MPI_X_toint` instead.
#[must_use]
pub fn fortran() -> Vec<String> {
    let mut all = vec![];
    for prefix in ["MPI_", "PMPI_"] {
        for (_, name) in HANDLES {
            let name = if name == "Datatype" { "Type" } else { name };
            let c_type = if name == "Type" { "Datatype" } else { name };
            all.push(format!("MPI_Fint {prefix}{name}_c2f(MPI_{c_type} handle);"));
            all.push(format!("MPI_{c_type} {prefix}{name}_f2c(MPI_Fint handle);"));
        }
        all.push(format!("int {prefix}Status_c2f(const MPI_Status *c_status, MPI_Fint *f_status);"));
        all.push(format!("int {prefix}Status_f2c(const MPI_Fint *f_status, MPI_Status *c_status);"));
    }
    all
}

/// Whether it is a macro: what a preprocessor compares, lengths of arrays, and all that is no `int`.
fn is_macro(constant: &Constant) -> bool {
    const NAMES: [&str; 5] =
        ["MPI_VERSION", "MPI_SUBVERSION", "MPI_ABI_VERSION", "MPI_ABI_SUBVERSION", "MPI_BSEND_OVERHEAD"];
    constant.c_type != "int"
        || NAMES.contains(&constant.name.as_str())
        || constant.name.starts_with("MPI_MAX_")
}

/// A type of the table in C.
fn c_type(constant: &Constant) -> String {
    match constant.c_type.as_str() {
        plain if plain.starts_with(|first: char| first.is_lowercase()) => plain.into(),
        named => format!("MPI_{named}"),
    }
}

/// The constants of this ABI that `which`, by value.
fn some(constants: &[Constant], which: impl Fn(&Constant) -> bool) -> Vec<(&Constant, i64)> {
    let mut some: Vec<_> = constants
        .iter()
        // What has only MPICH is another's name for what the standard has.
        .filter(|one| !one.name.starts_with("MPIX_"))
        .filter(|&constant| which(constant))
        .filter_map(|constant| match constant.standard {
            Some(Value::Number(value)) => Some((constant, value)),
            _ => None,
        })
        .collect();
    some.sort_by_key(|&(constant, value)| (value, &constant.name));
    some
}

fn macros(text: &mut String, constants: &[(&Constant, i64)]) {
    for &(constant, value) in constants {
        let c_type = c_type(constant);
        let value = match constant.c_type.as_str() {
            "int" => value.to_string(),
            "Offset" => format!("(({c_type}){value})"),
            _ => format!("(({c_type}){value:#x})"),
        };
        let _ = writeln!(text, "#define {:<31} {value}", constant.name);
    }
}

/// The header.
#[must_use]
pub fn header(functions: &[Function], constants: &[Constant]) -> String {
    let mut text = HEAD.to_owned();
    text.push_str("\n/* Versions and lengths */\n");
    let mut plain = some(constants, |one| one.c_type == "int" && is_macro(one));
    plain.sort_by_key(|(constant, _)| (!constant.name.ends_with("VERSION"), &constant.name));
    macros(&mut text, &plain);
    text.push_str(TYPES);
    handles(&mut text, constants);
    numbers(&mut text, constants);
    text.push_str("\n/* Functions of programs */\n");
    for line in callbacks() {
        let _ = writeln!(text, "typedef {line};");
    }
    for name in WITH_OLD_NAME {
        let _ = writeln!(text, "typedef MPI_{name}_errhandler_function MPI_{name}_errhandler_fn;");
    }
    text.push_str("\n/* Addresses that mean something else */\n");
    let addresses = some(constants, |one| one.c_type.ends_with('*'));
    macros(&mut text, &addresses);
    for prefix in ["MPI_", "PMPI_"] {
        for chapter in functions.chunk_by(|one, other| one.chapter == other.chapter) {
            let _ = writeln!(text, "\n/* {prefix}: {} */", chapter[0].chapter);
            declarations(&mut text, chapter, prefix);
        }
    }
    text.push_str(
        "\n/* Beyond the standard's ABI: handles and statuses of Fortran */\ntypedef int MPI_Fint;\n",
    );
    text.push_str(&fortran().join("\n"));
    text.push('\n');
    text.push_str(TAIL);
    text
}

fn handles(text: &mut String, constants: &[Constant]) {
    for (_, name) in HANDLES {
        let _ = writeln!(text, "\ntypedef struct MPI_ABI_{name} *MPI_{name};");
        macros(text, &some(constants, |one| one.c_type == name));
    }
    text.push('\n');
    for name in TOOLS {
        let _ = writeln!(text, "typedef struct MPI_{name}_t *MPI_{name};");
    }
    macros(text, &some(constants, |one| TOOLS.contains(&one.c_type.as_str())));
}

fn numbers(text: &mut String, constants: &[Constant]) {
    let all = |text: &mut String, which: &dyn Fn(&Constant) -> bool| {
        // In the table's order, which is the standard's.
        for constant in constants.iter().filter(|&one| which(one)) {
            if let Some(Value::Number(value)) = constant.standard {
                let _ = writeln!(text, "    {:<34} = {value},", constant.name);
            }
        }
        // C90 has no comma at the end.
        text.truncate(text.trim_end_matches(",\n").len());
    };
    text.push_str(
        "\n/* Numbers: one enumeration, so that no compiler complains of two that meet */\nenum {\n",
    );
    all(text, &|one| one.c_type == "int" && !is_macro(one));
    text.push_str("\n};\n");
    macros(text, &some(constants, |one| one.c_type == "Offset"));
    for name in ENUMERATIONS {
        let _ = writeln!(text, "\ntypedef enum MPI_{name} {{");
        all(text, &|one| one.c_type == name);
        let _ = writeln!(text, "\n}} MPI_{name};");
    }
}

fn declarations(text: &mut String, functions: &[Function], prefix: &str) {
    for function in functions {
        for large in [false, true] {
            if large && !function.has_large {
                continue;
            }
            text.push_str(&function.declaration(prefix, large));
            if let Some(since) = &function.deprecated {
                let _ = write!(text, " /* deprecated: {since} */");
            }
            text.push('\n');
        }
    }
}
