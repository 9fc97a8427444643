//! What lies under the name of an index: what a new one may take the place of, and what is to stay.

use std::fs::DirEntry;
use std::io::{ErrorKind, Result as IoResult};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use crate::error::{Context, Error, Result};
use crate::layer::identity::{Hasher, Id};
use crate::layer::{is_directory, is_file};
use crate::plan::SPOOL;
use crate::{index, summary};

/// A file, whatever it is called.
type Node = (u64, u64);

/// What lies under a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum There {
    /// Nothing.
    Nothing,
    /// An empty directory.
    Empty(Node),
    /// An index, of any version, and nothing else in it; and what it says of itself.
    Index(Node, Id),
    /// An index, and in it something that is not of an index.
    Mixed(PathBuf),
    /// Something else.
    Other,
}

impl There {
    /// Under this name, which is no link.
    pub fn look(path: &Path) -> Result<Self> {
        let looking = || format!("cannot read {}", path.display());
        let meta = match std::fs::symlink_metadata(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Self::Nothing),
            meta => meta.context(looking)?,
        };
        if !meta.is_dir() {
            return Ok(Self::Other);
        }
        let node = (meta.dev(), meta.ino());
        if std::fs::read_dir(path).context(looking)?.next().is_none() {
            return Ok(Self::Empty(node));
        }
        if !index::says_so(path) {
            return Ok(Self::Other);
        }
        let mut hasher = Hasher::default();
        hasher.update(&std::fs::read(path.join(index::FILE)).context(looking)?);
        let Listed { dirs, other, .. } = Listed::new(path).context(looking)?;
        // Only what is not yet an index has copies of pipes.
        let spool = path.join(SPOOL);
        Ok(match other.or(Some(spool).filter(|spool| dirs.contains(spool))) {
            Some(other) => Self::Mixed(other),
            None => Self::Index(node, hasher.finish()),
        })
    }
}

/// What a directory has in it.
#[derive(Default)]
struct Listed {
    /// Files of an index, that which says that it is one first.
    files: Vec<PathBuf>,
    /// Directories of an index.
    dirs: Vec<PathBuf>,
    /// The first by name that is of none.
    other: Option<PathBuf>,
}

impl Listed {
    fn new(dir: &Path) -> IoResult<Self> {
        let mut listed = Self::default();
        listed.list(dir, |entry, name| {
            // A link with the name of a directory is a file as long as it is not followed.
            let is_dir = entry.file_type()?.is_dir();
            Ok(match name {
                index::FILE | summary::FILE | index::IDENTITIES => !is_dir,
                SPOOL => is_dir,
                _ => is_directory(name) && (is_dir || entry.file_type()?.is_symlink()),
            })
        })?;
        for dir in listed.dirs.clone() {
            let spooled = dir.ends_with(SPOOL);
            listed.list(&dir, |entry, name| {
                let ours = if spooled { name.bytes().all(|b| b.is_ascii_digit()) } else { is_file(name) };
                Ok(ours && !entry.file_type()?.is_dir())
            })?;
        }
        listed.files.sort_by_key(|file| !file.ends_with(index::FILE));
        Ok(listed)
    }

    fn list(&mut self, dir: &Path, is_ours: impl Fn(&DirEntry, &str) -> IoResult<bool>) -> IoResult<()> {
        for entry in std::fs::read_dir(dir)? {
            let entry = entry?;
            let path = entry.path();
            let ours = entry.file_name().to_str().map_or(Ok(false), |name| is_ours(&entry, name))?;
            if !ours {
                if self.other.as_ref().is_none_or(|other| path < *other) {
                    self.other = Some(path);
                }
            } else if entry.file_type()?.is_dir() {
                self.dirs.push(path);
            } else {
                self.files.push(path);
            }
        }
        Ok(())
    }
}

/// Remove an index, or what became of one that is not complete: what is not of an index stays, and so does
/// the directory then. It is an index no more from the first moment on.
pub fn remove(dir: &Path) -> Result<()> {
    let removing = || format!("cannot remove {}", dir.display());
    let mode = std::fs::symlink_metadata(dir).context(removing)?.permissions().mode();
    if mode & 0o700 != 0o700 {
        // Where its owner may write nothing, nothing is removed either.
        let _ = std::fs::set_permissions(dir, PermissionsExt::from_mode(mode | 0o700));
    }
    let Listed { files, dirs, other } = Listed::new(dir).context(removing)?;
    for file in files {
        std::fs::remove_file(file).context(removing)?;
    }
    for inner in &dirs {
        if other.as_ref().is_none_or(|other| !other.starts_with(inner)) {
            std::fs::remove_dir(inner).context(removing)?;
        }
    }
    match other {
        None => std::fs::remove_dir(dir).context(removing),
        Some(other) => {
            let what = format!("cannot be removed: {} is not of an index", other.display());
            Err(Error::Index { path: dir.to_path_buf(), what })
        }
    }
}
