//! In which order an address space changed. Pure.
//!
//! A thread that unmaps, moves or copies memory lets go of the address space before it tells of it, so that others may change it and be
//! heard first: the range that one unmaps may be the target of another's `mremap`, read before. What is read until nothing is under way is
//! therefore put into an order that is possible:
//! - Nothing is moved to where something lies: what lay there was unmapped or moved away before, by an event that is read later.
//! - A move leaves its old range mapped, until it is unmapped by an event of its own. (With `MREMAP_DONTUNMAP` it stays.)
//! - What is unmapped is not there at the end, unless something was moved to it.
//!
//! Only releases are heard too late in a way that matters: what a thread does with a range it got, it does after it was heard.
//! Where two releases of one range could each have been the one before the move, content decides nothing; that is told, and
//! whoever has something out there must not go on.

use super::table::Ranges;
use std::ops::Range;

/// What has happened to addresses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Change {
    Moved { from: u64, to: u64, len: u64 },
    Removed(Range<u64>),
    Unmapped(Range<u64>),
}

impl Change {
    /// Where something is now that was elsewhere.
    fn target(&self) -> Option<Range<u64>> {
        match self {
            Self::Moved { to, len, .. } => Some(*to..to + len),
            _ => None,
        }
    }
}

/// Changes as they happened, each with its place among what was read.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Ordered {
    pub changes: Vec<(usize, Change)>,
    /// What was in these ranges before could be elsewhere as well.
    pub doubtful: Vec<Range<u64>>,
}

/// `told`: in the order in which it was read, up to when nothing was under way. `armed`: what was watched before. `is_watched`: whether an
/// address is watched now.
pub(super) fn order(
    told: &[(usize, Change)],
    armed: &Ranges,
    is_watched: &mut impl FnMut(u64) -> bool,
) -> Ordered {
    let mut order = Order {
        told,
        taken: vec![false; told.len()],
        occupied: armed.clone(),
        left: Ranges::default(),
        acquired: Ranges::default(),
        done: Ordered::default(),
        is_watched,
    };
    (0..told.len()).for_each(|i| order.take(i));
    order.done
}

struct Order<'a, F> {
    told: &'a [(usize, Change)],
    taken: Vec<bool>,
    /// Where something lies, or what a move left.
    occupied: Ranges,
    /// What moves left, of that.
    left: Ranges,
    /// Where something was moved to.
    acquired: Ranges,
    done: Ordered,
    is_watched: &'a mut F,
}

