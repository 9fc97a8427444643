//! Who leaves next. Pure.
//!
//! Nothing is known of use but what comes back. By this alone the choice is made between two queues ("2Q"):
//! what has come in lately, and the *core*, of which something came back soon after it had left. What came
//! lately leaves first, as long as it is more than its share. What was used again and again gets into the
//! core soon.
//!
//! The share is learned ("ARC"): at first a quarter; more, where what has come lately and left comes back, as
//! it would have been better to let go something of the core, which nobody may have used for long; less,
//! where what has left the core comes back. What a sweep brings teaches nothing: one over far more than there
//! is room for passes through a quarter of the room and leaves the rest alone, of which it finds again what
//! is there at the next turn (least recently used would find nothing).
//!
//! Pages come and leave in groups: those of one block that came together. Those of one thread may be spared
//! for a while (`token`).

use super::token::{NOBODY, Token};
use crate::pager::transfer::table::Pages;
use std::collections::{HashMap, VecDeque};
use std::hash::Hash;

/// Pages of a block.
type Group<K> = (K, Pages);

/// Such that came for a thread.
#[derive(Debug)]
struct Came<K> {
    group: Group<K>,
    by: u32,
}

/// Those that left a queue not long ago, in this order, and how many pages.
#[derive(Debug)]
struct Left<K>(VecDeque<Group<K>>, usize);

#[derive(Debug, Default)]
struct Known {
    /// In one of the queues.
    inside: Pages,
    /// Left not long ago: of those that had come lately, and of the core.
    left: [Pages; 2],
}

/// The queues.
const LATELY: usize = 0;
const CORE: usize = 1;

#[derive(Debug)]
pub(super) struct Choice<K> {
    queues: [VecDeque<Came<K>>; 2],
    left: [Left<K>; 2],
    known: HashMap<K, Known>,
    /// Pages in the queues.
    counts: [usize; 2],
    /// The part of them that may have come lately.
    share: f64,
    token: Token,
    /// Those of the queues that are spared, and for whom.
    aside: [VecDeque<Came<K>>; 2],
    aside_of: Option<u32>,
}

/// Bounds of the share.
const LEAST: f64 = 0.125;
const MOST: f64 = 0.9;
/// So much it changes by as many pages as there are in all.
const CHANGE: f64 = 2.0;

fn count(pages: Pages) -> usize {
    pages.count_ones() as usize
}

/// Adds pages to a queue: to its last group, if that is of the same block.
fn push<K: Eq>(queue: &mut VecDeque<Came<K>>, key: K, pages: Pages, by: u32) {
    match queue.back_mut() {
        _ if pages == 0 => {}
        Some(Came { group: (last, more), by: other }) if *last == key && *other == by => *more |= pages,
        _ => queue.push_back(Came { group: (key, pages), by }),
    }
}

impl<K: Copy + Eq + Hash> Choice<K> {
    pub fn new() -> Self {
        let left = || Left(VecDeque::new(), 0);
        Self {
            queues: [VecDeque::new(), VecDeque::new()],
            left: [left(), left()],
            known: HashMap::new(),
            counts: [0; 2],
            share: 0.25,
            token: Token::default(),
            aside: [VecDeque::new(), VecDeque::new()],
            aside_of: None,
        }
    }

    fn count(&self) -> usize {
        self.counts[LATELY] + self.counts[CORE]
    }

    /// A thread has waited for a page that was out.
    pub fn missed(&mut self, by: u32) {
        self.token.missed(by, self.count());
    }

    /// Pages of a block have come in for a thread: by a sweep, or here and there.
    pub fn came(&mut self, key: K, pages: Pages, by_sweep: bool, by: u32) {
        let known = self.known.entry(key).or_default();
        let new = pages & !known.inside;
        let again = known.left.map(|left| if by_sweep { 0 } else { new & left });
        known.inside |= new;
        known.left = known.left.map(|left| left & !new);
        let core = again[LATELY] | again[CORE];
        let change = (count(again[LATELY]) as f64 - count(again[CORE]) as f64) * CHANGE;
        self.share = (self.share + change / self.count().max(1) as f64).clamp(LEAST, MOST);
        self.enter(CORE, key, core, by);
        self.enter(LATELY, key, new & !core, by);
    }

    /// They are in, and it is not known since when.
    pub fn found(&mut self, key: K, pages: Pages) {
        let known = self.known.entry(key).or_default();
        let new = pages & !known.inside;
        known.inside |= new;
        known.left = known.left.map(|left| left & !new);
        self.enter(CORE, key, new, NOBODY);
    }

    fn enter(&mut self, queue: usize, key: K, pages: Pages, by: u32) {
        self.counts[queue] += count(pages);
        self.token.entered(by, count(pages));
        push(&mut self.queues[queue], key, pages, by);
    }

    /// The first that is not spared, of one queue or else of the other; if all are, the first of these.
    fn first(&mut self, wanted: usize) -> Option<(usize, Came<K>)> {
        if self.token.holder() != self.aside_of {
            self.aside_of = self.token.holder();
            for (queue, aside) in self.queues.iter_mut().zip(&mut self.aside) {
                queue.append(aside);
            }
        }
        let all = self.count();
        for queue in [wanted, 1 - wanted] {
            while let Some(came) = self.queues[queue].pop_front() {
                if !self.token.spares(came.by, all) {
                    return Some((queue, came));
                }
                self.aside[queue].push_back(came);
            }
        }
        [wanted, 1 - wanted].into_iter().find_map(|queue| Some((queue, self.aside[queue].pop_front()?)))
    }

