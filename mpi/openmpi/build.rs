//! Generates from the table: the functions, the objects that predefined handles are the addresses of, and
//! what numbers mean.

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt::Write as _;
use std::path::Path;

use bdrun_mpi_table::{Constant, Value, rust};

/// Kinds of handles as `constants.txt` calls them; their names in `MPI_X_c2f`, and bytes of an object.
const KINDS: [(&str, &str, usize); 11] = [
    ("Comm", "Comm", 512),
    ("Datatype", "Type", 512),
    ("Errhandler", "Errhandler", 1024),
    ("File", "File", 1536),
    ("Group", "Group", 256),
    ("Info", "Info", 256),
    ("Message", "Message", 256),
    ("Op", "Op", 2048),
    ("Request", "Request", 256),
    ("Session", "Session", 512),
    ("Win", "Win", 512),
];

/// Objects that `constants.txt` does not name: the header declares them, or a version of Open MPI has them
/// under a name of its own (`MPIX_…`). Which constant they are.
const MORE: [(&str, &str); 11] = [
    // MPI::ERRORS_THROW_EXCEPTIONS: no exception leaves a library in C, so the failure is told and ends the
    // job.
    ("ompi_mpi_errors_throw_exceptions", "MPI_ERRORS_ARE_FATAL"),
    ("ompi_mpi_c_complex", "MPI_C_COMPLEX"),
    ("ompi_mpi_ldblcplex", "MPI_C_LONG_DOUBLE_COMPLEX"),
    ("ompi_mpi_integer16", "MPI_INTEGER16"),
    // Of several that are one datatype of the engine's, the first is told: a program in C knows that one.
    ("ompi_mpi_short_float", "MPI_REAL2"),
    ("ompi_mpi_real2", "MPI_REAL2"),
    ("ompi_mpi_c_short_float_complex", "MPI_COMPLEX4"),
    ("ompi_mpi_complex4", "MPI_COMPLEX4"),
    ("ompi_mpi_cxx_sfltcplex", "MPI_COMPLEX4"),
    ("ompi_mpi_lb", "MPI_LB"),
    ("ompi_mpi_ub", "MPI_UB"),
];

/// Objects whose handle the engine does not have get values from here on: it knows none of them.
const UNKNOWN: i64 = 0x300;
/// All values of objects lie below.
const END: usize = 0x320;

/// Functions that `src/special.rs` has: what they take or give means more than their types say.
const SPECIAL: [&str; 3] = ["Get_version", "Error_class", "Error_string"];

/// Tables of numbers, and the constants that are in each: the beginning of the name, `*` for any end.
const NUMBERS: [(&str, &str); 23] = [
    ("RANKS", "MPI_ANY_SOURCE MPI_PROC_NULL MPI_ROOT MPI_UNDEFINED"),
    ("TAGS", "MPI_ANY_TAG MPI_UNDEFINED"),
    ("ERRORS", "MPI_SUCCESS MPI_ERR_* MPI_T_ERR_*"),
    (
        "KEYVALS",
        "MPI_KEYVAL_INVALID MPI_TAG_UB MPI_IO MPI_HOST MPI_WTIME_IS_GLOBAL MPI_APPNUM MPI_LASTUSEDCODE \
         MPI_UNIVERSE_SIZE MPI_WIN_BASE MPI_WIN_DISP_UNIT MPI_WIN_SIZE MPI_WIN_CREATE_FLAVOR \
         MPI_WIN_MODEL",
    ),
    ("THREADS", "MPI_THREAD_*"),
    ("ORDERS", "MPI_ORDER_*"),
    ("DISTRIBUTIONS", "MPI_DISTRIBUTE_NONE MPI_DISTRIBUTE_BLOCK MPI_DISTRIBUTE_CYCLIC"),
    ("DARGS", "MPI_DISTRIBUTE_DFLT_DARG"),
    ("COMBINERS", "MPI_COMBINER_*"),
    ("TYPECLASSES", "MPI_TYPECLASS_*"),
    ("COMPARISONS", "MPI_IDENT MPI_CONGRUENT MPI_SIMILAR MPI_UNEQUAL"),
    ("TOPOLOGIES", "MPI_CART MPI_GRAPH MPI_DIST_GRAPH MPI_UNDEFINED"),
    ("SPLITTYPES", "MPI_COMM_TYPE_* MPI_UNDEFINED"),
    ("LOCKTYPES", "MPI_LOCK_*"),
    ("ASSERTS", "MPI_MODE_NOCHECK MPI_MODE_NOPRECEDE MPI_MODE_NOPUT MPI_MODE_NOSTORE MPI_MODE_NOSUCCEED"),
    (
        "AMODES",
        "MPI_MODE_APPEND MPI_MODE_CREATE MPI_MODE_DELETE_ON_CLOSE MPI_MODE_EXCL MPI_MODE_RDONLY MPI_MODE_RDWR \
         MPI_MODE_SEQUENTIAL MPI_MODE_UNIQUE_OPEN MPI_MODE_WRONLY",
    ),
    ("WHENCES", "MPI_SEEK_*"),
    ("VERBOSITIES", "MPI_T_VERBOSITY_*"),
    ("BINDS", "MPI_T_BIND_*"),
    ("SCOPES", "MPI_T_SCOPE_*"),
    ("PVARCLASSES", "MPI_T_PVAR_CLASS_*"),
    ("FLAVORS", "MPI_WIN_FLAVOR_*"),
    ("MODELS", "MPI_WIN_UNIFIED MPI_WIN_SEPARATE"),
];

