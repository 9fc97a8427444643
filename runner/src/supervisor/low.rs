//! Low numbers for what a child is handed, so that it needs no copy of the others.
//!
//! The master has some descriptors for each rank. A child that got a copy of its table would have to close
//! them all when it executes its program: together the ranks close them as often as there are ranks, squared
//! (of 1,000 ranks a tenth of their whole time). So a child begins with the master's own table, takes a copy
//! of its beginning only (`close_range` with `CLOSE_RANGE_UNSHARE`), and what it is to have lies there. Where
//! that is refused it takes a copy of the whole (`unshare`); where both are, it is given one when it is made.

use super::sys;
use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

/// What a rank is handed at most: its three streams, and its socket.
const MOST: usize = 4;

/// Numbers of one thread that makes children.
pub(super) struct Low {
    null: File,
    /// Open on nothing while no child is made.
    slots: Vec<OwnedFd>,
    used: usize,
    /// What is to be copied is below.
    end: RawFd,
}

impl Low {
    /// `None` where it cannot be done; then children get copies of the whole table. To be called before there
    /// are ranks: the numbers are low now.
    pub(super) fn new(above: RawFd) -> Option<Self> {
        let null = File::options().read(true).write(true).open("/dev/null").ok()?;
        let slot = |_| sys::duplicate_above(null.as_fd(), above);
        let slots: Vec<_> = (0..MOST).map(slot).collect::<Result<_, _>>().ok()?;
        let last = slots.iter().map(AsRawFd::as_raw_fd).chain(inherited()?).max()?;
        Some(Self { null, slots, used: 0, end: last + 1 })
    }

    /// Puts what lies too high into low numbers, until [`clear`](Self::clear), and says where the copy is to
    /// end. `None` if there are not enough of them or they are too low (a source must not be another's
    /// target): then the child needs the whole table.
    pub(super) fn hold(&mut self, descriptors: &mut [(RawFd, RawFd)]) -> Option<RawFd> {
        let highest = descriptors.iter().map(|(_, target)| *target).max()?;
        let high = descriptors.iter().filter(|(source, _)| *source >= self.end).count();
        if high > self.slots.len() || self.slots.iter().any(|slot| slot.as_raw_fd() <= highest) {
            return None;
        }
        for (source, _) in descriptors.iter_mut().filter(|(source, _)| *source >= self.end) {
            // SAFETY: whoever made the plan keeps its descriptors open while it makes the child.
            let high = unsafe { BorrowedFd::borrow_raw(*source) };
            let slot = &mut self.slots[self.used];
            self.used += 1;
            sys::duplicate_onto(high, slot).ok()?;
            *source = slot.as_raw_fd();
        }
        Some(self.end)
    }

    /// The child has what it was handed.
    pub(super) fn clear(&mut self) {
        for slot in &mut self.slots[..self.used] {
            // Cannot fail: both are open. And if it did, a pipe would be open for a rank longer.
            let _ = sys::duplicate_onto(self.null.as_fd(), slot);
        }
        self.used = 0;
    }
}

/// What bdrun was given to hand on, beside its three streams: a program of the user's may know it by number.
fn inherited() -> Option<Vec<RawFd>> {
    let mut all = vec![];
    for entry in std::fs::read_dir("/proc/self/fd").ok()? {
        let number: RawFd = entry.ok()?.file_name().to_str()?.parse().ok()?;
        // SAFETY: borrowed for one call, which only asks; it may have been closed since.
        let flags = fcntl(unsafe { BorrowedFd::borrow_raw(number) }, FcntlArg::F_GETFD);
        if flags.is_ok_and(|flags| !FdFlag::from_bits_retain(flags).contains(FdFlag::FD_CLOEXEC)) {
            all.push(number);
        }
    }
    Some(all)
}
