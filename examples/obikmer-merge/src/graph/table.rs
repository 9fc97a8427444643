//! The table of junctions: for each (k−1)-mer of a virtual partition which bases stand before it and behind
//! it.
//!
//! Every k-mer at a junction of the partition lies in the partition, so a junction's degrees are those of the
//! whole graph: two k-mers join exactly if there is one base on each side, and nobody has to be asked.

use super::distinct::{Distinct, FOREIGN, RIGHT};
use super::text::{Text, Texts};
use crate::graph::mixer::mix;
use crate::lookup::prefetch;

/// All bases on both sides: of a junction that is its own reverse complement, at which nothing joins.
const PALINDROME: u8 = 0xff;

/// Does a junction with these bases join two k-mers?
static JOINS: [bool; 256] = {
    let mut table = [false; 256];
    let mut i = 0;
    while i < 256 {
        table[i] = (i as u8 & 15).count_ones() == 1 && (i as u8 >> 4).count_ones() == 1;
        i += 1;
    }
    table
};

/// A junction on its way into the table.
#[derive(Clone, Copy)]
struct Junction<W> {
    key: W,
    home: usize,
    sides: u8,
}

/// See the module.
pub struct Table<W> {
    /// Length of a junction.
    len: usize,
    /// By hash, linear probing; all bits set: empty (a canonical junction is never all T).
    keys: Vec<W>,
    /// Bases before it in the lower four bits, behind it in the upper, for its canonical text. One more than
    /// there are keys: that of all junctions that are not here.
    sides: Vec<u8>,
    /// Where the junctions of each record lie, one record after another.
    slots: Vec<u32>,
}

impl<W: Texts> Table<W> {
    pub fn new(k: usize) -> Self {
        Self { len: k - 1, keys: Vec::new(), sides: Vec::new(), slots: Vec::new() }
    }

    /// The junctions of these super-k-mers instead of those before.
    pub fn fill(&mut self, distinct: &Distinct<W>) {
        let junctions: usize = distinct.metas.iter().map(|meta| meta.kmers as usize + 1).sum();
        // Two of five are repeats even among distinct super-k-mers; if none were, the table would be 8/9
        // full.
        let room = junctions + junctions / 8 + 8;
        self.keys.clear();
        self.keys.resize(room, !W::default());
        self.sides.clear();
        self.sides.resize(room + 1, 0);
        self.slots.clear();
        self.slots.reserve(junctions);
        let len = self.len;
        let mut line: Vec<Junction<W>> = Vec::new();
        for (&text, meta) in distinct.texts.iter().zip(&distinct.metas) {
            let kmers = meta.kmers as usize;
            let mut forward = text.word(0, len);
            let mut reverse = forward.revcomp(len);
            let (from, to) = (
                usize::from(meta.flags & FOREIGN != 0),
                kmers - usize::from(meta.flags >> RIGHT & FOREIGN != 0),
            );
            if from == 1 {
                self.slots.push(room as u32);
                (forward, reverse) = self.next(forward, reverse, text.base(len));
            }
            // First all junctions of the super-k-mer, so that their places are on the way when they are
            // looked at.
            line.clear();
            for at in from..=to {
                let before = if at > 0 { 1u8 << text.base(at - 1) } else { 0 };
                let next = if at < kmers { text.base(at + len) } else { 0 };
                let behind = if at < kmers { 16u8 << next } else { 0 };
                let junction = self.junction(forward, reverse, before | behind);
                prefetch::read(&self.keys, junction.home);
                line.push(junction);
                (forward, reverse) = self.next(forward, reverse, next);
            }
            for &junction in &line {
                let slot = self.insert(junction);
                self.slots.push(slot as u32);
            }
            if to < kmers {
                self.slots.push(room as u32);
            }
        }
    }

    #[inline]
    fn next(&self, forward: W, reverse: W, base: u8) -> (W, W) {
        let forward = forward.push(base) & W::mask(self.len);
        (forward, reverse >> 2 | W::from(3 - base) << (2 * (self.len - 1)))
    }

    #[inline]
    fn home(&self, key: W) -> usize {
        ((u128::from(mix(key.fold())) * self.keys.len() as u128) >> 64) as usize
    }

    #[inline]
    fn junction(&self, forward: W, reverse: W, sides: u8) -> Junction<W> {
        let key = forward.min(reverse);
        let sides = match forward.cmp(&reverse) {
            std::cmp::Ordering::Less => sides,
            std::cmp::Ordering::Greater => other_strand(sides),
            std::cmp::Ordering::Equal => PALINDROME,
        };
        Junction { key, home: self.home(key), sides }
    }

    /// Add bases to a junction; its slot.
    #[inline]
    fn insert(&mut self, Junction { key, home, sides }: Junction<W>) -> usize {
        let mut slot = home;
        loop {
            let there = self.keys[slot];
            if there == key {
                break;
            }
            if there == !W::default() {
                self.keys[slot] = key;
                break;
            }
            slot += 1;
            if slot == self.keys.len() {
                slot = 0;
            }
        }
        self.sides[slot] |= sides;
        slot
    }

    /// Which junctions of a record join the k-mers before and behind them, as bits; the record's slots begin
    /// at `first`.
    #[inline]
    pub fn joins(&self, first: usize, kmers: usize) -> u128 {
        let slots = &self.slots[first..=first + kmers];
        slots
            .iter()
            .enumerate()
            .fold(0, |bits, (at, &slot)| bits | u128::from(JOINS[self.sides[slot as usize] as usize]) << at)
    }

    /// What lies behind a junction, as read: nothing if it is not here.
    pub fn behind(&self, forward: W) -> Option<Behind> {
        let reverse = forward.revcomp(self.len);
        let key = forward.min(reverse);
        let mut slot = self.home(key);
        while self.keys[slot] != key {
            if self.keys[slot] == !W::default() {
                return None;
            }
            slot = (slot + 1) % self.keys.len();
        }
        let sides = if forward < reverse { self.sides[slot] } else { other_strand(self.sides[slot]) };
        Some(if JOINS[sides as usize] {
            Behind::Base((sides >> 4).trailing_zeros() as u8)
        } else {
            Behind::End
        })
    }
}

/// See [`Table::behind`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Behind {
    /// Nothing joins.
    End,
    /// The one k-mer before it joins the one behind it, which has this base.
    Base(u8),
}

/// The bases on both sides, read on the other strand.
#[inline]
fn other_strand(sides: u8) -> u8 {
    // Complement is 3 − base: four bits in the opposite order; so all eight bits in the opposite order swap
    // the sides too.
    sides.reverse_bits()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_other_strand_has_complements_on_other_sides() {
        for base in 0..4 {
            assert_eq!(other_strand(1 << base), 16 << (3 - base));
            assert_eq!(other_strand(16 << base), 1 << (3 - base));
        }
    }
}
