//! Lanes: a [`ring`](crate::ring) from a process to a rank with which it often talks, beside that rank's
//! inbox. What goes by a lane is taken from no pool, is pushed by no compare-and-swap, and costs the receiver
//! a look at one cache line.
//!
//! A lane is made after some messages of a pair, as long as the rank has a place for one ([`LANES`]), most of
//! the budget is free, and all lanes together are few ([`Way::make`]). Its memory is counted for good, as
//! that of inbox nodes is; a rank without a lane loses nothing but time. Large payloads lie in the mail
//! either way: the lane has their places.
//!
//! Who waits looks at [`is_quiet`].

use std::sync::atomic::Ordering::SeqCst;

use crate::inbox::{self, Arrived, Mark};
use crate::mail::{Mail, Place};
use crate::pool::MOST_BYTES;
use crate::ring::{self, Damaged, Ends, LINE, Ring, Seen, Sender};
use crate::segment::Segment;
use crate::{Error, Result};

/// Most lanes that lead to a rank.
pub const LANES: u32 = 32;
/// Lines of one.
const LINES: usize = 256;
const LINES_BYTES: usize = LINES * LINE * 8;
const ENDS_BYTES: usize = LANES as usize * size_of::<Ends>();
/// Bytes of the segment for each rank: the ends of its lanes, then their lines.
pub(crate) const RANK_BYTES: usize = ENDS_BYTES + LANES as usize * LINES_BYTES;
const _: () = assert!(ENDS_BYTES.is_multiple_of(4096));

/// A lane is made at this message of a pair, or when there have been twice as many, and so on.
const WORTH: u32 = 8;
/// All lanes take at most this part of the budget.
const SHARE: u64 = 64;

/// So many bytes may lie in the mail for a receiver to fetch before its sender waits a moment for it: more
/// than a second-level cache, out of which another processor's reads are slower than out of that of all.
const AHEAD: u64 = 4 << 20;

fn damaged(rank: u32) -> impl Fn(Damaged) -> Error {
    move |Damaged| Error::Damaged(format!("a lane to rank {rank}"))
}

#[inline]
fn ring(segment: &Segment, to: u32, lane: u32) -> Ring<'_> {
    let begin = segment.offsets().lanes + to as usize * RANK_BYTES;
    let ends = segment.atomics(begin + lane as usize * size_of::<Ends>());
    Ring::new(segment.atomic_slice(begin + ENDS_BYTES + lane as usize * LINES_BYTES, LINES * LINE), ends)
}

#[inline]
fn count(segment: &Segment, rank: u32) -> u32 {
    segment.rank(rank).lanes.load(SeqCst).min(LANES)
}

/// By the receiver, before it sleeps: is there no message for it? Reads the segment and allocates nothing.
#[inline]
pub fn is_quiet(segment: &Segment, rank: u32) -> bool {
    inbox::is_empty(segment, rank)
        && (0..count(segment, rank)).all(|lane| ring(segment, rank, lane).is_empty())
}

/// By the receiver: so many bytes in the mail are not needed any more of which one of its lanes has told.
pub(crate) fn freed(segment: &Segment, [rank, lane]: [u32; 2], bytes: u64) {
    ring(segment, rank, lane).free_aside(bytes);
}

/// Bytes of all messages that went by lanes and not by the mail.
pub fn bytes(segment: &Segment) -> u64 {
    let of = |rank| (0..count(segment, rank)).map(move |lane| ring(segment, rank, lane).bytes());
    segment.here().flat_map(of).fold(0, u64::wrapping_add)
}

/// A process's way to a rank. What it sends there is sent here, by one thread at a time.
#[derive(Debug, Default)]
pub struct Way {
    /// Messages, while there is no lane.
    met: u32,
    lane: Option<u32>,
    sender: Sender,
}

impl Way {
    /// Sends a message, as [`inbox::push`] does: what that returns is found by the caller. `what` is context,
    /// source, tag and note.
    #[inline]
    pub fn send(
        &mut self,
        segment: &Segment,
        mail: &Mail,
        to: u32,
        what: [u32; 4],
        data: &[&[u8]],
    ) -> Result<u64> {
        let Some(lane) = self.lane else { return self.send_without(segment, mail, to, what, data) };
        let ring = ring(segment, to, lane);
        if let &[data] = data
            && self.sender.put(&ring, head_of(what), data, false).map_err(damaged(to))?
        {
            ring.count(data.len() as u64);
            return Ok(0);
        }
        self.send_otherwise(segment, mail, to, what, data)
    }

