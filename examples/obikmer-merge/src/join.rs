//! Joining pieces across partitions: pointer doubling over all ranks, in as many exchanges as the longest chain has
//! bits.
//!
//! A piece knows, for each of its ends, the piece that lies 2^i pieces away in that direction. In a round it tells each
//! of the two about the other, and so every piece learns what lies 2^(i+1) away: one message, no question. Distances
//! are counted in k-mers. A direction is settled when it reaches the chain's outer end; a piece is settled when both
//! are. Each direction also carries the piece of lowest hash that it passes: when both directions know the same one,
//! they overlap, so the chain is a cycle, and that piece is its head.
//!
//! A chain's *head* is the one of its two outer ends (of a cycle's pieces) with the lower hash, and the rank that has it
//! writes the unitig. A settled piece sends its bases there in the next round's messages.

use bdrun_worker::Communicator;

use crate::border::{CLOSED, EMPTY, Link};
use crate::error::{Error, Result};
use crate::exchange::{Outgoing, exchange};
use crate::minimizer::order;
use crate::packed;
use crate::pieces::Pieces;

/// In a pointer: the chain's outer end is reached, and this is it.
const OUTER: u64 = 1 << 63;
/// No piece with text passed yet.
const NOTHING: u64 = u64::MAX;
/// In the length of a part: the unitig is cyclic.
const CYCLIC: u32 = 1 << 31;
/// Words of a message between pieces.
const MESSAGE: usize = 7;

/// What a piece knows of one direction.
#[derive(Clone, Copy)]
struct Reach {
    /// The end at which the piece 2^i away is entered, or the outer end.
    pointer: u64,
    /// The piece of lowest hash passed, as the end at which it is entered.
    lowest: u64,
    /// K-mers strictly between here and the pointer's piece; up to the outer end all of them.
    distance: u32,
    /// K-mers strictly between here and `lowest`.
    lowest_distance: u32,
}

/// Where a piece lies in its unitig.
#[derive(Clone, Copy)]
struct Place {
    /// The head's end; for a cycle, its left one.
    head: u64,
    /// K-mers before this piece; in a cycle, those between the head and it.
    position: u32,
    forward: bool,
    cyclic: bool,
}

/// A part of a unitig that this rank writes.
#[derive(Clone, Copy)]
pub struct Part {
    /// The head: a piece of this rank.
    pub head: u32,
    /// Its order within the unitig.
    pub position: u32,
    kmers: u32,
    /// Where its bases are: in the received texts, or, with the flags below, the piece here.
    at: u64,
}

const HERE: u64 = 1 << 63;
const BACKWARD: u64 = 1 << 62;

/// All chains, joined.
pub struct Joined {
    /// The head of each piece's unitig: rank in the upper half, piece in the lower.
    pub heads: Vec<u64>,
    /// The parts of this rank's unitigs, sorted by head and position.
    pub parts: Vec<Part>,
    /// Bases that came from other ranks.
    texts: Vec<u32>,
    /// Exchanges it took.
    pub rounds: usize,
}

impl Part {
    /// Is the unitig cyclic?
    pub fn cyclic(&self) -> bool {
        self.kmers & CYCLIC != 0
    }

    /// Number of k-mers.
    pub fn kmers(&self) -> u32 {
        self.kmers & !CYCLIC
    }
}

impl Joined {
    /// Append the codes of a part: its whole text if it comes first in a unitig that is not cyclic, otherwise one base
    /// for each k-mer.
    pub fn codes(&self, part: &Part, pieces: &Pieces, k: usize, out: &mut Vec<u8>) {
        if part.at & HERE != 0 {
            let piece = (part.at & 0xffff_ffff) as usize;
            piece_codes(pieces, piece, part.at & BACKWARD == 0, part.takes_all(), k, out);
        } else {
            let len = part.bases(k);
            let begin = part.at as usize;
            let words = &self.texts[begin..begin + len.div_ceil(16)];
            out.extend((0..len).map(|i| (words[i / 16] >> (30 - 2 * (i % 16))) as u8 & 3));
        }
    }
}

impl Part {
    fn takes_all(&self) -> bool {
        !self.cyclic() && self.position == 0
    }

    fn bases(&self, k: usize) -> usize {
        self.kmers() as usize + if self.takes_all() { k - 1 } else { 0 }
    }
}

/// The codes of a piece in one direction, all or without the first k − 1.
fn piece_codes(pieces: &Pieces, piece: usize, forward: bool, all: bool, k: usize, out: &mut Vec<u8>) {
    let (mut at, end) = (pieces.starts[piece] as usize, pieces.starts[piece + 1] as usize);
    let mut len = end - at;
    if !all {
        len -= k - 1;
        at += if forward { k - 1 } else { 0 };
    }
    let begin = out.len();
    packed::unpack(pieces.bases.bytes(), at, len, out);
    if !forward {
        packed::reverse_complement(&mut out[begin..]);
    }
}

