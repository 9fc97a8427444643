//! What `/proc` tells of processes that may end at any moment.

use crate::sys::Errno;
use std::fs;
use std::io::{self, BufRead, BufReader};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};

impl From<&io::Error> for Errno {
    fn from(e: &io::Error) -> Self {
        Self(e.raw_os_error().unwrap_or(libc::EIO))
    }
}

/// Whether the error only says that the process is not there any more.
pub(super) fn is_gone(e: &io::Error) -> bool {
    matches!(e.raw_os_error(), Some(libc::ENOENT | libc::ESRCH))
}

/// Whether there is such a thread.
pub(super) fn is_there(tid: u32) -> bool {
    fs::metadata(format!("/proc/{tid}")).is_ok()
}

/// The threads of a process.
pub(super) fn threads(pid: i32) -> io::Result<Vec<i32>> {
    let entries = fs::read_dir(format!("/proc/{pid}/task"))?;
    Ok(entries.flatten().filter_map(|e| e.file_name().to_str()?.parse().ok()).collect())
}

/// The first thread of a process, or another if that has ended (`pthread_exit` in `main`): `/proc` then tells
/// nothing of its memory by its own number. None if all have.
pub(super) fn living_thread(pid: i32) -> io::Result<Option<i32>> {
    let lives = |tid: i32| match Stat::of(tid) {
        Ok(stat) => Ok(!stat.is_dead()),
        Err(error) if is_gone(&error) => Ok(false),
        Err(error) => Err(error),
    };
    if lives(pid)? {
        return Ok(Some(pid));
    }
    let mut before = vec![];
    loop {
        let now = match threads(pid) {
            Err(error) if is_gone(&error) => return Ok(None),
            now => now?,
        };
        for &tid in &now {
            if lives(tid)? {
                return Ok(Some(tid));
            }
        }
        // The last may have made another before it ended.
        if now == before {
            return Ok(None);
        }
        before = now;
    }
}

/// Whether all threads of a process have ended.
pub(super) fn is_over(pid: i32) -> bool {
    matches!(living_thread(pid), Ok(None))
}

/// What matters of `/proc/PID/status`.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct Status {
    pub tgid: i32,
    pub tracer: i32,
    pub locked: u64,
    pub pinned: u64,
    pub filters: u64,
    /// Only read, write, exit and sigreturn are let through (`SECCOMP_MODE_STRICT`).
    pub strict: bool,
    /// Bytes of private memory in RAM.
    pub anonymous: u64,
}

impl Status {
    pub fn of(pid: i32) -> io::Result<Self> {
        fs::read_to_string(format!("/proc/{pid}/status")).map(|text| Self::parse(&text))
    }

    fn parse(text: &str) -> Self {
        let mut status = Self::default();
        for line in text.lines() {
            let Some((key, value)) = line.split_once(':') else { continue };
            let word = value.split_whitespace().next().unwrap_or_default();
            let number = word.parse::<u64>().unwrap_or(0);
            match key {
                "Tgid" => status.tgid = number as i32,
                "TracerPid" => status.tracer = number as i32,
                "VmLck" => status.locked = number << 10,
                "VmPin" => status.pinned = number << 10,
                "Seccomp_filters" => status.filters = number,
                "Seccomp" => status.strict = number == 1,
                "RssAnon" => status.anonymous = number << 10,
                _ => {}
            }
        }
        status
    }
}

/// What matters of `/proc/TID/stat`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stat {
    pub state: u8,
    /// The kernel's own worker on behalf of the process (io_uring): runs nothing of the program.
    pub is_worker: bool,
}

impl Stat {
    pub fn of(tid: i32) -> io::Result<Self> {
        let text = fs::read(format!("/proc/{tid}/stat"))?;
        Self::parse(&text).ok_or_else(|| io::Error::from_raw_os_error(libc::EIO))
    }

