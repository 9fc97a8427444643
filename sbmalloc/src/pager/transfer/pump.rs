//! Buffers on their way to scratch and back: which transfers are under way, and what went wrong first.

use crate::store::{Direction, Landed, Queue, Store, Transfer};
use crate::sys::{self, Errno, GRANULE};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Bytes of a buffer.
pub(in crate::pager) const BUFFER: usize = 1 << 20;
/// Buffers of a pump.
pub(in crate::pager) const BUFFERS: usize = 6;

/// All that was begun before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::pager) struct Ticket(u64);

/// Where it failed in the store, and why.
pub(in crate::pager) type Failed = (u64, Errno);

/// Buffers, in huge pages where there are any: a direct transfer from or to them is then a single piece.
pub(in crate::pager) struct Pump {
    base: usize,
    /// Those nobody uses.
    free: Vec<usize>,
    /// Transfers under way of each.
    flying: [usize; BUFFERS],
    /// When the last of them were begun, by their number.
    begun: [u64; BUFFERS],
    serial: u64,
    queue: Option<Queue>,
    /// The first in the store, of all since the last [`drain`](Self::drain).
    failed: Option<Failed>,
}

/// Queues of pumps that have ended: ending a context of the kernel's takes longer than many a move.
static QUEUES: Mutex<Vec<Queue>> = Mutex::new(Vec::new());

fn queues() -> MutexGuard<'static, Vec<Queue>> {
    QUEUES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A part of a buffer, and where it lies in the store.
#[derive(Debug, Clone, Copy)]
pub(in crate::pager) struct Piece {
    pub from: usize,
    pub offset: usize,
    pub len: usize,
}

impl Pump {
    pub fn new() -> Result<Self, Errno> {
        let base = sys::map_anon_aligned(BUFFER * BUFFERS, GRANULE)?;
        // Without huge pages it only takes longer.
        let _ = sys::advise(base, BUFFER * BUFFERS, libc::MADV_HUGEPAGE);
        let free = (0..BUFFERS).rev().collect();
        Ok(Self {
            base,
            free,
            flying: [0; BUFFERS],
            begun: [0; BUFFERS],
            serial: 0,
            queue: queues().pop(),
            failed: None,
        })
    }

    fn queue(&mut self) -> &mut Queue {
        self.queue.get_or_insert_with(Queue::new)
    }

    /// A buffer that nobody uses. Waits for one.
    ///
    /// # Errors
    /// What went wrong so far.
    pub fn take(&mut self, store: &dyn Store) -> Result<usize, Failed> {
        loop {
            self.failed.map_or(Ok(()), Err)?;
            if let Some(buffer) = self.free.pop() {
                return Ok(buffer);
            }
            self.wait(store);
        }
    }

    pub fn has_free(&self) -> bool {
        !self.free.is_empty()
    }

    /// A buffer that was taken is free again.
    pub fn give(&mut self, buffer: usize) {
        self.free.push(buffer);
    }

    /// A buffer that is taken and of which no transfer is under way.
    pub fn bytes(&mut self, buffer: usize) -> &mut [u8] {
        assert!(self.flying[buffer] == 0 && !self.free.contains(&buffer));
        // SAFETY: a part of the mapping made above, which nobody else refers to: the caller has taken it, and
        // no transfer of it is under way.
        unsafe { std::slice::from_raw_parts_mut((self.base + buffer * BUFFER) as *mut u8, BUFFER) }
    }

    /// Writes parts of a buffer, which is free again when all are written.
    ///
    /// # Errors
    /// What went wrong so far.
    pub fn write(&mut self, store: &dyn Store, buffer: usize, pieces: &[Piece]) -> Result<(), Failed> {
        self.start(store, buffer, pieces, Direction::Write);
        if self.flying[buffer] == 0 {
            self.give(buffer);
        }
        self.failed.map_or(Ok(()), Err)
    }

    /// Begins to read to parts of a buffer, which stays taken; [`arrived`](Self::arrived) waits for them.
    pub fn read(&mut self, store: &dyn Store, buffer: usize, pieces: &[Piece]) {
        self.start(store, buffer, pieces, Direction::Read);
    }

    /// Reads to parts of a buffer, which stays taken, while nothing else is under way.
    ///
    /// # Errors
    /// What went wrong.
    pub fn read_now(&mut self, store: &dyn Store, buffer: usize, pieces: &[Piece]) -> Result<(), Failed> {
        if let [piece] = pieces {
            let transfer = self.transfer(buffer, piece, Direction::Read);
            // SAFETY: the buffer is taken, and the caller has no borrow of it.
            return unsafe { transfer.by_calls(store, 0) }.result;
        }
        self.read(store, buffer, pieces);
        self.drain(store)
    }

