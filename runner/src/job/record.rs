//! What the master keeps of a rank besides the core's and the segment's.

use std::collections::BTreeMap;
use std::ops::{Index, IndexMut};
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

use bdrun_ipc::segment::RankBlock;

use crate::exit::Ending;
use crate::holder::{Holder, Scratch};
use crate::measure::{Group, Sample};
use crate::stats::ProcessStats;

use super::observe::Seen;
use super::shrink::Partial;

/// Everything about one rank: what it is, what was ordered of it, how it ended. It is what statistics and
/// messages are made of.
#[derive(Default)]
pub(super) struct Record {
    pub seen: Seen,
    pub control: Option<OwnedFd>,
    pub pid: Option<i32>,
    /// How it ended, as in the statistics.
    pub status: Option<String>,
    /// The life of its last process.
    pub process: Option<ProcessStats>,
    /// How many tries of it failed, and how many of them for want of memory.
    pub tries: [u32; 2],
    /// How its last try ended, and why that failed, until the next begins.
    pub retried: Option<(String, Ending)>,
    /// The number of the file that its standard output is, if it is one.
    pub output: Option<u64>,
    /// Since when it has taken too long, and was told to end.
    pub overdue: Option<Instant>,
    /// Its failure was counted: it was killed for it, and its end is no other.
    pub failed: bool,
    /// Why, where that is told once it has ended.
    pub reason: Option<Ending>,
    /// It needs so many bytes, beside so many of others: to be told when it is given more than there is.
    pub overdraft: Option<(u64, u64)>,
    /// Its processes, if they are measured.
    pub group: Option<Group>,
    /// Which try of it this is.
    pub nth: u32,
    pub holder: Option<Holder>,
    /// It runs in parts, by its mover.
    pub partial: Option<Partial>,
    pub scratch: Scratch,
    /// The order that the mover carries out, or has, if it still holds the rank: it ends with the mover
    /// ([`Self::let_go`]), or it would be taken for one to the next.
    pub order: Option<Ordered>,
    /// What it was last seen to hold.
    pub last: Sample,
    /// Of one that asks: the bytes besides, as last seen when nothing of it was out. Of what is, its threads
    /// may touch parts, and have copies of them meanwhile.
    pub besides_inside: u64,
    /// Of one that asks, is out and has several threads: in which of its waits, and the least it was seen to
    /// hold besides in that.
    pub besides_waiting: Option<(u64, u64)>,
    /// The most it held, with what it asked for.
    pub most: u64,
    /// Of one that asks, the most it held besides.
    pub most_besides: u64,
    /// It may have held more than was seen, for all that is known.
    pub hardly_seen: bool,
    /// What was set aside for it when it last began, bytes.
    pub reserve: u64,
    /// Of one that asks, and is being moved from outside: how it was when that was ordered.
    pub evicted_while: Option<While>,
    /// Of one whose threads stand: it was told to leave but for so many bytes, which it does itself once they
    /// are let go.
    pub leaves: Option<u64>,
    /// Said to be impossible to page.
    pub fixed: bool,
    /// It was said why it cannot be paged out.
    pub told_fixed: bool,
    /// How often in a row it could not leave by itself, as its threads did not stand, say.
    pub in_vain: u32,
    /// We have killed it to make room.
    pub stopping: bool,
    /// Since when it stands still.
    pub still: Option<Instant>,
    pub still_for: Duration,
    /// The same in earlier tries.
    pub still_before: Duration,
    /// Since when it lives, and how long it lived in earlier tries.
    pub born: Option<Instant>,
    pub lived: Duration,
    /// Processor time of earlier tries.
    pub spent: Duration,
    /// See [`RankMeasured::switches`](crate::stats::RankMeasured::switches).
    pub switches: [u64; 2],
}

/// The records of those that have begun, and of which not all is over. Others have an empty one.
#[derive(Default)]
pub(super) struct Records {
    all: BTreeMap<u32, Record>,
    none: Record,
}

impl Records {
    pub fn get(&self, rank: u32) -> Option<&Record> {
        self.all.get(&rank)
    }

    pub fn get_mut(&mut self, rank: u32) -> Option<&mut Record> {
        self.all.get_mut(&rank)
    }

    /// In the order of their ranks.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &Record)> {
        self.all.iter().map(|(&rank, record)| (rank, record))
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Record> {
        self.all.values_mut()
    }

    /// All is over.
    pub fn remove(&mut self, rank: u32) -> Option<Record> {
        self.all.remove(&rank)
    }
}

impl Index<usize> for Records {
    type Output = Record;

    fn index(&self, rank: usize) -> &Record {
        self.all.get(&(rank as u32)).unwrap_or(&self.none)
    }
}

impl IndexMut<usize> for Records {
    fn index_mut(&mut self, rank: usize) -> &mut Record {
        self.all.entry(rank as u32).or_default()
    }
}

/// A rank that asks is moved from outside, with what it did not ask for.
#[derive(Clone, Copy)]
pub(super) enum While {
    /// It has moved out by itself what it asked for: it holds so many bytes of it, and must hold so many to
    /// run.
    Waits { asked: u64, all: u64 },
    /// It computes, or did: all of it leaves as it is.
    Computes,
}

/// An order under way.
#[derive(Clone, Copy)]
pub(super) struct Ordered {
    pub what: What,
    pub at: Instant,
    pub freed: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum What {
    Evict,
    Hold,
    Freeze,
    Resume,
    Shrink,
}

impl Ordered {
    pub(super) fn new(what: What) -> Self {
        Self { what, at: Instant::now(), freed: false }
    }
}

impl Record {
    /// The most it held, with what it asked for, which one that asks writes in its block.
    pub fn peak(&self, block: &RankBlock) -> u64 {
        block.peak.load(SeqCst).max(self.most)
    }

    /// A process of it runs since then, for the first time or anew.
    pub(super) fn begin(&mut self, group: Group, at: Instant) {
        self.spent += self.last.cpu;
        self.still_before = self.still_for;
        (self.group, self.nth, self.born) = (Some(group), self.nth + 1, Some(at));
        (self.last, self.scratch, self.still) = (Sample::default(), Scratch::default(), None);
        (self.holder, self.partial, self.order) = (None, None, None);
        (self.fixed, self.told_fixed, self.in_vain, self.stopping) = (false, false, 0, false);
        (self.besides_inside, self.besides_waiting) = (0, None);
        (self.evicted_while, self.leaves, self.overdue) = (None, None, None);
    }

    /// No thread holds it any more: what it was told last.
    pub(super) fn let_go(&mut self) -> Option<What> {
        self.holder = None;
        self.order.take().map(|order| order.what)
    }

    /// It was ordered out, and some of it has left, or all.
    pub(super) fn is_leaving(&self) -> bool {
        self.order.is_some_and(|order| order.what == What::Evict && order.freed)
    }

    /// It stands still from now on, or no longer.
    pub(super) fn stand(&mut self, still: bool) {
        if !still {
            self.still_for += self.still.take().map_or(Duration::ZERO, |since| since.elapsed());
        } else {
            self.still.get_or_insert_with(Instant::now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_leaving_is_known_from_the_first_bytes_on() {
        let mut record = Record { order: Some(Ordered::new(What::Evict)), ..Record::default() };
        assert!(!record.is_leaving(), "it may still grow");
        record.order = record.order.map(|order| Ordered { freed: true, ..order });
        assert!(record.is_leaving());
        record.order = Some(Ordered { freed: true, ..Ordered::new(What::Shrink) });
        assert!(!record.is_leaving(), "it runs");
    }
}
