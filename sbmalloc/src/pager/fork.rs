//! What a fork needs of the pager: nothing of the process may be out while it is copied.
//!
//! A child would read what is out from its parent's scratch file, and so see what the parent writes there
//! afterwards. So the arenas of the process are brought in first, and the pager's lock is held until parent
//! and child exist, which also keeps the child from inheriting it locked. `posix_spawn` and `vfork`, which
//! only exec, do not come through here; arenas of other sets are their owner's business.
//!
//! *If something cannot be brought in* (another thread cannot be stopped, no memory), the fork cannot be
//! refused from here. Then the child, which has no other threads, brings it in for itself, before its program
//! goes on; the parent, whose file it reads, waits for that, so that what the child reads is what was there
//! at the fork. If the child cannot either it ends at once, with 122: it would compute with what its parent
//! wrote later.

use super::{PAGER, restore_set};
use crate::account;
use crate::set::PROCESS;
use crate::sys::Fd;
use std::cell::UnsafeCell;

/// What keeps the parent waiting: it reads until every writing end is closed.
struct Waiting {
    read: Option<Fd>,
    write: Option<Fd>,
    /// Something stayed out.
    left: bool,
}

struct Kept(UnsafeCell<Waiting>);
// SAFETY: reached only by the thread that forks while it holds the pager's lock for that, or by its image in
// a child, which has no other threads.
unsafe impl Sync for Kept {}
static KEPT: Kept = Kept(UnsafeCell::new(Waiting { read: None, write: None, left: false }));

/// Takes the pager's lock for a fork, when everything is in; or lets go of it.
///
/// # Safety
/// Let go of only by the thread that took it, or its image in a child.
pub(crate) unsafe fn hold(hold: bool) {
    if !hold {
        // SAFETY: the caller's.
        unsafe { PAGER.hold_or_let_go(false) };
        return;
    }
    let mut failed = false;
    loop {
        // SAFETY: this thread lets go of it, below or after the fork.
        unsafe { PAGER.hold_or_let_go(true) };
        let left = PROCESS.is_evicted();
        if failed || !left {
            // SAFETY: the lock is held.
            let kept = unsafe { &mut *KEPT.0.get() };
            kept.left = left;
            if left && let Ok((read, write)) = Fd::pipe() {
                (kept.read, kept.write) = (Some(read), Some(write));
            }
            return;
        }
        // SAFETY: taken above.
        unsafe { PAGER.hold_or_let_go(false) };
        // SAFETY: whoever had it evicted has promised it for forks too.
        failed = unsafe { restore_set(&PROCESS) }.is_err();
        account::forks(PROCESS.in_ram());
    }
}

/// Waits until the child has brought in what was out, or has ended, or was never made. The locks are still
/// held.
pub(crate) fn after_fork_in_parent() {
    // SAFETY: the lock is held; see `Kept`.
    let kept = unsafe { &mut *KEPT.0.get() };
    kept.write = None;
    if let Some(read) = kept.read.take() {
        read.wait_for_end();
    }
}

/// Brings in what is the parent's file's, while the parent waits.
pub(crate) fn after_fork_in_child() {
    // SAFETY: the only thread; see `Kept`.
    let kept = unsafe { &mut *KEPT.0.get() };
    kept.read = None;
    // Without a pipe the parent does not wait, and what is read could be of later.
    // SAFETY: as in `hold`; nobody else has this memory, a copy.
    if kept.left && (kept.write.is_none() || unsafe { restore_set(&PROCESS) }.is_err()) {
        let text = b"sbmalloc: a child of fork cannot bring in what its parent had on scratch, and ends\n";
        crate::sys::say(text);
        // SAFETY: ends the process at once.
        unsafe { libc::_exit(122) };
    }
    kept.left = false;
    kept.write = None;
}
