//! Messages between two ranks: through the ring between them, into the receiver's memory.

use std::sync::atomic::Ordering::SeqCst;

use super::Rank;
use crate::queue::{NEVER, Queue, deliver};
use crate::transport::Result;
use crate::{Cause, Tag};

/// Communicator and tag.
type Label = (u32, Tag);

/// What goes before each message: its bytes, communicator, tag.
const HEAD: usize = 16;

fn head(bytes: usize, (context, tag): Label) -> [u8; HEAD] {
    let mut head = [0; HEAD];
    head[..8].copy_from_slice(&(bytes as u64).to_le_bytes());
    head[8..12].copy_from_slice(&context.to_le_bytes());
    head[12..].copy_from_slice(&tag.to_le_bytes());
    head
}

fn read_head(head: [u8; HEAD]) -> (usize, Label) {
    let word = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
    let bytes = u64::from(word(0)) | u64::from(word(4)) << 32;
    (bytes as usize, (word(8), word(12)))
}

/// What has come, of each rank.
#[derive(Debug)]
pub struct Inbox {
    streams: Vec<Stream>,
}

/// From one rank.
#[derive(Debug, Default)]
struct Stream {
    /// The beginning of the head of the message that is coming.
    head: Vec<u8>,
    /// That message, once its head is there: its length, and what of it has come.
    coming: Option<(usize, Label, Vec<u8>)>,
    /// Those that are there, in order.
    messages: Queue<Label>,
    /// The length of a message for which there was no memory: nothing comes behind it.
    refused: Option<usize>,
}

impl Inbox {
    pub fn new(size: usize) -> Self {
        Self { streams: (0..size).map(|_| Stream::default()).collect() }
    }

    fn take(&mut self, from: usize, label: Label) -> Option<Vec<u8>> {
        self.streams[from].messages.take(&label)
    }
}

impl Stream {
    /// Bytes have come.
    fn feed(&mut self, mut bytes: &[u8]) -> Result<()> {
        if let Some(len) = self.refused {
            return Err(Cause::Backend(format!("no memory for a message of {len} bytes")));
        }
        while !bytes.is_empty() || self.coming.as_ref().is_some_and(|(len, _, came)| came.len() == *len) {
            match &mut self.coming {
                None => {
                    let (now, later) = bytes.split_at(bytes.len().min(HEAD - self.head.len()));
                    self.head.extend_from_slice(now);
                    bytes = later;
                    let Ok(head) = <[u8; HEAD]>::try_from(&*self.head) else { continue };
                    let (len, label) = read_head(head);
                    let mut room = Vec::new();
                    if room.try_reserve_exact(len).is_err() {
                        // What was given with it comes once more: whoever asks again is told the same.
                        self.refused = Some(len);
                        return self.feed(&[]);
                    }
                    self.head.clear();
                    self.coming = Some((len, label, room));
                }
                Some((len, _, came)) if came.len() < *len => {
                    let (now, later) = bytes.split_at(bytes.len().min(*len - came.len()));
                    came.extend_from_slice(now);
                    bytes = later;
                }
                Some(_) => {
                    if let Some((_, label, message)) = self.coming.take() {
                        self.messages.push(label, message);
                    }
                }
            }
        }
        Ok(())
    }
}

impl Rank {
    pub(super) fn ring_bell(&self, rank: usize) {
        let block = self.segment.block(rank);
        block.bell.fetch_add(1, SeqCst);
        // It looks for the bell after it has said so: one of the two sees the other.
        if block.sleeps.load(SeqCst) != 0 {
            bdrun_ipc::futex::wake(&block.bell, 1);
        }
    }

    pub(super) fn send(&self, data: &[u8], to: usize, label: Label) -> Result<()> {
        if to == self.rank {
            self.inbox.borrow_mut().streams[to].messages.push(label, data.to_vec());
            return Ok(());
        }
        let head = head(data.len(), label);
        for mut left in [&head, data] {
            while !left.is_empty() {
                let written = self.write(to, left)?;
                left = &left[written..];
                if written == 0 {
                    self.await_peer(to, || Ok(self.room(to)? > 0))?;
                }
            }
        }
        Ok(())
    }

    pub(super) fn recv(&self, data: &mut [u8], from: usize, label: Label) -> Result<()> {
        let take = || self.inbox.borrow_mut().take(from, label);
        let mut found = None;
        if from == self.rank {
            found = take();
        } else {
            self.await_peer(from, || {
                found = take();
                Ok(found.is_some())
            })?;
        }
        deliver(&found.ok_or(NEVER)?, data, from, label.1)
    }

