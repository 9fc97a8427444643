//! What the kernel tells of address spaces: read, put into order when nothing is under way, applied to the
//! tables.

use super::changes::{Change, Heard, order};
use super::copies::seen_by_copy;
use super::ranges::Ranges;
use super::state::{Served, State};
use super::uffd::{Fault, NOWHERE, News, Probed, Uffd};
use crate::pager::other::error::OtherError;
use crate::pager::transfer::slots::Slots;
use std::ops::Range;
use std::time::{Duration, Instant};

/// When all threads stand, what they were just doing has ended by then.
const SETTLED: Duration = Duration::from_secs(2);

/// What was read of an address space and not applied yet.
#[derive(Debug)]
pub(super) struct Told {
    what: What,
    /// The thread, if that is known.
    by: Option<u32>,
}

#[derive(Debug)]
enum What {
    Change(Change),
    /// A copy was made, which has this number.
    Copy(usize),
}

impl State {
    /// Reads what there is to be told of an address space. Whether its table is as the address space is: else
    /// nothing may be concluded from it, and the kernel places nothing there either.
    pub fn listen(&mut self, number: usize, faults: &mut Vec<Fault>) -> bool {
        self.hear(number, faults);
        self.settle(number)
    }

    pub fn hear(&mut self, number: usize, faults: &mut Vec<Fault>) {
        let is_ours = !self.dropping.is_empty();
        while let Some((news, by)) = self.served[number].as_mut().and_then(|s| s.read(is_ours)) {
            self.take_up(number, news, by, faults);
        }
    }

    /// Takes up what was read of an address space, and by which thread it was, if that is known.
    pub fn take_up(&mut self, number: usize, news: News, by: Option<u32>, faults: &mut Vec<Fault>) {
        let what = match news {
            News::Fault(fault) if faults.iter().any(|other| other.at == fault.at) => return,
            News::Fault(fault) => return faults.push(fault),
            // By our own calls: the table says already that it is out, or is told what was refused.
            News::Removed(range)
                if self.dropping.with(number, &range).is_some_and(|ours| covers(&ours, &range)) =>
            {
                return;
            }
            News::Removed(range) => What::Change(Change::Removed(range)),
            News::Unmapped(range) => What::Change(Change::Unmapped(range)),
            News::Moved { from, to, len } => What::Change(Change::Moved { from, to, len }),
            News::Fork(uffd) => {
                if let Err(e) = self.guard.hold(&uffd.0) {
                    self.failed.get_or_insert(self.image.failed("guard", None, e));
                }
                What::Copy(self.add_copy(uffd))
            }
        };
        if let Some(served) = &mut self.served[number] {
            served.told.push(Told { what, by });
        }
    }

    /// Reads and applies all there is to be told, as all threads stand. Whether that was possible.
    pub fn settle_all(&mut self) -> bool {
        let begun = Instant::now();
        loop {
            let mut settled = true;
            let mut number = 0;
            // Copies that are found on the way may be last in the list.
            while number < self.served.len() {
                let mut faults = vec![];
                settled &= self.listen(number, &mut faults);
                self.wait_for(number, &faults);
                number += 1;
            }
            if settled || begun.elapsed() > SETTLED {
                return settled;
            }
            std::thread::sleep(Duration::from_micros(100));
        }
    }

