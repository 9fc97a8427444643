//! A program that looks for messages again and again without waiting for them: is it only waiting, or does it
//! work between its looks? Nobody can tell from one look. So it is made to wait, and others compute
//! meanwhile, but never longer than some times of what it has spent between its looks: whoever only waits
//! gives most of its processor away, and whoever works is held up by a factor that is known, and only while
//! nothing comes and it sends nothing.

use std::time::{Duration, Instant};

/// After so long without a look it has worked, and begins anew.
const CLOSE: Duration = Duration::from_micros(100);
/// So much between looks it has before it is made to wait.
const PATIENCE: Duration = Duration::from_micros(20);
/// So many times of what it has spent between looks it may be made to wait.
const SHARE: u32 = 8;
/// Less than this is not worth going to sleep for.
const SHORTEST: Duration = Duration::from_micros(100);
/// How long it waits at a time: it may look for something else, too.
const LONGEST: Duration = Duration::from_millis(10);

/// Looks for something that was not there, with nothing else of MPI between them.
#[derive(Debug)]
pub(crate) struct Looks {
    /// When the last one ended.
    last: Option<Instant>,
    /// Between them.
    spent: Duration,
    /// Made to wait.
    waited: Duration,
}

impl Looks {
    /// None.
    pub(crate) const fn none() -> Self {
        Self { last: None, spent: Duration::ZERO, waited: Duration::ZERO }
    }

    /// One more, which found nothing: how long is it to wait?
    pub(crate) fn in_vain(&mut self, now: Instant) -> Option<Duration> {
        let between = self.last.map(|last| now.saturating_duration_since(last));
        match between.filter(|between| *between < CLOSE) {
            Some(between) => self.spent += between,
            None => *self = Self::none(),
        }
        self.last = Some(now);
        let may = (SHARE * self.spent.saturating_sub(PATIENCE)).saturating_sub(self.waited);
        // Longer each time, so that who waits long is not woken all the time for nothing.
        let at_least = (self.waited / 8).clamp(SHORTEST, LONGEST);
        (may >= at_least).then(|| may.min(LONGEST))
    }

    /// It has waited until now.
    pub(crate) fn waited(&mut self, now: Instant) {
        if let Some(last) = self.last.replace(now) {
            self.waited += now.saturating_duration_since(last);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Looks every so often, for so long: how often it waited, how long, and how long it worked.
    fn looking(every: Duration, long: Duration) -> (u32, Duration, Duration) {
        let (begin, mut looks) = (Instant::now(), Looks::none());
        let (mut now, mut times) = (begin, 0);
        let (mut waited, mut worked) = (Duration::ZERO, Duration::ZERO);
        while now < begin + long {
            if let Some(time) = looks.in_vain(now) {
                assert!((SHORTEST..=LONGEST).contains(&time), "{time:?}");
                now += time;
                looks.waited(now);
                (times, waited) = (times + 1, waited + time);
            }
            now += every;
            worked += every;
        }
        (times, waited, worked)
    }

    #[test]
    fn who_only_looks_waits_most_of_the_time() {
        for every in [50, 1_000, 20_000].map(Duration::from_nanos) {
            let (times, waited, _) = looking(every, Duration::from_secs(1));
            assert!(waited > Duration::from_millis(850), "{every:?}: {waited:?}");
            assert!(times < 300, "{every:?}: {times}");
        }
    }

    /// Whatever it does between its looks.
    #[test]
    fn who_works_is_held_up_by_a_known_factor() {
        for every in [100, 1_000, 10_000, 99_000, 1_000_000].map(Duration::from_nanos) {
            for long in [1, 10, 100, 1_000].map(Duration::from_millis) {
                let (_, waited, worked) = looking(every, long);
                assert!(waited <= SHARE * worked, "{every:?} {long:?}: {waited:?}");
            }
        }
    }

    #[test]
    fn a_few_looks_cost_nothing() {
        assert_eq!(looking(Duration::from_micros(1), PATIENCE).0, 0);
        assert_eq!(looking(CLOSE, Duration::from_millis(100)).0, 0);
    }
}
