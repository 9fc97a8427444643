//! What of a file is written already, beside it: which expression it is of, and a line for each region.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use hashbrown::HashSet;

use super::{is_named, other};
use crate::shape::Region;

/// What of a file is written.
pub(super) struct Ledger {
    path: PathBuf,
    pub(super) head: String,
    inner: Mutex<Inner>,
}

pub(super) struct Inner {
    pub(super) file: File,
    /// Regions that are in the file.
    pub(super) stored: HashSet<Region>,
    /// Lines that are not written yet.
    pub(super) pending: String,
    /// Something was not written, or not synchronised, and nobody knows what: nothing is noted any more.
    pub(super) failed: bool,
    pub(super) next: Instant,
}

/// Synchronising takes a tenth of the time at most, and happens no more often than this.
const OFTEN: Duration = Duration::from_millis(250);

/// A process that is started has the locks of whoever starts it until its program runs.
const STARTED: Duration = Duration::from_millis(500);

pub(super) const HEAD: &str = "bdrun-array 2";

impl Ledger {
    /// With whether it is of a run with this head that had begun: then what it wrote is in the file `of`.
    pub(super) fn open(path: PathBuf, head: String, of: &Path) -> io::Result<(Self, bool)> {
        let mut file = loop {
            let mut options = OpenOptions::new();
            options.read(true).write(true).create(true).truncate(false).custom_flags(libc::O_NOFOLLOW);
            let file = options.open(&path)?;
            if lock(&file, &path)? {
                break file;
            }
        };
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
        let mut lines = text[..whole].split_inclusive('\n').peekable();
        let first = lines.next();
        let mut is_begun = first.is_some();
        if first.is_some_and(|first| first.trim_end_matches('\n') != head) {
            if lines.peek().is_some() {
                return Err(other(format!(
                    "{} is of an interrupted run of something else (another expression, format or chunks), or \
                     its sources have changed since: remove it to begin anew",
                    path.display()
                )));
            }
            // It was killed before it had stored anything: nothing is lost.
            file.set_len(0)?;
            file.rewind()?;
            is_begun = false;
        }
        let stored: HashSet<Region> = lines.filter_map(region).collect();
        let next = Instant::now() + OFTEN;
        let inner = Inner { file, stored, pending: String::new(), failed: false, next };
        Ok((Self { path, head, inner: Mutex::new(inner) }, is_begun))
    }

    pub(super) fn inner(&self) -> std::sync::MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether no region is in it: nothing of the file can be used again.
    pub(super) fn is_empty(&self) -> bool {
        let length = self.inner().file.metadata().map(|data| data.len());
        length.is_ok_and(|length| length <= self.head.len() as u64 + 1)
    }

    /// Whether it still has its name: who removed it may have let another run begin.
    pub(super) fn is_named(&self) -> io::Result<bool> {
        is_named(&self.inner().file, &self.path)
    }

    /// It is not needed any more.
    pub(super) fn remove(&self) -> io::Result<()> {
        if self.is_named()? { std::fs::remove_file(&self.path) } else { Ok(()) }
    }
}

/// Locks a ledger that was opened by this name, and says whether it has the name then: the run that had the
/// lock before may have removed it, and whoever opens it now has another one.
fn lock(file: &File, path: &Path) -> io::Result<bool> {
    if is_locked_by_others(|| file.try_lock())? {
        return Err(other("another run writes the same file".into()));
    }
    is_named(file, path)
}

/// Locks a file, if nobody else has a lock that stands against it.
pub(super) fn is_locked_by_others(try_lock: impl Fn() -> Result<(), TryLockError>) -> io::Result<bool> {
    let until = Instant::now() + STARTED;
    loop {
        match try_lock() {
            Ok(()) => return Ok(false),
            Err(TryLockError::WouldBlock) if Instant::now() < until => {
                std::thread::sleep(Duration::from_millis(5));
            }
            Err(TryLockError::WouldBlock) => return Ok(true),
            Err(TryLockError::Error(error)) => return Err(error),
        }
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
    pub(super) fn forget(&mut self) -> io::Result<String> {
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
    pub(super) fn remember(&mut self, told: &str) -> io::Result<()> {
        self.file.write_all(told.as_bytes())?;
        self.file.sync_all()
    }

    pub(super) fn flush(&mut self, synchronise: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
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
    use super::super::aside::{Aside, any};
    use super::*;

    /// A run that has opened the ledger of another one, and locks it when that has ended.
    #[test]
    fn a_ledger_that_has_lost_its_name_is_none() {
        let folder = std::env::temp_dir().join(format!("bdrun-array-ledger-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join(".x.part.stored");
        let begin = || Aside::begin(&folder.join("x"), Some(7), "npy", any()).unwrap().0;
        let first = begin();
        first.ready().unwrap();
        let [late, later] = [(); 2].map(|()| File::open(&path).unwrap());
        first.finish().unwrap();
        drop(first);
        assert!(!lock(&late, &path).unwrap(), "nothing has the name");
        drop(late);
        let second = begin();
        second.ready().unwrap();
        assert!(!lock(&later, &path).unwrap(), "another one has the name");
        // Whose name it is not is not removed.
        std::fs::rename(&path, folder.join("moved")).unwrap();
        std::fs::write(&path, "of another run").unwrap();
        second.finish().unwrap();
        drop(second);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "of another run");
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
