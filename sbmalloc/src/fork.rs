//! Around a fork of a process with threads: no memory may be on the move, and nobody in the middle of mapping any.
//!
//! For `pthread_atfork`. The heap sees to its own locks itself. A child that goes on uses its copy of the memory;
//! it has no account to charge unless the one installed says so, and pages to a scratch file of its own.

use crate::{mapping, pager, protection};

/// In the parent before it forks: brings everything into RAM (a child could not read its parent's scratch file
/// later), waits for whoever is moving or mapping memory, and keeps them out.
///
/// If memory cannot be restored, the fork goes on; the child then ends at its first look at what is missing.
pub fn before() {
    if pager::is_evicted() {
        // What fails here is reported where the process itself restores.
        let _ = pager::restore();
    }
    hold(true);
}

/// In the parent and in the child after the fork: everybody may go on.
pub fn after() {
    hold(false);
}

fn hold(hold: bool) {
    // SAFETY: taken before the fork, let go of after it by the same thread or its image.
    unsafe {
        pager::hold(hold);
        protection::hold(hold);
        mapping::hold(hold);
    }
}
