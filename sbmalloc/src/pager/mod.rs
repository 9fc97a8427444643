//! The pager: moves the arenas of a process out to their scratch files, and in again.
//!
//! It runs on the thread that calls it, typically the one that waits in the runtime's library; the other
//! threads of the process are parked meanwhile (`threads`). Nothing in here allocates, and
//! nothing takes a lock of the allocators, so it may run inside [`Account::charge`](crate::Account::charge),
//! whatever the parked threads were doing.
//!
//! Memory moves by granules of 2 MiB; each is resident or *out*. [`evict_to`] and [`restore_for`] move a
//! part, chosen by what was used the last times the process waited at the same *site* (`history`).
//!
//! `plan` and `history` decide (pure, no system calls), `own` carries out for the calling process, with
//! `evict` and `restore` for the transfers of an evict and a restore; `images` packs what goes out
//! compressed, by `lz4`, where `judge` says that it pays; `look` sees what of out granules was touched and
//! verifies it; `pagemap` tells which pages are there; `fault` says what happened if packed memory was
//! touched. `transfer` is what moves have in common that are made from outside (`other`).

mod async_io;
mod damage;
mod evict;
mod fault;
mod fork;
mod history;
mod images;
mod judge;
mod look;
mod lz4;
pub mod other;
mod own;
mod pack;
mod pagemap;
mod plan;
mod restore;
mod transfer;

pub(crate) use fault::hold as hold_handler;
pub(crate) use fork::{after_fork_in_child, after_fork_in_parent, hold};
pub(crate) use history::{SLOTS, Sites};
pub(crate) use own::Buffers;

use crate::lock::{Guard, Lock};
use crate::set::{ArenaSet, PROCESS};
use crate::sys::{Errno, PAGE};
pub use crate::threads::all_but_faults;
use crate::threads::{self, Masked, ParkError};
use std::ops::{AddAssign, Deref, DerefMut};
use std::sync::atomic::{AtomicUsize, Ordering};

/// What an evict or a restore did, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Moved {
    /// Written to or read from scratch files.
    pub bytes: u64,
    /// RAM given back by an evict (pages that were present), or taken by a restore.
    pub freed_or_filled: u64,
    /// Compared or verified by checksum.
    pub scanned: u64,
    /// Given back by punching holes into scratch files.
    pub punched: u64,
}

impl AddAssign for Moved {
    fn add_assign(&mut self, other: Self) {
        self.bytes += other.bytes;
        self.freed_or_filled += other.freed_or_filled;
        self.scanned += other.scanned;
        self.punched += other.punched;
    }
}

/// Why memory could not be moved. Carries no heap, so that it can be made while there is none to be had.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PagerError {
    /// The scratch directory is full (or over quota). What was not given back by then is resident and intact.
    #[error(
        "no space left in the scratch directory {dir}: up to {needed} more bytes are needed; \
             free some, or name another directory with BDRUN_SCRATCH"
    )]
    NoSpace {
        /// Upper bound of the bytes that were still to be written when it filled up.
        needed: u64,
        /// The scratch directory.
        dir: &'static str,
    },
    /// A system call failed.
    #[error("cannot {op} (offset {offset}): {errno}")]
    Io {
        /// What was attempted.
        op: &'static str,
        /// Byte offset in the arena and its scratch file.
        offset: u64,
        /// The system's error.
        errno: Errno,
    },
    /// What the process is doing cannot be seen, or its threads cannot be signalled: `/proc` is closed to it,
    /// or it has taken every real-time signal for itself. Nothing was changed, and the call may be repeated.
    #[error("cannot {op}: {errno}")]
    Blind {
        /// What was attempted.
        op: &'static str,
        /// The system's error.
        errno: Errno,
    },
    /// The stack of the calling thread lies in the memory that was to be moved, as that of a coroutine may.
    /// Nothing was changed.
    #[error("the stack of the calling thread lies in the memory that is to be moved")]
    OwnStack,
    /// A block read back does not match its checksum, however often it is read: the scratch file was damaged.
    /// The block and those after it are still evicted; nothing computed from them can be trusted.
    #[error("a block of the scratch file at offset {offset} was damaged: its checksum does not match")]
    Corrupt {
        /// Byte offset of the block in its scratch file.
        offset: u64,
    },
    /// The program has asynchronous I/O of its own ([`expect_async_io`]), which may read or write memory at
    /// any moment.
    #[error("the program has asynchronous I/O of its own ({what}), which may be at work on its memory")]
    InUse {
        /// `io_uring`, `AIO`, `a device` (GPU, RDMA, VFIO) or `pinned pages`.
        what: &'static str,
    },
    /// Another thread could not be stopped: its stack lies in the memory that was to be moved, it blocks
    /// signals (known after 100 ms), or has not come out of a system call that cannot be interrupted, or has
    /// not got a processor, for 3 s. Nothing was changed, and the call may be repeated.
    #[error(
        "thread {tid} could not be stopped; its signals may be blocked, or its stack lies in memory to be moved"
    )]
    ThreadsBusy {
        /// One of the threads.
        tid: i32,
    },
}