    fn parse(text: &[u8]) -> Option<Self> {
        // The name may hold anything, also brackets.
        let rest = &text[text.iter().rposition(|&b| b == b')')? + 1..];
        let mut fields = std::str::from_utf8(rest).ok()?.split_whitespace();
        let state = fields.next()?.bytes().next()?;
        let flags: u64 = fields.nth(5)?.parse().ok()?;
        const PF_IO_WORKER: u64 = 0x10;
        const PF_KTHREAD: u64 = 0x20_0000;
        const PF_USER_WORKER: u64 = 0x4000;
        Some(Self { state, is_worker: flags & (PF_IO_WORKER | PF_KTHREAD | PF_USER_WORKER) != 0 })
    }

    /// Dead, whether or not anybody has taken note.
    pub fn is_dead(&self) -> bool {
        matches!(self.state, b'Z' | b'X' | b'x')
    }
}

/// A mapping of a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Vma {
    pub from: u64,
    pub to: u64,
    pub readable: bool,
    pub writable: bool,
    pub executable: bool,
    private: bool,
    /// Device, as the kernel writes it, and inode of what is mapped.
    file: Option<(u32, u32, u64)>,
    /// It is a private mapping of `/dev/zero`.
    zeros: bool,
    pub name: String,
    /// Bytes of its private pages in RAM.
    pub anonymous: u64,
    /// By its flags its pages must stay where they are.
    fixed: bool,
    /// Its missing pages are served by userfaultfd.
    pub watched: bool,
    /// Only writes are.
    pub only_writes: bool,
    /// A child has zeros there (`MADV_WIPEONFORK`).
    pub wiped: bool,
    /// Of mappings of `/dev/zero`: what else it is, as the kernel writes it.
    flags: String,
}

/// How a mapping is made again as an anonymous one that is like it in all else.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Remake {
    /// For `mmap`.
    pub protection: i32,
    pub flags: i32,
    /// For `madvise`.
    pub advice: Vec<i32>,
}

impl Vma {
    /// A line of `maps`, or the first of an entry of `smaps`.
    fn parse(line: &str) -> Option<Self> {
        let mut rest = line.splitn(6, ' ');
        let (from, to) = rest.next()?.split_once('-')?;
        let permissions = rest.next()?.as_bytes();
        let (_, device) = (rest.next()?, rest.next()?);
        let inode = rest.next()?.trim().parse().ok().filter(|inode| *inode != 0);
        let (major, minor) = device.split_once(':')?;
        let major = u32::from_str_radix(major, 16).ok()?;
        let minor = u32::from_str_radix(minor, 16).ok()?;
        let name = rest.next().unwrap_or_default().trim().to_owned();
        let has = |i: usize, c: u8| permissions.get(i) == Some(&c);
        Some(Self {
            from: u64::from_str_radix(from, 16).ok()?,
            to: u64::from_str_radix(to, 16).ok()?,
            readable: has(0, b'r'),
            writable: has(1, b'w'),
            executable: has(2, b'x'),
            private: has(3, b'p'),
            file: inode.map(|inode| (major, minor, inode)),
            zeros: false,
            name,
            anonymous: 0,
            fixed: false,
            watched: false,
            only_writes: false,
            wiped: false,
            flags: String::new(),
        })
    }

    /// Whether calls that heed protection cannot both read and write it.
    pub fn is_forced(&self) -> bool {
        !self.readable || !self.writable
    }

    /// Whether its pages may be dropped and put back: nobody's but the process's own, and of nothing but
    /// zeros at first. `writes`: that somebody sees which are written to is no reason.
    pub fn is_pageable(&self, writes: bool) -> bool {
        self.is_of_zeros() && (!self.watched || (writes && self.only_writes))
    }

    /// The same, whoever serves its missing pages, and they can be served. In a mapping of `/dev/zero` the
    /// kernel places none: it takes that for a file, of which there is nothing.
    pub fn is_own(&self) -> bool {
        self.is_of_zeros() && !self.zeros
    }

    /// What a process has of its own here can leave in parts: its missing pages can be served, unless
    /// something else does. Not of the main stack, which grows; nor where a child has zeros, as it would have
    /// to be told of what is out.
    pub fn can_leave(&self) -> bool {
        self.is_own() && !self.wiped && !self.is_forced() && self.name != "[stack]"
    }

    pub fn is_private(&self) -> bool {
        self.private
    }

