//! Joining pieces across partitions by contraction: chains of pieces hand themselves over to their neighbours
//! until each is whole, in about log1.5(longest chain) exchanges of ever fewer messages.
//!
//! Each piece begins as a chain of one: a text and two links. In a round every chain compares a hash of its
//! number with those of the chains that its links lead to. The one that is lower than its neighbours goes: it
//! sends its text and its other link to one of them and the new link to the other. Neighbours of a chain that
//! goes do not go in the same round, and nobody has to ask anybody, because links hold the numbers that are
//! hashed. With fresh hashes in each round a third of what a long chain has left goes in each; all messages
//! together are linear in the number of pieces. A chain that has no link left, or is linked to itself, is a
//! unitig, and is given away.
//!
//! Texts that follow one another overlap by k − 1 bases, so a chain that goes sends one base for each k-mer,
//! in the receiver's direction. *Empty* pieces have no text to overlap with: they go before their neighbours,
//! always.
//!
//! When few are left, the [remainder] goes in three exchanges more.
//!
//! How many linked ends will be left after an exchange is known before it, from what stays and what the
//! messages close, so that none is spent on learning that all is done.
//!
//! What a rank holds: 20 bytes and its bases (2 bits each) for each chain that is left, and two bits for each
//! piece it began with; during a round the chains' new bases, 8 bytes for each of them, and the messages of
//! two rounds.

pub mod border;
mod left;
pub mod remainder;

use bdrun_worker::Communicator;

use crate::error::{Error, Result};
use crate::exchange::{Counted, Incoming, exchange};
use crate::join::border::{CLOSED, EMPTY, Link};
use crate::lookup::prefetch;
use crate::pieces::Pieces;
use crate::sequence::minimizer::order;
use crate::sequence::packed::{Packed, Text, words_for};
use left::Left;
use remainder::Place;

/// Bits of a rank in a message; the k-mers are above it.
const RANK_BITS: u32 = 20;
/// So many k-mers or more: the number is a word of its own.
const MANY: u32 = (1 << (32 - RANK_BITS)) - 1;
/// Words at the beginning of each rank's messages: ends of chains kept that are linked, and how many of any
/// rank's the messages close.
const HEAD: usize = 2;
/// The rank that puts the last chains in order.
const SOLVER: usize = 0;

/// What [`join`] did.
pub struct Joined {
    /// Exchanges it took.
    pub rounds: usize,
    /// Bytes this rank sent.
    pub bytes: u64,
    /// An error in the last step, which the other ranks do not know of.
    pub state: Result<()>,
}