impl PagerError {
    /// Nothing is broken, and the call may be repeated: threads that do not stop, asynchronous I/O, a stack
    /// in the wrong place, a process or a system without free descriptors or memory, or in which nothing can
    /// be seen.
    pub fn is_passing(&self) -> bool {
        match self {
            Self::ThreadsBusy { .. } | Self::InUse { .. } | Self::Blind { .. } | Self::OwnStack => true,
            Self::Io { errno, .. } => errno.is_passing(),
            _ => false,
        }
    }

    pub(crate) fn io(op: &'static str, offset: usize, errno: Errno) -> Self {
        Self::Io { op, offset: offset as u64, errno }
    }
}

impl From<ParkError> for PagerError {
    fn from(e: ParkError) -> Self {
        match e {
            ParkError::Busy(tid) => Self::ThreadsBusy { tid },
            ParkError::System(op, errno) => Self::Blind { op, errno },
        }
    }
}

/// Held while memory is moved, and while an arena leaves its set. A thread waiting for it can be parked.
///
/// Taken by [`exclude`]: a handler that comes while its thread has the lock may do what the program does
/// anywhere, and wait for memory, which would be to wait for its own thread. Taken as it is only in a wait,
/// in which a handler of the thread does not wait once more, and not for long.
static PAGER: Lock<own::Buffers> = Lock::new(own::Buffers::new());

/// The pager's lock, with this thread's signals held back.
pub(crate) struct Exclusive {
    // Let go of in this order.
    buffers: Guard<'static, own::Buffers>,
    _masked: Masked,
}

impl Deref for Exclusive {
    type Target = own::Buffers;

    fn deref(&self) -> &own::Buffers {
        &self.buffers
    }
}

impl DerefMut for Exclusive {
    fn deref_mut(&mut self) -> &mut own::Buffers {
        &mut self.buffers
    }
}

/// Keeps the pager out until dropped.
pub(crate) fn exclude() -> Exclusive {
    let masked = Masked::new();
    match PAGER.try_lock() {
        Some(buffers) => Exclusive { buffers, _masked: masked },
        None => {
            drop(masked);
            exclude_others()
        }
    }
}

/// Whoever waits for the lock must still stand still for who has it, so the signals are held back only while
/// it is tried.
#[cold]
fn exclude_others() -> Exclusive {
    loop {
        PAGER.rest();
        let masked = Masked::new();
        if let Some(buffers) = PAGER.try_lock_among() {
            return Exclusive { buffers, _masked: masked };
        }
    }
}

