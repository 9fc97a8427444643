//! Looks at a rank that computes while some of its memory is out: a timer's signal interrupts it every few
//! milliseconds, and if it uses much of what was left out the rest is brought in at once. So what is not
//! known to be used need not be read in advance.
//!
//! The first look comes after [`FIRST`], each further one after twice the time, or as soon as the first if
//! the rank is about to have used much: all that it touches before it is noticed leaves once more. The
//! timer runs only while memory is out. System calls that the signal interrupts are restarted
//! (`SA_RESTART`); those that never are (`poll`, `select`, sleeps; see signal(7)) return `EINTR`, as they
//! do for the signals that park threads. A program that was not written for that is interrupted by the time
//! that its thread computes, which does not pass in such calls.

use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering::SeqCst};
use std::time::Duration;

/// When to look first.
const FIRST: Duration = Duration::from_millis(3);
/// The longest time between two looks: what is touched meanwhile is not accounted for.
const LONGEST: Duration = Duration::from_millis(12);

/// By which time it is looked.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Clock {
    /// All that passes.
    Wall,
    /// What the thread uses of a processor.
    Thread,
}

/// The timer of the thread that communicates.
pub(crate) struct Meter {
    /// What the kernel calls it, once made; -1: there is none.
    timer: AtomicI32,
    /// Whose it is.
    thread: AtomicI32,
    /// Its signal, bit 0 for signal 1.
    signals: AtomicU64,
    armed: AtomicBool,
    /// Nanoseconds until the next look.
    next: AtomicU64,
}

extern "C" fn on_tick(_: libc::c_int) {
    // SAFETY: errno is saved because the interrupted code may be about to read it.
    let saved = unsafe { *libc::__errno_location() };
    crate::runtime::tick();
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = saved };
}

impl Meter {
    pub const fn new() -> Self {
        Self {
            timer: AtomicI32::new(-1),
            thread: AtomicI32::new(0),
            signals: AtomicU64::new(0),
            armed: AtomicBool::new(false),
            next: AtomicU64::new(0),
        }
    }

    /// Makes the timer, for the calling thread. `false` if there is no signal or no timer to be had: then
    /// nothing is ever looked at.
    pub fn open(&self, clock: Clock) -> bool {
        let Some(signal) = take_signal() else { return false };
        let clock = match clock {
            Clock::Wall => libc::CLOCK_MONOTONIC,
            Clock::Thread => libc::CLOCK_THREAD_CPUTIME_ID,
        };
        self.signals.store(1 << (signal - 1), SeqCst);
        // SAFETY: zeros are a valid sigevent; the kernel reads it and writes the timer's number.
        let timer = unsafe {
            let mut event: libc::sigevent = std::mem::zeroed();
            event.sigev_notify = libc::SIGEV_THREAD_ID;
            event.sigev_signo = signal;
            event.sigev_notify_thread_id = libc::gettid();
            // The kernel's own number, not the C library's pointer: needs no heap to use in a handler.
            let mut timer: i32 = -1;
            let made = libc::syscall(libc::SYS_timer_create, clock, &raw mut event, &raw mut timer);
            if made == 0 { timer } else { -1 }
        };
        // SAFETY: no preconditions.
        self.thread.store(unsafe { libc::gettid() }, SeqCst);
        self.timer.store(timer, SeqCst);
        timer >= 0
    }

    /// Whether it would interrupt the calling thread: that is its, and does not block the signal.
    pub fn is_here(&self) -> bool {
        // SAFETY: both write to locals, for which zeros are valid.
        unsafe {
            let mut blocked: libc::sigset_t = std::mem::zeroed();
            let signal = self.signals.load(SeqCst).trailing_zeros() as i32 + 1;
            self.thread.load(SeqCst) == libc::gettid()
                && libc::pthread_sigmask(libc::SIG_BLOCK, std::ptr::null(), &raw mut blocked) == 0
                && libc::sigismember(&raw const blocked, signal) == 0
        }
    }

    /// Whether there is a timer.
    pub fn is_open(&self) -> bool {
        self.timer.load(SeqCst) >= 0
    }

    /// The signals that have a handler of the meter's, bit 0 for signal 1.
    pub fn signals(&self) -> u64 {
        self.signals.load(SeqCst)
    }

    /// The rank computes with memory out: look soon.
    pub fn start(&self) {
        self.next.store(FIRST.as_nanos() as u64, SeqCst);
        self.armed.store(true, SeqCst);
        self.set(FIRST.as_nanos() as u64);
    }

    /// It has stopped computing, or everything is in.
    pub fn stop(&self) {
        if self.armed.swap(false, SeqCst) {
            self.set(0);
        }
    }

    /// Whether a look is due, in the handler.
    pub fn is_armed(&self) -> bool {
        self.armed.load(SeqCst)
    }

    /// Much is touched: the next look comes as soon as the first.
    pub fn hurry(&self) {
        self.next.store(FIRST.as_nanos() as u64 / 2, SeqCst);
    }

    /// Look again, later.
    pub fn go_on(&self) {
        let next = (self.next.load(SeqCst) * 2).min(LONGEST.as_nanos() as u64);
        self.next.store(next, SeqCst);
        self.set(next);
    }

    fn set(&self, ns: u64) {
        let timer = self.timer.load(SeqCst);
        if timer < 0 {
            return;
        }
        let when = libc::itimerspec {
            it_interval: libc::timespec { tv_sec: 0, tv_nsec: 0 },
            it_value: libc::timespec {
                tv_sec: (ns / 1_000_000_000) as i64,
                tv_nsec: (ns % 1_000_000_000) as i64,
            },
        };
        let none = std::ptr::null_mut::<libc::itimerspec>();
        // SAFETY: reads one structure; 0 disarms.
        unsafe { libc::syscall(libc::SYS_timer_settime, timer, 0, &raw const when, none) };
    }
}

/// A real-time signal that nobody uses, with our handler.
fn take_signal() -> Option<i32> {
    for signal in (libc::SIGRTMIN()..libc::SIGRTMAX()).rev() {
        // SAFETY: zeroed actions are valid; one that is in use is left alone.
        unsafe {
            let mut old: libc::sigaction = std::mem::zeroed();
            if libc::sigaction(signal, std::ptr::null(), &mut old) != 0 || old.sa_sigaction != libc::SIG_DFL {
                continue;
            }
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = on_tick as *const () as usize;
            // Not SA_ONSTACK: the rank may wait in here, and move its memory, for which a stack for signals
            // is too small.
            action.sa_flags = libc::SA_RESTART;
            action.sa_mask = sbmalloc::pager::all_but_faults();
            if libc::sigaction(signal, &action, std::ptr::null_mut()) == 0 {
                return Some(signal);
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_in_the_handler_reaches_its_own() {
        // The pager takes a signal in the same way.
        let _alone = crate::runtime::tests::pager_alone();
        let signal = take_signal().expect("one that nobody uses");
        // SAFETY: asks, writes to a local for which zeros are valid, and gives the signal back.
        let mask = unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            assert_eq!(libc::sigaction(signal, std::ptr::null(), &raw mut action), 0);
            libc::signal(signal, libc::SIG_DFL);
            action.sa_mask
        };
        // SAFETY: only asks.
        let blocks = |signal| unsafe { libc::sigismember(&raw const mask, signal) } == 1;
        for signal in [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP] {
            assert!(!blocks(signal), "the kernel would end the process, whatever handler there is");
        }
        assert!(blocks(libc::SIGTERM) && blocks(libc::SIGALRM));
    }
}
