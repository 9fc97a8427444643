//! The few system calls the crate makes, as thin functions that never allocate.

use std::fmt;

/// Bytes of a page, the unit of charging.
pub const PAGE: usize = 4096;
/// Bytes of a block: the unit of arena space, of dirty tracking and of checksums.
pub const CHUNK: usize = 64 << 10;
/// Bytes of a granule: the unit of mappings and of huge pages.
pub const GRANULE: usize = 2 << 20;

/// An operating system error number; prints as the system's text for it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Errno(pub i32);

impl Errno {
    /// The error of the system call that just failed on this thread.
    pub fn last() -> Self {
        // SAFETY: errno is a thread-local integer that always exists.
        Self(unsafe { *libc::__errno_location() })
    }

    /// The system or the process has too little of something now: descriptors, memory.
    pub fn is_passing(self) -> bool {
        matches!(self.0, libc::EMFILE | libc::ENFILE | libc::ENOMEM | libc::EAGAIN | libc::EINTR)
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        std::io::Error::from_raw_os_error(self.0).fmt(f)
    }
}

impl fmt::Debug for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

pub(crate) const fn round_up(n: usize, unit: usize) -> usize {
    n.div_ceil(unit) * unit
}

/// Bytes of RAM of this machine; 0 if that is not told.
pub(crate) fn memory() -> usize {
    // SAFETY: numbers only, which the kernel writes.
    let mut info: libc::sysinfo = unsafe { std::mem::zeroed() };
    // SAFETY: a plain system call that writes to a local.
    let told = unsafe { libc::sysinfo(&raw mut info) } == 0;
    if told { (info.totalram as usize).saturating_mul(info.mem_unit as usize) } else { 0 }
}

const ANON: libc::c_int = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
pub(crate) const RW: libc::c_int = libc::PROT_READ | libc::PROT_WRITE;

// Memory is mapped by bare system calls: where this crate is preloaded (`libsbmalloc.so`), the functions of
// these names are the program's, and are served from arenas themselves.

fn check(result: libc::c_long) -> Result<usize, Errno> {
    if result == -1 { Err(Errno::last()) } else { Ok(result as usize) }
}

/// `mmap` without an address if `at` is 0, else over what is there.
///
/// # Safety
/// With an address: the range belongs to the caller.
unsafe fn map(at: usize, len: usize, flags: libc::c_int, fd: i32, offset: u64) -> Result<usize, Errno> {
    let fixed = if at == 0 { 0 } else { libc::MAP_FIXED };
    // SAFETY: this function's contract; without an address nothing is replaced.
    check(unsafe { libc::syscall(libc::SYS_mmap, at, len, RW, flags | fixed, fd, offset) })
}

/// Fresh zero memory of `len` bytes whose address is a multiple of `align`.
pub(crate) fn map_anon_aligned(len: usize, align: usize) -> Result<usize, Errno> {
    let wide = len + align - PAGE;
    // SAFETY: a new private mapping at an address the kernel chooses replaces nothing.
    let at = unsafe { map(0, wide, ANON, -1, 0) }?;
    let start = round_up(at, align);
    unmap(at, start - at);
    unmap(start + len, at + wide - start - len);
    Ok(start)
}

/// Replaces `[at, at+len)` by fresh zero memory. The range must belong to the caller.
pub(crate) fn map_anon_over(at: usize, len: usize) -> Result<(), Errno> {
    // SAFETY: callers pass ranges of their own reservation only.
    unsafe { map(at, len, ANON, -1, 0) }.map(drop)
}

/// Replaces `[at, at+len)` by memory that nobody may touch. The range must belong to the caller.
pub(crate) fn map_none_over(at: usize, len: usize) -> Result<(), Errno> {
    let flags = ANON | libc::MAP_FIXED;
    // SAFETY: callers pass ranges of their own reservation only.
    check(unsafe { libc::syscall(libc::SYS_mmap, at, len, libc::PROT_NONE, flags, -1, 0) }).map(drop)
}

/// Replaces `[at, at+len)` by a private mapping of `fd` at `offset`. The range must belong to the caller.
pub(crate) fn map_file_over(at: usize, len: usize, fd: i32, offset: u64) -> Result<(), Errno> {
    let flags = libc::MAP_PRIVATE | libc::MAP_NORESERVE;
    // SAFETY: callers pass ranges of their own reservation, whose content `fd` holds at `offset`.
    unsafe { map(at, len, flags, fd, offset) }.map(drop)
}

/// Moves the mapping `[from, from+len)` over `[to, to+len)`; both must belong to the caller.
pub(crate) fn move_over(from: usize, to: usize, len: usize) -> Result<(), Errno> {
    let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
    // SAFETY: both ranges are the caller's, and nothing refers to `from` any more.
    check(unsafe { libc::syscall(libc::SYS_mremap, from, len, len, flags, to) }).map(drop)
}

pub(crate) fn unmap(at: usize, len: usize) {
    if len > 0 {
        // SAFETY: callers pass ranges of their own mappings that nothing refers to any more.
        unsafe { libc::syscall(libc::SYS_munmap, at, len) };
    }
}

pub(crate) fn advise(at: usize, len: usize, advice: libc::c_int) -> Result<(), Errno> {
    // SAFETY: callers pass ranges of their own mappings; DONTNEED is used only on memory given back.
    check(unsafe { libc::syscall(libc::SYS_madvise, at, len, advice) }).map(drop)
}

