//! What a rank did, wait by wait, told to the master where that is recorded (`--trace`): when it began to
//! wait and for what, who woke it, when it computed again, what it held, what of it was moved meanwhile.
//!
//! One ring of entries for each rank: the rank writes (one thread of it waits at any moment), the master
//! reads. Where the ring is full the entry is left out and counted; what follows tells sums, so no byte is
//! lost with it. A rank rings when half of its ring is full.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use crate::segment::{AtomicsOnly, Waiting};

/// Entries of a ring.
const ENTRIES: usize = 127;
const WORDS: usize = 16;

/// Bytes of a log: with a line for its ends in whole pages.
pub(crate) const LOG_BYTES: usize = size_of::<StepLog>();

/// Bits of a rank's number in [`StepLog::woken`].
const RANK_BITS: u32 = 16;

/// A wait, and what the rank did before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// What it waited for.
    pub waiting: Waiting,
    /// It computes without a token.
    pub tokenless: bool,
    /// Who woke it, if a rank did.
    pub waker: Option<u32>,
    /// When it began to wait, when it was woken, and when it computed again, by
    /// [`monotonic_ns`](crate::segment::monotonic_ns). Of the last step: when the program ended, three times.
    pub began: u64,
    /// See `began`.
    pub woken: u64,
    /// See `began`.
    pub ran: u64,
    /// Bytes it held when it began to wait, and the most since the wait before.
    pub held: u64,
    /// See `held`.
    pub most: u64,
    /// Bytes of that it had to have in RAM to run on; 0: all.
    pub need: u64,
    /// So far: bytes of memory that left and came back, bytes written to and read from scratch, and bytes of
    /// the budget that were given back when memory left (of which not all was ever used).
    pub moved: [u64; 5],
}

/// The ring of one rank.
#[repr(C, align(128))]
pub struct StepLog {
    /// Entries written, by the rank; taken, by the master; left out because there was no room.
    written: AtomicU64,
    taken: AtomicU64,
    missed: AtomicU64,
    /// Who last woke it, in the low bits, and when, in units of 1024 ns.
    woken: AtomicU64,
    most: AtomicU64,
    given: AtomicU64,
    entries: [[AtomicU64; WORDS]; ENTRIES],
}

// SAFETY: all fields are atomics or arrays of them.
unsafe impl AtomicsOnly for StepLog {}

impl StepLog {
    /// By whoever wakes the rank, before it does.
    pub fn wakes(&self, by: u32, now: u64) {
        self.woken.store((now >> 10 << RANK_BITS) | u64::from(by) & ((1 << RANK_BITS) - 1), SeqCst);
    }

    /// Who last woke it, and when, if that was since `began`.
    #[must_use]
    pub fn woken_since(&self, began: u64) -> Option<(u32, u64)> {
        let word = self.woken.load(SeqCst);
        let (by, at) = ((word & ((1 << RANK_BITS) - 1)) as u32, (word >> RANK_BITS) << 10);
        (at >> 10 >= began >> 10 && word != 0).then_some((by, at.max(began)))
    }

    /// By the rank: it holds so much.
    pub fn holds(&self, bytes: u64) {
        self.most.fetch_max(bytes, SeqCst);
    }

    /// By the rank: the most that it held since this was last asked, now being `held`.
    pub fn take_most(&self, held: u64) -> u64 {
        self.most.swap(held, SeqCst).max(held)
    }

    /// By the rank: as memory left, so much of the budget was given back.
    pub fn gives(&self, bytes: u64) {
        self.given.fetch_add(bytes, SeqCst);
    }

    /// All that was given back so.
    #[must_use]
    pub fn given(&self) -> u64 {
        self.given.load(SeqCst)
    }

