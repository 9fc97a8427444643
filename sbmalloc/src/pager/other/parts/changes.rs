//! In which order an address space changed. Pure.
//!
//! A thread that unmaps, moves or copies memory lets go of the address space before it tells of it, so that
//! others may change it and be heard first: the range that one unmaps may be the target of another's
//! `mremap`, read before. What is read until nothing is under way is therefore put into an order that is
//! possible:
//! - Nothing is moved to where something lies: what lay there was unmapped or moved away before, by an event
//!   that is read later.
//! - A move leaves its old range mapped, until it is unmapped by an event of its own. (With
//!   `MREMAP_DONTUNMAP` it stays.)
//! - What is unmapped is not there at the end, unless something was moved to it.
//! - What one thread did (`actors`) is read as it did it.
//!
//! Only releases are heard too late in a way that matters: what a thread does with a range it got, it does
//! after it was heard. Where two releases of one range could each have been the one before the move, and it
//! is not known whose they were, content decides nothing; that is told, and whoever has something out there
//! must not go on. That is so, too, where a move is to have made room for a move and may have been the same
//! thread's, of what it had just moved there (and left behind by `MREMAP_DONTUNMAP`, while another's `munmap`
//! of the same range, from before both, was still not heard).

use super::ranges::Ranges;
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

/// A change as it was told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Heard {
    /// Its place among what was read.
    pub read: usize,
    /// The thread, if that is known: what one thread does is read as it does it.
    pub by: Option<u32>,
    pub change: Change,
}

impl Heard {
    /// Whether it is known to have happened after another.
    fn is_after(&self, other: &Self) -> bool {
        self.read > other.read && self.by.is_some() && self.by == other.by
    }
}

/// Changes as they happened.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Ordered {
    pub changes: Vec<Heard>,
    /// What was in these ranges before could be elsewhere as well.
    pub doubtful: Vec<Range<u64>>,
}

/// `told`: in the order in which it was read, up to when nothing was under way. `armed`: what was watched
/// before. `is_watched`: whether an address is watched now.
pub(super) fn order(told: &[Heard], armed: &Ranges, is_watched: &mut impl FnMut(u64) -> bool) -> Ordered {
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
    told: &'a [Heard],
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
        let heard = self.told[i].clone();
        match &heard.change {
            Change::Moved { from, to, len } => {
                let (source, target) = (*from..from + len, *to..to + len);
                self.clear(i, &target);
                self.left.remove(&target);
                self.left.add(source.clone());
                self.acquired.remove(&source);
                self.occupied.add(target.clone());
                self.acquired.add(target);
                self.done.changes.push(heard);
            }
            Change::Removed(_) => self.done.changes.push(heard),
            Change::Unmapped(range) => {
                let mut gone = Ranges::default();
                gone.add(range.clone());
                for kept in self.acquired.within(range) {
                    let comes = |(i, taken): (usize, &bool)| {
                        !taken && self.told[i].change.target().is_some_and(|target| overlap(&target, &kept))
                    };
                    // Whoever let something come there, and unmaps it then, unmaps that.
                    let came =
                        self.done.changes.iter().rev().find(|other| {
                            other.change.target().is_some_and(|target| overlap(&target, &kept))
                        });
                    if came.is_some_and(|came| heard.is_after(came)) {
                        continue;
                    }
                    // It is there although it was unmapped: that was before something came to it.
                    if !self.taken.iter().enumerate().any(comes) && (self.is_watched)(kept.start) {
                        gone.remove(&kept);
                    }
                }
                for gone in gone.iter() {
                    self.occupied.remove(&gone);
                    self.left.remove(&gone);
                    self.acquired.remove(&gone);
                    self.done.changes.push(Heard { change: Change::Unmapped(gone), ..heard.clone() });
                }
            }
        }
    }

    /// Takes first what must have made room for a move.
    fn clear(&mut self, i: usize, target: &Range<u64>) {
        let (mut by_move, mut by_unmap, mut is_anybodys) = (false, false, false);
        let mut sources = vec![];
        for k in 0..self.told.len() {
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
            let takes = match &self.told[k].change {
                _ if self.taken[k] || self.told[k].is_after(&self.told[i]) => false,
                Change::Moved { from, len, .. } => {
                    let source = *from..from + len;
                    let takes = solid(&source);
                    if takes {
                        by_move = true;
                        is_anybodys |= self.told[k].by.is_none() || self.told[i].by.is_none();
                        sources.push(source);
                    }
                    takes
                }
                Change::Unmapped(range) => {
                    let takes = blocking.iter().any(|b| overlap(b, range));
                    by_unmap |= takes;
                    takes
                }
                Change::Removed(_) => false,
            };
            if takes {
                // With what the same thread did before.
                (0..k).filter(|&e| self.told[k].is_after(&self.told[e])).for_each(|e| self.take(e));
                self.take(k);
            }
        }
        // Another release of the same range: it may be that one which was first.
        let is_other = |&k: &usize| !self.taken[k] && !self.told[k].is_after(&self.told[i]);
        let mut others = (0..self.told.len()).filter(is_other).map(|k| &self.told[k].change);
        let is_doubtful = others.any(|other| match other {
            Change::Moved { from, len, .. } => (by_move || by_unmap) && overlap(&(*from..from + len), target),
            Change::Unmapped(range) => by_move && overlap(range, target),
            Change::Removed(_) => false,
        });
        // Nothing made room that could have been first.
        let mut stays = self.occupied.within(target).into_iter();
        let is_stuck = stays.any(|part| {
            let left: u64 = self.left.within(&part).iter().map(|r| r.end - r.start).sum();
            left < part.end - part.start
        });
        if is_doubtful || is_stuck || is_anybodys {
            self.done.doubtful.push(target.clone());
            if let Change::Moved { from, len, .. } = &self.told[i].change {
                self.done.doubtful.push(*from..from + len);
            }
            self.done.doubtful.extend(sources);
        }
    }
}

