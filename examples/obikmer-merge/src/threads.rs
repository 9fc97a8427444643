//! Threads of one rank, for where there are fewer ranks than processors. They exist while they have something
//! to do: a rank that waits for others has none, since idle ones would only make it dearer to page out.

use std::collections::VecDeque;
use std::sync::mpsc;
use std::thread::available_parallelism;

use rayon::prelude::*;
use rayon::{ThreadPool, ThreadPoolBuilder};

use crate::error::{Context, Result};

/// Items in flight for each thread: one at work, one done or waiting.
const AHEAD: usize = 2;

/// How many threads there may be. One: everything happens in the calling thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Threads(usize);

impl Threads {
    /// Only the calling thread.
    pub const ONE: Self = Self(1);

    /// So many, at least one.
    pub fn new(count: usize) -> Self {
        Self(count.max(1))
    }

    /// As many as there are processors for each of so many ranks, or one if the budget has no room for all
    /// ranks at once, each with so many bytes: a thread beside the one that communicates cannot give its
    /// rank's place up to another.
    pub fn of_rank(ranks: usize, bytes: u64, budget: Option<u64>) -> Self {
        if budget.is_some_and(|budget| budget / (ranks as u64) < bytes) {
            return Self::ONE;
        }
        Self::new(available_parallelism().map_or(1, usize::from) / ranks)
    }

    /// Their number.
    pub fn count(self) -> usize {
        self.0
    }

    /// A range of `0..len` for each thread, the last ones possibly empty.
    pub fn ranges(self, len: usize) -> impl Iterator<Item = std::ops::Range<usize>> {
        let each = len.div_ceil(self.0);
        (0..self.0).map(move |i| (i * each).min(len)..((i + 1) * each).min(len))
    }

    /// Do something while there are threads.
    ///
    /// # Errors
    /// They cannot be started.
    fn with_pool<T>(self, body: impl FnOnce(&ThreadPool) -> T) -> Result<T> {
        ThreadPoolBuilder::new()
            .num_threads(self.0)
            .build_scoped(|thread| thread.run(), body)
            .map_err(std::io::Error::other)
            .context(|| format!("cannot start {} threads", self.0))
    }

    /// Do `work` for each item, and give the results to `take` in the calling thread, in the order of the
    /// items. No more than a few items and results exist at once.
    ///
    /// # Errors
    /// That of `take`, after which it is not called again; or threads cannot be started.
    pub fn in_order<I: Send, T: Send>(
        self,
        items: impl IntoIterator<Item = I>,
        work: impl Fn(I) -> T + Sync,
        mut take: impl FnMut(T) -> Result<()>,
    ) -> Result<()> {
        let mut items = items.into_iter();
        if self == Self::ONE {
            return items.try_for_each(|item| take(work(item)));
        }
        let work = &work;
        self.with_pool(|pool| {
            pool.in_place_scope(|scope| {
                let mut flying = VecDeque::new();
                loop {
                    for item in items.by_ref().take(AHEAD * self.0 - flying.len()) {
                        let (send, receive) = mpsc::sync_channel(1);
                        // Nobody receives after an error.
                        scope.spawn(move |_| _ = send.send(work(item)));
                        flying.push_back(receive);
                    }
                    let Some(first) = flying.pop_front() else { return Ok(()) };
                    match first.recv() {
                        Ok(result) => take(result)?,
                        // It panicked, which the scope passes on.
                        Err(_) => return Ok(()),
                    }
                }
            })
        })?
    }

    /// Sort by a key. Elements of equal keys may change places.
    ///
    /// # Errors
    /// Threads cannot be started.
    pub fn sort_unstable_by_key<T: Send, K: Ord>(
        self,
        items: &mut [T],
        key: impl Fn(&T) -> K + Send + Sync,
    ) -> Result<()> {
        if self == Self::ONE {
            items.sort_unstable_by_key(key);
            return Ok(());
        }
        self.with_pool(|pool| pool.install(|| items.par_sort_unstable_by_key(key)))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

    use super::*;
    use crate::error::Error;

    #[test]
    fn a_rank_has_the_processors_that_others_do_not_need_and_the_budget_permits() {
        let processors = available_parallelism().map_or(1, usize::from);
        for (ranks, budget, expected) in [
            (1, None, processors),
            (1, Some(1000), processors),
            (1, Some(999), 1),
            (processors, Some(u64::MAX), 1),
            (2, Some(2000), (processors / 2).max(1)),
            (2, Some(1999), 1),
            (1000 * processors, None, 1),
        ] {
            assert_eq!(Threads::of_rank(ranks, 1000, budget).count(), expected, "{ranks} {budget:?}");
        }
    }

    #[test]
    fn results_come_in_order_and_few_are_in_flight() {
        for count in [1, 2, 3, 5] {
            let (started, mut taken) = (AtomicUsize::new(0), Vec::new());
            let work = |i: usize| {
                started.fetch_add(1, SeqCst);
                // The later ones of a few are done first.
                std::thread::sleep(std::time::Duration::from_micros(300 * (4 - i as u64 % 5)));
                3 * i
            };
            let take = |result| {
                taken.push(result);
                assert!(started.load(SeqCst) <= taken.len() + AHEAD * count);
                Ok(())
            };
            Threads::new(count).in_order(0..200, work, take).expect("done");
            assert_eq!(taken, (0..200).map(|i| 3 * i).collect::<Vec<_>>());
        }
    }

    #[test]
    fn nothing_is_taken_after_an_error() {
        for count in [1, 3] {
            let mut taken = 0;
            let take = |i| {
                taken += 1;
                if i == 7 { Err(Error::Internal("seven".into())) } else { Ok(()) }
            };
            let result = Threads::new(count).in_order(0..100, |i| i, take);
            assert!(matches!(result, Err(Error::Internal(text)) if text == "seven"));
            assert_eq!(taken, 8);
        }
    }

    #[test]
    #[should_panic(expected = "nine")]
    fn a_panic_is_passed_on() {
        let work = |i: i32| assert_ne!(i, 9, "nine");
        let _ = Threads::new(3).in_order(0..100, work, |()| Ok(()));
    }

    #[test]
    fn sorted_as_by_one() {
        for count in [1, 3] {
            let mut numbers: Vec<u64> =
                (0..50_000).map(|i| crate::sequence::minimizer::order(i) % 1000).collect();
            Threads::new(count).sort_unstable_by_key(&mut numbers, |&n| n).expect("sorted");
            assert!(numbers.is_sorted());
            assert_eq!(numbers.len(), 50_000);
        }
    }

    #[test]
    fn ranges_cover_everything() {
        for (count, len) in [(1, 0), (1, 9), (3, 9), (3, 10), (4, 2), (7, 100)] {
            let ranges = Threads::new(count).ranges(len);
            assert!(ranges.flatten().eq(0..len), "{count} {len}");
        }
    }
}
