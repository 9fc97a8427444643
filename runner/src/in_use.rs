//! Files that one bdrun at a time writes: a lock on each, taken before anything in it is changed.
//!
//! It is on bytes far behind the end of any file (`F_OFD_SETLK`), so that a program that locks its own output
//! (`flock`, or what it has of it) does not wait for us; who locks all there may ever be of it does. How many
//! bytes is the number of the master whose job took it: whoever is refused is told by whom. On several nodes
//! it is that of the first one's: what a node has begun that is lost (stopped, say, with the file still open)
//! others begin anew.
//!
//! It belongs to the open file, not to a process: a rank that is given the file has it too, and it is there
//! until all that have the file open have ended. Where the file system has no locks nobody is refused. On NFS
//! the server keeps them, unless it is mounted with `nolock` or `local_lock`: then bdruns of two machines do
//! not see each other.

use std::fs::{File, Metadata};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, fcntl};

/// Where our lock is.
const FAR: i64 = 1 << 62;

/// So long whoever cannot be seen may take to end.
const ENDING: Duration = Duration::from_secs(2);
/// It is looked so often whether it has.
const AGAIN: Duration = Duration::from_millis(10);

/// The process whose job this is; 0 if this one's.
static JOB: AtomicI32 = AtomicI32::new(0);

/// Somebody else has the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InUse {
    /// The master whose job took the lock, if it can be seen from here.
    pub pid: Option<i32>,
}

impl std::fmt::Display for InUse {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.pid {
            Some(pid) => {
                let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
                write!(f, "process {pid} ({}) has it", name.trim_end())?;
            }
            None => f.write_str(
                "a bdrun on another machine or in another container has it, or what is left of one that was killed",
            )?,
        }
        f.write_str(": wait until that has ended, or name another file")
    }
}

impl std::error::Error for InUse {}

/// This master is one of several of a job, of which the first is this process (`pid`).
pub fn is_of_the_job_of(pid: i32) {
    JOB.store(pid, Ordering::Relaxed);
}

/// Takes the file for this job, as long as it is open. What the job has already may be had again: a rank is
/// run anew while what is left of its last try ends, and one of a lost node by another.
///
/// # Errors
/// Somebody else has it.
pub fn take(file: &File) -> Result<(), InUse> {
    // Locks of devices and pipes would be waited for by whoever else they serve.
    if !file.metadata().is_ok_and(|metadata| metadata.is_file()) {
        return Ok(());
    }
    let begin = Instant::now();
    loop {
        let lock = far(libc::F_WRLCK, own().into());
        if !matches!(fcntl(file, FcntlArg::F_OFD_SETLK(&lock)), Err(Errno::EAGAIN | Errno::EACCES)) {
            return Ok(());
        }
        match holder(file) {
            // It has let go meanwhile.
            None if begin.elapsed() < ENDING => {}
            // That of a program, on all there may ever be of the file.
            None => return Ok(()),
            Some(pid) if pid == own() => return Ok(()),
            Some(pid) if is_here(pid) => return Err(InUse { pid: Some(pid) }),
            // What a bdrun has left that was killed is killed too, and may be at it.
            Some(_) if begin.elapsed() < ENDING => std::thread::sleep(AGAIN),
            Some(_) => return Err(InUse { pid: None }),
        }
    }
}

/// The first of these files that another bdrun has.
#[must_use]
pub fn first(paths: impl Iterator<Item = PathBuf>) -> Option<(PathBuf, InUse)> {
    paths.filter_map(|path| of(&path).map(|in_use| (path, in_use))).next()
}

fn of(path: &Path) -> Option<InUse> {
    // To open what is not a file may wait.
    path.metadata().ok().filter(Metadata::is_file)?;
    let pid = holder(&File::open(path).ok()?).filter(|&pid| pid != own())?;
    Some(InUse { pid: is_here(pid).then_some(pid) })
}

/// The bdrun that has the file, if one has.
fn holder(file: &File) -> Option<i32> {
    let mut lock = far(libc::F_WRLCK, 1);
    fcntl(file, FcntlArg::F_OFD_GETLK(&mut lock)).ok()?;
    let is_ours = i32::from(lock.l_type) != libc::F_UNLCK && lock.l_start == FAR;
    is_ours.then(|| i32::try_from(lock.l_len).ok())?.filter(|&pid| pid > 0)
}

/// Whether a process of this number can be seen from here that is a bdrun: in another container, or on
/// another machine, others have these numbers.
fn is_here(pid: i32) -> bool {
    let name = |pid: &str| std::fs::read(format!("/proc/{pid}/comm")).ok();
    name(&pid.to_string()).is_some_and(|theirs| Some(theirs) == name("self"))
}

fn own() -> i32 {
    match JOB.load(Ordering::Relaxed) {
        0 => std::process::id().cast_signed(),
        first => first,
    }
}

fn far(kind: i32, bytes: i64) -> libc::flock {
    libc::flock {
        l_type: kind as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: FAR,
        l_len: bytes,
        l_pid: 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_we_have_we_may_have_again() {
        let path = std::env::temp_dir().join(format!("bdrun-in-use-{}", std::process::id()));
        let open = || File::options().create(true).append(true).open(&path).unwrap();
        let (first, again) = (open(), open());
        assert_eq!(take(&first), Ok(()));
        assert_eq!(take(&again), Ok(()));
        assert_eq!(holder(&open()), Some(own()));
        assert_eq!(super::first(std::iter::once(path.clone())), None);
        drop(first);
        assert_eq!(take(&again), Ok(()));
        drop(again);
        // A program that another test starts has a copy for a moment.
        let begun = std::time::Instant::now();
        while holder(&open()).is_some() && begun.elapsed().as_secs() < 60 {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        assert_eq!(holder(&open()), None);
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn locks_of_programs_are_not_ours_nor_in_our_way() {
        let path = std::env::temp_dir().join(format!("bdrun-in-use-{}-locked", std::process::id()));
        let open = || File::options().create(true).append(true).open(&path).unwrap();
        let ours = open();
        assert_eq!(take(&ours), Ok(()));
        let theirs = open();
        theirs.try_lock().expect("a program has its own lock besides");
        drop(ours);
        let part = libc::flock { l_start: 0, l_len: 1 << 40, ..far(libc::F_WRLCK, 0) };
        fcntl(&theirs, FcntlArg::F_OFD_SETLK(&part)).unwrap();
        assert_eq!(take(&open()), Ok(()));
        std::fs::remove_file(&path).unwrap();
    }
}