/// Pauses the thread. Like all here a system call, not the C library's function, which the preloaded library
/// makes a scheduling point: whoever moves memory must not begin to move it once more.
pub(crate) fn pause(nanoseconds: i64) {
    let pause = libc::timespec { tv_sec: 0, tv_nsec: nanoseconds };
    // SAFETY: reads one timespec.
    unsafe { libc::syscall(libc::SYS_nanosleep, &raw const pause, 0) };
}

/// Writes to standard error, as far as that goes.
pub(crate) fn say(text: &[u8]) {
    // SAFETY: reads the text.
    unsafe { libc::syscall(libc::SYS_write, libc::STDERR_FILENO, text.as_ptr(), text.len()) };
}

pub(crate) fn set_protection(at: usize, len: usize, protection: libc::c_int) -> Result<(), Errno> {
    // SAFETY: callers pass ranges of their own reservation; who takes a right away gives it back before it is
    // needed.
    check(unsafe { libc::syscall(libc::SYS_mprotect, at, len, protection) }).map(drop)
}

/// The least numbers of descriptors that stay open.
const NUMBERS: [i32; 5] = [200, 100, 50, 25, 10];

/// A file descriptor closed on drop; opening and reading it never allocates.
pub(crate) struct Fd(pub i32);

impl Fd {
    pub fn open(path: &std::ffi::CStr, flags: i32) -> Result<Self, Errno> {
        loop {
            // SAFETY: `path` is a terminated string.
            let fd = unsafe { libc::open(path.as_ptr(), flags | libc::O_CLOEXEC, 0o600) };
            if fd >= 0 {
                return Ok(Self(fd));
            }
            if Errno::last().0 != libc::EINTR {
                return Err(Errno::last());
            }
        }
    }

    /// The same at a high number, if there is room: programs put files of their own at low ones, whatever is
    /// there (`exec 3<>file`, `dup2`), and close some that they have not opened.
    pub fn out_of_the_way(self) -> Self {
        let high = NUMBERS.iter().find_map(|&least| {
            // SAFETY: makes a new descriptor of ours.
            let fd = unsafe { libc::fcntl(self.0, libc::F_DUPFD_CLOEXEC, least) };
            (fd >= 0).then(|| Self(fd))
        });
        high.unwrap_or(self)
    }

    /// The reading and the writing end of a pipe.
    pub fn pipe() -> Result<(Self, Self), Errno> {
        let mut ends = [0; 2];
        // SAFETY: the kernel writes two numbers.
        match unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) } {
            0 => Ok((Self(ends[0]), Self(ends[1]))),
            _ => Err(Errno::last()),
        }
    }

    /// Of a pipe: returns when nobody can write to it any more.
    pub fn wait_for_end(&self) {
        while self.read(&mut [0]).is_ok_and(|n| n > 0) {}
    }

    /// Reads up to `buf.len()` bytes; retries interrupted calls.
    pub fn read(&self, buf: &mut [u8]) -> Result<usize, Errno> {
        loop {
            // SAFETY: `buf` is writable for its length.
            let n = unsafe { libc::syscall(libc::SYS_read, self.0, buf.as_mut_ptr(), buf.len()) };
            match usize::try_from(n) {
                Ok(n) => return Ok(n),
                Err(_) if Errno::last().0 == libc::EINTR => {}
                Err(_) => return Err(Errno::last()),
            }
        }
    }

    /// Reads up to `buf.len()` bytes at `offset`; retries interrupted calls.
    pub fn pread(&self, buf: &mut [u8], offset: u64) -> Result<usize, Errno> {
        loop {
            // SAFETY: `buf` is writable for its length.
            let n = unsafe { libc::pread(self.0, buf.as_mut_ptr().cast(), buf.len(), offset as i64) };
            if n >= 0 {
                return Ok(n as usize);
            }
            if Errno::last().0 != libc::EINTR {
                return Err(Errno::last());
            }
        }
    }
}

impl Drop for Fd {
    fn drop(&mut self) {
        // SAFETY: the descriptor is ours and is not used afterwards.
        unsafe { libc::close(self.0) };
    }
}

/// A C string assembled in place, for paths under /proc and the scratch directory.
pub(crate) struct PathBuf<const N: usize> {
    bytes: [u8; N],
    len: usize,
}

impl<const N: usize> PathBuf<N> {
    pub const fn new() -> Self {
        Self { bytes: [0; N], len: 0 }
    }

    /// Appends `part`; what does not fit is cut, which makes the later open fail, not overrun.
    pub fn push(&mut self, part: &[u8]) -> &mut Self {
        let n = part.len().min(N - 1 - self.len);
        self.bytes[self.len..self.len + n].copy_from_slice(&part[..n]);
        self.len += n;
        self
    }

    pub fn push_number(&mut self, mut n: u64) -> &mut Self {
        let mut digits = [0u8; 20];
        let mut at = digits.len();
        loop {
            at -= 1;
            digits[at] = b'0' + (n % 10) as u8;
            n /= 10;
            if n == 0 {
                break;
            }
        }
        self.push(&digits[at..])
    }

    pub fn as_cstr(&self) -> &std::ffi::CStr {
        std::ffi::CStr::from_bytes_until_nul(&self.bytes).unwrap_or(c"")
    }
}
