//! Who comes next, of those who are not in RAM and would run if they were.
//!
//! Residents are not in this order: they run by themselves, before anybody is brought in. That makes a cyclic sweep
//! move (P − R)·S bytes a phase: what was loaded last is still there when the next phase begins and runs first, and
//! only the others are exchanged, each once.

use std::collections::BTreeSet;

use super::Rank;

/// A rank that is to become resident.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Claim {
    /// Restore it.
    Ready(Rank),
    /// Start it.
    Unborn(Rank),
}

/// Those waiting to come in, next first.
///
/// Evicted ranks go before unborn ones: what was begun is finished before more is begun, which holds fewer bytes in
/// scratch and lets independent ranks end without ever being evicted. Among them those that hold a part of their
/// memory, or were given some, go first (`begun`), the one that lacks least first: they are the residents of a sweep whose ranks do not fit whole;
/// the others in the order they became ready. But ranks that keep waking each other could keep one out for ever, and
/// may even wait for it: so after as many ranks as are alive have passed, the next unborn one has its turn, and so has
/// the one that has been ready for longest (`overdue`).
pub(super) fn claims<'a>(
    ready: &'a BTreeSet<(u64, Rank)>,
    begun: &'a BTreeSet<(u64, u64, Rank)>,
    is_begun: impl Fn(Rank) -> bool + 'a,
    unborn: &'a BTreeSet<Rank>,
    overdue: bool,
    unborn_overdue: bool,
) -> impl Iterator<Item = Claim> + 'a {
    let turn = usize::from(unborn_overdue);
    let oldest = ready.first().copied().filter(|_| overdue);
    let others = move |key: &(u64, Rank)| Some(*key) != oldest;
    let begun = begun.iter().map(|&(_, since, rank)| (since, rank)).filter(others);
    let rest = ready.iter().copied().filter(move |key| others(key) && !is_begun(key.1));
    let ready = oldest.into_iter().chain(begun).chain(rest).map(|(_, rank)| Claim::Ready(rank));
    let first = unborn.iter().take(turn).copied().map(Claim::Unborn);
    first.chain(ready).chain(unborn.iter().skip(turn).copied().map(Claim::Unborn))
}
