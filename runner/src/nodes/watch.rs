//! Whether the other masters are still there: each says so to all others. Of one that is silent the next one
//! (of the last: the first) tells the others; these notice it by themselves only a little later, so that one
//! reason is told and not one by each. Pure: `look(now)` says what is to be done.

use std::time::{Duration, Instant};

/// So often within the time after which it is taken for lost a master says that it is there.
const BEATS: u32 = 8;
/// How often between two of its own words a master looks for how long others have been silent.
const LOOKS: u32 = 16;
/// So many beats longer than the next one the others wait for one that is silent.
const OTHERS: u32 = 2;
/// So much longer nothing need be heard of one that has met the others, but has not begun.
const BEGINS: Duration = Duration::from_secs(60);

/// What is to be done now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// The others are to be told that this one is there.
    pub beats: bool,
    /// Of these nothing was heard for too long; each is said once.
    pub lost: Vec<u32>,
}

/// Another master.
#[derive(Clone, Copy, Debug)]
struct Other {
    /// How long nothing was heard, while something is expected.
    silent: Option<Duration>,
    has_begun: bool,
}

/// See the module's text.
#[derive(Debug)]
pub struct Watch {
    limit: Option<Duration>,
    looked: Instant,
    next_beat: Instant,
    /// By number; of this one nothing is expected.
    others: Vec<Other>,
    /// The one that this one is the next of.
    before: usize,
}

impl Watch {
    /// Of this node among so many. One that says nothing for so long is lost; `None`: nobody ever is.
    pub fn new(now: Instant, limit: Option<Duration>, (node, nodes): (u32, u32)) -> Self {
        let other = |other| Other { silent: (other != node).then_some(Duration::ZERO), has_begun: false };
        let others = (0..nodes).map(other).collect();
        let before = ((node + nodes - 1) % nodes) as usize;
        Self { limit, looked: now, next_beat: now, others, before }
    }

    /// Something has come of this one.
    pub fn heard(&mut self, node: u32) {
        if let Some(other) = self.others.get_mut(node as usize) {
            other.silent = other.silent.map(|_| Duration::ZERO);
            other.has_begun = true;
        }
    }

    /// This one has said its last word, or is lost: nothing more is expected of it.
    pub fn forget(&mut self, node: u32) {
        if let Some(other) = self.others.get_mut(node as usize) {
            other.silent = None;
        }
    }

    /// This one was lost, and is heard again.
    pub fn expect(&mut self, node: u32) {
        if let Some(other) = self.others.get_mut(node as usize) {
            other.silent = Some(Duration::ZERO);
        }
    }

    /// In the middle of what may take long: whether the others are to be told that this one is there.
    pub fn is_due(&mut self, now: Instant) -> bool {
        let Some(limit) = self.limit.filter(|_| now >= self.next_beat) else { return false };
        self.next_beat = now + limit / BEATS;
        true
    }