impl<F: FnMut(u64) -> bool> Order<'_, F> {
    fn take(&mut self, i: usize) {
        if std::mem::replace(&mut self.taken[i], true) {
            return;
        }
        let (read, change) = self.told[i].clone();
        match &change {
            Change::Moved { from, to, len } => {
                let (source, target) = (*from..from + len, *to..to + len);
                self.clear(i, &target);
                // Whatever is still there was not heard of: nothing can be out there.
                self.left.remove(&target);
                self.left.add(source.clone());
                self.acquired.remove(&source);
                self.occupied.add(target.clone());
                self.acquired.add(target);
                self.done.changes.push((read, change));
            }
            Change::Removed(_) => self.done.changes.push((read, change)),
            Change::Unmapped(range) => {
                let mut gone = Ranges::default();
                gone.add(range.clone());
                for kept in self.acquired.within(range) {
                    let comes = |(i, taken): (usize, &bool)| {
                        !taken && self.told[i].1.target().is_some_and(|target| overlap(&target, &kept))
                    };
                    // It is there although it was unmapped: that was before something came to it.
                    if !self.taken.iter().enumerate().any(comes) && (self.is_watched)(kept.start) {
                        gone.remove(&kept);
                    }
                }
                for gone in gone.iter() {
                    self.occupied.remove(&gone);
                    self.left.remove(&gone);
                    self.acquired.remove(&gone);
                    self.done.changes.push((read, Change::Unmapped(gone)));
                }
            }
        }
    }

    /// Takes first what must have made room for a move.
    fn clear(&mut self, i: usize, target: &Range<u64>) {
        let (mut by_move, mut by_unmap) = (false, false);
        let mut sources = vec![];
        for k in i + 1..self.told.len() {
            let blocking = self.occupied.within(target);
            if blocking.is_empty() {
                break;
            }
            let solid = |range: &Range<u64>| {
                blocking.iter().any(|b| {
                    overlap(b, range) && {
                        let part = b.start.max(range.start)..b.end.min(range.end);
                        let left: u64 = self.left.within(&part).iter().map(|r| r.end - r.start).sum();
                        left < part.end - part.start
                    }
                })
            };
            let takes = match &self.told[k].1 {
                _ if self.taken[k] => false,
                Change::Moved { from, len, .. } => {
                    let source = *from..from + len;
                    let takes = solid(&source);
                    if takes {
                        by_move = true;
                        sources.push(source);
                    }
                    takes
                }
                Change::Unmapped(range) => {
                    let takes = blocking.iter().any(|b| overlap(b, range));
                    if takes && solid(range) {
                        by_unmap = true;
                    }
                    takes
                }
                Change::Removed(_) => false,
            };
            if takes {
                self.take(k);
            }
        }
        // Another release of the same range: it may be that one which was first.
        let mut others = (i + 1..self.told.len()).filter(|&k| !self.taken[k]).map(|k| &self.told[k].1);
        let is_doubtful = others.any(|other| match other {
            Change::Moved { from, len, .. } => (by_move || by_unmap) && overlap(&(*from..from + len), target),
            Change::Unmapped(range) => by_move && overlap(range, target),
            Change::Removed(_) => false,
        });
        if is_doubtful {
            self.done.doubtful.push(target.clone());
            if let Change::Moved { from, len, .. } = &self.told[i].1 {
                self.done.doubtful.push(*from..from + len);
            }
            self.done.doubtful.extend(sources);
        }
    }
}

/// Those of the changes that a copy of the address space has seen which was told of at place `read`. `armed`: what was watched before all
/// of them; `is_watched`: whether an address is watched in the copy.
pub(super) fn seen_by_copy(
    ordered: &[(usize, Change)],
    read: usize,
    armed: &Ranges,
    is_watched: &mut impl FnMut(u64) -> bool,
) -> Vec<Change> {
    // Each depends on those behind it.
    let mut seen: Vec<Change> = vec![];
    for (i, (at, change)) in ordered.iter().enumerate().rev() {
        let (earlier, later) = (&ordered[..i], &ordered[i + 1..]);
        let came_to = |range: &Range<u64>, seen: &[Change]| {
            seen.iter().filter_map(Change::target).any(|target| overlap(&target, range))
        };
        let is_seen = match change {
            // Told before it is done: both at once, or one after the other.
            Change::Removed(_) => *at < read,
            Change::Unmapped(range) => came_to(range, &seen) || !is_watched(range.start),
            Change::Moved { from, to, len } => {
                let (source, target) = (*from..from + len, *to..to + len);
                let was_free = armed.within(&target).is_empty()
                    && !earlier.iter().filter_map(|(_, c)| c.target()).any(|t| overlap(&t, &target));
                match stays_of(&target, later) {
                    // What came was moved on, or unmapped: as it is where it was, or not.
                    None => !is_watched(source.start) || came_to(&source, &seen),
                    Some(at) if was_free => is_watched(at),
                    Some(at) => is_watched(at) && (!is_watched(source.start) || came_to(&source, &seen)),
                }
            }
        };
        if is_seen {
            seen.push(change.clone());
        }
    }
    seen.reverse();
    seen
}

/// An address of a range of which later changes take nothing.
fn stays_of(range: &Range<u64>, later: &[(usize, Change)]) -> Option<u64> {
    let mut stays = Ranges::default();
    stays.add(range.clone());
    for (_, change) in later {
        match change {
            Change::Moved { from, len, .. } => stays.remove(&(*from..from + len)),
            Change::Unmapped(range) => stays.remove(range),
            Change::Removed(_) => {}
        }
    }
    stays.iter().next().map(|range| range.start)
}

fn overlap(a: &Range<u64>, b: &Range<u64>) -> bool {
    a.start < b.end && b.start < a.end
}
