//! Stopping the other threads of the process while its memory is moved.
//!
//! Each other thread is sent a real-time signal; its handler acknowledges and waits on a futex until the
//! memory is in place again. **The acknowledgement is what makes it safe**: a thread acknowledges from user
//! space, so no system call of its own is under way then. A `read(2)` that was copying into an arena has
//! returned (or was interrupted before it copied, and `SA_RESTART` starts it again afterwards); a copy that
//! were still in flight would land in pages about to be replaced, and be lost.
//!
//! A thread that sleeps with the signal blocked, or has received it without its handler (`sigwait`, by a bare
//! system call), cannot be stopped: where only such are left after
//! [`PATIENCE_NS`], all are let go and the caller hears `Busy`. One that is merely not getting a processor,
//! or waits for the disk (a page of memory that is out, a direct read), is waited for longer
//! ([`STARVED_NS`]); on a busy machine, and while other ranks are paged, that is common. So are those that
//! sleep beside it: they may wait for a lock that it holds. Nothing here allocates, and the only memory used
//! is static.
//!
//! Thread ids are read from `/proc/self/task`. In a PID namespace whose `/proc` is an outer one they are the
//! outer ids; the one `tgkill` understands is the last on the `NSpid:` line of the thread's `status`.

use crate::lock::{Guard, Lock, futex_wait, futex_wake};
use crate::set::MAX_ARENAS;
use crate::status::{self, Status};
use crate::sys::{self, Errno, Fd, PathBuf};
use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut, Range};
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicUsize, Ordering};

/// Most threads that can be parked.
const MAX_THREADS: usize = 8192;
/// How long threads have to acknowledge, all together.
const PATIENCE_NS: u64 = 100_000_000;
/// How long beyond that for threads that could acknowledge, were they run, or the disk faster.
const STARVED_NS: u64 = 3_000_000_000;
/// How often to look whether the threads waited for still live.
const GLANCE_NS: u64 = 5_000_000;

/// Threads that could not be stopped; one of them is named.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ParkError {
    Busy(i32),
    System(&'static str, Errno),
}

/// Odd while threads are to wait.
static TURN: AtomicU32 = AtomicU32::new(0);
/// Acknowledgements of this turn; the parker sleeps on it.
static ACKED: AtomicU32 = AtomicU32::new(0);
static COUNT: AtomicUsize = AtomicUsize::new(0);
static TIDS: [AtomicI32; MAX_THREADS] = [const { AtomicI32::new(0) }; MAX_THREADS];
/// The same threads as /proc lists them.
static LISTED: [AtomicI32; MAX_THREADS] = [const { AtomicI32::new(0) }; MAX_THREADS];
/// The turn in which the thread of the same index acknowledged; [`GONE`] if it has ended.
static WHEN: [AtomicU32; MAX_THREADS] = [const { AtomicU32::new(0) }; MAX_THREADS];
const GONE: u32 = u32::MAX;
/// Instead: the stack on which it would wait lies in the memory that is to be moved. It goes on.
/// (Turns are odd, and `GONE` is the one that is never reached.)
const ON_IT: u32 = u32::MAX - 1;
/// The memory that is to be moved. Kept here because a handler that comes late may not look at an arena,
/// which may be gone by then.
static TO_MOVE: [[AtomicUsize; 2]; MAX_ARENAS] =
    [const { [AtomicUsize::new(0), AtomicUsize::new(0)] }; MAX_ARENAS];
/// Ranges in that.
static RANGES: AtomicUsize = AtomicUsize::new(0);

/// Whether an address lies in what is to be moved.
fn is_to_move(at: usize) -> bool {
    let ranges = &TO_MOVE[..RANGES.load(Ordering::Acquire)];
    ranges
        .iter()
        .any(|[start, end]| (start.load(Ordering::Relaxed)..end.load(Ordering::Relaxed)).contains(&at))
}
/// The signal taken, 0 before the first use.
static SIGNAL: AtomicI32 = AtomicI32::new(0);

