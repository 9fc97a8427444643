//! Ranks that have ended, of whose end the core is not told yet: in a batch of events others stand before it,
//! and what the core orders of these may be for such a rank. What that held is free, and its record may be
//! gone: memory that it is granted now would be nobody's as long as the job runs.

use std::collections::HashSet;

use crate::residency::{Effect, Event, Rank};

/// Those of a batch.
pub(super) struct Gone(HashSet<Rank>);

impl Gone {
    pub(super) fn of(batch: &[Event]) -> Self {
        let ended = |event: &Event| match *event {
            Event::Exited { rank, .. } => Some(rank),
            _ => None,
        };
        Self(batch.iter().filter_map(ended).collect())
    }

    /// The core hears of this now: whoever ended may be begun again.
    pub(super) fn is_told(&mut self, event: Event) {
        if let Event::Exited { rank, .. } = event {
            self.0.remove(&rank);
        }
    }

    /// Whether nobody is left to carry this out.
    pub(super) fn has(&self, effect: Effect) -> bool {
        !self.0.is_empty() && effect.rank().is_some_and(|rank| self.0.contains(&rank))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::residency::Next;

    #[test]
    fn nothing_is_ordered_of_who_has_ended_until_that_is_told() {
        let end = Event::Exited { rank: 7, peak: 0, next: Next::Retry { least: 1 } };
        let [grant, other, start] = [
            Effect::Grant { rank: 7, bytes: 1, overdraft: false },
            Effect::Grant { rank: 8, bytes: 1, overdraft: false },
            Effect::Start { rank: 7, reserve: 1 },
        ];
        let mut gone = Gone::of(&[Event::Settled, end]);
        gone.is_told(Event::Settled);
        assert!(gone.has(grant) && !gone.has(other) && !gone.has(Effect::Finish));
        gone.is_told(end);
        assert!(!gone.has(start));
    }
}
