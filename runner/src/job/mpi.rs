//! `--mpi`: our MPI libraries, in front of those that programs would find.
//!
//! A folder beside bdrun (`mpi`, else `../lib/bdrun/mpi`) has them by the names that programs are linked to.
//! In a folder of cargo's it is made of links to what was built there.
//!
//! The one that a program is linked to is preloaded by its path: a library of that name that is loaded
//! already is what the program gets, wherever its own entries (RPATH) would have it looked for. The folder
//! goes in front of the library path for all that is not known before: interpreters, and what a program
//! starts.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::linked::{Abi, Programs};
use super::preload;
use crate::cli::Mpi;
use crate::exit::Ending;

/// What programs are linked to, and what it is called where it was built.
const LIBRARIES: [(&str, &str); 7] = [
    ("libmpi_abi.so.1", "libmpi_abi.so"),
    ("libmpi.so.12", "libmpich_face.so"),
    // As Debian has it.
    ("libmpich.so.12", "libmpich_face.so"),
    ("libmpi.so.40", "libmpi_openmpi.so"),
    // For Fortran.
    ("libmpifort.so.12", "libmpifort.so"),
    ("libmpi_mpifh.so.40", "libmpi_mpifh.so"),
    // As Debian calls MPICH's.
    ("libmpichfort.so.12", "libmpifort.so"),
];

/// One of our ABIs: its library, what mpi4py calls it, what people do.
type Face = (&'static str, &'static str, &'static str);

const STANDARD: Face = (LIBRARIES[0].0, "mpiabi", "the standard's ABI");
const MPICH: Face = (LIBRARIES[1].0, "mpich", "MPICH's ABI");
const OPENMPI: Face = (LIBRARIES[3].0, "openmpi", "Open MPI's ABI");

/// What ranks that run these programs are told of it; nothing where there is nothing to tell.
pub(super) fn settings(
    which: Mpi,
    exe: &Path,
    programs: &[PathBuf],
    library_path: Option<&OsStr>,
) -> Result<Option<Settings>, Ending> {
    let wanted = match which {
        Mpi::None => return Ok(None),
        Mpi::Auto => None,
        Mpi::Mpich => Some(MPICH),
        Mpi::Abi => Some(STANDARD),
        Mpi::Openmpi => Some(OPENMPI),
    };
    let all = Programs::new(library_path);
    let mut faces = HashMap::new();
    for program in programs {
        if let Some(face) = face_of(program, &all.linked_to(program))? {
            if let Some(wanted) = wanted.filter(|wanted| *wanted != face) {
                return Err(Ending::Setup(format!(
                    "--mpi: {} is linked to {}, and not to {}; leave --mpi out",
                    program.display(),
                    face.2,
                    wanted.2
                )));
            }
            faces.insert(program.clone(), face);
        }
    }
    let needs = faces.keys().next().map(|program| format!(" ({} needs them)", program.display()));
    match folder(exe) {
        Some(folder) if needs.is_some() => {
            let folder = preload::nameable(folder)?;
            Ok(Some(Settings { folder, abi: wanted.unwrap_or(MPICH).1, faces }))
        }
        Some(folder) => Ok(Some(Settings { folder, abi: wanted.unwrap_or(MPICH).1, faces })),
        None if which == Mpi::Auto && needs.is_none() => Ok(None),
        // Each rank would be alone in a world of its own.
        None => Err(Ending::Setup(format!(
            "--mpi: bdrun's MPI libraries{} are neither in {} nor in ../lib/bdrun/mpi; put them there (cargo build \
             --workspace), or use --mpi none",
            needs.unwrap_or_default(),
            exe.with_file_name("mpi").display()
        ))),
    }
}

/// Ours for a program; an error if it is linked to one that we have nothing for.
fn face_of(program: &Path, abi: &Abi) -> Result<Option<Face>, Ending> {
    match abi {
        Abi::None => Ok(None),
        Abi::Standard => Ok(Some(STANDARD)),
        Abi::Mpich => Ok(Some(MPICH)),
        Abi::Openmpi => Ok(Some(OPENMPI)),
        Abi::Other(library) => {
            let ours = [STANDARD, MPICH, OPENMPI].map(|(name, _, abi)| format!("{name}, {abi}"));
            Err(Ending::Setup(format!(
                "{} is linked to {library}, an MPI that bdrun cannot stand in for (it can for {}); build it with one of \
                 these, or use --mpi none and it finds its own",
                program.display(),
                ours.join("; ")
            )))
        }
    }
}

/// Where the libraries are, and which a program is to have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Settings {
    folder: PathBuf,
    /// For those that can choose.
    abi: &'static str,
    /// Of programs that are linked to one.
    faces: HashMap<PathBuf, Face>,
}

