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
//! Pages come and leave in groups: those of one block that came together.

use crate::pager::transfer::table::Pages;
use std::collections::{HashMap, VecDeque};
use std::hash::Hash;

/// Pages of a block.
type Group<K> = (K, Pages);

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
    queues: [VecDeque<Group<K>>; 2],
    left: [Left<K>; 2],
    known: HashMap<K, Known>,
    /// Pages in the queues.
    counts: [usize; 2],
    /// The part of them that may have come lately.
    share: f64,
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
fn push<K: Eq>(queue: &mut VecDeque<Group<K>>, key: K, pages: Pages) {
    match queue.back_mut() {
        _ if pages == 0 => {}
        Some((last, more)) if *last == key => *more |= pages,
        _ => queue.push_back((key, pages)),
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
        }
    }

    fn count(&self) -> usize {
        self.counts[LATELY] + self.counts[CORE]
    }

    /// Pages of a block have come in: by a sweep, or here and there.
    pub fn came(&mut self, key: K, pages: Pages, by_sweep: bool) {
        let known = self.known.entry(key).or_default();
        let new = pages & !known.inside;
        let again = known.left.map(|left| if by_sweep { 0 } else { new & left });
        known.inside |= new;
        known.left = known.left.map(|left| left & !new);
        let core = again[LATELY] | again[CORE];
        let change = (count(again[LATELY]) as f64 - count(again[CORE]) as f64) * CHANGE;
        self.share = (self.share + change / self.count().max(1) as f64).clamp(LEAST, MOST);
        self.enter(CORE, key, core);
        self.enter(LATELY, key, new & !core);
    }

    /// They are in, and it is not known since when.
    pub fn found(&mut self, key: K, pages: Pages) {
        let known = self.known.entry(key).or_default();
        let new = pages & !known.inside;
        known.inside |= new;
        known.left = known.left.map(|left| left & !new);
        self.enter(CORE, key, new);
    }

    fn enter(&mut self, queue: usize, key: K, pages: Pages) {
        self.counts[queue] += count(pages);
        push(&mut self.queues[queue], key, pages);
    }

    /// Who leaves next.
    pub fn next(&mut self) -> Option<Group<K>> {
        let many = self.counts[LATELY] as f64 > self.share * self.count() as f64;
        let queue = if self.queues[CORE].is_empty() || (many && !self.queues[LATELY].is_empty()) {
            LATELY
        } else {
            CORE
        };
        let (key, pages) = self.queues[queue].pop_front()?;
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
                choice.came(key / 16, 1 << (key % 16), sweep);
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
                choice.came(key / 16, 1 << (key % 16), sweep);
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

    #[test]
    fn everybody_leaves_in_the_end_once() {
        let mut choice = Choice::new();
        (0..10).for_each(|key| choice.came(key, 0x00ff, false));
        (5..20).for_each(|key| choice.found(key, 0xffff));
        let mut all = HashSet::new();
        while let Some((key, pages)) = choice.next() {
            assert!((0..16).filter(|i| pages & 1 << i != 0).all(|i| all.insert((key, i))));
        }
        assert_eq!(all.len(), 5 * 8 + 15 * 16);
        assert!(choice.known.values().all(|known| known.inside == 0));
        assert_eq!(choice.counts, [0, 0]);
    }
}
