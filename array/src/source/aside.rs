//! Files, and directories of files, that are written beside their place, and put there when they are whole.
//!
//! A run that may be gone on with keeps a *ledger* beside the file: which expression it is of, and a line for
//! each region that is in it. Lines come behind the elements that they are about: those are synchronised
//! first, so that it is true after a power failure as well.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use rustix::fs::{CWD, RenameFlags};
use rustix::io::Errno;

use super::ledger::{HEAD, Ledger};
use super::{beside, other, unique};
use crate::shape::Region;

/// What a result is made of, as a number: an interrupted run is gone on with by one of the same only.
pub type Identity = u128;

/// A file that is written, or a directory.
pub(super) struct Aside {
    pub(super) file: File,
    path: PathBuf,
    pub(super) aside: PathBuf,
    is_folder: bool,
    /// Whether it may take the place of what is there.
    may: May,
    ledger: Option<Ledger>,
    is_finished: AtomicBool,
}

/// Whether something may be replaced. What is not there may.
pub(super) type May = Box<dyn Fn(&Path) -> io::Result<()> + Send + Sync>;

/// Whatever is there may.
pub(super) fn any() -> May {
    Box::new(|_| Ok(()))
}

/// As many symbolic links in a row as the kernel follows.
const LINKS: usize = 40;

/// The regular file that a path is the name of, or will be: its name behind all links. A device or a pipe
/// would not be written to but replaced.
fn behind_links(path: &Path) -> io::Result<PathBuf> {
    match path.metadata() {
        Ok(there) if there.is_dir() => Err(io::ErrorKind::IsADirectory.into()),
        Ok(there) if there.is_file() => path.canonicalize(),
        Ok(_) => Err(other("what is there is no regular file".into())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let mut path = path.to_owned();
            for _ in 0..LINKS {
                match path.read_link() {
                    // What the link says counts from where the link is.
                    Ok(next) => path = path.parent().unwrap_or(Path::new("")).join(next),
                    Err(_) => return Ok(path),
                }
            }
            Err(Errno::LOOP.into())
        }
        Err(error) => Err(error),
    }
}

/// The file or directory that is written to, which is made; one that is there already is an error, if it may
/// not be gone on with.
fn open(aside: &Path, is_folder: bool, is_known: bool, options: &mut OpenOptions) -> io::Result<File> {
    if !is_folder {
        // Somebody may have put a link there, which leads to what is not to be written to.
        return options.read(true).write(true).custom_flags(libc::O_NOFOLLOW).open(aside);
    }
    match std::fs::create_dir(aside) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && is_known => {}
        made => made?,
    }
    File::open(aside)
}

impl Aside {
    /// Begins one, or with an identity goes on with one of it if there is one: then true comes with it.
    /// `format` says in a line how elements lie in the file: one that is begun otherwise is not gone on with.
    /// Whoever begins one makes what has to be in it, and says [`Aside::ready`]. What a link leads to is
    /// written, and the link stays. `may` is asked before, and again when it is put in its place.
    pub(super) fn begin(
        path: &Path,
        identity: Option<Identity>,
        format: &str,
        may: May,
    ) -> io::Result<(Self, bool)> {
        Self::begin_either(&behind_links(path)?, identity, format, false, may)
    }

    /// The same of a directory.
    pub(super) fn begin_folder(
        path: &Path,
        identity: Option<Identity>,
        format: &str,
        may: May,
    ) -> io::Result<(Self, bool)> {
        Self::begin_either(path, identity, format, true, may)
    }

