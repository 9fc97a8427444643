//! Files that one bdrun at a time writes: a lock (`flock`) on each, taken before anything in it is changed.
//!
//! It belongs to the open file, not to a process: a rank that is given the file has it too, and it is there
//! until all that have the file open have ended. Where the file system has no locks (ENOLCK, EOPNOTSUPP)
//! nobody is refused. On NFS the server keeps them (Linux turns them into locks of byte ranges), unless it is
//! mounted with `nolock` or `local_lock`: then bdruns of two machines do not see each other.
//!
//! Who has a lock says `/proc/locks`, of processes of this machine that can be seen from here.

use std::collections::HashMap;
use std::fs::{File, Metadata, TryLockError};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// So long whoever cannot be seen may take to end.
const ENDING: Duration = Duration::from_secs(2);
/// It is looked so often whether it has.
const AGAIN: Duration = Duration::from_millis(10);

/// Somebody else has the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InUse {
    /// The process that took the lock, if it can be seen from here.
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

/// Takes the file for this process, as long as it is open. What this process has already may be had again: a
/// rank is run anew while what is left of its last try ends.
///
/// # Errors
/// Somebody else has it.
pub fn take(file: &File) -> Result<(), InUse> {
    // Locks of devices and pipes would be waited for by whoever else they serve.
    let Ok(metadata) = file.metadata() else { return Ok(()) };
    if !metadata.is_file() || !matches!(file.try_lock(), Err(TryLockError::WouldBlock)) {
        return Ok(());
    }
    let begin = Instant::now();
    loop {
        match Locks::read().holder_of(&metadata) {
            Some(pid) if pid == own() => return Ok(()),
            // What a bdrun has left that was killed is killed too, and may be at it.
            None if begin.elapsed() < ENDING => std::thread::sleep(AGAIN),
            pid => return Err(InUse { pid }),
        }
        if file.try_lock().is_ok() {
            return Ok(());
        }
    }
}

/// The first of these files that another process has.
#[must_use]
pub fn first(paths: impl Iterator<Item = PathBuf>) -> Option<(PathBuf, InUse)> {
    let locks = Locks::read();
    if locks.0.is_empty() {
        return None;
    }
    paths.filter_map(|path| locks.of(&path).map(|in_use| (path, in_use))).next()
}

fn own() -> i32 {
    std::process::id().cast_signed()
}

/// Who has locks on whole files, by the numbers of the files: on which device, and which process.
struct Locks(HashMap<u64, Vec<(Device, i32)>>);

/// Its two numbers.
type Device = (u64, u64);

impl Locks {
    fn read() -> Self {
        Self::parse(&std::fs::read_to_string("/proc/locks").unwrap_or_default())
    }

    /// Lines like `1: FLOCK  ADVISORY  WRITE 4711 08:01:1234 0 EOF`. Those who wait for one have `->` behind
    /// the number.
    fn parse(text: &str) -> Self {
        let mut locks = HashMap::<u64, Vec<_>>::new();
        for line in text.lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            let [_, "FLOCK", _, _, pid, file, ..] = words[..] else { continue };
            let Ok(pid) = pid.parse() else { continue };
            let [major, minor, number] = file.split(':').collect::<Vec<_>>()[..] else { continue };
            let hexadecimal = |text| u64::from_str_radix(text, 16);
            if let (Ok(major), Ok(minor), Ok(number)) =
                (hexadecimal(major), hexadecimal(minor), number.parse())
            {
                locks.entry(number).or_default().push(((major, minor), pid));
            }
        }
        Self(locks)
    }

    /// Who has this file, if it is locked. Where several devices are shown as one (overlayfs, btrfs) `stat`
    /// tells another than the kernel's list: then the number of the file has to do.
    fn holder(&self, number: u64, device: Device) -> Option<i32> {
        let holders = self.0.get(&number)?;
        let here = holders.iter().find(|(other, _)| *other == device);
        here.or_else(|| holders.first()).map(|&(_, pid)| pid)
    }

    fn holder_of(&self, metadata: &Metadata) -> Option<i32> {
        let device = metadata.dev();
        self.holder(metadata.ino(), (libc::major(device).into(), libc::minor(device).into()))
    }

    /// Only a file that may be locked, by its number, is opened to see: to try a lock is to have it for a
    /// moment, in which its writer would be refused.
    fn of(&self, path: &Path) -> Option<InUse> {
        let pid = self.holder_of(&path.metadata().ok().filter(Metadata::is_file)?)?;
        let file = File::open(path).ok()?;
        let locked = pid != own() && matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock));
        locked.then_some(InUse { pid: Some(pid) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_list_is_understood() {
        let text = "1: POSIX  ADVISORY  WRITE 11 08:01:77 0 EOF\n2: FLOCK  ADVISORY  WRITE 4711 00:2a:78 0 EOF\n\
                    2: -> FLOCK  ADVISORY  WRITE 4712 00:2a:78 0 EOF\n3: OFDLCK ADVISORY  READ  -1 00:01:79 0 EOF\n\
                    4: FLOCK  ADVISORY  READ  4713 08:01:78 0 EOF\nwhat";
        let locks = Locks::parse(text);
        assert_eq!(locks.0.len(), 1);
        assert_eq!(locks.holder(78, (0, 0x2a)), Some(4711));
        assert_eq!(locks.holder(78, (8, 1)), Some(4713), "not that of another device");
        assert_eq!(locks.holder(78, (9, 9)), Some(4711), "for want of better");
        assert_eq!(locks.holder(77, (8, 1)), None, "that of a part of a file");
    }

    #[test]
    fn what_we_have_we_may_have_again() {
        let path = std::env::temp_dir().join(format!("bdrun-in-use-{}", std::process::id()));
        let open = || File::options().create(true).append(true).open(&path).unwrap();
        let (first, again) = (open(), open());
        assert_eq!(take(&first), Ok(()));
        assert_eq!(take(&again), Ok(()));
        assert_eq!(super::first(std::iter::once(path.clone())), None);
        std::fs::remove_file(&path).unwrap();
    }
}
