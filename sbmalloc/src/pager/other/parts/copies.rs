//! Which changes of an address space a copy of it has seen that was made meanwhile. Pure.
//!
//! What a fork copies is as it was at one moment, but that moment is not told: only that it was before the
//! copy was told of, as each change was before it was told of. What the copy shows of it is which addresses
//! are watched there. So for each address there are the moments at which it was as the copy has it; and a
//! change that concerns several addresses was seen at all of them, or at none. And what the thread itself did
//! that made the copy (`actors`) it did before or after it. What follows from that is followed until nothing
//! new does.

use super::changes::{Change, Heard};
use super::ranges::Ranges;
use std::collections::BTreeSet;
use std::ops::Range;

/// What a copy has seen of the changes.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Seen {
    pub changes: Vec<Change>,
    /// What lies there in the copy is not known: it may have seen other changes, too.
    pub doubtful: Vec<Range<u64>>,
}

/// What happened to an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Effect {
    /// Something was moved to it.
    Arrived,
    /// Something was moved away. It may be there still, empty.
    Left,
    Unmapped,
}

/// Addresses to which the same happened.
struct Place {
    /// Numbers of changes, in their order.
    effects: Vec<usize>,
    /// Before the first of them, and after each: whether the copy, if it was made then, has it as it has.
    fits: Vec<bool>,
}

/// Of changes in their order, those that a copy has seen which was told of at place `read` and made by a
/// thread `by`, if that is known. `armed`: what was watched before all of them; `is_watched`: whether an
/// address is watched now; `is_in_copy`: whether it was in the copy, when that was made.
pub(super) fn seen_by_copy(
    ordered: &[Heard],
    (read, by): (usize, Option<u32>),
    armed: &Ranges,
    is_watched: &mut impl FnMut(u64) -> bool,
    is_in_copy: &mut impl FnMut(u64) -> bool,
) -> Seen {
    let mut places = places(ordered, armed, is_watched, is_in_copy);
    let mut seen: Vec<Option<bool>> = ordered
        .iter()
        .map(|heard| match heard.change {
            // Told before it is done: both at once, or one after the other.
            Change::Removed(_) => Some(heard.read < read),
            // What the thread did itself that made the copy.
            _ => (by.is_some() && heard.by == by).then_some(heard.read < read),
        })
        .collect();
    while places.iter_mut().any(|place| place.conclude(&mut seen)) {}
    // What fits nowhere tells nothing.
    for place in places.iter().filter(|place| !place.fits.contains(&true)) {
        place.effects.iter().for_each(|&i| seen[i] = None);
    }
    let unknown = ordered.iter().zip(&seen).filter(|(_, seen)| seen.is_none());
    let doubtful = unknown.flat_map(|(heard, _)| heard.change.ranges()).collect();
    let changes = ordered.iter().zip(&seen).filter(|(_, seen)| **seen == Some(true));
    Seen { changes: changes.map(|(heard, _)| heard.change.clone()).collect(), doubtful }
}

