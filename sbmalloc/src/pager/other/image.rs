//! What is out of a rank: a dense stream of pages in a scratch file, and where each belongs.

use super::error::OtherError;
use crate::config;
use crate::store::{Backing, Queue, Store, StoreKind};
use crate::sys::{self, Errno, GRANULE, PAGE};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Bytes of a chunk of the stream: what is transferred and checked as one.
pub(super) const CHUNK: usize = 1 << 20;
/// Chunks under way at most.
pub(super) const SLOTS: usize = 6;

/// Memory that a move takes for its buffers while it goes on, in bytes. The table of what is out takes 16 bytes more for
/// each stretch of adjacent pages and for each MiB, as long as it is out.
pub const MOVE_MEMORY: usize = SLOTS * CHUNK;

/// The pages were parts of huge ones.
pub(super) const HUGE: u64 = 1;
/// The memory cannot be written by calls that heed protection.
pub(super) const FORCED: u64 = 2;
/// The pages could not be dropped: they are still there.
pub(super) const KEPT: u64 = 4;

/// Adjacent pages of an address space that lie one behind the other in the stream.
#[derive(Debug, Clone, Copy)]
pub(super) struct Run {
    /// The address of the first, and flags in the bits below the size of a page.
    place: u64,
    pub pages: u32,
    /// The number of the address space.
    pub space: u32,
}

impl Run {
    pub fn new(space: usize, at: u64, flags: u64) -> Self {
        Self { place: at | flags, pages: 0, space: space as u32 }
    }

    pub fn at(&self) -> u64 {
        self.place & !(PAGE as u64 - 1)
    }

    pub fn end(&self) -> u64 {
        self.at() + u64::from(self.pages) * PAGE as u64
    }

    pub fn is(&self, flag: u64) -> bool {
        self.place & flag != 0
    }

    pub fn keep(&mut self) {
        self.place |= KEPT;
    }
}

/// The scratch of one rank: files in the configured directories that nobody else can open and that vanish with this
/// process, and the table of what lies in them. Used from its beginning again when all is back; dropping it gives the space back.
pub struct Image {
    backing: Backing,
    pub(super) runs: Vec<Run>,
    /// The checksum of each chunk, the last of which may be shorter.
    pub(super) sums: Vec<u128>,
    /// The pages of the last chunk.
    pub(super) last: usize,
    /// The first process of the rank whose memory this is.
    pub(super) rank: i32,
    length: u64,
}

impl std::fmt::Debug for Image {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Image").field("rank", &self.rank).field("bytes", &self.bytes()).finish()
    }
}

impl Image {
    /// Makes the files, empty.
    ///
    /// # Errors
    /// The system's, if a file cannot be made in one of the scratch directories.
    pub fn new() -> Result<Self, Errno> {
        Self::with(config::default_store())
    }

    /// The same with a certain kind of store.
    ///
    /// # Errors
    /// As of [`new`](Self::new).
    pub fn with(kind: StoreKind) -> Result<Self, Errno> {
        let backing = Backing::open(kind)?;
        Ok(Self { backing, runs: vec![], sums: vec![], last: 0, rank: 0, length: 0 })
    }

    /// Bytes in the scratch file that are somebody's memory.
    pub fn bytes(&self) -> u64 {
        let full = self.sums.len().saturating_sub(1) * CHUNK;
        (full + self.last * PAGE) as u64
    }

    /// Whether nothing is out.
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// Bytes of a chunk.
    pub(super) fn chunk_len(&self, chunk: usize) -> usize {
        if chunk + 1 == self.sums.len() { self.last * PAGE } else { CHUNK }
    }

    pub(super) fn store(&self) -> &dyn Store {
        self.backing.as_store()
    }

    /// Forgets everything but the files.
    pub(super) fn clear(&mut self) {
        (self.runs, self.sums, self.last, self.rank) = (vec![], vec![], 0, 0);
    }

    /// Makes the files long enough for what is about to be written, and then some, as lengthening takes its time.
    pub(super) fn lengthen(&mut self, to: u64) -> Result<(), OtherError> {
        const STEP: u64 = 256 << 20;
        if to > self.length {
            let length = to.next_multiple_of(STEP);
            self.store().ensure_len(length).map_err(|e| self.failed("lengthen", None, e))?;
            self.length = length;
        }
        Ok(())
    }

    fn directory(&self, offset: Option<u64>) -> String {
        self.store().directory(offset).to_string_lossy().into_owned()
    }

    pub(super) fn failed(&self, op: &'static str, offset: Option<u64>, errno: Errno) -> OtherError {
        let dir = self.directory(offset);
        match errno.0 {
            libc::ENOSPC | libc::EDQUOT => OtherError::NoSpace { dir },
            _ => OtherError::Scratch { op, dir, offset: offset.unwrap_or(0), errno },
        }
    }

    pub(super) fn corrupt(&self, chunk: usize) -> OtherError {
        self.damaged((chunk * CHUNK) as u64)
    }

    /// What lies at an offset is not what was written there.
    pub(super) fn damaged(&self, offset: u64) -> OtherError {
        OtherError::Corrupt { dir: self.directory(Some(offset)), offset }
    }
}

/// The buffers of a move, in huge pages where there are any: a direct transfer from or to them is then a single piece.
pub(super) struct Buffers {
    base: usize,
    /// Those nobody uses.
    free: Vec<usize>,
    queue: Option<Queue>,
}

/// Queues of moves that have ended: ending a context of the kernel's takes longer than many a move.
static QUEUES: Mutex<Vec<Queue>> = Mutex::new(Vec::new());

fn queues() -> MutexGuard<'static, Vec<Queue>> {
    QUEUES.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Buffers {
    pub fn new() -> Result<Self, Errno> {
        let base = sys::map_anon_aligned(MOVE_MEMORY, GRANULE)?;
        // Without huge pages it only takes longer.
        let _ = sys::advise(base, MOVE_MEMORY, libc::MADV_HUGEPAGE);
        Ok(Self { base, free: (0..SLOTS).rev().collect(), queue: queues().pop() })
    }

    /// Transfers under way. All of them have ended before this is dropped.
    pub fn queue(&mut self) -> &mut Queue {
        self.queue.get_or_insert_with(Queue::new)
    }

    pub fn take(&mut self) -> Option<usize> {
        self.free.pop()
    }

    pub fn give(&mut self, slot: usize) {
        self.free.push(slot);
    }

    pub fn address(&self, slot: usize) -> usize {
        self.base + slot * CHUNK
    }

    pub fn slot_of(&self, address: usize) -> usize {
        (address - self.base) / CHUNK
    }

    /// A buffer that is taken and that no transfer uses.
    pub fn bytes(&mut self, slot: usize) -> &mut [u8] {
        assert!(slot < SLOTS && !self.free.contains(&slot));
        // SAFETY: a part of the mapping made above, which nobody else refers to: the caller has taken it, and gives it to the
        // kernel only until it hears of the transfer's end.
        unsafe { std::slice::from_raw_parts_mut(self.address(slot) as *mut u8, CHUNK) }
    }
}

impl Drop for Buffers {
    fn drop(&mut self) {
        match self.queue.take() {
            Some(queue) if queue.is_idle() => queues().push(queue),
            None => {}
            // The kernel may still write there.
            Some(_) => return,
        }
        sys::unmap(self.base, MOVE_MEMORY);
    }
}
