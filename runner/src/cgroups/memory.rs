//! The memory cgroup of a job (`--enforce`): a group `bdrun-<pid>` below the master's own, in v1 or v2, whose
//! limit the kernel enforces for all ranks together.
//!
//! v2 allows limits only below a group without processes of its own. If the master is alone in its group, it
//! moves to a leaf `bdrun-<pid>.master` beside the ranks' group and back at the end; otherwise the error says
//! what to do.
//!
//! A group is removed at the end of the job; after a SIGKILL of the master by its keepers; and should those
//! have been killed too, by the next job: the master holds a file lock on the directory as long as it lives,
//! and a start removes groups of this name that nobody has locked and whose process is gone, with what lives
//! in them.

use super::hierarchy::{Hierarchy, hierarchies};
use super::stale::{lock, others_in, remove_stale};
use super::{CgroupError, kill};
use std::ffi::CString;
use std::fs::{self, File};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    V1,
    V2,
}

/// A memory cgroup with a limit.
#[derive(Debug)]
pub struct MemoryCgroup {
    version: Version,
    /// The ranks' group.
    path: PathBuf,
    /// The master's own group.
    own: PathBuf,
    /// Where the master had to go (v2).
    leaf: Option<PathBuf>,
    limit: u64,
    /// Locked as long as the job lives.
    _lock: Option<File>,
}

/// What the kernel has counted for a [`MemoryCgroup`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CgroupUsage {
    /// Highest usage so far in bytes, page cache included. Unknown in v2 before Linux 5.19.
    pub peak: Option<u64>,
    /// Usage now.
    pub current: u64,
    /// Processes killed for exceeding the limit.
    pub oom_kills: u64,
}

/// How a process gets into the group.
pub(crate) enum Entry {
    /// Children of the spawner thread are born where they belong.
    None,
    /// The group's directory, for `clone3`, and its `cgroup.procs`, for the child to write to.
    Directory { directory: OwnedFd, procs: File },
}

impl MemoryCgroup {
    /// Makes the group with a limit in bytes and no swap beyond it.
    pub fn create(limit: u64) -> Result<Self, CgroupError> {
        let unavailable = |detail: String| CgroupError::Unavailable { detail };
        let (cgroups, mounts) = hierarchies().map_err(unavailable)?;
        let (version, own) = memory_group(&cgroups, &mounts).map_err(unavailable)?;
        remove_stale(&own);
        Self::create_below(version, own, limit)
    }

    fn create_below(version: Version, own: PathBuf, limit: u64) -> Result<Self, CgroupError> {
        let path = own.join(format!("bdrun-{}", std::process::id()));
        let leaf = match version {
            Version::V1 => None,
            Version::V2 => enable_memory(&own)?,
        };
        // From here on dropping it undoes what was done.
        let mut group = Self { version, path, own, leaf, limit, _lock: None };
        // A group left by an earlier process of the same number.
        let _ = fs::remove_dir(&group.path);
        fs::create_dir(&group.path)
            .map_err(|source| CgroupError::Create { path: group.path.clone(), source })?;
        group._lock = lock(&group.path);
        let text = limit.to_string();
        match version {
            Version::V1 => {
                write(&group.path.join("memory.limit_in_bytes"), &text)?;
                // Exists only with swap accounting; not less than the limit above. Without it, no swapping at
                // all.
                let with_swap = group.path.join("memory.memsw.limit_in_bytes");
                if with_swap.exists() {
                    write(&with_swap, &text)?;
                } else {
                    write_if_there(&group.path.join("memory.swappiness"), "0")?;
                }
            }
            Version::V2 => {
                write(&group.path.join("memory.max"), &text)?;
                write_if_there(&group.path.join("memory.swap.max"), "0")?;
            }
        }
        Ok(group)
    }

