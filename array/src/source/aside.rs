//! Files, and directories of files, that are written beside their place, and put there when they are whole.
//!
//! A run that may be gone on with keeps a *ledger* beside the file: which expression it is of, and a line for
//! each region that is in it. Lines come behind the elements that they are about: those are synchronised
//! first, so that it is true after a power failure as well.

use std::ffi::OsString;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use hashbrown::HashSet;
use rustix::fs::{CWD, RenameFlags};
use rustix::io::Errno;

use crate::shape::Region;

/// What a result is made of, as a number: an interrupted run is gone on with by one of the same only.
pub type Identity = u128;

/// A file that is written, or a directory.
pub(super) struct Aside {
    pub(super) file: File,
    path: PathBuf,
    pub(super) aside: PathBuf,
    /// Of a directory: whether it may take the place of what is there.
    folder: Option<May>,
    ledger: Option<Ledger>,
    is_finished: AtomicBool,
}

struct Ledger {
    path: PathBuf,
    head: String,
    inner: Mutex<Inner>,
}

struct Inner {
    file: File,
    /// Regions that are in the file.
    stored: HashSet<Region>,
    /// Lines that are not written yet.
    pending: String,
    /// Something was not written, or not synchronised, and nobody knows what: nothing is noted any more.
    failed: bool,
    next: Instant,
}

/// Synchronising takes a tenth of the time at most, and happens no more often than this.
const OFTEN: Duration = Duration::from_millis(250);

/// A process that is started has the locks of whoever starts it until its program runs.
const STARTED: Duration = Duration::from_millis(500);

/// Whether something may be replaced.
type May = fn(&Path) -> io::Result<()>;

fn other(text: String) -> io::Error {
    io::Error::other(text)
}

impl Aside {
    /// Begins one, or with an identity goes on with one of it if there is one: then true comes with it.
    /// `format` says in a line how elements lie in the file: one that is begun otherwise is not gone on with.
    /// Whoever begins one makes what has to be in it, and says [`Aside::ready`].
    pub(super) fn begin(path: &Path, identity: Option<Identity>, format: &str) -> io::Result<(Self, bool)> {
        if path.is_dir() {
            return Err(io::ErrorKind::IsADirectory.into());
        }
        Self::begin_either(path, identity, format, None)
    }

    /// The same of a directory.
    pub(super) fn begin_folder(
        path: &Path,
        identity: Option<Identity>,
        format: &str,
        may: May,
    ) -> io::Result<(Self, bool)> {
        may(path)?;
        Self::begin_either(path, identity, format, Some(may))
    }

    fn begin_either(
        path: &Path,
        identity: Option<Identity>,
        format: &str,
        folder: Option<May>,
    ) -> io::Result<(Self, bool)> {
        // Wherever this program is when it is put in its place.
        let path = &*std::path::absolute(path)?;
        let name = path.file_name().ok_or_else(|| other("it names no file".into()))?;
        let beside = |suffix: &str| {
            let mut aside = OsString::from(".");
            aside.push(name);
            aside.push(suffix);
            path.with_file_name(aside)
        };
        let Some(identity) = identity else {
            // Others may write the same file, here or on another machine: the last to finish wins.
            loop {
                let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                let unique = format!(".{}.{:x}", std::process::id(), since.as_nanos());
                match Self::new(path, beside(&unique), None, folder, OpenOptions::new().create_new(true)) {
                    Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                    made => return Ok((made?, false)),
                }
            }
        };
        let aside = beside(".part");
        let head = format!("{HEAD} {identity:032x} {format}");
        let (ledger, is_there) = Ledger::open(beside(".part.stored"), head, &aside)?;
        let mut options = OpenOptions::new();
        options.create(true).truncate(!is_there);
        if folder.is_some() && !is_there && aside.is_dir() {
            // Whose it was is not known any more.
            std::fs::remove_dir_all(&aside)?;
        }
        Ok((Self::new(path, aside, Some(ledger), folder, &mut options)?, is_there))
    }

