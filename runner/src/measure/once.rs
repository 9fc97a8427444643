//! Each page once: what the processes of a rank hold together, between the looks that find out what they
//! share.
//!
//! Only a look at every page tells which pages are shared ([`shares`](super::shares)), and that is dear. In
//! between much is known nevertheless:
//!
//! - A copy made by `fork` holds nothing of its own at first.
//! - When a process ends, or lets go of memory, the pages that it shared stay with the others: *together they
//!   never hold more than before*. How much less depends on what no other process has: at least `alone` of
//!   what was found out, and what came since.
//! - Memory that a process got since is its own, until somebody is copied from it.
//!
//! What is not known is counted, but for copies being changed, which no cheap number shows: the next look
//! does.

use super::shares::Found;

/// Of one process, when it was last found out, or seen first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Known {
    /// What it held.
    anonymous: u64,
    /// At least so much of it nobody else has.
    alone: u64,
    /// It has not been found out yet, and so much was taken for copies of another's.
    copied: u64,
    /// The least it held since it was last asked about, if it has let go of much since.
    least: Option<u64>,
}

impl Known {
    /// One that is nobody's copy.
    pub(super) fn new(anonymous: u64) -> Self {
        Self { anonymous, ..Self::default() }
    }

    /// It has been copied: whatever it holds, somebody else has too.
    pub(super) fn was_copied(&mut self, anonymous: u64) {
        (self.anonymous, self.alone) = (anonymous, 0);
    }

    /// It is being found out what it shares.
    pub(super) fn is_asked(&mut self) {
        self.least = None;
    }

    /// What it certainly does not share.
    fn own(&self, anonymous: u64) -> u64 {
        (self.alone + anonymous.saturating_sub(self.anonymous)).min(anonymous)
    }
}

/// Of one rank.
#[derive(Debug, Default)]
pub(super) struct Once {
    /// Of the sum over its processes so much is counted more than once.
    twice: u64,
    /// What they mapped of shared memory, each page once, when that was found out.
    shared: u64,
    /// A process has ended, or let go of much, since all that were there were last found: what a copy's
    /// original held may be gone.
    ended: bool,
}

impl Once {
    /// There is a new process, which holds what another held that has `original`: the pages are the same
    /// ones.
    pub(super) fn copied(&mut self, anonymous: u64, original: u64) -> Known {
        let copied = original.min(anonymous);
        self.twice += copied;
        Known { anonymous, copied, ..Known::default() }
    }

    /// A process has ended that held so much.
    pub(super) fn gone(&mut self, known: Known, anonymous: u64) {
        self.ended = true;
        self.twice = self.twice.saturating_sub(anonymous - known.own(anonymous));
    }

    /// A process holds less than it did. That is small and to be ignored (false), or what it let go of stays
    /// with others, but for its own, which is taken to go first. Where hardly anything is left it runs
    /// another program.
    pub(super) fn let_go(&mut self, known: &mut Known, anonymous: u64) -> bool {
        if anonymous >= known.anonymous / 8 * 7 {
            return false;
        }
        self.ended = true;
        let counts = self.twice > 0;
        let least = Some(known.least.map_or(anonymous, |least| least.min(anonymous)));
        if anonymous < known.anonymous / 8 {
            self.twice = self.twice.saturating_sub(known.anonymous - known.alone);
            *known = Known { anonymous, alone: anonymous, copied: 0, least };
            return counts;
        }
        let less = known.anonymous - anonymous;
        self.twice = self.twice.saturating_sub(less.saturating_sub(known.alone));
        *known = Known { anonymous, alone: known.alone.saturating_sub(less), copied: 0, least };
        counts
    }