/// Constants that are written out as they are in this ABI.
const SAME: [&str; 10] = [
    "MPI_BSEND_OVERHEAD",
    "MPI_DISPLACEMENT_CURRENT",
    "MPI_ERR_LASTCODE",
    "MPI_MAX_PROCESSOR_NAME",
    "MPI_MAX_ERROR_STRING",
    "MPI_MAX_OBJECT_NAME",
    "MPI_MAX_INFO_KEY",
    "MPI_MAX_INFO_VAL",
    "MPI_MAX_PORT_NAME",
    "MPI_MAX_DATAREP_STRING",
];

fn main() -> Result<(), Box<dyn Error>> {
    // What the heap's C code calls is no part of the ABI, and must not be another library's (libsbmalloc.so).
    println!("cargo::rustc-cdylib-link-arg=-Wl,--exclude-libs,ALL");
    let to = std::env::var("OUT_DIR")?;
    let to = Path::new(&to);
    let constants = bdrun_mpi_table::constants()?;
    let objects = objects(&constants)?;
    std::fs::write(to.join("functions.rs"), functions()?)?;
    std::fs::write(to.join("objects.rs"), declared(&objects)?)?;
    std::fs::write(to.join("fortran.rs"), fortran(&constants, &objects)?)?;
    std::fs::write(to.join("numbers.rs"), numbers(&constants)?)?;
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=fortran.txt");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libmpi.so.40");
    Ok(())
}

/// The functions of the table, and what Open MPI 4.1 calls `MPIX_` of them.
fn functions() -> Result<String, Box<dyn Error>> {
    let mut all = bdrun_mpi_table::functions()?;
    all.retain(|function| !SPECIAL.contains(&&*function.name));
    let mut text = rust::functions(&all);
    for function in &all {
        if function.chapter == "collectives" && function.name.ends_with("_init") {
            text.push_str(&rust::wrapper(function, "MPIX_", false));
        }
    }
    Ok(text)
}

/// An object, and what it stands for.
struct Object {
    kind: &'static str,
    bytes: usize,
    value: i64,
    /// The address of this one is the handle of the value.
    is_first: bool,
}

fn objects(constants: &[Constant]) -> Result<BTreeMap<String, Object>, Box<dyn Error>> {
    let mut found: BTreeMap<String, Object> = BTreeMap::new();
    let mut unknown = UNKNOWN;
    let find = |name: &str| constants.iter().find(|one| one.name == name).ok_or_else(|| name.to_owned());
    let named = constants.iter().filter_map(|constant| match &constant.openmpi {
        Some(Value::Object(object)) => Some((object.clone(), constant)),
        _ => None,
    });
    let mut all: Vec<(String, &Constant)> = named.collect();
    for (object, constant) in MORE {
        all.push((object.into(), find(constant)?));
    }
    for (object, constant) in all {
        let kind = KINDS.iter().find(|(name, ..)| *name == constant.c_type).ok_or("an unknown kind")?;
        let standard = match constant.standard {
            Some(Value::Number(number)) => Some(number),
            _ => None,
        };
        if let Some(before) = found.get_mut(&object) {
            // Of two constants that are one object, the one that the engine has.
            if let (true, Some(number)) = (before.value >= UNKNOWN, standard) {
                before.value = number;
            }
            continue;
        }
        let value = standard.unwrap_or_else(|| {
            unknown += 1;
            unknown - 1
        });
        let is_first = !found.values().any(|other| other.value == value);
        found.insert(object, Object { kind: kind.0, bytes: kind.2, value, is_first });
    }
    if found.values().any(|object| object.value as usize >= END) {
        return Err("more objects than there are places".into());
    }
    Ok(found)
}

