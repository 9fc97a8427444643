//! Which MPI a program is linked to.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::elf::Search;

/// How many interpreters may be scripts themselves.
const MOST_INTERPRETERS: usize = 4;
/// What the kernel reads of a script to find its interpreter.
const FIRST_LINE: u64 = 256;

/// What a program calls MPI by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Abi {
    /// That of MPICH, Intel MPI, MVAPICH: `libmpi.so.12`, which Debian calls `libmpich.so.12`.
    Mpich,
    /// That of Open MPI 4 and 5: `libmpi.so.40`.
    Openmpi,
    /// That of the standard: `libmpi_abi.so.1`.
    Standard,
    /// This library, which is none of ours.
    Other(String),
    /// Not linked to any: it has nothing to do with MPI, or decides when it runs (interpreters).
    None,
}

/// Programs that have one `LD_LIBRARY_PATH`.
pub(super) struct Programs(Search);

impl Programs {
    pub fn new(library_path: Option<&OsStr>) -> Self {
        Self(Search::new(library_path))
    }

    /// Which MPI one is linked to; a script: its interpreter.
    pub fn linked_to(&self, program: &Path) -> Abi {
        let mut program = program.to_owned();
        for _ in 0..MOST_INTERPRETERS {
            match interpreter(&program) {
                Some(interpreter) => program = interpreter,
                None => return self.0.find(&program, by_name).unwrap_or(Abi::None),
            }
        }
        Abi::None
    }
}

/// The ABI of the library with this name, if it is an MPI.
fn by_name(name: &OsStr) -> Option<Abi> {
    let name = name.to_str()?;
    let (stem, version) = name.split_once(".so")?;
    let major = version.trim_start_matches('.').split('.').next();
    Some(match (stem, major) {
        ("libmpi_abi", Some("1")) => Abi::Standard,
        ("libmpi" | "libmpich", Some("12")) => Abi::Mpich,
        ("libmpi", Some("40")) => Abi::Openmpi,
        // Of Cray, HPE, MVAPICH 1, LAM; of compilers of their own.
        ("libmpi" | "libmpich" | "libmpi_abi" | "libmpi_mt" | "libmpi_dbg" | "liblam", _) => {
            Abi::Other(name.to_owned())
        }
        _ if ["libmpi_cray", "libmpi_gnu", "libmpi_intel", "libmpich_"]
            .iter()
            .any(|s| stem.starts_with(s)) =>
        {
            Abi::Other(name.to_owned())
        }
        _ => return None,
    })
}

/// The program that runs a script; `None` if it is none.
fn interpreter(script: &Path) -> Option<PathBuf> {
    let mut line = Vec::new();
    BufReader::new(File::open(script).ok()?.take(FIRST_LINE)).read_until(b'\n', &mut line).ok()?;
    let mut words = line
        .strip_prefix(b"#!")?
        .split(|byte| b" \t\n".contains(byte))
        .filter(|word| !word.is_empty())
        .map(OsStr::from_bytes);
    let program = Path::new(words.next()?);
    if program.file_name() != Some(OsStr::new("env")) {
        return Some(program.to_owned());
    }
    // env [-S] [NAME=VALUE…] PROGRAM
    let name = words.find(|word| !word.as_bytes().starts_with(b"-") && !word.as_bytes().contains(&b'='))?;
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(name)).find(|path| path.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::elf::tests::Workshop;

    #[test]
    fn names_are_those_of_the_libraries() {
        let other = |name: &str| Some(Abi::Other(name.into()));
        for (name, abi) in [
            ("libmpi.so.12", Some(Abi::Mpich)),
            ("libmpich.so.12", Some(Abi::Mpich)),
            ("libmpi.so.40", Some(Abi::Openmpi)),
            ("libmpi_abi.so.1", Some(Abi::Standard)),
            ("libmpi.so.1", other("libmpi.so.1")),
            ("libmpi.so.20", other("libmpi.so.20")),
            ("libmpi.so", other("libmpi.so")),
            ("libmpich.so.10", other("libmpich.so.10")),
            ("libmpi_abi.so.0", other("libmpi_abi.so.0")),
            ("libmpi_cray.so.12", other("libmpi_cray.so.12")),
            ("libmpi_cxx.so.40", None),
            ("libmpifort.so.12", None),
            ("libmpdec.so.3", None),
            ("libc.so.6", None),
            ("libmpi", None),
        ] {
            assert_eq!(by_name(OsStr::new(name)), abi, "{name}");
        }
    }

    #[test]
    fn a_program_is_linked_to_what_its_libraries_are() {
        let Some(shop) = Workshop::new("linked") else { return };
        let folder = shop.path("lib").display().to_string();
        let programs = Programs::new(None);
        for (name, abi) in [
            ("libmpi.so.12", Abi::Mpich),
            ("libmpi.so.40", Abi::Openmpi),
            ("libmpi_abi.so.1", Abi::Standard),
            ("libmpi.so.20", Abi::Other("libmpi.so.20".into())),
        ] {
            let library = format!("lib/{name}");
            shop.library(&library, &[]);
            let direct = shop.gcc("direct", &[&library]);
            assert_eq!(programs.linked_to(&direct), abi);
            // As a program that uses PETSc is.
            shop.library("lib/libsolver.so.3", &[&library]);
            let through = shop.gcc("through", &["lib/libsolver.so.3", "-Wl,-rpath-link,lib"]);
            assert_eq!(programs.linked_to(&through), Abi::None, "where libsolver is nobody knows");
            assert_eq!(Programs::new(Some(OsStr::new(&folder))).linked_to(&through), abi);
            let run = shop.gcc("run", &["lib/libsolver.so.3", "-Wl,-rpath-link,lib,-rpath,$ORIGIN/lib"]);
            assert_eq!(programs.linked_to(&run), abi);
        }
        assert_eq!(programs.linked_to(Path::new("/bin/sh")), Abi::None);
        assert_eq!(programs.linked_to(Path::new("/no/such")), Abi::None);
    }

    #[test]
    fn a_script_is_what_its_interpreter_is() {
        let Some(shop) = Workshop::new("scripts") else { return };
        shop.library("lib/libmpi.so.40", &[]);
        let interpreter = shop.gcc("lisp", &["lib/libmpi.so.40"]).display().to_string();
        let script = |name: &str, first: &str| {
            std::fs::write(shop.path(name), format!("{first}\nbody\n")).unwrap();
            shop.path(name)
        };
        let programs = Programs::new(None);
        let one = script("one", &format!("#! {interpreter} -x"));
        let two = script("two", &format!("#!{}", one.display()));
        assert_eq!((programs.linked_to(&one), programs.linked_to(&two)), (Abi::Openmpi, Abi::Openmpi));
        let itself = script("itself", &format!("#!{}", shop.path("itself").display()));
        for other in [itself, script("sh", "#!/bin/sh"), script("env", "#!/usr/bin/env -S A=b sh -e")] {
            assert_eq!(programs.linked_to(&other), Abi::None);
        }
        assert!(super::interpreter(&shop.path("env")).unwrap().ends_with("sh"));
    }
}