extern "C" fn on_park(_: i32) {
    let turn = TURN.load(Ordering::Acquire);
    if turn.is_multiple_of(2) {
        return; // sent in a turn that has been given up
    }
    // SAFETY: errno is saved because the interrupted code may be about to read it; gettid has no
    // preconditions.
    let (saved, me) = unsafe { (*libc::__errno_location(), libc::gettid()) };
    let count = COUNT.load(Ordering::Acquire);
    for (tid, when) in TIDS[..count].iter().zip(&WHEN) {
        if tid.load(Ordering::Relaxed) == me {
            // What belongs to the thread itself (errno, what the kernel notes of processors) may lie
            // elsewhere, if this is a coroutine.
            // SAFETY: no preconditions.
            let own = unsafe { libc::__errno_location() }.addr();
            let on_it = is_to_move(std::ptr::from_ref(&saved).addr()) || is_to_move(own);
            let says = if on_it { ON_IT } else { turn };
            if when.swap(says, Ordering::AcqRel) != says {
                ACKED.fetch_add(1, Ordering::Release);
                futex_wake(&ACKED, 1);
            }
            while !on_it && TURN.load(Ordering::Acquire) == turn {
                futex_wait(&TURN, turn, None);
            }
            break;
        }
    }
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = saved };
}

fn action(number: i32) -> Option<libc::sigaction> {
    // SAFETY: zeroed sigactions are valid; only asks.
    unsafe {
        let mut now: libc::sigaction = std::mem::zeroed();
        (libc::sigaction(number, std::ptr::null(), &mut now) == 0).then_some(now)
    }
}

/// The signal taken, if one was.
pub(crate) fn chosen() -> Option<i32> {
    Some(SIGNAL.load(Ordering::Relaxed)).filter(|&signal| signal != 0)
}

/// Another number whenever threads are to wait.
pub(crate) fn stops() -> u32 {
    TURN.load(Ordering::Acquire)
}

/// Takes a real-time signal nobody uses, from the top, and installs the handler. Programs reset signals they
/// never installed, or take one for themselves, so that it is still ours is looked up each time.
pub(crate) fn signal() -> Result<i32, Errno> {
    let ours = on_park as *const () as usize;
    let known = SIGNAL.load(Ordering::Relaxed);
    if known != 0 && action(known).is_some_and(|now| now.sa_sigaction == ours) {
        return Ok(known);
    }
    for number in (libc::SIGRTMIN()..libc::SIGRTMAX()).rev() {
        // One that is ignored could be so for a reason, but ours it was before.
        let free = |now: &libc::sigaction| {
            now.sa_sigaction == libc::SIG_DFL || (number == known && now.sa_sigaction == libc::SIG_IGN)
        };
        if !action(number).as_ref().is_some_and(free) {
            continue;
        }
        // SAFETY: zeroed sigactions are valid; the handler is async-signal-safe (atomics and futex only). The
        // full mask keeps other handlers of the thread from running, and writing memory, while it is parked.
        unsafe {
            let mut new: libc::sigaction = std::mem::zeroed();
            new.sa_sigaction = ours;
            // Not SA_ONSTACK: many have that stack from `malloc` (Python's faulthandler, for one), in memory
            // that is to be moved, and would never be.
            new.sa_flags = libc::SA_RESTART;
            // Of all signals: `sigfillset` leaves out those of glibc itself, and a thread would be cancelled,
            // and unwound, while it is parked.
            (&raw mut new.sa_mask).write_bytes(0xff, 1);
            if libc::sigaction(number, &new, std::ptr::null_mut()) != 0 {
                return Err(Errno::last());
            }
        }
        SIGNAL.store(number, Ordering::Relaxed);
        return Ok(number);
    }
    Err(Errno(libc::EBUSY))
}

/// Space for directory entries, used under the pager's lock only.
struct Entries(UnsafeCell<[u64; 512]>);
// SAFETY: only the parking thread uses it, which holds the pager's lock.
unsafe impl Sync for Entries {}
static ENTRIES: Entries = Entries(UnsafeCell::new([0; 512]));