fn places(
    ordered: &[Heard],
    armed: &Ranges,
    is_watched: &mut impl FnMut(u64) -> bool,
    is_in_copy: &mut impl FnMut(u64) -> bool,
) -> Vec<Place> {
    let moved = ordered.iter().filter(|heard| !matches!(heard.change, Change::Removed(_)));
    let mut ends = BTreeSet::new();
    for range in moved.flat_map(|heard| heard.change.ranges()) {
        ends.extend([range.start, range.end]);
        ends.extend(armed.within(&range).iter().flat_map(|part| [part.start, part.end]));
    }
    let mut places = vec![];
    for at in ends {
        let (effects, kinds): (Vec<_>, Vec<_>) =
            ordered.iter().enumerate().filter_map(|(i, heard)| Some((i, heard.change.effect(at)?))).unzip();
        if effects.is_empty() {
            continue;
        }
        let is_armed = !armed.within(&(at..at + 1)).is_empty();
        let is = is_in_copy(at);
        let mut fits = vec![];
        for k in 0..=kinds.len() {
            let (before, next) = (k.checked_sub(1).map(|k| kinds[k]), kinds.get(k));
            let was = match (before, next) {
                (Some(Effect::Arrived), _) => Some(true),
                (None, _) if is_armed => Some(true),
                // Nothing is moved to where something lies.
                (None | Some(Effect::Unmapped), Some(Effect::Arrived)) => Some(false),
                // A neighbour may have grown over it without a word; not without being unmapped again.
                (Some(Effect::Unmapped), None) if !is_watched(at) => Some(false),
                // If not, it was unmapped in the same moment.
                (Some(Effect::Left), Some(Effect::Left | Effect::Unmapped)) => Some(true),
                (Some(Effect::Left), None) if is_watched(at) => Some(true),
                _ => None,
            };
            fits.push(was.is_none_or(|was| was == is));
        }
        places.push(Place { effects, fits });
    }
    places
}

impl Place {
    /// Draws conclusions from what is known of the changes, and for them. Whether there was anything new.
    fn conclude(&mut self, seen: &mut [Option<bool>]) -> bool {
        for (k, &i) in self.effects.iter().enumerate() {
            match seen[i] {
                Some(true) => self.fits[..=k].fill(false),
                Some(false) => self.fits[k + 1..].fill(false),
                None => {}
            }
        }
        let first = self.fits.iter().position(|&fits| fits);
        let last = self.fits.iter().rposition(|&fits| fits);
        let (Some(first), Some(last)) = (first, last) else { return false };
        let mut news = false;
        for (k, &i) in self.effects.iter().enumerate() {
            let is_seen = if k < first {
                Some(true)
            } else if k >= last {
                Some(false)
            } else {
                None
            };
            news |= is_seen.is_some() && seen[i].is_none();
            seen[i] = seen[i].or(is_seen);
        }
        news
    }
}

impl Change {
    fn effect(&self, at: u64) -> Option<Effect> {
        match self {
            Self::Moved { from, len, .. } if (*from..from + len).contains(&at) => Some(Effect::Left),
            Self::Moved { to, len, .. } if (*to..to + len).contains(&at) => Some(Effect::Arrived),
            Self::Unmapped(range) if range.contains(&at) => Some(Effect::Unmapped),
            _ => None,
        }
    }

    /// What it concerns.
    fn ranges(&self) -> Vec<Range<u64>> {
        match self {
            Self::Moved { from, to, len } => vec![*from..from + len, *to..to + len],
            Self::Removed(range) | Self::Unmapped(range) => vec![range.clone()],
        }
    }
}

#[cfg(test)]
#[allow(clippy::single_range_in_vec_init, reason = "lists of ranges, some with one")]
mod tests {
    use super::*;

    fn moved(from: u64, to: u64, len: u64) -> Change {
        Change::Moved { from, to, len }
    }

    fn ranges(list: &[Range<u64>]) -> Ranges {
        let mut ranges = Ranges::default();
        list.iter().for_each(|range| ranges.add(range.clone()));
        ranges
    }

    fn seen(told: &[Change], armed: &[Range<u64>], now: &[Range<u64>], copy: &[Range<u64>]) -> Seen {
        let told: Vec<_> = told.iter().map(|change| (None, change.clone())).collect();
        seen_by(&told, (0, None), armed, now, copy)
    }

    fn seen_by(
        told: &[(Option<u32>, Change)],
        copied: (usize, Option<u32>),
        armed: &[Range<u64>],
        now: &[Range<u64>],
        copy: &[Range<u64>],
    ) -> Seen {
        let heard =
            |(read, (by, change)): (usize, &(_, Change))| Heard { read, by: *by, change: change.clone() };
        let told: Vec<_> = told.iter().enumerate().map(heard).collect();
        let is_in = |list: &[Range<u64>], at: u64| list.iter().any(|range| range.contains(&at));
        seen_by_copy(&told, copied, &ranges(armed), &mut |at| is_in(now, at), &mut |at| is_in(copy, at))
    }

