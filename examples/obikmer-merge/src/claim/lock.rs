//! The lock of an index: an empty file beside it, which the one job that writes it has locked.

use std::fs::{File, Metadata, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::error::{Context, Error, Result};

/// A job that has just ended or been killed may hold its lock for a moment.
const GRACE: Duration = Duration::from_secs(1);

/// Ours until it is dropped; then its name is gone, if it is still that of our file.
pub struct Lock {
    path: PathBuf,
    file: File,
}

impl Lock {
    /// The lock at `path` of the index `out`.
    ///
    /// # Errors
    /// Another job has it; or what is there is no lock, or the file system has none.
    pub fn new(out: &Path, path: &Path) -> Result<Self> {
        let locking = || format!("cannot lock {}", path.display());
        let begin = Instant::now();
        loop {
            let mut options = OpenOptions::new();
            options.read(true).write(true).create(true).truncate(false);
            let opened = options.custom_flags(OFlags::NOFOLLOW.bits() as i32).open(path);
            let file = match opened {
                Err(_) if std::fs::symlink_metadata(path).is_ok_and(|there| !is_lock(&there)) => {
                    return Err(other(path));
                }
                opened => opened.context(|| format!("cannot create {}", path.display()))?,
            };
            if !is_lock(&file.metadata().context(locking)?) {
                return Err(other(path));
            }
            let locked = file.try_lock();
            if let Err(TryLockError::WouldBlock) = locked {
                if begin.elapsed() < GRACE {
                    std::thread::sleep(GRACE / 50);
                    continue;
                }
                return Err(Error::Usage(format!(
                    "{}: another job is writing this index (it has locked {}): start this one again when that \
                     has ended",
                    out.display(),
                    path.display()
                )));
            }
            let lock = Self { path: path.to_path_buf(), file };
            if let Err(TryLockError::Error(error)) = locked {
                return Err(refused(path, error));
            }
            // Who had it before us has removed the name, and somebody else may have made it anew.
            if lock.is_named() {
                return Ok(lock);
            }
        }
    }

    /// Is the name still that of our file?
    fn is_named(&self) -> bool {
        let node = |meta: Metadata| (meta.dev(), meta.ino());
        let named = std::fs::symlink_metadata(&self.path).map(node);
        named.is_ok_and(|named| self.file.metadata().is_ok_and(|ours| node(ours) == named))
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // First the name, then the lock (when the file is closed): whoever gets that sees that its name is
        // gone. What somebody else has called so meanwhile stays.
        if self.is_named() {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// As this program makes them.
fn is_lock(meta: &Metadata) -> bool {
    meta.is_file() && meta.len() == 0
}

/// What is there is somebody's.
fn other(path: &Path) -> Error {
    let what = "not a lock of this program, which is an empty file: move it elsewhere, or give another --out";
    Error::Usage(format!("{}: {what}", path.display()))
}

/// The system does not lock it.
fn refused(path: &Path, error: io::Error) -> Error {
    let none = [Errno::NOSYS, Errno::OPNOTSUPP, Errno::NOLCK].map(|errno| Some(errno.raw_os_error()));
    let what = if none.contains(&error.raw_os_error()) {
        ": without locks (flock) two jobs could write one index: make it on another file system, and copy it"
    } else {
        ""
    };
    Error::Io { what: format!("cannot lock {}{what}", path.display()), source: error }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_system_without_locks_is_told_with_the_remedy() {
        for (errno, remedy) in [(Errno::NOLCK, true), (Errno::NOSYS, true), (Errno::IO, false)] {
            let error = refused(Path::new("x.lock"), errno.into()).to_string();
            assert!(error.contains("cannot lock x.lock"), "{error}");
            assert_eq!(error.contains("another file system"), remedy, "{error}");
        }
    }
}
