//! Communicators and collectives of ranks of several nodes: what is told of them, and what is done here for
//! members that are elsewhere.

use std::collections::{HashMap, VecDeque};

use bdrun_ipc::collective::{Arrival, Comm, FarComing};
use bdrun_ipc::far::{self, Change, Notice, Range};

use super::giving::Question;
use super::messages::{BESIDE, Coming, What};
use super::{Gateway, damaged, no_room};
use crate::nodes::book::{Effect, Event};
use crate::nodes::frame::{Entry, Frame};
use crate::nodes::transport::{Body, Result, Transport, TransportError};

/// A question of a rank for parts of several nodes.
pub(super) struct Asked {
    /// What it asked for, in its order: how many bytes, of which node.
    ranges: Vec<(u64, u32)>,
    /// Nodes that have not answered, and what those did that have.
    missing: usize,
    came: HashMap<u32, Vec<u8>>,
}

/// What came of a communicator from a node before it could be done. All that a node says of one is done in
/// order: what was said of a collective must not count for one of the next communicator of this number.
pub(super) struct Early {
    pub from: u32,
    pub comm: u32,
    pub frame: Frame,
    pub bytes: Vec<u8>,
}

impl Early {
    /// Must this be done before that?
    fn is_before(&self, later: &Self) -> bool {
        (self.from, self.comm) == (later.from, later.comm)
    }
}

impl<T: Transport> Gateway<T> {
    /// What ranks here have told.
    pub(super) fn heard(&self) -> Result<Vec<(u32, Notice)>> {
        let mut all = vec![];
        far::heard(&self.segment, &self.mail, &mut |rank, notice| all.push((rank, notice)))
            .map_err(damaged)?;
        Ok(all)
    }

    /// Does what that asks for.
    pub(super) fn act_on(&mut self, notices: Vec<(u32, Notice)>) -> Result<()> {
        for (rank, notice) in notices {
            let event = match notice {
                Notice::Opened { comm } => {
                    let made = Comm::at(&self.segment, comm).map_err(damaged)?;
                    let members = made.ranks(&self.segment).collect();
                    Event::Made { comm, members, asker: rank }
                }
                Notice::Closed { comm } => Event::ClosedHere(comm),
                Notice::Came { comm, number, member, awaited_by } => {
                    Event::Came { comm, number, member, awaited_by }
                }
                Notice::AllCame { comm, number } => Event::AllCame { comm, number },
                Notice::AllLeft { comm, number } => Event::AllLeft { comm, number },
                Notice::Wants { comm, number, ranges } => {
                    self.fetch(rank, comm, number, &ranges)?;
                    continue;
                }
                Notice::Word { comm, change } => {
                    let node = Comm::at(&self.segment, comm).map_err(damaged)?.holder(&self.segment);
                    let asked = Asked { ranges: vec![(8, node)], missing: 1, came: HashMap::new() };
                    self.asked.insert(rank, asked);
                    self.send(node, &Frame::Word { asker: rank, comm, change }, &[])?;
                    continue;
                }
            };
            self.carry_out(event)?;
        }
        Ok(())
    }

    pub(super) fn carry_out(&mut self, event: Event) -> Result<()> {
        let mut effects = vec![];
        self.book.handle(event, &mut effects);
        for effect in effects {
            match effect {
                Effect::TellOpen { node, comm, asker } => {
                    let made = Comm::at(&self.segment, comm).map_err(damaged)?;
                    let members = made.ranks(&self.segment).collect();
                    let context = made.context(&self.segment);
                    self.send(node, &Frame::Open { comm, context, members, asker }, &[])?;
                }
                Effect::Answer(rank) => self.answer(rank, &[])?,
                Effect::Open { node, comm, context, members, asker } => {
                    Comm::open_far(&self.segment, comm, context, &members).map_err(damaged)?;
                    self.send(node, &Frame::Opened(asker), &[])?;
                }
                Effect::TellClosed { node, comm } => self.send(node, &Frame::Closed(comm), &[])?,
                Effect::Free(comm) => Comm::at(&self.segment, comm).map_err(damaged)?.free(&self.segment),
                Effect::TellCome { node, comm, number, members } => {
                    self.tell_come(node, comm, number, members)?;
                }
                Effect::TellLeft { node, comm, number } => {
                    self.send(node, &Frame::Left { comm, number }, &[])?;
                }
            }
        }
        Ok(())
    }

