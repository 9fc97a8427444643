//! Messages between ranks of different nodes: out of the inboxes of those that are elsewhere, to their node
//! as it has room, and into the inboxes of those that are here.
//!
//! A long piece goes *beside* its frame, from where it lies in the mail of one node to where it will lie in
//! that of the other: MPI alone copies it. It comes after the frame, and so what comes behind it may be there
//! before it: that waits, as messages of a node are delivered in order.

use bdrun_ipc::inbox::{self, Arrived};
use bdrun_ipc::mail::Place;
use bdrun_ipc::segment::Waiting;

use super::{Gateway, damaged, no_room};
use crate::nodes::frame::Frame;
use crate::nodes::transport::{Body, Result, Transport, TransportError};

/// Bytes of messages that may be on their way to a node.
pub const WINDOW: u64 = 4 << 20;
/// Bytes of a message that are sent at a time.
const PIECE: u64 = 512 << 10;
/// What a message takes beside its bytes.
const HEADER: u64 = 256;
/// So long a piece goes beside its frame.
pub(super) const BESIDE: u64 = 16 << 10;

/// A message that leaves, and how much of it has.
pub(super) struct Leaving {
    to: u32,
    message: Arrived,
    sent: u64,
    /// The body that was lent last.
    lent: Option<u64>,
}

/// One whose pieces come: the next begins at `at`.
pub(super) struct Assembling {
    to: u32,
    what: [u32; 4],
    place: Place,
    at: u64,
}

/// What came of a node and is not done.
pub(super) struct Coming {
    pub what: What,
    /// Its body is still to come.
    pub awaits: bool,
}

pub(super) enum What {
    /// A short message.
    Short { to: u32, what: [u32; 4], bytes: Vec<u8> },
    /// Bytes of a piece for this rank that lie in the mail, or will once they are copied there; of a message
    /// that is now whole: what it is.
    Piece { to: u32, len: u64, place: Place, copy: Option<(u64, Vec<u8>)>, whole: Option<[u32; 4]> },
    /// Parts of collectives, for this rank.
    Parts(u32, Vec<u8>),
}

/// A piece of a message, as its frame says.
pub(super) struct Piece {
    pub to: u32,
    pub what: [u32; 4],
    pub len: u64,
    pub offset: u64,
    pub body: u64,
}

impl<T: Transport> Gateway<T> {
    /// Messages that ranks here have sent to others.
    pub(super) fn collect(&mut self) -> Result<bool> {
        let mut any = false;
        let ranks: Vec<u32> = self.segment.outward().take().collect();
        for to in ranks {
            let mut all = vec![];
            inbox::drain(&self.segment, to, &mut all).map_err(damaged)?;
            let peer = &mut self.peers[self.spread.node_of(to) as usize];
            any |= !all.is_empty();
            let leaving = |message| Leaving { to, message, sent: 0, lent: None };
            peer.leaving.extend(all.into_iter().map(leaving));
        }
        Ok(any)
    }

    /// Sends a node what it has room for.
    pub(super) fn flush(&mut self, node: u32) -> Result<bool> {
        let mut any = self.free_what_is_sent(node);
        // What has not gone by then was for ranks that are over.
        while self.said_last.is_none() {
            let peer = &mut self.peers[node as usize];
            let Some(leaving) = peer.leaving.front_mut() else { break };
            let (len, offset) = (leaving.message.len, leaving.sent);
            let cost = if offset == 0 { HEADER } else { 0 };
            if peer.credit <= cost {
                break;
            }
            let now = (len - offset).min(PIECE).min(peer.credit - cost);
            if now == 0 && len > offset {
                break;
            }
            let message = &leaving.message;
            let what = [message.context, message.source, message.tag, message.note];
            let body = if now >= BESIDE { now } else { 0 };
            let frame = Frame::Message { to: leaving.to, what, len, offset, body };
            let read = |into: &mut [u8]| {
                inbox::read(&self.segment, &self.mail, message, offset, into).map_err(damaged)
            };
            self.sent += 1;
            if body == 0 {
                self.transport.send(node, frame.encode_with(now as usize, read)?)?;
            } else {
                let body = match inbox::at(&self.segment, &self.mail, message, offset, now) {
                    Some(at) => Body::Lent(at, now as usize),
                    None => {
                        let mut bytes = vec![0; now as usize];
                        read(&mut bytes)?;
                        Body::Owned(bytes)
                    }
                };
                let is_lent = matches!(body, Body::Lent(..));
                // SAFETY: the message is freed once this body is sent, and the mail stays mapped if it never
                // is (`run`).
                let number = unsafe { self.transport.send_with(node, frame.encode(&[]), body) }?;
                leaving.lent = if is_lent { Some(number) } else { leaving.lent };
            }
            leaving.sent += now;
            peer.credit -= cost + now;
            if leaving.sent == len
                && let Some(Leaving { message, lent, .. }) = peer.leaving.pop_front()
            {
                match lent {
                    Some(number) => peer.lent.push_back((number, message)),
                    None => {
                        inbox::free_sent(&self.segment, &self.mail, message);
                        self.gave_memory();
                    }
                }
            }
            any = true;
        }
        let owed = self.peers[node as usize].owed;
        if owed >= WINDOW / 4 {
            self.peers[node as usize].owed = 0;
            self.send(node, &Frame::Credit(owed), &[])?;
        }
        Ok(any)
    }

