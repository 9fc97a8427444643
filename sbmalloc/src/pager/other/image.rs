//! What is out of a rank: pages in a scratch file, and where each belongs.

use super::error::OtherError;
use super::space::Space;
use crate::config;
use crate::pager::transfer::pump::{BUFFER, BUFFERS, Failed};
use crate::pager::transfer::slots::Slots;
use crate::pager::transfer::table::Table;
use crate::store::{Backing, Store, StoreKind};
use crate::sys::{Errno, GRANULE, PAGE};
use std::collections::BTreeSet;

/// Memory that a move takes for its buffers while it goes on, in bytes. The table of what is out, or was,
/// takes 216 bytes more for each 64 KiB of addresses.
pub const MOVE_MEMORY: usize = BUFFERS * BUFFER;

/// What is known of an address space.
#[derive(Debug, Default)]
pub(super) struct Known {
    /// Its process. Should it be another's by now, nothing is like what is known, and all is written.
    pub pid: i32,
    pub table: Table,
    /// The granules that were huge pages when something of them was last dropped.
    pub huge: BTreeSet<u64>,
}

/// The scratch of one rank: files in the configured directories that nobody else can open and that vanish
/// with this process, and the table of what lies in them. What has come back is kept there too, so that it
/// need not be written again if it leaves as it was. Dropping it gives the space back.
pub struct Image {
    backing: Backing,
    pub(super) slots: Slots,
    pub(super) known: Vec<Known>,
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
        Ok(Self { backing, slots: Slots::default(), known: vec![], rank: 0, length: 0 })
    }

    /// Bytes in the scratch file that are memory which is out.
    pub fn bytes(&self) -> u64 {
        self.known.iter().map(|known| known.table.pages()).sum::<u64>() * PAGE as u64
    }

    /// Whether nothing is out.
    pub fn is_empty(&self) -> bool {
        self.bytes() == 0
    }

    pub(super) fn store(&self) -> &dyn Store {
        self.backing.as_store()
    }

    /// Takes out what is known of these address spaces, in their order, and forgets all others.
    pub(super) fn known_of(&mut self, rank: i32, spaces: &[Space]) -> Vec<Known> {
        let mut before = std::mem::take(&mut self.known);
        if rank != self.rank {
            before.drain(..).for_each(|known| self.forget(known));
        }
        self.rank = rank;
        let find = |space: &Space| {
            let at = before.iter().position(|known| space.processes.contains(&known.pid));
            let known = at.map(|at| before.swap_remove(at)).unwrap_or_default();
            Known { pid: space.processes[0], ..known }
        };
        let found = spaces.iter().map(find).collect();
        before.into_iter().for_each(|known| self.forget(known));
        found
    }

    fn forget(&mut self, mut known: Known) {
        known.table.clear(&mut self.slots);
    }

    /// Forgets everything but the files.
    pub(super) fn clear(&mut self) {
        (self.slots, self.known, self.rank) = (Slots::default(), vec![], 0);
    }

    /// Makes the files long enough for what is about to be written, and then some, as lengthening takes its
    /// time.
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

    /// There is no memory for buffers just now, or they cannot be had at all.
    pub(super) fn no_buffers(&self, errno: Errno) -> OtherError {
        if errno.is_passing() { OtherError::Busy } else { self.failed("make buffers for", None, errno) }
    }

    pub(super) fn failed_to_write(&self, (at, e): Failed) -> OtherError {
        self.failed("write", Some(at), e)
    }

    pub(super) fn failed_to_read(&self, (at, e): Failed) -> OtherError {
        self.failed("read", Some(at), e)
    }

    /// What lies in a slot is not what was written there.
    pub(super) fn damaged(&self, slot: u32) -> OtherError {
        let offset = u64::from(slot) * PAGE as u64;
        OtherError::Corrupt { dir: self.directory(Some(offset)), offset }
    }
}

/// The granule in which an address lies.
pub(super) fn granule(at: u64) -> u64 {
    at & !(GRANULE as u64 - 1)
}