    /// Waits until all of a buffer has been read.
    ///
    /// # Errors
    /// What went wrong so far.
    pub fn arrived(&mut self, store: &dyn Store, buffer: usize) -> Result<(), Failed> {
        while self.flying[buffer] > 0 && self.wait(store) {}
        self.failed.map_or(Ok(()), Err)
    }

    /// What was begun so far.
    pub fn ticket(&self) -> Ticket {
        Ticket(self.serial)
    }

    /// Waits until all that was begun by then has ended.
    ///
    /// # Errors
    /// What went wrong so far.
    pub fn wait_for(&mut self, store: &dyn Store, Ticket(serial): Ticket) -> Result<(), Failed> {
        let is_under_way = |pump: &Self| (0..BUFFERS).any(|i| pump.flying[i] > 0 && pump.begun[i] <= serial);
        while is_under_way(self) && self.wait(store) {}
        self.failed.map_or(Ok(()), Err)
    }

    fn transfer(&self, buffer: usize, piece: &Piece, direction: Direction) -> Transfer {
        assert!(piece.from + piece.len <= BUFFER && !self.free.contains(&buffer));
        let at = self.base + buffer * BUFFER + piece.from;
        Transfer { direction, offset: piece.offset, at, len: piece.len }
    }

    fn start(&mut self, store: &dyn Store, buffer: usize, pieces: &[Piece], direction: Direction) {
        let beside = store.async_fd(0).is_some() && self.queue().is_ready();
        self.serial += 1;
        self.begun[buffer] = self.serial;
        // All at once: the first may have ended when the last is begun.
        self.flying[buffer] += pieces.len();
        for piece in pieces {
            let transfer = self.transfer(buffer, piece, direction);
            if beside {
                while self.queue().is_full() {
                    self.wait(store);
                }
                // SAFETY: the buffer is taken, and `bytes` hands it to nobody before all of its transfers
                // have ended.
                unsafe { self.queue().start(store, transfer) };
            } else {
                // SAFETY: as above.
                let landed = unsafe { transfer.by_calls(store, 0) };
                self.landed(landed);
            }
        }
    }

    fn landed(&mut self, Landed { transfer, result }: Landed) -> usize {
        let buffer = (transfer.at - self.base) / BUFFER;
        self.flying[buffer] -= 1;
        if let Err(e) = result
            && self.failed.is_none_or(|first| e.0 < first.0)
        {
            self.failed = Some(e);
        }
        buffer
    }

    /// Waits for the end of a transfer; false if none is under way.
    fn wait(&mut self, store: &dyn Store) -> bool {
        let Some(landed) = self.queue().wait(store) else { return false };
        let is_write = landed.transfer.direction == Direction::Write;
        let buffer = self.landed(landed);
        if is_write && self.flying[buffer] == 0 {
            self.give(buffer);
        }
        true
    }

    /// Waits for the end of all.
    ///
    /// # Errors
    /// What went wrong, which is forgotten with that.
    pub fn drain(&mut self, store: &dyn Store) -> Result<(), Failed> {
        while self.wait(store) {}
        self.failed.take().map_or(Ok(()), Err)
    }
}

impl Drop for Pump {
    fn drop(&mut self) {
        match self.queue.take() {
            Some(queue) if queue.is_idle() => queues().push(queue),
            None => {}
            // The kernel may still write there.
            Some(_) => return,
        }
        sys::unmap(self.base, BUFFER * BUFFERS);
    }
}

/// Adjacent pages of a buffer that are adjacent in the store too, as one piece each, which lies in one file.
/// `slots`: of the pages one behind the other in the buffer.
pub(in crate::pager) fn pieces(slots: impl Iterator<Item = u32>) -> Vec<Piece> {
    let mut list: Vec<Piece> = vec![];
    for (i, slot) in slots.enumerate() {
        let offset = slot as usize * sys::PAGE;
        match list.last_mut() {
            Some(last) if last.offset + last.len == offset && !offset.is_multiple_of(BUFFER) => {
                last.len += sys::PAGE
            }
            _ => list.push(Piece { from: i * sys::PAGE, offset, len: sys::PAGE }),
        }
    }
    list
}