    fn new(
        path: &Path,
        aside: PathBuf,
        ledger: Option<Ledger>,
        folder: Option<May>,
        options: &mut OpenOptions,
    ) -> io::Result<Self> {
        let file = if folder.is_none() {
            options.read(true).write(true).open(&aside)?
        } else {
            match std::fs::create_dir(&aside) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists && ledger.is_some() => {}
                made => made?,
            }
            File::open(&aside)?
        };
        Ok(Self { file, path: path.into(), aside, folder, ledger, is_finished: AtomicBool::new(false) })
    }

    /// What was written is on the disk.
    fn synchronise(&self) -> io::Result<()> {
        // Of a directory with all that is in it, and whatever else the file system has.
        if self.folder.is_some() { Ok(rustix::fs::syncfs(&self.file)?) } else { self.file.sync_data() }
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
        match self.folder {
            None => std::fs::rename(&self.aside, &self.path)?,
            Some(may) => self.put_folder(may)?,
        }
        self.is_finished.store(true, Ordering::Relaxed);
        self.synchronise_names()?;
        self.ledger.as_ref().map_or(Ok(()), |ledger| std::fs::remove_file(&ledger.path))
    }

    /// A directory takes the place of none, or of one that is removed then.
    fn put_folder(&self, may: May) -> io::Result<()> {
        may(&self.path)?;
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

    /// What has which name is on the disk.
    fn synchronise_names(&self) -> io::Result<()> {
        let folder = self.path.parent().filter(|folder| !folder.as_os_str().is_empty());
        File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
    }

    fn remove(&self) {
        _ = if self.folder.is_some() {
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
                let mut inner = ledger.inner();
                _ = inner.flush(|| self.synchronise());
                // Nothing can be gone on with if it was not even ready.
                if inner.file.metadata().is_ok_and(|data| data.len() == 0) {
                    self.remove();
                    _ = std::fs::remove_file(&ledger.path);
                }
            }
            None => self.remove(),
        }
    }
}

const HEAD: &str = "bdrun-array 2";

impl Ledger {
    /// With whether it is of a run with this head that had begun: then what it wrote is in the file `of`.
    fn open(path: PathBuf, head: String, of: &Path) -> io::Result<(Self, bool)> {
        let mut file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path)?;
        let until = Instant::now() + STARTED;
        loop {
            match file.try_lock() {
                Ok(()) => break,
                Err(TryLockError::WouldBlock) if Instant::now() < until => {
                    std::thread::sleep(Duration::from_millis(5));
                }
                Err(TryLockError::WouldBlock) => {
                    return Err(other("another run writes the same file".into()));
                }
                Err(TryLockError::Error(error)) => return Err(error),
            }
        }
        let mut text = String::new();
        file.read_to_string(&mut text)?;
        if !of.exists() {
            // Whatever it was about is gone, or in its place.
            text.clear();
        }
        // A line that was not written to its end says nothing, and what is written next begins a new one.
        let whole = text.rfind('\n').map_or(0, |end| end + 1);
        file.set_len(whole as u64)?;
        file.seek(SeekFrom::Start(whole as u64))?;
        let mut lines = text[..whole].split_inclusive('\n');
        let first = lines.next();
        let is_begun = first.is_some();
        if first.is_some_and(|first| first.trim_end_matches('\n') != head) {
            return Err(other(format!(
                "{} is of an interrupted run of something else (another expression, format or chunks), or its sources have changed \
                 since: remove it to begin anew",
                path.display()
            )));
        }
        let stored: HashSet<Region> = lines.filter_map(region).collect();
        let next = Instant::now() + OFTEN;
        let inner = Inner { file, stored, pending: String::new(), failed: false, next };
        Ok((Self { path, head, inner: Mutex::new(inner) }, is_begun))
    }

    fn inner(&self) -> std::sync::MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A region from its line.
fn region(line: &str) -> Option<Region> {
    let numbers = |text: &str| {
        let parts = text.split(',').filter(|part| !part.is_empty());
        parts.map(|part| part.parse().ok()).collect::<Option<Vec<usize>>>()
    };
    let mut fields = line.strip_suffix(";\n")?.split(';');
    let (start, shape) = (numbers(fields.next()?)?, numbers(fields.next()?)?);
    (start.len() == shape.len() && fields.next().is_none()).then_some(Region { start, shape })
}