/// Calls `f` with every thread id listed in /proc/self/task.
fn each_task(mut f: impl FnMut(i32) -> Result<(), ParkError>) -> Result<(), ParkError> {
    let mut done = Ok(());
    // SAFETY: under the pager's lock.
    let listed = unsafe {
        each_entry(c"/proc/self/task", &mut |name| {
            if let (Ok(()), Some(id)) = (&done, status::number(name)) {
                done = f(id);
            }
        })
    };
    listed.map_err(|e| ParkError::System("list /proc/self/task", e)).and(done)
}

/// Calls `f` with the name of every entry of a directory.
///
/// # Safety
/// The caller holds the pager's lock, and `f` does not call this.
pub(crate) unsafe fn each_entry(path: &std::ffi::CStr, f: &mut dyn FnMut(&[u8])) -> Result<(), Errno> {
    let dir = Fd::open(path, libc::O_RDONLY | libc::O_DIRECTORY)?;
    // SAFETY: see Entries.
    let buf = unsafe { &mut *ENTRIES.0.get() };
    let size = size_of_val(buf);
    loop {
        // SAFETY: the kernel writes at most `size` bytes into the buffer.
        let n = unsafe { libc::syscall(libc::SYS_getdents64, dir.0, buf.as_mut_ptr(), size) };
        if n < 0 {
            return Err(Errno::last());
        }
        if n == 0 {
            return Ok(());
        }
        // SAFETY: the kernel filled `n` bytes, at most the buffer's size.
        let bytes = unsafe { std::slice::from_raw_parts(buf.as_ptr().cast::<u8>(), n as usize) };
        let mut at = 0;
        while at + 19 < bytes.len() {
            // A linux_dirent64: inode and offset of 8 bytes each, record length of 2, type of 1, name.
            let len = u16::from_ne_bytes([bytes[at + 16], bytes[at + 17]]) as usize;
            let name = &bytes[at + 19..at + len];
            let name = &name[..name.iter().position(|&b| b == 0).unwrap_or(name.len())];
            f(name);
            at += len;
        }
    }
}

/// Whether the process has one thread, if that can be told without reading a file: the kernel counts a link
/// of the directory of threads for each, beside the two that every directory has.
fn is_alone() -> bool {
    // SAFETY: a zeroed stat is valid, and the kernel fills it.
    unsafe {
        let mut stat: libc::stat = std::mem::zeroed();
        libc::stat(c"/proc/self/task".as_ptr(), &mut stat) == 0 && stat.st_nlink == 3
    }
}

fn task_path(id: i32) -> PathBuf<64> {
    let mut path = PathBuf::new();
    path.push(b"/proc/self/task/").push_number(id as u64).push(b"/status");
    path
}

fn now_ns() -> u64 {
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes one timespec.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut t) };
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

/// The other threads wait until this is dropped.
pub(crate) struct Parked {
    /// There are none.
    pub alone: bool,
}

impl Drop for Parked {
    fn drop(&mut self) {
        if !TURN.load(Ordering::Relaxed).is_multiple_of(2) {
            TURN.fetch_add(1, Ordering::Release);
            futex_wake(&TURN, i32::MAX);
        }
    }
}

