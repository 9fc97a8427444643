//! Who writes an index, and how it gets its name: one job at a time, and never half of it.
//!
//! Beside the directory DIR of the index there are, while a job writes it: `DIR.lock`, which that job has
//! locked; `DIR.partial-…`, which becomes the index; and, only for a moment and only on file systems that
//! cannot exchange two names, `DIR.old-…`, what is replaced. Whoever has the lock clears away what a killed
//! job left, and puts an old index back if the new one had not yet got its name. All of that is of one
//! machine unless the file system passes locks on.

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::fs::{CWD, RenameFlags, renameat_with};

use crate::error::{Context, Error, Result};
use crate::index::Index;

/// A job that has just ended or been killed may hold its lock for a moment.
const GRACE: Duration = Duration::from_secs(1);

/// What is done to make an index durable, in this order, with [`Aside`](Self::Aside) and [`In`](Self::In) in
/// place of [`Exchange`](Self::Exchange) where names cannot be exchanged, and only [`In`](Self::In) where
/// nothing is replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// All that was written goes to the disk.
    Sync,
    /// The new index and the old one exchange their names.
    Exchange,
    /// The old index gets another name.
    Aside,
    /// The new index gets its name.
    In,
    /// The names go to the disk.
    SyncNames,
    /// The old index is removed.
    Remove,
}

/// The right to write an index, until it is dropped; what was not published by then is removed.
pub struct Claim {
    out: PathBuf,
    partial: PathBuf,
    /// `partial`, open since before anything was written into it: so an error of writing it back is told.
    dir: Option<File>,
    lock: (PathBuf, File),
    /// Directories made for the index, the deepest first.
    made: Vec<PathBuf>,
}

impl Claim {
    /// Claim the index `out`, and make the directory that becomes it.
    ///
    /// # Errors
    /// Another job writes it; or the system refuses.
    pub fn new(out: &Path) -> Result<Self> {
        let out = resolved(out)?;
        let name = out.file_name().and_then(|n| n.to_str());
        let name = name.ok_or_else(|| Error::Usage(format!("--out {}: not a name", out.display())))?;
        if out.to_str().is_none() {
            return Err(Error::Usage(format!("--out {}: the path is not UTF-8", out.display())));
        }
        let parent = out.parent().unwrap_or(Path::new("/"));
        let made = parent.ancestors().take_while(|dir| !dir.exists()).map(Path::to_path_buf).collect();
        std::fs::create_dir_all(parent).context(|| format!("cannot create {}", parent.display()))?;
        let lock = locked(&out, &parent.join(format!("{name}.lock")))?;
        let partial = beside(&out, "partial");
        let mut claim = Self { out, partial, dir: None, lock, made };
        claim.clear()?;
        let partial = &claim.partial;
        std::fs::create_dir(partial).context(|| format!("cannot create {}", partial.display()))?;
        let dir = File::open(partial).and_then(|dir| dir.lock().map(|()| dir));
        claim.dir = Some(dir.context(|| format!("cannot lock {}", partial.display()))?);
        Ok(claim)
    }

    /// The directory that becomes the index.
    pub fn partial(&self) -> &Path {
        &self.partial
    }

    /// Where the index will be: an absolute path, and no link.
    pub fn out(&self) -> &Path {
        &self.out
    }

    /// Put back or remove what killed jobs left.
    fn clear(&self) -> Result<()> {
        let Some((parent, name)) = self.out.parent().zip(self.out.file_name().and_then(|n| n.to_str()))
        else {
            return Ok(());
        };
        let listing = || format!("cannot list {}", parent.display());
        let (mut old, mut partial) = (Vec::new(), Vec::new());
        for entry in std::fs::read_dir(parent).context(listing)? {
            let path = entry.context(listing)?.path();
            let rest = path.file_name().and_then(|n| n.to_str()).and_then(|n| n.strip_prefix(name));
            let Some((what, number)) = rest.and_then(|rest| rest.split_once('-')) else { continue };
            // Not what somebody else has called alike: a copy by date, say.
            if !is_number(number) || !std::fs::symlink_metadata(&path).is_ok_and(|found| found.is_dir()) {
                continue;
            }
            match what {
                ".old" => old.push(path),
                ".partial" => partial.push(path),
                _ => {}
            }
        }
        old.sort();
        if !self.out.exists()
            && let Some(last) = old.pop_if(|last| Index::is_there(last))
        {
            // Killed between two renames. What it had made may be whole, but was not yet the index.
            rename(&last, &self.out)?;
            sync_names(&self.out)?;
        }
        for path in old.into_iter().chain(partial) {
            // One that is locked belongs to somebody, whatever became of the lock beside it.
            if File::open(&path).is_ok_and(|dir| dir.try_lock().is_ok()) {
                remove(&path)?;
            }
        }
        Ok(())
    }

