//! A scratch file in memory (memfd): lets tests run without a disk. It gives no RAM back.

use super::{Store, file};
use crate::sys::{Errno, Fd};
use std::sync::atomic::AtomicU64;

/// A memfd with the interface of a scratch file.
pub(crate) struct MemoryStore {
    fd: Fd,
    len: AtomicU64,
}

impl MemoryStore {
    /// Makes an empty one.
    pub fn open() -> Result<Self, Errno> {
        // SAFETY: the name is a terminated string.
        let fd = unsafe { libc::memfd_create(c"sbmalloc".as_ptr(), libc::MFD_CLOEXEC) };
        if fd < 0 {
            Err(Errno::last())
        } else {
            Ok(Self { fd: Fd(fd).out_of_the_way(), len: AtomicU64::new(0) })
        }
    }
}

// SAFETY: memory of its own, kept as written; it hands out no descriptor.
unsafe impl Store for MemoryStore {
    unsafe fn write_at(&self, offset: u64, from: *const u8, len: usize) -> Result<usize, Errno> {
        // SAFETY: `from` is readable for `len` by this method's contract.
        let n = unsafe { libc::pwrite(self.fd.0, from.cast(), len, offset as i64) };
        if n < 0 { Err(Errno::last()) } else { Ok(n as usize) }
    }

    unsafe fn read_at(&self, offset: u64, to: *mut u8, len: usize) -> Result<usize, Errno> {
        // SAFETY: `to` is writable for `len` by this method's contract.
        let n = unsafe { libc::pread(self.fd.0, to.cast(), len, offset as i64) };
        if n < 0 { Err(Errno::last()) } else { Ok(n as usize) }
    }

    fn punch(&self, offset: u64, len: u64) -> Result<(), Errno> {
        file::punch(self.fd.0, offset, len)
    }

    fn ensure_len(&self, len: u64) -> Result<(), Errno> {
        file::ensure_len(self.fd.0, &self.len, len)
    }

    fn settle(&self) -> Result<(), Errno> {
        Ok(())
    }

    fn drop_cache(&self) {}

    fn mapping_fd(&self, _: u64) -> i32 {
        self.fd.0
    }
}
