//! Messages between ranks of different nodes: out of the inboxes of those that are elsewhere, to their node
//! as it has room, and into the inboxes of those that are here.
//!
//! A long piece goes *beside* its frame, from where it lies in the mail of one node to where it will lie in
//! that of the other: MPI alone copies it. It comes after the frame, and so what comes behind it may be there
//! before it: that waits, as messages of a node are delivered in order.

use bdrun_ipc::inbox::{self, Arrived};
use bdrun_ipc::mail::{BLOCK, Place};
use bdrun_ipc::segment::Waiting;

use super::{Gateway, damaged, no_room};
use crate::nodes::frame::Frame;
use crate::nodes::transport::{Body, Result, Transport, TransportError};

/// Bytes of messages that may be on their way to a node.
pub const WINDOW: u64 = 4 << 20;
/// Bytes of a message that are sent at a time.
const PIECE: u64 = 512 << 10;
// One is cut between two blocks only: that is how the other node may write it to scratch. So what fits a node
// of an inbox goes whole.
const _: () = assert!(PIECE.is_multiple_of(BLOCK) && inbox::INLINE_BYTES as u64 <= BLOCK);
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
            let mut now = (len - offset).min(PIECE).min(peer.credit - cost);
            if now < len - offset {
                now = now / BLOCK * BLOCK;
            }
            // There will be room: what was delivered there and not told is less than the window.
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
            self.beat_if_due()?;
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bdrun_ipc::mail::Mail;
    use bdrun_ipc::segment::Segment;
    use bdrun_ipc::spread::Spread;
    use nix::sys::memfd::{MFdFlags, memfd_create};

    use super::*;
    use crate::nodes::transport::Came;
    use crate::nodes::transport::threads::{Threads, connected};

    /// That of this node of two, each with one rank, and what carries its frames. There is so much room for
    /// messages in RAM.
    fn gateway(transport: Threads, node: u32, mail_limit: u64) -> Gateway<Threads> {
        let spread = Spread { ranks: 2, nodes: 2, node };
        let segment = Arc::new(Segment::create_spread(spread, 64 << 20, mail_limit, 2).unwrap());
        let mail = Mail::create(memfd_create(c"spill", MFdFlags::MFD_CLOEXEC).unwrap()).unwrap();
        let gateway = Gateway::new(transport, spread, (segment, mail), Arc::default(), Box::new(|_| ()));
        // It never says that it is there.
        gateway.with_times(None, std::time::Duration::ZERO)
    }

    /// What has come of node 0: offset and bytes of each piece, of what length.
    fn pieces(other: &mut Threads) -> Vec<(u64, u64, Vec<u8>)> {
        let mut all = vec![];
        let mut take = |_, came| {
            let Came::Frame(frame) = came else { panic!("nothing was expected") };
            let (Frame::Message { offset, len, body: 0, .. }, bytes) = Frame::decode(&frame).unwrap() else {
                panic!("no piece")
            };
            all.push((offset, len, bytes.to_vec()));
        };
        other.receive(&mut take).unwrap();
        all
    }

    /// Beats that have come of it, among other things.
    fn beats(other: &mut Threads) -> usize {
        let mut beats = 0;
        let mut take = |_, came| {
            let Came::Frame(frame) = came else { return };
            beats += usize::from(matches!(Frame::decode(&frame), Some((Frame::Beat(_), _))));
        };
        other.receive(&mut take).unwrap();
        beats
    }

    /// Whatever it is long at work on, and however long it does not come to the end of its turn.
    #[test]
    fn between_messages_it_is_said_that_it_is_there() {
        let [one, mut other]: [Threads; 2] = connected(2).try_into().ok().unwrap();
        // It is due again at once.
        let limit = Some(std::time::Duration::from_nanos(8));
        let mut gateway = gateway(one, 0, 1 << 20).with_times(limit, std::time::Duration::ZERO);
        for _ in 0..3 {
            inbox::push(&gateway.segment, &gateway.mail, 1, 3, 0, (0, 0), &[&[7; 9]]).unwrap();
        }
        gateway.segment.wake(0, 1);
        assert!(gateway.collect().unwrap());
        assert_eq!(beats(&mut other), 0);
        assert!(gateway.flush(1).unwrap());
        assert_eq!(beats(&mut other), 3);
        let credit = || (1, Came::Frame(Frame::Credit(1).encode(&[])));
        gateway.take_all(vec![credit(), credit()]).unwrap();
        assert_eq!(beats(&mut other), 2);
    }

    #[test]
    fn a_message_is_cut_between_blocks_only() {
        let [one, mut other]: [Threads; 2] = connected(2).try_into().ok().unwrap();
        let mut gateway = gateway(one, 0, 1 << 20);
        let data: Vec<u8> = (0..BLOCK + 1000).map(|at| at as u8).collect();
        let (short, block) = (inbox::INLINE_BYTES as u64, BLOCK + 1000);
        // Bytes of the message, of room for it, and of what goes of it.
        for (len, room, goes) in [
            (short, HEADER + 1, None),
            (short, HEADER + short - 1, None),
            (short, HEADER + short, Some(short)),
            (block, HEADER + BLOCK - 1, None),
            (block, HEADER + block - 1, Some(BLOCK)),
            (block, HEADER + block, Some(block)),
        ] {
            let data = &data[..len as usize];
            inbox::push(&gateway.segment, &gateway.mail, 1, 3, 0, (0, 0), &[data]).unwrap();
            gateway.segment.wake(0, 1);
            gateway.peers[1].credit = room;
            assert!(gateway.collect().unwrap());
            assert_eq!(gateway.flush(1).unwrap(), goes.is_some(), "{len} bytes and room for {room}");
            let first = pieces(&mut other);
            assert_eq!(first.iter().map(|piece| piece.2.len() as u64).collect::<Vec<_>>(), goes.as_slice());
            // The rest, once there is room for it.
            gateway.peers[1].credit = WINDOW;
            gateway.flush(1).unwrap();
            let all = [first, pieces(&mut other)].concat();
            let mut at = 0;
            for (offset, of, piece) in all {
                assert_eq!((offset, of), (at as u64, len));
                assert!(data[at..].starts_with(&piece));
                at += piece.len();
            }
            assert_eq!(at, data.len());
        }
    }

    /// However short it is, and where it lies meanwhile.
    #[test]
    fn what_comes_in_pieces_is_delivered_whole() {
        for mail_limit in [1 << 20, 0] {
            let [_one, other]: [Threads; 2] = connected(2).try_into().ok().unwrap();
            let mut gateway = gateway(other, 1, mail_limit);
            let what = [3, 0, 7, 0];
            let piece = |len, offset| Piece { to: 1, what, len, offset, body: 0 };
            let take_one = |gateway: &Gateway<Threads>| {
                let mut come = vec![];
                inbox::drain(&gateway.segment, 1, &mut come).unwrap();
                assert_eq!(come.len(), 1);
                let mut bytes = vec![0; come[0].len as usize];
                inbox::take(&gateway.segment, &gateway.mail, come.remove(0), &mut bytes).unwrap();
                bytes
            };
            // What a node of the inbox holds of another message.
            gateway.deliver(0, piece(200, 0), &[9; 200]).unwrap();
            assert_eq!(take_one(&gateway), [9; 200]);
            let long = vec![1; BLOCK as usize];
            gateway.deliver(0, piece(BLOCK + 9, 0), &long).unwrap();
            gateway.deliver(0, piece(BLOCK + 9, BLOCK), &[2; 9]).unwrap();
            assert_eq!(take_one(&gateway), [long, vec![2; 9]].concat());
            // So short a one no gateway cuts; of one that does it is noticed where it is written to scratch.
            let cut = gateway.deliver(0, piece(100, 0), &[3; 60]);
            if mail_limit == 0 {
                assert!(matches!(cut, Err(TransportError::Broken(_))), "{cut:?}");
                continue;
            }
            gateway.deliver(0, piece(100, 60), &[4; 40]).unwrap();
            assert_eq!(take_one(&gateway), [vec![3; 60], vec![4; 40]].concat());
            gateway.mail.give_spares_back(&gateway.segment);
            assert_eq!(gateway.segment.header().pool.mail(), inbox::HEADER_BLOCK);
        }
    }
}
