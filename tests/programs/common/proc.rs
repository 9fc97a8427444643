//! Looking at processes through `/proc`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use nix::fcntl::{FcntlArg, fcntl};

/// The environment variable by which the processes of a job are found, whoever their parent is.
pub const MARK: &str = "BDRUN_TEST_MARK";

/// Every process's number.
fn all() -> impl Iterator<Item = i32> {
    let entries = std::fs::read_dir("/proc").expect("/proc").flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// The environment of a process; empty if it is gone, a zombie, or another user's.
fn environment(pid: i32) -> Vec<String> {
    let bytes = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    bytes.split(|&byte| byte == 0).map(|line| String::from_utf8_lossy(line).into_owned()).collect()
}

/// Processes that may be of the job whose master is, or was, this child of ours: not those below another
/// child of ours. Those are of other tests, and to read the memory of one in a cgroup without room takes
/// half a minute.
fn candidates(master: i32) -> impl Iterator<Item = i32> {
    let stat = |pid: i32| std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // Behind the name, which may hold anything: state is field 3, the parent is 4.
    let parent = move |pid: i32| -> Option<i32> {
        stat(pid).rsplit_once(") ")?.1.split_ascii_whitespace().nth(1)?.parse().ok()
    };
    let parents: BTreeMap<i32, i32> = all().filter_map(|pid| Some((pid, parent(pid)?))).collect();
    let (own, pids) = (std::process::id() as i32, parents.keys().copied().collect::<Vec<_>>());
    let of_others = move |pid: i32| {
        let line = std::iter::successors(Some(pid), |pid| parents.get(pid).copied());
        line.take_while(|&pid| pid != master).any(|pid| parents.get(&pid) == Some(&own))
    };
    pids.into_iter().filter(move |&pid| pid != own && !of_others(pid))
}

/// Processes with this mark, and their names.
pub fn marked(master: i32, mark: &str) -> Vec<(i32, String)> {
    let line = format!("{MARK}={mark}");
    let found = candidates(master).filter(|&pid| environment(pid).contains(&line));
    found
        .map(|pid| {
            (pid, std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default().trim().to_owned())
        })
        .collect()
}

/// Ranks of the job with this mark, and their processes.
pub fn ranks(master: i32, mark: &str) -> Vec<(u32, i32)> {
    let line = format!("{MARK}={mark}");
    let mut found: Vec<(u32, i32)> = candidates(master)
        .filter_map(|pid| {
            let lines = environment(pid);
            let rank = lines.iter().find_map(|l| l.strip_prefix("BDRUN_RANK="))?.parse().ok()?;
            lines.contains(&line).then_some((rank, pid))
        })
        .collect();
    found.sort_unstable();
    found
}

/// What every thread of a process and of its descendants does now, a line each, with what the kernel says
/// where it waits.
pub fn tree(pid: i32) -> String {
    let mut text = String::new();
    for entry in std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten() {
        let read = |name: &str| {
            let text = std::fs::read_to_string(entry.path().join(name)).unwrap_or_default();
            text.split_ascii_whitespace().collect::<Vec<_>>().join(" ")
        };
        let state = read("stat").rsplit_once(") ").map_or(String::new(), |(_, rest)| rest[..1].to_owned());
        let (name, call, stack) = (read("comm"), read("syscall"), read("stack"));
        text += &format!("{pid} {:?} {name} {state} {call} {stack}\n", entry.file_name());
        for child in read("children").split(' ').filter_map(|child| child.parse().ok()) {
            text += &tree(child);
        }
    }
    text
}

/// State of a process as in `ps`, `?` if it is gone.
pub fn state(pid: i32) -> char {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    text.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next()).unwrap_or('?')
}

/// Send a signal.
pub fn kill(pid: i32, signal: i32) {
    // SAFETY: no memory is involved. Processes are ours: just found by their mark, or our own child.
    unsafe { libc::kill(pid, signal) };
}