/// The order of pieces: by a hash, so that heads are spread evenly.
fn lower(a: u64, b: u64) -> bool {
    order(a & !1) < order(b & !1)
}

struct Chains<'a> {
    rank: usize,
    k: usize,
    pieces: &'a Pieces,
    reach: Vec<[Reach; 2]>,
    settled: Vec<bool>,
    unsettled: usize,
    /// Pieces that still have something to tell.
    active: Vec<u32>,
    /// Settled in the last round: their texts travel in the next.
    fresh: Vec<(u32, Place)>,
    joined: Joined,
}

/// Join all chains. `report` is told how many pieces are settled, of how many.
pub fn join(
    comm: &Communicator,
    k: usize,
    pieces: &Pieces,
    links: Vec<Link>,
    report: &dyn Fn(u64, u64),
) -> Result<Joined> {
    let mut chains = Chains::new(comm.rank(), k, pieces, links);
    let total = chains.settled.len() as u64;
    let mut state = chains.settle();
    loop {
        report(total - chains.unsettled as u64, total);
        let outgoing = state.and_then(|()| chains.outgoing(comm.size()));
        let incoming = exchange(comm, outgoing)?;
        chains.joined.rounds += 1;
        let mut unsettled = 0;
        for rank in 0..comm.size() {
            let malformed = || Error::Internal(format!("malformed messages of pieces from rank {rank}"));
            let words = incoming.from(rank);
            let ([left, messages], rest) = words.split_first_chunk::<2>().ok_or_else(malformed)?;
            unsettled += u64::from(*left);
            let (messages, texts) =
                rest.split_at_checked(*messages as usize * MESSAGE).ok_or_else(malformed)?;
            for message in messages.chunks_exact(MESSAGE) {
                chains.receive(message).ok_or_else(malformed)?;
            }
            chains.receive_texts(texts).ok_or_else(malformed)?;
        }
        if unsettled == 0 {
            break;
        }
        state = chains.settle();
    }
    let mut joined = chains.joined;
    joined.parts.sort_unstable_by_key(|p| (p.head, p.position, p.at));
    // A cycle's head has no distance to itself: it comes first whatever lies at distance 0 from it.
    let mut begin = 0;
    while begin < joined.parts.len() {
        let head = joined.parts[begin].head;
        let group = joined.parts[begin..].partition_point(|p| p.head == head);
        if joined.parts[begin].cyclic() {
            let own = HERE | u64::from(head);
            joined.parts[begin..begin + group].sort_by_key(|p| (p.at != own, p.position));
        }
        begin += group;
    }
    Ok(joined)
}

impl<'a> Chains<'a> {
    fn new(rank: usize, k: usize, pieces: &'a Pieces, links: Vec<Link>) -> Self {
        let here = (rank as u64) << 32;
        let reach = links
            .chunks_exact(2)
            .enumerate()
            .map(|(piece, pair)| {
                [0, 1].map(|side| match pair[side] {
                    CLOSED => Reach {
                        pointer: OUTER | here | (2 * piece + side) as u64,
                        lowest: NOTHING,
                        distance: 0,
                        lowest_distance: 0,
                    },
                    link => Reach {
                        pointer: link & !EMPTY,
                        // An empty piece cannot be a head.
                        lowest: if link & EMPTY == 0 { link } else { NOTHING },
                        distance: 0,
                        lowest_distance: 0,
                    },
                })
            })
            .collect::<Vec<_>>();
        let joined = Joined { heads: vec![0; pieces.len()], parts: Vec::new(), texts: Vec::new(), rounds: 0 };
        let count = reach.len();
        Self {
            rank,
            k,
            pieces,
            reach,
            settled: vec![false; count],
            unsettled: count,
            active: (0..count as u32).collect(),
            fresh: Vec::new(),
            joined,
        }
    }

    fn kmers(&self, piece: usize) -> u32 {
        if piece < self.pieces.len() { self.pieces.kmers(piece, self.k) } else { 0 }
    }

    /// The id of a piece here, as its left end.
    fn id(&self, piece: usize) -> u64 {
        (self.rank as u64) << 32 | (2 * piece) as u64
    }

    /// Find the pieces that now know their place.
    fn settle(&mut self) -> Result<()> {
        for &piece in &self.active {
            let piece = piece as usize;
            if self.settled[piece] {
                continue;
            }
            let Some(place) = self.place(piece) else { continue };
            self.settled[piece] = true;
            self.unsettled -= 1;
            if place.position == u32::MAX {
                return Err(Error::Limit("a unitig has more than 4 G k-mers".into()));
            }
            if piece < self.pieces.len() {
                self.joined.heads[piece] = (place.head & !0xffff_ffff) | ((place.head & 0xffff_ffff) / 2);
                self.fresh.push((piece as u32, place));
            }
        }
        // Those of a cycle go on telling until all of it is settled.
        let reach = &self.reach;
        self.active.retain(|&piece| reach[piece as usize].iter().any(|r| r.pointer & OUTER == 0));
        Ok(())
    }

