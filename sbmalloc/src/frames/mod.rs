//! Where the memory of a restored range comes from, behind a trait.

mod anon;

pub(crate) use anon::Anon;

use crate::sys::Errno;

/// Which frames an arena is restored into.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum FrameKind {
    /// Private anonymous memory: right for any program.
    #[default]
    Anon,
}

impl FrameKind {
    pub(crate) fn source(self) -> &'static dyn FrameSource {
        match self {
            Self::Anon => &Anon,
        }
    }
}

/// A source of frames. A range is filled beside (*staged*) and then moved over its place in one step, so that
/// whoever reads the place meanwhile sees the file's bytes or the new ones, never zeros.
pub(crate) trait FrameSource: Sync {
    /// Zero memory of `len` bytes, a multiple of 2 MiB and aligned to it; huge pages if asked.
    fn stage(&self, len: usize, huge: bool) -> Result<usize, Errno>;

    /// Moves `[staged, staged+len)`, all or whole granules of what was staged, over `[target, target+len)`. On failure both are as before.
    fn publish(&self, staged: usize, target: usize, len: usize) -> Result<(), Errno>;

    /// Gives a staged range, or what of its end was not published, back unused.
    fn abandon(&self, staged: usize, len: usize);
}