impl Settings {
    /// Whether ranks will call our MPI, as far as that is known before they run: that was said, one of their
    /// programs is linked to it, or it is Python and mpi4py is named in what it is to run.
    pub fn is_called(&self, which: Mpi, program: &Path, args: &[OsString]) -> bool {
        which != Mpi::Auto || !self.faces.is_empty() || names_mpi4py(program, args)
    }

    /// The environment of a rank that runs `program`, of which something is `given` already.
    pub fn environment(
        &self,
        program: &Path,
        given: impl Fn(&str) -> Option<OsString>,
    ) -> Vec<(OsString, OsString)> {
        let face = self.faces.get(program);
        let before = given("LD_LIBRARY_PATH");
        let mut all = vec![("LD_LIBRARY_PATH".into(), preload::in_front_of(&self.folder, before.as_deref()))];
        if let Some((library, ..)) = face {
            let before = given("LD_PRELOAD");
            all.push((
                "LD_PRELOAD".into(),
                preload::in_front_of(&self.folder.join(library), before.as_deref()),
            ));
        }
        if given("MPI4PY_MPIABI").is_none() {
            all.push(("MPI4PY_MPIABI".into(), face.map_or(self.abi, |face| face.1).into()));
        }
        all
    }
}

/// Whether Python is told to run mpi4py, or another of its modules that call MPI, or a script with such a
/// name in it.
fn names_mpi4py(program: &Path, args: &[OsString]) -> bool {
    const NAMES: [&[u8]; 3] = [b"mpi4py", b"petsc4py", b"slepc4py"];
    let is_python = program.file_name().is_some_and(|name| name.as_bytes().starts_with(b"python"));
    let script = if is_python {
        args.iter().map(Path::new).find(|arg| arg.extension() == Some(OsStr::new("py")))
    } else {
        Some(program)
    };
    let has_name = |bytes: &[u8]| NAMES.iter().any(|name| memchr::memmem::find(bytes, name).is_some());
    let in_script = |script: &Path| {
        let mut start = Vec::new();
        let read = File::open(script).and_then(|file| file.take(SCRIPT).read_to_end(&mut start));
        read.is_ok() && (is_python || start.starts_with(b"#!")) && has_name(&start)
    };
    (is_python && args.iter().any(|arg| has_name(arg.as_bytes()))) || script.is_some_and(in_script)
}

/// So much of a script is looked at, bytes.
const SCRIPT: u64 = 1 << 20;