    /// A v2 group that exists, with or without a controller.
    #[cfg(test)]
    pub(crate) fn existing_v2(path: PathBuf) -> Self {
        Self { version: Version::V2, own: path.clone(), path, leaf: None, limit: u64::MAX, _lock: None }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether it is in the one hierarchy of version 2, so that groups below it are under its limit.
    pub(crate) fn is_v2(&self) -> bool {
        self.version == Version::V2
    }

    /// Its limit in bytes.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// What the kernel has counted. Zeros once the group is removed.
    pub fn usage(&self) -> CgroupUsage {
        let number = |name: &str| fs::read_to_string(self.path.join(name)).ok()?.trim().parse().ok();
        let field = |name: &str, key: &str| {
            let text = fs::read_to_string(self.path.join(name)).ok()?;
            text.lines().find_map(|line| line.strip_prefix(key)?.trim().parse().ok())
        };
        match self.version {
            Version::V1 => CgroupUsage {
                peak: number("memory.max_usage_in_bytes"),
                current: number("memory.usage_in_bytes").unwrap_or(0),
                oom_kills: field("memory.oom_control", "oom_kill ").unwrap_or(0),
            },
            Version::V2 => CgroupUsage {
                peak: number("memory.peak"),
                current: number("memory.current").unwrap_or(0),
                oom_kills: field("memory.events", "oom_kill ").unwrap_or(0),
            },
        }
    }

    /// For the keepers: what to remove, in this order.
    pub(crate) fn directories(&self) -> Vec<CString> {
        let paths = [Some(&self.path), self.leaf.as_ref()];
        paths
            .into_iter()
            .flatten()
            .filter_map(|path| CString::new(path.as_os_str().as_bytes()).ok())
            .collect()
    }

    /// Prepares the calling thread to make children in the group. In v1 the thread itself enters it.
    pub(crate) fn entry(&self) -> Result<Entry, CgroupError> {
        if self.version == Version::V1 {
            write(&self.path.join("tasks"), &nix::unistd::gettid().to_string())?;
            return Ok(Entry::None);
        }
        let open = |path: PathBuf, options: &fs::OpenOptions| {
            options.open(&path).map_err(|source| CgroupError::Create { path, source })
        };
        let directory = open(self.path.clone(), File::options().read(true))?.into();
        let procs = open(self.path.join("cgroup.procs"), File::options().write(true))?;
        Ok(Entry::Directory { directory, procs })
    }

    /// Kills every process in the group.
    pub(crate) fn kill_all(&self) {
        if fs::write(self.path.join("cgroup.kill"), "1").is_ok() {
            return;
        }
        // Processes may be born while the list is read.
        for _ in 0..4 {
            let others = others_in(&self.path);
            others.iter().for_each(|&pid| {
                kill(pid);
            });
            if others.is_empty() {
                return;
            }
        }
    }

    /// Removes the group, and moves the master back; tries again while the last processes leave it. The error
    /// is the directory that is left.
    pub(crate) fn remove(&self, patience: Duration) -> Result<(), PathBuf> {
        let deadline = Instant::now() + patience;
        remove_until(&self.path, deadline)?;
        if let Some(leaf) = &self.leaf {
            // Without the controller below it, the master's own group may hold processes again.
            let _ = fs::write(self.own.join("cgroup.subtree_control"), "-memory");
            let _ = fs::write(self.own.join("cgroup.procs"), std::process::id().to_string());
            remove_until(leaf, deadline)?;
        }
        Ok(())
    }
}

impl Drop for MemoryCgroup {
    fn drop(&mut self) {
        if self.path.exists() || self.leaf.as_ref().is_some_and(|leaf| leaf.exists()) {
            let _ = self.remove(Duration::from_millis(100));
        }
    }
}

fn remove_until(path: &Path, deadline: Instant) -> Result<(), PathBuf> {
    loop {
        match fs::remove_dir(path) {
            Ok(()) => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(_) if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(2)),
            Err(_) => return Err(path.to_owned()),
        }
    }
}

/// v2: lets groups below `own` have memory limits. Returns the leaf to which the master had to move for that.
fn enable_memory(own: &Path) -> Result<Option<PathBuf>, CgroupError> {
    let has = |file: &str| {
        let text = fs::read_to_string(own.join(file)).unwrap_or_default();
        text.split_whitespace().any(|controller| controller == "memory")
    };
    if has("cgroup.subtree_control") {
        return Ok(None);
    }
    if !has("cgroup.controllers") {
        return Err(CgroupError::Unavailable {
            detail: format!("{} has no memory controller", own.join("cgroup.controllers").display()),
        });
    }
    let control = own.join("cgroup.subtree_control");
    let enable = || write(&control, "+memory");
    match enable() {
        Ok(()) => return Ok(None),
        Err(CgroupError::Write { source, .. }) if source.raw_os_error() == Some(libc::EBUSY) => {}
        Err(error) => return Err(error),
    }
    let others = others_in(own).len();
    if others > 0 {
        return Err(CgroupError::NotAlone { path: own.to_owned(), others });
    }
    let leaf = own.join(format!("bdrun-{}.master", std::process::id()));
    fs::create_dir(&leaf).map_err(|source| CgroupError::Create { path: leaf.clone(), source })?;
    let moved = write(&leaf.join("cgroup.procs"), &std::process::id().to_string()).and_then(|()| enable());
    if let Err(error) = moved {
        let _ = fs::write(own.join("cgroup.procs"), std::process::id().to_string());
        let _ = fs::remove_dir(&leaf);
        return Err(error);
    }
    Ok(Some(leaf))
}

