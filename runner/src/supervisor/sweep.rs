//! What a keeper does when the master is gone: by bare system calls on buffers of the stack, because it is
//! the fork of a process with several threads, of which any may have held a lock.

use std::ffi::{CStr, CString};
use std::os::fd::RawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// A cgroup that is removed.
pub(super) struct Room {
    path: CString,
    /// The groups below it are of ranks: what lives in them is killed, and they are removed first.
    ranks: bool,
}

impl Room {
    /// One without groups of ours below it.
    pub(super) fn bare(path: CString) -> Self {
        Self { path, ranks: false }
    }

    /// The one that holds the ranks' groups. An existing directory, so its path has no zero byte.
    pub(super) fn of_ranks(path: &Path) -> Self {
        Self { path: CString::new(path.as_os_str().as_bytes()).unwrap_or_default(), ranks: true }
    }

    /// Kills what lives below it and removes it. Whether it is gone now.
    pub(super) fn clear(&self) -> bool {
        if self.ranks {
            // SAFETY: the path is a valid C string of the copied address space; the result is used and closed
            // here only.
            unsafe {
                let directory = libc::open(self.path.as_ptr(), DIRECTORY);
                if directory >= 0 {
                    each_entry(directory, &mut |kind, name| clear_group(directory, kind, name, DEEPEST));
                    libc::close(directory);
                }
            }
        }
        // SAFETY: removes an empty directory; errno is this thread's.
        unsafe { libc::rmdir(self.path.as_ptr()) == 0 || *libc::__errno_location() == libc::ENOENT }
    }
}

const DIRECTORY: libc::c_int = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC;
/// Groups within groups that are gone into. Deeper ones die too in version 2.
const DEEPEST: u32 = 32;

/// Calls `each` with the kind and the name of all that is in a directory, but for what begins with a dot.
///
/// # Safety
/// `directory` must be open.
unsafe fn each_entry(directory: RawFd, each: &mut dyn FnMut(u8, &CStr)) {
    // Aligned as the kernel's records are.
    let mut buffer = [0_u64; 128];
    loop {
        // SAFETY: a system call on a buffer of which its own size is told; the kernel fills it with whole
        // records, whose names end with a zero.
        unsafe {
            let start = buffer.as_mut_ptr().cast::<u8>();
            let got = libc::syscall(libc::SYS_getdents64, directory, start, size_of_val(&buffer));
            let Some(end) = usize::try_from(got).ok().filter(|&end| end > 0) else { return };
            let mut at = 0;
            while at < end {
                // A record: number (8), offset (8), length (2), kind (1), name.
                let record = start.add(at);
                let length = usize::from(record.add(16).cast::<u16>().read_unaligned());
                let name = CStr::from_ptr(record.add(19).cast());
                if !name.to_bytes().starts_with(b".") {
                    each(record.add(18).read(), name);
                }
                at += length.max(1);
            }
        }
    }
}

/// Kills whatever lives in a group and in those below it (a job within the job, say), and removes them if
/// they are empty.
fn clear_group(parent: RawFd, kind: u8, name: &CStr, depth: u32) {
    if kind != libc::DT_DIR {
        return;
    }
    // SAFETY: system calls on valid strings and on a descriptor that is open until the end.
    unsafe {
        let group = libc::openat(parent, name.as_ptr(), DIRECTORY);
        if group >= 0 {
            if !put(group, c"cgroup.kill", c"1") {
                // So that nobody makes another process while the list is read.
                put(group, c"freezer.state", c"FROZEN");
                kill_listed(group);
                // Only now: nothing of it runs again.
                put(group, c"freezer.state", c"THAWED");
                put(group, c"cgroup.freeze", c"0");
            }
            if let Some(depth) = depth.checked_sub(1) {
                each_entry(group, &mut |kind, name| clear_group(group, kind, name, depth));
            }
            libc::close(group);
        }
        libc::unlinkat(parent, name.as_ptr(), libc::AT_REMOVEDIR);
    }
}

/// Writes a word into a file of a group, if there is such a file.
fn put(group: RawFd, file: &CStr, word: &CStr) -> bool {
    // SAFETY: system calls on valid strings.
    unsafe {
        let file = libc::openat(group, file.as_ptr(), libc::O_WRONLY | libc::O_CLOEXEC);
        if file < 0 {
            return false;
        }
        let length = word.count_bytes();
        let written = libc::write(file, word.as_ptr().cast(), length);
        libc::close(file);
        usize::try_from(written) == Ok(length)
    }
}

/// Kills the processes of a group, as its list names them.
#[inline(never)]
fn kill_listed(group: RawFd) {
    let mut text = [0_u8; 4096];
    // SAFETY: system calls on a valid string and on a buffer of which its own size is told; the numbers are
    // positive.
    unsafe {
        let list = libc::openat(group, c"cgroup.procs".as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC);
        if list < 0 {
            return;
        }
        let mut pid: libc::pid_t = 0;
        loop {
            let got = libc::read(list, text.as_mut_ptr().cast(), text.len());
            let Some(got) = usize::try_from(got).ok().filter(|&got| got > 0) else { break };
            for &byte in text.iter().take(got) {
                if byte.is_ascii_digit() {
                    pid = pid.saturating_mul(10).saturating_add(libc::pid_t::from(byte - b'0'));
                } else {
                    if pid > 1 {
                        libc::kill(pid, libc::SIGKILL);
                    }
                    pid = 0;
                }
            }
        }
        libc::close(list);
    }
}

