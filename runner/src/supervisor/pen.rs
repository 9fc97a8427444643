//! What holds all processes of a job together, whatever they do to get away.
//!
//! A *cgroup*, where one can be made: each rank has one of its own (`measure/cgroup.rs`), or all ranks have
//! one in common. A process is born in the group of its parent and leaves it only if somebody with the right
//! to do so moves it.
//!
//! Else a *mark*: a variable of the environment, `BDRUN_JOB`, that no other job has. Whatever a rank starts
//! inherits it, and it is found in `/proc/<pid>/environ`. Only what was started with another environment, or
//! has written over its own, is missed, and what belongs to another user. A job within a job adds its mark to
//! the outer one's.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::{MemoryCgroup, sweep};
use crate::cgroups::RankGroups;

/// The cgroup that ranks have in common.
pub(super) struct Common {
    groups: RankGroups,
    /// Where they get in.
    entrance: File,
}

impl Common {
    /// Below the job's memory group, if it must be there. The error says what was tried.
    pub(super) fn create(memory: Option<&MemoryCgroup>) -> Result<Self, String> {
        let groups = RankGroups::create(memory)?;
        let said = |error: io::Error| format!("{}: {error}", groups.path().display());
        let entrance = groups.create_common().and_then(|group| group.entrance()).map_err(said)?;
        Ok(Self { groups, entrance })
    }
}

/// The environment variable of the marks.
pub(super) const ENV_MARK: &str = "BDRUN_JOB";

/// The mark of one job.
pub(super) struct Mark(String);

impl Mark {
    fn new() -> Self {
        static JOBS: AtomicU64 = AtomicU64::new(0);
        let number = JOBS.fetch_add(1, Ordering::Relaxed);
        let now = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default().as_nanos();
        Self(format!("{}-{number}-{now:x};", std::process::id()))
    }

    /// What processes have that know it.
    pub(super) fn bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }

    /// What ranks get.
    pub(super) fn variable(&self) -> (OsString, OsString) {
        let mut value = std::env::var_os(ENV_MARK).unwrap_or_default();
        value.push(&self.0);
        (ENV_MARK.into(), value)
    }
}

/// What is in force.
pub(super) enum Pen {
    /// Each rank has a cgroup, which the supervisor keeps.
    Each,
    Common(Common),
    Mark(Mark),
}

impl Pen {
    /// Ranks have cgroups of their own, or one `in_common`, or none.
    pub(super) fn new(
        groups: &Result<RankGroups, String>,
        in_common: bool,
        memory: Option<&MemoryCgroup>,
    ) -> Self {
        if groups.is_ok() {
            return Self::Each;
        }
        let common = in_common.then(|| Common::create(memory).ok()).flatten();
        common.map_or_else(|| Self::Mark(Mark::new()), Self::Common)
    }

    /// Where a rank without a cgroup of its own gets into the common one.
    pub(super) fn entrance(&self) -> Option<&File> {
        match self {
            Self::Common(common) => Some(&common.entrance),
            Self::Each | Self::Mark(_) => None,
        }
    }

    pub(super) fn mark(&self) -> Option<&Mark> {
        match self {
            Self::Mark(mark) => Some(mark),
            Self::Each | Self::Common(_) => None,
        }
    }

    /// The directory of the common group.
    pub(super) fn path(&self) -> Option<&Path> {
        match self {
            Self::Common(common) => Some(common.groups.path()),
            Self::Each | Self::Mark(_) => None,
        }
    }

    /// Kills everything that is found now.
    pub(super) fn kill_all(&self) {
        match self {
            Self::Each => {}
            Self::Common(common) => common.groups.kill_all(),
            // What is born while others are looked at is found by the next look; what dies slowly is found
            // again and again.
            Self::Mark(mark) => {
                let mut marked = sweep::Marked::new(mark.bytes());
                let _ = (0..8).find(|_| marked.clear());
            }
        }
    }

    /// Kills everything and waits until nothing is left. The error is the directory of a group that could not
    /// be removed in time.
    pub(super) fn remove(&self, patience: Duration) -> Result<(), PathBuf> {
        match self {
            Self::Each => Ok(()),
            Self::Common(common) => common.groups.remove(patience),
            Self::Mark(mark) => {
                let deadline = Instant::now() + patience;
                let mut marked = sweep::Marked::new(mark.bytes());
                while !marked.clear() && Instant::now() < deadline {
                    std::thread::sleep(Duration::from_millis(1));
                }
                Ok(())
            }
        }
    }
}