    /// Who leaves next.
    pub fn next(&mut self) -> Option<Group<K>> {
        let many = self.counts[LATELY] as f64 > self.share * self.count() as f64;
        let (queue, Came { group: (key, pages), by }) = self.first(if many { LATELY } else { CORE })?;
        self.token.left(by, count(pages));
        self.counts[queue] -= count(pages);
        if let Some(known) = self.known.get_mut(&key) {
            known.inside &= !pages;
            known.left[queue] |= pages;
        }
        let most = self.count() / 2 + 1;
        let Left(left, sum) = &mut self.left[queue];
        left.push_back((key, pages));
        *sum += count(pages);
        // Some of these have come in, and left, again since; they are forgotten a little early.
        while *sum > most
            && let Some((old, pages)) = left.pop_front()
        {
            *sum -= count(pages);
            if let Some(known) = self.known.get_mut(&old) {
                known.left[queue] &= !pages;
                if known.inside | known.left[LATELY] | known.left[CORE] == 0 {
                    self.known.remove(&old);
                }
            }
        }
        Some((key, pages))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    /// The share of accesses that found what they wanted, with room for `room` keys, after a first part.
    fn hits(room: usize, found: u32, accesses: impl Iterator<Item = u32>) -> f64 {
        let (mut choice, mut inside, sweep) = (Choice::new(), HashSet::new(), false);
        (0..found).for_each(|key| {
            choice.found(key / 16, 1 << (key % 16));
            inside.insert(key);
        });
        let (mut hits, mut count) = (0, 0);
        for (i, key) in accesses.enumerate() {
            let hit = inside.contains(&key);
            if i >= 2000 {
                (hits, count) = (hits + u32::from(hit), count + 1);
            }
            if !hit {
                inside.insert(key);
                choice.came(key / 16, 1 << (key % 16), sweep, 1);
                while inside.len() > room {
                    leave(&mut choice, &mut inside);
                }
            }
        }
        f64::from(hits) / f64::from(count)
    }

    fn leave(choice: &mut Choice<u32>, inside: &mut HashSet<u32>) {
        let (key, pages) = choice.next().expect("somebody");
        (0..16).filter(|i| pages & 1 << i != 0).for_each(|i| {
            assert!(inside.remove(&(key * 16 + i)), "it is in");
        });
    }

    #[test]
    fn a_sweep_finds_some_again() {
        let (mut choice, sweep) = (Choice::new(), true);
        (0..7).for_each(|key| choice.found(key, 0xffff));
        let mut inside: HashSet<u32> = (0..112).collect();
        let mut found = 0;
        for key in (0..4000).map(|i| i % 400) {
            if inside.insert(key) {
                choice.came(key / 16, 1 << (key % 16), sweep, 1);
                while inside.len() > 112 {
                    leave(&mut choice, &mut inside);
                }
            } else {
                found += 1;
            }
        }
        assert!(found > 500, "{found}");
    }

    #[test]
    fn what_is_used_often_stays() {
        let mut random = 1u32;
        let mut next = move || {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            random >> 8
        };
        // Three quarters of all accesses to 50 of 1000, which lie in as many blocks.
        let accesses = (0..20_000).map(|_| match next() % 4 {
            0 => next() % 1000,
            _ => next() % 50 * 20,
        });
        let share = hits(100, 0, accesses);
        assert!(share > 0.7, "{share}");
    }

    /// Half of the room is taken by what nobody ever uses again.
    #[test]
    fn what_is_not_used_leaves_the_core() {
        let mut random = 1u32;
        let mut next = move || {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            random >> 8
        };
        let share = hits(1000, 1000, (0..60_000).map(|_| 500 + next() % 1300));
        assert!(share > 0.9 * 1000.0 / 1300.0, "{share}");
    }

    /// Accesses by four threads in a time in which a thread can do a million, or wait a thousandth as often;
    /// each goes over 300 pages of its own, in all half as much again as there is room for.
    fn work(known: bool) -> usize {
        let (mut choice, mut inside) = (Choice::new(), HashSet::new());
        let mut random = 1u32;
        let (mut ready, mut done) = ([0; 4], 0);
        while let Some((thread, &now)) = ready.iter().enumerate().min_by_key(|(_, at)| **at)
            && now < 1_000_000
        {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let key = thread as u32 * 304 + (random >> 8) % 300;
            done += 1;
            ready[thread] += 1;
            if inside.insert(key) {
                let by = if known { thread as u32 + 1 } else { NOBODY };
                ready[thread] += 1000;
                choice.missed(by);
                choice.came(key / 16, 1 << (key % 16), false, by);
                while inside.len() > 800 {
                    leave(&mut choice, &mut inside);
                }
            }
        }
        done
    }

    #[test]
    fn threads_that_do_not_fit_together_get_on_in_turns() {
        let (with, without) = (work(true), work(false));
        assert!(with > 10 * without, "{with} {without}");
    }

    #[test]
    fn everybody_leaves_in_the_end_once() {
        let mut choice = Choice::new();
        (0..10).for_each(|key| choice.came(key, 0x00ff, false, 1));
        (5..20).for_each(|key| choice.found(key, 0xffff));
        (0..100).for_each(|i| choice.missed(1 + i % 2));
        (20..30).for_each(|key| choice.came(key, 0xffff, false, 2));
        choice.missed(1);
        // One of them is spared by now.
        assert!(choice.token.holder().is_some());
        let mut all = HashSet::new();
        while let Some((key, pages)) = choice.next() {
            assert!((0..16).filter(|i| pages & 1 << i != 0).all(|i| all.insert((key, i))));
        }
        assert_eq!(all.len(), 5 * 8 + 25 * 16);
        assert!(choice.known.values().all(|known| known.inside == 0));
        assert_eq!(choice.counts, [0, 0]);
    }
}