    /// Has the receiver so much to fetch already that a message of so many bytes may as well come later? What
    /// lies there long is in no cache any more.
    pub fn is_ahead(&self, segment: &Segment, to: u32, bytes: u64) -> bool {
        self.lane.is_some_and(|lane| self.sender.aside(&ring(segment, to, lane)) > bytes.max(AHEAD))
    }

    /// What is in pieces, is long, or finds no room.
    fn send_otherwise(
        &mut self,
        segment: &Segment,
        mail: &Mail,
        to: u32,
        what: [u32; 4],
        data: &[&[u8]],
    ) -> Result<u64> {
        let Some(lane) = self.lane else { return self.send_without(segment, mail, to, what, data) };
        let (ring, damaged) = (ring(segment, to, lane), damaged(to));
        let len: usize = data.iter().map(|piece| piece.len()).sum();
        if len <= ring.most() {
            let is_one = data.len() == 1;
            if !is_one && self.sender.put(&ring, head_of(what), &data.concat(), false).map_err(&damaged)? {
                ring.count(len as u64);
                return Ok(0);
            }
        } else if self.sender.has_room(&ring, size_of::<[u64; 3]>()).map_err(&damaged)? {
            let place = mail.put(segment, data)?;
            let [kind, offset] = place.to_words();
            let said = [len as u64, kind, offset].map(u64::to_ne_bytes);
            let put = self.sender.put(&ring, head_of(what), said.as_flattened(), true);
            if put != Ok(true) {
                mail.release(segment, &place);
                return Err(damaged(Damaged));
            }
            self.sender.put_aside(len as u64);
            return Ok(0);
        }
        self.send_outside(segment, mail, to, what, data, lane)
    }

    fn send_outside(
        &mut self,
        segment: &Segment,
        mail: &Mail,
        to: u32,
        what: [u32; 4],
        data: &[&[u8]],
        lane: u32,
    ) -> Result<u64> {
        let mark = Mark { lane, at: self.sender.go_outside() };
        let pushed = inbox::push_marked(segment, mail, to, what, data, Some(mark));
        if pushed.is_err() {
            self.sender.stay();
        }
        pushed
    }

    /// By the inbox, until there is a lane; that begins with a message that is marked, so that all before it
    /// are taken before any of the lane.
    fn send_without(
        &mut self,
        segment: &Segment,
        mail: &Mail,
        to: u32,
        what: [u32; 4],
        data: &[&[u8]],
    ) -> Result<u64> {
        self.met = self.met.saturating_add(1);
        // Who is elsewhere reads no lane.
        let is_worth = self.met >= WORTH && self.met.is_power_of_two() && segment.is_here(to);
        let made = if is_worth { Self::make(segment, to) } else { None };
        let Some((lane, unpaid)) = made else {
            return inbox::push_marked(segment, mail, to, what, data, None);
        };
        self.lane = Some(lane);
        Ok(unpaid + self.send_outside(segment, mail, to, what, data, lane)?)
    }

    /// A new lane, and bytes that the pool did not have for it.
    fn make(segment: &Segment, to: u32) -> Option<(u32, u64)> {
        let (header, pool) = (segment.header(), &segment.header().pool);
        let bytes = u64::from(header.lanes.load(SeqCst) + 1) * LINES_BYTES as u64;
        if !pool.is_ample() || pool.wanted() || bytes > pool.budget() / SHARE {
            return None;
        }
        let next = |lanes: u32| (lanes < LANES).then_some(lanes + 1);
        let lane = segment.rank(to).lanes.fetch_update(SeqCst, SeqCst, next).ok()?;
        header.lanes.fetch_add(1, SeqCst);
        let bytes = LINES_BYTES as u64 + if lane == 0 { ENDS_BYTES as u64 } else { 0 };
        Some((lane, if pool.grow_headers(bytes) { 0 } else { bytes }))
    }
}

fn head_of([context, source, tag, note]: [u32; 4]) -> ring::Head {
    [u64::from(context) << 32 | u64::from(source), u64::from(note) << 32 | u64::from(tag)]
}

