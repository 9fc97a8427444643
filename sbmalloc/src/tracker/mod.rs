//! Which granules may have been written since they were last in step with the file, behind a trait.
//!
//! Every tracker is coarse (2 MiB); the blocks of a granule that may be dirty are always told apart by their
//! checksums, which are needed anyway. A tracker may call a clean granule dirty, never the reverse.

mod hash;
mod mprotect;

use crate::arena::Inner;
use crate::sys::{Errno, GRANULE};
use std::ops::Range;
use std::sync::atomic::Ordering;

/// Which tracker an arena uses.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum TrackerKind {
    /// None: every present block is compared by checksum. Sees every writer, the kernel included.
    #[default]
    Hash,
    /// Read-only granules after a restore and a `SIGSEGV` handler. Cheapest when little is written, but a
    /// system call that writes into a protected granule fails with `EFAULT`: only for explicit arenas whose
    /// memory is never handed to the kernel.
    Mprotect,
}

impl TrackerKind {
    pub(crate) fn tracker(self) -> &'static dyn Tracker {
        match self {
            Self::Hash => &hash::Hash,
            Self::Mprotect => &mprotect::Mprotect,
        }
    }
}

/// Not armed: nothing is known, the granule counts as dirty.
pub(crate) const UNKNOWN: u8 = 0;
/// In step with the file.
pub(crate) const CLEAN: u8 = 1;

pub(crate) trait Tracker: Sync {
    /// Called once when an arena comes to life.
    fn attach(&self, arena: &Inner) -> Result<(), Errno>;

    /// Called once before an arena's memory goes.
    fn detach(&self, arena: &Inner);

    /// The byte range, whole granules, was just restored and is in step with the file. Other threads are parked.
    fn arm(&self, arena: &Inner, start: usize, len: usize) -> Result<(), Errno>;

    /// The byte range may be changed without the tracker's seeing it (discarded, or merged from copies).
    fn note(&self, arena: &Inner, start: usize, len: usize);

    /// The pager is about to ask about granules of the byte range: a tracker whose knowledge lies with the
    /// kernel fetches it now. Other threads are parked.
    fn collect(&self, _arena: &Inner, _range: Range<usize>) {}

    /// Whether granule `g` may differ from the file.
    fn may_be_dirty(&self, arena: &Inner, g: usize) -> bool;
}

fn mark(arena: &Inner, start: usize, len: usize, state: u8) {
    for g in start / GRANULE..(start + len).div_ceil(GRANULE) {
        arena.granule(g).store(state, Ordering::Release);
    }
}
