//! Files that are whole, or not there: made aside, then renamed. What is no regular file is written as it is.

use std::fs::{File, Metadata, OpenOptions, Permissions};
use std::io::{self, BufWriter, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
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

/// As many symbolic links in a row as the kernel follows.
const LINKS: usize = 40;

/// What a path is the name of.
enum Target {
    /// A regular file, or nothing yet: the name behind all links.
    File(PathBuf),
    /// Our own standard output or error, wherever that goes: what was printed there must not be replaced.
    Ours(File),
    /// A device, a pipe.
    Special(PathBuf),
}

impl Target {
    fn of(path: &Path) -> io::Result<Self> {
        let there = match path.metadata() {
            Ok(there) => there,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return behind_links(path).map(Self::File);
            }
            Err(error) => return Err(error),
        };
        if there.is_dir() {
            return Err(io::ErrorKind::IsADirectory.into());
        }
        let (stdout, stderr) = (io::stdout(), io::stderr());
        for stream in [stdout.as_fd(), stderr.as_fd()] {
            let Ok(stream) = stream.try_clone_to_owned() else { continue };
            let stream = File::from(stream);
            let is_same = |own: &std::fs::Metadata| (own.dev(), own.ino()) == (there.dev(), there.ino());
            if stream.metadata().is_ok_and(|own| is_same(&own)) {
                return Ok(Self::Ours(stream));
            }
        }
        Ok(if there.is_file() { Self::File(path.canonicalize()?) } else { Self::Special(path.to_owned()) })
    }
}

/// The regular file that a path is the name of, or will be: its name behind all links. Of a device, a pipe,
/// and our own standard output, nothing.
pub(crate) fn regular(path: &Path) -> Option<PathBuf> {
    match path.symlink_metadata() {
        Ok(there) if there.is_symlink() => match Target::of(path) {
            Ok(Target::File(path)) => Some(path),
            _ => None,
        },
        Ok(there) => there.is_file().then(|| path.to_owned()),
        Err(_) => Some(path.to_owned()),
    }
}

/// Where a file is made that is named by links to nothing: as it will be told once it is there.
fn behind_links(path: &Path) -> io::Result<PathBuf> {
    let mut path = path.to_owned();
    for _ in 0..LINKS {
        match path.read_link() {
            // What the link says counts from where the link is.
            Ok(next) => path = path.parent().unwrap_or(Path::new("")).join(next),
            Err(_) => {
                let directory = path.parent().filter(|directory| !directory.as_os_str().is_empty());
                let directory = directory.unwrap_or(Path::new(".")).canonicalize();
                return Ok(match (directory, path.file_name()) {
                    (Ok(directory), Some(name)) => directory.join(name),
                    _ => path,
                });
            }
        }
    }
    Err(io::Error::from_raw_os_error(libc::ELOOP))
}

