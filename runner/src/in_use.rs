//! Files that one bdrun at a time writes: a lock on each, taken before anything in it is changed.
//!
//! It is on bytes far behind the end of any file (`F_OFD_SETLK`), so that a program that locks its own output
//! (`flock`, or what it has of it) does not wait for us; who locks all there may ever be of it does. How many
//! bytes tells whose it is ([`Owner`]): whoever is refused is told by whom. On several nodes it is the first
//! one's: what a node has begun that is lost (stopped, say, with the file still open) others begin anew.
//!
//! It belongs to the open file, not to a process: a rank that is given the file has it too, and it is there
//! until all that have the file open have ended. Where the file system has no locks nobody is refused. On NFS
//! the server keeps them, unless it is mounted with `nolock` or `local_lock`: then bdruns of two machines do
//! not see each other.

use std::collections::hash_map::RandomState;
use std::fs::{File, Metadata};
use std::hash::{BuildHasher, Hasher};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, fcntl};
use serde::{Deserialize, Serialize};

/// Where our lock is.
const FAR: i64 = 1 << 62;

/// So long whoever cannot be seen may take to end.
const ENDING: Duration = Duration::from_secs(2);
/// It is looked so often whether it has.
const AGAIN: Duration = Duration::from_millis(10);

/// The [`Owner`] that this master has been told to be.
static JOB: OnceLock<Owner> = OnceLock::new();

/// A job, as the length of a lock: the number of its first master, and above it what no other master has that
/// has this number, in another container or on another machine, or had it before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owner(i64);

/// As many bits the number of a process has at most (`PID_MAX_LIMIT`).
const PID_BITS: u32 = 22;

impl Owner {
    /// That of a job whose first master is this process.
    #[must_use]
    pub fn this() -> Self {
        static THIS: OnceLock<Owner> = OnceLock::new();
        *THIS.get_or_init(|| {
            // Keys that the system has drawn.
            Self::new(std::process::id(), RandomState::new().build_hasher().finish())
        })
    }

    /// With so much that was drawn. All of a lock has to lie below 2^63.
    #[must_use]
    pub fn new(pid: u32, drawn: u64) -> Self {
        let above = (drawn >> (64 - 39)) << PID_BITS;
        Self(above.cast_signed() | i64::from(pid))
    }

    fn of_lock(length: i64) -> Option<Self> {
        let this = Self(length);
        (length > 0 && this.pid() > 0).then_some(this)
    }

    fn pid(self) -> i32 {
        (self.0 & ((1 << PID_BITS) - 1)) as i32
    }
}

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

/// This master is one of several of a job, whose this is. Before it takes any file.
pub fn is_of_the_job_of(owner: Owner) {
    let _ = JOB.set(owner);
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
        let lock = far(libc::F_WRLCK, own().0);
        if !matches!(fcntl(file, FcntlArg::F_OFD_SETLK(&lock)), Err(Errno::EAGAIN | Errno::EACCES)) {
            return Ok(());
        }
        match holder(file) {
            // It has let go meanwhile.
            None if begin.elapsed() < ENDING => {}
            // That of a program, on all there may ever be of the file.
            None => return Ok(()),
            Some(owner) if owner == own() => return Ok(()),
            Some(owner) if is_here(owner.pid()) => return Err(InUse { pid: Some(owner.pid()) }),
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
    let owner = holder(&File::open(path).ok()?).filter(|&owner| owner != own())?;
    Some(InUse { pid: Some(owner.pid()).filter(|&pid| is_here(pid)) })
}

/// The job that has the file, if one has.
fn holder(file: &File) -> Option<Owner> {
    let mut lock = far(libc::F_WRLCK, 1);
    fcntl(file, FcntlArg::F_OFD_GETLK(&mut lock)).ok()?;
    let is_ours = i32::from(lock.l_type) != libc::F_UNLCK && lock.l_start == FAR;
    is_ours.then(|| Owner::of_lock(lock.l_len)).flatten()
}

/// Whether a process of this number can be seen from here that is a bdrun, and not this one: in another
/// container, or on another machine, others have these numbers.
fn is_here(pid: i32) -> bool {
    let name = |pid: &str| std::fs::read(format!("/proc/{pid}/comm")).ok();
    let is_other = pid != std::process::id().cast_signed();
    is_other && name(&pid.to_string()).is_some_and(|theirs| Some(theirs) == name("self"))
}

fn own() -> Owner {
    JOB.get().copied().unwrap_or_else(Owner::this)
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

    /// As in two containers, in each of which bdrun is one of the first processes.
    #[test]
    fn another_job_whose_master_has_our_number_has_what_it_has() {
        let path = std::env::temp_dir().join(format!("bdrun-in-use-{}-same", std::process::id()));
        let open = || File::options().create(true).append(true).open(&path).unwrap();
        let theirs = open();
        let other = Owner(own().0 ^ (1 << PID_BITS));
        assert_eq!(other.pid(), std::process::id().cast_signed());
        fcntl(&theirs, FcntlArg::F_OFD_SETLK(&far(libc::F_WRLCK, other.0))).unwrap();
        assert_eq!(holder(&open()), Some(other));
        assert_eq!(take(&open()), Err(InUse { pid: None }));
        assert_eq!(super::first(std::iter::once(path.clone())), Some((path.clone(), InUse { pid: None })));
        drop(theirs);
        assert_eq!(take(&open()), Ok(()));
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn locks_end_below_the_largest_offset_and_tell_the_process() {
        for length in [1, own().0, i64::MAX >> 2, (i64::MAX >> 2) & !1] {
            let Some(owner) = Owner::of_lock(length) else { panic!("{length}") };
            assert!(FAR.checked_add(owner.0).is_some() && owner.pid() > 0, "{length}");
        }
        assert_eq!(own().pid(), std::process::id().cast_signed());
        assert!(own().0 > 1 << PID_BITS, "drawn: zero once in 2^39 times");
        for length in [0, -1, 5 << PID_BITS] {
            assert_eq!(Owner::of_lock(length), None);
        }
    }
}
