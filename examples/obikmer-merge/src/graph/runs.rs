//! Pieces read off the super-k-mers themselves.
//!
//! A super-k-mer is a path of the graph; the junctions in it at which nothing joins cut it into runs. A run
//! that ends at such junctions, or where the partition ends, on both sides is a whole piece: no k-mer has to
//! be looked up. All runs of one piece begin with the same k-mer, so sorting them by it merges them, and puts
//! the pieces in order. Only a run that ends because its sequence ends while the graph goes on has to be
//! followed (1 or 2 % of all).

use std::collections::HashMap;

use super::distinct::{Distinct, FOREIGN, Meta};
use super::table::{Behind, Table};
use super::text::{Text, Texts};
use crate::graph::Mixer;
use crate::pieces::{Assembly, Stop};
use crate::sequence::cycle;
use crate::sequence::kmer::Oriented;
use crate::sequence::minimizer::{Partitions, of_mmer, of_word};
use crate::sequence::packed;
use crate::sets::{EMPTY, Sets};

/// In the number of a run's record: it is that of a walk.
const WALK: u32 = 1 << 31;

/// A run of k-mers.
#[derive(Clone, Copy)]
struct Run<W> {
    /// The first k-mer of the piece's canonical text.
    key: W,
    /// Its super-k-mer.
    record: u32,
    /// Its first k-mer there, and behind the last.
    from: u8,
    to: u8,
    /// What follows on the left: a ghost joins.
    ghosts: [bool; 2],
}

/// A piece that was followed through the table.
struct Walk<W> {
    /// Its canonical text.
    codes: Vec<u8>,
    /// The sources of each k-mer.
    sets: Vec<u32>,
    stops: [Stop<W>; 2],
    cyclic: bool,
}

/// Reads pieces; keeps its buffers.
pub struct Runs<W: Texts> {
    k: usize,
    m: usize,
    partitions: Partitions,
    home: usize,
    runs: Vec<Run<W>>,
    walks: Vec<Walk<W>>,
    /// Where the k-mers of walks are.
    walked: HashMap<W, (u32, u32), Mixer>,
}

impl<W: Texts> Runs<W> {
    pub fn new(k: usize, m: usize, partitions: Partitions) -> Self {
        Self { k, m, partitions, home: 0, runs: Vec::new(), walks: Vec::new(), walked: HashMap::default() }
    }

    /// All pieces of virtual partition `home`, in order, and its ghosts.
    pub fn read(
        &mut self,
        home: usize,
        distinct: &Distinct<W>,
        table: &Table<W>,
        sets: &mut Sets,
        out: &mut Assembly<W>,
    ) -> crate::Result<()> {
        self.home = home;
        self.runs.clear();
        self.walks.clear();
        self.walked.clear();
        let mut first = 0;
        for (record, (&text, &meta)) in distinct.texts.iter().zip(&distinct.metas).enumerate() {
            let joins = table.joins(first, meta.kmers as usize);
            first += meta.kmers as usize + 1;
            self.cut(record as u32, text, meta, joins, table, sets, out);
        }
        self.runs.sort_unstable_by_key(|run| run.key);
        let runs = std::mem::take(&mut self.runs);
        for group in runs.chunk_by(|a, b| a.key == b.key) {
            self.emit(group, distinct, sets, out)?;
        }
        self.runs = runs;
        Ok(())
    }

    /// The runs of one super-k-mer.
    #[expect(clippy::too_many_arguments, reason = "what a super-k-mer is, and where its runs go")]
    fn cut(
        &mut self,
        record: u32,
        text: W::Text,
        meta: Meta,
        joins: u128,
        table: &Table<W>,
        sets: &mut Sets,
        out: &mut Assembly<W>,
    ) {
        let k = self.k;
        let kmers = meta.kmers as usize;
        let ghosts = [meta.is_ghost(false), meta.is_ghost(true)];
        for (right, at) in [(false, 0), (true, kmers - 1)] {
            if ghosts[usize::from(right)] {
                let rank = self.owner_at_end(text, kmers, right);
                out.ghost(Oriented::new(text.word(at, k), k).canonical(), rank);
            }
        }
        let joined = |junction: usize| joins >> junction & 1 != 0;
        let mut from = 0;
        while from < kmers {
            // Behind the last k-mer of the run: no further than where nothing joins.
            let rest = !(joins >> (from + 1));
            let mut to = (from + 1 + rest.trailing_zeros() as usize).min(kmers);
            let next = to;
            let mut begin = from;
            let ghost_left = begin == 0 && ghosts[0];
            let ghost_right = to == kmers && ghosts[1];
            begin += usize::from(ghost_left);
            to -= usize::from(ghost_right);
            from = next;
            // A sequence's end where the graph goes on.
            let open_left = begin == 0 && !ghost_left && meta.end(false) & FOREIGN == 0 && joined(0);
            let open_right = to == kmers && !ghost_right && meta.end(true) & FOREIGN == 0 && joined(kmers);
            if begin >= to {
                self.lone_ghosts(text, kmers, (begin, to), [ghost_left, ghost_right], joins, table, out);
                continue;
            }
            if open_left || open_right {
                self.follow(text, begin, to, meta.set, table, sets);
                continue;
            }
            let left = text.word(begin, k);
            let right = text.word(to - 1, k).revcomp(k);
            let run = Run {
                key: left.min(right),
                record,
                from: begin as u8,
                to: to as u8,
                ghosts: [ghost_left, ghost_right],
            };
            self.runs.push(run);
        }
    }

