//! A cgroup per rank, so that it is known of every process to which rank it belongs.
//!
//! Any hierarchy will do, since nothing is limited by it: that of version 2 (also where it is mounted beside
//! version 1, without controllers), else of version 1 `freezer`, else `pids`. Under `--enforce` in version 2
//! the groups lie below the job's memory group, whose limit holds for their sum; no controller is switched on
//! below it, so a rank has no memory counter of its own.
//!
//! A rank's process moves itself into its group before `exec` (0.1 to 0.5 ms), so the program and everything
//! it makes is born there. The group is made at the spawn and removed at the rank's end, when whatever is
//! left in it is killed. After a SIGKILL of the master its keepers do that ([`RankGroups::path`] tells them
//! where).
//!
//! Ranks that need not be told apart have one group in common ([`RankGroups::create_common`]).

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::MemoryCgroup;
use super::hierarchy::{Hierarchy, hierarchies};
use super::stale::{lock, remove_stale};

const PAUSE: Duration = Duration::from_millis(1);

/// What can be done with a group, by the hierarchy it is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Version 2: it can be frozen, killed, and counts processor time.
    V2,
    /// Version 1, `freezer`.
    Freezer,
    /// Another of version 1: a list of processes, no more.
    List,
}

/// The groups of a job's ranks.
#[derive(Debug)]
pub(crate) struct RankGroups {
    kind: Kind,
    /// The directory that holds them.
    path: PathBuf,
    /// It is the job's memory group, which somebody else removes.
    borrowed: bool,
    serial: AtomicU64,
    /// Of ranks that have ended, with processes that were not gone yet.
    left: Mutex<Vec<PathBuf>>,
    /// Locked as long as the job lives, so that nobody takes the directory for a stale one.
    _lock: Option<File>,
}

impl RankGroups {
    /// Finds a hierarchy that lets us make groups and move a child into them, below the job's memory group if
    /// it must be there. The error says what was tried.
    pub(crate) fn create(memory: Option<&MemoryCgroup>) -> Result<Self, String> {
        if let Some(memory) = memory.filter(|memory| memory.is_v2()) {
            return Self::new(Kind::V2, memory.path().to_owned(), true, None);
        }
        let (cgroups, mounts) = hierarchies()?;
        let mut tried = Vec::new();
        for (kind, hierarchy) in [
            (Kind::V2, Hierarchy::V2),
            (Kind::Freezer, Hierarchy::V1("freezer")),
            (Kind::List, Hierarchy::V1("pids")),
        ] {
            match hierarchy.locate(&cgroups, &mounts).and_then(|own| Self::create_below(kind, &own)) {
                Ok(groups) => return Ok(groups),
                Err(error) => tried.push(error),
            }
        }
        Err(tried.join("; "))
    }

    /// Below the master's own group `own`.
    pub(crate) fn create_below(kind: Kind, own: &Path) -> Result<Self, String> {
        // Several jobs of one process (tests) must not meet.
        static JOBS: AtomicU64 = AtomicU64::new(0);
        remove_stale(own);
        let number = JOBS.fetch_add(1, Ordering::Relaxed);
        let path = own.join(format!("bdrun-{}.{number}", std::process::id()));
        // A group left by an earlier process of the same number.
        let _ = fs::remove_dir(&path);
        let lock = loop {
            fs::create_dir(&path).map_err(|error| format!("{}: {error}", path.display()))?;
            let lock = lock(&path);
            // A master of another PID namespace does not see us, and may have taken it for stale before.
            if lock.is_none() || path.exists() {
                break lock;
            }
        };
        Self::new(kind, path, false, lock)
    }

    fn new(kind: Kind, path: PathBuf, borrowed: bool, lock: Option<File>) -> Result<Self, String> {
        // From here on dropping it removes what was made.
        let groups =
            Self { kind, path, borrowed, serial: AtomicU64::new(0), left: Mutex::default(), _lock: lock };
        let said = |error: io::Error| format!("{}: {error}", groups.path.display());
        let probe = groups.create_rank(0).map_err(said)?;
        let entered = probe.entrance().and_then(|procs| enter_and_end(&procs));
        groups.retire(&probe);
        entered.map_err(said)?;
        Ok(groups)
    }

