//! Transfers that go on beside the pager's own work, by the kernel's asynchronous I/O (`io_submit`).
//!
//! Not io_uring, which would be as fast, for three reasons. A ring hands what cannot go through at once (a
//! write that allocates file blocks, for one) to worker threads *inside this process*: they block every
//! signal, so parking the other threads would take them for threads that cannot be stopped, and one of them
//! stays for good and makes every program multithreaded. Containers forbid io_uring by default and
//! permit this. And for a handful of large direct transfers three system calls are enough.
//!
//! Small transfers are handed over together: the kernel plugs the device's queue meanwhile, and rings it
//! once. A rank of a few MiB goes and comes by some dozen pieces of a few KiB, for each of which ringing and
//! waking up cost more than the piece.
//!
//! A context is made at the first evict large enough to gain from it, belongs to one process (a child of fork
//! makes its own), takes two pages, pins and locks nothing while idle, and counts [`DEPTH`] against
//! `/proc/sys/fs/aio-max-nr`. Where there is none to be had, transfers are made by ordinary calls. No method
//! allocates.

use super::Store;
use crate::sys::Errno;
use std::sync::atomic::{AtomicU64, Ordering};

/// Transfers under way at most: enough for scattered blocks of 64 KiB to go out at two thirds of the rate of
/// one stream (`docs/benchmarks.md`), and for the pieces of 1 MiB to keep several disks at work.
pub(crate) const DEPTH: usize = 32;

/// Bytes gathered at most before they are handed over, and under way at most for which the end of all is
/// waited for.
const GATHER: usize = 512 << 10;

/// Which way a transfer goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    Read,
    Write,
}

/// A piece of memory on its way from or to a store.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Transfer {
    pub direction: Direction,
    /// In the store.
    pub offset: usize,
    /// Address in memory.
    pub at: usize,
    pub len: usize,
}

impl Transfer {
    /// Makes all of it but the first `done` bytes by ordinary calls.
    ///
    /// # Safety
    /// The memory is readable, or writable and nobody else's.
    pub unsafe fn by_calls(&self, store: &dyn Store, done: usize) -> Landed {
        let (offset, at, len) = ((self.offset + done) as u64, self.at + done, self.len - done);
        // SAFETY: this function's contract.
        let result = unsafe {
            match self.direction {
                Direction::Read => super::read_all(store, offset, at as *mut u8, len),
                Direction::Write => super::write_all(store, offset, at as *const u8, len),
            }
        };
        Landed { transfer: *self, result }
    }
}

/// A transfer that has ended: wholly, or with an error at an offset of the store.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Landed {
    pub transfer: Transfer,
    pub result: Result<(), (u64, Errno)>,
}

/// The kernel's `struct iocb`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Iocb {
    data: u64,
    key_and_flags: u64,
    opcode: u16,
    priority: i16,
    fd: u32,
    at: u64,
    len: u64,
    offset: i64,
    reserved: u64,
    flags: u32,
    event_fd: u32,
}

impl Iocb {
    const EMPTY: Self = Self {
        data: 0,
        key_and_flags: 0,
        opcode: 0,
        priority: 0,
        fd: 0,
        at: 0,
        len: 0,
        offset: 0,
        reserved: 0,
        flags: 0,
        event_fd: 0,
    };

    fn new(data: usize, transfer: &Transfer, fd: i32) -> Self {
        Self {
            data: data as u64,
            opcode: (transfer.direction == Direction::Write) as u16,
            fd: fd as u32,
            at: transfer.at as u64,
            len: transfer.len as u64,
            offset: transfer.offset as i64,
            ..Self::EMPTY
        }
    }
}

/// The kernel's `struct io_event`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Event {
    data: u64,
    iocb: u64,
    result: i64,
    more: i64,
}

#[derive(Clone, Copy)]
enum Slot {
    Free,
    /// Not handed over yet.
    Gathered(Transfer),
    Flying(Transfer),
    /// Ended already, still to be reported.
    Down(Landed),
}

/// The context that was made last; of a process that is moved, its pager's.
static LAST: AtomicU64 = AtomicU64::new(0);

/// The kernel's name for the asynchronous I/O of this process's pager, the address of its ring; 0 while there
/// is none.
pub(crate) fn ring() -> u64 {
    LAST.load(Ordering::Relaxed)
}

/// The transfers under way.
pub(crate) struct Queue {
    /// The kernel's context, 0 for none.
    context: u64,
    /// The process it belongs to.
    owner: i32,
    busy: usize,
    /// Bytes not handed over yet.
    gathered: usize,
    slots: [Slot; DEPTH],
}

impl Queue {
    pub const fn new() -> Self {
        Self { context: 0, owner: 0, busy: 0, gathered: 0, slots: [Slot::Free; DEPTH] }
    }

    /// Whether transfers can be started, after making the context if there is none yet.
    pub fn is_ready(&mut self) -> bool {
        // SAFETY: getpid has no preconditions.
        let me = unsafe { libc::getpid() };
        if self.owner != me {
            // After a fork: what the parent had under way is the parent's.
            *self = Self::new();
            self.owner = me;
        }
        if self.context == 0 {
            // SAFETY: the kernel writes the context's id. On failure (not built in, forbidden, or too many on
            // this machine just now) it stays 0, and the next evict tries again.
            unsafe { libc::syscall(libc::SYS_io_setup, DEPTH, &mut self.context) };
            LAST.store(self.context, Ordering::Relaxed);
        }
        self.context != 0
    }