/// Makes a file that was not there, under the first of `names` that is free: a process of the same number,
/// killed before or in another container, may have left one.
pub(crate) fn create_unused(
    options: &OpenOptions,
    names: impl Fn(u32) -> PathBuf,
) -> io::Result<(PathBuf, File)> {
    let mut options = options.clone();
    options.write(true).create_new(true);
    for attempt in 0..u32::MAX {
        let path = names(attempt);
        match options.open(&path) {
            Ok(file) => return Ok((path, file)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
    Err(io::ErrorKind::AlreadyExists.into())
}

/// A file that is made before it takes its place, readable by nobody who may not read what it replaces.
fn create_aside(path: &Path) -> io::Result<(PathBuf, File)> {
    let mut options = OpenOptions::new();
    let old = path.metadata().ok();
    if let Some(old) = &old {
        options.mode(old.mode() & 0o700);
    }
    let made = create_unused(&options, |attempt| {
        let mut aside = path.as_os_str().to_owned();
        aside.push(format!(".{}-{attempt}.tmp", std::process::id()));
        aside.into()
    })?;
    if let Some(old) = &old {
        belong_as(&made.1, old).inspect_err(|_| {
            let _ = std::fs::remove_file(&made.0);
        })?;
    }
    Ok(made)
}

/// Gives a file the owner, the group and the rights of another, as far as we may: rights of a group that it
/// does not come to belong to it has none.
fn belong_as(file: &File, old: &Metadata) -> io::Result<()> {
    let is_of = |made: &Metadata| (made.uid() == old.uid(), made.gid() == old.gid());
    if is_of(&file.metadata()?) != (true, true) && fchown(file, Some(old.uid()), Some(old.gid())).is_err() {
        // A group that we are in may be given without being root.
        let _ = fchown(file, None, Some(old.gid()));
    }
    let rights = if is_of(&file.metadata()?).1 { 0o777 } else { 0o707 };
    // Where there are none to be given it has those it was made with, which are its owner's alone.
    let _ = file.set_permissions(Permissions::from_mode(old.mode() & rights));
    Ok(())
}

/// Opens what is no regular file. A pipe that nobody reads is an error, and not waited for.
fn open_special(path: &Path) -> io::Result<File> {
    let is_pipe = path.metadata()?.file_type().is_fifo();
    let flags = if is_pipe { libc::O_NONBLOCK } else { 0 } | libc::O_NOCTTY;
    let file = OpenOptions::new().write(true).custom_flags(flags).open(path)?;
    if is_pipe {
        use nix::fcntl::{FcntlArg, OFlag, fcntl};
        let flags = OFlag::from_bits_retain(fcntl(&file, FcntlArg::F_GETFL)?);
        fcntl(&file, FcntlArg::F_SETFL(flags - OFlag::O_NONBLOCK))?;
    }
    Ok(file)
}

/// Makes a file of what `fill` writes: aside, in the same directory, durable, then renamed to `path`, or to
/// where that links to. A device or a pipe is written to.
///
/// # Errors
/// With the path at fault; nothing is left behind then, and an older file stays as it was.
pub fn write(path: &Path, fill: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<(), Unwritten> {
    let filled = |file: File| {
        let mut out = BufWriter::new(file);
        fill(&mut out)?;
        out.into_inner().map_err(io::IntoInnerError::into_error)
    };
    let written = Target::of(path).and_then(|target| match target {
        Target::Ours(file) => filled(file).map(drop),
        Target::Special(path) => open_special(&path).and_then(filled).map(drop),
        Target::File(path) => {
            let (aside, file) = create_aside(&path)?;
            // The rename must never expose an empty file.
            let durable = filled(file).and_then(|file| file.sync_data());
            durable.and_then(|()| std::fs::rename(&aside, &path)).inspect_err(|_| {
                // Best effort: the error to report is the first one.
                let _ = std::fs::remove_file(&aside);
            })
        }
    });
    written.map_err(|source| Unwritten { path: path.to_owned(), source })
}

/// Whether [`write`] will be able to, as far as can be known before.
///
/// # Errors
/// As there.
pub fn check(path: &Path) -> Result<(), Unwritten> {
    let made = Target::of(path).and_then(|target| match target {
        // Whoever is to read a pipe may come until then.
        Target::Ours(_) | Target::Special(_) => Ok(()),
        Target::File(path) => create_aside(&path).and_then(|(aside, _)| std::fs::remove_file(aside)),
    });
    made.map_err(|source| Unwritten { path: path.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    struct Directory(PathBuf);

    impl Directory {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("bdrun-whole-{}-{name}", std::process::id()));
            std::fs::create_dir_all(&path).unwrap();
            Self(path)
        }

        fn names(&self) -> Vec<String> {
            let entries = std::fs::read_dir(&self.0).unwrap();
            let mut names: Vec<_> =
                entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
            names.sort();
            names
        }
    }

    impl Drop for Directory {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    fn put(path: &Path, text: &str) -> Result<(), Unwritten> {
        check(path)?;
        write(path, |out| out.write_all(text.as_bytes()))
    }

    #[test]
    fn links_are_followed_and_stay() {
        let dir = Directory::new("links");
        let (file, link, nowhere) = (dir.0.join("file"), dir.0.join("link"), dir.0.join("nowhere"));
        std::fs::write(&file, "old").unwrap();
        std::os::unix::fs::symlink("file", &link).unwrap();
        std::os::unix::fs::symlink("made", &nowhere).unwrap();
        put(&link, "new").unwrap();
        put(&nowhere, "made").unwrap();
        assert!(link.is_symlink() && nowhere.is_symlink());
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "new");
        assert_eq!(std::fs::read_to_string(dir.0.join("made")).unwrap(), "made");
        assert_eq!(dir.names(), ["file", "link", "made", "nowhere"]);
    }

    #[test]
    fn pipes_are_written_to() {
        let dir = Directory::new("pipes");
        let pipe = dir.0.join("pipe");
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert!(put(&pipe, "lost").is_err(), "nobody reads");
        let mut reader = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(&pipe).unwrap();
        put(&pipe, "heard").unwrap();
        // Its end comes later if another test starts a program just now, which has a copy for a moment.
        let mut text = [0; 5];
        reader.read_exact(&mut text).unwrap();
        assert_eq!(&text, b"heard");
        assert!(pipe.metadata().unwrap().file_type().is_fifo());
        assert_eq!(dir.names(), ["pipe"]);
    }

    #[test]
    fn a_file_stays_whose_it_was() {
        let dir = Directory::new("rights");
        let file = dir.0.join("file");
        for rights in [0o600, 0o664, 0o440] {
            let _ = std::fs::remove_file(&file);
            std::fs::write(&file, "old").unwrap();
            let is_root = nix::unistd::geteuid().is_root();
            if is_root {
                fchown(File::open(&file).unwrap(), Some(1234), Some(4321)).unwrap();
            }
            std::fs::set_permissions(&file, Permissions::from_mode(rights)).unwrap();
            let before = file.metadata().unwrap();
            put(&file, "new").unwrap();
            let after = file.metadata().unwrap();
            assert_ne!(before.ino(), after.ino());
            let of = |made: &Metadata| (made.mode(), made.uid(), made.gid());
            assert_eq!(of(&before), of(&after));
            assert_eq!(is_root, after.uid() == 1234 && after.gid() == 4321);
        }
        assert_eq!(dir.names(), ["file"]);
    }

    /// A process of our number may have been killed here before.
    #[test]
    fn what_was_left_is_in_nobodys_way() {
        let dir = Directory::new("left");
        let file = dir.0.join("file");
        let left = format!("file.{}-0.tmp", std::process::id());
        std::fs::write(dir.0.join(&left), "left").unwrap();
        put(&file, "new").unwrap();
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "new");
        assert_eq!(dir.names(), ["file", left.as_str()]);
    }

    #[test]
    fn devices_stay_devices() {
        put(Path::new("/dev/null"), "text").unwrap();
        assert!(Path::new("/dev/null").metadata().unwrap().file_type().is_char_device());
    }
}