    fn is_of_zeros(&self) -> bool {
        let kernels =
            matches!(&*self.name, "[vdso]" | "[vvar]" | "[vvar_vclock]" | "[vsyscall]" | "[uprobes]");
        let mapped = self.name.starts_with('/') || self.name.starts_with("anon_inode:");
        self.private && self.file.is_none() && !self.fixed && !kernels && !mapped
    }

    /// How a private mapping of `/dev/zero`, with memory of its own, becomes an anonymous one; `None` for all
    /// others, and if something of it could not be made again.
    pub fn remake(&self) -> Option<Remake> {
        let own = self.zeros && self.is_pageable(false) && self.anonymous > 0;
        if !own || !self.readable || !self.writable {
            return None;
        }
        let mut remake = Remake {
            protection: libc::PROT_READ | libc::PROT_WRITE,
            flags: libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED,
            advice: vec![],
        };
        for flag in self.flags.split_whitespace() {
            match flag {
                // Readable, writable, what may become so, counted, and whether what is written is told (soft
                // dirty).
                "rd" | "wr" | "mr" | "mw" | "me" | "ac" | "sd" => {}
                "ex" => remake.protection |= libc::PROT_EXEC,
                "nr" => remake.flags |= libc::MAP_NORESERVE,
                "hg" => remake.advice.push(libc::MADV_HUGEPAGE),
                "nh" => remake.advice.push(libc::MADV_NOHUGEPAGE),
                "dc" => remake.advice.push(libc::MADV_DONTFORK),
                "dd" => remake.advice.push(libc::MADV_DONTDUMP),
                "sr" => remake.advice.push(libc::MADV_SEQUENTIAL),
                "rr" => remake.advice.push(libc::MADV_RANDOM),
                _ => return None,
            }
        }
        Some(remake)
    }

    /// Whether it is a private mapping of `/dev/zero`.
    pub fn is_of_zero_device(&self) -> bool {
        self.zeros
    }

    /// What a process has of its own here cannot leave in parts: it is locked or sealed, or was written to a
    /// private mapping of a file or of `/dev/zero`. Of files it stays in any case: dropped, it would be what
    /// the file is by then, and could not be put back behind an end that has come nearer.
    pub fn cannot_leave(&self) -> bool {
        self.private && (self.file.is_some() || self.zeros || self.fixed)
    }

    /// A private mapping of `/dev/zero` is to the kernel what any anonymous one is, but for its name. `zero`
    /// tells the device's file.
    fn make_anonymous(&mut self, zero: &mut impl FnMut() -> Option<(u32, u32, u64)>) {
        if self.private && self.name == ZERO && self.file.is_some() && self.file == zero() {
            self.file = None;
            self.zeros = true;
            self.name.clear();
        }
    }

    fn attribute(&mut self, line: &str) {
        let Some((key, value)) = line.split_once(':') else { return };
        match key {
            "Anonymous" => {
                let kib = value.split_whitespace().next().and_then(|n| n.parse::<u64>().ok());
                self.anonymous = kib.unwrap_or(0) << 10;
            }
            // Locked; huge pages of hugetlbfs; of devices; mixed; droppable; a shadow stack; sealed.
            "VmFlags" => {
                let has = |flags: &[&str]| value.split_whitespace().any(|flag| flags.contains(&flag));
                self.fixed = has(&["lo", "ht", "pf", "io", "mm", "dp", "ss", "sl"]);
                self.watched = has(&["um", "uw", "ui"]);
                self.only_writes = !has(&["um", "ui"]);
                self.wiped = has(&["wf"]);
                if self.name == ZERO {
                    self.flags.push_str(value);
                }
            }
            // No flag is called so.
            "ProtectionKey" if value.trim() != "0" => self.flags.push_str(" key"),
            _ => {}
        }
    }
}

const ZERO: &str = "/dev/zero";

/// Which file the device of zeros is in the view of a process: what only bears its name is not it.
fn zero_device(tid: i32) -> Option<(u32, u32, u64)> {
    let there = fs::metadata(format!("/proc/{tid}/root{ZERO}")).ok()?;
    let is_zero = there.file_type().is_char_device() && there.rdev() == libc::makedev(1, 5);
    is_zero.then(|| (libc::major(there.dev()), libc::minor(there.dev()), there.ino()))
}

