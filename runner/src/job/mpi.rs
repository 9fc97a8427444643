//! `--mpi`: our MPI libraries, in front of those that programs would find.
//!
//! A folder beside bdrun (`mpi`, else `../lib/bdrun/mpi`) has them by the names that programs are linked to.
//! In a folder of cargo's it is made of links to what was built there.

use std::ffi::{OsStr, OsString};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use crate::cli::Mpi;
use crate::exit::Ending;

/// What programs are linked to, and what it is called where it was built.
const LIBRARIES: [(&str, &str); 7] = [
    ("libmpi_abi.so.1", "libmpi_abi.so"),
    ("libmpi.so.12", "libmpich_face.so"),
    ("libmpi.so.40", "libmpi_openmpi.so"),
    // For Fortran.
    ("libmpifort.so.12", "libmpifort.so"),
    ("libmpi_mpifh.so.40", "libmpi_mpifh.so"),
    // As Debian calls MPICH's.
    ("libmpich.so.12", "libmpich_face.so"),
    ("libmpichfort.so.12", "libmpifort.so"),
];

/// What ranks are told of it; nothing where there is nothing to tell.
pub(super) fn settings(which: Mpi, exe: &Path) -> Result<Option<Settings>, Ending> {
    let abi = match which {
        Mpi::None => return Ok(None),
        Mpi::Auto | Mpi::Mpich => "mpich",
        Mpi::Abi => "mpiabi",
        Mpi::Openmpi => "openmpi",
    };
    match folder(exe) {
        Some(folder) => Ok(Some(Settings { folder, abi })),
        None if which == Mpi::Auto => Ok(None),
        None => Err(Ending::Setup(format!(
            "--mpi: bdrun's MPI libraries are neither in {} nor in ../lib/bdrun/mpi; put them there (cargo build \
             --workspace), or use --mpi none",
            exe.with_file_name("mpi").display()
        ))),
    }
}

/// Where the libraries are, and which ABI a program that can choose is to have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Settings {
    folder: PathBuf,
    abi: &'static str,
}

impl Settings {
    /// The environment of a rank, of which something is `given` already.
    pub fn environment(&self, given: impl Fn(&str) -> Option<OsString>) -> Vec<(OsString, OsString)> {
        let before = given("LD_LIBRARY_PATH");
        let mut all = vec![("LD_LIBRARY_PATH".into(), in_front_of(&self.folder, before.as_deref()))];
        if given("MPI4PY_MPIABI").is_none() {
            all.push(("MPI4PY_MPIABI".into(), self.abi.into()));
        }
        all
    }
}

fn in_front_of(folder: &Path, before: Option<&OsStr>) -> OsString {
    let mut value = folder.as_os_str().to_owned();
    if let Some(before) = before.filter(|before| !before.is_empty()) {
        value.push(":");
        value.push(before);
    }
    value
}

fn folder(exe: &Path) -> Option<PathBuf> {
    let dir = exe.parent()?;
    let has_all = |folder: &Path| LIBRARIES.iter().all(|(name, _)| folder.join(name).is_file());
    let beside = dir.join("mpi");
    let built = LIBRARIES.map(|(name, built)| (name, dir.join(built)));
    if !has_all(&beside) && built.iter().all(|(_, path)| path.is_file()) {
        let there = |result: std::io::Result<()>| match result {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => None,
            _ => Some(()),
        };
        there(std::fs::create_dir(&beside))?;
        for (name, path) in built {
            there(std::os::unix::fs::symlink(path, beside.join(name)))?;
        }
    }
    [beside, dir.join("../lib/bdrun/mpi")].into_iter().find(|folder| has_all(folder))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_found_by_the_names_that_programs_know() {
        let dir = std::env::temp_dir().join(format!("bdrun-mpi-{}", std::process::id()));
        std::fs::create_dir(&dir).unwrap();
        let exe = dir.join("bdrun");
        assert_eq!(settings(Mpi::Auto, &exe).unwrap(), None);
        assert!(settings(Mpi::Mpich, &exe).unwrap_err().to_string().contains("--mpi none"));
        for (_, built) in LIBRARIES {
            std::fs::write(dir.join(built), built).unwrap();
        }
        for _ in 0..2 {
            let found = settings(Mpi::Auto, &exe).unwrap().unwrap();
            assert_eq!(found, Settings { folder: dir.join("mpi"), abi: "mpich" });
            for (name, built) in LIBRARIES {
                assert_eq!(std::fs::read_to_string(found.folder.join(name)).unwrap(), built);
            }
        }
        assert_eq!(settings(Mpi::None, &exe).unwrap(), None);
        assert_eq!(settings(Mpi::Openmpi, &exe).unwrap().unwrap().abi, "openmpi");
        std::fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn what_a_user_has_set_stays() {
        let settings = Settings { folder: "/x/mpi".into(), abi: "mpich" };
        let none = settings.environment(|_| None);
        assert_eq!(
            none,
            [("LD_LIBRARY_PATH".into(), "/x/mpi".into()), ("MPI4PY_MPIABI".into(), "mpich".into())]
        );
        let some = settings.environment(|name| Some(OsString::from(format!("own-{name}"))));
        assert_eq!(some, [("LD_LIBRARY_PATH".into(), "/x/mpi:own-LD_LIBRARY_PATH".into())]);
    }
}
