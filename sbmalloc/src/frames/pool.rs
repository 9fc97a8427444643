//! Frames of a pool that processes share: mapped into the arena that is restored, given back when it is
//! evicted.
//!
//! They are shared memory, which fork does not copy. So before a fork everything in frames is copied to
//! anonymous memory, and the process uses none from then on ([`give_up`]).

use super::shared::FramePool;
use super::{Anon, FrameSource, MOST, Staging};
use crate::arena::Inner;
use crate::lock::Lock;
use crate::sys::{self, Errno, GRANULE};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

/// What a process without a master gives its own pool: address space only.
const OWN_BYTES: u64 = 1 << 40;
const OWN_KEEP: u64 = 256 << 20;

/// Frames of the pool.
pub(crate) struct Pool;

/// 0: not looked for; 1: there is one; 2: none so far; 3: the process has forked, or is about to.
static STATE: AtomicU32 = AtomicU32::new(0);
const THERE: u32 = 1;
const NONE: u32 = 2;
const GIVEN_UP: u32 = 3;
static OPENED: Lock<Option<FramePool>> = Lock::new(None);
static POOL: AtomicPtr<FramePool> = AtomicPtr::new(std::ptr::null_mut());

fn pool() -> Option<&'static FramePool> {
    let at = POOL.load(Ordering::Acquire);
    // SAFETY: points into OPENED, which is written once before and never again.
    if at.is_null() { None } else { Some(unsafe { &*at }) }
}

/// The process that opened the pool, and the number under which it has frames. A child of fork has neither.
static OPENER: AtomicU32 = AtomicU32::new(0);
static OWNER: AtomicU32 = AtomicU32::new(0);

fn process() -> u32 {
    // SAFETY: getpid has no preconditions.
    unsafe { libc::getpid() as u32 }
}

/// The owner that this process is; `None` if none.
fn me() -> Option<u32> {
    (OPENER.load(Ordering::Acquire) == process()).then(|| OWNER.load(Ordering::Acquire))
}

/// Has this process use frames of a pool that another made: its table, the frames, and the number (2 or more)
/// that no other process has in it. What that number had before is free: it was this process, until it became
/// another program by `exec`.
///
/// # Errors
/// `EBADF` if it is no pool, `EINVAL` if that is no number, `EBUSY` if this process has a pool already.
///
/// # Safety
/// The frames become memory of this process. So no other process that lives has the number, and whoever else
/// has the two files writes to them by this crate only, which touches no frame of another owner.
///
/// ```compile_fail,E0133
/// fn of(table: std::os::fd::OwnedFd, frames: std::os::fd::OwnedFd) {
///     sbmalloc::use_frames(table, frames, 2).unwrap();
/// }
/// ```
pub unsafe fn use_frames(table: OwnedFd, frames: OwnedFd, owner: u32) -> Result<(), Errno> {
    if !(2..u32::MAX).contains(&owner) {
        return Err(Errno(libc::EINVAL));
    }
    let pool = FramePool::open(table, frames)?;
    let mut opened = OPENED.lock();
    if opened.is_some() {
        return Err(Errno(libc::EBUSY));
    }
    // SAFETY: this process has taken none yet, and no other has the number.
    unsafe { pool.free_all_of(owner) };
    OWNER.store(owner, Ordering::Release);
    OPENER.store(process(), Ordering::Release);
    POOL.store(opened.insert(pool), Ordering::Release);
    // Not if the process has forked.
    let _ = STATE.fetch_update(Ordering::AcqRel, Ordering::Acquire, |s| (s != GIVEN_UP).then_some(THERE));
    Ok(())
}

/// The source of frames: a pool, or anonymous memory where there is none. `own`: make one if none was handed
/// over.
pub(super) fn source(own: bool) -> &'static dyn FrameSource {
    let state = STATE.load(Ordering::Acquire);
    if state == THERE {
        return &Pool;
    }
    if state == GIVEN_UP || state == NONE && !own {
        return &Anon;
    }
    let mut opened = OPENED.lock();
    if opened.is_none()
        && own
        && let Ok(pool) = FramePool::create(OWN_BYTES, OWN_KEEP)
    {
        *opened = Some(pool);
        OWNER.store(2, Ordering::Release);
        OPENER.store(process(), Ordering::Release);
    }
    let found = opened.as_mut().map_or(std::ptr::null_mut(), std::ptr::from_mut);
    POOL.store(found, Ordering::Release);
    let now = if found.is_null() { NONE } else { THERE };
    let _ = STATE.compare_exchange(state, now, Ordering::AcqRel, Ordering::Acquire);
    if found.is_null() { &Anon } else { &Pool }
}

