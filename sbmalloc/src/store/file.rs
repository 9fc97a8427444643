//! One scratch file on disk: unlinked from birth, direct where the file system allows it, else buffered.
//!
//! Measured on a virtual disk behind ext4 (`docs/benchmarks.md`), and the reasons for what is done here:
//! - The first write to a place costs twice a rewrite (2.2 against 4.5 GB/s), however large the transfers are
//!   and whatever was preallocated: not ext4 but what lies below gets its memory then. Written over extents
//!   merely marked as zeros it runs at the full rate. A hole punched is given back down there too
//!   (`discard`), so what is written again later pays again.
//! - Punching takes 1.8 ms a call where the file system discards at once; marking a range as zeros 5 µs.
//! - Allocating in large pieces ahead (`fallocate`) makes no difference to an evict.

#[cfg(test)]
use crate::config;
use crate::sys::{Errno, Fd, PathBuf};
use std::ffi::CStr;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

/// Shorter ranges that became zero are marked so in place, if the disk has room, and keep their blocks:
/// punching as much as this costs what writing it would.
const PUNCH_FROM: u64 = 16 << 20;

/// How a scratch file is written and read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    Buffered,
    /// Past the page cache, one transfer at a time.
    Direct,
    /// Past the page cache, several at a time.
    Beside,
}

/// A file in the scratch directory that vanishes with the process.
pub(super) struct FileStore {
    fd: Fd,
    direct: AtomicBool,
    beside: bool,
    len: AtomicU64,
    /// Ranges that read as zeros have kept their blocks.
    kept: AtomicBool,
}

/// Makes an unlinked file: `O_TMPFILE`, or create and unlink at once where that is not supported.
fn create(dir: &CStr, extra: i32) -> Result<Fd, Errno> {
    static SERIAL: AtomicU32 = AtomicU32::new(0);
    match Fd::open(dir, libc::O_TMPFILE | libc::O_RDWR | extra) {
        // Kernels and file systems without it answer in one of these ways.
        Err(Errno(libc::EOPNOTSUPP | libc::EISDIR | libc::ENOENT)) => {}
        other => return other,
    }
    loop {
        let mut path = PathBuf::<4096>::new();
        // SAFETY: getpid has no preconditions.
        let pid = unsafe { libc::getpid() };
        path.push(dir.to_bytes()).push(b"/.sbmalloc-").push_number(pid as u64).push(b"-");
        path.push_number(SERIAL.fetch_add(1, Ordering::Relaxed) as u64);
        match Fd::open(path.as_cstr(), libc::O_CREAT | libc::O_EXCL | libc::O_RDWR | extra) {
            Ok(fd) => {
                // SAFETY: the path is a terminated string naming the file just created.
                unsafe { libc::unlink(path.as_cstr().as_ptr()) };
                return Ok(fd);
            }
            Err(Errno(libc::EEXIST)) => {}
            Err(e) => return Err(e),
        }
    }
}

impl FileStore {
    /// Makes a new scratch file in `dir`.
    pub fn open(dir: &CStr, mode: Mode) -> Result<Self, Errno> {
        let made = |direct| {
            let fd = create(dir, if direct { libc::O_DIRECT } else { 0 })?.out_of_the_way();
            let beside = mode == Mode::Beside;
            let direct = AtomicBool::new(direct);
            Ok(Self { fd, direct, beside, len: AtomicU64::new(0), kept: AtomicBool::new(false) })
        };
        match made(mode != Mode::Buffered) {
            Err(Errno(libc::EINVAL)) if mode != Mode::Buffered => made(false),
            other => other,
        }
    }

    /// Some file systems accept `O_DIRECT` at open and refuse it at the first transfer.
    fn fall_back(&self, e: Errno) -> Result<(), Errno> {
        if e.0 == libc::EINVAL && self.direct.swap(false, Ordering::Relaxed) {
            // SAFETY: clearing a status flag of our own descriptor.
            let flags = unsafe { libc::fcntl(self.fd.0, libc::F_GETFL) };
            // SAFETY: as above.
            if flags >= 0 && unsafe { libc::fcntl(self.fd.0, libc::F_SETFL, flags & !libc::O_DIRECT) } == 0 {
                return Ok(());
            }
        }
        Err(e)
    }
}

impl FileStore {
    /// As [`Store::write_at`](super::Store::write_at).
    ///
    /// # Safety
    /// `from` is readable for `len` bytes.
    pub unsafe fn write_at(&self, offset: u64, from: *const u8, len: usize) -> Result<usize, Errno> {
        loop {
            // SAFETY: `from` is readable for `len` by this method's contract.
            let n = unsafe { libc::pwrite(self.fd.0, from.cast(), len, offset as i64) };
            if n >= 0 {
                if !self.direct.load(Ordering::Relaxed) {
                    // Start the write-back now, so that settle() finds most of it done.
                    // SAFETY: has no effect on memory.
                    unsafe {
                        libc::sync_file_range(self.fd.0, offset as i64, n as i64, libc::SYNC_FILE_RANGE_WRITE)
                    };
                }
                return Ok(n as usize);
            }
            self.fall_back(Errno::last())?;
        }
    }

    /// As [`Store::read_at`](super::Store::read_at).
    ///
    /// # Safety
    /// `to` is writable for `len` bytes.
    pub unsafe fn read_at(&self, offset: u64, to: *mut u8, len: usize) -> Result<usize, Errno> {
        loop {
            // SAFETY: `to` is writable for `len` by this method's contract.
            let n = unsafe { libc::pread(self.fd.0, to.cast(), len, offset as i64) };
            if n >= 0 {
                return Ok(n as usize);
            }
            self.fall_back(Errno::last())?;
        }
    }

