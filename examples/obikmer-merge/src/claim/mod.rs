//! Who writes an index, and how it gets its name: one job at a time, and never half of it.
//!
//! Beside the directory DIR of the index there are, while a job writes it: `DIR.lock`, which that job has
//! locked; `DIR.partial-…`, which becomes the index; and, only for a moment and only on file systems that
//! cannot exchange two names, `DIR.old-…`, what is replaced. Whoever has the lock clears away what a killed
//! job left, and puts an old index back if the new one had not yet got its name. All of that is of one
//! machine unless the file system passes locks on.
//!
//! Others know nothing of locks. So what lies under the name is looked at when the job begins ([`There`]),
//! and again when it is replaced; only what was there then is, and only what is of an index is removed.

mod lock;
mod there;

use std::fs::{DirBuilder, File, Metadata, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::fs::{CWD, RenameFlags, renameat_with};

use crate::error::{Context, Error, Result};
use crate::index;
use lock::Lock;
use there::remove;

pub use there::There;

/// What an owner may do with a directory.
const ALL: u32 = 0o700;

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
    /// What was there when it was claimed.
    there: There,
    partial: PathBuf,
    /// `partial`, open since before anything was written into it: so an error of writing it back is told.
    dir: Option<File>,
    /// What the index is to have, if it replaces something.
    permissions: Option<Permissions>,
    // They go in this order, when nothing is left of what is above.
    _lock: Lock,
    _made: Made,
}

/// Directories made for the index, the deepest first.
struct Made(Vec<PathBuf>);

impl Claim {
    /// Claim the index `out`, and make the directory that becomes it.
    ///
    /// # Errors
    /// Another job writes it; or the system refuses.
    pub fn new(out: &Path) -> Result<Self> {
        let out = resolved(out)?;
        if out.to_str().is_none() {
            return Err(Error::Usage(format!("--out {}: the path is not UTF-8", out.display())));
        }
        let name = out.file_name().and_then(|n| n.to_str());
        let name = name.ok_or_else(|| Error::Usage(format!("--out {}: not a name", out.display())))?;
        let parent = out.parent().unwrap_or(Path::new("/"));
        let missing = parent.ancestors().take_while(|dir| !dir.exists());
        let made = Made(missing.map(Path::to_path_buf).collect());
        std::fs::create_dir_all(parent).context(|| format!("cannot create {}", parent.display()))?;
        outside(&out, parent)?;
        let lock = Lock::new(&out, &parent.join(format!("{name}.lock")))?;
        clear(&out, parent, name)?;
        let (there, partial) = (There::look(&out)?, beside(&out, "partial"));
        let mut claim = Self { out, there, partial, dir: None, permissions: None, _lock: lock, _made: made };
        claim.begin()?;
        Ok(claim)
    }

    /// What lay under the name when it was claimed: only that is replaced.
    pub fn there(&self) -> &There {
        &self.there
    }

    /// The directory that becomes the index.
    pub fn partial(&self) -> &Path {
        &self.partial
    }

    /// Make it: whoever may not read what it replaces, may not read this meanwhile either.
    fn begin(&mut self) -> Result<()> {
        let Self { out, partial, .. } = self;
        let old = std::fs::symlink_metadata(out).ok().filter(Metadata::is_dir);
        let mut builder = DirBuilder::new();
        if old.is_some() {
            builder.mode(ALL);
        }
        builder.create(&*partial).context(|| format!("cannot create {}", partial.display()))?;
        let locked = File::open(&*partial).and_then(|dir| dir.lock().map(|()| dir)).and_then(|dir| {
            let permissions = old.map(|old| give(&dir, &old)).transpose()?;
            Ok((dir, permissions))
        });
        if locked.is_err() {
            let _ = std::fs::remove_dir(&*partial);
        }
        let (dir, permissions) = locked.context(|| format!("cannot prepare {}", partial.display()))?;
        (self.dir, self.permissions) = (Some(dir), permissions);
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
        let (out, partial) = (&self.out.clone(), &self.partial.clone());
        let now = There::look(out)?;
        if now == There::Nothing {
            before(Step::In);
            rename(partial, out).map_err(|error| match There::look(out) {
                Ok(There::Nothing) | Err(_) => error,
                Ok(now) => changed(out, &now),
            })?;
            before(Step::SyncNames);
            if let Err(error) = sync_names(out) {
                // Of a job that failed nothing is left.
                rename(out, partial)?;
                return Err(error);
            }
            self.dir = None;
            return Ok(());
        }
        if now != self.there {
            return Err(changed(out, &now));
        }
        let exchanged =
            || renameat_with(CWD, partial, CWD, out, RenameFlags::EXCHANGE).map_err(io::Error::from);
        if exchange {
            before(Step::Exchange);
        }
        let old = if exchange && exchanged().is_ok() {
            let kept = self.is_still(partial, out).and_then(|()| {
                before(Step::SyncNames);
                sync_names(out)
            });
            if let Err(error) = kept {
                // What was there stays, as after every error; this one is removed.
                if let Err(again) = exchanged() {
                    // What has the name of this one is not.
                    self.dir = None;
                    return Err(again).context(|| format!("cannot exchange {} again", out.display()));
                }
                return Err(error);
            }
            partial.clone()
        } else {
            let old = beside(out, "old");
            before(Step::Aside);
            rename(out, &old)?;
            let renamed = self.is_still(&old, out).and_then(|()| {
                before(Step::In);
                rename(partial, out)
            });
            if let Err(error) = renamed {
                put_back(&old, out)?;
                return Err(error);
            }
            before(Step::SyncNames);
            if let Err(error) = sync_names(out) {
                rename(out, partial)?;
                put_back(&old, out)?;
                return Err(error);
            }
            old
        };
        self.dir = None;
        before(Step::Remove);
        let removed = match self.there {
            There::Index(..) => remove(&old),
            _ => std::fs::remove_dir(&old).context(|| format!("cannot remove {}", old.display())),
        };
        if let Err(error) = removed {
            // Nothing is wrong with the new one. The next job tries again.
            eprintln!("obikmer-merge: warning: {} is complete, but {error}", self.out.display());
        }
        Ok(())
    }