/// Join all chains. `each` gets every unitig that ends up here, in either direction and if it is cyclic in
/// any rotation, with n + k − 1 bases for n k-mers; `report` is told how many chains are done with, of how
/// many. From `few` linked ends on the rest is put in order by one rank.
///
/// # Errors
/// A unitig of 2^32 k-mers or more, or more than 2^20 ranks.
pub fn join(
    comm: &Communicator,
    k: usize,
    pieces: Pieces,
    links: Vec<Link>,
    few: u64,
    each: &mut dyn FnMut(Text<'_>, bool),
    report: &dyn Fn(u64, u64),
) -> Result<Joined> {
    let size = comm.size();
    if size > 1 << RANK_BITS {
        return Err(Error::Limit(format!("{size} ranks: at most {} can join unitigs", 1 << RANK_BITS)));
    }
    let mut chains = Chains::new(comm.rank(), size, k, pieces, links);
    let total = chains.kmers.len() as u64;
    let mut joined = Joined { rounds: 0, bytes: 0, state: Ok(()) };
    let mut incoming = Incoming::nothing(size);
    loop {
        let outgoing = chains.round(incoming, each);
        incoming = joined.exchange(comm, outgoing)?;
        report(total - chains.kmers.len() as u64, total);
        let mut linked = 0u64;
        for rank in 0..size {
            let &[kept, closed, ..] = incoming.from(rank) else { return Err(malformed(rank)) };
            linked = linked.wrapping_add(u64::from(kept)).wrapping_sub(u64::from(closed));
        }
        if linked <= few {
            chains.few = true;
        }
        if chains.few && linked > 0 {
            let outgoing = chains.round(incoming, each);
            let told = joined.exchange(comm, outgoing)?;
            let outgoing = chains.answer(&told);
            let answers = joined.exchange(comm, outgoing)?;
            let outgoing = chains.give_texts(answers.from(SOLVER));
            incoming = joined.exchange(comm, outgoing)?;
            joined.state = remainder::assemble((0..size).map(|rank| incoming.from(rank)), each);
            report(total, total);
            return Ok(joined);
        }
        if linked == 0 {
            break;
        }
    }
    joined.state = chains.round(incoming, each).and_then(|_| match chains.kmers.len() {
        0 => Ok(()),
        left => Err(Error::Internal(format!("{left} chains are left after joining"))),
    });
    report(total, total);
    Ok(joined)
}

impl Joined {
    fn exchange(&mut self, comm: &Communicator, outgoing: Result<Counted>) -> Result<Incoming> {
        self.bytes += outgoing.as_ref().map_or(0, |o| 4 * o.len() as u64);
        self.rounds += 1;
        exchange(comm, outgoing)
    }
}

fn malformed(rank: usize) -> Error {
    Error::Internal(format!("malformed messages of chains from rank {rank}"))
}

/// What a chain hears from a neighbour that goes: where its end leads now, and the text that comes to that
/// end.
struct Message<'a> {
    end: u32,
    link: Link,
    kmers: u32,
    text: &'a [u32],
}

impl<'a> Message<'a> {
    /// Its number of words, with so many k-mers of text.
    fn words(kmers: u32) -> usize {
        3 + usize::from(kmers >= MANY) + words_for(kmers as usize)
    }

    fn read(words: &'a [u32]) -> Option<Self> {
        let &[end, far, place, ..] = words else { return None };
        let kmers = if place >> RANK_BITS == MANY { *words.get(3)? } else { place >> RANK_BITS };
        let rank = place & ((1 << RANK_BITS) - 1);
        let link = if far == u32::MAX { CLOSED } else { Link::from(rank) << 32 | Link::from(far) };
        let len = Self::words(kmers);
        Some(Self { end, link, kmers, text: words.get(len - words_for(kmers as usize)..len)? })
    }

    fn write(to: Link, link: Link, text: Text<'_>, words: &mut [u32]) {
        let kmers = text.len() as u32;
        words[0] = (to & !EMPTY) as u32;
        words[1] = link as u32;
        words[2] = (link >> 32) as u32 & ((1 << RANK_BITS) - 1) | kmers.min(MANY) << RANK_BITS;
        if kmers >= MANY {
            words[3] = kmers;
        }
        let head = words.len() - words_for(text.len());
        text.write(&mut words[head..]);
    }

    fn text(&self) -> Text<'a> {
        Text::new(bytemuck::cast_slice(self.text), 0, self.kmers as usize)
    }
}

/// For each chain and end, where in the incoming words its message begins; 0: there is none.
type Heard = Vec<[u32; 2]>;

/// The messages of a place some way on are brought near meanwhile: they came in another order.
#[inline]
fn look_ahead(incoming: &Incoming, messages: &Heard, place: usize) {
    const AHEAD: usize = 8;
    for &at in messages.get(place + AHEAD).into_iter().flatten() {
        prefetch::read(incoming.words(), at as usize);
    }
}

/// The message that begins there.
#[inline]
fn heard(incoming: &Incoming, at: u32) -> Option<Message<'_>> {
    if at == 0 { None } else { Message::read(&incoming.words()[at as usize..]) }
}