    fn place(&self, piece: usize) -> Option<Place> {
        let [left, right] = self.reach[piece];
        let me = self.id(piece);
        if left.pointer & right.pointer & OUTER != 0 {
            let heads = [left.pointer & !OUTER, right.pointer & !OUTER];
            let side = usize::from(order(heads[1]) < order(heads[0]));
            return Some(Place {
                head: heads[side],
                position: self.reach[piece][side].distance,
                forward: side == 0,
                cyclic: self.pieces.cyclic.binary_search(&(piece as u32)).is_ok(),
            });
        }
        if left.lowest == NOTHING || left.lowest & !1 != right.lowest & !1 {
            return None;
        }
        let head = left.lowest & !1;
        if piece < self.pieces.len() && (me == head || lower(me, head)) {
            return Some(Place { head: me, position: 0, forward: true, cyclic: true });
        }
        // Against the head's direction it is entered at its right end.
        let side = usize::from(left.lowest & 1 == 0);
        let back = self.reach[piece][side];
        Some(Place { head, position: back.lowest_distance, forward: side == 0, cyclic: true })
    }

    /// Messages of this round: how many pieces are unsettled, what pieces tell each other, and fresh texts.
    fn outgoing(&mut self, size: usize) -> Result<Outgoing> {
        let mut outgoing = Outgoing::new(size);
        for rank in 0..size {
            outgoing.to(rank).extend([self.unsettled as u32, 0]);
        }
        for &piece in &self.active {
            let piece = piece as usize;
            let kmers = self.kmers(piece);
            for side in 0..2 {
                let (to, about) = (self.reach[piece][side], self.reach[piece][1 - side]);
                if to.pointer & OUTER != 0 {
                    continue;
                }
                let words = outgoing.to((to.pointer >> 32) as usize);
                let own = to.distance.saturating_add(kmers);
                words[2] += 1;
                // The lowest of what the receiver did not pass yet: this piece it did.
                words.extend([
                    to.pointer as u32,
                    about.pointer as u32,
                    (about.pointer >> 32) as u32,
                    own.saturating_add(about.distance),
                    about.lowest as u32,
                    (about.lowest >> 32) as u32,
                    own.saturating_add(about.lowest_distance),
                ]);
            }
        }
        for (piece, place) in std::mem::take(&mut self.fresh) {
            self.send_text(piece as usize, place, &mut outgoing);
        }
        Ok(outgoing)
    }

    fn receive(&mut self, message: &[u32]) -> Option<()> {
        let wide = |i: usize| u64::from(message[i + 1]) << 32 | u64::from(message[i]);
        let end = message[0] as usize;
        let reach = &mut self.reach.get_mut(end / 2)?[end & 1];
        reach.pointer = wide(1);
        reach.distance = message[3];
        let lowest = wide(4);
        if lowest != NOTHING && (reach.lowest == NOTHING || lower(lowest, reach.lowest)) {
            reach.lowest = lowest;
            reach.lowest_distance = message[6];
        }
        Some(())
    }

    fn send_text(&mut self, piece: usize, place: Place, outgoing: &mut Outgoing) {
        let kmers = self.kmers(piece) | if place.cyclic { CYCLIC } else { 0 };
        let head = (place.head as u32) / 2;
        let to = (place.head >> 32) as usize;
        let mut part = Part { head, position: place.position, kmers, at: HERE | piece as u64 };
        if to == self.rank {
            part.at |= if place.forward { 0 } else { BACKWARD };
            self.joined.parts.push(part);
            return;
        }
        let mut codes = Vec::with_capacity(part.bases(self.k));
        piece_codes(self.pieces, piece, place.forward, part.takes_all(), self.k, &mut codes);
        let words = outgoing.to(to);
        words.extend([part.head, part.position, part.kmers]);
        words.extend(codes.chunks(16).map(|chunk| {
            chunk.iter().enumerate().fold(0, |word, (i, &c)| word | u32::from(c) << (30 - 2 * i))
        }));
    }

    fn receive_texts(&mut self, mut words: &[u32]) -> Option<()> {
        while !words.is_empty() {
            let ([head, position, kmers], rest) = words.split_first_chunk::<3>()?;
            let at = self.joined.texts.len() as u64;
            let part = Part { head: *head, position: *position, kmers: *kmers, at };
            let (text, rest) = rest.split_at_checked(part.bases(self.k).div_ceil(16))?;
            self.joined.texts.extend_from_slice(text);
            self.joined.parts.push(part);
            words = rest;
        }
        Some(())
    }
}
