//! What cannot leave in parts: what is locked, and what was written to private mappings of files.
//!
//! Dropped, a page of a file is what is in the file by then, and behind an end that has come nearer nothing
//! can be put back; as anonymous memory it would be zeros, not the file, when the program gives it up. So who
//! plans with the rank's memory is told how much stays.

use super::Parts;
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
            self.unserved = Some(format!(
                "{up_to}{} MiB that it has locked, or written to private mappings of files or of /dev/zero, stay in RAM",
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
        for (_, space) in &self.spaces {
            let mut here = 0;
            // A process that has ended holds nothing.
            let _ = space.each_vma(&mut |vma| {
                if vma.cannot_leave() {
                    here += vma.anonymous;
                }
            });
            found.add(here);
        }
        self.staying = found.seen(Some(begun));
    }
}