fn folder(exe: &Path) -> Option<PathBuf> {
    let dir = exe.parent()?;
    let has_all = |folder: &Path| LIBRARIES.iter().all(|(name, _)| folder.join(name).is_file());
    let beside = dir.join("mpi");
    if !has_all(&beside) && LIBRARIES.iter().all(|(_, built)| dir.join(built).is_file()) {
        let there = |result: std::io::Result<()>| match result {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => None,
            _ => Some(()),
        };
        there(std::fs::create_dir(&beside))?;
        for (name, built) in LIBRARIES {
            // By no absolute path: in a copy of the folder they are the copy's.
            there(std::os::unix::fs::symlink(Path::new("..").join(built), beside.join(name)))?;
        }
    }
    [beside, dir.join("../lib/bdrun/mpi")].into_iter().find(|folder| has_all(folder))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::elf::tests::Workshop;

    #[test]
    fn libraries_are_found_by_the_names_that_programs_know() {
        let dir = std::env::temp_dir().join(format!("bdrun-mpi-{}", std::process::id()));
        std::fs::create_dir(&dir).unwrap();
        let exe = dir.join("bdrun");
        let settings = |which| settings(which, &exe, &["/bin/sh".into()], None);
        assert_eq!(settings(Mpi::Auto).unwrap(), None);
        assert!(settings(Mpi::Mpich).unwrap_err().to_string().contains("--mpi none"));
        for (_, built) in LIBRARIES {
            std::fs::write(dir.join(built), built).unwrap();
        }
        for _ in 0..2 {
            let found = settings(Mpi::Auto).unwrap().unwrap();
            assert_eq!((&found.folder, found.abi, found.faces.len()), (&dir.join("mpi"), "mpich", 0));
            for (name, built) in LIBRARIES {
                assert_eq!(std::fs::read_to_string(found.folder.join(name)).unwrap(), built);
            }
        }
        assert_eq!(settings(Mpi::None).unwrap(), None);
        assert_eq!(settings(Mpi::Openmpi).unwrap().unwrap().abi, "openmpi");
        std::fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn a_program_gets_the_one_that_it_is_linked_to() {
        let Some(shop) = Workshop::new("mpi") else { return };
        let exe = shop.path("bdrun");
        let linked_to = |name: &str| {
            shop.library(name, &[]);
            shop.gcc(&format!("for-{name}"), &[name])
        };
        let (program, other) = (linked_to("libmpi.so.40"), linked_to("libmpi.so.20"));
        let settings = |which, program: &PathBuf| settings(which, &exe, std::slice::from_ref(program), None);
        // It would run as so many singletons.
        let missing = settings(Mpi::Auto, &program).unwrap_err().to_string();
        assert!(missing.contains("for-libmpi.so.40") && missing.contains("--mpi none"), "{missing}");
        for (_, built) in LIBRARIES {
            std::fs::write(shop.path(built), built).unwrap();
        }
        let found = settings(Mpi::Auto, &program).unwrap().unwrap();
        let folder = shop.path("mpi").display().to_string();
        assert_eq!(
            found.environment(&program, |name| (name == "LD_PRELOAD").then(|| "own.so".into())),
            [
                ("LD_LIBRARY_PATH".into(), OsString::from(&folder)),
                ("LD_PRELOAD".into(), format!("{folder}/libmpi.so.40:own.so").into()),
                ("MPI4PY_MPIABI".into(), "openmpi".into())
            ]
        );
        assert_eq!(found.environment(Path::new("/bin/sh"), |_| None).len(), 2, "another program");
        let wrong = settings(Mpi::Mpich, &program).unwrap_err();
        assert!(wrong.to_string().contains("linked to Open MPI's ABI, and not to MPICH's"), "{wrong}");
        for which in [Mpi::Auto, Mpi::Mpich] {
            let refused = settings(which, &other).unwrap_err();
            assert_eq!(refused.code(), 120);
            for word in ["for-libmpi.so.20", "linked to libmpi.so.20", "libmpi.so.12", "--mpi none"] {
                assert!(refused.to_string().contains(word), "{refused}");
            }
        }
        assert_eq!(settings(Mpi::None, &other).unwrap(), None);
    }

    #[test]
    fn what_names_mpi4py_calls_it() {
        let dir = std::env::temp_dir().join(format!("bdrun-names-{}", std::process::id()));
        std::fs::create_dir(&dir).unwrap();
        let script = |name: &str, text: &str| {
            let path = dir.join(name);
            std::fs::write(&path, text).unwrap();
            path
        };
        let with = script("with.py", "#!/usr/bin/env python3\nfrom mpi4py import MPI\n");
        let without = script("without.py", "#!/usr/bin/env python3\nprint(1)\n");
        let data = script("data", "mpi4py");
        let names = |program: &Path, args: &[&str]| {
            names_mpi4py(program, &args.iter().map(OsString::from).collect::<Vec<_>>())
        };
        let (python, with, without) = (Path::new("/usr/bin/python3.11"), with.as_path(), without.as_path());
        assert!(names(python, &["-u", with.to_str().unwrap(), "x"]));
        assert!(names(python, &["-m", "mpi4py.bench"]));
        assert!(names(python, &["-c", "from petsc4py import PETSc"]));
        assert!(names(python, &["-c", "import mpi4py.MPI"]));
        assert!(names(with, &[]));
        assert!(!names(python, &[without.to_str().unwrap()]) && !names(without, &[]) && !names(&data, &[]));
        assert!(!names(Path::new("/bin/echo"), &["mpi4py"]) && !names(python, &["/no/such.py"]));
        std::fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn what_a_user_has_set_stays() {
        let settings = Settings { folder: "/x/mpi".into(), abi: "mpich", faces: HashMap::new() };
        let none = settings.environment(Path::new("p"), |_| None);
        assert_eq!(
            none,
            [("LD_LIBRARY_PATH".into(), "/x/mpi".into()), ("MPI4PY_MPIABI".into(), "mpich".into())]
        );
        let some = settings.environment(Path::new("p"), |name| Some(OsString::from(format!("own-{name}"))));
        assert_eq!(some, [("LD_LIBRARY_PATH".into(), "/x/mpi:own-LD_LIBRARY_PATH".into())]);
    }
}
