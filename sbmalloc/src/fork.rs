//! Around a fork of a process with threads: the child must find every lock free and every table whole, and no memory
//! may be on the move.
//!
//! For `pthread_atfork`. A child that goes on uses its copy of the memory; it has no account to charge unless
//! the one installed says so, and pages nothing: its parent's scratch file is its parent's.

use crate::{account, heap, mapping, pager, protection};

/// In the parent before it forks: brings everything into RAM (a child could not read its parent's scratch file
/// later), waits for whoever is allocating or moving memory, and keeps them out.
///
/// If memory cannot be restored, the fork goes on; the child then ends at its first look at what is missing.
pub fn before() {
    if pager::is_evicted() {
        // What fails here is reported where the process itself restores.
        let _ = pager::restore();
    }
    pager::begin_fork();
    protection::CHANGING.begin_fork();
    heap::begin_fork();
    mapping::begin_fork();
    account::begin_fork();
}

/// In the parent and in the child after the fork: everybody may go on.
pub fn after() {
    account::end_fork();
    mapping::end_fork();
    heap::end_fork();
    protection::CHANGING.end_fork();
    pager::end_fork();
}
