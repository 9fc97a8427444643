//! Following paths: several in turn, so that while one waits for memory the others go on.
//!
//! A walker starts at an end of a path and goes to the other. Both ends may be started from, the second while the first
//! walker is still under way; then each finds its last k-mer visited, and the walker that began at the lower one reports
//! the path. A k-mer that no walker has visited in the end lies in a circle.

use super::table::{KmerSet, Node, Side, VISITED};
use crate::sequence::kmer::Oriented;
use crate::sequence::word::Word;
use crate::superkmer::store::OWNED;

/// Why a path of owned k-mers stops at one of its ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop<W> {
    /// Nothing joins: a dead end, a branch, or a hairpin.
    End,
    /// The junction belongs to another virtual partition, which knows. The k-mer at this end.
    Foreign(W),
    /// A k-mer joins that another virtual partition owns: this one.
    Ghost(W),
}

/// Owned k-mers that join one another, as far as they do.
pub struct Path<'a, W> {
    /// The first k-mer, then one base for each further one.
    pub codes: &'a [u8],
    /// The set of sources of each k-mer.
    pub sets: &'a [u32],
    /// What is at the left and at the right end; nothing if the last k-mer joins the first.
    pub stops: Option<[Stop<W>; 2]>,
}

/// Walkers under way.
const WALKERS: usize = 16;

/// One walker.
struct Walker<'a, W> {
    start: &'a Node<W>,
    node: &'a Node<W>,
    kmer: Oriented<W>,
    codes: Vec<u8>,
    sets: Vec<u32>,
    left: Stop<W>,
    active: bool,
}

/// All walkers of a graph.
pub(super) struct Walkers<'a, 'b, W> {
    graph: &'a KmerSet<W>,
    report: &'b mut dyn FnMut(Path<'_, W>),
    walkers: Vec<Walker<'a, W>>,
}

impl<'a, 'b, W: Word> Walkers<'a, 'b, W> {
    /// Paths go to `report`.
    pub fn new(graph: &'a KmerSet<W>, report: &'b mut dyn FnMut(Path<'_, W>)) -> Self {
        Self { graph, report, walkers: Vec::with_capacity(WALKERS) }
    }

    /// Follow all paths, then all circles.
    pub fn run(mut self) {
        let graph = self.graph;
        let mut at = 0;
        for node in graph.nodes().filter(|node| node.has(OWNED)) {
            let canonical = Oriented::new(node.kmer, graph.k());
            let right_goes_on = node.right(canonical) == Side::JoinsOwned;
            let left_goes_on = node.right(canonical.flipped()) == Side::JoinsOwned;
            if (right_goes_on && left_goes_on) || node.visit() {
                continue;
            }
            let kmer = if left_goes_on { canonical.flipped() } else { canonical };
            // The next walker that is free; those before it take a step.
            while !self.launch(at, node, kmer) {
                self.step(at);
                at = (at + 1) % WALKERS;
            }
        }
        while self.walkers.iter().any(|w| w.active) {
            for at in 0..self.walkers.len() {
                self.step(at);
            }
        }
        for node in graph.nodes().filter(|node| node.has(OWNED) && !node.has(VISITED)) {
            self.circle(node);
        }
    }

    /// Start walker `at`, if it is free.
    fn launch(&mut self, at: usize, node: &'a Node<W>, kmer: Oriented<W>) -> bool {
        if at == self.walkers.len() {
            let (codes, sets) = (Vec::new(), Vec::new());
            self.walkers.push(Walker {
                start: node,
                node,
                kmer,
                codes,
                sets,
                left: Stop::End,
                active: false,
            });
        }
        if self.walkers[at].active {
            return false;
        }
        let left = self.stop(node, kmer.flipped());
        let walker = &mut self.walkers[at];
        walker.begin(node, kmer, self.graph.k());
        walker.left = left;
        walker.active = true;
        self.graph.prefetch_right(kmer);
        true
    }

    /// One k-mer further.
    fn step(&mut self, at: usize) {
        let walker = &mut self.walkers[at];
        if !walker.active {
            return;
        }
        if walker.node.right(walker.kmer) == Side::JoinsOwned
            && let Some((node, next)) = self.graph.next(walker.kmer)
        {
            self.graph.prefetch_right(next);
            walker.go(node, next);
            return;
        }
        walker.active = false;
        let (start, end) = (walker.start, walker.node);
        let both_ends_started = !std::ptr::eq(start, end) && end.visit();
        if both_ends_started && end.kmer < start.kmer {
            return;
        }
        let right = self.stop(end, self.walkers[at].kmer);
        let walker = &self.walkers[at];
        let stops = Some([walker.left, right]);
        (self.report)(Path { codes: &walker.codes, sets: &walker.sets, stops });
    }

    /// What stops a path at the right side of a k-mer.
    fn stop(&self, node: &Node<W>, kmer: Oriented<W>) -> Stop<W> {
        match node.right(kmer) {
            Side::Foreign => Stop::Foreign(node.kmer),
            Side::JoinsGhost => match self.graph.next(kmer) {
                Some((ghost, _)) => Stop::Ghost(ghost.kmer),
                None => Stop::End,
            },
            Side::End | Side::JoinsOwned => Stop::End,
        }
    }

    fn circle(&mut self, start: &'a Node<W>) {
        let kmer = Oriented::new(start.kmer, self.graph.k());
        let (codes, sets) = (Vec::new(), Vec::new());
        let mut walker = Walker { start, node: start, kmer, codes, sets, left: Stop::End, active: true };
        walker.begin(start, kmer, self.graph.k());
        start.visit();
        while let Some((node, next)) = self.graph.next(walker.kmer) {
            if node.visit() {
                break;
            }
            walker.go(node, next);
        }
        (self.report)(Path { codes: &walker.codes, sets: &walker.sets, stops: None });
    }
}

impl<'a, W: Word> Walker<'a, W> {
    fn begin(&mut self, node: &'a Node<W>, kmer: Oriented<W>, k: usize) {
        (self.start, self.node, self.kmer) = (node, node, kmer);
        self.codes.clear();
        self.codes.extend((0..k).rev().map(|i| (kmer.forward >> (2 * i)).last()));
        self.sets.clear();
        self.sets.push(node.set);
    }

    fn go(&mut self, node: &'a Node<W>, kmer: Oriented<W>) {
        // Whether the last k-mer was visited before matters; the others are only told from circles.
        if node.right(kmer) == Side::JoinsOwned {
            node.visit();
        }
        (self.node, self.kmer) = (node, kmer);
        self.codes.push(kmer.forward.last());
        self.sets.push(node.set);
    }
}
