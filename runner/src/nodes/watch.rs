//! Whether another master is still there: each says so to the next one, the last to the first, so that of any
//! two that cannot hear each other somebody notices. Pure: `look(now)` says what is to be done.

use std::time::{Duration, Instant};

/// So often within the time after which it is taken for lost a master says that it is there.
const BEATS: u32 = 8;
/// So much longer nothing need be heard of one that has met the others, but has not begun.
const BEGINS: Duration = Duration::from_secs(60);

/// What is to be done now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// The next one is to be told that this one is there.
    pub beats: bool,
    /// Of the one before nothing was heard for too long.
    pub lost: bool,
}

/// See the module's text.
#[derive(Debug)]
pub struct Watch {
    limit: Option<Duration>,
    looked: Instant,
    next_beat: Instant,
    /// How long nothing was heard, while something is expected.
    silent: Option<Duration>,
    has_begun: bool,
}

impl Watch {
    /// One that says nothing for so long is lost; `None`: nobody ever is.
    pub fn new(now: Instant, limit: Option<Duration>) -> Self {
        Self { limit, looked: now, next_beat: now, silent: Some(Duration::ZERO), has_begun: false }
    }

    /// Something has come of the one before.
    pub fn heard(&mut self) {
        self.silent = Some(Duration::ZERO);
        self.has_begun = true;
    }

    /// The one before has said goodbye, or is lost: nothing is expected of it.
    pub fn forget(&mut self) {
        self.silent = None;
    }

    /// After all was taken in that has come.
    pub fn look(&mut self, now: Instant) -> Seen {
        let Some(limit) = self.limit else { return Seen::default() };
        let each = limit / BEATS;
        // Who was itself stopped for long has heard nothing because it did not listen.
        let passed = now.saturating_duration_since(self.looked).min(each);
        self.looked = now;
        if let Some(silent) = &mut self.silent {
            *silent += passed;
        }
        let beats = now >= self.next_beat;
        if beats {
            self.next_beat = now + each;
        }
        let limit = if self.has_begun { limit } else { limit + BEGINS };
        Seen { beats, lost: self.silent.is_some_and(|silent| silent >= limit) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(8);

    /// Looks each millisecond for so many; how often it is to say that it is there, and when the other was
    /// lost.
    fn after(watch: &mut Watch, begin: Instant, from: u64, to: u64) -> (usize, Option<u64>) {
        let (mut beats, mut lost) = (0, None);
        for ms in from..to {
            let seen = watch.look(begin + Duration::from_millis(ms));
            beats += usize::from(seen.beats);
            if seen.lost {
                lost = lost.or(Some(ms));
            }
        }
        (beats, lost)
    }

    #[test]
    fn who_has_not_begun_has_a_minute_more() {
        let begin = Instant::now();
        let mut watch = Watch::new(begin, Some(LIMIT));
        assert_eq!(after(&mut watch, begin, 0, 100_000), (100, Some(68_000)));
    }

    #[test]
    fn who_says_nothing_is_lost() {
        let begin = Instant::now();
        let mut watch = Watch::new(begin, Some(LIMIT));
        assert_eq!(after(&mut watch, begin, 0, 60_000).1, None, "it has not begun");
        watch.look(begin + Duration::from_millis(100_000));
        watch.heard();
        assert_eq!(after(&mut watch, begin, 100_000, 107_000).1, None);
        watch.heard();
        assert_eq!(after(&mut watch, begin, 107_000, 120_000).1, Some(114_999));
        watch.forget();
        assert_eq!(after(&mut watch, begin, 120_000, 140_000).1, None);
    }

    #[test]
    fn who_was_stopped_itself_listens_first() {
        let begin = Instant::now();
        let mut watch = Watch::new(begin, Some(LIMIT));
        watch.heard();
        after(&mut watch, begin, 0, 1000);
        assert!(!watch.look(begin + Duration::from_secs(3600)).lost);
        watch.heard();
        assert_eq!(after(&mut watch, begin, 3_600_001, 3_607_000).1, None);
    }

    #[test]
    fn nobody_is_lost_without_a_limit() {
        let begin = Instant::now();
        let mut watch = Watch::new(begin, None);
        watch.heard();
        assert_eq!(after(&mut watch, begin, 0, 100_000), (0, None));
    }
}