    /// Waits until `done`, which is for `peer` to do; takes what comes meanwhile.
    fn await_peer(&self, peer: usize, mut done: impl FnMut() -> Result<bool>) -> Result<()> {
        let own = self.segment.block(self.rank);
        let mut missing_at = None;
        loop {
            let bell = own.bell.load(SeqCst);
            own.sleeps.store(1, SeqCst);
            self.drain()?;
            if done()? {
                own.sleeps.store(0, SeqCst);
                return Ok(());
            }
            // It had ended before the last look, and what it did before was seen in that.
            if missing_at == Some(bell) {
                own.sleeps.store(0, SeqCst);
                return Err(Cause::Lost { peer });
            }
            let waited = self.wait(&own.bell, bell, &|rank| *rank == peer);
            own.sleeps.store(0, SeqCst);
            match waited {
                Err(Cause::Lost { .. }) => missing_at = Some(bell),
                waited => waited?,
            }
        }
    }

    /// Bytes that may be written to the ring to a rank.
    fn room(&self, to: usize) -> Result<usize> {
        let ends = self.segment.ends(self.rank, to);
        let there = ends.written.load(SeqCst).wrapping_sub(ends.read.load(SeqCst));
        let room = self.segment.ring_bytes().checked_sub(there as usize);
        room.ok_or_else(|| Cause::Backend("the shared segment is damaged".into()))
    }

    /// As much as there is room for; how much that was.
    fn write(&self, to: usize, data: &[u8]) -> Result<usize> {
        let (ends, ring) = (self.segment.ends(self.rank, to), self.segment.ring(self.rank, to));
        let bytes = self.room(to)?.min(data.len());
        let written = ends.written.load(SeqCst);
        let (size, at) = (self.segment.ring_bytes(), written as usize % self.segment.ring_bytes());
        let first = bytes.min(size - at);
        // SAFETY: inside the ring, where the receiver reads nothing: of what is there it has read all but
        // what is not room, and it is told of these bytes below. No other rank writes there.
        unsafe {
            data.as_ptr().copy_to_nonoverlapping(ring.add(at), first);
            data.as_ptr().add(first).copy_to_nonoverlapping(ring, bytes - first);
        }
        if bytes > 0 {
            ends.written.store(written + bytes as u64, SeqCst);
            self.ring_bell(to);
        }
        Ok(bytes)
    }

    /// Takes in what has come.
    fn drain(&self) -> Result<()> {
        let mut inbox = self.inbox.borrow_mut();
        for from in (0..self.size).filter(|&from| from != self.rank) {
            let (ends, ring) = (self.segment.ends(from, self.rank), self.segment.ring(from, self.rank));
            let read = ends.read.load(SeqCst);
            let bytes = ends.written.load(SeqCst).wrapping_sub(read) as usize;
            let size = self.segment.ring_bytes();
            if bytes > size {
                return Err(Cause::Backend("the shared segment is damaged".into()));
            }
            if bytes == 0 {
                continue;
            }
            let at = read as usize % size;
            let first = bytes.min(size - at);
            // SAFETY: inside the ring, and written before `written` was; the sender writes there again only
            // after `read` says that it was read.
            let parts = unsafe {
                [
                    std::slice::from_raw_parts(ring.add(at), first),
                    std::slice::from_raw_parts(ring, bytes - first),
                ]
            };
            for part in parts {
                inbox.streams[from].feed(part)?;
            }
            ends.read.store(read + bytes as u64, SeqCst);
            self.ring_bell(from);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    proptest! {
        /// However a stream is cut, the same messages come of it, in order.
        #[test]
        fn a_stream_may_be_cut_anywhere(
            messages in vec((0u32..3, 0u32..3, vec(any::<u8>(), 0..40)), 0..8),
            cuts in vec(1usize..30, 1..40),
        ) {
            let mut bytes = Vec::new();
            for (context, tag, data) in &messages {
                bytes.extend(head(data.len(), (*context, *tag)));
                bytes.extend(data);
            }
            let mut stream = Stream::default();
            let (mut left, mut cuts) = (&*bytes, cuts.iter().cycle());
            while !left.is_empty() {
                let (now, later) = left.split_at(left.len().min(*cuts.next().unwrap()));
                stream.feed(now).unwrap();
                left = later;
            }
            for (context, tag, data) in messages {
                // The first with this label is this one, since those before it were taken.
                prop_assert_eq!(stream.messages.take(&(context, tag)), Some(data));
            }
        }
    }
}
