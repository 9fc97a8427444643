//! `--preload`: whether and from where `libsbmalloc.so` is put in front of the program.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use bdrun_ipc::{control, note};

use crate::cli::Preload;
use crate::elf::Elf;
use crate::exit::Ending;

const LIBRARY: &str = "libsbmalloc.so";

/// What a program is, as far as it matters to the dynamic linker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Linked dynamically, or a script, whose interpreter most likely is.
    Open,
    /// Linked statically, or for another machine: nothing can be put in front of it.
    Closed,
    /// Brings the runtime.
    Ours,
    /// Brings one that speaks this other version of the protocol.
    Other(u32),
}

/// How the ranks of a job are paged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Way {
    /// By their own runtime.
    Own,
    /// By this library, put in front of them.
    Preloaded(PathBuf),
    /// From outside; by this library, if there is one, where that cannot be.
    Outside(Option<PathBuf>),
}

/// How ranks that run `program` are paged. `is_mpi`: they will wait in our MPI, so that they all have to be
/// there, and had better ask for what they allocate: they grow all at once.
pub(super) fn way(when: Preload, is_mpi: bool, program: &Path) -> Result<Way, Ending> {
    let found = || std::env::current_exe().ok().and_then(|exe| beside(&exe));
    let kind = kind(program);
    if let Kind::Other(version) = kind {
        return Err(Ending::Setup(format!(
            "{} speaks version {version} of the protocol, bdrun {}: build both from one release",
            program.display(),
            control::PROTOCOL
        )));
    }
    match when {
        Preload::Never | Preload::Auto => Ok(match kind {
            Kind::Ours => Way::Own,
            Kind::Open
                if when == Preload::Auto
                    && is_mpi
                    && let Some(library) = found() =>
            {
                Way::Preloaded(nameable(library)?)
            }
            Kind::Open if when == Preload::Auto => {
                Way::Outside(found().and_then(|library| nameable(library).ok()))
            }
            _ => Way::Outside(None),
        }),
        Preload::Always => match (kind, found()) {
            (Kind::Closed, _) => Err(Ending::Setup(format!(
                "--preload always: {} is linked statically, so nothing can be preloaded into it; link it dynamically, or \
                 use --preload never and do without paging",
                program.display()
            ))),
            (_, Some(library)) => nameable(library).map(Way::Preloaded),
            (_, None) => Err(Ending::Setup(format!(
                "--preload always: {LIBRARY} is neither beside bdrun nor in ../lib; put it there (cargo build -p \
                 sbmalloc-preload), or use --preload never"
            ))),
        },
    }
}

/// An error if LD_PRELOAD cannot have this path in it: what stands there ends at a space or a colon, and is
/// passed over if it is not found.
pub(super) fn nameable(library: PathBuf) -> Result<PathBuf, Ending> {
    if library.as_os_str().as_encoded_bytes().iter().any(|byte| b" :".contains(byte)) {
        return Err(Ending::Setup(format!(
            "{} cannot be preloaded: there is a space or a colon in its path (LD_PRELOAD has no way to say it); move \
             bdrun to another folder, or use --preload never and --mpi none",
            library.display()
        )));
    }
    Ok(library)
}

fn beside(exe: &Path) -> Option<PathBuf> {
    let dir = exe.parent()?;
    [dir.to_owned(), dir.join("../lib")].into_iter().map(|dir| dir.join(LIBRARY)).find(|path| path.is_file())
}

/// `LD_PRELOAD` with the library in front of what is there already.
pub(super) fn in_front_of(library: &Path, before: Option<&OsStr>) -> OsString {
    let mut value = library.as_os_str().to_owned();
    if let Some(before) = before.filter(|before| !before.is_empty()) {
        value.push(":");
        value.push(before);
    }
    value
}

fn kind(program: &Path) -> Kind {
    // What is no ELF file has an interpreter.
    let Some(elf) = Elf::open(program) else { return Kind::Open };
    match elf.notes().find_map(|notes| note::protocol_in(&notes)) {
        Some(control::PROTOCOL) => Kind::Ours,
        Some(other) => Kind::Other(other),
        None if elf.is_linked_dynamically() => Kind::Open,
        None => Kind::Closed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_told_apart() {
        assert_eq!(kind(Path::new("/bin/sh")), Kind::Open);
        assert_eq!(kind(Path::new("/etc/passwd")), Kind::Open, "what is no ELF file has an interpreter");
        let dir = std::env::temp_dir().join(format!("bdrun-preload-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let file = dir.join("static");
        let mut elf = vec![0u8; 120];
        elf[..6].copy_from_slice(b"\x7fELF\x02\x01");
        elf[18] = if cfg!(target_arch = "x86_64") { 62 } else { 183 };
        elf[32] = 64;
        elf[54] = 56;
        elf[56] = 1;
        elf[64] = 1; // PT_LOAD
        std::fs::write(&file, &elf).unwrap();
        assert_eq!(kind(&file), Kind::Closed);
        elf[64] = 3; // PT_INTERP
        std::fs::write(&file, &elf).unwrap();
        assert_eq!(kind(&file), Kind::Open);
        elf[18] = 40;
        std::fs::write(&file, &elf).unwrap();
        assert_eq!(kind(&file), Kind::Closed, "of another machine");
        std::fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn what_ld_preload_cannot_name_is_refused() {
        assert!(nameable("/opt/bdrun/lib/libsbmalloc.so".into()).is_ok());
        for path in ["/opt/b c/libsbmalloc.so", "/opt/b:c/libsbmalloc.so"] {
            let refused = nameable(path.into()).unwrap_err();
            assert_eq!(refused.code(), 120);
            assert!(refused.to_string().contains(path), "{refused}");
        }
    }

    #[test]
    fn a_program_of_another_version_is_refused() {
        let program = std::env::temp_dir().join(format!("bdrun-preload-other-{}", std::process::id()));
        let mut elf = vec![0u8; 148];
        elf[..6].copy_from_slice(b"\x7fELF\x02\x01");
        elf[18] = if cfg!(target_arch = "x86_64") { 62 } else { 183 };
        (elf[32], elf[54], elf[56]) = (64, 56, 1);
        // One segment of notes, with ours.
        (elf[64], elf[72], elf[96]) = (4, 120, 28);
        (elf[120], elf[124], elf[128]) = (6, 4, note::TYPE as u8);
        elf[132..138].copy_from_slice(&note::NAME);
        elf[140] = control::PROTOCOL as u8;
        std::fs::write(&program, &elf).unwrap();
        assert_eq!(way(Preload::Auto, false, &program).unwrap(), Way::Own);
        elf[140] -= 1;
        std::fs::write(&program, &elf).unwrap();
        for when in [Preload::Never, Preload::Auto, Preload::Always] {
            let refused = way(when, false, &program).unwrap_err().to_string();
            assert!(refused.contains("build both from one release"), "{refused}");
        }
        std::fs::remove_file(&program).unwrap();
    }

    #[test]
    fn what_was_preloaded_stays() {
        let library = Path::new("/x/libsbmalloc.so");
        assert_eq!(in_front_of(library, None), "/x/libsbmalloc.so");
        assert_eq!(in_front_of(library, Some(OsStr::new(""))), "/x/libsbmalloc.so");
        assert_eq!(in_front_of(library, Some(OsStr::new("a.so:b.so"))), "/x/libsbmalloc.so:a.so:b.so");
    }
}