    pub fn is_idle(&self) -> bool {
        self.busy == 0
    }

    pub fn is_full(&self) -> bool {
        self.busy == DEPTH
    }

    /// Starts a transfer, which lies in one file of the store: a small one at the latest when
    /// [`submit`](Self::submit) or [`wait`](Self::wait) is called next. The queue is ready and not full.
    ///
    /// # Safety
    /// The memory is readable, or writable and nobody else's, until [`wait`](Self::wait) reports the
    /// transfer.
    pub unsafe fn start(&mut self, store: &dyn Store, transfer: Transfer) {
        let Some(i) = self.slots.iter().position(|s| matches!(s, Slot::Free)) else {
            unreachable!("started a transfer with the queue full")
        };
        self.slots[i] = Slot::Gathered(transfer);
        self.busy += 1;
        self.gathered += transfer.len;
        if self.gathered >= GATHER {
            self.submit(store);
        }
    }

    /// Hands over what was gathered. All must be of this store.
    pub fn submit(&mut self, store: &dyn Store) {
        if self.gathered == 0 {
            return;
        }
        self.gathered = 0;
        let mut blocks = [Iocb::EMPTY; DEPTH];
        let mut list = [std::ptr::null_mut(); DEPTH];
        let mut count = 0;
        for (i, slot) in self.slots.iter().enumerate() {
            let Slot::Gathered(transfer) = slot else { continue };
            // A descriptor that is none makes the kernel refuse, and what follows is made by calls.
            let fd = store.async_fd(transfer.offset as u64).unwrap_or(-1);
            blocks[count] = Iocb::new(i, transfer, fd);
            list[count] = &raw mut blocks[count];
            count += 1;
        }
        let mut done = 0;
        while done < count {
            // SAFETY: the kernel copies the control blocks, and writes into them, before it returns; the
            // memory is the transfers' by the contract of `start`.
            let n = unsafe {
                libc::syscall(libc::SYS_io_submit, self.context, count - done, list[done..].as_ptr())
            };
            let taken = usize::try_from(n).unwrap_or(0).min(count - done);
            for block in &blocks[done..done + taken] {
                let slot = &mut self.slots[block.data as usize];
                if let Slot::Gathered(transfer) = *slot {
                    *slot = Slot::Flying(transfer);
                }
            }
            done += taken;
            if taken == 0 {
                // The first one was refused.
                let slot = &mut self.slots[blocks[done].data as usize];
                if let Slot::Gathered(transfer) = *slot {
                    // SAFETY: the contract of `start`.
                    *slot = Slot::Down(unsafe { transfer.by_calls(store, 0) });
                }
                done += 1;
            }
        }
    }

    /// Waits for a transfer to end; `None` when none is under way. All must be of this store.
    ///
    /// What fell short, was interrupted or failed beside is made, or finished, by ordinary calls, which know
    /// every fallback, and whose error counts.
    pub fn wait(&mut self, store: &dyn Store) -> Option<Landed> {
        if self.busy == 0 {
            return None;
        }
        self.submit(store);
        loop {
            for slot in &mut self.slots {
                if let Slot::Down(landed) = *slot {
                    *slot = Slot::Free;
                    self.busy -= 1;
                    return Some(landed);
                }
            }
            self.next_events(store);
        }
    }

    /// Waits until a transfer has ended, or all if they are small.
    fn next_events(&mut self, store: &dyn Store) {
        let mut events = [Event { data: 0, iocb: 0, result: 0, more: 0 }; DEPTH];
        let forever = std::ptr::null::<libc::timespec>();
        let flying = self.slots.iter().filter_map(|slot| match slot {
            Slot::Flying(transfer) => Some(transfer.len),
            _ => None,
        });
        let (count, bytes) = flying.fold((0, 0), |(count, bytes), len| (count + 1, bytes + len));
        let least = if bytes <= 2 * GATHER { count } else { 1 };
        // SAFETY: the kernel writes at most so many events.
        let n = unsafe {
            let events = events.as_mut_ptr();
            libc::syscall(libc::SYS_io_getevents, self.context, least, DEPTH, events, forever)
        };
        for event in &events[..usize::try_from(n).unwrap_or(0).min(DEPTH)] {
            let Some(slot) = self.slots.get_mut(event.data as usize) else { continue };
            if let Slot::Flying(transfer) = *slot {
                let result = match event.result {
                    n @ 0.. => Ok(n as usize),
                    e => Err(Errno(-e as i32)),
                };
                let is_write = transfer.direction == Direction::Write;
                let result = store.async_result(is_write, transfer.offset as u64, result);
                let done = result.map_or(0, |n| n.min(transfer.len));
                *slot = Slot::Down(match done == transfer.len {
                    true => Landed { transfer, result: Ok(()) },
                    // SAFETY: the memory is still the transfer's, by the contract of `start`.
                    false => unsafe { transfer.by_calls(store, done) },
                });
            }
        }
        if n < 0 && Errno::last().0 != libc::EINTR {
            // The context is gone: somebody destroyed it. What became of the transfers cannot be known.
            let e = Errno::last();
            for slot in &mut self.slots {
                if let Slot::Flying(transfer) = *slot {
                    *slot = Slot::Down(Landed { transfer, result: Err((transfer.offset as u64, e)) });
                }
            }
            self.context = 0;
        }
    }
}
