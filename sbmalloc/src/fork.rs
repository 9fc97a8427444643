//! Forks of a process with threads: no lock of this crate is held by a thread that the child does not have.
//!
//! One place, registered once, before the first use of anything here (when the program or the library is
//! loaded: a fork that comes while another thread is at its very first allocation must find it registered, or
//! the child inherits that thread's locks and waits for ever). **Every `static` lock of the crate, and the
//! lock of every arena, has its line in [`LOCKS`]**; a new one is added there, in the order in which they
//! nest:
//!
//! | lock | what is taken while it is held |
//! |---|---|
//! | `account`, nobody pays yet | all below: the account is charged for what is held, which may allocate, or evict |
//! | `heap`, `mapping`: the first arenas are reserved | settings, list of sets, trackers |
//! | pager | settings, tracker's descriptors, handler of faults, rights |
//! | list of sets; settings; tracker's descriptors; handler of faults | nothing |
//! | space of each arena | rights |
//! | rights of ranges | nothing |
//!
//! The pager's is taken only when nothing of the process is out (`pager/fork.rs`). mimalloc has none that
//! counts: its segments lie in our arena, and what other threads' heaps held at that moment is lost to the
//! child, not damaged.
//!
//! A child that goes on uses its copy of the memory; it has no account to charge unless the one installed
//! says so, and pages to a scratch file of its own.

use crate::{account, config, heap, mapping, pager, protection, set, tracker};
use std::sync::atomic::{AtomicBool, Ordering};

/// Has forks seen to from now on. Called when the crate is loaded; a library whose first call may come before
/// that calls it itself, before it registers handlers of its own that allocate or wait. More than once does
/// nothing.
pub fn install() {
    static DONE: AtomicBool = AtomicBool::new(false);
    if DONE.load(Ordering::Acquire) || DONE.swap(true, Ordering::AcqRel) {
        return;
    }
    // Refused only without memory for the C library's list, when forks stay as they were.
    // SAFETY: the handlers never unwind; they run around forks only, each pair in one thread.
    unsafe { libc::pthread_atfork(Some(before), Some(after_in_parent), Some(after_in_child)) };
}

/// Early among the functions that run at load, so that handlers of others are called before ours at a fork,
/// and may allocate.
#[used]
#[unsafe(link_section = ".init_array.00101")]
static AT_LOAD: extern "C" fn() = {
    extern "C" fn at_load() {
        install();
    }
    at_load
};

extern "C" fn before() {
    // SAFETY: let go of in this thread, or its image.
    LOCKS.iter().for_each(|hold| unsafe { hold(true) });
}

extern "C" fn after_in_parent() {
    // While nobody can change what the child reads.
    pager::after_fork_in_parent();
    let_go();
}

extern "C" fn after_in_child() {
    let_go();
    pager::after_fork_in_child();
}

/// The innermost first: arenas stay what they are for as long as the pager's lock is held.
fn let_go() {
    // SAFETY: taken by `before` in this thread, or in that of which this is the image.
    LOCKS.iter().rev().for_each(|hold| unsafe { hold(false) });
}

/// Takes a lock, or lets go of it: only the thread that took it may, or its image in a child.
type Hold = unsafe fn(bool);

/// In the order in which they nest. With the pager's what is out comes in; from there on no arena leaves its
/// set, and from the next on none enters one.
const LOCKS: [Hold; 9] = [
    account::hold,
    heap::hold,
    mapping::hold,
    pager::hold,
    set::hold,
    config::hold,
    tracker::hold,
    pager::hold_handler,
    hold_arenas,
];

/// The space of each arena, and the rights of ranges in them.
unsafe fn hold_arenas(hold: bool) {
    // SAFETY: the caller's.
    unsafe {
        set::all().flat_map(|set| set.arenas()).for_each(|arena| arena.hold_space(hold));
        protection::hold(hold);
    }
}
