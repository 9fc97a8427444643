//! Which pages the processes of a rank share: the part of the truth that is dear.
//!
//! The kernel's cheap counters count a page once for each process that maps it, so a rank that has forked
//! seems to hold everything twice. `smaps_rollup` divides each page among those who map it, but looks at
//! every page for that (a few milliseconds per GiB), holding a lock of the process meanwhile. So this is done
//! by a thread of its own, for one rank at a time, and that thread works a twentieth of the time at most.

use std::io;
use std::thread::JoinHandle;
use std::time::Instant;

use crossbeam_channel::{Receiver, Sender, bounded};

use super::proc;

/// To which rank, in which state of its list of processes, the answer belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ticket {
    pub(super) rank: u32,
    /// The meter it was asked for, so that a retried rank is not taken for the first.
    pub(super) watch: u64,
    pub(super) generation: u64,
}

/// Of one process, bytes: its anonymous memory in RAM, how much of that is its own by the kernel's division,
/// and how much of that nobody else has; and its share of the shared memory that it maps. Each at most as
/// much as the one before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) pid: i32,
    pub(super) anonymous: u64,
    pub(super) share: u64,
    pub(super) alone: u64,
    pub(super) shared_share: u64,
}

impl Found {
    /// Of its anonymous memory, what the kernel gives to others' account.
    fn with_others(&self) -> u64 {
        self.anonymous - self.share
    }
}

/// The thread.
#[derive(Debug)]
pub(super) struct Divider {
    questions: Option<Sender<(Ticket, Vec<i32>)>>,
    answers: Receiver<(Ticket, Vec<Found>)>,
    thread: Option<JoinHandle<()>>,
}

impl Divider {
    pub(super) fn start() -> io::Result<Self> {
        // Nothing is queued: by the time it is read it would be old.
        let (questions, asked) = bounded::<(Ticket, Vec<i32>)>(0);
        let (sender, answers) = bounded(16);
        let thread = std::thread::Builder::new().name("bdrun-shares".into()).stack_size(256 << 10).spawn(
            move || {
                let _ = nix::sys::signal::SigSet::all().thread_block();
                for (ticket, pids) in asked {
                    let begin = Instant::now();
                    let found = divide(&pids, of);
                    let cost = begin.elapsed();
                    // Whoever does not listen is about to end.
                    let _ = sender.try_send((ticket, found));
                    std::thread::sleep(cost * 19);
                }
            },
        )?;
        Ok(Self { questions: Some(questions), answers, thread: Some(thread) })
    }

    /// Asks, unless the thread is at work or at rest.
    pub(super) fn ask(&self, ticket: Ticket, pids: Vec<i32>) -> bool {
        self.questions.as_ref().is_some_and(|questions| questions.try_send((ticket, pids)).is_ok())
    }

    /// What has been found out since.
    pub(super) fn answers(&self) -> impl Iterator<Item = (Ticket, Vec<Found>)> {
        self.answers.try_iter()
    }
}

impl Drop for Divider {
    fn drop(&mut self) {
        self.questions = None;
        // It may rest for seconds after a large process: it is not waited for, and ends by itself.
        self.thread = None;
    }
}

/// Whoever ends or is born while others are looked at, or maps more of what they map, changes what those
/// share that come after it, and the sum is of no state there ever was. That is seen by one that came
/// early, looked at again at the end. Where it goes on all the time the last answer must do; of the shared
/// memory, which has then been counted once as a part of a few and once more as a part of many, the least
/// that each was seen to have.
const TRIES: u32 = 3;
/// So much of what it holds may become its own, or shared, meanwhile.
const STEADY: u64 = 64;

fn divide(pids: &[i32], of: impl Fn(i32) -> Option<Found>) -> Vec<Found> {
    let mut found: Vec<Found> = Vec::new();
    for _ in 0..TRIES {
        let before = std::mem::replace(&mut found, pids.iter().filter_map(|&pid| of(pid)).collect());
        // Of each kind the first that has much of it.
        let early = |part: fn(&Found) -> u64| {
            let most = found.iter().map(part).max().unwrap_or(0);
            found.iter().find(|one| part(one) >= most / 2).map_or(0, |one| one.pid)
        };
        let early = [early(Found::with_others), early(|one| one.shared_share)];
        let is_steady = found.iter().filter(|one| early.contains(&one.pid)).all(|then| {
            of(then.pid).is_some_and(|now| {
                now.with_others().abs_diff(then.with_others()) <= then.anonymous / STEADY
                    && now.shared_share.abs_diff(then.shared_share) <= then.shared_share / STEADY
            })
        });
        if is_steady {
            return found;
        }
        for one in &mut found {
            if let Some(then) = before.iter().find(|then| then.pid == one.pid) {
                one.shared_share = one.shared_share.min(then.shared_share);
            }
        }
    }
    found
}

fn of(pid: i32) -> Option<Found> {
    let proc::Shares { anonymous, anonymous_share, alone, shared_share } = proc::shares(pid)?;
    Some(Found { pid, anonymous, share: anonymous_share, alone, shared_share })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    /// A family of so many that share 840 each, one of whom ends after each look while there are more than
    /// `last`.
    fn ending(family: i32, last: i32) -> Vec<Found> {
        let there = RefCell::new((1..=family).collect::<Vec<_>>());
        let of = |pid| {
            let mut there = there.borrow_mut();
            if !there.contains(&pid) {
                return None;
            }
            let share = 840 / there.len() as u64;
            let alone = if there.len() == 1 { 840 } else { 0 };
            if there.len() > last as usize {
                there.remove(1);
            }
            Some(Found { pid, anonymous: 840, share, alone, shared_share: 0 })
        };
        divide(&(1..=family).collect::<Vec<_>>(), of)
    }

    #[test]
    fn what_is_found_out_is_of_one_state() {
        for last in 1..=8 {
            let found = ending(8, last);
            assert_eq!(found.len(), last as usize);
            assert_eq!(found.iter().map(|found| found.share).sum::<u64>(), 840 / last as u64 * last as u64);
        }
    }

    /// The first holds 840 of shared memory, and at each look at anybody the next of the others has mapped
    /// all of it too: the parts of the first looks are larger than those of the later ones.
    #[test]
    fn shared_memory_that_is_mapped_meanwhile_is_not_counted_twice() {
        for there in [2, 4, 9, 30] {
            let mapped = std::cell::Cell::new(1);
            let of = |pid| {
                let by = mapped.get();
                mapped.set(there.min(by + 1));
                let share = if pid <= by { 840 / by as u64 } else { 0 };
                Some(Found { pid, anonymous: 10, share: 10, alone: 10, shared_share: share })
            };
            let found = divide(&(1..=there).collect::<Vec<_>>(), of);
            let all = found.iter().map(|found| found.shared_share).sum::<u64>();
            assert!((700..=840).contains(&all), "{there} processes: {all}");
        }
    }

    #[test]
    fn who_never_rests_is_looked_at_a_few_times() {
        let looks = RefCell::new(0);
        let of = |pid| {
            *looks.borrow_mut() += 1;
            let share = *looks.borrow() % 7 * 100;
            Some(Found { pid, anonymous: 1000, share, alone: 0, shared_share: 0 })
        };
        assert_eq!(divide(&[1, 2], of).len(), 2);
        assert!((3 * u64::from(TRIES)..=4 * u64::from(TRIES)).contains(&*looks.borrow()));
    }
}
