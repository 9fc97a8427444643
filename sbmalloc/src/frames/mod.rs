//! Where the memory of a restored range comes from, behind a trait.

mod anon;
mod pool;
mod shared;

pub(crate) use anon::Anon;
pub(crate) use pool::hold;
pub(crate) use pool::{Pool, give_up, release};
pub use pool::{trim_frames, use_frames};
pub use shared::FramePool;

use crate::arena::Inner;
use crate::sys::{Errno, GRANULE};

/// Which frames an arena is restored into.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum FrameKind {
    /// Those of the pool that this process was handed ([`use_frames`]), if any; else private anonymous
    /// memory.
    #[default]
    Auto,
    /// Private anonymous memory: right for any program.
    Anon,
    /// Frames of 2 MiB of a memfd, shared by the processes of a job and used again and again: they need
    /// neither be zeroed nor faulted in. Without a master's, the process makes a pool of its own. Falls back
    /// to anonymous memory where there are no frames, and for good before the process forks.
    Pool,
}

impl FrameKind {
    pub(crate) fn source(self) -> &'static dyn FrameSource {
        match self {
            Self::Anon => &Anon,
            Self::Auto => pool::source(false),
            Self::Pool => pool::source(true),
        }
    }
}

/// Granules that can be staged together.
pub(crate) const MOST: usize = 32;

/// Memory to restore into, beside: so many granules, not all of it adjacent.
#[derive(Clone, Copy)]
pub(crate) struct Staging {
    base: usize,
    count: usize,
    /// The frames, if it is made of such; `base` is where frame 0 lies then.
    frames: Option<[u32; MOST]>,
}

impl Staging {
    /// Where granule `k` of it lies.
    pub fn at(&self, k: usize) -> usize {
        match &self.frames {
            None => self.base + k * GRANULE,
            Some(frames) => self.base + frames[k] as usize * GRANULE,
        }
    }

    /// Whether what was not read into it must be zeroed.
    pub fn is_used(&self) -> bool {
        self.frames.is_some()
    }

    /// Granules that lie side by side at most, and are published together.
    pub fn unit(&self) -> usize {
        if self.frames.is_some() { 1 } else { usize::MAX }
    }

    /// The source it came from.
    pub fn source(&self) -> &'static dyn FrameSource {
        if self.frames.is_some() { &Pool } else { &Anon }
    }
}

/// A source of frames. A range is filled beside (*staged*) and then moved over its place in one step, so that
/// whoever reads the place meanwhile sees the file's bytes or the new ones, never zeros.
pub(crate) trait FrameSource: Sync {
    /// Memory for `count` granules, at most [`MOST`]; huge pages if asked.
    fn stage(&self, count: usize, huge: bool) -> Result<Staging, Errno>;

    /// Moves granules `first..first + count` of the staging over those of the arena from `g` on. On failure
    /// both are as before.
    fn publish(
        &self,
        staging: &Staging,
        first: usize,
        arena: &Inner,
        g: usize,
        count: usize,
    ) -> Result<(), Errno>;

    /// Gives the granules of a staging from `first` on back unused.
    fn abandon(&self, staging: &Staging, first: usize);
}
