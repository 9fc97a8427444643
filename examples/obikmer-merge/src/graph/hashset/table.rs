//! The set of k-mers of one virtual partition, with one byte of flags each. Neighbours are found by probing for the
//! four k-mers on a side; no edge is stored.
//!
//! The hash of a k-mer is that of its inner k − 2 bases (canonical; their number is odd, so no inner word is its own
//! reverse complement). The four k-mers on one side of a junction have the same inner bases: the four probes are one
//! look into one group of the table.
//!
//! The table is much larger than the caches, so the time is that of waiting for memory. Hence nothing is looked up
//! at once: additions and looks go through a short queue and their group is prefetched meanwhile, and
//! [`walk`](super::walk) follows several paths in turn.

use std::cell::Cell;

use hashbrown::HashTable;

use super::walk::{Path, Walkers};
use crate::graph::mixer::mix;
use crate::sequence::kmer::Oriented;
use crate::sequence::word::Word;
use crate::sets::{EMPTY, Sets};
use crate::superkmer::store::{LOCAL_LEFT, LOCAL_RIGHT, OWNED};

/// In a path already.
pub(super) const VISITED: u8 = 8;
/// What a side joins: two bits for the left side, two for the right.
const LEFT_SHIFT: u8 = 4;
const RIGHT_SHIFT: u8 = 6;

/// Looks in flight.
const QUEUE: usize = 16;

/// What one side of a k-mer joins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Side {
    /// Not known here: the junction belongs to another partition.
    Foreign = 0,
    End = 1,
    JoinsOwned = 2,
    JoinsGhost = 3,
}

/// 16 bytes: the set's number lies where padding would be.
pub(super) struct Node<W> {
    pub kmer: W,
    pub set: u32,
    flags: Cell<u8>,
}

impl<W: Word> Node<W> {
    #[inline]
    fn shift(right: bool) -> u8 {
        if right { RIGHT_SHIFT } else { LEFT_SHIFT }
    }

    /// The right side of the k-mer in this direction.
    #[inline]
    pub fn right(&self, kmer: Oriented<W>) -> Side {
        match (self.flags.get() >> Self::shift(kmer.is_canonical())) & 3 {
            0 => Side::Foreign,
            1 => Side::End,
            2 => Side::JoinsOwned,
            _ => Side::JoinsGhost,
        }
    }

    #[inline]
    fn set_right(&self, kmer: Oriented<W>, side: Side) {
        let shift = Self::shift(kmer.is_canonical());
        self.flags.set(self.flags.get() & !(3 << shift) | (side as u8) << shift);
    }

    #[inline]
    pub fn has(&self, flag: u8) -> bool {
        self.flags.get() & flag != 0
    }

    /// Mark as being in a path; was it already?
    #[inline]
    pub fn visit(&self) -> bool {
        let before = self.has(VISITED);
        self.flags.set(self.flags.get() | VISITED);
        before
    }

    fn joined_by(&self) -> Side {
        if self.has(OWNED) { Side::JoinsOwned } else { Side::JoinsGhost }
    }
}

/// See the module.
pub struct KmerSet<W> {
    k: usize,
    nodes: HashTable<Node<W>>,
    queue: Vec<(Oriented<W>, u8, u32)>,
    next: usize,
    groups: Groups,
}

/// The hash of a k-mer.
#[inline]
fn hash<W: Word>(kmer: Oriented<W>, k: usize) -> u64 {
    let inner = W::mask(k - 2);
    mix(((kmer.forward >> 2) & inner).min((kmer.reverse >> 2) & inner).fold())
}

/// The hash of the k-mers on the other side of the junction on the right of a k-mer: their inner bases are the junction
/// without its first.
#[inline]
fn hash_right<W: Word>(kmer: Oriented<W>, k: usize) -> u64 {
    mix((kmer.forward & W::mask(k - 2)).min(kmer.reverse >> 4).fold())
}

impl<W: Word> KmerSet<W> {
    /// An empty graph.
    pub fn new(k: usize) -> Self {
        let nodes = HashTable::new();
        let groups = Groups::of(&nodes);
        Self { k, nodes, queue: Vec::with_capacity(QUEUE), next: 0, groups }
    }

    /// Length of the k-mers.
    pub(super) fn k(&self) -> usize {
        self.k
    }

    pub(super) fn nodes(&self) -> impl Iterator<Item = &Node<W>> {
        self.nodes.iter()
    }

    fn insert(&mut self, (kmer, marks, source): (Oriented<W>, u8, u32), sets: &mut Sets) {
        let (k, canonical) = (self.k, kmer.canonical());
        let buckets = self.nodes.num_buckets();
        let node = self
            .nodes
            .entry(hash(kmer, k), |node| node.kmer == canonical, |node| hash(Oriented::new(node.kmer, k), k))
            .or_insert_with(|| Node { kmer: canonical, set: EMPTY, flags: Cell::new(marks) })
            .into_mut();
        node.set = sets.with(node.set, source);
        if self.nodes.num_buckets() != buckets {
            self.groups = Groups::of(&self.nodes);
        }
    }

    /// Have the k-mers on the right of this one brought into the cache.
    #[inline]
    pub(super) fn prefetch_right(&self, kmer: Oriented<W>) {
        self.groups.prefetch(hash_right(kmer, self.k));
    }

    /// The first k-mer on the right of this one, read in the same direction.
    #[inline]
    pub(super) fn next(&self, kmer: Oriented<W>) -> Option<(&Node<W>, Oriented<W>)> {
        self.successors(kmer).next()
    }