/// The objects, and by value where they are.
fn declared(objects: &BTreeMap<String, Object>) -> Result<String, std::fmt::Error> {
    let mut text = String::new();
    for (name, Object { kind, bytes, value, .. }) in objects {
        writeln!(
            text,
            "#[unsafe(no_mangle)]\npub static {name}: Object<{}> = Object::new({value}, <handle::{kind} as \
             Kind>::MARK);",
            bytes / 8
        )?;
    }
    let mut places = vec!["NOWHERE".to_owned(); END];
    for (name, object) in objects.iter().filter(|(_, object)| object.is_first) {
        places[object.value as usize] = format!("Place(&raw const {name} as *const c_void)");
    }
    writeln!(text, "static PLACES: [Place; {END}] = [{}];", places.join(", "))?;
    Ok(text)
}

/// `MPI_X_c2f` and `MPI_X_f2c`, and the numbers of what is predefined.
fn fortran(constants: &[Constant], objects: &BTreeMap<String, Object>) -> Result<String, Box<dyn Error>> {
    let mut numbers = vec![-1; END];
    let mut values: BTreeMap<&str, BTreeMap<usize, i64>> = BTreeMap::new();
    for line in std::fs::read_to_string("fortran.txt")?.lines().filter(|line| !line.starts_with('#')) {
        let (name, number) = line.split_once(' ').ok_or(line)?;
        let constant = constants.iter().find(|constant| constant.name == name).ok_or(line)?;
        let object = match &constant.openmpi {
            Some(Value::Object(object)) => object.clone(),
            // Declared, but not named by the header where it has no such type.
            _ => format!("ompi_{}", name.to_lowercase()),
        };
        let object = objects.get(&object).ok_or(line)?;
        let number: usize = number.parse()?;
        numbers[object.value as usize] = number as i64;
        values.entry(object.kind).or_default().insert(number, object.value);
    }
    let mut text = format!("/// By value.\nstatic NUMBERS: [i16; {END}] = {numbers:?};\n");
    for (kind, name, _) in KINDS {
        let known = values.get(kind);
        let last = known.and_then(|known| known.keys().last()).map_or(0, |last| last + 1);
        let list: Vec<i64> = (0..last)
            .map(|number| known.and_then(|known| known.get(&number)).copied().unwrap_or(0))
            .collect();
        writeln!(text, "/// By number.\nstatic {}S: [u16; {last}] = {list:?};", name.to_uppercase())?;
        for prefix in ["MPI_", "PMPI_"] {
            writeln!(
                text,
                "#[unsafe(no_mangle)]\npub unsafe extern \"C\" fn {prefix}{name}_c2f(handle: face::{kind}) -> \
                 c_int {{\n// SAFETY: the caller's: a handle.\nunsafe {{ number::<handle::{kind}>(handle) \
                 }}\n}}\n#[unsafe(no_mangle)]\npub extern \"C\" fn {prefix}{name}_f2c(number: c_int) -> \
                 face::{kind} {{\nnumbered::<handle::{kind}>(number, &{}S)\n}}",
                name.to_uppercase()
            )?;
        }
    }
    Ok(text)
}

/// Tables of numbers: this ABI's, and the standard's.
fn numbers(constants: &[Constant]) -> Result<String, Box<dyn Error>> {
    let mut text = String::new();
    for (table, names) in NUMBERS {
        let is_in = |name: &str| {
            names.split_whitespace().any(|one| match one.strip_suffix('*') {
                Some(start) => name.starts_with(start),
                None => name == one,
            })
        };
        let pairs: Vec<String> = constants
            .iter()
            .filter(|constant| is_in(&constant.name))
            .filter_map(|constant| match (&constant.openmpi, &constant.standard) {
                (Some(Value::Number(ours)), Some(Value::Number(standard))) => {
                    Some(format!("({ours}, {standard})"))
                }
                _ => None,
            })
            .collect();
        if pairs.is_empty() {
            return Err(format!("the table has none of {names}").into());
        }
        writeln!(text, "pub static {table}: &[(c_int, i64)] = &[{}];", pairs.join(", "))?;
    }
    for name in SAME {
        let constant = constants.iter().find(|constant| constant.name == name).ok_or(name)?;
        let Some(Value::Number(number)) = constant.openmpi else { return Err(name.into()) };
        let name = name.trim_start_matches("MPI_");
        writeln!(text, "pub const {name}: i64 = {number};")?;
    }
    Ok(text)
}
