//! Files that are written beside their place, and put there when they are whole.
//!
//! A run that may be gone on with keeps a *ledger* beside the file: which expression it is of, and a line for
//! each region that is in it. Lines come behind the elements that they are about: those are synchronised
//! first, so that it is true after a power failure as well.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use hashbrown::HashSet;

use crate::shape::Region;

/// What a result is made of, as a number: an interrupted run is gone on with by one of the same only.
pub type Identity = u128;

/// A file that is written.
pub(super) struct Aside {
    pub(super) file: File,
    path: PathBuf,
    pub(super) aside: PathBuf,
    ledger: Option<Ledger>,
    is_finished: AtomicBool,
}

struct Ledger {
    path: PathBuf,
    identity: Identity,
    inner: Mutex<Inner>,
}

struct Inner {
    file: File,
    /// Regions that are in the file.
    stored: HashSet<Region>,
    /// Lines that are not written yet.
    pending: String,
    next: Instant,
}

/// Synchronising takes a tenth of the time at most, and happens no more often than this.
const OFTEN: Duration = Duration::from_millis(250);

fn other(text: String) -> io::Error {
    io::Error::other(text)
}

impl Aside {
    /// Begins one, or with an identity goes on with one of it if there is one: then true comes with it.
    /// Whoever begins one makes what has to be in it, and says [`Aside::ready`].
    pub(super) fn begin(path: &Path, identity: Option<Identity>) -> io::Result<(Self, bool)> {
        let name = path.file_name().ok_or_else(|| other("it names no file".into()))?.to_string_lossy();
        let Some(identity) = identity else {
            let aside = path.with_file_name(format!(".{name}.{}", std::process::id()));
            return Ok((Self::new(path, aside, None, true)?, false));
        };
        let aside = path.with_file_name(format!(".{name}.part"));
        let ledger = path.with_file_name(format!(".{name}.part.stored"));
        let (ledger, is_begun) = Ledger::open(ledger, identity)?;
        let is_there = is_begun && aside.exists();
        if is_begun && !is_there {
            ledger.inner().clear()?;
        }
        Ok((Self::new(path, aside, Some(ledger), !is_there)?, is_there))
    }

    fn new(path: &Path, aside: PathBuf, ledger: Option<Ledger>, is_new: bool) -> io::Result<Self> {
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(is_new).open(&aside)?;
        Ok(Self { file, path: path.into(), aside, ledger, is_finished: AtomicBool::new(false) })
    }

    /// All is there but the elements.
    pub(super) fn ready(&self) -> io::Result<()> {
        let Some(ledger) = &self.ledger else { return Ok(()) };
        self.file.sync_all()?;
        let mut inner = ledger.inner();
        inner.pending = format!("{HEAD} {:032x}\n", ledger.identity);
        inner.flush(&self.file)
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
        inner.flush(&self.file)
    }

    /// Puts it in its place.
    pub(super) fn finish(&self) -> io::Result<()> {
        self.file.sync_all()?;
        std::fs::rename(&self.aside, &self.path)?;
        self.is_finished.store(true, Ordering::Relaxed);
        let folder = self.path.parent().filter(|folder| !folder.as_os_str().is_empty());
        File::open(folder.unwrap_or(Path::new(".")))?.sync_all()?;
        self.ledger.as_ref().map_or(Ok(()), |ledger| std::fs::remove_file(&ledger.path))
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
                _ = inner.flush(&self.file);
                // Nothing can be gone on with if it was not even ready.
                if inner.file.metadata().is_ok_and(|data| data.len() == 0) {
                    _ = std::fs::remove_file(&self.aside);
                    _ = std::fs::remove_file(&ledger.path);
                }
            }
            None => _ = std::fs::remove_file(&self.aside),
        }
    }
}

const HEAD: &str = "bdrun-array 1";

impl Ledger {
    /// With whether it is of a run of this identity that had begun.
    fn open(path: PathBuf, identity: Identity) -> io::Result<(Self, bool)> {
        let mut file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(other("another run writes the same file".into()));
            }
            Err(TryLockError::Error(error)) => return Err(error),
        }
        let mut text = String::new();
        file.read_to_string(&mut text)?;
        // A line that was not written to its end says nothing, and what is written next begins a new one.
        let whole = text.rfind('\n').map_or(0, |end| end + 1);
        file.set_len(whole as u64)?;
        file.seek(SeekFrom::Start(whole as u64))?;
        let mut lines = text[..whole].split_inclusive('\n');
        let head = lines.next();
        let is_begun = head.is_some();
        if head.is_some_and(|head| head.trim_end() != format!("{HEAD} {identity:032x}")) {
            return Err(other(format!(
                "{} is of an interrupted run of something else, or its sources have changed since: remove it to begin anew",
                path.display()
            )));
        }
        let stored: HashSet<Region> = lines.filter_map(region).collect();
        let next = Instant::now() + OFTEN;
        let inner = Inner { file, stored, pending: String::new(), next };
        Ok((Self { path, identity, inner: Mutex::new(inner) }, is_begun))
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
    fn flush(&mut self, data: &File) -> io::Result<()> {
        let begin = Instant::now();
        if !self.pending.is_empty() {
            // What could not be synchronised once may seem to be the next time: it is not noted ever.
            let lines = std::mem::take(&mut self.pending);
            data.sync_data()?;
            self.file.write_all(lines.as_bytes())?;
            self.file.sync_data()?;
        }
        let end = Instant::now();
        self.next = end + OFTEN.max((end - begin) * 9);
        Ok(())
    }

    fn clear(&mut self) -> io::Result<()> {
        self.stored.clear();
        self.file.set_len(0)?;
        self.file.rewind()
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
        let (aside, is_there) = Aside::begin(&path, Some(7)).unwrap();
        assert!(!is_there && !aside.has(&region(0)));
        aside.ready().unwrap();
        // Only one at a time.
        let error = Aside::begin(&path, Some(7)).err().unwrap();
        assert!(error.to_string().contains("another run"), "{error}");
        aside.wrote(&region(0)).unwrap();
        aside.wrote(&region(1)).unwrap();
        drop(aside);
        let ledger = folder.join(".x.part.stored");
        let mut text = std::fs::read_to_string(&ledger).unwrap();
        // Of a line for the region from 1 only its first letter: with what comes next it would be 12.
        text.push('1');
        std::fs::write(&ledger, &text).unwrap();
        let (aside, is_there) = Aside::begin(&path, Some(7)).unwrap();
        assert!(is_there && aside.has(&region(0)) && aside.has(&region(1)) && !aside.has(&region(2)));
        aside.wrote(&region(2)).unwrap();
        drop(aside);
        let (aside, _) = Aside::begin(&path, Some(7)).unwrap();
        assert!(aside.has(&region(2)) && !aside.has(&region(12)));
        drop(aside);
        let error = Aside::begin(&path, Some(8)).err().unwrap();
        assert!(error.to_string().contains("something else"), "{error}");
        // The file itself is gone: nothing of it is stored.
        std::fs::remove_file(folder.join(".x.part")).unwrap();
        let (aside, is_there) = Aside::begin(&path, Some(7)).unwrap();
        assert!(!is_there && !aside.has(&region(0)));
        aside.ready().unwrap();
        aside.finish().unwrap();
        let names: Vec<_> =
            std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names, ["x"]);
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