/// Moves every arena of the process out of RAM. What is out already stays out.
///
/// The memory stays legal to touch (but for what [`evict_to`] compressed before): it is then read from the
/// scratch file page by page, and what is written to it, by threads or by system calls, is kept. Costs what
/// was touched since the last time, not what is held.
///
/// # Errors
/// See [`PagerError`]. What was not given back is resident and intact then.
///
/// # Safety
/// Until the call returns, and again during each later move until everything is in RAM ([`restore`],
/// [`restore_for`], a fork of the process, which restores), nobody but threads of this process writes to
/// memory of its arenas, as nobody else is stopped, and what is written meanwhile is lost:
/// - no transfer of the kernel or a device into it is under way that no thread waits for: AIO, io_uring (but
///   see [`expect_async_io`]), RDMA; however safe the interface that began it;
/// - no process runs that shares the address space (`CLONE_VM` without `CLONE_THREAD`), and none writes to it
///   from outside (`process_vm_writev`, `ptrace`);
/// - nobody sends the signals that faults raise (`SIGSEGV`, `SIGBUS`, `SIGFPE`, `SIGILL`, `SIGTRAP`), if
///   their handlers write to it.
///
/// Nothing is asked of the other threads, whatever they and the signals' handlers write: a thread in a system
/// call is waited for, with what the call writes, as is one that waits for its child of `vfork` or
/// `posix_spawn`, and all other signals are held back.
///
/// ```compile_fail,E0133
/// sbmalloc::pager::evict().unwrap();
/// ```
pub unsafe fn evict() -> Result<Moved, PagerError> {
    // SAFETY: the caller's.
    unsafe { PROCESS.evict() }
}

/// Moves every arena of the process back into RAM. After it nothing maps the scratch files.
///
/// # Errors
/// See [`PagerError`]. What could not be restored is still evicted and legal to touch, and the call can be
/// repeated.
///
/// # Safety
/// As for [`evict`]: what was written to memory that is out is copied to another place, and what comes after
/// that is lost.
///
/// ```compile_fail,E0133
/// sbmalloc::pager::restore().unwrap();
/// ```
pub unsafe fn restore() -> Result<Moved, PagerError> {
    // SAFETY: the caller's.
    unsafe { PROCESS.restore() }
}

/// The kernel's name (`io_setup`) for the asynchronous I/O of this process's pager; 0 while it has none. Who
/// moves the process from outside ([`other::OwnPager`]) has to know it from the program's own.
pub fn ring() -> u64 {
    crate::store::ring()
}

/// Whether anything of the process is out.
pub fn is_evicted() -> bool {
    PROCESS.is_evicted()
}

/// What [`is_evicted`] looks at: more than 0 while anything is out. For who asks often, and from another
/// library.
pub fn out() -> &'static AtomicUsize {
    PROCESS.out()
}

/// Brings the committed bytes in RAM down to at most `target` bytes; 0 is everything.
///
/// `site` is the key of what the process waits for now, or [`SAME_PHASE`]: it tells what to keep. First goes
/// what is not likely to be used after the wait (clean before dirty), then the rest, with what the kernel
/// brought in of memory that was out, from the end of the address space backwards. It goes in groups of up
/// to 64 MiB. `progress` is told the committed bytes still in RAM, once before the first group and after
/// each: what it fell by may be used by others at once. `progress` must not call the pager, which would wait
/// for itself.
///
/// # Errors
/// See [`PagerError`]. What was not given back is resident and intact then, and the rest properly out:
/// [`in_ram`] tells how much.
///
/// # Safety
/// As for [`evict`]. Nor does `progress` write to memory of the arenas, or allocate from one: it runs between
/// a look at memory and its replacement by what was seen.
///
/// ```compile_fail,E0133
/// sbmalloc::pager::evict_to(0, 1, &mut |_| {}).unwrap();
/// ```
pub unsafe fn evict_to(
    target: usize,
    site: u64,
    progress: &mut dyn FnMut(usize),
) -> Result<Moved, PagerError> {
    // SAFETY: the caller's.
    unsafe { PROCESS.evict_to(target, site, progress) }
}

/// Reads in what is likely to be used after the wait at `site` (or [`SAME_PHASE`], [`EVERYTHING`]), in file
/// order, as far as there is room.
///
/// `limit` is asked before each group of up to 64 MiB, with the committed bytes in RAM (those on their way
/// included), how many there may be; it may answer more than the time before. What does not fit, and what is
/// not likely to be used, stays mapped from the file and comes in when touched. `limit` must not call the
/// pager, which would wait for itself. True if everything likely is in RAM; else the call may be repeated.
///
/// # Errors
/// See [`PagerError`]. What could not be restored is still out and legal to touch, and the call can be
/// repeated.
///
/// # Safety
/// As for [`restore`]. Nor does `limit` write to memory of the arenas, or allocate from one.
///
/// ```compile_fail,E0133
/// sbmalloc::pager::restore_for(1, &mut |_| usize::MAX).unwrap();
/// ```
pub unsafe fn restore_for(
    site: u64,
    limit: &mut dyn FnMut(usize) -> usize,
) -> Result<(Moved, bool), PagerError> {
    // SAFETY: the caller's.
    unsafe { PROCESS.restore_for(site, limit) }
}