/// Makes private mappings of `/dev/zero` of a process anonymous ones.
fn with_zeros(tid: i32, f: &mut dyn FnMut(Vma)) -> impl FnMut(Vma) {
    let mut known = None;
    move |mut vma| {
        vma.make_anonymous(&mut || *known.get_or_insert_with(|| zero_device(tid)));
        f(vma);
    }
}

/// Calls `f` with each mapping, with its flags. Goes through the page tables: milliseconds per GiB.
pub(super) fn each_vma(tid: i32, f: &mut dyn FnMut(Vma)) -> io::Result<()> {
    let file = fs::File::open(format!("/proc/{tid}/smaps"))?;
    read_vmas(BufReader::with_capacity(64 << 10, file), &mut with_zeros(tid, f))
}

/// The same without flags and sizes, at once.
pub(super) fn each_range(tid: i32, f: &mut dyn FnMut(Vma)) -> io::Result<()> {
    let file = fs::File::open(format!("/proc/{tid}/maps"))?;
    read_vmas(BufReader::with_capacity(64 << 10, file), &mut with_zeros(tid, f))
}

fn read_vmas(mut text: impl BufRead, f: &mut dyn FnMut(Vma)) -> io::Result<()> {
    let (mut line, mut current) = (Vec::new(), None::<Vma>);
    loop {
        line.clear();
        if text.read_until(b'\n', &mut line)? == 0 {
            break;
        }
        let line = String::from_utf8_lossy(&line);
        let line = line.trim_end_matches('\n');
        match line.bytes().next() {
            Some(b'A'..=b'Z') => {
                if let Some(vma) = &mut current {
                    vma.attribute(line);
                }
            }
            _ => {
                if let Some(vma) = current.take() {
                    f(vma);
                }
                current = Vma::parse(line);
            }
        }
    }
    current.into_iter().for_each(f);
    Ok(())
}

/// Where the command line of a process begins, on its first stack, with the environment behind it; none if
/// that is not told. They stay where they are, so that `ps` goes on showing what runs.
pub(super) fn command_line(tid: i32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{tid}/stat")).ok()?;
    // Behind the name, which may hold anything, the fields are counted from 3; `arg_start` is the 48th.
    let start = stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(48 - 3)?.parse().ok()?;
    (start > 0).then_some(start)
}

/// A word of a thread's memory.
pub(super) fn word_of(tid: i32, at: u64) -> Option<u64> {
    let mut word = [0; 8];
    fs::File::open(format!("/proc/{tid}/mem")).and_then(|memory| memory.read_exact_at(&mut word, at)).ok()?;
    Some(u64::from_ne_bytes(word))
}

/// Whether two processes have the same memory.
pub(super) fn share_memory(a: i32, b: i32) -> Result<bool, Errno> {
    const KCMP_VM: usize = 1;
    // SAFETY: compares; has no effect on memory.
    match unsafe { libc::syscall(libc::SYS_kcmp, a as usize, b as usize, KCMP_VM, 0_usize, 0_usize) } {
        0 => Ok(true),
        1.. => Ok(false),
        _ => Err(Errno::last()),
    }
}

