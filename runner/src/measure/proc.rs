//! What the kernel says of one process. `statm` through a descriptor that stays open costs 1 µs (else 10),
//! the processor clock 0.2 µs, `status` 7 µs, `smaps_rollup` 30 µs for a small process and milliseconds for a
//! large one.

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::time::Duration;

use crate::descriptors::{Kept, Spare};

/// From `statm`, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Statm {
    /// Addresses in use, of whatever kind.
    pub(super) size: u64,
    /// Pages in RAM.
    pub(super) resident: u64,
    /// Of them, those of files and shared memory.
    pub(super) mapped: u64,
}

impl Statm {
    /// Anonymous memory in RAM.
    pub(super) fn anonymous(self) -> u64 {
        self.resident.saturating_sub(self.mapped)
    }
}

/// From `status`, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Status {
    pub(super) file: u64,
    pub(super) shared: u64,
    pub(super) swap: u64,
    pub(super) page_tables: u64,
    pub(super) threads: u32,
}

/// What a process holds, and how much of it is its own where pages that several processes map are divided
/// among them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Shares {
    pub(super) anonymous: u64,
    pub(super) anonymous_share: u64,
    /// At least so much of its anonymous memory nobody else has.
    pub(super) alone: u64,
    pub(super) shared_share: u64,
}

/// Where `statm` of a process is read, again and again.
pub(super) struct StatmOf {
    pid: i32,
    kept: Option<Kept>,
}

impl StatmOf {
    /// Stays open if there is room for that.
    pub(super) fn open(pid: i32, spare: &Spare) -> Option<Self> {
        Some(Self { pid, kept: spare.keep(open_statm(pid).ok()?) })
    }

    /// Whether to read it costs little.
    pub(super) fn is_open(&self) -> bool {
        self.kept.is_some()
    }

    /// None if the process has ended. What was read `before` where it cannot be opened now.
    pub(super) fn read(&self, page: u64, before: Statm) -> Option<Statm> {
        let file = match &self.kept {
            Some(kept) => return statm(kept, page).map(|found| self.of_all(found, page)),
            None => open_statm(self.pid),
        };
        match file {
            Ok(file) => statm(&file, page).map(|found| self.of_all(found, page)),
            Err(error) if matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE)) => Some(before),
            Err(_) => None,
        }
    }

    /// What was read of the first thread, unless others have what that does not have any more.
    fn of_all(&self, first: Statm, page: u64) -> Statm {
        let of_thread = |tid| open_statm(tid).ok().and_then(|file| statm(&file, page));
        match first.size {
            0 => of_another_thread(self.pid, |tid| of_thread(tid).filter(|found| found.size > 0))
                .unwrap_or(first),
            _ => first,
        }
    }
}

/// What is read of another thread of a process than its first, which may have ended before the others
/// (`pthread_exit` in `main`): then the kernel tells nothing of the process's memory by its own number.
fn of_another_thread<T>(pid: i32, read: impl FnMut(i32) -> Option<T>) -> Option<T> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).ok()?.flatten();
    tasks.filter_map(|task| task.file_name().to_str()?.parse().ok()).filter(|&tid| tid != pid).find_map(read)
}

fn open_statm(pid: i32) -> std::io::Result<File> {
    File::open(format!("/proc/{pid}/statm"))
}

fn statm(file: &File, page: u64) -> Option<Statm> {
    let mut text = [0_u8; 128];
    let length = file.read_at(&mut text, 0).ok()?;
    parse_statm(&text[..length], page)
}

fn parse_statm(text: &[u8], page: u64) -> Option<Statm> {
    let mut numbers = std::str::from_utf8(text).ok()?.split_ascii_whitespace().map(str::parse::<u64>);
    let mut next = || Some(numbers.next()?.ok()?.saturating_mul(page));
    Some(Statm { size: next()?, resident: next()?, mapped: next()? })
}

/// A small file of a process, in one call as a rule: the kernel makes its text anew for each.
pub(super) fn read(pid: i32, name: &str, buffer: &mut Vec<u8>) -> Option<()> {
    let file = File::open(format!("/proc/{pid}/{name}")).ok()?;
    buffer.resize(buffer.capacity().max(4096), 0);
    let length = file.read_at(buffer, 0).ok()?;
    let whole = length < buffer.len();
    buffer.truncate(length);
    if !whole {
        let mut rest = file;
        rest.seek(SeekFrom::Start(length as u64)).ok()?;
        rest.read_to_end(buffer).ok()?;
    }
    Some(())
}