fn overlap(a: &Range<u64>, b: &Range<u64>) -> bool {
    a.start < b.end && b.start < a.end
}

#[cfg(test)]
#[allow(clippy::single_range_in_vec_init, reason = "lists of ranges, some with one")]
mod tests {
    use super::super::copies::seen_by_copy;
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    fn moved(from: u64, to: u64) -> Change {
        Change::Moved { from, to, len: 4 }
    }

    fn ranges(list: &[Range<u64>]) -> Ranges {
        let mut ranges = Ranges::default();
        list.iter().for_each(|range| ranges.add(range.clone()));
        ranges
    }

    fn ordered(told: &[Change], armed: &[Range<u64>], watched: &[Range<u64>]) -> Ordered {
        let told: Vec<_> = told.iter().map(|change| (None, change.clone())).collect();
        ordered_by(&told, armed, watched)
    }

    fn ordered_by(told: &[(Option<u32>, Change)], armed: &[Range<u64>], watched: &[Range<u64>]) -> Ordered {
        let heard =
            |(read, (by, change)): (usize, &(_, Change))| Heard { read, by: *by, change: change.clone() };
        let told: Vec<_> = told.iter().enumerate().map(heard).collect();
        let watched = ranges(watched);
        order(&told, &ranges(armed), &mut |at| !watched.within(&(at..at + 1)).is_empty())
    }

    fn places(ordered: &Ordered) -> Vec<usize> {
        ordered.changes.iter().map(|heard| heard.read).collect()
    }

    #[test]
    fn what_fits_stays_as_it_was_read() {
        let told = [moved(0, 20), Change::Unmapped(0..4), Change::Removed(20..21), moved(20, 0)];
        let ordered = ordered(&told, &[0..4], &[0..4]);
        assert_eq!((places(&ordered), ordered.doubtful), (vec![0, 1, 2, 3], vec![]));
    }

