//! Who leaves next. Pure.
//!
//! Nothing is known of use but what comes back. By this alone the choice is made between two queues ("2Q"): what has come
//! in lately, and the *core*, of which something came back soon after it had left. What came lately leaves first, as
//! long as it is more than a quarter. A sweep over far more than there is room for thus passes through a quarter of the room
//! and leaves the rest alone, of which it finds again what is there at the next turn (least recently used would find
//! nothing); what is used again and again gets into the core soon.

use std::collections::{HashMap, HashSet, VecDeque};
use std::hash::Hash;

#[derive(Debug)]
pub(super) struct Choice<K> {
    lately: VecDeque<K>,
    core: VecDeque<K>,
    inside: HashSet<K>,
    /// Those that left not long ago, and when.
    left: VecDeque<(K, u64)>,
    left_at: HashMap<K, u64>,
    clock: u64,
}

impl<K: Copy + Eq + Hash> Choice<K> {
    pub fn new() -> Self {
        Self {
            lately: VecDeque::new(),
            core: VecDeque::new(),
            inside: HashSet::new(),
            left: VecDeque::new(),
            left_at: HashMap::new(),
            clock: 0,
        }
    }

    /// Something of it has come in.
    pub fn came(&mut self, key: K) {
        if self.inside.insert(key) {
            if self.left_at.remove(&key).is_some() {
                self.core.push_back(key);
            } else {
                self.lately.push_back(key);
            }
        }
    }

    /// It is in, and it is not known since when.
    pub fn found(&mut self, key: K) {
        if self.inside.insert(key) {
            self.left_at.remove(&key);
            self.core.push_back(key);
        }
    }

    /// Who leaves next.
    pub fn next(&mut self) -> Option<K> {
        let many = self.lately.len() * 4 > self.inside.len();
        let key = if many || self.core.is_empty() {
            let key = self.lately.pop_front()?;
            self.clock += 1;
            self.left.push_back((key, self.clock));
            self.left_at.insert(key, self.clock);
            while self.left.len() > self.inside.len() / 2 + 1
                && let Some((old, at)) = self.left.pop_front()
            {
                if self.left_at.get(&old) == Some(&at) {
                    self.left_at.remove(&old);
                }
            }
            key
        } else {
            self.core.pop_front()?
        };
        self.inside.remove(&key);
        Some(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The share of accesses that found what they wanted, with room for `room` keys, after a first part.
    fn hits(room: usize, accesses: impl Iterator<Item = u32>) -> f64 {
        let (mut choice, mut inside) = (Choice::new(), HashSet::new());
        let (mut hits, mut count) = (0, 0);
        for (i, key) in accesses.enumerate() {
            let hit = inside.contains(&key);
            if i >= 2000 {
                (hits, count) = (hits + u32::from(hit), count + 1);
            }
            if !hit {
                inside.insert(key);
                choice.came(key);
                if inside.len() > room {
                    inside.remove(&choice.next().expect("somebody"));
                }
            }
        }
        f64::from(hits) / f64::from(count)
    }

    #[test]
    fn a_sweep_finds_some_again() {
        let mut choice = Choice::new();
        (0..100).for_each(|key| choice.found(key));
        let mut inside: HashSet<u32> = (0..100).collect();
        let mut found = 0;
        for key in (0..4000).map(|i| i % 400) {
            if inside.insert(key) {
                choice.came(key);
                inside.remove(&choice.next().expect("somebody"));
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
        // Three quarters of all accesses to 50 of 1000.
        let accesses = (0..20_000).map(|_| match next() % 4 {
            0 => 50 + next() % 950,
            _ => next() % 50,
        });
        let share = hits(100, accesses);
        assert!(share > 0.7, "{share}");
    }

    #[test]
    fn everybody_leaves_in_the_end_once() {
        let mut choice = Choice::new();
        (0..10).for_each(|key| choice.came(key));
        (5..20).for_each(|key| choice.found(key));
        let all: HashSet<u32> = std::iter::from_fn(|| choice.next()).collect();
        assert_eq!(all.len(), 20);
        assert_eq!(choice.next(), None);
    }
}
