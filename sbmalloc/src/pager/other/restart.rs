//! Calls with a timeout that a stop broke off: they are made again, but their time does not begin anew.
//!
//! The kernel goes on with the rest of the time by itself where it remembers an end (`poll`, `nanosleep`,
//! `futex`), where the program gave one (`mq_timedreceive`, whatever is "until"), and where it may write what
//! is left over what the program gave (`select`, `ppoll`). The others return `EINTR`, and made again with the
//! same arguments they would wait as long as at first: stopped more often than that, for ever.
//!
//! *What is changed.* Nothing that a program could see. A shorter timeout in the call's arguments would be
//! found there by the program afterwards: all registers but the result's outlast a call, and compilers rely
//! on that. So the call is made again as it was, but since when it was broken off first is written where only
//! the kernel reads it: into the upper half of the register with the call's number, of which the kernel takes
//! the lower (Linux 5.14; before, nothing is written, and the time begins anew). It comes back with the next
//! stop if it is still that call, made again and again; each call that the program makes has none. So nothing
//! has to be remembered here, and no call is ever taken for another.
//!
//! *What is done.* When a thread is to go on whose call's time is over by then, the call returns what it
//! returns at the end of its time: unless what it waits for is there, then it is made again and finds it.
//! When the call began is not known, only when it was first broken off; so it never returns too early, and
//! too late by no more than once its timeout, or twice if it is let go shortly before the end and not stopped
//! again. Threads that stay traced (`parts`) are stopped again at the end of their time.
//!
//! *Programs of 32 bits*, which run beside a rank in parts and are not paged: of theirs only calls without an
//! end are made again. Their registers have no such upper half, and made again without it the others might
//! never end, so those return `EINTR`, as after `SIGSTOP` and `SIGCONT`.
//!
//! *Until it is let go* the thread is only looked at by means that do not wait for pages that are out. What
//! cannot be looked at is taken to be not there.

mod ready;

use super::arch::Registers;
use super::ptrace;
use ready::{copy_of, is_of_internet, socket_option};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// Beyond this nothing is written: what is written wraps round after 24 days.
const LONGEST: u64 = 1 << 30;
const WRAP: u64 = (1 << 31) - 1;

/// ms, by a clock that always goes on.
pub(super) fn now() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel fills in one timespec.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
    time.tv_sec as u64 * 1000 + time.tv_nsec as u64 / 1_000_000
}

/// What is written for a moment, never 0.
fn mark_of(moment: u64) -> u32 {
    (moment % WRAP) as u32 + 1
}

/// The last moment for which that is written.
fn moment_of(mark: u32, now: u64) -> u64 {
    let ago = (now % WRAP + WRAP - (u64::from(mark) - 1) % WRAP) % WRAP;
    now.saturating_sub(ago)
}

/// Whether the kernel takes only the lower half of a call's number.
fn has_room() -> bool {
    static ROOM: OnceLock<bool> = OnceLock::new();
    *ROOM.get_or_init(|| {
        // SAFETY: at worst there is no such call.
        let (told, own) = unsafe { (libc::syscall(libc::SYS_getpid | 1 << 32), libc::getpid()) };
        told == libc::c_long::from(own)
    })
}

/// Where a call's timeout is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// An argument, ms.
    Millis(usize),
    /// An argument that points to a `timespec`.
    Spec(usize),
    /// An argument that points to a `timeval`.
    Val(usize),
    /// In the socket that is this argument, and with what option of it.
    Socket(usize, i32),
}

/// Where the timeouts of a call are that returns `EINTR`.
fn places(call: i64) -> &'static [Place] {
    const RECEIVE: Place = Place::Socket(0, libc::SO_RCVTIMEO);
    const SEND: Place = Place::Socket(0, libc::SO_SNDTIMEO);
    #[cfg(target_arch = "x86_64")]
    match call {
        libc::SYS_epoll_wait => return &[Place::Millis(3)],
        libc::SYS_select => return &[Place::Val(4)],
        _ => {}
    }
    match call {
        libc::SYS_epoll_pwait => &[Place::Millis(3)],
        libc::SYS_epoll_pwait2 | libc::SYS_semtimedop => &[Place::Spec(3)],
        libc::SYS_ppoll | libc::SYS_rt_sigtimedwait => &[Place::Spec(2)],
        libc::SYS_pselect6 => &[Place::Spec(4)],
        libc::SYS_read
        | libc::SYS_readv
        | libc::SYS_preadv2
        | libc::SYS_recvfrom
        | libc::SYS_recvmsg
        | libc::SYS_recvmmsg
        | libc::SYS_accept
        | libc::SYS_accept4 => &[RECEIVE],
        libc::SYS_write
        | libc::SYS_writev
        | libc::SYS_pwritev2
        | libc::SYS_sendto
        | libc::SYS_sendmsg
        | libc::SYS_sendmmsg
        | libc::SYS_sendfile
        | libc::SYS_connect => &[SEND],
        libc::SYS_splice => &[RECEIVE, Place::Socket(2, libc::SO_SNDTIMEO)],
        _ => &[],
    }
}

