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
/// Evicted ranks go before unborn ones, each in the order they became ready: what was begun is finished before more is
/// begun, which holds fewer bytes in scratch and lets independent ranks end without ever being evicted. But ranks
/// that keep waking each other could keep an unborn one out for ever, and may even wait for it: so after as many
/// ranks as are alive have passed, the next unborn one has its turn.
pub(super) fn claims<'a>(
    ready: &'a BTreeSet<(u64, Rank)>,
    unborn: &'a BTreeSet<Rank>,
    passed: u64,
    alive: u64,
) -> impl Iterator<Item = Claim> + 'a {
    let turn = usize::from(passed >= alive.max(1));
    let first = unborn.iter().take(turn).copied().map(Claim::Unborn);
    let ready = ready.iter().map(|&(_, rank)| Claim::Ready(rank));
    let rest = unborn.iter().skip(turn).copied().map(Claim::Unborn);
    first.chain(ready).chain(rest)
}
