//! The process groups of the ranks, where a helper process can still read them after a SIGKILL of the master.

use nix::sys::mman::{MapFlags, ProtFlags, mmap_anonymous, munmap};
use std::ffi::c_void;
use std::num::NonZeroUsize;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicI32, Ordering::SeqCst};

use super::sys;

/// Ranks that fit.
const RANKS: usize = 65_536;
const BYTES: NonZeroUsize = NonZeroUsize::new(RANKS * size_of::<AtomicI32>()).expect("not zero");

/// One number for each rank, in memory shared with forked helpers: the process group it leads, 0 if it does
/// not live. Pages nobody has written cost nothing.
pub(super) struct Roster {
    base: NonNull<c_void>,
}

// SAFETY: the mapping belongs to no thread, and is only ever accessed through atomics.
unsafe impl Send for Roster {}
// SAFETY: as above.
unsafe impl Sync for Roster {}

impl Roster {
    pub fn new() -> nix::Result<Self> {
        // SAFETY: a fresh mapping of zeros, which are valid atomic integers.
        let base = unsafe {
            mmap_anonymous(None, BYTES, ProtFlags::PROT_READ | ProtFlags::PROT_WRITE, MapFlags::MAP_SHARED)?
        };
        Ok(Self { base })
    }

    fn groups(&self) -> &[AtomicI32] {
        // SAFETY: mapped for this many integers as long as `self` lives; only ever accessed through atomics.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr().cast(), RANKS) }
    }

    /// The rank leads this group from now on.
    pub fn enter(&self, rank: u32, group: libc::pid_t) {
        if let Some(entry) = self.groups().get(rank as usize) {
            entry.store(group, SeqCst);
        }
    }

    /// The first process of this group has been reaped.
    pub fn leave(&self, rank: u32, group: libc::pid_t) {
        if let Some(entry) = self.groups().get(rank as usize) {
            // Another try of the rank may have entered since.
            let _ = entry.compare_exchange(group, 0, SeqCst, SeqCst);
        }
    }

    /// Kills what is left in the groups. By bare system calls only. While a group has members its number is
    /// given to nobody else; that all of them end and the number is used again in the moment between the
    /// master's end and this call is not ruled out, but numbers are handed out in turn, so that takes tens of
    /// thousands of new processes.
    pub fn kill_groups(&self) {
        for entry in self.groups() {
            let group = entry.load(SeqCst);
            if group > 1 {
                sys::kill(-group, libc::SIGKILL);
            }
        }
    }
}

impl Drop for Roster {
    fn drop(&mut self) {
        // SAFETY: our own mapping, of which no reference outlives `self`.
        let _ = unsafe { munmap(self.base, BYTES.get()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::{CommandExt, ExitStatusExt};

    #[test]
    fn groups_that_are_left_are_killed() {
        let roster = Roster::new().expect("a mapping");
        let mut child =
            std::process::Command::new("sleep").arg("60").process_group(0).spawn().expect("sleep");
        let group = child.id() as i32;
        roster.enter(7, group);
        roster.enter(u32::MAX, 1);
        roster.kill_groups();
        assert_eq!(child.wait().expect("its end").signal(), Some(libc::SIGKILL));
        roster.leave(7, group + 1);
        assert_eq!(roster.groups()[7].load(SeqCst), group);
        roster.leave(7, group);
        assert_eq!(roster.groups()[7].load(SeqCst), 0);
    }
}