    /// The k-mers on the right of this one: its junction, and a base.
    #[inline]
    fn successors(&self, kmer: Oriented<W>) -> impl Iterator<Item = (&Node<W>, Oriented<W>)> {
        let k = self.k;
        let (junction, reverse) = (kmer.forward & W::mask(k - 1), kmer.reverse >> 2);
        self.nodes.iter_hash(hash_right(kmer, k)).filter_map(move |node| {
            let base = if node.kmer >> 2 == junction {
                node.kmer.last()
            } else if node.kmer & W::mask(k - 1) == reverse {
                3 - (node.kmer >> (2 * (k - 1))).last()
            } else {
                return None;
            };
            Some((node, kmer.right(base, k)))
        })
    }

    /// Find out what the right side of a k-mer joins, and note it on both sides.
    fn join(&self, node: &Node<W>, kmer: Oriented<W>) {
        if node.right(kmer) != Side::Foreign {
            return;
        }
        let mut side = Side::End;
        // At a junction that is its own reverse complement the k-mer meets itself: alone it is a hairpin, with others a
        // branch.
        if !kmer.right_is_palindrome(self.k) {
            let mut successors = self.successors(kmer);
            if let (Some((other, next)), None) = (successors.next(), successors.next())
                && self.successors(next.flipped()).nth(1).is_none()
            {
                side = other.joined_by();
                other.set_right(next.flipped(), node.joined_by());
            }
        }
        node.set_right(kmer, side);
    }
}

impl<W: Word> KmerSet<W> {
    /// Add a k-mer of a source; marks are those of [`store`](crate::superkmer::store), for its canonical text. Sources come in
    /// ascending order.
    #[inline]
    pub fn add(&mut self, kmer: Oriented<W>, marks: u8, source: u32, sets: &mut Sets) {
        self.groups.prefetch(hash(kmer, self.k));
        if self.queue.len() < QUEUE {
            self.queue.push((kmer, marks, source));
            return;
        }
        let oldest = std::mem::replace(&mut self.queue[self.next], (kmer, marks, source));
        self.next = (self.next + 1) % QUEUE;
        self.insert(oldest, sets);
    }

    /// All k-mers are in; to be called before anything below.
    pub fn seal(&mut self, sets: &mut Sets) {
        let mut queue = std::mem::take(&mut self.queue);
        queue.rotate_left(self.next);
        self.next = 0;
        for waiting in queue {
            self.insert(waiting, sets);
        }
    }

    /// All ghosts.
    pub fn ghosts(&self, each: &mut dyn FnMut(W)) {
        self.nodes().filter(|node| !node.has(OWNED)).for_each(|node| each(node.kmer));
    }

    /// Every path once, in any order and direction; and every pair of ghosts that join. To be called once.
    pub fn paths(&self, path: &mut dyn FnMut(Path<'_, W>), ghosts: &mut dyn FnMut(W, W)) {
        // What every side joins; looks wait in a queue for their group.
        let mut queue: [Option<(&Node<W>, Oriented<W>)>; QUEUE] = [None; QUEUE];
        let mut next = 0;
        for node in self.nodes() {
            let canonical = Oriented::new(node.kmer, self.k);
            for (local, kmer) in [(LOCAL_RIGHT, canonical), (LOCAL_LEFT, canonical.flipped())] {
                if node.has(local) && node.right(kmer) == Side::Foreign {
                    self.prefetch_right(kmer);
                    if let Some((node, kmer)) = queue[next].replace((node, kmer)) {
                        self.join(node, kmer);
                    }
                    next = (next + 1) % QUEUE;
                }
            }
        }
        for (node, kmer) in queue.into_iter().flatten() {
            self.join(node, kmer);
        }
        Walkers::new(self, path).run();
        for node in self.nodes().filter(|node| !node.has(OWNED)) {
            let canonical = Oriented::new(node.kmer, self.k);
            for kmer in [canonical, canonical.flipped()] {
                if node.right(kmer) == Side::JoinsGhost
                    && let Some((other, _)) = self.next(kmer)
                    && node.kmer < other.kmer
                {
                    ghosts(node.kmer, other.kmer);
                }
            }
        }
    }
}

/// Where the groups of a table lie in memory, for prefetching.
///
/// hashbrown does not say; the layout (buckets downwards from the control bytes) is taken from one of its buckets. Were
/// it another in a later version, prefetches would bring the wrong lines: slower, never wrong.
struct Groups {
    control: usize,
    mask: usize,
    node: usize,
}

impl Groups {
    fn of<W>(table: &HashTable<Node<W>>) -> Self {
        let bucket = table.iter_buckets().next().and_then(|i| Some((i, table.get_bucket(i)?)));
        let control =
            bucket.map_or(0, |(i, node)| std::ptr::from_ref(node) as usize + (i + 1) * size_of::<Node<W>>());
        Self { control, mask: table.num_buckets().saturating_sub(1), node: size_of::<Node<W>>() }
    }

    #[inline]
    fn prefetch(&self, hash: u64) {
        let at = hash as usize & self.mask;
        prefetch(self.control.wrapping_add(at));
        let first = self.control.wrapping_sub((at + 1) * self.node);
        prefetch(first);
        prefetch(first.wrapping_sub(64));
    }
}

#[inline]
fn prefetch(address: usize) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch of any address, valid or not, has no effect but on the caches.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(std::ptr::without_provenance(address)) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_no_larger_than_seed_000_says() {
        assert_eq!(size_of::<Node<u64>>(), 16);
    }
}
