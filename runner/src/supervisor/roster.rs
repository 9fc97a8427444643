//! The process groups of the ranks, where a helper process can still read them after a SIGKILL of the master.

use nix::sys::mman::{MapFlags, ProtFlags, mmap_anonymous, munmap};
use std::ffi::c_void;
use std::num::NonZeroUsize;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicI32, Ordering::SeqCst};

use super::sys;

/// Ranks that fit: more than live at once.
const RANKS: usize = 65_536;
const BYTES: NonZeroUsize = NonZeroUsize::new(RANKS * size_of::<AtomicI32>()).expect("not zero");

/// A number for each rank that lives, in memory shared with forked helpers: the process group it leads; other
/// places are 0. Each has the place of its number, or the next that is free. Pages nobody has written cost
/// nothing.
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

    /// From the place of this rank on, once around.
    fn from(&self, rank: u32) -> impl Iterator<Item = &AtomicI32> {
        let (before, from) = self.groups().split_at(rank as usize % RANKS);
        from.iter().chain(before)
    }

    /// The rank leads this group from now on.
    pub fn enter(&self, rank: u32, group: libc::pid_t) {
        self.from(rank).any(|entry| entry.compare_exchange(0, group, SeqCst, SeqCst).is_ok());
    }

    /// The first process of this group has been reaped.
    pub fn leave(&self, rank: u32, group: libc::pid_t) {
        // Another try of the rank may have entered since.
        let is_its = |entry: &&AtomicI32| entry.load(SeqCst) == group;
        if let Some(entry) = self.from(rank).find(is_its) {
            entry.store(0, SeqCst);
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
            std::process::Command::new("sleep").arg("1000").process_group(0).spawn().expect("sleep");
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

    /// A job may have far more ranks than live at once.
    #[test]
    fn each_rank_that_lives_has_a_place() {
        let roster = Roster::new().expect("a mapping");
        let ranks = [4, 5, 65_540, 65_541, 1_000_000, u32::MAX, 131_071];
        let groups = |roster: &Roster| {
            let all = roster.groups().iter().map(|entry| entry.load(SeqCst)).filter(|&group| group != 0);
            let mut all: Vec<_> = all.collect();
            all.sort_unstable();
            all
        };
        (1000..).zip(ranks).for_each(|(group, rank)| roster.enter(rank, group));
        assert_eq!(groups(&roster), (1000..1007).collect::<Vec<_>>());
        (1000..).zip(ranks).step_by(2).for_each(|(group, rank)| roster.leave(rank, group));
        assert_eq!(groups(&roster), [1001, 1003, 1005]);
        roster.leave(4, 1000);
        assert_eq!(groups(&roster), [1001, 1003, 1005]);
    }
}
