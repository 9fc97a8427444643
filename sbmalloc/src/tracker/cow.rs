//! Pages that the kernel copied: what is restored stays mapped from the file, privately, and a page that was
//! written is a copy of its own, which `/proc/self/pagemap` tells. Works with any kernel and for every writer.
//!
//! So it is that the pager sees what becomes of memory that is out in any case. This tracker only makes it
//! restore by populating that mapping (`pager::populate`) instead of reading into memory beside; for
//! memory that was never out, there is nothing to know.

use super::Tracker;

/// Restores by mapping.
pub(super) struct Cow;

impl Tracker for Cow {
    fn restores_by_mapping(&self) -> bool {
        true
    }
}