/// A thread that stands.
#[derive(Clone, Copy)]
pub(super) struct Thread {
    pub tid: i32,
    pub tgid: i32,
}

/// A call that a thread which stands will make again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Again {
    /// With a timeout that is over then, ms.
    Until { call: i64, place: Place, over: u64 },
    /// The kernel has written over the timeout what was left when the thread was stopped.
    Left { place: Place, stopped: Instant },
}

/// What a timeout is, once it is known.
enum Timeout {
    None,
    Some(Duration),
    /// It cannot be looked at.
    Unknown,
}

/// Has the kernel make the call again that the stop broke off, if it broke off one. Whether the registers
/// were changed, and what of the call is to be seen to when the thread goes on.
pub(super) fn undo_interruption(thread: Thread, regs: &mut Registers) -> (bool, Option<Again>) {
    let changed = regs.undo_interruption();
    let Some(call) = regs.call_made_again() else { return (changed, None) };
    let before = regs.mark();
    if !changed && before == 0 {
        let place = places(call).first().copied();
        let is_written_over = matches!(place, Some(Place::Spec(_) | Place::Val(_)))
            && !matches!(call, libc::SYS_epoll_pwait2 | libc::SYS_semtimedop | libc::SYS_rt_sigtimedwait);
        let again =
            place.filter(|_| is_written_over).map(|place| Again::Left { place, stopped: Instant::now() });
        return (false, again);
    }
    let now = now();
    let since = if before == 0 { now } else { moment_of(before, now) };
    for &place in places(call) {
        let timeout = match timeout(thread, regs, place) {
            Timeout::None => continue,
            Timeout::Some(timeout) => timeout.as_micros().div_ceil(1000) as u64,
            Timeout::Unknown => u64::MAX,
        };
        if timeout > LONGEST && timeout != u64::MAX {
            break;
        }
        let is_new = before == 0 && has_room();
        if is_new {
            regs.set_mark(mark_of(since));
        }
        // One more, as what is a part of a ms is cut off from the moments.
        let over = since.saturating_add(timeout).saturating_add(1);
        let known = timeout != u64::MAX;
        return (changed || is_new, known.then_some(Again::Until { call, place, over }));
    }
    (changed, None)
}

/// The same of a thread that runs a program of 32 bits, where the call waits without an end.
pub(super) fn undo_interruption_of_32_bits(tid: i32) {
    if let Ok(Some(mut regs)) = ptrace::registers_32(tid)
        && regs.undo_interruption()
    {
        // What fails here was killed, which will be heard of.
        let _ = ptrace::set_registers_32(tid, &regs);
    }
}

fn timeout(thread: Thread, regs: &Registers, place: Place) -> Timeout {
    let from = |seconds: u64, fraction: Duration| match (seconds as i64) < 0 {
        true => Timeout::None,
        false => Timeout::Some(Duration::from_secs(seconds.min(LONGEST)) + fraction),
    };
    let arguments = regs.arguments();
    match place {
        Place::Millis(i) => match arguments[i] as i32 {
            ms if ms < 0 => Timeout::None,
            ms => Timeout::Some(Duration::from_millis(ms as u64)),
        },
        Place::Spec(i) | Place::Val(i) if arguments[i] == 0 => Timeout::None,
        Place::Spec(i) | Place::Val(i) => {
            let at = arguments[i];
            match (ptrace::peek(thread.tid, at), ptrace::peek(thread.tid, at + 8)) {
                (Ok(seconds), Ok(part)) if matches!(place, Place::Spec(_)) => {
                    from(seconds, Duration::from_nanos(part))
                }
                (Ok(seconds), Ok(part)) => from(seconds, Duration::from_micros(part)),
                _ => Timeout::Unknown,
            }
        }
        Place::Socket(i, option) => {
            let time = copy_of(thread, arguments[i] as i32)
                .and_then(|fd| socket_option::<libc::timeval>(&fd, option))
                .filter(|time| time.tv_sec > 0 || time.tv_usec > 0);
            // What is no socket, or has no timeout, is broken off for another reason.
            time.map_or(Timeout::None, |time| {
                from(time.tv_sec as u64, Duration::from_micros(time.tv_usec as u64))
            })
        }
    }
}