    /// After all was taken in that has come.
    pub fn look(&mut self, now: Instant) -> Seen {
        let Some(limit) = self.limit else { return Seen::default() };
        let each = limit / BEATS;
        let beats = self.is_due(now);
        let passed = now.saturating_duration_since(self.looked);
        if !beats && passed < each / LOOKS {
            return Seen::default();
        }
        // Who was itself stopped for long has heard nothing because it did not listen.
        let passed = passed.min(each);
        self.looked = now;
        let mut lost = vec![];
        for (node, other) in self.others.iter_mut().enumerate() {
            let Some(silent) = &mut other.silent else { continue };
            *silent += passed;
            let begins = if other.has_begun { Duration::ZERO } else { BEGINS };
            let later = if node == self.before { Duration::ZERO } else { each * OTHERS };
            if *silent >= limit + begins + later {
                other.silent = None;
                lost.push(node as u32);
            }
        }
        Seen { beats, lost }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(8);
    /// Milliseconds by which a loss is noticed too early or too late at most.
    const GRAIN: u64 = 1000 / LOOKS as u64 + 1;

    /// That of the second of four.
    fn watch(begin: Instant, limit: Option<Duration>) -> Watch {
        Watch::new(begin, limit, (1, 4))
    }

    /// Looks each millisecond for so many; how often it is to say that it is there, and who was lost when.
    fn after(watch: &mut Watch, begin: Instant, from: u64, to: u64) -> (usize, Vec<(u32, u64)>) {
        let (mut beats, mut lost) = (0, vec![]);
        for ms in from..to {
            let seen = watch.look(begin + Duration::from_millis(ms));
            beats += usize::from(seen.beats);
            lost.extend(seen.lost.into_iter().map(|node| (node, ms)));
        }
        (beats, lost)
    }

    fn is_about(lost: &[(u32, u64)], expected: &[(u32, u64)]) -> bool {
        let same =
            |(lost, due): (&(u32, u64), &(u32, u64))| lost.0 == due.0 && lost.1.abs_diff(due.1) <= GRAIN;
        lost.len() == expected.len() && lost.iter().zip(expected).all(same)
    }

    #[test]
    fn who_has_not_begun_has_a_minute_more() {
        let begin = Instant::now();
        let mut watch = watch(begin, Some(LIMIT));
        let (beats, lost) = after(&mut watch, begin, 0, 100_000);
        assert!(is_about(&lost, &[(0, 68_000), (2, 70_000), (3, 70_000)]), "{lost:?}");
        assert_eq!(beats, 100);
    }

    /// Who is at work for long and does not look, but asks between the pieces of it, says as often that it is
    /// there.
    #[test]
    fn who_is_at_work_for_long_is_heard() {
        let begin = Instant::now();
        let mut watch = watch(begin, Some(LIMIT));
        let beats = (0..100_000).filter(|&ms| watch.is_due(begin + Duration::from_millis(ms))).count();
        assert_eq!(beats, 100);
        assert!(!watch.look(begin + Duration::from_millis(100_000 - 1)).beats);
        let mut nobody = Watch::new(begin, None, (1, 4));
        assert!(!nobody.is_due(begin + LIMIT));
    }

    #[test]
    fn who_says_nothing_is_lost_and_first_to_the_next_one() {
        let begin = Instant::now();
        let mut watch = watch(begin, Some(LIMIT));
        (0..4).for_each(|node| watch.heard(node));
        assert_eq!(after(&mut watch, begin, 0, 7000).1, []);
        watch.heard(3);
        let lost = after(&mut watch, begin, 7000, 30_000).1;
        assert!(is_about(&lost, &[(0, 8000), (2, 10_000), (3, 17_000)]), "each once: {lost:?}");
        watch.heard(2);
        watch.expect(3);
        let lost = after(&mut watch, begin, 30_000, 60_000).1;
        assert!(is_about(&lost, &[(3, 40_000)]), "again only who is expected again: {lost:?}");
    }

    #[test]
    fn of_who_has_left_nothing_is_expected() {
        let begin = Instant::now();
        let mut watch = watch(begin, Some(LIMIT));
        (0..4).for_each(|node| watch.heard(node));
        [0, 3].into_iter().for_each(|node| watch.forget(node));
        watch.heard(3);
        let lost = after(&mut watch, begin, 0, 30_000).1;
        assert!(is_about(&lost, &[(2, 10_000)]), "{lost:?}");
    }

    #[test]
    fn who_was_stopped_itself_listens_first() {
        let begin = Instant::now();
        let mut watch = watch(begin, Some(LIMIT));
        (0..4).for_each(|node| watch.heard(node));
        after(&mut watch, begin, 0, 1000);
        assert!(watch.look(begin + Duration::from_secs(3600)).lost.is_empty());
        (0..4).for_each(|node| watch.heard(node));
        assert_eq!(after(&mut watch, begin, 3_600_001, 3_607_000).1, []);
    }

    #[test]
    fn nobody_is_lost_without_a_limit() {
        let begin = Instant::now();
        let mut watch = watch(begin, None);
        watch.heard(0);
        assert_eq!(after(&mut watch, begin, 0, 100_000), (0, vec![]));
    }
}
