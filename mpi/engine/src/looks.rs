//! A program that looks for messages again and again without waiting for them: is it only waiting, or does it
//! work between its looks? Nobody can tell from one look. So it is made to wait, and others compute
//! meanwhile, but never longer than some times of what it has spent between its looks, which is what others
//! need of it: whoever only waits gives most of its processor away, and whoever works is held up by a factor
//! that is known, and only while nothing comes and it sends nothing. Where nobody needs it none is held up.
//! That holds of yields as well: on a busy machine each one takes as long as all others' turns. (Short ones
//! count as spent: who comes back so soon has yielded to ranks that only look as well.)

use std::time::{Duration, Instant};

use bdrun_worker::front::Need;

/// After so long without a look it has worked, and begins anew.
const CLOSE: Duration = Duration::from_micros(100);
/// After so many that were closer, a longer time without one is no work: somebody else had the processor.
const MANY: u32 = 64;
/// So much between looks it has before it is made to wait: until then it yields the processor at each. Ranks
/// that answer one another all the time are slower by half if they sleep and are woken for each. Yields may
/// take as long before they are weighed against what it has spent.
const PATIENCE: Duration = Duration::from_millis(10);
/// Where it may have to leave RAM then, it has as much as that takes: so much at least…
const SHORTEST_PATIENCE: Duration = Duration::from_micros(20);
/// …and at most. Who works between its looks does not leave for a wait that is over before it is out.
const LONGEST_PATIENCE: Duration = Duration::from_millis(200);
/// Less than this is not worth going to sleep for.
const SHORTEST: Duration = Duration::from_micros(100);
/// How long it waits at a time: it may look for something else, too.
const LONGEST: Duration = Duration::from_millis(10);

/// What is to come after a look in vain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Nothing.
    GoOn,
    /// Others may run.
    Yield,
    /// A wait of so long at most.
    Wait(Duration),
}

/// Looks for something that was not there, with nothing else of MPI between them.
#[derive(Debug)]
pub(crate) struct Looks {
    /// When the last one ended, or what came after it.
    last: Option<Instant>,
    /// How many that were close to one another, since one was not.
    close: u32,
    /// Between them, and in yields that were short.
    spent: Duration,
    /// Made to wait.
    waited: Duration,
    /// Between them, without yields.
    own: Duration,
    /// In yields.
    yielded: Duration,
    /// In the last one, if nothing came after it.
    pause: Duration,
}

impl Looks {
    /// None.
    pub(crate) const fn none() -> Self {
        const NONE: Duration = Duration::ZERO;
        Self { last: None, close: 0, spent: NONE, waited: NONE, own: NONE, yielded: NONE, pause: NONE }
    }

    /// One more, which found nothing: what is to come now?
    pub(crate) fn in_vain(&mut self, now: Instant, need: Need) -> Next {
        let between = self.last.map(|last| now.saturating_duration_since(last));
        let pause = std::mem::take(&mut self.pause);
        match between.filter(|between| *between < CLOSE) {
            Some(between) => {
                self.close = self.close.saturating_add(1);
                self.own += between;
                // A yield that took long was others' time.
                self.spent += if between + pause < CLOSE { between + pause } else { between };
            }
            // It would never lose its patience on a busy machine, where that is long.
            None if need.leaving.is_some() && self.close >= MANY => self.close = 0,
            None => *self = Self::none(),
        }
        self.last = Some(now);
        let patience =
            need.leaving.map_or(PATIENCE, |leaving| leaving.clamp(SHORTEST_PATIENCE, LONGEST_PATIENCE));
        let may = (need.times * self.spent.saturating_sub(patience)).saturating_sub(self.waited);
        // Longer each time, so that who waits long is not woken all the time for nothing.
        let at_least = (self.waited / 8).clamp(SHORTEST, LONGEST);
        if may >= at_least {
            Next::Wait(may.min(LONGEST))
        } else if need.is_processor() && self.yielded <= PATIENCE + need.times * self.own {
            Next::Yield
        } else {
            Next::GoOn
        }
    }