    fn tell_come(&mut self, node: u32, comm: u32, number: u64, members: Vec<(u32, Vec<u32>)>) -> Result<()> {
        let at = Comm::at(&self.segment, comm).map_err(damaged)?;
        let (mut entries, mut bytes) = (vec![], vec![]);
        for (member, awaited_by) in members {
            let seen = at.see(&self.segment, &self.mail, number, member).map_err(damaged)?;
            let head = seen.head.len() as u32;
            entries.push(Entry { member, names: seen.names, len: seen.len, head, awaited_by });
            bytes.extend(seen.head);
        }
        self.send(node, &Frame::Come { comm, number, entries }, &bytes)
    }

    fn answer(&self, rank: u32, pieces: &[&[u8]]) -> Result<()> {
        self.segment.answer(rank).give(&self.segment, &self.mail, pieces).map_err(no_room(rank))?;
        self.wake(rank);
        Ok(())
    }

    /// Asks the nodes that have them for parts.
    fn fetch(&mut self, asker: u32, comm: u32, number: u64, ranges: &[Range]) -> Result<()> {
        if !is_permitted(ranges) {
            return Err(TransportError::Broken(format!(
                "rank {asker} asked for more of other nodes than it may"
            )));
        }
        let at = Comm::at(&self.segment, comm).map_err(damaged)?;
        let ranks: Vec<u32> = at.ranks(&self.segment).collect();
        let mut of: HashMap<u32, Vec<Range>> = HashMap::new();
        let mut asked = Vec::with_capacity(ranges.len());
        for range in ranges {
            let Some(&rank) = ranks.get(range.member as usize) else {
                return Err(TransportError::Broken(format!(
                    "rank {asker} asked for what member {} has",
                    range.member
                )));
            };
            let node = self.spread.node_of(rank);
            of.entry(node).or_default().push(*range);
            asked.push((range.len, node));
        }
        self.asked.insert(asker, Asked { ranges: asked, missing: of.len(), came: HashMap::new() });
        of.into_iter().try_for_each(|(node, ranges)| {
            self.send(node, &Frame::Fetch { asker, comm, number, ranges }, &[])
        })
    }

    /// Somebody elsewhere changes a word that is held here.
    pub(super) fn change_word(&mut self, from: u32, asker: u32, comm: u32, change: Change) -> Result<()> {
        let was = change.apply(Comm::at(&self.segment, comm).map_err(damaged)?.word(&self.segment));
        self.send(from, &Frame::Fetched { asker, body: 0 }, &was.to_le_bytes())
    }

    /// What another node wants of parts here: as soon as there is room for it on the way.
    pub(super) fn asks_for_parts(&mut self, from: u32, question: Question) -> Result<()> {
        if !is_permitted(&question.ranges) {
            return Err(TransportError::Broken(format!("node {from} asked for more than it may")));
        }
        self.giving.ask(from, question);
        self.give_parts().map(drop)
    }

    /// Answers what others have asked, as far as there is room for it on the way; whether it did anything.
    pub(super) fn give_parts(&mut self) -> Result<bool> {
        for node in 0..self.spread.nodes {
            self.giving.sent(node, self.transport.sent(node));
        }
        let mut any = false;
        // What is not answered by then was for ranks that are over.
        while self.said_last.is_none()
            && let Some((node, question)) = self.giving.next()
        {
            let number = self.give(node, &question)?;
            self.giving.gave(node, number, question.bytes());
            any = true;
            self.beat_if_due()?;
        }
        Ok(any)
    }

    /// Answers; the number of what was sent.
    fn give(&mut self, to: u32, question: &Question) -> Result<u64> {
        let Question { asker, of: (comm, number), ref ranges } = *question;
        let at = Comm::at(&self.segment, comm).map_err(damaged)?;
        let all = question.bytes();
        let read = |mut rest: &mut [u8]| -> Result<()> {
            for &Range { member, offset, len } in ranges {
                let (part, more) = std::mem::take(&mut rest).split_at_mut(len as usize);
                let offset = usize::try_from(offset).unwrap_or(usize::MAX);
                at.part(&self.segment, &self.mail, number, member, offset, part).map_err(damaged)?;
                rest = more;
            }
            Ok(())
        };
        self.sent += 1;
        if all < BESIDE {
            let frame = Frame::Fetched { asker, body: 0 }.encode_with(all as usize, read)?;
            return self.transport.send(to, frame);
        }
        let mut bytes = vec![0; all as usize];
        read(&mut bytes)?;
        let frame = Frame::Fetched { asker, body: all }.encode(&[]);
        // SAFETY: nothing is lent.
        unsafe { self.transport.send_with(to, frame, Body::Owned(bytes)) }
    }