    /// Give the index its name: whatever happens meanwhile, the name means the whole old one or the whole new
    /// one (or, for a moment, none, where names cannot be exchanged). Afterwards it is on the disk.
    ///
    /// # Errors
    /// The old index, if there was one, is still there.
    pub fn publish(self) -> Result<()> {
        self.publish_in_steps(true, &mut |_| {})
    }

    /// `before` is called before each step; `exchange`: try to exchange names.
    fn publish_in_steps(mut self, exchange: bool, before: &mut dyn FnMut(Step)) -> Result<()> {
        before(Step::Sync);
        self.sync()?;
        let Self { out, partial, .. } = &self;
        if !out.exists() {
            before(Step::In);
            // What somebody else has put there meanwhile is not ours to replace.
            renameat_with(CWD, partial, CWD, out, RenameFlags::NOREPLACE)
                .or_else(|error| match error {
                    rustix::io::Errno::EXIST => Err(error.into()),
                    _ => std::fs::rename(partial, out),
                })
                .context(|| format!("cannot rename {} to {}", partial.display(), out.display()))?;
            before(Step::SyncNames);
            if let Err(error) = sync_names(out) {
                // Of a job that failed nothing is left.
                rename(out, partial)?;
                return Err(error);
            }
            self.dir = None;
            return Ok(());
        }
        let exchanged =
            || renameat_with(CWD, partial, CWD, out, RenameFlags::EXCHANGE).map_err(io::Error::from);
        if exchange {
            before(Step::Exchange);
        }
        let old = if exchange && exchanged().is_ok() {
            before(Step::SyncNames);
            if let Err(error) = sync_names(out) {
                // The old index stays, as after every error; this one is removed.
                exchanged().context(|| format!("cannot exchange {} again", out.display()))?;
                return Err(error);
            }
            partial.clone()
        } else {
            let old = beside(out, "old");
            before(Step::Aside);
            rename(out, &old)?;
            before(Step::In);
            if let Err(error) = rename(partial, out) {
                rename(&old, out)?;
                return Err(error);
            }
            before(Step::SyncNames);
            if let Err(error) = sync_names(out) {
                rename(out, partial)?;
                rename(&old, out)?;
                return Err(error);
            }
            old
        };
        self.dir = None;
        before(Step::Remove);
        if let Err(error) = remove(&old) {
            // Nothing is wrong with the new one. The next job tries again.
            eprintln!("obikmer-merge: warning: {} is complete, but {error}", self.out.display());
        }
        Ok(())
    }

    /// Bring all files and directories of the new index to the disk.
    fn sync(&self) -> Result<()> {
        const FUSE: u64 = 0x6573_5546;
        let syncing = || format!("cannot bring {} to the disk", self.partial.display());
        let Some(dir) = &self.dir else { return Ok(()) };
        // For hundreds of files one call is far quicker than one for each: the disk is told to empty its
        // cache once. But the kernel does not pass it on to programs that are file systems.
        let kind = rustix::fs::fstatfs(dir).map_err(io::Error::from).context(syncing)?.f_type;
        if kind as u64 == FUSE {
            return sync_each(&self.partial).context(syncing);
        }
        rustix::fs::syncfs(dir).map_err(io::Error::from).context(syncing)
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        // Whoever drops it early has an error to tell, which matters more than one of cleaning up.
        if self.dir.take().is_some() {
            let _ = std::fs::remove_dir_all(&self.partial);
        }
        // First the name, then the lock (when the file is closed): whoever gets that sees that its name is
        // gone.
        let _ = std::fs::remove_file(&self.lock.0);
        for dir in &self.made {
            // Only where there is nothing in it.
            let _ = std::fs::remove_dir(dir);
        }
    }
}

