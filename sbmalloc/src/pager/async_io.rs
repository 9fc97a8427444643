//! Asynchronous I/O of the program's own, which reads and writes memory while all threads stand.
//!
//! The kernel, or a device, holds on to the pages that a transfer is about, so what it writes to a page that
//! was replaced is lost. A program that was written for us sees to it that there is none
//! ([`evict`](super::evict)). Of others it is looked, with all threads parked: whether a descriptor or a
//! mapping is an io_uring or a device that moves memory by itself, pages are pinned, and whether
//! there is a context of AIO other than that of our own queue. Whether transfers are under way nobody tells,
//! so where there could be some nothing is moved.

use super::PagerError;
use crate::store;
use crate::sys::{Errno, Fd, PathBuf};
use crate::threads;
use std::ffi::CStr;
use std::sync::atomic::{AtomicBool, Ordering};

/// Devices that read and write memory by themselves.
pub(super) const DEVICES: [&[u8]; 5] =
    [b"/dev/nvidia", b"/dev/kfd", b"/dev/dri/", b"/dev/infiniband/", b"/dev/vfio/"];

static EXPECTED: AtomicBool = AtomicBool::new(false);

/// Bytes of a line of `/proc/thread-self/maps` that are looked at.
const LINE: usize = 256;

pub(super) fn expect() {
    EXPECTED.store(true, Ordering::Release);
}

/// Fails if the program has any, and that is looked for.
///
/// # Safety
/// The pager's lock is held.
pub(super) unsafe fn check() -> Result<(), PagerError> {
    if !EXPECTED.load(Ordering::Acquire) {
        return Ok(());
    }
    let failed = |op| move |errno| PagerError::Blind { op, errno };
    let mut found = None;
    each_line(c"/proc/thread-self/status", &mut |line| {
        if pinned(line).is_some_and(|kib| kib > 0) {
            found = Some("pinned pages");
        }
    })
    .map_err(failed("read /proc/thread-self/status"))?;
    each_line(c"/proc/thread-self/maps", &mut |line| {
        if ends_with(line, b"[io_uring]") {
            found = Some("io_uring");
        } else if ends_with(line, b"/[aio]") && start(line) != store::ring() {
            found = found.or(Some("AIO"));
        } else {
            found = found.or_else(|| kind(path(line))); // its descriptor may be closed
        }
    })
    .map_err(failed("read /proc/thread-self/maps"))?;
    // A ring may lie in the program's own memory, and its descriptor be all there is to see.
    // SAFETY: the caller's; the closure only reads a link.
    let listed = unsafe {
        threads::each_entry(c"/proc/thread-self/fd", &mut |name| {
            found = found.or_else(|| of_descriptor(name));
        })
    };
    listed.map_err(failed("list /proc/thread-self/fd"))?;
    found.map_or(Ok(()), |what| Err(PagerError::InUse { what }))
}

/// What of that kind a descriptor is.
fn of_descriptor(descriptor: &[u8]) -> Option<&'static str> {
    let mut path = PathBuf::<64>::new();
    path.push(b"/proc/thread-self/fd/").push(descriptor);
    let mut target = [0_u8; 32];
    // SAFETY: the kernel writes at most the buffer's size.
    let n = unsafe { libc::readlink(path.as_cstr().as_ptr(), target.as_mut_ptr().cast(), target.len()) };
    kind(&target[..usize::try_from(n).unwrap_or(0)])
}

fn kind(target: &[u8]) -> Option<&'static str> {
    if target.starts_with(b"anon_inode:[io_uring]") {
        return Some("io_uring");
    }
    DEVICES.iter().any(|device| target.starts_with(device)).then_some("a device")
}

/// Of the line of the status file that tells: KiB that something else than the processor may be at.
fn pinned(line: &[u8]) -> Option<u64> {
    let digits = line.strip_prefix(b"VmPin:")?.iter().filter_map(|&byte| char::from(byte).to_digit(10));
    Some(digits.fold(0, |kib, digit| kib.saturating_mul(10).saturating_add(digit.into())))
}

/// Calls `f` with every line of a file, or its beginning.
fn each_line(path: &CStr, f: &mut dyn FnMut(&[u8])) -> Result<(), Errno> {
    let file = Fd::open(path, libc::O_RDONLY)?;
    let (mut piece, mut line, mut length) = ([0_u8; 1024], [0_u8; LINE], 0);
    loop {
        let n = file.read(&mut piece)?;
        if n == 0 {
            return Ok(());
        }
        for &byte in &piece[..n] {
            if byte == b'\n' {
                f(&line[..length]);
                length = 0;
            } else if length < LINE {
                line[length] = byte;
                length += 1;
            }
        }
    }
}

/// Whether it is the name of a mapping that may be gone from its directory, as those are that never were in
/// one.
fn ends_with(line: &[u8], name: &[u8]) -> bool {
    line.strip_suffix(b" (deleted)").unwrap_or(line).ends_with(name)
}

/// What is mapped; nothing if it has no name.
fn path(line: &[u8]) -> &[u8] {
    line.iter().position(|&byte| byte == b'/').map_or(b"", |at| &line[at..])
}

/// Where the mapping begins.
fn start(line: &[u8]) -> u64 {
    let digits = line.iter().map_while(|&byte| char::from(byte).to_digit(16));
    digits.fold(0, |at, digit| at << 4 | u64::from(digit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_understood() {
        let line = b"7f0a00b000-7f0a00c000 rw-s 00000000 00:10 26681        /[aio] (deleted)";
        assert!(ends_with(line, b"/[aio]") && !ends_with(line, b"[io_uring]"));
        assert_eq!(start(line), 0x7f_0a00_b000);
        assert!(ends_with(b"7f-80 rw-s 0 00:0e 1034   anon_inode:[io_uring]", b"[io_uring]"));
        assert_eq!(pinned(b"VmPin:\t    1204 kB"), Some(1204));
        assert_eq!((pinned(b"VmPin:\t       0 kB"), pinned(b"VmPeak:\t    1204 kB")), (Some(0), None));
    }

    #[test]
    fn devices_and_rings_are_known_by_their_names() {
        assert_eq!(kind(b"/dev/infiniband/uverbs0"), Some("a device"));
        assert_eq!(kind(b"anon_inode:[io_uring]"), Some("io_uring"));
        assert_eq!(kind(b"/dev/null"), None);
        assert_eq!(
            kind(path(b"7f0a00b000-7f0a00c000 rw-s 00000000 00:05 651      /dev/nvidia0")),
            Some("a device")
        );
        assert_eq!(kind(path(b"7f0a00b000-7f0a00c000 rw-p 00000000 00:00 0")), None);
        let file = std::fs::File::open("/dev/null").expect("a device that moves nothing");
        let number = std::os::fd::AsRawFd::as_raw_fd(&file).to_string();
        assert_eq!(of_descriptor(number.as_bytes()), None);
    }

    #[test]
    fn every_mapping_is_seen() {
        let differ = || {
            let whole = std::fs::read_to_string("/proc/thread-self/maps").expect("maps");
            let mut seen = 0_usize;
            each_line(c"/proc/thread-self/maps", &mut |line| {
                seen += 1;
                assert!(start(line) > 0, "{}", String::from_utf8_lossy(line));
            })
            .expect("maps");
            seen.abs_diff(whole.lines().count())
        };
        // Threads of other tests map and unmap meanwhile.
        assert!((0..100).any(|_| differ() < 50), "{}", differ());
    }
}