    fn begin_either(
        path: &Path,
        identity: Option<Identity>,
        format: &str,
        is_folder: bool,
        may: May,
    ) -> io::Result<(Self, bool)> {
        may(path)?;
        // Wherever this program is when it is put in its place.
        let path = &*std::path::absolute(path)?;
        if path.file_name().is_none() {
            return Err(other("it names no file".into()));
        }
        let Some(identity) = identity else {
            // Others may write the same file, here or on another machine: the last to finish wins.
            loop {
                let aside = beside(path, &format!(".{}", unique()));
                match open(&aside, is_folder, false, OpenOptions::new().create_new(true)) {
                    Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                    made => return Ok((Self::new(made?, path, aside, None, is_folder, may), false)),
                }
            }
        };
        let aside = beside(path, ".part");
        let head = format!("{HEAD} {identity:032x} {format}");
        let (ledger, is_there) = Ledger::open(beside(path, ".part.stored"), head, &aside)?;
        let mut options = OpenOptions::new();
        options.create(true).truncate(!is_there);
        if is_folder && !is_there && aside.is_dir() {
            // Whose it was is not known any more.
            std::fs::remove_dir_all(&aside)?;
        }
        let file = open(&aside, is_folder, true, &mut options)?;
        Ok((Self::new(file, path, aside, Some(ledger), is_folder, may), is_there))
    }

    fn new(
        file: File,
        path: &Path,
        aside: PathBuf,
        ledger: Option<Ledger>,
        is_folder: bool,
        may: May,
    ) -> Self {
        Self { file, path: path.into(), aside, is_folder, may, ledger, is_finished: AtomicBool::new(false) }
    }

    /// What was written is on the disk.
    fn synchronise(&self) -> io::Result<()> {
        // Of a directory with all that is in it, and whatever else the file system has.
        if self.is_folder { Ok(rustix::fs::syncfs(&self.file)?) } else { self.file.sync_data() }
    }

    /// All is there but the elements.
    pub(super) fn ready(&self) -> io::Result<()> {
        let Some(ledger) = &self.ledger else { return Ok(()) };
        let mut inner = ledger.inner();
        inner.pending = format!("{}\n", ledger.head);
        inner.flush(|| self.synchronise())
    }

    /// Whether a run before has written a region.
    pub(super) fn has(&self, region: &Region) -> bool {
        self.ledger.as_ref().is_some_and(|ledger| ledger.inner().stored.contains(region))
    }

    /// A region is written.
    pub(super) fn wrote(&self, region: &Region) -> io::Result<()> {
        let Some(ledger) = &self.ledger else { return Ok(()) };
        let mut inner = ledger.inner();
        let join = |numbers: &[usize]| numbers.iter().map(usize::to_string).collect::<Vec<_>>().join(",");
        inner.pending += &format!("{};{};\n", join(&region.start), join(&region.shape));
        if Instant::now() < inner.next {
            return Ok(());
        }
        inner.flush(|| self.synchronise())
    }

    /// Puts it in its place.
    pub(super) fn finish(&self) -> io::Result<()> {
        if let Err(error) = self.synchronise() {
            // That is told once: who asks again hears that all is well.
            if let Some(ledger) = &self.ledger {
                ledger.inner().failed = true;
            }
            return Err(error);
        }
        (self.may)(&self.path)?;
        if self.is_folder {
            self.put_folder()?;
        } else {
            std::fs::rename(&self.aside, &self.path)?;
        }
        self.is_finished.store(true, Ordering::Relaxed);
        // It is in its place, whatever becomes of this.
        let synchronised = self.synchronise_names();
        self.ledger.as_ref().map_or(Ok(()), Ledger::remove)?;
        synchronised
    }

    /// A directory takes the place of none, or of one that is removed then.
    fn put_folder(&self) -> io::Result<()> {
        if !self.path.exists() {
            match rustix::fs::rename(&self.aside, &self.path) {
                // Another run was first.
                Err(Errno::EXIST | Errno::NOTEMPTY) => {}
                done => return Ok(done?),
            }
        }
        // In a moment the one that is replaced has the name of this one: nothing may say any more what is in
        // that, or a run that is killed now would be gone on with in the old one.
        let told = self.ledger.as_ref().map(|ledger| ledger.inner().forget()).transpose()?;
        let old = self.exchange().inspect_err(|_| {
            // It is where it was, and whole: the next run puts it in its place.
            if let (Some(ledger), Some(told)) = (&self.ledger, &told) {
                _ = ledger.inner().remember(told);
            }
        })?;
        std::fs::remove_dir_all(&old).map_err(|error| {
            let (path, old) = (self.path.display(), old.display());
            other(format!("{path} is written; what was there before cannot be removed from {old}: {error}"))
        })
    }

