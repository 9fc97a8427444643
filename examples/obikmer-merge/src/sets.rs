//! Sets of sources, as numbers. Sources are added in ascending order, so the sets form a trie: a set is its
//! largest member and the set of the others. Only sets that are prefixes of real ones come to be, whatever
//! their number.

use std::collections::HashMap;

use crate::graph::Mixer;

/// The empty set.
pub const EMPTY: u32 = 0;

/// All sets met so far.
pub struct Sets {
    nodes: Vec<(u32, u32)>,
    children: HashMap<u64, u32, Mixer>,
    unions: HashMap<u64, u32, Mixer>,
    added: Cache,
    united: Cache,
}

/// The latest answers, each question having one place: what is asked is mostly what was asked a moment ago.
struct Cache(Vec<(u64, u32)>);

impl Cache {
    const PLACES: usize = 512;

    #[inline]
    fn place(&mut self, question: u64) -> &mut (u64, u32) {
        let at = (question.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 55) as usize;
        &mut self.0[at]
    }
}

impl Default for Cache {
    fn default() -> Self {
        // No question has all bits set: no set has that number.
        Self(vec![(u64::MAX, 0); Self::PLACES])
    }
}

#[inline]
fn pair(a: u32, b: u32) -> u64 {
    (u64::from(a) << 32) | u64::from(b)
}

impl Default for Sets {
    fn default() -> Self {
        Self {
            nodes: vec![(EMPTY, u32::MAX)],
            children: HashMap::default(),
            unions: HashMap::default(),
            added: Cache::default(),
            united: Cache::default(),
        }
    }
}

impl Sets {
    /// `set` with `source`, which is at least its largest member.
    #[inline]
    pub fn with(&mut self, set: u32, source: u32) -> u32 {
        let question = pair(set, source);
        let place = self.added.place(question);
        if place.0 == question {
            return place.1;
        }
        let answer = self.find_or_add(set, source);
        *self.added.place(question) = (question, answer);
        answer
    }

    fn find_or_add(&mut self, set: u32, source: u32) -> u32 {
        let (_, largest) = self.nodes[set as usize];
        if set != EMPTY && largest == source {
            return set;
        }
        // One number is nobody's ([`Cache`]).
        let next = u32::try_from(self.nodes.len()).ok().filter(|&next| next < u32::MAX);
        let next =
            next.expect("one partition has fewer than 2^32 sets of sources: give the job more ranks (-np)");
        let found = *self.children.entry(pair(set, source)).or_insert(next);
        if found == next {
            self.nodes.push((set, source));
        }
        found
    }

    /// The set of what either has.
    #[inline]
    pub fn union(&mut self, a: u32, b: u32) -> u32 {
        if a == b || b == EMPTY {
            return a;
        }
        if a == EMPTY {
            return b;
        }
        let question = pair(a.min(b), a.max(b));
        let place = self.united.place(question);
        if place.0 == question {
            return place.1;
        }
        let answer = self.unions.get(&question).copied().unwrap_or_else(|| self.unite(a, b));
        self.unions.insert(question, answer);
        *self.united.place(question) = (question, answer);
        answer
    }

    #[cold]
    fn unite(&mut self, a: u32, b: u32) -> u32 {
        let mut members = self.members(a);
        members.extend(self.members(b));
        members.sort_unstable();
        members.dedup();
        self.of_members(&members)
    }

    /// The number of the set with these members, ascending.
    pub fn of_members(&mut self, members: &[u32]) -> u32 {
        members.iter().fold(EMPTY, |set, &source| self.with(set, source))
    }

    /// Take in all sets of another that have no number here yet: `numbers` is of its first ones, and then of
    /// all.
    pub fn adopt(&mut self, other: &Self, numbers: &mut Vec<u32>) {
        for &(rest, source) in &other.nodes[numbers.len()..] {
            // A set comes after the one without its largest member; the first one is the empty one.
            let number = numbers.get(rest as usize).map_or(EMPTY, |&rest| self.with(rest, source));
            numbers.push(number);
        }
    }

    /// The members of a set, ascending.
    pub fn members(&self, mut set: u32) -> Vec<u32> {
        let mut members = Vec::new();
        while set != EMPTY {
            let (rest, source) = self.nodes[set as usize];
            members.push(source);
            set = rest;
        }
        members.reverse();
        members
    }

    /// Number of sets, the empty one included: all set numbers are below it.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Is there no set but the empty one?
    pub fn is_empty(&self) -> bool {
        self.nodes.len() == 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_are_interned() {
        let mut sets = Sets::default();
        let a = sets.of_members(&[0, 3, 200]);
        let b = sets.with(EMPTY, 0);
        let b = sets.with(b, 3);
        assert_eq!(sets.with(b, 3), b);
        assert_eq!(sets.with(b, 200), a);
        assert_eq!(sets.members(a), [0, 3, 200]);
        assert_eq!(sets.len(), 4);
        let c = sets.of_members(&[1, 3]);
        let all = sets.union(c, a);
        assert_eq!(sets.members(all), [0, 1, 3, 200]);
        assert_eq!(sets.union(a, c), all);
        let (mut others, mut numbers) = (Sets::default(), Vec::new());
        for members in [&[3, 200][..], &[0, 3], &[0, 3, 200, 201]] {
            let set = others.of_members(members);
            sets.adopt(&others, &mut numbers);
            assert_eq!(numbers.len(), others.len());
            assert_eq!(sets.members(numbers[set as usize]), members);
            assert_eq!(numbers[set as usize], sets.of_members(members));
        }
        for set in 0..others.len() as u32 {
            assert_eq!(sets.members(numbers[set as usize]), others.members(set));
        }
        assert_eq!([sets.union(a, EMPTY), sets.union(EMPTY, a), sets.union(all, c)], [a, a, all]);
    }
}
