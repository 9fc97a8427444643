//! Frames from the kernel: private anonymous memory.

use super::{FrameSource, Staging};
use crate::arena::Inner;
use crate::sys::{self, Errno, GRANULE};

/// Private anonymous memory.
pub(crate) struct Anon;

impl FrameSource for Anon {
    fn stage(&self, count: usize, huge: bool) -> Result<Staging, Errno> {
        // The arena's base is a multiple of 2 MiB too: only at the same phase does mremap keep huge pages.
        let base = sys::map_anon_aligned(count * GRANULE, GRANULE)?;
        let advice = if huge { libc::MADV_HUGEPAGE } else { libc::MADV_NOHUGEPAGE };
        // A kernel without huge pages says EINVAL; small ones do.
        let _ = sys::advise(base, count * GRANULE, advice);
        Ok(Staging { base, count, frames: None })
    }

    fn publish(
        &self,
        staging: &Staging,
        first: usize,
        arena: &Inner,
        g: usize,
        count: usize,
    ) -> Result<(), Errno> {
        sys::move_over(staging.at(first), arena.base + g * GRANULE, count * GRANULE)
    }

    fn abandon(&self, staging: &Staging, first: usize) {
        sys::unmap(staging.at(first), (staging.count - first) * GRANULE);
    }
}