    /// What was found out of processes some of which may have ended since. What is known of those that are
    /// there, each with what it holds now, if they were found, or of those that are new, is changed.
    pub(super) fn found<'a>(
        &mut self,
        found: &[Found],
        there: impl Iterator<Item = (i32, u64, &'a mut Known)>,
    ) {
        if found.is_empty() {
            return;
        }
        let before = self.twice;
        self.twice = found.iter().map(|found| found.anonymous - found.share).sum();
        self.shared = found.iter().map(|found| found.shared_share).sum();
        let has_ended = std::mem::take(&mut self.ended);
        let mut left: Vec<&Found> = found.iter().collect();
        let most = found.iter().map(|found| found.anonymous).max().unwrap_or(0);
        let most_with_others = found.iter().map(|found| found.anonymous - found.share).max().unwrap_or(0);
        let (mut news, mut known_ones) = (false, Vec::new());
        // What changed copies show, what of new ones was counted, and what those may share with others who
        // are neither known nor new.
        let (mut changed, mut assumed, mut strange) = (0, 0, 0);
        for (pid, anonymous, known) in there {
            if let Some(at) = left.iter().position(|found| found.pid == pid) {
                let found = left.swap_remove(at);
                changed += found.alone.saturating_sub(known.own(found.anonymous));
                // It may have let go of that only after the question, and have got other pages since.
                let least = known.least.map_or(anonymous, |least| least.min(anonymous));
                *known = Known { anonymous: found.anonymous, alone: found.alone, ..Known::default() };
                known_ones.push((known, least, anonymous));
            } else if known.copied > 0 {
                // Was it there already when the others were found out, its part is not in theirs, half of
                // each page or less. It is counted. But then as much of its original, or more, is to others'
                // account; if nobody has as much, it was not there. Where the original may not be among those
                // who were found nobody else may have what it holds.
                news = true;
                let with_others = known.copied / 2 - known.copied / 64;
                let part = match () {
                    () if has_ended || most < known.copied => known.copied,
                    () if most_with_others >= with_others => known.copied / 2,
                    () => 0,
                };
                self.twice += known.copied - part;
                assumed += part;
            } else {
                // Nothing is known of it any more: it is counted in full, and nothing is taken off when it
                // ends. (Most are programs that were just started, and small.)
                strange += anonymous - known.own(anonymous);
                known.alone = known.anonymous;
            }
        }
        // Of whom the new ones are copies is not known.
        let alone = |found: u64| if news { 0 } else { found };
        for gone in left {
            let known = Known { anonymous: gone.anonymous, alone: alone(gone.alone), ..Known::default() };
            self.gone(known, gone.anonymous);
        }
        // The others may have let go of some since.
        for (known, least, anonymous) in known_ones {
            known.alone = alone(known.alone);
            self.let_go(known, least);
            if news {
                known.was_copied(anonymous);
            }
        }
        self.ended = has_ended && news;
        if news {
            // Together they hold no more than before, but for what changed; and no less than was found.
            let known_before = before.saturating_sub(changed + strange).min(self.twice + assumed);
            self.twice = self.twice.max(known_before);
        }
    }

    /// What they hold together that each hold some of this: no less than one of them, no more than all.
    pub(super) fn anonymous(&self, each: impl Iterator<Item = u64> + Clone) -> u64 {
        let one = each.clone().max().unwrap_or(0);
        each.sum::<u64>().saturating_sub(self.twice).max(one)
    }

