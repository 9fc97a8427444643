//! Whether what a call waits for is there, seen from outside and without taking it.

use super::{Place, Thread, is_select};
use crate::pager::other::ptrace;
use crate::sys::{Errno, Fd};
use std::collections::BTreeMap;

/// Of a pidfd: of a thread, which may have descriptors of its own (Linux 6.9).
const PIDFD_THREAD: i32 = libc::O_EXCL;

/// A descriptor for the same as a thread's.
pub(super) fn copy_of(thread: Thread, fd: i32) -> Option<Fd> {
    let open = |id: i32, flags: i32| {
        // SAFETY: makes a descriptor, closed on drop.
        let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, id, flags) };
        (fd >= 0).then(|| Fd(fd as i32))
    };
    let process = open(thread.tid, PIDFD_THREAD).or_else(|| open(thread.tgid, 0))?;
    // SAFETY: as above.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_getfd, process.0, fd, 0) };
    (fd >= 0).then(|| Fd(fd as i32))
}

/// An option of a socket; `None` if it is none.
pub(super) fn socket_option<T: Copy>(fd: &Fd, option: i32) -> Option<T> {
    let mut value = std::mem::MaybeUninit::<T>::zeroed();
    let mut len = size_of::<T>() as libc::socklen_t;
    // SAFETY: the kernel writes no more than `len` bytes.
    let result =
        unsafe { libc::getsockopt(fd.0, libc::SOL_SOCKET, option, value.as_mut_ptr().cast(), &mut len) };
    // SAFETY: zeros, or what the kernel wrote; both are values of the plain structures of numbers that are
    // asked for.
    (result == 0 && len as usize == size_of::<T>()).then(|| unsafe { value.assume_init() })
}

/// Whether a socket's connection goes on to be made when `connect` has returned.
pub(super) fn is_of_internet(fd: &Fd) -> bool {
    matches!(socket_option(fd, libc::SO_DOMAIN), Some(libc::AF_INET | libc::AF_INET6))
}

fn has(fd: &Fd, events: i16) -> bool {
    let mut poll = libc::pollfd { fd: fd.0, events, revents: 0 };
    // SAFETY: one pollfd.
    unsafe { libc::poll(&mut poll, 1, 0) > 0 }
}

fn has_of(thread: Thread, fd: i32, events: i16) -> bool {
    copy_of(thread, fd).is_some_and(|fd| has(&fd, events))
}

/// Whether a call made now would find what it waits for. Of who `connect`s to a socket of this machine
/// (`AF_UNIX`) that cannot be seen, nor of semaphores of another namespace.
pub(super) fn is_ready(thread: Thread, call: i64, arguments: &[u64; 6], place: Place) -> bool {
    match place {
        Place::Socket(i, _) if call == libc::SYS_connect => copy_of(thread, arguments[i] as i32)
            .is_some_and(|fd| is_of_internet(&fd) && has(&fd, libc::POLLOUT)),
        Place::Socket(i, libc::SO_SNDTIMEO) => has_of(thread, arguments[i] as i32, libc::POLLOUT),
        Place::Socket(i, _) => has_of(thread, arguments[i] as i32, libc::POLLIN),
        _ if is_select(call) => is_any_set(thread, arguments),
        _ => match call {
            libc::SYS_ppoll => is_any_polled(thread, arguments[0], arguments[1]),
            libc::SYS_rt_sigtimedwait => is_signal_there(thread, arguments[0]),
            libc::SYS_semtimedop => would_not_wait(thread, arguments),
            // An epoll is itself something to be polled.
            _ => has_of(thread, arguments[0] as i32, libc::POLLIN),
        },
    }
}

/// `ppoll`: `count` structures of a word each, descriptor and events.
fn is_any_polled(thread: Thread, at: u64, count: u64) -> bool {
    (0..count).map_while(|i| ptrace::peek(thread.tid, at + 8 * i).ok()).any(|word| {
        let (fd, events) = (word as i32, (word >> 32) as i16);
        fd >= 0 && has_of(thread, fd, events)
    })
}

/// The sets of `select`, each with what is to be polled for it.
const SETS: [(usize, i16); 3] = [(1, libc::POLLIN), (2, libc::POLLOUT), (3, libc::POLLPRI)];

fn is_any_set(thread: Thread, arguments: &[u64; 6]) -> bool {
    let count = (arguments[0] as i32).max(0) as u64;
    SETS.iter().filter(|(i, _)| arguments[*i] != 0).any(|&(i, events)| {
        (0..count.div_ceil(64)).any(|w| {
            let word = ptrace::peek(thread.tid, arguments[i] + 8 * w).unwrap_or(0);
            let mut fds = (0..64).filter(|bit| word >> bit & 1 != 0).map(|bit| w * 64 + bit);
            fds.any(|fd| fd < count && has_of(thread, fd as i32, events))
        })
    })
}

/// Writes down that nothing is ready, as `select` does at the end of its time. Whether that was possible.
pub(super) fn clear_sets(thread: Thread, arguments: &[u64; 6]) -> bool {
    let count = (arguments[0] as i32).max(0) as u64;
    SETS.iter().filter(|(i, _)| arguments[*i] != 0).all(|&(i, _)| {
        (0..count.div_ceil(64)).all(|w| ptrace::poke(thread.tid, arguments[i] + 8 * w, 0).is_ok())
    })
}

fn is_signal_there(thread: Thread, set: u64) -> bool {
    let Ok(set) = ptrace::peek(thread.tid, set) else { return false };
    let text = std::fs::read_to_string(format!("/proc/{}/status", thread.tid)).unwrap_or_default();
    text.lines().any(|line| {
        let mask = line.strip_prefix("SigPnd:").or_else(|| line.strip_prefix("ShdPnd:"));
        let pending = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
        pending.is_some_and(|pending| pending & set != 0)
    })
}

/// Whether the operations of `semtimedop` would all be done at once.
fn would_not_wait(thread: Thread, arguments: &[u64; 6]) -> bool {
    let space = |of: &str| std::fs::read_link(format!("/proc/{of}/ns/ipc")).ok();
    if space("self").is_none() || space("self") != space(&thread.tid.to_string()) {
        return false;
    }
    let id = arguments[0] as i32;
    let mut values = BTreeMap::new();
    (0..arguments[2].min(500)).all(|i| {
        let Ok((number, change)) = operation(thread, arguments[1] + 6 * i) else { return false };
        let value = values.entry(number).or_insert_with(|| {
            // SAFETY: asks only.
            unsafe { libc::semctl(id, i32::from(number), libc::GETVAL) }
        });
        if *value < 0 || (change == 0 && *value != 0) || *value + i32::from(change) < 0 {
            return false;
        }
        *value += i32::from(change);
        true
    })
}

/// The number of a semaphore and what is added to it, from a `sembuf`.
fn operation(thread: Thread, at: u64) -> Result<(u16, i16), Errno> {
    let half = |at: u64| ptrace::peek(thread.tid, at & !7).map(|word| (word >> (8 * (at & 7))) as u16);
    Ok((half(at)?, half(at + 2)? as i16))
}
