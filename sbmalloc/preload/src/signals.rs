//! Waits for signals: the one by which the pager stops threads is not the program's to receive, and stops the
//! thread also where it blocks all.
//!
//! A thread of many programs blocks every signal and waits for whichever comes. It would be given ours, be
//! told of a signal that nobody sent, and not stand.

use std::ffi::{c_int, c_void};

use heap::pager;
use libc::{sigset_t, timespec};

use crate::start::is_rank;
use crate::sys::{Next, set_errno};

static SIGWAIT: Next = Next::new(c"sigwait");
static SIGWAITINFO: Next = Next::new(c"sigwaitinfo");
static SIGTIMEDWAIT: Next = Next::new(c"sigtimedwait");

/// The C library's `sigtimedwait`, and `sigwaitinfo` but for the time.
type Wait = unsafe extern "C-unwind" fn(*const sigset_t, *mut c_void, *const timespec) -> c_int;

fn now() -> timespec {
    let mut now = timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes one timespec.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut now) };
    now
}

/// What is left of `time` since `begin`; nothing if it is over.
fn left(time: timespec, begin: timespec) -> timespec {
    let now = now();
    let mut left = timespec {
        tv_sec: time.tv_sec.saturating_sub(now.tv_sec - begin.tv_sec),
        tv_nsec: time.tv_nsec - (now.tv_nsec - begin.tv_nsec),
    };
    let seconds = left.tv_nsec.div_euclid(1_000_000_000);
    left.tv_sec = left.tv_sec.saturating_add(seconds);
    left.tv_nsec = left.tv_nsec.rem_euclid(1_000_000_000);
    if left.tv_sec < 0 { timespec { tv_sec: 0, tv_nsec: 0 } } else { left }
}

/// Calls `wait` with `set` without the pager's signal, which is let through meanwhile.
///
/// # Safety
/// `set` may be read.
unsafe fn let_through(set: *const sigset_t, wait: impl FnOnce(*const sigset_t) -> c_int) -> c_int {
    let Some(signal) = pager::stop_signal().filter(|_| is_rank()) else { return wait(set) };
    // SAFETY: any bits are a valid set, the signal is one, and the caller's; the mask is this thread's.
    unsafe {
        let (mut theirs, mut ours): (sigset_t, sigset_t) = (set.read(), std::mem::zeroed());
        let mut before: sigset_t = std::mem::zeroed();
        libc::sigdelset(&raw mut theirs, signal);
        libc::sigaddset(&raw mut ours, signal);
        let changed = libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const ours, &raw mut before) == 0;
        let result = wait(&raw const theirs);
        if changed && libc::sigismember(&raw const before, signal) == 1 {
            libc::pthread_sigmask(libc::SIG_BLOCK, &raw const ours, std::ptr::null_mut());
        }
        result
    }
}

/// Waits again for as long as it was the pager that broke the wait off.
///
/// # Safety
/// As for `sigtimedwait`.
unsafe fn wait(next: &'static Next, set: *const sigset_t, info: *mut c_void, time: *const timespec) -> c_int {
    let at = next.get();
    if at.is_null() {
        set_errno(libc::ENOSYS);
        return -1;
    }
    // SAFETY: the function of that name takes the same arguments, or fewer.
    let next: Wait = unsafe { std::mem::transmute(at) };
    // SAFETY: the caller's.
    let whole = unsafe { time.as_ref() }.copied();
    let begin = whole.map(|_| now());
    let again = |set: *const sigset_t| {
        let mut rest = whole;
        loop {
            let stops = pager::stops();
            let time = rest.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
            // SAFETY: the caller's; the time is a local.
            let signal = unsafe { next(set, info, time) };
            // SAFETY: this thread's errno, which always exists.
            let broken_off = signal == -1 && unsafe { *libc::__errno_location() } == libc::EINTR;
            if !broken_off || pager::stops() == stops {
                return signal;
            }
            rest = whole.zip(begin).map(|(whole, begin)| left(whole, begin));
        }
    };
    // SAFETY: the caller's.
    unsafe { let_through(set, again) }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn sigtimedwait(
    set: *const sigset_t,
    info: *mut c_void,
    time: *const timespec,
) -> c_int {
    // SAFETY: the caller's.
    unsafe { wait(&SIGTIMEDWAIT, set, info, time) }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn sigwaitinfo(set: *const sigset_t, info: *mut c_void) -> c_int {
    // SAFETY: the caller's.
    unsafe { wait(&SIGWAITINFO, set, info, std::ptr::null()) }
}

/// Which waits again by itself (POSIX has it return no `EINTR`).
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn sigwait(set: *const sigset_t, signal: *mut c_int) -> c_int {
    type Next = unsafe extern "C-unwind" fn(*const sigset_t, *mut c_int) -> c_int;
    let at = SIGWAIT.get();
    if at.is_null() {
        return libc::ENOSYS;
    }
    // SAFETY: the function of that name takes the same arguments.
    let next: Next = unsafe { std::mem::transmute(at) };
    // SAFETY: the caller's.
    unsafe { let_through(set, |set| next(set, signal)) }
}
