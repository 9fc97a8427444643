//! `--dry-run`: what would be run, as lines for the shell.

use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::Launch;
use crate::units::Bytes;

impl Launch {
    /// One line for each rank: its command with its directory, files and environment, quoted for a shell, and
    /// behind `#` its number and the memory expected of it.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn show(&self, out: &mut impl Write) -> io::Result<()> {
        for rank in 0..self.np {
            let given = self.given(rank);
            // Files are found from where bdrun is, the line is read by a shell that has changed its
            // directory.
            let file = |path: &Path| match &given.directory {
                Some(_) => std::path::absolute(path).unwrap_or_else(|_| path.to_owned()).into_os_string(),
                None => path.as_os_str().to_owned(),
            };
            if let Some(directory) = &given.directory {
                write_words(out, b"cd ", [directory.as_os_str()])?;
                out.write_all(b" && ")?;
            }
            for (name, value) in &given.env {
                out.write_all(name.as_bytes())?;
                write_words(out, b"=", [value.as_os_str()])?;
                out.write_all(b" ")?;
            }
            let words = std::iter::once(&given.program).chain(&given.args).map(OsString::as_os_str);
            write_words(out, b"", words)?;
            if let Some(path) = &given.stdin {
                write_words(out, b" < ", [file(path).as_os_str()])?;
            }
            if let Some(path) = &given.stdout {
                write_words(out, b" > ", [file(path).as_os_str()])?;
            }
            match &given.stderr {
                Some(path) if given.stdout.as_ref() == Some(path) => out.write_all(b" 2>&1")?,
                Some(path) => write_words(out, b" 2> ", [file(path).as_os_str()])?,
                None => {}
            }
            write!(out, "  # rank {rank}")?;
            if let Some(bytes) = self.declared(rank) {
                write!(out, ", {} expected", Bytes(bytes))?;
            }
            out.write_all(b"\n")?;
        }
        Ok(())
    }
}

/// Words with spaces between, each quoted where a shell would otherwise read more into it.
fn write_words<'a>(
    out: &mut impl Write,
    before: &[u8],
    words: impl IntoIterator<Item = &'a OsStr>,
) -> io::Result<()> {
    out.write_all(before)?;
    for (at, word) in words.into_iter().enumerate() {
        if at > 0 {
            out.write_all(b" ")?;
        }
        // Only a zero byte cannot be quoted; nor can it be an argument.
        out.write_all(&shlex::bytes::try_quote(word.as_bytes()).unwrap_or_else(|_| word.as_bytes().into()))?;
    }
    Ok(())
}