/// A message that lies in a lane, and is the first there.
#[derive(Debug)]
pub struct Lying<'a> {
    /// Context number of the communicator.
    pub context: u32,
    /// Sender's rank in the communicator.
    pub source: u32,
    /// Tag.
    pub tag: u32,
    /// What the sender's front says of it.
    pub note: u32,
    /// Bytes of the payload.
    pub len: u64,
    segment: &'a Segment,
    lane: [u32; 2],
    ring: Ring<'a>,
    seen: Seen,
    /// Where the payload is, if not here.
    aside: Option<Place>,
}

impl<'a> Lying<'a> {
    #[inline]
    fn first(segment: &'a Segment, to: u32, lane: u32) -> Result<Option<Self>> {
        let (ring, damaged) = (ring(segment, to, lane), damaged(to));
        let Some(seen) = ring.peek().map_err(&damaged)? else { return Ok(None) };
        let (mut len, mut aside) = (seen.len as u64, None);
        if seen.is_aside {
            let mut bytes = [0; size_of::<[u64; 3]>()];
            ring.copy(&seen, 0, &mut bytes).map_err(&damaged)?;
            let mut words = [0; 3];
            for (word, bytes) in words.iter_mut().zip(bytes.as_chunks().0) {
                *word = u64::from_ne_bytes(*bytes);
            }
            len = words[0];
            if len > MOST_BYTES {
                return Err(damaged(Damaged));
            }
            aside = Some(Place::from_words([words[1], words[2]], len));
        }
        let [who, what] = seen.head;
        let (context, source, tag, note) = ((who >> 32) as u32, who as u32, what as u32, (what >> 32) as u32);
        let lane = [to, lane];
        Ok(Some(Self { context, source, tag, note, len, segment, lane, ring, seen, aside }))
    }

    /// Whether its payload lies in the mail.
    pub fn is_large(&self) -> bool {
        self.aside.is_some()
    }

    /// Copies bytes of the payload, from `offset` on.
    #[inline]
    pub fn read(&self, mail: &Mail, offset: u64, into: &mut [u8]) -> Result<()> {
        match &self.aside {
            None => self.ring.copy(&self.seen, offset as usize, into).map_err(damaged(self.lane[0])),
            Some(place) => mail.get(self.segment, place, offset, into),
        }
    }

    /// It is not needed any more. Whether memory was given back.
    #[inline]
    pub fn pass(self, mail: &Mail) -> bool {
        self.ring.pass(&self.seen);
        if let Some(place) = &self.aside {
            mail.release(self.segment, place);
            self.ring.free_aside(self.len);
        }
        self.aside.is_some()
    }

    /// One whose payload lies in the mail leaves the lane, and is the caller's.
    pub fn keep(self) -> Option<Arrived> {
        let place = self.aside?;
        self.ring.pass(&self.seen);
        Some(Arrived::by_lane([self.context, self.source, self.tag, self.note], self.len, place, self.lane))
    }
}

/// A message that came.
#[derive(Debug)]
pub enum Came<'a> {
    /// It is the caller's.
    Whole(Arrived),
    /// It is lent, and gone when the caller returns.
    Passing(&'a Lying<'a>),
}

/// By the receiver: the first message of the lanes, begun at the one with this number.
#[inline]
pub fn first(segment: &Segment, rank: u32, begin: u32) -> Result<Option<(u32, Lying<'_>)>> {
    let count = count(segment, rank);
    for nth in 0..count {
        let lane = (begin + nth) % count;
        if let Some(lying) = Lying::first(segment, rank, lane)? {
            return Ok(Some((lane, lying)));
        }
    }
    Ok(None)
}