    /// A directory takes the place of another, which has the name that is returned then.
    fn exchange(&self) -> io::Result<PathBuf> {
        let mut old = self.aside.clone();
        match rustix::fs::renameat_with(CWD, &self.aside, CWD, &self.path, RenameFlags::EXCHANGE) {
            Ok(()) => {}
            // Not every file system can: for a moment there is none.
            Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {
                old.as_mut_os_string().push(".old");
                std::fs::rename(&self.path, &old)?;
                if let Err(error) = std::fs::rename(&self.aside, &self.path) {
                    std::fs::rename(&old, &self.path)?;
                    return Err(error);
                }
            }
            Err(error) => return Err(error.into()),
        }
        Ok(old)
    }

    /// What has which name is on the disk, as far as that can be had: not of a directory that may be written
    /// and not read, nor where the file system synchronises none.
    fn synchronise_names(&self) -> io::Result<()> {
        let folder = self.path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let folder = folder.unwrap_or(Path::new("."));
        match File::open(folder).and_then(|folder| folder.sync_all()) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(()),
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => Ok(()),
            done => done,
        }
    }

    fn remove(&self) {
        _ = if self.is_folder {
            std::fs::remove_dir_all(&self.aside)
        } else {
            std::fs::remove_file(&self.aside)
        };
    }
}