    /// Makes a range read as zeros. Its space is given back if it is large or the disk is getting full.
    pub fn punch(&self, offset: u64, len: u64) -> Result<(), Errno> {
        let marked = len < PUNCH_FROM
            && self.has_room()
            && fallocate(self.fd.0, libc::FALLOC_FL_ZERO_RANGE | libc::FALLOC_FL_KEEP_SIZE, offset, len)
                .is_ok();
        if marked {
            self.kept.store(true, Ordering::Relaxed);
            return Ok(());
        }
        self.punch_hole(offset, len)
    }

    /// Makes a range a hole.
    pub fn punch_hole(&self, offset: u64, len: u64) -> Result<(), Errno> {
        punch(self.fd.0, offset, len)
    }

    /// Whether any range kept its blocks since this was last asked.
    pub fn take_kept(&self) -> bool {
        self.kept.swap(false, Ordering::Relaxed)
    }

    /// Whether the disk has as much room again as this file may need.
    fn has_room(&self) -> bool {
        // SAFETY: a zeroed statvfs is valid, and the kernel fills it.
        let free = unsafe {
            let mut fs: libc::statvfs = std::mem::zeroed();
            if libc::fstatvfs(self.fd.0, &mut fs) != 0 { 0 } else { fs.f_bavail.saturating_mul(fs.f_frsize) }
        };
        free >= self.len.load(Ordering::Relaxed).max(1 << 30)
    }

    pub fn ensure_len(&self, len: u64) -> Result<(), Errno> {
        ensure_len(self.fd.0, &self.len, len)
    }

    pub fn settle(&self) -> Result<(), Errno> {
        if self.direct.load(Ordering::Relaxed) {
            return Ok(());
        }
        // SAFETY: has no effect on memory.
        if unsafe { libc::fdatasync(self.fd.0) } != 0 {
            return Err(Errno::last());
        }
        self.drop_cache();
        Ok(())
    }

    pub fn drop_cache(&self) {
        // SAFETY: advice about our own file.
        unsafe { libc::posix_fadvise(self.fd.0, 0, 0, libc::POSIX_FADV_DONTNEED) };
    }

    pub fn mapping_fd(&self) -> i32 {
        self.fd.0
    }

    pub fn async_fd(&self) -> Option<i32> {
        // Buffered, the kernel copies while the transfer is started: nothing would go on beside.
        (self.beside && self.direct.load(Ordering::Relaxed)).then_some(self.fd.0)
    }
}

pub(super) fn punch(fd: i32, offset: u64, len: u64) -> Result<(), Errno> {
    fallocate(fd, libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE, offset, len)
}

fn fallocate(fd: i32, mode: i32, offset: u64, len: u64) -> Result<(), Errno> {
    loop {
        // SAFETY: has no effect on memory but through mappings of the file, whose owner asked for it.
        if unsafe { libc::fallocate(fd, mode, offset as i64, len as i64) } == 0 {
            return Ok(());
        }
        if Errno::last().0 != libc::EINTR {
            return Err(Errno::last());
        }
    }
}

/// Lengthens the file to `len` unless it is `known` to be as long.
pub(super) fn ensure_len(fd: i32, known: &AtomicU64, len: u64) -> Result<(), Errno> {
    if known.load(Ordering::Relaxed) < len {
        // SAFETY: the file only ever grows, so no mapping of it loses its pages.
        if unsafe { libc::ftruncate(fd, len as i64) } != 0 {
            return Err(Errno::last());
        }
        known.store(len, Ordering::Relaxed);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a program does to numbers that it has not opened (`exec 3<>file`) does nothing to scratch.
    #[test]
    fn no_file_of_the_programs_takes_its_place() {
        for mode in [Mode::Buffered, Mode::Direct, Mode::Beside] {
            let file = FileStore::open(config::scratch_dir(0), mode).expect("scratch file");
            assert!(file.fd.0 >= 200, "{}", file.fd.0);
            // SAFETY: asks of our own descriptor.
            assert_eq!(unsafe { libc::fcntl(file.fd.0, libc::F_GETFD) }, libc::FD_CLOEXEC);
        }
    }

    #[test]
    fn short_ranges_of_zeros_keep_their_blocks_until_they_are_wanted() {
        let file = FileStore::open(config::scratch_dir(0), Mode::Buffered).expect("scratch file");
        let bytes = vec![7u8; 1 << 20];
        let blocks = || {
            // SAFETY: a zeroed stat is valid, and the kernel fills it.
            unsafe {
                let mut stat: libc::stat = std::mem::zeroed();
                assert_eq!(libc::fstat(file.fd.0, &mut stat), 0);
                stat.st_blocks * 512
            }
        };
        let zeros = || {
            let mut back = vec![1u8; bytes.len()];
            // SAFETY: the buffer has this length.
            assert_eq!(unsafe { file.read_at(0, back.as_mut_ptr(), back.len()) }, Ok(back.len()));
            back.iter().all(|&b| b == 0)
        };
        // SAFETY: the bytes are there.
        assert_eq!(unsafe { file.write_at(0, bytes.as_ptr(), bytes.len()) }, Ok(bytes.len()));
        file.settle().expect("written");
        assert!(blocks() >= 1 << 20);
        file.punch(0, 1 << 20).expect("punched or marked");
        assert!(zeros());
        if file.take_kept() {
            assert!(blocks() >= 1 << 20 && !file.take_kept());
            file.punch_hole(0, 1 << 20).expect("punched");
            assert!(zeros());
        }
        assert!(blocks() < 1 << 16);
    }
}