/// From now on it is looked, each time before memory is moved, whether the program has asynchronous I/O of
/// its own (an io_uring, a context of `io_setup`, a device that moves memory by itself, pinned pages): then
/// nothing is moved ([`PagerError::InUse`]). Costs some 30 µs and 1 µs per descriptor each time. For programs
/// that were not written for this.
pub fn expect_async_io() {
    async_io::expect();
}

/// The signal by which other threads are stopped while memory is moved, once it is chosen: at the first move,
/// or by [`choose_stop_signal`].
pub fn stop_signal() -> Option<i32> {
    threads::chosen()
}

/// See [`stop_signal`]. Where every real-time signal has a handler, moves are refused.
pub fn choose_stop_signal() {
    let _pager = exclude();
    let _ = threads::signal();
}

/// Becomes another number whenever other threads are stopped.
pub fn stops() -> u32 {
    threads::stops()
}

/// From now on the calling thread touches no memory of the process between an [`evict_to`] and [`unpack`],
/// nor do the handlers of the signals in `ours` (bit 0 for signal 1). So what is likely to be used after the
/// wait may be compressed on its way out, as long as there is no other thread, and no handler of another
/// signal, that could touch it: it cannot be mapped from the file, and a touch ends the process with a
/// message. (Not unsafe: nobody can write to it.)
pub fn expect_restores(ours: u64) {
    pack::TRUSTED.store(ours, Ordering::Release);
    PROCESS.expect_restores();
}

/// Brings in what is out compressed, over any limit: nothing else has to be restored for the process to run
/// on. One atomic load if there is nothing. Not unsafe, as a restore is: nobody can have written to what it
/// brings in.
///
/// # Errors
/// See [`PagerError`]; the process must not run on then.
pub fn unpack() -> Result<Moved, PagerError> {
    PROCESS.unpack()
}

/// Committed bytes of the process in RAM. Of granules that are out, the pages counted are those that were
/// there when [`evict_to`] or [`restore_for`] last looked, and what was allocated since.
pub fn in_ram() -> usize {
    PROCESS.in_ram()
}

/// Committed bytes of the process likely to be used after the wait at `site`, in RAM or out.
pub fn likely(site: u64) -> usize {
    PROCESS.likely(site)
}

/// The process is about to compute after having waited at `site` (with [`SAME_PHASE`] and [`EVERYTHING`] no
/// new phase begins). Moves nothing: what is touched from now on until the pager next looks is what
/// [`restore_for`] will bring in the next time.
pub fn begin_phase(site: u64) {
    PROCESS.begin_phase(site);
}

/// The process goes on after a wait at which nothing of it was moved: what it uses from now on says nothing
/// about the site where the phase began.
pub fn continue_phase() {
    PROCESS.sites(&mut PAGER.lock()).blur();
}

/// Instead of a site: the process waits in the middle of a phase, which goes on afterwards. What that is
/// likely to use is what its site is.
pub const SAME_PHASE: u64 = u64::MAX - 1;

/// Instead of a site: as [`SAME_PHASE`], and the phase turned out to use much of what was left out
/// ([`touched`]). Everything is brought in, and will be at once after the next wait at its site.
pub const EVERYTHING: u64 = u64::MAX;

/// From now on somebody looks at [`touched`] while the process computes, and has [`EVERYTHING`] brought in if
/// it needs that: what is not known to be used is left out by [`restore_for`], at a site never seen all of
/// it, because a wrong guess costs little then.
pub fn expect_catch_up() {
    PROCESS.sites(&mut exclude()).expect_catch_up();
}