impl Drop for Aside {
    fn drop(&mut self) {
        if self.is_finished.load(Ordering::Relaxed) {
            return;
        }
        // It failed already; that this fails as well is no reason to fail once more.
        match &self.ledger {
            Some(ledger) => {
                _ = ledger.inner().flush(|| self.synchronise());
                // Without a region there is nothing to go on with: it would be in the way of whoever tries
                // the same in other blocks.
                if ledger.is_empty() && ledger.is_named().unwrap_or(false) {
                    self.remove();
                    _ = ledger.remove();
                }
            }
            None => self.remove(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_stored_is_known_and_a_torn_line_is_not() {
        let folder = std::env::temp_dir().join(format!("bdrun-array-aside-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("x");
        let region = |at: usize| Region { start: vec![at, 0], shape: vec![1, 4] };
        let (aside, is_there) = Aside::begin(&path, Some(7), "npy", any()).unwrap();
        assert!(!is_there && !aside.has(&region(0)));
        aside.ready().unwrap();
        // Only one at a time.
        let error = Aside::begin(&path, Some(7), "npy", any()).err().unwrap();
        assert!(error.to_string().contains("another run"), "{error}");
        aside.wrote(&region(0)).unwrap();
        aside.wrote(&region(1)).unwrap();
        drop(aside);
        let ledger = folder.join(".x.part.stored");
        let mut text = std::fs::read_to_string(&ledger).unwrap();
        // Of a line for the region from 1 only its first letter: with what comes next it would be 12.
        text.push('1');
        std::fs::write(&ledger, &text).unwrap();
        let (aside, is_there) = Aside::begin(&path, Some(7), "npy", any()).unwrap();
        assert!(is_there && aside.has(&region(0)) && aside.has(&region(1)) && !aside.has(&region(2)));
        aside.wrote(&region(2)).unwrap();
        drop(aside);
        let (aside, _) = Aside::begin(&path, Some(7), "npy", any()).unwrap();
        assert!(aside.has(&region(2)) && !aside.has(&region(12)));
        drop(aside);
        let error = Aside::begin(&path, Some(8), "npy", any()).err().unwrap();
        assert!(error.to_string().contains("something else"), "{error}");
        let error = Aside::begin(&path, Some(7), "raw", any()).err().unwrap();
        assert!(error.to_string().contains("something else"), "{error}");
        // The file itself is gone: nothing of it is stored.
        std::fs::remove_file(folder.join(".x.part")).unwrap();
        let (aside, is_there) = Aside::begin(&path, Some(7), "npy", any()).unwrap();
        assert!(!is_there && !aside.has(&region(0)));
        aside.ready().unwrap();
        aside.wrote(&region(0)).unwrap();
        drop(aside);
        // Of something else as well.
        std::fs::remove_file(folder.join(".x.part")).unwrap();
        let (aside, is_there) = Aside::begin(&path, Some(8), "npy", any()).unwrap();
        assert!(!is_there);
        aside.ready().unwrap();
        aside.wrote(&region(0)).unwrap();
        // What is not known to be written is not noted, whatever is said later.
        aside.ledger.as_ref().unwrap().inner().failed = true;
        drop(aside);
        let (aside, is_there) = Aside::begin(&path, Some(8), "npy", any()).unwrap();
        assert!(!is_there && !aside.has(&region(0)));
        aside.ready().unwrap();
        aside.finish().unwrap();
        let names: Vec<_> =
            std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names, ["x"]);
        let of_two = [(); 2].map(|()| Aside::begin(&path, None, "npy", any()).unwrap().0);
        assert_ne!(of_two[0].aside, of_two[1].aside);
        drop(of_two);
        let error = Aside::begin(&folder, None, "npy", any()).err().unwrap();
        assert_eq!(error.kind(), io::ErrorKind::IsADirectory);
        std::fs::remove_dir_all(&folder).unwrap();
    }

    /// What failed before it had stored anything, for want of memory say, is in nobody's way: neither in that
    /// of the same in smaller blocks, which is something else.
    #[test]
    fn what_has_stored_nothing_is_not_in_the_way() {
        let folder = std::env::temp_dir().join(format!("bdrun-array-nothing-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("x");
        let begin = |is_folder: bool, identity| {
            let begun = match is_folder {
                false => Aside::begin(&path, Some(identity), "npy", any()),
                true => Aside::begin_folder(&path, Some(identity), "zarr", any()),
            };
            let (aside, is_there) = begun.unwrap();
            assert!(!is_there);
            aside.ready().unwrap();
            aside
        };
        for is_folder in [false, true] {
            drop(begin(is_folder, 7));
            assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 0);
            // Killed, it does not remove it itself: what would be removed is another one here.
            let killed = begin(is_folder, 7);
            let names = [".x.part", ".x.part.stored"].map(|name| folder.join(name));
            let moved = ["part", "stored"].map(|name| folder.join(name));
            (0..2).for_each(|at| std::fs::rename(&names[at], &moved[at]).unwrap());
            drop(killed);
            (0..2).for_each(|at| std::fs::rename(&moved[at], &names[at]).unwrap());
            assert!(names.iter().all(|name| name.exists()));
            drop(begin(is_folder, 8));
            assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 0);
        }
        std::fs::remove_dir_all(&folder).unwrap();
    }

    /// A result that is in its place is no error because the directory cannot be read.
    #[test]
    fn a_directory_that_cannot_be_read_takes_results() {
        use std::os::unix::fs::PermissionsExt;
        const NOBODY: u32 = 65534;
        let folder = std::env::temp_dir().join(format!("bdrun-array-unread-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o333)).unwrap();
        let path = folder.join("x");
        let write = || {
            // SAFETY: it changes as whom this thread opens files, and nothing else. Who is not root stays
            // who he is.
            unsafe { libc::setfsuid(NOBODY) };
            if File::open(&folder).is_ok()
                || path.symlink_metadata().is_err_and(|error| error.kind() != io::ErrorKind::NotFound)
            {
                return Err(());
            }
            let (aside, _) = Aside::begin(&path, Some(7), "npy", any()).unwrap();
            aside.ready().unwrap();
            aside.wrote(&Region { start: vec![0], shape: vec![4] }).unwrap();
            aside.finish().map_err(|error| panic!("{error}"))
        };
        let done = std::thread::scope(|scope| scope.spawn(write).join().unwrap());
        std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o700)).unwrap();
        let names: Vec<_> =
            std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        std::fs::remove_dir_all(&folder).unwrap();
        match done {
            Ok(()) => assert_eq!(names, ["x"]),
            Err(()) => bdrun_skipped::skipped("kernel", "nobody cannot come here, or may read everything"),
        }
    }

    #[test]
    fn links_stay_and_what_is_no_file_too() {
        let folder = std::env::temp_dir().join(format!("bdrun-array-links-{}", std::process::id()));
        std::fs::create_dir_all(folder.join("there")).unwrap();
        let at = |name: &str| folder.join(name);
        std::fs::write(at("there/file"), "old").unwrap();
        for (target, link) in [("there/file", "link"), ("there/made", "nowhere"), ("round", "round")] {
            std::os::unix::fs::symlink(target, at(link)).unwrap();
        }
        rustix::fs::mknodat(CWD, at("pipe"), rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU, 0).unwrap();
        for (identity, name) in [(None, "link"), (Some(7), "link"), (None, "nowhere"), (Some(7), "nowhere")] {
            let (aside, _) = Aside::begin(&at(name), identity, "npy", any()).unwrap();
            assert!(aside.aside.parent().is_some_and(|parent| parent.ends_with("there")));
            std::fs::write(&aside.aside, "new").unwrap();
            aside.ready().unwrap();
            aside.finish().unwrap();
            assert!(at(name).is_symlink());
            assert_eq!(std::fs::read_to_string(at(name)).unwrap(), "new");
            std::fs::write(at("there/file"), "old").unwrap();
        }
        for identity in [None, Some(7)] {
            let error = Aside::begin(&at("pipe"), identity, "npy", any()).err().unwrap().to_string();
            assert!(error.contains("no regular file"), "{error}");
            assert!(Aside::begin(&at("round"), identity, "npy", any()).is_err());
        }
        use std::os::unix::fs::FileTypeExt;
        assert!(at("pipe").symlink_metadata().unwrap().file_type().is_fifo());
        let mut names: Vec<_> =
            std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort_unstable();
        assert_eq!(names, ["link", "nowhere", "pipe", "round", "there"]);
        assert_eq!(std::fs::read_dir(at("there")).unwrap().count(), 2);
        std::fs::remove_dir_all(&folder).unwrap();
    }

    /// Killed when the new directory has its place and the old one has not gone: what is in the old one was
    /// not stored by this run.
    #[test]
    fn a_directory_that_was_replaced_is_not_gone_on_with() {
        let folder = std::env::temp_dir().join(format!("bdrun-array-folder-{}", std::process::id()));
        let path = folder.join("x");
        std::fs::create_dir_all(&path).unwrap();
        std::fs::write(path.join("old"), "").unwrap();
        let region = Region { start: vec![0], shape: vec![4] };
        let begin = || Aside::begin_folder(&path, Some(7), "zarr", any()).unwrap();
        let (aside, is_there) = begin();
        assert!(!is_there);
        aside.ready().unwrap();
        aside.wrote(&region).unwrap();
        drop(aside);
        let (aside, is_there) = begin();
        assert!(is_there && aside.has(&region));
        // If it cannot be put in its place, nothing of it is lost.
        let told = aside.ledger.as_ref().unwrap().inner().forget().unwrap();
        aside.ledger.as_ref().unwrap().inner().remember(&told).unwrap();
        drop(aside);
        let (aside, is_there) = begin();
        assert!(is_there && aside.has(&region));
        aside.put_folder().unwrap();
        assert!(!path.join("old").exists());
        // As it is if the old one has not gone.
        std::fs::create_dir(&aside.aside).unwrap();
        std::fs::write(aside.aside.join("old"), "").unwrap();
        drop(aside);
        let (aside, is_there) = begin();
        assert!(!is_there && !aside.has(&region) && !aside.aside.join("old").exists());
        drop(aside);
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
