//! A memory cap that the kernel enforces: a cgroup, version 1 or 2, around everything a command starts.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{LIMIT, poll, unique};

/// The group; removed in the end.
pub struct Cap {
    path: PathBuf,
    version: u8,
}

impl Cap {
    /// A group with this limit in bytes and without swap; why not, if that is not permitted here.
    pub fn new(limit: u64) -> Result<Self, String> {
        let (version, parent) = parent_group()?;
        let path = parent.join(format!("bdrun-test-{}-{}", std::process::id(), unique()));
        fs::create_dir(&path)
            .map_err(|error| format!("cannot make the cgroup {}: {error}", path.display()))?;
        // From here on dropping it removes the directory.
        let cap = Self { path, version };
        let (file, swap) = match version {
            1 => ("memory.limit_in_bytes", ("memory.memsw.limit_in_bytes", limit)),
            _ => ("memory.max", ("memory.swap.max", 0)),
        };
        fs::write(cap.path.join(file), limit.to_string())
            .map_err(|error| format!("cannot limit {}: {error}", cap.path.join(file).display()))?;
        // Absent where the kernel does not account for swap.
        let _ = fs::write(cap.path.join(swap.0), swap.1.to_string());
        Ok(cap)
    }

    /// Another limit, in bytes, from now on.
    pub fn set(&self, limit: u64) {
        let files: &[&str] = match self.version {
            // The limit with swap is never below the other.
            1 => &["memory.limit_in_bytes", "memory.memsw.limit_in_bytes", "memory.limit_in_bytes"],
            _ => &["memory.max"],
        };
        for file in files {
            // In the one order or the other: which depends on whether it is less or more than before.
            let _ = fs::write(self.path.join(file), limit.to_string());
        }
        let file = self.path.join(files[0]);
        assert_eq!(self.number(files[0]).abs_diff(limit) >> 20, 0, "{}: not {limit}", file.display());
    }

    /// Let a command, and all it starts, run inside.
    pub fn confine<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        let procs =
            OpenOptions::new().write(true).open(self.path.join("cgroup.procs")).expect("open cgroup.procs");
        // SAFETY: the closure only writes a constant to a descriptor that it owns: async-signal-safe, no
        // allocation.
        unsafe { command.pre_exec(move || enter(&procs)) }
    }

    fn number(&self, file: &str) -> u64 {
        let text = fs::read_to_string(self.path.join(file)).unwrap_or_default();
        text.trim().parse().unwrap_or_else(|_| panic!("{file} of {}: '{text}'", self.path.display()))
    }

    /// As they are at one moment.
    fn fields<const N: usize>(&self, file: &str, keys: [&str; N]) -> [u64; N] {
        let text = fs::read_to_string(self.path.join(file)).unwrap_or_default();
        keys.map(|key| {
            let value =
                text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(' ')?.trim().parse().ok());
            value.unwrap_or_else(|| panic!("no {key} in {file} of {}", self.path.display()))
        })
    }

    /// Bytes that everything inside holds now without the page cache of files: memory, shared memory, and
    /// what the kernel keeps for it (page tables, stacks).
    pub fn usage_without_files(&self) -> u64 {
        let (usage, cache, shared) = match self.version {
            1 => ("memory.usage_in_bytes", "total_cache", "total_shmem"),
            _ => ("memory.current", "file", "shmem"),
        };
        let [cache, shared] = self.fields("memory.stat", [cache, shared]);
        // In both versions the page cache includes shared memory; the kernel adds up the one after the other.
        self.number(usage).saturating_sub(cache.saturating_sub(shared))
    }

    /// Bytes of anonymous and shared memory that everything inside holds now.
    pub fn anonymous_and_shared(&self) -> u64 {
        let (anonymous, shared) =
            if self.version == 1 { ("total_rss", "total_shmem") } else { ("anon", "shmem") };
        self.fields("memory.stat", [anonymous, shared]).iter().sum()
    }

    /// Processes the kernel killed because of the limit.
    pub fn oom_kills(&self) -> u64 {
        let file = if self.version == 1 { "memory.oom_control" } else { "memory.events" };
        let [kills] = self.fields(file, ["oom_kill"]);
        kills
    }
}

impl Drop for Cap {
    fn drop(&mut self) {
        // Its last processes may still be on their way out.
        poll(LIMIT, || fs::remove_dir(&self.path).ok());
    }
}

fn enter(mut procs: &File) -> std::io::Result<()> {
    procs.write_all(b"0")
}

/// Where groups can be made, and the version: below our own in version 1; beside our own in version 2, where
/// a group with processes has none below it.
fn parent_group() -> Result<(u8, PathBuf), String> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").map_err(|error| error.to_string())?;
    let groups = fs::read_to_string("/proc/self/cgroup").map_err(|error| error.to_string())?;
    let own = |is_it: &dyn Fn(&str) -> bool| {
        let line = groups.lines().find(|line| line.split(':').nth(1).is_some_and(is_it))?;
        line.splitn(3, ':').nth(2).map(|path| path.trim_start_matches('/').to_owned())
    };
    for line in mounts.lines() {
        let Some((front, back)) = line.split_once(" - ") else { continue };
        let at = Path::new(front.split(' ').nth(4).unwrap_or_default());
        let mut back = back.split(' ');
        let (kind, options) = (back.next().unwrap_or_default(), back.nth(1).unwrap_or_default());
        if kind == "cgroup" && options.split(',').any(|option| option == "memory") {
            let path =
                at.join(own(&|names| names.split(',').any(|name| name == "memory")).unwrap_or_default());
            return Ok((1, if path.is_dir() { path } else { at.to_owned() }));
        }
        let controls = |group: &Path| {
            let text = fs::read_to_string(group.join("cgroup.subtree_control")).unwrap_or_default();
            text.split_whitespace().any(|controller| controller == "memory")
        };
        if kind == "cgroup2" {
            let path = at.join(own(&str::is_empty).unwrap_or_default());
            let parent = path.parent().filter(|parent| parent.starts_with(at)).unwrap_or(at);
            if let Some(group) = [parent, at].into_iter().find(|group| controls(group)) {
                return Ok((2, group.to_owned()));
            }
        }
    }
    Err("no memory cgroup controller that this process may use".into())
}
