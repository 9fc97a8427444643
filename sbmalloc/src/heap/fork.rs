//! Forks: the child of a process with threads may allocate.
//!
//! The locks of allocation are taken before a fork and let go of after it, on both sides, so none is held by a thread
//! that the child does not have. mimalloc itself takes no lock for segments of its arena; what other threads'
//! heaps held at that moment is lost to the child, not damaged.

use super::{ONCE, RUNS, SMALL};
use crate::account;
use std::sync::atomic::Ordering;

/// Asks to be told of forks. Outside the locks: the C library may allocate for its list.
pub(super) fn prepare_for_forks() {
    // SAFETY: the functions below never unwind and need nothing.
    unsafe { libc::pthread_atfork(Some(before), Some(after), Some(after)) };
}

extern "C" fn before() {
    hold(true);
}

extern "C" fn after() {
    hold(false);
}

fn hold(hold: bool) {
    // SAFETY: taken before the fork, let go of after it by the same thread or its image; never dropped.
    unsafe {
        // The account's first: set_account holds it while the account is charged, which may allocate.
        account::hold_slot(hold);
        match hold {
            true => ONCE.hold(),
            false => ONCE.unlock(),
        }
        for arena in [&SMALL, &RUNS] {
            if let Some(arena) = arena.load(Ordering::Acquire).as_ref() {
                arena.hold_space(hold);
            }
        }
    }
}
