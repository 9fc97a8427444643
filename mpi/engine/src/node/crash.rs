//! A process that is killed by what it does itself has said before in which call it was.

use std::ffi::c_int;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering::SeqCst};

use bdrun_ipc::segment::RankBlock;

use crate::entry::current_call;

/// What a program's own doing ends it by.
const SIGNALS: [c_int; 5] = [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGABRT];

static BLOCK: AtomicPtr<RankBlock> = AtomicPtr::new(ptr::null_mut());

/// From now on. Of signals for which the program has a handler nothing is said.
pub fn watch(block: &'static RankBlock) {
    BLOCK.store(ptr::from_ref(block).cast_mut(), SeqCst);
    for signal in SIGNALS {
        // SAFETY: the structures are locals, for which zeros are valid; the handler does what handlers may.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            let has_none = libc::sigaction(signal, ptr::null(), &raw mut action) == 0
                && action.sa_sigaction == libc::SIG_DFL;
            if has_none {
                action = std::mem::zeroed();
                action.sa_sigaction = dies as extern "C" fn(c_int) as usize;
                action.sa_flags = libc::SA_RESETHAND | libc::SA_ONSTACK;
                libc::sigaction(signal, &raw const action, ptr::null_mut());
            }
        }
    }
}

/// Only stores to shared memory. Then the signal comes once more, and does what it does without us.
extern "C" fn dies(signal: c_int) {
    // SAFETY: null, or of a block of the segment, which stays mapped.
    if let Some(block) = unsafe { BLOCK.load(SeqCst).as_ref() }
        // A child made by fork is not the rank.
        // SAFETY: getpid has no preconditions.
        && i64::from(block.process.load(SeqCst)) == i64::from(unsafe { libc::getpid() })
    {
        block.end_in(current_call());
    }
    // SAFETY: no preconditions. It is blocked until this returns.
    unsafe { libc::raise(signal) };
}