/// By the receiver: takes what has come, in the order of each sender. After an error the rest is lost.
pub fn receive(segment: &Segment, mail: &Mail, rank: u32, take: &mut dyn FnMut(Came<'_>)) -> Result<()> {
    if !inbox::is_empty(segment, rank) {
        let mut all = vec![];
        inbox::drain(segment, rank, &mut all)?;
        for arrived in all {
            let Some(Mark { lane, at }) = arrived.mark else {
                take(Came::Whole(arrived));
                continue;
            };
            if lane >= count(segment, rank) {
                return Err(damaged(rank)(Damaged));
            }
            // What was written before it was sent is there: as much as there is room for.
            let ring = ring(segment, rank, lane);
            for _ in 0..LINES {
                if ring.has_passed(at) {
                    break;
                }
                let lying = Lying::first(segment, rank, lane)?.ok_or_else(|| damaged(rank)(Damaged))?;
                hand_over(lying, mail, take);
            }
            if !ring.has_passed(at) {
                return Err(damaged(rank)(Damaged));
            }
            take(Came::Whole(arrived));
            ring.took_outside();
        }
    }
    for lane in 0..count(segment, rank) {
        // What comes meanwhile has another time.
        for _ in 0..LINES {
            let Some(lying) = Lying::first(segment, rank, lane)? else { break };
            hand_over(lying, mail, take);
        }
    }
    Ok(())
}

fn hand_over(lying: Lying<'_>, mail: &Mail, take: &mut dyn FnMut(Came<'_>)) {
    if !lying.is_large() {
        take(Came::Passing(&lying));
        lying.pass(mail);
    } else if let Some(arrived) = lying.keep() {
        take(Came::Whole(arrived));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;

    use rustix::fs::{MemfdFlags, memfd_create};

    use super::*;

    fn job(budget: u64) -> (Segment, Mail) {
        let segment = Segment::create(3, budget, budget / 2, 2).unwrap();
        (segment, Mail::create(memfd_create("spill", MemfdFlags::CLOEXEC).unwrap()).unwrap())
    }

    fn data(number: u32, len: usize) -> Vec<u8> {
        (0..len).map(|at| (at as u32 * 3 + number) as u8).collect()
    }

    /// Everything that has come to rank 0: tags and bytes.
    fn receive(segment: &Segment, mail: &Mail) -> Result<Vec<(u32, Vec<u8>)>> {
        let mut all = vec![];
        receive_all(segment, mail, &mut all)?;
        Ok(all)
    }

    fn receive_all(segment: &Segment, mail: &Mail, all: &mut Vec<(u32, Vec<u8>)>) -> Result<()> {
        super::receive(segment, mail, 0, &mut |came| match came {
            Came::Whole(arrived) => {
                let mut bytes = vec![0; arrived.len as usize];
                assert_eq!((arrived.context, arrived.source, arrived.note), (7, 1, 5));
                let tag = arrived.tag;
                inbox::take(segment, mail, arrived, &mut bytes).unwrap();
                all.push((tag, bytes));
            }
            Came::Passing(lying) => {
                let mut bytes = vec![0; lying.len as usize];
                assert_eq!((lying.context, lying.source, lying.note), (7, 1, 5));
                lying.read(mail, 0, &mut bytes).unwrap();
                all.push((lying.tag, bytes));
            }
        })
    }

    fn send(segment: &Segment, mail: &Mail, way: &mut Way, tag: u32, data: &[&[u8]]) {
        assert_eq!(way.send(segment, mail, 0, [7, 1, tag, 5], data).unwrap(), 0);
    }

    /// Lengths on both sides of every bound, more than the lane has room for, in one piece and in several.
    #[test]
    fn nothing_overtakes_and_nothing_is_left() {
        let (segment, mail) = job(1 << 30);
        let (mut way, mut tag, mut all) = (Way::default(), 0, vec![]);
        let lens = [0, 1, 40, 41, 96, 97, 208, 209, 3568, 3569, 4096, 70_000];
        for round in 0..60 {
            for _ in 0..1 << (round % 10) {
                let data = data(tag, lens[tag as usize % lens.len()]);
                let (front, back) = data.split_at(data.len() / 2);
                let (one, pieces) = ([&data[..]], [front, back]);
                send(&segment, &mail, &mut way, tag, if tag % 3 == 0 { &pieces } else { &one });
                tag += 1;
            }
            assert!(!is_quiet(&segment, 0) && is_quiet(&segment, 2));
            while !is_quiet(&segment, 0) {
                receive_all(&segment, &mail, &mut all).unwrap();
            }
        }
        assert!(way.lane.is_some() && way.sender.has_room(&ring(&segment, 0, 0), 0).unwrap());
        let expected = (0..tag).map(|tag| (tag, data(tag, lens[tag as usize % lens.len()])));
        assert!(all.into_iter().eq(expected));
        let pool = &segment.header().pool;
        mail.give_spares_back(&segment);
        assert_eq!(pool.free(), (1 << 30) - pool.mail() as i64, "only lanes and nodes are left");
        let sent: usize = (0..tag).map(|tag| lens[tag as usize % lens.len()]).sum();
        assert_eq!(pool.messages().0 + bytes(&segment), sent as u64);
    }

    /// The same between two threads, as fast as they can.
    #[test]
    fn nothing_overtakes_between_threads() {
        const MESSAGES: u32 = 30_000;
        let (segment, mail) = job(1 << 30);
        let len = |tag: u32| {
            (tag.wrapping_mul(2_654_435_761) >> 16) as usize % if tag.is_multiple_of(64) { 6000 } else { 300 }
        };
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut way = Way::default();
                for tag in 0..MESSAGES {
                    let sent = way.send(&segment, &mail, 0, [7, 1, tag, 5], &[&data(tag, len(tag))]);
                    segment.header().pool.headers_paid(sent.unwrap());
                }
            });
            let (mut all, mut next) = (vec![], 0);
            while next < MESSAGES {
                receive_all(&segment, &mail, &mut all).unwrap();
                for (tag, bytes) in all.drain(..) {
                    assert!(tag == next && bytes == data(tag, len(tag)), "{tag} instead of {next}");
                    next += 1;
                }
            }
        });
        assert!(is_quiet(&segment, 0));
    }

    /// Where memory is short there is none, and each rank has so many places.
    #[test]
    fn lanes_are_few_and_counted() {
        let (segment, mail) = job(4 << 20);
        let pool = &segment.header().pool;
        let mut ways: Vec<Way> = (0..6).map(|_| Way::default()).collect();
        for tag in 0..WORTH {
            ways.iter_mut().for_each(|way| send(&segment, &mail, way, tag, &[b"x"]));
        }
        let made = ways.iter().filter(|way| way.lane.is_some()).count();
        assert_eq!(made as u64, (4 << 20) / SHARE / LINES_BYTES as u64);
        assert_eq!(pool.mail(), (made * LINES_BYTES + ENDS_BYTES) as u64 + inbox::HEADER_BLOCK);
        assert_eq!(receive(&segment, &mail).unwrap().len(), 6 * WORTH as usize);
        let (segment, _) = job(1 << 40);
        for nth in 0..LANES {
            assert_eq!(Way::make(&segment, 1).unwrap().0, nth);
        }
        assert!(Way::make(&segment, 1).is_none());
        assert!(segment.header().pool.take(1 << 39) && Way::make(&segment, 2).is_none(), "most is not free");
    }

    /// Nothing that another process leaves there makes a rank compute an index from it, or panic.
    #[test]
    fn a_damaged_lane_is_told() {
        let words = [0, 1, 31, 32, 255, 1 << 31, u64::from(u32::MAX), 1 << 40, MOST_BYTES + 1, u64::MAX];
        for nth in 0..4 * LINE {
            for word in words {
                let (segment, mail) = job(1 << 30);
                let mut way = Way::default();
                for tag in 0..WORTH + 3 {
                    send(&segment, &mail, &mut way, tag, &[&data(tag, if tag % 2 == 0 { 60 } else { 5000 })]);
                }
                let lines = segment.offsets().lanes + ENDS_BYTES;
                segment.atomics::<AtomicU64>(lines + nth * 8).store(word, SeqCst);
                // Whatever comes of it.
                let mut other = vec![];
                let _ = super::receive(&segment, &mail, 0, &mut |came| match came {
                    Came::Whole(arrived) => other.push(arrived.len),
                    Came::Passing(lying) => {
                        let _ = lying.read(&mail, 0, &mut vec![0; lying.len as usize]);
                    }
                });
            }
        }
        // A mark of a lane that is none, and of a place that was never written.
        for mark in [Mark { lane: 9, at: 0 }, Mark { lane: 0, at: 99 }] {
            let (segment, mail) = job(1 << 30);
            let mut way = Way::default();
            (0..WORTH).for_each(|tag| send(&segment, &mail, &mut way, tag, &[b"x"]));
            inbox::push_marked(&segment, &mail, 0, [7, 1, 0, 5], &[b"x"], Some(mark)).unwrap();
            assert!(matches!(receive(&segment, &mail), Err(Error::Damaged(text)) if text.contains("rank 0")));
        }
    }
}