fn write(path: &Path, value: &str) -> Result<(), CgroupError> {
    fs::write(path, value).map_err(|source| CgroupError::Write {
        path: path.to_owned(),
        value: value.to_owned(),
        source,
    })
}

fn write_if_there(path: &Path, value: &str) -> Result<(), CgroupError> {
    if path.exists() { write(path, value) } else { Ok(()) }
}

/// Where the memory controller has our process, from the texts of [`hierarchies`].
fn memory_group(cgroups: &str, mounts: &str) -> Result<(Version, PathBuf), String> {
    const V1: Hierarchy = Hierarchy::V1("memory");
    if V1.group_in(cgroups).is_some() {
        return Ok((Version::V1, V1.locate(cgroups, mounts)?));
    }
    match Hierarchy::V2.locate(cgroups, mounts) {
        Ok(path) => Ok((Version::V2, path)),
        Err(_) if Hierarchy::V2.group_in(cgroups).is_none() => {
            Err("/proc/self/cgroup names no memory controller".to_owned())
        }
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const V1_MOUNT: &str =
        "40 30 0:35 / /sys/fs/cgroup/memory rw,nosuid shared:17 - cgroup cgroup rw,memory\n";
    const V2_MOUNT: &str = "30 24 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n";

    fn located(cgroups: &str, mounts: &str) -> Result<(Version, PathBuf), String> {
        memory_group(cgroups, mounts)
    }

    #[test]
    fn the_memory_controller_is_found() {
        let v1 = "5:devices:/x\n4:memory:/a/b\n0::/\n";
        assert_eq!(
            located(v1, &format!("{V2_MOUNT}{V1_MOUNT}")),
            Ok((Version::V1, "/sys/fs/cgroup/memory/a/b".into()))
        );
        let v2 = "0::/user.slice/user-1000.slice/x:y.scope\n";
        assert_eq!(
            located(v2, V2_MOUNT),
            Ok((Version::V2, "/sys/fs/cgroup/user.slice/user-1000.slice/x:y.scope".into()))
        );
        assert_eq!(located("0::/\n", V2_MOUNT), Ok((Version::V2, "/sys/fs/cgroup/".into())));
    }

    #[test]
    fn a_containers_part_of_the_hierarchy_is_understood() {
        let mount = "40 30 0:35 /docker/abc /sys/fs/cgroup/memo\\040ry ro - cgroup cgroup rw,cpu,memory\n";
        assert_eq!(
            located("4:cpu,memory:/docker/abc/job\n", mount),
            Ok((Version::V1, "/sys/fs/cgroup/memo ry/job".into()))
        );
        assert_eq!(
            located("4:cpu,memory:/docker/abc\n", mount),
            Ok((Version::V1, "/sys/fs/cgroup/memo ry/".into()))
        );
    }

    #[test]
    fn what_is_missing_is_said() {
        assert_eq!(
            located("4:memory:/\n", V2_MOUNT),
            Err("the v1 memory hierarchy is not mounted".to_owned())
        );
        assert_eq!(located("0::/\n", V1_MOUNT), Err("the cgroup2 hierarchy is not mounted".to_owned()));
        assert!(located("5:devices:/\n", V1_MOUNT).is_err());
    }

    /// The files of a v2 group, in a plain directory.
    #[test]
    fn v2_files_are_written() {
        let own = std::env::temp_dir().join(format!("bdrun-cgroup-{}", std::process::id()));
        fs::create_dir(&own).unwrap();
        fs::write(own.join("cgroup.subtree_control"), "cpu\n").unwrap();
        fs::write(own.join("cgroup.controllers"), "cpu\n").unwrap();
        let error = MemoryCgroup::create_below(Version::V2, own.clone(), 1).unwrap_err();
        assert!(error.to_string().contains("cgroup.controllers has no memory controller"), "{error}");
        fs::write(own.join("cgroup.controllers"), "cpu memory\n").unwrap();
        let group = MemoryCgroup::create_below(Version::V2, own.clone(), 123_456).unwrap();
        assert_eq!(fs::read_to_string(own.join("cgroup.subtree_control")).unwrap(), "+memory");
        assert_eq!(fs::read_to_string(group.path().join("memory.max")).unwrap(), "123456");
        fs::write(group.path().join("memory.peak"), "99\n").unwrap();
        fs::write(group.path().join("memory.events"), "low 0\noom 4\noom_kill 3\n").unwrap();
        assert_eq!(group.usage(), CgroupUsage { peak: Some(99), current: 0, oom_kills: 3 });
        fs::remove_dir_all(&own).unwrap();
    }
}