    /// As a random program under load did: content is moved to where something else lay, and its old place is
    /// kept.
    #[test]
    fn a_part_of_the_new_place_that_was_free_tells() {
        let told = [Change::Unmapped(10..14), moved(30, 8, 8)];
        let armed = [10..14, 30..38];
        let before = seen(&told, &armed, &[8..16, 30..38], &[10..14, 30..38]);
        assert_eq!(before, Seen::default());
        let after = seen(&told, &armed, &[8..16, 30..38], &[8..16, 30..38]);
        assert_eq!((&after.changes[..], after.doubtful), (&told[..], vec![]));
        let between = seen(&told, &armed, &[8..16, 30..38], &[30..38]);
        assert_eq!((&between.changes[..], between.doubtful), (&told[..1], vec![]));
    }

    /// The whole new place was occupied before; but what lay there reached further.
    #[test]
    fn what_was_unmapped_with_the_new_place_tells() {
        let told = [Change::Unmapped(8..16), moved(30, 10, 4), Change::Unmapped(30..34)];
        let before = seen(&told, &[8..16, 30..34], &[10..14], &[8..16, 30..34]);
        assert_eq!(before, Seen::default());
    }

    /// It is moved on, but the copy has not seen that.
    #[test]
    fn where_it_was_moved_to_at_last_tells() {
        let told = [moved(10, 20, 4), Change::Unmapped(10..14), moved(20, 40, 4), Change::Unmapped(20..24)];
        let (armed, now) = ([10..14], [40..44]);
        assert_eq!(seen(&told, &armed, &now, &[10..14]), Seen::default());
        let half = seen(&told, &armed, &now, &[20..24]);
        assert_eq!((&half.changes[..], half.doubtful), (&told[..2], vec![]));
        let all = seen(&told, &armed, &now, &[40..44]);
        assert_eq!((&all.changes[..], all.doubtful), (&told[..], vec![]));
    }

    /// Something of the same size lies where something lay, and the copy has both: it was before, or the move
    /// has left the old place.
    #[test]
    fn what_leaves_no_trace_is_doubtful() {
        let told = [moved(50, 30, 4), Change::Unmapped(50..54), Change::Unmapped(10..14), moved(30, 10, 4)];
        let found = seen(&told, &[10..14, 50..54], &[10..14, 30..34], &[10..14, 30..34]);
        assert_eq!(found.changes, told[..2]);
        assert_eq!(found.doubtful, [10..14, 30..34, 10..14]);
    }

    /// As a random program did: one thread unmaps, another moves there, leaves its old place, and forks.
    #[test]
    fn who_moved_it_has_moved_it() {
        let told = [(Some(1), Change::Unmapped(10..14)), (Some(2), moved(30, 10, 4))];
        let both = [10..14, 30..34];
        let seen = |by| seen_by(&told, (2, by), &both, &both, &both);
        assert_eq!(seen(None).doubtful, [10..14, 30..34, 10..14]);
        let all = Seen { changes: told.clone().map(|(_, change)| change).into(), doubtful: vec![] };
        assert_eq!(seen(Some(2)), all);
        // It has seen the other's: then what it has there came with the move.
        assert_eq!(seen(Some(1)), all);
        assert_eq!(seen(Some(3)), seen(None));
    }

    /// Memory that has grown back without a word.
    #[test]
    fn what_may_have_grown_again_is_doubtful() {
        let told = [Change::Unmapped(10..14)];
        let found = seen(&told, &[10..14], &[10..14], &[10..14]);
        assert_eq!((found.changes, found.doubtful), (vec![], vec![10..14]));
        assert_eq!(seen(&told, &[10..14], &[], &[10..14]), Seen::default());
    }
}