    /// By the rank: writes an entry, if there is room. True if the master had better look.
    pub fn put(&self, step: &Step) -> bool {
        let written = self.written.load(SeqCst);
        let full = written.wrapping_sub(self.taken.load(SeqCst));
        if full >= ENTRIES as u64 {
            self.missed.fetch_add(1, SeqCst);
            return true;
        }
        let [kind, a, b, _] = step.waiting.to_words();
        let waker = step.waker.map_or(0, |waker| u64::from(waker) + 1);
        let first = kind | u64::from(step.tokenless) << 7 | waker << 8;
        let Step { began, woken, ran, held, most, need, moved: [v, w, x, y, z], .. } = *step;
        let words = [first, a, b, began, woken, ran, held, most, need, v, w, x, y, z];
        for (place, word) in self.entries[written as usize % ENTRIES].iter().zip(words) {
            place.store(word, SeqCst);
        }
        self.written.store(written.wrapping_add(1), SeqCst);
        full + 1 == ENTRIES as u64 / 2
    }

    /// By the master: takes what was written, in order. Whatever it is: the rank may fail.
    pub fn take(&self, mut each: impl FnMut(Step)) {
        let (written, mut taken) = (self.written.load(SeqCst), self.taken.load(SeqCst));
        if written.wrapping_sub(taken) > ENTRIES as u64 {
            taken = written.wrapping_sub(ENTRIES as u64);
        }
        while taken != written {
            let entry = &self.entries[taken as usize % ENTRIES];
            let [first, a, b, began, woken, ran, held, most, need, v, w, x, y, z] =
                std::array::from_fn(|at| entry[at].load(SeqCst));
            each(Step {
                waiting: Waiting::from_words([first & 0x7f, a, b, 0]),
                tokenless: first & 0x80 != 0,
                waker: u32::try_from(first >> 8).ok().and_then(|waker| waker.checked_sub(1)),
                began,
                woken,
                ran,
                held,
                most,
                need,
                moved: [v, w, x, y, z],
            });
            taken = taken.wrapping_add(1);
        }
        self.taken.store(taken, SeqCst);
    }

    /// Entries that found no room.
    #[must_use]
    pub fn missed(&self) -> u64 {
        self.missed.load(SeqCst)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::segment::Segment;

    fn step(n: u64) -> Step {
        Step {
            waiting: Waiting::Collective { comm: 3, number: n },
            tokenless: n.is_multiple_of(2),
            waker: (!n.is_multiple_of(3)).then_some(n as u32),
            began: n,
            woken: n + 1,
            ran: n + 2,
            held: 5 * n,
            most: 6 * n,
            need: n / 2,
            moved: [n, 2 * n, 3 * n, 4 * n, 5 * n],
        }
    }

    #[test]
    fn what_is_written_is_read_in_order_and_what_finds_no_room_is_counted() {
        let segment = Segment::create(3, 1 << 20, 1 << 18, 2).unwrap();
        let log = segment.steps(2);
        let mut next = 0;
        for round in 0..10u64 {
            let many = 40 * round;
            let asked = (0..many).filter(|n| log.put(&step(next + n))).count();
            assert_eq!(asked > 0, many >= ENTRIES as u64 / 2, "{many}");
            let mut seen = Vec::new();
            log.take(|step| seen.push(step));
            let there = many.min(ENTRIES as u64);
            assert_eq!(seen, (next..next + there).map(step).collect::<Vec<_>>());
            next += many;
        }
        assert_eq!(log.missed(), (0..10).map(|round| (40u64 * round).saturating_sub(ENTRIES as u64)).sum());
        assert_eq!(segment.steps(1).missed(), 0);
    }

    #[test]
    fn a_wake_up_is_of_the_wait_that_it_ended() {
        let segment = Segment::create(2, 1 << 20, 1 << 18, 2).unwrap();
        let log = segment.steps(0);
        assert_eq!(log.woken_since(0), None);
        log.wakes(1, 5_000_000);
        let (by, at) = log.woken_since(4_000_000).unwrap();
        assert!(by == 1 && at.abs_diff(5_000_000) <= 1024, "{at}");
        assert_eq!(log.woken_since(4_999_500), Some((1, 4_999_500)), "times are a little coarse");
        assert_eq!(log.woken_since(6_000_000), None);
    }

    #[test]
    fn the_most_is_of_one_step() {
        let segment = Segment::create(1, 1 << 20, 1 << 18, 1).unwrap();
        let log = segment.steps(0);
        log.holds(7);
        log.holds(3);
        assert_eq!((log.take_most(2), log.take_most(4), log.take_most(1)), (7, 4, 4));
    }
}
