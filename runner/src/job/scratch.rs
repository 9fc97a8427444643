//! The scratch directories of a job: which they are, and whether they can be used.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use nix::sys::statfs::{TMPFS_MAGIC, statfs};
use nix::sys::statvfs::statvfs;

use crate::cli::Options;
use crate::exit::Ending;
use crate::whole;

/// As many as `sbmalloc` uses.
const MOST: usize = 8;

/// Between the directories in `BDRUN_SCRATCH`, as in `PATH`: a directory with it in its name is refused.
const SEPARATOR: u8 = b':';

/// The directories named on the command line, else in the environment, else the default.
pub(super) fn directories(options: &Options, notes: &mut Vec<String>) -> Result<Vec<PathBuf>, Ending> {
    let mut named = options.scratch.clone();
    if named.is_empty() {
        named = split(&std::env::var_os("BDRUN_SCRATCH").unwrap_or_default());
    }
    if named.is_empty() {
        let default = std::env::var_os("TMPDIR").filter(|dir| !dir.is_empty());
        named.push(default.map_or_else(|| "/var/tmp".into(), PathBuf::from));
    }
    if named.len() > MOST {
        return Err(Ending::Setup(format!(
            "{} scratch directories: at most {MOST} can be used",
            named.len()
        )));
    }
    named.iter().map(|dir| usable(dir, notes)).collect()
}

fn usable(dir: &Path, notes: &mut Vec<String>) -> Result<PathBuf, Ending> {
    let dir = dir.canonicalize().map_err(|error| {
        Ending::Setup(format!("scratch directory {}: {error}; name another with --scratch", dir.display()))
    })?;
    if !dir.is_dir() {
        return Err(Ending::Setup(format!("scratch: {} is no directory", dir.display())));
    }
    if dir.as_os_str().as_bytes().contains(&SEPARATOR) {
        return Err(Ending::Setup(format!(
            "scratch directory {}: a colon in its name cannot be handed on; name another with --scratch",
            dir.display()
        )));
    }
    if statfs(&dir).is_ok_and(|fs| fs.filesystem_type() == TMPFS_MAGIC) {
        notes.push(format!(
            "scratch directory {} lies in memory (tmpfs): what is evicted there frees nothing; name a disk with --scratch",
            dir.display()
        ));
    }
    Ok(dir)
}

/// Makes a file in each, and returns that in the first, for messages that do not fit.
pub(super) fn make_file_in_each(dirs: &[PathBuf]) -> Result<OwnedFd, Ending> {
    let mut first = None;
    for dir in dirs {
        let made = unlinked_file(dir).map_err(|error| {
            Ending::Setup(format!(
                "cannot make files in the scratch directory {}: {error}; name another with --scratch",
                dir.display()
            ))
        })?;
        first.get_or_insert(made);
    }
    first.ok_or_else(|| Ending::Internal("no scratch directory".into()))
}

/// What ranks find in `BDRUN_SCRATCH`.
pub(super) fn join(dirs: &[PathBuf]) -> OsString {
    let names: Vec<&OsStr> = dirs.iter().map(|dir| dir.as_os_str()).collect();
    names.join(OsStr::from_bytes(&[SEPARATOR]))
}

/// The reverse of [`join`]; empty names are left out.
fn split(list: &OsStr) -> Vec<PathBuf> {
    let names = list.as_bytes().split(|&byte| byte == SEPARATOR).filter(|name| !name.is_empty());
    names.map(|name| OsStr::from_bytes(name).into()).collect()
}

/// Of several the one with the least room left: when scratch is full, that is the one.
pub(super) fn fullest(dirs: &[PathBuf]) -> Option<String> {
    let room = |dir: &&PathBuf| {
        statvfs(dir.as_path()).map_or(u64::MAX, |fs| fs.blocks_available().saturating_mul(fs.fragment_size()))
    };
    dirs.iter().min_by_key(room).map(|dir| dir.display().to_string())
}

/// A file for output that has to wait: what ranks print too early (`--keep-order`), and long lines.
pub(super) fn file_for_output(dirs: &[PathBuf]) -> Result<File, Ending> {
    make_file_in_each(&dirs[..1]).map(File::from)
}

/// A file without a name, so that nothing is left of it whatever happens.
pub(super) fn unlinked_file(dir: &Path) -> std::io::Result<OwnedFd> {
    let mut open = std::fs::OpenOptions::new();
    open.read(true).write(true).mode(0o600);
    match open.clone().custom_flags(libc::O_TMPFILE).open(dir) {
        Ok(file) => Ok(file.into()),
        Err(error)
            if error.raw_os_error() == Some(libc::EOPNOTSUPP)
                || error.raw_os_error() == Some(libc::EISDIR) =>
        {
            let (path, file) = whole::create_unused(&open, |attempt| {
                dir.join(format!(".bdrun-spill-{}-{attempt}", std::process::id()))
            })?;
            std::fs::remove_file(&path)?;
            Ok(file.into())
        }
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_joined_and_split() {
        let dirs: Vec<PathBuf> = ["/a", "/b,c d", "/e"].map(PathBuf::from).into();
        assert_eq!(join(&dirs), "/a:/b,c d:/e");
        assert_eq!(split(&join(&dirs)), dirs);
        assert_eq!(split(OsStr::new("")), Vec::<PathBuf>::new());
        assert_eq!(split(OsStr::new(":/x::")), [PathBuf::from("/x")]);
    }

    #[test]
    fn what_cannot_be_used_is_refused_by_name() {
        let dir = std::env::temp_dir().join(format!("bdrun-scratch-{}:odd", std::process::id()));
        let refusal = |dir: &Path| usable(dir, &mut vec![]).map_err(|e| e.to_string());
        assert!(refusal(&dir).unwrap_err().contains("No such file"));
        std::fs::create_dir_all(&dir).unwrap();
        assert!(refusal(&dir).unwrap_err().contains("a colon in its name"));
        std::fs::remove_dir_all(&dir).unwrap();
        assert!(refusal(Path::new("/etc/passwd")).unwrap_err().contains("is no directory"));
        let options =
            Options::from_args(std::iter::once("bdrun").chain(["--scratch=/tmp"; 9]).chain(["true"]));
        let refused = directories(&options.unwrap(), &mut vec![]).unwrap_err();
        assert!(refused.to_string().contains("9 scratch directories: at most 8"));
    }

    #[test]
    fn a_spill_file_has_no_name() {
        let dir = std::env::temp_dir().join(format!("bdrun-setup-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let _file = make_file_in_each(&[dir.clone(), dir.clone()]).unwrap();
        assert_eq!(std::fs::read_dir(&dir).unwrap().count(), 0);
        std::fs::remove_dir_all(&dir).unwrap();
        assert!(make_file_in_each(&[dir]).is_err());
    }
}