/// What a process that computes has used so far of what is out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Touched {
    /// Committed bytes in RAM, with the pages touched of what is out.
    pub in_ram: usize,
    /// So much was touched that the rest is probably used as well.
    pub much: bool,
    /// It is a part of that, which may soon be all of it.
    pub soon: bool,
}

/// What was used so far of what is out; `None` if nothing is out, or the pager is at work in this process.
///
/// May be called in a signal handler that interrupted anything.
///
/// # Errors
/// `Io` if the kernel's tables cannot be read.
pub fn touched() -> Result<Option<Touched>, PagerError> {
    if !PROCESS.is_evicted() {
        return Ok(None);
    }
    let _masked = Masked::new();
    let Some(mut buffers) = PAGER.try_lock() else { return Ok(None) };
    look::touched(&mut buffers, &PROCESS).map(Some)
}

/// Verifies the blocks that the kernel brought in by itself, because out memory was touched, since the last
/// call. To be called before anything computed leaves the process. One atomic load while nothing is out;
/// other threads go on.
///
/// # Errors
/// [`PagerError::Corrupt`] with the block's offset: nothing computed since can be trusted. Also `Io` if the
/// scratch file or `/proc/self/pagemap` cannot be read.
pub fn verify_touched() -> Result<(), PagerError> {
    PROCESS.verify_touched()
}

/// # Safety
/// Of [`evict`], for the arenas of the set.
pub(crate) unsafe fn evict_set(set: &'static ArenaSet) -> Result<Moved, PagerError> {
    // SAFETY: the caller's; this writes nothing.
    unsafe { evict_set_to(set, 0, None, &mut |_| {}) }
}

/// # Safety
/// Of [`evict_to`], for the arenas of the set.
pub(crate) unsafe fn evict_set_to(
    set: &'static ArenaSet,
    target: usize,
    site: Option<u64>,
    progress: &mut dyn FnMut(usize),
) -> Result<Moved, PagerError> {
    own::Session::begin(set)?.evict(set, target, site, progress)
}

/// # Safety
/// Of [`restore`], for the arenas of the set.
pub(crate) unsafe fn restore_set(set: &'static ArenaSet) -> Result<Moved, PagerError> {
    // SAFETY: the caller's; this writes nothing.
    let done = unsafe { restore_set_for(set, None, &mut |_| usize::MAX) };
    done.map(|(moved, _)| moved)
}

/// # Safety
/// Of [`restore_for`], for the arenas of the set.
pub(crate) unsafe fn restore_set_for(
    set: &'static ArenaSet,
    site: Option<u64>,
    limit: &mut dyn FnMut(usize) -> usize,
) -> Result<(Moved, bool), PagerError> {
    if !set.is_evicted() {
        return Ok((Moved::default(), true));
    }
    own::Session::begin(set)?.restore(set, site, limit)
}

pub(crate) fn unpack_set(set: &'static ArenaSet) -> Result<Moved, PagerError> {
    if !set.is_packed() {
        return Ok(Moved::default());
    }
    own::Session::begin(set)?.unpack(set)
}

pub(crate) fn likely_in_set(set: &'static ArenaSet, site: u64) -> usize {
    let mut buffers = PAGER.lock();
    let outlook = own::outlook(set, &mut buffers, Some(site));
    let of_arena = |arena: &crate::arena::Inner| {
        let of_granule = |g: usize| match own::is_likely(outlook, arena, g) {
            true => arena.held(g) as usize * PAGE,
            false => arena.ram(g),
        };
        (0..arena.granules()).map(of_granule).sum::<usize>()
    };
    set.arenas().map(of_arena).sum()
}

pub(crate) fn begin_phase_of_set(set: &'static ArenaSet, site: u64) {
    if matches!(site, SAME_PHASE | EVERYTHING) {
        return;
    }
    let mut buffers = PAGER.lock();
    if let Some(slot) = set.sites(&mut buffers).begin(site) {
        for arena in set.arenas() {
            (0..arena.granules()).for_each(|g| arena.set_history(slot, g, 0));
        }
    }
}

pub(crate) fn verify_set(set: &'static ArenaSet) -> Result<(), PagerError> {
    if !set.is_evicted() {
        return Ok(());
    }
    look::verify(set)
}