impl FrameSource for Pool {
    fn stage(&self, count: usize, huge: bool) -> Result<Staging, Errno> {
        let mut frames = [0; MOST];
        match pool().zip(me()) {
            Some((pool, me)) if huge && pool.take(me, &mut frames[..count]) => {
                Ok(Staging { base: pool.window(), count, frames: Some(frames) })
            }
            // No frames, or none wanted: huge ones for a range of small pages would take too much.
            _ => Anon.stage(count, huge),
        }
    }

    fn publish(
        &self,
        staging: &Staging,
        first: usize,
        arena: &Inner,
        g: usize,
        count: usize,
    ) -> Result<(), Errno> {
        let (Some(frames), Some(pool), 1) = (&staging.frames, pool(), count) else {
            return Err(Errno(libc::EINVAL));
        };
        let frame = frames[first];
        let fd = std::os::fd::AsRawFd::as_raw_fd(&pool.fds()[1]);
        sys::map_shared_over(arena.base + g * GRANULE, GRANULE, fd, (frame as usize * GRANULE) as u64)?;
        // Should a fork come before `give_up` could help, a child must rather crash than write to its
        // parent's memory.
        let _ = sys::advise(arena.base + g * GRANULE, GRANULE, libc::MADV_DONTFORK);
        arena.frame(g).store(frame + 1, Ordering::Release);
        Ok(())
    }

    fn abandon(&self, staging: &Staging, first: usize) {
        if let (Some(frames), Some(pool)) = (&staging.frames, pool()) {
            frames[first..staging.count].iter().for_each(|&f| pool.give(f));
        }
    }
}

/// Gives memory of the job's pool of frames, if there is one, back to the system until at most `most` bytes
/// of it are free. To be called when memory was charged that is no frame: with what the budget has left, as
/// free frames are RAM that nobody was charged for.
pub fn trim_frames(most: u64) {
    source(false);
    if let Some(pool) = pool() {
        pool.trim(most);
    }
}

/// Gives back the frame that granule `g` had, if any; something else is mapped there now. With the pager's
/// lock held.
pub(crate) fn release(arena: &Inner, g: usize) {
    // No store without need: most tables are never touched.
    if arena.frame(g).load(Ordering::Acquire) != 0
        && let frame @ 1.. = arena.frame(g).swap(0, Ordering::AcqRel)
        // In a child of fork that has its parent's tables it is not ours.
        && let Some((pool, me)) = pool().zip(me())
        && pool.is_of(frame - 1, me)
    {
        pool.give(frame - 1);
    }
}

/// Takes or lets go of the lock under which the pool is opened, over a fork.
///
/// # Safety
/// As for the lock.
pub(crate) unsafe fn hold(hold: bool) {
    // SAFETY: the caller's.
    unsafe { OPENED.hold_or_let_go(hold) };
}

/// The process is about to fork: uses no frames from now on.
pub(crate) fn give_up() {
    STATE.store(GIVEN_UP, Ordering::Release);
}

impl Inner {
    /// Copies what lies in frames to anonymous memory. With the pager's lock held and other threads parked.
    pub(crate) fn leave_frames(&self) -> Result<(), Errno> {
        for g in (0..self.granules()).filter(|&g| self.frame(g).load(Ordering::Acquire) != 0) {
            let staging = Anon.stage(1, true)?;
            let from = (self.base + g * GRANULE) as *const u8;
            // SAFETY: a granule of the arena, which nobody writes now, and fresh memory of its size.
            unsafe { std::ptr::copy_nonoverlapping(from, staging.at(0) as *mut u8, GRANULE) };
            Anon.publish(&staging, 0, self, g, 1).inspect_err(|_| Anon.abandon(&staging, 0))?;
            release(self, g);
        }
        Ok(())
    }

    /// Whether anything lies in frames.
    pub(crate) fn has_frames(&self) -> bool {
        (0..self.granules()).any(|g| self.frame(g).load(Ordering::Acquire) != 0)
    }

    /// Makes bytes in frames read as zeros, and gives frames back that lie wholly in the range: dropping
    /// pages of shared memory would drop nothing. With the pager's lock held, so that no frame changes hands
    /// meanwhile.
    pub(crate) fn clear_frames(&self, start: usize, len: usize) {
        for g in start / GRANULE..(start + len).div_ceil(GRANULE) {
            if self.frame(g).load(Ordering::Acquire) == 0 {
                continue;
            }
            let (from, to) = (start.max(g * GRANULE), (start + len).min((g + 1) * GRANULE));
            if to - from == GRANULE && sys::map_anon_over(self.base + from, GRANULE).is_ok() {
                let _ = sys::advise(self.base + from, GRANULE, libc::MADV_HUGEPAGE);
                release(self, g);
                continue;
            }
            // SAFETY: the range belongs to a run being given back: nobody else uses it.
            unsafe { std::ptr::write_bytes((self.base + from) as *mut u8, 0, to - from) };
        }
    }
}
