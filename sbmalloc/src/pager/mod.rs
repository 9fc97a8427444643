//! The pager: moves the arenas of a process out to their scratch files, and in again.
//!
//! It runs on the thread that calls it, typically the one that waits in the runtime's library; the other
//! threads of the process are parked meanwhile (`threads`). Nothing in here allocates, and
//! nothing takes a lock of the allocators, so it may run inside [`Account::charge`](crate::Account::charge),
//! whatever the parked threads were doing.
//!
//! `plan` decides (pure, no system calls), `own` carries out for the calling process, with `out` and `back`
//! for the transfers of an evict and a restore; `pagemap` tells which pages are there.

mod back;
mod out;
mod own;
mod pagemap;
mod plan;

use crate::lock::{Guard, Lock};
use crate::set::{ArenaSet, PROCESS};
use crate::sys::Errno;
use crate::threads::ParkError;
use std::ops::AddAssign;

/// What an evict or a restore did, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Moved {
    /// Written to or read from scratch files.
    pub bytes: u64,
    /// RAM given back by an evict (pages that were present), or taken by a restore.
    pub freed_or_filled: u64,
    /// Compared or verified by checksum.
    pub scanned: u64,
    /// Given back by punching holes into scratch files.
    pub punched: u64,
}

impl AddAssign for Moved {
    fn add_assign(&mut self, other: Self) {
        self.bytes += other.bytes;
        self.freed_or_filled += other.freed_or_filled;
        self.scanned += other.scanned;
        self.punched += other.punched;
    }
}

/// Why memory could not be moved. Carries no heap, so that it can be made while there is none to be had.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PagerError {
    /// The scratch directory is full (or over quota). Everything is resident and intact.
    #[error(
        "no space left in the scratch directory {dir}: up to {needed} more bytes are needed; \
             free some, or name another directory with BDRUN_SCRATCH"
    )]
    NoSpace {
        /// Upper bound of the bytes that were still to be written when it filled up.
        needed: u64,
        /// The scratch directory.
        dir: &'static str,
    },
    /// A system call failed.
    #[error("cannot {op} (offset {offset}): {errno}")]
    Io {
        /// What was attempted.
        op: &'static str,
        /// Byte offset in the arena and its scratch file.
        offset: u64,
        /// The system's error.
        errno: Errno,
    },
    /// A block read back does not match its checksum: the scratch file was damaged. The block and those after
    /// it are still evicted; nothing computed from them can be trusted.
    #[error("a block of the scratch file at offset {offset} was damaged: its checksum does not match")]
    Corrupt {
        /// Byte offset of the block in its scratch file.
        offset: u64,
    },
    /// Another thread could not be stopped within 100 ms: it blocks signals, or sits in a system call that
    /// cannot be interrupted. Nothing was changed.
    #[error("thread {tid} could not be stopped; its signals may be blocked")]
    ThreadsBusy {
        /// One of the threads.
        tid: i32,
    },
}

impl PagerError {
    pub(crate) fn io(op: &'static str, offset: usize, errno: Errno) -> Self {
        Self::Io { op, offset: offset as u64, errno }
    }
}

impl From<ParkError> for PagerError {
    fn from(e: ParkError) -> Self {
        match e {
            ParkError::Busy(tid) => Self::ThreadsBusy { tid },
            ParkError::System(op, errno) => Self::Io { op, offset: 0, errno },
        }
    }
}

/// Held while memory is moved, and while an arena leaves its set. A thread waiting for it can be parked.
static PAGER: Lock<own::Buffers> = Lock::new(own::Buffers::new());

/// Keeps the pager out until dropped.
pub(crate) fn exclude() -> Guard<'static, own::Buffers> {
    PAGER.lock()
}

/// Moves every arena of the process out of RAM. What is out already stays out.
///
/// The memory stays legal to touch: it is then read from the scratch file page by page, and what is written
/// to it, by threads or by system calls, is kept. Costs what was touched since the last time, not what is held.
///
/// # Errors
/// See [`PagerError`]. On any, what was resident is resident and intact.
pub fn evict() -> Result<Moved, PagerError> {
    PROCESS.evict()
}

/// Moves every arena of the process back into RAM. After it nothing maps the scratch files.
///
/// # Errors
/// See [`PagerError`]. What could not be restored is still evicted and legal to touch, and the call can be repeated.
pub fn restore() -> Result<Moved, PagerError> {
    PROCESS.restore()
}

/// Whether any arena of the process is out, wholly or in part.
pub fn is_evicted() -> bool {
    PROCESS.is_evicted()
}

pub(crate) fn evict_set(set: &'static ArenaSet) -> Result<Moved, PagerError> {
    own::Session::begin(&PAGER)?.evict(set)
}

pub(crate) fn restore_set(set: &'static ArenaSet) -> Result<Moved, PagerError> {
    own::Session::begin(&PAGER)?.restore(set)
}

/// Keeps the pager out over a fork.
///
/// # Safety
/// Let go only by the thread that took it, or in its child.
pub(crate) unsafe fn hold(hold: bool) {
    match hold {
        true => PAGER.hold(),
        // SAFETY: the caller's.
        false => unsafe { PAGER.unlock() },
    }
}
