//! Files that are whole, or not there: made aside, then renamed.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

/// Why a file could not be written.
#[derive(Debug, thiserror::Error)]
#[error("cannot write {}: {source}", path.display())]
pub struct Unwritten {
    /// The file at fault.
    pub path: PathBuf,
    /// What the system said.
    pub source: io::Error,
}

/// Where a file is made before it takes its place.
fn aside(path: &Path) -> PathBuf {
    let mut aside = path.as_os_str().to_owned();
    aside.push(format!(".{}.tmp", std::process::id()));
    PathBuf::from(aside)
}

/// Makes a file of what `fill` writes: aside, in the same directory, durable, then renamed to `path`.
///
/// # Errors
/// With the path at fault; nothing is left behind then, and an older file stays as it was.
pub fn write(path: &Path, fill: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<(), Unwritten> {
    let aside = aside(path);
    let written = File::create(&aside).and_then(|file| {
        let mut out = BufWriter::new(file);
        fill(&mut out)?;
        // The rename must never expose an empty file.
        out.into_inner().map_err(io::IntoInnerError::into_error)?.sync_data()
    });
    written.and_then(|()| std::fs::rename(&aside, path)).map_err(|source| {
        // Best effort: the error to report is the first one.
        let _ = std::fs::remove_file(&aside);
        Unwritten { path: path.to_owned(), source }
    })
}

/// Whether [`write`] will be able to, as far as can be known before.
///
/// # Errors
/// As there.
pub fn check(path: &Path) -> Result<(), Unwritten> {
    let aside = aside(path);
    let is_directory = path.is_dir().then(|| io::Error::from(io::ErrorKind::IsADirectory));
    let made = is_directory.map_or_else(|| File::create_new(&aside).map(drop), Err);
    made.and_then(|()| std::fs::remove_file(&aside))
        .map_err(|source| Unwritten { path: path.to_owned(), source })
}