/// None if the process has ended or holds no memory any more.
pub(super) fn status(pid: i32) -> Option<Status> {
    let of_thread = |tid| {
        let mut text = Vec::new();
        read(tid, "status", &mut text)?;
        parse_status(&text)
    };
    of_thread(pid).or_else(|| of_another_thread(pid, of_thread))
}

fn parse_status(text: &[u8]) -> Option<Status> {
    let mut status = Status::default();
    let mut found = false;
    // The name may be any bytes, which are replaced; the lines that matter are plain text.
    for line in String::from_utf8_lossy(text).lines() {
        let Some((name, value)) = line.split_once(':') else { continue };
        match name {
            "RssFile" => (status.file, found) = (kibibytes(value), true),
            "RssShmem" => status.shared = kibibytes(value),
            "VmSwap" => status.swap = kibibytes(value),
            "VmPTE" => status.page_tables = kibibytes(value),
            "Threads" => status.threads = value.trim().parse().unwrap_or(0),
            _ => {}
        }
    }
    found.then_some(status)
}

/// None if the process has ended, or is not ours to look into.
pub(super) fn shares(pid: i32) -> Option<Shares> {
    let of_thread = |tid| parse_shares(&fs::read_to_string(format!("/proc/{tid}/smaps_rollup")).ok()?);
    of_thread(pid).or_else(|| of_another_thread(pid, of_thread))
}

fn parse_shares(text: &str) -> Option<Shares> {
    let field = |wanted: &str| {
        text.lines().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            (name == wanted).then(|| kibibytes(value))
        })
    };
    let anonymous = field("Anonymous")?;
    // Since Linux 5.3; before that nothing is known of the shares.
    let anonymous_share = field("Pss_Anon")?.min(anonymous);
    let shared_share = field("Pss_Shmem")?;
    // "Private" are pages that one process maps, of any kind. Those of files and shared memory are in their
    // shares in full.
    let private = field("Private_Clean")? + field("Private_Dirty")?;
    let alone = private.saturating_sub(field("Pss_File")? + shared_share).min(anonymous_share);
    Some(Shares { anonymous, anonymous_share, alone, shared_share })
}

/// `  123 kB`.
fn kibibytes(text: &str) -> u64 {
    text.split_ascii_whitespace().next().and_then(|number| number.parse::<u64>().ok()).unwrap_or(0) << 10
}

/// The clock of a process's processor time.
pub(super) fn clock(pid: i32) -> Option<libc::clockid_t> {
    let mut clock = 0;
    // SAFETY: the pointer is to a local.
    (unsafe { libc::clock_getcpuclockid(pid, &mut clock) } == 0).then_some(clock)
}

/// What it shows: user and kernel, all threads. None if the process has ended.
pub(super) fn cpu(clock: libc::clockid_t) -> Option<Duration> {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to a local.
    if unsafe { libc::clock_gettime(clock, &mut time) } != 0 {
        return None;
    }
    Some(Duration::new(u64::try_from(time.tv_sec).ok()?, u32::try_from(time.tv_nsec).ok()?))
}

/// The processor time of a process, without its children: user and kernel, all threads. None if it has
/// ended.
pub fn processor_time(pid: i32) -> Option<Duration> {
    cpu(clock(pid)?)
}

/// What a cgroup of version 2 has used, its ended processes included.
pub(super) fn cpu_of_group(stat: &File) -> Option<Duration> {
    let mut text = [0_u8; 128];
    let length = stat.read_at(&mut text, 0).ok()?;
    parse_cpu_stat(std::str::from_utf8(&text[..length]).ok()?)
}

fn parse_cpu_stat(text: &str) -> Option<Duration> {
    let value = text.lines().find_map(|line| line.strip_prefix("usage_usec "))?;
    value.trim().parse().ok().map(Duration::from_micros)
}

/// Whether two processes have one address space, as between `vfork` and `exec`. None if the kernel does not
/// tell.
pub(super) fn same_memory(one: i32, other: i32) -> Option<bool> {
    // From linux/kcmp.h.
    const KCMP_VM: i32 = 1;
    // SAFETY: plain system call on numbers.
    match unsafe { libc::syscall(libc::SYS_kcmp, one, other, KCMP_VM, 0_u64, 0_u64) } {
        0 => Some(true),
        1.. => Some(false),
        _ => None,
    }
}