/// Anonymous memory of a process in RAM, bytes, of which what it shares with others counts in part, so that
/// the sum over all counts it once. The kernel looks at every page for it. `None` if it has ended, or before
/// Linux 5.14.
pub(super) fn share_of_anonymous(pid: i32) -> Option<u64> {
    let tid = living_thread(pid).ok()??;
    let text = std::fs::read_to_string(format!("/proc/{tid}/smaps_rollup")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("Pss_Anon:"))?;
    line.trim().trim_end_matches("kB").trim().parse::<u64>().ok().map(|kib| kib << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_own_command_line_is_found() {
        let start = command_line(std::process::id() as i32).expect("told of our own process");
        let first = std::env::args().next().expect("a name");
        // SAFETY: the kernel's copy of the arguments, which nobody changes, is at least as long as the first
        // of them.
        let there = unsafe { std::slice::from_raw_parts(start as *const u8, first.len()) };
        assert_eq!(there, first.as_bytes());
    }

    #[test]
    fn names_with_brackets_do_not_confuse() {
        let line = b"17 (a) R (b) ) S 1 17 17 0 -1 4194304 90 0 0 0";
        assert_eq!(Stat::parse(line), Some(Stat { state: b'S', is_worker: false }));
        let worker = b"18 (iou-wrk-17) S 1 17 17 0 -1 4210768 0 0";
        assert_eq!(Stat::parse(worker), Some(Stat { state: b'S', is_worker: true }));
        assert_eq!(Stat::parse(b"no brackets"), None);
    }

    #[test]
    fn mappings_are_told_apart() {
        let text = "\
55d0-55d1 rw-p 00000000 00:00 0                          [heap]
Anonymous:            4096 kB
VmFlags: rd wr mr mw me ac
7f00-7f01 r-xp 00001000 fe:00 77                         /usr/bin/a b
Anonymous:               8 kB
VmFlags: rd ex mr mw me
7f02-7f03 rw-p 00000000 00:00 0 
Anonymous:              12 kB
VmFlags: rd wr lo
7f04-7f05 rw-s 00000000 00:01 1025                       /dev/zero (deleted)
7ff0-7ff1 r-xp 00000000 00:00 0                          [vdso]
7ff2-7ff3 ---p 00000000 00:00 0 
VmFlags: mr mw me";
        let mut all = vec![];
        read_vmas(text.as_bytes(), &mut |vma| all.push(vma)).expect("read");
        let pageable: Vec<bool> = all.iter().map(|vma| vma.is_pageable(false)).collect();
        assert_eq!(pageable, [true, false, false, false, false, true]);
        assert_eq!((all[0].anonymous, all[1].anonymous), (4 << 20, 8 << 10));
        assert_eq!((&*all[1].name, all[1].executable), ("/usr/bin/a b", true));
        assert!(!all[5].readable && !all[5].writable);
    }

    #[test]
    fn private_mappings_of_zeros_are_anonymous_and_no_others() {
        let text = "\
7f00-7f01 rw-p 00000000 00:06 5                          /dev/zero
Anonymous:            4096 kB
7f01-7f02 rw-s 00000000 00:06 5                          /dev/zero
7f02-7f03 rw-p 00000000 fe:00 5                          /dev/zero
7f03-7f04 rw-p 00000000 00:06 5                          /tmp/dev/zero";
        let mut all = vec![];
        let mut zero = || Some((0, 6, 5));
        read_vmas(text.as_bytes(), &mut |mut vma: Vma| {
            vma.make_anonymous(&mut zero);
            all.push((vma.is_pageable(false), vma.is_own(), vma.cannot_leave()));
        })
        .expect("read");
        let (other, file) = ((false, false, false), (false, false, true));
        assert_eq!(all, [(true, false, true), other, file, file]);
        let (mut all, mut again) = (vec![], vec![]);
        let entry =
            |flags: &str| format!("7f00-7f01 rw-p 00000000 00:06 5 /dev/zero\nAnonymous: 4 kB\n{flags}\n");
        let text = [
            "VmFlags: rd wr mr mw me ac nr dd",
            "ProtectionKey:         0\nVmFlags: rd wr ex mr mw me ac hg",
            "ProtectionKey:         1\nVmFlags: rd wr mr mw me ac",
            "VmFlags: rd wr mr mw me ac xx",
            "VmFlags: rd wr mr mw me lo ac",
        ];
        read_vmas(text.map(entry).concat().as_bytes(), &mut |mut vma: Vma| {
            vma.make_anonymous(&mut zero);
            again.push(
                vma.remake()
                    .map(|r| (r.protection & libc::PROT_EXEC, r.flags & libc::MAP_NORESERVE, r.advice)),
            );
            all.push(vma);
        })
        .expect("read");
        let plain = Some((0, libc::MAP_NORESERVE, vec![libc::MADV_DONTDUMP]));
        let executable = Some((libc::PROT_EXEC, 0, vec![libc::MADV_HUGEPAGE]));
        assert_eq!(again, [plain, executable, None, None, None], "{all:?}");
        let own = zero_device(std::process::id() as i32);
        assert!(own.is_some(), "/dev/zero is a device");
    }
}