/// So many looks in a row find nobody where nobody is left: of a process that is just executing a program no
/// environment is seen.
const SURE: u32 = 3;

/// Looks for all that have a mark, one after another, until it is certain that nobody is left.
pub(super) struct Marked<'a> {
    mark: &'a [u8],
    /// How many in a row have found nobody.
    without: u32,
}

impl<'a> Marked<'a> {
    pub(super) fn new(mark: &'a [u8]) -> Self {
        Self { mark, without: 0 }
    }

    /// Kills all that this look finds. Whether nobody is left.
    pub(super) fn clear(&mut self) -> bool {
        self.without = if kill_marked(self.mark) == 0 { self.without + 1 } else { 0 };
        self.without >= SURE
    }
}

/// Kills every process that has this in its environment, and returns how many those were.
fn kill_marked(mark: &[u8]) -> usize {
    let mut killed = 0;
    // SAFETY: system calls on valid strings, and on a descriptor that is open meanwhile.
    unsafe {
        let all = libc::open(c"/proc".as_ptr(), DIRECTORY);
        if all < 0 {
            return 0;
        }
        each_entry(all, &mut |_, name| {
            if name.to_bytes().iter().all(u8::is_ascii_digit) {
                // It stands for the process: for nobody else who gets the number later.
                let process = libc::openat(all, name.as_ptr(), DIRECTORY);
                if process >= 0 {
                    killed += usize::from(has_mark(process, mark) && kill_process(process, name));
                    libc::close(process);
                }
            }
        });
        libc::close(all);
    }
    killed
}

/// By its directory in `/proc`; by its number before Linux 5.1.
fn kill_process(process: RawFd, name: &CStr) -> bool {
    // SAFETY: plain system calls; errno is this thread's; the number is of a process, never 0 or negative.
    unsafe {
        if libc::syscall(libc::SYS_pidfd_send_signal, process, libc::SIGKILL, 0_usize, 0) == 0 {
            return true;
        }
        if *libc::__errno_location() != libc::ENOSYS {
            return false;
        }
        let digits = name.to_bytes().iter();
        let pid =
            digits.fold(0_i32, |pid, byte| pid.saturating_mul(10).saturating_add(i32::from(byte - b'0')));
        pid > 1 && libc::kill(pid, libc::SIGKILL) == 0
    }
}

/// Whether a process, by its directory in `/proc`, has this in its environment. One that has ended has none.
#[inline(never)]
fn has_mark(process: RawFd, mark: &[u8]) -> bool {
    let mut text = [0_u8; 4096];
    let mut kept = 0;
    // SAFETY: system calls on a valid string and on the part of a buffer of which its own size is told.
    unsafe {
        let environment = libc::openat(process, c"environ".as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC);
        if environment < 0 {
            return false;
        }
        let found = loop {
            let room = text.get_mut(kept..).unwrap_or_default();
            let got = libc::read(environment, room.as_mut_ptr().cast(), room.len());
            let Some(got) = usize::try_from(got).ok().filter(|&got| got > 0) else { break false };
            let end = kept + got;
            if text.get(..end).is_some_and(|text| text.windows(mark.len()).any(|part| part == mark)) {
                break true;
            }
            // It may lie across the border.
            let keep = end.min(mark.len() - 1);
            text.copy_within(end - keep..end, 0);
            kept = keep;
        };
        libc::close(environment);
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt;
    use std::process::{Child, Command};

    fn sleeper(environment: &[(&str, &str)]) -> Child {
        let mut command = Command::new("sleep");
        command.arg("1000").env_clear().envs(environment.iter().copied());
        command.spawn().expect("sleep")
    }

    #[test]
    fn marked_processes_are_killed_and_no_others() {
        let mark = format!("mark-{};", std::process::id());
        // Across every border between two reads.
        let many: Vec<String> =
            [0, 4080, 4090, 4095, 12_280].iter().map(|&length| "x".repeat(length)).collect();
        let value = format!("outer;{mark}inner;");
        let marked = many.iter().map(|text| sleeper(&[("A", text), ("JOB", &value)]));
        let marked: Vec<Child> = marked.collect();
        let almost = mark.strip_suffix(';').expect("its end");
        let mut others = [sleeper(&[("A", &many[3]), ("JOB", almost)]), sleeper(&[])];
        // As many looks as it takes for all of them to be what they are, and to end.
        for mut child in marked {
            let status = loop {
                kill_marked(mark.as_bytes());
                if let Some(status) = child.try_wait().expect("its state") {
                    break status;
                }
            };
            assert_eq!(status.signal(), Some(libc::SIGKILL));
        }
        assert_eq!(kill_marked(mark.as_bytes()), 0);
        for child in &mut others {
            assert!(child.try_wait().expect("its state").is_none());
            child.kill().expect("kill");
            child.wait().expect("its end");
        }
    }
}
