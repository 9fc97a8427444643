//! A lock that never allocates: spins a little, then sleeps on a futex.
//!
//! The pager takes none of the locks that allocation takes, so a thread may be parked while it holds one.
//! Those that the pager takes (`fork.rs` has the table) are taken with signals held back, by
//! [`exclude`](crate::pager::exclude) and [`Unparked`](crate::threads::Unparked): nobody is parked, and no
//! handler waits for memory, on a thread that has one.

use std::cell::UnsafeCell;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU32, Ordering};

const FREE: u32 = 0;
const HELD: u32 = 1;
const CONTENDED: u32 = 2;
/// Turns spent before sleeping: longer than an uncontended malloc, shorter than a futex wake-up.
const SPINS: u32 = 64;

pub(crate) fn futex_wait(word: &AtomicU32, expected: u32, timeout_ns: Option<u64>) {
    let limit = timeout_ns.map(|ns| libc::timespec {
        tv_sec: (ns / 1_000_000_000) as libc::time_t,
        tv_nsec: (ns % 1_000_000_000) as libc::c_long,
    });
    let limit = limit.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    let op = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: `word` and `limit` outlive the call.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), op, expected, limit) };
}

pub(crate) fn futex_wake(word: &AtomicU32, count: i32) {
    let op = libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: waking has no effect on memory.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), op, count) };
}

/// A value behind a futex lock.
pub(crate) struct Lock<T> {
    word: AtomicU32,
    value: UnsafeCell<T>,
}

// SAFETY: the value is reached through a guard only, of which there is one at a time.
unsafe impl<T: Send> Sync for Lock<T> {}

impl<T> Lock<T> {
    pub const fn new(value: T) -> Self {
        Self { word: AtomicU32::new(FREE), value: UnsafeCell::new(value) }
    }

    #[inline]
    pub fn lock(&self) -> Guard<'_, T> {
        if self.word.compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed).is_err() {
            self.wait();
        }
        Guard(self, PhantomData)
    }

    /// For callers that may have interrupted the holder.
    pub fn try_lock(&self) -> Option<Guard<'_, T>> {
        let free = self.word.compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed).is_ok();
        // Not `then_some`, which makes a guard in any case, and drops it: that lets go of another's lock.
        free.then(|| Guard(self, PhantomData))
    }

    /// Returns when it may be free; does not take it.
    pub fn rest(&self) {
        for _ in 0..SPINS {
            std::hint::spin_loop();
            if self.word.load(Ordering::Relaxed) == FREE {
                return;
            }
        }
        let marked = self.word.compare_exchange(HELD, CONTENDED, Ordering::Relaxed, Ordering::Relaxed);
        if marked != Err(FREE) {
            // Another may have been woken in its place, and be kept from taking it.
            futex_wait(&self.word, CONTENDED, Some(10_000_000));
        }
    }

    /// As [`try_lock`](Self::try_lock), of one of several that may [`rest`](Self::rest): the next is woken
    /// when it lets go.
    pub fn try_lock_among(&self) -> Option<Guard<'_, T>> {
        let free = self.word.compare_exchange(FREE, CONTENDED, Ordering::Acquire, Ordering::Relaxed).is_ok();
        free.then(|| Guard(self, PhantomData))
    }

    /// Takes the lock over a fork, or lets go of one so taken.
    ///
    /// # Safety
    /// Let go of only by the thread that took it so, or by its image in a child.
    pub unsafe fn hold_or_let_go(&self, hold: bool) {
        match hold {
            true => std::mem::forget(self.lock()),
            false => drop(Guard(self, PhantomData)),
        }
    }

    #[cold]
    fn wait(&self) {
        for _ in 0..SPINS {
            std::hint::spin_loop();
            if self.word.load(Ordering::Relaxed) == FREE
                && self.word.compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed).is_ok()
            {
                return;
            }
        }
        while self.word.swap(CONTENDED, Ordering::Acquire) != FREE {
            futex_wait(&self.word, CONTENDED, None);
        }
    }
}

/// Exclusive access to the value of a [`Lock`]; shared between threads only if the value may be.
pub(crate) struct Guard<'a, T>(&'a Lock<T>, PhantomData<&'a mut T>);

impl<T> Deref for Guard<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: this guard is the only one.
        unsafe { &*self.0.value.get() }
    }
}

impl<T> DerefMut for Guard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: this guard is the only one.
        unsafe { &mut *self.0.value.get() }
    }
}

impl<T> Drop for Guard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        if self.0.word.swap(FREE, Ordering::Release) == CONTENDED {
            futex_wake(&self.0.word, 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_does_not_get_it_lets_nobody_else_go() {
        let lock = Lock::new(0);
        let guard = lock.lock();
        for _ in 0..3 {
            assert!(lock.try_lock().is_none() && lock.try_lock_among().is_none());
        }
        drop(guard);
        assert!(lock.try_lock().is_some() && lock.try_lock_among().is_some());
    }

    #[test]
    fn those_that_rest_and_those_that_wait_take_turns() {
        const EACH: usize = 20_000;
        let lock = Lock::new(0_usize);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| (0..EACH).for_each(|_| *lock.lock() += 1));
                scope.spawn(|| {
                    for _ in 0..EACH {
                        loop {
                            lock.rest();
                            if let Some(mut count) = lock.try_lock_among() {
                                *count += 1;
                                break;
                            }
                        }
                    }
                });
            }
        });
        assert_eq!(*lock.lock(), 4 * EACH);
        lock.rest();
    }
}
