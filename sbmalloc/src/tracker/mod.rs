//! Which blocks may have been written since they were last in step with the file, behind a trait.
//!
//! A tracker only says what need not be looked at: the blocks that may be dirty are always told apart by
//! their checksums, which are needed anyway. A tracker may call a clean block dirty, never the reverse.

mod choose;
mod hash;
mod uffd;
mod word;

pub use choose::{Costs, TrackerChoice, measure_trackers};

use crate::arena::Inner;
use crate::sys::Errno;
use std::ops::Range;

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
    /// The kernel's asynchronous write protection and `PAGEMAP_SCAN` (Linux 6.7): exact to the page, system
    /// calls may write. The first write to a page costs a fault, and that to a huge page splits its mapping.
    Uffd,
}

impl TrackerKind {
    pub(crate) fn tracker(self) -> &'static dyn Tracker {
        match self {
            Self::Auto => &uffd::Uffd { selective: true },
            Self::Hash => &hash::Hash,
            Self::Uffd => &uffd::Uffd { selective: false },
        }
    }
}

/// What a tracker does not say for itself is what one does that knows nothing: everything may be dirty.
pub(crate) trait Tracker: Sync {
    /// Called once when an arena comes to life.
    fn attach(&self, _arena: &Inner) -> Result<(), Errno> {
        Ok(())
    }

    /// The byte range, whole granules, was just restored and is in step with the file. Other threads are
    /// parked.
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
}

/// Takes or lets go of the lock of the trackers, over a fork.
///
/// # Safety
/// As for the lock.
pub(crate) unsafe fn hold(hold: bool) {
    // SAFETY: the caller's.
    unsafe { uffd::hold(hold) };
}
