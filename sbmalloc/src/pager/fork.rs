//! What a fork needs: nothing of the process may be out while it is copied.
//!
//! A child would read what is out from its parent's scratch file, and so see what the parent writes there
//! afterwards. So the arenas of the process are brought in first, and the pager's lock is held until parent and
//! child exist, which also keeps the child from inheriting it locked. `posix_spawn` and `vfork`, which only exec, do
//! not come through here; arenas of other sets are their owner's business. If something cannot be brought in the
//! fork goes on: the child's own evicts are refused then.

use super::{Guard, PAGER, own::Buffers};
use crate::set::PROCESS;
use crate::sys::Errno;
use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, Ordering};

/// The lock's guard from before the fork until after it.
struct Kept(UnsafeCell<Option<Guard<'static, Buffers>>>);
// SAFETY: reached only by the thread that forks, while it holds the lock that the guard stands for.
unsafe impl Sync for Kept {}
static KEPT: Kept = Kept(UnsafeCell::new(None));

extern "C" fn before() {
    let mut failed = false;
    loop {
        let guard = PAGER.lock();
        if failed || !PROCESS.is_evicted() {
            // SAFETY: the lock is held.
            unsafe { *KEPT.0.get() = Some(guard) };
            return;
        }
        drop(guard);
        failed = PROCESS.restore().is_err();
    }
}

extern "C" fn after() {
    // SAFETY: in the parent the lock has been held since `before`; the child has this thread alone.
    drop(unsafe { (*KEPT.0.get()).take() });
}

/// Installs the rule, once.
pub(crate) fn install() -> Result<(), Errno> {
    static DONE: AtomicBool = AtomicBool::new(false);
    if DONE.swap(true, Ordering::AcqRel) {
        return Ok(());
    }
    // SAFETY: the handlers may run at any fork: they neither allocate nor take locks of the allocators.
    match unsafe { libc::pthread_atfork(Some(before), Some(after), Some(after)) } {
        0 => Ok(()),
        e => Err(Errno(e)),
    }
}