    fn free_what_is_sent(&mut self, node: u32) -> bool {
        let sent = self.transport.sent(node);
        let lent = &mut self.peers[node as usize].lent;
        let mut any = false;
        while lent.front().is_some_and(|(number, _)| *number <= sent)
            && let Some((_, message)) = lent.pop_front()
        {
            inbox::free_sent(&self.segment, &self.mail, message);
            any = true;
        }
        if any {
            self.gave_memory();
        }
        any
    }

    /// A message for a rank here, or a piece of one.
    pub(super) fn deliver(&mut self, from: u32, piece: Piece, bytes: &[u8]) -> Result<()> {
        let Piece { to, what, len, offset, body } = piece;
        if !self.segment.here().contains(&to) {
            return Err(TransportError::Broken(format!(
                "node {from} sent a message for rank {to}, which is not here"
            )));
        }
        let peer = &mut self.peers[from as usize];
        let now = if body > 0 { body } else { bytes.len() as u64 };
        if body == 0 && offset == 0 && now == len {
            if peer.coming.is_empty() {
                return self.finish(from, What::Short { to, what, bytes: bytes.to_vec() });
            }
            let what = What::Short { to, what, bytes: bytes.to_vec() };
            peer.coming.push_back(Coming { what, awaits: false });
            return Ok(());
        }
        if offset == 0 {
            let place = self.mail.reserve(&self.segment, len);
            peer.assembling = Some(Assembling { to, what, place, at: 0 });
        }
        let assembling = peer.assembling.as_mut().filter(|message| {
            message.at == offset && offset.checked_add(now).is_some_and(|end| end <= message.place.len())
        });
        let Some(message) = assembling else {
            return Err(TransportError::Broken(format!(
                "node {from} sent pieces of a message in another order"
            )));
        };
        let place = message.place;
        message.at += now;
        let is_whole = message.at == place.len();
        let (to, whole) = (message.to, is_whole.then_some(message.what));
        if is_whole {
            peer.assembling = None;
        }
        let mut copy = None;
        if body == 0 {
            self.mail.write(&self.segment, &place, offset, &[bytes]).map_err(no_room(to))?;
        } else {
            let at = self.mail.at(&self.segment, &place, offset, now).unwrap_or_else(|| {
                let (_, bytes) = copy.insert((offset, vec![0; now as usize]));
                bytes.as_mut_ptr()
            });
            // SAFETY: bytes of the mail that were reserved, or an allocation of their own; both are left
            // alone until the body has come, and stay for good if it never does (`run`).
            unsafe { self.transport.expect(from, at, now as usize) }?;
        }
        let len = now + if offset == 0 { HEADER } else { 0 };
        let what = What::Piece { to, len, place, copy, whole };
        self.peers[from as usize].coming.push_back(Coming { what, awaits: body > 0 });
        self.go_on(from)
    }

    /// The first body that is still to come has come.
    pub(super) fn body_came(&mut self, from: u32) -> Result<()> {
        if let Some(coming) = self.peers[from as usize].coming.iter_mut().find(|coming| coming.awaits) {
            coming.awaits = false;
        }
        self.go_on(from)
    }

    /// What came of a node is done, in order.
    pub(super) fn go_on(&mut self, from: u32) -> Result<()> {
        loop {
            let coming = &mut self.peers[from as usize].coming;
            if coming.front().is_none_or(|coming| coming.awaits) {
                return Ok(());
            }
            if let Some(Coming { what, .. }) = coming.pop_front() {
                self.finish(from, what)?;
            }
        }
    }

    fn finish(&mut self, from: u32, what: What) -> Result<()> {
        let (segment, mail) = (&self.segment, &self.mail);
        let (to, what, unpaid) = match what {
            What::Parts(asker, bytes) => return self.fetched(from, asker, bytes),
            What::Short { to, what, bytes } => {
                self.peers[from as usize].owed += bytes.len() as u64 + HEADER;
                let [context, source, tag, note] = what;
                let pushed = inbox::push(segment, mail, to, context, source, (tag, note), &[&bytes]);
                (to, what, pushed.map_err(no_room(to))?)
            }
            What::Piece { to, len, place, copy, whole } => {
                if let Some((offset, bytes)) = copy {
                    mail.write(segment, &place, offset, &[&bytes]).map_err(no_room(to))?;
                }
                self.peers[from as usize].owed += len;
                let Some(what) = whole else { return Ok(()) };
                (to, what, inbox::push_placed(segment, mail, to, what, place).map_err(damaged)?)
            }
        };
        let pool = &segment.header().pool;
        if unpaid > 0 {
            // Nobody else can find the memory: the budget is exceeded by a block of headers until some is
            // free.
            pool.force(unpaid);
            pool.headers_paid(unpaid);
        }
        self.wake_for(to, what);
        Ok(())
    }

    /// Wakes a rank, if it waits for this message, or the sender waits for it.
    fn wake_for(&self, to: u32, [context, source, tag, note]: [u32; 4]) {
        let waiting = self.segment.rank(to).waiting();
        let is_urgent = note != 0 && matches!(waiting, Waiting::Message { .. } | Waiting::Collective { .. });
        if is_urgent || inbox::concerns(waiting, context, source, tag) {
            self.wake(to);
        }
    }
}