    /// Applies what was read, if it is all that has happened.
    pub fn settle(&mut self, number: usize) -> bool {
        let Some(served) = &self.served[number] else { return true };
        if served.is_unborn {
            return false;
        }
        if served.told.is_empty() {
            return true;
        }
        let mut probe = Probe::new(&served.uffd);
        probe.is_watched(NOWHERE);
        if !probe.is_sure {
            return false;
        }
        let (mut changes, mut copies) = (vec![], vec![]);
        for (read, told) in served.told.iter().enumerate() {
            match &told.what {
                What::Change(change) => changes.push(Heard { read, by: told.by, change: change.clone() }),
                What::Copy(copy) => copies.push((read, told.by, *copy)),
            }
        }
        let ordered = order(&changes, &served.armed, &mut |at| probe.is_watched(at));
        if !probe.is_sure {
            return false;
        }
        // A copy may run, and change, since it was told of.
        for &(_, _, copy) in &copies {
            let mut faults = vec![];
            self.hear(copy, &mut faults);
            self.wait_for(copy, &faults);
        }
        let Some(served) = &self.served[number] else { return true };
        let mut probe = Probe::new(&served.uffd);
        let mut seen = vec![];
        for (read, by, number) in copies {
            let Some(copy) = &self.served[number] else { continue };
            let mut there = Probe::new(&copy.uffd);
            // As it was when the copy was made.
            let watched = &mut |at| {
                let now = there.is_watched(at);
                copy.told.iter().rev().fold(now, |after, told| match &told.what {
                    What::Change(Change::Unmapped(range)) if range.contains(&at) => true,
                    What::Change(Change::Moved { from, len, .. }) if (*from..from + len).contains(&at) => {
                        true
                    }
                    What::Change(Change::Moved { to, len, .. }) if (*to..to + len).contains(&at) => false,
                    _ => after,
                })
            };
            let now = &mut |at| probe.is_watched(at);
            let found = seen_by_copy(&ordered.changes, (read, by), &served.armed, now, watched);
            if !there.is_sure || !probe.is_sure {
                return false;
            }
            seen.push((number, found));
        }
        if ordered.doubtful.iter().any(|range| served.table.first_out(range).is_some()) {
            self.failed.get_or_insert(OtherError::Unordered { pid: served.pid.unwrap_or_default() });
            return true;
        }
        let Some(mut served) = self.served[number].take() else { return true };
        served.told.clear();
        for (copy, seen) in &seen {
            if let Some(copy) = &mut self.served[*copy] {
                copy.inherit(&served, &mut self.image.slots);
                seen.changes.iter().for_each(|change| copy.apply(change, &mut self.image.slots));
                copy.disarm_moved(&seen.changes);
                copy.doubt(&seen.doubtful, &mut self.image.slots);
            }
        }
        let all: Vec<Change> = ordered.changes.into_iter().map(|heard| heard.change).collect();
        all.iter().for_each(|change| served.apply(change, &mut self.image.slots));
        served.disarm_moved(&all);
        self.served[number] = Some(served);
        true
    }
}

/// Asks which addresses are watched, as long as nothing changes.
struct Probe<'a> {
    uffd: &'a Uffd,
    is_sure: bool,
}

impl<'a> Probe<'a> {
    fn new(uffd: &'a Uffd) -> Self {
        Self { uffd, is_sure: true }
    }

    fn is_watched(&mut self, at: u64) -> bool {
        match self.uffd.probe(at) {
            Probed::Watched => true,
            Probed::Unwatched | Probed::Gone => false,
            Probed::Changing => {
                self.is_sure = false;
                false
            }
        }
    }
}

impl Served {
    /// Whether, by all that was read, something may lie at an address that is watched.
    pub fn may_hold(&self, at: u64) -> bool {
        let before = self.is_unborn || !self.armed.within(&(at..at + 1)).is_empty();
        self.told.iter().fold(before, |holds, told| match &told.what {
            What::Change(Change::Unmapped(range)) if range.contains(&at) => self.is_unborn,
            What::Change(Change::Moved { to, len, .. }) if (*to..to + len).contains(&at) => true,
            _ => holds,
        })
    }

    fn apply(&mut self, change: &Change, slots: &mut Slots) {
        match change {
            Change::Removed(range) => {
                self.table.forget(range, slots);
                self.doubtful.remove(range);
            }
            Change::Unmapped(range) => {
                self.table.forget(range, slots);
                self.armed.remove(range);
                self.doubtful.remove(range);
            }
            // The old range stays, until it is unmapped, which is told.
            Change::Moved { from, to, len } => {
                self.table.shift(*from, *to, *len, slots);
                self.doubtful.shift(*from, *to, *len);
                self.armed.add(*to..to + len);
            }
        }
    }

    /// What moves left is not watched if it was unmapped without a word.
    fn disarm_moved(&mut self, changes: &[Change]) {
        for change in changes {
            let Change::Moved { from, len, .. } = change else { continue };
            let mut gone = Ranges::default();
            for range in self.armed.within(&(*from..from + len)) {
                if matches!(self.uffd.probe(range.start), Probed::Unwatched | Probed::Gone) {
                    gone.add(range);
                }
            }
            gone.iter().for_each(|range| self.armed.remove(&range));
        }
    }
}

fn covers(range: &Range<u64>, part: &Range<u64>) -> bool {
    range.start <= part.start && part.end <= range.end
}