    /// What the groups are good for.
    pub(crate) fn kind(&self) -> Kind {
        self.kind
    }

    /// The directory that holds them.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// A new group for a rank.
    pub(crate) fn create_rank(&self, rank: u32) -> io::Result<RankCgroup> {
        let serial = self.serial.fetch_add(1, Ordering::Relaxed);
        self.make(&format!("rank-{rank}.{serial}"))
    }

    /// One for all ranks.
    pub(crate) fn create_common(&self) -> io::Result<RankCgroup> {
        self.make("rank-all")
    }

    fn make(&self, name: &str) -> io::Result<RankCgroup> {
        let path = self.path.join(name);
        fs::create_dir(&path)?;
        Ok(RankCgroup { kind: self.kind, path })
    }

    /// Kills what is left in the group of a rank that has ended, and removes it, now or as soon as that is
    /// possible.
    pub(crate) fn retire(&self, group: &RankCgroup) {
        group.kill();
        let mut left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        left.push(group.path.clone());
        left.retain(|path| !remove_tree(path));
    }

    /// Kills every process in them.
    pub(crate) fn kill_all(&self) {
        self.each(|group| group.kill());
    }

    fn each(&self, mut act: impl FnMut(&RankCgroup)) {
        for entry in fs::read_dir(&self.path).into_iter().flatten().flatten() {
            if entry.file_name().to_str().is_some_and(|name| name.starts_with("rank-")) {
                act(&RankCgroup { kind: self.kind, path: entry.path() });
            }
        }
    }

    /// Kills everything in them and removes them; tries again while the last processes leave. The error is
    /// the directory that is left.
    pub(crate) fn remove(&self, patience: Duration) -> Result<(), PathBuf> {
        let deadline = Instant::now() + patience;
        loop {
            let mut left = None;
            self.each(|group| {
                group.kill();
                if !remove_tree(&group.path) {
                    left = Some(group.path.clone());
                }
            });
            if left.is_none() && !self.borrowed && !removed(&self.path) {
                left = Some(self.path.clone());
            }
            match left {
                None => return Ok(()),
                Some(path) if Instant::now() > deadline => return Err(path),
                Some(_) => std::thread::sleep(PAUSE),
            }
        }
    }
}

impl Drop for RankGroups {
    fn drop(&mut self) {
        if self.path.exists() {
            let _ = self.remove(Duration::from_millis(100));
        }
    }
}

/// The group of one rank.
#[derive(Debug)]
pub(crate) struct RankCgroup {
    kind: Kind,
    path: PathBuf,
}

impl RankCgroup {
    /// The file into which a process writes `0` to get in.
    pub(crate) fn entrance(&self) -> io::Result<File> {
        File::options().write(true).open(self.path.join("cgroup.procs"))
    }

    /// Its processes, and those of groups that the rank has made below it.
    pub(crate) fn processes(&self) -> io::Result<Vec<i32>> {
        let mut found = Vec::new();
        add_processes(&self.path, &mut found)?;
        Ok(found)
    }

    /// Whether the rank has made groups below it.
    pub(crate) fn is_nested(&self) -> bool {
        is_nested(&self.path)
    }

    /// The list of processes, open for reading again and again: in version 2 only, since version 1 keeps what
    /// it has once told for a second.
    pub(crate) fn list(&self) -> Option<File> {
        (self.kind == Kind::V2).then(|| File::open(self.path.join("cgroup.procs")).ok()).flatten()
    }

    /// The account of processor time, likewise, where there is one.
    pub(crate) fn cpu_stat(&self) -> Option<File> {
        (self.kind == Kind::V2).then(|| File::open(self.path.join("cpu.stat")).ok()).flatten()
    }

    pub(crate) fn can_freeze(&self) -> bool {
        self.kind != Kind::List
    }

