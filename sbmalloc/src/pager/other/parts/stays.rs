//! What cannot leave in parts: what is locked, what was written to private mappings of files, and what is not
//! served, as the main thread's stack and what may not be both read and written.
//!
//! Dropped, a page of a file is what is in the file by then, and behind an end that has come nearer nothing
//! can be put back; as anonymous memory it would be zeros, not the file, when the program gives it up. So who
//! plans with the rank's memory is told how much stays.

use super::Parts;
use super::state::Served;
use crate::pager::other::error::OtherError;
use crate::pager::other::proc::Vma;
use std::ops::Range;
use std::time::{Duration, Instant};

/// What cannot leave is looked at again after this time at the soonest.
const PAUSE: Duration = Duration::from_millis(500);

/// Bytes of private memory that cannot leave in parts.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Stays {
    /// Of all address spaces.
    sum: u64,
    /// Of the one that has most of it: so much there is at least, whatever they share since a fork.
    most: u64,
    /// To be looked at again then.
    until: Option<Instant>,
}

/// What an address space has of its own.
#[derive(Debug, Default)]
pub(super) struct Own {
    /// Bytes that cannot leave in any case.
    fixed: u64,
    /// Mappings that leave if they are served, bytes of each, and whether they can be.
    others: Vec<(Range<u64>, u64, bool)>,
}

impl Own {
    pub fn add(&mut self, vma: &Vma) {
        if vma.cannot_leave() {
            self.fixed += vma.anonymous;
        } else if vma.is_private() && vma.anonymous > 0 {
            self.others.push((vma.from..vma.to, vma.anonymous, vma.can_leave()));
        }
    }

    /// Bytes that stay. A mapping is served as a whole, or not at all. One that is not may be new since the
    /// last listing: then the next one has it served, unless that cannot be.
    pub fn stays(&self, served: &Served) -> u64 {
        let others = self.others.iter().filter(|(range, _, can_be)| {
            let is_refused = || !served.refused.within(range).is_empty();
            served.armed.within(range).is_empty() && (!can_be || is_refused())
        });
        self.fixed + others.map(|(_, bytes, _)| bytes).sum::<u64>()
    }
}

impl Stays {
    pub fn add(&mut self, bytes: u64) {
        self.sum += bytes;
        self.most = self.most.max(bytes);
    }

    /// It was looked at just now, which began then.
    pub fn seen(mut self, begun: Option<Instant>) -> Self {
        let took = begun.map_or(Duration::ZERO, |begun| begun.elapsed());
        self.until = Some(Instant::now() + (took * 20).max(PAUSE));
        self
    }
}

impl Parts {
    /// Bytes of private memory, at least, that stay in RAM whatever it is to hold.
    pub fn stays(&self) -> u64 {
        self.staying.most
    }

    /// Says once that it holds more than it may because of these, if that is so.
    pub(super) fn tell_what_stays(&mut self, resident: u64) {
        let Stays { sum, most, .. } = self.staying;
        if resident > self.target && sum > self.target / 8 && !self.told_what_stays {
            self.told_what_stays = true;
            // What several processes have since a fork counts more than once.
            let up_to = if sum > most { "up to " } else { "" };
            self.unserved.push_back(format!(
                "{up_to}{} MiB that it has locked, on the stack of its first thread, where it may not both read \
                 and write, or written to private mappings of files or of /dev/zero, stay in RAM",
                sum >> 20
            ));
        }
    }

    /// Memory that stayed may have been unlocked or unmapped since: whoever is to hold no less than that
    /// would be let grow for ever.
    pub(super) fn look_at_what_stays(&mut self) {
        let begun = Instant::now();
        if self.staying.most == 0 || self.staying.until.is_some_and(|until| begun < until) {
            return;
        }
        let mut found = Stays::default();
        for (number, space) in &self.spaces {
            let mut own = Own::default();
            if let Err(OtherError::Busy) = space.each_vma(&mut |vma| own.add(&vma)) {
                // No descriptor is free just now: it stays what it was.
                self.staying = self.staying.seen(Some(begun));
                return;
            }
            // A process that has ended holds nothing. The other thread has to wait only for this.
            if let Some(served) = &self.shared.lock().served[*number] {
                found.add(own.stays(served));
            }
        }
        self.staying = found.seen(Some(begun));
    }
}