    /// The parts that a rank here wants are on their way beside a frame.
    pub(super) fn expect_parts(&mut self, from: u32, asker: u32, len: u64) -> Result<()> {
        if len > far::MOST_WANTED {
            return Err(TransportError::Broken(format!("node {from} sent more than rank {asker} asked for")));
        }
        let mut bytes = vec![0u8; len as usize];
        // SAFETY: an allocation of its own, left alone until the body has come, or for good (`run`).
        unsafe { self.transport.expect(from, bytes.as_mut_ptr(), bytes.len()) }?;
        let what = What::Parts(asker, bytes);
        self.peers[from as usize].coming.push_back(Coming { what, awaits: true });
        Ok(())
    }

    pub(super) fn fetched(&mut self, from: u32, asker: u32, bytes: Vec<u8>) -> Result<()> {
        let wrong =
            || TransportError::Broken(format!("node {from} sent other parts than rank {asker} asked for"));
        let asked = self.asked.get_mut(&asker).ok_or_else(wrong)?;
        let expected: u64 = asked.ranges.iter().filter(|(_, node)| *node == from).map(|(len, _)| len).sum();
        if expected != bytes.len() as u64 || asked.came.insert(from, bytes).is_some() {
            return Err(wrong());
        }
        asked.missing = asked.missing.checked_sub(1).ok_or_else(wrong)?;
        if asked.missing > 0 {
            return Ok(());
        }
        let Some(Asked { ranges, came, .. }) = self.asked.remove(&asker) else { return Ok(()) };
        let mut rest: HashMap<u32, &[u8]> = came.iter().map(|(node, bytes)| (*node, &bytes[..])).collect();
        let mut pieces = Vec::with_capacity(ranges.len());
        for (len, node) in ranges {
            let of = rest.entry(node).or_default();
            let (piece, more) = of.split_at_checked(len as usize).ok_or_else(wrong)?;
            *of = more;
            pieces.push(piece);
        }
        self.answer(asker, &pieces)
    }

    /// Does at collectives what others have done there, as far as it can be done now.
    pub(super) fn retry(&mut self) -> Result<bool> {
        let mut any = false;
        let mut left: VecDeque<Early> = VecDeque::new();
        while let Some(early) = self.early.pop_front() {
            let waits = left.iter().any(|other| other.is_before(&early));
            if waits || !self.attend(early.from, &early.frame, &early.bytes)? {
                left.push_back(early);
            } else {
                any = true;
            }
        }
        self.early = left;
        Ok(any)
    }

    /// Whether it could be done.
    pub(super) fn attend(&mut self, from: u32, frame: &Frame, bytes: &[u8]) -> Result<bool> {
        match frame {
            Frame::Open { comm, context, members, asker } => {
                let (node, members) = (from, members.clone());
                let event = Event::Open { node, comm: *comm, context: *context, members, asker: *asker };
                self.carry_out(event)?;
            }
            Frame::Closed(comm) => self.carry_out(Event::Closed { node: from, comm: *comm })?,
            _ => return self.attend_collective(from, frame, bytes),
        }
        Ok(true)
    }

    fn attend_collective(&self, from: u32, frame: &Frame, bytes: &[u8]) -> Result<bool> {
        let segment = &self.segment;
        let mut wake = |rank| self.wake(rank);
        match frame {
            Frame::Come { comm, number, entries } => {
                let comm = Comm::at(segment, *comm).map_err(damaged)?;
                if !comm.is_now(segment, *number) {
                    return Ok(false);
                }
                let mut rest = bytes;
                for entry in entries {
                    let Some((head, more)) = rest.split_at_checked(entry.head as usize) else {
                        return Err(TransportError::Broken(format!(
                            "node {from} sent a part that is too short"
                        )));
                    };
                    rest = more;
                    let &Entry { member: rank, names, len, ref awaited_by, .. } = entry;
                    let coming = FarComing { number: *number, rank, names, awaited_by, len, head };
                    let sender = comm.ranks(segment).nth(rank as usize).unwrap_or(rank);
                    let arrival =
                        comm.arrive_far(segment, &self.mail, &coming, &mut wake).map_err(no_room(sender))?;
                    debug_assert_ne!(arrival, Arrival::TooEarly);
                }
            }
            Frame::Left { comm: index, number } => {
                let comm = Comm::at(segment, *index).map_err(damaged)?;
                if !comm.is_now(segment, *number) {
                    return Ok(false);
                }
                let count = self.book.count(*index, from);
                if comm.leave_far(segment, &self.mail, *number, count, &mut wake) {
                    self.gave_memory();
                }
            }
            _ => {}
        }
        Ok(true)
    }
}

/// Do these ask for no more than [`far::MOST_WANTED`]?
fn is_permitted(ranges: &[Range]) -> bool {
    let sum = ranges.iter().try_fold(0u64, |sum, range| sum.checked_add(range.len));
    sum.is_some_and(|sum| sum <= far::MOST_WANTED)
}
