//! Control groups: where the kernel has our process, a job's memory group (`--enforce`), and a group for each
//! rank, by which its processes are known. A leaf: it needs nothing of bdrun.
//!
//! | question | file |
//! |---|---|
//! | which hierarchies are there, and where are we in them? | `hierarchy.rs` |
//! | how is the memory of a whole job limited? | `memory.rs` |
//! | which processes are a rank's? how are they frozen and killed? | `ranks.rs` |
//! | what becomes of groups whose master was killed? | `stale.rs` |

mod hierarchy;
mod memory;
mod ranks;
mod stale;

#[cfg(test)]
pub(crate) use hierarchy::hierarchies;
pub(crate) use hierarchy::{Hierarchy, Mount, hierarchies_under};
pub(crate) use memory::Entry;
pub use memory::{CgroupUsage, MemoryCgroup};
pub(crate) use ranks::{Kind, RankCgroup, RankGroups, pids};

#[cfg(test)]
pub(crate) use stale::{lock, remove_stale};

use std::io;
use std::path::PathBuf;

/// Kills a process; it may have gone.
fn kill(pid: i32) {
    let _ = nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nix::sys::signal::Signal::SIGKILL);
}

/// A memory cgroup for the ranks (`--enforce`) could not be made.
#[derive(Debug, thiserror::Error)]
pub enum CgroupError {
    /// Neither hierarchy offers a memory controller to us.
    #[error(
        "--enforce: no memory cgroup is available here ({detail}). Run without --enforce, or where the memory \
         controller is mounted (cgroup v1: /sys/fs/cgroup/memory, v2: /sys/fs/cgroup)"
    )]
    Unavailable {
        /// What was looked for and not found.
        detail: String,
    },
    /// The directory could not be made.
    #[error("--enforce: cannot make the cgroup {}: {source}. {}", path.display(), REMEDY)]
    Create {
        /// The directory.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A control file could not be written.
    #[error("--enforce: cannot write {value:?} to {}: {source}. {}", path.display(), REMEDY)]
    Write {
        /// The file.
        path: PathBuf,
        /// What was to be written.
        value: String,
        /// Why.
        source: io::Error,
    },
    /// cgroup v2 gives limits only to groups without processes of their own, and others live in ours.
    #[error(
        "--enforce: the cgroup {} holds {others} other process(es), so it cannot have limited groups below it \
         (cgroup v2: no processes in inner groups). Start bdrun in a group of its own: \
         systemd-run --user --scope -p Delegate=yes bdrun …",
        path.display()
    )]
    NotAlone {
        /// The group the master runs in.
        path: PathBuf,
        /// How many others are in it.
        others: usize,
    },
}

const REMEDY: &str = "It takes root, or a delegated group: systemd-run --user --scope -p Delegate=yes bdrun …; or \
                      run without --enforce";
