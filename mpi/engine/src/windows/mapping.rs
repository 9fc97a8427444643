//! Memory that processes of a node share.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr;

/// Memory that is mapped until it is dropped. What is in it other processes may write at any time.
#[derive(Debug)]
pub struct Mapping {
    at: *mut u8,
    len: usize,
}

// SAFETY: it is only the right to unmap it; who reads or writes it says why that is right.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

/// By which another process finds it, as long as the file is open here.
#[derive(Debug)]
pub struct Open {
    file: OwnedFd,
}

impl Open {
    /// The number of this process, and of the file in it.
    pub fn said(&self) -> [i64; 2] {
        [std::process::id().into(), self.file.as_raw_fd().into()]
    }
}

impl Mapping {
    /// So many bytes of zeros.
    pub fn make(len: usize) -> io::Result<(Self, Open)> {
        // SAFETY: the name ends.
        let file = unsafe { libc::memfd_create(c"bdrun-mpi-window".as_ptr(), libc::MFD_CLOEXEC) };
        if file < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: it was just opened, and is nobody else's.
        let file = unsafe { OwnedFd::from_raw_fd(file) };
        let size = libc::off_t::try_from(len.max(1)).map_err(|_| io::ErrorKind::OutOfMemory)?;
        // SAFETY: a file of ours.
        if unsafe { libc::ftruncate(file.as_raw_fd(), size) } != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok((Self::of(&file, len)?, Open { file }))
    }

    /// What another process has made.
    pub fn open([process, file]: [i64; 2], len: usize) -> io::Result<Self> {
        let path = CString::new(format!("/proc/{process}/fd/{file}"))?;
        // SAFETY: the path ends.
        let file = unsafe { libc::open(path.as_ptr(), libc::O_RDWR | libc::O_CLOEXEC) };
        if file < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: it was just opened, and is nobody else's.
        Self::of(&unsafe { OwnedFd::from_raw_fd(file) }, len)
    }

    fn of(file: &OwnedFd, len: usize) -> io::Result<Self> {
        let (rights, len) = (libc::PROT_READ | libc::PROT_WRITE, len.max(1));
        // SAFETY: a new mapping, at a place that the kernel chooses.
        let at = unsafe { libc::mmap(ptr::null_mut(), len, rights, libc::MAP_SHARED, file.as_raw_fd(), 0) };
        if at == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Self { at: at.cast(), len })
    }

    /// Where it is.
    pub const fn at(&self) -> *mut u8 {
        self.at
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped by us, and used by nobody any more.
        unsafe { libc::munmap(self.at.cast(), self.len) };
    }
}