    /// Returns when all stand still; `TimedOut` if they do not by then.
    pub(crate) fn freeze(&self, deadline: Instant) -> io::Result<()> {
        let (state, want) = match self.kind {
            Kind::V2 => {
                fs::write(self.path.join("cgroup.freeze"), "1")?;
                ("cgroup.events", "frozen 1")
            }
            _ => {
                fs::write(self.path.join("freezer.state"), "FROZEN")?;
                ("freezer.state", "FROZEN")
            }
        };
        let state = self.path.join(state);
        while !fs::read_to_string(&state)?.lines().any(|line| line == want) {
            if Instant::now() > deadline {
                return Err(io::Error::from(io::ErrorKind::TimedOut));
            }
            std::thread::sleep(PAUSE);
        }
        Ok(())
    }

    pub(crate) fn thaw(&self) -> io::Result<()> {
        let thawed = match self.kind {
            Kind::V2 => fs::write(self.path.join("cgroup.freeze"), "0"),
            Kind::Freezer => fs::write(self.path.join("freezer.state"), "THAWED"),
            Kind::List => Ok(()),
        };
        ok_if_gone(thawed)
    }

    /// Kills every process in it, frozen ones too.
    pub(crate) fn kill(&self) {
        if fs::write(self.path.join("cgroup.kill"), "1").is_err() {
            // Processes may be born while the list is read.
            for _ in 0..4 {
                let there = self.processes().unwrap_or_default();
                for &pid in &there {
                    // SAFETY: plain system call; the numbers are of processes, never 0 or negative.
                    unsafe { libc::kill(pid, libc::SIGKILL) };
                }
                // In version 1 a frozen process dies only when it thaws, so before anything of it runs.
                let _ = self.thaw();
                if there.is_empty() {
                    break;
                }
            }
        }
    }
}

/// In a child that ends at once: may it move itself into this group? A child, because moving back is not
/// always permitted.
fn enter_and_end(procs: &File) -> io::Result<()> {
    use std::os::fd::AsRawFd;
    let procs = procs.as_raw_fd();
    // SAFETY: the child of a process that may have threads makes only system calls and ends with `_exit`.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            // SAFETY: writes one byte of a constant; errno is this thread's; `_exit` runs nothing of the
            // master's.
            unsafe {
                let written = libc::write(procs, c"0".as_ptr().cast(), 1);
                libc::_exit(if written == 1 { 0 } else { (*libc::__errno_location()).clamp(1, 255) })
            }
        }
        pid => {
            let mut status = 0;
            // SAFETY: waits for the child just made; the pointer is to a local.
            while unsafe { libc::waitpid(pid, &mut status, 0) } < 0 {
                let error = io::Error::last_os_error();
                if error.kind() != io::ErrorKind::Interrupted {
                    return Err(error);
                }
            }
            match status {
                0 => Ok(()),
                _ => Err(io::Error::from_raw_os_error(libc::WEXITSTATUS(status))),
            }
        }
    }
}

fn add_processes(path: &Path, found: &mut Vec<i32>) -> io::Result<()> {
    let text = match fs::read_to_string(path.join("cgroup.procs")) {
        Ok(text) => text,
        Err(error) => return ok_if_gone(Err(error)),
    };
    found.extend(pids(&text));
    if is_nested(path) {
        for entry in fs::read_dir(path)?.flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                add_processes(&entry.path(), found)?;
            }
        }
    }
    Ok(())
}

fn is_nested(path: &Path) -> bool {
    // A directory has two links and one more for each below it.
    fs::metadata(path).is_ok_and(|metadata| metadata.nlink() > 2)
}

/// The numbers in a list of processes, without those we cannot see (0).
pub(crate) fn pids(text: &str) -> impl Iterator<Item = i32> {
    text.lines().filter_map(|line| line.trim().parse().ok()).filter(|&pid| pid > 1)
}

/// A group that is removed has no processes.
fn ok_if_gone(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ENODEV)) => Ok(()),
        other => other,
    }
}

fn removed(path: &Path) -> bool {
    match fs::remove_dir(path) {
        Ok(()) => true,
        Err(error) => error.kind() == io::ErrorKind::NotFound,
    }
}

/// With the groups that the rank has made below it.
fn remove_tree(path: &Path) -> bool {
    if removed(path) {
        return true;
    }
    for entry in fs::read_dir(path).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove_tree(&entry.path());
        }
    }
    removed(path)
}
