//! How many ranks compute at once: a counting semaphore in shared memory.

use std::sync::atomic::{AtomicI32, AtomicU32, Ordering::SeqCst};

use crate::futex;

/// Tokens of a job; lies in the segment's header.
#[repr(C, align(128))]
#[derive(Debug)]
pub struct Tokens {
    free: AtomicU32,
    waiters: AtomicU32,
    running: AtomicI32,
    most_running: AtomicI32,
}

impl Tokens {
    /// Set the number of tokens; once, by the master, before any rank starts.
    pub fn open(&self, count: u32) {
        self.free.store(count, SeqCst);
    }

    /// Take a token, waiting for it.
    ///
    /// No wake-up is lost: a releaser adds a token and then reads `waiters`; a waiter adds itself and then sleeps only
    /// while the count is still 0.
    pub fn acquire(&self) {
        loop {
            if self.free.fetch_update(SeqCst, SeqCst, |n| n.checked_sub(1)).is_ok() {
                let running = self.running.fetch_add(1, SeqCst) + 1;
                self.most_running.fetch_max(running, SeqCst);
                return;
            }
            self.waiters.fetch_add(1, SeqCst);
            futex::wait(&self.free, 0, None);
            self.waiters.fetch_sub(1, SeqCst);
        }
    }

    /// Give the token back.
    pub fn release(&self) {
        self.running.fetch_sub(1, SeqCst);
        self.free.fetch_add(1, SeqCst);
        if self.waiters.load(SeqCst) > 0 {
            futex::wake(&self.free, 1);
        }
    }

    /// Ranks that compute now.
    pub fn running(&self) -> u32 {
        self.running.load(SeqCst).max(0) as u32
    }

    /// Most that computed at one moment.
    pub fn most_running(&self) -> u32 {
        self.most_running.load(SeqCst).max(0) as u32
    }
}