/// Stops every other thread of the process; it is `Busy` if the stack of one lies in what is `to_move`, as
/// many ranges as a set has arenas at most. The caller holds the pager's lock, and nothing another thread
/// needs to get out of a signal handler.
pub(crate) fn park_others(to_move: impl Iterator<Item = Range<usize>>) -> Result<Parked, ParkError> {
    if is_alone() {
        return Ok(Parked { alone: true }); // and nobody but us could start another
    }
    let failed = |e| ParkError::System("read /proc/thread-self/status", e);
    let own = status::own().map_err(failed)?;
    if own.threads == 1 {
        return Ok(Parked { alone: true });
    }
    let signal = signal().map_err(|e| ParkError::System("install the parking signal", e))?;
    // SAFETY: neither has preconditions.
    let (pid, me) = unsafe { (libc::getpid(), libc::gettid()) };
    COUNT.store(0, Ordering::Relaxed);
    ACKED.store(0, Ordering::Relaxed);
    RANGES.store(0, Ordering::Relaxed);
    for ([start, end], range) in TO_MOVE.iter().zip(to_move) {
        start.store(range.start, Ordering::Relaxed);
        end.store(range.end, Ordering::Relaxed);
        RANGES.fetch_add(1, Ordering::Release);
    }
    let turn = TURN.fetch_add(1, Ordering::AcqRel) + 1;
    let parked = Parked { alone: false };
    let deadline = now_ns() + PATIENCE_NS;
    let mut living = own.threads;
    loop {
        let before = COUNT.load(Ordering::Relaxed);
        let (mut seen, mut last) = (0, me);
        each_task(|id| {
            (seen, last) = (seen + 1, id);
            let mut tid = id;
            if !own.same {
                match status::of(task_path(id).as_cstr()) {
                    Ok(Some(s)) if !s.dead => tid = s.tid,
                    Ok(_) => return Ok(()),
                    Err(e) => return Err(ParkError::System("read a thread's status", e)),
                }
            }
            let count = COUNT.load(Ordering::Relaxed);
            if tid == me || TIDS[..count].iter().any(|t| t.load(Ordering::Relaxed) == tid) {
                return Ok(());
            }
            if count == MAX_THREADS {
                return Err(ParkError::Busy(tid));
            }
            WHEN[count].store(0, Ordering::Relaxed);
            TIDS[count].store(tid, Ordering::Relaxed);
            LISTED[count].store(id, Ordering::Relaxed);
            COUNT.store(count + 1, Ordering::Release);
            if !send(pid, tid, signal, deadline)? {
                WHEN[count].store(GONE, Ordering::Relaxed);
            }
            Ok(())
        })?;
        await_acks(turn, signal, deadline)?;
        // Only a thread not yet stopped can start one, so a pass that sees every thread there was before it,
        // and nobody new, ends it. One that ends while the kernel lists it ends the list, and hides those
        // behind it, who may be new.
        if COUNT.load(Ordering::Relaxed) == before && seen >= living {
            return Ok(parked);
        }
        if now_ns() > deadline + STARVED_NS {
            return Err(ParkError::Busy(last)); // they come and go too fast
        }
        living = status::own().map_err(failed)?.threads;
    }
}

/// Sends a thread the parking signal; whether it was there. The kernel may have no room for one more just now
/// (`EAGAIN`): that does not mean that the thread is gone.
fn send(pid: i32, tid: i32, signal: i32, deadline: u64) -> Result<bool, ParkError> {
    loop {
        // SAFETY: sends a signal whose handler is installed.
        if unsafe { libc::syscall(libc::SYS_tgkill, pid, tid, signal) } == 0 {
            return Ok(true);
        }
        match Errno::last() {
            Errno(libc::ESRCH) => return Ok(false),
            Errno(libc::EAGAIN) if now_ns() <= deadline => sys::pause(1_000_000),
            Errno(libc::EAGAIN) => return Err(ParkError::Busy(tid)),
            e => return Err(ParkError::System("signal a thread", e)),
        }
    }
}

/// Waits until each listed thread has acknowledged or ended.
fn await_acks(turn: u32, signal: i32, deadline: u64) -> Result<(), ParkError> {
    loop {
        let acked = ACKED.load(Ordering::Acquire);
        let count = COUNT.load(Ordering::Relaxed);
        if let Some(i) = (0..count).find(|&i| WHEN[i].load(Ordering::Acquire) == ON_IT) {
            return Err(ParkError::Busy(TIDS[i].load(Ordering::Relaxed)));
        }
        let missing = |i: &usize| {
            let when = WHEN[*i].load(Ordering::Acquire);
            when != turn && when != GONE
        };
        let Some(first) = (0..count).find(missing) else { return Ok(()) };
        let before = now_ns();
        futex_wait(&ACKED, acked, Some(GLANCE_NS));
        if now_ns() - before < GLANCE_NS {
            continue;
        }
        let late = now_ns().saturating_sub(deadline);
        let (mut stuck, mut comes) = (None, false);
        for i in (first..count).filter(missing) {
            let tid = TIDS[i].load(Ordering::Relaxed);
            let seen = status::of(task_path(LISTED[i].load(Ordering::Relaxed)).as_cstr());
            match seen.map_err(|e| ParkError::System("read a thread's status", e))? {
                // Also a main thread that has left by pthread_exit: it stays listed as a zombie.
                Some(Status { dead: true, .. }) | None => WHEN[i].store(GONE, Ordering::Relaxed),
                Some(_) if late > STARVED_NS => return Err(ParkError::Busy(tid)),
                Some(s) if s.cannot_stop(signal) => stuck = Some(tid),
                Some(_) => comes = true,
            }
        }
        if let Some(tid) = stuck.filter(|_| late > 0 && !comes) {
            return Err(ParkError::Busy(tid));
        }
    }
}