impl Again {
    /// Sees to the call of a thread that goes on next. When its time will be over, if it is not.
    pub fn resume(self, thread: Thread) -> Option<u64> {
        match self {
            Self::Left { place, stopped } => {
                shorten(thread, place, stopped.elapsed());
                None
            }
            Self::Until { over, .. } if now() < over => Some(over),
            Self::Until { call, place, .. } => {
                end(thread, call, place);
                None
            }
        }
    }

    /// The call, if it has an end.
    pub fn call(self) -> Option<i64> {
        match self {
            Self::Until { call, .. } => Some(call),
            Self::Left { .. } => None,
        }
    }
}

/// Has a call return that its time is over, unless what it waits for is there.
fn end(thread: Thread, call: i64, place: Place) {
    let Ok(Some(mut regs)) = ptrace::registers(thread.tid) else { return };
    let arguments = regs.arguments();
    if regs.call_made_again() != Some(call) || ready::is_ready(thread, call, &arguments, place) {
        return;
    }
    if is_select(call) && !ready::clear_sets(thread, &arguments) {
        // It is made again, which brings the pages with the sets.
        return;
    }
    let result = match place {
        Place::Socket(i, _) if call == libc::SYS_connect => {
            let goes_on = copy_of(thread, arguments[i] as i32).is_some_and(|fd| is_of_internet(&fd));
            -i64::from(if goes_on { libc::EINPROGRESS } else { libc::EAGAIN })
        }
        Place::Socket(..) => -i64::from(libc::EAGAIN),
        _ if matches!(call, libc::SYS_semtimedop | libc::SYS_rt_sigtimedwait) => -i64::from(libc::EAGAIN),
        _ => 0,
    };
    regs.end_call(result);
    // What fails here was killed, which will be heard of.
    let _ = ptrace::set_registers(thread.tid, &regs);
}

fn is_select(call: i64) -> bool {
    #[cfg(target_arch = "x86_64")]
    if call == libc::SYS_select {
        return true;
    }
    call == libc::SYS_pselect6
}

/// Takes the time for which the thread stood off what the kernel has left of a timeout.
fn shorten(thread: Thread, place: Place, stood: Duration) {
    let Ok(Some(regs)) = ptrace::registers(thread.tid) else { return };
    let (Place::Spec(i) | Place::Val(i)) = place else { return };
    let at = regs.arguments()[i];
    if regs.call_made_again().is_none() || at == 0 {
        return;
    }
    let unit = if matches!(place, Place::Spec(_)) { 1 } else { 1000 };
    let (Ok(seconds), Ok(part)) = (ptrace::peek(thread.tid, at), ptrace::peek(thread.tid, at + 8)) else {
        return;
    };
    if seconds > LONGEST || part >= 1_000_000_000 / unit {
        return;
    }
    let left = Duration::new(seconds, (part * unit) as u32).saturating_sub(stood);
    // Rounded up, as it must not be over too early.
    let left = left + Duration::from_nanos(unit - 1);
    let _ = ptrace::poke(thread.tid, at, left.as_secs());
    let _ = ptrace::poke(thread.tid, at + 8, u64::from(left.subsec_nanos()) / unit);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_comes_back_from_its_mark() {
        for now in [0, 5, WRAP - 1, WRAP, WRAP + 1, 7 * WRAP + 12_345] {
            for ago in [0, 1, 999, LONGEST + 1000] {
                let moment: u64 = now.saturating_sub(ago);
                let mark = mark_of(moment);
                assert!(mark != 0 && mark < 1 << 31);
                assert_eq!(moment_of(mark, now), moment, "{now} {ago}");
            }
        }
    }

    #[test]
    fn calls_without_a_timeout_have_none() {
        for call in [libc::SYS_close, libc::SYS_wait4, libc::SYS_futex, libc::SYS_nanosleep, libc::SYS_flock]
        {
            assert!(places(call).is_empty());
        }
    }
}