/// The absolute path behind links: renaming must replace the index, not a link to it, and two names of one
/// index must be one claim.
fn resolved(out: &Path) -> Result<PathBuf> {
    let resolving = || format!("cannot resolve {}", out.display());
    if std::fs::symlink_metadata(out).is_ok() {
        return std::fs::canonicalize(out).context(resolving);
    }
    let absolute = std::path::absolute(out).context(resolving)?;
    // Without what is behind a last slash: names beside it are made of this.
    Ok(absolute.components().collect())
}

/// A name beside `out`, on the same file system.
fn beside(out: &Path, what: &str) -> PathBuf {
    let name = out.file_name().unwrap_or_default().to_string_lossy();
    // Not the process's number: under bdrun that is nearly always the same.
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    out.with_file_name(format!("{name}.{what}-{:016x}", now.as_nanos()))
}

/// As in a name [`beside`] an index.
fn is_number(text: &str) -> bool {
    text.len() == 16 && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}

/// The lock of an index, ours.
fn locked(out: &Path, path: &Path) -> Result<(PathBuf, File)> {
    let locking = || format!("cannot lock {}", path.display());
    let begin = Instant::now();
    loop {
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path);
        let file = file.context(|| format!("cannot create {}", path.display()))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::Error(error)) => return Err(error).context(locking),
            Err(TryLockError::WouldBlock) if begin.elapsed() < GRACE => {
                std::thread::sleep(GRACE / 50);
                continue;
            }
            Err(TryLockError::WouldBlock) => {
                return Err(Error::Usage(format!(
                    "{}: another job is writing this index (it has locked {}): start this one again when that has ended",
                    out.display(),
                    path.display()
                )));
            }
        }
        let ours = file.metadata().context(locking)?;
        // Who had it before us has removed the name, and somebody else may have made it anew.
        if std::fs::metadata(path).is_ok_and(|named| (named.dev(), named.ino()) == (ours.dev(), ours.ino())) {
            return Ok((path.to_path_buf(), file));
        }
    }
}

fn rename(from: &Path, to: &Path) -> Result<()> {
    std::fs::rename(from, to).context(|| format!("cannot rename {} to {}", from.display(), to.display()))
}

/// Bring the names in the directory that holds `path` to the disk.
fn sync_names(path: &Path) -> Result<()> {
    let parent = path.parent().unwrap_or(Path::new("/"));
    let synced = File::open(parent).and_then(|dir| dir.sync_all());
    synced.context(|| format!("cannot bring {} to the disk", parent.display()))
}

fn sync_each(dir: &Path) -> io::Result<()> {
    for entry in std::fs::read_dir(dir)? {
        let path = entry?.path();
        if path.is_dir() {
            sync_each(&path)?;
        } else {
            File::open(&path)?.sync_all()?;
        }
    }
    File::open(dir)?.sync_all()
}