    #[test]
    fn a_range_is_free_before_something_moves_there() {
        // One thread unmaps what another moves to, and is heard later.
        let told = [moved(10, 0), Change::Unmapped(10..14), Change::Unmapped(0..4)];
        let found = ordered(&told, &[0..4, 10..14], &[0..4]);
        assert_eq!((places(&found), &found.doubtful[..]), (vec![2, 0, 1], &[][..]));
        // One moves away what another moves to; each unmaps where it was, and is heard of that later.
        let told = [moved(10, 0), moved(0, 20), Change::Unmapped(10..14), Change::Unmapped(0..4)];
        let by = |who: [u32; 4]| who.map(Some).into_iter().zip(told.clone()).collect::<Vec<_>>();
        let found = ordered_by(&by([1, 2, 1, 2]), &[0..4, 10..14], &[0..4, 20..24]);
        assert_eq!((places(&found), &found.doubtful[..]), (vec![1, 3, 0, 2], &[][..]));
        // Or was it one, which left its place behind, while another had unmapped that before?
        let found = ordered_by(&by([1, 1, 1, 2]), &[0..4, 10..14], &[0..4, 20..24]);
        assert_eq!((places(&found), &found.doubtful[..]), (vec![3, 0, 1, 2], &[][..]));
        assert!(!ordered(&told, &[0..4, 10..14], &[0..4, 20..24]).doubtful.is_empty());
        // Only the end of a move is heard late.
        let told = [moved(0, 20), moved(10, 0), Change::Unmapped(10..14), Change::Unmapped(0..4)];
        let found = ordered(&told, &[0..4, 10..14], &[0..4, 20..24]);
        assert_eq!((places(&found), &found.doubtful[..]), (vec![0, 3, 1, 2], &[][..]));
    }

    #[test]
    fn what_is_there_was_not_unmapped_last() {
        // That something lay at 0 was not known: it had grown there.
        let told = [moved(10, 0), Change::Unmapped(10..14), Change::Unmapped(0..4)];
        let found = ordered(&told, &[10..14], &[0..4]);
        assert_eq!(places(&found), [0, 1]);
        assert_eq!(places(&ordered(&told, &[10..14], &[])), [0, 1, 2]);
    }

    #[test]
    fn two_that_could_have_been_the_first_are_told() {
        // Did the one who moved away do so before something came, or take that along?
        let told = [moved(10, 0), moved(0, 20), Change::Unmapped(0..4), Change::Unmapped(0..4)];
        let found = ordered(&told, &[0..4, 10..14], &[20..24]);
        assert_eq!(found.doubtful, [0..4, 10..14, 0..4]);
        // Who it was decides.
        let by = |who: [u32; 4]| who.map(Some).into_iter().zip(told.clone()).collect::<Vec<_>>();
        let found = ordered_by(&by([1, 1, 1, 2]), &[0..4, 10..14], &[20..24]);
        assert_eq!((places(&found), &found.doubtful[..]), (vec![3, 0, 1, 2], &[][..]));
        let found = ordered_by(&by([1, 2, 2, 1]), &[0..4, 10..14], &[20..24]);
        assert_eq!((places(&found), &found.doubtful[..]), (vec![1, 2, 0, 3], &[][..]));
    }

    /// It is watched again, as a neighbour has grown over it.
    #[test]
    fn what_a_thread_got_and_unmapped_is_gone() {
        let told = [moved(10, 0), Change::Unmapped(10..14), Change::Unmapped(0..4)];
        let found = ordered_by(&told.map(|change| (Some(1), change)), &[10..14], &[0..4]);
        assert_eq!((places(&found), &found.doubtful[..]), (vec![0, 1, 2], &[][..]));
    }

    /// Threads that unmap, move, copy; what they do happens at once, is told later, and read in another
    /// order.
    #[derive(Debug, Clone)]
    enum Step {
        Unmap(usize, usize),
        Move(usize, usize, usize, bool),
        Copy(usize),
        /// The next event of a thread is queued, and read.
        Read(usize),
    }

    const THREADS: usize = 4;
    /// Places of ranges, ten pages apart, so that they meet often.
    const PLACES: usize = 7;

    fn step() -> impl Strategy<Value = Step> {
        let thread = 0..THREADS;
        prop_oneof![
            2 => (thread.clone(), 0..PLACES).prop_map(|(t, p)| Step::Unmap(t, p)),
            3 => (thread.clone(), 0..PLACES, 0..PLACES, any::<bool>())
                .prop_map(|(t, a, b, stays)| Step::Move(t, a, b, stays)),
            1 => thread.clone().prop_map(Step::Copy),
            4 => thread.prop_map(Step::Read),
        ]
    }

    #[derive(Debug, Clone)]
    enum Event {
        Change(Change),
        /// What was where, and where it was the thread's own.
        Copy(Memory, Vec<u64>),
    }

    /// Which range lies where; 0 is an empty one.
    type Memory = HashMap<u64, u64>;

    fn apply(memory: &mut Memory, change: &Change) {
        match change {
            Change::Moved { from, to, .. } => {
                let content = memory.get(from).copied().unwrap_or(0);
                memory.insert(*to, content);
                memory.insert(*from, 0);
            }
            Change::Unmapped(range) => {
                memory.remove(&range.start);
            }
            Change::Removed(_) => {}
        }
    }