/// Open descriptors of a process, by what they refer to.
fn descriptors(pid: i32) -> Vec<(PathBuf, PathBuf)> {
    let entries = std::fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    entries.filter_map(|entry| Some((entry.path(), std::fs::read_link(entry.path()).ok()?))).collect()
}

/// How many descriptors a process has open.
pub fn open_files(pid: i32) -> u64 {
    std::fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, |entries| entries.count() as u64)
}

/// How many it may have: soft and hard limit.
pub fn limit_of_open_files(pid: i32) -> [u64; 2] {
    let text = std::fs::read_to_string(format!("/proc/{pid}/limits")).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("Max open files")).unwrap_or_default();
    let mut numbers = line.split_ascii_whitespace().map(|number| number.parse().unwrap_or(0));
    [(); 2].map(|()| numbers.next().unwrap_or(0))
}

/// The lock that somebody has on a file, as start and length.
pub fn lock_of(file: &File) -> Option<[i64; 2]> {
    let mut lock = whole(libc::F_WRLCK, [0, 0]);
    fcntl(file, FcntlArg::F_OFD_GETLK(&mut lock)).expect("a file that can be locked");
    (i32::from(lock.l_type) != libc::F_UNLCK).then_some([lock.l_start, lock.l_len])
}

/// Takes a lock on a file, if nobody has one that is in its way.
pub fn lock(file: &File, start_and_len: [i64; 2]) -> Option<()> {
    fcntl(file, FcntlArg::F_OFD_SETLK(&whole(libc::F_WRLCK, start_and_len))).ok().map(drop)
}

fn whole(kind: i32, [start, len]: [i64; 2]) -> libc::flock {
    libc::flock {
        l_type: kind as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: start,
        l_len: len,
        l_pid: 0,
    }
}

/// Files that anybody has open below a directory, deleted ones included.
pub fn open_below(directory: &Path) -> Vec<(i32, PathBuf)> {
    all()
        .flat_map(|pid| descriptors(pid).into_iter().map(move |(_, file)| (pid, file)))
        .filter(|(_, file)| file.starts_with(directory))
        .collect()
}

/// The job's shared memory: memory files (by inode) that a process has open.
pub fn memory_files(pid: i32) -> BTreeSet<u64> {
    descriptors(pid)
        .into_iter()
        .filter(|(_, file)| file.to_string_lossy().starts_with("/memfd:bdrun-"))
        .filter_map(|(link, _)| Some(std::fs::metadata(link).ok()?.ino()))
        .collect()
}

/// Processes that have one of these memory files open or mapped.
pub fn holders(files: &BTreeSet<u64>) -> Vec<i32> {
    let maps_one = |pid: i32| {
        let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
        maps.lines().filter(|line| line.contains("/memfd:bdrun-")).any(|line| {
            line.split_ascii_whitespace()
                .nth(4)
                .and_then(|inode| inode.parse().ok())
                .is_some_and(|i| files.contains(&i))
        })
    };
    all().filter(|&pid| !memory_files(pid).is_disjoint(files) || maps_one(pid)).collect()
}

/// Names in `/dev/shm` that could be ours.
pub fn named_shared_memory() -> Vec<PathBuf> {
    let entries = std::fs::read_dir("/dev/shm").into_iter().flatten().flatten().map(|entry| entry.path());
    entries
        .filter(|path| {
            path.to_string_lossy().contains("bdrun") || path.to_string_lossy().contains("sbmalloc")
        })
        .collect()
}

/// Processor time of a process so far, in clock ticks (10 ms); 0 if it is gone.
pub fn ticks(pid: i32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // Behind the name, which may hold anything: state is field 3, utime and stime are 14 and 15.
    let behind = text.rsplit_once(") ").map_or("", |(_, rest)| rest);
    behind.split_ascii_whitespace().skip(11).take(2).filter_map(|t| t.parse::<u64>().ok()).sum()
}

/// Anonymous memory of a process in RAM, bytes.
pub fn anonymous_bytes(pid: i32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    line.and_then(|line| line.split_ascii_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0) * 1024
}
