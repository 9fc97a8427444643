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

/// The bases on both sides read on the other strand: complement is 3 − base, four bits in the opposite order,
/// so all eight bits in the opposite order swap the sides too. As a table, for it is asked of every junction.
static OTHER_STRAND: [u8; 256] = {
    let mut table = [0; 256];
    let mut i = 0;
    while i < 256 {
        table[i] = (i as u8).reverse_bits();
        i += 1;
    }
    table
};

/// So many junctions are on their way into the table: until the first is looked at its place has come near.
const AHEAD: usize = 16;

/// A junction on its way into the table.
#[derive(Clone, Copy, Default)]
struct Junction<W> {
    key: W,
    home: usize,
    /// Which of all junctions it is.
    number: u32,
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
        self.slots.resize(junctions, room as u32);
        let len = self.len;
        let (keys, sides, slots) = (&mut self.keys[..], &mut self.sides[..], &mut self.slots[..]);
        let mut ahead = [Junction::default(); AHEAD];
        let (mut first, mut came) = (0, 0);
        for (&text, meta) in distinct.texts.iter().zip(&distinct.metas) {
            let kmers = meta.kmers as usize;
            let from = usize::from(meta.flags & FOREIGN != 0);
            let to = kmers - usize::from(meta.flags >> RIGHT & FOREIGN != 0);
            let mut forward = text.word(0, len);
            let mut reverse = forward.revcomp(len);
            let mut rest = text.behind(len);
            let mut before = 0;
            for at in 0..=to {
                let next = rest.first();
                if at >= from {
                    let behind = if at < kmers { 16u8 << next } else { 0 };
                    let number = (first + at) as u32;
                    let junction = Junction::new(forward, reverse, before | behind, number, keys.len());
                    prefetch::read(keys, junction.home);
                    prefetch::read(sides, junction.home);
                    let place = &mut ahead[came % AHEAD];
                    if came >= AHEAD {
                        slots[place.number as usize] = insert(keys, sides, *place) as u32;
                    }
                    *place = junction;
                    came += 1;
                }
                before = 1 << (forward >> (2 * (len - 1))).last();
                forward = forward.push(next) & W::mask(len);
                reverse = reverse >> 2 | W::from(3 - next) << (2 * (len - 1));
                rest = rest.behind(1);
            }
            first += kmers + 1;
        }
        for nth in came.saturating_sub(AHEAD)..came {
            let junction = ahead[nth % AHEAD];
            slots[junction.number as usize] = insert(keys, sides, junction) as u32;
        }
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
        let mut slot = home(key, self.keys.len());
        while self.keys[slot] != key {
            if self.keys[slot] == !W::default() {
                return None;
            }
            slot = (slot + 1) % self.keys.len();
        }
        let sides = self.sides[slot];
        let sides = if forward < reverse { sides } else { OTHER_STRAND[usize::from(sides)] };
        Some(if JOINS[sides as usize] {
            Behind::Base((sides >> 4).trailing_zeros() as u8)
        } else {
            Behind::End
        })
    }
}

impl<W: Texts> Junction<W> {
    /// That of a text and its reverse complement, in a table of so many places. Without a branch for the
    /// strand: nobody can guess it.
    #[inline]
    fn new(forward: W, reverse: W, sides: u8, number: u32, places: usize) -> Self {
        let turned = OTHER_STRAND[usize::from(sides)];
        let (key, sides) = if reverse < forward { (reverse, turned) } else { (forward, sides) };
        let sides = if forward == reverse { PALINDROME } else { sides };
        Self { key, home: home(key, places), number, sides }
    }
}

/// Where a junction is looked for first, of so many places.
#[inline]
fn home<W: Texts>(key: W, places: usize) -> usize {
    ((u128::from(mix(key.fold())) * places as u128) >> 64) as usize
}

/// Add bases to a junction; its slot.
#[inline]
fn insert<W: Texts>(keys: &mut [W], sides: &mut [u8], junction: Junction<W>) -> usize {
    let mut slot = junction.home;
    loop {
        let there = keys[slot];
        if there == junction.key {
            break;
        }
        if there == !W::default() {
            keys[slot] = junction.key;
            break;
        }
        slot += 1;
        if slot == keys.len() {
            slot = 0;
        }
    }
    sides[slot] |= junction.sides;
    slot
}

/// See [`Table::behind`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Behind {
    /// Nothing joins.
    End,
    /// The one k-mer before it joins the one behind it, which has this base.
    Base(u8),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_other_strand_has_complements_on_other_sides() {
        for base in 0..4 {
            assert_eq!(OTHER_STRAND[1 << base], 16 << (3 - base));
            assert_eq!(OTHER_STRAND[16 << base], 1 << (3 - base));
        }
    }
}
