//! Frames from the kernel: private anonymous memory.

use super::FrameSource;
use crate::sys::{self, Errno, GRANULE};

/// Private anonymous memory.
pub(crate) struct Anon;

impl FrameSource for Anon {
    fn stage(&self, len: usize, huge: bool) -> Result<usize, Errno> {
        // The arena's base is a multiple of 2 MiB too: only at the same phase does mremap keep huge pages.
        let at = sys::map_anon_aligned(len, GRANULE)?;
        let advice = if huge { libc::MADV_HUGEPAGE } else { libc::MADV_NOHUGEPAGE };
        // A kernel without huge pages says EINVAL; small ones do.
        let _ = sys::advise(at, len, advice);
        Ok(at)
    }

    fn publish(&self, staged: usize, target: usize, len: usize) -> Result<(), Errno> {
        sys::move_over(staged, target, len)
    }

    fn abandon(&self, staged: usize, len: usize) {
        sys::unmap(staged, len);
    }
}
