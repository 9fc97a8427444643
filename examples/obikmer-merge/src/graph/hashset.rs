//! The graph of seed 000: a hash set of k-mers with one byte of flags each. Neighbours are found by four probes on
//! each side; no edge is stored.

use std::cell::Cell;
use std::hash::{BuildHasher, Hasher};

use hashbrown::HashMap;

use super::{Graph, Right};
use crate::kmer::Oriented;
use crate::sets::{EMPTY, Sets};
use crate::store::{LOCAL_LEFT, LOCAL_RIGHT, OWNED};

/// In a piece already.
const VISITED: u8 = 8;

/// A fixed hash of 64-bit words: one multiplication to 128 bits, folded. Not for keys an adversary chooses.
#[derive(Clone, Copy, Default)]
pub struct Mixer;

/// The hasher of [`Mixer`].
#[derive(Default)]
pub struct MixerState(u64);

impl BuildHasher for Mixer {
    type Hasher = MixerState;
    #[inline]
    fn build_hasher(&self) -> MixerState {
        MixerState(0)
    }
}

impl Hasher for MixerState {
    #[inline]
    fn write_u64(&mut self, word: u64) {
        let product = u128::from(word ^ self.0) * 0x9e37_79b9_7f4a_7c15;
        self.0 = (product >> 64) as u64 ^ product as u64;
    }

    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.write_u64(u64::from_le_bytes(word));
        }
    }

    #[inline]
    fn finish(&self) -> u64 {
        self.0
    }
}

struct Node {
    set: u32,
    flags: Cell<u8>,
}

/// See the module.
pub struct HashSetGraph {
    k: usize,
    nodes: HashMap<u64, Node, Mixer>,
    sets: Sets,
}

impl HashSetGraph {
    /// An empty graph.
    pub fn new(k: usize) -> Self {
        Self { k, nodes: HashMap::default(), sets: Sets::default() }
    }

    /// How many of the four k-mers on the right are there, up to two, and the last one found.
    #[inline]
    fn successors(&self, kmer: Oriented) -> (usize, Oriented) {
        let mut found = (0, kmer);
        for base in 0..4 {
            let next = kmer.right(base, self.k);
            if self.nodes.contains_key(&next.canonical()) {
                found = (found.0 + 1, next);
                if found.0 == 2 {
                    break;
                }
            }
        }
        found
    }
}

impl Graph for HashSetGraph {
    #[inline]
    fn add(&mut self, kmer: u64, marks: u8, source: u32) {
        let node = self.nodes.entry(kmer).or_insert(Node { set: EMPTY, flags: Cell::new(marks) });
        node.set = self.sets.with(node.set, source);
    }

    fn remove(&mut self, kmer: u64) {
        self.nodes.remove(&kmer);
    }

    fn len(&self) -> usize {
        self.nodes.len()
    }

    fn right(&self, kmer: Oriented) -> Right {
        let flags = self.nodes.get(&kmer.canonical()).map_or(0, |n| n.flags.get());
        let local = if kmer.is_canonical() { LOCAL_RIGHT } else { LOCAL_LEFT };
        if flags & local == 0 {
            return Right::Foreign;
        }
        // At a junction that is its own reverse complement the k-mer meets itself: alone it is a hairpin, with
        // others a branch.
        if kmer.right_is_palindrome(self.k) {
            return Right::End;
        }
        let (1, next) = self.successors(kmer) else { return Right::End };
        let (1, _) = self.successors(next.flipped()) else { return Right::End };
        let owned = self.nodes.get(&next.canonical()).is_some_and(|n| n.flags.get() & OWNED != 0);
        Right::Joins(next, owned)
    }

    fn visit(&self, kmer: u64) -> bool {
        match self.nodes.get(&kmer) {
            Some(node) => {
                let flags = node.flags.get();
                node.flags.set(flags | VISITED);
                flags & VISITED == 0
            }
            None => false,
        }
    }

    fn for_each(&self, each: &mut dyn FnMut(u64, u8)) {
        for (&kmer, node) in &self.nodes {
            each(kmer, node.flags.get() & (OWNED | LOCAL_LEFT | LOCAL_RIGHT));
        }
    }

    fn set_of(&self, kmer: u64) -> u32 {
        self.nodes.get(&kmer).map_or(EMPTY, |n| n.set)
    }

    fn sets(&self) -> &Sets {
        &self.sets
    }
}
