//! What can be read only once, or only by this process, is copied to where all ranks can read it.

use std::collections::HashSet;
use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use crate::error::{Context, Error, Result};
use crate::input::compressed::{Format, LOOK};

/// Most links from one name to another that are followed.
const LINKS: usize = 40;

/// Most bytes of white space before anything else.
const BLANK: usize = 16 << 20;

/// Copies of pipes.
pub struct Spool {
    dir: PathBuf,
    copies: usize,
    /// Pipes that were read to their end: device and inode.
    pipes: HashSet<(u64, u64)>,
}

impl Spool {
    /// Copies go into this directory, which is made when the first one comes.
    pub fn new(dir: PathBuf) -> Self {
        Self { dir, copies: 0, pipes: HashSet::new() }
    }

    /// The file to be read instead of `path`: itself, if every rank can read it by that name as often as it
    /// likes.
    ///
    /// # Errors
    /// It cannot be read or copied, or begins like nothing that could be used; so the disk is not filled by
    /// what has no end.
    pub fn file(&mut self, path: &Path) -> Result<PathBuf> {
        let meta = std::fs::metadata(path).context(|| format!("cannot open {}", path.display()))?;
        let kind = meta.file_type();
        if kind.is_block_device() {
            return Err(Error::Usage(format!("{}: a disk, not a file of sequences", path.display())));
        }
        if kind.is_file() && !is_of_this_process(path) {
            return Ok(path.to_path_buf());
        }
        if kind.is_fifo() && !self.pipes.insert((meta.dev(), meta.ino())) {
            // To open a named one again would wait for ever.
            return Err(Error::Usage(format!("{}: a pipe that was given twice", path.display())));
        }
        if self.copies == 0 {
            std::fs::create_dir(&self.dir).context(|| format!("cannot create {}", self.dir.display()))?;
        }
        let copy = self.dir.join(self.copies.to_string());
        self.copies += 1;
        // Of a named pipe this waits for somebody who writes.
        let mut from = File::open(path).context(|| format!("cannot open {}", path.display()))?;
        let mut to = File::create_new(&copy).context(|| format!("cannot create {}", copy.display()))?;
        let mut bytes = vec![0; 1 << 20];
        // Its first bytes behind white space, until they have been looked at.
        let (mut first, mut blank) = (Some(Vec::new()), 0);
        let mut look = |read: &[u8]| {
            let Some(begun) = &mut first else { return Ok(()) };
            let space = if begun.is_empty() {
                read.iter().take_while(|b| b.is_ascii_whitespace()).count()
            } else {
                0
            };
            blank += space;
            if blank > BLANK {
                let what = format!("more than {} MiB of white space before anything else", BLANK >> 20);
                return Err(Error::Sequence { file: path.to_path_buf(), record: "1".into(), what });
            }
            begun.extend(read[space..].iter().take(LOOK - begun.len()));
            if begun.len() < LOOK && !read.is_empty() {
                return Ok(());
            }
            let usable = matches!(begun.first(), None | Some(b'>' | b'@')) || Format::of(begun).is_some();
            first = None;
            if usable { Ok(()) } else { Err(super::neither(path)) }
        };
        loop {
            let read = match from.read(&mut bytes) {
                Ok(0) => {
                    look(&[])?;
                    return Ok(copy);
                }
                Ok(read) => read,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error).context(|| format!("cannot read {}", path.display())),
            };
            look(&bytes[..read])?;
            to.write_all(&bytes[..read])
                .context(|| format!("cannot copy {} to {}", path.display(), copy.display()))?;
        }
    }

    /// All ranks have read them.
    pub fn remove(dir: &Path) -> Result<()> {
        match std::fs::remove_dir_all(dir) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(error).context(|| format!("cannot remove {}", dir.display()))
            }
            _ => Ok(()),
        }
    }
}

/// Does this name mean something else to every process, as `/dev/stdin` does?
fn is_of_this_process(path: &Path) -> bool {
    let mut path = path.to_path_buf();
    for _ in 0..LINKS {
        let parent = match path.parent() {
            Some(parent) if parent.as_os_str().is_empty() => Path::new("."),
            Some(parent) => parent,
            None => return false,
        };
        let Ok(parent) = parent.canonicalize() else { return false };
        if parent.starts_with("/proc") {
            return true;
        }
        let Ok(link) = std::fs::read_link(&path) else { return false };
        path = parent.join(link);
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_each_process_has_for_itself() {
        let dir = tempfile::tempdir().expect("a directory");
        let (file, link) = (dir.path().join("file"), dir.path().join("link"));
        File::create(&file).expect("made");
        std::os::unix::fs::symlink("/dev/stdin", &link).expect("linked");
        for (path, expected) in [
            (Path::new("/dev/stdin"), true),
            (Path::new("/dev/fd/0"), true),
            (Path::new("/proc/self/fd/0"), true),
            (&link, true),
            (&file, false),
            (Path::new("Cargo.toml"), false),
        ] {
            assert_eq!(is_of_this_process(path), expected, "{}", path.display());
        }
    }
}
