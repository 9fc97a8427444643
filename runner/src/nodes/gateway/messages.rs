//! Messages between ranks of different nodes: out of the inboxes of those that are elsewhere, to their node
//! as it has room, and into the inboxes of those that are here.

use bdrun_ipc::inbox;
use bdrun_ipc::segment::Waiting;

use super::{Arriving, Gateway, HEADER, Leaving, PIECE, WINDOW, damaged};
use crate::nodes::frame::Frame;
use crate::nodes::transport::{Result, Transport, TransportError};

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
            peer.leaving.extend(all.into_iter().map(|message| Leaving { to, message, sent: 0 }));
        }
        Ok(any)
    }

    /// Sends a node what it has room for.
    pub(super) fn flush(&mut self, node: u32) -> Result<bool> {
        let mut any = false;
        loop {
            let peer = &mut self.peers[node as usize];
            let Some(Leaving { to, message, sent }) = peer.leaving.front_mut() else { break };
            let cost = if *sent == 0 { HEADER } else { 0 };
            if peer.credit <= cost {
                break;
            }
            let now = (message.len - *sent).min(PIECE).min(peer.credit - cost);
            if now == 0 && message.len > *sent {
                break;
            }
            let what = [message.context, message.source, message.tag, message.note];
            let frame = Frame::Message { to: *to, what, len: message.len, offset: *sent };
            let whole = frame.encode_with(now as usize, |into| {
                inbox::read(&self.segment, &self.mail, message, *sent, into).map_err(damaged)
            })?;
            *sent += now;
            peer.credit -= cost + now;
            if *sent == message.len
                && let Some(Leaving { message, .. }) = peer.leaving.pop_front()
            {
                inbox::free(&self.segment, &self.mail, message);
                self.gave_memory();
            }
            self.send_work(node, whole)?;
            any = true;
        }
        let owed = self.peers[node as usize].owed;
        if owed >= WINDOW / 4 {
            self.peers[node as usize].owed = 0;
            self.send(node, &Frame::Credit(owed), &[])?;
        }
        Ok(any)
    }

    pub(super) fn deliver(
        &mut self,
        from: u32,
        (to, what, len, offset): (u32, [u32; 4], u64, u64),
        bytes: &[u8],
    ) -> Result<()> {
        if !self.segment.here().contains(&to) {
            return Err(TransportError(format!(
                "node {from} sent a message for rank {to}, which is not here"
            )));
        }
        let peer = &mut self.peers[from as usize];
        peer.owed += bytes.len() as u64 + if offset == 0 { HEADER } else { 0 };
        let unpaid = if offset == 0 && bytes.len() as u64 == len {
            let [context, source, tag, note] = what;
            inbox::push(&self.segment, &self.mail, to, context, source, (tag, note), &[bytes])
                .map_err(damaged)?
        } else {
            if offset == 0 {
                let place = self.mail.reserve(&self.segment, len);
                peer.arriving = Some(Arriving { to, what, place, at: 0 });
            }
            let arriving = peer.arriving.as_mut().filter(|message| message.at == offset);
            let Some(message) = arriving else {
                return Err(TransportError(format!("node {from} sent pieces of a message in another order")));
            };
            self.mail.write(&self.segment, &message.place, offset, &[bytes]).map_err(damaged)?;
            message.at += bytes.len() as u64;
            if message.at < len {
                return Ok(());
            }
            let Some(Arriving { to, what, place, .. }) = peer.arriving.take() else { return Ok(()) };
            inbox::push_placed(&self.segment, &self.mail, to, what, place).map_err(damaged)?
        };
        let pool = &self.segment.header().pool;
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
            self.segment.wake(to, to);
        }
    }
}
