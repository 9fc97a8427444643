//! One rank that is watched: what it tells of itself, and what looks at it find.

use std::time::{Duration, Instant};

use super::group::Group;
use super::meter::{Look, Meter};
use super::sample::Sample;
use crate::descriptors::Spare;

/// A look at a rank that asks is made so often at most, and counts if it took no longer for each process.
const TRIES: u32 = 4;
const EACH: Duration = Duration::from_millis(1);
/// So many looks one after the other must say so, where none of them counts.
const DOUBTS: u32 = 3;
/// Bytes by which a rank that asks must seem to hold more besides for that to be looked at twice.
const NOISE: u64 = 256 << 10;

pub(super) struct Watched {
    /// Distinguishes the tries of a rank.
    pub(super) number: u64,
    pub(super) meter: Meter,
    pub(super) out: bool,
    /// Nothing was said of it since the last look.
    pub(super) fresh: bool,
    /// What it had asked for at the last look, and whether it waited.
    pub(super) told: Told,
    /// Looks in turn that did not count, and at which it seemed to hold more than before.
    pub(super) doubts: u32,
    /// When it is looked at although it waits: it may have got other threads.
    pub(super) due: Instant,
}

/// What a rank tells of itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Told {
    /// Bytes of the budget that it asked for and has.
    pub asked: u64,
    /// How often it has waited, if that is what it does now, and it tells.
    pub waits: Option<u64>,
    /// Changes when its memory has been moved out or in.
    pub moved: u64,
}

/// Tells what a rank tells.
pub type Tells = Box<dyn Fn(u32) -> Told + Send>;

impl Watched {
    /// The watch with this number, of a rank that nobody has looked at.
    pub(super) fn new(number: u64, group: Group, spare: Spare) -> Self {
        Self {
            number,
            meter: Meter::new(group, spare),
            out: false,
            fresh: false,
            told: Told::default(),
            doubts: 0,
            due: Instant::now(),
        }
    }

    /// It has waited all the time since the last look, and nobody else of it runs.
    pub(super) fn waits_still(&self, now: Told) -> bool {
        now.waits.is_some() && now.waits == self.told.waits && self.meter.sample().threads <= 1
    }

    /// A rank is given bytes before it uses them, and gives them back after it has given up their pages. So
    /// what it holds of them at the moment of the look is not more than it has before it or after it, unless
    /// it came in and left, or allocated and freed, in between: where it has moved, or the look took long
    /// (others had the processor), it is looked again, and the least that it seems to hold besides is taken.
    /// Returns whether the look counts.
    fn look(&mut self, look: &Look<'_>, tells: &Tells, rank: u32) -> (Sample, bool) {
        let mut least: Option<(Told, Sample)> = None;
        for _ in 0..TRIES {
            let (begin, before) = (Instant::now(), tells(rank));
            let asks = before.asked > 0 || before.waits.is_some();
            self.meter.look(look, asks, self.waits_still(before));
            let after = tells(rank);
            let asked = before.asked.max(after.asked);
            let waits = before.waits.filter(|_| after.waits == before.waits);
            self.told = Told { asked, waits, moved: after.moved };
            let sample = self.sample();
            let processes = sample.processes.max(1);
            if !asks || (before.moved == after.moved && begin.elapsed() < EACH * processes) {
                return (sample, true);
            }
            if least.is_none_or(|(_, least)| sample.not_asked_for(0) < least.not_asked_for(0)) {
                least = Some((self.told, sample));
            }
        }
        if let Some((told, sample)) = least {
            self.told = told;
            return (sample, false);
        }
        (self.sample(), false)
    }

    /// As [`look`](Self::look), of a rank of which is known what it held `before`. Where it seems to hold
    /// more than it asked for it is looked at again: the look may have been broken off in its middle. Twice
    /// at the same place it is not; but where neither counts it was perhaps moved during both, and then
    /// what it asked for would be taken for what it holds besides. So that is believed only if the next
    /// looks say so too.
    pub(super) fn look_twice(&mut self, look: &Look<'_>, tells: &Tells, rank: u32, before: Sample) -> Sample {
        let more = |sample: &Sample| sample.not_asked_for(NOISE) > before.not_asked_for(0);
        let (mut sample, mut counts) = self.look(look, tells, rank);
        if self.told.asked > 0 && more(&sample) {
            let again = self.look(look, tells, rank);
            counts |= again.1;
            sample = if again.0.not_asked_for(0) < sample.not_asked_for(0) { again.0 } else { sample };
        }
        if counts || !more(&sample) {
            self.doubts = 0;
        } else if self.doubts < DOUBTS {
            self.doubts += 1;
            let held = |sample: Sample| sample.private + sample.page_tables;
            let most = held(sample).max(held(self.meter.sample()));
            self.told.asked = most.saturating_sub(before.not_asked_for(0));
            sample.asked = self.told.asked;
        }
        sample
    }

    pub(super) fn sample(&self) -> Sample {
        let Told { asked, waits, .. } = self.told;
        Sample { asked, waits, ..self.meter.sample() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::meter::Crowded;
    use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

    /// It was out before the look and after it, and in RAM in between: what it has asked for is not what it
    /// holds besides.
    #[test]
    fn who_came_and_left_during_a_look_is_looked_at_again() {
        static ASKED: AtomicU32 = AtomicU32::new(0);
        let tells: Tells = Box::new(|_| {
            let nth = ASKED.fetch_add(1, SeqCst);
            let is_steady = nth >= 4;
            Told { asked: if is_steady { 1 << 40 } else { 0 }, waits: Some(1), moved: nth.min(4).into() }
        });
        let group = Group::tree(std::process::id() as i32);
        let counts = |_| {
            ASKED.store(0, SeqCst);
            let mut watched = Watched::new(1, group.clone(), Spare::new(1));
            let look = Look { now: Instant::now(), births: None, table: None, crowded: Crowded::No };
            let (sample, counts) = watched.look(&look, &tells, 0);
            assert!(sample.private > 0);
            assert!(!counts || (sample.not_asked_for(0), ASKED.load(SeqCst) % 2) == (0, 0), "{sample:?}");
            assert!(ASKED.load(SeqCst) >= 6);
            counts
        };
        // A look that takes long does not count: this thread may get no processor in its midst.
        assert!((0..100).any(counts));
    }

    /// It moves during every look, and what it asked for while it was in seems to be held besides: that is
    /// not believed at once, but if it stays so.
    #[test]
    fn what_no_look_that_counts_has_seen_is_believed_late() {
        static MOVES: AtomicU32 = AtomicU32::new(0);
        let tells: Tells =
            Box::new(|_| Told { asked: 4096, waits: None, moved: MOVES.fetch_add(1, SeqCst).into() });
        let group = Group::tree(std::process::id() as i32);
        let mut watched = Watched::new(1, group, Spare::new(1));
        watched.told.asked = 1 << 40;
        let look = Look { now: Instant::now(), births: None, table: None, crowded: Crowded::No };
        for time in 0..=DOUBTS {
            let before = watched.sample();
            assert_eq!(before.not_asked_for(0), 0);
            let sample = watched.look_twice(&look, &tells, 0, before);
            assert_eq!(sample.not_asked_for(0) > NOISE, time == DOUBTS, "look {time}: {sample:?}");
        }
    }
}
