//! What is left when all has run, and how much of the job's budget that is.

use std::io;
use std::sync::Arc;

use bdrun_graph::TaskId;
use bdrun_graph::run::Lend;
use bdrun_worker::World;
use hashbrown::HashMap;

use crate::desk::Kept;
use crate::memory::Memory;
use crate::room::{Extent, PAGE};
use crate::wire::Bytes;

/// Bytes of the job's budget, as long as they are counted.
pub(crate) struct Counted<'a> {
    world: Option<&'a World>,
    pub bytes: u64,
}

impl<'a> Counted<'a> {
    pub fn new(world: Option<&'a World>, bytes: u64) -> Result<Self, bdrun_worker::Error> {
        if let Some(world) = world {
            world.set_aside(bytes)?;
        }
        Ok(Self { world, bytes })
    }

    /// So many of them are not counted any more.
    fn less(&mut self, bytes: u64) {
        let bytes = bytes.min(self.bytes);
        self.bytes -= bytes;
        if let Some(world) = self.world {
            world.give_back(bytes);
        }
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.less(self.bytes);
    }
}

/// What ranks share, on rank 0, and what of the budget is counted for it.
pub(crate) struct Shared<'a> {
    pub memory: Arc<Memory>,
    pub counted: Counted<'a>,
    /// Somebody may read or write there.
    is_used: bool,
}

impl<'a> Shared<'a> {
    pub fn new(memory: Memory, counted: Counted<'a>) -> Self {
        Self { memory: Arc::new(memory), counted, is_used: true }
    }

    /// All have answered, and nobody has kept what he was given.
    pub fn is_used_no_more(&mut self) {
        self.is_used = false;
    }

    /// Gives back what does not lie at these places.
    fn keep_only(&mut self, mut places: Vec<Extent>) -> io::Result<()> {
        places.sort_unstable_by_key(|place| place.at);
        let (mut from, mut kept) = (0, 0);
        for place in places {
            self.punch(from, place.at)?;
            let len = place.len.next_multiple_of(PAGE);
            (from, kept) = (place.at + len, kept + len);
        }
        self.punch(from, self.memory.len())?;
        self.counted.less(self.counted.bytes.saturating_sub(kept));
        Ok(())
    }

    fn punch(&self, from: u64, to: u64) -> io::Result<()> {
        if from < to { self.memory.give_back(from, to - from) } else { Ok(()) }
    }
}

impl Drop for Shared<'_> {
    fn drop(&mut self) {
        // Before it is counted no more: others may have it mapped for long, as one that was moved out of RAM
        // while it waited, and does not hear of the end before there is room for it.
        if !self.is_used {
            _ = self.punch(0, self.memory.len());
        }
    }
}

/// What is left when all has run, on rank 0. Of the job's budget only what lies in shared memory of it is
/// counted: pages of results that are kept and were not taken.
pub struct Outcome<'a> {
    pub(crate) shared: Shared<'a>,
    kept: HashMap<TaskId, Kept>,
    /// Bytes of results and work that were live at most.
    pub peak: u64,
}

impl std::fmt::Debug for Outcome<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} results, {} bytes at most", self.kept.len(), self.peak)
    }
}

impl<'a> Outcome<'a> {
    pub(crate) fn new(mut shared: Shared<'a>, kept: HashMap<TaskId, Kept>, peak: u64) -> Self {
        let lies = |kept: &Kept| match (kept.scratch, &kept.bytes) {
            (None, &Bytes::Lie { at, len }) => Some(Extent { at, len }),
            _ => None,
        };
        // What cannot be given back stays counted.
        _ = shared.keep_only(kept.values().filter_map(lies).collect());
        Self { shared, kept, peak }
    }

    /// A result that is kept, copied from shared memory, or from scratch if it is there. None if it was
    /// taken, or is not kept.
    ///
    /// # Errors
    /// If it cannot be read, or there is no memory for it.
    pub fn take<V: Lend>(&mut self, task: TaskId) -> io::Result<Option<V>> {
        let Some(kept) = self.kept.get(&task) else { return Ok(None) };
        let memory = &self.shared.memory;
        let head = V::decode(&kept.head)?;
        let len = kept.bytes.len();
        let mut done = 0;
        let value = V::restore(&head, len as usize, &mut |into| {
            if done + into.len() as u64 > len {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            match (&kept.scratch, &kept.bytes) {
                (Some(from), _) => memory.read_told(from + done, into)?,
                (None, Bytes::Told(bytes)) => into.copy_from_slice(&bytes[done as usize..][..into.len()]),
                (None, Bytes::Lie { at, .. }) => memory.get(at + done, into)?,
            }
            done += into.len() as u64;
            Ok(())
        })?;
        if let Some(Kept { scratch: None, bytes: Bytes::Lie { at, len }, .. }) = self.kept.remove(&task) {
            let len = len.next_multiple_of(PAGE);
            self.shared.memory.give_back(at, len)?;
            self.shared.counted.less(len);
        }
        Ok(Some(value))
    }
}
