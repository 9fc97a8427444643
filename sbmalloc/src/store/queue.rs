//! Transfers that go on beside the pager's own work, by the kernel's asynchronous I/O (`io_submit`).
//!
//! Not io_uring, which would be as fast, for three reasons. A ring hands what cannot go through at once (a
//! write that allocates file blocks, for one) to worker threads *inside this process*: they block every
//! signal, so parking the other threads would take them for threads that cannot be stopped, and one of them
//! stays for good and makes every program multithreaded. Containers forbid io_uring by default and
//! permit this. And for a handful of large direct transfers three system calls are enough.
//!
//! A context is made at the first evict large enough to gain from it, belongs to one process (a child of fork
//! makes its own), takes two pages, pins and locks nothing while idle, and counts [`DEPTH`] against
//! `/proc/sys/fs/aio-max-nr`. Where there is none to be had, transfers are made by ordinary calls. No method allocates.

use super::Store;
use crate::sys::Errno;

/// Transfers under way at most: enough for scattered blocks of 64 KiB to go out at two thirds of the rate of one
/// stream (`docs/benchmarks.md`), and for the pieces of 1 MiB to keep several disks at work.
pub(crate) const DEPTH: usize = 32;

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

/// The kernel's `struct io_event`.
#[repr(C)]
struct Event {
    data: u64,
    iocb: u64,
    result: i64,
    more: i64,
}

#[derive(Clone, Copy)]
enum Slot {
    Free,
    Flying(Transfer),
    /// Ended already, still to be reported.
    Down(Landed),
}

/// The transfers under way.
pub(crate) struct Queue {
    /// The kernel's context, 0 for none.
    context: u64,
    /// The process it belongs to.
    owner: i32,
    busy: usize,
    slots: [Slot; DEPTH],
}

impl Queue {
    pub const fn new() -> Self {
        Self { context: 0, owner: 0, busy: 0, slots: [Slot::Free; DEPTH] }
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
        }
        self.context != 0
    }

    pub fn is_idle(&self) -> bool {
        self.busy == 0
    }

    pub fn is_full(&self) -> bool {
        self.busy == DEPTH
    }

    /// Starts a transfer, which lies in one file of the store. The queue is ready and not full.
    ///
    /// # Safety
    /// The memory is readable, or writable and nobody else's, until [`wait`](Self::wait) reports the transfer.
    pub unsafe fn start(&mut self, store: &dyn Store, transfer: Transfer) {
        let Some(i) = self.slots.iter().position(|s| matches!(s, Slot::Free)) else {
            unreachable!("started a transfer with the queue full")
        };
        // A descriptor that is none makes the kernel refuse, and what follows is made by calls.
        let fd = store.async_fd(transfer.offset as u64).unwrap_or(-1);
        let mut iocb = Iocb {
            data: i as u64,
            key_and_flags: 0,
            opcode: (transfer.direction == Direction::Write) as u16,
            priority: 0,
            fd: fd as u32,
            at: transfer.at as u64,
            len: transfer.len as u64,
            offset: transfer.offset as i64,
            reserved: 0,
            flags: 0,
            event_fd: 0,
        };
        let list = [&raw mut iocb];
        // SAFETY: the kernel copies the control block and writes into it before it returns; the memory is the transfer's by this method's contract.
        let started = unsafe { libc::syscall(libc::SYS_io_submit, self.context, 1, list.as_ptr()) };
        self.slots[i] = match started {
            1 => Slot::Flying(transfer),
            // SAFETY: this method's contract.
            _ => Slot::Down(unsafe { transfer.by_calls(store, 0) }),
        };
        self.busy += 1;
    }

    /// Waits for a transfer to end; `None` when none is under way. All must be of this store.
    ///
    /// What fell short, was interrupted or failed beside is made, or finished, by ordinary calls, which know
    /// every fallback, and whose error counts.
    pub fn wait(&mut self, store: &dyn Store) -> Option<Landed> {
        if self.busy == 0 {
            return None;
        }
        loop {
            for slot in &mut self.slots {
                if let Slot::Down(landed) = *slot {
                    *slot = Slot::Free;
                    self.busy -= 1;
                    return Some(landed);
                }
            }
            self.next_event(store);
        }
    }

    fn next_event(&mut self, store: &dyn Store) {
        let mut event = Event { data: 0, iocb: 0, result: 0, more: 0 };
        let forever = std::ptr::null::<libc::timespec>();
        // SAFETY: the kernel writes at most one event.
        let n = unsafe { libc::syscall(libc::SYS_io_getevents, self.context, 1, 1, &mut event, forever) };
        if n == 1 {
            let Some(slot) = self.slots.get_mut(event.data as usize) else { return };
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
        } else if n < 0 && Errno::last().0 != libc::EINTR {
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