/// What a thread's own faults raise. Where one is held back, the kernel ends the process at once, whatever
/// handler there is.
const FAULTS: [i32; 5] = [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP];

/// All signals but those that a thread's own faults raise: what is held back while a handler runs. With those
/// of the C library itself, which its `sigfillset` leaves out.
pub fn all_but_faults() -> libc::sigset_t {
    // SAFETY: any bits are a valid set, and each of these is a signal.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        (&raw mut set).write_bytes(0xff, 1);
        FAULTS.iter().for_each(|&signal| {
            libc::sigdelset(&raw mut set, signal);
        });
        set
    }
}

/// The signals that have a handler, bit 0 for signal 1; but for those that faults raise, and our own.
pub(crate) fn handled_signals() -> u64 {
    let is_handled = |number: &i32| {
        *number != SIGNAL.load(Ordering::Relaxed)
            && !FAULTS.contains(number)
            && action(*number).is_some_and(|now| ![libc::SIG_DFL, libc::SIG_IGN].contains(&now.sa_sigaction))
    };
    (1..=64).filter(is_handled).fold(0, |mask, number| mask | 1 << (number - 1))
}

/// All signals of this thread are held back until dropped, but those its own faults raise: a handler that ran
/// in the middle of moving memory could write what is then lost.
pub(crate) struct Masked(u64);

impl Masked {
    pub fn new() -> Self {
        Self(set_mask(of_kernel(&all_but_faults())))
    }
}

impl Drop for Masked {
    fn drop(&mut self) {
        set_mask(self.0);
    }
}

/// The kernel's part of a set of the C library: bit 0 for signal 1.
pub(crate) fn of_kernel(set: &libc::sigset_t) -> u64 {
    // SAFETY: the set is longer, and its first bits are those of the kernel, by the interface between both.
    unsafe { std::ptr::from_ref(set).cast::<u64>().read() }
}

/// Sets this thread's mask of signals, bit 0 for signal 1; what it was. `pthread_sigmask` would leave out the
/// signals of glibc itself, by which a thread is cancelled wherever it is.
pub(crate) fn set_mask(mask: u64) -> u64 {
    let mut old = 0_u64;
    // SAFETY: both are the kernel's masks, of the size that is named; it writes one of them.
    unsafe {
        let (new, old) = (&raw const mask, &raw mut old);
        libc::syscall(libc::SYS_rt_sigprocmask, libc::SIG_SETMASK, new, old, size_of::<u64>());
    }
    old
}

/// A lock, and this thread's signals held back for as long as it is held: it is not parked meanwhile, and no
/// handler of its runs. For locks that are held shortly, and that the pager takes too once all others are
/// parked.
pub(crate) struct Unparked<'a, T> {
    // Let go of in this order.
    guard: Guard<'a, T>,
    _masked: Masked,
}

impl<'a, T> Unparked<'a, T> {
    pub fn lock(lock: &'a Lock<T>) -> Self {
        let masked = Masked::new();
        Self { guard: lock.lock(), _masked: masked }
    }
}

impl<T> Deref for Unparked<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.guard
    }
}

impl<T> DerefMut for Unparked<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.guard
    }
}
