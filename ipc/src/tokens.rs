//! How many ranks compute at once: a counting semaphore in shared memory, whose tokens say who has them.
//!
//! A rank can be killed at any instruction. So a token is taken and noted by one atomic operation, and when a
//! rank has ended the master gives back what is noted: nothing is lost, and nothing given back twice. A rank
//! that was woken for a token and died before it took it has used up that wake-up, so the master passes one
//! on.

use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::time::Duration;

use crate::futex;

/// Most ranks that can compute at once.
pub const MOST: u32 = 512;

/// Tokens of a job; lies in the segment's header.
#[repr(C, align(128))]
#[derive(Debug)]
pub struct Tokens {
    count: AtomicU32,
    /// Those who sleep for a token, or are about to. Who is killed meanwhile is counted for good: a wake-up
    /// more, in vain.
    waiters: AtomicU32,
    /// Counts tokens given back; slept on.
    given: AtomicU32,
    most_running: AtomicU32,
    /// Of each token, the rank that has it, plus one; 0: it is free.
    owners: [AtomicU32; MOST as usize],
}

impl Tokens {
    /// Set the number of tokens, at most [`MOST`]; once, by the master, before any rank starts.
    pub fn open(&self, count: u32) {
        self.count.store(count.clamp(1, MOST), SeqCst);
    }

    fn owners(&self) -> &[AtomicU32] {
        &self.owners[..self.count.load(SeqCst).min(MOST) as usize]
    }

    fn try_take(&self, rank: u32) -> bool {
        let owners = self.owners();
        let first = rank as usize % owners.len().max(1);
        let (front, back) = owners.split_at(first);
        let is_taken = |owner: &AtomicU32| {
            owner.load(SeqCst) == 0 && owner.compare_exchange(0, rank + 1, SeqCst, SeqCst).is_ok()
        };
        back.iter().chain(front).any(is_taken)
    }

    /// Take a token for a rank that has none, waiting for it.
    ///
    /// No wake-up is lost: a releaser frees a token, counts it in `given`, and then reads `waiters`; a waiter
    /// adds itself, reads `given`, looks at the tokens, and sleeps only while `given` is what it was.
    pub fn acquire(&self, rank: u32) {
        while !self.acquire_within(rank, None) {}
    }

    /// The same without waiting; was there one?
    pub fn acquire_now(&self, rank: u32) -> bool {
        let taken = self.try_take(rank);
        if taken {
            self.most_running.fetch_max(self.running(), SeqCst);
        }
        taken
    }

    /// The same, waiting once at most, so long; was there one? Who has waited in vain may compute without.
    pub fn acquire_within(&self, rank: u32, timeout: Option<Duration>) -> bool {
        let mut taken = self.try_take(rank);
        if !taken {
            self.waiters.fetch_add(1, SeqCst);
            let given = self.given.load(SeqCst);
            taken = self.try_take(rank);
            if !taken {
                futex::wait(&self.given, given, timeout);
                taken = self.try_take(rank);
            }
            self.waiters.fetch_sub(1, SeqCst);
        }
        if taken {
            self.most_running.fetch_max(self.running(), SeqCst);
        }
        taken
    }

    /// How many there are.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.count.load(SeqCst)
    }

    /// The ranks that have one now.
    pub fn holders(&self) -> impl Iterator<Item = u32> {
        self.owners().iter().filter_map(|owner| owner.load(SeqCst).checked_sub(1))
    }

    /// Whether a rank has a token.
    pub fn has(&self, rank: u32) -> bool {
        self.owners().iter().any(|owner| owner.load(SeqCst) == rank + 1)
    }

    /// Give a rank's token back; whether it had one.
    pub fn release(&self, rank: u32) -> bool {
        let is_freed = |owner: &AtomicU32| {
            owner.load(SeqCst) == rank + 1 && owner.compare_exchange(rank + 1, 0, SeqCst, SeqCst).is_ok()
        };
        let freed = self.owners().iter().any(is_freed);
        if freed {
            self.wake_one();
        }
        freed
    }

    /// By the master, when a rank's process has ended, or stands: give back what it had, and if that was but
    /// a wake-up, pass that on; whether it was a token.
    pub fn release_of_ended(&self, rank: u32) -> bool {
        let freed = self.release(rank);
        self.wake_one();
        freed
    }

    fn wake_one(&self) {
        self.given.fetch_add(1, SeqCst);
        if self.waiters.load(SeqCst) > 0 {
            futex::wake(&self.given, 1);
        }
    }

    /// Ranks that compute now.
    pub fn running(&self) -> u32 {
        self.owners().iter().filter(|owner| owner.load(SeqCst) != 0).count() as u32
    }

    /// Most that computed at one moment.
    pub fn most_running(&self) -> u32 {
        self.most_running.load(SeqCst)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::Arc;

    fn tokens(count: u32) -> Arc<Tokens> {
        // SAFETY: atomics, for which zeros are valid.
        let tokens: Tokens = unsafe { std::mem::zeroed() };
        tokens.open(count);
        Arc::new(tokens)
    }

    #[test]
    fn what_a_killed_rank_had_is_given_back_once() {
        let tokens = tokens(2);
        tokens.acquire(7);
        tokens.acquire(9);
        assert_eq!((tokens.running(), tokens.has(7), tokens.has(8)), (2, true, false));
        assert!(tokens.release_of_ended(7));
        assert!(!tokens.release_of_ended(7) && !tokens.release(7), "it has none any more");
        assert_eq!((tokens.running(), tokens.most_running()), (1, 2));
        tokens.acquire(1);
        assert!(tokens.release(1) && tokens.release(9));
        assert_eq!(tokens.running(), 0);
    }

    #[test]
    fn a_wake_up_that_a_killed_rank_used_up_is_passed_on() {
        let tokens = tokens(1);
        tokens.acquire(0);
        let waiter = std::thread::spawn({
            let tokens = tokens.clone();
            move || tokens.acquire(2)
        });
        while tokens.waiters.load(SeqCst) == 0 {
            std::thread::yield_now();
        }
        std::thread::sleep(Duration::from_millis(20));
        // As `release`, but whoever was woken is killed before it looks.
        tokens.owners[0].store(0, SeqCst);
        assert!(!tokens.release_of_ended(1), "it had no token yet");
        waiter.join().expect("it takes the token");
        assert!(tokens.has(2));
    }

    #[test]
    fn who_does_not_get_one_in_time_is_told_so() {
        let tokens = tokens(1);
        let moment = Some(Duration::from_millis(2));
        assert!(tokens.acquire_within(3, moment) && tokens.has(3));
        assert!(!tokens.acquire_within(4, moment) && !tokens.has(4));
        assert_eq!(tokens.holders().collect::<Vec<_>>(), [3]);
        assert!(!tokens.release(4), "it had none");
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| while !tokens.acquire_within(4, Some(Duration::from_secs(60))) {});
            std::thread::sleep(Duration::from_millis(5));
            assert!(tokens.release(3));
            waits.join().unwrap();
        });
        assert!(tokens.has(4) && tokens.waiters.load(SeqCst) == 0);
    }

    #[test]
    fn many_take_turns() {
        let tokens = tokens(3);
        std::thread::scope(|s| {
            for rank in 0..16 {
                let tokens = &tokens;
                s.spawn(move || {
                    for _ in 0..2_000 {
                        tokens.acquire(rank);
                        assert!(tokens.running() <= 3);
                        assert!(tokens.release(rank));
                    }
                });
            }
        });
        assert_eq!((tokens.running(), tokens.most_running() <= 3), (0, true));
    }
}