    /// What had the name `out` and now is at `path`: is it what the job began with?
    fn is_still(&self, path: &Path, out: &Path) -> Result<()> {
        let now = There::look(path)?;
        if now == self.there { Ok(()) } else { Err(changed(out, &now)) }
    }

    /// Bring all files and directories of the new index to the disk.
    fn sync(&self) -> Result<()> {
        const FUSE: u64 = 0x6573_5546;
        let syncing = || format!("cannot bring {} to the disk", self.partial.display());
        let Some(dir) = &self.dir else { return Ok(()) };
        if let Some(permissions) = &self.permissions {
            dir.set_permissions(permissions.clone()).context(|| {
                format!("cannot give {} the permissions of {}", self.partial.display(), self.out.display())
            })?;
        }
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
            let _ = remove(&self.partial);
        }
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        for dir in &self.0 {
            // Only where there is nothing in it.
            let _ = std::fs::remove_dir(dir);
        }
    }
}

/// Put back or remove what killed jobs left beside the index `out`.
fn clear(out: &Path, parent: &Path, name: &str) -> Result<()> {
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
    if std::fs::symlink_metadata(out).is_err()
        && let Some(last) = old.pop_if(|last| index::says_so(last))
    {
        // Killed between two renames. What it had made may be whole, but was not yet the index.
        rename(&last, out)?;
        sync_names(out)?;
    }
    if !index::says_so(out) {
        // Somebody else has taken the name, and this is all there is of the index.
        old.retain(|old| !index::says_so(old));
    }
    for path in old.into_iter().chain(partial) {
        // One that is locked belongs to somebody, whatever became of the lock beside it.
        if File::open(&path).is_ok_and(|dir| dir.try_lock().is_ok())
            && let Err(error) = remove(&path)
        {
            eprintln!("obikmer-merge: warning: what a job has left: {error}");
        }
    }
    Ok(())
}

/// An index has nothing in it but its own files, and so no other index.
fn outside(out: &Path, parent: &Path) -> Result<()> {
    let parent = parent.canonicalize().context(|| format!("cannot resolve {}", parent.display()))?;
    match parent.ancestors().find(|dir| index::says_so(dir)) {
        None => Ok(()),
        Some(index) => Err(Error::Usage(format!(
            "--out {}: inside the index {}, which has only its own files: give a directory beside it",
            out.display(),
            index.display()
        ))),
    }
}

/// Give a new directory the owner and group of an old one, as far as that is allowed, and what others may do
/// with it. What it is to have in the end: its owner may write meanwhile.
fn give(dir: &File, old: &Metadata) -> io::Result<Permissions> {
    let ours = dir.metadata()?;
    let mut mode = old.mode() & 0o7777;
    if (ours.uid(), ours.gid()) != (old.uid(), old.gid())
        && fchown(dir, Some(old.uid()), Some(old.gid())).is_err()
        && fchown(dir, None, Some(old.gid())).is_err()
    {
        // Another group may do no more than everybody.
        mode &= !0o070 | (mode & 0o007) << 3;
    }
    dir.set_permissions(Permissions::from_mode(mode | ALL))?;
    Ok(Permissions::from_mode(mode))
}

/// What lies under the name is not what lay there when the job began.
fn changed(out: &Path, now: &There) -> Error {
    let what = match now {
        There::Mixed(other) => format!("{} has come into it", other.display()),
        _ => "something else has taken its place".into(),
    };
    let what = format!("{what} since this job began, and stays: move it elsewhere, or give another --out");
    Error::Index { path: out.to_path_buf(), what }
}

/// Give what was there its name again, or, where something has taken that meanwhile, one under which it
/// stays.
fn put_back(old: &Path, out: &Path) -> Result<()> {
    let Err(error) = rename(old, out) else { return Ok(()) };
    let kept = beside(out, "kept");
    rename(old, &kept)?;
    let what = format!("what was there is {} now: {error}", kept.display());
    Err(Error::Index { path: out.to_path_buf(), what })
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

/// Give something a name that nothing has: what somebody else has put there meanwhile is not ours to replace.
fn rename(from: &Path, to: &Path) -> Result<()> {
    use rustix::io::Errno;
    renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE)
        .or_else(|error| match error {
            // Where that cannot be asked for, as far as can be seen.
            Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP if std::fs::symlink_metadata(to).is_err() => {
                std::fs::rename(from, to)
            }
            error => Err(error.into()),
        })
        .context(|| format!("cannot rename {} to {}", from.display(), to.display()))
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

#[cfg(test)]
mod tests;