    fn at(place: usize) -> u64 {
        100 + place as u64 * 10
    }

    /// Threads of which it is known what they do, as bits.
    const ALL: u32 = (1 << THREADS) - 1;

    fn known() -> impl Strategy<Value = u32> {
        prop_oneof![Just(0), Just(ALL), 0..ALL]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(40_000))]
        #[test]
        fn the_memory_is_as_it_was_left(
            steps in proptest::collection::vec(step(), 1..24),
            known in known(),
        ) {
            // Place by place: whose it is and what it holds. Each thread touches only its own.
            let begin: Memory = (0..5).map(|p| (at(p), p as u64 + 1)).collect();
            let mut owner: HashMap<u64, usize> = (0..5).map(|p| (at(p), p % THREADS)).collect();
            let mut memory = begin.clone();
            let mut queued: Vec<Vec<Event>> = vec![vec![]; THREADS];
            let mut told: Vec<(usize, Event)> = vec![];
            for step in steps {
                match step {
                    Step::Unmap(t, p) if queued[t].is_empty() && owner.get(&at(p)) == Some(&t) => {
                        owner.remove(&at(p));
                        memory.remove(&at(p));
                        queued[t].push(Event::Change(Change::Unmapped(at(p)..at(p) + 4)));
                    }
                    Step::Move(t, a, b, stays)
                        if queued[t].is_empty() && owner.get(&at(a)) == Some(&t) && !owner.contains_key(&at(b)) =>
                    {
                        let change = moved(at(a), at(b));
                        apply(&mut memory, &change);
                        owner.insert(at(b), t);
                        queued[t].push(Event::Change(change));
                        if !stays {
                            owner.remove(&at(a));
                            memory.remove(&at(a));
                            queued[t].push(Event::Change(Change::Unmapped(at(a)..at(a) + 4)));
                        }
                    }
                    Step::Copy(t) if queued[t].is_empty() => {
                        let own = owner.iter().filter(|(_, o)| **o == t).map(|(&at, _)| at).collect();
                        queued[t].push(Event::Copy(memory.clone(), own));
                    }
                    Step::Read(t) if !queued[t].is_empty() => told.push((t, queued[t].remove(0))),
                    _ => {}
                }
            }
            told.extend(queued.into_iter().enumerate().flat_map(|(t, list)| list.into_iter().map(move |e| (t, e))));
            let mut changes = vec![];
            let mut copies = vec![];
            for (read, (t, event)) in told.into_iter().enumerate() {
                let by = (known & 1 << t != 0).then_some(t as u32);
                match event {
                    Event::Change(change) => changes.push(Heard { read, by, change }),
                    Event::Copy(memory, own) => copies.push(((read, by), memory, own)),
                }
            }
            let armed = ranges(&begin.keys().map(|&at| at..at + 4).collect::<Vec<_>>());
            let found = order(&changes, &armed, &mut |at| memory.contains_key(&at));
            if !found.doubtful.is_empty() {
                prop_assert_ne!(known, ALL, "{:?}: {:?}", changes, found);
                return Ok(());
            }
            let mut result = begin.clone();
            found.changes.iter().for_each(|heard| apply(&mut result, &heard.change));
            prop_assert_eq!(&result, &memory, "{:?}", changes);
            for (copied, copy, own) in copies {
                let mut result = begin.clone();
                let seen = seen_by_copy(
                    &found.changes,
                    copied,
                    &armed,
                    &mut |at| memory.contains_key(&at),
                    &mut |at| copy.contains_key(&at),
                );
                seen.changes.iter().for_each(|change| apply(&mut result, change));
                let is_doubtful = |at: &u64| seen.doubtful.iter().any(|range| range.contains(at));
                if known == ALL {
                    prop_assert!(!own.iter().any(is_doubtful), "copy at {:?}: {:?}, {:?}", copied, changes, seen);
                }
                // Where something empty is left is looked up; and what is doubtful, nobody sees.
                let is_known = |at: &u64, content: &mut u64| *content != 0 && !is_doubtful(at);
                result.retain(is_known);
                let mut copy = copy;
                copy.retain(is_known);
                prop_assert_eq!(&result, &copy, "copy told of at {:?}: {:?}, {:?}", copied, changes, seen);
            }
        }
    }
}