impl Inner {
    /// Nothing is stored any more, of what is synchronised. The file stays, with its lock. What it said.
    fn forget(&mut self) -> io::Result<String> {
        self.flush(|| Ok(()))?;
        let mut told = String::new();
        self.file.rewind()?;
        self.file.read_to_string(&mut told)?;
        self.file.set_len(0)?;
        self.file.rewind()?;
        self.file.sync_all()?;
        Ok(told)
    }

    /// It is after all.
    fn remember(&mut self, told: &str) -> io::Result<()> {
        self.file.write_all(told.as_bytes())?;
        self.file.sync_all()
    }

    fn flush(&mut self, synchronise: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        if self.failed {
            return Err(other("what was written before could not be synchronised".into()));
        }
        let begin = Instant::now();
        if !self.pending.is_empty() {
            let lines = std::mem::take(&mut self.pending);
            // The kernel tells once that something was not written, of whatever region it was, and then takes
            // it for written: nothing is noted from then on.
            self.failed = true;
            synchronise()?;
            self.file.write_all(lines.as_bytes())?;
            self.file.sync_data()?;
            self.failed = false;
        }
        let end = Instant::now();
        self.next = end + OFTEN.max((end - begin) * 9);
        Ok(())
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
        let (aside, is_there) = Aside::begin(&path, Some(7), "npy").unwrap();
        assert!(!is_there && !aside.has(&region(0)));
        aside.ready().unwrap();
        // Only one at a time.
        let error = Aside::begin(&path, Some(7), "npy").err().unwrap();
        assert!(error.to_string().contains("another run"), "{error}");
        aside.wrote(&region(0)).unwrap();
        aside.wrote(&region(1)).unwrap();
        drop(aside);
        let ledger = folder.join(".x.part.stored");
        let mut text = std::fs::read_to_string(&ledger).unwrap();
        // Of a line for the region from 1 only its first letter: with what comes next it would be 12.
        text.push('1');
        std::fs::write(&ledger, &text).unwrap();
        let (aside, is_there) = Aside::begin(&path, Some(7), "npy").unwrap();
        assert!(is_there && aside.has(&region(0)) && aside.has(&region(1)) && !aside.has(&region(2)));
        aside.wrote(&region(2)).unwrap();
        drop(aside);
        let (aside, _) = Aside::begin(&path, Some(7), "npy").unwrap();
        assert!(aside.has(&region(2)) && !aside.has(&region(12)));
        drop(aside);
        let error = Aside::begin(&path, Some(8), "npy").err().unwrap();
        assert!(error.to_string().contains("something else"), "{error}");
        let error = Aside::begin(&path, Some(7), "raw").err().unwrap();
        assert!(error.to_string().contains("something else"), "{error}");
        // The file itself is gone: nothing of it is stored.
        std::fs::remove_file(folder.join(".x.part")).unwrap();
        let (aside, is_there) = Aside::begin(&path, Some(7), "npy").unwrap();
        assert!(!is_there && !aside.has(&region(0)));
        aside.ready().unwrap();
        drop(aside);
        // Of something else as well.
        std::fs::remove_file(folder.join(".x.part")).unwrap();
        let (aside, is_there) = Aside::begin(&path, Some(8), "npy").unwrap();
        assert!(!is_there);
        aside.ready().unwrap();
        aside.wrote(&region(0)).unwrap();
        // What is not known to be written is not noted, whatever is said later.
        aside.ledger.as_ref().unwrap().inner().failed = true;
        drop(aside);
        let (aside, is_there) = Aside::begin(&path, Some(8), "npy").unwrap();
        assert!(is_there && !aside.has(&region(0)));
        aside.finish().unwrap();
        let names: Vec<_> =
            std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names, ["x"]);
        let of_two = [(); 2].map(|()| Aside::begin(&path, None, "npy").unwrap().0);
        assert_ne!(of_two[0].aside, of_two[1].aside);
        drop(of_two);
        let error = Aside::begin(&folder, None, "npy").err().unwrap();
        assert_eq!(error.kind(), io::ErrorKind::IsADirectory);
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
        let begin = || Aside::begin_folder(&path, Some(7), "zarr", |_| Ok(())).unwrap();
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
        aside.put_folder(|_| Ok(())).unwrap();
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
