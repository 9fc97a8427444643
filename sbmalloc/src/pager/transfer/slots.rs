//! Where in a scratch file pages lie: a log. Pure.
//!
//! What leaves together is written together, one behind the other, wherever its pages come from, and nothing
//! is written in its old place: scattered pages go out at the rate of a stream (26 against 0.4 GB/s in place,
//! `docs/benchmarks.md`). The log goes on in segments that became empty; where there are none at the end of
//! the file, or, when half of the file is holes, in those.

use std::collections::BTreeSet;

/// Slots of a segment: 1 MiB.
const SEGMENT: u32 = 256;

/// The slots of a scratch file, a page each; several tables may refer to one after a fork.
#[derive(Debug, Default)]
pub(in crate::pager) struct Slots {
    /// Of each slot, up to the end of the file.
    users: Vec<u32>,
    /// Free ones of each segment.
    free: Vec<u16>,
    /// Of all of them.
    all_free: u32,
    /// Segments of which all slots are free.
    empty: BTreeSet<u32>,
    /// Where the log goes on.
    next: u32,
}

impl Slots {
    /// A free slot, if possible that behind the one taken last.
    pub fn take(&mut self) -> u32 {
        let slot = self.find();
        let end = self.users.len() as u32;
        if slot == end {
            self.users.extend([0; SEGMENT as usize]);
            self.free.push(SEGMENT as u16);
            self.all_free += SEGMENT;
        }
        let segment = slot / SEGMENT;
        self.users[slot as usize] = 1;
        self.free[segment as usize] -= 1;
        self.all_free -= 1;
        self.empty.remove(&segment);
        self.next = slot + 1;
        slot
    }

    fn find(&self) -> u32 {
        let end = self.users.len() as u32;
        let is_begun = self.next < end && !self.next.is_multiple_of(SEGMENT);
        if is_begun && self.users[self.next as usize] == 0 {
            return self.next;
        }
        if let Some(segment) = self.empty.range(self.next / SEGMENT..).next().or(self.empty.first()) {
            return segment * SEGMENT;
        }
        if self.all_free * 2 <= end {
            return end;
        }
        self.hole(self.next..end).or_else(|| self.hole(0..self.next)).unwrap_or(end)
    }

    /// The first free slot of a range.
    fn hole(&self, range: std::ops::Range<u32>) -> Option<u32> {
        let mut at = range.start;
        while at < range.end {
            if self.free[(at / SEGMENT) as usize] == 0 {
                at = (at / SEGMENT + 1) * SEGMENT;
            } else if self.users[at as usize] == 0 {
                return Some(at);
            } else {
                at += 1;
            }
        }
        None
    }

    /// One more table refers to it.
    pub fn share(&mut self, slot: u32) {
        self.users[slot as usize] += 1;
    }

    /// One table less refers to it.
    pub fn give(&mut self, slot: u32) {
        let users = &mut self.users[slot as usize];
        *users -= 1;
        if *users > 0 {
            return;
        }
        let segment = slot / SEGMENT;
        self.free[segment as usize] += 1;
        self.all_free += 1;
        if self.free[segment as usize] == SEGMENT as u16 {
            self.empty.insert(segment);
        }
    }

    /// Slots that somebody refers to.
    #[cfg(test)]
    pub fn used(&self) -> usize {
        self.users.iter().filter(|&&users| users > 0).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_leaves_together_lies_together() {
        let mut slots = Slots::default();
        let first: Vec<u32> = (0..1000).map(|_| slots.take()).collect();
        assert!(first.iter().enumerate().all(|(i, &slot)| slot == i as u32));
        // Every third is free: not worth it, as long as these are few.
        (0..1000).step_by(3).for_each(|slot| slots.give(slot));
        assert_eq!((0..100).map(|_| slots.take()).collect::<Vec<u32>>(), (1000..1100).collect::<Vec<u32>>());
        // A segment that became empty is.
        (256..512).filter(|slot| slot % 3 != 0).for_each(|slot| slots.give(slot));
        let next: Vec<u32> = (0..300).map(|_| slots.take()).collect();
        assert_eq!(next[..180], (1100..1280).collect::<Vec<u32>>());
        assert_eq!(next[..], [&next[..180], &(256..376).collect::<Vec<u32>>()].concat());
    }

    proptest! {
        #[test]
        fn each_is_nobody_elses_and_the_file_stays_small(ops in proptest::collection::vec((0..40u32, any::<u32>()), 1..200)) {
            let (mut slots, mut taken, mut most) = (Slots::default(), vec![], 0);
            for (op, draw) in ops {
                if op < 25 || taken.is_empty() {
                    for _ in 0..op * 8 + 1 {
                        let slot = slots.take();
                        prop_assert!(!taken.contains(&slot));
                        taken.push(slot);
                    }
                } else {
                    for i in 0..(op * 8).min(taken.len() as u32) {
                        let at = draw.wrapping_mul(i * 7 + 1) as usize % taken.len();
                        slots.give(taken.swap_remove(at));
                    }
                }
                most = most.max(taken.len());
                prop_assert_eq!(slots.used(), taken.len());
                prop_assert_eq!(slots.all_free as usize + taken.len(), slots.users.len());
                prop_assert!(slots.users.len() <= most * 2 + 2 * SEGMENT as usize, "{} for {}", slots.users.len(), most);
            }
            taken.into_iter().for_each(|slot| slots.give(slot));
            prop_assert_eq!(slots.empty.len() * SEGMENT as usize, slots.users.len());
        }
    }
}
