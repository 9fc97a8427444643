//! Which blocks may have been written since they were last in step with the file, behind a trait.
//!
//! A tracker only says what need not be looked at: the blocks that may be dirty are always told apart by their
//! checksums, which are needed anyway. A tracker may call a clean block dirty, never the reverse.

mod choose;
mod cow;
mod hash;
mod mprotect;
mod uffd;
mod word;

pub(crate) use choose::from_environment;
pub use choose::{Costs, TrackerChoice, measure_trackers};
pub(crate) use mprotect::install_handler;

use crate::arena::Inner;
use crate::sys::{Errno, GRANULE};
use std::ops::Range;
use std::sync::atomic::Ordering;

/// Which tracker an arena uses.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum TrackerKind {
    /// [`Uffd`](Self::Uffd) for the granules where it pays, by what was seen in them before and by what a few
    /// milliseconds of measurement (or `BDRUN_TRACKER`) say that this machine takes; [`Hash`](Self::Hash) for
    /// the others, and where the kernel cannot do it.
    #[default]
    Auto,
    /// None: every present block is compared by checksum. Sees every writer, the kernel included.
    Hash,
    /// Read-only granules after a restore and a `SIGSEGV` handler. Cheapest when little is written, but a
    /// system call that writes into a protected granule fails with `EFAULT`: only for explicit arenas whose
    /// memory is never handed to the kernel.
    Mprotect,
    /// The kernel's asynchronous write protection and `PAGEMAP_SCAN` (Linux 6.7): exact to the page, system
    /// calls may write. The first write to a page costs a fault, and that to a huge page splits its mapping.
    Uffd,
    /// Restores by mapping: memory comes in through the page cache and stays mapped from the file, a page that is
    /// written becomes a copy of its own. Any kernel, any writer; but pages of 4 KiB, no huge ones.
    Cow,
}

impl TrackerKind {
    pub(crate) fn tracker(self) -> &'static dyn Tracker {
        match self {
            Self::Auto => &uffd::Uffd { selective: true },
            Self::Hash => &hash::Hash,
            Self::Mprotect => &mprotect::Mprotect,
            Self::Uffd => &uffd::Uffd { selective: false },
            Self::Cow => &cow::Cow,
        }
    }
}

/// Not armed: nothing is known, the granule counts as dirty.
pub(crate) const UNKNOWN: u8 = 0;
/// In step with the file.
pub(crate) const CLEAN: u8 = 1;

/// What a tracker does not say for itself is what one does that knows nothing: everything may be dirty.
pub(crate) trait Tracker: Sync {
    /// Called once when an arena comes to life.
    fn attach(&self, _arena: &Inner) -> Result<(), Errno> {
        Ok(())
    }

    /// Called once before an arena's memory goes.
    fn detach(&self, _arena: &Inner) {}

    /// The byte range, whole granules, was just restored and is in step with the file. Other threads are parked.
    fn arm(&self, _arena: &Inner, _start: usize, _len: usize) -> Result<(), Errno> {
        Ok(())
    }

    /// The byte range may be changed without the tracker's seeing it (discarded, or merged from copies).
    fn note(&self, _arena: &Inner, _start: usize, _len: usize) {}

    /// The pager is about to ask about granules of the byte range: a tracker whose knowledge lies with the
    /// kernel fetches it now. Other threads are parked.
    fn collect(&self, _arena: &Inner, _range: Range<usize>) {}

    /// Whether granule `g` may differ from the file.
    fn may_be_dirty(&self, _arena: &Inner, _g: usize) -> bool {
        true
    }

    /// Whether block `i` may, if its granule may.
    fn block_may_be_dirty(&self, _arena: &Inner, _i: usize) -> bool {
        true
    }

    /// Whether a restore leaves the file mapped.
    fn restores_by_mapping(&self) -> bool {
        false
    }
}

/// Takes or lets go of the locks of trackers, over a fork.
///
/// # Safety
/// As for the locks.
pub(crate) unsafe fn hold(hold: bool) {
    // SAFETY: the caller's. Neither is taken while the other is held.
    unsafe {
        uffd::hold(hold);
        mprotect::hold(hold);
    }
}

fn mark(arena: &Inner, start: usize, len: usize, state: u8) {
    for g in start / GRANULE..(start + len).div_ceil(GRANULE) {
        arena.granule(g).store(state, Ordering::Release);
    }
}
