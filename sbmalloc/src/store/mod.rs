//! Where evicted blocks are kept: a scratch file per arena and directory, behind a trait.

mod file;
mod memory;
mod queue;
mod striped;

pub(crate) use file::Mode;
pub(crate) use memory::MemoryStore;
pub(crate) use queue::{Direction, Landed, Queue, Transfer, ring};
pub(crate) use striped::Striped;

use crate::config;
use crate::sys::Errno;
use std::ffi::CStr;

/// A scratch file, or several as one. No method may allocate or touch an arena except through the buffers it
/// is given.
///
/// Block *i* of the arena lies at byte offset `i * 64 KiB`. Offsets, lengths and addresses are multiples of
/// 4 KiB except after a short transfer by a store that makes such.
///
/// # Safety
/// What was written reads back the same until it is written again, and a descriptor that a method hands out
/// stays that file's: it is mapped over live memory, which would else change under references to it.
pub unsafe trait Store: Sync {
    /// Writes the `len` bytes at `from`; may write fewer. Returns the bytes written.
    ///
    /// # Errors
    /// The error number; `EINTR` and `EAGAIN` are retried by the caller, for a second.
    ///
    /// # Safety
    /// `from` is readable for `len` bytes.
    unsafe fn write_at(&self, offset: u64, from: *const u8, len: usize) -> Result<usize, Errno>;

    /// Reads up to `len` bytes to `to`. Returns the bytes read, 0 at the end of the file.
    ///
    /// # Errors
    /// The error number; `EINTR` and `EAGAIN` are retried by the caller, for a second.
    ///
    /// # Safety
    /// `to` is writable for `len` bytes.
    unsafe fn read_at(&self, offset: u64, to: *mut u8, len: usize) -> Result<usize, Errno>;

    /// Makes a range read as zeros without writing or reading it from then on; gives its space back where
    /// that pays.
    ///
    /// # Errors
    /// The error number; the caller writes zeros instead, or keeps the range marked stale.
    fn punch(&self, offset: u64, len: u64) -> Result<(), Errno>;

    /// The disk is full: gives back the space that [`punch`](Self::punch) kept, in these ranges (offset,
    /// length), which read as zeros. Whether there may have been any.
    fn give_back(&self, _zeros: &mut dyn Iterator<Item = (u64, u64)>) -> bool {
        false
    }

    /// Makes the file at least `len` bytes long, sparse.
    ///
    /// # Errors
    /// The error number.
    fn ensure_len(&self, len: u64) -> Result<(), Errno>;

    /// After the last write of an evict: writes have reached the device's queue and occupy no RAM.
    ///
    /// # Errors
    /// The error number of any write that failed behind our back.
    fn settle(&self) -> Result<(), Errno>;

    /// After a restore, when nothing maps the file: drops what the kernel cached of it.
    fn drop_cache(&self);

    /// Where the file that holds byte `offset` is followed by another: no transfer or mapping that begins at
    /// `offset` goes beyond. A multiple of 2 MiB.
    fn piece_end(&self, _offset: u64) -> u64 {
        u64::MAX
    }

    /// The descriptor to map while evicted, at the same offset, up to [`piece_end`](Self::piece_end).
    fn mapping_fd(&self, offset: u64) -> i32;

    /// The directory, for the report of a full one: of byte `offset`, or if that is not known of the last
    /// failure.
    fn directory(&self, _offset: Option<u64>) -> &'static CStr {
        config::scratch_dir(0)
    }

    /// The descriptor through which the pager may run several transfers beside its own work, by the kernel's
    /// asynchronous I/O, instead of calling [`write_at`](Self::write_at) and [`read_at`](Self::read_at), from
    /// byte `offset` to [`piece_end`](Self::piece_end). `None` where the kernel would make them one after the
    /// other anyway; then for every offset.
    fn async_fd(&self, _offset: u64) -> Option<i32> {
        None
    }

    /// Is told how such a transfer from byte `offset` ended, and says what the pager is to believe. Whatever
    /// is not all of it is finished by `write_at` or `read_at`.
    ///
    /// # Errors
    /// Those the kernel reported, or others.
    fn async_result(
        &self,
        _is_write: bool,
        _offset: u64,
        result: Result<usize, Errno>,
    ) -> Result<usize, Errno> {
        result
    }
}