/// How long the threads of a process, the first `most` of them, were ready to run while others ran, since
/// they began. None if it has ended, or the kernel does not count that.
pub(super) fn starved(pid: i32, threads: u32, most: usize) -> Option<Duration> {
    if threads <= 1 {
        return starved_thread(&format!("/proc/{pid}/schedstat"));
    }
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).ok()?;
    let files = tasks.flatten().take(most).map(|task| task.path().join("schedstat"));
    Some(files.filter_map(|file| starved_thread(file.to_str()?)).sum())
}

fn starved_thread(file: &str) -> Option<Duration> {
    let mut text = [0_u8; 128];
    let length = File::open(file).ok()?.read_at(&mut text, 0).ok()?;
    let nanoseconds = std::str::from_utf8(&text[..length]).ok()?.split_ascii_whitespace().nth(1)?;
    nanoseconds.parse().ok().map(Duration::from_nanos)
}

/// What `/proc/loadavg` says of the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Load {
    /// Threads that run or are ready to, this one included.
    pub(super) runnable: u64,
    /// A number that changes when a process is made anywhere in our PID namespace or one below it: the last
    /// number given.
    pub(super) births: u64,
}

pub(super) fn load(loadavg: &File) -> Option<Load> {
    let mut text = [0_u8; 128];
    let length = loadavg.read_at(&mut text, 0).ok()?;
    let mut fields = std::str::from_utf8(&text[..length]).ok()?.split_ascii_whitespace().skip(3);
    let (runnable, _) = fields.next()?.split_once('/')?;
    Some(Load { runnable: runnable.parse().ok()?, births: fields.next()?.parse().ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files_are_understood() {
        let statm = parse_statm(b"1000 600 200 5 0 400 0\n", 4096).unwrap();
        assert_eq!(statm.anonymous(), 400 * 4096);
        assert_eq!(parse_statm(b"", 4096), None);

        let text = b"Name:\ta\xff: b\nVmPTE:\t      44 kB\nRssAnon:\t 7 kB\nRssFile:\t 20 kB\nRssShmem:\t 8 kB\nVmSwap:\t 4 kB\nThreads:\t3\n";
        let expected =
            Status { file: 20 << 10, shared: 8 << 10, swap: 4 << 10, page_tables: 44 << 10, threads: 3 };
        assert_eq!(parse_status(text), Some(expected));
        assert_eq!(parse_status(b"Name:\tzombie\nThreads:\t1\n"), None);

        let text = "1-2 ---p 0 00:00 0 [rollup]\nRss: 9 kB\nPss_Anon:   10 kB\nPss_File: 2 kB\nPss_Shmem: 3 kB\n\
                    Private_Clean: 1 kB\nPrivate_Dirty: 9 kB\nAnonymous: 20 kB\n";
        let expected =
            Shares { anonymous: 20 << 10, anonymous_share: 10 << 10, alone: 5 << 10, shared_share: 3 << 10 };
        assert_eq!(parse_shares(text), Some(expected));

        assert_eq!(parse_cpu_stat("usage_usec 1500000\nuser_usec 1\n"), Some(Duration::from_millis(1500)));
    }

    #[test]
    fn our_own_process_is_told_of() {
        let own = std::process::id() as i32;
        // There is room for one of them to stay open.
        let spare = Spare::new(1);
        let files = [(); 2].map(|()| StatmOf::open(own, &spare).unwrap());
        assert_eq!(files.each_ref().map(StatmOf::is_open), [true, false]);
        assert!(files.iter().all(|file| file.read(4096, Statm::default()).unwrap().resident > 0));
        drop(files);
        assert!(StatmOf::open(own, &spare).unwrap().is_open());
        let nobody = StatmOf { pid: i32::MAX, kept: None };
        assert_eq!(nobody.read(4096, Statm::default()), None);
        assert!(status(own).unwrap().threads > 0);
        assert!(cpu(clock(own).unwrap()).unwrap() > Duration::ZERO);
        assert!(same_memory(own, own).unwrap_or(true));
        let loadavg = File::open("/proc/loadavg").unwrap();
        let before = load(&loadavg).unwrap();
        assert!(before.runnable > 0);
        assert!(std::process::Command::new("/bin/true").status().unwrap().success());
        assert_ne!(load(&loadavg).unwrap().births, before.births);
    }
}