    /// The same of shared memory. What a process has come to map since it was found out the others map too,
    /// in all likelihood: each counts it when it first touches it.
    pub(super) fn shared(&self, each: impl Iterator<Item = u64> + Clone) -> u64 {
        let one = each.clone().max().unwrap_or(0);
        self.shared.max(one).min(each.sum())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(pid: i32, anonymous: u64, share: u64, alone: u64) -> Found {
        Found { pid, anonymous, share, alone, shared_share: 0 }
    }

    /// Processes as they are, to be told to [`Once`].
    #[derive(Default)]
    struct Rank {
        once: Once,
        processes: Vec<(i32, u64, Known)>,
        last: i32,
    }

    impl Rank {
        fn of(first: u64) -> Self {
            Self { once: Once::default(), processes: vec![(1, first, Known::new(first))], last: 1 }
        }

        fn fork(&mut self, from: usize) {
            let (_, anonymous, known) = &mut self.processes[from];
            known.was_copied(*anonymous);
            let anonymous = *anonymous;
            let known = self.once.copied(anonymous, anonymous);
            self.last += 1;
            self.processes.push((self.last, anonymous, known));
        }

        fn end(&mut self, at: usize) {
            let (_, anonymous, known) = self.processes.remove(at);
            self.once.gone(known, anonymous);
        }

        fn hold(&mut self, at: usize, now: u64) {
            let (_, anonymous, known) = &mut self.processes[at];
            *anonymous = now;
            self.once.let_go(known, now);
        }

        fn found(&mut self, all: &[Found]) {
            self.once.found(
                all,
                self.processes.iter_mut().map(|(pid, anonymous, known)| (*pid, *anonymous, known)),
            );
        }

        fn sum(&self) -> u64 {
            self.once.anonymous(self.processes.iter().map(|process| process.1))
        }
    }

    #[test]
    fn copies_are_counted_once_from_their_birth_to_their_end() {
        let mut rank = Rank::of(400);
        for _ in 0..8 {
            rank.fork(0);
            assert_eq!(rank.sum(), 400);
        }
        // As the kernel divides them.
        let all: Vec<Found> = rank.processes.iter().map(|process| found(process.0, 400, 44, 0)).collect();
        rank.found(&all);
        assert_eq!(rank.sum(), 9 * 44 + 4, "at least what one of them has");
        for left in (1..9).rev() {
            rank.end(left / 2);
            assert!((396..=400).contains(&rank.sum()), "{left} left: {}", rank.sum());
        }
    }

    #[test]
    fn what_a_process_has_alone_goes_with_it() {
        let mut rank = Rank::of(100);
        rank.fork(0);
        rank.fork(0);
        // Each child has got 1000 of its own, one before it was found out and one after.
        rank.hold(1, 1100);
        rank.found(&[found(1, 100, 33, 0), found(2, 1100, 1033, 1000), found(3, 100, 34, 0)]);
        rank.hold(2, 1100);
        assert_eq!(rank.sum(), 2100);
        rank.end(1);
        assert_eq!(rank.sum(), 1100);
        rank.end(1);
        assert_eq!(rank.sum(), 100);
    }

    #[test]
    fn a_new_program_in_a_copy_leaves_the_pages_to_the_others() {
        let mut rank = Rank::of(4000);
        rank.fork(0);
        rank.hold(1, 10);
        assert_eq!(rank.sum(), 4010);
        rank.hold(1, 500);
        assert_eq!(rank.sum(), 4500);
        rank.end(1);
        assert_eq!(rank.sum(), 4000);
        // The parent ends, its copy goes on.
        rank.fork(0);
        rank.end(0);
        assert_eq!(rank.sum(), 4000);
        // What it got before it was copied is its copy's too.
        rank.hold(0, 6000);
        rank.fork(0);
        rank.end(0);
        assert_eq!(rank.sum(), 6000);
    }

    #[test]
    fn an_answer_may_speak_of_the_dead_and_not_of_the_newborn() {
        let mut rank = Rank::of(400);
        rank.fork(0);
        rank.fork(0);
        let all = [found(1, 400, 134, 0), found(2, 400, 133, 0), found(3, 400, 133, 0)];
        rank.end(1);
        rank.found(&all);
        assert_eq!(rank.sum(), 400);
        // Now somebody is born who may have been there already: what it may hold is counted.
        rank.fork(0);
        rank.found(&[found(1, 400, 200, 0), found(3, 400, 200, 0)]);
        assert!((400..=540).contains(&rank.sum()), "{}", rank.sum());
        rank.found(&[found(1, 400, 133, 0), found(3, 400, 134, 0), found(4, 400, 133, 0)]);
        assert_eq!(rank.sum(), 400);
        // A kernel that tells nothing.
        rank.found(&[]);
        assert_eq!(rank.sum(), 400);
        // Or nothing of two of them, who are counted in full then: what the others share stays when those
        // end.
        rank.fork(0);
        rank.found(&[1, 3, 4, 5].map(|pid| found(pid, 400, 100, 0)));
        rank.found(&[found(1, 400, 200, 0), found(3, 400, 200, 0)]);
        assert_eq!(rank.sum(), 1200);
        rank.end(3);
        rank.end(2);
        assert_eq!(rank.sum(), 400);
    }

    /// A look at the parent takes as long as it takes to make a child on a busy machine.
    #[test]
    fn who_was_born_after_the_look_is_not_counted() {
        let born = |share| {
            let mut rank = Rank::of(400);
            rank.fork(0);
            rank.found(&[found(1, 400, share, share)]);
            rank.sum()
        };
        assert_eq!((born(400), born(398)), (400, 400));
        // Here it was there, and half of what both have is to its account.
        assert_eq!(born(200), 400);
        // Its original has ended, and somebody else is as large: as much is counted as if it had been there.
        let mut rank = Rank::of(400);
        rank.processes.push((9, 500, Known::new(500)));
        rank.fork(0);
        rank.end(0);
        rank.found(&[found(9, 500, 500, 500)]);
        assert!(rank.sum() >= 500 + 200, "{}", rank.sum());
        // Its original is not among those who were found.
        let mut rank = Rank::of(400);
        rank.fork(0);
        rank.fork(0);
        rank.end(0);
        rank.found(&[found(2, 400, 200, 0)]);
        assert_eq!(rank.sum(), 400);
    }

    /// Three of nine were there when it was asked, all of them when the kernel divided. (Seen on a busy
    /// machine: 201 MiB were counted of 106.)
    #[test]
    fn of_many_born_meanwhile_no_more_is_counted_than_before() {
        let mut rank = Rank::of(400);
        (0..8).for_each(|_| rank.fork(0));
        rank.found(&[1, 2, 3].map(|pid| found(pid, 400, 46, 2)));
        assert!((400..=406).contains(&rank.sum()), "{}", rank.sum());
        // Each of two has changed its copy: that shows.
        let mut rank = Rank::of(400);
        (0..8).for_each(|_| rank.fork(0));
        rank.found(&[found(1, 400, 57, 0), found(2, 400, 400, 400), found(3, 400, 400, 400)]);
        assert!(rank.sum() >= 1200, "{}", rank.sum());
    }

    /// Two of nine were there when it was asked; meanwhile children became other programs, and ended. (Seen
    /// on a busy machine: 778 MiB of 106.)
    #[test]
    fn who_became_another_program_meanwhile_is_no_stranger() {
        let mut rank = Rank::of(400);
        rank.fork(0);
        rank.processes.iter_mut().for_each(|process| process.2.is_asked());
        (0..7).for_each(|_| rank.fork(0));
        for _ in 0..2 {
            rank.fork(0);
            rank.hold(9, 3);
            assert!((400..=403).contains(&rank.sum()), "{}", rank.sum());
            rank.end(9);
        }
        rank.fork(0);
        rank.hold(9, 3);
        // One that was first seen as another program.
        rank.processes.push((99, 2, Known::new(2)));
        rank.found(&[1, 2].map(|pid| found(pid, 400, 46, 2)));
        assert!((400..=414).contains(&rank.sum()), "{}", rank.sum());
        // When they end the pages stay.
        rank.end(10);
        rank.end(9);
        (2..9).rev().for_each(|at| rank.end(at));
        assert!((400..=414).contains(&rank.sum()), "{}", rank.sum());
    }

    /// Pages as bits, each process with the set of those it has: whatever happens, what is said is at least
    /// what there is, and neither an end nor letting go adds to it.
    #[test]
    fn never_less_than_there_is_and_no_end_adds_to_it() {
        for seed in 0..800_u64 {
            // Of every other the answers come when others are there.
            let late = seed % 2 == 1;
            let mut answer: Option<(Vec<Found>, u32)> = None;
            let mut state = seed * 2 + 1;
            let mut below = move |end: u64| {
                state ^= state >> 12;
                state ^= state << 25;
                state ^= state >> 27;
                (state.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) % end
            };
            let mut next_page = 100_u64;
            let mut sets: Vec<Vec<u64>> = vec![(0..100).collect()];
            let mut rank = Rank::of(100);
            for step in 0..60_u32 {
                let at = below(sets.len() as u64) as usize;
                if let Some((all, _)) = answer.take_if(|(_, due)| step >= *due) {
                    rank.found(&all);
                }
                let before = rank.sum();
                match below(10) {
                    0 if sets.len() < 12 && step % 3 == 0 => {
                        // First seen when it was another program already.
                        sets.push((next_page..next_page + 2).collect());
                        next_page += 2;
                        let known = rank.once.copied(2, 0);
                        rank.last += 1;
                        rank.processes.push((rank.last, 2, known));
                    }
                    0..3 if sets.len() < 12 => {
                        let copy = sets[at].clone();
                        sets.push(copy);
                        rank.fork(at);
                    }
                    3..5 => {
                        let more = below(80);
                        sets[at].extend(next_page..next_page + more);
                        next_page += more;
                        rank.hold(at, sets[at].len() as u64);
                    }
                    5..7 if sets.len() > 1 => {
                        sets.remove(at);
                        rank.end(at);
                        assert!(rank.sum() <= before, "seed {seed}, step {step}: {} {before}", rank.sum());
                    }
                    7 => {
                        // A new program.
                        sets[at] = (next_page..next_page + 3).collect();
                        next_page += 3;
                        rank.hold(at, 3);
                        // With the three pages that it has now.
                        assert!(rank.sum() <= before + 3, "seed {seed}, step {step}");
                    }
                    _ if late => {
                        if answer.is_none() {
                            rank.processes.iter_mut().for_each(|process| process.2.is_asked());
                            answer = Some((divided(&rank, &sets), step + 1 + below(4) as u32));
                        }
                    }
                    _ => {
                        rank.processes.iter_mut().for_each(|process| process.2.is_asked());
                        rank.found(&divided(&rank, &sets));
                    }
                }
                let mut there: Vec<u64> = sets.iter().flatten().copied().collect();
                there.sort_unstable();
                there.dedup();
                // A program hardly smaller than the one before it is not noticed, and shares are cut off to
                // whole pages.
                let there = (there.len() as u64).saturating_sub(8 * sets.len() as u64);
                assert!(rank.sum() >= there, "seed {seed}, step {step}: {} of {there}", rank.sum());
            }
        }
    }

    /// As the kernel tells it.
    fn divided(rank: &Rank, sets: &[Vec<u64>]) -> Vec<Found> {
        let mut count = std::collections::HashMap::new();
        sets.iter().flatten().for_each(|page| *count.entry(page).or_insert(0_u32) += 1);
        let of = |set: &Vec<u64>| {
            let share: f64 = set.iter().map(|page| 1.0 / f64::from(count[page])).sum();
            let alone = set.iter().filter(|page| count[page] == 1).count() as u64;
            ((share as u64).max(alone), alone)
        };
        let each = rank.processes.iter().zip(sets);
        each.map(|((pid, ..), set)| {
            let (share, alone) = of(set);
            found(*pid, set.len() as u64, share, alone)
        })
        .collect()
    }

    #[test]
    fn shared_memory_that_one_after_the_other_touches_is_counted_once() {
        let mut once = Once::default();
        let mut known = Known::new(0);
        assert_eq!(once.shared([400, 0, 10].into_iter()), 400);
        let first = Found { shared_share: 395, ..found(1, 0, 0, 0) };
        once.found(
            &[first, Found { shared_share: 5, ..found(2, 0, 0, 0) }],
            [(1, 0, &mut known)].into_iter(),
        );
        assert_eq!(once.shared([400, 400, 400].into_iter()), 400);
        assert_eq!(once.shared([500, 400, 400].into_iter()), 500);
        assert_eq!(once.shared([100, 50].into_iter()), 150, "what is not mapped is not there");
    }
}