    /// The rank that owns the ghost at one end: its own minimizer is the m-mer that its local junction has
    /// not.
    #[inline]
    fn owner_at_end(&self, text: W::Text, kmers: usize, right: bool) -> u32 {
        let m = self.m;
        let at = if right { kmers + self.k - 1 - m } else { 0 };
        let word = text.word(at, m);
        let hash = of_mmer(word.min(word.revcomp(m)).low());
        self.partitions.rank_of(self.partitions.virtual_of(hash)) as u32
    }

    /// A stretch of ghosts only: two that join make an empty piece; one whose sequence ends may join another.
    #[expect(clippy::too_many_arguments, reason = "what a super-k-mer is, and where its runs go")]
    fn lone_ghosts(
        &self,
        text: W::Text,
        kmers: usize,
        (begin, to): (usize, usize),
        ghosts: [bool; 2],
        joins: u128,
        table: &Table<W>,
        out: &mut Assembly<W>,
    ) {
        let k = self.k;
        let canonical = |at: usize| Oriented::new(text.word(at, k), k).canonical();
        if begin > to {
            // One k-mer, taken for both ends: it cannot be a ghost at both, for one of its junctions is here.
            return;
        }
        if ghosts == [true, true] {
            // Two neighbours that join: between them lies a junction of this partition.
            let pair = [(begin - 1, false), (to, true)]
                .map(|(at, right)| (canonical(at), self.owner_at_end(text, kmers, right)));
            out.pair(pair);
            return;
        }
        // One ghost alone in its run: does its sequence end at a junction that joins?
        let (kmer, open) = match ghosts {
            [true, _] => (text.word(0, k), kmers == 1 && joins >> kmers & 1 != 0),
            _ => (text.word(kmers - 1, k).revcomp(k), kmers == 1 && joins & 1 != 0),
        };
        if !open {
            return;
        }
        let ghost = Oriented::new(kmer, k);
        if let Some(Behind::Base(base)) = table.behind(ghost.forward & W::mask(k - 1)) {
            let next = ghost.right(base, k);
            if self.is_ghost(next, table) {
                let pair = [ghost, next].map(|g| (g.canonical(), self.owner(g.forward)));
                out.pair(pair);
            }
        }
    }

    fn owner(&self, kmer: W) -> u32 {
        self.partitions.rank_of(self.partitions.virtual_of(of_word(kmer, self.k, self.m))) as u32
    }

    /// Is a k-mer that was come to from the left owned by another virtual partition?
    fn is_ghost(&self, kmer: Oriented<W>, table: &Table<W>) -> bool {
        table.behind(kmer.forward & W::mask(self.k - 1)).is_none()
            && self.partitions.virtual_of(of_word(kmer.forward, self.k, self.m)) != self.home
    }

    /// Follow an incomplete run of owned k-mers, unless its piece was followed before; note its sources.
    fn follow(&mut self, text: W::Text, from: usize, to: usize, set: u32, table: &Table<W>, sets: &mut Sets) {
        let k = self.k;
        if !self.walked.contains_key(&Oriented::new(text.word(from, k), k).canonical()) {
            self.walk(text, from, table);
        }
        let mut kmer = Oriented::new(text.word(from, k), k);
        for at in from..to {
            if let Some(&(walk, place)) = self.walked.get(&kmer.canonical()) {
                let there = &mut self.walks[walk as usize].sets[place as usize];
                *there = sets.union(*there, set);
            }
            if at + 1 < to {
                kmer = kmer.right(text.base(at + k), k);
            }
        }
    }