    /// It has yielded until now.
    pub(crate) fn yielded(&mut self, now: Instant) {
        if let Some(last) = self.last.replace(now) {
            self.pause = now.saturating_duration_since(last);
            self.yielded += self.pause;
        }
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

    /// Processors.
    const OTHERS: Need = Need { times: 8, leaving: None };

    /// Looks every so often, for so long: how often it waited, how long, and how long it worked.
    fn looking(every: Duration, long: Duration, need: Need) -> (u32, Duration, Duration) {
        let (begin, mut looks) = (Instant::now(), Looks::none());
        let (mut now, mut times) = (begin, 0);
        let (mut waited, mut worked) = (Duration::ZERO, Duration::ZERO);
        while now < begin + long {
            match looks.in_vain(now, need) {
                Next::Wait(time) => {
                    assert!((SHORTEST..=LONGEST).contains(&time), "{time:?}");
                    now += time;
                    looks.waited(now);
                    (times, waited) = (times + 1, waited + time);
                }
                Next::Yield => looks.yielded(now),
                Next::GoOn => {}
            }
            now += every;
            worked += every;
        }
        (times, waited, worked)
    }

    #[test]
    fn who_only_looks_waits_most_of_the_time() {
        for every in [50, 1_000, 20_000].map(Duration::from_nanos) {
            let (times, waited, _) = looking(every, Duration::from_secs(1), OTHERS);
            assert!(waited > Duration::from_millis(850), "{every:?}: {waited:?}");
            assert!(times < 300, "{every:?}: {times}");
        }
    }

    /// Whatever it does between its looks.
    #[test]
    fn who_works_is_held_up_by_a_known_factor() {
        for every in [100, 1_000, 10_000, 99_000, 1_000_000].map(Duration::from_nanos) {
            for long in [1, 10, 100, 1_000].map(Duration::from_millis) {
                for times in [0, 1, 2, 8] {
                    let (_, waited, worked) = looking(every, long, Need { times, leaving: None });
                    assert!(waited <= times * worked, "{times} {every:?} {long:?}: {waited:?}");
                }
            }
        }
    }

    /// So many times a look after `every`, and then none for `gap`: when it is first made to wait, leaving
    /// RAM taking 100 ms, in a second.
    fn first_wait(every: Duration, times: u32, gap: Duration) -> Option<Duration> {
        let (begin, mut looks) = (Instant::now(), Looks::none());
        let mut now = begin;
        while now < begin + Duration::from_secs(1) {
            for _ in 0..times {
                let need = Need { leaving: Some(Duration::from_millis(100)), ..OTHERS };
                if looks.in_vain(now, need) != Next::GoOn {
                    return Some(now - begin);
                }
                now += every;
            }
            now += gap;
        }
        None
    }

    #[test]
    fn who_may_have_to_leave_is_given_as_much_time_as_that_takes() {
        let (us, ms) = (Duration::from_micros, Duration::from_millis);
        let first = first_wait(us(20), 1000, us(20)).expect("in a second");
        assert!((ms(100)..ms(101)).contains(&first), "{first:?}");
        // It is one of three on a processor.
        let first = first_wait(us(1), 4000, ms(8)).expect("in a second");
        assert!((ms(290)..ms(310)).contains(&first), "{first:?}");
        // It works.
        assert_eq!(first_wait(us(20), 20, us(200)), None);
        assert_eq!(first_wait(us(150), 1, us(0)), None);
    }

    /// Each yield took a turn of all the others, 1 ms, for each microsecond of work: 100 s of 0.1 s.
    #[test]
    fn who_works_on_a_busy_machine_is_held_up_by_a_known_factor() {
        for (every, turn) in [(1, 1_000), (1, 100), (20, 25_000), (99, 3_000)] {
            let (every, turn) = (Duration::from_micros(every), Duration::from_micros(turn));
            for times in [1, 2, 8] {
                let (mut now, mut looks) = (Instant::now(), Looks::none());
                let begin = now;
                let (mut held, mut yields) = (Duration::ZERO, 0);
                for _ in 0..100_000 {
                    let before = now;
                    match looks.in_vain(now, Need { times, leaving: None }) {
                        Next::Wait(time) => {
                            now += time;
                            looks.waited(now);
                        }
                        Next::Yield => {
                            now += turn;
                            looks.yielded(now);
                            yields += 1;
                        }
                        Next::GoOn => {}
                    }
                    held += now - before;
                    now += every;
                }
                let worked = now - begin - held;
                assert!(
                    held <= 2 * times * worked + PATIENCE + turn,
                    "{every:?} {turn:?} {times}: {held:?} of {worked:?}"
                );
                assert!(yields > 0);
            }
        }
    }

    #[test]
    fn a_few_looks_cost_nothing() {
        assert_eq!(looking(Duration::from_micros(1), PATIENCE, OTHERS).0, 0);
        assert_eq!(looking(CLOSE, Duration::from_millis(100), OTHERS).0, 0);
    }
}
