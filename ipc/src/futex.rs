//! The kernel's futex on shared memory.

use std::cell::Cell;
use std::sync::atomic::AtomicU32;
use std::time::Duration;

use rustix::thread::futex;
use rustix::time::Timespec;

use crate::segment::monotonic_ns;
use crate::state::Futex;

/// Futex calls that work between processes (no private flag).
#[derive(Clone, Copy, Debug, Default)]
pub struct SharedFutex;

impl Futex for SharedFutex {
    fn wait(&self, word: &AtomicU32, value: u32) {
        wait(word, value, None);
    }

    fn wake(&self, word: &AtomicU32) {
        wake(word, 1);
    }
}

/// The same, at most until a time by [`monotonic_ns`].
#[derive(Debug)]
pub struct TimedFutex(Cell<Option<u64>>);

impl TimedFutex {
    /// Until then.
    pub fn until(time: Option<u64>) -> Self {
        Self(Cell::new(time))
    }

    /// Is it that late? From then on sleep has no end.
    pub fn is_over(&self) -> bool {
        let over = self.0.get().is_some_and(|time| time <= monotonic_ns());
        if over {
            self.0.set(None);
        }
        over
    }
}

impl Futex for TimedFutex {
    fn wait(&self, word: &AtomicU32, value: u32) {
        let left = self.0.get().map(|time| time.saturating_sub(monotonic_ns()));
        if left != Some(0) {
            wait(word, value, left.map(Duration::from_nanos));
        }
    }

    fn wake(&self, word: &AtomicU32) {
        wake(word, 1);
    }
}

/// Sleep while `word` is `value`, at most for `timeout`. Returns early at a signal or for no reason: callers
/// loop.
pub fn wait(word: &AtomicU32, value: u32, timeout: Option<Duration>) {
    let timeout = timeout.map(|t| Timespec { tv_sec: t.as_secs() as _, tv_nsec: t.subsec_nanos() as _ });
    // EAGAIN (the value differs), EINTR and ETIMEDOUT all mean: look again.
    let _ = futex::wait(word, futex::Flags::empty(), value, timeout.as_ref());
}

/// Wake up to `count` sleepers.
pub fn wake(word: &AtomicU32, count: u32) {
    // Fails only for a bad address, which a reference is not.
    let _ = futex::wake(word, futex::Flags::empty(), count);
}

/// Yields the processor: not by the C library's function, in place of which a program may have another.
pub fn let_others_run() {
    rustix::thread::sched_yield();
}