/// What is known of a round before its messages are written.
struct Plan {
    left: Left,
    /// Bases of those that are left.
    bases: usize,
    /// Words for each rank.
    counts: Vec<usize>,
    head: [u32; HEAD],
}

/// The chains of this rank that are left, in the order of their numbers; their texts follow one another.
struct Chains {
    rank: usize,
    size: usize,
    k: usize,
    left: Left,
    /// Two for each.
    links: Vec<Link>,
    kmers: Vec<u32>,
    texts: Packed,
    /// Pieces that were cyclic from the beginning.
    cyclic: Vec<u32>,
    seed: u64,
    /// Nobody goes any more: those that are left are told of to one rank.
    few: bool,
}

impl Chains {
    fn new(rank: usize, size: usize, k: usize, pieces: Pieces, links: Vec<Link>) -> Self {
        let count = links.len() / 2;
        let kmers = (0..count).map(|piece| pieces.kmers(piece, k)).collect();
        let mut left = Left::none(count);
        (0..count).for_each(|piece| left.insert(piece));
        left.count();
        Self {
            rank,
            size,
            k,
            left,
            links,
            kmers,
            texts: pieces.bases,
            cyclic: pieces.cyclic,
            seed: 0,
            few: false,
        }
    }

    /// One round: from the messages of the one before to those of the next.
    fn round(&mut self, incoming: Incoming, each: &mut dyn FnMut(Text<'_>, bool)) -> Result<Counted> {
        self.seed = order(self.seed);
        let heard = self.listen(&incoming)?;
        let plan = self.plan(&incoming, &heard)?;
        let outgoing = self.carry_out(&incoming, &heard, plan, each);
        self.cyclic = Vec::new();
        Ok(outgoing)
    }

    /// Find the chain of each message.
    fn listen(&self, incoming: &Incoming) -> Result<Heard> {
        let words = incoming.words();
        if words.len() > u32::MAX as usize {
            return Err(Error::Limit(
                "a rank's pieces are too many to join: run with more ranks (-np)".into(),
            ));
        }
        let mut heard: Heard = vec![[0; 2]; self.kmers.len()];
        for rank in 0..self.size {
            let range = incoming.range(rank);
            let mut at = range.start + HEAD;
            while at < range.end {
                let message = Message::read(&words[at..range.end]).ok_or_else(|| malformed(rank))?;
                let place = self.left.place(message.end as usize / 2).ok_or_else(|| malformed(rank))?;
                let slot = &mut heard[place][message.end as usize & 1];
                if *slot != 0 || (message.kmers > 0 && self.kmers[place] == 0) {
                    return Err(malformed(rank));
                }
                *slot = at as u32;
                at += Message::words(message.kmers);
            }
        }
        Ok(heard)
    }

    /// The number of a chain as a link to its left end.
    fn id(&self, piece: usize, place: usize) -> Link {
        let empty = if self.kmers[place] == 0 { EMPTY } else { 0 };
        ((self.rank as Link) << 32) | (2 * piece as Link) | empty
    }

    fn links(&self, place: usize) -> [Link; 2] {
        [self.links[2 * place], self.links[2 * place + 1]]
    }

    /// Its rank among its neighbours in this round: the lowest goes, and an empty one is lower than the
    /// others.
    #[inline]
    fn height(&self, link: Link) -> u64 {
        let hash = order((link & !(EMPTY | 1)) ^ self.seed) >> 1;
        if link & EMPTY == 0 { hash | 1 << 63 } else { hash }
    }

    /// Is it a unitig, and if so, a cyclic one?
    #[inline]
    fn whole(&self, id: Link, piece: usize, links: [Link; 2]) -> Option<bool> {
        if links == [CLOSED; 2] {
            return Some(self.cyclic.binary_search(&(piece as u32)).is_ok());
        }
        (links[0] == id | 1).then_some(true)
    }

    /// Does it go in this round?
    #[inline]
    fn goes(&self, id: Link, links: [Link; 2]) -> bool {
        let height = self.height(id);
        links.iter().all(|&link| link == CLOSED || height < self.height(link))
    }

    /// Take in what is said of links and lengths, decide each chain's fate, and count words and bases.
    fn plan(&mut self, incoming: &Incoming, messages: &Heard) -> Result<Plan> {
        let left = Left::none_of(&self.left);
        let mut plan = Plan { left, bases: 0, counts: vec![HEAD; self.size], head: [0; HEAD] };
        for (place, piece) in self.left.iter().enumerate() {
            look_ahead(incoming, messages, place);
            for (side, at) in messages[place].into_iter().enumerate() {
                if let Some(message) = heard(incoming, at) {
                    self.links[2 * place + side] = message.link;
                    let sum = self.kmers[place].checked_add(message.kmers);
                    self.kmers[place] =
                        sum.ok_or_else(|| Error::Limit("a unitig has more than 4 G k-mers".into()))?;
                }
            }
            let (kmers, links, id) = (self.kmers[place], self.links(place), self.id(piece, place));
            if self.whole(id, piece, links).is_some() {
                if kmers == 0 {
                    return Err(Error::Internal("a chain of nothing but empty pieces".into()));
                }
            } else if !self.few && self.goes(id, links) {
                for (side, text) in receivers(links) {
                    let words = plan.counts.get_mut((links[side] >> 32) as usize);
                    let words = words.ok_or_else(|| Error::Internal("a link to no rank".into()))?;
                    *words += Message::words(if text { kmers } else { 0 });
                    let far = links[1 - side];
                    // The receiver's end is closed, or leads to the receiver itself.
                    let closes = far == CLOSED || (far ^ links[side]) & !EMPTY == 1;
                    plan.head[1] += u32::from(closes);
                }
            } else {
                plan.left.insert(piece);
                plan.bases += self.bases(kmers);
                plan.head[0] += links.iter().filter(|&&l| l != CLOSED).count() as u32;
            }
        }
        if self.few {
            plan.counts[SOLVER] += plan.left.iter().count() * remainder::TOLD;
        }
        plan.left.count();
        Ok(plan)
    }

    /// The one rank's answer to what it was told.
    fn answer(&self, told: &Incoming) -> Result<Counted> {
        let mut counts = vec![0; self.size];
        if self.rank != SOLVER {
            return Ok(Counted::new(&counts));
        }
        let chains = |rank| told.from(rank).get(HEAD..).unwrap_or_default();
        let places = remainder::order((0..self.size).map(|rank| (rank, chains(rank))))?;
        for (rank, count) in counts.iter_mut().enumerate() {
            *count = chains(rank).len() / remainder::TOLD * remainder::ANSWER;
        }
        let mut outgoing = Counted::new(&counts);
        let mut places = places.into_iter();
        for rank in 0..self.size {
            for _ in 0..chains(rank).len() / remainder::TOLD {
                let place = places.next().ok_or_else(|| malformed(rank))?;
                place.write(outgoing.room(rank, remainder::ANSWER));
            }
        }
        Ok(outgoing)
    }

    /// The texts of all that are left to where the answers say.
    fn give_texts(&mut self, answers: &[u32]) -> Result<Counted> {
        let places: Option<Vec<Place>> = answers.chunks(remainder::ANSWER).map(Place::read).collect();
        let places = places.filter(|places| places.len() == self.kmers.len());
        let places = places.ok_or_else(|| malformed(SOLVER))?;
        let mut counts = vec![0; self.size];
        for (place, &kmers) in places.iter().zip(&self.kmers).filter(|(place, _)| place.has_text()) {
            let count = counts.get_mut(place.rank as usize).ok_or_else(|| malformed(SOLVER))?;
            *count += place.words(kmers, self.k);
        }
        let mut outgoing = Counted::new(&counts);
        let mut at = 0;
        for (place, &kmers) in places.iter().zip(&self.kmers) {
            let len = self.bases(kmers);
            if place.has_text() {
                let words = outgoing.room(place.rank as usize, place.words(kmers, self.k));
                place.send(Text::new(self.texts.bytes(), at, len), kmers, words);
            }
            at += len;
        }
        (self.texts, self.links, self.kmers) = (Packed::default(), Vec::new(), Vec::new());
        Ok(outgoing)
    }

    fn bases(&self, kmers: u32) -> usize {
        if kmers == 0 { 0 } else { kmers as usize + self.k - 1 }
    }

    /// Move texts: to those that stay, into messages, to `each`.
    fn carry_out(
        &mut self,
        incoming: &Incoming,
        messages: &Heard,
        plan: Plan,
        each: &mut dyn FnMut(Text<'_>, bool),
    ) -> Counted {
        let mut outgoing = Counted::new(&plan.counts);
        for rank in 0..self.size {
            outgoing.room(rank, HEAD).copy_from_slice(&plan.head);
        }
        let mut texts = Packed::with_capacity(plan.bases);
        let mut whole = Packed::default();
        let (mut at, mut kept) = (0, 0);
        for (place, piece) in self.left.iter().enumerate() {
            look_ahead(incoming, messages, place);
            let (links, kmers) = (self.links(place), self.kmers[place]);
            let came = messages[place].map(|at| heard(incoming, at).filter(|message| message.kmers > 0));
            let len = self.bases(kmers - came.iter().flatten().map(|m| m.kmers).sum::<u32>());
            let own = Text::new(self.texts.bytes(), at, len);
            at += len;
            let put_together = |to: &mut Packed| {
                if let Some(before) = &came[0] {
                    to.append(before.text());
                }
                to.append(own);
                if let Some(behind) = &came[1] {
                    to.append(behind.text());
                }
            };
            if plan.left.has(piece) {
                put_together(&mut texts);
                if self.few {
                    let words = outgoing.room(SOLVER, remainder::TOLD);
                    remainder::tell(piece as u32, kmers, links, words);
                }
                self.links[2 * kept..2 * kept + 2].copy_from_slice(&links);
                self.kmers[kept] = kmers;
                kept += 1;
                continue;
            }
            let text = if came.iter().all(Option::is_none) {
                own
            } else {
                whole.clear();
                put_together(&mut whole);
                whole.text()
            };
            match self.whole(self.id(piece, place), piece, links) {
                Some(cyclic) => each(text, cyclic),
                None => send(links, kmers, text, &mut outgoing),
            }
        }
        self.links.truncate(2 * kept);
        self.links.shrink_to_fit();
        self.kmers.truncate(kept);
        self.kmers.shrink_to_fit();
        self.texts = texts;
        self.left = plan.left;
        outgoing
    }
}

/// The messages of a chain that goes.
fn send(links: [Link; 2], kmers: u32, text: Text<'_>, outgoing: &mut Counted) {
    for (side, with_text) in receivers(links) {
        let link = links[side];
        // In the receiver's direction, and without what overlaps with it.
        let towards = (link & 1) as usize;
        let text = if side == towards { text.flipped() } else { text };
        let text = match (with_text, towards) {
            (false, _) => text.cut(0, 0),
            (true, 0) => text.cut(0, kmers as usize),
            (true, _) => text.cut(text.len() - kmers as usize, kmers as usize),
        };
        let words = outgoing.room((link >> 32) as usize, Message::words(text.len() as u32));
        Message::write(link, links[1 - side], text, words);
    }
}

/// The linked sides of a chain that goes, and to which of them its text goes.
fn receivers(links: [Link; 2]) -> impl Iterator<Item = (usize, bool)> {
    let first = usize::from(links[0] == CLOSED);
    (0..2).filter(move |&side| links[side] != CLOSED).map(move |side| (side, side == first))
}