/// Which store an arena uses.
#[derive(Clone, Copy, Default)]
pub enum StoreKind {
    /// Direct I/O with several transfers under way, or buffered where the file system refuses it.
    #[default]
    Auto,
    /// The same, one transfer at a time.
    Direct,
    /// Through the page cache.
    Buffered,
    /// A memfd: for tests, as it gives no RAM back.
    Memory,
    /// The caller's own, for example one that injects faults.
    Custom(&'static dyn Store),
}

impl std::fmt::Debug for StoreKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Auto => "Auto",
            Self::Direct => "Direct",
            Self::Buffered => "Buffered",
            Self::Memory => "Memory",
            Self::Custom(_) => "Custom",
        })
    }
}

/// An opened store, held inside the arena's own metadata so that opening one needs no heap.
pub(crate) enum Backing {
    Files(Striped),
    Memory(MemoryStore),
    Custom(&'static dyn Store),
}

impl Backing {
    pub fn open(kind: StoreKind) -> Result<Self, Errno> {
        Ok(match kind {
            StoreKind::Auto => Self::Files(Striped::open(Mode::Beside)?),
            StoreKind::Direct => Self::Files(Striped::open(Mode::Direct)?),
            StoreKind::Buffered => Self::Files(Striped::open(Mode::Buffered)?),
            StoreKind::Memory => Self::Memory(MemoryStore::open()?),
            StoreKind::Custom(store) => Self::Custom(store),
        })
    }

    pub fn as_store(&self) -> &dyn Store {
        match self {
            Self::Files(store) => store,
            Self::Memory(store) => store,
            Self::Custom(store) => *store,
        }
    }
}

/// What is left of the readiness to repeat a call that was interrupted or found something busy.
struct Patience(u32);

impl Patience {
    fn new() -> Self {
        Self(1000)
    }

    /// Whether the call is to be repeated after error `e`; if so, waits a millisecond.
    fn is_left(&mut self, e: Errno) -> bool {
        if !matches!(e.0, libc::EINTR | libc::EAGAIN) || self.0 == 0 {
            return false;
        }
        self.0 -= 1;
        crate::sys::pause(1_000_000);
        true
    }
}

/// Writes all of `[from, from+len)` at `offset`, through short writes and interruptions. On failure returns
/// the offset reached beside the error.
///
/// # Safety
/// `from` is readable for `len` bytes.
pub(crate) unsafe fn write_all(
    store: &dyn Store,
    offset: u64,
    from: *const u8,
    len: usize,
) -> Result<(), (u64, Errno)> {
    let (mut done, mut patience) = (0, Patience::new());
    while done < len {
        // SAFETY: `done < len`, so the rest is readable by this function's contract.
        match unsafe { store.write_at(offset + done as u64, from.add(done), len - done) } {
            // A device that accepts nothing and reports nothing is full in all but name.
            Ok(0) => return Err((offset + done as u64, Errno(libc::ENOSPC))),
            Ok(n) => (done, patience) = (done + n, Patience::new()),
            Err(e) if patience.is_left(e) => {}
            Err(e) => return Err((offset + done as u64, e)),
        }
    }
    Ok(())
}

/// Reads all of `[to, to+len)` from `offset`; the end of the file inside is an I/O error.
///
/// # Safety
/// `to` is writable for `len` bytes.
pub(crate) unsafe fn read_all(
    store: &dyn Store,
    offset: u64,
    to: *mut u8,
    len: usize,
) -> Result<(), (u64, Errno)> {
    let (mut done, mut patience) = (0, Patience::new());
    while done < len {
        // SAFETY: `done < len`, so the rest is writable by this function's contract.
        match unsafe { store.read_at(offset + done as u64, to.add(done), len - done) } {
            Ok(0) => return Err((offset + done as u64, Errno(libc::EIO))),
            Ok(n) => (done, patience) = (done + n, Patience::new()),
            Err(e) if patience.is_left(e) => {}
            Err(e) => return Err((offset + done as u64, e)),
        }
    }
    Ok(())
}
