//! Around a fork of a process with threads: nobody may be in the middle of mapping memory.
//!
//! For `pthread_atfork`. The heap and the pager (which brings in what is out) see to their own locks themselves. A child that goes on uses its copy of the memory;
//! it has no account to charge unless the one installed says so, and pages to a scratch file of its own.

use crate::{mapping, protection};

/// In the parent before it forks: waits for whoever is mapping memory, and keeps others out.
pub fn before() {
    hold(true);
}

/// In the parent and in the child after the fork: everybody may go on.
pub fn after() {
    hold(false);
}

fn hold(hold: bool) {
    // SAFETY: taken before the fork, let go of after it by the same thread or its image.
    unsafe {
        protection::hold(hold);
        mapping::hold(hold);
    }
}