fn remove(dir: &Path) -> Result<()> {
    std::fs::remove_dir_all(dir).context(|| format!("cannot remove {}", dir.display()))
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;

    fn index(dir: &Path, text: &str) {
        std::fs::create_dir_all(dir.join("layer-000")).expect("made");
        std::fs::write(dir.join(crate::index::FILE), text).expect("written");
        std::fs::write(dir.join("layer-000/part"), text).expect("written");
    }

    /// What the index says, if there is one; both of its files say the same.
    fn content(dir: &Path) -> Option<String> {
        let text = std::fs::read_to_string(dir.join(crate::index::FILE)).ok()?;
        assert_eq!(std::fs::read_to_string(dir.join("layer-000/part")).expect("whole"), text);
        Some(text)
    }

    fn names(dir: &Path) -> Vec<String> {
        let entries = std::fs::read_dir(dir).expect("listed");
        let mut names: Vec<String> =
            entries.map(|e| e.expect("an entry").file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    /// As if the process had been killed there: nothing that it would have done is done.
    fn killed(claim: Claim, exchange: bool, at: usize) -> (Vec<Step>, bool) {
        let mut steps = Vec::new();
        let (lock, partial) = (claim.lock.0.clone(), claim.partial.clone());
        // A dying process's directory is not removed by it, whoever drops what.
        let kept = partial.with_extension("kept");
        let ended = catch_unwind(AssertUnwindSafe(|| {
            let mut before = |step| {
                steps.push(step);
                if steps.len() > at {
                    if partial.exists() {
                        std::fs::rename(&partial, &kept).expect("kept");
                    }
                    std::panic::resume_unwind(Box::new("killed"));
                }
            };
            claim.publish_in_steps(exchange, &mut before).expect("published");
        }))
        .is_ok();
        if !ended {
            if kept.exists() {
                std::fs::rename(&kept, &partial).expect("as it was");
            }
            std::fs::write(lock, "").expect("its lock is left");
        }
        (steps, ended)
    }

    /// Killed before each of the steps: there is the old index or the new one, and the next job finds it and
    /// clears away the rest.
    #[test]
    fn killed_before_any_step_one_whole_index_is_left() {
        use Step::{Aside, Exchange, In, Remove, Sync, SyncNames};
        for (there, exchange, all) in [
            (true, true, &[Sync, Exchange, SyncNames, Remove][..]),
            (true, false, &[Sync, Aside, In, SyncNames, Remove]),
            (false, true, &[Sync, In, SyncNames]),
        ] {
            for at in 0..=all.len() {
                let dir = tempfile::tempdir().expect("a directory");
                let out = dir.path().join("ix");
                if there {
                    index(&out, "old");
                }
                let claim = Claim::new(&out).expect("claimed");
                index(claim.partial(), "new");
                let (steps, ended) = killed(claim, exchange, at);
                assert_eq!((&steps[..], ended), (&all[..all.len().min(at + 1)], at == all.len()));
                let found = content(&out);
                let moved = steps[..at].iter().any(|s| matches!(s, Exchange | In));
                let gap = steps[..at].last() == Some(&Aside);
                let expected = if moved { Some("new") } else { there.then_some("old") };
                assert_eq!(found.as_deref(), if gap { None } else { expected }, "{steps:?}");
                drop(Claim::new(&out).expect("claimed again"));
                assert_eq!(content(&out).as_deref(), expected, "{steps:?}");
                let left: &[&str] = if expected.is_some() { &["ix"] } else { &[] };
                assert_eq!(names(dir.path()), left, "{steps:?}");
            }
        }
    }

    #[test]
    fn one_at_a_time_and_nothing_is_left_of_one_that_gives_up() {
        let dir = tempfile::tempdir().expect("a directory");
        let out = dir.path().join("deep/er/ix");
        let claim = Claim::new(&out).expect("claimed");
        index(claim.partial(), "first");
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(out.parent().expect("a parent"), &link).expect("linked");
        for out in [out.clone(), link.join("ix"), link.join("ix/")] {
            let error = Claim::new(&out).map(|_| ()).expect_err("claimed already").to_string();
            assert!(error.contains("another job") && error.contains("ix.lock"), "{error}");
        }
        assert!(claim.partial().exists());
        drop(Claim::new(&dir.path().join("deep/er/other")).expect("another index"));
        drop(claim);
        assert_eq!(names(dir.path()), ["link"], "the directories made for it are gone too");
    }

    /// The index behind a link is replaced, and the link stays.
    #[test]
    fn links_are_followed() {
        let dir = tempfile::tempdir().expect("a directory");
        let (out, link) = (dir.path().join("ix"), dir.path().join("link"));
        index(&out, "old");
        std::os::unix::fs::symlink("ix", &link).expect("linked");
        let claim = Claim::new(&link).expect("claimed");
        index(claim.partial(), "new");
        claim.publish().expect("published");
        assert_eq!(content(&out).as_deref(), Some("new"));
        assert!(std::fs::symlink_metadata(&link).expect("there").is_symlink());
        assert_eq!(names(dir.path()), ["ix", "link"]);
    }

    /// What somebody else has made meanwhile under the name of a new index is not replaced.
    #[test]
    fn what_came_meanwhile_stays() {
        let dir = tempfile::tempdir().expect("a directory");
        let out = dir.path().join("ix");
        let claim = Claim::new(&out).expect("claimed");
        index(claim.partial(), "new");
        let mut before = |step| {
            if step == Step::In {
                index(&out, "theirs");
            }
        };
        let error = claim.publish_in_steps(true, &mut before).expect_err("it is there").to_string();
        assert!(error.contains("ix"), "{error}");
        assert_eq!(content(&out).as_deref(), Some("theirs"));
        assert_eq!(names(dir.path()), ["ix"]);
    }
}