    fn walk(&mut self, text: W::Text, from: usize, table: &Table<W>) {
        let k = self.k;
        // From one k-mer only: the run itself may go round a short circle several times.
        let mut codes: Vec<u8> = (from..from + k).map(|at| text.base(at)).collect();
        let first = W::from_codes(&codes);
        // To the right; then, on the other strand, to the left, which then is right.
        let right = self.go_on(&mut codes, first, table);
        let (stops, cyclic) = match right {
            None => ([Stop::End, Stop::End], true),
            Some(right) => {
                packed::reverse_complement(&mut codes);
                let end = W::from_codes(&codes[..k]);
                let left = self.go_on(&mut codes, end, table);
                ([right, left.unwrap_or(Stop::End)], false)
            }
        };
        let (codes, stops) = self.canonical_walk(codes, stops, cyclic);
        let number = self.walks.len() as u32;
        let kmers = codes.len() + 1 - k;
        let mut kmer = Oriented::new(W::from_codes(&codes[..k]), k);
        for place in 0..kmers {
            self.walked.insert(kmer.canonical(), (number, place as u32));
            if place + 1 < kmers {
                kmer = kmer.right(codes[place + k], k);
            }
        }
        let key = W::from_codes(&codes[..k]);
        self.runs.push(Run { key, record: WALK | number, from: 0, to: 0, ghosts: [false; 2] });
        self.walks.push(Walk { codes, sets: vec![EMPTY; kmers], stops, cyclic });
    }

    /// The canonical text, the stops turned with it.
    fn canonical_walk(
        &self,
        mut codes: Vec<u8>,
        mut stops: [Stop<W>; 2],
        cyclic: bool,
    ) -> (Vec<u8>, [Stop<W>; 2]) {
        let k = self.k;
        if cyclic {
            let kmers = codes.len() + 1 - k;
            return (cycle::canonical(&codes[..kmers], k), stops);
        }
        let last = W::from_codes(&codes[codes.len() - k..]).revcomp(k);
        if last < W::from_codes(&codes[..k]) {
            packed::reverse_complement(&mut codes);
            stops.swap(0, 1);
        }
        (codes, stops)
    }

    /// Extend a path to the right as far as it goes; `None` if it comes back to `first`, its first k-mer.
    fn go_on(&self, codes: &mut Vec<u8>, first: W, table: &Table<W>) -> Option<Stop<W>> {
        let k = self.k;
        let mut kmer = Oriented::new(W::from_codes(&codes[codes.len() - k..]), k);
        loop {
            match table.behind(kmer.forward & W::mask(k - 1)) {
                None => {
                    let junction = kmer.forward & W::mask(k - 1);
                    return Some(Stop::Foreign { kmer: kmer.canonical(), junction });
                }
                Some(Behind::End) => return Some(Stop::End),
                Some(Behind::Base(base)) => {
                    let next = kmer.right(base, k);
                    if next.forward == first {
                        return None;
                    }
                    if self.is_ghost(next, table) {
                        return Some(Stop::Ghost { kmer: next.canonical(), rank: self.owner(next.forward) });
                    }
                    codes.push(base);
                    kmer = next;
                }
            }
        }
    }

    /// The piece of these runs, which begin with the same k-mer.
    fn emit(
        &self,
        group: &[Run<W>],
        distinct: &Distinct<W>,
        sets: &mut Sets,
        out: &mut Assembly<W>,
    ) -> crate::Result<()> {
        let k = self.k;
        let mut set = EMPTY;
        let mut walk = None;
        for run in group {
            match run.record & WALK {
                0 => {
                    let other = distinct.metas[run.record as usize].set;
                    set = if set == other || set == EMPTY { other } else { sets.union(set, other) };
                }
                _ => walk = Some(&self.walks[(run.record & !WALK) as usize]),
            }
        }
        if let Some(walk) = walk {
            out.begin()?;
            for &own in &walk.sets {
                out.sets(1, sets.union(own, set));
            }
            out.bases().push(&walk.codes);
            out.end(walk.stops, walk.cyclic);
            return Ok(());
        }
        let run = group[0];
        let (text, meta) = (distinct.texts[run.record as usize], distinct.metas[run.record as usize]);
        let (from, to) = (run.from as usize, run.to as usize);
        let len = to - from + k - 1;
        let mut part = text.part(from, len);
        let turn = part.word(0, k) != run.key;
        let mut stops = [false, true].map(|right| {
            let (at, at_end) = if right { (to - 1, to == meta.kmers as usize) } else { (from, from == 0) };
            let beyond = if right { to } else { from.wrapping_sub(1) };
            if run.ghosts[usize::from(right)] {
                let kmer = Oriented::new(text.word(beyond, k), k).canonical();
                return Stop::Ghost { kmer, rank: self.owner_at_end(text, meta.kmers as usize, right) };
            }
            if !at_end || meta.end(right) & FOREIGN == 0 {
                return Stop::End;
            }
            let junction = text.word(if right { to } else { 0 }, k - 1);
            Stop::Foreign { kmer: Oriented::new(text.word(at, k), k).canonical(), junction }
        });
        if turn {
            part = part.revcomp(len);
            stops.swap(0, 1);
        }
        out.begin()?;
        out.sets((to - from) as u32, set);
        part.bytes(|bytes| out.bases().append(packed::Text::new(bytes, 0, len)));
        out.end(stops, false);
        Ok(())
    }
}
